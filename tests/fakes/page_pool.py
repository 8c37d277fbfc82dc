"""Page pools whose page workers seem to crash or run out of time in some calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twopass.errors import Code, WorkerDied
from twopass.runtime.page_pool import PagePool
from twopass.steps.render import DrawResult


class CrashingPagePool(PagePool):
    """Uses another pool. A page worker seems to crash in the first calls of each named function, as many as given."""

    def __init__(self, page_pool: PagePool, **crashes: int) -> None:
        self.count = page_pool.count
        self._page_pool, self._crashes = page_pool, crashes

    async def call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        if self._crashes.get(function.__name__, 0):
            self._crashes[function.__name__] -= 1
            raise WorkerDied(Code.RENDER_CRASH, f"a page worker crashed in {function.__name__}")
        return await self._page_pool.call(function, *args, **kwargs)


class TimingOutPagePool(PagePool):
    """Uses another pool. Every call of the named functions uses up its processor time."""

    def __init__(self, page_pool: PagePool, *functions: str) -> None:
        self.count = page_pool.count
        self._page_pool, self._functions = page_pool, functions

    async def call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        if function.__name__ in self._functions:
            raise WorkerDied(Code.RENDER_TIMEOUT, f"{function.__name__} needs more processor time than the limit")
        return await self._page_pool.call(function, *args, **kwargs)


class LyingPagePool(PagePool):
    """Uses another pool. Its page workers report pages as wide as `width`."""

    def __init__(self, page_pool: PagePool, width: int) -> None:
        self.count = page_pool.count
        self._page_pool, self._width = page_pool, width

    async def call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        value = await self._page_pool.call(function, *args, **kwargs)
        return replace(value, width=self._width) if isinstance(value, DrawResult) else value
