"""Continuations of paragraphs, headings and tables across columns and pages."""

from __future__ import annotations

import pytest

from tests.fakes.documents import (
    BOTTOM,
    TOP,
    build_document,
    checkpoint,
    describe_tree,
    element,
    heading,
    plain_table,
)
from twopass.document import Box, Document, Element, State

LEFT, RIGHT = Box(0.1, 0.2, 0.45, 0.9), Box(0.55, 0.2, 0.9, 0.9)


def get_links(document: Document) -> list[tuple[str, str]]:
    """Each element with its continuation, after checking that both ends agree."""
    backward = {(e.continues, e.id) for e in document.elements if e.continues}
    pairs = [(e.id, e.continued_by) for e in document.elements if e.continued_by]
    assert set(pairs) == backward
    return pairs  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("end", "start"),
    [
        ("It was found to be", "enough for all."),
        ("the mea-", "surement of flow"),
        ("in the valley of", "Lindach there"),
        ("这个方法在", "所有情况下都有效。"),
        ("문서를 읽는", "모델이 있다."),
    ],
)
def test_a_paragraph_continues_on_the_next_page(end: str, start: str) -> None:
    """Figures, captions, footnotes and furniture between both parts do not matter."""
    first = checkpoint(
        1, element("text", end), element("footnote", "1 Note."), element("page_footer", "Page 1", BOTTOM)
    )
    second = checkpoint(2, element("picture"), element("caption", "Figure 1."), element("text", start))

    assert get_links(build_document(first, second)) == [("p0001-e000", "p0002-e002")]


def test_an_unconfirmed_header_interrupts_nothing() -> None:
    """It is body because it occurs once; paragraphs and tables continue after it but never in it."""
    header, rows = element("page_header", "Water Journal", TOP), element("table", table=plain_table(["a", "b"]))
    text = build_document(checkpoint(1, element("text", "It ran")), checkpoint(2, header, element("text", "dry.")))
    table = build_document(checkpoint(1, rows), checkpoint(2, header, rows))

    assert get_links(text) == get_links(table) == [("p0001-e000", "p0002-e001")]


@pytest.mark.parametrize(
    ("end", "start"),
    [
        ("It ended.", "then more"),
        ("It ended", "Then more"),
        ("as follows:", "one and"),
        ("끝났다.", "그리고"),
        ("It ran", "• on"),
    ],
)
def test_a_finished_paragraph_does_not_continue(end: str, start: str) -> None:
    """A full stop ends a paragraph, and so does a capital letter after a complete line."""
    assert get_links(build_document(checkpoint(1, element("text", end)), checkpoint(2, element("text", start)))) == []


def test_a_heading_ends_a_paragraph() -> None:
    """No paragraph continues in another section."""
    second = checkpoint(2, heading("2 Works"), element("text", "enough for all"))

    assert get_links(build_document(checkpoint(1, element("text", "It was found to be")), second)) == []


def test_a_paragraph_continues_in_the_next_column() -> None:
    """Two paragraphs below each other in one column are not linked."""
    column = checkpoint(1, element("text", "It was found to be", LEFT), element("text", "enough for all.", RIGHT))
    below = checkpoint(1, element("text", "It was found to be"), element("text", "enough for all."))

    assert get_links(build_document(column)) == [("p0001-e000", "p0001-e001")]
    assert get_links(build_document(below)) == []


def test_a_broken_paragraph_continues_after_notes() -> None:
    """Table notes and addresses that were read as text may lie between both parts."""
    note, rest = element("text", "aThe numbers are those of Fig. 5"), element("text", "ondary fungi grow.")
    page = checkpoint(1, element("text", "products which are sec-"), note, element("table"), rest)

    assert get_links(build_document(page)) == [("p0001-e000", "p0001-e003")]


def test_the_end_of_a_caption_continues_no_paragraph() -> None:
    """Layout models cut captions in two, and the second part looks like a paragraph."""
    caption = [element("caption", "Fig. 3. Arrows show the"), element("text", "orientation of each.")]

    assert get_links(build_document(checkpoint(1, element("text", "found in Neuro-")), checkpoint(2, *caption))) == []


def test_a_heading_of_two_lines_begins_one_section() -> None:
    """Two lines belong together if the second begins in lower case or the first cannot end there."""
    lines = heading("1 Tests and determination of"), heading("their behaviour")

    document = build_document(checkpoint(1, *lines, element("text", "Body.")))

    assert describe_tree(document.sections) == [("1", "Tests and determination of their behaviour", [])]
    assert len(document.sections[0].element_ids) == 3


@pytest.mark.parametrize(("state", "joined"), [(State.BLANK, True), (State.FAILED, False)])
def test_nothing_continues_across_a_failed_page(state: State, joined: bool) -> None:
    """The content of a failed page is unknown; a blank page has none, so a paragraph may cross it."""
    ends = checkpoint(1, element("text", "found to be")), checkpoint(3, element("text", "enough for all."))

    assert bool(get_links(build_document(*ends, checkpoint(2, state=state)))) == joined


def test_a_table_continues_with_a_repeated_header_or_none() -> None:
    """The parts have equal columns and only captions and notes between them."""
    head, row = ["Order", "Cost"], ["24-44", "2,900"]
    first = checkpoint(1, element("table", table=plain_table(head, row, header=True)), element("footnote", "1 Note."))
    again = checkpoint(
        2, element("caption", "Table 3 (continued)", TOP), element("table", table=plain_table(head, row, header=True))
    )
    rest = checkpoint(3, element("table", table=plain_table(row)))

    assert get_links(build_document(first, again, rest)) == [("p0001-e000", "p0002-e001"), ("p0002-e001", "p0003-e000")]


@pytest.mark.parametrize(
    "second",
    [
        [element("table", table=plain_table(["a", "b", "c"]))],
        [element("table", table=plain_table(["Other", "Head"], ["1", "2"], header=True))],
        [element("text", "Text."), element("table", table=plain_table(["1", "2"]))],
        [
            element("caption", "Table 4: Other", id="c"),
            element("table", table=plain_table(["1", "2"]), caption_ids=("c",)),
        ],
    ],
    ids=["columns", "header", "text between", "own caption"],
)
def test_a_different_table_is_not_a_continuation(second: list[Element]) -> None:
    """Other columns, another header, text between or its own caption make it a different table."""
    first = checkpoint(1, element("table", table=plain_table(["Order", "Cost"], ["1", "2"], header=True)))

    assert get_links(build_document(first, checkpoint(2, *second))) == []
