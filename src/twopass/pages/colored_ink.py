"""Tell coloured ink that crosses dark print from the print: stamps, signatures, rings around words.

The detector sees no line of text where a stamp's letters lie across it. Where the ink lets the print shine through, as
that of stamps and pens does, the optical density of a pixel is the sum of both, so that each can be read alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from twopass.document import Rect
from twopass.pages.columns import Corners
from twopass.pages.strips import Array

MIN_PAPER = 140  # of the darkest channel of a page's most common colour: else it is no paper with print on it
MIN_CHROMA = 35  # between the channels of a coloured pixel, with the paper as white
MAX_PRINT = 120  # the lightest channel of dark print
MIN_COLORED = 2e-4  # of a page's pixels: a stamp of one word has five times as many
MARGIN = 100  # pixels around coloured ink, in which print is looked for
MIN_HEIGHT = 4  # pixels of a dark letter: less is a speck
LINE_HEIGHT = 2.0  # times the median height of dark letters, most of which have no ascender
THICK, MIN_THICK = 1.5, 0.3  # a part of which such a share is so many line heights wide and high is an area
FILLED, MIN_BAND = 0.5, 4.0  # a part that is such a share of its box, and so many line heights wide, is a band
LETTER_HEIGHT = (0.25, 2.0)  # line heights of a dark part that is a letter, or several that touch
REACH = 3  # pixels around coloured ink, in which its edge is pale
MIN_OUTSIDE = 0.3  # of a crossed letter, that is farther away: else it is the dark core of a coloured letter
TALL = 1.3  # line heights of a coloured part that is no letter within the print's lines
STEM = 0.2  # line heights: as wide is a gap in a stroke where print crosses it, and not that between two letters
MIN_CROSSED = 5  # letters: fewer are a coloured rule or link that touches a neighbour
MIN_CROWD = 0.025  # letters for each square of a line's height: stamps over tables have 0.07, crossed out letters 0.01
MAX_LIKENESS = 0.4  # of an ink's chroma in print of another ink: black has 0.05 of a red one's, brown 0.8 of its own
MAX_SHARE = 0.2  # of the page: a larger group is a form, a map or a chart
MIN_WHITE = 0.4  # of a group's box that is paper: photographs have less
MIN_CELLS, FILLED_CELL = 4, 0.8  # of a group: with as many it is a table; a cell is such a share of its box
CELL = (2.0, 0.6)  # line heights of a cell, at least
GAP = 0.6  # line heights between the parts of one group
MAX_AMOUNT = 1.3  # of ink in one pixel, where 1 is the median
CONTRAST = 1.5  # density of that ink where it is read alone
MIN_SEEN = 1.0  # optical density of print
MIN_CORE, CORE_EDGE = 0.8, 2  # density of a letter's core below ink, and pixels beside it: else it is left of the ink
MIN_SHOWN = 0.05  # of the print that is expected under ink: under translucent ink 0.09-1.8 is seen, under opaque 0.02
MIN_HIDDEN = 60  # pixels of print that are expected under the ink: fewer, under thin strokes, hide no letter

_Mask = npt.NDArray[np.bool_]
_Density = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Ink:
    """One group of coloured strokes that cross print: its box in pixels of the page, and where in it the strokes are.

    `least` and `spread` are for inks that are lightest in red, green and blue: the density of the most common ink in
    that channel, and how much more it has in its darkest one.
    """

    box: Rect
    strokes: Array
    paper: _Density
    least: _Density
    spread: _Density

    @property
    def corners(self) -> Corners:
        x0, y0, x1, y1 = self.box
        return ((x0, y0), (x1, y0), (x1, y1), (x0, y1))

    def lift(self, array: Array, zoom: float) -> None:
        """Leave only print and paper where the ink is; `array` has `zoom` times the pixels of the page in a row."""
        part, strokes = self._cut(array, zoom)
        _, rest = self._separate(part)
        rest[~_dilate(rest >= MIN_CORE, round(CORE_EDGE * zoom))] = 0
        lifted = np.exp(-rest)[:, :, None] * self.paper
        part[strokes] = lifted[strokes].astype(np.uint8)

    def draw(self, array: Array) -> Array:
        """The ink alone, dark on white, as large as its box; the gaps where print crosses it are closed."""
        import cv2

        part, strokes = self._cut(array, 1.0)
        amount, rest = self._separate(part)
        amount[~strokes] = 0
        closed = cv2.morphologyEx(amount, cv2.MORPH_CLOSE, np.ones((REACH + 2, REACH + 2), np.uint8))
        amount = np.where(rest > MIN_SEEN / 2, closed, amount)
        return np.repeat((255 * np.exp(-CONTRAST * amount)).astype(np.uint8)[:, :, None], 3, axis=2)

    def is_unlike(self, dark: Array) -> bool:
        """Whether it is far more coloured than these pixels of print: else both may be the same dark ink."""
        density = _measure_density(dark[None], self.paper)
        chroma = 1 - density.min(axis=2) / density.max(axis=2)
        own = float((self.spread / (self.least + self.spread)).min())
        return bool(chroma.size) and float(np.median(chroma)) <= MAX_LIKENESS * own

    def hides_print(self, array: Array) -> bool:
        """Whether less print is seen under the ink than beside it, as under ink that is opaque."""
        import cv2

        part, reached = self._cut(array, 1.0)
        seen = self._separate(part)[1] > MIN_SEEN
        size = 2 * REACH + 1
        core = cv2.erode(self.strokes, np.ones((size, size), np.uint8))
        closed = cv2.morphologyEx(core, cv2.MORPH_CLOSE, np.ones((size, size), np.uint8))
        inner = cv2.erode(closed, np.ones((5, 5), np.uint8)) > 0
        beside = [cv2.blur(mask.astype(np.float32), (4 * size, 4 * size)) for mask in (seen & ~reached, ~reached)]
        expected = float((beside[0] / np.maximum(beside[1], 1e-3))[inner].sum())
        return expected >= MIN_HIDDEN and int(np.count_nonzero(seen & inner)) < MIN_SHOWN * expected

    def _cut(self, array: Array, zoom: float) -> tuple[Array, _Mask]:
        import cv2

        x0, y0, x1, y1 = (round(value * zoom) for value in self.box)
        part = array[y0:y1, x0:x1]
        strokes = cv2.resize(self.strokes, part.shape[1::-1], interpolation=cv2.INTER_NEAREST)
        return part, np.asarray(strokes) > 0

    def _separate(self, part: Array) -> tuple[_Density, _Density]:
        """The amount of ink, and the density of the print, in each pixel."""
        import cv2

        density = _measure_density(part, self.paper)
        lightest, least = density.argmin(axis=2), density.min(axis=2)
        amount = np.clip((density.max(axis=2) - least) / self.spread[lightest], 0, MAX_AMOUNT)
        # JPEG keeps colours at half the resolution: where ink ends, its pixels are darker than their colour says.
        beside = np.asarray(cv2.dilate(amount, np.ones((3, 3), np.uint8)))
        rest = least - amount * self.least[lightest]
        return amount, np.maximum(np.where(rest < MIN_SEEN, least - beside * self.least[lightest], rest), 0)


class _Parts(NamedTuple):
    """Connected parts of a mask: the number of the part of each pixel, 0 for none, and each one's box and area."""

    labels: npt.NDArray[np.int32]
    stats: npt.NDArray[np.int32]

    def cover(self, numbers: npt.NDArray[np.bool_]) -> _Mask:
        return np.asarray(numbers[self.labels])


def lift(array: Array, inks: Sequence[Ink], zoom: float = 1.0) -> Array:
    """A copy of the page without these inks; `array` has `zoom` times the pixels in a row of where they were found."""
    lifted = array.copy()
    for ink in inks:
        ink.lift(lifted, zoom)
    return lifted


def find_inks(array: Array) -> list[Ink]:
    """The compact groups of coloured strokes on light paper that cross several dark letters; `array` is RGB."""
    paper = np.median(array[::16, ::16].reshape(-1, 3), axis=0).astype(np.float32)
    rows = _find_colored_rows(array, paper) if paper.min() >= MIN_PAPER else None
    if rows is None:
        return []
    import cv2

    array, size = array[rows], array.shape[0] * array.shape[1]
    white = _whiten(array, paper)
    most, least = _find_extremes(white)
    colored = _measure_chroma(np.asarray(cv2.blur(white, (3, 3)), np.uint8)) >= MIN_CHROMA
    dark = (most < MAX_PRINT) & ~colored
    letters = _label(dark)
    heights = letters.stats[1:, 3]
    heights = heights[heights >= MIN_HEIGHT]
    if len(heights) < MIN_CROSSED:
        return []
    line = LINE_HEIGHT * float(np.median(heights))
    strokes = _keep_strokes(colored, dark, line)
    groups = _label(_dilate(strokes, round(GAP * line)))
    crossed = _count_crossed(letters, strokes, groups, line)
    found = []
    for number in np.flatnonzero(crossed >= MIN_CROSSED):
        left, top, width, height, _ = groups.stats[number].tolist()
        if width * height > min(MAX_SHARE * size, crossed[number] * line**2 / MIN_CROWD):
            continue
        place = np.s_[top : top + height, left : left + width]
        own = strokes[place] & (groups.labels[place] == number)
        if ((least[place] > 255 - MIN_CHROMA) & ~own).mean() < MIN_WHITE:
            continue
        if _count_cells(own, line) >= MIN_CELLS:
            continue
        box = Rect(left, rows.start + top, left + width, rows.start + top + height)
        ink = _measure_ink(box, own, array[place], paper)
        if ink.is_unlike(array[place][dark[place] & (ink.strokes == 0)]):
            found.append(ink)
    return found


def _find_colored_rows(array: Array, paper: _Density) -> slice | None:
    """The rows with coloured ink and some beside them; None without any. Half the size: letters' fringes are grey."""
    import cv2

    half = cv2.resize(array, (max(array.shape[1] // 2, 1), max(array.shape[0] // 2, 1)), interpolation=cv2.INTER_AREA)
    colored = _measure_chroma(_whiten(np.asarray(half), paper)) >= MIN_CHROMA
    if np.count_nonzero(colored) < MIN_COLORED * colored.size:
        return None
    rows = np.flatnonzero(colored.any(axis=1))
    return slice(max(2 * int(rows[0]) - MARGIN, 0), min(2 * int(rows[-1]) + MARGIN, array.shape[0]))


def _whiten(array: Array, paper: _Density) -> Array:
    """The pixels as they would be on white paper."""
    import cv2

    levels = np.arange(256, dtype=np.float32)[:, None] * 255 / paper
    return np.asarray(cv2.LUT(array, np.clip(levels, 0, 255).astype(np.uint8)[None]))


def _measure_chroma(array: Array) -> Array:
    most, least = _find_extremes(array)
    return most - least


def _find_extremes(array: Array) -> tuple[Array, Array]:
    """The lightest and the darkest channel of each pixel, in a tenth of NumPy's time."""
    import cv2

    red, green, blue = cv2.split(array)
    most, least = cv2.max(cv2.max(red, green), blue), cv2.min(cv2.min(red, green), blue)
    return np.asarray(most), np.asarray(least)


def _measure_density(part: Array, paper: _Density) -> _Density:
    return np.asarray(-np.log(np.clip(part, 4, None) / paper), np.float32)


def _label(mask: _Mask) -> _Parts:
    import cv2

    _, labels, stats, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8))
    return _Parts(np.asarray(labels), np.asarray(stats))


def _dilate(mask: _Mask, reach: int) -> _Mask:
    import cv2

    return np.asarray(cv2.dilate(mask.astype(np.uint8), np.ones((2 * reach + 1, 2 * reach + 1), np.uint8))) > 0


def _close(mask: _Mask, width: int, height: int) -> _Mask:
    """The mask without its gaps of less than so many pixels."""
    import cv2

    return np.asarray(cv2.morphologyEx(mask.astype(np.uint8), cv2.MORPH_CLOSE, np.ones((height, width), np.uint8))) > 0


def _keep_strokes(colored: _Mask, dark: _Mask, line: float) -> _Mask:
    """The coloured parts that are strokes, not areas with or without print on them: bands, boxes, highlighted text."""
    import cv2

    parts = _label(colored)
    _, _, width, height, area = parts.stats.T
    side = round(THICK * line)
    square = np.ones((side, side), np.uint8)
    thick = cv2.morphologyEx((colored | dark).astype(np.uint8), cv2.MORPH_OPEN, square)
    filled = np.bincount(parts.labels[thick > 0], minlength=len(area)) >= MIN_THICK * area
    is_band = (width >= MIN_BAND * line) & (height >= line / 2) & (area >= FILLED * width * height)
    is_stroke = ~(filled | is_band)
    is_stroke[0] = False
    return parts.cover(is_stroke)


def _count_crossed(letters: _Parts, strokes: _Mask, groups: _Parts, line: float) -> npt.NDArray[np.int64]:
    """How many dark letters each group crosses: they touch its strokes, and run out of them.

    Coloured words within a line of print touch their neighbours, too, but cross none.
    """
    near = _dilate(strokes, REACH)
    inside = np.bincount(letters.labels[near], minlength=len(letters.stats))
    height, area = letters.stats[:, 3], letters.stats[:, 4]
    is_letter = (height >= LETTER_HEIGHT[0] * line) & (height <= LETTER_HEIGHT[1] * line)
    is_crossed = is_letter & (inside > 0) & (area - inside >= MIN_OUTSIDE * area)
    is_crossed[0] = False
    ys, xs = np.nonzero(_find_crossings(strokes, line) & near & letters.cover(is_crossed))
    pairs = np.unique(np.stack([groups.labels[ys, xs], letters.labels[ys, xs]]), axis=1)
    counts = np.bincount(pairs[0], minlength=len(groups.stats))
    counts[0] = 0
    return counts


def _find_crossings(strokes: _Mask, line: float) -> _Mask:
    """Where letters cross strokes: around tall ones, and in the gaps that letters leave in others."""
    parts = _label(strokes)
    is_tall = parts.stats[:, 3] >= TALL * line
    is_tall[0] = False
    size = 2 * int(STEM * line / 2) + 1
    closed = _close(strokes, size, 1) | _close(strokes, 1, size)
    return _dilate(parts.cover(is_tall), REACH) | closed & ~strokes


def _count_cells(strokes: _Mask, line: float) -> int:
    """How many cells strokes enclose, as the rules of a table do, which tails of letters may cross."""
    size = 2 * REACH + 1
    _, _, width, height, area = _label(~_close(strokes, size, size)).stats[1:].T
    is_cell = (width >= CELL[0] * line) & (height >= CELL[1] * line) & (area >= FILLED_CELL * width * height)
    return int(is_cell.sum())


def _measure_ink(box: Rect, strokes: _Mask, part: Array, paper: _Density) -> Ink:
    """The group of these strokes, with the densities of its inks."""
    density = _measure_density(part, paper)
    least, lightest = density.min(axis=2), density.argmin(axis=2)
    spread = density.max(axis=2) - least
    core = strokes & (spread >= np.median(spread[strokes]))
    usual = int(np.bincount(lightest[core], minlength=3).argmax())
    values = []
    for channel in range(3):
        chosen = core & (lightest == channel)
        chosen = chosen if chosen.sum() >= core.sum() / 20 else core & (lightest == usual)
        values.append((np.median(least[chosen]), np.median(spread[chosen])))
    found = np.array(values, np.float32)
    reached = _dilate(strokes, REACH).astype(np.uint8)
    return Ink(box, reached, paper, found[:, 0], found[:, 1])
