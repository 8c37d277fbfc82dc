"""Page numbers: which texts are one, and which have one beside a title."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twopass.text import page_numbers
from twopass.text.page_numbers import PageNumber


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("Page 3", 3), ("page 3 of 12", 3), ("Seite 3", 3), ("Seite 3 von 12", 3), ("S. 3", 3), ("p. 3", 3)),
        *(("Página 3 de 12", 3), ("стр. 3", 3), ("Page iv", 4), ("Page | 3", 3), ("3 | P a g e", 3), ("Blatt 3", 3)),
        *(("Sida 3 (12)", 3), ("Page No. 3", 3), ("Page 3 of 12 pages", 3)),
        *(("3/12", 3), ("3 of 9", 3), ("- 3 -", 3), ("– xiv –", 14), ("[Page 3]", 3), ("Page 3 of 12.", 3)),
        *(
            ("Sida 3 (12)", 3),
            ("Page No. 3", 3),
            ("Page 3 of 12 pages", 3),
            ("第3页", 3),
            ("第 3 页 共 12 页", 3),
            ("第3页/共12页", 3),
            ("3쪽", 3),
            ("3ページ", 3),
            ("Page ３", 3),
        ),
    ],
)
def test_a_page_number_that_says_so_needs_no_evidence(text: str, value: int) -> None:
    """Words, totals and dashes around a number name it in many languages."""
    assert page_numbers.parse(text) == PageNumber(value, is_named=True)


@pytest.mark.parametrize(
    ("text", "value", "is_plain"),
    [
        *(("17", 17, True), ("[3]", 3, True), ("• 5 •", 5, True), ("xviii", 18, True), ("١٢", 12, True)),
        *(("1034", 1034, False), ("IV", 4, False), ("C", 100, False), ("A-3", 3, False), ("2-15", 15, False)),
    ],
)
def test_a_number_alone_may_be_one(text: str, value: int, is_plain: bool) -> None:
    """Years, parts and names of forms look the same, so that some need the other pages."""
    assert page_numbers.parse(text) == PageNumber(value, is_plain=is_plain)


@pytest.mark.parametrize(
    "text",
    [
        *("", "-", "Page", "Pages", "Page layout", "INVOICE 2024-0117", "2024-0117", "$ 950", "1,250.00", "1.2.3"),
        *(
            "24/12",
            "12 of 3",
            "3 (12)",
            "12.03.2024",
            "10:41",
            "20817",
            "Chapter 3",
            "No. 3",
            "x y",
            "mix",
            "IBAN",
            "3 %",
            "15²",
        ),
    ],
)
def test_other_texts_are_none(text: str) -> None:
    """Amounts, dates, numbers of invoices and words are no page numbers."""
    assert page_numbers.parse(text) is None


@pytest.mark.parametrize(
    ("text", "title", "value"),
    [
        *(("12 Springs", "Springs", 12), ("Springs 12", "Springs", 12), ("Springs | 12", "Springs", 12)),
        ("Annual Report 2024, page 3 of 12", "Annual Report 2024", 3),
        ("Seite 3 Jahresbericht", "Jahresbericht", 3),
        ("Form 12-A Page 3 of 12 Rev. 2024", "Form 12-A Rev. 2024", 3),
        ("Water Board | 12 | 2024", "Water Board  | 2024", 12),
        ("12 | Springs²", "Springs", 12),
        ("FY 2011 GSA • OCSIT ANNUAL REPORT 15", "FY 2011 GSA • OCSIT ANNUAL REPORT", 15),
    ],
)
def test_a_title_is_split_from_its_page_number(text: str, title: str, value: int) -> None:
    """The number is at its beginning or end, or says or shows that it is one."""
    split = page_numbers.split(text)

    assert split is not None and (split.title, split.number.value) == (title, value)


@pytest.mark.parametrize(
    "text",
    [
        *("Invoice 17", "Invoice no. 17", "Rechnung 17", "Chapter 3", "Order: 5", "§ 5", "Ticket # 5"),
        *("20 May 2024", "May 20", "Report 2024", "3/12", "17", "Springs", "INV-17", "Total € 17"),
    ],
)
def test_what_else_is_counted_is_no_page_number(text: str) -> None:
    """The number of an invoice or a chapter, a day and a year stay a part of their line."""
    assert page_numbers.split(text) is None


ROMANS = ["i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi", "xiv", "xix", "xl", "xlix", "xc", "xcix"]


@given(st.integers(0, 9999), st.sampled_from(["{}", "Page {}", "- {} -", "Seite {}", "第{}页", "  {} \n", "[{}]"]))
def test_numbers_are_read_in_every_form(number: int, form: str) -> None:
    """The value of an Arabic number is what stands there."""
    found = page_numbers.parse(form.format(number))

    assert found is not None and found.value == number


def test_roman_numbers_are_read() -> None:
    """Lower and upper case have the same value."""
    values = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14, 19, 40, 49, 90, 99]

    assert [page_numbers.parse(f"Page {roman}") for roman in ROMANS] == [PageNumber(n, is_named=True) for n in values]
    assert [found.value for roman in ROMANS if (found := page_numbers.parse(roman.upper()))] == values


WORDS = st.sampled_from(["Page", "12", "of", "iv", "-", "|", "/", "第", "页", "Springs", "May", "No."])


@given(st.text(max_size=300) | st.lists(WORDS).map(" ".join))
def test_any_text_is_read_without_an_error(text: str) -> None:
    """A title is shorter than its line, and the number was in it."""
    number, split = page_numbers.parse(text), page_numbers.split(text)

    assert number is None or number.value >= 0
    assert split is None or (split.title and len(split.title) < len(unicodedata.normalize("NFKC", text)))
