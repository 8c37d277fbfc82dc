"""Run functions in child processes that may crash, hang or use too much memory.

All CPU work runs here: rendering, crops, parsing, enrichment, the cpu engine. A failing child is killed and replaced;
only its caller gets WorkerDied. A child with a slow call gets a substitute, so that other calls go on.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar

import structlog

from twopass.errors import Code, WorkerDied
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime import page_protocol, retry, task_group, vendor_reports
from twopass.runtime.cpu_budget import RAISE_LIMIT, CallMeter, CpuBudget, limit_cpu_time
from twopass.runtime.page_protocol import Answer, MalformedAnswer
from twopass.settings import Settings

log = structlog.get_logger()

P = ParamSpec("P")
T = TypeVar("T")

_CHILD_ENVIRONMENT = {
    **vendor_reports.SWITCHES,
    "OMP_NUM_THREADS": "1",  # there is one page worker per core already
    "OPENCV_FOR_THREADS_NUM": "1",
    "PYTHONWARNINGS": "ignore",  # Pillow's warnings may quote text of the document
    # Fixed thresholds keep pixels in mmap. Otherwise glibc raises the threshold after the first large free, places
    # pixels in the heap between small objects, and keeps 8 MB per page.
    "MALLOC_MMAP_THRESHOLD_": "1048576",
    "MALLOC_TRIM_THRESHOLD_": "1048576",
    # Memory in pages of 2 MB, where Linux lets programs choose: OCR, which maps much, takes three quarters of the time.
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
# The only variables that every child inherits: it must not see the credentials of stores and engines.
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONPATH")
# Preloaded unless told otherwise: PyMuPDF without its layout model, which `import pymupdf` would load, too.
IMPORT_MUPDF = "twopass.pages.source_files:import_mupdf"
_MAX_CALLS = 1000  # per child; replacing it frees what libraries never release
_NEVER_REPLACED = 1 << 62  # calls of a child that holds a model
_START_TIMEOUT_S = 60.0
_SLOW_CALL_S = 10.0  # processor seconds; a call that takes longer no longer holds up other calls
_CHECK_INTERVAL_S = 0.05  # a page worker's memory grows by less than 200 MB in between
_CHECKS_PER_TIME_CHECK = 5  # processor time is measured less often: reading it takes longer
MEMORY_BYTES = 4 << 30  # the largest accepted image takes 2.4 GB

cpu_time_callback: ContextVar[Callable[[float], None]] = ContextVar("cpu_time_callback", default=lambda seconds: None)
"""Called with the processor seconds of every call made in its context; the stopwatch sets it per stage."""

slow_call_callbacks: ContextVar[tuple[Callable[[], None], ...]] = ContextVar("slow_call_callbacks", default=())


@contextmanager
def watch_slow_calls(callback: Callable[[], None]) -> Iterator[None]:
    """Run `callback` each time a call made inside turns out to be slow."""
    token = slow_call_callbacks.set((*slow_call_callbacks.get(), callback))
    try:
        yield
    finally:
        slow_call_callbacks.reset(token)


@dataclass(eq=False)
class _PageProcess:
    """A page worker as its parent sees it. `limit_exceeded` says why it was killed: RENDER_MEMORY or RENDER_TIMEOUT."""

    process: Process
    transport: asyncio.SubprocessTransport
    limit_exceeded: Code | None = None
    calls: int = 0

    async def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Answer:
        """Send the call and read its answer; raises MalformedAnswer."""
        assert self.process.stdin
        self.process.stdin.write(page_protocol.write_call(function, args, kwargs))
        await self.process.stdin.drain()
        return await self.receive(function)

    async def receive(self, function: Callable[..., Any]) -> Answer:
        """Read the answer of a call of `function`."""
        assert self.process.stdout
        return await page_protocol.receive_answer(function, self.process.stdout)

    @property
    def is_dead(self) -> bool:
        return self.process.returncode is not None

    @contextmanager
    def limit_call(
        self, memory_bytes: int, budget: CpuBudget, slow_s: float, on_slow: Callable[[], None]
    ) -> Iterator[CallMeter]:
        """Kill the page worker if it exceeds a limit during the call; run `on_slow` if the call takes over `slow_s`.

        A kernel limit on memory would only fail one allocation, which image decoders turn into a page without its
        image.
        """
        loop = asyncio.get_running_loop()
        meter, numbers, is_slow = CallMeter(budget, self._read_cpu_time), itertools.count(1), False
        timer: asyncio.TimerHandle

        def check() -> None:
            nonlocal timer, is_slow
            if self.is_dead:
                return
            if self._read_private_memory() > memory_bytes:
                self.limit_exceeded = Code.RENDER_MEMORY
            elif next(numbers) % _CHECKS_PER_TIME_CHECK == 0:
                meter.update()
                if budget.is_spent:
                    self.limit_exceeded = Code.RENDER_TIMEOUT
                elif not is_slow and meter.charged_s > slow_s:
                    is_slow = True
                    on_slow()
            if self.limit_exceeded:
                self.process.kill()
            else:
                timer = loop.call_later(_CHECK_INTERVAL_S, check)

        timer = loop.call_later(_CHECK_INTERVAL_S, check)
        try:
            yield meter
        finally:
            timer.cancel()

    def _read_private_memory(self) -> int:
        """Bytes of memory that it does not share; 0 if it is gone."""
        try:
            # Read twenty times a second: Path.read_text would take six times as long.
            with open(f"/proc/{self.process.pid}/statm", "rb", buffering=0) as statm:
                _, resident, shared, *_ = map(int, statm.read().split())
        except OSError:
            return 0
        return (resident - shared) * os.sysconf("SC_PAGE_SIZE")

    def _read_cpu_time(self) -> float:
        """Processor seconds that it has used since its start; 0 if it is gone."""
        try:
            with open(f"/proc/{self.process.pid}/stat", "rb", buffering=0) as stat:
                fields = stat.read().rpartition(b")")[2].split()
        except OSError:
            return 0.0
        user, system = int(fields[11]), int(fields[12])
        return (user + system) / os.sysconf("SC_CLK_TCK")

    async def kill(self) -> None:
        """Kill it and wait for its end."""
        # With process.kill(), wait() would also wait until somebody has read what it sent. This drops it.
        self.transport.close()
        await self.process.wait()


class PagePool:
    """At most `count` page workers, started by `open` or by calls and killed by `close`, on one event loop.

    `timeout_s` limits the processor time of a call; a budget around the call may leave it less. Slow calls get
    substitutes: at most `count` more children. Children that wait for a call import `preload` meanwhile, names of
    modules or `module:function`; the first of them before any call.
    """

    def __init__(
        self,
        count: int,
        buffers: PixelBufferPool,
        timeout_s: float = 120.0,
        start_timeout_s: float = _START_TIMEOUT_S,
        more_buffers: Sequence[PixelBufferPool] = (),
        memory_bytes: int = MEMORY_BYTES,
        calls: int = _MAX_CALLS,
        slow_call_s: float = _SLOW_CALL_S,
        more_inherited: Sequence[str] = (),
        preload: Sequence[str] = (IMPORT_MUPDF,),
    ) -> None:
        self.count = count
        self._preload = preload
        self._calls = calls
        self._buffers = (buffers, *more_buffers)
        self._timeout_s = timeout_s
        self._start_timeout_s = start_timeout_s
        self._memory_bytes = memory_bytes
        self._slow_call_s = slow_call_s
        self._inherited = (*INHERITED, *more_inherited)
        self._substitutes = 0
        # None: a call that finds no idle child starts one. The numbers keep children in the order of their last calls.
        self._idle: asyncio.PriorityQueue[tuple[bool, int, _PageProcess | None]] = asyncio.PriorityQueue()
        self._numbers = itertools.count()
        self._children: set[_PageProcess] = set()

    def create_sibling(
        self, count: int, timeout_s: float, memory_bytes: int, more_inherited: Sequence[str] = ()
    ) -> PagePool:
        """A pool of other children with the same buffers, for calls that must not wait for those of this pool.

        The children also inherit the environment variables in `more_inherited`.
        """
        first, *others = self._buffers
        return PagePool(
            count, first, timeout_s, self._start_timeout_s, others, memory_bytes, _NEVER_REPLACED,
            slow_call_s=timeout_s, more_inherited=more_inherited, preload=(),
        )  # fmt: skip

    async def open(self) -> None:
        async with task_group.open_group() as group:
            starting = [group.create_task(self._start()) for _ in range(self.count)]
        for started in starting:
            self._add_idle(started.result())

    def open_as_needed(self) -> None:
        """In place of `open`: a call that finds no idle child starts one."""
        for _ in range(self.count):
            self._add_idle(None)

    def _add_idle(self, child: _PageProcess | None) -> None:
        self._idle.put_nowait((child is None, next(self._numbers), child))

    async def close(self) -> None:
        await asyncio.gather(*(child.kill() for child in self._children))
        self._children.clear()

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `function(*args)` in a child. Raises its TwopassErrors, and WorkerDied."""
        with limit_cpu_time(self._timeout_s, advice=RAISE_LIMIT) as budget:
            if budget.is_spent:
                raise _describe_timeout(function, budget)
            answer = await self._call_child(function, args, kwargs, budget)
        if answer.error is not None:
            raise answer.error
        return answer.value  # type: ignore[no-any-return]

    async def _call_child(
        self, function: Callable[..., object], args: Sequence[Any], kwargs: Mapping[str, Any], budget: CpuBudget
    ) -> Answer:
        """Send the call to the next idle child and return its answer: a value, or the function's error."""
        *_, child = await self._idle.get()
        alive, has_substitute, meter = False, False, None

        def add_substitute() -> None:
            nonlocal has_substitute
            if self._substitutes < self.count:
                self._substitutes, has_substitute = self._substitutes + 1, True
                self._add_idle(None)
            for callback in slow_call_callbacks.get():
                callback()

        try:
            if child and child.is_dead:  # it died after its last call, which is not this call's fault
                await self._kill(child)
                child = None
            child = child or await self._start()
            with child.limit_call(self._memory_bytes, budget, self._slow_call_s, add_substitute) as meter:
                answer = await child.call(function, args, kwargs)
                meter.finish(answer.cpu_s)
            child.calls += 1
            alive = child.calls < self._calls
        except MalformedAnswer as error:
            message = f"a page worker sent a malformed answer in {function.__name__}; the file may be malicious"
            raise WorkerDied(Code.RENDER_CRASH, message) from error
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            if meter:
                meter.update()
            raise self._explain_death(function, child, budget) from error
        finally:
            is_surplus = has_substitute and not self._withdraw_substitute()
            try:
                # It is dead, surplus, at its last call, or its call was cancelled while it still works.
                if child and (is_surplus or not alive):
                    await self._kill(child)
            finally:
                self._substitutes -= has_substitute
                if not is_surplus:
                    self._add_idle(child if alive else None)
                if meter:
                    cpu_time_callback.get()(meter.cpu_s)
        return answer

    def _withdraw_substitute(self) -> bool:
        """Remove one child that is not started yet; returns False if all are."""
        idle = [self._idle.get_nowait() for _ in range(self._idle.qsize())]
        is_withdrawn = bool(idle) and idle[-1][-1] is None
        for waiting in idle[:-1] if is_withdrawn else idle:
            self._idle.put_nowait(waiting)
        return is_withdrawn

    def _explain_death(
        self, function: Callable[..., object], child: _PageProcess | None, budget: CpuBudget
    ) -> WorkerDied:
        if child and child.limit_exceeded is Code.RENDER_TIMEOUT:
            return _describe_timeout(function, budget)
        if child and child.limit_exceeded is Code.RENDER_MEMORY:
            limit = f"{self._memory_bytes >> 20} MiB"
            message = f"{function.__name__} used more than {limit} of memory; raise WORKER_MEMORY_BYTES or lower dpi"
            return WorkerDied(Code.RENDER_MEMORY, message)
        return WorkerDied(Code.RENDER_CRASH, f"a page worker crashed in {function.__name__}")

    async def call_with_retry(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Like `call`, but repeated once if the child crashes, which may be an accident."""

        def warn(error: BaseException) -> None:
            code = error.code if isinstance(error, WorkerDied) else None
            log.warning("page worker died, call is repeated", function=function.__name__, code=code)

        return await retry.PAGE_WORKER_CALL.run_async(partial(self.call, function, *args, **kwargs), warn)

    async def _start(self) -> _PageProcess:
        """Start a child and wait for its hello; raises WorkerDied and leaves no child behind."""
        child = await self._spawn()
        is_ready = False
        try:
            async with asyncio.timeout(self._start_timeout_s):
                await child.receive(page_protocol.say_hello)
            is_ready = True
        except (asyncio.IncompleteReadError, ConnectionError, MalformedAnswer) as error:
            raise WorkerDied(Code.RENDER_CRASH, "a page worker crashed at its start; see stderr") from error
        except TimeoutError as error:
            message = f"a page worker did not start within {self._start_timeout_s:g} s; the machine may be overloaded"
            raise WorkerDied(Code.RENDER_TIMEOUT, message) from error
        finally:
            if not is_ready:
                await self._kill(child)
        return child

    async def _spawn(self) -> _PageProcess:
        descriptors = {number: fd for buffers in self._buffers for number, fd in buffers.descriptors.items()}
        loop = asyncio.get_running_loop()
        try:
            # As asyncio.create_subprocess_exec, which keeps the transport to itself.
            transport, protocol = await loop.subprocess_exec(
                lambda: SubprocessStreamProtocol(limit=1 << 20, loop=loop),
                sys.executable, "-m", "twopass.runtime.page_worker", str(os.getpid()), ",".join(self._preload),
                *(f"{number}:{fd}" for number, fd in descriptors.items()),
                stdin=PIPE, stdout=PIPE, stderr=None, pass_fds=tuple(descriptors.values()),
                env={**self._filter(os.environ), **_CHILD_ENVIRONMENT}, start_new_session=False,
            )  # fmt: skip
        except OSError as error:
            raise WorkerDied(Code.RENDER_CRASH, f"cannot start a page worker: {error.strerror}") from error
        child = _PageProcess(Process(transport, protocol, loop), transport)
        self._children.add(child)
        return child

    def _filter(self, environment: Mapping[str, str]) -> dict[str, str]:
        return {name: environment[name] for name in self._inherited if name in environment}

    async def _kill(self, child: _PageProcess) -> None:
        """Kill a child and wait for its end, even if cancelled: it might write into a buffer that is lent again."""
        try:
            await task_group.finish(child.kill())
        finally:
            self._children.discard(child)


@asynccontextmanager
async def open_page_pool(settings: Settings, buffers: PixelBufferPool) -> AsyncIterator[PagePool]:
    """Page workers for what needs no engine, started as needed and closed with their buffers at the end."""
    page_pool = PagePool(settings.page_worker_count, buffers, settings.worker_timeout_s)
    page_pool.open_as_needed()
    try:
        yield page_pool
    finally:
        await page_pool.close()
        buffers.close()


def _describe_timeout(function: Callable[..., object], budget: CpuBudget) -> WorkerDied:
    message = f"{function.__name__} needs more processor time than it may use"
    message += f"; {budget.advice}" if budget.advice else ""
    return WorkerDied(Code.RENDER_TIMEOUT, message)
