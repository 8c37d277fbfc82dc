"""Tables that the tests draw, read by the cpu engine: cells, spans, headers, and what is no table."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pymupdf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engines.cpu.drawn_tables import (
    MERGED,
    STYLES,
    TABLES,
    DrawnTable,
    draw_lines,
    draw_page,
    draw_prose,
    draw_table,
    fill_rows,
    find_tables,
    lay_out,
    score_cells,
    score_header,
)
from tests.engines.cpu.test_cpu_engine import count_layer_words, count_words, read, render_page, save
from twopass.document import Rect
from twopass.engines.cpu import layer_words
from twopass.engines.cpu.content import Grid, Region, Shade, StyledWord
from twopass.engines.cpu.page import read_page_simply
from twopass.engines.cpu.tables.cells import build_cells
from twopass.engines.cpu.tables.headers import RowFacts, Text, count_header_rows, find_spans
from twopass.engines.cpu.tables.phrases import group_phrases
from twopass.engines.cpu.tables.regions import add_ruled_tables, settle_tables
from twopass.engines.cpu.tables.rules import drop_letters, find_rules, split_words
from twopass.pages.rendered_page import PagePointer

_numbers = st.floats(0, 500, allow_nan=False)
_rects = st.builds(
    lambda x, y, w, h: Rect(x, y, x + w, y + h), _numbers, _numbers, st.floats(0, 300), st.floats(0, 300)
)
_words = st.builds(
    lambda box, text, line, size, bold, upright: StyledWord(box, text, line, size, bold, upright=upright),
    _rects,
    st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=8),
    st.integers(0, 12),
    st.floats(0, 40),
    st.booleans(),
    st.booleans(),
)

# Without rules or shading, nothing says whether an empty cell belongs to the cell above or beside it.
MIN_CELLS = 0.9
RULED = {"lines", "double", "gaps", "filled"}  # exact: a double border or a gap between two is no row and no column
UNCERTAIN = {("three-headers", "none")}  # the layout model takes its first row for a heading above the table


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", TABLES)
def test_cells_of_a_drawn_table(tmp_path: Path, name: str, style: str) -> None:
    """Ruled, doubly ruled, shaded, booktabs and bare tables have their cells, their headers, and every word once."""
    path = save(draw_page(TABLES[name], STYLES[style]), tmp_path / "table.pdf")
    answer = read(path)

    assert count_words(answer) == count_layer_words(path)
    if (name, style) not in UNCERTAIN:
        assert score_cells(answer, TABLES[name]) >= (1.0 if style in RULED else MIN_CELLS)
        assert score_header(answer, TABLES[name])


def test_a_table_within_a_cell_stays_in_its_cell(tmp_path: Path) -> None:
    """The rules of an inner table are no rows and columns of the outer one, whose cell has the inner text by lines."""
    document = pymupdf.open()
    page = document.new_page()
    draw_prose(page, 80)
    xs, ys = (70.0, 200.0, 330.0, 500.0), (150.0, 175.0, 255.0, 280.0)
    texts = [["Source", "Kind", "Limits"], ["Weiher", "spring", ""], ["Moos", "spring", "none"]]
    for row, line in enumerate(texts):
        for col, text in enumerate(line):
            page.draw_rect(pymupdf.Rect(xs[col], ys[row], xs[col + 1], ys[row + 1]), width=0.8)
            page.insert_text((xs[col] + 8, ys[row] + 16), text, fontsize=9)
    for row, line in enumerate((["Nitrate", "50"], ["Iron", "0.2"], ["Lead", "0.01"])):
        for col, text in enumerate(line):
            box = pymupdf.Rect(340 + 75 * col, 162 + 20 * row + 20, 415 + 75 * col, 182 + 20 * row + 20)
            page.draw_rect(box, width=0.8)
            page.insert_text((box.x0 + 6, box.y0 + 14), text, fontsize=9)
    path = save(document, tmp_path / "nested.pdf")
    answer = read(path)

    (table,) = find_tables(answer)
    assert (table["rows"], table["cols"]) == (3, 3)
    inner = next(cell["text"] for cell in table["cells"] if (cell["row"], cell["col"]) == (1, 2))
    assert inner.splitlines() == ["Nitrate 50", "Iron 0.2", "Lead 0.01"]
    assert count_words(answer) == count_layer_words(path)


def test_a_list_of_contents_is_no_table(tmp_path: Path) -> None:
    """Lines with dot leaders and page numbers are list items that keep every word."""
    titles = ("Summary", "Introduction", "Scope of this report", "Sources and methods", "Meters", "The log book")
    document = pymupdf.open()
    page = document.new_page()
    page.insert_text((70, 80), "Contents", fontname="hebo", fontsize=16)
    for row, title in enumerate(titles):
        left, y = f"{row + 1} {title} ", 120 + 18 * row
        x = 70 + pymupdf.get_text_length(left, "helv", 10)
        page.insert_text((70, y), left, fontsize=10)
        page.insert_text((x, y), "." * int((480 - x) / pymupdf.get_text_length(".", "helv", 10)), fontsize=10)
        page.insert_text((490, y), str(3 * row + 1), fontsize=10)
    path = save(document, tmp_path / "contents.pdf")
    answer = read(path)

    assert not list(find_tables(answer))
    assert count_words(answer) == count_layer_words(path)


@pytest.mark.parametrize(("numbers", "is_table"), [(("3", "9", "14", "20"), False), (("806", "77", "315", "12"), True)])
def test_numbers_behind_dots_are_pages_if_they_grow(numbers: tuple[str, ...], is_table: bool) -> None:
    """A leader ends at a page number in contents, and at a value in a table: values also decrease."""
    texts = [(f"Herring{'.' * 20}", 60.0, 100.0 + 20 * row) for row in range(4)]
    words = set_words(*texts, *((number, 300.0, 100.0 + 20 * row) for row, number in enumerate(numbers)))
    region = Region("table", Rect(50, 85, 340, 175), tuple(words), Grid((110.0, 130.0, 150.0), (250.0,)))
    settled = settle_tables([region], [])

    assert [part.label for part in settled] == (["table"] if is_table else ["list-item"] * 4)


def list_words(page: Any) -> list[StyledWord]:
    """Return the page's words, with one line number per height."""
    return [StyledWord(Rect(*word[:4]), word[4], round(word[1]), 10) for word in page.get_text("words")]


def test_a_boxed_paragraph_is_text() -> None:
    """A box around a paragraph is no table of one cell, also where the layout model sees rows in it."""
    page = pymupdf.open().new_page()
    draw_prose(page, 168)
    box = Rect(62, 150, 533, 210)
    rules = (box._replace(y1=150), box._replace(y0=210), box._replace(x1=62), box._replace(x0=533))
    region = Region("table", box, tuple(list_words(page)), Grid((172.0, 185.0), (), rules))

    (settled,) = settle_tables([region], [])

    assert (settled.label, settled.grid, settled.words) == ("text", None, region.words)


def test_a_column_of_ruled_cells_is_a_table() -> None:
    """A table of one column keeps its rows, because rules divide it."""
    page = pymupdf.open().new_page()
    draw_prose(page, 168)
    box = Rect(62, 150, 533, 210)
    region = Region("table", box, tuple(list_words(page)), Grid((), (), (Rect(62, 172, 533, 172),)))

    assert settle_tables([region], []) == [region]


def draw_chart_with_table() -> tuple[Any, DrawnTable]:
    """Draw a framed bar chart over a small ruled table, which belong to one picture."""
    page = pymupdf.open().new_page()
    for bar in range(9):
        height = 25 + 17 * (bar * 5 % 9)
        page.draw_rect(pymupdf.Rect(90 + 42 * bar, 300 - height, 115 + 42 * bar, 300), fill=(0.2, 0.4, 0.6))
        page.insert_text((95 + 42 * bar, 312), str(bar), fontsize=8)
    rows = [("Month", "Jan", "Feb", "Mar", "Apr"), ("Level", "11.4", "11.2", "10.9", "10.8")]
    table = lay_out(fill_rows([*rows, ("Hours", "31", "28", "24", "40")]), (80, 75, 75, 75, 75), top=320)
    draw_table(page, table, draw_lines)
    return page, table


def test_a_grid_within_a_picture_is_a_table() -> None:
    """A ruled grid with words in its cells is a table of its own, and the rest of its picture stays a picture."""
    page, table = draw_chart_with_table()
    blocks, layer, _ = layer_words.extract(page)
    picture = Region("picture", Rect(60, 130, 480, 400))

    rest, found = add_ruled_tables([picture], list(find_rules(blocks)), [], layer.words)

    assert (rest.label, rest.box) == ("picture", Rect(60, 130, 480, found.box.y0))
    assert found.grid is not None
    _, _, cells, _ = build_cells(found.box, found.grid, [word for word in layer.words if word.box.y0 > 320])
    assert [(c.row, c.col, c.row_span, c.col_span, c.text) for c in cells] == [cell.key for cell in table.cells]


def test_ruled_tables_beside_each_other_are_no_single_table() -> None:
    """The layout model's table over both gives way to them, unless some of its words are in neither."""
    page = pymupdf.open().new_page()
    both = [
        ("Number", "L-771", "", "Boxes", "3"),
        ("Date", "2 May", "", "Zone", "B"),
        ("By", "rail", "", "Kilos", "40"),
    ]
    drawn = lay_out(fill_rows(both), (80, 90, 70, 80, 90), top=200)
    cells = tuple(cell for cell in drawn.cells if cell.text)
    draw_table(page, replace(drawn, cells=cells), draw_lines)
    blocks, layer, _ = layer_words.extract(page)
    table, rules = Region("table", Rect(75, 205, 430, 250), grid=Grid((), ())), list(find_rules(blocks))
    apart = StyledWord(Rect(255, 210, 290, 220), "beside", 99, 9)

    found = add_ruled_tables([table], rules, [], layer.words)
    kept = add_ruled_tables([table], rules, [], [*layer.words, apart])

    assert [round(region.box.x0) for region in found] == [round(drawn.xs[0]), round(drawn.xs[3])]
    assert kept[0] == table


@pytest.mark.parametrize(("widths", "is_single"), [((80, 60), False), ((100, 100), True)])
def test_ruled_tables_close_below_each_other_are_no_single_table(widths: tuple[float, float], is_single: bool) -> None:
    """The layout model's table over both gives way to them if they end at other edges; equal ones may be its parts."""
    page = pymupdf.open().new_page()
    upper = lay_out(fill_rows([("Number", "L-771"), ("Date", "2 May"), ("By", "rail")]), widths, top=200)
    lower = lay_out(fill_rows([("Lamps", "3"), ("Tar", "12"), ("Rope", "40")]), (100, 100), top=upper.ys[-1] + 8)
    for drawn in (upper, lower):
        draw_table(page, drawn, draw_lines)
    blocks, layer, _ = layer_words.extract(page)
    table = Region("table", Rect(62, 198, 265, lower.ys[-1]), grid=Grid((), ()))

    found = add_ruled_tables([table], list(find_rules(blocks)), [], layer.words)

    assert (found == [table]) is is_single
    assert is_single or {round(region.box.y0) for region in found} == {round(upper.ys[0]), round(lower.ys[0])}


def test_the_grid_of_a_chart_is_no_table() -> None:
    """The squares of a chart have no words, so that its grid stays part of the picture."""
    page = pymupdf.open().new_page()
    for step in range(6):
        page.draw_line((100, 100 + 30 * step), (250, 100 + 30 * step))
        page.draw_line((100 + 30 * step, 100), (100 + 30 * step, 250))
        page.insert_text((80, 103 + 30 * step), str(step), fontsize=8)
    blocks, layer, _ = layer_words.extract(page)
    picture = Region("picture", Rect(70, 90, 260, 260))

    assert add_ruled_tables([picture], list(find_rules(blocks)), [], layer.words) == [picture]


@pytest.mark.parametrize("style", ["lines", "double", "filled"])
def test_a_ruled_table_that_the_layout_model_misses_is_found(tmp_path: Path, style: str) -> None:
    """Rules alone make a table: here the layout model is not used at all."""
    path = save(draw_page(MERGED, STYLES[style]), tmp_path / "missed.pdf")
    with pymupdf.open(path) as document:
        pixels = render_page(document[0])
    answer = json.loads(read_page_simply(PagePointer(str(path), 1), pixels, None))

    assert score_cells(answer, MERGED) == 1.0
    assert count_words(answer) == count_layer_words(path)


def test_numbers_that_touch_the_next_column_are_cells(tmp_path: Path) -> None:
    """Numbers that end above each other and words that begin above each other are two columns, however close."""
    rows = [("12", "Weiher spring"), ("1,410", "Moos spring"), ("86", "Borehole"), ("7", "Reservoir")]
    document = pymupdf.open()
    page = document.new_page()
    draw_prose(page, 80)
    for row, (number, name) in enumerate((("Yield", "Source"), *rows)):
        y, font = 170 + 20 * row, "helv" if row else "hebo"
        page.insert_text((160 - pymupdf.get_text_length(number, font, 10), y), number, fontname=font, fontsize=10)
        page.insert_text((163, y), name, fontname=font, fontsize=10)
    words = [word for word in list_words(page) if word.box.y0 > 150]
    box = Rect(120, 155, 260, 260)
    lines = tuple(175.0 + 20 * row for row in range(4))

    _, cols, cells, _ = build_cells(box, Grid(lines, ()), words)

    assert cols == 2
    assert [(c.text) for c in cells if c.row] == [text for row in rows for text in row]


def test_scanned_numbers_need_not_end_exactly_above_each_other() -> None:
    """Ink ends half a point to the left or right; words above each other by chance are no columns."""
    words = []
    for row, (number, x, jitter) in enumerate((("12", 20, 0.4), ("1,410", 5, -0.4), ("86", 20, 0.6), ("7", 25, 0.0))):
        box = Rect(x, 20 * row, 30 + jitter, 20 * row + 10)
        words += [StyledWord(box, number, row, 10), StyledWord(Rect(33, box.y0, 70, box.y1), "spring", row, 10)]
    named = [replace(word, text="of" if word.text != "spring" else word.text) for word in words]

    assert [len(line) for line in group_phrases(words)] == [2, 2, 2, 2]
    assert [len(line) for line in group_phrases(named)] == [1, 1, 1, 1]


def set_words(*texts: tuple[str, float, float]) -> list[StyledWord]:
    """Return words of 25 by 10 points, each a line of its own, at these positions."""
    return [StyledWord(Rect(x, y, x + 25, y + 10), text, n, 9) for n, (text, x, y) in enumerate(texts)]


def test_thin_spaces_between_thousands_are_no_columns() -> None:
    """Groups of digits end and begin above each other in every row, and are one number."""
    page = pymupdf.open().new_page(width=300, height=300)
    for row, (month, tolls, dues) in enumerate([("May", "79 935", "4 118"), ("June", "1 204 560", "5 230")] * 2):
        page.insert_text((60, 170 + 20 * row), month, fontsize=10)
        for right, number in ((170, tolls), (230, dues)):
            for group in reversed(number.split()):
                right -= pymupdf.get_text_length(group, "helv", 10)
                page.insert_text((right, 170 + 20 * row), group, fontsize=10)
                right -= 2
    lines = tuple(175.0 + 20 * row for row in range(3))

    _, cols, cells, _ = build_cells(Rect(50, 155, 240, 240), Grid(lines, ()), list_words(page))

    assert cols == 3
    assert [cell.text for cell in cells][:6] == ["May", "79 935", "4 118", "June", "1 204 560", "5 230"]


@pytest.mark.parametrize(("font", "dots", "gap"), [("tiro", ". ", 9), ("cour", ". ", 0), ("cour", ".", 3)])
def test_leaders_that_begin_apart_are_no_columns(font: str, dots: str, gap: float) -> None:
    """Dots that end above each other, and the wide spaces of a typewriter, stay in the cell of their label."""
    page = pymupdf.open().new_page(width=400, height=300)
    rows = [("Oars", "12", "9"), ("Boats with sails", "140", "87"), ("Eel traps", "7", "8"), ("Nets", "62", "59")]
    for row, (label, first, second) in enumerate(rows):
        y, start = 170 + 20 * row, 60 + pymupdf.get_text_length(f"{label} ", font, 10) + gap
        leader = dots * int((260 - start) / pymupdf.get_text_length(dots, font, 10))
        page.insert_text((60, y), label, fontname=font, fontsize=10)
        page.insert_text((260 - pymupdf.get_text_length(leader, font, 10), y), leader, fontname=font, fontsize=10)
        for right, number in ((300, first), (350, second)):
            page.insert_text((right - pymupdf.get_text_length(number, font, 10), y), number, fontname=font, fontsize=10)
    words = [replace(word, mono=font == "cour") for word in list_words(page)]

    _, cols, cells, _ = build_cells(Rect(50, 155, 360, 240), Grid((175.0, 195.0, 215.0), ()), words)

    assert cols == 3
    assert [cell.text.rstrip(" .") for cell in cells] == [text for row in rows for text in row]


def test_a_mark_above_a_number_of_a_cell_is_no_digit_of_it() -> None:
    """273,418,905 with the mark 1."""
    page = pymupdf.open().new_page(width=300, height=300)
    page.insert_htmlbox((60, 60, 290, 90), "<p>273,418,905<sup>1</sup> km<sup>2</sup></p>")

    _, layer, _ = layer_words.extract(page)

    _, _, cells, _ = build_cells(Rect(0, 0, 300, 300), Grid((), ()), layer.words)

    assert [cell.text for cell in cells] == ["273,418,905¹ km²"]


def test_a_label_on_the_line_between_two_rows_spans_both() -> None:
    """A text centred between two rows may be in the lower one by a hair; its cell begins in the upper one."""
    words = set_words(("Springs", 0, 104.5), ("Weiher", 50, 95), ("12", 100, 95), ("Moos", 50, 110), ("7", 100, 110))

    _, _, cells, _ = build_cells(Rect(0, 92, 130, 122), Grid((108.0,), (38.0, 88.0)), words)

    assert [(c.row, c.row_span) for c in cells if c.text == "Springs"] == [(0, 2)]


def test_a_shaded_row_is_not_one_cell() -> None:
    """A box behind a whole row says nothing about its cells; boxes side by side are cells."""
    words = set_words(("Source", 0, 95), ("Kind", 50, 95), ("Moos", 0, 115))
    row, cell = Shade(Rect(0, 112, 80, 130), 0xDDDDDD), Shade(Rect(80, 112, 130, 130), 0xDDDDDD)

    _, _, across, _ = build_cells(Rect(0, 92, 130, 130), Grid((110.0,), (38.0, 88.0), (), (row,)), words)
    _, _, beside, _ = build_cells(Rect(0, 92, 130, 130), Grid((110.0,), (38.0, 88.0), (), (row, cell)), words)

    assert [c.col_span for c in across if c.text == "Moos"] == [1]
    assert [c.col_span for c in beside if c.text == "Moos"] == [2]


def test_a_shaded_header_ends_where_its_shade_ends() -> None:
    """The first rule across the table may stand below the first row, which is no wrapped header."""
    texts = [("Item", 0, 95), ("Price", 50, 95)]
    texts += [(text, x, 115.0 + 20 * row) for row in range(4) for text, x in (("Rope", 0), ("Tar", 50))]
    shades = tuple(Shade(Rect(x, 92, x + 40, 108), 0x2B4A6F) for x in (0, 40))
    rules = tuple(Rect(0, 129.5 + 20 * row, 80, 129.5 + 20 * row) for row in range(4))

    _, _, cells, _ = build_cells(Rect(0, 92, 80, 190), Grid((109.0,), (40.0,), rules, shades), set_words(*texts))

    assert [(cell.text, cell.header) for cell in cells][:4] == [
        ("Item", True), ("Price", True), ("Rope", False), ("Tar", False)
    ]  # fmt: skip


def test_labels_between_two_levels_of_a_header_span_both() -> None:
    """Texts in the middle of the height of a header of two rows are no row of their own."""
    texts = [("Europe", 70, 95), ("Kind", 0, 107), ("Sum", 150, 107), ("2024", 50, 119), ("2025", 90, 119)]
    texts += [(text, 50 * n - 10 * (n == 2), y) for y in (150, 180) for n, text in enumerate(("Rope", "1", "2", "3"))]
    grid = Grid((106.0, 118.0, 140.0, 170.0), (40.0, 80.0, 130.0))

    _, _, cells, _ = build_cells(Rect(0, 92, 180, 195), grid, set_words(*texts))

    spans = {cell.text: (cell.row, cell.row_span) for cell in cells if cell.row < 2}
    assert (spans["Kind"], spans["Sum"], spans["Europe"], spans["2024"]) == ((0, 2), (0, 2), (0, 1), (1, 1))


def test_an_amount_is_no_header_of_several_columns() -> None:
    """A number beside an empty cell belongs to its column, wherever its middle is."""
    texts = [("Item", 0, 95), ("Note", 48, 95), ("2024", 90, 95), ("2025", 130, 95)]
    texts += [("Rope", 0, 115), ("9.1", 75, 115), ("8.2", 130, 115)]
    for row in range(4):
        y = 135.0 + 20 * row
        texts += [("Tar", 0, y), ("7", 48, y), ("1.5", 90, y), ("2.5", 130, y)]
    grid = Grid(tuple(109.0 + 20 * row for row in range(5)), (40.0, 74.0, 122.0))

    _, _, cells, _ = build_cells(Rect(0, 92, 160, 210), grid, set_words(*texts))

    assert [(cell.col, cell.col_span) for cell in cells if cell.text == "9.1"] == [(2, 1)]


def test_a_unit_behind_numbers_is_no_column() -> None:
    """Amounts that end above each other, with the same sign behind each of them, are one column."""
    words = []
    for row, (number, x) in enumerate((("2", 25), ("1,410", 5), ("86", 20), ("7", 25))):
        words += [StyledWord(Rect(x, 20 * row, 30, 20 * row + 10), number, row, 10)]
        words += [StyledWord(Rect(33, 20 * row, 40, 20 * row + 10), "€", row, 10)]

    assert [len(line) for line in group_phrases(words)] == [1, 1, 1, 1]


def test_headers_in_the_middle_of_columns_of_numbers_span_these() -> None:
    """Numbers stand at the right of wide columns, so that a header is not in the middle of their texts."""
    texts = [Text(0, 2, Rect(277, 0, 323, 10)), Text(0, 4, Rect(451, 0, 469, 10))]
    texts += [Text(1, col, Rect(195.0 + 80 * col, 15, 215.0 + 80 * col, 25)) for col in range(1, 5)]
    texts += [Text(2, 0, Rect(64, 30, 205, 40)), *(t._replace(level=2) for t in texts[2:])]

    spans = find_spans(texts, 5, 2)

    assert [spans.get(text) for text in texts[:2]] == [(1, 2), (3, 4)]


def describe_row(texts: str, is_bold: bool = False, has_spanning: bool = False, depth: int = 1) -> RowFacts:
    return RowFacts(tuple(texts.split()), is_bold, None, False, depth, has_spanning)


def test_rows_below_a_spanning_header_are_headers() -> None:
    """A header over several columns is followed by their names."""
    rows = [describe_row("Source 2023", has_spanning=True), describe_row("Spring Autumn")]

    assert count_header_rows([*rows, *[describe_row("Moos 12 7")] * 4]) == 2
    assert count_header_rows([rows[1], *[describe_row("Moos 12 7")] * 4]) == 1


def test_a_bold_label_below_the_header_is_none() -> None:
    """A bold text alone in its row names the rows below it."""
    header, label = describe_row("Article Price", is_bold=True), RowFacts(("Taps", "", ""), True, None, False, 1, False)

    assert count_header_rows([header, label, *[describe_row("Moos 12")] * 4]) == 1


def test_a_first_row_of_numbers_is_no_header() -> None:
    """Nor is most of a table that is bold."""
    assert count_header_rows([describe_row("2021 12 7")] * 3) == 0
    assert count_header_rows([describe_row("2021 12", is_bold=True)] * 3 + [describe_row("2022 7")]) == 0


def test_a_stroke_has_the_box_that_is_drawn() -> None:
    """A line that is drawn at another scale, or a box in a path of several, has its own position and width."""
    document = pymupdf.open()
    page = document.new_page()
    page.insert_text((70, 80), "Levels")
    line = b"q 0.1 0 0 0.1 0 0 cm 5 w 1000 6000 m 3000 6000 l S Q "
    boxes = b"q 0.1 0 0 0.1 0 0 cm 8 w 1000 4000 2000 300 re 1000 3700 2000 300 re S Q"
    document.update_stream(page.get_contents()[0], page.read_contents() + line + boxes)
    blocks, _, _ = layer_words.extract(document.reload_page(page))
    drawn = [[round(side, 2) for side in block["bbox"]] for block in blocks if block["type"] == 3]

    assert drawn == [[99.75, 241.75, 300.25, 242.25], [99.6, 411.6, 300.4, 442.4], [99.6, 441.6, 300.4, 472.4]]


def test_names_and_values_have_no_header() -> None:
    """The first of some rows of names and values is a row like the others; a title above values of one kind is none."""
    names = [describe_row(texts) for texts in ("Number 2023-04417", "Date 14-March", "Customer 88-1203")]
    mixed = [describe_row(texts) for texts in ("Ship Petrel", "Berth 17", "Master Anneke")]
    prices = [describe_row(texts) for texts in ("Article Price", "Rope 12.50", "Tar 9.10")]

    assert [count_header_rows(rows) for rows in (names, mixed, prices)] == [0, 0, 1]


@pytest.mark.parametrize(
    ("count", "rows"),
    [
        (0, ("Customer|Harbour Trust|Number|D-4471", "Order|7 May|Carrier|Fenn & Co")),
        (0, ("Name|Heron|Built|1988", "Port|Arlen|Length|8.4 m", "Owner|O. Brandt|Draught|1.4 m")),
        (0, ("Number|Q-18", "Date|3 May")),
        (0, ("From:|Corvay|To:|Ostrey", "Guide:|Ilse|Cook:|Otto", "By:|boat||")),
        (0, ("River Freight|Owner:|Brandt", "Weir Lane|Port:|Arlen")),
        (1, ("Loans|31 March 2024|Assets|31 March 2024", "Own|1,204|Boats|(311)", "Other|–|Sheds|17.50")),
        (1, ("Name|Age|Town|Code", "Otto|41|Arlen|K-7", "Ilse|38|Seeon|K-9")),
        (1, ("Substance|Limit¹", "Nitrate|50", "Lead|10")),
        (1, ("Time:|Place", "18:00|Arlen", "19:00|Seeon")),
    ],
)
def test_names_and_values_in_turns_have_no_header(count: int, rows: tuple[str, ...]) -> None:
    """Colons behind all names of a column say so, or a value in the first row that is no name of numbers."""
    facts = [RowFacts(tuple(row.split("|")), False, None, False, 1, False) for row in rows]

    assert count_header_rows(facts) == count


@pytest.mark.parametrize(
    ("name", "value", "shade"), [("hebo", "helv", None), ("helv", "helv", (0.9, 0.9, 0.9)), ("helv", "hebo", None)]
)
def test_names_that_look_unlike_the_values_beside_them_are_no_header(
    tmp_path: Path, name: str, value: str, shade: tuple[float, float, float] | None
) -> None:
    """Each row of such a table looks alike; a header looks unlike the rows below it."""
    document = pymupdf.open()
    page = document.new_page()
    page.insert_text((60, 60), "Travel order", fontsize=14)
    for row, texts in enumerate((("Name", "A. Mills", "From", "Corvay"), ("Part", "Works", "To", "Ostrey"))):
        for col, text in enumerate(texts):
            box = pymupdf.Rect(60 + 110 * col, 80 + 20 * row, 170 + 110 * col, 100 + 20 * row)
            page.draw_rect(box, fill=None if col % 2 else shade)
            page.insert_text((box.x0 + 4, box.y1 - 6), text, fontname=value if col % 2 else name)
    page.insert_text((60, 160), "The traveller signs this order before the boat leaves.")
    (table,) = find_tables(read(save(document, tmp_path / "order.pdf")))

    assert [(cell["text"], cell["header"]) for cell in table["cells"]][:4] == [
        ("Name", False),
        ("A. Mills", False),
        ("From", False),
        ("Corvay", False),
    ]


def test_a_table_whose_columns_were_missed_is_doubtful() -> None:
    """Texts far apart in one cell, and numbers of two lines in one cell, are no cells; right cells are no doubt."""
    texts = [(str(12 * row + col), 60.0 + 80 * col, 100.0 + 20 * row) for row in range(1, 5) for col in range(4)]
    words, box = set_words(*texts), Rect(50, 105, 370, 195)
    rules = [Rect(50, y, 370, y) for y in (105, 150, 195)] + [Rect(x, 105, x, 195) for x in (50, 130, 210, 370)]

    assert not build_cells(box, Grid((130.0, 150.0, 170.0), (130.0, 210.0, 290.0)), words).is_doubtful
    assert build_cells(box, Grid((), (), tuple(rules)), words).is_doubtful


def test_a_word_that_ocr_read_across_a_rule_is_split() -> None:
    """A number and the word behind the rule are two words; without a digit before a letter the word stays whole."""
    rule = Rect(150, 90, 150, 130)
    joined = StyledWord(Rect(120, 100, 175, 112), "9,870none", 1, 9)
    whole = StyledWord(Rect(120, 114, 175, 126), "reservoir", 2, 9)

    found = split_words([joined, whole], [rule])

    assert [word.text for word in found] == ["9,870", "none", "reservoir"]
    assert found[0].box.x1 == found[1].box.x0 == 150


def test_strokes_of_letters_are_no_rules() -> None:
    """A stroke within a word is a letter that touches a border, a longer one through it is a rule."""
    word = StyledWord(Rect(100, 100, 140, 112), "Jan", 1, 9)
    stroke, rule = Rect(102, 100, 102, 113), Rect(120, 80, 120, 140)

    assert drop_letters([stroke, rule], [word]) == [rule]


def test_strokes_in_line_with_a_rule_are_rules() -> None:
    """The inner rules of double borders end at each cell, so that they are no longer than its words are tall."""
    words = [StyledWord(Rect(100, y, 180, y + 16), "9,870none", n, 9) for n, y in enumerate((100, 120))]
    pieces = [Rect(130, y, 130, y + 12) for y in (102, 122, 142)]

    assert drop_letters(pieces, words) == pieces
    assert drop_letters(pieces[:2], words) == []


def test_a_word_ends_at_the_rule_beside_it() -> None:
    """The box of a word in a scan may reach over the border of its cell."""
    rules = [Rect(103, 90, 103, 130), Rect(147, 90, 147, 130)]
    word = StyledWord(Rect(100, 100, 150, 112), "9,870", 1, 9)

    assert [part.box[::2] for part in split_words([word], rules)] == [(103, 147)]


@settings(deadline=None)
@given(st.lists(_words, max_size=10), st.lists(_rects, max_size=5))
def test_splitting_keeps_every_letter(words: list[StyledWord], rules: list[Rect]) -> None:
    """The parts of split words are in order and lose no letter."""
    assert "".join(word.text for word in split_words(words, rules)) == "".join(word.text for word in words)


# ---- any table ----

_grids = st.builds(
    lambda rows, cols, rules, shades: Grid(tuple(sorted(rows)), tuple(sorted(cols)), tuple(rules), tuple(shades)),
    st.lists(_numbers, max_size=6),
    st.lists(_numbers, max_size=6),
    st.lists(_rects, max_size=20),
    st.lists(st.builds(Shade, _rects, st.integers(0, 0xFFFFFF)), max_size=5),
)


@settings(deadline=None)
@given(_rects, _grids, st.lists(_words, max_size=30))
def test_every_word_is_in_exactly_one_cell(box: Rect, grid: Grid, words: list[StyledWord]) -> None:
    """Whatever rules and lines a table has, its cells tile the grid and have each word once."""
    rows, cols, cells, _ = build_cells(box, grid, words)

    found = Counter(word for cell in cells for word in cell.text.split())
    assert found == Counter(part for word in words for part in word.text.split())
    slots = [
        (r, c)
        for cell in cells
        for r in range(cell.row, cell.row + cell.row_span)
        for c in range(cell.col, cell.col + cell.col_span)
    ]
    assert sorted(slots) == [(r, c) for r in range(rows) for c in range(cols)]
