"""The 25 labels of PP-DocLayoutV3, and what each becomes in a document."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from twopass.document import FURNITURE, Kind, Layer


class Label(StrEnum):
    """The labels in the order of the model's class ids, from 0."""

    ABSTRACT = "abstract"
    ALGORITHM = "algorithm"
    ASIDE_TEXT = "aside_text"
    CHART = "chart"
    CONTENT = "content"
    DISPLAY_FORMULA = "display_formula"
    DOC_TITLE = "doc_title"
    FIGURE_TITLE = "figure_title"
    FOOTER = "footer"
    FOOTER_IMAGE = "footer_image"
    FOOTNOTE = "footnote"
    FORMULA_NUMBER = "formula_number"
    HEADER = "header"
    HEADER_IMAGE = "header_image"
    IMAGE = "image"
    INLINE_FORMULA = "inline_formula"
    NUMBER = "number"
    PARAGRAPH_TITLE = "paragraph_title"
    REFERENCE = "reference"
    REFERENCE_CONTENT = "reference_content"
    SEAL = "seal"
    TABLE = "table"
    TEXT = "text"
    VERTICAL_TEXT = "vertical_text"
    VISION_FOOTNOTE = "vision_footnote"


LABELS = tuple(Label)


class Rule(NamedTuple):
    """What regions of a label become. `is_furniture` marks what pages repeat, beyond the kinds that always are."""

    kind: Kind
    is_furniture: bool = False

    @property
    def layer(self) -> Layer:
        return Layer.FURNITURE if self.is_furniture or self.kind in FURNITURE else Layer.BODY


RULES: Mapping[Label, Rule] = MappingProxyType(
    {
        Label.ABSTRACT: Rule(Kind.TEXT),
        Label.ALGORITHM: Rule(Kind.CODE),
        Label.ASIDE_TEXT: Rule(Kind.TEXT),
        Label.CHART: Rule(Kind.CHART),
        Label.CONTENT: Rule(Kind.TEXT),  # a table of contents
        Label.DISPLAY_FORMULA: Rule(Kind.FORMULA),
        Label.DOC_TITLE: Rule(Kind.TITLE),
        Label.FIGURE_TITLE: Rule(Kind.CAPTION),  # of tables, too
        Label.FOOTER: Rule(Kind.PAGE_FOOTER),
        Label.FOOTER_IMAGE: Rule(Kind.PICTURE, is_furniture=True),
        Label.FOOTNOTE: Rule(Kind.FOOTNOTE),
        Label.FORMULA_NUMBER: Rule(Kind.TEXT),  # unless it is merged into its formula
        Label.HEADER: Rule(Kind.PAGE_HEADER),
        Label.HEADER_IMAGE: Rule(Kind.PICTURE, is_furniture=True),
        Label.IMAGE: Rule(Kind.PICTURE),
        Label.INLINE_FORMULA: Rule(Kind.FORMULA),
        Label.NUMBER: Rule(Kind.PAGE_FOOTER),  # of the page
        Label.PARAGRAPH_TITLE: Rule(Kind.SECTION_HEADER),
        Label.REFERENCE: Rule(Kind.TEXT),
        Label.REFERENCE_CONTENT: Rule(Kind.TEXT),
        Label.SEAL: Rule(Kind.PICTURE),
        Label.TABLE: Rule(Kind.TABLE),
        Label.TEXT: Rule(Kind.TEXT),
        Label.VERTICAL_TEXT: Rule(Kind.TEXT),
        Label.VISION_FOOTNOTE: Rule(Kind.FOOTNOTE),  # below a table or figure
    }
)
