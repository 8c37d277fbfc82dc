"""Detect the text lines of a scanned page and read them with RapidOCR."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from twopass.document import Rect
from twopass.pages import columns, scripts, strips
from twopass.pages.scripts import Tesseract
from twopass.pages.strips import Array, Letter
from twopass.text import confidence, prose

Grey = npt.NDArray[np.float64]
Point = columns.Point
Corners = columns.Corners

DETECTOR_SIDE = 2000  # pixels of the longest side that is read: A4 at 144 dpi has 1,684, newspapers are scaled down
TILE_ASPECT = 3.0  # a page longer than this times its width is read in tiles: the detector enlarges short sides
BLANK_SHARE = 0.02  # of the most ink in a row or column: one with less is blank
MAX_CUT_GAP, MIN_CUT_OVERLAP = 0.6, 0.6  # of a line's height: parts of one line on both sides of a cut
MIN_SCORE = 0.5  # of one line, RapidOCR's own default: below it, specks and ornaments are read as letters
SURE_SCORE = 0.85  # long Hangul lines score 0.00-0.79, clean or noisy; printed English and Chinese score 0.97-1.00
LONG_LINE = 3.0  # times its height: a shorter line says nothing about the script
SHORT_LINE = 1.2  # the same, of two letters on a sign
UNREADABLE_SHARE = 0.25  # of long lines' length is unsure: Korean 0.99, a third Korean 0.46, English, Chinese 0.00-0.04
MIN_SCRIPT_LENGTH = 12.0  # times its height: unsure lines together; photographs had 0-10, one Korean sentence has 31
MIN_TRIED_LENGTH = 6.0  # the same, for Tesseract to try: it reads nothing in photographs, at 1 to 3 s
SIMILAR_HEIGHT, SIMILAR_ANGLE = 1.6, 5.0  # ratio to and degrees from the median line: lines of one text
BACKGROUND_RANGE = 20  # grey levels around a line's most frequent one
MIN_BACKGROUND = 0.6  # of a line's pixels: print has 0.66-0.91, noisy or not, shapes in pictures have 0.44-0.57
MIN_LINKED = 0.98  # of a line's ink: symbols on wires and most notes on staves have 1.0, letters in grids up to 0.91
MIN_COVERAGE = 0.75  # of a line's ink: Cyrillic, Hangul and Arabic with some Latin words have 0.02-0.55, Latin has 1.0
MIN_PART = 0.5  # of a doubtful line's ink, for what was read in it to be its text
MIN_KNOWN_LETTERS = 0.5  # of a line's letters: RapidOCR is sure of some Greek lines, of which it reads two thirds
MAX_SIGN_LINES = 6  # of a sign, with what looks like lines in the photograph around it
MAX_SIGN_LETTERS, SIGN_SCORE = 12, 0.95  # of its line: words in scripts that RapidOCR does not know have 0.5 to 0.94
LARGE_LETTERS = 60  # pixels of a line's height: Latin ones have 0.99 and more, noisy ones of up to 40 have 0.72
MIN_SIGN_HEIGHT = 0.5  # of the lines that were read, of one that was not
MIN_SIGN_SHARE = 0.5  # of the lines of a sign that were left out, to say so
LEGIBLE_SCORE = 0.3  # of a line of handwriting: its words have 0.5-0.9, runs of letters in other scripts 0.0-0.6
MIN_LEGIBLE_WORDS, MIN_LEGIBLE_SHARE = 5, 0.4  # judged together, and of all words: short ones are not judged
MIN_PLAUSIBILITY = 0.7  # of these words: handwriting has 0.87-1.0, Thai read as Latin 0.0-0.67
MIN_SURE_LETTERS = 3  # on a page with unreadable lines, a line with fewer letters is dropped whatever its score

# What RapidOCR's recogniser was trained on.
_KNOWN_LETTER = re.compile(f"[a-z\u00df-\u024f{prose.HAN}{prose.KANA}]")


@dataclass(frozen=True)
class Recognition:
    """What RapidOCR reads in a strip of pixels."""

    text: str
    score: float
    letters: tuple[Letter, ...] = ()


@dataclass(frozen=True)
class OcrLine:
    """One line of text: its corners in pixels (clockwise from where reading starts), its text, and its score 0..1.

    `extents` are where its words are, as shares of its length; none if that is not known.
    `coverage` is the share of its ink that is near one of its `letters`.
    """

    corners: Corners
    text: str
    score: float
    extents: tuple[strips.Extent, ...] = ()
    letters: tuple[Letter, ...] = ()
    coverage: float = 1.0

    @property
    def box(self) -> Rect:
        return Rect.around(self.corners)

    @property
    def length(self) -> float:
        return math.dist(self.corners[0], self.corners[1])

    @property
    def height(self) -> float:
        return math.dist(self.corners[0], self.corners[3])

    @property
    def angle(self) -> float:
        """Degrees clockwise from horizontal."""
        (x0, y0), (x1, y1) = self.corners[0], self.corners[1]
        return math.degrees(math.atan2(y1 - y0, x1 - x0))

    @property
    def is_sure(self) -> bool:
        """Whether the recogniser scored it well, read all of it, and knows its script."""
        return self.score >= SURE_SCORE and self.is_covered

    @property
    def is_word(self) -> bool:
        """Whether it was read as more than one or two letters, as which symbols are read."""
        return self.is_sure and len(self.text) >= MIN_SURE_LETTERS

    @property
    def is_covered(self) -> bool:
        """Whether the recogniser read all of it, and knows its script."""
        return self.coverage >= MIN_COVERAGE and knows_script(self.text)


@dataclass(frozen=True)
class OcrResult:
    """The lines of a scan. `unreadable` means that much of it is in a script that no recogniser here was trained on.

    `unread` are lines of text that were left out. `language` is Tesseract's, if it read some of the lines. `zoom` is
    how many pixels were recognised for each pixel of the lines' corners, interpolated ones not counted. `apart` are the
    lines of each coloured ink that crosses others.
    """

    lines: tuple[OcrLine, ...]
    unreadable: bool
    unread: tuple[Corners, ...] = ()
    language: str | None = None
    zoom: float = 1.0
    apart: tuple[tuple[OcrLine, ...], ...] = ()

    @property
    def lacks_lines(self) -> bool:
        """Whether lines of text were left out."""
        return bool(self.unread)

    def move(self, dx: float, dy: float) -> OcrResult:
        """The same lines, as those of a part of a page that begins there."""
        lines = tuple(replace(line, corners=_move(line.corners, dx, dy)) for line in self.lines)
        return replace(self, lines=lines, unread=tuple(_move(corners, dx, dy) for corners in self.unread))

    @property
    def score(self) -> float | None:
        """Mean score of the lines, weighted by characters; None without lines."""
        characters = sum(len(line.text) for line in self.lines)
        return sum(line.score * len(line.text) for line in self.lines) / characters if characters else None


_threads: ContextVar[int] = ContextVar("threads", default=1)


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Recognise lines on so many threads meanwhile; what is read does not depend on it."""
    token = _threads.set(count)
    try:
        yield
    finally:
        _threads.reset(token)


class ReadLines(Protocol):
    """What reads detected lines: `read_lines`, or a double."""

    def __call__(
        self,
        array: Array,
        quads: Sequence[Corners],
        language: str | None = None,
        sharp: Array | None = None,
        tesseract: Tesseract | None = None,
    ) -> OcrResult: ...


def knows_script(text: str) -> bool:
    """Whether RapidOCR was trained on the script of a text."""
    letters = [letter for letter in text.lower() if letter.isalpha()]
    known = sum(bool(_KNOWN_LETTER.match(letter)) for letter in letters)
    return known >= MIN_KNOWN_LETTERS * len(letters)


def read(array: Array, language: str | None = None) -> OcrResult:
    """Detect the lines and read them. `array` is height × width × 3, RGB."""
    return read_lines(array, detect_lines(array), language)


def detect_lines(array: Array) -> list[Corners]:
    """The corners of every line that the detector sees, from top to bottom in each tile, cut at gutters."""
    found: list[Corners] = []
    for offset, tile in split_tiles(array):
        found += [_shift(quad, offset, array) for quad in _detect(tile)]
        if offset and array.shape[1] > array.shape[0]:
            found = _join_at(offset, found)
    return columns.split_lines(array, found) if found else []


def read_lines(
    array: Array,
    quads: Sequence[Corners],
    language: str | None = None,
    sharp: Array | None = None,
    tesseract: Tesseract | None = None,
) -> OcrResult:
    """Read detected lines and drop those of low score; `tesseract` reads lines in scripts that RapidOCR does not know.

    `sharp` shows the same page with more pixels: the lines are cut out of it, and their corners are those in `array`.
    RapidOCR has a single model, so the `language` is only a hint for Tesseract.
    """
    pixels = array if sharp is None else sharp
    zoom = pixels.shape[0] / array.shape[0]
    lines = _read_quads(array, quads, pixels)
    legible = find_legible(lines)
    lines = [line for line in lines if line.is_word or line in legible or not _is_symbol(line, pixels, zoom)]
    drawn = _find_drawings(array, [line for line in lines if not line.is_sure and line not in legible], pixels)
    script = [line for line in lines if line not in drawn and is_line_of_script(array, line)]
    unsure = [line for line in script if not line.is_sure and line not in legible]
    read, found = dict[Corners, OcrLine](), None
    if tesseract and _is_text(unsure, MIN_TRIED_LENGTH):
        read, found = _read_other_script(array, lines, pixels, tesseract, language)
    if tesseract and not read and len(lines) <= MAX_SIGN_LINES:
        read, found = _read_sign(array, lines, pixels, tesseract, language)
    written = [line for line in lines if line not in drawn]
    doubted = [line for line in _find_doubted(array, written, pixels, tesseract) if line.corners not in read]
    if not script and not read and not doubted:  # a picture: what little was read in it may be shapes
        marks = find_marks(lines)
        kept, left_out, unreadable = [line for line in lines if line.is_sure and line not in marks], [], False
    else:
        unsure = [line for line in unsure if line.corners not in read]
        unreadable = _is_much(unsure, script) and _is_text(unsure)
        trusted = [line for line in lines if _is_credible(line, unreadable) and line not in doubted]
        kept = [line for line in lines if line in legible or line.corners in read or line in trusted]
        left_out = [line for line in unsure if line not in kept]
        left_out = left_out if _is_text(left_out) or _is_sign(left_out, script) else []
    overlooked = _find_overlooked(array, written, kept)
    unread = [line.corners for line in lines if any(line in some for some in (left_out, doubted, overlooked))]
    return OcrResult(tuple(read.get(line.corners, line) for line in kept), unreadable, tuple(unread), found, zoom)


def _read_other_script(
    array: Array, lines: Sequence[OcrLine], pixels: Array, tesseract: Tesseract, hint: str | None
) -> tuple[dict[Corners, OcrLine], str | None]:
    """Let Tesseract read the lines that RapidOCR is unsure of, and those that only look Latin.

    Returns what it read, by the lines' corners, and its language if it read any.
    """
    unsure = [line for line in lines if not _is_credible(line, unreadable=True) and line.length >= line.height]
    language = scripts.choose_language(tesseract, _cut_rgb_lines(array, unsure, pixels), hint)
    if not language:
        return {}, None
    unsure += [line for line in lines if line not in unsure and scripts.is_lookalike(line.text, language.name)]
    cut = _cut_rgb_lines(array, unsure, pixels)
    latin = _find_latin_words(unsure, cut) if language.is_korean else [scripts.NO_LATIN] * len(cut)
    texts = scripts.read(tesseract, cut, language, [found.words for found in latin])
    read = {
        line.corners: OcrLine(line.corners, text, min(language.score, found.score))
        for line, text, found in zip(unsure, texts, latin, strict=True)
        if text
    }
    return read, language.name if read else None


def _read_sign(
    array: Array, lines: Sequence[OcrLine], pixels: Array, tesseract: Tesseract, hint: str | None
) -> tuple[dict[Corners, OcrLine], str | None]:
    """The same for the few letters of a sign."""
    unsure = [line for line in lines if not line.is_sure and is_line_of_script(array, line, SHORT_LINE)]
    found = scripts.read_sign(tesseract, _cut_rgb_lines(array, unsure, pixels), hint) if unsure else []
    read = {
        line.corners: OcrLine(line.corners, own[0], own[1].score)
        for line, own in zip(unsure, found, strict=True)
        if own
    }
    return read, next((own[1].name for own in found if own), None)


def _find_doubted(array: Array, lines: Sequence[OcrLine], pixels: Array, tesseract: Tesseract | None) -> list[OcrLine]:
    """The lines of a sign whose letters may be those of another script: so few of them do not show it.

    Small Latin letters have such scores, too: they are kept if Tesseract reads the same ones, or cannot be asked.
    """
    doubted = [line for line in lines if _is_doubtful_sign(line)] if len(lines) <= MAX_SIGN_LINES else []
    if not tesseract:
        return [line for line in doubted if line.height >= LARGE_LETTERS]
    texts = scripts.read_latin(tesseract, _cut_rgb_lines(array, doubted, pixels))
    return [line for line, text in zip(doubted, texts, strict=True) if text != "".join(line.text.split())]


def _is_doubtful_sign(line: OcrLine) -> bool:
    is_short = len(line.text) <= MAX_SIGN_LETTERS and any(map(str.isalnum, line.text))
    return is_short and line.score >= MIN_SCORE and (line.score < SIGN_SCORE or line.coverage < MIN_COVERAGE)


def _find_overlooked(array: Array, lines: Sequence[OcrLine], kept: Sequence[OcrLine]) -> list[OcrLine]:
    """The lines of a sign that look like text, and are as large as those that were read beside them."""
    if not kept or len(lines) > MAX_SIGN_LINES:
        return []
    height = MIN_SIGN_HEIGHT * float(np.median([line.height for line in kept]))
    large = [line for line in lines if line not in kept and line.height >= height]
    return [line for line in large if is_line_of_script(array, line, SHORT_LINE)]


def _find_latin_words(lines: Sequence[OcrLine], cut: Sequence[Array]) -> list[scripts.LatinWords]:
    return [
        scripts.find_latin_words(strip, line.letters, lambda piece: _recognise_letters([piece])[0].letters)
        for line, strip in zip(lines, cut, strict=True)
    ]


def _cut_rgb_lines(array: Array, lines: Sequence[OcrLine], pixels: Array) -> list[Array]:
    cut = _cut_lines(pixels, [line.corners for line in lines], pixels.shape[0] / array.shape[0])
    return [_swap_channels(strip) for strip in cut]


def detect_quickly(array: Array) -> list[Corners]:
    """The lines that the detector sees in a small copy, in a fifth of the time of `detect_lines`."""
    boxes = _load_rapid_ocr("max")._load_det_model()(np.ascontiguousarray(array[:, :, ::-1])).boxes
    return [] if boxes is None else [_to_corners(box) for box in boxes]


def detects_script(array: Array) -> bool:
    """Whether the detector sees any line of script in any language. Shapes in photographs and drawings do not count."""
    found = (OcrLine(quad, "", 0.0) for quad in detect_lines(array))
    lines = [line for line in found if is_line_of_script(array, line) and not _is_symbol(line, array, 1.0)]
    return len(_find_drawings(array, lines, array)) < len(lines)


def _find_drawings(array: Array, lines: Sequence[OcrLine], pixels: Array) -> list[OcrLine]:
    """Those of the lines that look like no writing: scribbles, signatures, rows of boxes."""
    long = [line for line in lines if line.length >= LONG_LINE * line.height]
    cut = _cut_lines(pixels, [line.corners for line in long], pixels.shape[0] / array.shape[0])
    return [line for line, is_writing in zip(long, strips.show_writing(cut), strict=True) if not is_writing]


def _is_symbol(line: OcrLine, pixels: Array, zoom: float) -> bool:
    """Whether it is a part of something much larger, such as a circuit or a staff, or tally marks."""
    margin = max(min(line.length, line.height), 2.0)
    a, b, c, d = np.array(line.corners)
    right, down = (margin * (to - a) / max(math.dist(a, to), 1.0) for to in (b, d))
    around = zoom * np.array((a - right - down, b + right - down, c + right + down, d - right + down))
    (strip,) = _cut_lines(pixels, [line.corners], zoom)
    background = np.median(strip, axis=(0, 1))[::-1]
    (wide,) = _cut_lines(*_cut_box(pixels, around, background), 1.0)
    return strips.measure_linked(wide, round(margin * zoom)) >= MIN_LINKED or strips.show_tallies(strip)


def _cut_box(pixels: Array, corners: npt.NDArray[Any], background: Array) -> tuple[Array, list[Corners]]:
    """The pixels around these corners, and where the corners are in them; beyond the edge there is only background."""
    low, high = np.floor(corners.min(axis=0)).astype(int), np.ceil(corners.max(axis=0)).astype(int) + 1
    box = np.empty((*(high - low)[::-1], 3), np.uint8)
    box[:] = background
    first, last = np.maximum(low, 0), np.minimum(high, pixels.shape[1::-1])
    box[first[1] - low[1] : last[1] - low[1], first[0] - low[0] : last[0] - low[0]] = pixels[
        first[1] : last[1], first[0] : last[0]
    ]
    return box, [_to_corners(corners - low)]


def is_line_of_script(array: Array, line: OcrLine, min_length: float = LONG_LINE) -> bool:
    """Whether a detected line is long and on a fairly uniform background, as print and handwriting are."""
    if line.length < min_length * line.height:
        return False
    x0, y0, x1, y1 = (max(round(value), 0) for value in line.box)
    grey = _halve(array[y0 : y1 + 1, x0 : x1 + 1].mean(axis=2))  # so that the grain of a scan does not count
    if not grey.size:
        return False
    counts, edges = np.histogram(grey, bins=32, range=(0, 256))
    background = edges[counts.argmax()] + (edges[1] - edges[0]) / 2
    return float((np.abs(grey - background) <= BACKGROUND_RANGE).mean()) >= MIN_BACKGROUND


def _halve(grey: Grey) -> Grey:
    """The means of two by two pixels."""
    height, width = (size // 2 * 2 for size in grey.shape)
    return np.asarray(grey[:height, :width].reshape(height // 2, 2, width // 2, 2).mean(axis=(1, 3)))


def _read_quads(array: Array, quads: Sequence[Corners], sharp: Array) -> list[OcrLine]:
    """Every line, in the given order. A line that cannot be recognised has the text "" and the score 0.

    Doubtful ones of `sharp` are read from `array`, too: thin strokes may be whole in one of them.
    """
    cut = _cut_lines(sharp, quads, sharp.shape[0] / array.shape[0])
    lines = [_to_line(*parts) for parts in zip(quads, cut, _recognise(cut), strict=True)]
    doubtful = [number for number, line in enumerate(lines) if LEGIBLE_SCORE <= line.score < SURE_SCORE]
    if sharp is not array and doubtful:
        for number, line in zip(doubtful, _read_quads(array, [quads[n] for n in doubtful], array), strict=True):
            lines[number] = max(lines[number], line, key=lambda one: one.score)
    return lines


def _to_line(corners: Corners, strip: Array, reading: Recognition) -> OcrLine:
    places = [letter.x for letter in reading.letters]
    words, extents = strips.place_words(strip, reading.text, [x / strip.shape[1] for x in places])
    coverage = strips.measure_coverage(strip, places)
    return OcrLine(corners, " ".join(words), reading.score if words else 0.0, extents, reading.letters, coverage)


def _cut_lines(array: Array, quads: Sequence[Corners], scale: float) -> list[Array]:
    """The straightened pixels of each line, BGR. `scale` is pixels of the array per unit of the corners."""
    if not quads:
        return []
    boxes = np.asarray(quads, np.float32) * np.float32(scale)
    cut = _load_rapid_ocr().crop_text_regions(np.ascontiguousarray(array), boxes)
    return [_swap_channels(strip) for strip in cut]


def _is_much(unsure: Sequence[OcrLine], script: Sequence[OcrLine]) -> bool:
    return sum(line.length for line in unsure) > UNREADABLE_SHARE * sum(line.length for line in script)


def _is_text(script: Sequence[OcrLine], min_length: float = MIN_SCRIPT_LENGTH) -> bool:
    """Whether lines look like those of one text, and are long enough together, in heights: for a sentence."""
    if not script:
        return False
    height, angle = np.median([line.height for line in script]), np.median([line.angle for line in script])
    similar = (
        line
        for line in script
        if height / SIMILAR_HEIGHT <= line.height <= height * SIMILAR_HEIGHT
        and abs(line.angle - angle) <= SIMILAR_ANGLE
    )
    return sum(line.length / max(line.height, 1.0) for line in similar) >= min_length


def _is_sign(left_out: Sequence[OcrLine], script: Sequence[OcrLine]) -> bool:
    """Whether the lines that were left out are most of a short text."""
    lengths = [sum(line.length / max(line.height, 1.0) for line in lines) for lines in (left_out, script)]
    return lengths[0] >= max(LONG_LINE, MIN_SIGN_SHARE * lengths[1])


def find_legible(lines: Sequence[OcrLine]) -> list[OcrLine]:
    """The lines in handwriting or broken strokes that were read in part: unsure, but together they are words.

    What RapidOCR reads in a script that it does not know are single letters, or runs of letters without words.
    """
    doubtful = [line for line in lines if not line.is_sure and line.score >= LEGIBLE_SCORE and line.is_covered]
    text = " ".join(line.text for line in doubtful)
    plausibility, words = confidence.measure_plausibility(text)
    is_words = words >= max(MIN_LEGIBLE_WORDS, MIN_LEGIBLE_SHARE * len(text.split()))
    return doubtful if is_words and plausibility >= MIN_PLAUSIBILITY else []


def find_marks(lines: Sequence[OcrLine]) -> list[OcrLine]:
    """The lines that may be marks in a plot or on a map: one or two letters, where most lines are such."""
    marks = [line for line in lines if len(line.text) < MIN_SURE_LETTERS and line.score < SIGN_SCORE]
    return marks if len(lines) > MAX_SIGN_LINES and 2 * len(marks) > len(lines) else []


def _is_credible(line: OcrLine, unreadable: bool) -> bool:
    if not unreadable:
        is_speck = line.coverage < MIN_COVERAGE and not any(map(str.isalnum, line.text))
        is_part = line.coverage < MIN_PART and line.score < SURE_SCORE  # a few strokes that look like Latin letters
        return line.score >= MIN_SCORE and not is_speck and not is_part
    return line.is_sure and sum(letter.isalnum() for letter in line.text) >= MIN_SURE_LETTERS


def split_tiles(array: Array) -> Iterator[tuple[int, Array]]:
    """Split a very long page along its longer side, where there is least ink. Yields (offset in pixels, tile)."""
    is_tall = array.shape[0] >= array.shape[1]
    long, short = max(array.shape[:2]), min(array.shape[:2])
    # A wide strip is cut as seldom as possible, and padded: a cut may run through a word.
    step = max(2 * short, 64) if is_tall else max(2 * short, DETECTOR_SIDE)
    if long <= TILE_ASPECT * short or long <= 1.5 * step:
        yield 0, array
        return
    profile = np.abs(array[:, :, 1].astype(np.int16) - int(np.median(array[:, :, 1]))).sum(axis=1 if is_tall else 0)
    start = 0
    while start < long:
        stop = long if long - start <= 1.5 * step else start + step
        if stop < long:
            stop += _find_blank(profile[stop - step // 4 : stop]) - step // 4
        yield start, array[start:stop] if is_tall else array[:, start:stop]
        start = stop


def _find_blank(profile: npt.NDArray[np.int64]) -> int:
    """The middle of the longest run with hardly more ink than the place with least."""
    is_blank = profile <= profile.min() + BLANK_SHARE * (profile.max() - profile.min())
    edges = np.flatnonzero(np.diff(np.concatenate([[False], is_blank, [False]]).astype(np.int8)))
    start, stop = max(zip(edges[::2], edges[1::2], strict=True), key=lambda run: int(run[1] - run[0]))
    return int(start + stop) // 2


def _join_at(cut: float, quads: Sequence[Corners]) -> list[Corners]:
    """The lines, with the two parts of each that runs across a cut between two tiles joined."""
    kept = list(quads)
    for left in [quad for quad in quads if Rect.around(quad).x0 < cut]:
        one = Rect.around(left)
        for right in [quad for quad in kept if quad[0][0] >= cut - 1]:
            other = Rect.around(right)
            gaps, height = (cut - one.x1, other.x0 - cut), min(one.height, other.height)
            if max(gaps) <= MAX_CUT_GAP * height and one.overlap_y(other) >= MIN_CUT_OVERLAP * height and left in kept:
                kept[kept.index(left)] = (left[0], right[1], right[2], left[3])
                kept.remove(right)
    return kept


def _detect(tile: Array) -> list[Corners]:
    """Detect lines; returns their corners in pixels of the tile."""
    from rapidocr.utils.process_img import map_boxes_to_original

    padded, top = _pad_strip(tile)
    rapid_ocr = _load_rapid_ocr()
    image, record = rapid_ocr.preprocess_img(np.ascontiguousarray(padded[:, :, ::-1]))  # RapidOCR wants BGR
    boxes = rapid_ocr._load_det_model()(image).boxes
    if boxes is None:
        return []
    found = (_to_corners(quad) for quad in map_boxes_to_original(boxes, record, *padded.shape[:2]))
    return [_keep_within(quad, top, tile.shape[0]) for quad in found] if top else list(found)


def _pad_strip(tile: Array) -> tuple[Array, int]:
    """A wide strip with background above and below, as the detector enlarges short sides; and how many rows above."""
    height, width = tile.shape[:2]
    top = (math.ceil(width / TILE_ASPECT) - height) // 2
    if top <= 0:
        return tile, 0
    background = np.median(tile, axis=(0, 1)).astype(np.uint8)
    padded = np.empty((height + 2 * top, width, 3), np.uint8)
    padded[:] = background
    padded[top : top + height] = tile
    return padded, top


def _keep_within(quad: Corners, top: int, height: int) -> Corners:
    """Corners in a strip, from those in the strip with `top` rows above it."""
    return tuple((x, min(max(y - top, 0.0), float(height))) for x, y in quad)  # type: ignore[return-value]


def _to_corners(box: Any) -> Corners:
    return tuple((float(x), float(y)) for x, y in box)  # type: ignore[return-value]


def _shift(quad: Corners, offset: int, page: Array) -> Corners:
    """Corners in pixels of the page, from those in the tile that begins at `offset` along the longer side."""
    return _move(quad, 0, offset) if page.shape[0] >= page.shape[1] else _move(quad, offset, 0)


def _move(quad: Corners, dx: float, dy: float) -> Corners:
    return _to_corners((x + dx, y + dy) for x, y in quad)


def recognise(strips: Sequence[Array]) -> list[tuple[str, float]]:
    """Text and score of strips that show one line each, RGB."""
    return [(reading.text, reading.score) for reading in _recognise_letters(strips)]


def _recognise_letters(strips: Sequence[Array]) -> list[Recognition]:
    """Text, score and letters of strips that show one line each, RGB."""
    return _recognise([_swap_channels(strip) for strip in strips])


def _recognise(cut: Sequence[Array]) -> list[Recognition]:
    """The same of strips in BGR, the widest first; doubtful ones are read again, padded to the width of others.

    Read one by one they take less time, and most are read better; some handwriting is read better if padded.
    """
    if not cut:
        return []
    load_recogniser()  # once, before threads ask for it
    order = sorted(range(len(cut)), key=lambda number: -cut[number].shape[1] / cut[number].shape[0])
    with ThreadPoolExecutor(min(_threads.get(), len(cut))) as executor:
        alone = executor.map(lambda number: _recognise_together([cut[number]])[0], order)
        readings = dict(zip(order, alone, strict=True))
    doubtful = [number for number in order if LEGIBLE_SCORE <= readings[number].score < SURE_SCORE]
    together = _recognise_together([cut[number] for number in doubtful]) if len(doubtful) > 1 else []
    for number, reading in zip(doubtful, together, strict=False):
        readings[number] = max(readings[number], reading, key=lambda one: one.score)
    return [readings[number] for number in range(len(cut))]


def _recognise_together(cut: Sequence[Array]) -> list[Recognition]:
    from rapidocr.ch_ppocr_rec import TextRecInput

    result = load_recogniser()(TextRecInput(img=list(cut), return_word_box=True))
    found = zip(result.txts, result.scores, result.word_results, cut, strict=True)
    return [
        Recognition(text, float(score), tuple(_list_letters(words, strip.shape[1])))
        for text, score, words, strip in found
    ]


def _list_letters(words: Any, width: int) -> Iterator[Letter]:
    """The letters of RapidOCR's words, which tell the column of its output in which it read each."""
    columns = [column for own in words.word_cols for column in own]
    letters = [letter for word in words.words for letter in word]
    for text, column, score in zip(letters, columns, words.confs, strict=False):  # spaces have a score, too
        yield Letter(text, (column + 0.5) / words.line_txt_len * width, float(score))


def _swap_channels(strip: Array) -> Array:
    """RGB to BGR, which RapidOCR wants, or the other way round."""
    return np.ascontiguousarray(strip[:, :, ::-1])


@cache
def load_recogniser() -> Any:
    """Load the model that recognises lines: half a second, which the first page need not wait for.

    It reuses memory within a run, because mapping it anew for every layer took a fifth of the time, and gives it back
    afterwards: six long lines would hold 350 MB. What the last output is in stays until the next run.
    """
    from onnxruntime import RunOptions

    recogniser = _load_rapid_ocr(reuses_memory=True)._load_rec_model()
    options = RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    session = recogniser.session.session
    session.run = partial(session.run, run_options=options)
    return recogniser


def vote_upside_down(strips: Sequence[Array]) -> float:
    """The mean vote of RapidOCR's classifier on strips in RGB: 1 says that all are upside down, -1 that none is."""
    votes = _load_rapid_ocr()._load_cls_model()([_swap_channels(strip) for strip in strips]).cls_res
    return float(sum(score if label == "180" else -score for label, score in votes) / len(votes))


@cache
def _load_rapid_ocr(limit: str = "min", reuses_memory: bool = False) -> Any:
    """RapidOCR on one thread. Its models load on first use. With the limit "max" the detector enlarges no image."""
    from rapidocr import RapidOCR

    logging.getLogger("RapidOCR").setLevel(logging.CRITICAL)
    return RapidOCR(
        params={
            "Global.log_level": "critical",
            "Global.max_side_len": DETECTOR_SIDE,
            "Global.text_score": MIN_SCORE,
            "Det.limit_type": limit,
            "EngineConfig.onnxruntime.intra_op_num_threads": 1,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
            "EngineConfig.onnxruntime.enable_cpu_mem_arena": reuses_memory,
        }
    )
