"""Pages in, minutes and dollars out, before anything is spent. Knows arithmetic only, and says what it went by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MEASURED = 13.18  # pages/s of whole jobs, both passes, on one H200: docs/bench/h200.json, job_mix


def estimate(
    rows: Sequence[tuple[str, int | None, int]],
    pages_per_s: float | None,
    workers: int,
    price_per_hour: float | None,
    earlier: Mapping[str, Any],
) -> dict[str, Any]:
    """Of (document, pages, jobs) rows. By one worker's pace and price, by an earlier run's summary, or by
    what was measured."""
    pages = sum(pages or 0 for _, pages, _ in rows)
    told: dict[str, Any] = {
        "documents": len(rows),
        "pages": pages,
        "not counted": sum(pages is None for _, pages, _ in rows),
        "jobs": sum(jobs for *_, jobs in rows),
    }
    if not pages_per_s and earlier.get("pages_per_s"):
        told["minutes"] = round(pages / earlier["pages_per_s"] / 60, 1)
        told["by"] = f"{earlier['pages_per_s']:g} pages/s of the last run, all its workers together"
        if earlier.get("cost_per_1000_pages") is not None:
            told["dollars"] = round(pages / 1000 * earlier["cost_per_1000_pages"], 4)
        return told
    pace = pages_per_s or MEASURED
    told["minutes"] = round(pages / (pace * workers) / 60, 1)
    told["by"] = f"{pace:g} pages/s of each of {workers} workers, start-up not counted"
    if not pages_per_s:
        told["by"] += "; measured on an H200, other GPUs are slower: give --pages-per-s, or read a few documents first"
    if price_per_hour is not None:
        told["dollars"] = round(pages / pace / 3600 * price_per_hour, 4)
    return told
