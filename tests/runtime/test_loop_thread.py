"""Waiting for work on a loop of another thread: results, errors, interrupts, and iterators that are left early."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from twopass.runtime import loop_thread


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    with loop_thread.open_loop() as loop:
        yield loop


def test_an_interrupt_cancels_the_work_and_waits_for_its_end(loop: asyncio.AbstractEventLoop) -> None:
    """Ctrl-C is raised only after the work has released what it holds."""
    events = []

    async def work() -> None:
        try:
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.1)
            events.append("released")

    with pytest.raises(KeyboardInterrupt):
        loop_thread.run(work(), loop)

    assert events == ["released"]


async def test_work_runs_from_inside_another_loop(loop: asyncio.AbstractEventLoop) -> None:
    """The result is returned, and an error is raised unchanged."""

    async def divide(by: int) -> float:
        await asyncio.sleep(0)
        return 6 / by

    assert loop_thread.run(divide(2), loop) == 3
    with pytest.raises(ZeroDivisionError):
        loop_thread.run(divide(0), loop)


def test_values_are_yielded_before_the_work_goes_on(loop: asyncio.AbstractEventLoop) -> None:
    """A value arrives while the work waits, and an error comes after the values."""
    may_fail = threading.Event()

    async def start(emit: Callable[[int], None]) -> None:
        emit(1)
        emit(2)
        await asyncio.to_thread(may_fail.wait)
        raise OSError

    values = loop_thread.stream(start, loop)
    assert [next(values), next(values)] == [1, 2]
    may_fail.set()
    with pytest.raises(OSError):
        next(values)


def test_leaving_the_iterator_cancels_the_work(loop: asyncio.AbstractEventLoop) -> None:
    """The work has ended when `close` returns."""
    events = []

    async def start(emit: Callable[[int], None]) -> None:
        emit(1)
        try:
            await asyncio.Event().wait()
        finally:
            events.append("ended")

    values = loop_thread.stream(start, loop)
    next(values)
    values.close()  # type: ignore[attr-defined]

    assert events == ["ended"]
