"""A family that the package does not know: an imaginary model whose answers have a line for each block of a page.

    kind x0 y0 x1 y1 text

The numbers are per cent of the page. Asked about a crop, the model answers with its words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from twopass.document import Box, Element, Flag, Kind, RungName, make_element_id
from twopass.families import table_parser, text_layer_check
from twopass.families.interface import (
    CanaryQuestion,
    ElementContext,
    Family,
    PageFeatures,
    PageRequest,
    ParsedPage,
    Question,
    Reply,
    Rung,
)
from twopass.pages.text_layer import NO_LAYER, TextLayer
from twopass.text import table_markup

PROMPTS = {"page": "List the lines.", "crop": "Read it."}
_LINE = re.compile(r"^(\w+) ([\d.]+) ([\d.]+) ([\d.]+) ([\d.]+) (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class LinesFamily(Family):
    """Reads pages at once, and formulas and doubtful text again."""

    name: str = "lines_ocr"
    revision: str = "1"

    @property
    def prompts(self) -> Mapping[str, str]:
        return MappingProxyType(PROMPTS)

    @property
    def sampling(self) -> Mapping[str, Any]:
        return MappingProxyType({"ngram": 0, "max_tokens": 2000})

    @property
    def canary(self) -> CanaryQuestion:
        return CanaryQuestion("text", PROMPTS["crop"], "auto")

    def ladder(self, features: PageFeatures, request: PageRequest) -> tuple[Rung, ...]:
        normal = Rung(RungName.NORMAL, PROMPTS["page"])
        return normal, Rung(RungName.AGAIN, PROMPTS["page"], sampling={"temperature": 0.2})

    def parse(self, text: str, page: int, rung: Rung, layer: TextLayer = NO_LAYER) -> ParsedPage:
        elements = [_build(found, make_element_id(page, n), page) for n, found in enumerate(_LINE.finditer(text))]
        return ParsedPage(text_layer_check.check_elements(elements, layer))

    def next_question(self, context: ElementContext) -> Question | None:
        element = context.element
        is_wanted = context.ask_all or element.kind is Kind.FORMULA or Flag.DOUBTFUL in element.flags
        return Question("text", PROMPTS["crop"]) if is_wanted and not context.replies else None

    def apply_replies(self, element: Element, replies: Sequence[Reply]) -> Element:
        text = replies[-1].text if replies else ""
        return _with_text(element, text).model_copy(update={"read_by": 2}) if text else element


def _build(found: re.Match[str], element_id: str, page: int) -> Element:
    kind = Kind(found[1]) if found[1] in list(Kind) else Kind.TEXT
    box = Box.of(*(float(number) for number in found.group(2, 3, 4, 5)), 100, 100)
    return _with_text(Element(id=element_id, page=page, category=kind.category, kind=kind, boxes=(box,)), found[6])


def _with_text(element: Element, text: str) -> Element:
    parts = table_parser.split_tables(text)
    if table := next((part.table for part in parts if part.table), None):
        text = table_markup.to_text(table)
        return element.model_copy(update={"text": text, "table": table, "markdown": table.markdown or table.html})
    return element.model_copy(update={"text": text, "markdown": text})
