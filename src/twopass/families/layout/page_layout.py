"""The JSON that describes a page's layout: written by the CPU engine, parsed by the layout family.

The grammar (`v` 3; written by engines/cpu/answer.py; lengths in points of the page as displayed):

    {"v": 3, "width": 595.0, "height": 842.0,
     "via": "text_layer" | "hidden_layer" | "ocr", "score": 0..1,
     "pixels_per_point": float?,   that OCR saw and the scan has
     "agreement": 0..1 | null,     of the layer with sampled lines of the pixels; null if it was not compared
     "dense": false,               too many lines or shapes for the layout model, which was skipped
     "lacks_annotations": true,    only if annotations and form fields were left out, because they are damaged
     "lying_fonts": true,          only if fonts of the layer name wrong characters
     "unreadable_script": false,   much of a scan is in a script that no OCR model here knows
     "tesseract": str?,            the language in which Tesseract read lines of other scripts
     "lacks_lines": true,          only if lines of text were left out, because no OCR model here is sure of them
     "boxes": [                    regions in reading order; an "orphan" has text that the layout model missed,
                                  "unread" is a line that was left out, without text
       {"label": "title" | "section-header" | "text" | "list-item" | "table" | "picture" | "formula" |
                 "caption" | "footnote" | "page-header" | "page-footer" | "orphan" | "unread",
        "box": [x0, y0, x1, y1],
        "lines": [{"box", "text", "size", "bold"?, "mono"?, "score"?,
                   "runs"?: [[start, end, style]],   characters in a style of the letters b, i, ^, _ (bold, italic,
                                                     super- and subscript); only with the text layer
                   "from_pixels"?: 0..1,             score of words that OCR read on a page with a text layer: their
                                                     font is broken,
                   "in_image"?: true,                or an image shows them
                   "compared"?: true,                its fonts were compared with the pixels, and are right
                   "lies"?: true}],                  one of its fonts names wrong characters, or may do so
        "from_pixels"?, "in_image"?, "compared"?, "lies"?: the same of a table
        "across"?: true,           its lines probably run across columns
        "words"?: [[x0, y0, x1, y1, text]],   those that OCR read, as they stand on the page
        "latex": str?,             of a formula whose geometry is clear
        "table": {"rows", "cols", "doubtful"?: true,     the page shows that some cells are wrong
                  "cells": [{"row", "col", "row_span", "col_span", "text", "header"}]}}]}
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress

from pydantic import Field, ValidationError

from twopass.document import Box, Cell, Flag, Word
from twopass.pages.text_layer import NO_LAYER, TextLayer
from twopass.values import Value

_GRAMMAR_VERSION = 3  # 1 had no agreement, 2 no styles, formulas and words from pixels
_COMMON_SHARE = 0.5  # of the running text's length: a style of more of it is that of the body
_BODY_SIZE = 10.0  # points, where a page has no running text to measure


class LayoutLine(Value, extra="ignore"):
    box: tuple[float, float, float, float]
    text: str
    size: float = 0.0
    bold: bool = False
    mono: bool = False
    score: float | None = None
    runs: tuple[tuple[int, int, str], ...] = ()
    from_pixels: float | None = None
    in_image: bool = False
    compared: bool = False
    lies: bool = False


class RegionTable(Value, extra="ignore"):
    rows: int = Field(ge=0)
    cols: int = Field(ge=0)
    cells: tuple[Cell, ...] = ()
    doubtful: bool = False  # the page shows that some cells are wrong


class LayoutRegion(Value, extra="ignore"):
    label: str
    box: tuple[float, float, float, float]
    words: tuple[tuple[float, float, float, float, str], ...] = ()
    lines: tuple[LayoutLine, ...] = ()
    table: RegionTable | None = None
    latex: str | None = None
    from_pixels: float | None = None
    in_image: bool = False
    compared: bool = False
    lies: bool = False
    across: bool = False

    @property
    def is_compared(self) -> bool:
        """Whether the fonts of all its text were compared with the pixels."""
        return self.compared or (bool(self.lines) and all(line.compared for line in self.lines))

    @property
    def has_lies(self) -> bool:
        """Whether some of its text has wrong characters."""
        return self.lies or any(line.lies for line in self.lines)

    @property
    def text(self) -> str:
        """The texts of its lines, one on each line."""
        return "\n".join(line.text for line in self.lines)

    @property
    def size(self) -> float:
        """The largest type size of its lines, in points; 0 without lines."""
        return max((line.size for line in self.lines), default=0.0)

    @property
    def word_height(self) -> float:
        """The median height of a scan's words, which is that of their lines, in points; 0 without words."""
        return statistics.median(word[3] - word[1] for word in self.words) if self.words else 0.0

    def with_lines(self, lines: Sequence[LayoutLine]) -> LayoutRegion:
        """The part of the region that has only these lines, with the box around them."""
        left, top, right, bottom = zip(*(line.box for line in lines), strict=True)
        return self.model_copy(update={"lines": tuple(lines), "box": (min(left), min(top), max(right), max(bottom))})

    @property
    def shows_image_text(self) -> bool:
        """Whether OCR read some of its text in an image of a page with a text layer."""
        return self.in_image or any(line.in_image for line in self.lines)

    @property
    def has_broken_font(self) -> bool:
        """Whether OCR read some of its text in place of a broken font."""
        found = ((self.from_pixels, self.in_image), *((line.from_pixels, line.in_image) for line in self.lines))
        return any(score is not None and not in_image for score, in_image in found)

    @property
    def pixel_score(self) -> float | None:
        """The mean score of the lines that OCR read on a page with a text layer; None without such lines."""
        found = (self.from_pixels, *(line.from_pixels for line in self.lines))
        scores = [score for score in found if score is not None]
        return statistics.mean(scores) if scores else None


class PageLayout(Value, extra="ignore"):
    v: int = Field(ge=1, le=_GRAMMAR_VERSION)
    width: float = Field(gt=0, allow_inf_nan=False)
    height: float = Field(gt=0, allow_inf_nan=False)
    via: str
    score: float = 1.0
    pixels_per_point: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    agreement: float | None = None
    dense: bool = False
    lacks_annotations: bool = False
    lying_fonts: bool = False
    unreadable_script: bool = False
    lacks_lines: bool = False
    boxes: tuple[LayoutRegion, ...] = ()

    @property
    def words(self) -> TextLayer:
        """The words that OCR read, with their places on the page."""
        found = (word for region in self.boxes for word in region.words)
        width, height = self.width, self.height
        return TextLayer.of(Word(Box.of(x0, y0, x1, y1, width, height), text) for x0, y0, x1, y1, text in found)

    @property
    def body_size(self) -> float:
        """The median type size of the running text, in points."""
        sizes = [line.size for region in self.boxes if region.label == "text" for line in region.lines if line.size]
        return statistics.median(sizes) if sizes else _BODY_SIZE

    @property
    def common_style(self) -> str:
        """The letters of the styles that most of the running text has, so that they distinguish nothing."""
        lines = [line for region in self.boxes if region.label == "text" for line in region.lines]
        total = sum(len(line.text) for line in lines)
        lengths: Counter[str] = Counter()
        for start, end, style in (run for line in lines for run in line.runs):
            lengths.update(dict.fromkeys(style, end - start))
        return "".join(style for style in "bi" if lengths[style] > _COMMON_SHARE * total)

    @property
    def flags(self) -> tuple[Flag, ...]:
        """The flags of the page, which each of its elements has too."""
        flags = {
            Flag.DENSE_PAGE: self.dense,
            Flag.LACKS_LINES: self.lacks_lines,
            Flag.LACKS_ANNOTATIONS: self.lacks_annotations,
            Flag.HIDDEN_LAYER: self.via == "hidden_layer",
        }
        return tuple(flag for flag, applies in flags.items() if applies)


def find_words(answers: Iterable[str]) -> TextLayer:
    """The words that OCR read, of the last of these answers that is a layout; none of other families' answers."""
    layer = NO_LAYER
    for answer in answers:
        with suppress(ValidationError):
            layer = PageLayout.model_validate_json(answer).words
    return layer
