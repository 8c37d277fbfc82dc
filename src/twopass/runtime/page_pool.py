"""A function and its arguments in, its value out, computed in a child process that may die.

Everything that takes a processor's time runs here: rendering, crops, parsing, enrichment, the cpu
engine. A child that crashes, runs too long or takes too much memory is killed and replaced alone;
its caller gets WorkerDied. Knows nothing of what the functions do.
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
from typing import Any, ParamSpec, TypeVar

import structlog

from twopass.errors import Code, WorkerDied
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime import task_group

log = structlog.get_logger()

P = ParamSpec("P")
T = TypeVar("T")

SIZE = 8  # bytes of the length before each message, both ways
CHILD = {
    "OMP_NUM_THREADS": "1",  # one worker a core is the parallelism
    "PYTHONWARNINGS": "ignore",  # Pillow's quote what they are about: text of the document
    # A page's pixels come from mmap and go back. glibc raises its threshold after the first large free, pixels
    # then lie in the heap between small objects, and every page left 8 MB behind.
    "MALLOC_MMAP_THRESHOLD_": "1048576",
    "MALLOC_TRIM_THRESHOLD_": "1048576",
}
# Of the parent's environment, what a child needs: keys of stores and engines are none of its business.
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONPATH")
CALLS = 1000  # of one child: what libraries never give back goes with it
START_S = 60.0  # a child that has not said hello by then never will
MEMORY_BYTES = 4 << 30  # the largest image that is opened at all takes 3 to 4 GB
ANSWER_BYTES = 256 << 20  # a page of 10,000 words answers 2 MB, the crop of 40 million noisy pixels 120
LOOK_S = 0.05  # between two looks at a child's memory: it grows by less than 200 MB meanwhile

cpu_meter: ContextVar[Callable[[float], None]] = ContextVar("cpu_meter", default=lambda seconds: None)
"""Told the processor seconds of every call made in its context; the pipeline sets it per stage."""


@dataclass(eq=False)
class _Child:
    process: asyncio.subprocess.Process
    overfull: bool = False  # killed for its memory
    calls: int = 0

    async def send(self, message: Any) -> Any:
        assert self.process.stdin and self.process.stdout
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        self.process.stdin.write(len(data).to_bytes(SIZE, "big") + data)
        await self.process.stdin.drain()
        return await self.receive()

    async def receive(self) -> Any:
        assert self.process.stdout
        size = int.from_bytes(await self.process.stdout.readexactly(SIZE), "big")
        return pickle.loads(await self.process.stdout.readexactly(size))

    @property
    def is_dead(self) -> bool:
        return self.process.returncode is not None

    @property
    def own_bytes(self) -> int:
        """Memory that it shares with nobody; 0 when it is gone."""
        try:
            # Twenty times a second and child: a Path's read_text takes six times as long.
            with open(f"/proc/{self.process.pid}/statm", "rb", buffering=0) as told:
                _, resident, shared, *_ = map(int, told.read().split())
        except OSError:
            return 0
        return (resident - shared) * os.sysconf("SC_PAGE_SIZE")

    @contextmanager
    def within(self, limit_bytes: int) -> Iterator[None]:
        """While it is at work: killed once it has more. A limit of the kernel's would end no process but fail one
        allocation, and decoders turn that into a page without its picture."""
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle

        def look() -> None:
            nonlocal timer
            if self.own_bytes > limit_bytes and not self.is_dead:
                self.overfull = True
                self.process.kill()
            else:
                timer = loop.call_later(LOOK_S, look)

        timer = loop.call_later(LOOK_S, look)
        try:
            yield
        finally:
            timer.cancel()

    async def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


class PagePool:
    """A fixed number of page workers, started by `open` and ended by `close` on one event loop."""

    def __init__(
        self,
        count: int,
        buffers: PixelBufferPool,
        timeout_s: float = 120.0,
        start_s: float = START_S,
        more_buffers: Sequence[PixelBufferPool] = (),
        memory_bytes: int = MEMORY_BYTES,
        calls: int = CALLS,
    ) -> None:
        self.count = count
        self._calls = calls
        self._buffers = (buffers, *more_buffers)
        self._timeout_s = timeout_s
        self._start_s = start_s
        self._memory_bytes = memory_bytes
        self._idle: asyncio.Queue[_Child | None] = asyncio.Queue()  # None: a place whose child died
        self._children: set[_Child] = set()

    async def open(self) -> None:
        async with task_group.group() as group:
            starting = [group.create_task(self._start()) for _ in range(self.count)]
        for started in starting:
            self._idle.put_nowait(started.result())

    async def close(self) -> None:
        await asyncio.gather(*(child.kill() for child in self._children))
        self._children.clear()

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`function(*args)` in a child. Its TwopassErrors come through; raises WorkerDied."""
        child = await self._idle.get()
        alive = False
        try:
            if child and child.is_dead:  # since its last call: no fault of this one
                await self._bury(child)
                child = None
            child = child or await self._start()
            with child.within(self._memory_bytes):
                async with asyncio.timeout(self._timeout_s):
                    answer = await child.send((function, args, kwargs))
            child.calls += 1
            alive = child.calls < self._calls
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            if child and child.overfull:
                limit = f"{self._memory_bytes >> 20} MiB"
                message = f"{function.__name__} took over {limit} of memory; raise WORKER_MEMORY_BYTES or lower dpi"
                raise WorkerDied(Code.RENDER_MEMORY, message) from error
            raise WorkerDied(Code.RENDER_CRASH, f"a page worker died in {function.__name__}") from error
        except TimeoutError as error:
            message = f"{function.__name__} took over {self._timeout_s:.0f} s; raise WORKER_TIMEOUT_S"
            raise WorkerDied(Code.RENDER_TIMEOUT, message) from error
        finally:
            try:
                if child and not alive:  # dead, worn out, or cancelled while the child is still at it
                    await self._bury(child)
            finally:
                self._idle.put_nowait(child if alive else None)  # the next call fills an empty place
        value, failure, seconds = answer
        cpu_meter.get()(seconds)
        if failure is not None:
            raise failure
        return value  # type: ignore[no-any-return]

    async def insist(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`call`, and once more where the child dies over it: one death may be an accident."""
        try:
            return await self.call(function, *args, **kwargs)
        except WorkerDied as died:
            log.warning("called again", function=function.__name__, code=died.code)
            return await self.call(function, *args, **kwargs)

    async def _start(self) -> _Child:
        """A child that has said hello; raises WorkerDied and leaves none that has not."""
        child = await self._spawn()
        greeted = False
        try:
            async with asyncio.timeout(self._start_s):
                await child.receive()
            greeted = True
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise WorkerDied(Code.RENDER_CRASH, "a page worker died as it started; its words are on stderr") from error
        except TimeoutError as error:
            message = f"a page worker did not start within {self._start_s:g} s; is the machine overloaded?"
            raise WorkerDied(Code.RENDER_TIMEOUT, message) from error
        finally:
            if not greeted:
                await self._bury(child)
        return child

    async def _spawn(self) -> _Child:
        descriptors = {number: fd for buffers in self._buffers for number, fd in buffers.descriptors.items()}
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "twopass.runtime.page_worker", *(f"{n}:{fd}" for n, fd in descriptors.items()),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, pass_fds=tuple(descriptors.values()),
                limit=1 << 20, env={**_kept(os.environ), **CHILD}, start_new_session=False,
            )  # fmt: skip
        except OSError as error:
            raise WorkerDied(Code.RENDER_CRASH, f"no page worker can be started: {error.strerror}") from error
        child = _Child(process)
        self._children.add(child)
        return child

    async def _bury(self, child: _Child) -> None:
        """Kill a child and see it dead, however often that is cancelled: it may write into a slab lent on."""
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


def _kept(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: environment[name] for name in INHERITED if name in environment}
