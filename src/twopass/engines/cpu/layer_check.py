"""Compare a page's text layer with its pixels: a few sampled lines are recognised and compared letter by letter."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import groupby

from twopass.engines.cpu.geometry import Rect, StyledWord, enclose
from twopass.pages import ocr
from twopass.pages.strips import Array
from twopass.text import prose
from twopass.text.plausibility import measure_plausibility

LINES_PER_SAMPLE, MIN_SAMPLES, MAX_SAMPLES = 12, 8, 24  # lines: 0.2-0.6 s of CPU time; newspapers differ by region
MIN_LETTERS = 10  # of a sampled line
MAX_LENGTH = 25.0  # times its height, of a sampled line: only its first words are compared
MARGIN = 0.15  # of a line's height, around it
# The recogniser reads Latin, Han and kana. It takes Cyrillic and Greek for Latin letters that look alike, and is sure.
_READABLE = re.compile(f"[a-z\u00df-\u024f{prose.HAN}{prose.KANA}]")
MIN_READABLE_LETTERS = 0.9  # of a sampled line's letters
MIN_READABLE_LINES = 0.5  # of the long lines; with fewer, the sample would not stand for the page
MIN_SCORE = 0.5  # of the recogniser, for its reading to say anything about the layer
SUSPICIOUS = 0.74  # plausibility below which a visible layer is compared, too: clean pages have 0.75-1.00
MIN_WORDS = 20  # judged for plausibility; fewer say nothing


def is_suspicious(words: Sequence[StyledWord]) -> bool:
    """Whether the words of a visible layer look so odd that its fonts may lie."""
    plausibility, judged = measure_plausibility(" ".join(word.text for word in words))
    return judged >= MIN_WORDS and plausibility < SUSPICIOUS


def measure_agreement(words: Sequence[StyledWord], array: Array, scale: float) -> float | None:
    """The share of letters and blanks on which layer and pixels agree in the sampled lines.

    None if the pixels cannot tell: there are no long lines, or most are in a script that the recogniser cannot read, or
    it reads none. `scale` is pixels per point.
    """
    long = [line for line in _split_lines(words) if len(_normalise(line)) >= MIN_LETTERS]
    lines = [line for line in long if is_readable(_normalise(line))]
    if len(lines) < MIN_READABLE_LINES * len(long):
        return None
    count = min(max(len(lines) // LINES_PER_SAMPLE, MIN_SAMPLES), MAX_SAMPLES)
    sampled = lines[:: max(len(lines) // count, 1)][:count]
    strips = [
        (line, strip) for line in sampled if (strip := cut_box(enclose([word.box for word in line]), array, scale)).size
    ]
    readings = ocr.recognise([strip for _, strip in strips])
    pairs = [
        (_normalise(line), _normalise_text(text))
        for (line, _), (text, score) in zip(strips, readings, strict=True)
        if score >= MIN_SCORE
    ]
    total = sum(len(ours) for ours, _ in pairs)
    if not total:
        return None
    return sum(len(ours) * SequenceMatcher(None, ours, theirs, False).ratio() for ours, theirs in pairs) / total


def _split_lines(words: Sequence[StyledWord]) -> list[list[StyledWord]]:
    """The upright lines, each no longer than the recogniser reads well."""
    lines = []
    for _, group in groupby((word for word in words if word.upright), key=lambda word: word.line):
        line: list[StyledWord] = []
        for word in group:
            if line and word.box.x1 - line[0].box.x0 > MAX_LENGTH * line[0].box.height:
                break
            line.append(word)
        lines.append(line)
    return lines


def _normalise(line: Sequence[StyledWord]) -> str:
    return _normalise_text(" ".join(word.text for word in line))


def _normalise_text(text: str) -> str:
    """Words in small letters, without punctuation and accents, of which the recogniser knows few."""
    letters = unicodedata.normalize("NFD", " ".join(prose.split_words(text)))
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def is_readable(text: str) -> bool:
    """Return whether almost all letters are in a script that the recogniser knows."""
    letters = [letter for letter in text.lower() if letter.isalpha()]
    return len(_READABLE.findall("".join(letters))) >= MIN_READABLE_LETTERS * len(letters)


def cut_box(box: Rect, array: Array, scale: float) -> Array:
    """The pixels of a line's box with a margin; `scale` is pixels per point."""
    margin = MARGIN * box.height
    grown = Rect(box.x0 - margin, box.y0 - margin, box.x1 + margin, box.y1 + margin)
    x0, y0, x1, y1 = (max(round(value * scale), 0) for value in grown)
    return array[y0:y1, x0:x1]
