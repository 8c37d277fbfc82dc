"""Decide which lines of text of a table are one row: texts that are wrapped in their cells, where no rule tells.

The pitch of the lines tells it where lines of one row are closer than rows. Otherwise a line continues the one above if
its texts go on there: they begin with small letters in columns whose texts do not, or the text above ends unfinished.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import attrgetter

from twopass.document import enclose
from twopass.engines.cpu.tables.phrases import Phrase, find_slot

MIN_STEP = 1.12  # times the pitch of wrapped lines, for the pitch of rows
MIN_ROW_GAPS = 2  # between rows of that pitch
MAX_CONTRARY = 0.25  # of the close lines that look like rows of their own
MAX_SMALL = 0.65  # of a column's texts that begin with small letters, for these to show a wrapped text
MIN_TEXTS = 3  # of two lines that both fill a row
_UNFINISHED = re.compile(r"(?:\w[-‐\u00ad]|,|&|\b(?:of|and|the|for|in|to|with|or|per|by|from|a|an|at|on))$")


@dataclass(frozen=True)
class _Gap:
    """The space between a line of text and the next one; `above` are the lower line's columns in the row so far."""

    top: float
    bottom: float
    upper: Mapping[int, Phrase]
    lower: Mapping[int, Phrase]
    is_fixed: bool
    has_line: bool

    @property
    def pitch(self) -> float:
        return self.bottom - self.top


def choose_row_lines(
    rows: Sequence[float], fixed: Sequence[float], phrases: Sequence[Phrase], xs: Sequence[float]
) -> list[float]:
    """The row lines that are not drawn, without those within wrapped texts, and with those that are missing."""
    gaps = list(_list_gaps(rows, fixed, phrases, xs))
    joined = _find_close(gaps)
    if joined is None:
        small = _find_small_columns(phrases, xs)
        joined = _find_continued(gaps, small)
        split = {n for n, gap in enumerate(gaps) if _ends_label(gap)} | set(_find_anew(gaps, small))
    else:
        split = {n for n, gap in enumerate(gaps) if n not in joined and 0 in gap.lower}
    dropped = [gaps[n] for n in joined if not gaps[n].is_fixed]
    missing = [gaps[n] for n in sorted(split) if not (gaps[n].is_fixed or gaps[n].has_line)]
    kept = [y for y in rows if not any(gap.top < y <= gap.bottom for gap in dropped)]
    return sorted([*kept, *((gap.top + gap.bottom) / 2 for gap in missing)])


def _list_gaps(
    rows: Sequence[float], fixed: Sequence[float], phrases: Sequence[Phrase], xs: Sequence[float]
) -> Iterator[_Gap]:
    lines = [list(line) for _, line in groupby(phrases, key=attrgetter("line"))]
    for upper, lower in pairwise(lines):
        top, bottom = (enclose([phrase.box for phrase in line]).centre[1] for line in (upper, lower))
        above, below = ({find_slot(xs, phrase.centre): phrase for phrase in line} for line in (upper, lower))
        is_fixed, has_line = (any(top < y <= bottom for y in known) for known in (fixed, rows))
        yield _Gap(top, bottom, above, below, is_fixed, has_line)


def _find_close(gaps: Sequence[_Gap]) -> set[int] | None:
    """The gaps within rows by their pitch, None if it does not tell."""
    free = [n for n, gap in enumerate(gaps) if not gap.is_fixed]
    pitches = sorted(gaps[n].pitch for n in free)
    if not free or pitches[0] < min(phrase.size for phrase in gaps[free[0]].lower.values()):  # lines beside each other
        return None
    limit = next((one for one, other in pairwise(pitches) if other >= MIN_STEP * one), None)
    if limit is None or sum(pitch > limit for pitch in pitches) < MIN_ROW_GAPS:
        return None
    close = {n for n in free if gaps[n].pitch <= limit}
    known: set[int] = set()
    contrary = 0
    for n, gap in enumerate(gaps):
        known = known | gap.upper.keys() if n - 1 in close else set(gap.upper)
        if n in close:
            shared = [slot for slot in gap.lower if slot in gap.upper]
            if not gap.lower.keys() <= known or any(gap.upper[s].is_number and gap.lower[s].is_number for s in shared):
                return None
            contrary += len(known) > 1 and gap.lower.keys() == known and not any(map(_goes_on, *_pair(gap)))
    return close if contrary <= MAX_CONTRARY * len(close) else None


def _pair(gap: _Gap) -> tuple[list[Phrase | None], list[Phrase]]:
    return [gap.upper.get(slot) for slot in gap.lower], list(gap.lower.values())


def _goes_on(upper: Phrase | None, lower: Phrase) -> bool:
    return lower.text[:1].islower() or bool(upper and _UNFINISHED.search(upper.text))


def _find_small_columns(phrases: Sequence[Phrase], xs: Sequence[float]) -> set[int]:
    """The columns in which most texts begin with small letters."""
    starts: dict[int, list[bool]] = {}
    for phrase in phrases:
        starts.setdefault(find_slot(xs, phrase.centre), []).append(phrase.text[:1].islower())
    return {slot for slot, small in starts.items() if sum(small) > MAX_SMALL * len(small)}


def _find_continued(gaps: Sequence[_Gap], small: set[int]) -> set[int]:
    """The gaps below which all texts go on from the row above."""
    continued: set[int] = set()
    known: set[int] = set()
    for n, gap in enumerate(gaps):
        known = known | gap.upper.keys() if n - 1 in continued else set(gap.upper)
        votes = {slot: _vote(gap.upper.get(slot), phrase, slot in small) for slot, phrase in gap.lower.items()}
        # A name at the end of a wrapped text begins with a capital, but a row of its own has a text in each column.
        is_certain = gap.lower.keys() < known and not any(phrase.is_number for phrase in gap.lower.values())
        is_clear = is_certain or (min(votes.values()) >= 0 and votes.get(0, 1) > 0)
        if gap.lower.keys() <= known and is_clear and max(votes.values()) > 0:
            continued.add(n)
    return continued


def _find_anew(gaps: Sequence[_Gap], small: set[int]) -> Iterator[int]:
    """Yield the gaps below the header, below which all texts of a row begin anew."""
    below = next((n for n, gap in enumerate(gaps) if gap.is_fixed), len(gaps))
    for n, gap in enumerate(gaps[below + 1 :], below + 1):
        votes = [_vote(gap.upper.get(slot), phrase, slot in small) for slot, phrase in gap.lower.items()]
        if len(votes) >= MIN_TEXTS and gap.upper.keys() == gap.lower.keys() and max(votes) < 0:
            yield n


def _vote(upper: Phrase | None, lower: Phrase, is_small: bool) -> int:
    """1 if a text goes on from the line above, -1 if it begins anew, 0 if neither is clear."""
    if lower.is_number:
        return -1
    if upper and _UNFINISHED.search(upper.text):
        return 1
    if lower.text[:1].islower():
        return 0 if is_small else 1
    return -1 if lower.text[:1].isalnum() else 0


def _ends_label(gap: _Gap) -> bool:
    """Whether the upper line is a label of the rows below it."""
    return (
        set(gap.upper) == {0}
        and gap.upper[0].text.endswith(":")
        and not any(p.text[:1].islower() for p in gap.lower.values())
    )
