"""document.md has every word, shows text as it was read, and marks every page."""

from __future__ import annotations

import html
import re
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.fakes.documents import (
    BOTTOM,
    MIDDLE,
    build_document,
    checkpoint,
    documents,
    element,
    plain_table,
    tables,
    texts,
)
from twopass.document import Cell, Document, Element, Figure, Formula, Kind, State, Table
from twopass.errors import Code
from twopass.formats import escaping, markdown
from twopass.text import markdown_escapes, prose, table_markup

COMMONMARK = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def write_page(*elements: Element) -> str:
    """The markdown of one page, without its page mark."""
    return markdown.write(build_document(checkpoint(1, *elements)))[0].removeprefix("<!-- page: 1 -->\n\n").rstrip("\n")


def expected_text(element: Element) -> str:
    """The text that the markdown must hold; for a formula with LaTeX, the LaTeX."""
    if element.kind is Kind.FORMULA and element.formula and element.formula.latex:
        return element.formula.latex
    parts = [element.text, *(cell.text for cell in (element.table.cells if element.table else ()))]
    if element.figure:
        parts += [element.figure.visible_text or "", element.figure.description or ""]
    return "\n".join(parts)


@pytest.mark.parametrize("description", ["→", "&lt;", "★ ★ ☆"])
def test_a_description_of_signs_is_written(description: str) -> None:
    """A description without letters is new, although it has the same letters as no text."""
    text = write_page(element("picture", "", figure=Figure(description=description)))

    assert html.unescape(COMMONMARK.render(text)).strip() == f"<p>{description}</p>"


@given(documents())
def test_every_word_of_every_body_element_is_in_the_markdown(document: Document) -> None:
    """Every word of a body element is in document.md, apart from broken words, which are joined."""
    text = markdown.write(document)[0]
    found_words = set(prose.split_words(text))
    body = [element for element in document.elements if element.is_body]
    broken = "".join(prose.split_words("".join(expected_text(element) for element in body)))

    lost = {word for element in body for word in prose.split_words(expected_text(element))} - found_words

    joined_words = "".join(prose.split_words(text))
    assert all(word in joined_words and word in broken for word in lost)


def test_a_hyphenated_word_is_not_joined_across_two_texts() -> None:
    """A word broken at the end of an element's text is not completed by the text visible in its picture."""
    picture = element("picture", "the mea-", figure=Figure(visible_text="b and\nso"))

    assert write_page(picture) == "the mea- b and so"


@given(documents())
def test_pages_and_elements_keep_their_order(document: Document) -> None:
    """Each page has one mark, in order, and the spans of elements do not overlap."""
    text, spans = markdown.write(document)
    marks = [int(n) for n in re.findall(r"^<!-- page: (\d+) -->$", text, flags=re.MULTILINE)]
    placed = sorted(spans.values())

    assert marks == sorted(page.number for page in document.pages)
    assert all(first.end <= second.start for first, second in zip(placed, placed[1:], strict=False))
    assert text.endswith("\n") and not text.endswith("\n\n") and "\n\n\n" not in text


@settings(max_examples=300)
@given(texts)
def test_a_paragraph_is_shown_as_it_was_read(text: str) -> None:
    """A Markdown reader shows exactly the element's text, whatever characters it has."""
    text = re.sub(r"\\[()\[\]]", "", text).replace("http", "")

    tokens = COMMONMARK.parse(markdown_escapes.escape_line_start(escaping.escape_text(prose.to_one_line(text))))

    assert "".join(visible_text(token) for token in tokens) == prose.to_one_line(text)


@settings(max_examples=100)
@given(texts)
def test_a_heading_is_shown_as_it_was_read(text: str) -> None:
    """A heading is shown with exactly its text, also if it ends in hashes or begins like a list item."""
    text = re.sub(r"\\[()\[\]]", "", prose.to_one_line(text)).replace("http", "").strip()

    tokens = COMMONMARK.parse(escaping.escape_heading_end(f"## {escaping.escape_text(text)}"))

    assert tokens[0].tag == "h2"
    assert "".join(visible_text(token) for token in tokens) == text


def visible_text(token) -> str:  # type: ignore[no-untyped-def]
    """The characters a reader sees of a paragraph or heading; any other markup as the name of its token."""
    if token.type in ("paragraph_open", "paragraph_close", "heading_open", "heading_close"):
        return ""
    if token.type != "inline":
        return f"[{token.type}]"
    return "".join(child.content if child.type == "text" else f"[{child.type}]" for child in token.children)


def test_styles_inside_words_are_kept() -> None:
    """Markdown with the styles of a paragraph is used although its marks divide words."""
    text, styled = "m2 of half.", "m<sup>2</sup> of **h**alf."

    assert write_page(element("text", text, markdown=styled)) == styled
    assert write_page(element("text", "1Note m2", markdown="<sup>1</sup>Note m2")) == "<sup>1</sup>Note m2"


def test_every_page_has_its_mark() -> None:
    """Blank and failed pages have a page mark too, and that of a failed page gives the reason."""
    document = build_document(
        checkpoint(1, element("text", "One.")),
        checkpoint(2, state=State.BLANK),
        checkpoint(3, state=State.FAILED, reason=Code.LOOP),
    )

    assert markdown.write(document)[0] == (
        "<!-- page: 1 -->\n\nOne.\n\n<!-- page: 2 -->\n\n<!-- page: 3 -->\n<!-- page 3: failed LOOP -->\n"
    )


def test_unreadable_text_has_a_visible_mark() -> None:
    """A reader of the markdown sees where text begins and ends that the reader itself calls unreadable."""
    noise = [element("text", text, flags=("unreadable", "uncertain")) for text in ("mmtZk rrnbh", "ZZvj")]
    text = write_page(element("text", "Before."), *noise, element("text", "After."))

    shown = [token.content for token in COMMONMARK.parse(text) if token.type == "inline"]
    assert shown == [
        "Before.",
        "**[The following text could not be read reliably.]**",
        "mmtZk rrnbh",
        "ZZvj",
        "**[End of the text that could not be read reliably.]**",
        "After.",
    ]


def test_a_word_broken_over_pages_is_joined_before_the_page_mark() -> None:
    """A word broken over two pages is joined, each half has its own span, and the page mark comes after."""
    document = build_document(
        checkpoint(1, element("text", "The mea-")), checkpoint(2, element("text", "surement ended."))
    )

    text, spans = markdown.write(document)

    assert text == "<!-- page: 1 -->\n\nThe measurement ended.\n\n<!-- page: 2 -->\n"
    assert [text[span.start : span.end] for span in spans.values()] == ["The mea", "surement ended."]


def test_emphasis_does_not_arise_from_two_parts() -> None:
    """Each part of a joined paragraph is escaped, because the other may end what it begins."""
    document = build_document(
        checkpoint(1, element("text", "The *old pump and the")), checkpoint(2, element("text", "new* one."))
    )

    assert "The \\*old pump and the new\\* one." in markdown.write(document)[0]


def test_links_of_one_side_join_nothing() -> None:
    """A paragraph that names a continuation which does not name it is written alone, and nothing is lost."""
    document = build_document(checkpoint(1, element("text", "One."), element("text", "Two.")))
    linked = (document.elements[0].model_copy(update={"continued_by": "p0001-e001"}), document.elements[1])

    text = markdown.write(document.model_copy(update={"elements": linked}))[0]

    assert text == "<!-- page: 1 -->\n\nOne.\n\nTwo.\n"


def test_headings_are_ranked_below_the_title() -> None:
    """With a title, chapters are level 2; without one, they are level 1."""
    headings = (element("section_header", "1 Springs"), element("section_header", "1.1 Upper"))

    assert write_page(element("title", "Report"), *headings) == "# Report\n\n## 1 Springs\n\n### 1.1 Upper"
    assert write_page(*headings) == "# 1 Springs\n\n## 1.1 Upper"


def test_a_heading_of_two_lines_is_one() -> None:
    """Two heading elements that assemble linked as one heading are written on one line."""
    lines = (element("section_header", "1 Tests and determination of"), element("section_header", "their behaviour"))

    assert write_page(*lines) == "# 1 Tests and determination of their behaviour"


def test_lists_are_tight_and_keep_their_kind() -> None:
    """Items of one list have no blank line between them; bullets become dashes, numbers are kept."""
    items = [element("list_item", text) for text in ("• one", "– two", "1. first", "2. second")]

    assert write_page(*items) == "- one\n- two\n\n1. first\n2. second"


@pytest.mark.parametrize(
    "lines",
    [
        ["(1) one", "(2) two", "(a) three"],
        ["a) one", "b) two"],
        ["① one", "② two"],
        ["१. एक", "२. दो"],
        ["□ one", "■ two", "□ three"],
        ["☐ one", "☑ two"],
    ],
)
def test_items_of_other_lists_keep_their_signs(lines: list[str]) -> None:
    """Numbers that Markdown does not know, and boxes that may be ticked, are part of an item of its own."""
    source = write_page(element("list_item", "\n".join(lines)))

    assert COMMONMARK.render(source) == "<ul>\n" + "".join(f"<li>{line}</li>\n" for line in lines) + "</ul>\n"
    assert write_page(*(element("list_item", line) for line in lines)) == source


def test_filled_boxes_are_bullets_on_a_page_without_other_boxes() -> None:
    """They are not ticked, and the styles of their items stay."""
    items = [element("list_item", f"■ {word} rope", markdown=f"- ■ **{word}** rope") for word in ("one", "two")]
    box = element("list_item", "□ three", markdown="- □ **three**")

    assert write_page(*items) == "- **one** rope\n- **two** rope"
    assert write_page(element("text", "■ one\n■ two")) == "- one\n- two"
    assert write_page(*items, box) == "- ■ **one** rope\n- ■ **two** rope\n- □ **three**"
    assert write_page(element("text", "■ one", markdown="■ **one**")) == "■ **one**"


def test_a_number_at_the_beginning_of_a_line_of_prose_begins_no_item() -> None:
    """Two of them are items."""
    assert write_page(element("list_item", "- see section\n(3) of the act")) == "- see section (3) of the act"
    assert write_page(element("list_item", "1. one\n(a) two\n(b) three")) == "1. one\n\n- (a) two\n- (b) three"


@pytest.mark.parametrize(
    ("numbers", "written"),
    [
        ("1. 2. 3.", "1. x\n2. x\n3. x"),
        ("1. 2. 1. 2.", "1. x\n2. x\n\n<!-- -->\n\n1. x\n2. x"),
        ("3. 5.", "3. x\n\n<!-- -->\n\n5. x"),
        ("1. 1)", "1. x\n\n1) x"),
    ],
)
@pytest.mark.parametrize("is_one_element", [False, True])
def test_numbers_of_list_items_are_shown_as_they_are(numbers: str, written: str, is_one_element: bool) -> None:
    """Markdown counts the items of a list itself, so an item with another number than the next begins a new list."""
    lines = [f"{number} x" for number in numbers.split()]
    items = [element("text", "\n".join(lines))] if is_one_element else [element("list_item", line) for line in lines]

    text = write_page(*items)

    assert text == written
    assert show_numbers(text) == [int(number[:-1]) for number in numbers.split()]


def show_numbers(text: str) -> list[int]:
    """The number before each item of the ordered lists, as a reader shows it."""
    shown: list[int] = []
    for token in COMMONMARK.parse(text):
        if token.type == "ordered_list_open":
            following = int(token.attrs.get("start", 1))
        elif token.type == "list_item_open":
            shown.append(following)
            following += 1
    return shown


def test_a_list_in_several_elements_is_tight() -> None:
    """An element that holds a list and the items after it are one list without blank lines."""
    first, second = element("text", "1. one\n2. two"), element("list_item", "3. three")

    assert write_page(first, second) == "1. one\n2. two\n3. three"


def test_a_plain_table_is_gfm() -> None:
    """A table without spans is GFM, and bars and line breaks in its cells are escaped."""
    table = plain_table(["a|b", "c"], ["1\n2", "3"], header=True)

    assert write_page(element("table", table=table)) == "| a\\|b | c |\n| --- | --- |\n| 1<br>2 | 3 |"


def test_a_table_with_spans_is_html() -> None:
    """A table with spanning cells is HTML, because GFM has no spans."""
    cells = (Cell(row=0, col=0, col_span=2, text="a < b", header=True), Cell(row=1, col=0, text="1"))
    table = Table(html="", rows=2, cols=2, cells=cells)

    assert write_page(element("table", table=table)) == (
        '<table>\n<tr><th colspan="2">a &lt; b</th></tr>\n<tr><td>1</td></tr>\n</table>'
    )


def link_tables(*parts: Table) -> Document:
    """One table per page, each linked to the one before, even if assemble would not link them."""
    pages = [checkpoint(n, element("table", table=part)) for n, part in enumerate(parts, 1)]
    names = ["", *(page.elements[0].id for page in pages), ""]
    document = build_document(*pages)
    linked_elements = [
        e.model_copy(update={"continues": names[n - 1] or None, "continued_by": names[n + 1] or None})
        for n, e in enumerate(document.elements, 1)
    ]
    return document.model_copy(update={"elements": tuple(linked_elements)})


def test_a_table_over_pages_is_one_table() -> None:
    """A table over pages is one table with one head; each page's rows have their span, and notes follow it."""
    head = ["Order", "Cost"]
    first = checkpoint(
        1, element("table", table=plain_table(head, ["1", "2"], header=True)), element("footnote", "1 Note.", BOTTOM)
    )
    second = checkpoint(2, element("table", table=plain_table(head, ["3", "4"], header=True)))
    third = checkpoint(3, element("table", table=plain_table(["", ""], ["5", "6"])), element("text", "After."))

    text, spans = markdown.write(build_document(first, second, third))

    table = "| Order | Cost |\n| --- | --- |\n| 1 | 2 |\n| 3 | 4 |\n| 5 | 6 |"
    rest = "1 Note.\n\n<!-- page: 2 -->\n\n<!-- page: 3 -->\n\nAfter."
    assert text == f"<!-- page: 1 -->\n\n{table}\n\n{rest}\n"
    assert [text[spans[name].start : spans[name].end] for name in ("p0002-e000", "p0003-e000")] == [
        "| 3 | 4 |",
        "| 5 | 6 |",
    ]


def test_a_joined_table_keeps_its_cell_spans() -> None:
    """Cells keep their spans in a joined table, but no span reaches from one page's rows into the next."""
    reaching = Cell(row=1, col=0, row_span=3, text="b")
    first = Table(html="", rows=2, cols=2, cells=(Cell(row=0, col=0, col_span=2, text="a", header=True), reaching))

    text = markdown.write(link_tables(first, plain_table(["c", "d"])))[0]

    rows = '<tr><th colspan="2">a</th></tr>\n<tr><td>b</td></tr>\n<tr><td>c</td><td>d</td></tr>'
    assert f"<table>\n{rows}\n</table>\n\n<!-- page: 2 -->\n" in text


def test_a_repeated_head_that_spans_into_its_table_is_kept() -> None:
    """Without the head's first row, the cell that reaches into the next one would be lost."""
    cells = (
        Cell(row=0, col=0, row_span=2, text="pump", header=True),
        Cell(row=0, col=1, text="litres", header=True),
        Cell(row=1, col=1, text="5"),
    )
    part = Table(html="", rows=2, cols=2, cells=cells)

    assert markdown.write(link_tables(part, part))[0].count("pump") == 2


def test_tables_with_other_columns_stay_apart() -> None:
    """Tables with different numbers of columns are not joined, because their columns cannot be matched."""
    assert (
        "\n\n| 1 | 2 | 3 |\n| --- | --- | --- |\n"
        in markdown.write(link_tables(plain_table(["a", "b"]), plain_table(["1", "2", "3"])))[0]
    )


@settings(max_examples=150)
@given(st.lists(tables, min_size=2, max_size=4))
@example([
    Table(html="", rows=0, cols=0, cells=()),  # not joined, so the head is the second table's
    Table(html="", rows=0, cols=0, cells=(Cell(row=0, col=0, text="a", header=True),)),
    Table(html="", rows=0, cols=0, cells=(Cell(row=0, col=0, text="a"), Cell(row=1, col=0, text=""))),
])  # fmt: skip
def test_joined_tables_lose_no_word_and_have_spans_for_their_rows(parts: list[Table]) -> None:
    """Joined tables lose no word, whatever their spans and gaps; only a repeated head has no span."""
    document = link_tables(*parts)

    text, spans = markdown.write(document)

    placed = sorted(spans.items(), key=lambda item: item[1])
    assert all(one.end <= other.start for (_, one), (_, other) in pairwise(placed))
    assert {word for part in parts for cell in part.cells for word in prose.split_words(cell.text)} <= set(
        prose.split_words(text)
    )
    for number, (part, joined) in enumerate(zip(parts, document.elements, strict=True)):
        start, end = spans.get(joined.id, (0, 0))
        own = {word for cell in part.cells if not cell.header for word in prose.split_words(cell.text)}
        before = [cell for earlier in parts[:number] for cell in earlier.cells]
        heads = {word for cell in before if cell.header for word in prose.split_words(cell.text)}
        assert own - heads <= set(prose.split_words(text[start:end]))


def test_docjson_and_markdown_write_a_table_alike() -> None:
    """DocJSON and document.md order cells and write spans and heads alike; they only escape differently."""
    cells = (
        Cell(row=0, col=1, row_span=2, col_span=2, text="b", header=True),
        Cell(row=0, col=0, text="a", header=True),
        Cell(row=1, col=0, text="1"),
    )

    known = table_markup.build_table(2, 3, cells)

    assert (
        write_page(element("table", table=known))
        == known.html
        == ('<table>\n<tr><th>a</th><th rowspan="2" colspan="2">b</th></tr>\n<tr><td>1</td></tr>\n</table>')
    )
    plain = table_markup.build_table(2, 2, (Cell(row=0, col=0, text="a"), Cell(row=1, col=1, text="1")))
    assert write_page(element("table", table=plain)) == plain.markdown == "| a |  |\n| --- | --- |\n|  | 1 |"


def test_maths_is_delimited_by_dollars() -> None:
    """Formulas in text are delimited by dollars, and the dollar of a price is an entity."""
    assert write_page(element("text", r"Let \(x_1\) cost $5 and \[y = 2\] more.")) == (
        r"Let $x_1$ cost &#36;5 and $$y = 2$$ more."
    )


def test_a_formula_is_a_block_of_its_own() -> None:
    """LaTeX is a display formula; a formula without LaTeX is text, because its signs would mean something else."""
    text = "E = mc2 if at\n100 % of $5 (1)"

    assert write_page(element("formula", text, formula=Formula(latex="E = mc^2"))) == "$$\nE = mc^2\n$$"
    for latex in (None, " "):
        assert write_page(element("formula", text, formula=Formula(latex=latex))) == "E = mc2 if at 100 % of $5 (1)"


def test_right_to_left_text_says_so() -> None:
    """Runs of right-to-left blocks are in one element with their direction, and a reader still sees Markdown in it."""
    hebrew = [element("text", "שלום לכולם."), element("text", "120"), element("list_item", "• שני שומרים")]

    text = write_page(element("text", "Before."), *hebrew, element("code", "# שלום"))

    assert text == ('Before.\n\n<div dir="rtl">\n\nשלום לכולם.\n\n120\n\n- שני שומרים\n\n</div>\n\n```\n# שלום\n```')
    assert [token.type for token in COMMONMARK.parse(text) if token.level == 0 and token.nesting >= 0] == [
        "paragraph_open",
        *("html_block", "paragraph_open", "paragraph_open", "bullet_list_open", "html_block", "fence"),
    ]


def test_the_direction_ends_with_its_page() -> None:
    """Page marks are outside of the elements with a direction, and a table of right-to-left cells is inside of one."""
    table = element("table", table=plain_table(["שלום", "אחד"]))
    document = build_document(checkpoint(1, element("text", "שלום.")), checkpoint(2, table))

    assert markdown.write(document)[0] == (
        '<!-- page: 1 -->\n\n<div dir="rtl">\n\nשלום.\n\n</div>\n\n'
        '<!-- page: 2 -->\n\n<div dir="rtl">\n\n| שלום | אחד |\n| --- | --- |\n\n</div>\n'
    )


def test_the_text_in_an_image_is_written_once() -> None:
    """The text visible in a figure stands below its image, and the alternative text repeats nothing of it."""
    texts = "Spring [A], mea-\nsured at noon", "Spring [A], measured at noon\nSand filter"
    picture = element("picture", texts[0], image="images/p0001-e000.png", figure=Figure(visible_text=texts[1]))

    assert write_page(picture) == "![picture](images/p0001-e000.png)\n\nSpring [A], measured at noon Sand filter"


def test_the_data_of_a_chart_are_written_once() -> None:
    """A text that only repeats the cells of the data is not written beside them."""
    data = plain_table(["Year", "Rain"], ["2021", "610"])
    chart = element("chart", "Year Rain\n2021 610", figure=Figure(data=data, visible_text="Year Rain\n2021 610"))

    assert write_page(chart) == "| Year | Rain |\n| --- | --- |\n| 2021 | 610 |"


def test_a_description_equal_to_the_text_is_written_once() -> None:
    """A description is written below the visible text, unless it is the same text."""
    hill, other = "The figure shows a hill.", "Another hill."

    assert write_page(element("picture", hill, figure=Figure(description=hill))) == hill
    assert write_page(element("picture", hill, figure=Figure(description=other))) == f"{hill}\n\n{other}"


def test_a_caption_is_written_once() -> None:
    """The alternative text of an image does not repeat its caption."""
    picture = element("picture", image="images/p0001-e000.png", figure=Figure(type="bar chart"))
    caption = element("caption", "Figure 1: The lake", box=MIDDLE._replace(y0=0.51, y1=0.53))

    assert write_page(picture, caption) == "![bar chart](images/p0001-e000.png)\n\nFigure 1: The lake"


def test_a_table_has_no_image() -> None:
    """The crop of a table is not shown in document.md, because its cells are there as text."""
    assert "images/" not in write_page(element("table", table=plain_table(["a"]), image="images/p0001-e000.png"))


@pytest.mark.parametrize("text", ["people[^1] here", "people<sup>1</sup> here", "people¹ here", "people1 here"])
def test_a_footnote_is_linked_to_its_mark(text: str) -> None:
    """A footnote is linked to its mark, however the model wrote the mark."""
    assert write_page(element("text", text), element("footnote", "1 Residents.", box=BOTTOM)) == (
        "people[^1] here\n\n[^1]: Residents. <!-- -->"
    )


def test_a_name_with_a_number_is_a_name_beside_references_to_other_notes() -> None:
    """References are found in the whole paragraph, where a name that occurs twice is known for a name."""
    body = element("text", "Db2 was bought by people1 and residents2 who know Db2 well.")
    notes = [element("footnote", text, box=BOTTOM) for text in ("1 All of them.", "2 Some of them.")]

    assert write_page(body, *notes).startswith("Db2 was bought by people[^1] and residents[^2] who know Db2 well.")


def test_a_footnote_without_a_mark_in_the_text_stays_text() -> None:
    """A footnote without a reference stays plain text, because Markdown readers drop such notes."""
    assert write_page(element("text", "No mark."), element("footnote", "1 Residents.")) == "No mark.\n\n1 Residents."


@pytest.mark.parametrize(
    ("text", "written"), [("Word¹(old).", "Word[^1]\\(old)."), ("¹: a word.", "[^1]&#58; a word.")]
)
def test_a_reference_is_neither_a_link_nor_a_note(text: str, written: str) -> None:
    """What follows a reference does not change what it is."""
    assert write_page(element("text", text), element("footnote", "1 One.", box=BOTTOM)).startswith(written)


def test_the_second_of_two_notes_with_one_mark_stays_text() -> None:
    """A label is used once, so that Markdown readers drop no note."""
    notes = [element("footnote", text, box=BOTTOM) for text in ("1 One.", "1 Other.")]

    assert write_page(element("text", "Word¹."), *notes) == "Word[^1-1].\n\n[^1-1]: One. <!-- -->\n\n1 Other."


def test_equal_marks_on_two_pages_are_two_notes() -> None:
    """Footnote numbers that start again on each page get labels with the page number."""
    pages = [checkpoint(n, element("text", "Word¹."), element("footnote", f"1 Note {n}.")) for n in (1, 2)]

    text = markdown.write(build_document(*pages))[0]

    assert re.findall(r"\[\^[\w-]+\]:? ?(?:Note \d)?", text) == ["[^1-1]", "[^1-1]: Note 1", "[^2-1]", "[^2-1]: Note 2"]


def test_the_models_markdown_is_kept_if_it_has_all_words() -> None:
    """The model's own Markdown is kept if it has all words of the text; otherwise the text is written."""
    assert write_page(element("text", "very old", markdown="**very** old")) == "**very** old"
    assert write_page(element("text", "very old", markdown="**very**")) == "very old"
    assert write_page(element("text", "a *b* c", markdown="a *b* c")) == r"a \*b\* c"
    assert write_page(element("list_item", "• a *b*", markdown="- a *b*")) == r"- a \*b\*"


def test_furniture_is_left_out() -> None:
    """Page headers and footers are left out of document.md by default."""
    assert write_page(element("text", "Body."), element("page_footer", "Page 3", box=BOTTOM)) == "Body."


def test_a_page_mark_cannot_be_forged() -> None:
    """Text of a document that looks like a page mark is escaped."""
    assert "<!-- page: 9 -->" not in write_page(element("text", "<!-- page: 9 -->", markdown="<!-- page: 9 -->"))
