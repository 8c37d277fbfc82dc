"""The elements that the layout family makes of the cpu engine's JSON."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.documents import build_document, checkpoint
from twopass.document import Box, Category, FindingKind, Flag, Kind, Layer
from twopass.errors import Code
from twopass.families.interface import ParsedPage
from twopass.families.layout.family import LayoutFamily
from twopass.formats import markdown
from twopass.steps import audit
from twopass.text import table_markup

FAMILY = LayoutFamily()


def page_json(*boxes: dict[str, Any], **page: Any) -> str:
    return json.dumps({"v": 1, "width": 600, "height": 800, "via": "text_layer", "boxes": boxes, **page})


def box(label: str, *lines: str, at: tuple[float, float, float, float] = (50, 300, 550, 340), **line: Any) -> Any:
    return {"label": label, "box": at, "lines": [{"box": at, "text": text, "size": 10.0, **line} for text in lines]}


def parse(*boxes: dict[str, Any], page: int = 2, **fields: Any) -> ParsedPage:
    return FAMILY.parse(page_json(*boxes, **fields), page)


def only(*boxes: dict[str, Any], **fields: Any) -> Any:
    (element,) = parse(*boxes, **fields).elements
    return element


@given(st.text())
def test_any_text_is_an_answer(text: str) -> None:
    """No answer of an engine breaks the parser; text that does not follow the grammar is kept and flagged."""
    answer = FAMILY.parse(text, 1)

    assert all(element.flags == ("unparsed",) and element.text for element in answer.elements)
    assert bool(answer.elements) == bool(text.strip())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["v", "width", "height", "boxes", "label", "box", "lines", "table"]), inner)
    ),
    max_leaves=20,
)


@given(JSON)
def test_any_json_is_an_answer(value: Any) -> None:
    """JSON with any other structure is parsed without errors, and always to the same result."""
    answer = FAMILY.parse(json.dumps(value), 3)

    assert answer == FAMILY.parse(json.dumps(value), 3)


WORD = st.text(st.characters(whitelist_categories=("Lu", "Ll", "Lo", "Nd")), min_size=1, max_size=9)
LABELS = ("title", "section-header", "text", "list-item", "caption", "footnote", "page-header", "picture", "orphan")


@given(st.lists(st.tuples(st.sampled_from(LABELS), st.lists(WORD, min_size=1, max_size=6)), max_size=6))
def test_no_word_of_the_grammar_is_lost(boxes: list[tuple[str, list[str]]]) -> None:
    """Every word of a box is in the text of an element, in order."""
    answer = parse(*(box(label, " ".join(words)) for label, words in boxes))

    assert [element.text.split() for element in answer.elements] == [words for _, words in boxes]


@given(st.floats(-100, 700), st.floats(-100, 900), st.floats(-100, 700), st.floats(-100, 900))
def test_boxes_are_fractions_of_the_page(x0: float, y0: float, x1: float, y1: float) -> None:
    """Points of the displayed page become ordered fractions from 0 to 1."""
    element = only(box("text", "word", at=(x0, y0, x1, y1)))

    a, b, c, d = element.boxes[0]
    assert 0 <= a <= c <= 1 and 0 <= b <= d <= 1


def test_lines_are_joined_into_a_paragraph() -> None:
    """A word that a line end may break keeps it, other hyphens stay, and Chinese lines join without a space."""
    assert only(box("text", "an exam-", "ple of a", "text")).text == "an exam-\nple of a text"
    assert only(box("text", "from 7-", "9")).text == "from 7-9"
    assert only(box("text", "an exam\u00ad", "ple")).text == "an example"
    assert only(box("text", "供水九六", "立方米")).text == "供水九六立方米"


def test_headings_carry_number_level_and_hashes() -> None:
    """The numbering of a heading is parsed, and its level is guessed from its type size."""
    heading = only(box("section-header", "A.2 Method", size=13.0), box("text"))

    assert (heading.kind, heading.numbering, heading.level) == (Kind.SECTION_HEADER, "A.2", 2)
    assert heading.markdown == "## A.2 Method"
    assert heading.category is Category.TEXT_SECTION
    assert only(box("section-header", "第3章 方法")).numbering == "3"


def test_a_heading_that_is_prose_is_text() -> None:
    """A long heading that ends like a sentence is a paragraph: the model sometimes labels bold text as a heading."""
    prose = "This is a whole sentence with many more words than any heading has, " * 3 + "and it ends as sentences do."

    assert only(box("section-header", prose)).kind is Kind.TEXT


def test_the_first_large_heading_of_page_1_is_the_title() -> None:
    """The title is only on page 1, clearly larger than other headings, and without a number."""
    large, small = box("section-header", "A Report", size=24.0), box("section-header", "Summary", size=16.0)

    assert [e.kind for e in parse(large, small, page=1).elements] == [Kind.TITLE, Kind.SECTION_HEADER]
    assert [e.kind for e in parse(large, small, page=2).elements] == [Kind.SECTION_HEADER] * 2
    assert [e.kind for e in parse(small, small, page=1).elements] == [Kind.SECTION_HEADER] * 2


def test_headers_and_footers_are_only_in_the_margins() -> None:
    """Text that the model labels as a footer in the middle of a page is body text."""
    footer = only(box("page-footer", "Page 3", at=(280, 770, 320, 780)))
    middle = only(box("page-footer", "Page 3", at=(280, 400, 320, 410)))

    assert (footer.content_layer, middle.content_layer) == (Layer.FURNITURE, Layer.BODY)
    assert middle.kind is Kind.TEXT


def test_a_lone_page_number_in_the_margin_is_furniture() -> None:
    """A number alone in the margin is a page footer even if the model labels it as text."""
    assert only(box("text", "- 17 -", at=(290, 770, 310, 780))).kind is Kind.PAGE_FOOTER
    assert only(box("text", "17", at=(290, 500, 310, 510))).kind is Kind.TEXT


def test_vertical_text_along_the_papers_edge_is_furniture() -> None:
    """A download notice along the edge of every page is furniture; a narrow column elsewhere is not."""
    assert only(box("orphan", "Downloaded from x", at=(580, 100, 590, 700))).content_layer is Layer.FURNITURE
    assert only(box("orphan", "Downloaded from x", at=(300, 100, 310, 700))).content_layer is Layer.BODY


def table(at: tuple[float, float, float, float]) -> dict[str, Any]:
    return {
        "label": "table",
        "box": at,
        "table": {"rows": 1, "cols": 1, "cells": [{"row": 0, "col": 0, "text": "x"}]},
    }


def test_a_table_that_the_engine_doubts_is_uncertain() -> None:
    """The flag says so to readers; other tables have none."""
    sure = table((50, 60, 280, 90))
    unsure = {**sure, "table": {**sure["table"], "doubtful": True}}

    assert [e.flags for e in parse(sure).elements] == [()]
    assert [e.flags for e in parse(unsure).elements] == [(Flag.UNCERTAIN,)]


def test_a_caption_is_linked_to_the_nearest_table_in_its_column() -> None:
    """Caption and table reference each other; a table in the other column is not considered."""
    left, right = table(at=(50, 120, 280, 300)), table(at=(320, 110, 550, 300))

    caption, first, second = parse(box("caption", "Table 1: x", at=(50, 100, 280, 112)), left, right).elements

    assert (caption.parent_id, first.caption_ids, second.caption_ids) == (first.id, (caption.id,), ())


def test_a_caption_is_linked_to_a_picture_of_which_only_a_part_was_found() -> None:
    """The gap below such a picture is larger than that of a whole one (edgar_image.pdf of the corpus: 0.166)."""
    picture = box("picture", at=(50, 100, 280, 150))

    found, caption = parse(picture, box("caption", "Edgar, king of England", at=(50, 290, 280, 302))).elements

    assert (caption.parent_id, found.caption_ids) == (found.id, (caption.id,))


def test_a_caption_that_names_a_table_never_belongs_to_a_picture() -> None:
    """However near the picture is; the label says only that it is a caption."""
    caption = box("caption", "Table 1: x", at=(50, 202, 280, 214))

    first, caption, second = parse(
        box("picture", at=(50, 100, 280, 200)), caption, table(at=(50, 260, 280, 400))
    ).elements

    assert (caption.parent_id, first.caption_ids) == (second.id, ())


def test_bullets_become_dashes_and_numbers_stay() -> None:
    """The Markdown of a list item has one marker, and its text keeps every character of the page."""
    assert only(box("list-item", "• a point")).markdown == "- a point"
    assert only(box("list-item", "2. a step")).markdown == "2. a step"
    assert only(box("list-item", "-5 degrees")).markdown == "- -5 degrees"


def item(*lines: tuple[float, str]) -> dict[str, Any]:
    """A list item with these lines below each other; each line has its left edge and text."""
    item_lines = [
        {"box": (x, 300 + 12 * n, 550, 310 + 12 * n), "text": text, "size": 10.0} for n, (x, text) in enumerate(lines)
    ]
    return {"label": "list-item", "box": (50, 300, 550, 298 + 12 * len(lines)), "lines": item_lines}


@pytest.mark.parametrize(
    ("lines", "items"),
    [
        ([(50, "1. Fill"), (65, "the tank"), (50, "2. Close it")], ["1. Fill the tank", "2. Close it"]),
        ([(50, "(a) Fill"), (50, "(b) Close")], ["(a) Fill", "(b) Close"]),
        ([(55, "9) Fill"), (50, "10) Close")], ["9) Fill", "10) Close"]),
        ([(50, "1. Fill"), (70, "• by day"), (50, "2. Close")], ["1. Fill", "• by day", "2. Close"]),
        ([(65, "the tank"), (50, "• Close it"), (50, "•Go")], ["the tank", "• Close it", "•Go"]),
        ([(50, "– Fill"), (65, "it"), (50, "– Close")], ["– Fill it", "– Close"]),
        ([(50, "• Fill"), (65, "it:"), (75, "‒ by day"), (75, "‒ by night")], ["• Fill it:", "‒ by day", "‒ by night"]),
        ([(50, "1、打开"), (50, "2.关闭")], ["1、打开 2.关闭"]),
        ([(50, "1.打开"), (50, "2.关闭")], ["1.打开", "2.关闭"]),
        ([(50, "2. It is"), (65, "3.5 km or"), (65, "7. more"), (65, "(3) long")], None),
        ([(50, "• It ran"), (65, "all day"), (65, "– and night")], None),
        ([(50, "It fell by"), (50, "- 5 degrees")], None),
    ],
)
def test_a_list_item_of_several_is_split(lines: list[tuple[float, str]], items: list[str] | None) -> None:
    """The next number, a bullet, or a dash aligned with or indented below the list starts a new item; nothing else."""
    elements = parse(item(*lines)).elements

    assert [e.text for e in elements] == (items or [" ".join(text for _, text in lines)])
    assert {e.kind for e in elements} == {Kind.LIST_ITEM}


def test_split_list_items_have_a_box_each() -> None:
    """The box of each item contains only its own lines."""
    first, second = parse(item((50, "1. Fill"), (65, "the tank"), (50, "2. Close it"))).elements

    assert (first.boxes, second.boxes) == (
        (Box.of(50, 300, 550, 322, 600, 800),),
        (Box.of(50, 324, 550, 334, 600, 800),),
    )
    assert (first.id, second.id) == ("p0002-e000", "p0002-e001")


@pytest.mark.parametrize(
    ("text", "written"),
    [("*<b> is a tag", "- *&lt;b> is a tag"), ("-5 degrees", "- -5 degrees"), ("•-<i> of", "- -&lt;i> of")],
)
def test_plain_text_of_a_list_item_is_escaped(text: str, written: str) -> None:
    """An item without styles is plain text behind its marker, whatever sign it begins with."""
    (element,) = parse(box("list-item", text)).elements

    document = build_document(checkpoint(2, element))

    assert markdown.write(document)[0].removeprefix("<!-- page: 2 -->\n\n") == f"{written}\n"


@given(
    st.lists(st.tuples(st.sampled_from([50.0, 65.0, 80.0]), st.sampled_from(["", "•", "–", "1.", "2.", "b)"]), WORD))
)
def test_no_line_of_a_list_is_lost(lines: list[tuple[float, str, str]]) -> None:
    """Every line is in the text of an item, whatever its marker and indentation."""
    answer = parse(item(*((x, f"{mark} {word}") for x, mark, word in lines)))

    text = "".join(element.text for element in answer.elements)
    assert "".join(text.split()) == "".join(mark + word for _, mark, word in lines)  # Chinese is joined without spaces


def test_a_table_without_spans_is_gfm_and_one_with_spans_html() -> None:
    """GFM cannot express spans, so a table with spans has only HTML."""
    cells = [{"row": 0, "col": 0, "text": "a|b", "header": True}, {"row": 0, "col": 1, "text": "two\nlines"}]
    plain = only({"label": "table", "box": (50, 120, 280, 300), "table": {"rows": 1, "cols": 2, "cells": cells}})
    wide = [{"row": 0, "col": 0, "col_span": 2, "text": "1 < 2", "header": True}]
    spanning = only({"label": "table", "box": (50, 120, 280, 300), "table": {"rows": 1, "cols": 2, "cells": wide}})

    assert plain.table.markdown == "| a\\|b | two lines |\n| --- | --- |"
    assert spanning.table.markdown is None
    assert '<th colspan="2">1 &lt; 2</th>' in spanning.table.html
    assert spanning.table.complexity == "complex"


def test_short_rows_of_a_table_are_filled_up() -> None:
    """GFM requires every row to be as wide as the first."""
    assert table_markup.build_table(2, 2, []).markdown == "|  |  |\n| --- | --- |\n|  |  |"


def test_monospaced_text_is_code_with_its_indentation() -> None:
    """The indentation is measured, because the text layer has no leading spaces."""
    line = {"size": 10.0, "mono": True}
    lines = [{"box": (50, 100, 98, 110), "text": "def f():", **line}, {"box": (74, 112, 122, 122), "text": "return 1"}]
    code = only({"label": "text", "box": (50, 100, 122, 122), "lines": [lines[0], {**line, **lines[1]}]})

    assert (code.kind, code.text) == (Kind.CODE, "def f():\n    return 1")


def test_a_figure_keeps_the_words_in_it() -> None:
    """The labels of a diagram are its visible text; a photo without words is an element too."""
    diagram = only(box("picture", "Springs", "Reservoir"))

    assert diagram.figure.visible_text == "Springs\nReservoir"
    assert only({"label": "picture", "box": (50, 120, 280, 300)}).kind is Kind.PICTURE


def test_confidence_names_its_evidence() -> None:
    """Scores of OCR are calibrated; a layer never has 1.0, and less if it is hidden, not compared or wrong."""
    read = only(box("text", "a", score=0.75), via="ocr", score=0.9)
    visible, hidden = only(box("text", "a")), only(box("text", "a"), via="hidden_layer")
    checked = only(box("text", "a"), agreement=1.0)
    wrong = only(box("text", "a"), via="hidden_layer", agreement=0.6)
    compared, lying = only(box("text", "a", compared=True)), only(box("text", "a", lies=True))

    found = [(e.confidence.score, e.confidence.method) for e in (read, visible, hidden, checked, wrong)]
    assert [(e.confidence.score, e.confidence.method) for e in (compared, lying)] == [
        (0.98, "checked_layer"),
        (0.2, "checked_layer"),
    ]
    assert "unreadable" in lying.flags
    assert found == [
        (0.3, "ocr"),
        (0.89, "text_layer"),
        (0.6, "hidden_layer"),
        (0.99, "checked_layer"),
        (0.4, "checked_layer"),
    ]
    assert [e.flags for e in (visible, checked)] == [(), ()]
    assert [e.flags for e in (hidden, wrong)] == [("hidden_layer", "uncertain")] * 2


def test_text_that_lost_its_structure_or_order_is_uncertain() -> None:
    """A formula in one line of plain text and a page's text in one piece have low scores, however clear the words."""
    formula = only(box("formula", "P = ρ g Q H (1) / 3600 η"))
    page_in_one_piece = only(box("orphan", "dommerctal " * 400))

    assert (formula.confidence.score, formula.confidence.method) == (0.3, "lost_structure")
    assert (page_in_one_piece.confidence.score, page_in_one_piece.confidence.method) == (0.5, "mixed_order")
    assert "uncertain" in formula.flags and "uncertain" in page_in_one_piece.flags
    assert "unreadable" not in formula.flags


def test_a_picture_without_words_has_no_confidence() -> None:
    """Nothing was read in it that could be wrong."""
    assert only({"label": "picture", "box": (50, 120, 280, 300)}).confidence is None


def test_dense_orphaned_and_unreadable_pages_are_flagged() -> None:
    """Flags and a reason report what was read in another way than usual."""
    answer = parse(box("orphan", "a"), dense=True, unreadable_script=True)

    assert answer.elements[0].flags == ("dense_page", "orphan", "unreadable")
    assert answer.reason is Code.UNREADABLE_SCRIPT


def test_a_line_that_was_left_out_is_an_element_without_text() -> None:
    """Its box says where something was seen and not read, and it is found as one loss."""
    answer = parse(box("text", "NO SMOKING"), {"label": "unread", "box": (60, 80, 300, 160)}, lacks_lines=True)
    read, unread = answer.elements
    restored = audit.restore(checkpoint(2, read, unread))

    assert (unread.text, unread.box) == ("", Box(0.1, 0.1, 0.5, 0.2)) and Flag.MISSED in unread.flags
    assert restored.page.audit
    assert [(one.kind, one.box) for one in restored.page.audit.findings] == [(FindingKind.LINES_LEFT_OUT, unread.box)]


def test_the_family_can_be_sent_to_page_workers() -> None:
    """The family survives pickling: it is sent through a pipe with every answer to parse."""
    assert pickle.loads(pickle.dumps(FAMILY)) == FAMILY


def test_an_unnamed_character_before_a_list_item_is_a_bullet() -> None:
    """A character that the font does not name is a bullet at the start of a list item, and stays anywhere else."""
    items = parse(box("list-item", "\ufffd first \ufffd x", "\ufffd second")).elements

    assert [(item.text, item.markdown) for item in items] == [
        ("• first \ufffd x", "- first \ufffd x"),
        ("• second", "- second"),
    ]
    assert only(box("text", "\ufffd = 2")).text == "\ufffd = 2"


def test_styles_are_in_the_markdown_and_not_in_the_text() -> None:
    """Bold, italic and superscripts of a paragraph or list item are in its markdown; headings need none."""
    styled = {"runs": [[2, 6, "b"], [13, 14, "^"]]}

    assert only(box("text", "a bold word m2", **styled)).text == "a bold word m2"
    assert only(box("text", "a bold word m2", **styled)).markdown == "a **bold** word m<sup>2</sup>"
    assert only(box("list-item", "• bold", runs=[[0, 6, "b"]])).markdown == "- **bold**"
    assert only(box("list-item", "1. bold", runs=[[0, 7, "b"]])).markdown == "1. **bold**"
    assert only(box("section-header", "bold", runs=[[0, 4, "b"]])).markdown == "### bold"


def test_a_bold_page_has_no_bold_words() -> None:
    """Where most of the running text is bold, bold distinguishes nothing and is not written."""
    bold, both = box("text", "all bold", runs=[[0, 8, "b"]]), box("text", "bold here", runs=[[0, 4, "bi"]])

    assert [element.markdown for element in parse(bold, both).elements] == ["all bold", "*bold* here"]


@pytest.mark.parametrize("leader", ["........", " . . . . . .", "…………", "·····", "______", " . . . . . .\u2060"])
@pytest.mark.parametrize("label", ["text", "list-item", "orphan"])
def test_contents_are_entries_without_leaders(label: str, leader: str) -> None:
    """Each entry of a list of contents is an item of its own, with its page number; a wrapped title is one entry."""
    lines = [f"1 Scope{leader}3", "1.1 Words of the bylaw and", f"of older bylaws{leader} 12", f"Index{leader}xiv"]

    elements = parse(box(label, *lines)).elements

    assert [(e.kind, e.text) for e in elements] == [
        (Kind.LIST_ITEM, "1 Scope 3"),
        (Kind.LIST_ITEM, "1.1 Words of the bylaw and of older bylaws 12"),
        (Kind.LIST_ITEM, "Index xiv"),
    ]


def test_styles_behind_a_leader_stay_where_they_are() -> None:
    """A bold page number is bold without its leader, too."""
    element = only(box("text", "Scope ........ 12", runs=[[0, 5, "b"], [15, 17, "b"]]))

    assert (element.text, element.markdown) == ("Scope 12", "**Scope 12**")


@pytest.mark.parametrize("text", ["Wait..... what", "Signed: ________", "and so on ... 5", "....... 5"])
def test_other_dots_stay(text: str) -> None:
    """An ellipsis, and a line to be filled in, are no leaders in front of a page number."""
    assert only(box("text", text)).text == text
