"""What a campaign tells, in; bars while it runs and a table at its end, out, on a console."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from twopass.fleet.campaign import Ended

BARS = 12  # documents that have one at a time; the others are in the total


class Board:
    """A bar for each document under way, and one for all: pages, pages/s, time left, cost."""

    def __init__(self, documents: int, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._began = clock, clock()
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
        self._shown = Progress(*columns, console=console)
        self._total = self._shown.add_task(f"{documents} documents", total=None, note="")

    def __enter__(self) -> Self:
        self._shown.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._shown.stop()

    def found(self, name: str, pages: int | None, jobs: int) -> None:
        self._pages[name] = pages
        if len(self._bars) < BARS:
            note = f"in {jobs} jobs" if jobs > 1 else ""
            self._bars[name] = self._shown.add_task(name[-40:], total=pages, note=note)
        self._sum()

    def moved(self, name: str, pages_done: int, phase: str) -> None:
        self._done[name] = max(pages_done, self._done.get(name, 0))
        if name in self._bars:
            self._shown.update(self._bars[name], completed=self._done[name], note=phase)
        self._sum()

    def ended(self, ended: Ended) -> None:
        self._ended += 1
        if ended.result:  # a document that failed leaves its pages undone
            self._pages[ended.name] = self._done[ended.name] = ended.pages or 0
        if ended.cost is not None:
            self._cost = (self._cost or 0.0) + ended.cost
        if ended.name in self._bars:
            self._shown.remove_task(self._bars.pop(ended.name))
        style = {"success": "green", "partial_success": "yellow"}.get(ended.status, "red")
        why = f"  {ended.error}" if ended.error else ""
        self._shown.console.print(f"[{style}]{ended.status}[/]  {escape(ended.name)}{escape(why)}", soft_wrap=True)
        self._sum()

    def _sum(self) -> None:
        known = sum(pages or 0 for pages in self._pages.values())
        done = sum(self._done.values())
        self._shown.update(self._total, total=known or None, completed=done, note=self.note(known, done))

    def note(self, known: int, done: int) -> str:
        """Pace, time left of the pages known, documents, cost."""
        elapsed = self._clock() - self._began
        pace = done / elapsed if elapsed > 0 else 0.0
        parts = [f"{pace:.2f}/s", f"{self._ended}/{self._documents} documents"]
        if pace and known > done:
            parts.insert(1, f"{span((known - done) / pace)} left")
        if self._cost is not None:
            parts.append(f"${self._cost:.4f}")
        return " · ".join(parts)


def span(seconds: float) -> str:
    """Rounded to what a waiting person wants to know."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def print_summary(ended: Sequence[Ended], console: Console) -> None:
    """One line for each document."""
    table = Table("document", "status", "pages", "jobs", "seconds", "cost", "id")
    for one in ended:
        pages = ", ".join(f"{count} {state}" for state, count in one.result.get("pages", {}).items())
        cost = "" if one.cost is None else f"${one.cost:.4f}"
        cells = (
            one.name,
            one.status,
            pages,
            str(one.jobs),
            f"{one.seconds:.1f}",
            cost,
            str(one.result.get("id") or ""),
        )
        table.add_row(*map(escape, cells))
    console.print(table)


def print_estimate(rows: Sequence[tuple[str, int | None, int]], told: dict[str, Any], console: Console) -> None:
    """What a run would take: documents with their pages and jobs, and the sum."""
    table = Table("document", "pages", "jobs")
    for name, pages, jobs in rows:
        table.add_row(escape(name), "?" if pages is None else str(pages), str(jobs))
    console.print(table)
    for name, value in told.items():
        console.print(f"{name}: {value}", highlight=False)
