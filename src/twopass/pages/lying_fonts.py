"""Find fonts that map letters to wrong characters: a few words of a font are read from the pixels and compared.

Cheap signs name the fonts that are doubtful: characters without a meaning, words that no language has, and letters
whose widths are not those of the characters. The recogniser decides, about digits apart: all have one width.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import Enum
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from twopass.document import Rect
from twopass.pages import ocr
from twopass.pages.strips import Array
from twopass.text import prose
from twopass.text.confidence import measure_plausibility

MIN_SENSELESS = 0.02  # of a font's characters: control and private characters, and those without a name
MIN_PLAUSIBLE, MIN_JUDGED = 0.75, 3  # share of a font's words that a language may have, and words needed to say so
# Share of words that a language may have, of so many; share of characters without a meaning, so many in a word.
MAX_NONSENSE, MIN_SENSE, MAX_UNNAMED, MIN_UNNAMED = 0.4, 6, 0.5, 3
# Of word widths from a standard font's, as logarithms (honest fonts: 0.009, 90 % 0.05), and words needed to say so.
MAX_DEVIATION, MIN_WORDS = 0.05, 4
MIN_SHARE, MAX_FONTS = 0.05, 4  # of the page's characters in a font that is compared, and such fonts
MIN_LETTERS, MIN_DIGITS, MIN_READ = 5, 6, 3  # letters or digits of a sample, and of what is read of it
MAX_LETTERS = 12  # of a sampled word, if there are any
MAX_ASPECT = 6.6  # width of a sample over its height: the recogniser takes as long for all that are shorter
STANDARD_FONTS, MAX_MEASURED = ("helv", "tiro", "cour"), 60  # and words of a font whose widths are compared
SAMPLES = 2  # of a doubtful font
MIN_SCORE = 0.85  # of the recogniser
MIN_HEIGHT = 8.0  # pixels of a word that can be read
HONEST, LYING = 0.75, 0.65  # share of letters on which a font and its pixels agree
MAX_WRONG_DIGITS = 0.5
# How often a letter and a digit, which is read better, stand for another: to look at more words, and to be sure.
SUSPICIOUS_SWAPS, SURE_SWAPS, SWAP_SHARE = (2, 1), (4, 2), 0.85
_ALIKE = ("il1jtf", "o0q", "ce", "uvy", "nhm", "s5", "b68", "z2", "gq9", "17")  # for the recogniser
_USUAL_ADVANCE, _LAST_STANDARD = 0.5, 0x530  # of characters that standard fonts lack; behind Latin, Greek, Cyrillic
_MARGIN, _GAP, _HEIGHT = 0.12, 0.4, 40  # of a word's height, around it and between two; pixels of a sample


class Verdict(Enum):
    """What the pixels say about a font."""

    HONEST = "honest"
    LYING = "lying"
    UNKNOWN = "unknown"


class FontWord(NamedTuple):
    """An upright word with its box in pixels, its font, and its width in type sizes."""

    text: str
    box: Rect
    font: str
    width: float


class _Reading(NamedTuple):
    """A sample as its font names it, and as the recogniser reads it; nothing if it is not sure."""

    own: str
    read: str


@dataclass(frozen=True)
class Fonts:
    """The fonts of a page by what the pixels say about them; others were not compared.

    Of those that are `unsure`, hardly a word makes sense, and the pixels could not tell.
    """

    lying: frozenset[str] = frozenset()
    honest: frozenset[str] = frozenset()
    unsure: frozenset[str] = frozenset()

    @property
    def wrong(self) -> frozenset[str]:
        """Those whose words are not to be used."""
        return self.lying | self.unsure


_UNSAFE = re.compile(r"[^A-Za-z0-9+,._-]")  # in the name of a font as a PDF writes it


def separate_names(page: Any) -> None:
    """Give each embedded font of a page a name of its own, in memory: of two with one name, one may lie.

    The others keep theirs, by which MuPDF finds what draws them.
    """
    pdf, known = page.parent, set[str]()
    for xref, extension, _, name, *_ in page.get_fonts():
        if name in known and extension != "n/a" and xref:
            descendant = re.match(r"\[? ?(\d+)", pdf.xref_get_key(xref, "DescendantFonts")[1])
            own = int(descendant[1]) if descendant else xref
            pdf.xref_set_key(own, "BaseFont", f"/{_write_prefix(xref)}+{_UNSAFE.sub('_', name)}")
        known.add(name)


def _write_prefix(number: int) -> str:
    """Six letters, as those before the names of subset fonts."""
    return "".join(chr(ord("A") + number // 26**place % 26) for place in range(6))


@contextmanager
def full_font_names() -> Iterator[None]:
    """Keep the prefixes of subset fonts: two subsets of one font may map to characters differently."""
    import pymupdf

    pymupdf.TOOLS.set_subset_fontnames(True)
    try:
        yield
    finally:
        pymupdf.TOOLS.set_subset_fontnames(False)


def examine(words: Sequence[FontWord], array: Array, compare_all: bool = False) -> Fonts:
    """Compare the doubtful fonts of a page with its pixels; with `compare_all`, also those of most of its text."""
    by_font: dict[str, list[FontWord]] = defaultdict(list)
    for word in words:
        by_font[word.font].append(word)
    doubtful = {font for font, own in by_font.items() if _is_doubtful(own)}
    chosen = doubtful | (_find_common(by_font) if compare_all else set())
    read = _read([(font, row) for font in sorted(chosen) for row in _sample(by_font[font], font in doubtful)], array)
    verdicts = {font: {_judge(*reading) for reading in own} for font, own in read.items()}
    lying = {font for font, own in verdicts.items() if Verdict.LYING in own}
    honest = {font for font, own in verdicts.items() if Verdict.HONEST in own} - lying
    swapped = _find_swapped({font: read[font] for font in sorted(read.keys() - lying)}, by_font, array)
    lying, honest = lying | swapped, honest - swapped
    unsure = {font for font in doubtful - lying - honest if _makes_no_sense(by_font[font])}
    return Fonts(frozenset(lying), frozenset(honest), frozenset(unsure))


def measure_agreement(rows: Sequence[Sequence[FontWord]], array: Array) -> list[float]:
    """How far the pixels of each row of words read as the words do: 1 for all letters, 0 for none."""
    readings = ocr.recognise([_draw(row, array) for row in rows]) if rows else []
    texts = [_fold("".join(word.text for word in row)) for row in rows]
    return [
        SequenceMatcher(None, own, _fold(text), False).ratio() for own, (text, _) in zip(texts, readings, strict=True)
    ]


def _read(samples: Sequence[tuple[str, Sequence[FontWord]]], array: Array) -> dict[str, list[_Reading]]:
    readings = ocr.recognise([_draw(row, array) for _, row in samples]) if samples else []
    found: dict[str, list[_Reading]] = defaultdict(list)
    for (font, row), (text, score) in zip(samples, readings, strict=True):
        found[font].append(_Reading("".join(word.text for word in row), text if score >= MIN_SCORE else ""))
    return found


def _find_common(by_font: dict[str, list[FontWord]]) -> set[str]:
    lengths = {font: sum(len(word.text) for word in own) for font, own in by_font.items()}
    common = sorted(lengths, key=lambda font: -lengths[font])[:MAX_FONTS]
    return {font for font in common if lengths[font] >= MIN_SHARE * sum(lengths.values())}


# ---- single characters ----


def _find_swapped(
    read: Mapping[str, Sequence[_Reading]], by_font: Mapping[str, Sequence[FontWord]], array: Array
) -> set[str]:
    """Those of the fonts in which the pixels show another character wherever a certain one is named.

    What the first samples suggest is looked for in more words: the recogniser confuses characters, too.
    """
    suspects = {font: swaps for font, own in read.items() if (swaps := _find_swaps(own, *SUSPICIOUS_SWAPS))}
    if not suspects:
        return set()
    rows = []
    for font, swaps in suspects.items():
        named = "".join(one for one, _ in swaps)
        words = [word for word in by_font[font] if any(character in named for character in word.text.lower())]
        rows += [(font, row) for row in _sample(words, is_doubtful=True)]
    more = _read(rows, array)
    found = {font: _find_swaps([*read[font], *more[font]], *SURE_SWAPS) for font in suspects}
    return {font for font, swaps in suspects.items() if swaps & found[font]}


def _find_swaps(readings: Sequence[_Reading], letters: int, digits: int) -> set[tuple[str, str]]:
    """Characters with those that the pixels show in their place, at least so often, and nearly always."""
    pairs = Counter(pair for reading in readings for pair in _align(reading))
    named, shown = Counter[str](), Counter[str]()
    for (one, other), count in pairs.items():
        named[one] += count
        shown[other] += count
    return {
        (one, other)
        for (one, other), count in pairs.items()
        if one != other
        and count >= (digits if one.isdecimal() and other.isdecimal() else letters)
        and count >= SWAP_SHARE * min(named[one], shown[other])
        and not any(one in group and other in group for group in _ALIKE)
    }


def _align(reading: _Reading) -> Iterator[tuple[str, str]]:
    """Yield each character of a sample with what is read in its place."""
    own, read = _fold(reading.own), _fold(reading.read)
    if len(own) == len(read):
        yield from zip(own, read, strict=True)
        return
    for _, start, end, other, stop in SequenceMatcher(None, own, read, False).get_opcodes():
        if end - start == stop - other:
            yield from zip(own[start:end], read[other:stop], strict=True)


# ---- signs that cost little ----


def _is_doubtful(words: Sequence[FontWord]) -> bool:
    text = " ".join(word.text for word in words)
    if sum(map(prose.is_senseless, text)) > MIN_SENSELESS * len(text):
        return True
    plausibility, judged = measure_plausibility(text)
    return (judged >= MIN_JUDGED and plausibility < MIN_PLAUSIBLE) or _measure_deviation(words) > MAX_DEVIATION


def _makes_no_sense(words: Sequence[FontWord]) -> bool:
    text = " ".join(word.text for word in words)
    plausibility, judged = measure_plausibility(text)
    has_no_names = sum(map(prose.is_senseless, text)) > MAX_UNNAMED * len(text) and len(text) >= MIN_UNNAMED * len(
        words
    )
    return (judged >= MIN_SENSE and plausibility < MAX_NONSENSE) or (has_no_names and len(words) >= MIN_JUDGED)


def _measure_deviation(words: Sequence[FontWord]) -> float:
    """How much the widths of words differ from those in Helvetica, Times or Courier, in the middle."""
    measured = [word for word in words if len(word.text) >= MIN_READ and word.width > 0][:MAX_MEASURED]
    if len(measured) < MIN_WORDS:
        return 0.0
    own = np.log([word.width for word in measured])
    ratios = [own - np.log([_measure_width(word.text, font) for word in measured]) for font in STANDARD_FONTS]
    return min(float(np.median(np.abs(ratio - np.median(ratio)))) for ratio in ratios)


def _measure_width(text: str, font: str) -> float:
    advances = _get_advances(font)
    return sum(advances.get(character, _USUAL_ADVANCE) for character in text)


@cache
def _get_advances(font: str) -> dict[str, float]:
    """The widths of a standard font's characters in type sizes; asking MuPDF for each word takes as long as drawing."""
    import pymupdf

    opened = pymupdf.Font(font)
    return {chr(code): opened.glyph_advance(code) for code in range(33, _LAST_STANDARD) if opened.has_glyph(code)}


# ---- pixels ----


def _sample(words: Sequence[FontWord], is_doubtful: bool) -> Iterator[list[FontWord]]:
    """Words of a font to read: those with most letters, and those with most digits, as many as make one short line."""
    letters = [word for word in words if _count_letters(word.text) >= MIN_READ]
    digits = [word for word in words if _count_digits(word.text) >= MIN_READ and not _count_letters(word.text)]
    rows = [*_fill(letters, _count_letters, SAMPLES if is_doubtful else 1), *_fill(digits, _count_digits, SAMPLES)]
    yield from (row for row in rows if row)


def _fill(words: Sequence[FontWord], count: Any, rows: int) -> Iterator[list[FontWord]]:
    """Yield rows of different words, those with most characters of one kind first."""
    distinct = {word.text: word for word in words if word.box.height >= MIN_HEIGHT}
    left = sorted(distinct.values(), key=lambda word: (len(word.text) > MAX_LETTERS, -count(word.text), word.text))
    for _ in range(rows):
        row: list[FontWord] = []
        for word in left:
            if not row or sum(_measure_aspect(one) for one in (*row, word)) <= MAX_ASPECT:
                row.append(word)
        shown = {character for word in row for character in word.text}
        left = [word for word in left if word not in row]
        left.sort(key=lambda word: -len(set(word.text) - shown))  # characters that were not sampled yet
        yield row


def _measure_aspect(word: FontWord) -> float:
    return word.box.width / word.box.height + _GAP


def _draw(words: Iterable[FontWord], array: Array) -> Array:
    """The pixels of the words side by side."""
    parts: list[Array] = []
    for word in words:
        x0, y0, x1, y1 = (max(round(value), 0) for value in word.box.grow(_MARGIN * word.box.height))
        part = array[y0:y1, x0:x1]
        if part.size:
            part = _resize(part, _HEIGHT)
            background = np.median(part.reshape(-1, 3), axis=0).astype(np.uint8)
            parts += [part, np.tile(background, (_HEIGHT, round(_GAP * _HEIGHT), 1))]
    return np.concatenate(parts, axis=1) if parts else np.full((_HEIGHT, _HEIGHT, 3), 255, np.uint8)


def _resize(part: Array, height: int) -> Array:
    import cv2

    width = max(round(part.shape[1] * height / part.shape[0]), 1)
    return np.asarray(cv2.resize(part, (width, height), interpolation=cv2.INTER_AREA), np.uint8)


def _judge(own: str, read: str) -> Verdict:
    """Whether a sample reads as its font says."""
    if _count_letters(own):
        own, read = _fold(own), _fold(read)
        if len(own) < MIN_LETTERS or len(read) < MIN_READ:
            return Verdict.UNKNOWN
        share = SequenceMatcher(None, own, read, False).ratio()
        return Verdict.HONEST if share >= HONEST else Verdict.LYING if share < LYING else Verdict.UNKNOWN
    own, read = ("".join(filter(str.isdecimal, text)) for text in (own, read))
    if len(own) < MIN_DIGITS or len(own) != len(read):
        return Verdict.UNKNOWN
    wrong = sum(one != other for one, other in zip(own, read, strict=True))
    return Verdict.LYING if wrong >= MAX_WRONG_DIGITS * len(own) else Verdict.HONEST


def _fold(text: str) -> str:
    return "".join(prose.split_words(text))


def _count_letters(text: str) -> int:
    return sum(map(str.isalpha, text))


def _count_digits(text: str) -> int:
    return sum(map(str.isdecimal, text))
