"""Find the rules and shaded cells of a page, drawn or in the pixels of a scan; arrange and group the rules of tables.

Parallel rules with no word between them are one border: double borders and cells with gaps between them have several.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from twopass.document import Rect, enclose
from twopass.engines.cpu.content import Shade, StyledWord
from twopass.pages.strips import Array

MAX_RULE_WIDTH = 5.0  # points: office programs draw borders up to 4.5 points wide
MIN_RULE_RATIO = 3.0  # length over width: a shorter filled box is no rule
MAX_BORDER_WIDTH = 6.0  # points between the first and the last rule of one border
WORD_OVERHANG = 1.0  # points by which the box of a word between two rules may cover these
WHITE = 0xFFFFFF


@dataclass(frozen=True)
class RuleLine:
    """The rules at one position of an axis; `spans` are where they run along the other axis, without overlap."""

    position: float
    spans: tuple[tuple[float, float], ...]

    @property
    def length(self) -> float:
        return sum(stop - start for start, stop in self.spans)

    def measure_cover(self, start: float, stop: float) -> float:
        """How many points between two positions are drawn."""
        return sum(max(min(b, stop) - max(a, start), 0.0) for a, b in self.spans)


SAME_MARGIN = 0.1  # points between the margins that MuPDF adds to the four sides of one stroke


def trim_strokes(page: Any, blocks: Sequence[Any]) -> list[Any]:
    """The blocks, with the boxes of stroked lines and rectangles where these are drawn.

    MuPDF adds to them the width of the stroke before it is scaled: a line of half a point, drawn with a width of 5 at
    a tenth of the size, has a box ten points high.
    """
    if not any(block["type"] == 3 and block.get("stroked") for block in blocks):
        return list(blocks)
    drawn: dict[tuple[int, int], list[tuple[Rect, float]]] = {}
    for box, width in _list_strokes(page):
        drawn.setdefault(_round_centre(box), []).append((box, width))
    return [_trim_stroke(block, drawn) if block["type"] == 3 and block.get("stroked") else block for block in blocks]


def _list_strokes(page: Any) -> Iterator[tuple[Rect, float]]:
    """Yield the boxes of stroked paths and of their lines and rectangles, with the width of the stroke."""
    for path in page.get_cdrawings():
        if "s" in path["type"]:
            yield Rect(*path["rect"]), path["width"]
            for kind, *points in path["items"] if len(path["items"]) > 1 else ():
                if kind == "re":
                    yield Rect(*points[0]), path["width"]
                elif kind == "l":
                    yield Rect.around(points), path["width"]


def _round_centre(box: Rect) -> tuple[int, int]:
    x, y = box.centre
    return round(x), round(y)


def _trim_stroke(block: Any, drawn: Mapping[tuple[int, int], Sequence[tuple[Rect, float]]]) -> Any:
    box = Rect(*block["bbox"])
    (x, y), near = _round_centre(box), (-1, 0, 1)
    for inner, width in (stroke for dx, dy in product(near, near) for stroke in drawn.get((x + dx, y + dy), ())):
        margins = (inner.x0 - box.x0, inner.y0 - box.y0, box.x1 - inner.x1, box.y1 - inner.y1)
        if min(margins) >= 0 and max(margins) - min(margins) <= SAME_MARGIN:
            return {**block, "bbox": inner.grow(width / 2)}
    return block


def find_rules(blocks: Iterable[Any]) -> Iterator[Rect]:
    """Yield thin drawings and the four sides of stroked boxes."""
    for block in blocks:
        if block["type"] != 3:
            continue
        box = Rect(*block["bbox"])
        if _is_thin(box):
            yield box
        elif block.get("stroked") and block.get("isrect"):
            yield box._replace(y1=box.y0)
            yield box._replace(y0=box.y1)
            yield box._replace(x1=box.x0)
            yield box._replace(x0=box.x1)


def find_shades(blocks: Iterable[Any]) -> Iterator[Shade]:
    """Yield filled boxes that may be the background of cells."""
    for block in blocks:
        if block["type"] != 3 or block.get("stroked") or not block.get("isrect") or block.get("color", WHITE) == WHITE:
            continue
        box = Rect(*block["bbox"])
        if min(box.width, box.height) > MAX_RULE_WIDTH:
            yield Shade(box, block["color"])


def _is_thin(box: Rect) -> bool:
    short, long = sorted((box.width, box.height))
    return short <= 1.0 or (short <= MAX_RULE_WIDTH and long >= MIN_RULE_RATIO * short)


def _is_horizontal(rule: Rect) -> bool:
    return rule.width >= rule.height


def list_sides(boxes: Iterable[Rect], axis: int) -> Iterator[Rect]:
    """Yield the two sides of each box that cross an axis; axis 0 is x, 1 is y."""
    for box in boxes:
        if axis:
            yield box._replace(y1=box.y0)
            yield box._replace(y0=box.y1)
        else:
            yield box._replace(x1=box.x0)
            yield box._replace(x0=box.x1)


def arrange(rules: Iterable[Rect], axis: int, words: Sequence[StyledWord]) -> list[RuleLine]:
    """One line per border in the order of the axis: vertical rules by x (axis 0), horizontal ones by y (1)."""
    room = MAX_BORDER_WIDTH + 2 * WORD_OVERHANG
    extents = sorted((w.box[axis], w.box[axis + 2]) for w in words if w.box[axis + 2] - w.box[axis] <= room)
    borders: list[list[tuple[float, float, float]]] = []
    for rule in sorted({_to_span(rule, axis) for rule in rules if _is_horizontal(rule) == (axis == 1)}):
        if borders and _are_one_border(borders[-1][0][0], rule[0], extents):
            borders[-1].append(rule)
        else:
            borders.append([rule])
    return [RuleLine((border[0][0] + border[-1][0]) / 2, _unite(border)) for border in borders]


def _to_span(rule: Rect, axis: int) -> tuple[float, float, float]:
    """The position of a rule on the axis, and where it starts and stops along the other axis."""
    return (rule[axis] + rule[axis + 2]) / 2, rule[1 - axis], rule[3 - axis]


def _are_one_border(first: float, second: float, extents: Sequence[tuple[float, float]]) -> bool:
    """Whether two rules are so close that no word fits between them; `extents` of words are sorted."""
    if second - first > MAX_BORDER_WIDTH:
        return False
    start, stop = first - WORD_OVERHANG, second + WORD_OVERHANG
    inside = extents[bisect_left(extents, (start, start)) : bisect_right(extents, (stop, stop))]
    return not any(end <= stop for _, end in inside)


def _unite(border: Iterable[tuple[float, float, float]]) -> tuple[tuple[float, float], ...]:
    spans: list[tuple[float, float]] = []
    for start, stop in sorted((start, stop) for _, start, stop in border):
        if spans and start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], stop))
        else:
            spans.append((start, stop))
    return tuple(spans)


# ---- rules that touch ----

TOUCH = 1.0  # points between two rules that touch; a nested table keeps more distance from the cell around it
MAX_RULES = 2000  # more are not grouped: all pairs are compared


def group_touching(rules: Sequence[Rect], reach: float = TOUCH) -> list[list[Rect]]:
    """The rules in groups of those at most `reach` points apart, directly or through others.

    If there are too many rules, they are one group.
    """
    unique = sorted(set(rules))
    if len(unique) > MAX_RULES or not unique:
        return [unique] if unique else []
    boxes = np.array(unique)
    starts, stops = boxes[:, :2] - reach / 2, boxes[:, 2:] + reach / 2
    free = np.ones(len(unique), bool)
    groups: list[list[Rect]] = []
    while free.any():
        group, edge = [], [int(free.argmax())]
        free[edge] = False
        while edge:
            group += edge
            touching = (starts[None] <= stops[edge][:, None]).all(2) & (stops[None] >= starts[edge][:, None]).all(2)
            edge = [int(index) for index in np.flatnonzero(touching.any(0) & free)]
            free[edge] = False
        groups.append([unique[index] for index in sorted(group)])
    return groups


def is_grid(rules: Sequence[Rect]) -> bool:
    """Whether rules make two cells or more."""
    lines = sorted(len(arrange(rules, axis, ())) for axis in (0, 1))
    return lines[0] >= 2 and lines[1] >= 3


def find_nested(rules: Sequence[Rect]) -> list[Rect]:
    """The bounds of tables within a cell of the largest table."""
    groups = group_touching(rules)
    outer = max(groups, key=lambda group: enclose(group).area, default=[])
    if len(groups) < 2 or not is_grid(outer):
        return []
    bounds = enclose(outer)
    others = [(enclose(group), group) for group in groups if group is not outer]
    return [box for box, group in others if bounds.contains(box[:2]) and bounds.contains(box[2:]) and is_grid(group)]


def drop_inside(rules: Sequence[Rect], boxes: Sequence[Rect]) -> list[Rect]:
    """Drop the rules of nested tables, which have these bounds."""
    return [rule for rule in rules if not any(box.contains(rule.centre, TOUCH / 2) for box in boxes)]


# ---- rules in the pixels of a scan ----

MIN_LENGTH = 12.0  # points: shorter strokes may be letters
DRIFT = 1.0  # points across a rule within MIN_LENGTH, for paper that is not quite straight
NEIGHBOURHOOD = 12.0  # points around a pixel, whose mean brightness it is compared with
CONTRAST = 18  # grey levels that a rule is darker than its surroundings
MAX_STROKE = 1.6  # of a word's height: a longer stroke in the word's box is a rule
MAX_OVERHANG = 0.4  # of a word's height, by which its box may reach over a rule beside it: half a letter
MAX_SHIFT = 3  # letters between where a rule seems to split a word and a change from digits to letters


def find_scanned_rules(array: Array, scale: float, skew: float) -> list[Rect]:
    """The rules in points; `scale` is points per pixel, `skew` the scan's rotation in degrees clockwise.

    The rules are straightened like the words of the scan.
    """
    import cv2  # only scans need it

    grey = cv2.cvtColor(array, cv2.COLOR_RGB2GRAY)
    height, width = grey.shape
    if skew:
        turn = cv2.getRotationMatrix2D((width / 2, height / 2), skew, 1.0)
        grey = cv2.warpAffine(grey, turn, (width, height), borderValue=255)
    block = int(NEIGHBOURHOOD / scale) | 1
    ink = cv2.adaptiveThreshold(grey, 255, cv2.ADAPTIVE_THRESH_MEAN_C, cv2.THRESH_BINARY_INV, max(block, 3), CONTRAST)
    return [*_find_strokes(ink, scale, horizontal=True), *_find_strokes(ink, scale, horizontal=False)]


def drop_letters(rules: Sequence[Rect], words: Sequence[StyledWord]) -> list[Rect]:
    """Drop strokes of letters, which are long where a letter touches a border.

    A stroke within a word that continues a rule outside all words is a rule: double borders end at each cell.
    """
    boxes = np.asarray([word.box for word in words], np.float64).reshape(-1, 4)
    within = [_is_letter(rule, boxes) for rule in rules]
    sure = {_to_line(rule) for rule, is_within in zip(rules, within, strict=True) if not is_within}
    return [rule for rule, is_within in zip(rules, within, strict=True) if not is_within or _to_line(rule) in sure]


def _to_line(rule: Rect) -> tuple[bool, int]:
    """The direction of a rule and its position across it, in points."""
    is_upright = rule.height > rule.width
    return is_upright, round(rule.x0 if is_upright else rule.y0)


def _is_letter(rule: Rect, words: npt.NDArray[np.float64]) -> bool:
    """Whether a stroke is in one of the words and not longer than its letters are high."""
    x0, y0, x1, y1 = words.T
    x, y = rule.centre
    is_inside = (x0 <= x) & (x <= x1) & (y0 <= y) & (y <= y1)
    return bool((is_inside & (max(rule.width, rule.height) <= MAX_STROKE * (y1 - y0))).any())


def split_words(words: Sequence[StyledWord], rules: Sequence[Rect]) -> list[StyledWord]:
    """End words at the vertical rules beside them, and split those that OCR read across a rule."""
    upright = sorted(rule for rule in rules if rule.height > rule.width)
    return [part for word in words for part in _split_word(word, upright)]


def _split_word(word: StyledWord, rules: Sequence[Rect]) -> Iterator[StyledWord]:
    box = word.box
    crossing = [r.x0 for r in rules if box.x0 < r.x0 < box.x1 and r.y0 < box.centre[1] < r.y1]
    if not (word.upright and crossing):
        yield word
        return
    reach = min(MAX_OVERHANG * box.height, box.width / 3)
    left = max((x for x in crossing if x - box.x0 <= reach), default=box.x0)
    right = min((x for x in crossing if box.x1 - x <= reach), default=box.x1)
    trimmed = replace(word, box=box._replace(x0=left, x1=right))
    inside = [x for x in crossing if left < x < right]
    at = _find_split(trimmed, inside[0]) if inside else None
    if at is None:
        yield trimmed
        return
    yield replace(trimmed, text=word.text[:at], box=trimmed.box._replace(x1=inside[0]))
    yield replace(trimmed, text=word.text[at:], box=trimmed.box._replace(x0=inside[0]))


def _find_split(word: StyledWord, x: float) -> int | None:
    """Where a rule splits the text: at a change from digits to letters, because widths are guessed."""
    text = word.text
    places = [i for i in range(1, len(text)) if text[i - 1].isdigit() and text[i].isalpha()]
    position = (x - word.box.x0) / word.box.width * len(text)
    at = min(places, key=lambda i: abs(i - position), default=None)
    return at if at is not None and abs(at - position) <= MAX_SHIFT else None


def _find_strokes(ink: Any, scale: float, horizontal: bool) -> Iterator[Rect]:
    """Yield long straight strokes that are no thicker than a rule."""
    import cv2

    def make_kernel(length: float, thickness: int = 1) -> Array:
        pixels = max(round(length / scale), 1)
        return np.ones((thickness, pixels) if horizontal else (pixels, thickness), np.uint8)

    thick = cv2.dilate(ink, make_kernel(scale, max(round(DRIFT / scale), 1)))
    lines = cv2.morphologyEx(thick, cv2.MORPH_OPEN, make_kernel(MIN_LENGTH))
    count, _, stats, _ = cv2.connectedComponentsWithStats(lines)
    for x, y, width, height, _ in stats[1:count].tolist():
        box = Rect(x * scale, y * scale, (x + width) * scale, (y + height) * scale)
        if min(width, height) * scale <= MAX_RULE_WIDTH + DRIFT:
            yield _thin(box, horizontal)


def _thin(box: Rect, horizontal: bool) -> Rect:
    """The middle of a rule, whose thickness dilation has changed."""
    x, y = box.centre
    return Rect(box.x0, y, box.x1, y) if horizontal else Rect(x, box.y0, x, box.y1)
