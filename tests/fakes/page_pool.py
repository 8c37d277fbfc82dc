"""A page pool whose page workers crash in some calls."""

from __future__ import annotations

import os
from typing import Any

from twopass.runtime.page_pool import PagePool


class CrashingPagePool(PagePool):
    """Uses another pool. Its page worker crashes in the first calls of each named function, as many as given."""

    def __init__(self, page_pool: PagePool, **crashes: int) -> None:
        self.count = page_pool.count
        self._page_pool, self._crashes = page_pool, crashes

    async def call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        if self._crashes.get(function.__name__, 0):
            self._crashes[function.__name__] -= 1
            return await self._page_pool.call(os._exit, 1)
        return await self._page_pool.call(function, *args, **kwargs)
