"""Page furniture: repeated and labelled lines in the margins, and the body that every page keeps."""

from __future__ import annotations

from pathlib import Path

import pymupdf
import pytest
from hypothesis import given, settings

from tests.fakes.documents import (
    BOTTOM,
    RUN,
    SOURCE,
    TOP,
    build_document,
    checkpoint,
    checkpoint_lists,
    element,
    heading,
    metas,
    plain_table,
)
from twopass.document import (
    Box,
    Checkpoint,
    Confidence,
    ConfidenceMethod,
    Document,
    Element,
    Flag,
    Kind,
    Layer,
    Meta,
    OutlineEntry,
    PageAudit,
)
from twopass.engines.cpu.page import read_page
from twopass.families.layout.family import LayoutFamily
from twopass.format_options import Furniture, Markdown
from twopass.formats import markdown
from twopass.pages.rendered_page import PagePointer
from twopass.pages.shared_pixels import Pixels
from twopass.steps import assemble
from twopass.text import prose


def get_furniture(document: Document) -> list[str]:
    return [e.text for e in document.elements if e.content_layer is Layer.FURNITURE]


def test_a_line_above_three_pages_is_furniture() -> None:
    """The label does not matter, and numbers in the line may differ from page to page."""
    pages = [
        checkpoint(n, element("text", f"Report 2024, page {n}", TOP), element("text", "Body.")) for n in (1, 2, 3, 4)
    ]

    document = build_document(*pages)

    assert len(get_furniture(document)) == 4
    assert document.elements[0].kind is Kind.PAGE_HEADER


def test_chapter_headings_at_the_top_of_pages_are_body() -> None:
    """Headings that differ only by their number are not repetitions."""
    document = build_document(*(checkpoint(n, heading(f"Chapter {n}", box=TOP)) for n in (1, 2, 3, 4)))  # type: ignore[arg-type]

    assert get_furniture(document) == []
    assert len(document.sections) == 4


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("text", ["Dear Sir or Madam"] * 2),
        ("section_header", ["Application form"] * 2),
        ("text", ["Dear Sir,"] * 3),  # unfinished
        ("text", [f"Article {n}" for n in (1, 2, 3)]),
        ("text", [f"The rent is {n}00 from day {n} on." for n in (1, 2, 3)]),
        ("text", ["100", "250", "300"]),
        ("list_item", [f"{n}. Item" for n in (1, 2, 3)]),
    ],
)
def test_first_lines_of_pages_that_may_be_text_are_body(kind: str, texts: list[str]) -> None:
    """Without a label, two equal lines, unfinished lines, and numbers that are not those of pages are no furniture."""
    pages = [checkpoint(n, element(kind, text, TOP), make_body(n)) for n, text in enumerate(texts, 1)]

    assert get_furniture(build_document(*pages)) == []


def test_lines_at_other_heights_are_no_repetitions() -> None:
    """Equal lines in the same margin are furniture only in the same place."""
    places = [Box(0.1, y, 0.9, y + 0.01) for y in (0.01, 0.05, 0.1)]
    pages = [checkpoint(n, element("text", "Water Board", at), make_body(n)) for n, at in enumerate(places, 1)]

    assert get_furniture(build_document(*pages)) == []


def test_a_logo_on_three_pages_is_furniture() -> None:
    """Pictures have no label that could tell a logo; two pages may show the same picture."""
    pages = [checkpoint(n, element("picture", "", TOP), make_body(n)) for n in (1, 2, 3)]

    assert [e.is_body for e in build_document(*pages[:2]).elements] == [True] * 4
    assert [e.is_body for e in build_document(*pages).elements] == [False, True] * 3


# Texts of one margin, page by page, with the layout's label or without; those that leave the body.
FOOTER, PLAIN = "page_footer", "text"
REPETITIONS = [
    # What is the same on three pages
    (FOOTER, ["IBAN XX12 3456 7890"] * 2, []),  # a document of two pages keeps its bank account
    (FOOTER, ["IBAN XX12 3456 7890"] * 3, ["IBAN XX12 3456 7890"] * 3),
    (PLAIN, ["Water Board"] * 3, ["Water Board"] * 3),
    (FOOTER, ["Water Board", "Annual Report"] * 2, []),  # two pages each
    (FOOTER, ["Water Board", "Annual Report"] * 3, ["Water Board", "Annual Report"] * 3),
    (FOOTER, ["Minutes of May", *["Water Board"] * 3], ["Water Board"] * 3),  # another first page
    # The same but for the page's number, or for the time at which it was printed
    (FOOTER, [f"Water Board | {n}" for n in (7, 8, 9)], [f"Water Board | {n}" for n in (7, 8, 9)]),
    (PLAIN, [f"Report 2024, Seite {n}" for n in (1, 2, 3)], [f"Report 2024, Seite {n}" for n in (1, 2, 3)]),
    (FOOTER, ["6 Springs", "Springs 7", "8 Springs"], ["6 Springs", "Springs 7", "8 Springs"]),
    (FOOTER, [f"10/1/24, 3:4{n} PM" for n in (1, 2, 2)], [f"10/1/24, 3:4{n} PM" for n in (1, 2, 2)]),
    # Other numbers are what the pages are about
    (FOOTER, [f"Invoice 2024-008{n}" for n in (1, 2, 3)], []),
    (FOOTER, [f"Invoice {n}" for n in (1, 2, 3)], []),
    (FOOTER, [f"Customer no. {n}" for n in (17, 18, 19)], []),
    (FOOTER, ["Log of 3 May 2024", "Log of 4 May 2024", "Log of 5 May 2024"], []),
    (FOOTER, [f"{n} May 2024" for n in (1, 2, 3)], []),
    (FOOTER, ["Total 950", "Total 1240", "Total 310"], []),
    (FOOTER, ["Exhibit A", "Exhibit B", "Exhibit C"], []),
    # Page numbers
    (FOOTER, ["1"], ["1"]),
    (PLAIN, ["Page 1 of 2", "Page 2 of 2"], ["Page 1 of 2", "Page 2 of 2"]),
    (PLAIN, ["1", "2", "3"], ["1", "2", "3"]),
    (PLAIN, ["1", "2"], []),  # without a label, two numbers may be anything
    (FOOTER, ["1034", "1035"], ["1034", "1035"]),
    (FOOTER, ["1034"], []),  # a year, a customer's number
    (FOOTER, ["IV", "V"], ["IV", "V"]),
    (FOOTER, ["A-3", "A-4"], ["A-3", "A-4"]),
    (FOOTER, ["950", "1240", "310"], []),  # sums
    (FOOTER, ["1", "2", "42"], ["1", "2"]),
    # Mistakes of OCR
    (FOOTER, ["Lindach Water Board", "Lindach Watcr Board", "Lindach VVater Board"], []),  # two letters for one
    (FOOTER, ["Lindach Water Board", "Lindach Watcr Board", "Llndach Water Board"], "all"),
    (FOOTER, ["Office of Anna Berg", "Office of Anna Borg", "Office of Anna Burg"], []),
    (FOOTER, ["Lindach Account 17", "Lindach Account 18", "Lindach Accounl 17"], []),
]


@pytest.mark.parametrize(("kind", "texts", "left"), REPETITIONS)
def test_text_leaves_the_body_if_three_pages_have_it_or_if_it_is_a_page_number(
    kind: str, texts: list[str], left: list[str] | str
) -> None:
    """A label alone proves nothing, and neither do two pages, or the same words with other numbers."""
    pages = [checkpoint(n, make_body(n, 0), element(kind, text, BOTTOM)) for n, text in enumerate(texts, 1)]

    assert get_furniture(build_document(*pages)) == (texts if left == "all" else left)


def test_the_pages_that_are_read_decide() -> None:
    """Of two pages of a long document, nothing is known to repeat; their numbers are page numbers."""
    footers = (element("page_footer", "Water Board", BOTTOM), element("page_footer", "Page 3 of 40", BOTTOM))
    pages = [checkpoint(n, make_body(n, 0), *footers) for n in (3, 4)]

    assert get_furniture(build_document(*pages)) == ["Page 3 of 40"] * 2


def test_a_header_that_the_outline_names_is_a_heading() -> None:
    """The file's own outline says more than the label of a layout model."""
    page = checkpoint(1, element("page_header", "Report of the quay", TOP), element("text", "Body."))

    document = build_document(page, outline=(OutlineEntry(title="Report of the quay", level=1, page=1),))

    assert [(e.kind, e.flags) for e in document.elements] == [(Kind.SECTION_HEADER, ()), (Kind.TEXT, ())]


def test_the_audit_counts_the_words_that_furniture_leaves_out() -> None:
    """Of each page, and only of what leaves the body."""
    footers = (element("page_footer", "Water Board", BOTTOM), element("page_footer", "Page 3 of 40", BOTTOM))
    pages = [checkpoint(n, make_body(n, 0), *footers[: n - 1], audit=PageAudit()) for n in (1, 2, 3)]

    document = build_document(*pages)

    assert [audit.words_left_out for audit in document.audits.values()] == [0, 0, 4]


def test_texts_of_the_pdf_are_not_misread() -> None:
    """Similar texts are repetitions only where OCR or a model read them."""
    exact = Confidence(score=0.98, method=ConfidenceMethod.TEXT_LAYER)
    texts = ["Branch of Lindach", "Branch of Lindech", "Branch of Lindich"]
    pages = [
        checkpoint(n, make_body(n, 0), element("page_footer", text, BOTTOM, confidence=exact))
        for n, text in enumerate(texts, 1)
    ]

    assert get_furniture(build_document(*pages)) == []


def test_headers_in_the_body_come_first_and_footers_last() -> None:
    """They are paragraphs there, keep their labels, and say why they stay."""
    page = checkpoint(
        1,
        element("page_footer", "IBAN XX12 3456", BOTTOM),
        element("text", "Body."),
        element("page_header", "Invoice 17", TOP),
        element("page_header", "In the middle"),
    )

    document = build_document(page)

    assert markdown.write(document, Markdown(page_marks=False))[0] == (
        "Invoice 17\n\nBody.\n\nIn the middle\n\nIBAN XX12 3456\n"
    )
    assert [e.kind for e in document.elements] == ["page_header", "text", "page_header", "page_footer"]
    assert [Flag.APART in e.flags for e in document.elements] == [True, False, True, True]


def test_the_name_above_all_pages_is_a_heading_once() -> None:
    """A heading that every page repeats stays on the first page."""
    pages = [checkpoint(n, heading("Application form", box=TOP), make_body(n)) for n in (1, 2, 3)]  # type: ignore[arg-type]

    assert get_furniture(build_document(*pages)) == ["Application form"] * 2


def test_line_numbers_are_furniture_and_numbers_of_paragraphs_are_not() -> None:
    """Numbers in the side margin are furniture if all pages have the same ones."""
    places = [Box(0.03, y, 0.05, y + 0.02) for y in (0.3, 0.5)]

    def count(first: int, step: int) -> list[str]:
        numbers = [[first + (2 * step * page), first + (2 * step * page) + 1] for page in range(3)]
        pages = [
            checkpoint(
                n, *(element("text", str(x), at) for x, at in zip(pair, places, strict=True)), element("text", "B")
            )
            for n, pair in enumerate(numbers, 1)
        ]
        return get_furniture(build_document(*pages))

    assert count(5, 0) == ["5", "6"] * 3
    assert count(5, 1) == []


def test_a_chapter_name_above_each_of_its_pages_is_a_heading_once() -> None:
    """The first one is the chapter's heading, the others are furniture."""
    named = [checkpoint(n, element("section_header", "Springs", TOP), element("text", "Body.")) for n in (2, 3, 4)]
    others = [checkpoint(n, element("text", f"Body {n}.")) for n in (1, 5, 6, 7)]

    document = build_document(*others, *named)

    assert get_furniture(document) == ["Springs", "Springs"]
    assert [section.title for section in document.sections] == ["Springs"]


def test_a_download_note_in_the_side_margin_is_furniture() -> None:
    """A line in the side margin of every page is furniture, like a header."""
    side = Box(0.95, 0.2, 0.97, 0.8)
    pages = [checkpoint(n, element("text", "Body."), element("text", "Downloaded by X", side)) for n in (1, 2, 3)]

    assert get_furniture(build_document(*pages)) == ["Downloaded by X"] * 3


def test_repeated_text_in_the_middle_of_pages_is_body() -> None:
    """Only text in the margins can be furniture."""
    assert get_furniture(build_document(*(checkpoint(n, element("text", "Remark.")) for n in (1, 2, 3)))) == []


@pytest.mark.parametrize(
    "text", ["INVOICE 2024-0117", "Draft", "Civil works", "$ 950", "1.2.3", "Page layout", "Word " * 40]
)
def test_a_label_alone_makes_no_furniture(text: str) -> None:
    """Text that the model labels a header, but that occurs once, stays in the body and in the Markdown."""
    document = build_document(checkpoint(1, element("page_header", text, TOP), element("text", "Body.")))

    assert get_furniture(document) == []
    assert document.elements[0].kind is Kind.PAGE_HEADER
    assert prose.to_one_line(text) in markdown.write(document)[0].replace("\\", "")


@pytest.mark.parametrize(
    "text",
    [
        *("10/1/24, 3:42 PM", "2024-03-14", "14. März 2024", "https://a.b/c", "www.fda.gov"),
        "Downloaded from https://academic.oup.com/bmb/article/113/1/45/284045 by a library on 10 May 2024",
        "Coast Savings Bank · IBAN XX12 3456 7890 · BIC COASTXX · VAT 4711 · Harbour Street 4 · 20457 Lindach",
    ],
)
def test_dates_addresses_and_notes_of_one_page_are_body(text: str) -> None:
    """They are what a document says of itself, unless three pages repeat it."""
    pages = [checkpoint(n, make_body(n, 0), element("page_footer", text, BOTTOM)) for n in (1, 2, 3)]

    assert get_furniture(build_document(*pages[:2])) == []
    assert get_furniture(build_document(*pages)) == [text] * 3
    assert {e.kind for e in build_document(pages[0]).elements} == {Kind.TEXT, Kind.PAGE_FOOTER}


def test_a_paragraph_that_is_labelled_header_is_text() -> None:
    """It is too long for a header and reads like a paragraph, so that its other part is found."""
    text = "The council reads the notes of both operators in spring, and after every storm it asks the water board for"
    page = checkpoint(1, element("page_header", text, TOP), element("text", "Body."))

    assert [(e.kind, e.flags) for e in build_document(page).elements] == [(Kind.TEXT, ())] * 2


def test_footnotes_of_slides_are_body() -> None:
    """Layout models label them footers, some repeat on several slides, and their numbers count up like page numbers."""
    slides = [
        checkpoint(n, element("text", "Dosing1 of adults"), element("page_footer", f"1 21 CFR 201.57(c)({n})", BOTTOM))
        for n in (1, 2, 3)
    ]
    others = [checkpoint(n, element("text", f"Body {n}.")) for n in range(4, 9)]

    document = build_document(*slides, *others)

    notes = [e for e in document.elements if e.kind is Kind.FOOTNOTE]
    assert [(note.parent_id, note.content_layer) for note in notes] == [
        (f"p000{n}-e000", Layer.BODY) for n in (1, 2, 3)
    ]


def test_a_footer_that_begins_with_the_page_number_is_furniture() -> None:
    """Its number increases with the pages, so it is not a footnote mark."""
    pages = [
        checkpoint(n, element("text", f"Body {n}."), *([element("page_footer", f"{n + 11} Springs", BOTTOM)] * (n % 2)))
        for n in range(1, 9)
    ]

    assert get_furniture(build_document(*pages)) == ["12 Springs", "14 Springs", "16 Springs", "18 Springs"]


def test_changing_titles_in_one_place_are_furniture_if_headings_say_the_same() -> None:
    """Nothing is lost then; other lines in that place stay, such as the number of each invoice of a file."""
    names = ["Springs", "Mains", "Pumps", "Filters", "Meters", "Losses"]
    place = Box(0.1, 0.03, 0.3, 0.05)
    pages = [
        checkpoint(n, element("page_header", f"{n} {name}", place), heading(f"{n}. {name}"), element("text", "Body."))
        for n, name in enumerate(names, 1)
    ]
    odd = checkpoint(7, element("page_header", "Invoice 2024-17", place), element("text", "Body."))

    document = build_document(*pages, odd)

    assert get_furniture(document) == [f"{n} {name}" for n, name in enumerate(names, 1)]


def make_body(page: int, index: int = 1) -> Element:
    """An element of a page, by default the second."""
    return element("text", f"Body {page}.", page=page, id=f"p{page:04d}-e{index:03d}")


def test_footers_of_three_among_many_slides_are_body() -> None:
    """Sources of charts are in a place where other slides have nothing, beside a company's name that is furniture."""
    left, right = Box(0.1, 0.95, 0.4, 0.97), Box(0.8, 0.95, 0.9, 0.97)
    named = [element("text", "Body."), element("page_footer", "Water Board", right)]
    slides = [checkpoint(n, *named, element("page_footer", f"Source: {'abcdefgh'[n]} office", left)) for n in (1, 4, 7)]

    document = build_document(*slides, *(checkpoint(n, *named) for n in (2, 3, 5, 6, 8, 9, 10)))

    assert set(get_furniture(document)) == {"Water Board"}


@settings(max_examples=80)
@given(checkpoint_lists, metas)
def test_no_page_with_text_is_without_body(checkpoints: tuple[Checkpoint, ...], meta: Meta) -> None:
    """This holds for any labels and any repetition on other pages."""
    document = assemble.document(SOURCE, meta, RUN, "id", checkpoints)

    texts = {e.page for e in document.elements if e.text.strip()}
    assert texts <= {e.page for e in document.elements if e.is_body}


@pytest.mark.parametrize("texts", [["A notice to all."], ["2024-03-14", "7"], ["7"]])
def test_a_page_with_a_single_line_keeps_it(texts: list[str]) -> None:
    """A date is the body of a page with nothing else, and so is a number: text, whatever its label."""
    document = build_document(checkpoint(1, *(element("page_header", text, TOP) for text in texts)))

    assert [(e.kind, e.text) for e in document.elements if e.is_body] == [(Kind.TEXT, texts[0])]


def test_the_only_line_at_the_top_of_a_real_page_is_body(tmp_path: Path) -> None:
    """The layout model labels it a header, and the Markdown still contains it."""
    with pymupdf.open() as pdf:
        pdf.new_page().insert_text((72, 60), "Closed on Mondays until the works are done.", fontsize=11)
        pdf.save(tmp_path / "notice.pdf")
        pixmap = pdf[0].get_pixmap(dpi=72)
    pixels = Pixels(pixmap.width, pixmap.height, data=bytes(pixmap.samples))

    answer = LayoutFamily().parse(read_page(PagePointer(str(tmp_path / "notice.pdf"), 1), pixels, None), 1)

    document = build_document(checkpoint(1, *answer.elements))
    assert "Closed on Mondays until the works are done." in markdown.write(document)[0]


def test_the_caption_of_a_continued_table_is_body() -> None:
    """It repeats at the top of many pages but belongs to its table."""
    pages = [
        checkpoint(n, element("caption", "Table 3 (continued)", TOP), element("table", table=plain_table(["a"])))
        for n in range(1, 6)
    ]

    assert get_furniture(build_document(*pages)) == []


def test_a_running_title_without_a_label_is_furniture_where_others_have_it() -> None:
    """It is in the place of the labelled ones and says what one of them says; other text in that place is body."""
    titles = ["Springs", "Springs", "Mains", "Mains", "Pumps", "Pumps"]
    labels = ["page_header", "text", "page_header", "section_header", "page_header", "page_header"]
    place = Box(0.1, 0.03, 0.3, 0.05)
    pages = [
        checkpoint(n, element(label, f"{title} {n}", place), heading(title), element("text", f"Body {n}."))
        for n, (label, title) in enumerate(zip(labels, titles, strict=True), 1)
    ]
    other = checkpoint(7, element("text", "A word on losses", place), element("text", "Body 7."))

    assert get_furniture(build_document(*pages, other)) == [f"{title} {n}" for n, title in enumerate(titles, 1)]


def head_pages(texts: list[str], y: float = 0.03, **labels: str) -> list[Checkpoint]:
    """Pages with a line labelled header, or as `labels` say for pages such as `p2`, and a heading of the same text."""
    place = Box(0.1, y, 0.3, y + 0.02)
    return [
        checkpoint(n, element(labels.get(f"p{n}", "page_header"), text, place), heading(text))
        for n, text in enumerate(texts, 1)
    ]


NAMES = ["Springs", "Mains", "Pumps", "Pumps", "Meters"]


def test_long_lines_in_one_place_are_no_running_titles() -> None:
    """A paragraph that is labelled header stays, although other pages have headers in its place."""
    assert get_furniture(build_document(*head_pages(NAMES))) == NAMES
    assert (
        get_furniture(build_document(*head_pages([f"{name} are read in spring, {'and ' * 20}" for name in NAMES])))
        == []
    )


def test_an_unlabelled_line_below_the_margin_is_no_running_title() -> None:
    """Headers are believed further down than lines without a label."""
    assert get_furniture(build_document(*head_pages(NAMES, p4="text"))) == NAMES
    assert get_furniture(build_document(*head_pages(NAMES, y=0.15, p4="text"))) == [*NAMES[:3], NAMES[4]]


def test_a_page_with_a_header_has_no_second_one_in_its_place() -> None:
    """A line without a label that says the same as the header beside it is body."""
    pages = head_pages(NAMES)
    second = element("text", "Pumps", Box(0.1, 0.03, 0.3, 0.05))
    pages[3] = checkpoint(4, *(e.model_copy(update={"id": ""}) for e in pages[3].elements), second)

    assert get_furniture(build_document(*pages)) == NAMES


@pytest.mark.parametrize("first", ["Two of the", "Two were built."])
def test_a_page_number_is_not_joined_with_the_text_of_the_next_page(first: str) -> None:
    """A number that nothing confirms as a page number stays a paragraph of its own, also before a broken sentence."""
    low, high = Box(0.1, 0.7, 0.9, 0.8), Box(0.1, 0.1, 0.9, 0.3)
    pages = [
        checkpoint(1, element("text", first, low), element("text", "2", Box(0.5, 0.82, 0.52, 0.84))),
        checkpoint(2, element("text", "extensions proposed by the council.", high)),
    ]

    text = markdown.write(build_document(*pages))[0]

    assert "2 extensions" not in text
    assert ("Two of the extensions proposed" in text) is (first == "Two of the")


def test_a_logo_whose_text_is_read_differently_is_furniture() -> None:
    """The same picture in the same place is a logo, whatever OCR reads in it."""
    texts = ("OSTREY Harbour", "0STREY Harb0ur", "OSIREY")
    pages = [checkpoint(n, element("picture", text, TOP), make_body(n)) for n, text in enumerate(texts, 1)]

    assert {e.content_layer for e in build_document(*pages).elements if e.is_figure} == {Layer.FURNITURE}


def test_a_labelled_footer_that_repeats_inside_cropped_pages_is_furniture() -> None:
    """A footer in the middle of the paper leaves the body if three pages have it in the same place."""
    middle = Box(0.1, 0.62, 0.4, 0.63)
    pages = [
        checkpoint(n, make_body(n, 0), element("page_footer", "www.ostrey.example.org", middle)) for n in (1, 2, 3)
    ]

    elements = build_document(*pages).elements

    assert {e.content_layer for e in elements if e.kind is Kind.PAGE_FOOTER} == {Layer.FURNITURE}


def test_a_logo_with_text_on_one_page_is_left_out_if_omit_is_asked() -> None:
    """A small picture with a few words in the margin; a picture with more text, and one in the body, stay."""
    page = checkpoint(
        1,
        element("picture", "Water Board", Box(0.1, 0.02, 0.3, 0.08)),
        element("picture", "All the text of a poster " * 8, Box(0.4, 0.02, 0.6, 0.08)),
        make_body(1),
        element("picture", "Pump", Box(0.1, 0.4, 0.3, 0.46)),
    )

    options = (Markdown(furniture=furniture) for furniture in (Furniture.AUTO, Furniture.OMIT))
    kept, left = (markdown.write(build_document(page), option)[0] for option in options)

    assert "Water Board" in kept and "Water Board" not in left
    assert "poster" in left and "Pump" in left
