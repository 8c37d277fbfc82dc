"""A Ray cluster as an endpoint: each actor owns one engine, and jobs go to the actors that are free.

Jobs carry the addresses of documents, results those of artefacts. Nothing else is kept in the cluster: actors end with
the command, and a repeated one continues from the stored pages.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import socket
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import structlog

from twopass.errors import Code, EndpointError, InvalidSetting, TwopassError, advise_install
from twopass.fleet.endpoints import answers
from twopass.fleet.endpoints.actor_pool import ActorFailed, ActorLost, ActorPool, PoolSize, Reply
from twopass.fleet.endpoints.answers import REASON_CHARS, ActorReply
from twopass.fleet.endpoints.interface import JobStatus, LocalJobs
from twopass.fleet.endpoints.ray_actor import OpenWorker, ReadingActor
from twopass.runtime import vendor_reports
from twopass.settings import Settings
from twopass.version import VERSION
from twopass.worker import open_worker

log = structlog.get_logger()

LOCAL, AUTO = "local", "auto"
ADDRESS = r"[^/\s]+:\d+"  # HOST:PORT
_GPU_ENGINES = ("vllm", "hf")
_GPU_ACTOR_CPUS = 4  # for the page workers beside a GPU
_OBJECT_STORE_BYTES = 100 << 20  # of a local cluster: jobs and results are small
CONNECT_S = 10.0
_PLACE_S = 60.0
_PROGRESS_S = 5.0  # a node that is lost answers late or never
_ACTOR_OPTIONS = (
    *("num_cpus", "num_gpus", "memory", "resources"),
    *("accelerator_type", "label_selector", "scheduling_strategy"),
)
_STRATEGIES = ("DEFAULT", "SPREAD")

# Where a cluster's node looks for Ray's token, in this order.
_TOKEN_PLACES = "RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token"


@dataclass(frozen=True)
class RayOptions:
    """Which cluster, and how many actors of which kind.

    `address` is HOST:PORT, `auto` for the cluster that this machine belongs to, or `local` for one on this machine that
    ends with the command. `actor` has options of Ray for each actor; without them it gets what its engine needs.
    """

    address: str
    min_actors: int = 0
    max_actors: int = 1
    actor: Mapping[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """Raise InvalidSetting, which names the option, for values that cannot be right."""
        if self.address not in (LOCAL, AUTO) and not re.fullmatch(ADDRESS, self.address):
            message = (
                f"--ray: {self.address} is not HOST:PORT of a cluster that this machine belongs to, {AUTO} or {LOCAL}"
            )
            raise InvalidSetting(Code.INVALID_SETTING, message)
        if self.min_actors > self.max_actors:
            message = f"--min-workers: {self.min_actors} are more than --workers {self.max_actors}"
            raise InvalidSetting(Code.INVALID_SETTING, message)
        if unknown := set(self.actor) - set(_ACTOR_OPTIONS):
            message = f"--actor: {min(unknown)} is not one of {', '.join(_ACTOR_OPTIONS)}"
            raise InvalidSetting(Code.INVALID_SETTING, message)
        if self.actor.get("scheduling_strategy", _STRATEGIES[0]) not in _STRATEGIES:
            message = f"--actor: scheduling_strategy is not one of {', '.join(_STRATEGIES)}"
            raise InvalidSetting(Code.INVALID_SETTING, message)

    def actor_options(self, settings: Settings) -> dict[str, Any]:
        """Ray's options of an actor: GPUs for an engine that needs them, and a CPU for each of its page workers."""
        has_gpu = settings.engine in _GPU_ENGINES
        cpus = settings.page_workers or (_GPU_ACTOR_CPUS if has_gpu else 1)
        gpus = settings.tensor_parallel_size if settings.gpus == "auto" else settings.gpus
        return {"num_gpus": gpus if has_gpu else 0, "num_cpus": cpus, **self.actor}


class RayCluster:
    """Connects to the cluster, or starts one, in its `with` block. Actors start with the first job."""

    def __init__(self, options: RayOptions, settings: Settings, open_worker: OpenWorker = open_worker) -> None:
        """`open_worker` is called in each actor. Raises InvalidSetting if Ray is missing or refuses an option."""
        prepare_environment(options.address)  # before Ray is imported, which reads it
        try:
            import ray
            from ray import exceptions
        except ModuleNotFoundError as error:
            message = f"--ray needs {error.name}: {advise_install('ray')}"
            raise InvalidSetting(Code.INVALID_SETTING, message) from None
        self._ray: Any = ray
        self._exceptions: Any = exceptions
        self._address, self._needs = options.address, options.actor_options(settings)
        try:
            self._actor_class = ray.remote(ReadingActor).options(max_restarts=0, **self._needs)
        except (TypeError, ValueError) as error:
            raise InvalidSetting(Code.INVALID_SETTING, f"--actor: {error}") from None
        fixed = {"page_workers": max(1, int(self._needs["num_cpus"])), **settings.model_dump(exclude_unset=True)}
        self._arguments = (fixed, open_worker)
        size = PoolSize(options.min_actors, options.max_actors, settings.concurrency)
        self._pool = ActorPool(self._start_actor, size)
        self._jobs = LocalJobs("ray")

    async def __aenter__(self) -> Self:
        self._connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._jobs.cancel_all()
        await self._pool.close()
        self._ray.shutdown()

    async def submit(self, job_input: Mapping[str, Any]) -> str:
        job_id = self._jobs.create_id()
        self._jobs.start(job_id, self._pool.run(job_id, job_input))
        return job_id

    async def poll(self, job_id: str) -> JobStatus:
        return await self._jobs.find_end(job_id) or await self._pool.progress(job_id)

    async def cancel(self, job_id: str) -> None:
        await self._jobs.cancel(job_id)

    def _connect(self) -> None:
        """Join the cluster or start one; raises EndpointError, which says why that is impossible."""
        address = self._address
        head = os.environ.get("RAY_ADDRESS", "") if address == AUTO else address
        if re.fullmatch(ADDRESS, head):
            _check_reachable(head)
        own = {"include_dashboard": False, "object_store_memory": _OBJECT_STORE_BYTES} if address == LOCAL else {}
        with map_connection_errors(address, self._exceptions), _start_no_api_server():
            self._ray.init(address=address, log_to_driver=False, logging_level="ERROR", **own)

    def _start_actor(self) -> RayActor:
        """Ask for an actor; Ray, or its autoscaler, finds a node for it."""
        return RayActor(self._ray, self._exceptions, self._actor_class.remote(*self._arguments), self._needs)


class RayActor:
    """An actor behind the pool's protocol. While it waits for a node, a warning every `place_s` seconds says so."""

    def __init__(
        self, ray: Any, exceptions: Any, handle: Any, needs: Mapping[str, Any], place_s: float = _PLACE_S
    ) -> None:
        self._place_s = place_s
        self._ray, self._exceptions, self._handle, self._needs = ray, exceptions, handle, needs

    async def open(self) -> TwopassError | None:
        placed = asyncio.ensure_future(self._wait_for(self._handle.__ray_ready__.remote()))
        try:
            while not (await asyncio.wait({placed}, timeout=self._place_s))[0]:
                log.warning("no node has room for an actor", needs=dict(self._needs), free=self._list_free())
            await placed
        finally:
            placed.cancel()
        error: TwopassError | None = await self._wait_for(self._handle.open.remote(VERSION))
        return error

    async def read(self, job_id: str, job_input: Mapping[str, Any]) -> Reply:
        answer = await self._wait_for(self._handle.read.remote(job_id, dict(job_input)))
        reply = answers.parse(ActorReply, answer, "a Ray actor's reply")
        return Reply(reply.output, reply.error, reply.seconds, reply.is_gone)

    async def progress(self, job_id: str) -> Mapping[str, Any] | None:
        try:
            async with asyncio.timeout(_PROGRESS_S):
                progress: Mapping[str, Any] | None = await self._wait_for(self._handle.progress.remote(job_id))
                return progress
        except TimeoutError:
            return None

    async def close(self) -> None:
        await self._wait_for(self._handle.close.remote())

    def kill(self) -> None:
        self._ray.kill(self._handle, no_restart=True)

    def _list_free(self) -> dict[str, float]:
        """The free resources of the cluster, without those that name single nodes."""
        free = self._ray.available_resources()
        return {name: amount for name, amount in free.items() if not name.startswith("node:")}

    async def _wait_for(self, call: Any) -> Any:
        """Wait for a call's result; a cancelled wait cancels the call."""
        with map_call_errors(self._exceptions):
            try:
                return await _as_future(call)
            except asyncio.CancelledError:
                self._ray.cancel(call)
                raise


def _as_future(call: Any) -> Awaitable[Any]:
    return asyncio.wrap_future(call.future())


def prepare_environment(address: str) -> None:
    """Set Ray's variables that are not set: use its token authentication, send no usage statistics.

    A local cluster always has a token; one that is not given is made for it and ends with it.
    """
    vendor_reports.switch_off()
    if address != LOCAL:
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        return
    os.environ["RAY_AUTH_MODE"] = "token"
    if not os.environ.get("RAY_AUTH_TOKEN_PATH"):
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


@contextmanager
def _start_no_api_server() -> Iterator[None]:
    """A cluster that Ray starts in this context has no API server.

    Without a dashboard, the server has one part, the usage report. Even if that is off, it asks the addresses at which
    three clouds describe their machines, and Ray has no option against it.
    """
    from ray._private.node import Node

    start_api_server, Node.start_api_server = Node.start_api_server, lambda self, **options: None
    try:
        yield
    finally:
        Node.start_api_server = start_api_server


def _check_reachable(address: str) -> None:
    """Raise EndpointError if nothing listens there: Ray would try for two minutes and end the process."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except (OSError, OverflowError) as error:
        message = (
            f"--ray {address}: cannot be reached ({error}); name the head's address and port, such as 10.0.0.5:6379"
        )
        raise EndpointError(Code.ENDPOINT_UNAVAILABLE, message) from None


@contextmanager
def map_connection_errors(address: str, exceptions: Any) -> Iterator[None]:
    """Translate what `ray.init` raises."""
    try:
        yield
    except exceptions.AuthenticationError:
        message = (
            f"the cluster's token is missing or wrong; set {_TOKEN_PLACES}, or RAY_AUTH_MODE=disabled if it has none"
        )
    except ConnectionError as error:
        message = f"{_first_line(error)}; check that the cluster runs and that its token is in {_TOKEN_PLACES}"
    except SystemExit:  # Ray ends the process if the head does not answer
        message = "the head does not answer as Ray does; check address and port"
    except (RuntimeError, ValueError) as error:  # another version, or no node of the cluster on this machine
        message = (
            f"{_first_line(error)}; run the command on a machine of the cluster, with its versions of Ray and Python"
        )
    else:
        return
    raise EndpointError(Code.ENDPOINT_DENIED, f"--ray {address}: {message}") from None


@contextmanager
def map_call_errors(exceptions: Any) -> Iterator[None]:
    """Translate what a call of an actor raises: ActorFailed for errors of our code, ActorLost for all others."""
    try:
        yield
    except exceptions.RayTaskError as error:
        raise ActorFailed(f"{_first_line(error.cause or error)} in a Ray actor; its log has the traceback") from None
    except exceptions.RayError as error:
        raise ActorLost(describe_loss(error)) from None


def describe_loss(error: BaseException) -> str:
    """Why an actor is lost, in one line, with its process and node where Ray names them."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    if "creation task" in lines[0]:  # a traceback, which ends with the reason
        return f"actor not created: {lines[-1]}"[:REASON_CHARS]
    named = (re.search(rf"^\s*{name}: (\S+)$", text, re.M) for name in ("pid", "ip"))
    place = " on ".join(found[1] for found in named if found)
    reason = next((line for line in lines if " because " in line), lines[0])
    return f"actor {place} lost: {reason}"[:REASON_CHARS] if place else f"actor lost: {reason}"[:REASON_CHARS]


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}"[:REASON_CHARS] if lines else type(error).__name__
