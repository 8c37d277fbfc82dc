"""Detect which way up a page without a text layer is, from some of its lines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from twopass.pages import ocr
from twopass.pages.strips import Array, has_headline, trim

Quad = npt.NDArray[np.float32]  # four corners, x and y in pixels

THUMBNAIL_SIDE = 640  # pixels of the copy in which the direction of lines is detected
SHARP_SIDE = 1600  # of the copy that confirms lines running down: in a smaller one, columns of small type look so
LONG_QUAD = 2.0  # times its height: a shorter quad may be a letter or a word and says nothing about direction
SIDEWAYS_RATIO = 2.0  # length of lines running down over length of lines running across, to call a page sideways
MAX_SAMPLES = 8  # lines that are read both ways up, the longest first
MIN_SAMPLES = 2  # fewer lines say nothing
SAMPLE_ASPECT = 10  # times its height: only this much of a line is read
SURE_LEAD = 0.2  # in score: if the first two lines read so much better as they are, the others are not read
CLEAR_LEAD = 0.08  # in mean recogniser score, to decide which way up the page is
LEGIBLE_SCORE = 0.7  # mean, the better way up: Hangul and Arabic have 0.0-0.5 either way, which says nothing
CLEAR_VOTE = 0.5  # of the classifier: upright contents and Korean have up to 0.3, Arabic upside down up to 0.9


def detect_turn(array: Array) -> int:
    """The clockwise turn (0, 90, 180 or 270 degrees) that makes the page upright; 0 if the evidence is not clear."""
    strips, is_sideways = cut_sample_lines(array)
    upside_down = is_upside_down(strips)
    if is_sideways:
        return {None: 0, False: 90, True: 270}[upside_down]
    return 180 if upside_down else 0


def cut_sample_lines(array: Array) -> tuple[list[Array], bool]:
    """Cut out the longest lines, each laid horizontally, longest first; and whether the lines run down the page."""
    quads, is_sideways = _detect_long_quads(array, THUMBNAIL_SIDE)
    if is_sideways:
        quads, is_sideways = _detect_long_quads(array, SHARP_SIDE)
    lines = sorted((quad for quad in quads if _is_wide(quad) != is_sideways), key=_measure_length, reverse=True)
    strips = [_cut_strip(array, quad, is_sideways) for quad in lines[:MAX_SAMPLES]]
    # A line that is not quite straight brings parts of its neighbours, with which nothing can be read.
    return [trim(strip) for strip in strips if strip.size], is_sideways


def _detect_long_quads(array: Array, side: int) -> tuple[list[Quad], bool]:
    """Long lines that the detector sees in a small copy, in pixels of `array`, and whether they run down the page."""
    from PIL import Image

    array = next(tile for _, tile in ocr.split_tiles(array))
    scale = min(1.0, side / max(array.shape[:2]))
    size = (max(round(array.shape[1] * scale), 32), max(round(array.shape[0] * scale), 32))
    small = np.asarray(Image.fromarray(array).resize(size, Image.Resampling.BOX))
    found = (np.asarray(quad, np.float32) / scale for quad in ocr.detect_quickly(small))
    quads = [quad for quad in found if max(_measure_sides(quad)) >= LONG_QUAD * max(min(_measure_sides(quad)), 1.0)]
    across = sum(_measure_length(quad) for quad in quads if _is_wide(quad))
    down = sum(_measure_length(quad) for quad in quads if not _is_wide(quad))
    return quads, down > SIDEWAYS_RATIO * across


def _measure_sides(quad: Quad) -> tuple[float, float]:
    width, height = quad.max(axis=0) - quad.min(axis=0)
    return float(width), float(height)


def _is_wide(quad: Quad) -> bool:
    width, height = _measure_sides(quad)
    return width >= height


def _measure_length(quad: Quad) -> float:
    return max(_measure_sides(quad))


def _cut_strip(array: Array, quad: Quad, is_sideways: bool) -> Array:
    """The line's pixels, horizontal; only the middle of a very long line."""
    x0, y0 = np.maximum(quad.min(axis=0), 0).astype(int)
    x1, y1 = np.ceil(quad.max(axis=0)).astype(int)
    strip = np.rot90(array[y0:y1, x0:x1], -1) if is_sideways else array[y0:y1, x0:x1]
    margin = max(strip.shape[1] - SAMPLE_ASPECT * strip.shape[0], 0) // 2
    return np.ascontiguousarray(strip[:, margin : strip.shape[1] - margin])


def is_upside_down(strips: Sequence[Array]) -> bool | None:
    """Whether the lines read better turned by 180 degrees; None if the evidence is not clear."""
    if len(strips) < MIN_SAMPLES:
        return None
    pairs, remaining = _compare_scores(strips[:MIN_SAMPLES]), strips[MIN_SAMPLES:]
    leads = [turned - score for score, turned in pairs]
    if remaining and max(leads) > -SURE_LEAD:
        pairs += _compare_scores(remaining)
    score, turned = (float(mean) for mean in np.mean(pairs, axis=0))
    if abs(turned - score) >= CLEAR_LEAD and max(score, turned) >= LEGIBLE_SCORE:
        return turned > score
    if has_headline(strips):
        return False  # Devanagari, which the classifier takes for text upside down
    # It calls some lines upside down both ways up: only what changes when they are turned says something.
    vote = (ocr.vote_upside_down(strips) - ocr.vote_upside_down(_turn(strips))) / 2
    return vote > 0 if abs(vote) >= CLEAR_VOTE else None


def _compare_scores(strips: Sequence[Array]) -> list[tuple[float, float]]:
    """The recogniser's score of each line as it is, and turned by 180 degrees."""
    return [*zip(_score(strips), _score(_turn(strips)), strict=True)]


def _turn(strips: Sequence[Array]) -> list[Array]:
    return [np.ascontiguousarray(strip[::-1, ::-1]) for strip in strips]


def _score(strips: Sequence[Array]) -> list[float]:
    return [score for _, score in ocr.recognise(strips)]
