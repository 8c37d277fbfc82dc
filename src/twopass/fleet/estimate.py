"""Pages in, minutes and dollars out, before anything is spent. Knows arithmetic only, and says what it went by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def estimate(
    rows: Sequence[tuple[str, int | None, int]],
    pages_per_s: float | None,
    workers: int,
    price_per_hour: float | None,
    earlier: Mapping[str, Any],
) -> dict[str, Any]:
    """Of (document, pages, jobs) rows. By one worker's pace and price, else by an earlier run's summary."""
    pages = sum(pages or 0 for _, pages, _ in rows)
    told: dict[str, Any] = {
        "documents": len(rows),
        "pages": pages,
        "not counted": sum(pages is None for _, pages, _ in rows),
        "jobs": sum(jobs for *_, jobs in rows),
    }
    if pages_per_s:
        told["minutes"] = round(pages / (pages_per_s * workers) / 60, 1)
        told["by"] = f"{pages_per_s:g} pages/s of each of {workers} workers, start-up not counted"
        if price_per_hour is not None:
            told["dollars"] = round(pages / pages_per_s / 3600 * price_per_hour, 4)
    elif earlier.get("pages_per_s"):
        told["minutes"] = round(pages / earlier["pages_per_s"] / 60, 1)
        told["by"] = f"{earlier['pages_per_s']:g} pages/s of the last run, all its workers together"
        if earlier.get("cost_per_1000_pages") is not None:
            told["dollars"] = round(pages / 1000 * earlier["cost_per_1000_pages"], 4)
    else:
        told["by"] = "nothing known: give --pages-per-s and --price-per-hour, or read a few documents first"
    return told
