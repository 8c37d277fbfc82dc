"""Spaces and Latin words of Korean lines.

Tesseract takes each Hangul letter for a word, and reads Latin letters as digits. Its "kor+eng" breaks Korean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean

import numpy as np

from twopass.pages.strips import Array, Flags, Letter, find_inked_columns
from twopass.pages.tesseract import Glyph

GAP_SHARE = 0.4  # of the distance of Hangul letters: gaps in words have 0.0 to 0.35, spaces 0.45 and more
LATIN_GAP_SHARE = 0.7  # between digits or Latin letters, which fonts for Hangul set wide
WORD_GAP = 0.2  # of a strip's height: words are further apart, most letters of a word nearer
MIN_LETTERS = 2  # of a Latin word: RapidOCR sees single ones in Hangul
SURE_SCORE = 0.9  # mean, of the letters of a Latin word that is kept
DOUBTFUL_SCORE = 0.5  # of a line with Latin words that RapidOCR cannot read: Tesseract reads something else there
MAX_STEP = 2.5  # of the median distance of a word's letters, between two of them


@dataclass(frozen=True)
class LatinWords:
    """The Latin words of a strip, and a low score if it has some that cannot be read."""

    words: tuple[Glyph, ...] = ()
    score: float = 1.0


NO_LATIN = LatinWords()


def find_latin_words(
    strip: Array, letters: Sequence[Letter], recognise: Callable[[Array], Sequence[Letter]]
) -> LatinWords:
    """The Latin words of a Korean line, in which RapidOCR read these letters.

    Pieces of ink with Latin letters are read again one by one, because RapidOCR is surer of them alone.
    """
    latin = [letter.x for letter in letters if letter.text.isascii() and letter.text.isalpha()]
    words, score = [], 1.0
    for x0, x1 in split_words(strip):
        run = _find_run(recognise(_pad(strip, x0, x1))) if any(x0 <= x < x1 for x in latin) else []
        if not _is_word(run):
            continue
        start, end = _find_ends(strip, x0, x1, run)
        if not _is_sure(run):  # without the Hangul letters around it
            run = _find_run(recognise(_pad(strip, start, end)))
        if _is_sure(run):
            words.append(Glyph("".join(letter.text for letter in run), start, end))
        else:
            score = DOUBTFUL_SCORE
    return LatinWords(tuple(words), score)


def _is_word(run: Sequence[Letter]) -> bool:
    return sum(letter.text.isalpha() for letter in run) >= MIN_LETTERS


def _is_sure(run: Sequence[Letter]) -> bool:
    return _is_word(run) and mean(letter.score for letter in run) >= SURE_SCORE


def _pad(strip: Array, x0: int, x1: int) -> Array:
    """The part of a strip with half its height of background on both sides, which RapidOCR needs."""
    background = np.median(strip, axis=(0, 1)).astype(np.uint8)
    margin = np.broadcast_to(background, (strip.shape[0], strip.shape[0] // 2, 3))
    return np.hstack([margin, strip[:, x0:x1], margin])


def _find_run(letters: Sequence[Letter]) -> list[Letter]:
    """The first ASCII letters and digits, as long as none is far from the one before."""
    ascii_letters = [letter for letter in letters if letter.text.isascii() and letter.text.isalnum()]
    steps = [other.x - one.x for one, other in pairwise(ascii_letters)]
    limit = MAX_STEP * float(np.median(steps)) if steps else 0.0
    end = next((n for n, step in enumerate(steps, 1) if step > limit), len(ascii_letters))
    return ascii_letters[:end]


def _find_ends(strip: Array, x0: int, x1: int, run: Sequence[Letter]) -> tuple[int, int]:
    """The columns where a word begins and ends: where its piece of ink does, or at the gap to a Hangul letter."""
    left = x0 - strip.shape[0] // 2  # where the padded piece begins
    half = (run[-1].x - run[0].x) / (len(run) - 1) / 2
    gaps = [x0, *(x0 + np.flatnonzero(~find_inked_columns(strip)[x0:x1])), x1]
    start, end = (min(gaps, key=lambda gap: abs(gap - x)) for x in (left + run[0].x - half, left + run[-1].x + half))
    return (int(start), int(end)) if start < end else (x0, x1)


def split_words(strip: Array) -> list[tuple[int, int]]:
    """First column and end of each piece of ink with wide gaps around it: a word or a part of one."""
    columns = np.flatnonzero(find_inked_columns(strip))
    if not columns.size:
        return []
    breaks = np.flatnonzero(np.diff(columns) > WORD_GAP * strip.shape[0])
    starts, ends = [columns[0], *columns[breaks + 1]], [*columns[breaks], columns[-1]]
    return [(int(start), int(end) + 1) for start, end in zip(starts, ends, strict=True)]


def blank(strip: Array, words: Sequence[Glyph]) -> Array:
    """The strip without the ink of these words."""
    blanked = strip.copy()
    for word in words:
        blanked[:, int(word.x0) : int(np.ceil(word.x1))] = np.median(strip, axis=(0, 1)).astype(np.uint8)
    return blanked


def join(glyphs: Sequence[Glyph], words: Sequence[Glyph], strip: Array) -> str:
    """The text of a Korean line from its letters, in their order, and its Latin words. Wide gaps are spaces."""
    letters = [glyph for glyph in glyphs if glyph.text.strip()]
    pieces = _insert(letters, words)
    if len(letters) < 2:
        return " ".join(piece.text for piece in pieces)
    distance = float(np.quantile(np.diff([_find_centre(letter) for letter in letters]), 0.4))
    inked = find_inked_columns(strip)
    text = pieces[0].text
    for one, other in pairwise(pieces):
        gap = _measure_gap(inked[max(int(_find_end(one)), 0) : max(int(_find_start(other)), 0)])
        text += (" " if gap >= _find_space(one, other) * distance else "") + other.text
    return text


def _insert(letters: Sequence[Glyph], words: Sequence[Glyph]) -> list[Glyph]:
    pieces = list(letters)
    for word in sorted(words, key=lambda word: word.x0):
        pieces.insert(sum(_find_centre(piece) < _find_centre(word) for piece in pieces), word)
    return pieces


def _find_space(one: Glyph, other: Glyph) -> float:
    """How wide a gap must be to be a space, in distances of Hangul letters."""
    if len(one.text) > 1 and len(other.text) > 1:
        return 0.0  # Latin words
    is_narrow = one.text.isascii() and other.text.isascii() and (one.text + other.text).isalnum()
    return LATIN_GAP_SHARE if is_narrow else GAP_SHARE


def _find_centre(piece: Glyph) -> float:
    return (piece.x0 + piece.x1) / 2


def _find_start(piece: Glyph) -> float:
    """A column in its ink, from which on a gap before it is measured: the boxes of single letters are not exact."""
    return piece.x0 + 1 if len(piece.text) > 1 else _find_centre(piece)


def _find_end(piece: Glyph) -> float:
    return piece.x1 - 1 if len(piece.text) > 1 else _find_centre(piece)


def _measure_gap(inked: Flags) -> int:
    """The longest run of columns without ink."""
    longest = run = 0
    for value in inked:
        run = 0 if value else run + 1
        longest = max(longest, run)
    return longest
