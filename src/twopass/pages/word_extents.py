"""Find where the words of a recognised line are, from the places of its characters and its ink.

The recogniser leaves out some blanks between a number and what stands beside it. Such words are separated where the
ink has a gap.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from twopass.pages import strips
from twopass.pages.strips import Array

Extent = tuple[float, float]  # shares of the line's length, from where reading starts
Gap = tuple[int, int]  # columns of pixels without ink

INK_CONTRAST = 0.4  # of the difference between the darkest pixels and the background
EDGE = 0.2  # of the line's height at its top and bottom, where rules may be; letters are between
RULE_LENGTH = 0.9  # of the line's length, for a rule along it
RULE_HEIGHT = 0.7  # of the line's height, for a rule across it: letters have at most 0.6
MIN_BLANK = 0.18  # of the line's height: blanks in scans had 0.2 and more,
MIN_BLANK_RATIO = 2.0  # and were more than this wide in gaps between the letters of a word


def place_words(strip: Array, text: str, centres: Sequence[float]) -> tuple[list[str], tuple[Extent, ...]]:
    """Return the words of a line and their extents, which are empty if the characters and their places do not match.

    `strip` has the pixels of the straightened line. `centres` are the places of all characters but blanks, as shares
    of the line's length; they may be wrong by half a character.
    """
    words = text.split()
    characters = "".join(words)
    if not characters or len(centres) != len(characters) or not strip.size:
        return words, ()
    width = strip.shape[1]
    ink = _find_ink(strip)
    gaps = _find_gaps(ink, [min(max(round(centre * width), 0), width) for centre in centres])
    starts = [0, *_list_starts(words, gaps, strip.shape[0])]
    inked = np.flatnonzero(ink)
    bounds = (int(inked[0]), int(inked[-1]) + 1) if inked.size else (0, width)
    edges = [bounds[0], *(edge for start in starts[1:] for edge in gaps[start - 1]), bounds[1]]
    extents = [(left / width, right / width) for left, right in zip(edges[::2], edges[1::2], strict=True)]
    if not all(left < right for left, right in extents):
        return words, ()
    return [characters[a:b] for a, b in pairwise([*starts, len(characters)])], tuple(extents)


def _find_ink(strip: Array) -> npt.NDArray[np.bool_]:
    """Return which columns of a line have ink, without the rules that run through it."""
    contrast, darkest = strips.measure_contrast(strip)
    dark = contrast > INK_CONTRAST * max(darkest, 1.0)
    dark = dark[dark.mean(axis=1) < RULE_LENGTH]
    edge = max(round(EDGE * len(dark)), 1)
    is_letter: npt.NDArray[np.bool_] = dark[edge:-edge].any(axis=0) & (dark.mean(axis=0) < RULE_HEIGHT)
    return is_letter


def _find_gaps(ink: npt.NDArray[np.bool_], places: Sequence[int]) -> list[Gap]:
    """Return the widest gap between each character and the next one; one without any width if their ink touches."""
    changes = np.flatnonzero(np.diff(np.concatenate([[True], ink, [True]]).astype(np.int8))).tolist()
    runs = list(zip(changes[::2], changes[1::2], strict=True))
    stops = [stop for _, stop in runs]
    gaps = []
    for start, stop in (sorted(pair) for pair in pairwise(places)):
        best = ((start + stop) // 2, (start + stop) // 2)
        for first, last in runs[bisect_left(stops, start) :]:
            if first >= stop:
                break
            best = max(best, (max(first, start), min(last, stop)), key=_measure_gap)
        gaps.append(best)
    return gaps


def _measure_gap(gap: Gap) -> int:
    return gap[1] - gap[0]


def _list_starts(words: Sequence[str], gaps: Sequence[Gap], height: int) -> Iterator[int]:
    """Yield the number of the first character of each word but the first, with the words that lack a blank."""
    characters = "".join(words)
    known = set()
    at = 0
    for word in words:
        at += len(word)
        known.add(at)
    inner = [_measure_gap(gap) for number, gap in enumerate(gaps, 1) if number not in known]
    min_blank = max(MIN_BLANK * height, MIN_BLANK_RATIO * statistics.median(inner)) if inner else 0.0
    for number, gap in enumerate(gaps, 1):
        pair = characters[number - 1 : number + 1]
        if number in known or (_may_lack_blank(pair) and _measure_gap(gap) >= min_blank):
            yield number


def _may_lack_blank(pair: str) -> bool:
    """Return whether one of two characters is a digit; beside a 1, which is narrow, there is always space."""
    return any(char.isdigit() for char in pair) and pair.isalnum() and "1" not in pair
