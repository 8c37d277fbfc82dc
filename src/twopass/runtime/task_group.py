"""Tasks in, one end for all: the first failure cancels the rest and is raised as it is.

Knows tasks. Knows nothing of what they do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def group() -> AsyncIterator[asyncio.TaskGroup]:
    """A TaskGroup without its ExceptionGroup: who waits for it catches errors by name."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
