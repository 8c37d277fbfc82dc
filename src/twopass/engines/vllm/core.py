"""An engine core through its life: it starts, is watched, and is started again, with less to do if it was too much.

A core is vLLM's process with the model. This file knows when prompts may enter one, and which died with it; it knows
nothing of what they ask. What runs inside the process is in plugin/.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Protocol

import structlog

from twopass.engines.interface import EngineDied, Incident
from twopass.engines.vllm import arguments
from twopass.engines.vllm.core_process import CoreProcess
from twopass.engines.vllm.plugin.core_exit import ExitReport
from twopass.engines.vllm.startup import MEMORY_PLAN, CorePlan
from twopass.errors import Code, EngineError
from twopass.runtime import task_group
from twopass.settings import Settings

CRASH_WINDOW_S = 3600.0  # older crashes do not count towards ENGINE_RESTARTS
CHECK_S = 1.0  # between two looks whether a core that is asked something is still alive
STEPS = 2  # times the steps between two outputs: how many may pass in silence
GAPS = 4  # times the longest silence so far
DECAY = 0.99  # of both measurements with each output: one slow step, such as a compilation, is forgotten in minutes

log = structlog.get_logger()


class StartingCore(Protocol):
    """A core that is starting: `CoreProcess`, or what a test passes instead."""

    @property
    def stage_ends(self) -> Mapping[str, float]: ...

    def wait(self) -> None: ...

    def connect(self) -> Any: ...

    def stop(self) -> None: ...


StartCore = Callable[[Mapping[str, Any], Mapping[str, str]], StartingCore]
"""Start a core's process with vLLM's arguments, and variables that it alone gets."""


class Core:
    """One core, and those that replace it when it dies.

    `client` is vLLM's AsyncLLM of the present one, None until the first is ready; `arguments` is what that was started
    with.
    """

    def __init__(self, plan: CorePlan, settings: Settings, start: StartCore = CoreProcess) -> None:
        """Start the process by forking: before, this one must not use CUDA or threads. `open` waits for it."""
        self.client: Any = None
        self.arguments = dict(plan.arguments)
        self.fallbacks = plan.fallbacks
        self.incidents: list[Incident] = []
        self.restarts = 0
        self.is_gone = False
        self.start_s = settings.engine_start_s
        self._plan, self._start_process = plan, start
        self._memory_variables: Mapping[str, str] = {}
        self._max_restarts = settings.engine_restarts
        self._crash_times: list[float] = []
        self._restart_task: asyncio.Task[None] | None = None
        self._watchdog: asyncio.Task[None] | None = None
        self._lock = SharedExclusiveLock()
        self._requests = 0
        self._monitor_silence = partial(
            SilenceMonitor, settings.engine_silence_s, self.start_s, settings.stream_interval
        )
        self.silence = self._monitor_silence()
        self._exit_report = ExitReport()
        self._is_abandoned = False
        self._process = self._launch()

    @property
    def sequences(self) -> int:
        return int(self.arguments["max_num_seqs"])

    @property
    def is_ready(self) -> bool:
        is_restarting = self._restart_task is not None and not self._restart_task.done()
        return not (self.client is None or self.is_gone or is_restarting or self.client.errored)

    # ---- start and end

    def _launch(self) -> StartingCore:
        with _raise_start_errors():
            variables = {**self._exit_report.variables, **self._plan.variables, **self._memory_variables}
            return self._start_process(self.arguments, variables)

    async def open(self) -> Mapping[str, float]:
        """Wait until the core has loaded its model and watch it from then on; raises EngineError.

        Returns when each stage of its start ended. If this is cancelled, no core and no thread is left.
        """
        if self.client is None:
            await self._wait_in_thread()
        ends = dict(self._process.stage_ends)
        if "worker_cls" in self.arguments:
            first, *_ = await self._ask(self.client.collective_rpc("stage_ends"))
            ends |= first
        await self._ask(self.client.get_supported_tasks())
        if self._watchdog:
            self._watchdog.cancel()
        self._watchdog = asyncio.create_task(self._watch())
        return ends

    async def _wait_in_thread(self) -> None:
        """Wait for the core in a thread of its own: as many as there are engines may wait for minutes."""
        threads = ThreadPoolExecutor(1, thread_name_prefix="core")
        waiting = asyncio.get_running_loop().run_in_executor(threads, self._connect)
        threads.shutdown(wait=False)
        try:
            await asyncio.shield(waiting)
        finally:
            if self.client is None:  # failed or cancelled: without its core, the thread ends
                await task_group.finish(self._end_start(waiting))

    async def _end_start(self, waiting: asyncio.Future[None]) -> None:
        await asyncio.to_thread(self.abandon)
        await asyncio.gather(waiting, return_exceptions=True)

    def _connect(self) -> None:
        """Wait for the core and make it ready for requests; raises EngineError.

        One that cannot capture its CUDA graphs is started once more, without them.
        """
        with _raise_start_errors():
            try:
                self._process.wait()
            except Exception:
                if self.arguments["enforce_eager"] or not self._exit_report.pop_no_graphs():
                    raise
                self._process.stop()
                self._forgo_graphs()
                self._process = self._launch()
                if self._is_abandoned:  # meanwhile: it is not known which of the two was ended
                    self._process.stop()
                self._process.wait()
            self.client = self._process.connect()

    def abandon(self) -> None:
        """End a core that is still starting."""
        self._is_abandoned = True
        self._process.stop()

    async def close(self) -> None:
        if self._watchdog:
            self._watchdog.cancel()
        if self._restart_task:
            await asyncio.wait([self._restart_task])
        self._exit_report.clear()
        if self.client is None:
            await asyncio.to_thread(self.abandon)
        else:
            self.client.shutdown()  # on the event loop: elsewhere, vLLM's output task would report the end as a crash

    async def _ask(self, call: Awaitable[Any]) -> Any:
        """Await the answer to a call that is no prompt; raises EngineError if the core dies first.

        vLLM leaves such calls waiting then. The first prompt would make one, for the supported tasks, so it is made
        before.
        """
        asking = asyncio.ensure_future(call)
        try:
            while not asking.done():
                await asyncio.wait((asking,), timeout=CHECK_S)
                if self.client.errored and not asking.done():
                    raise EngineError(Code.ENGINE_DEAD, f"{self._plan.name} died while it started; the log has more")
            return asking.result()
        finally:
            asking.cancel()

    # ---- requests

    @asynccontextmanager
    async def admit(self, is_alone: bool) -> AsyncIterator[None]:
        """Let a prompt in, without any other if `is_alone`; raises EngineDied, also for a death while it is in."""
        from vllm.v1.engine.exceptions import EngineDeadError

        async with self._lock.exclusive() if is_alone else self._lock.shared():
            self._require_running()
            try:
                yield
            except EngineDeadError as error:
                raise EngineDied(had_prompt=True) from error

    def _require_running(self) -> None:
        """Raise EngineDied if the core is already dead: the prompt that is about to be sent did not kill it."""
        if self.client.errored:
            raise EngineDied(had_prompt=False)

    async def stream(self, engine_input: Any, params: Any, priority: int) -> AsyncGenerator[Any, None]:
        """Yield vLLM's outputs for a request; leaving the stream early aborts it. Raises EngineDied."""
        self._require_running()  # it may have died while the image was written
        if not self._requests:
            self.silence.begin()
        self._requests += 1
        last_output_at = None
        try:
            request = self.client.generate(engine_input, params, uuid.uuid4().hex, priority=priority)
            async with aclosing(request) as outputs:
                async for output in outputs:
                    last_output_at = self.silence.record(len(output.outputs[0].token_ids), last_output_at)
                    yield output
        finally:
            self._requests -= 1

    # ---- watch and restart

    async def _watch(self) -> None:
        """Kill a core that is alive but produces nothing, for example on a hung GPU: vLLM detects only dead ones."""
        while True:
            await asyncio.sleep(self.silence.base_s / 4)
            try:
                self._kill_silent_core()
            except Exception:  # whatever fails here: without this task, a hung core would keep its prompts for ever
                log.exception("a silent core could not be killed; it is tried again")

    def _kill_silent_core(self) -> None:
        if self._requests and self.silence.is_too_long():
            log.error(
                "engine produces no output, killing its core", gpus=self._plan.gpus, seconds=round(self.silence.limit_s)
            )
            for process in self.client.engine_core.resources.engine_manager.processes:
                process.kill()
            self.silence.begin()

    async def wait_for_restart(self) -> None:
        """Return when there is a running core. The restart is a task of its own: those who wait may be cancelled."""
        if self._restart_task is None or self._restart_task.done():
            if not self.client.errored:
                return
            self._restart_task = asyncio.create_task(self._restart())
            self._restart_task.add_done_callback(_log_failed_restart)
        await asyncio.shield(self._restart_task)

    async def _restart(self) -> None:
        """Replace the dead core by a new one; raises EngineError if that happened too often."""
        self._crash_times = [when for when in self._crash_times if time.monotonic() - when < CRASH_WINDOW_S]
        if len(self._crash_times) >= self._max_restarts:
            self.is_gone = True
            message = f"{self._plan.name} died too often; the worker has to be replaced"
            raise EngineError(Code.ENGINE_DEAD, message)
        self._crash_times.append(time.monotonic())
        self.restarts += 1
        incident = self._diagnose_crash()
        self.incidents.append(incident)
        log.error(incident.message, code=incident.code, restarts_left=self._max_restarts - len(self._crash_times))
        _spawn_next_cores()
        try:
            async with asyncio.timeout(self.start_s):
                await asyncio.to_thread(self.client.shutdown)
                await asyncio.to_thread(self._start_again)
                self.silence = self._monitor_silence()
                await self._ask(self.client.get_supported_tasks())
        except TimeoutError:  # a lost GPU: the thread cannot be stopped, so the worker is replaced
            self.is_gone = True
            message = f"{self._plan.name} did not start again within {self.start_s:.0f} s"
            raise EngineError(Code.ENGINE_DEAD, f"{message}; the worker has to be replaced") from None

    def _start_again(self) -> None:
        self._process = self._launch()
        try:
            self._connect()
        except BaseException:
            self._process.stop()
            raise

    # ---- less to do

    def _diagnose_crash(self) -> Incident:
        """Say why the core died, as far as it reported; if it ran out of memory, give the next one less to do."""
        name = self._plan.name
        if not self._exit_report.pop_out_of_memory():
            return Incident(Code.ENGINE_DEAD, f"{name} died and was started again; its prompts were sent again")
        self.arguments = arguments.reduce_load(self.arguments, self._plan.largest_image)
        self._memory_variables = {MEMORY_PLAN: "0"}  # a size that was measured for the larger share would be used again
        change = f"it now reads {self.sequences} prompts at once"
        return Incident(Code.ENGINE_MEMORY, f"{name} ran out of memory and was started again; {change}")

    def _forgo_graphs(self) -> None:
        """Let the next cores run without CUDA graphs, which costs speed and saves memory."""
        self.arguments = arguments.forgo_graphs(self.arguments)
        advice = "lower MAX_NUM_SEQS for graphs, or set ENFORCE_EAGER=true to start without them at once"
        failure = f"{self._plan.name} could not capture its CUDA graphs and was started without them"
        incident = Incident(Code.ENGINE_DEAD, f"{failure}; it is slower: {advice}")
        self.incidents.append(incident)
        self.fallbacks = (*self.fallbacks, "no_cuda_graphs")
        log.warning(incident.message, code=incident.code)
        _spawn_next_cores()  # other engines may be waited for in threads


def _spawn_next_cores() -> None:
    """Let vLLM start further cores in new interpreters: a process with threads must not fork."""
    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"


@contextmanager
def _raise_start_errors() -> Iterator[None]:
    """Translate the errors of a start: anything can stop a model from loading. vLLM has logged the details."""
    try:
        yield
    except EngineError:
        raise
    except Exception as error:
        message = f"vLLM did not start: {type(error).__name__}: {error}; the log has more"
        raise EngineError(Code.ENGINE_DEAD, message) from error


def _log_failed_restart(restart: asyncio.Task[None]) -> None:
    """Log the error, which otherwise only prompts that wait for the restart would get."""
    if not restart.cancelled() and (error := restart.exception()):
        log.error("engine not started again", reason=str(error))


class SilenceMonitor:
    """Decides when a busy core has been silent for too long: on a hung GPU it lives, but answers nothing.

    A slow core is not a hung one. Its outputs come once for many steps, so the limit grows with the measured time of a
    step and with the longest silence that ended by itself. On a GPU both are far below the limit that is set.

    `base_s` is the shortest limit, `first_s` the shortest before the first output, when nothing is measured yet.
    `interval` is the number of tokens between two outputs of an answer; a step yields one at least.
    """

    def __init__(
        self, base_s: float, first_s: float, interval: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.base_s = base_s
        self._first_s, self._interval, self._clock = first_s, interval, clock
        self._first_step_s: float | None = None  # encodes the image; stands for all steps until others are measured
        self._step_s: float | None = None
        self._longest_gap_s = 0.0
        self._last = clock()

    def begin(self) -> None:
        """An idle core got a prompt, or a hung one was killed: silence is counted from now on."""
        self._last = self._clock()

    def record(self, tokens: int, since: float | None) -> float:
        """Note an output with new tokens of one answer; returns its time, `since` of the answer's next output.

        `since` is None for an answer's first output, which may have waited for other prompts.
        """
        now = self._clock()
        self._longest_gap_s = max(now - self._last, DECAY * self._longest_gap_s)
        if self._first_step_s is None:
            self._first_step_s = now - self._last
        if since is not None and tokens:
            self._step_s = max((now - since) / tokens, DECAY * (self._step_s or 0.0))
        self._last = now
        return now

    @property
    def limit_s(self) -> float:
        """Seconds after which a silent core counts as hung."""
        if self._first_step_s is None:
            return max(self.base_s, self._first_s)
        step_s = self._first_step_s if self._step_s is None else self._step_s
        return max(self.base_s, GAPS * self._longest_gap_s, STEPS * self._interval * step_s)

    def is_too_long(self) -> bool:
        return self._clock() - self._last > self.limit_s


class SharedExclusiveLock:
    """A readers-writer lock for the tasks of one event loop; exclusive holders precede new shared ones."""

    def __init__(self) -> None:
        self._shared_holders = 0
        self._exclusive_turn = asyncio.Lock()
        self._open_to_shared, self._no_shared_holder = asyncio.Event(), asyncio.Event()
        self._open_to_shared.set()
        self._no_shared_holder.set()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Hold the lock together with others; waits while a task holds it exclusively or waits to do so."""
        while not self._open_to_shared.is_set():
            await self._open_to_shared.wait()
        self._shared_holders += 1
        self._no_shared_holder.clear()
        try:
            yield
        finally:
            self._shared_holders -= 1
            if not self._shared_holders:
                self._no_shared_holder.set()

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Hold the lock alone: waits for the current holders, and makes all others wait."""
        async with self._exclusive_turn:
            self._open_to_shared.clear()
            try:
                await self._no_shared_holder.wait()
                yield
            finally:
                self._open_to_shared.set()
