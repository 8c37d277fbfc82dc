"""An event loop in a thread of its own, and waiting for its work from other threads.

Callers may be inside a running event loop themselves, as in Jupyter: they block, and the work goes on.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
_STOP_S = 30.0  # cancelled work releases what it holds, such as page workers, before its caller goes on


@contextmanager
def open_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Run an event loop in a thread until the context ends."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="twopass", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def run(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """Run the work on a loop of another thread and return its result. An interrupt, such as Ctrl-C, cancels it."""
    ended = threading.Event()
    future = asyncio.run_coroutine_threadsafe(_signal_end(work, ended.set), loop)
    try:
        return future.result()
    finally:
        future.cancel()
        ended.wait(_STOP_S)


def stream(
    start: Callable[[Callable[[T], None]], Coroutine[Any, Any, None]], loop: asyncio.AbstractEventLoop
) -> Iterator[T]:
    """Run `start(emit)` on a loop of another thread and yield each emitted value at once. Raises the work's error.

    Closing the iterator cancels the work.
    """
    values: SimpleQueue[tuple[T, ...]] = SimpleQueue()  # an empty tuple is the end
    ended = threading.Event()

    def end() -> None:
        ended.set()
        values.put(())

    work = start(lambda value: values.put((value,)))
    future = asyncio.run_coroutine_threadsafe(_signal_end(work, end), loop)
    try:
        while value := values.get():
            yield value[0]
        future.result()
    finally:
        future.cancel()
        ended.wait(_STOP_S)


async def run_from_loop(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> asyncio.Task[T]:
    """Run the work on a loop of another thread, from a loop of this one, and return the ended task.

    A cancellation is passed on, and raised only when the work has ended: until then it may write files.
    """
    own_loop, ended, tasks = asyncio.get_running_loop(), asyncio.Event(), list[asyncio.Task[T]]()

    def start() -> None:
        task = loop.create_task(work)
        task.add_done_callback(lambda _: own_loop.call_soon_threadsafe(ended.set))
        tasks.append(task)

    loop.call_soon_threadsafe(start)
    try:
        await ended.wait()
    except asyncio.CancelledError:
        loop.call_soon_threadsafe(lambda: tasks[0].cancel())
        await ended.wait()
        raise
    return tasks[0]


async def _signal_end(work: Coroutine[Any, Any, T], end: Callable[[], None]) -> T:
    try:
        return await work
    finally:
        end()
