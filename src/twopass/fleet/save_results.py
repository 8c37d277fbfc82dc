"""Documents that ended in, their artefacts in a folder of this machine out.

What an answer carried inline is always kept: nobody else has it. The rest is fetched where that is asked for.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import structlog

from twopass.errors import SourceError
from twopass.fleet.campaign import Ended, Watcher
from twopass.job import Inline
from twopass.settings import Settings
from twopass.storage.sources import opened_sources

log = structlog.get_logger()

NAMES = {Inline.MARKDOWN: "document.md", Inline.DOCJSON: "document.json"}
AT_ONCE = 4


class Saver:
    """A watcher before another one; `saved` waits for what is still under way."""

    def __init__(self, then: Watcher, folder: Path, settings: Settings, *, everything: bool) -> None:
        self._then, self._folder, self._settings = then, folder, settings
        self._everything = everything
        self._places = asyncio.Semaphore(AT_ONCE)
        self._tasks: list[asyncio.Task[None]] = []

    def found(self, name: str, pages: int | None, jobs: int) -> None:
        self._then.found(name, pages, jobs)

    def moved(self, name: str, pages_done: int, phase: str) -> None:
        self._then.moved(name, pages_done, phase)

    def ended(self, ended: Ended) -> None:
        if ended.result.get("id"):
            self._tasks.append(asyncio.create_task(self._save(ended)))
        self._then.ended(ended)

    async def saved(self) -> None:
        await asyncio.gather(*self._tasks)

    async def _save(self, ended: Ended) -> None:
        try:
            await self._written(ended)
        except OSError as error:  # the document was read all the same, and the summary says where it lies
            log.warning("artefacts not saved", document=ended.name, reason=error.strerror)

    async def _written(self, ended: Ended) -> None:
        folder = self._folder / Path(str(ended.result["id"])).name
        for name, value in ended.result.get("inline", {}).items():
            folder.mkdir(parents=True, exist_ok=True)
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            (folder / NAMES[Inline(name)]).write_text(text)
        if not self._everything:
            return
        async with opened_sources(self._settings) as sources:
            for name, artefact in ended.result.get("artefacts", {}).items():
                folder.mkdir(parents=True, exist_ok=True)
                async with self._places:
                    try:
                        await sources.fetch(artefact["uri"], folder / Path(name).name)
                    except SourceError as error:
                        log.warning("artefact not saved", uri=artefact["uri"], code=error.code, reason=error.message)
