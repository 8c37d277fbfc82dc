"""An element of a page: what it is, how it was read, and the table, figure or formula that it can hold."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, NamedTuple

from pydantic import Field, WithJsonSchema

from twopass.document.box import Box, enclose
from twopass.document.flags import Flag
from twopass.values import Value


class Category(StrEnum):
    """The seven categories of the product."""

    TEXT_HEADER = "text_header"
    TEXT_SECTION = "text_section"
    TEXT_PARAGRAPH = "text_paragraph"
    TABLE = "table"
    GRAPH = "graph"
    DIAGRAM = "diagram"
    COMPLEX_IMAGE = "complex_image"


class Kind(StrEnum):
    """What an element is, by docling's labels."""

    TITLE = "title"
    SECTION_HEADER = "section_header"
    TEXT = "text"
    LIST_ITEM = "list_item"
    CAPTION = "caption"
    FOOTNOTE = "footnote"
    PAGE_HEADER = "page_header"
    PAGE_FOOTER = "page_footer"
    TABLE = "table"
    PICTURE = "picture"
    CHART = "chart"
    FORMULA = "formula"
    CODE = "code"

    @property
    def category(self) -> Category:
        return _CATEGORIES.get(self, Category.TEXT_PARAGRAPH)


_CATEGORIES = {
    Kind.TITLE: Category.TEXT_HEADER,
    Kind.SECTION_HEADER: Category.TEXT_SECTION,
    Kind.TABLE: Category.TABLE,
    Kind.CHART: Category.GRAPH,
    Kind.PICTURE: Category.COMPLEX_IMAGE,  # unless pass 2 finds a diagram
}
HEADINGS = frozenset({Kind.TITLE, Kind.SECTION_HEADER})
FIGURES = frozenset({Kind.PICTURE, Kind.CHART})
FURNITURE = frozenset({Kind.PAGE_HEADER, Kind.PAGE_FOOTER})


class Layer(StrEnum):
    """Body is the document's own content; furniture is what pages repeat, such as headers and footers.

    Invisible is text that the file has and nobody can see on the page.
    """

    BODY = "body"
    FURNITURE = "furniture"
    INVISIBLE = "invisible"


class Source(StrEnum):
    """Where an analysis comes from: the model in pass 2, our own rules, or none was made."""

    MODEL = "model"
    DERIVED = "derived"
    NONE = "none"


class TextLink(Value):
    """Characters [start, end) of a text are a link to the web, or to a mailbox; all of it where both are null."""

    uri: str
    start: int | None = None
    end: int | None = None


class Cell(Value):
    """One table cell; row and col count from 0."""

    row: int
    col: int
    row_span: int = 1
    col_span: int = 1
    text: str = ""
    header: bool = False
    links: tuple[TextLink, ...] = ()


class Table(Value):
    html: str
    markdown: str | None = Field(None, description="GFM; null when cells span, which GFM cannot express")
    rows: int
    cols: int
    cells: tuple[Cell, ...]
    complexity: str = Field("simple", description="simple | complex (over 30 % spanning cells or irregular)")


class Axis(Value):
    label: str | None = None
    unit: str | None = None


class Component(Value):
    id: str
    label: str


class Connection(Value):
    source: str
    target: str
    label: str | None = None


class Figure(Value):
    """What is known about a picture, chart or diagram; null where the model did not say.

    `axes`, `legend` and `trends` were derived from the data if the element has the flag `derived_axes` and so on.
    """

    type: str | None = None
    description: str | None = None
    data: Table | None = None
    axes: tuple[Axis, ...] = ()
    legend: tuple[str, ...] = ()
    trends: tuple[str, ...] = Field((), description="derived ones are of the form `Rain: 610 (2021) ↘ 480 (2024)`")
    components: tuple[Component, ...] = ()
    connections: tuple[Connection, ...] = ()
    mermaid: str | None = None
    smiles: str | None = None
    visible_text: str | None = None
    underlying_type: str | None = None
    reasons: tuple[str, ...] = ()


class Formula(Value):
    latex: str | None = Field(None, description="null when the model gave no LaTeX; use the element's text instead")


class Analysis(Value):
    source: Source = Source.NONE
    prompt: str | None = None


class ConfidenceMethod(StrEnum):
    """How a confidence was determined; docs/docjson.md says what each means."""

    sentence: str  # about a low one

    TEXT_LAYER = "text_layer", "The PDF's own text was not compared with its picture: {percent} % certain."
    CHECKED_LAYER = "checked_layer", "Compared with its picture, the PDF's own text is {percent} % certain."
    HIDDEN_LAYER = "hidden_layer", "The invisible text of a scan, never checked: {percent} % certain."
    UNKNOWN_LAYER = "unknown_layer", "The PDF's own text was used and not checked: {percent} % certain."
    OCR = "ocr", "The text recognition was {percent} % certain."
    LOST_STRUCTURE = "lost_structure", "The text of a formula without its structure: {percent} % certain."
    MIXED_ORDER = "mixed_order", "Its columns may be mixed: {percent} % certain."
    FOUND_IN_LAYER = "found_in_layer", "{percent} % of the words are in the PDF's own text."
    AGREEMENT = "agreement", "The two readings agree to {percent} %."
    LOGPROB = "logprob", "The model was {percent} % certain of its words."

    def __new__(cls, value: str, sentence: str) -> ConfidenceMethod:
        method = str.__new__(cls, value)
        method._value_, method.sentence = value, sentence
        return method


class Confidence(Value):
    """From 0 to 1: how much of an element's text is likely to be right, and how this was determined."""

    score: float
    method: ConfidenceMethod

    @property
    def sentence(self) -> str:
        """How certain the reading is, in per cent, never rounded up to a limit."""
        return self.method.sentence.format(percent=int(round(self.score * 100, 2)))


class Span(NamedTuple):
    """Characters [start, end) of document.md."""

    start: int
    end: int


class Element(Value):
    """One thing on a page. `id` never changes; `order` is its position in the document's reading order."""

    id: str
    page: int
    order: int = 0
    category: Category
    kind: Kind
    native_label: str | None = Field(None, description="the label the model used")
    boxes: tuple[Box, ...] = ()
    text: str = ""
    markdown: str = ""
    links: tuple[TextLink, ...] = Field((), description="of the text; those of a table's texts are in its cells")
    md_span: Span | None = None
    level: int | None = Field(None, description="heading level from 1; null on everything else")
    numbering: str | None = None
    content_layer: Layer = Layer.BODY
    parent_id: str | None = None
    caption_ids: tuple[str, ...] = ()
    continues: str | None = None
    continued_by: str | None = None
    table: Table | None = None
    figure: Figure | None = None
    formula: Formula | None = None
    keywords: tuple[str, ...] = ()
    summary: str | None = None
    context: str | None = Field(None, description="nearby text of the same page, for tables and figures")
    analysis: Analysis = Analysis()
    confidence: Confidence | None = None
    read_by: int = Field(1, ge=1, le=2, description="the pass whose answer was kept")
    flags: tuple[Annotated[Flag, WithJsonSchema({"type": "string"})], ...] = ()  # later versions have other flags
    image: str | None = Field(None, description="path of the crop below the document's folder")

    @property
    def box(self) -> Box | None:
        """The smallest box around all boxes; None when the engine gave none."""
        return enclose(self.boxes) if self.boxes else None

    @property
    def texts(self) -> tuple[str, ...]:
        """Its texts, each word once: the text of a table repeats that of its cells."""
        return tuple(cell.text for cell in self.table.cells) if self.table else (self.text,)

    @property
    def is_body(self) -> bool:
        return self.content_layer is Layer.BODY

    @property
    def is_hidden(self) -> bool:
        return self.content_layer is Layer.INVISIBLE

    @property
    def is_heading(self) -> bool:
        return self.kind in HEADINGS

    @property
    def is_figure(self) -> bool:
        return self.kind in FIGURES

    @property
    def needs_reading(self) -> bool:
        """Whether pass 1 left it to pass 2, because it is not read or doubtful."""
        return not {Flag.DOUBTFUL, Flag.UNREAD_REGION}.isdisjoint(self.flags)

    @property
    def is_unread_ink(self) -> bool:
        """Whether it is only known that there is text."""
        return Flag.MISSED in self.flags and not self.text and self.table is None

    def with_flags(self, *flags: Flag) -> Element:
        """The element with these flags, each of them once."""
        return self.model_copy(update={"flags": tuple(dict.fromkeys((*self.flags, *flags)))})

    def without_flag(self, flag: Flag) -> Element:
        return self.model_copy(update={"flags": tuple(one for one in self.flags if one != flag)})


def make_element_id(page: int, index: int) -> str:
    return f"p{page:04d}-e{index:03d}"
