"""Parsing tables as models write them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import documents
from twopass.families import table_parser
from twopass.families.regions import otsl
from twopass.text import table_markup


def cells(text: str) -> list[tuple[int, int, int, int, str, bool]]:
    return [(c.row, c.col, c.row_span, c.col_span, c.text, c.header) for c in table_parser.parse_html(text).cells]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<table><tr><td>a</td><td>b</td></tr></table>", [(0, 0, 1, 1, "a", False), (0, 1, 1, 1, "b", False)]),
        ("<table><tr><th>a</th></tr></table>", [(0, 0, 1, 1, "a", True)]),
        (
            "<table><thead><tr><td>a</td></tr></thead><tr><td>b</td></tr>",
            [(0, 0, 1, 1, "a", True), (1, 0, 1, 1, "b", False)],
        ),
        (
            '<table><tr><td rowspan="2">a<td>b<tr><td>c',
            [(0, 0, 2, 1, "a", False), (0, 1, 1, 1, "b", False), (1, 1, 1, 1, "c", False)],
        ),
        ("<table><tr><td colspan=2>a</td></tr></table>", [(0, 0, 1, 2, "a", False)]),
        ('<table><tr><td rowspan="99">a</td></tr></table>', [(0, 0, 1, 1, "a", False)]),
        ('<table><tr><td colspan="0">a</td></tr></table>', [(0, 0, 1, 1, "a", False)]),
        ("<table><tr><td>1 &lt; 2 &amp;gt; 0</td></tr></table>", [(0, 0, 1, 1, "1 < 2 > 0", False)]),
        ("<table><tr><td>a<br>b<br/></td></tr></table>", [(0, 0, 1, 1, "a\nb", False)]),
        ("<table><tr><td><b>a</b> \\(x\\)</td></tr></table>", [(0, 0, 1, 1, "a \\(x\\)", False)]),
        (
            "<table><tr><td>905<sup>1</sup></td><td>402<SUP>b</SUP></td><td>H<sub>2</sub>O, 1<sup>st</sup>",
            [(0, 0, 1, 1, "905¹", False), (0, 1, 1, 1, "402ᵇ", False), (0, 2, 1, 1, "H₂O, 1st", False)],
        ),
        ("<table><tr><td>3<sup><b>1</b></sup><hr>x", [(0, 0, 1, 1, "3¹\nx", False)]),
        (
            "<table><caption>Tolls</caption><tr><td>a<td>b</tr>by quay<tr><td>c<td>d</table>",
            [
                (0, 0, 1, 2, "Tolls", False),
                (1, 0, 1, 1, "a", False),
                (1, 1, 1, 1, "b", False),
                (2, 0, 1, 2, "by quay", False),
                (3, 0, 1, 1, "c", False),
                (3, 1, 1, 1, "d", False),
            ],
        ),
        ("<table>loose<tr></tr><tr><td>a", [(0, 0, 1, 1, "loose", False), (1, 0, 1, 1, "a", False)]),
        ("<table><tr>x<td>a</td>y<td>b", [(0, 0, 1, 1, "x\na\ny", False), (0, 1, 1, 1, "b", False)]),
        ("<TABLE><TR><TD>a</TD></TR></TABLE>", [(0, 0, 1, 1, "a", False)]),
        ("<TABLE><THEAD><TR><TD>a</TD></TR></THEAD><TR><TH>b", [(0, 0, 1, 1, "a", True), (1, 0, 1, 1, "b", True)]),
        (
            "<table><tr><td rowspan=3>a<td rowspan=2>0</td></tr><tr></tr><tr><td>5</td></tr></table>",
            [(0, 0, 3, 1, "a", False), (0, 1, 2, 1, "0", False), (2, 1, 1, 1, "5", False)],
        ),
        (
            "<table><tr><td>a</td></tr><tr> </tr><tr><td>b</td></tr></table>",
            [(0, 0, 1, 1, "a", False), (1, 0, 1, 1, "", False), (2, 0, 1, 1, "b", False)],
        ),
        ('<table><tr><td><img src="v.png" alt="a valve"> x</td></tr>', [(0, 0, 1, 1, "a valve x", False)]),
        ("<table><!-- head --><tr><td>a<!-- <b> --></td></tr></table>", [(0, 0, 1, 1, "a", False)]),
        ("<table><tr><td><ol><li>a<li>b</ol><div>c</div>d", [(0, 0, 1, 1, "a\nb\nc\nd", False)]),
        ("<table><tr><td><a href='x'>a</a> <code>b &lt; c</code> <s>d</s>", [(0, 0, 1, 1, "a b < c d", False)]),
        (
            "<table><tr><td><abc>, a <b c < 5 <small@a.example>",
            [(0, 0, 1, 1, "<abc>, a <b c < 5 <small@a.example>", False)],
        ),
        (
            "<table><tr><td rowspan=3>a</td></tr><tr/><tr class='x' /><tr><td>b</td></tr></table>",
            [(0, 0, 3, 1, "a", False), (3, 0, 1, 1, "b", False)],
        ),
        ("<table><tr><td>a</td><tr/><tr><td>b</td><tr/></table>", [(0, 0, 1, 1, "a", False), (1, 0, 1, 1, "b", False)]),
        (
            "<table><thead><tr><td>a<tr><td>b</table>",
            [(0, 0, 1, 1, "a", True), (1, 0, 1, 1, "b", False)],
        ),
        (
            "<table><thead><tr><td>a<tr><td>b<tbody><tr><td>c<tfoot><tr><td>d",
            [(0, 0, 1, 1, "a", True), (1, 0, 1, 1, "b", True), (2, 0, 1, 1, "c", False), (3, 0, 1, 1, "d", False)],
        ),
        (
            "<table><tr><td>a<td>b<tr><td colspan=9>c<tr><td>d",
            [(0, 0, 1, 1, "a", False), (0, 1, 1, 1, "b", False), (1, 0, 1, 2, "c", False), (2, 0, 1, 1, "d", False)],
        ),
        (
            "<table><tr><td>a<td rowspan=2>b<tr><td colspan=2>c<td>d",
            [(0, 0, 1, 1, "a", False), (0, 1, 2, 1, "b", False), (1, 0, 1, 1, "c", False), (1, 2, 1, 1, "d", False)],
        ),
        ("<table><tr><td>a?b=1&copy=2 &notit;", [(0, 0, 1, 1, "a?b=1&copy=2 &notit;", False)]),
        ("<table>", []),
    ],
)
def test_cells_are_found_with_any_tags(text: str, found: list[tuple[int, int, int, int, str, bool]]) -> None:
    """Cells are found with unclosed tags, wrong spans, stray text and text that is escaped twice."""
    assert cells(text) == found


def test_a_table_that_is_cut_off_keeps_its_cells() -> None:
    """The last cell of a table without an end goes up to the end of the answer."""
    (part,) = table_parser.split_tables("<table><tr><td>a</td><td>b")

    assert part.table and [cell.text for cell in part.table.cells] == ["a", "b"]


@given(st.integers(min_value=0, max_value=80))
def test_a_table_may_be_cut_off_at_any_place(length: int) -> None:
    """No part of a tag at the end becomes text, neither in HTML nor in OTSL."""
    html = '<table><thead><tr><th>One</th></tr></thead><tr><td rowspan="2" colspan="2">Two</td></tr></table>'
    parts = table_parser.split_tables(html[: len("<table>") + length])
    grid = otsl.parse("<fcel>One<ecel><nl><fcel>Two<lcel><nl>"[: 6 + length])

    for table in (*(part.table for part in parts), grid):
        assert table and all("Two".startswith(cell.text) or "One".startswith(cell.text) for cell in table.cells)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a | b\n---|---\nc | d", ["a b", "c d"]),
        ("| a | b\n| :- | -: |\n| c | d", ["a b", "c d"]),
        ("| a | b |\n|---|---|\n| c | d |\n| e | f", ["a b", "c d", "e f"]),
        ("| a | b |\n| c | d |", ["a b", "c d"]),
        ("| a | b |\n|---|---|\n| \\(|x|\\) | d |", ["a b", "\\(|x|\\) d"]),
    ],
)
def test_markdown_tables_are_found_in_every_form(text: str, rows: list[str]) -> None:
    """Pipes at the edges, or the line below the head, may be missing; those of a formula divide no cells."""
    before, part, after = table_parser.split_tables(f"one\n\n{text}\n\ntwo")

    assert part.table and table_markup.to_text(part.table).splitlines() == rows
    assert (before.text.strip(), after.text.strip(), part.table.cols) == ("one", "two", 2)
    assert [part.table.cells[0].header, part.table.cells[-1].header] == ["-" in text, False]


@pytest.mark.parametrize("text", ["a | b\nc | d", "|x| = |y|\n|z| = |w|", "| a |\n| b |", "a | b\n-----\nc"])
def test_lines_with_bars_are_prose(text: str) -> None:
    """Bars without columns, as in formulas, make no table."""
    assert table_parser.split_tables(text) == [table_parser.Part(text, None)]


@pytest.mark.parametrize(
    ("text", "texts", "rest"),
    [
        ("<table><tr><td>o<table><tr><td>in</td><td>x</td></tr><tr><td>y</td></tr></table></td><td>out</td></tr></table>z",
         ["o in x\ny", "out"], "z"),
        ("<table><tr><td><table><tr><td>a</td></tr></table><table><tr><td>b</td></tr></table></td><td>c</td></tr></table>",
         ["a\nb", "c"], ""),
        ("<table><tr><td>a</td><td>b<table><tr><td>c</td></tr></table> after", ["a", "b c"], "after"),
        ("<table><tr><td>a<table><tr><td>b", ["a b"], ""),
    ],
)  # fmt: skip
def test_a_nested_table_is_text_of_its_cell(text: str, texts: list[str], rest: str) -> None:
    """The text of a nested table belongs to the cell around it, and the outer table continues after it."""
    first, *others = table_parser.split_tables(text)

    assert first.table and [cell.text for cell in first.table.cells] == texts
    assert first.table.rows == 1
    assert "".join(part.text.strip() for part in others) == rest


@pytest.mark.parametrize(
    ("text", "texts", "rest"),
    [
        ("<tr><td>a</td><td>b</td></tr><tr><td>c</td></tr> after", ["a", "b", "c"], "after"),
        ("<td>a</td><td>b", ["a", "b"], ""),
        ("</td><td>a</td></tr></table>after<table><tr><td>b</td></tr></table>", ["a", "b"], "after"),
        ("before <tr><td>a</td></tr></table> after", ["a"], "before after"),
        ("The <td> tag ends with </td>", [], "The <td> tag ends with </td>"),
    ],
)
def test_a_table_that_does_not_begin_is_one(text: str, texts: list[str], rest: str) -> None:
    """An answer may begin within a table, or lack the tags around its rows; a tag in prose is text."""
    parts = table_parser.split_tables(text)

    assert [cell.text for part in parts if part.table for cell in part.table.cells] == texts
    assert " ".join(part.text.strip() for part in parts if not part.table) == rest


def test_a_table_after_an_unclosed_one_is_separate() -> None:
    """A table that starts outside any cell is no nested table."""
    parts = table_parser.split_tables("<table><tr><td>a</td></tr> <table><tr><td>b</td></tr></table>")

    assert [part.table and [cell.text for cell in part.table.cells] for part in parts] == [["a"], ["b"]]


def test_words_in_angle_brackets_are_no_table() -> None:
    """`<table 3>` in prose stays text."""
    assert table_parser.split_tables("See <table 3> for it") == [table_parser.Part("See <table 3> for it", None)]


def test_rows_of_other_widths_make_a_table_complex() -> None:
    """A table with rows of different widths is complex; one whose rows are equally wide is simple."""
    irregular = "<table><tr><td>a</td></tr><tr><td>a</td><td>b</td></tr></table>"
    filled = "<table><tr><td>a</td><td>b</td><td>c</td><td colspan='1'>d</td></tr></table>"

    assert table_parser.parse_html(irregular).complexity == "complex"
    assert table_parser.parse_html(filled).complexity == "simple"


def test_prose_and_tables_keep_their_order() -> None:
    """HTML and GFM tables are split from the prose around them; a line with a bar is prose."""
    text = "a | b\n<table><tr><td>1</td></tr></table>\nc\n\n| x | y\\|z |\n|---|:-:|\n| 1 | 2 |\n\nd"
    parts = table_parser.split_tables(text)

    assert [part.text.strip()[:1] for part in parts] == ["a", "<", "c", "|", "d"]
    assert parts[3].table and [c.text for c in parts[3].table.cells] == ["x", "y|z", "1", "2"]


@given(
    st.lists(
        st.sampled_from(
            [
                "<table>",
                "<tr>",
                "<td>",
                "</td>",
                "<td rowspan=3 colspan=2>",
                "</tr>",
                "</table>",
                "<thead>",
                "|",
                "\n",
                "|-|",
                "a",
                "&lt;",
                "<",
            ]
        ),
        max_size=40,
    ).map("".join)
)
def test_any_tags_give_valid_tables(text: str) -> None:
    """In any mix of tags every cell lies inside its table, and no two have the same place."""
    for part in table_parser.split_tables(text):
        if part.table:
            places = [
                (c.row + down, c.col + across)
                for c in part.table.cells
                for down in range(c.row_span)
                for across in range(c.col_span)
            ]
            assert len(set(places)) == len(places)
            assert all(
                c.row + c.row_span <= part.table.rows and c.col + c.col_span <= part.table.cols
                for c in part.table.cells
            )


@given(
    st.lists(
        st.lists(documents.texts.map(lambda t: " ".join(t.split())), min_size=1, max_size=3), min_size=1, max_size=4
    )
)
def test_what_was_written_is_read_again(rows: list[list[str]]) -> None:
    """The HTML that we write for a table parses to the same cells, for any text that is no tag."""
    rows = [
        [text.replace("<b>", "").replace("<!--", "").replace("-->", "").strip() or "x" for text in row] for row in rows
    ]
    table = documents.plain_table(*rows)

    again = table_parser.parse_html(table_markup.to_html(table.cells))

    assert [(c.row, c.col) for c in again.cells] == [(c.row, c.col) for c in table.cells]


def test_spans_without_bounds_take_no_time() -> None:
    """A thousand rows with cells that span a thousand rows each are parsed in less than two seconds."""
    started = time.process_time()
    table = table_parser.parse_html("<table>" + "<tr><td rowspan=1000 colspan=1000>a</td></tr>" * 1000)

    assert len(table.cells) == 1000
    assert time.process_time() - started < 2


def test_text_beside_a_table_becomes_rows_of_it() -> None:
    """A title before, a note between and a second table after it are all kept, in their order."""
    parts = table_parser.split_tables(
        "Table 3 Salt\n<table><tr><td>a</td><td>b</td></tr></table>\nin tonnes\n<table><tr><td>c</td></tr></table>"
    )

    table = table_parser.join_parts(parts)

    assert table and (table.rows, table.cols) == (4, 2)
    assert [(cell.row, cell.col_span, cell.text) for cell in table.cells] == [
        (0, 2, "Table 3 Salt"), (1, 1, "a"), (1, 1, "b"), (2, 2, "in tonnes"), (3, 1, "c"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("<html><body>", "</body></html>"),
        ("<!DOCTYPE html>\n<html><head><style>td {color: red}</style></head><body><div>", "</div></body></html>"),
        ("```html\n", "\n```"),
        ('<div style="text-align: center">', "</div>"),
        ('<?xml version="1.0"?>\n<html lang="de"><body>', "</body></html>"),
        ("<p><b><em>", "</em></b></p>"),
        ("<!-- page 3 -->", "<!-- end -->"),
    ],
)
def test_the_frame_of_a_table_is_no_text(before: str, after: str) -> None:
    """Tags and fences that only surround a table are dropped; the words beside it are not."""
    table = "<table><tr><td>a</td></tr></table>"

    assert [part.text for part in table_parser.split_tables(before + table + after)] == [table]
    parts = table_parser.split_tables(f"one\n{before}{table}{after}\ntwo")
    assert [part.text.strip()[:3] for part in parts] == ["one", "<ta", "two"]


def test_the_title_of_the_frame_is_text() -> None:
    """The words of a title stay, without its tags."""
    title, _ = table_parser.split_tables("<html><head><title>Tolls</title></head><table><tr><td>a</td></tr></table>")

    assert title.text.strip() == "Tolls"


def test_a_table_without_cells_shows_nothing() -> None:
    """No format writes the frame of a table that has no cell."""
    table = table_parser.parse_html("<table><tr></tr><tr></tr></table>")

    assert (table.rows, table.cells, table.markdown) == (0, (), "")


def test_a_fence_of_code_below_a_table_stays() -> None:
    """A fence that begins behind a table belongs to the code behind it."""
    *_, code = table_parser.split_tables("<table><tr><td>a</td></tr></table>\n```\nx = 1\n```")

    assert code.text.strip() == "```\nx = 1\n```"


def test_rows_that_cells_above_cover_are_written() -> None:
    """A row in which no cell begins is written all the same: the spans over it count it."""
    written = "<table><tr><td rowspan=3>a</td><td rowspan=2>b</td></tr><tr></tr><tr><td>c</td></tr></table>"
    table = table_parser.parse_html(written)

    again = table_parser.parse_html(table.html)

    assert (table.rows, again.cells) == (3, table.cells)


@given(st.lists(st.sampled_from(["<table>", "</table>", "<td>", "a", "| a |\n", "|---|\n", "\n"]), max_size=12))
def test_sources_are_those_of_the_tables(pieces: list[str]) -> None:
    """Without parsing cells, the same tables are found as with it."""
    text = "".join(pieces)

    found = [part.text for part in table_parser.split_tables(text) if part.table]

    assert table_parser.find_sources(text) == found


@given(st.text(alphabet="ab <>/td|-\n", max_size=80))
def test_no_word_of_an_answer_about_a_table_is_lost(text: str) -> None:
    """Whatever surrounds a table, its words are words of the joined table."""
    parts = table_parser.split_tables(f"{text}<table><tr><td>x</td></tr></table>{text}")
    table = table_parser.join_parts(parts)

    expected = [part.table for part in parts if part.table]
    assert table and len(table.cells) >= max(len(one.cells) for one in expected)
    prose = " ".join(table_parser.clean_cell_text(part.text) for part in parts if not part.table).split()
    found = " ".join(cell.text for cell in table.cells).split()
    assert not [word for word in prose if word not in found]


def test_an_empty_cell_at_the_edge_of_a_row_is_a_cell() -> None:
    """Writers set no blank between the pipes of an empty cell: the header stays over its column."""
    table = table_parser.parse_gfm("||Ships||\n|---|---|---|\n|Fernsey|1204|7|")

    assert [(cell.row, cell.col, cell.text) for cell in table.cells if cell.text] == [
        (0, 1, "Ships"),
        (1, 0, "Fernsey"),
        (1, 1, "1204"),
        (1, 2, "7"),
    ]
