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
from twopass.storage.sources import Sources

log = structlog.get_logger()

FILE_NAMES = {Inline.MARKDOWN: "document.md", Inline.DOCJSON: "document.json"}
MAX_DOWNLOADS = 4  # concurrent


class ResultSaver:
    """Saves the results of documents that end and passes all events on to the next listener.

    Without `sources` nothing is downloaded.
    """

    def __init__(self, listener: CampaignListener, folder: Path, sources: Sources | None) -> None:
        self._listener, self._folder, self._sources = listener, folder, sources
        self._slots = asyncio.Semaphore(MAX_DOWNLOADS)

    def document_started(self, name: str, pages: int | None, jobs: int) -> None:
        self._listener.document_started(name, pages, jobs)

    def document_progressed(self, name: str, pages_done: int, phase: str) -> None:
        self._listener.document_progressed(name, pages_done, phase)

    def pages_found(self, name: str, pages: int) -> None:
        self._listener.pages_found(name, pages)

    async def document_ended(self, outcome: DocumentOutcome) -> None:
        if outcome.result.get("id"):
            try:
                await self._save(outcome)
            except OSError as error:  # the document was read all the same; the summary says where its artefacts are
                log.warning("artefacts not saved", document=outcome.name, reason=error.strerror)
        await self._listener.document_ended(outcome)

    async def _save(self, outcome: DocumentOutcome) -> None:
        folder = self._folder / Path(str(outcome.result["id"])).name
        inline = outcome.result.get("inline", {})
        for name in [name for name in FILE_NAMES if name in inline]:
            folder.mkdir(parents=True, exist_ok=True)
            text = inline[name] if isinstance(inline[name], str) else json.dumps(inline[name], ensure_ascii=False)
            (folder / FILE_NAMES[name]).write_text(text)
        if self._sources is None:
            return
        for name, artefact in outcome.result.get("artefacts", {}).items():
            folder.mkdir(parents=True, exist_ok=True)
            async with self._slots:
                try:
                    await self._sources.fetch(artefact["uri"], folder / Path(name).name)
                except SourceError as error:
                    log.warning("artefact not saved", uri=artefact["uri"], code=error.code, reason=error.message)
