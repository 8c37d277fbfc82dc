"""A task group that raises the first failure itself instead of an ExceptionGroup, and work that must be finished."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def open_group() -> AsyncIterator[asyncio.TaskGroup]:
    """The first failure cancels the other tasks and is raised unchanged, so that callers can catch it by name."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def finish(work: Coroutine[Any, Any, object]) -> None:
    """Wait for the end of the work even if this task is cancelled, which is raised afterwards."""
    task = asyncio.create_task(work)
    cancelled = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled:
        raise cancelled
