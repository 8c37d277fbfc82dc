"""Small builders of elements, pages and documents, and hypothesis strategies for all of them."""

from __future__ import annotations

import string
from typing import Any

from hypothesis import strategies as st

from twopass.document import (
    Box,
    Cell,
    Checkpoint,
    Document,
    Element,
    Figure,
    Formula,
    Kind,
    Layer,
    Link,
    Meta,
    OutlineEntry,
    Page,
    PageImage,
    Problem,
    Run,
    Section,
    SourceInfo,
    State,
    Status,
    Table,
    make_element_id,
)
from twopass.errors import Code
from twopass.steps import assemble

SOURCE = SourceInfo(uri="s3://bucket/paper.pdf", sha256="0" * 64, bytes=1, mime="application/pdf", page_count=1)
RUN = Run(options={})
MIDDLE = Box(0.1, 0.4, 0.9, 0.5)
TOP = Box(0.1, 0.03, 0.9, 0.05)
BOTTOM = Box(0.1, 0.95, 0.9, 0.97)


def element(kind: str, text: str = "", box: Box | None = MIDDLE, **fields: Any) -> Element:
    """An element whose page, and id unless given, are set by the checkpoint it is put into."""
    fields = {"id": "", "page": 1, **fields}
    boxes = (box,) if box else ()
    return Element(kind=Kind(kind), category=Kind(kind).category, text=text, boxes=boxes, **fields)


def checkpoint(number: int, *elements: Element, state: State = State.READ, **fields: Any) -> Checkpoint:
    page = Page(number=number, width_pt=595, height_pt=842, state=state, **fields)
    numbered = (
        e.model_copy(update={"page": number, "id": e.id or make_element_id(number, n)}) for n, e in enumerate(elements)
    )
    return Checkpoint(page=page, elements=tuple(numbered))


def build_document(
    *checkpoints: Checkpoint, outline: tuple[OutlineEntry, ...] = (), title: str | None = None
) -> Document:
    return assemble.document(SOURCE, Meta(title=title, outline=outline), RUN, "paper-0123456789ab", checkpoints)


def plain_table(*rows: list[str], header: bool = False) -> Table:
    """A table without spanning cells."""
    cells = [
        Cell(row=r, col=c, text=text, header=header and r == 0)
        for r, row in enumerate(rows)
        for c, text in enumerate(row)
    ]
    return Table(html="", rows=len(rows), cols=max(len(row) for row in rows), cells=tuple(cells))


def heading(text: str, **fields: int) -> Element:
    return element("section_header", text, **fields)


def describe_tree(sections: tuple[Section, ...]) -> list[object]:
    """Number, title and subsections of each section, for comparison."""
    return [(section.number, section.title, describe_tree(section.children)) for section in sections]


def flatten_sections(sections: tuple[Section, ...]) -> list[Section]:
    """All sections of a tree in document order."""
    return [one for section in sections for one in (section, *flatten_sections(section.children))]


# Words in three scripts, and every character with a meaning in Markdown or JSON.
WORDS = [
    "the",
    "Water",
    "mea-",
    "surement",
    "3.5",
    "1.",
    "2)",
    "한국어",
    "요약은",
    "中文",
    "摘要。",
    "don't",
    "a_b",
    "naïve",
]
SPECIAL_TEXTS = [
    *string.punctuation,
    "•",
    "–",
    "\\(x_1\\)",
    "<b>",
    "<!--",
    "-->",
    "&lt;",
    "http://a.b/c_d",
    "---",
    "##",
    "\n",
    "$$",
]
texts = st.lists(st.sampled_from([*WORDS, *SPECIAL_TEXTS]), max_size=12).map(" ".join)
any_texts = st.one_of(texts, st.text(st.characters(exclude_categories=("Cs",)), max_size=40))
fractions = st.integers(0, 1000).map(lambda n: n / 1000)
boxes = st.builds(Box.of, fractions, fractions, fractions, fractions)
numbers = st.integers(1, 6)
maybe_texts = st.none() | any_texts
cells = st.builds(
    Cell,
    row=st.integers(0, 3),
    col=st.integers(0, 3),
    row_span=st.sampled_from([1, 1, 1, 2]),
    col_span=st.sampled_from([1, 1, 1, 2]),
    text=texts,
    header=st.booleans(),
)
tables = st.builds(
    Table, html=texts, rows=st.integers(0, 4), cols=st.integers(0, 4), cells=st.lists(cells, max_size=6).map(tuple)
)
figures = st.builds(
    Figure, description=maybe_texts, visible_text=maybe_texts, data=st.none() | tables, mermaid=maybe_texts
)
ids = st.builds(make_element_id, numbers, st.integers(0, 4))


# Strategies of single fields are made once: making them for each draw took more than half of its time.
_kinds = st.sampled_from(list(Kind))
_markdowns = st.just("") | texts
_some_boxes = st.lists(boxes, max_size=2).map(tuple)
_levels = st.none() | numbers
_maybe_ids = st.none() | ids
_some_ids = st.lists(ids, max_size=2).map(tuple)
_layers = st.sampled_from([Layer.BODY, Layer.BODY, Layer.FURNITURE])
_maybe_figures = st.none() | figures
_maybe_formulas = st.none() | st.builds(Formula, latex=maybe_texts)
_some_texts = st.lists(texts, max_size=2).map(tuple)
_maybe_images = st.none() | st.just("images/a.png")


@st.composite
def elements(draw: st.DrawFn, number: int, index: int) -> Element:
    """Any element with this page and index; its text and its links to other elements may be anything."""
    kind = draw(_kinds)
    return Element(
        id=make_element_id(number, index),
        page=number,
        kind=kind,
        category=kind.category,
        text=draw(texts),
        markdown=draw(_markdowns),
        boxes=draw(_some_boxes),
        level=draw(_levels),
        parent_id=draw(_maybe_ids) if kind is not Kind.FOOTNOTE else None,
        caption_ids=draw(_some_ids),
        continues=draw(_maybe_ids),
        continued_by=draw(_maybe_ids),
        content_layer=draw(_layers),
        table=draw(tables) if kind is Kind.TABLE else None,
        figure=draw(_maybe_figures) if kind in (Kind.PICTURE, Kind.CHART) else None,
        formula=draw(_maybe_formulas) if kind is Kind.FORMULA else None,
        keywords=draw(_some_texts),
        image=draw(_maybe_images),
    )


_sides = st.floats(1, 9000)
_states = st.sampled_from(list(State))
_codes = st.sampled_from(list(Code))
_reasons = st.none() | _codes
_page_images = st.none() | st.builds(PageImage, width_px=numbers, height_px=numbers, dpi=st.floats(36, 600))
_languages = st.none() | st.sampled_from(["en", "ko", "zh"])
_links = st.lists(st.builds(Link, box=boxes, uri=any_texts), max_size=1).map(tuple)
_counts = st.integers(0, 4)
_problems = st.lists(st.builds(Problem, code=_codes, message=any_texts), max_size=1).map(tuple)


@st.composite
def checkpoints(draw: st.DrawFn, number: int) -> Checkpoint:
    page = Page(
        number=number,
        width_pt=draw(_sides),
        height_pt=draw(_sides),
        state=draw(_states),
        reason=draw(_reasons),
        image=draw(_page_images),
        language=draw(_languages),
        links=draw(_links),
    )
    page_elements = tuple(draw(elements(number, index)) for index in range(draw(_counts)))
    return Checkpoint(page=page, elements=page_elements, problems=draw(_problems))


entries = st.builds(OutlineEntry, level=numbers, title=texts, page=st.none() | numbers)
metas = st.builds(Meta, title=maybe_texts, outline=st.lists(entries, max_size=4).map(tuple))
checkpoint_lists = st.lists(numbers, unique=True, max_size=4).flatmap(
    lambda n: st.tuples(*(checkpoints(page) for page in n))
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | any_texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(any_texts, inner, max_size=2),
    max_leaves=4,
)
sections = st.recursive(
    st.builds(Section, id=any_texts, title=any_texts, level=numbers),
    lambda inner: st.builds(
        Section, id=any_texts, title=any_texts, level=numbers, children=st.lists(inner, max_size=2).map(tuple)
    ),
    max_leaves=4,
)
_options = st.dictionaries(any_texts, json_values, max_size=2)
_statuses = st.sampled_from(list(Status))
_trees = st.lists(sections, max_size=2).map(tuple)


@st.composite
def documents(draw: st.DrawFn) -> Document:
    """Any document, also one that assemble could not have made."""
    pages = sorted(draw(checkpoint_lists), key=lambda checkpoint: checkpoint.page.number)
    return Document(
        id=draw(any_texts),
        source=SOURCE.model_copy(update={"uri": draw(any_texts)}),
        meta=draw(metas),
        run=Run(options=draw(_options)),
        status=draw(_statuses),
        pages=tuple(checkpoint.page for checkpoint in pages),
        elements=tuple(element for checkpoint in pages for element in checkpoint.elements),
        sections=draw(_trees),
        problems=tuple(problem for checkpoint in pages for problem in checkpoint.problems),
    )
