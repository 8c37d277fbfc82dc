"""Write `submit_summary.json`: figures of the whole run, and one row for each document, in their order."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from twopass.errors import Code
from twopass.fleet.campaign import UNSENT, CampaignListener, DocumentOutcome
from twopass.fleet.display import MAX_SHOWN

SUMMARY = "submit_summary.json"


class _LastRun(BaseModel):
    """What an estimate needs of the last summary."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    pages_per_s: float | None = Field(default=None, gt=0)
    cost_per_1000_pages: float | None = Field(default=None, ge=0)


class SummaryWriter:
    """Takes each outcome as it ends and passes all events on to the next listener.

    The rows wait in a temporary file, because the results of all documents together may not fit into memory. `shown`
    are the outcomes for the console: all, or of more than MAX_SHOWN documents the first that were not read completely.
    """

    def __init__(self, folder: Path, documents: int, listener: CampaignListener) -> None:
        self.path = folder / SUMMARY
        self.shown: list[DocumentOutcome] = []
        self._documents, self._listener = documents, listener
        self._places = array("q", [-1]) * documents  # where each document's row begins
        self._statuses: Counter[str] = Counter()
        self._pages_now, self._cost = 0, 0.0
        self._has_cost = False
        self.limit: str | None = None  # why jobs were not sent

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._rows = TemporaryFile(dir=self.path.parent)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._rows.close()

    def document_started(self, name: str, pages: int | None, jobs: int) -> None:
        self._listener.document_started(name, pages, jobs)

    def document_progressed(self, name: str, pages_done: int, phase: str) -> None:
        self._listener.document_progressed(name, pages_done, phase)

    def pages_found(self, name: str, pages: int) -> None:
        self._listener.pages_found(name, pages)

    async def document_ended(self, outcome: DocumentOutcome) -> None:
        self._places[outcome.number] = self._rows.tell()
        self._rows.write(json.dumps(_make_row(outcome)).encode() + b"\n")
        self._statuses[outcome.status] += 1
        self._pages_now += outcome.pages_now
        if (outcome.error or "").startswith(Code.COST_LIMIT):
            self.limit = self.limit or outcome.error
        if outcome.cost is not None:
            self._has_cost, self._cost = True, self._cost + outcome.cost
        is_shown = self._documents <= MAX_SHOWN or outcome.status != "success"
        if is_shown and len(self.shown) < MAX_SHOWN:
            self.shown.append(outcome)
        await self._listener.document_ended(outcome)

    @property
    def success_count(self) -> int:
        return self._statuses["success"]

    @property
    def unsent_count(self) -> int:
        return self._statuses[UNSENT]

    def finish(self, seconds: float) -> None:
        """Write the file, after the last document of a run that took so many seconds."""
        self.shown.sort(key=lambda outcome: outcome.number)
        head = json.dumps(self._sum_up(seconds), indent=1).removesuffix("\n}")
        with self.path.open("wb") as file:
            file.write(f'{head},\n "documents": [\n  '.encode())
            for number, place in enumerate(self._places):
                self._rows.seek(place)
                file.write((b",\n  " if number else b"") + self._rows.readline().rstrip(b"\n"))
            file.write(b"\n ]\n}\n")

    def _sum_up(self, seconds: float) -> dict[str, Any]:
        pages, cost = self._pages_now, round(self._cost, 9) if self._has_cost else None
        return {
            "total_documents": self._documents,
            "success": self._statuses["success"],
            "partial": self._statuses["partial_success"],
            "failed": self._statuses["failure"],
            **({"unsent": self.unsent_count, "limit": self.limit} if self.limit else {}),
            "pages_read_now": pages,
            "total_time": round(seconds, 3),
            "pages_per_s": round(pages / seconds, 4) if pages else None,
            "cost": cost,
            "cost_per_1000_pages": round(1000 * cost / pages, 6) if cost is not None and pages else None,
        }


def load_last(folder: Path) -> dict[str, Any]:
    """The figures of the last run with this folder; empty where there was none."""
    try:
        return _LastRun.model_validate_json((folder / SUMMARY).read_bytes()).model_dump(exclude_none=True)
    except (FileNotFoundError, ValidationError):
        return {}


def _make_row(outcome: DocumentOutcome) -> dict[str, Any]:
    artefacts = outcome.result.get("artefacts", {})
    row = {
        "source": outcome.name,
        "status": outcome.status,
        "id": outcome.result.get("id"),
        "pages": dict(outcome.result.get("pages", {})),
        "jobs": outcome.jobs,
        "runs": outcome.runs,
        "seconds": outcome.seconds,
        "cost": outcome.cost,
        "artefacts": {name: artefact["uri"] for name, artefact in artefacts.items()},
        "problems": list(outcome.problems),
        "error": outcome.error,
    }
    return {name: value for name, value in row.items() if value is not None}
