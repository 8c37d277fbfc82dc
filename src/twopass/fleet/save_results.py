"""Save the artefacts of finished documents in a folder of this machine.

Inline artefacts are always saved, because no other copy exists. The others are downloaded on request.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import structlog

from twopass.errors import SourceError
from twopass.fleet.campaign import CampaignListener, DocumentOutcome
from twopass.job import Inline
from twopass.settings import Settings
from twopass.storage.sources import open_sources

log = structlog.get_logger()

FILE_NAMES = {Inline.MARKDOWN: "document.md", Inline.DOCJSON: "document.json"}
MAX_DOWNLOADS = 4  # concurrent


class ResultSaver:
    """Saves the results of documents that end and passes all events on to the next listener."""

    def __init__(self, listener: CampaignListener, folder: Path, settings: Settings, *, everything: bool) -> None:
        self._listener, self._folder, self._settings = listener, folder, settings
        self._everything = everything
        self._slots = asyncio.Semaphore(MAX_DOWNLOADS)
        self._tasks: list[asyncio.Task[None]] = []

    def document_started(self, name: str, pages: int | None, jobs: int) -> None:
        self._listener.document_started(name, pages, jobs)

    def document_progressed(self, name: str, pages_done: int, phase: str) -> None:
        self._listener.document_progressed(name, pages_done, phase)

    def document_ended(self, outcome: DocumentOutcome) -> None:
        if outcome.result.get("id"):
            self._tasks.append(asyncio.create_task(self._try_save(outcome)))
        self._listener.document_ended(outcome)

    async def wait(self) -> None:
        """Wait until everything is saved."""
        await asyncio.gather(*self._tasks)

    async def _try_save(self, outcome: DocumentOutcome) -> None:
        try:
            await self._save(outcome)
        except OSError as error:  # the document was read all the same, and the summary says where its artefacts are
            log.warning("artefacts not saved", document=outcome.name, reason=error.strerror)

    async def _save(self, outcome: DocumentOutcome) -> None:
        folder = self._folder / Path(str(outcome.result["id"])).name
        for name, value in outcome.result.get("inline", {}).items():
            folder.mkdir(parents=True, exist_ok=True)
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            (folder / FILE_NAMES[Inline(name)]).write_text(text)
        if not self._everything:
            return
        async with open_sources(self._settings) as sources:
            for name, artefact in outcome.result.get("artefacts", {}).items():
                folder.mkdir(parents=True, exist_ok=True)
                async with self._slots:
                    try:
                        await sources.fetch(artefact["uri"], folder / Path(name).name)
                    except SourceError as error:
                        log.warning("artefact not saved", uri=artefact["uri"], code=error.code, reason=error.message)
