"""document.md: nothing lost, nothing misread, every page marked."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.fakes.documents import BOTTOM, MIDDLE, assembled, checkpoint, documents, element, grid, tables, texts
from twopass.document import Cell, Document, Element, Figure, Formula, Kind, State, Table
from twopass.errors import Code
from twopass.formats import escaping, markdown
from twopass.text import prose
from twopass.text import table_grid as layout_grid

COMMONMARK = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def written(*elements: Element) -> str:
    """The page's markdown without its mark."""
    return markdown.write(assembled(checkpoint(1, *elements)))[0].removeprefix("<!-- page: 1 -->\n\n").rstrip("\n")


def said(element: Element) -> str:
    """What must be found again; a formula's words are its LaTeX where it has any."""
    if element.kind is Kind.FORMULA and element.formula and element.formula.latex:
        return element.formula.latex
    parts = [element.text, *(cell.text for cell in (element.table.cells if element.table else ()))]
    if element.figure:
        parts += [element.figure.visible_text or "", element.figure.description or ""]
    return "\n".join(parts)


@settings(max_examples=150)
@given(documents())
def test_every_word_of_every_body_element_is_in_the_markdown(document: Document) -> None:
    """But for broken words, which are whole again."""
    text = markdown.write(document)[0]
    have = set(prose.words(text))
    body = [element for element in document.elements if element.is_body]
    broken = "".join(prose.words("".join(element.text for element in body)))

    lost = {word for element in body for word in prose.words(said(element))} - have

    whole = "".join(prose.words(text))
    assert all(word in whole and word in broken for word in lost)


def test_a_broken_word_ends_with_its_text() -> None:
    """What is written in a picture does not go on with it."""
    picture = element("picture", "the mea-", figure=Figure(visible_text="b and\nso"))

    assert written(picture) == "the mea- b and so"


@settings(max_examples=150)
@given(documents())
def test_pages_and_elements_keep_their_order(document: Document) -> None:
    """Each page's mark stands once, in order, and spans lie behind each other but for what runs on."""
    text, spans = markdown.write(document)
    marks = [int(n) for n in re.findall(r"^<!-- page: (\d+) -->$", text, flags=re.MULTILINE)]
    placed = sorted(spans.values())

    assert marks == sorted(page.number for page in document.pages)
    assert all(first.end <= second.start for first, second in zip(placed, placed[1:], strict=False))
    assert text.endswith("\n") and not text.endswith("\n\n") and "\n\n\n" not in text


@settings(max_examples=300)
@given(texts)
def test_a_paragraph_reads_as_it_was_written(text: str) -> None:
    """A Markdown reader shows exactly the element's text, whatever characters it has."""
    text = re.sub(r"\\[()\[\]]", "", text).replace("http", "")

    tokens = COMMONMARK.parse(escaping.leading(escaping.shown(prose.flow(text))))

    assert "".join(shown(token) for token in tokens) == prose.flow(text)


@settings(max_examples=100)
@given(texts)
def test_a_heading_reads_as_it_was_written(text: str) -> None:
    """Also when it ends in hashes or begins like a list."""
    text = re.sub(r"\\[()\[\]]", "", prose.flow(text)).replace("http", "").strip()

    tokens = COMMONMARK.parse(escaping.heading_end(f"## {escaping.shown(text)}"))

    assert tokens[0].tag == "h2"
    assert "".join(shown(token) for token in tokens) == text


def shown(token) -> str:  # type: ignore[no-untyped-def]
    """The characters a reader sees of a paragraph or heading; markup of any other kind shows as itself."""
    if token.type in ("paragraph_open", "paragraph_close", "heading_open", "heading_close"):
        return ""
    if token.type != "inline":
        return f"[{token.type}]"
    return "".join(child.content if child.type == "text" else f"[{child.type}]" for child in token.children)


def test_every_page_has_its_mark() -> None:
    """Blank and failed pages too; a failed one says why."""
    document = assembled(
        checkpoint(1, element("text", "One.")),
        checkpoint(2, state=State.BLANK),
        checkpoint(3, state=State.FAILED, reason=Code.LOOP),
    )

    assert markdown.write(document)[0] == (
        "<!-- page: 1 -->\n\nOne.\n\n<!-- page: 2 -->\n\n<!-- page: 3 -->\n<!-- page 3: failed LOOP -->\n"
    )


def test_a_broken_word_is_whole_and_the_page_mark_follows_the_paragraph() -> None:
    """Each half keeps its own span."""
    document = assembled(checkpoint(1, element("text", "The mea-")), checkpoint(2, element("text", "surement ended.")))

    text, spans = markdown.write(document)

    assert text == "<!-- page: 1 -->\n\nThe measurement ended.\n\n<!-- page: 2 -->\n"
    assert [text[span.start : span.end] for span in spans.values()] == ["The mea", "surement ended."]


def test_headings_are_ranked_below_the_title() -> None:
    """A document without a title begins with its chapters."""
    headings = (element("section_header", "1 Springs"), element("section_header", "1.1 Upper"))

    assert written(element("title", "Report"), *headings) == "# Report\n\n## 1 Springs\n\n### 1.1 Upper"
    assert written(*headings) == "# 1 Springs\n\n## 1.1 Upper"


def test_a_heading_of_two_lines_is_one() -> None:
    """As assemble linked them."""
    lines = (element("section_header", "1 Tests and determination of"), element("section_header", "their behaviour"))

    assert written(*lines) == "# 1 Tests and determination of their behaviour"


def test_lists_are_tight_and_keep_their_kind() -> None:
    """Bullets become dashes, numbers stay."""
    items = [element("list_item", text) for text in ("• one", "– two", "1. first", "2. second")]

    assert written(*items) == "- one\n- two\n\n1. first\n2. second"


def test_a_plain_table_is_gfm() -> None:
    """Bars and line ends in cells survive."""
    table = grid(["a|b", "c"], ["1\n2", "3"], header=True)

    assert written(element("table", table=table)) == "| a\\|b | c |\n| --- | --- |\n| 1<br>2 | 3 |"


def test_a_table_with_spans_is_html() -> None:
    """GFM cannot say that a cell spans."""
    cells = (Cell(row=0, col=0, col_span=2, text="a < b", header=True), Cell(row=1, col=0, text="1"))
    table = Table(html="", rows=2, cols=2, cells=cells)

    assert written(element("table", table=table)) == (
        '<table>\n<tr><th colspan="2">a &lt; b</th></tr>\n<tr><td>1</td></tr>\n</table>'
    )


def linked(*parts: Table) -> Document:
    """One table a page, each the continuation of the one before, whatever assemble would say to it."""
    pages = [checkpoint(n, element("table", table=part)) for n, part in enumerate(parts, 1)]
    names = ["", *(page.elements[0].id for page in pages), ""]
    document = assembled(*pages)
    tied = [
        e.model_copy(update={"continues": names[n - 1] or None, "continued_by": names[n + 1] or None})
        for n, e in enumerate(document.elements, 1)
    ]
    return document.model_copy(update={"elements": tuple(tied)})


def test_a_table_over_pages_is_one_table() -> None:
    """Its head stands once, each page's rows keep their span, and notes between are behind it."""
    head = ["Order", "Cost"]
    first = checkpoint(
        1, element("table", table=grid(head, ["1", "2"], header=True)), element("footnote", "1 Note.", BOTTOM)
    )
    second = checkpoint(2, element("table", table=grid(head, ["3", "4"], header=True)))
    third = checkpoint(3, element("table", table=grid(["", ""], ["5", "6"])), element("text", "After."))

    text, spans = markdown.write(assembled(first, second, third))

    table = "| Order | Cost |\n| --- | --- |\n| 1 | 2 |\n| 3 | 4 |\n| 5 | 6 |"
    rest = "1 Note.\n\n<!-- page: 2 -->\n\n<!-- page: 3 -->\n\nAfter."
    assert text == f"<!-- page: 1 -->\n\n{table}\n\n{rest}\n"
    assert [text[spans[name].start : spans[name].end] for name in ("p0002-e000", "p0003-e000")] == [
        "| 3 | 4 |",
        "| 5 | 6 |",
    ]


def test_a_table_over_pages_keeps_its_spans() -> None:
    """A cell that the page's end cuts does not reach into the next page's rows."""
    cut = Cell(row=1, col=0, row_span=3, text="b")
    first = Table(html="", rows=2, cols=2, cells=(Cell(row=0, col=0, col_span=2, text="a", header=True), cut))

    text = markdown.write(linked(first, grid(["c", "d"])))[0]

    rows = '<tr><th colspan="2">a</th></tr>\n<tr><td>b</td></tr>\n<tr><td>c</td><td>d</td></tr>'
    assert f"<table>\n{rows}\n</table>\n\n<!-- page: 2 -->\n" in text


def test_tables_with_other_columns_stay_apart() -> None:
    """Nobody knows which column goes on in which."""
    assert (
        "\n\n| 1 | 2 | 3 |\n| --- | --- | --- |\n" in markdown.write(linked(grid(["a", "b"]), grid(["1", "2", "3"])))[0]
    )


@settings(max_examples=150)
@given(st.lists(tables, min_size=2, max_size=4))
@example([
    Table(html="", rows=0, cols=0, cells=()),  # which is no part of what is joined: the head is the second one's
    Table(html="", rows=0, cols=0, cells=(Cell(row=0, col=0, text="a", header=True),)),
    Table(html="", rows=0, cols=0, cells=(Cell(row=0, col=0, text="a"), Cell(row=1, col=0, text=""))),
])  # fmt: skip
def test_joined_tables_lose_no_word_and_know_their_rows(parts: list[Table]) -> None:
    """Whatever spans, gaps and doubled cells they have; only a head that was said before has no place of its own."""
    document = linked(*parts)

    text, spans = markdown.write(document)

    placed = sorted(spans.items(), key=lambda item: item[1])
    assert all(one.end <= other.start for (_, one), (_, other) in pairwise(placed))
    assert {word for part in parts for cell in part.cells for word in prose.words(cell.text)} <= set(prose.words(text))
    for number, (part, shown) in enumerate(zip(parts, document.elements, strict=True)):
        start, end = spans.get(shown.id, (0, 0))
        own = {word for cell in part.cells if not cell.header for word in prose.words(cell.text)}
        before = [cell for earlier in parts[:number] for cell in earlier.cells]
        heads = {word for cell in before if cell.header for word in prose.words(cell.text)}
        assert own - heads <= set(prose.words(text[start:end]))


def test_docjson_and_markdown_spell_a_table_alike() -> None:
    """Spans, heads and order of the cells are written in one place; `layout` only escapes differently."""
    cells = (
        Cell(row=0, col=1, row_span=2, col_span=2, text="b", header=True),
        Cell(row=0, col=0, text="a", header=True),
        Cell(row=1, col=0, text="1"),
    )

    known = layout_grid.table(2, 3, cells)

    assert (
        written(element("table", table=known))
        == known.html
        == ('<table>\n<tr><th>a</th><th rowspan="2" colspan="2">b</th></tr>\n<tr><td>1</td></tr>\n</table>')
    )
    plain = layout_grid.table(2, 2, (Cell(row=0, col=0, text="a"), Cell(row=1, col=1, text="1")))
    assert written(element("table", table=plain)) == plain.markdown == "| a |  |\n| --- | --- |\n|  | 1 |"


def test_maths_is_spelled_with_dollars() -> None:
    """And a price is no maths."""
    assert written(element("text", r"Let \(x_1\) cost $5 and \[y = 2\] more.")) == (
        r"Let $x_1$ cost \$5 and $$y = 2$$ more."
    )


@pytest.mark.parametrize("latex", ["E = mc^2", None])
def test_a_formula_stands_alone(latex: str | None) -> None:
    """Its text stands for LaTeX that nobody gave."""
    formula = element("formula", "E = mc^2", formula=Formula(latex=latex))

    assert written(formula) == "$$\nE = mc^2\n$$"


def test_an_image_shows_its_visible_text() -> None:
    """Words in figures are found by a search for them."""
    picture = element("picture", image="images/p0001-e000.png", figure=Figure(visible_text="Spring [A]\nSand filter"))

    assert written(picture) == r"![Spring \[A\] Sand filter](images/p0001-e000.png)"


def test_a_description_that_is_the_text_is_said_once() -> None:
    """Another one stands below the words in the picture."""
    hill, other = "The figure shows a hill.", "Another hill."

    assert written(element("picture", hill, figure=Figure(description=hill))) == hill
    assert written(element("picture", hill, figure=Figure(description=other))) == f"{hill}\n\n{other}"


def test_an_image_without_words_is_named_by_its_caption() -> None:
    """The caption stands below it as text as well."""
    picture = element("picture", image="images/p0001-e000.png")
    caption = element("caption", "Figure 1: The lake", box=MIDDLE._replace(y0=0.51, y1=0.53))

    assert written(picture, caption) == "![Figure 1: The lake](images/p0001-e000.png)\n\nFigure 1: The lake"


def test_a_table_has_no_image() -> None:
    """Its crop is an artefact, its cells are the text."""
    assert "images/" not in written(element("table", table=grid(["a"]), image="images/p0001-e000.png"))


@pytest.mark.parametrize("text", ["people[^1] here", "people<sup>1</sup> here", "people¹ here", "people1 here"])
def test_a_footnote_is_tied_to_its_mark(text: str) -> None:
    """However the reader wrote the mark."""
    assert written(element("text", text), element("footnote", "1 Residents.", box=BOTTOM)) == (
        "people[^1] here\n\n[^1]: Residents."
    )


def test_a_footnote_without_a_mark_in_the_text_stays_text() -> None:
    """Markdown readers drop notes that nothing refers to."""
    assert written(element("text", "No mark."), element("footnote", "1 Residents.")) == "No mark.\n\n1 Residents."


def test_equal_marks_on_two_pages_are_two_notes() -> None:
    """Numbers that start again on each page do not collide."""
    pages = [checkpoint(n, element("text", "Word¹."), element("footnote", f"1 Note {n}.")) for n in (1, 2)]

    text = markdown.write(assembled(*pages))[0]

    assert re.findall(r"\[\^[\w-]+\]:? ?(?:Note \d)?", text) == ["[^1-1]", "[^1-1]: Note 1", "[^2-1]", "[^2-1]: Note 2"]


def test_the_readers_own_markdown_is_kept_where_it_has_all_words() -> None:
    """Bold stays bold; an answer that lost words does not count."""
    assert written(element("text", "very old", markdown="**very** old")) == "**very** old"
    assert written(element("text", "very old", markdown="**very**")) == "very old"
    assert written(element("text", "a *b* c", markdown="a *b* c")) == r"a \*b\* c"
    assert written(element("list_item", "• a *b*", markdown="- a *b*")) == r"- a \*b\*"


def test_furniture_is_left_out() -> None:
    """It stays in DocJSON."""
    assert written(element("text", "Body."), element("page_footer", "Page 3", box=BOTTOM)) == "Body."


def test_a_page_mark_cannot_be_forged() -> None:
    """Text that looks like one is shown as text."""
    assert "<!-- page: 9 -->" not in written(element("text", "<!-- page: 9 -->", markdown="<!-- page: 9 -->"))
