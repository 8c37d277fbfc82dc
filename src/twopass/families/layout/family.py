"""The layout family: parse the JSON of the CPU engine into the elements of a page."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from twopass.document import Element, Flag, Kind, RungName, make_element_id
from twopass.errors import Code
from twopass.families import word_account
from twopass.families.interface import Family, PageFeatures, PageRequest, ParsedPage, Rung
from twopass.families.layout.elements import build_elements
from twopass.families.layout.page_layout import PageLayout
from twopass.families.word_account import WordAccount
from twopass.pages.text_layer import NO_LAYER, TextLayer

_PROMPT = "layout"
_TEXT = re.compile(r'"text":\s*"((?:[^"\\]|\\.)*)"')  # of a line or a cell
_LADDER = (Rung(RungName.NORMAL, _PROMPT),)
_MODES = frozenset({"auto", "tiny", "small", "base", "large", "gundam"})


@dataclass(frozen=True)
class LayoutFamily(Family):
    """PyMuPDF's layout model with the text of the PDF or of OCR."""

    name: str = "layout"
    revision: str = "pymupdf-layout-2.0+rapidocr-3.10"

    @property
    def prompts(self) -> Mapping[str, str]:
        return MappingProxyType({"page": _PROMPT})

    @property
    def canary(self) -> None:
        """None: the models are part of the wheels, and no GPU driver can break them."""

    @property
    def modes(self) -> frozenset[str]:
        """Every mode: the engine has no vision tokens, so modes make no difference."""
        return _MODES

    def ladder(self, features: PageFeatures, request: PageRequest) -> tuple[Rung, ...]:
        """One attempt: the engine takes no prompts, and its answers do not vary."""
        return _LADDER

    def parse(self, text: str, page: int, rung: Rung = _LADDER[0], layer: TextLayer = NO_LAYER) -> ParsedPage:
        try:
            layout = PageLayout.model_validate(json.loads(text, parse_constant=_reject_constant))
        except (ValueError, ValidationError, RecursionError):
            return _keep_unparsed(text, page)
        reason = Code.UNREADABLE_SCRIPT if layout.unreadable_script else None
        return ParsedPage(build_elements(layout, page), reason, layout.flags, layout.via)

    def account(self, text: str, elements: Sequence[Element]) -> WordAccount:
        texts = (json.loads(f'"{found}"') for found in _TEXT.findall(text))
        words = [word for one in texts for word in word_account.list_words(one)]
        return word_account.compare(words, elements)


def _reject_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _keep_unparsed(text: str, page: int) -> ParsedPage:
    """Keep text that does not follow the grammar as one flagged element, so that nothing is hidden."""
    text = text.encode("utf-8", "replace").decode()
    if not text.strip():
        return ParsedPage()
    element = Element(
        id=make_element_id(page, 0),
        page=page,
        category=Kind.TEXT.category,
        kind=Kind.TEXT,
        text=text,
        markdown=text,
        flags=(Flag.UNPARSED,),
    )
    return ParsedPage((element,), Code.UNGROUNDED, (Flag.UNPARSED,))
