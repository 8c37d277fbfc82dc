"""Pixels of a scanned page in, which way is up and its lines of text out.

Knows RapidOCR and its models. Knows nothing of files, pages' sizes in points or elements.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.uint8]
Point = tuple[float, float]

DETECTOR_SIDE = 2000  # longest side in pixels that is read; A4 at 144 dpi has 1,684; newspapers shrink to it
TILE_ASPECT = 3.0  # a page longer than this times its width is read in pieces: the detector enlarges short sides
LEAST_SCORE = 0.5  # of one line, as RapidOCR itself has it: below, specks and ornaments are read as letters
SURE_SCORE = 0.85  # long Hangul lines read as 0.00-0.79, clean or noisy; printed English and Chinese as 0.97-1.00
LONG_LINE = 3.0  # times its height: what is shorter says nothing about the script
UNREADABLE_SHARE = 0.25  # of long lines' length unsure: Korean 0.99, a third Korean 0.46, English, Chinese 0.00-0.04
SURE_LETTERS = 3  # on a page with unreadable lines, shorter shreds are not believed however sure

GLANCE_SIDE = 640  # pixels of the copy on which the direction of lines is found
LONG = 2.0  # times its height: a shorter quad may be a letter or a word and says nothing of direction
SIDEWAYS = 2.0  # times more length of lines running down than across before a page is called sideways
SAMPLES = 8  # lines read both ways up, the longest first
LEAST_SAMPLES = 2  # fewer say nothing
SAMPLE_ASPECT = 10  # a line is read no further than this times its height
SURE_LEAD = 0.2  # the same of each of the first two lines: then no more are read, which takes most of the time
CLEAR_SCORE = 0.08  # more mean recogniser score the other way up, to turn
CLEAR_VOTE = 0.6  # of the classifier's mean vote, where the recogniser knows neither (a script it has not learnt)


@dataclass(frozen=True)
class Line:
    """One line of text: its corners in pixels (clockwise from the reading start), text, score 0..1."""

    corners: tuple[Point, Point, Point, Point]
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


@dataclass(frozen=True)
class Reading:
    """What a scan says. `unreadable`: much of it is in a script that the recogniser has not learnt."""

    lines: tuple[Line, ...]
    unreadable: bool

    @property
    def score(self) -> float | None:
        """Mean line score by length; None without lines."""
        weight = sum(len(line.text) for line in self.lines)
        return sum(line.score * len(line.text) for line in self.lines) / weight if weight else None


def read(array: Array, language: str | None = None) -> Reading:
    """The lines worth believing. `language` is a hint that RapidOCR's one model has no use for."""
    found = lines(array, language)
    unreadable = unsure_share(found) > UNREADABLE_SHARE
    return Reading(tuple(line for line in found if _is_believed(line, unreadable)), unreadable)


def unsure_share(found: Sequence[Line]) -> float:
    """How much of the length of long lines the recogniser did not know or was not sure of."""
    long = [line for line in found if line.length >= LONG_LINE * line.height]
    whole = sum(line.length for line in long)
    return sum(line.length for line in long if line.score < SURE_SCORE) / whole if whole else 0.0


def _is_believed(line: Line, unreadable: bool) -> bool:
    if not unreadable:
        return line.score >= LEAST_SCORE
    return line.score >= SURE_SCORE and sum(letter.isalnum() for letter in line.text) >= SURE_LETTERS


def lines(array: Array, language: str | None = None) -> list[Line]:
    """Every line that is seen, top to bottom, read or not: text "" with score 0 is one that gave nothing."""
    down = array.shape[0] >= array.shape[1]
    return [line for offset, tile in _tiles(array) for line in _tile_lines(tile, offset, down)]


def turn(array: Array) -> int:
    """Degrees (0, 90, 180, 270) to turn the page clockwise so that it reads; 0 when nothing is clear."""
    quads = _glance(array)
    across = sum(_length(quad) for quad in quads if _is_wide(quad))
    down = sum(_length(quad) for quad in quads if not _is_wide(quad))
    sideways = down > SIDEWAYS * across
    lines = sorted((quad for quad in quads if _is_wide(quad) != sideways), key=_length, reverse=True)
    strips = [_strip(array, quad, sideways) for quad in lines[:SAMPLES]]
    flipped = _upside_down([strip for strip in strips if strip.size])
    if sideways:
        return {None: 0, False: 90, True: 270}[flipped]
    return 180 if flipped else 0


def _tile_lines(tile: Array, offset: int, down: bool) -> Iterator[Line]:
    from rapidocr.ch_ppocr_rec import TextRecInput
    from rapidocr.utils.process_img import map_boxes_to_original

    reader = _reader()
    image, record = reader.preprocess_img(np.ascontiguousarray(tile[:, :, ::-1]))  # it wants BGR
    detected = reader._load_det_model()(image).boxes
    if detected is None:
        return
    crops = reader.crop_text_regions(image, detected)
    answer = reader._load_rec_model()(TextRecInput(img=crops, return_word_box=False))
    quads = map_boxes_to_original(detected, record, *tile.shape[:2])
    dx, dy = (0, offset) if down else (offset, 0)
    for quad, text, score in zip(quads, answer.txts, answer.scores, strict=True):
        corners = tuple((float(x) + dx, float(y) + dy) for x, y in quad)
        yield Line(corners, text.strip(), float(score) if text.strip() else 0.0)  # type: ignore[arg-type]


def _tiles(array: Array) -> Iterator[tuple[int, Array]]:
    """(offset, pixels) along the longer side; cut where the least ink is."""
    down = array.shape[0] >= array.shape[1]
    long, short = max(array.shape[:2]), min(array.shape[:2])
    if long <= TILE_ASPECT * short:
        yield 0, array
        return
    profile = np.abs(array[:, :, 1].astype(np.int16) - int(np.median(array[:, :, 1]))).sum(axis=1 if down else 0)
    start, step = 0, max(2 * short, 64)
    while start < long:
        stop = long if long - start <= 1.5 * step else start + step
        if stop < long:
            window = profile[stop - step // 4 : stop]
            stop += int(np.argmin(window)) - step // 4
        yield start, array[start:stop] if down else array[:, start:stop]
        start = stop


def _glance(array: Array) -> list[npt.NDArray[np.float32]]:
    """Corners (4 × 2, in pixels of `array`) of the long lines that the detector sees on a small copy."""
    from PIL import Image

    array = next(tile for _, tile in _tiles(array))
    scale = min(1.0, GLANCE_SIDE / max(array.shape[:2]))
    size = (max(round(array.shape[1] * scale), 32), max(round(array.shape[0] * scale), 32))
    small = np.asarray(Image.fromarray(array).resize(size, Image.Resampling.BOX))
    boxes = _reader("max")._load_det_model()(np.ascontiguousarray(small[:, :, ::-1])).boxes
    quads = () if boxes is None else (np.asarray(quad, np.float32) / scale for quad in boxes)
    return [quad for quad in quads if max(_sides(quad)) >= LONG * max(min(_sides(quad)), 1.0)]


def _sides(quad: npt.NDArray[np.float32]) -> tuple[float, float]:
    width, height = quad.max(axis=0) - quad.min(axis=0)
    return float(width), float(height)


def _is_wide(quad: npt.NDArray[np.float32]) -> bool:
    width, height = _sides(quad)
    return width >= height


def _length(quad: npt.NDArray[np.float32]) -> float:
    return max(_sides(quad))


def _strip(array: Array, quad: npt.NDArray[np.float32], sideways: bool) -> Array:
    """The line's pixels, lying; the middle of a long one."""
    x0, y0 = np.maximum(quad.min(axis=0), 0).astype(int)
    x1, y1 = np.ceil(quad.max(axis=0)).astype(int)
    strip = np.rot90(array[y0:y1, x0:x1], -1) if sideways else array[y0:y1, x0:x1]
    spare = max(strip.shape[1] - SAMPLE_ASPECT * strip.shape[0], 0) // 2
    return np.ascontiguousarray(strip[:, spare : strip.shape[1] - spare, ::-1])


def _upside_down(strips: Sequence[Array]) -> bool | None:
    """Whether the lines read better turned round; None when nothing is clear."""
    if len(strips) < LEAST_SAMPLES:
        return None
    leads, more = _leads(strips[:LEAST_SAMPLES]), strips[LEAST_SAMPLES:]
    if more and min(leads) < SURE_LEAD and max(leads) > -SURE_LEAD:
        leads += _leads(more)
    lead = float(np.mean(leads))
    if abs(lead) >= CLEAR_SCORE:
        return lead > 0
    votes = _reader()._load_cls_model()(list(strips)).cls_res
    vote = sum(score if label == "180" else -score for label, score in votes) / len(votes)
    return vote > 0 if abs(vote) >= CLEAR_VOTE else None


def _leads(strips: Sequence[Array]) -> list[float]:
    """How much surer the recogniser is of each line turned round than as it stands."""
    turned = [np.ascontiguousarray(strip[::-1, ::-1]) for strip in strips]
    return [there - here for here, there in zip(_scores(strips), _scores(turned), strict=True)]


def _scores(strips: Sequence[Array]) -> list[float]:
    from rapidocr.ch_ppocr_rec import TextRecInput

    return list(_reader()._load_rec_model()(TextRecInput(img=list(strips), return_word_box=False)).scores or [])


@cache
def _reader(limit: str = "min") -> Any:
    """RapidOCR on one thread; its models load when first used. `limit` "max" never enlarges what is detected on."""
    from rapidocr import RapidOCR

    logging.getLogger("RapidOCR").setLevel(logging.CRITICAL)
    return RapidOCR(
        params={
            "Global.log_level": "critical",
            "Global.max_side_len": DETECTOR_SIDE,
            "Global.text_score": LEAST_SCORE,
            "Det.limit_type": limit,
            "EngineConfig.onnxruntime.intra_op_num_threads": 1,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
        }
    )
