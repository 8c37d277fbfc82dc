"""Show a campaign on a console: progress bars while it runs, a table of its documents at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from twopass.fleet.campaign import UNSENT, DocumentOutcome

_MAX_BARS = 12  # documents with a bar of their own at one time; the total includes the others
MAX_LINES = 1000  # of more documents, only those that were not read completely get a line
MAX_SHOWN = 200  # documents in the table at the end
_UPDATE_S = 0.1  # between two changes of the bar of all documents


@dataclass
class _Counts:
    """The pages of a running document: known, done, and of these found in the store."""

    known: int
    done: int = 0
    found: int = 0
    note: str = ""

    @property
    def read(self) -> int:
        return max(self.done - self.found, 0)


class CampaignDisplay:
    """A bar for each running document, and one for all: pages, pages per second, time left, cost.

    Pace and time left are those of the pages that are read now; pages found in the store are done, and take no time.
    Every call takes the same time, however many documents there are.
    """

    def __init__(self, documents: int, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._started = clock, clock()
        self._running: dict[str, _Counts] = {}
        self._bars: dict[str, TaskID] = {}
        self._documents, self._ended = documents, 0
        self._known, self._done, self._read = 0, 0, 0
        self._cost: float | None = None
        self._updated: float | None = None
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("pages {task.fields[note]}", markup=False),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=console)
        self._total_bar = self._progress.add_task(f"{documents} documents", total=None, note="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._progress.stop()

    def document_started(self, name: str, pages: int | None, jobs: int) -> None:
        self._running[name] = _Counts(pages or 0, note=f"in {jobs} jobs" if jobs > 1 else "")
        self._known += pages or 0
        self._update_total()

    def document_progressed(self, name: str, pages_done: int, phase: str) -> None:
        counts = self._running.setdefault(name, _Counts(0))
        read = counts.read
        self._done += max(pages_done - counts.done, 0)
        counts.done = max(pages_done, counts.done)
        self._read += counts.read - read
        if name not in self._bars and len(self._bars) < _MAX_BARS:
            self._bars[name] = self._progress.add_task(name[-40:], total=counts.known or None, note=counts.note)
        elif name in self._bars:
            self._progress.update(self._bars[name], completed=counts.done, note=phase)
        self._update_total()

    def pages_found(self, name: str, pages: int) -> None:
        counts = self._running.setdefault(name, _Counts(0))
        read, found = counts.read, counts.found
        counts.found = max(pages, found)
        self._read += counts.read - read
        self._delay_start(counts.found - found)

    def _delay_start(self, found: int) -> None:
        """Pages that are found before any is read delay the start of the pace."""
        if found > 0 and not self._read:
            self._started = self._clock()

    async def document_ended(self, outcome: DocumentOutcome) -> None:
        self._ended += 1
        counts = self._running.pop(outcome.name, _Counts(0))
        if outcome.status == UNSENT:
            self._known -= counts.known
        if outcome.result:  # the pages of a failed document stay undone
            pages = outcome.pages or 0
            self._known += pages - counts.known
            self._done += pages - counts.done
            self._read += min(outcome.pages_now, pages) - counts.read
            self._delay_start(pages - outcome.pages_now)
        if outcome.cost is not None:
            self._cost = (self._cost or 0.0) + outcome.cost
        if outcome.name in self._bars:
            self._progress.remove_task(self._bars.pop(outcome.name))
        is_shown = outcome.status != "success" or self._documents <= MAX_LINES
        if is_shown and outcome.status != UNSENT:  # which have one reason, shown at the end
            style = {"success": "green", "partial_success": "yellow"}.get(outcome.status, "red")
            reason = f"  {outcome.error}" if outcome.error else ""
            line = f"[{style}]{outcome.status}[/]  {escape(outcome.name)}{escape(reason)}"
            self._progress.console.print(line, soft_wrap=True)
        self._update_total(is_last=self._ended == self._documents)

    def _update_total(self, is_last: bool = False) -> None:
        now = self._clock()
        if self._updated is not None and now - self._updated < _UPDATE_S and not is_last:
            return
        self._updated = now
        note = self.format_note(self._known, self._done)
        self._progress.update(self._total_bar, total=self._known or None, completed=self._done, note=note)

    def format_note(self, known: int, done: int) -> str:
        """Pages read per second, time left for the known pages, documents, cost."""
        elapsed = self._clock() - self._started
        pace = self._read / elapsed if elapsed > 0 else 0.0
        parts = [f"{pace:.2f}/s", f"{self._ended}/{self._documents} documents"]
        if pace and known > done:
            parts.insert(1, f"{format_duration((known - done) / pace)} left")
        if self._cost is not None:
            parts.append(f"${self._cost:.4f}")
        return " · ".join(parts)


def format_duration(seconds: float) -> str:
    """Hours and minutes, minutes and seconds, or seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def print_summary(outcomes: Sequence[DocumentOutcome], documents: int, console: Console) -> None:
    """Print one line for each outcome, which are those of all documents or the first that were not read completely."""
    table = Table("document", "status", "pages", "jobs", "seconds", "cost", "id")
    for outcome in outcomes:
        pages = ", ".join(f"{count} {state}" for state, count in outcome.result.get("pages", {}).items())
        cost = "" if outcome.cost is None else f"${outcome.cost:.4f}"
        document_id = str(outcome.result.get("id") or "")
        seconds = f"{outcome.seconds:.1f}"
        cells = (outcome.name, outcome.status, pages, str(outcome.jobs), seconds, cost, document_id)
        table.add_row(*map(escape, cells))
    if outcomes:
        console.print(table)
    if len(outcomes) < documents:
        console.print(f"the table has only documents that were not read completely, at most {MAX_SHOWN}")


def print_counts(rows: Sequence[tuple[str, int | None, int]], console: Console) -> None:
    """Print the pages and jobs of each document, given as (name, pages, jobs)."""
    table = Table("document", "pages", "jobs")
    for name, pages, jobs in rows:
        table.add_row(escape(name), "?" if pages is None else str(pages), str(jobs))
    console.print(table)
