"""Find lines of ink on a page that look like text and lie in no known box.

It knows pixels and boxes only. What looks like text is often none: whoever asks lets a recogniser decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from twopass.document import Box, Rect
from twopass.pages.strips import Array

_DPI = 100  # of the copy that is searched: letters of 8 points are 6 to 11 pixels high
_MIN_SIDE, _MAX_SIDE = 1200, 2200  # pixels of its longer side: small pages keep theirs, posters are not searched whole
_LEAST_LINEAR = 0.5
_CONTRAST = 40  # of the channel that differs most from the background
_BACKGROUND_CELL, _BACKGROUND_CELLS = 8, 9  # pixels: the background is the median of 9 × 9 cells of 8 pixels
_RULE_LENGTH, _RULE_WIDTH = 60, 7  # pixels: what is longer and thinner is a rule
_MAX_LETTER = 100  # pixels, height of a part: headlines of 70 points
_MIN_LETTER = 3  # pixels, height of a part: smaller ones are specks, dots and accents
_BAR = (40, 10)  # pixels, width and height: in a filled box of this size, text may be light on dark
_BAR_FILL = 0.45  # of its pixels
_MARGIN = 0.006  # of the longer side, around known boxes: they may cut strokes
_MIN_RANGE = 20  # of 255, in a word's box: hidden words had 0 to 7, the lightest real ones 63
_LEAST_LEVEL = 0.25  # of a box's sides: boxes of models are not always those around what is skewed
_RIM = 0.15  # of a word's height, at its top and bottom: its box may touch rules
_MIN_INK = 12  # pixels outside all boxes: fewer are no line of text
_MAX_BARS = 20  # that are searched for light text
_SKEW_STRIPS = 16  # of the page, in which rows are summed: a line is level across each
_SKEWS = np.arange(-5.0, 5.01, 0.25)  # degrees that are tried
_MIN_SKEW, _SHARPER = 0.4, 1.15  # degrees, and how much sharper rows are once turned: less changes no box
_MAX_PARTS = 2000  # uncovered, the largest ones: more are a halftone, or a page of which nothing is known
_GAP, _SHIFT, _RATIO = 1.2, 0.6, 4.0  # between neighbours of a line: gap and shift in heights, ratio of the heights
_COMPARED = 256  # parts that are compared at once with those of their height: all with all would need gigabytes
_TALLEST, _TYPICAL = 1.7, 60  # times this percentile of the heights of a line's parts, a part is of another line
_LINE_HEIGHT = (5, 90)  # pixels
_LOW_PARTS = 5  # a line of 4 pixels has at least so many
_SLACK, _SLACK_PX = 2.2, 4  # a line is at most so many times higher than its parts, and so many pixels
_FILL = (0.08, 0.75)  # share of a line's pixels: frames have less, bars and shadows have more
_EDGE = 0.004  # of the page: what touches its edge is the shadow of the paper
_MIN_ASPECT = 1.1  # width of a line over its height: icons and single letters have less, numbers of two digits more
_MIN_PARTS = 2  # of a line below this width over its height, and the ratio of their heights: digits are equally high
_SHORT_ASPECT, _SHORT_RATIO = 2.0, 1.3

_Parts = npt.NDArray[np.int32]  # one row for each part: left, top, width, height, number of inked pixels


class InkLine(NamedTuple):
    """A line of parts that look like letters: its box, and its width over its height."""

    box: Box
    aspect: float


@dataclass(frozen=True)
class Turn:
    """A skewed page is turned back about its middle: by so many degrees, at its size in pixels."""

    degrees: float
    width: int
    height: int

    def level_pixels(self, array: Array) -> Array:
        import cv2

        middle = (self.width / 2, self.height / 2)
        paper = np.median(array[::16, ::16].reshape(-1, 3), axis=0).tolist()
        matrix = cv2.getRotationMatrix2D(middle, self.degrees, 1.0)
        return np.asarray(cv2.warpAffine(array, matrix, (self.width, self.height), borderValue=paper))

    def level(self, box: Box) -> Box:
        """The box of level text, from the upright one around it on the skewed page."""
        sine, cosine = math.sin(math.radians(abs(self.degrees))), math.cos(math.radians(self.degrees))
        across, down = box.width * self.width, box.height * self.height
        scale = math.cos(math.radians(2 * self.degrees))
        width = max((across * cosine - down * sine) / scale, across * _LEAST_LEVEL)
        height = max((down * cosine - across * sine) / scale, down * _LEAST_LEVEL)
        return self._place(box, width, height, -self.degrees)

    def restore(self, box: Box) -> Box:
        """The upright box on the skewed page around a box of level text."""
        sine, cosine = math.sin(math.radians(abs(self.degrees))), math.cos(math.radians(self.degrees))
        across, down = box.width * self.width, box.height * self.height
        return self._place(box, across * cosine + down * sine, down * cosine + across * sine, self.degrees)

    def _place(self, box: Box, width: float, height: float, degrees: float) -> Box:
        sine, cosine = math.sin(math.radians(degrees)), math.cos(math.radians(degrees))
        dx, dy = (box.centre[0] - 0.5) * self.width, (box.centre[1] - 0.5) * self.height
        x, y = self.width / 2 + dx * cosine - dy * sine, self.height / 2 + dx * sine + dy * cosine
        return Box.of(x - width / 2, y - height / 2, x + width / 2, y + height / 2, self.width, self.height)


@dataclass(frozen=True)
class PageInk:
    """A small copy of a page, and which of its pixels differ from the background around them, as 1."""

    image: Array
    mask: Array

    @classmethod
    def find(cls, array: Array, dpi: float) -> PageInk:
        """`array` is RGB."""
        image = _resize(array, _choose_scale(array, dpi))
        return cls(image, _find_ink(image))

    def find_lines(self, boxes: Sequence[Box]) -> list[InkLine]:
        """The lines whose parts lie in none of the boxes, the widest first."""
        covered = _paint(boxes, self.mask.shape, _MARGIN * max(self.mask.shape))
        inside = _paint(boxes, self.mask.shape, -_MAX_LETTER / 2)  # no part of it reaches out of its box
        return sorted(self._find_uncovered(covered, inside), key=lambda line: (-line.aspect, line.box))

    def find_lines_in(self, box: Box, most: int = _MAX_PARTS) -> list[InkLine]:
        """The lines inside a box, from top to bottom, of its `most` largest parts."""
        outside = 1 - _paint([box], self.mask.shape, 0)
        return sorted(self._find_uncovered(outside, outside, most), key=lambda line: (line.box.y0, line.box.x0))

    def measure_length(self, boxes: Sequence[Box]) -> float:
        """The width of all letters in the boxes together, in mean heights of their ink; 0 without letters."""
        height, width = self.mask.shape
        across, area = 0, 0
        for x0, y0, x1, y1 in (box.to_pixels(width, height, 1) for box in boxes):
            parts = _keep_letters(_label(_remove_rules(self.mask[y0:y1, x0:x1])))
            across += int(parts[:, 2].sum())
            area += int((parts[:, 2] * parts[:, 3]).sum())
        return across**2 / area if area else 0.0  # their mean height, with their widths as weights, is area / across

    def _find_uncovered(self, covered: Array, inside: Array, most: int = _MAX_PARTS) -> Iterator[InkLine]:
        place = _find_extent(self.mask & (1 - covered))
        if place is None:
            return
        parts = _list_parts(_remove_rules((self.mask & (1 - inside))[place]), covered[place], most)
        parts[:, :2] += np.array([place[1].start, place[0].start], np.int32)
        height, width = self.mask.shape
        lines = (_measure_line(parts[members], width, height) for members in _join_parts(parts))
        yield from (line for line in lines if line)

    def measure_skew(self) -> float:
        """The degrees clockwise by which lines run down the page; 0 where turning it makes its rows hardly sharper."""
        height, width = self.mask.shape
        edges = np.linspace(0, width, _SKEW_STRIPS + 1).astype(np.intp)
        strips = np.add.reduceat(self.mask, edges[:-1], axis=1, dtype=np.int32).T
        offsets = (edges[:-1] + edges[1:] - width) / 2
        sharpness = [_measure_sharpness(strips, offsets * math.tan(math.radians(degrees))) for degrees in _SKEWS]
        best = int(np.argmax(sharpness))
        is_skewed = abs(_SKEWS[best]) >= _MIN_SKEW and sharpness[best] >= _SHARPER * sharpness[len(_SKEWS) // 2]
        return float(_SKEWS[best]) if is_skewed else 0.0

    def shows(self, box: Box) -> bool:
        """Whether something stands out in the middle of the box; under a bar or on blank paper nothing does."""
        height, width = self.mask.shape
        margin = box.height * _RIM
        inner = box._replace(y0=box.y0 + margin, y1=box.y1 - margin)
        x0, y0, x1, y1 = inner.to_pixels(width, height)
        part = self.image[y0:y1, x0:x1].reshape(-1, 3)
        return bool((part.max(axis=0).astype(np.int16) - part.min(axis=0) >= _MIN_RANGE).any())


def _measure_sharpness(strips: npt.NDArray[np.int32], shifts: npt.NDArray[np.float64]) -> int:
    """How much the ink of a row differs from that of the next one, with each strip shifted up by so many pixels."""
    height = strips.shape[1]
    rows = np.arange(height) + np.rint(shifts).astype(np.intp)[:, None]
    summed = np.take_along_axis(strips, rows % height, axis=1).sum(axis=0, dtype=np.int64)
    return int(np.square(np.diff(summed)).sum())


def _choose_scale(array: Array, dpi: float) -> float:
    long = float(max(array.shape[:2]))
    wanted = max(long * _DPI / max(dpi, 1.0), _MIN_SIDE)
    return min(1.0, min(wanted, _MAX_SIDE) / long)


def _resize(array: Array, scale: float) -> Array:
    import cv2

    if scale >= 1.0:
        return np.ascontiguousarray(array)
    size = (max(round(array.shape[1] * scale), 1), max(round(array.shape[0] * scale), 1))
    # Linear interpolation takes a sixth of the time, and down to half the size it sees every pixel.
    method = cv2.INTER_LINEAR if scale >= _LEAST_LINEAR else cv2.INTER_AREA
    return np.asarray(cv2.resize(array, size, interpolation=method))


def _find_ink(image: Array) -> Array:
    """Pixels that differ from the background around them, as 1."""
    import cv2

    height, width = image.shape[:2]
    cells = (max(width // _BACKGROUND_CELL, 1), max(height // _BACKGROUND_CELL, 1))
    background = cv2.medianBlur(cv2.resize(image, cells, interpolation=cv2.INTER_NEAREST), _BACKGROUND_CELLS)
    difference = cv2.absdiff(image, cv2.resize(background, (width, height), interpolation=cv2.INTER_LINEAR))
    red, green, blue = cv2.split(difference)
    strongest = cv2.max(cv2.max(red, green), blue)
    return np.asarray(cv2.threshold(strongest, _CONTRAST, 1, cv2.THRESH_BINARY)[1])


def _paint(boxes: Sequence[Box], shape: tuple[int, ...], margin: float) -> Array:
    """The boxes, grown by so many pixels, as 1."""
    height, width = shape
    painted = np.zeros((height, width), np.uint8)
    for box in boxes:
        x0, y0, x1, y1 = Rect(box.x0 * width, box.y0 * height, box.x1 * width, box.y1 * height).grow(margin)
        painted[max(int(y0), 0) : max(round(y1), 0), max(int(x0), 0) : max(round(x1), 0)] = 1
    return painted


def _find_extent(ink: Array) -> tuple[slice, slice] | None:
    """The rows and columns that have ink, with what a letter can reach around them; None for a few pixels."""
    if np.count_nonzero(ink) < _MIN_INK:
        return None
    rows, columns = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
    reach = _MAX_LETTER
    return (
        slice(max(int(rows[0]) - reach, 0), int(rows[-1]) + reach),
        slice(max(int(columns[0]) - reach, 0), int(columns[-1]) + reach),
    )


def _remove_rules(ink: Array) -> Array:
    """The ink without long thin lines: rules, frames, underlines."""
    import cv2

    ink = np.ascontiguousarray(ink)
    for size in ((_RULE_LENGTH, 1), (1, _RULE_LENGTH)):
        long = cv2.morphologyEx(ink, cv2.MORPH_OPEN, np.ones(size[::-1], np.uint8))
        thick = cv2.morphologyEx(long, cv2.MORPH_OPEN, np.ones((_RULE_WIDTH, _RULE_WIDTH), np.uint8))
        ink[(long > 0) & (thick == 0)] = 0
    return ink


def _list_parts(ink: Array, covered: Array, most: int) -> _Parts:
    """The connected parts that may be letters or words and whose centre is not covered, from left to right."""
    found = _label(ink)
    bars = [bar for bar in found[_are_bars(found)] if not _is_covered(bar, covered)]
    found = np.concatenate([found, *(_list_holes(ink, bar) for bar in bars[:_MAX_BARS])])
    found = _keep_letters(found)
    x, y = found[:, 0] + found[:, 2] // 2, found[:, 1] + found[:, 3] // 2
    found = found[covered[y, x] == 0]
    found = found[np.argsort(-found[:, 4], kind="stable")[:most]]
    return np.asarray(found[np.argsort(found[:, 0], kind="stable")])


def _keep_letters(parts: _Parts) -> _Parts:
    return parts[(parts[:, 3] >= _MIN_LETTER) & (parts[:, 3] <= _MAX_LETTER)]


def _label(ink: Array) -> _Parts:
    import cv2

    return np.asarray(cv2.connectedComponentsWithStats(ink)[2][1:])


def _are_bars(parts: _Parts) -> npt.NDArray[np.bool_]:
    _, _, width, height, area = parts.T
    return np.asarray((width >= _BAR[0]) & (height >= _BAR[1]) & (area > _BAR_FILL * width * height))


def _is_covered(part: npt.NDArray[np.int32], covered: Array) -> bool:
    left, top, width, height, _ = part.tolist()
    return bool(covered[top + height // 2, left + width // 2])


def _list_holes(ink: Array, bar: npt.NDArray[np.int32]) -> _Parts:
    """The light parts inside a dark bar; what reaches its box is the page around it."""
    left, top, width, height, _ = bar.tolist()
    holes = _label(np.asarray(1 - ink[top : top + height, left : left + width], np.uint8))
    x0, y0 = holes[:, 0], holes[:, 1]
    is_inside = (x0 > 0) & (y0 > 0) & (x0 + holes[:, 2] < width) & (y0 + holes[:, 3] < height)
    return np.asarray(holes[is_inside] + np.array([left, top, 0, 0, 0], np.int32))


def _join_parts(parts: _Parts) -> Iterator[list[int]]:
    """Join parts that stand beside each other to lines; yields the numbers of the parts of each line."""
    groups = list(range(len(parts)))
    for one, other in _list_neighbours(parts):
        _unite(groups, one, other)
    lines: dict[int, list[int]] = {}
    for part in range(len(parts)):
        lines.setdefault(_find_root(groups, part), []).append(part)
    yield from lines.values()


def _list_neighbours(parts: _Parts) -> Iterator[tuple[int, int]]:
    """The pairs of parts that belong to one line. From top to bottom: a part is compared with those of its height."""
    order = np.argsort(2 * parts[:, 1] + parts[:, 3], kind="stable")
    parts = parts[order]
    left, height = parts[:, 0].astype(np.float32), parts[:, 3].astype(np.float32)
    right, middle = left + parts[:, 2], parts[:, 1] + height / 2
    reach = _SHIFT * height.max(initial=0)
    for start in range(0, len(parts), _COMPARED):
        rows = slice(start, start + _COMPARED)
        others = slice(start, int(np.searchsorted(middle, middle[rows][-1] + reach, "right")))
        taller = np.maximum(height[rows, None], height[None, others])
        lower = np.minimum(height[rows, None], height[None, others])
        gap = np.maximum(left[rows, None], left[None, others]) - np.minimum(right[rows, None], right[None, others])
        is_near = gap <= _GAP * taller
        is_near &= np.abs(middle[rows, None] - middle[None, others]) <= _SHIFT * taller
        is_near &= taller <= _RATIO * lower
        yield from (order[start + np.argwhere(np.triu(is_near, 1))]).tolist()


def _find_root(groups: list[int], part: int) -> int:
    while groups[part] != part:
        groups[part] = groups[groups[part]]
        part = groups[part]
    return part


def _unite(groups: list[int], one: int, other: int) -> None:
    first, second = sorted((_find_root(groups, one), _find_root(groups, other)))
    groups[second] = first


def _measure_line(parts: _Parts, width: int, height: int) -> InkLine | None:
    """The line of these parts; None if it does not look like text."""
    parts = parts[parts[:, 3] <= _TALLEST * np.percentile(parts[:, 3], _TYPICAL)]
    x0, y0 = int(parts[:, 0].min()), int(parts[:, 1].min())
    x1, y1 = int((parts[:, 0] + parts[:, 2]).max()), int((parts[:, 1] + parts[:, 3]).max())
    typical, across, down = float(np.percentile(parts[:, 3], _TYPICAL)), x1 - x0, y1 - y0
    least = _LINE_HEIGHT[0] - (len(parts) >= _LOW_PARTS)
    fill = int(parts[:, 4].sum()) / (across * down)
    box = Box.of(x0, y0, x1, y1, width, height)
    is_text = (
        least <= typical <= _LINE_HEIGHT[1]
        and down <= _SLACK * typical + _SLACK_PX
        and _FILL[0] <= fill <= _FILL[1]
        and (across >= _SHORT_ASPECT * down or (across >= _MIN_ASPECT * down and _are_digits(parts)))
        and not _touches_edge(box)
    )
    return InkLine(box, across / down) if is_text else None


def _are_digits(parts: _Parts) -> bool:
    heights = parts[:, 3]
    return len(parts) >= _MIN_PARTS and bool(heights.max() <= _SHORT_RATIO * heights.min())


def _touches_edge(box: Box) -> bool:
    return bool(min(box.x0, box.y0) < _EDGE or max(box.x1, box.y1) > 1 - _EDGE)
