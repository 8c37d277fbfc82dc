"""Marks of footnotes, and references to them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.documents import BOTTOM, any_texts, build_document, checkpoint, element
from twopass.document import Box, Kind
from twopass.formats import markdown
from twopass.text import footnotes


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("stored in DB2 for i", None),
        ("emissions of CO2 fell", None),
        ("an area of 5 km2 in all", None),
        ("see Fig.2 and Eq.2 there", None),
        ("as in Table2 above", None),
        ("the year 2 of it", None),
        ("pages 2 to 4", None),
        ("the residents2 of it", "2"),
        ("the residents.2 They", "2"),
        ("Db2 is named Db2, and residents2 are not", "2"),
        ("in the PI2 and not in another PI", "2"),
        ("the residents<sup>2</sup> of DB2", "<sup>2</sup>"),
        ("the residents² of DB2", "²"),
        ("the 10² residents of 5 km² and 7 m²", None),
        ("5 km<sup>2</sup> for residents<sup>2</sup>", "<sup>2</sup>"),
        ("5 km² for residents²", "²"),
    ],
)
def test_names_that_end_in_a_number_are_no_references(text: str, reference: str | None) -> None:
    """A reference is raised, or directly attached to a word that does not have the number as its own."""
    span = footnotes.find_reference(text, "2")

    assert (span and text[slice(*span)]) == reference
    assert span is None or "residents" in text[: span[0]] or "PI" in text[: span[0]]


def test_a_word_that_occurs_with_its_number_again_is_a_name() -> None:
    """The note itself, or any other text of the page, may repeat the name."""
    assert footnotes.find_reference("stored in Db2 here", "2", ["Support in Db2 for i"]) is None
    assert footnotes.find_reference("stored in Db2 here", "2", ["Support in Db for i"]) == (12, 13)


@given(any_texts, st.sampled_from(["1", "2", "12", "*", "†", "a"]), st.lists(any_texts, max_size=2))
def test_a_reference_is_the_mark(text: str, mark: str, others: list[str]) -> None:
    """For any text, a reference is a span of it that holds the mark."""
    span = footnotes.find_reference(text, mark, others)

    assert span is None or 0 <= span[0] < span[1] <= len(text)
    if mark.isdigit():
        assert span is None or footnotes.may_refer(text, mark, others)


@given(any_texts)
def test_a_note_is_its_mark_and_its_text(text: str) -> None:
    """Parsing loses no word of the note."""
    note = footnotes.parse_note(text)

    assert note is None or text.rstrip().endswith(note[1])


def test_a_page_number_before_a_footer_makes_no_reference() -> None:
    """The markdown of the page keeps the product's name and has no footnote."""
    body = element("text", "The data is stored in DB2 for i and nowhere else.")
    footer = element("page_footer", "2 Row and Column Access Control Support in IBM DB2 for i", BOTTOM)

    text = markdown.write(build_document(checkpoint(2, body, footer)))[0]

    assert "stored in DB2 for i" in text
    assert "[^" not in text


def test_a_note_stands_below_its_reference() -> None:
    """A note above the text, such as one that belongs to a table, is not a note to it."""
    text = element("text", "The residents2 of both villages.", Box(0.1, 0.6, 0.9, 0.7))
    note = "2 Counted in spring."

    above = build_document(checkpoint(1, element("footnote", note, Box(0.1, 0.4, 0.9, 0.42)), text))
    below = build_document(checkpoint(1, text, element("footnote", note, BOTTOM)))

    assert [e.parent_id for e in above.elements if e.kind is Kind.FOOTNOTE] == [None]
    assert "residents[^2]" in markdown.write(below)[0]
    assert "residents2" in markdown.write(above)[0]


def test_the_reference_in_the_markdown_is_the_one_that_was_found() -> None:
    """A name with the same number earlier in the paragraph keeps its number."""
    body = element("text", "Stored in Db2 by the residents2 of both villages.")
    other = element("text", "Nothing but Db2 is used.", Box(0.1, 0.6, 0.9, 0.7))

    text = markdown.write(build_document(checkpoint(1, body, other, element("footnote", "2 Counted.", BOTTOM))))[0]

    assert "Stored in Db2 by the residents[^2] of" in text


def test_numbers_of_a_scale_are_no_footnotes() -> None:
    """A number without words is no note, whatever its label."""
    document = build_document(
        checkpoint(1, element("text", "Depth870 of it."), element("page_footer", "870 870", BOTTOM))
    )

    assert [e.kind for e in document.elements] == [Kind.TEXT, Kind.PAGE_FOOTER]
