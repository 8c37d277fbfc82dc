"""Headings: numbering, and the one title of a document."""

from __future__ import annotations

import pytest

from tests.fakes.documents import build_document, checkpoint, element, heading
from twopass.document import Category, Kind, OutlineEntry
from twopass.text import headings


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.3.1 Meter readings", ("1.3.1", 3, "Meter readings")),
        ("1. Introduction", ("1", 1, "Introduction")),
        ("2) Scope", ("2", 1, "Scope")),
        ("A.1 Proofs", ("A.1", 2, "Proofs")),
        ("IV. Results", ("IV", 1, "Results")),
        ("Chapter 7: Water", ("7", 1, "Water")),
        ("Appendix B", ("B", 1, "")),
        ("第三章 方法", ("三", 1, "方法")),
        ("제2절 방법", ("2", 2, "방법")),
        ("2.1研究背景", ("2.1", 2, "研究背景")),
    ],
)
def test_numbering_is_parsed_into_number_depth_and_title(text: str, expected: tuple[str, int, str]) -> None:
    """All spellings of the supported languages are recognised."""
    numbering = headings.parse_numbering(text)

    assert numbering and (numbering.text, numbering.depth, numbering.rest) == expected


@pytest.mark.parametrize(
    "text", ["2024 in review", "3D models", "Annex: Letter", "10% more", "A plan", "Springs", "1.5"]
)
def test_text_with_digits_is_not_always_numbered(text: str) -> None:
    """Years, percentages and words remain part of the title."""
    assert headings.parse_numbering(text) is None


def test_only_the_first_title_is_the_title() -> None:
    """Models label every large line a title; later ones and numbered ones become section headings."""
    first = checkpoint(1, element("title", "Annual Report"), element("title", "of the Works"), element("text", "Anna."))
    second = checkpoint(2, element("title", "Springs"))

    document = build_document(first, second)

    assert [e.kind for e in document.elements if e.is_heading] == [Kind.TITLE, Kind.TITLE, Kind.SECTION_HEADER]
    assert document.elements[3].category is Category.TEXT_SECTION
    assert document.meta.title == "Annual Report of the Works"
    assert build_document(checkpoint(1, element("title", "1. Introduction"))).elements[0].kind is Kind.SECTION_HEADER


def find_levels(*texts: str | tuple[str, int], outline: tuple[tuple[int, str], ...] = ()) -> list[int | None]:
    """The levels of headings of one page; a text may have the reader's hint, 3 otherwise."""
    pairs = [(text, 3) if isinstance(text, str) else text for text in texts]
    page = checkpoint(1, *(heading(text, level=hint) for text, hint in pairs))
    entries = tuple(OutlineEntry(level=level, title=title, page=1) for level, title in outline)
    return [e.level for e in build_document(page, outline=entries).elements]


@pytest.mark.parametrize(
    ("texts", "levels"),
    [
        (["PART I", "1. Interpretation", "1.1 Words", "2. Scope", "PART II", "3. Berths"], [1, 2, 3, 2, 1, 2]),
        (["Part I", "Chapter 1", "1.1 Words", "1.2 Scope", "Chapter 2", "2.1 Berths"], [1, 2, 3, 3, 2, 3]),
        (["Chapter 1", "1.1 Words", "1.1.1 More", "Chapter 2", "2.1 Berths"], [1, 2, 3, 1, 2]),
        (["Teil 1", "Kapitel 1", "§ 1 Zweck", "§ 2 Umfang", "Kapitel 2", "§ 3 Plätze"], [1, 2, 3, 3, 2, 3]),
        (["I. Intro", "A. Words", "B. Scope", "II. Works", "A. Berths"], [1, 2, 2, 1, 2]),
        (["A. General", "1. Words", "2. Scope", "B. Berths", "1. Size"], [1, 2, 2, 1, 2]),
        (["1 Intro", "2 Works", "A. Proofs", "B. Tables"], [1, 1, 1, 1]),
        (["1 Intro", "1.1 Scope", "2 Works", "Appendix A", "A.1 Proofs"], [1, 2, 1, 1, 2]),
        (["G. Gates", "H. Harbours", "I. Inlets", "J. Jetties"], [1, 1, 1, 1]),
        ([("GENERAL", 2), "1. Words", "2. Scope", ("MOORINGS", 2), "3. Berths"], [1, 2, 2, 1, 2]),
        ([("Intro", 2), "1. Words", "2. Scope"], [1, 1, 1]),
    ],
)
def test_numberings_are_nested_as_documents_nest_them(texts: list[str], levels: list[int]) -> None:
    """Parts are above chapters, these above sections; letters and numbers are below what goes on after them."""
    assert find_levels(*texts) == levels


def test_the_outline_decides_before_the_numbering() -> None:
    """Headings have the outline's levels; deeper ones that it leaves out follow from their numbers on its scale."""
    outline = ((1, "GENERAL"), (2, "1. Interpretation"), (2, "2. Scope"), (1, "MOORINGS"), (2, "3. Berths"))
    texts = ["GENERAL", "1. Interpretation", "1.1 Words", "2. Scope", "MOORINGS", "3. Berths", "3.1 Size"]

    assert find_levels(*texts, outline=outline) == [1, 2, 3, 2, 1, 2, 3]


def test_the_title_of_the_outline_is_above_all_sections() -> None:
    """An entry for the document itself moves no section down."""
    outline = ((1, "Bylaw of the harbour"), (2, "Words"), (3, "Old words"), (2, "Scope"))

    assert find_levels("Words", "Old words", "Scope", outline=outline) == [1, 2, 1]


def test_a_flat_outline_says_nothing_about_numbered_headings() -> None:
    """Where all entries have one level, the numbers decide."""
    outline = tuple((1, title) for title in ("1 Intro", "1.1 Words", "2 Works"))

    assert find_levels("1 Intro", "1.1 Words", "2 Works", outline=outline) == [1, 2, 1]


def test_old_letters_in_a_number_are_read() -> None:
    """The long s of old print is an s."""
    numbering = headings.parse_numbering("Ab\u017fchnitt I. Von den Schiffen")

    assert numbering and numbering.scheme is headings.Scheme.SECTION
