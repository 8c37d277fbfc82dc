"""Workers that really lose a child in place of some of their calls."""

from __future__ import annotations

import os
from typing import Any

from twopass.runtime.page_pool import PagePool


class DyingWorkers(PagePool):
    """Other workers, whose child dies in place of so many calls of the functions named."""

    def __init__(self, page_pool: PagePool, **deaths: int) -> None:
        self.count = page_pool.count
        self._page_pool, self._deaths = page_pool, deaths

    async def call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        if self._deaths.get(function.__name__, 0):
            self._deaths[function.__name__] -= 1
            return await self._page_pool.call(os._exit, 1)
        return await self._page_pool.call(function, *args, **kwargs)
