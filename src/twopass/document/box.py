"""Rectangles and boxes on a page, and the conversions of their coordinates.

A box is in fractions 0..1 of the page as displayed (after CropBox, /Rotate and `rotation_applied`), with the origin at
the top left. Pixels, points and model grids appear only at the edges, where they are converted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Self, TypeVar

BOX_DECIMALS = 5  # a hundredth of a pixel on a 1,000-pixel page, and stable bytes


class Rect(NamedTuple):
    """Left, top, right, bottom, in points or pixels: whoever holds a rectangle knows which."""

    x0: float
    y0: float
    x1: float
    y1: float

    @classmethod
    def around(cls, points: Iterable[tuple[float, float]]) -> Self:
        """The smallest rectangle that contains all points."""
        xs, ys = zip(*points, strict=True)
        return cls(min(xs), min(ys), max(xs), max(ys))

    @property
    def width(self) -> float:
        return self.x1 - self.x0

    @property
    def height(self) -> float:
        return self.y1 - self.y0

    @property
    def area(self) -> float:
        return max(self.x1 - self.x0, 0.0) * max(self.y1 - self.y0, 0.0)

    @property
    def centre(self) -> tuple[float, float]:
        return (self.x0 + self.x1) / 2, (self.y0 + self.y1) / 2

    def overlap_x(self, other: Rect) -> float:
        """How far both extend together from left to right; below 0 if there is space between them."""
        return min(self.x1, other.x1) - max(self.x0, other.x0)

    def overlap_y(self, other: Rect) -> float:
        """The same from top to bottom."""
        return min(self.y1, other.y1) - max(self.y0, other.y0)

    def overlap(self, other: Rect) -> float:
        """The area shared with another rectangle."""
        width = min(self.x1, other.x1) - max(self.x0, other.x0)
        height = min(self.y1, other.y1) - max(self.y0, other.y0)
        return max(width, 0.0) * max(height, 0.0)

    def intersects(self, other: Rect) -> bool:
        """Whether they share a point, which may lie on the edges of both."""
        return self.x0 <= other.x1 and other.x0 <= self.x1 and self.y0 <= other.y1 and other.y0 <= self.y1

    def contains(self, point: tuple[float, float], margin: float = 0.0) -> bool:
        x, y = point
        return self.x0 - margin <= x <= self.x1 + margin and self.y0 - margin <= y <= self.y1 + margin

    def union(self, other: Self) -> Self:
        """The smallest rectangle that contains both."""
        return type(self)(
            min(self.x0, other.x0), min(self.y0, other.y0), max(self.x1, other.x1), max(self.y1, other.y1)
        )

    def grow(self, margin: float) -> Self:
        return type(self)(self.x0 - margin, self.y0 - margin, self.x1 + margin, self.y1 + margin)

    def move(self, dx: float, dy: float) -> Self:
        return type(self)(self.x0 + dx, self.y0 + dy, self.x1 + dx, self.y1 + dy)


_AnyRect = TypeVar("_AnyRect", bound=Rect)


def enclose(rects: Iterable[_AnyRect]) -> _AnyRect:
    """The smallest rectangle that contains all of them; there must be one."""
    known = tuple(rects)
    lefts, tops, rights, bottoms = zip(*known, strict=True)
    return type(known[0])(min(lefts), min(tops), max(rights), max(bottoms))


class Box(Rect):
    """Fractions of the page."""

    __slots__ = ()

    @classmethod
    def of(cls, x0: float, y0: float, x1: float, y1: float, width: float = 1, height: float = 1) -> Box:
        """Build a box from any two corners on a page of this size: scaled, ordered, clipped to the page, rounded."""
        xs, ys = sorted((x0 / width, x1 / width)), sorted((y0 / height, y1 / height))
        return cls(*(round(min(max(v, 0.0), 1.0), BOX_DECIMALS) for v in (xs[0], ys[0], xs[1], ys[1])))

    @classmethod
    def from_grid(cls, x0: int, y0: int, x1: int, y1: int, grid: int) -> Box:
        """Build a box from whole numbers 0..grid inclusive."""
        return cls.of(x0, y0, x1, y1, grid, grid)

    def to_grid(self, grid: int) -> tuple[int, int, int, int]:
        """Convert to whole numbers 0..grid inclusive."""
        x0, y0, x1, y1 = (round(v * grid) for v in self)
        return x0, y0, x1, y1

    def to_pixels(self, width: int, height: int, padding: int = 0) -> tuple[int, int, int, int]:
        """Convert to pixels of an image of this size, grown by `padding` and clipped; at least one pixel each way."""
        x0 = min(max(int(self.x0 * width) - padding, 0), width - 1)
        y0 = min(max(int(self.y0 * height) - padding, 0), height - 1)
        x1 = min(max(-int(-self.x1 * width // 1) + padding, x0 + 1), width)
        y1 = min(max(-int(-self.y1 * height // 1) + padding, y0 + 1), height)
        return x0, y0, x1, y1


class Word(NamedTuple):
    """One word of a page's text layer."""

    box: Box
    text: str
