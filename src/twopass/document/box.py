"""Boxes on a page and the conversions of their coordinates.

A box is in fractions 0..1 of the page as displayed (after CropBox, /Rotate and `rotation_applied`), with the origin at
the top left. Pixels, points and model grids appear only at the edges, where they are converted.
"""

from __future__ import annotations

from typing import NamedTuple

BOX_DECIMALS = 5  # a hundredth of a pixel on a 1,000-pixel page, and stable bytes


class Box(NamedTuple):
    """Fractions of the page: left, top, right, bottom."""

    x0: float
    y0: float
    x1: float
    y1: float

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

    @property
    def width(self) -> float:
        return self.x1 - self.x0

    @property
    def height(self) -> float:
        return self.y1 - self.y0

    @property
    def area(self) -> float:
        return self.width * self.height

    @property
    def centre(self) -> tuple[float, float]:
        return (self.x0 + self.x1) / 2, (self.y0 + self.y1) / 2

    def overlap(self, other: Box) -> float:
        """Return the area shared with another box."""
        width = min(self.x1, other.x1) - max(self.x0, other.x0)
        height = min(self.y1, other.y1) - max(self.y0, other.y0)
        return max(width, 0.0) * max(height, 0.0)

    def union(self, other: Box) -> Box:
        """Return the smallest box that contains both."""
        return Box(min(self.x0, other.x0), min(self.y0, other.y0), max(self.x1, other.x1), max(self.y1, other.y1))


class Word(NamedTuple):
    """One word of a page's text layer."""

    box: Box
    text: str
