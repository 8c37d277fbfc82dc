"""Document, Page, Element, Box, Section, Checkpoint: frozen values whose fields are DocJSON's fields.

The page is the page as displayed: after CropBox, /Rotate and `rotation_applied`. Boxes are
fractions 0..1 of that page with the origin at the top left. Knows nothing of engines or files.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from twopass.errors import Code

SCHEMA = "docjson-1.0"
PLACES = 5  # decimals of a box: a hundredth of a pixel on a 1,000-pixel page, and stable bytes


class Value(BaseModel):
    """Frozen, closed, compared by content."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Box(NamedTuple):
    """Fractions of the page: left, top, right, bottom."""

    x0: float
    y0: float
    x1: float
    y1: float

    @classmethod
    def of(cls, x0: float, y0: float, x1: float, y1: float, width: float = 1, height: float = 1) -> Box:
        """Scale by the page's size, put the corners in order, clip to the page, round."""
        xs, ys = sorted((x0 / width, x1 / width)), sorted((y0 / height, y1 / height))
        return cls(*(round(min(max(v, 0.0), 1.0), PLACES) for v in (xs[0], ys[0], xs[1], ys[1])))

    @classmethod
    def from_grid(cls, x0: int, y0: int, x1: int, y1: int, grid: int) -> Box:
        """From whole numbers 0..grid inclusive."""
        return cls.of(x0, y0, x1, y1, grid, grid)

    def to_grid(self, grid: int) -> tuple[int, int, int, int]:
        """To whole numbers 0..grid inclusive."""
        x0, y0, x1, y1 = (round(v * grid) for v in self)
        return x0, y0, x1, y1

    def to_pixels(self, width: int, height: int, padding: int = 0) -> tuple[int, int, int, int]:
        """To pixels of an image of this size, grown by `padding`, clipped, never degenerate."""
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
        """Area shared with another box."""
        width = min(self.x1, other.x1) - max(self.x0, other.x0)
        height = min(self.y1, other.y1) - max(self.y0, other.y0)
        return max(width, 0.0) * max(height, 0.0)

    def union(self, other: Box) -> Box:
        return Box(min(self.x0, other.x0), min(self.y0, other.y0), max(self.x1, other.x1), max(self.y1, other.y1))


class Word(NamedTuple):
    """One word of a page's text layer."""

    box: Box
    text: str


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
    """What an element is, in docling's words."""

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
        return _CATEGORY.get(self, Category.TEXT_PARAGRAPH)


_CATEGORY = {
    Kind.TITLE: Category.TEXT_HEADER,
    Kind.SECTION_HEADER: Category.TEXT_SECTION,
    Kind.TABLE: Category.TABLE,
    Kind.CHART: Category.GRAPH,
    Kind.PICTURE: Category.COMPLEX_IMAGE,  # until pass 2 decides for a diagram
}
HEADINGS = frozenset({Kind.TITLE, Kind.SECTION_HEADER})
FIGURES = frozenset({Kind.PICTURE, Kind.CHART})
FURNITURE = frozenset({Kind.PAGE_HEADER, Kind.PAGE_FOOTER})


class Layer(StrEnum):
    """Body is what the document says; furniture is what every page repeats."""

    BODY = "body"
    FURNITURE = "furniture"


class Source(StrEnum):
    """Who analysed an element: the model in pass 2, our own rules, or nobody."""

    MODEL = "model"
    DERIVED = "derived"
    NONE = "none"


class State(StrEnum):
    """How a selected page ended; exactly one."""

    READ = "read"
    REPAIRED = "repaired"
    TEXT_LAYER = "text_layer"
    BLANK = "blank"
    FAILED = "failed"
    UNREAD = "unread"


LOST = frozenset({State.FAILED, State.UNREAD})
# Of a page worker or an engine's core: another try may end better.
ACCIDENTS = frozenset({Code.RENDER_CRASH, Code.RENDER_TIMEOUT, Code.RENDER_MEMORY, Code.ENGINE_CRASH})


class Status(StrEnum):
    """How a document or a job ended."""

    SUCCESS = "success"
    PARTIAL_SUCCESS = "partial_success"
    FAILURE = "failure"


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


class Problem(Value):
    """One thing that went wrong, for the person who acts on it."""

    code: Code
    severity: Severity = Severity.ERROR
    document: str | None = None
    page: int | None = None
    message: str


class Cell(Value):
    """One table cell; row and col count from 0."""

    row: int
    col: int
    row_span: int = 1
    col_span: int = 1
    text: str = ""
    header: bool = False


class Table(Value):
    html: str
    markdown: str | None = Field(None, description="GFM; null when cells span and GFM cannot say it")
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
    """What is known about a picture, chart or diagram; null where nobody said."""

    type: str | None = None
    description: str | None = None
    data: Table | None = None
    axes: tuple[Axis, ...] = ()
    legend: tuple[str, ...] = ()
    trends: tuple[str, ...] = ()
    components: tuple[Component, ...] = ()
    connections: tuple[Connection, ...] = ()
    mermaid: str | None = None
    smiles: str | None = None
    visible_text: str | None = None
    underlying_type: str | None = None
    reasons: tuple[str, ...] = ()


class Formula(Value):
    latex: str | None = Field(None, description="null when the reader gave no LaTeX; the element's text stands for it")


class Analysis(Value):
    source: Source = Source.NONE
    prompt: str | None = None


class Confidence(Value):
    score: float
    method: str


class Span(NamedTuple):
    """Characters [start, end) of document.md."""

    start: int
    end: int


class Element(Value):
    """One thing on a page. `id` never changes; `order` is its place in the document's reading order."""

    id: str
    page: int
    order: int = 0
    category: Category
    kind: Kind
    native_label: str | None = Field(None, description="the label the model used")
    boxes: tuple[Box, ...] = ()
    text: str = ""
    markdown: str = ""
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
    read_by: int = Field(1, ge=1, le=2, description="the pass whose answer stands")
    flags: tuple[str, ...] = ()
    image: str | None = Field(None, description="path of the crop below the document's folder")

    @property
    def box(self) -> Box | None:
        """The box around all boxes; None when the reader gave none."""
        if not self.boxes:
            return None
        whole = self.boxes[0]
        for box in self.boxes[1:]:
            whole = whole.union(box)
        return whole

    @property
    def is_body(self) -> bool:
        return self.content_layer is Layer.BODY

    @property
    def is_heading(self) -> bool:
        return self.kind in HEADINGS

    @property
    def is_figure(self) -> bool:
        return self.kind in FIGURES


def element_id(page: int, index: int) -> str:
    return f"p{page:04d}-e{index:03d}"


class Attempt(Value):
    """One try at reading a page."""

    rung: str
    mode: str | None = None
    finish_reason: str | None = None
    reason: Code | None = None


class PageImage(Value):
    width_px: int
    height_px: int
    dpi: float


class Link(Value):
    box: Box
    uri: str


class Page(Value):
    """One page as displayed. `number` counts from 1 in the source and is never renumbered."""

    number: int
    width_pt: float
    height_pt: float
    rotation_in: int = 0
    rotation_applied: int = 0
    image: PageImage | None = None
    mode: str | None = Field(None, description="the mode whose answer stands; null where no model read the page")
    state: State
    reason: Code | None = None
    attempts: tuple[Attempt, ...] = ()
    language: str | None = None
    links: tuple[Link, ...] = ()

    @property
    def is_lost(self) -> bool:
        return self.state in LOST

    @property
    def is_accident(self) -> bool:
        """Lost with its worker and not to what it is; never checkpointed, so that the next job tries it again."""
        return self.state is State.FAILED and self.reason in ACCIDENTS


class RawCompletion(Value):
    """What the engine answered, word for word; enough to read the page again without an engine."""

    prompt_id: str
    prompt: str
    text: str
    finish_reason: str
    tokens_in: int = 0
    tokens_out: int = 0


class Canary(StrEnum):
    """Whether the engine had to read a known picture before it read a page."""

    PASSED = "passed"
    OFF = "off"


class ReadFrom(Value):
    """Where a worker had the source from. The document takes its first page's, so that two workers with two
    URIs of one file write equal bytes."""

    uri: str
    etag: str | None = None


class Checkpoint(Value):
    """One finished page: `pages/NNNN.json`. Only `cost` holds clocks, hosts and nonces."""

    page: Page
    read_from: ReadFrom | None = None
    canary: Canary | None = Field(None, description="of the engine that read the page; null when it needs none")
    elements: tuple[Element, ...] = ()
    completions: tuple[RawCompletion, ...] = ()
    problems: tuple[Problem, ...] = ()
    cost: dict[str, Any] = Field(default_factory=dict)

    @property
    def without_completions(self) -> Checkpoint:
        """What assembly needs; the raw answers stay in the store and out of memory."""
        return self.model_copy(update={"completions": ()})


class Section(Value):
    """One node of the section tree; `path` holds the titles from the root to here."""

    id: str
    number: str | None = None
    title: str
    level: int
    path: tuple[str, ...] = ()
    element_ids: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    summary: str | None = None
    analysis: Analysis = Analysis()
    children: tuple[Section, ...] = ()


class SourceInfo(Value):
    uri: str = Field(description="without query and user info")
    etag: str | None = None
    sha256: str
    bytes: int
    mime: str
    page_count: int


class OutlineEntry(Value):
    level: int
    title: str
    page: int | None = None


class Meta(Value):
    """What the file says about itself; null when it does not."""

    title: str | None = None
    author: str | None = None
    subject: str | None = None
    date: str | None = None
    language: str | None = None
    document_type: str | None = None
    outline: tuple[OutlineEntry, ...] = ()


class Run(Value):
    """How the document was read."""

    options: dict[str, Any]
    prompts: dict[str, str] = Field(default_factory=dict)
    canary: Canary | None = Field(None, description="off when any page's engine had none; null when it needs none")


class Document(Value):
    """A read document: DocJSON 1.0."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        title="DocJSON 1.0",
        serialize_by_alias=True,
        validate_by_name=True,
        validate_by_alias=True,
    )

    schema_: str = Field(SCHEMA, alias="schema")
    id: str
    source: SourceInfo
    meta: Meta = Meta()
    run: Run
    status: Status
    pages: tuple[Page, ...] = ()
    elements: tuple[Element, ...] = ()
    sections: tuple[Section, ...] = ()
    problems: tuple[Problem, ...] = ()


def canary_of(pages: Sequence[Checkpoint]) -> Canary | None:
    """The document's: a function of the checkpoints, whoever assembles them; one page read without it tells."""
    found = {page.canary for page in pages}
    return next((verdict for verdict in (Canary.OFF, Canary.PASSED) if verdict in found), None)


def status_of(pages: tuple[Page, ...], problems: tuple[Problem, ...] = ()) -> Status:
    """success = no lost page and no error; failure = nothing usable; else partial_success."""
    lost = sum(page.is_lost for page in pages)
    if lost == len(pages):
        return Status.FAILURE
    if lost or any(problem.severity is Severity.ERROR for problem in problems):
        return Status.PARTIAL_SUCCESS
    return Status.SUCCESS
