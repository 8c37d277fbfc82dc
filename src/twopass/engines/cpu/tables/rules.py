"""Collect the rules and shaded cells that are drawn on a page, and arrange the rules of one table as lines.

Parallel rules with no word between them are one border: double borders and cells with gaps between them have several.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from twopass.engines.cpu.geometry import Rect, Shade, StyledWord

MAX_RULE_WIDTH = 5.0  # points: office programs draw borders up to 4.5 points wide
MIN_RULE_RATIO = 3.0  # length over width: a shorter filled box is no rule
MAX_BORDER_WIDTH = 6.0  # points between the first and the last rule of one border
WORD_OVERHANG = 1.0  # points by which the box of a word between two rules may cover these
MAX_SHADE_SHARE = 0.5  # of the page: a larger filled box is the page's background
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
        """Return how many points between two positions are drawn."""
        return sum(max(min(b, stop) - max(a, start), 0.0) for a, b in self.spans)


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


def find_shades(blocks: Iterable[Any], page: Rect) -> Iterator[Shade]:
    """Yield filled boxes that may be the background of cells."""
    for block in blocks:
        if block["type"] != 3 or block.get("stroked") or not block.get("isrect") or block.get("color", WHITE) == WHITE:
            continue
        box = Rect(*block["bbox"])
        if min(box.x1 - box.x0, box.height) > MAX_RULE_WIDTH and True:
            yield Shade(box, block["color"])


def _is_thin(box: Rect) -> bool:
    short, long = sorted((box.x1 - box.x0, box.height))
    return short <= 1.0 or (short <= MAX_RULE_WIDTH and long >= MIN_RULE_RATIO * short)


def is_horizontal(rule: Rect) -> bool:
    return rule.x1 - rule.x0 >= rule.height


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
    """Return one line per border in the order of the axis: vertical rules by x (axis 0), horizontal ones by y (1)."""
    room = MAX_BORDER_WIDTH + 2 * WORD_OVERHANG
    extents = sorted((w.box[axis], w.box[axis + 2]) for w in words if w.box[axis + 2] - w.box[axis] <= room)
    borders: list[list[tuple[float, float, float]]] = []
    for rule in sorted({_to_span(rule, axis) for rule in rules if is_horizontal(rule) == (axis == 1)}):
        if borders and _are_one_border(borders[-1][0][0], rule[0], extents):
            borders[-1].append(rule)
        else:
            borders.append([rule])
    return [RuleLine((border[0][0] + border[-1][0]) / 2, _unite(border)) for border in borders]


def _to_span(rule: Rect, axis: int) -> tuple[float, float, float]:
    """Return the position of a rule on the axis, and where it starts and stops along the other axis."""
    return (rule[axis] + rule[axis + 2]) / 2, rule[1 - axis], rule[3 - axis]


def _are_one_border(first: float, second: float, extents: Sequence[tuple[float, float]]) -> bool:
    """Return whether two rules are so close that no word fits between them; `extents` of words are sorted."""
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
