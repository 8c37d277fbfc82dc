"""The content of a page: its words and regions, in points of the page as displayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from twopass.document import Rect
from twopass.pages.lying_fonts import Fonts
from twopass.text import superscripts


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
    is no gap between them. `is_value` means that the word fills a field of a form.
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
    is_value: bool = False

    @property
    def written(self) -> str:
        """The text, with superscripts and subscripts beside other characters as Unicode has them: "m²", not "m2"."""
        text = self.text
        for start, end, style in self.runs:
            script = style[-1:]
            if script in ("^", "_") and (start > 0 or end < len(text)):
                text = text[:start] + superscripts.to_unicode(text[start:end], script) + text[end:]
        return text


def join_words(first: StyledWord, second: StyledWord) -> StyledWord:
    """Both words as one, with the style of the longer one."""
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
    across: bool = False  # its lines probably run across columns


@dataclass(frozen=True)
class PageContent:
    """The content of the answer: `via` is text_layer, hidden_layer or ocr, `skew` is in degrees clockwise.

    `agreement` of the layer with the pixels is None if it was not measured, or the pixels could not tell. `tesseract`
    is the language in which Tesseract read lines. `lacks_lines` means that OCR left out lines of text. `fonts` are
    those of the layer that lie, and those that do not. `pixels_per_point` are those that OCR saw and the scan has.
    """

    width: float
    height: float
    via: str
    regions: Sequence[Region]
    score: float | None = None
    pixels_per_point: float | None = None
    dense: bool = False
    unreadable: bool = False
    skew: float = 0.0
    lacks_annotations: bool = False
    agreement: float | None = None
    tesseract: str | None = None
    lacks_lines: bool = False
    fonts: Fonts = Fonts()
