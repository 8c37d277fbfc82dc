"""Work that is finished whatever happens to the task that waits for it."""

from __future__ import annotations

import asyncio

import pytest

from twopass.runtime import task_group


async def test_work_is_finished_although_its_task_is_cancelled_again_and_again() -> None:
    """The task ends as cancelled, and not before the work has ended."""
    released, steps = asyncio.Event(), list[str]()

    async def work() -> None:
        steps.append("begun")
        await released.wait()
        steps.append("ended")

    finishing = asyncio.create_task(task_group.finish(work()))
    for _ in range(3):
        await asyncio.sleep(0)
        finishing.cancel()
    await asyncio.sleep(0)
    before = [*steps]
    released.set()
    with pytest.raises(asyncio.CancelledError):
        await finishing

    assert (before, steps) == (["begun"], ["begun", "ended"])


async def test_the_failure_of_the_work_is_raised() -> None:
    async def work() -> None:
        raise OSError("no such process")

    with pytest.raises(OSError, match="no such process"):
        await task_group.finish(work())
