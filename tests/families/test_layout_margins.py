"""What the layout family takes for headers, footers, page numbers, margin notes and footnotes of one page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pymupdf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.documents import build_document, checkpoint
from twopass.document import FURNITURE, Document, Kind
from twopass.engines.cpu.page import read_page
from twopass.families.layout import elements, margins
from twopass.families.layout.family import LayoutFamily
from twopass.families.layout.margins import Role
from twopass.families.layout.page_layout import PageLayout
from twopass.format_options import Furniture, Markdown
from twopass.formats import markdown
from twopass.pages.rendered_page import PagePointer
from twopass.pages.shared_pixels import Pixels

Place = tuple[float, float, float, float]
HEADER, FOOTER = (60.0, 30.0, 300.0, 40.0), (60.0, 770.0, 300.0, 780.0)
BODY_PLACE = (60.0, 100.0, 540.0, 400.0)
PARAGRAPH = (
    "The level in the borehole is measured before the pump starts and after it has run for one hour. Prices are those",
    "of January, and half of the loss is now thought to lie in the upper village, where both operators write down what",
    "they see on their rounds. The council reads their notes in spring and decides which of the mains are replaced.",
)


def region(label: str, *lines: str, at: Place = BODY_PLACE, size: float = 10.0) -> dict[str, Any]:
    """A region whose lines fill its place from top to bottom."""
    x0, y0, x1, y1 = at
    step = (y1 - y0) / max(len(lines), 1)
    boxes = [(x0, y0 + n * step, x1, y0 + (n + 1) * step) for n in range(len(lines))]
    return {
        "label": label,
        "box": at,
        "lines": [{"box": box, "text": text, "size": size} for box, text in zip(boxes, lines, strict=True)],
    }


BODY = region("text", *PARAGRAPH)


def find_role(subject: dict[str, Any], *others: dict[str, Any]) -> Role | None:
    layout = PageLayout(v=2, width=600, height=800, via="text_layer", boxes=(subject, *others))
    return margins.analyse(layout)[0][1]


@pytest.mark.parametrize(
    "text",
    [
        "Lindach Valley Water Board",
        "J Gen Plant Pathol (2005) 71:107–116",
        "12 SPRINGS AND MAINS",
        "L. Lucaccioni et al.",
        "© The Author 2014. Published by Oxford University Press. All rights reserved. For permissions, please write.",
        "Proceedings of the 62nd Annual Meeting of the Association for Computational Linguistics (Volume 1: Long "
        "Papers), pages 2121–2137 August 11–16, 2024",
    ],
)
@pytest.mark.parametrize(("label", "place"), [("page-header", HEADER), ("page-footer", FOOTER)])
def test_a_label_at_the_edge_is_believed(text: str, label: str, place: Place) -> None:
    """A short line that is labelled and stands apart from the body is furniture, also on a page of its own."""
    assert find_role(region(label, text, at=place), BODY) is Role.CONFIRMED


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("guidance", FOOTER),  # the end of a line
        ("Losses in the upper village and", FOOTER),  # unfinished
        ("The council reads the notes of both operators in spring.", FOOTER),  # a sentence
        ("910 910", FOOTER),  # a scale
        ("Clcr = creatinine clearance", FOOTER),  # explains a letter of the page
        ("1 21 CFR 201.57(c)(9)(v)", FOOTER),  # begins with a mark
        ("word " * 30, HEADER),
        ("© The Author " + "and others " * 30, HEADER),  # longer than an imprint
        ("Lindach Valley Water Board", (60.0, 80.0, 300.0, 98.0)),  # no gap to the body
        ("Lindach Valley Water Board", (60.0, 300.0, 300.0, 310.0)),  # in the middle of the page
    ],
)
def test_what_is_uncertain_is_not_confirmed(text: str, place: Place) -> None:
    """Sentences, parts of sentences, footnotes, numbers and text beside the body are not furniture by their label."""
    label = "page-header" if place[1] < 400 else "page-footer"

    assert find_role(region(label, text, at=place), BODY) in (None, Role.INNER)


def test_a_header_at_the_foot_is_body() -> None:
    """A header belongs at the top and a footer at the foot; on a page that is set sideways, at either side."""
    notice = "The council reads the notes of both operators in spring."
    lines = [region("text", PARAGRAPH[0], at=(100 + 14 * n, 60, 110 + 14 * n, 700)) for n in range(8)]
    left, right = (20.0, 60.0, 30.0, 400.0), (570.0, 60.0, 580.0, 400.0)

    assert find_role(region("page-header", notice, at=FOOTER), BODY) is Role.INNER
    assert find_role(region("page-footer", notice, at=HEADER), BODY) is Role.INNER
    assert [find_role(region("page-header", notice, at=at), *lines) for at in (left, right)] == [None, None]


def test_text_beyond_a_header_makes_it_body() -> None:
    """A header is the outermost text of its page."""
    above = region("text", "An address above it", at=(60, 10, 300, 20))

    assert find_role(region("page-header", "Water Board", at=HEADER), BODY, above) is None


def test_large_text_is_no_header() -> None:
    """Headings and the text of slides are larger than the body; headers and footers are not."""
    assert find_role(region("page-header", "Water Board", at=HEADER, size=13.0), BODY) is None
    assert find_role(region("page-header", "Water Board", at=HEADER, size=11.0), BODY) is Role.CONFIRMED


def test_a_label_of_another_kind_is_no_evidence() -> None:
    """Text at the edge that the layout model does not call header or footer stays what it is."""
    assert find_role(region("text", "Lindach Valley Water Board", at=HEADER), BODY) is None
    assert find_role(region("section-header", "Lindach Valley Water Board", at=HEADER), BODY) is None


def test_a_footer_that_the_page_refers_to_is_a_note() -> None:
    """A number before a title is the page's number, unless a word of the page carries it as a mark."""
    note = region("page-footer", "2 Clinical Studies Section of Labeling", at=FOOTER)
    other = region("page-footer", "Labeling website", at=(310, 770, 540, 780))

    assert find_role(note, BODY) is Role.CONFIRMED
    assert find_role(note, BODY, region("text", "as labelled2 today", at=(60, 500, 540, 520))) is None
    assert find_role(note, BODY, region("text", "generally avoided,1,2 and", at=(60, 500, 540, 520))) is None
    assert find_role(other, BODY, note, region("text", "as labelled2", at=(60, 500, 540, 520))) is None


def test_a_number_apart_from_the_text_is_a_page_number() -> None:
    """Numbers in the margin, Arabic or Roman, are page numbers; beside the text or in the page they are not."""
    low = (290.0, 712.0, 310.0, 722.0)  # above the outermost band

    assert find_role(region("orphan", "17", at=low), BODY) is Role.PAGE_NUMBER
    assert find_role(region("text", "– xiv –", at=low), BODY) is Role.PAGE_NUMBER
    assert find_role(region("text", "17", at=low), region("text", *PARAGRAPH, at=(60, 400, 540, 711))) is None
    assert find_role(region("text", "17", at=(290, 500, 310, 510)), BODY) is None
    assert find_role(region("section-header", "17", at=low), BODY) is None


def test_the_last_price_of_a_column_is_no_page_number() -> None:
    """A number that touches the text or table above it is body, also at the foot of the page."""
    at = (500.0, 760.0, 530.0, 770.0)
    table = {"label": "table", "box": (60, 500, 540, 758), "table": {"rows": 1, "cols": 1, "cells": []}}

    assert find_role(region("orphan", "450", at=at), BODY, table) is None
    assert (
        find_role(region("orphan", "450", at=at), BODY, region("text", "300", "150", at=(500, 720, 530, 758))) is None
    )
    assert find_role(region("orphan", "450", at=at), BODY) is Role.PAGE_NUMBER


def test_a_page_number_is_split_from_the_text_below_it() -> None:
    """A number above a paragraph in one region, with a gap, is a page number; a number in the paragraph is text."""
    lines = [
        {"box": (60, 30, 70, 40), "text": "2", "size": 10.0},
        {"box": (60, 70, 540, 80), "text": "extensions proposed by the council", "size": 10.0},
    ]
    near = [lines[0], {**lines[1], "box": (60, 42, 540, 52)}]
    glued = {"label": "text", "box": (60, 30, 540, 80), "lines": lines}

    answers = [
        LayoutFamily().parse(PageLayout(v=2, width=600, height=800, via="text_layer", boxes=(b,)).model_dump_json(), 1)
        for b in (glued, {**glued, "lines": near})
    ]

    assert [(e.kind, e.text) for e in answers[0].elements] == [
        (Kind.PAGE_HEADER, "2"),
        (Kind.TEXT, "extensions proposed by the council"),
    ]
    assert [e.text for e in answers[1].elements] == ["2 extensions proposed by the council"]


@pytest.mark.parametrize(
    ("even", "odd", "inset"),
    [("{} THE WATER OF THE VILLAGE", "HISTORY OF LINDACH {}", 0.0), ("[{}] Of Springs", "Of the Village {}", 90.0)],
)
def test_a_running_title_is_split_from_the_paragraph_that_it_was_put_into(even: str, odd: str, inset: float) -> None:
    """Old OCR makes the title with the page's number the first line; over pages, it is furniture."""
    pages, words = [], " ".join(PARAGRAPH * 5).split()
    for number in range(1, 7):
        lines = [" ".join(words[number * 7 + n :][:9]).lower() for n in range(0, 200, 9)]
        title = (odd if number % 2 else even).format(20 + number)
        body = region("text", title, *filter(None, lines), at=(60, 30, 540, 300))
        x0, y0, x1, y1 = body["lines"][0]["box"]
        body["lines"][0]["box"] = (x0 + inset, y0, x1 - inset, y1)
        layout = PageLayout(v=2, width=600, height=800, via="hidden_layer", boxes=(body,))
        pages.append(checkpoint(number, *elements.build_elements(layout, number)))

    kinds = [element.kind for element in build_document(*pages).elements]

    assert kinds == [Kind.PAGE_HEADER, Kind.TEXT] * 6


def test_a_sentence_with_a_number_stays_in_its_paragraph() -> None:
    """A line that begins with a number is a title only in capitals or set in."""
    body = region("text", "12 members met in", *PARAGRAPH, at=(60, 30, 540, 90))

    layout = PageLayout(v=2, width=600, height=800, via="text_layer", boxes=(body,))

    assert len(margins.analyse(layout)) == 1


def test_no_number_is_split_from_a_column_of_numbers() -> None:
    """The last price of a column stays with the others, whatever the space between them."""
    lines = [{"box": (500, y, 530, y + 10), "text": text, "size": 10.0} for y, text in ((730, "300"), (760, "450"))]
    prices = {"label": "text", "box": (500, 730, 530, 770), "lines": lines}

    assert find_role(prices, BODY) is None


def test_a_page_set_sideways_has_no_stamps() -> None:
    """Where all lines run up the page, its first line is body, and its header is at the side."""
    lines = [region("text", PARAGRAPH[0], at=(20 + 14 * n, 60, 30 + 14 * n, 700)) for n in range(8)]
    header = region("page-header", "Water Board", at=(580, 60, 590, 160))
    stamp = region("orphan", "Downloaded from a library", at=(580, 100, 590, 700))

    assert find_role(*lines) is None
    assert find_role(header, *lines) is Role.CONFIRMED
    assert find_role(stamp, BODY) is Role.STAMP


def test_a_footnote_that_is_set_like_the_text_is_text() -> None:
    """A note is in smaller type than the text, or apart from it; anything else with the label is a paragraph."""
    below = (60.0, 402.0, 540.0, 412.0)
    note = "1 Residents of both villages."

    assert find_role(region("footnote", note, at=below), BODY) is Role.SET_LIKE_TEXT
    assert find_role(region("footnote", note, at=below, size=8.0), BODY) is None
    assert find_role(region("footnote", note, at=(60, 420, 540, 430)), BODY) is None


PLACES = st.tuples(st.floats(-50, 650), st.floats(-50, 850), st.floats(-50, 650), st.floats(-50, 850))
LABELS = st.sampled_from(
    ["text", "orphan", "page-header", "page-footer", "footnote", "list-item", "picture", "formula"]
)
REGIONS = st.builds(
    lambda label, at, lines, size: region(label, *lines, at=at, size=size),
    LABELS,
    PLACES,
    st.lists(
        st.sampled_from(["2", "ii", "1 of 3", "Water Board", "1 See there.", "x"]) | st.text(max_size=9), max_size=3
    ),
    st.floats(0, 40),
)


@given(st.lists(REGIONS, max_size=5))
def test_no_line_is_lost_or_moved(regions: list[dict[str, Any]]) -> None:
    """Whatever the regions are, their lines come back once, in order."""
    layout = PageLayout(v=2, width=600, height=800, via="text_layer", boxes=tuple(regions))

    found = [line for part, _ in margins.analyse(layout) for line in part.lines]

    assert found == [line for part in layout.boxes for line in part.lines]


# ---- pages that the layout model reads ----


def read_pages(document: Any, path: Path) -> Document:
    """What the cpu engine and the family make of a document that a test has drawn."""
    document.save(path)
    checkpoints = []
    for page in document:
        pixmap = page.get_pixmap(dpi=72)
        pixels = Pixels(pixmap.width, pixmap.height, data=bytes(pixmap.samples))
        answer = LayoutFamily().parse(read_page(PagePointer(str(path), page.number + 1), pixels, None), page.number + 1)
        checkpoints.append(checkpoint(page.number + 1, *answer.elements))
    return build_document(*checkpoints)


def draw_page(document: Any, header: str, footer: str, start: str = "") -> Any:
    """A page of two paragraphs in Times, with a header and a footer in smaller type."""
    page = document.new_page(width=595, height=842)
    page.insert_text((72, 40), header, fontsize=9, fontname="tiro")
    for row, line in enumerate((start + PARAGRAPH[0], *PARAGRAPH[1:], *PARAGRAPH * 6)):
        page.insert_text((72, 90 + 14 * row + 10 * (row // 9)), line[:88], fontsize=11, fontname="tiro")
    page.insert_text((72, 810), footer, fontsize=9, fontname="tiro")
    return page


def test_headers_and_footers_of_one_page_stay_unless_omit_is_asked(tmp_path: Path) -> None:
    """Nothing repeats them, and they may name an account. They are labelled, so that excerpts can omit them."""
    with pymupdf.open() as document:
        draw_page(document, "Lindach Valley Water Board, Invoice 817", "Account 20-4471 | Springs and mains")
        result = read_pages(document, tmp_path / "one.pdf")

    text = markdown.write(result)[0]
    omitted = markdown.write(result, Markdown(furniture=Furniture.OMIT))[0]
    assert text.index("Invoice 817") < text.index("The level in the borehole") < text.index("Account 20")
    assert "The level in the borehole" in omitted
    assert "Invoice" not in omitted and "Account" not in omitted
    assert [e.kind for e in result.elements if e.kind in FURNITURE] == [Kind.PAGE_HEADER, Kind.PAGE_FOOTER]


def test_a_page_number_does_not_become_a_footnote(tmp_path: Path) -> None:
    """The footer of this page begins with its number, and the text names a product that ends in the same number."""
    footer = "2 Row and Column Access Control Support in IBM DB2 for i"
    with pymupdf.open() as document:
        draw_page(document, "Chapter 1. Securing data", footer, start="All of this is stored in DB2 for i, and ")
        result = read_pages(document, tmp_path / "db2.pdf")

    text = markdown.write(result)[0]
    assert "stored in DB2 for i" in text
    assert "[^" not in text and text.count(footer) == 1


def test_running_titles_of_many_pages_are_furniture(tmp_path: Path) -> None:
    """On left pages the book's title beside the number, on right pages the chapter's name, which changes."""
    chapters = ["Springs", "Boreholes", "Mains"]
    with pymupdf.open() as document:
        for number in range(2 * len(chapters)):
            title = f"{number + 1}   The Waters of Lindach" if number % 2 else f"{chapters[number // 2]}   {number + 1}"
            draw_page(document, title, "")
        result = read_pages(document, tmp_path / "book.pdf")

    text = markdown.write(result)[0]
    assert "Waters of Lindach" not in text
    assert [text.count(chapter) for chapter in chapters] == [1] * len(chapters)  # no heading says the same
    assert text.count("The level in the borehole") == 6 * 7


def test_the_last_text_of_a_cropped_page_may_be_its_footer() -> None:
    """A labelled footer far above the paper's edge is one if nothing is below it; between paragraphs it is text."""
    footer = region("page-footer", "www.ostrey.example.org", at=(60.0, 500.0, 300.0, 510.0), size=8.0)
    below = region("text", *PARAGRAPH, at=(60.0, 540.0, 540.0, 600.0))

    assert find_role(footer, BODY) is None
    assert find_role(footer, BODY, below) is Role.INNER
