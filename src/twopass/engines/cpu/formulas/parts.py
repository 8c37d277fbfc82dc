"""Characters of a formula, and the parts that are built of them."""

from __future__ import annotations

from dataclasses import dataclass

from twopass.engines.cpu.formulas import symbols
from twopass.engines.cpu.geometry import Rect

SAME_BASELINE = 0.12  # of the type size
FULL_SIZE = 0.87  # of the largest type size: smaller characters are scripts; TeX sets them at 0.7
AXIS = 0.25  # of the type size: how far fraction bars are above the base line
WORD_GAP = 0.15  # of the type size: closer letters form a word
TALL = 1.35  # of the type size: taller delimiters grow with their content


@dataclass(frozen=True)
class Glyph:
    """A character: the box of its ink, its base line `y`, its type size in points, and whether it is set in italics."""

    text: str
    box: Rect
    y: float
    size: float
    italic: bool = False


@dataclass(frozen=True, eq=False)  # two equal characters in one place are two
class Part:
    """A character, a word or a built formula on its base line `y`; `axis` is where its fraction bar is."""

    latex: str
    box: Rect
    y: float
    size: float
    char: str = ""
    axis: float | None = None
    is_word: bool = False
    is_upright: bool = False

    @property
    def top(self) -> float:
        """The upper edge: of small signs such as a minus, where letters beside them would have theirs."""
        return self.box.y0 if self.axis is not None or self.is_tall else min(self.box.y0, self.y - 0.6 * self.size)

    @property
    def bottom(self) -> float:
        return self.box.y1 if self.axis is not None or self.is_tall else max(self.box.y1, self.y)

    @property
    def centre(self) -> tuple[float, float]:
        return self.box.centre

    @property
    def has_limits(self) -> bool:
        return self.char in symbols.LARGE or (self.is_word and self.latex.lstrip("\\") in symbols.WITH_LIMITS)

    @property
    def is_tall(self) -> bool:
        """Whether it may be set off the base line: a large operator or a delimiter."""
        return bool(self.char) and (
            self.char in symbols.LARGE or self.char in symbols.INTEGRALS or self.char in symbols.DELIMITERS
        )


class UnclearError(Exception):
    """A character has no certain place."""
