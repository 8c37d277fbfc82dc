"""Page ranges as callers write them: `"1-5,8,11-"`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_RANGE = re.compile(r"\s*(\d{1,6})\s*(?:(-)\s*(\d{1,6})?\s*)?$")


@dataclass(frozen=True)
class PageRange:
    """A set of pages, counted from 1; an open end (`11-`) runs to the last page."""

    text: str
    parts: tuple[tuple[int, int | None], ...]

    @classmethod
    def parse(cls, text: str) -> PageRange:
        """Raises ValueError with a message for the caller."""
        parts = []
        for part in text.split(","):
            found = _RANGE.match(part)
            if not found:
                raise ValueError(f"'{part.strip()}' is not a page or range; write for example 1-5,8,11-")
            first, dash, last = found.groups()
            start, end = int(first), int(last) if last else (None if dash else int(first))
            if start < 1 or (end is not None and end < start):
                raise ValueError(f"'{part.strip()}' must start at page 1 or later and must not end before it starts")
            parts.append((start, end))
        return cls(",".join(_format_range(*part) for part in parts), tuple(parts))

    def select(self, page_count: int) -> tuple[int, ...]:
        """The selected pages of a document with `page_count` pages, in order."""
        chosen: list[int] = []
        last = 0  # skip pages already chosen: a million overlapping ranges cost no more than their pages
        for start, end in sorted(self.parts, key=lambda part: part[0]):
            stop = min(end or page_count, page_count)
            chosen.extend(range(max(start, last + 1), stop + 1))
            last = max(last, stop)
        return tuple(chosen)

    def exceeds(self, page_count: int) -> bool:
        """Whether a named page does not exist in a document with `page_count` pages."""
        return any(start > page_count or (end or 0) > page_count for start, end in self.parts)


def format_page_ranges(numbers: Iterable[int]) -> str | None:
    """Ascending page numbers in the form that `PageRange.parse` accepts, `"3,5-9"`; None if there are none."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(_format_range(*part) for part in parts) or None


def _format_range(start: int, end: int | None) -> str:
    return f"{start}-" if end is None else f"{start}" if start == end else f"{start}-{end}"
