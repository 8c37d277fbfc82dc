"""Estimate the minutes and dollars of a run before anything is spent, and say what the estimate is based on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MEASURED_PAGES_PER_S = 12.3  # whole jobs, both passes, on one H200: docs/bench/h200.json, job_mix


def estimate(
    rows: Sequence[tuple[str, int | None, int]],
    pages_per_s: float | None,
    workers: int,
    price_per_hour: float | None,
    last_summary: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the figures for rows of (document, pages, jobs).

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
