"""Rectangles, words and regions of a page, in points of the page as displayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple


class Rect(NamedTuple):
    x0: float
    y0: float
    x1: float
    y1: float

    @property
    def area(self) -> float:
        return max(self.x1 - self.x0, 0.0) * max(self.y1 - self.y0, 0.0)

    @property
    def height(self) -> float:
        return self.y1 - self.y0

    @property
    def centre(self) -> tuple[float, float]:
        return (self.x0 + self.x1) / 2, (self.y0 + self.y1) / 2

    def overlap_area(self, other: Rect) -> float:
        return Rect(max(self.x0, other.x0), max(self.y0, other.y0), min(self.x1, other.x1), min(self.y1, other.y1)).area

    def intersects(self, other: Rect) -> bool:
        return self.x0 <= other.x1 and other.x0 <= self.x1 and self.y0 <= other.y1 and other.y0 <= self.y1

    def contains(self, point: tuple[float, float], margin: float = 0.0) -> bool:
        x, y = point
        return self.x0 - margin <= x <= self.x1 + margin and self.y0 - margin <= y <= self.y1 + margin

    def move(self, dx: float, dy: float) -> Rect:
        return Rect(self.x0 + dx, self.y0 + dy, self.x1 + dx, self.y1 + dy)

    def union(self, other: Rect) -> Rect:
        return Rect(min(self.x0, other.x0), min(self.y0, other.y0), max(self.x1, other.x1), max(self.y1, other.y1))


def enclose(rects: Sequence[Rect]) -> Rect:
    bounds = rects[0]
    for rect in rects[1:]:
        bounds = bounds.union(rect)
    return bounds


class StyledRun(NamedTuple):
    """Characters [start, end) of a word in one style: the letters of "bi^_" for bold, italic, super- and subscript."""

    start: int
    end: int
    style: str


@dataclass(frozen=True)
class StyledWord:
    """One word. `line` and `block` are numbers of MuPDF or OCR; `upright` is False for vertical and upside-down text.

    `runs` are the parts in another style than plain, `font` is that of most letters. `from_pixels` means that OCR read
    the word on a page with a text layer: its font maps to wrong characters, or, without a font, it is part of an image.
    A piece of a word, as lines with right-to-left text have them, is joined to its neighbours without a space if there
    is no gap between them.
    """

    box: Rect
    text: str
    line: int
    size: float = 0.0
    bold: bool = False
    mono: bool = False
    upright: bool = True
    score: float = 1.0
    runs: tuple[StyledRun, ...] = ()
    font: str = ""
    from_pixels: bool = False
    block: int = -1
    is_piece: bool = False


def join_words(first: StyledWord, second: StyledWord) -> StyledWord:
    """Return both as one word, with the style of the longer one."""
    length = len(first.text)
    runs = (*first.runs, *(StyledRun(length + start, length + end, style) for start, end, style in second.runs))
    return replace(
        first if length >= len(second.text) else second,
        text=first.text + second.text,
        box=first.box.union(second.box),
        bold=first.bold and second.bold,
        score=min(first.score, second.score),
        runs=runs,
    )


class Shade(NamedTuple):
    """A filled box, the background of a cell or of several; `color` is sRGB, 0xRRGGBB."""

    box: Rect
    color: int


@dataclass(frozen=True)
class Grid:
    """The positions of row and column lines inside a table, and the rules and shades drawn in and around it."""

    rows: tuple[float, ...]
    cols: tuple[float, ...]
    rules: tuple[Rect, ...] = ()
    shades: tuple[Shade, ...] = ()


@dataclass(frozen=True)
class Region:
    label: str
    box: Rect
    words: tuple[StyledWord, ...] = ()
    grid: Grid | None = field(default=None, repr=False)
    latex: str | None = None  # of a formula, where its geometry is clear
