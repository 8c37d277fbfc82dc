"""What a campaign will probably cost, and what it may: a job is sent only while it fits into the limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from twopass.errors import Code, LimitReached
from twopass.fleet.ledger import Spending

MEASURED_PAGES_PER_S = 20.05  # whole jobs, both passes, on one H200: docs/bench/h200.json, job_mix
_UNCOUNTED_PAGES = 100  # of a job, before one has ended
_UNMEASURED_PAGE_S = 1.0  # of a worker for a page, before one was read: slower than every GPU that was measured


@dataclass(eq=False)
class _Reservation:
    """What a job in flight will cost: an estimate in dollars, until it ends."""

    dollars: float
    cost: float | None = None
    pages: int = 0

    def settle(self, cost: float | None, pages: int) -> None:
        """The job has ended: what it cost, and how many pages it read."""
        self.cost, self.pages = cost or 0.0, pages


class Budget:
    """The dollars of a campaign. Without a limit, every job is sent.

    A job's cost is estimated from the pages that were read. Before the first of them, jobs that might exceed the limit
    at a slow worker's pace wait for the one in flight.
    """

    def __init__(self, limit: float | None, price_per_s: float | None, spending: Spending) -> None:
        """`spending` is that of the campaign's earlier commands."""
        self._limit, self._price_per_s = limit, price_per_s or 0.0
        self._spending = spending
        self._lost = 0.0  # for jobs of whose end nothing is known
        self._in_flight: list[_Reservation] = []
        self._changed = asyncio.Condition()

    @property
    def is_spent(self) -> bool:
        return self._limit is not None and self._spent >= self._limit

    @property
    def _spent(self) -> float:
        return self._spending.cost + self._lost

    @property
    def _reserved(self) -> float:
        return sum(reservation.dollars for reservation in self._in_flight)

    @asynccontextmanager
    async def reserve(self, pages: int | None, is_sent: bool) -> AsyncIterator[_Reservation]:
        """Wait until there is room for a job of so many pages; raises LimitReached if there will be none.

        A job that an earlier command has sent is followed in any case.
        """
        async with self._changed:
            while not (is_sent or self._has_room(pages)):
                if self.is_spent or not self._in_flight:
                    raise self.refuse(pages)
                await self._changed.wait()
            reservation = _Reservation(self._estimate(pages))
            self._in_flight.append(reservation)
        try:
            yield reservation
        finally:
            self._in_flight.remove(reservation)
            self._record(reservation)
            async with self._changed:
                self._changed.notify_all()

    def refuse(self, pages: int | None) -> LimitReached:
        """Say why a job of so many pages is not sent, and what is still being spent."""
        in_flight = f"{len(self._in_flight)} jobs in flight will cost about ${self._reserved:.4f}"
        spent = f"${self._spent:.4f} are spent, {in_flight}"
        reason = "" if self.is_spent else f", this job about ${self._estimate(pages):.4f}"
        advice = "raise it and repeat the command to read the rest"
        return LimitReached(Code.COST_LIMIT, f"--max-cost {self._limit:g}: {spent}{reason}; {advice}")

    def _has_room(self, pages: int | None) -> bool:
        if self._limit is None:
            return True
        if self.is_spent:
            return False
        if not (self._in_flight or self._spending.pages):
            return True  # only a job can tell what a page costs
        return self._spent + self._reserved + self._estimate(pages) <= self._limit

    def _estimate(self, pages: int | None) -> float:
        """The dollars of a job of so many pages."""
        cost, read, runs = self._spending.cost, self._spending.pages, self._spending.runs
        if read:
            return cost / read * (read / runs if pages is None else pages)
        return self._price_per_s * _UNMEASURED_PAGE_S * (_UNCOUNTED_PAGES if pages is None else pages)

    def _record(self, reservation: _Reservation) -> None:
        if reservation.cost is None:
            self._lost += reservation.dollars  # it may have cost what was expected
        else:
            self._spending = self._spending.add(reservation.cost, reservation.pages)


def estimate(
    rows: Sequence[tuple[str, int | None, int]],
    pages_per_s: float | None,
    workers: int,
    price_per_hour: float | None,
    last_summary: Mapping[str, Any],
) -> dict[str, Any]:
    """Estimate minutes and dollars before anything is spent; returns figures for rows of (document, pages, jobs).

    They are based on the pace and price of one worker where given, else on the summary of the last run, else on what
    was measured.
    """
    pages = sum(pages or 0 for _, pages, _ in rows)
    figures: dict[str, Any] = {
        "documents": len(rows),
        "pages": pages,
        "not counted": sum(pages is None for _, pages, _ in rows),
        "jobs": sum(jobs for *_, jobs in rows),
    }
    if not pages_per_s and last_summary.get("pages_per_s"):
        figures["minutes"] = round(pages / last_summary["pages_per_s"] / 60, 1)
        figures["by"] = f"{last_summary['pages_per_s']:g} pages/s of the last run, all its workers together"
        if last_summary.get("cost_per_1000_pages") is not None:
            figures["dollars"] = round(pages / 1000 * last_summary["cost_per_1000_pages"], 4)
        return figures
    pace = pages_per_s or MEASURED_PAGES_PER_S
    figures["minutes"] = round(pages / (pace * workers) / 60, 1)
    figures["by"] = f"{pace:g} pages/s of each of {workers} workers, start-up not counted"
    if not pages_per_s:
        advice = "give --pages-per-s, or read a few documents first"
        figures["by"] += f"; measured on an H200, other GPUs are slower: {advice}"
    if price_per_hour is not None:
        figures["dollars"] = round(pages / pace / 3600 * price_per_hour, 4)
    return figures
