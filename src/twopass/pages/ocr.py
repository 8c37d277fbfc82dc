"""Detect the text lines of a scanned page and read them with RapidOCR."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from twopass.pages import scripts
from twopass.pages.scripts import Tesseract

Array = npt.NDArray[np.uint8]
Point = tuple[float, float]
Corners = tuple[Point, Point, Point, Point]

DETECTOR_SIDE = 2000  # pixels of the longest side that is read: A4 at 144 dpi has 1,684, newspapers are scaled down
TILE_ASPECT = 3.0  # a page longer than this times its width is read in tiles: the detector enlarges short sides
MIN_SCORE = 0.5  # of one line, RapidOCR's own default: below it, specks and ornaments are read as letters
SURE_SCORE = 0.85  # long Hangul lines score 0.00-0.79, clean or noisy; printed English and Chinese score 0.97-1.00
LONG_LINE = 3.0  # times its height: a shorter line says nothing about the script
UNREADABLE_SHARE = 0.25  # of long lines' length is unsure: Korean 0.99, a third Korean 0.46, English, Chinese 0.00-0.04
MIN_SCRIPT_LENGTH = 12.0  # times its height: unsure lines together; photographs had 0-10, one Korean sentence has 31
SIMILAR_HEIGHT, SIMILAR_ANGLE = 1.6, 5.0  # ratio to and degrees from the median line: lines of one text
BACKGROUND_RANGE = 20  # grey levels around a line's most frequent one
SPARSE_LENGTH, SPARSE_LETTERS = 8.0, 0.2  # times and per height of a line: Cyrillic lines are read as one full stop
MIN_BACKGROUND = 0.6  # of a line's pixels: print has 0.66-0.91, noisy or not, shapes in pictures have 0.44-0.57
MIN_SURE_LETTERS = 3  # on a page with unreadable lines, a line with fewer letters is dropped whatever its score


@dataclass(frozen=True)
class Line:
    """One line of text: its corners in pixels (clockwise from where reading starts), its text, and its score 0..1."""

    corners: Corners
    text: str
    score: float

    @property
    def box(self) -> tuple[float, float, float, float]:
        xs, ys = zip(*self.corners, strict=True)
        return min(xs), min(ys), max(xs), max(ys)

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
        """Whether the recogniser scored it well, and read enough letters for its length."""
        is_long = self.length >= SPARSE_LENGTH * self.height
        is_sparse = is_long and len(self.text) * self.height < SPARSE_LETTERS * self.length
        return self.score >= SURE_SCORE and not is_sparse


@dataclass(frozen=True)
class OcrResult:
    """The lines of a scan. `unreadable` means that much of it is in a script that no recogniser here was trained on.

    `language` is Tesseract's, if Tesseract read some of the lines.
    """

    lines: tuple[Line, ...]
    unreadable: bool
    language: str | None = None

    @property
    def score(self) -> float | None:
        """Mean score of the lines, weighted by characters; None without lines."""
        characters = sum(len(line.text) for line in self.lines)
        return sum(line.score * len(line.text) for line in self.lines) / characters if characters else None


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


def read(array: Array, language: str | None = None) -> OcrResult:
    """Detect the lines and read them.

    `array` is height × width × 3, RGB.
    """
    return read_lines(array, detect_lines(array), language)


def detect_lines(array: Array) -> list[Corners]:
    """The corners of every line that the detector sees, from top to bottom in each tile."""
    return [_shift(quad, offset, array) for offset, tile in split_tiles(array) for quad in _detect(tile)]


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
    lines = _read_quads(array, quads, pixels)
    script = [line for line in lines if is_line_of_script(array, line)]
    unreadable = _is_unreadable(script)
    if unreadable and tesseract:
        return _read_other_script(array, lines, pixels, tesseract, language)
    if not script:  # a picture: what little was read in it may be shapes
        return OcrResult(tuple(line for line in lines if line.score >= SURE_SCORE), unreadable)
    return OcrResult(tuple(line for line in lines if _is_credible(line, unreadable)), unreadable)


def _read_other_script(
    array: Array, lines: Sequence[Line], pixels: Array, tesseract: Tesseract, language: str | None
) -> OcrResult:
    """Replace the lines that RapidOCR is unsure of by what Tesseract reads there, where that is credible."""
    unsure = [line for line in lines if not _is_credible(line, unreadable=True) and line.length >= line.height]
    reading = scripts.read(tesseract, _cut_rgb_lines(array, unsure, pixels), language)
    found = reading.language if reading else ""
    lookalikes = [line for line in lines if line not in unsure and scripts.is_lookalike(line.text, found)]
    if reading and lookalikes:
        unsure += lookalikes
        reading = scripts.read_in(tesseract, _cut_rgb_lines(array, unsure, pixels), reading)
    texts = reading.texts if reading else [None] * len(unsure)
    read = {
        line.corners: replace(line, text=text, score=reading.score)
        for line, text in zip(unsure, texts, strict=True)
        if text and reading
    }
    tried = {line.corners for line in unsure}
    kept = [
        read.get(line.corners, line)
        for line in lines
        if line.corners in read or (line.corners not in tried and _is_credible(line, unreadable=True))
    ]
    failed = [line for line in unsure if line.corners not in read]
    sure = [replace(line, score=1.0) if line.corners in read else line for line in kept]
    script = [line for line in (*sure, *failed) if is_line_of_script(array, line)]
    return OcrResult(tuple(kept), _is_unreadable(script), reading.language if reading and read else None)


def _cut_rgb_lines(array: Array, lines: Sequence[Line], pixels: Array) -> list[Array]:
    strips = _cut_lines(pixels, [line.corners for line in lines], pixels.shape[0] / array.shape[0])
    return [np.ascontiguousarray(strip[:, :, ::-1]) for strip in strips]


def detect_quickly(array: Array) -> list[Corners]:
    """The lines that the detector sees in a small copy, in a fifth of the time of `detect_lines`."""
    boxes = _load_rapid_ocr("max")._load_det_model()(np.ascontiguousarray(array[:, :, ::-1])).boxes
    return [] if boxes is None else [_to_corners(box) for box in boxes]


def detects_script(array: Array) -> bool:
    """Whether the detector sees any line of script in any language. Shapes in photographs and drawings do not count."""
    return any(is_line_of_script(array, Line(quad, "", 0.0)) for quad in detect_lines(array))


def is_line_of_script(array: Array, line: Line) -> bool:
    """Whether a detected line is long and on a fairly uniform background, as print and handwriting are."""
    if line.length < LONG_LINE * line.height:
        return False
    x0, y0, x1, y1 = (max(round(value), 0) for value in line.box)
    grey = array[y0 : y1 + 1, x0 : x1 + 1].mean(axis=2)
    if not grey.size:
        return False
    counts, edges = np.histogram(grey, bins=32, range=(0, 256))
    background = edges[counts.argmax()] + (edges[1] - edges[0]) / 2
    return float((np.abs(grey - background) <= BACKGROUND_RANGE).mean()) >= MIN_BACKGROUND


def _read_quads(array: Array, quads: Sequence[Corners], sharp: Array) -> list[Line]:
    """Every line, in the given order. A line that cannot be recognised has the text "" and the score 0."""
    readings = _recognise(_cut_lines(sharp, quads, sharp.shape[0] / array.shape[0]))
    return [
        Line(quad, text.strip(), score if text.strip() else 0.0)
        for quad, (text, score) in zip(quads, readings, strict=True)
    ]


def _cut_lines(array: Array, quads: Sequence[Corners], scale: float) -> list[Array]:
    """The straightened pixels of each line, BGR. `scale` is pixels of the array per unit of the corners."""
    if not quads:
        return []
    boxes = np.asarray(quads, np.float32) * np.float32(scale)
    strips = _load_rapid_ocr().crop_text_regions(np.ascontiguousarray(array), boxes)
    return [np.ascontiguousarray(strip[:, :, ::-1]) for strip in strips]


def _is_unreadable(script: Sequence[Line]) -> bool:
    """Whether much of the text is in lines that the recogniser is unsure of, and these look like lines of one text."""
    unsure = [line for line in script if not line.is_sure]
    if not unsure or sum(line.length for line in unsure) <= UNREADABLE_SHARE * sum(line.length for line in script):
        return False
    height, angle = np.median([line.height for line in unsure]), np.median([line.angle for line in unsure])
    similar = (
        line
        for line in unsure
        if height / SIMILAR_HEIGHT <= line.height <= height * SIMILAR_HEIGHT
        and abs(line.angle - angle) <= SIMILAR_ANGLE
    )
    return sum(line.length / max(line.height, 1.0) for line in similar) >= MIN_SCRIPT_LENGTH


def _is_credible(line: Line, unreadable: bool) -> bool:
    if not unreadable:
        return line.score >= MIN_SCORE
    return line.is_sure and sum(letter.isalnum() for letter in line.text) >= MIN_SURE_LETTERS


def split_tiles(array: Array) -> Iterator[tuple[int, Array]]:
    """Split a very long page along its longer side, where there is least ink. Yields (offset in pixels, tile)."""
    is_tall = array.shape[0] >= array.shape[1]
    long, short = max(array.shape[:2]), min(array.shape[:2])
    if long <= TILE_ASPECT * short:
        yield 0, array
        return
    profile = np.abs(array[:, :, 1].astype(np.int16) - int(np.median(array[:, :, 1]))).sum(axis=1 if is_tall else 0)
    start, step = 0, max(2 * short, 64)
    while start < long:
        stop = long if long - start <= 1.5 * step else start + step
        if stop < long:
            window = profile[stop - step // 4 : stop]
            stop += int(np.argmin(window)) - step // 4
        yield start, array[start:stop] if is_tall else array[:, start:stop]
        start = stop


def _detect(tile: Array) -> list[Corners]:
    """Detect lines; returns their corners in pixels of the tile."""
    from rapidocr.utils.process_img import map_boxes_to_original

    rapid_ocr = _load_rapid_ocr()
    image, record = rapid_ocr.preprocess_img(np.ascontiguousarray(tile[:, :, ::-1]))  # RapidOCR wants BGR
    boxes = rapid_ocr._load_det_model()(image).boxes
    if boxes is None:
        return []
    return [_to_corners(quad) for quad in map_boxes_to_original(boxes, record, *tile.shape[:2])]


def _to_corners(box: Any) -> Corners:
    return tuple((float(x), float(y)) for x, y in box)  # type: ignore[return-value]


def _shift(quad: Corners, offset: int, page: Array) -> Corners:
    """Corners in pixels of the page, from those in the tile that begins at `offset` along the longer side."""
    dx, dy = (0, offset) if page.shape[0] >= page.shape[1] else (offset, 0)
    return tuple((x + dx, y + dy) for x, y in quad)  # type: ignore[return-value]


def recognise(strips: Sequence[Array]) -> list[tuple[str, float]]:
    """Text and score of strips that show one line each, RGB."""
    return _recognise([np.ascontiguousarray(strip[:, :, ::-1]) for strip in strips])


def _recognise(strips: Sequence[Array]) -> list[tuple[str, float]]:
    """The same of strips in BGR."""
    from rapidocr.ch_ppocr_rec import TextRecInput

    if not strips:
        return []
    result = _load_rapid_ocr()._load_rec_model()(TextRecInput(img=list(strips), return_word_box=False))
    return [(text, float(score)) for text, score in zip(result.txts or (), result.scores or (), strict=True)]


def vote_upside_down(strips: Sequence[Array]) -> float:
    """The mean vote of RapidOCR's classifier on strips in RGB: 1 says that all are upside down, -1 that none is."""
    votes = _load_rapid_ocr()._load_cls_model()([np.ascontiguousarray(strip[:, :, ::-1]) for strip in strips]).cls_res
    return sum(score if label == "180" else -score for label, score in votes) / len(votes)


@cache
def _load_rapid_ocr(limit: str = "min") -> Any:
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
        }
    )
