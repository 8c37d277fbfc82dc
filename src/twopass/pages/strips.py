"""Measure strips of pixels that show one line of text each: their ink, and where the words are."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]
_Contrast = npt.NDArray[np.float64]

TRIM_SHARE = 0.3  # of a strip's height at the top and at the bottom, where a neighbouring line may show
DARKEST = 0.98  # quantile of the contrast: lines have more dark pixels than 2 %
LETTER_SPAN = 0.3  # of a strip's height, from its highest to its lowest ink: rules, dashes and leaders have less
LETTER_REACH = 0.7  # of a strip's height: Chinese characters are the widest, half of one is 0.5
PIECE_SIZE = 0.2  # of a strip's height: dots and grain have less
MIN_PIECES = 0.5  # for each height of a strip but two: scribbles have 0.1-0.3, Hindi and Bengali 0.6-1.3
MAX_PIECE = 0.4  # of a strip's length: scribbles have 0.9-1.0, one word of few 0.3
MAX_WORD = 3.0  # heights: words whose letters are joined have 1.3-3.1
SAME_SHAPE = 0.3  # logarithm of ink and height: pieces that differ by less are alike
MANY_PIECES, MIN_SHAPES = 12, 4  # hatching, boxes and dots have 2 or 3 shapes, a Thai sign 5, text 8 and more
HEADLINE_LENGTH = 2  # heights of a strip, in which a headline is straight on a skewed page, too
HEADLINE_SHARE = 0.9  # of the inked columns in such a piece; Arabic on its baseline has 0.8
MIN_HEADLINES = 0.5  # of the pieces: Hindi has 0.94 and more, other scripts up to 0.1
MIN_INKED = 0.25  # of the columns of such a piece: fewer may be a single letter
STAFF_RULES = 3  # in one line: a value in a form has one under it, one in a table two around it
TALLY_STROKES = 4  # side by side in one piece, both high and low in it; letters have 3 at most, but for W
MAX_UNEVEN = 3.0  # ratio of their distances: W has wide and narrow ones
HIGH, LOW, TALLY_HEIGHT = (0.1, 0.3), (0.7, 0.9), 0.6  # of a piece's height, and of the line's
MAX_BAR = 0.8  # of a piece's length, in one row of pixels: tally marks have up to 0.7, frames and Hindi words 0.9
MAX_TALLIES = 0.3  # of a line's ink, in such pieces: tally marks have 0.32-1.0, lines in 14 scripts 0.0


@dataclass(frozen=True)
class Letter:
    """One character that was read in a strip, where its middle is in pixels from the left, and its score 0..1."""

    text: str
    x: float
    score: float


def trim(strip: Array) -> Array:
    """Cut away the rows at the top and bottom that show parts of neighbouring lines: beyond the row with least ink."""
    height = strip.shape[0]
    edge = int(TRIM_SHARE * height)
    if edge < 2:
        return strip
    grey = strip.mean(axis=2)
    ink = np.abs(grey - np.median(grey)).sum(axis=1)
    top = edge - 1 - int(np.argmin(ink[:edge][::-1]))
    bottom = height - edge + int(np.argmin(ink[height - edge :]))
    return strip[top : bottom + 1]


def has_headline(strips: Sequence[Array]) -> bool:
    """Whether a line in the upper half joins the letters, as in upright Devanagari."""
    pieces = [piece for strip in strips for piece in _cut_pieces(_find_ink(strip))]
    joined = 0
    for piece in pieces:
        rows = piece.sum(axis=1)
        is_high = rows.argmax() < piece.shape[0] / 2
        joined += bool(is_high and rows.max() >= HEADLINE_SHARE * piece.any(axis=0).sum())
    return bool(pieces) and joined >= MIN_HEADLINES * len(pieces)


def _cut_pieces(ink: Mask) -> Iterator[Mask]:
    """Pieces of a line, those without much ink left out."""
    length = HEADLINE_LENGTH * ink.shape[0]
    for start in range(0, ink.shape[1] - length + 1, length):
        piece = ink[:, start : start + length]
        if piece.any(axis=0).mean() >= MIN_INKED:
            yield piece


def find_inked_columns(strip: Array) -> Mask:
    """Whether each column has ink."""
    return np.asarray(_find_ink(strip).any(axis=0))


def measure_coverage(strip: Array, letters: Sequence[float]) -> float:
    """The share of a strip's inked columns that are near a letter which was read; 1 without ink.

    `letters` are where they were read, in pixels from the left. Columns with a rule or a dot only do not count.
    """
    height = strip.shape[0]
    ink, rows = _find_ink(strip), np.arange(height)[:, None]
    span = np.where(ink, rows, -1).max(axis=0) - np.where(ink, rows, height).min(axis=0)
    columns = np.flatnonzero(span >= LETTER_SPAN * height)
    if not columns.size or not letters:
        return float(not columns.size)
    distances = np.abs(columns[:, None] - np.asarray(letters)[None, :]).min(axis=1)
    return float((distances <= LETTER_REACH * height).mean())


def show_writing(strips: Sequence[Array]) -> list[bool]:
    """Whether each strip of a page shows letters or words: many separate pieces, of many shapes.

    A scribble, a signature or a diagram is one long piece; hatching and boxes repeat one shape.
    """
    pieces = [_find_pieces(strip) for strip in strips]
    divided = [_is_divided(own, strip) for own, strip in zip(pieces, strips, strict=True)]
    shapes = [_round_shape(piece) for own, is_one in zip(pieces, divided, strict=True) if is_one for piece in own]
    is_varied = len(shapes) < MANY_PIECES or len(set(shapes)) >= MIN_SHAPES
    return [is_one and is_varied for is_one in divided]


def measure_linked(strip: Array, margin: int) -> float:
    """The share of a line's ink that is one with ink far beyond it, as symbols on wires and notes on staves are.

    The strip shows the line with a margin on each side. A rule on which letters stand does not count.
    """
    import cv2

    if min(strip.shape[:2]) <= 2 * margin:
        return 0.0
    ink = _find_ink(strip, margin).astype(np.uint8)
    inside = slice(margin, -margin), slice(margin, -margin)
    rows = slice(margin, -margin // 2)  # letters may reach below the detected line
    near = np.ones((3, 1), np.uint8)  # rows over which a slope spreads a rule
    is_rule = cv2.dilate(ink, near)[rows, inside[1]].mean(axis=1) >= RULE_LENGTH
    if (np.diff(is_rule, prepend=False) & is_rule).sum() < STAFF_RULES:
        is_rule[: len(strip) // 2 - margin] = False
        ink[rows][cv2.dilate(is_rule[:, None].astype(np.uint8), near)[:, 0] > 0] = 0
    _, labels, boxes, _ = cv2.connectedComponentsWithStats(ink, connectivity=8)
    left, top, width, height, _ = boxes.T
    is_far = (left == 0) | (top == 0) | (left + width == ink.shape[1]) | (top + height == ink.shape[0])
    is_far[0] = False  # the background
    return float(is_far[labels[inside]].sum() / max(ink[inside].sum(), 1))


def show_tallies(strip: Array) -> bool:
    """Whether a strip shows tally marks: four strokes with a bar."""
    import cv2

    ink = _find_ink(strip).astype(np.uint8)
    _, labels, boxes, _ = cv2.connectedComponentsWithStats(ink, connectivity=8)
    tallies = sum(
        inked
        for number, (x, y, width, height, inked) in enumerate(boxes[1:].tolist(), 1)
        if height >= TALLY_HEIGHT * len(ink) and _is_tally(labels[y : y + height, x : x + width] == number)
    )
    return bool(tallies > MAX_TALLIES * ink.sum())


def _is_tally(piece: Mask) -> bool:
    """Whether a piece is strokes side by side, without one along all of it, as frames and Hindi words have."""
    if piece.mean(axis=1).max() > MAX_BAR:
        return False
    parts = (piece[int(start * len(piece)) : int(stop * len(piece)) + 1] for start, stop in (HIGH, LOW))
    return all(np.median([_count_strokes(row) for row in part]) >= TALLY_STROKES for part in parts)


def _count_strokes(row: Mask) -> int:
    """How many strokes a row of pixels crosses; 0 if they are not evenly spaced."""
    starts = np.flatnonzero(np.diff(row.astype(np.int8), prepend=0) == 1)
    gaps = np.diff(starts)
    return starts.size if gaps.size and gaps.max() <= MAX_UNEVEN * gaps.min() else 0


def _find_pieces(strip: Array) -> list[tuple[int, int, int]]:
    """The width, height and inked pixels of each connected piece of ink that is no dot."""
    import cv2  # only scans need it

    if not strip.size:
        return []
    ink = _find_ink(strip).astype(np.uint8)
    ink[ink.mean(axis=1) >= RULE_LENGTH] = 0  # the rule under a line
    boxes = cv2.connectedComponentsWithStats(ink, connectivity=8)[2][1:]
    least = PIECE_SIZE * strip.shape[0]
    return [(width, height, ink) for _, _, width, height, ink in boxes.tolist() if max(width, height) >= least]


def _is_divided(pieces: Sequence[tuple[int, int, int]], strip: Array) -> bool:
    height, length = strip.shape[:2]
    widest = max((width for width, _, _ in pieces), default=length)
    return bool(
        len(pieces) >= MIN_PIECES * (length / height - 2) and widest <= max(MAX_PIECE * length, MAX_WORD * height)
    )


def _round_shape(piece: tuple[int, int, int]) -> tuple[int, int]:
    return round(math.log(piece[2]) / SAME_SHAPE), round(math.log(piece[1]) / SAME_SHAPE)


def _measure_contrast(strip: Array, margin: int = 0) -> tuple[_Contrast, float]:
    """How far each pixel is from the background in grey levels, and how far the darkest ones are inside the margin."""
    grey = strip.mean(axis=2) if strip.ndim == 3 else strip.astype(np.float64)
    inside = slice(margin, grey.shape[0] - margin), slice(margin, grey.shape[1] - margin)
    contrast = np.abs(grey - np.median(grey[inside]))
    return contrast, float(np.quantile(contrast[inside], DARKEST))


def _find_ink(strip: Array, margin: int = 0) -> Mask:
    """The pixels that differ from the background by half of what the most different ones do."""
    contrast, darkest = _measure_contrast(strip, margin)
    return np.asarray(contrast > max(darkest / 2, 1.0))


# ---- where words are ----

Extent = tuple[float, float]  # shares of the line's length, from where reading starts
_Gap = tuple[int, int]  # columns of pixels without ink

INK_CONTRAST = 0.4  # of the difference between the darkest pixels and the background
EDGE = 0.2  # of the line's height at its top and bottom, where rules may be; letters are between
RULE_LENGTH = 0.9  # of the line's length, for a rule along it
RULE_HEIGHT = 0.7  # of the line's height, for a rule across it: letters have at most 0.6
MIN_BLANK = 0.18  # of the line's height: blanks in scans had 0.2 and more
MIN_BLANK_RATIO = 2.0  # times the median gap between letters of a word: blanks in scans were wider


def place_words(strip: Array, text: str, centres: Sequence[float]) -> tuple[list[str], tuple[Extent, ...]]:
    """The words of a line and their extents, which are empty if the characters and their places do not match.

    `strip` has the pixels of the straightened line. `centres` are the places of all characters but blanks, as shares
    of the line's length; they may be wrong by half a character.
    """
    words = text.split()
    characters = "".join(words)
    if not characters or len(centres) != len(characters) or not strip.size:
        return words, ()
    width = strip.shape[1]
    ink = find_letters(strip)
    gaps = _find_gaps(ink, [min(max(round(centre * width), 0), width) for centre in centres])
    starts = [0, *_list_starts(words, gaps, strip.shape[0])]
    inked = np.flatnonzero(ink)
    bounds = (int(inked[0]), int(inked[-1]) + 1) if inked.size else (0, width)
    edges = [bounds[0], *(edge for start in starts[1:] for edge in gaps[start - 1]), bounds[1]]
    extents = [(left / width, right / width) for left, right in zip(edges[::2], edges[1::2], strict=True)]
    if not all(left < right for left, right in extents):
        return words, ()
    return [characters[a:b] for a, b in pairwise([*starts, len(characters)])], tuple(extents)


def find_letters(strip: Array) -> Mask:
    """Which columns of a line have ink, without the rules that run through it; the strip may be grey."""
    contrast, darkest = _measure_contrast(strip)
    dark = contrast > INK_CONTRAST * max(darkest, 1.0)
    dark = dark[dark.mean(axis=1) < RULE_LENGTH]
    edge = max(round(EDGE * len(dark)), 1)
    is_letter: Mask = dark[edge:-edge].any(axis=0) & (dark.mean(axis=0) < RULE_HEIGHT)
    return is_letter


def _find_gaps(ink: Mask, places: Sequence[int]) -> list[_Gap]:
    """The widest gap between each character and the next one; one without any width if their ink touches."""
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


def _measure_gap(gap: _Gap) -> int:
    return gap[1] - gap[0]


def _list_starts(words: Sequence[str], gaps: Sequence[_Gap], height: int) -> Iterator[int]:
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
    """Whether one of two characters is a digit; beside a 1, which is narrow, there is always space."""
    return any(char.isdigit() for char in pair) and pair.isalnum() and "1" not in pair
