"""Headings: numbering, and the one title of a document."""

from __future__ import annotations

import pytest

from tests.fakes.documents import build_document, checkpoint, element
from twopass.document import Category, Kind
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
