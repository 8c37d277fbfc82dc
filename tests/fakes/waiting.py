"""Wait for what others do: by a thread, and on an event loop. The limits only end a test that would wait for ever."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], timeout_s: float = 120.0) -> float:
    """Wait until the condition is true, and return the seconds it took."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > timeout_s:
            raise TimeoutError(f"the condition was not met after {timeout_s} s")
        time.sleep(0.02)
    return time.monotonic() - began


async def wait_on_loop(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """The same for a coroutine, while the others of its loop go on."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)
