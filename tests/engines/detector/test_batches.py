"""Batches of single requests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.fakes.simulated_time import simulated
from twopass.engines.detector.batches import Batcher
from twopass.errors import Code, WorkerDied


class Gate:
    """Doubles numbers when its gate is open, and records each batch. A negative number fails its batch."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.open = asyncio.Event()
        self.started = asyncio.Event()

    async def run(self, numbers: Sequence[int]) -> list[int]:
        self.batches.append(list(numbers))
        self.started.set()
        await self.open.wait()
        if any(number < 0 for number in numbers):
            raise WorkerDied(Code.RENDER_CRASH, "it died")
        return [2 * number for number in numbers]


async def test_what_waits_is_the_next_batch() -> None:
    """The first request starts at once; those that come meanwhile share batches of at most the limit."""
    gate = Gate()
    batcher: Batcher[int, int] = Batcher(gate.run, 3)
    first = asyncio.create_task(batcher.ask(0))
    await gate.started.wait()
    others = [asyncio.create_task(batcher.ask(number)) for number in range(1, 6)]
    await asyncio.sleep(0)

    gate.open.set()

    assert await asyncio.gather(first, *others) == [0, 2, 4, 6, 8, 10]
    assert gate.batches == [[0], [1, 2, 3], [4, 5]]


async def test_one_failure_does_not_fail_its_batch() -> None:
    """The items of a batch that failed run alone, and only the one at fault fails."""
    gate = Gate()
    gate.open.set()
    batcher: Batcher[int, int] = Batcher(gate.run, 8)

    results = await asyncio.gather(*(batcher.ask(number) for number in (1, -1, 3)), return_exceptions=True)

    assert results[0] == 2 and results[2] == 6
    assert isinstance(results[1], WorkerDied)


async def test_a_cancelled_request_that_waits_is_not_run() -> None:
    """A page of a job that was cancelled costs the detector nothing."""
    gate = Gate()
    batcher: Batcher[int, int] = Batcher(gate.run, 8)
    first = asyncio.create_task(batcher.ask(0))
    await gate.started.wait()
    second, third = (asyncio.create_task(batcher.ask(number)) for number in (1, 2))
    await asyncio.sleep(0)

    second.cancel()
    await asyncio.sleep(0)
    gate.open.set()

    assert await asyncio.gather(first, third) == [0, 4]
    assert second.cancelled()
    assert gate.batches == [[0], [2]]


@simulated
async def test_a_cancelled_request_that_runs_waits_for_its_batch() -> None:
    """Its caller keeps the pixels until nothing reads them any more."""
    gate = Gate()
    batcher: Batcher[int, int] = Batcher(gate.run, 8)
    asking = asyncio.create_task(batcher.ask(0))
    await gate.started.wait()

    asking.cancel()
    await asyncio.sleep(0.01)
    still_running = not asking.done()
    gate.open.set()

    with pytest.raises(asyncio.CancelledError):
        await asking
    assert still_running


async def test_requests_after_a_failure_are_served() -> None:
    """A failure alone ends no more than its own request."""
    gate = Gate()
    gate.open.set()
    batcher: Batcher[int, int] = Batcher(gate.run, 8)

    with pytest.raises(WorkerDied):
        await batcher.ask(-1)

    assert await batcher.ask(4) == 8


async def test_a_batch_that_fails_halves_the_limit() -> None:
    """A GPU whose memory is too small for a batch is not asked for as much again."""
    gate = Gate()
    gate.open.set()
    batcher: Batcher[int, int] = Batcher(gate.run, 8)

    await asyncio.gather(*(batcher.ask(number) for number in (1, -1, 3, 4)), return_exceptions=True)
    await asyncio.gather(*(batcher.ask(number) for number in range(4)))

    assert [len(batch) for batch in gate.batches] == [4, 1, 1, 1, 1, 2, 2]
