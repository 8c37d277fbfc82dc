"""Show a campaign on a console: progress bars while it runs, a table of its documents at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from twopass.fleet.campaign import DocumentOutcome

MAX_BARS = 12  # documents with a bar of their own at one time; the total includes the others


class CampaignDisplay:
    """A bar for each running document, and one for all: pages, pages per second, time left, cost."""

    def __init__(self, documents: int, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._started = clock, clock()
        self._pages: dict[str, int | None] = {}
        self._done: dict[str, int] = {}
        self._bars: dict[str, TaskID] = {}
        self._documents, self._ended = documents, 0
        self._cost: float | None = None
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
        self._pages[name] = pages
        if len(self._bars) < MAX_BARS:
            note = f"in {jobs} jobs" if jobs > 1 else ""
            self._bars[name] = self._progress.add_task(name[-40:], total=pages, note=note)
        self._update_total()

    def document_progressed(self, name: str, pages_done: int, phase: str) -> None:
        self._done[name] = max(pages_done, self._done.get(name, 0))
        if name in self._bars:
            self._progress.update(self._bars[name], completed=self._done[name], note=phase)
        self._update_total()

    def document_ended(self, outcome: DocumentOutcome) -> None:
        self._ended += 1
        if outcome.result:  # the pages of a failed document stay undone
            self._pages[outcome.name] = self._done[outcome.name] = outcome.pages or 0
        if outcome.cost is not None:
            self._cost = (self._cost or 0.0) + outcome.cost
        if outcome.name in self._bars:
            self._progress.remove_task(self._bars.pop(outcome.name))
        style = {"success": "green", "partial_success": "yellow"}.get(outcome.status, "red")
        reason = f"  {outcome.error}" if outcome.error else ""
        line = f"[{style}]{outcome.status}[/]  {escape(outcome.name)}{escape(reason)}"
        self._progress.console.print(line, soft_wrap=True)
        self._update_total()

    def _update_total(self) -> None:
        known = sum(pages or 0 for pages in self._pages.values())
        done = sum(self._done.values())
        note = self.format_note(known, done)
        self._progress.update(self._total_bar, total=known or None, completed=done, note=note)

    def format_note(self, known: int, done: int) -> str:
        """Pages per second, time left for the known pages, documents, cost."""
        elapsed = self._clock() - self._started
        pace = done / elapsed if elapsed > 0 else 0.0
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


def print_summary(outcomes: Sequence[DocumentOutcome], console: Console) -> None:
    """Print one line for each document."""
    table = Table("document", "status", "pages", "jobs", "seconds", "cost", "id")
    for outcome in outcomes:
        pages = ", ".join(f"{count} {state}" for state, count in outcome.result.get("pages", {}).items())
        cost = "" if outcome.cost is None else f"${outcome.cost:.4f}"
        document_id = str(outcome.result.get("id") or "")
        seconds = f"{outcome.seconds:.1f}"
        cells = (outcome.name, outcome.status, pages, str(outcome.jobs), seconds, cost, document_id)
        table.add_row(*map(escape, cells))
    console.print(table)


def print_estimate(rows: Sequence[tuple[str, int | None, int]], figures: dict[str, Any], console: Console) -> None:
    """Print the pages and jobs of each document, given as (name, pages, jobs), and the figures of the whole run."""
    table = Table("document", "pages", "jobs")
    for name, pages, jobs in rows:
        table.add_row(escape(name), "?" if pages is None else str(pages), str(jobs))
    console.print(table)
    for name, value in figures.items():
        console.print(f"{name}: {value}", highlight=False)
