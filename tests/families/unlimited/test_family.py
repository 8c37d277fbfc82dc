"""Unlimited-OCR: its answers become elements, and it is asked as its authors ask it."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import documents
from tests.families.unlimited import answers
from twopass.document import Box, Element, Kind, Layer
from twopass.engines.interface import build_sampling
from twopass.errors import Code
from twopass.families import unlimited
from twopass.families.grounded import grounding, loops
from twopass.families.interface import ElementContext, PageFeatures, PageRequest, ParsedPage, Question, Reply
from twopass.families.registry import FAMILIES, get_family
from twopass.families.unlimited import PROMPTS
from twopass.pages.text_layer import NO_LAYER

A4 = PageFeatures(1191, 1684, ink=0.15, characters=2800)
UNLIMITED_OCR = FAMILIES["unlimited_ocr"]
NORMAL, *RETRIES = UNLIMITED_OCR.ladder(A4, PageRequest())
BOX = (100, 100, 900, 200)


def tag(label: str, content: str = "", box: tuple[int, ...] = BOX) -> str:
    return f"<|det|>{label} [{', '.join(map(str, box))}]<|/det|>{content}\n"


def parse(text: str, page: int = 1) -> ParsedPage:
    return UNLIMITED_OCR.parse(text, page, NORMAL, NO_LAYER)


def only(text: str) -> Element:
    (element,) = parse(text).elements
    return element


def test_a_page_of_the_real_model_becomes_elements() -> None:
    """Labels, boxes, the table, maths and the caption of the first recorded page."""
    parsed = parse(answers.PAGE_1)

    title, _, picture, caption, table, formula = parsed.elements
    assert parsed.reason is None
    assert [element.kind for element in parsed.elements] == [
        Kind.TITLE, Kind.TEXT, Kind.PICTURE, Kind.CAPTION, Kind.TABLE, Kind.TEXT,
    ]  # fmt: skip
    assert (title.text, title.boxes) == ("Unlimited-OCR End-to-End Sample", (Box.from_grid(118, 76, 705, 106, 999),))
    assert picture.native_label == "image" and picture.box
    assert table.table and [cell.text for cell in table.table.cells] == ["Mode", "base_size", "gundam", "1024"]
    assert (caption.parent_id, table.caption_ids) == (table.id, (caption.id,))
    assert "$E = mc^{2}$" in formula.markdown


def test_an_empty_list_gives_its_items_and_no_element() -> None:
    """In the second recorded page, the list comes after its items; its heading is not the document's title."""
    parsed = parse(answers.PAGE_2, page=2)

    assert [element.kind for element in parsed.elements] == [
        Kind.SECTION_HEADER, Kind.PICTURE, Kind.LIST_ITEM, Kind.LIST_ITEM, Kind.TEXT,
    ]  # fmt: skip
    assert [element.id for element in parsed.elements] == sorted({element.id for element in parsed.elements})


KINDS = {
    "FIGURE_PAGE": [
        Kind.SECTION_HEADER, Kind.TEXT, Kind.PICTURE, Kind.CHART, Kind.CHART, Kind.FOOTNOTE, Kind.CAPTION, Kind.TEXT,
    ],
    "REFERENCES": [Kind.LIST_ITEM, Kind.LIST_ITEM, Kind.PAGE_FOOTER],
    "CONTENTS": [Kind.TITLE, *[Kind.TEXT] * 9],
    "TABLE_PAGE": [Kind.CAPTION, Kind.TEXT, Kind.TABLE, Kind.TEXT],
    "RULED_TABLE": [Kind.SECTION_HEADER, Kind.TABLE, Kind.CAPTION, Kind.TEXT],
    "PROCEDURE": [Kind.SECTION_HEADER, Kind.SECTION_HEADER, Kind.LIST_ITEM, Kind.LIST_ITEM],
    "FIRST_PAGE": [
        Kind.TEXT, Kind.PAGE_HEADER, Kind.TITLE, Kind.SECTION_HEADER, Kind.TEXT, Kind.PICTURE, Kind.CAPTION,
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_real_pages_get_the_kinds_that_a_reader_sees(name: str) -> None:
    """Answers recorded by kthr/unlimited-ocr-max (MIT): entries of contents are no headings, captions are captions."""
    parsed = parse(answers.PAGES[name])

    assert parsed.reason is None
    assert [element.kind for element in parsed.elements] == KINDS[name]
    owners = [element.parent_id for element in parsed.elements if element.kind is Kind.CAPTION]
    assert all(owners)


@pytest.mark.parametrize("name", answers.PAGES)
def test_no_word_of_a_real_page_is_lost_or_invented(name: str) -> None:
    """All words outside of tags are in the elements, in their order, and no others."""
    text = re.sub(r"<PAGE>|<\|det\|>.*?<\|/det\|>|</?t\w+>", " ", answers.PAGES[name])

    found = " ".join(element.text for element in parse(answers.PAGES[name]).elements)

    assert re.findall(r"\w+", found) == re.findall(r"\w+", text)


def test_a_text_that_speaks_of_a_table_is_no_caption() -> None:
    """Only a name, a number and a full stop, colon or bar beside a table or figure make a text a caption."""
    table = tag("table", "<table><tr><td>1</td></tr></table>")

    def kinds(text: str) -> list[Kind]:
        return [element.kind for element in parse(text).elements]

    assert kinds(tag("text", "Table 2 shows the pumps.") + table) == [Kind.TEXT, Kind.TABLE]
    assert kinds(tag("text", "Figure 2: Pumps") + table) == [Kind.TEXT, Kind.TABLE]
    assert kinds(tag("text", "Tabelle 2: Pumpen") + table) == [Kind.CAPTION, Kind.TABLE]
    assert kinds(tag("text", "Table 2: Pumps") + tag("text", "Wells") + table) == [Kind.TEXT, Kind.TEXT, Kind.TABLE]
    assert kinds(tag("title", "Figure 7") + tag("text", "Wells")) == [Kind.TITLE, Kind.TEXT]


def test_headings_that_end_in_numbers_stay_headings() -> None:
    """A table of contents has five entries or more, whose page numbers rise and end at the same place."""

    def kinds(headings: list[str], right: list[int]) -> set[Kind]:
        boxes = [(100, 100 + 50 * n, edge, 130 + 50 * n) for n, edge in enumerate(right)]
        pairs = zip(headings, boxes, strict=True)
        return {element.kind for element in parse("".join(tag("title", *pair) for pair in pairs), page=2).elements}

    rising = [f"Step {n}" for n in range(1, 6)]
    assert kinds(rising, [900] * 5) == {Kind.TEXT}
    assert kinds(rising, [200, 300, 210, 220, 200]) == {Kind.SECTION_HEADER}
    assert kinds(rising[::-1], [900] * 5) == {Kind.SECTION_HEADER}
    assert kinds(rising[:4], [900] * 4) == {Kind.SECTION_HEADER}


@pytest.mark.parametrize("order", ["before", "after"])
def test_texts_in_a_list_are_items_without_a_bullet(order: str) -> None:
    """The list may come before or after its items; a list around nothing stays, and is read again."""
    items, container = (
        tag("text", "flour", (140, 110, 400, 130)) + tag("text", "salt", (140, 140, 400, 160)),
        tag("list"),
    )
    outside = tag("text", "Mix well.", (100, 300, 900, 320))

    elements = parse((container + items if order == "before" else items + container) + outside).elements

    assert [(element.kind, element.text) for element in elements] == [
        (Kind.LIST_ITEM, "flour"), (Kind.LIST_ITEM, "salt"), (Kind.TEXT, "Mix well."),
    ]  # fmt: skip
    assert "no_text" in only(tag("list")).flags


def test_only_the_first_title_of_the_document_is_its_title() -> None:
    """The model calls every heading a title; numbered ones and later ones are section headings."""
    first = parse(tag("title", "Water in the Hills") + tag("title", "1.2 Springs") + tag("title", "Wells")).elements
    later = parse(tag("title", "Pumps"), page=2).elements

    assert [element.kind for element in (*first, *later)] == [Kind.TITLE, *[Kind.SECTION_HEADER] * 3]
    assert [element.markdown for element in (first[1], first[2], later[0])] == [
        "## 1.2 Springs",
        "## Wells",
        "## Pumps",
    ]
    assert first[1].numbering == "1.2"


LABELS: dict[str, dict[str, Any]] = {
    "header": {"kind": Kind.PAGE_HEADER, "content_layer": Layer.FURNITURE},
    "page_number": {"kind": Kind.PAGE_FOOTER, "content_layer": Layer.FURNITURE},
    "header_image": {"kind": Kind.PICTURE},
    "figure_title": {"kind": Kind.CAPTION},
    "table_title": {"kind": Kind.CAPTION},
    "image_caption": {"kind": Kind.CAPTION},
    "chart": {"kind": Kind.CHART},
    "page_footnote": {"kind": Kind.FOOTNOTE},
    "aside_text": {"kind": Kind.TEXT},
}


@pytest.mark.parametrize("label", LABELS)
def test_every_reported_label_has_a_kind(label: str) -> None:
    """The labels that users of the model report."""
    element = only(tag(label, "words"))

    assert {name: getattr(element, name) for name in LABELS[label]} == LABELS[label]
    assert element.native_label == label


def test_a_note_of_the_page_belongs_to_no_table() -> None:
    """A page_footnote near a table is a note to the text."""
    table, note = parse(
        tag("table", "<table><tr><td>1</td></tr></table>") + tag("page_footnote", "a See below.")
    ).elements

    assert (table.kind, note.parent_id) == (Kind.TABLE, None)


@pytest.mark.parametrize("name", answers.HEADS)
def test_real_answers_that_are_cut_off_keep_what_is_whole(name: str) -> None:
    """A tag that is cut off is dropped and reported; the elements before it stay."""
    text, kinds = answers.HEADS[name]

    parsed = parse(text)

    assert [str(element.kind) for element in parsed.elements] == kinds
    assert parsed.reason is (Code.TRUNCATED if re.search(r"\[[\d, ]*\Z", text) else None)


def test_a_real_loop_without_tags_is_not_used() -> None:
    """The recorded loop of numbers has no boxes, so that the page is read again."""
    assert parse(answers.NUMERIC_LOOP).reason is Code.UNGROUNDED


def test_a_loop_of_boxes_is_found_while_it_grows() -> None:
    """The same words in boxes that touch, as the model writes them without an n-gram ban."""
    loop = tag("title", "Form") + "".join(tag("text", "Name", (100, 100 + n, 300, 120 + n)) for n in range(40))

    assert UNLIMITED_OCR.is_looping(loop)
    assert parse(loop).reason is Code.LOOP
    assert len(parse(loop).elements) < 5
    assert not UNLIMITED_OCR.is_looping(answers.PAGE_1 + answers.PAGE_2)


BOILERPLATE = (
    "[Non-Text]",
    "[Non-Text]\n" * 40,
    "The image is too blurry to recognize any text content.",
    " [non-text]\n",
)


@pytest.mark.parametrize("text", BOILERPLATE)
def test_boilerplate_is_no_text(text: str) -> None:
    """Alone it is an empty answer, which is asked again; beside text it is dropped; pictures keep their box."""
    assert parse(text) == ParsedPage()
    assert parse(tag("text", text)).elements == ()
    assert [e.text for e in parse(tag("text", text) + tag("text", "Pumps")).elements] == ["Pumps"]
    assert (only(tag("image", text)).kind, only(tag("image", text)).text) == (Kind.PICTURE, "")


MATHS = {
    "\\( \\mathrm {c u r p d f} \\)": "\\( \\mathrm{curpdf} \\)",
    "\\[ x = 1. 3 4 \\]": "\\[ x = 1.34 \\]",
    "\\( 1 0 . 5, 2 \\)": "\\( 10.5, 2 \\)",
    "\\[ c u r p d f = t (l o w, v) \\]": "\\[ curpdf = t (low, v) \\]",
    "\\( a x ^ {n} \\)": "\\( a x ^ {n} \\)",
    "\\( \\alpha x y z \\in \\mathbb R \\)": "\\( \\alpha xyz \\in \\mathbb R \\)",
    "\\( \\text {a b} \\)": "\\( \\text {a b} \\)",
    "\\( \\text {if a b c } x y z \\)": "\\( \\text {if a b c } xyz \\)",
    "model  \\( [10, 30, 33] \\) can": "model [10, 30, 33] can",
    "at \\( [0.5, 1] \\)": "at \\( [0.5, 1] \\)",
    "in 1 9 8 4 rooms": "in 1 9 8 4 rooms",
}


@pytest.mark.parametrize("text", MATHS)
def test_spaces_in_maths_are_closed(text: str) -> None:
    """Only those that LaTeX does not show; text outside of maths stays, and citations are no maths."""
    assert unlimited.close_spaces_in_maths(text) == MATHS[text]
    assert unlimited.close_spaces_in_maths(MATHS[text]) == MATHS[text]


BARE = "title [118, 76, 705, 106]Sample\ntext [116, 120, 588, 157]As in\nsee [1, 2, 3, 4] there\ntext [117, 4"


def test_tags_without_special_tokens_are_read() -> None:
    """A server that removes special tokens leaves label and box; a tag at the end that is cut off is dropped."""
    answer = grounding.parse(BARE)

    assert [block.label for block in answer.blocks] == ["title", "text", "see"]
    assert answer.cut_off


@pytest.mark.parametrize("text", ["The pumps\nsee [1, 2, 3, 4] below", "Pumps [1, 2, 3, 4]"])
def test_citations_are_no_tags(text: str) -> None:
    """In an answer that does not begin with a tag, a list of four numbers is text."""
    assert [block.label for block in grounding.parse(text).blocks] == [None]


def test_the_model_is_asked_as_its_authors_ask() -> None:
    """The prompt has no line end, the ban has their sizes and spares no token; a job may change them."""
    assert NORMAL.prompt == "<image>document parsing." == PROMPTS["document"]
    official = build_sampling(UNLIMITED_OCR.sampling, {}, NORMAL.sampling)
    assert (official.temperature, official.ngram, official.window, official.allowed_tokens) == (0.0, 35, 128, ())
    assert build_sampling(UNLIMITED_OCR.sampling, {"window": 90}, NORMAL.sampling).window == 90


def test_an_unusable_answer_is_asked_for_again() -> None:
    """With some randomness and n-grams as long as before, then in the other mode; there is no other prompt."""
    assert [(rung.name, rung.mode, rung.prompt) for rung in (NORMAL, *RETRIES)] == [
        ("normal", "gundam", PROMPTS["document"]),
        ("again", "gundam", PROMPTS["document"]),
        ("mode", "base", PROMPTS["document"]),
    ]
    again = build_sampling(UNLIMITED_OCR.sampling, {}, RETRIES[0].sampling)
    assert (again.temperature, again.ngram, again.window) == (0.2, 35, 1024)
    assert pickle.loads(pickle.dumps(UNLIMITED_OCR)) == UNLIMITED_OCR


def test_only_large_crops_are_asked_about() -> None:
    """Tables are read again from a crop that is cut into tiles; figures and small crops are not."""

    def ask(kind: Kind, size: tuple[int, int]) -> Question | None:
        return UNLIMITED_OCR.next_question(ElementContext(documents.element(kind, "P-1"), False, size, ()))

    question = ask(Kind.TABLE, (900, 300))

    assert question == Question("table", PROMPTS["document"], "gundam")
    assert [ask(Kind.TABLE, (640, 300)), ask(Kind.PICTURE, (900, 900)), ask(Kind.TEXT, (900, 300))] == [None] * 3


def test_a_second_reading_is_stripped_of_the_grammar() -> None:
    """The words of a reply replace those of an element; boilerplate is an empty reply."""
    element, question = documents.element(Kind.TEXT, ""), Question("text", PROMPTS["document"])

    read = UNLIMITED_OCR.apply_replies(element, [Reply(question, tag("text", "The pump \\( 1. 5 \\)"))])
    blurry = UNLIMITED_OCR.apply_replies(element, [Reply(question, tag("text", "[Non-Text]"))])

    assert (read.text, read.read_by) == ("The pump \\( 1.5 \\)", 2)
    assert "pass2_empty" in blurry.flags


def test_the_registry_knows_the_family() -> None:
    """Settings and jobs name it."""
    assert get_family("unlimited_ocr") == UNLIMITED_OCR


numbers = st.integers(0, 1000)
boxes = st.tuples(numbers, numbers, numbers, numbers).map(
    lambda c: (min(c[0], c[2]), min(c[1], c[3]), max(c[0], c[2]) + 1, max(c[1], c[3]) + 1)
)
labels = st.sampled_from(["text", "title", "table", "list", "image", "image_caption", "page_number", "aside text"])
contents = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp"), exclude_characters="<|｜")).map(str.strip)


@given(st.lists(st.tuples(labels, boxes, contents), max_size=8))
def test_what_was_written_is_read_again(written: list[tuple[str, tuple[int, int, int, int], str]]) -> None:
    """Labels, boxes and contents survive the round trip, in order, and so they do without special tokens."""
    blocks = grounding.parse("".join(tag(label, content, box) for label, box, content in written)).blocks

    assert [(block.label, block.corners, block.content.strip()) for block in blocks] == [
        (label, (box,), content) for label, box, content in written
    ]


PIECES = (
    "<|det|>", "<|/det|>", "<|ref|>", "<PAGE>", "text ", "list ", "title ", "[1, 2, 300, 400]", "[[1, 2, 3, 4]]",
    "[1, 2", "\n", "[Non-Text]", "<table><tr><td>", "</td></tr></table>", "\\( 1 2 \\)", "- one",
    tag("list"), tag("text", "a"),
)  # fmt: skip


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=30).map("".join), st.integers(1, 2))
def test_any_text_gives_some_elements(text: str, page: int) -> None:
    """Any text parses: ids are unique, boxes lie on the page, and no tag is left in the text."""
    elements = parse(text, page).elements

    assert len({element.id for element in elements}) == len(elements)
    assert all(0 <= box.x0 <= box.x1 <= 1 for element in elements for box in element.boxes)
    assert not any(re.search(r"<\|/?det\|>", element.text) for element in elements)
    assert UNLIMITED_OCR.is_looping(text) in (True, False)


@given(st.integers(0, len(answers.PAGE_1)), st.integers(0, len(answers.PAGE_2)))
def test_a_real_answer_may_end_anywhere(first: int, second: int) -> None:
    """What is cut off is never text: every element but the last has the text of one in the whole answer."""
    for answer, end in ((answers.PAGE_1, first), (answers.PAGE_2, second)):
        whole = {element.text for element in parse(answer).elements}
        cut = parse(answer[:end]).elements

        assert all(any(text.startswith(e.text) for text in whole) or e.kind is Kind.TABLE for e in cut[:-1])
        assert not any("det|" in element.text or "[1" in element.text for element in cut)
        assert not loops.has_loop(answer[:end])


MATHS_PIECES = (
    "\\(", "\\)", "\\[", "\\]", "\\mathrm {", "\\text {", "}", "{", "\\alpha", " ", ".", ",", "[1, 2]", "a", "b",
    "12", "7", "\n",
)  # fmt: skip


@given(st.lists(st.sampled_from(MATHS_PIECES), max_size=30).map("".join))
def test_closing_spaces_changes_nothing_but_spaces(text: str) -> None:
    """Letters, digits, commands and braces stay in their order; only the delimiters around citations go, too."""

    def letters(text: str) -> str:
        return re.sub(r"\s|\\[()]", "", text)

    closed = unlimited.close_spaces_in_maths(text)

    assert letters(closed) == letters(text)
    assert len(closed) <= len(text) + text.count("\\(")  # a citation has a space before it
