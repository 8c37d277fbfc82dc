"""What no single page can know: order, furniture, captions, headings, sections, what runs on."""

from __future__ import annotations

import random
from pathlib import Path

import pymupdf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.documents import (
    BOTTOM,
    MIDDLE,
    RUN,
    SOURCE,
    TOP,
    assembled,
    checkpoint,
    element,
    grid,
    metas,
    readings,
)
from twopass.document import (
    Box,
    Category,
    Checkpoint,
    Document,
    Element,
    Kind,
    Layer,
    Meta,
    OutlineEntry,
    Problem,
    Section,
    State,
    Status,
)
from twopass.engines.cpu.page import read_page
from twopass.engines.interface import PagePointer
from twopass.errors import Code
from twopass.families.layout import LayoutFamily
from twopass.formats import markdown
from twopass.pages.shared_pixels import Pixels
from twopass.steps import assemble, enrich
from twopass.text import prose, sections

LEFT, RIGHT = Box(0.1, 0.2, 0.45, 0.9), Box(0.55, 0.2, 0.9, 0.9)


def heading(text: str, **fields: int) -> Element:
    return element("section_header", text, **fields)


def shape(tree: tuple[Section, ...]) -> list[object]:
    """Numbers, titles and children, for comparing."""
    return [(section.number, section.title, shape(section.children)) for section in tree]


def links(document: Document) -> list[tuple[str, str]]:
    """What runs on into what, checked from both ends."""
    back = {(e.continues, e.id) for e in document.elements if e.continues}
    pairs = [(e.id, e.continued_by) for e in document.elements if e.continued_by]
    assert set(pairs) == back
    return pairs  # type: ignore[return-value]


def furniture(document: Document) -> list[str]:
    return [e.text for e in document.elements if e.content_layer is Layer.FURNITURE]


@settings(max_examples=80)
@given(readings, metas, st.randoms(use_true_random=False))
def test_the_order_of_checkpoints_does_not_matter(
    read: tuple[Checkpoint, ...], meta: Meta, chance: random.Random
) -> None:
    """Any checkpoints give a document, shuffled ones the same; all pages and elements are in it, in page order."""
    shuffled = list(read)
    chance.shuffle(shuffled)

    document = assemble.document(SOURCE, meta, RUN, "id", read)

    assert assemble.document(SOURCE, meta, RUN, "id", shuffled) == document
    assert [page.number for page in document.pages] == sorted(c.page.number for c in read)
    assert [e.order for e in document.elements] == list(range(sum(len(c.elements) for c in read)))
    assert [e.page for e in document.elements] == sorted(e.page for e in document.elements)


@settings(max_examples=80)
@given(readings, metas)
def test_every_element_keeps_its_words_and_is_in_one_section_at_most(read: tuple[Checkpoint, ...], meta: Meta) -> None:
    """Nothing is merged or dropped; the tree is not empty where there are headings."""
    document = assemble.document(SOURCE, meta, RUN, "id", read)
    before = {e.id: (e.text, e.boxes) for c in read for e in c.elements}
    held = [name for section in flattened(document.sections) for name in section.element_ids]

    assert {e.id: (e.text, e.boxes) for e in document.elements} == before
    assert len(held) == len(set(held))
    assert bool(document.sections) >= any(e.is_body and e.is_heading for e in document.elements)
    assert [s.id for s in flattened(document.sections)] == sorted(s.id for s in flattened(document.sections))


def flattened(tree: tuple[Section, ...]) -> list[Section]:
    return [one for section in tree for one in (section, *flattened(section.children))]


# ------------------------------------------------------------------ furniture


def test_what_stands_above_three_pages_is_furniture_whatever_its_label() -> None:
    """Numbers in it may count up."""
    pages = [
        checkpoint(n, element("text", f"Report 2024, page {n}", TOP), element("text", "Body.")) for n in (1, 2, 3, 4)
    ]

    document = assembled(*pages)

    assert len(furniture(document)) == 4
    assert document.elements[0].kind is Kind.PAGE_HEADER


def test_chapters_that_begin_pages_are_no_furniture() -> None:
    """Headings differ by their number alone."""
    document = assembled(*(checkpoint(n, heading(f"Chapter {n}", box=TOP)) for n in (1, 2, 3, 4)))  # type: ignore[arg-type]

    assert furniture(document) == []
    assert len(document.sections) == 4


def test_a_chapters_name_above_its_pages_heads_it_once() -> None:
    """The first is the heading, the others are furniture."""
    named = [checkpoint(n, element("section_header", "Springs", TOP), element("text", "Body.")) for n in (2, 3, 4)]
    others = [checkpoint(n, element("text", f"Body {n}.")) for n in (1, 5, 6, 7)]

    document = assembled(*others, *named)

    assert furniture(document) == ["Springs", "Springs"]
    assert [section.title for section in document.sections] == ["Springs"]


def test_a_download_note_in_the_margin_is_furniture() -> None:
    """It runs up the side of every page."""
    side = Box(0.95, 0.2, 0.97, 0.8)
    pages = [checkpoint(n, element("text", "Body."), element("text", "Downloaded by X", side)) for n in (1, 2, 3)]

    assert furniture(assembled(*pages)) == ["Downloaded by X"] * 3


def test_a_heading_that_names_a_table_is_its_caption() -> None:
    """And heads no section."""
    table = element("table", box=Box(0.1, 0.52, 0.9, 0.7), table=grid(["a"]))

    document = assembled(checkpoint(1, heading("Table 1 Clinical features"), table))

    assert document.elements[1].caption_ids == ("p0001-e000",)
    assert document.sections == ()


def test_the_same_text_in_the_middle_of_pages_is_body() -> None:
    """Only what stands at the top or bottom is furniture."""
    assert furniture(assembled(*(checkpoint(n, element("text", "Remark.")) for n in (1, 2, 3)))) == []


@pytest.mark.parametrize(
    "text", ["INVOICE 2024-0117", "Draft", "Civil works", "$ 950", "1.2.3", "Page layout", "word " * 40]
)
def test_a_label_alone_makes_no_furniture(text: str) -> None:
    """Losing a paragraph to a wrong label is worse than keeping a header."""
    document = assembled(checkpoint(1, element("page_header", text, TOP), element("text", "Body.")))

    assert furniture(document) == []
    assert document.elements[0].kind is Kind.TEXT
    assert prose.flow(text) in markdown.write(document)[0].replace("\\", "")


@pytest.mark.parametrize(
    "text",
    [
        *("17", "– 17 –", "xiv", "Page 3 of 9", "3 of 9", "1/34", "第3页"),
        *("10/1/24, 3:42 PM", "2024-03-14", "14. März 2024", "March 14, 2024", "Sept. 2024", "2024年3月14日"),
        *("https://a.b/c", "www.fda.gov"),
    ],
)
def test_numbers_dates_and_addresses_in_margins_are_furniture(text: str) -> None:
    """Also where they stand once; a label says no more than that they stand apart."""
    page = checkpoint(1, element("text", "Body."), element("page_footer", text, BOTTOM))

    assert furniture(assembled(page)) == [text]


def test_a_slides_footnotes_are_body() -> None:
    """Layouts call them footers; some stand on several slides, and their numbers differ no more than a page's do."""
    slides = [
        checkpoint(n, element("text", "Dosing1 of adults"), element("page_footer", f"1 21 CFR 201.57(c)({n})", BOTTOM))
        for n in (1, 2, 3)
    ]
    others = [checkpoint(n, element("text", f"Body {n}.")) for n in range(4, 9)]

    document = assembled(*slides, *others)

    notes = [e for e in document.elements if e.kind is Kind.FOOTNOTE]
    assert [(note.parent_id, note.content_layer) for note in notes] == [
        (f"p000{n}-e000", Layer.BODY) for n in (1, 2, 3)
    ]


def test_a_footer_that_begins_with_the_pages_number_is_no_footnote() -> None:
    """Its number counts with the pages."""
    pages = [
        checkpoint(n, element("text", f"Body {n}."), *([element("page_footer", f"{n + 11} Springs", BOTTOM)] * (n % 2)))
        for n in range(1, 9)
    ]

    assert furniture(assembled(*pages)) == ["12 Springs", "14 Springs", "16 Springs", "18 Springs"]


def test_names_of_chapters_above_their_pages_are_furniture() -> None:
    """They stand in one place of every second page and are called headers, and each says something else."""
    names = ["Springs", "Mains", "Pumps", "Filters", "Meters", "Losses"]
    place = Box(0.1, 0.03, 0.3, 0.05)
    pages = [checkpoint(2 * n, element("page_header", f"{n} {name}", place)) for n, name in enumerate(names, 1)]
    pages = [c.model_copy(update={"elements": (*c.elements, body(c.page.number))}) for c in pages]
    between = [checkpoint(2 * n + 1, element("page_header", str(n), TOP), element("text", "Body.")) for n in range(7)]

    assert [text for text in furniture(assembled(*pages, *between)) if not text.isdigit()] == [
        f"{n} {name}" for n, name in enumerate(names, 1)
    ]


def body(page: int) -> Element:
    return element("text", f"Body {page}.", page=page, id=f"p{page:04d}-e001")


def test_what_three_of_many_slides_say_in_one_place_is_body() -> None:
    """Sources of charts stand where other slides have nothing, or beside a company's name."""
    left, right = Box(0.1, 0.95, 0.4, 0.97), Box(0.8, 0.95, 0.9, 0.97)
    named = [element("text", "Body."), element("page_footer", "Water Board", right)]
    slides = [checkpoint(n, *named, element("page_footer", f"Source: {'abcdefgh'[n]} office", left)) for n in (1, 4, 7)]

    document = assembled(*slides, *(checkpoint(n, *named) for n in (2, 3, 5, 6, 8, 9, 10)))

    assert set(furniture(document)) == {"Water Board"}


@settings(max_examples=80)
@given(readings, metas)
def test_no_page_with_text_is_without_body(read: tuple[Checkpoint, ...], meta: Meta) -> None:
    """Whatever its labels say and other pages repeat."""
    document = assemble.document(SOURCE, meta, RUN, "id", read)

    texts = {e.page for e in document.elements if e.text.strip()}
    assert texts <= {e.page for e in document.elements if e.is_body}


@pytest.mark.parametrize("texts", [["A notice to all."], ["2024-03-14", "7"], ["7"]])
def test_a_page_of_one_line_keeps_it(texts: list[str]) -> None:
    """A date on a page of its own is what the page says, and so is a number where there is nothing else."""
    document = assembled(checkpoint(1, *(element("page_header", text, TOP) for text in texts)))

    assert [e.text for e in document.elements if e.is_body] == texts[:1]


def test_a_line_at_the_top_of_a_real_page_is_read(tmp_path: Path) -> None:
    """The layout model calls it a header; the markdown has it."""
    with pymupdf.open() as pdf:
        pdf.new_page().insert_text((72, 60), "Closed on Mondays until the works are done.", fontsize=11)
        pdf.save(tmp_path / "notice.pdf")
        drawn = pdf[0].get_pixmap(dpi=72)
    pixels = Pixels(drawn.width, drawn.height, held=bytes(drawn.samples))

    read = LayoutFamily().parse(read_page(PagePointer(str(tmp_path / "notice.pdf"), 1), pixels, None), 1)

    assert "Closed on Mondays until the works are done." in markdown.write(assembled(checkpoint(1, *read.elements)))[0]


def test_a_continued_tables_caption_is_no_furniture() -> None:
    """It stands at the top of many pages, and belongs to its table."""
    pages = [
        checkpoint(n, element("caption", "Table 3 (continued)", TOP), element("table", table=grid(["a"])))
        for n in range(1, 6)
    ]

    assert furniture(assembled(*pages)) == []


# ------------------------------------------------------------------ captions and footnotes


def test_a_caption_belongs_to_the_nearest_of_its_sort() -> None:
    """A table's caption goes to no figure, and both sides know."""
    picture = element("picture", box=Box(0.1, 0.30, 0.9, 0.40))
    caption = element("caption", "Table 1: Works", Box(0.1, 0.41, 0.9, 0.43))
    table = element("table", box=Box(0.1, 0.46, 0.9, 0.6), table=grid(["a"]))

    shown = assembled(checkpoint(1, picture, caption, table)).elements

    assert [e.caption_ids for e in shown] == [(), (), (shown[1].id,)]
    assert shown[1].parent_id == shown[2].id


def test_a_caption_far_from_everything_belongs_to_nothing() -> None:
    """One at the top of a page may speak of the page before."""
    shown = assembled(checkpoint(1, element("caption", "Figure 1", TOP), element("picture", box=BOTTOM))).elements

    assert shown[0].parent_id is None


def test_a_footnote_belongs_to_the_text_with_its_mark() -> None:
    """Digits of years and amounts are no marks."""
    texts = (element("text", "In 2024 it grew by 1."), element("text", "It supplied 1,284 people¹ here."))

    shown = assembled(checkpoint(1, *texts, element("footnote", "1 Residents.", BOTTOM))).elements

    assert shown[2].parent_id == shown[1].id


# ------------------------------------------------------------------ headings and sections


@pytest.mark.parametrize(
    ("text", "known"),
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
def test_numbering_tells_depth_and_title(text: str, known: tuple[str, int, str]) -> None:
    """In the spellings of the documents we read."""
    found = sections.number(text)

    assert found and (found.text, found.depth, found.rest) == known


@pytest.mark.parametrize(
    "text", ["2024 in review", "3D models", "Annex: Letter", "10% more", "A plan", "Springs", "1.5"]
)
def test_not_everything_with_a_digit_is_numbered(text: str) -> None:
    """Years, shares and words stay titles."""
    assert sections.number(text) is None


def test_sections_follow_the_numbering() -> None:
    """Hashes say nothing where all headings have two."""
    texts = ["Summary", "1 Intro", "1.1 Scope", "1.1.1 More", "2 Works", "Annex: Letter"]
    document = assembled(checkpoint(1, *(heading(text, level=2) for text in texts)))

    assert shape(document.sections) == [
        (None, "Summary", []),
        ("1", "Intro", [("1.1", "Scope", [("1.1.1", "More", [])])]),
        ("2", "Works", []),
        (None, "Annex: Letter", []),
    ]
    assert document.sections[1].children[0].children[0].path == ("Intro", "Scope", "More")


def test_a_heading_larger_than_all_numbered_ones_is_on_top() -> None:
    """Font sizes of numbered headings give the scale."""
    numbered = [heading("1 Intro", level=2), heading("1.1 Scope", level=3), heading("Letters", level=1)]

    assert [section.title for section in assembled(checkpoint(1, *numbered)).sections] == ["Intro", "Letters"]


def test_hints_rank_headings_that_nothing_else_ranks() -> None:
    """Font sizes and hashes count from wherever they begin."""
    document = assembled(checkpoint(1, heading("Springs", level=2), heading("Upper", level=4), heading("Net", level=2)))

    assert shape(document.sections) == [(None, "Springs", [(None, "Upper", [])]), (None, "Net", [])]


def test_the_outline_comes_first() -> None:
    """Its levels stand for unnumbered headings; entries without a heading become sections at their page."""
    outline = (
        OutlineEntry(level=1, title="Report", page=1),
        OutlineEntry(level=2, title="Springs", page=1),
        OutlineEntry(level=3, title="Upper spring", page=1),
        OutlineEntry(level=2, title="Hidden", page=2),
    )
    first = checkpoint(
        1, element("title", "Report"), heading("SPRINGS"), element("text", "Upper spring"), element("text", "It runs.")
    )
    second = checkpoint(2, element("text", "No heading here."))

    document = assembled(first, second, outline=outline)

    assert shape(document.sections) == [(None, "SPRINGS", [(None, "Upper spring", [])]), (None, "Hidden", [])]
    assert document.sections[-1].element_ids == ("p0002-e000",)


def test_only_the_first_title_is_the_title() -> None:
    """Models call every large line a title; a numbered one heads a section."""
    first = checkpoint(1, element("title", "Annual Report"), element("title", "of the Works"), element("text", "Anna."))
    second = checkpoint(2, element("title", "Springs"))

    document = assembled(first, second)

    assert [e.kind for e in document.elements if e.is_heading] == [Kind.TITLE, Kind.TITLE, Kind.SECTION_HEADER]
    assert document.elements[3].category is Category.TEXT_SECTION
    assert document.meta.title == "Annual Report of the Works"
    assert assembled(checkpoint(1, element("title", "1. Introduction"))).elements[0].kind is Kind.SECTION_HEADER


def test_a_section_holds_what_follows_its_heading() -> None:
    """What stands before the first heading belongs to none; keywords and summary come from its elements."""
    text = element("text", "The springs are deep. They never froze.", keywords=("springs",))
    document = assembled(checkpoint(1, element("text", "Before."), heading("1 Water"), text))

    (section,) = document.sections
    assert section.element_ids == ("p0001-e001", "p0001-e002")
    assert section.keywords == ("springs",)
    assert section.summary == "The springs are deep. They never froze."


def test_a_section_without_prose_is_told_by_its_tables_and_figures() -> None:
    """Also where a line of it only points at them; what another page continues is told once."""
    costs = element("table", table=grid(["a"]), summary="Table 1: Costs.")
    alone = checkpoint(1, heading("1 Works"), costs)
    pointed = checkpoint(1, heading("1 Works"), element("text", "See below."), costs)
    longer = checkpoint(2, element("table", table=grid(["b"]), summary="Table 1: Costs, continued."))

    assert [assembled(page, longer).sections[0].summary for page in (alone, pointed)] == ["Table 1: Costs."] * 2


def test_a_section_of_a_list_is_told_by_its_items() -> None:
    """A stray word beside them is no prose."""
    items = [element("list_item", f"{name} is a spring of the upper valley.") for name in ("Lind", "Ach")]

    (section,) = assembled(checkpoint(1, heading("1 Water"), *items, element("text", "guidance"))).sections

    assert section.summary == "Lind is a spring of the upper valley. Ach is a spring of the upper valley. guidance"


def test_a_section_with_nothing_of_its_own_is_told_by_its_children() -> None:
    """By their prose, or by their figures where they have none."""
    figure, text = element("picture", summary="Figure 1: A map."), element("text", "The springs are deep.")
    told = checkpoint(1, heading("1 Water"), heading("1.1 Upper"), text, heading("2 Maps"), heading("2.1 All"), figure)

    assert [s.summary for s in flattened(assembled(told).sections)] == [text.text] * 2 + [figure.summary] * 2


@settings(max_examples=40)
@given(readings, metas)
def test_a_section_has_a_summary_where_an_element_has_one(read: tuple[Checkpoint, ...], meta: Meta) -> None:
    """However deep in the tree, and be it only its heading; keywords likewise."""
    document = assemble.document(SOURCE, meta, RUN, "id", [enrich.page(page, None) for page in read])
    by_id = {e.id: e for e in document.elements}

    for section in flattened(document.sections):
        whole = [by_id[name] for one in flattened((section,)) for name in one.element_ids]
        assert bool(section.summary) >= any(e.summary and not e.continues for e in whole)
        assert bool(section.keywords) == any(e.keywords for e in whole if prose.words(" ".join(e.keywords)))


# ------------------------------------------------------------------ what runs on


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
def test_a_paragraph_runs_on_over_a_page(end: str, start: str) -> None:
    """Figures, captions, footnotes and furniture between do not stop it."""
    first = checkpoint(
        1, element("text", end), element("footnote", "1 Note."), element("page_footer", "Page 1", BOTTOM)
    )
    second = checkpoint(2, element("picture"), element("caption", "Figure 1."), element("text", start))

    assert links(assembled(first, second)) == [("p0001-e000", "p0002-e002")]


def test_a_doubtful_header_stops_nothing() -> None:
    """It is body because it stands once, but paragraphs and tables go on behind it and never in it."""
    header, rows = element("page_header", "Water Journal", TOP), element("table", table=grid(["a", "b"]))
    text = assembled(checkpoint(1, element("text", "It ran")), checkpoint(2, header, element("text", "dry.")))
    table = assembled(checkpoint(1, rows), checkpoint(2, header, rows))

    assert links(text) == links(table) == [("p0001-e000", "p0002-e001")]


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
def test_a_paragraph_that_ended_does_not(end: str, start: str) -> None:
    """A full stop ends it, and so does a capital behind a complete line."""
    assert links(assembled(checkpoint(1, element("text", end)), checkpoint(2, element("text", start)))) == []


def test_a_heading_between_ends_a_paragraph() -> None:
    """Nothing runs on into another section."""
    second = checkpoint(2, heading("2 Works"), element("text", "enough for all"))

    assert links(assembled(checkpoint(1, element("text", "It was found to be")), second)) == []


def test_a_paragraph_runs_on_into_the_next_column() -> None:
    """Two paragraphs below each other in one column are two."""
    column = checkpoint(1, element("text", "It was found to be", LEFT), element("text", "enough for all.", RIGHT))
    below = checkpoint(1, element("text", "It was found to be"), element("text", "enough for all."))

    assert links(assembled(column)) == [("p0001-e000", "p0001-e001")]
    assert links(assembled(below)) == []


def test_a_broken_paragraph_finds_its_rest_behind_notes() -> None:
    """Table notes and addresses that were read as text stand between the halves."""
    note, rest = element("text", "aThe numbers are those of Fig. 5"), element("text", "ondary fungi grow.")
    page = checkpoint(1, element("text", "products which are sec-"), note, element("table"), rest)

    assert links(assembled(page)) == [("p0001-e000", "p0001-e003")]


def test_the_rest_of_a_legend_continues_no_paragraph() -> None:
    """Layouts cut legends in two."""
    legend = [element("caption", "Fig. 3. Arrows show the"), element("text", "orientation of each.")]

    assert links(assembled(checkpoint(1, element("text", "found in Neuro-")), checkpoint(2, *legend))) == []


def test_a_heading_of_two_lines_heads_one_section() -> None:
    """Its second line begins in lower case, or the first cannot end there."""
    lines = heading("1 Tests and determination of"), heading("their behaviour")

    document = assembled(checkpoint(1, *lines, element("text", "Body.")))

    assert shape(document.sections) == [("1", "Tests and determination of their behaviour", [])]
    assert len(document.sections[0].element_ids) == 3


@pytest.mark.parametrize(("state", "joined"), [(State.BLANK, True), (State.FAILED, False)])
def test_nothing_runs_on_over_a_lost_page(state: State, joined: bool) -> None:
    """Who knows what stood there; a blank page held nothing."""
    ends = checkpoint(1, element("text", "found to be")), checkpoint(3, element("text", "enough for all."))

    assert bool(links(assembled(*ends, checkpoint(2, state=state)))) == joined


def test_a_table_continues_with_its_header_repeated_or_none() -> None:
    """Same columns, nothing but captions and notes between."""
    head, row = ["Order", "Cost"], ["24-44", "2,900"]
    first = checkpoint(1, element("table", table=grid(head, row, header=True)), element("footnote", "1 Note."))
    again = checkpoint(
        2, element("caption", "Table 3 (continued)", TOP), element("table", table=grid(head, row, header=True))
    )
    rest = checkpoint(3, element("table", table=grid(row)))

    assert links(assembled(first, again, rest)) == [("p0001-e000", "p0002-e001"), ("p0002-e001", "p0003-e000")]


@pytest.mark.parametrize(
    "second",
    [
        [element("table", table=grid(["a", "b", "c"]))],
        [element("table", table=grid(["Other", "Head"], ["1", "2"], header=True))],
        [element("text", "Text."), element("table", table=grid(["1", "2"]))],
        [element("caption", "Table 4: Other", id="c"), element("table", table=grid(["1", "2"]), caption_ids=("c",))],
    ],
    ids=["columns", "header", "text between", "own caption"],
)
def test_another_table_does_not(second: list[Element]) -> None:
    """Other columns, another header, text between or a caption of its own make it another table."""
    first = checkpoint(1, element("table", table=grid(["Order", "Cost"], ["1", "2"], header=True)))

    assert links(assembled(first, checkpoint(2, *second))) == []


# ------------------------------------------------------------------ the document


def test_what_the_file_says_stands() -> None:
    """The language is that of most pages; a file's own title is not overruled."""
    pages = [
        checkpoint(n, element("title", "Shown"), language=language) for n, language in enumerate(["en", "ko", "ko"], 1)
    ]

    document = assembled(*pages, title="Said")

    assert (document.meta.title, document.meta.language) == ("Said", "ko")


@pytest.mark.parametrize(
    "title", ["untitled", "PowerPoint Presentation", "2024.acl-long.841.pdf", "Microsoft Word - a"]
)
def test_a_programs_default_is_no_title(title: str) -> None:
    """The page's own title says more."""
    assert assembled(checkpoint(1, element("title", "Springs")), title=title).meta.title == "Springs"


@pytest.mark.parametrize("title", ["untitled", None])
def test_a_heading_names_a_document_that_nobody_named(title: str | None) -> None:
    """The first page's highest, both its lines; never one that any document may have, and one with a number last."""
    abstract, scope = heading("Abstract", level=1), heading("1 Scope", level=1)
    lines = heading("Structure of", level=2), heading("the springs", level=2)

    def named(*pages: Checkpoint) -> str | None:
        return assembled(*pages, title=title).meta.title

    assert named(checkpoint(1, abstract, heading("Notes", level=3), *lines)) == "Structure of the springs"
    assert named(checkpoint(1, scope, *lines)) == "Structure of the springs"
    assert named(checkpoint(1, abstract, scope)) == "1 Scope"
    assert named(checkpoint(1, abstract), checkpoint(2, *lines)) == title


def test_problems_of_pages_are_the_documents() -> None:
    """And make it a partial success."""
    problem = Problem(code=Code.TRUNCATED, page=1, message="page 1: cut")
    read = checkpoint(1, element("text", "Body.", MIDDLE)).model_copy(update={"problems": (problem,)})

    document = assembled(read)

    assert (document.problems, document.status) == ((problem,), Status.PARTIAL_SUCCESS)
