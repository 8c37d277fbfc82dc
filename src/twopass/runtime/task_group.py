"""A task group that raises the first failure itself instead of an ExceptionGroup."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def open_group() -> AsyncIterator[asyncio.TaskGroup]:
    """The first failure cancels the other tasks and is raised unchanged, so that callers can catch it by name."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
