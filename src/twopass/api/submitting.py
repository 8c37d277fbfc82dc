"""Send documents to an endpoint of RunPod and wait for them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from twopass.fleet import submission
from twopass.fleet.campaign import DocumentOutcome
from twopass.fleet.discovery import describe_skipped, find_documents
from twopass.fleet.submission import Submission
from twopass.runtime import loop_thread
from twopass.settings import Settings, load_settings
from twopass.telemetry import logs

if TYPE_CHECKING:
    from twopass.api.reading import Location, SubmitOptions

log = structlog.get_logger()


class _Collector:
    """Keeps the outcomes and shows no progress."""

    def __init__(self) -> None:
        self.outcomes: list[DocumentOutcome] = []

    def document_started(self, name: str, pages: int | None, jobs: int) -> None: ...

    def document_progressed(self, name: str, pages_done: int, phase: str) -> None: ...

    def pages_found(self, name: str, pages: int) -> None: ...

    async def document_ended(self, outcome: DocumentOutcome) -> None:
        self.outcomes.append(outcome)


def submit(
    sources: Location | Sequence[Location],
    endpoint: str,
    output: str | None,
    upload: str | None,
    folder: Location | None,
    api_key: str | None,
    settings: Settings | None,
    options: SubmitOptions,
) -> list[DocumentOutcome]:
    """Send the documents, wait for them, and return their outcomes in the order of the sources."""
    settings = settings or load_settings()
    logs.use_standard_logging()
    places = [sources] if isinstance(sources, str | os.PathLike) else sources
    opening = tempfile.TemporaryDirectory(prefix="submit-") if folder is None else nullcontext(folder)
    with opening as state, loop_thread.open_loop() as loop:
        request = Submission(
            folder=Path(state),
            endpoint=endpoint,
            api_key=api_key or os.environ.get("RUNPOD_API_KEY"),
            output=output,
            upload=upload,
            save=folder is not None,
            job=options,
        )
        request.check(settings)
        return loop_thread.run(_send([os.fspath(place) for place in places], request, settings), loop)


async def _send(places: Sequence[str], request: Submission, settings: Settings) -> list[DocumentOutcome]:
    documents, skipped = await find_documents(places, settings, request.results)
    if skipped:
        log.warning(describe_skipped(skipped), count=len(skipped))
    collector = _Collector()
    await submission.send(documents, request, settings, collector)
    return sorted(collector.outcomes, key=lambda outcome: outcome.number)
