"""How many pages were read, and how long that took, for the summary of a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from twopass.document import State
from twopass.result import DocumentResult

READING_STAGES = ("pass1", "pass2")


@dataclass(frozen=True)
class Figures:
    """Counts of pages, and wall seconds.

    `rendering_s` and `reading_s` are sums over the pages that were read now. Pages wait for each other in both, so the
    sums exceed the seconds that the run took.
    """

    pages: int
    pages_read_now: int
    start_s: float
    total_s: float
    rendering_s: float = 0.0
    reading_s: float = 0.0

    @classmethod
    def measure(cls, documents: Iterable[DocumentResult], start_s: float, total_s: float) -> Self:
        """The figures of a run that took `total_s` seconds, the first `start_s` of them to open the engine."""
        documents = list(documents)
        return cls(
            pages=sum(count for doc in documents for state, count in doc.pages.items() if state != State.UNREAD),
            pages_read_now=sum(doc.usage.get("pages_read_now", 0) for doc in documents),
            start_s=start_s,
            total_s=total_s,
            rendering_s=sum(_sum_stages(doc, "render") for doc in documents),
            reading_s=sum(_sum_stages(doc, *READING_STAGES) for doc in documents),
        )

    @property
    def pages_per_s(self) -> float | None:
        """Pace after the start; None if no page was read now."""
        seconds = self.total_s - self.start_s
        return self.pages_read_now / seconds if self.pages_read_now and seconds > 0 else None

    def as_dict(self) -> dict[str, Any]:
        pages = self.pages_read_now
        return {
            "pages": self.pages,
            "pages_read_now": pages,
            "pages_per_s": None if self.pages_per_s is None else round(self.pages_per_s, 4),
            "start_s": round(self.start_s, 3),
            "rendering_s_per_page": round(self.rendering_s / pages, 3) if pages else None,
            "reading_s_per_page": round(self.reading_s / pages, 3) if pages else None,
        }

    def describe(self) -> str:
        """Such as `12 pages; total 31.2 s, of which start 10.4 s; 0.58 pages per second after the start; …`."""
        stored = self.pages - self.pages_read_now
        parts = [
            f"{self.pages} page{'' if self.pages == 1 else 's'}"
            + (f" ({stored} of them stored before)" if stored > 0 else ""),
            f"total {self.total_s:.1f} s, of which start {self.start_s:.1f} s",
        ]
        if self.pages_per_s is not None:
            rendering, reading = (seconds / self.pages_read_now for seconds in (self.rendering_s, self.reading_s))
            parts += [
                f"{self.pages_per_s:.2g} pages per second after the start",
                f"mean per page, with waiting: rendering {rendering:.1f} s, reading {reading:.1f} s",
            ]
        return "; ".join(parts)


def _sum_stages(document: DocumentResult, *names: str) -> float:
    stages = document.timings.get("stages", {})
    return float(sum(stages.get(name, {}).get("wall_s", 0.0) for name in names))
