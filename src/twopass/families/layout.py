"""The layout engine's JSON in, a page's elements out.

The grammar (`v` 1; engines/cpu_page.py writes it; lengths in points of the page as displayed):

    {"v": 1, "width": 595.0, "height": 842.0,
     "via": "text_layer" | "hidden_layer" | "ocr", "score": 0..1,
     "dense": false,               the layout model was left out: too many lines
     "unreadable_script": false,   much of a scan is in a script the recogniser does not know
     "boxes": [                    in reading order
       {"label": "title" | "section-header" | "text" | "list-item" | "table" | "picture" | "formula" |
                 "caption" | "footnote" | "page-header" | "page-footer" | "orphan",
        "box": [x0, y0, x1, y1],
        "lines": [{"box", "text", "size", "bold"?, "mono"?, "score"?}],
        "table": {"rows", "cols", "cells": [{"row", "col", "row_span", "col_span", "text", "header"}]}}]}

Knows this grammar and nothing of PDF, models or neighbouring pages.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from twopass.document import (
    FIGURES,
    FURNITURE,
    HEADINGS,
    Box,
    Cell,
    Confidence,
    Element,
    Figure,
    Formula,
    Kind,
    Layer,
    element_id,
)
from twopass.errors import Code
from twopass.families.interface import NORMAL, Answer, Asked, Look, Question, Reply, Rung
from twopass.pages.text_layer import NO_LAYER, TextLayer
from twopass.text import prose, sections, table_grid

GRAMMAR = 1
PROMPT = "layout"
ONLY = (Rung(NORMAL, PROMPT),)
MODES = frozenset({"auto", "tiny", "small", "base", "large", "gundam"})
_KINDS = {
    "title": Kind.TITLE,
    "section-header": Kind.SECTION_HEADER,
    "list-item": Kind.LIST_ITEM,
    "table": Kind.TABLE,
    "picture": Kind.PICTURE,
    "formula": Kind.FORMULA,
    "caption": Kind.CAPTION,
    "footnote": Kind.FOOTNOTE,
    "page-header": Kind.PAGE_HEADER,
    "page-footer": Kind.PAGE_FOOTER,
}
HEADER_BAND, FOOTER_BAND = 0.12, 0.88  # of the page's height; what is called furniture elsewhere is body
SIDE_BAND, UPRIGHT = 0.08, 5.0  # of the page's width; times as high as wide: text that runs up the paper's edge
HEADING_WORDS = 25  # a longer "heading" that ends like a sentence is a paragraph
TITLE_SIZE = 1.25  # times the next largest heading of page 1, to be the title
LEVELS = ((1.4, 1), (1.15, 2), (0.98, 3))  # least size by the page's body type -> level hint; assemble decides
BODY_SIZE = 10.0  # where a page has no running text to compare with
CAPTION_REACH = 0.06  # of the page's height between a caption and its table or figure
LIST_BULLETS = "•◦▪‣·●○■□‒–—*∙"
BESIDE = 0.25  # of the type size: marks of one list stand below each other
NUMBER_BAND = 0.08  # of the page's height, above and below, where a number alone is the page's
_PAGE_NUMBER = re.compile(
    r"\W*(?:page|seite|p\.|s\.|第)?\s*\d{1,4}\s*(?:(?:of|von|de|/)\s*\d{1,4}|页|頁|쪽)?\W*", re.IGNORECASE
)
_BULLET = re.compile(rf"^\s*[{LIST_BULLETS}\uf0b7\uf0a7-]\s*")
_SURE_BULLET = re.compile(r"\s*[•◦▪‣●○■□∙\uf0b7\uf0a7]\s*\S")
_DASH = re.compile(r"\s*([‒–—·*-])\s+\S")
_ITEM_NUMBER = re.compile(rf"\s*([(\[]?)(\d{{1,3}}|[a-z])([.)\]])(?:\s+\S|[{prose.HAN}{prose.HANGUL}])")
_ENDS_SENTENCE = re.compile(r"[.!?。！？][\"'”’)\]]?$")


class _Closed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Line(_Closed):
    box: tuple[float, float, float, float]
    text: str
    size: float = 0.0
    bold: bool = False
    mono: bool = False
    score: float | None = None


class _Table(_Closed):
    rows: int = Field(ge=0)
    cols: int = Field(ge=0)
    cells: tuple[Cell, ...] = ()


class _Region(_Closed):
    label: str
    box: tuple[float, float, float, float]
    lines: tuple[_Line, ...] = ()
    table: _Table | None = None


class _Page(_Closed):
    v: int = Field(ge=GRAMMAR, le=GRAMMAR)
    width: float = Field(gt=0, allow_inf_nan=False)
    height: float = Field(gt=0, allow_inf_nan=False)
    via: str
    score: float = 1.0
    dense: bool = False
    unreadable_script: bool = False
    boxes: tuple[_Region, ...] = ()

    @property
    def body_size(self) -> float:
        """The type size most letters are set in."""
        sizes = [line.size for region in self.boxes if region.label == "text" for line in region.lines if line.size]
        return statistics.median(sizes) if sizes else BODY_SIZE


@dataclass(frozen=True)
class LayoutFamily:
    """PyMuPDF's layout model, and whatever text was found for it."""

    name: str = "layout"
    revision: str = "pymupdf-layout-2.0+rapidocr-3.10"

    @property
    def prompts(self) -> Mapping[str, str]:
        return MappingProxyType({"page": PROMPT})

    @property
    def canary(self) -> None:
        """The wheels hold the models, and no driver comes between."""

    @property
    def modes(self) -> frozenset[str]:
        """The engine sees no tokens; any mode is as good."""
        return MODES

    @property
    def tasks(self) -> frozenset[str]:
        """The engine reads pages and answers no questions."""
        return frozenset({"document"})

    def ladder(self, look: Look, asked: Asked) -> tuple[Rung, ...]:
        """The engine answers no questions, and the same one each time."""
        return ONLY

    def looping(self, text: str) -> bool:
        return False

    def question(
        self,
        element: Element,
        everything: bool,
        size: tuple[int, int],
        beside: Sequence[Element],
        replies: Sequence[Reply] = (),
    ) -> Question | None:
        """The engine has told all it knows."""
        return None

    def reread(self, element: Element, replies: Sequence[Reply]) -> Element:
        return element

    def parse(self, text: str, page: int, rung: Rung = ONLY[0], layer: TextLayer = NO_LAYER) -> Answer:
        try:
            told = _Page.model_validate(json.loads(text, parse_constant=_refuse))
        except (ValueError, ValidationError, RecursionError):
            return _unparsed(text, page)
        flags = tuple(
            flag for flag, holds in (("dense_page", told.dense), (told.via, told.via == "hidden_layer")) if holds
        )
        regions = [item for region in told.boxes for item in _items(region)]
        seen = [(region, e) for region in regions if (e := _element(region, told, page, flags)) is not None]
        title = _title(seen, told.body_size) if page == 1 else None
        found = [_as_title(element) if region is title else element for region, element in seen]
        named = [e.model_copy(update={"id": element_id(page, index)}) for index, e in enumerate(found)]
        reason = Code.UNREADABLE_SCRIPT if told.unreadable_script else None
        return Answer(tuple(_with_captions(named)), reason, flags, told.via)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _unparsed(text: str, page: int) -> Answer:
    """What is not the grammar is kept as it is, for people to see."""
    text = text.encode("utf-8", "replace").decode()
    if not text.strip():
        return Answer()
    element = Element(
        id=element_id(page, 0),
        page=page,
        category=Kind.TEXT.category,
        kind=Kind.TEXT,
        text=text,
        markdown=text,
        flags=("unparsed",),
    )
    return Answer((element,), Code.UNGROUNDED, ("unparsed",))


def _items(region: _Region) -> list[_Region]:
    """A list item that holds several, one by one, each with the box of its own lines."""
    if region.label != "list-item" or len(region.lines) < 2:
        return [region]
    items: list[list[_Line]] = [[region.lines[0]]]
    for line in region.lines[1:]:
        if _begins_item(line, items):
            items.append([])
        items[-1].append(line)
    if len(items) == 1:
        return [region]
    return [region.model_copy(update={"lines": tuple(lines), "box": _around(lines)}) for lines in items]


def _begins_item(line: _Line, items: Sequence[Sequence[_Line]]) -> bool:
    """Whether it has a bullet, or the number that follows the last; a dash only where one of a list could stand."""
    if _SURE_BULLET.match(line.text):
        return True
    firsts = [item[0] for item in items]
    if found := _ITEM_NUMBER.match(line.text):
        before = (other for first in reversed(firsts) if (other := _ITEM_NUMBER.match(first.text)))
        last = next((other.group(2) for other in before if other.group(1, 3) == found.group(1, 3)), None)
        return last is not None and _follows(last, found.group(2))
    if not (dash := _DASH.match(line.text)):
        return False
    left, near = line.box[0], BESIDE * max(line.size, 1.0)
    same = [first for first in firsts if (other := _DASH.match(first.text)) and other.group(1) == dash.group(1)]
    below = any(abs(left - first.box[0]) <= near for first in same)
    return below or left > max(other.box[0] for other in items[-1]) + near


def _follows(first: str, second: str) -> bool:
    if first.isdecimal() and second.isdecimal():
        return int(second) == int(first) + 1
    return len(first) == len(second) == 1 and ord(second) == ord(first) + 1


def _around(lines: Sequence[_Line]) -> tuple[float, float, float, float]:
    left, top, right, bottom = zip(*(line.box for line in lines), strict=True)
    return min(left), min(top), max(right), max(bottom)


def _element(region: _Region, told: _Page, page: int, flags: tuple[str, ...]) -> Element | None:
    """One region; None where it holds nothing to see."""
    kind = _kind(region, told)
    text = _text(region, kind)
    if not text and kind is not Kind.PICTURE:
        return None
    element = Element(
        id="",
        page=page,
        category=kind.category,
        kind=kind,
        native_label=region.label,
        boxes=(Box.of(*region.box, told.width, told.height),),
        text=text,
        markdown=text,
        content_layer=Layer.FURNITURE if kind in FURNITURE or _runs_up_the_side(region, told) else Layer.BODY,
        confidence=_confidence(region, told),
        flags=flags + (("orphan",) if region.label == "orphan" else ()),
    )
    return element.model_copy(update=_details(element, region, told))


def _kind(region: _Region, told: _Page) -> Kind:
    kind = _KINDS.get(region.label, Kind.TEXT)
    if kind is Kind.TABLE and region.table is None:
        kind = Kind.TEXT
    if kind is Kind.PAGE_HEADER and region.box[3] > HEADER_BAND * told.height:
        kind = Kind.TEXT
    if kind is Kind.PAGE_FOOTER and region.box[1] < FOOTER_BAND * told.height:
        kind = Kind.TEXT
    if kind in HEADINGS and _is_prose(prose.flow(_joined(region))):
        kind = Kind.TEXT
    if kind is Kind.TEXT and _PAGE_NUMBER.fullmatch(_joined(region)):
        if region.box[3] < NUMBER_BAND * told.height:
            kind = Kind.PAGE_HEADER
        elif region.box[1] > (1 - NUMBER_BAND) * told.height:
            kind = Kind.PAGE_FOOTER
    if kind is Kind.TEXT and region.lines and all(line.mono for line in region.lines):
        kind = Kind.CODE
    return kind


def _runs_up_the_side(region: _Region, told: _Page) -> bool:
    """A stamp along the paper's edge, such as who fetched the file and when."""
    x0, y0, x1, y1 = region.box
    edge = SIDE_BAND * told.width
    return bool(region.lines) and y1 - y0 > UPRIGHT * (x1 - x0) and (x1 < edge or x0 > told.width - edge)


def _is_prose(text: str) -> bool:
    return len(prose.words(text)) > HEADING_WORDS and bool(_ENDS_SENTENCE.search(text))


def _joined(region: _Region) -> str:
    return "\n".join(line.text for line in region.lines)


def _text(region: _Region, kind: Kind) -> str:
    if kind is Kind.TABLE and region.table:
        return "\n".join(" ".join(prose.flow(cell.text) for cell in row) for row in _rows(region.table)).strip()
    if kind is Kind.CODE:
        return _code(region.lines)
    if kind in (Kind.PICTURE, Kind.FORMULA):
        return _joined(region).strip()
    return prose.flow(_joined(region))


def _rows(table: _Table) -> Iterator[list[Cell]]:
    for row in sorted({cell.row for cell in table.cells}):
        yield [cell for cell in table.cells if cell.row == row and cell.text]


def _code(lines: Sequence[_Line]) -> str:
    """Lines with their indentation, from where they begin and how wide a letter is."""
    left = min(line.box[0] for line in lines)
    widths = [(line.box[2] - line.box[0]) / len(line.text) for line in lines if line.text]
    width = statistics.median(widths) if widths else 0.0
    indents = (round((line.box[0] - left) / width) if width > 0 else 0 for line in lines)
    return "\n".join(" " * min(indent, 80) + line.text for indent, line in zip(indents, lines, strict=True)).rstrip()


def _confidence(region: _Region, told: _Page) -> Confidence:
    if told.via != "ocr":
        return Confidence(score=1.0, method="text_layer")
    scores = [line.score for line in region.lines if line.score is not None]
    return Confidence(score=round(statistics.mean(scores) if scores else told.score, 4), method="ocr")


def _details(element: Element, region: _Region, told: _Page) -> dict[str, Any]:
    """The fields that only this kind has."""
    text = element.text
    if element.kind in HEADINGS:
        level = _level(region, told.body_size) if element.kind is Kind.SECTION_HEADER else 1
        found = sections.number(text)
        return {"level": level, "numbering": found.text if found else None, "markdown": f"{'#' * level} {text}"}
    if element.kind is Kind.LIST_ITEM:
        return {"markdown": text if sections.number(text) else f"- {_BULLET.sub('', text)}"}
    if element.kind is Kind.TABLE and region.table:
        cells = tuple(c.model_copy(update={"text": prose.flow(c.text)}) for c in region.table.cells)
        table = table_grid.table(region.table.rows, region.table.cols, cells)
        return {"table": table, "markdown": table.markdown or table.html}
    if element.kind is Kind.PICTURE:
        return {"figure": Figure(visible_text=text or None), "markdown": text}
    if element.kind is Kind.FORMULA:
        return {"formula": Formula(latex=None)}
    if element.kind is Kind.CODE:
        return {"markdown": f"```\n{text}\n```"}
    return {}


def _size(region: _Region) -> float:
    return max((line.size for line in region.lines), default=0.0)


def _level(region: _Region, body: float) -> int:
    """A hint from the type size; the document's numbering and outline have the last word."""
    ratio = _size(region) / body
    return next((level for least, level in LEVELS if ratio >= least), len(LEVELS) + 1)


def _title(seen: Sequence[tuple[_Region, Element]], body: float) -> _Region | None:
    """Page 1's first heading where it has no number and is set clearly larger than all others."""
    heads = [(region, element) for region, element in seen if element.is_heading]
    if not heads or any(element.kind is Kind.TITLE for _, element in heads):
        return None
    (first, element), others = heads[0], heads[1:]
    rest = max((_size(region) for region, _ in others), default=body)
    return first if element.numbering is None and _size(first) >= TITLE_SIZE * rest > 0 else None


def _as_title(element: Element) -> Element:
    update = {"kind": Kind.TITLE, "category": Kind.TITLE.category, "level": 1, "markdown": f"# {element.text}"}
    return element.model_copy(update=update)


def _with_captions(elements: Sequence[Element]) -> list[Element]:
    """Each caption tied to the nearest table or figure above or below it in its column."""
    owners: dict[str, str] = {}
    for caption in (element for element in elements if element.kind is Kind.CAPTION):
        near = [
            (distance, element.id)
            for element in elements
            if (element.kind is Kind.TABLE or element.kind in FIGURES)
            and (distance := _distance(caption.boxes[0], element.boxes[0])) <= CAPTION_REACH
        ]
        if near:
            owners[caption.id] = min(near)[1]
    tied = []
    for element in elements:
        own = tuple(caption for caption, owner in owners.items() if owner == element.id)
        tied.append(element.model_copy(update={"parent_id": owners.get(element.id), "caption_ids": own}))
    return tied


def _distance(one: Box, other: Box) -> float:
    """White space between two boxes one above the other; out of reach where they stand in different columns."""
    if min(one.x1, other.x1) <= max(one.x0, other.x0):
        return 1.0
    return max(one.y0 - other.y1, other.y0 - one.y1, 0.0)
