"""Run functions in child processes that may crash, hang or use too much memory.

All CPU work runs here: rendering, crops, parsing, enrichment, the cpu engine. A failing child is killed and replaced;
only its caller gets WorkerDied.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar

import structlog

from twopass.errors import Code, WorkerDied
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime import retry, task_group

log = structlog.get_logger()

P = ParamSpec("P")
T = TypeVar("T")

LENGTH_BYTES = 8  # the length before each message, in both directions
CHILD_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # there is one page worker per core already
    "PYTHONWARNINGS": "ignore",  # Pillow's warnings may quote text of the document
    # Fixed thresholds keep pixels in mmap. Otherwise glibc raises the threshold after the first large free, places
    # pixels in the heap between small objects, and keeps 8 MB per page.
    "MALLOC_MMAP_THRESHOLD_": "1048576",
    "MALLOC_TRIM_THRESHOLD_": "1048576",
}
# The only variables that a child inherits: it must not see the credentials of stores and engines.
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONPATH")
MAX_CALLS = 1000  # per child; replacing it frees what libraries never release
START_TIMEOUT_S = 60.0
MEMORY_BYTES = 4 << 30  # the largest accepted image takes 3 to 4 GB
MAX_ANSWER_BYTES = 256 << 20  # a page of 10,000 words takes 2 MB, a crop of 40 million noisy pixels 120 MB
MEMORY_CHECK_INTERVAL_S = 0.05  # a child grows by less than 200 MB in between

cpu_time_callback: ContextVar[Callable[[float], None]] = ContextVar("cpu_time_callback", default=lambda seconds: None)
"""Called with the processor seconds of every call made in its context; the stopwatch sets it per stage."""


@dataclass(eq=False)
class _Child:
    process: asyncio.subprocess.Process
    exceeded_memory: bool = False
    calls: int = 0

    async def send(self, message: Any) -> Any:
        assert self.process.stdin and self.process.stdout
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        self.process.stdin.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
        await self.process.stdin.drain()
        return await self.receive()

    async def receive(self) -> Any:
        assert self.process.stdout
        size = int.from_bytes(await self.process.stdout.readexactly(LENGTH_BYTES), "big")
        return pickle.loads(await self.process.stdout.readexactly(size))

    @property
    def is_dead(self) -> bool:
        return self.process.returncode is not None

    @property
    def private_bytes(self) -> int:
        """Memory that it does not share; 0 if it is gone."""
        try:
            # Read twenty times a second per child: Path.read_text would take six times as long.
            with open(f"/proc/{self.process.pid}/statm", "rb", buffering=0) as statm:
                _, resident, shared, *_ = map(int, statm.read().split())
        except OSError:
            return 0
        return (resident - shared) * os.sysconf("SC_PAGE_SIZE")

    @contextmanager
    def limit_memory(self, limit_bytes: int) -> Iterator[None]:
        """Kill the child if it exceeds the limit. A kernel limit would only fail one allocation, which image decoders
        turn into a page without its image."""
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle

        def check() -> None:
            nonlocal timer
            if self.private_bytes > limit_bytes and not self.is_dead:
                self.exceeded_memory = True
                self.process.kill()
            else:
                timer = loop.call_later(MEMORY_CHECK_INTERVAL_S, check)

        timer = loop.call_later(MEMORY_CHECK_INTERVAL_S, check)
        try:
            yield
        finally:
            timer.cancel()

    async def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


class PagePool:
    """A fixed number of page workers, started by `open` and killed by `close`, on one event loop."""

    def __init__(
        self,
        count: int,
        buffers: PixelBufferPool,
        timeout_s: float = 120.0,
        start_timeout_s: float = START_TIMEOUT_S,
        more_buffers: Sequence[PixelBufferPool] = (),
        memory_bytes: int = MEMORY_BYTES,
        calls: int = MAX_CALLS,
    ) -> None:
        self.count = count
        self._calls = calls
        self._buffers = (buffers, *more_buffers)
        self._timeout_s = timeout_s
        self._start_timeout_s = start_timeout_s
        self._memory_bytes = memory_bytes
        self._idle: asyncio.Queue[_Child | None] = asyncio.Queue()  # None: the next call starts a new child
        self._children: set[_Child] = set()

    async def open(self) -> None:
        async with task_group.open_group() as group:
            starting = [group.create_task(self._start()) for _ in range(self.count)]
        for started in starting:
            self._idle.put_nowait(started.result())

    async def close(self) -> None:
        await asyncio.gather(*(child.kill() for child in self._children))
        self._children.clear()

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `function(*args)` in a child. Raises its TwopassErrors, and WorkerDied."""
        child = await self._idle.get()
        alive = False
        try:
            if child and child.is_dead:  # it died after its last call, which is not this call's fault
                await self._kill(child)
                child = None
            child = child or await self._start()
            with child.limit_memory(self._memory_bytes):
                async with asyncio.timeout(self._timeout_s):
                    answer = await child.send((function, args, kwargs))
            child.calls += 1
            alive = child.calls < self._calls
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            if child and child.exceeded_memory:
                limit = f"{self._memory_bytes >> 20} MiB"
                message = (
                    f"{function.__name__} used more than {limit} of memory; raise WORKER_MEMORY_BYTES or lower dpi"
                )
                raise WorkerDied(Code.RENDER_MEMORY, message) from error
            raise WorkerDied(Code.RENDER_CRASH, f"a page worker crashed in {function.__name__}") from error
        except TimeoutError as error:
            message = f"{function.__name__} took more than {self._timeout_s:.0f} s; raise WORKER_TIMEOUT_S"
            raise WorkerDied(Code.RENDER_TIMEOUT, message) from error
        finally:
            try:
                if child and not alive:  # dead, at its last call, or cancelled while the child still works
                    await self._kill(child)
            finally:
                self._idle.put_nowait(child if alive else None)  # the next call starts a new child for None
        value, failure, seconds = answer
        cpu_time_callback.get()(seconds)
        if failure is not None:
            raise failure
        return value  # type: ignore[no-any-return]

    async def call_with_retry(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Like `call`, but repeated once if the child dies, which may be an accident."""

        def warn(error: BaseException) -> None:
            code = error.code if isinstance(error, WorkerDied) else None
            log.warning("page worker died, call is repeated", function=function.__name__, code=code)

        return await retry.PAGE_WORKER_CALL.run_async(partial(self.call, function, *args, **kwargs), warn)

    async def _start(self) -> _Child:
        """Start a child and wait for its hello; raises WorkerDied and leaves no child behind."""
        child = await self._spawn()
        is_ready = False
        try:
            async with asyncio.timeout(self._start_timeout_s):
                await child.receive()
            is_ready = True
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise WorkerDied(Code.RENDER_CRASH, "a page worker crashed at its start; see stderr") from error
        except TimeoutError as error:
            message = f"a page worker did not start within {self._start_timeout_s:g} s; the machine may be overloaded"
            raise WorkerDied(Code.RENDER_TIMEOUT, message) from error
        finally:
            if not is_ready:
                await self._kill(child)
        return child

    async def _spawn(self) -> _Child:
        descriptors = {number: fd for buffers in self._buffers for number, fd in buffers.descriptors.items()}
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "twopass.runtime.page_worker", *(f"{n}:{fd}" for n, fd in descriptors.items()),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, pass_fds=tuple(descriptors.values()),
                limit=1 << 20, env={**_filter(os.environ), **CHILD_ENVIRONMENT}, start_new_session=False,
            )  # fmt: skip
        except OSError as error:
            raise WorkerDied(Code.RENDER_CRASH, f"cannot start a page worker: {error.strerror}") from error
        child = _Child(process)
        self._children.add(child)
        return child

    async def _kill(self, child: _Child) -> None:
        """Kill a child and wait for its end, even if cancelled: it might write into a buffer that is lent again."""
        dying = asyncio.create_task(child.kill())
        cancelled = None
        while not dying.done():
            try:
                await asyncio.shield(dying)
            except asyncio.CancelledError as error:
                cancelled = error
        self._children.discard(child)
        if cancelled:
            raise cancelled


def _filter(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: environment[name] for name in INHERITED if name in environment}
