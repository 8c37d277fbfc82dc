"""Reading order on pages where lines overlap, stand side by side, or belong to cards and columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pymupdf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engines.cpu.drawn_pages import measure_order, read, read_lines
from twopass.document import Rect, enclose
from twopass.engines.cpu import reading_order, scanned_page
from twopass.engines.cpu.content import Grid, Region, StyledWord

PROSE = (
    "The level in the borehole is measured before",
    "the pump starts and after it has run for one",
    "hour. Prices are those of January and half",
    "of the loss is now thought to lie in the upper",
    "village. Both operators write down what they",
    "see on their rounds, and the council reads it.",
)
CARDS = (
    ("Basic plan", "One gauge is read", "every month and the", "figures are posted"),
    ("Village plan", "Two gauges are read", "each week by a person", "who lives nearby"),
    ("Town plan", "All gauges are read", "daily and a report", "comes each spring"),
)
KOREAN = (
    "린다흐 정수장은 두 곳의 샘과 한 곳의 관정에서 취수한 물을 주민에게 공급하고 있다 수위는 펌프를 켜기 전과 한 시간 "
    "뒤에 잰다 물값은 일월의 값이며 손실의 절반은 윗마을에서 난다고 본다"
)


def new_page(height: float = 500) -> tuple[Any, Any]:
    document = pymupdf.open()
    return document, document.new_page(width=595, height=height)


def write(page: Any, x: float, y: float, lines: tuple[str, ...], size: float = 11, font: str = "helv") -> None:
    for row, line in enumerate(lines):
        page.insert_text((x, y + 1.3 * size * row), line, fontsize=size, fontname=font)


def test_a_drop_cap_begins_its_word(tmp_path: Path) -> None:
    """A letter over three lines is joined to the first of them and does not mix them."""
    document, page = new_page()
    page.insert_text((60, 50), "A Year of Water", fontsize=18)
    page.insert_text((60, 118), "T", fontsize=46, fontname="tiro")
    write(page, 92, 90, (PROSE[0][1:], *PROSE[1:3]), font="tiro")
    write(page, 60, 132, PROSE[3:], font="tiro")

    assert read_lines(document, tmp_path) == ["A Year of Water", *PROSE]


def test_lines_of_a_form_are_not_mixed(tmp_path: Path) -> None:
    """Boxes side by side, whose lines have different heights, are read one after the other."""
    document, page = new_page()
    page.insert_text((40, 60), "Form", fontsize=8)
    page.insert_text((64, 60), "1040", fontsize=24, fontname="hebo")
    page.insert_text((130, 48), "Department of the Treasury-Internal Revenue Service", fontsize=7)
    page.insert_text((130, 62), "U.S. Individual Income Tax Return", fontsize=13, fontname="hebo")
    page.insert_text((360, 62), "2021", fontsize=20, fontname="hebo")
    write(page, 490, 52, ("IRS Use Only-Do not", "write or staple here"), size=6)
    page.draw_line((40, 70), (560, 70))
    page.insert_text((40, 82), "Filing Status", fontsize=10, fontname="hebo")
    write(page, 40, 160, tuple(f"{line} {line}" for line in PROSE), size=13)
    text = " ".join(read_lines(document, tmp_path))

    assert "1040 Department of the Treasury-Internal Revenue Service U.S. Individual Income Tax Return" in text
    assert "IRS Use Only-Do not write or staple here" in text


def test_a_bracketed_list_follows_its_name(tmp_path: Path) -> None:
    """A brace over three lines separates the name before it from the lines behind it."""
    document, page = new_page()
    write(page, 60, 60, PROSE[:3])
    page.insert_text((60, 135), "Meals of the day", fontsize=11)
    page.insert_text((150, 147), "{", fontsize=52)
    write(page, 175, 120, ("breakfast at seven", "lunch at noon", "dinner at six"))
    write(page, 60, 190, PROSE[3:])

    expected = [*PROSE[:3], "Meals of the day {", "breakfast at seven", "lunch at noon", "dinner at six", *PROSE[3:]]
    assert read_lines(document, tmp_path) == expected


def test_a_closing_bracket_follows_its_list(tmp_path: Path) -> None:
    """What stands behind a closing brace is read after all lines before it."""
    document, page = new_page()
    write(page, 60, 60, PROSE[:3])
    write(page, 60, 120, ("breakfast at seven", "lunch at noon", "dinner at six"))
    page.insert_text((165, 147), "}", fontsize=52)
    page.insert_text((195, 135), "in the hall", fontsize=11)

    expected = [*PROSE[:3], "breakfast at seven", "lunch at noon", "dinner at six", "} in the hall"]
    assert read_lines(document, tmp_path) == expected


@pytest.mark.parametrize("framed", [True, False])
def test_cards_are_read_one_by_one(tmp_path: Path, framed: bool) -> None:
    """Six cards in two rows are read card by card, the upper row first."""
    document, page = new_page()
    page.insert_text((60, 50), "What we offer", fontsize=18, fontname="hebo")
    for row, suffix in enumerate(("", " plus")):
        for col, (title, *lines) in enumerate(CARDS):
            x, y = 60 + 170 * col, 100 + 130 * row
            if framed:
                page.draw_rect(pymupdf.Rect(x - 10, y - 20, x + 140, y + 70), width=0.5)
            page.insert_text((x, y), title + suffix, fontsize=12, fontname="hebo")
            write(page, x, y + 18, tuple(lines), size=10)

    cards = [[title + suffix, *lines] for suffix in ("", " plus") for title, *lines in CARDS]
    assert read_lines(document, tmp_path) == ["What we offer", *(line for card in cards for line in card)]


def test_entries_of_a_calendar_stay_in_their_days(tmp_path: Path) -> None:
    """The lines of one day are read together, and not across the week."""
    document, page = new_page()
    page.insert_text((60, 50), "March 2026", fontsize=18, fontname="hebo")
    entries = [
        ("Dentist at nine", "Call the mason"),
        ("School fair",),
        ("Council meets", "in the town hall", "Bring the plans"),
        ("Market day",),
        ("Choir at eight", "Pay the rent"),
    ]
    for row in range(3):
        for col in range(5):
            x, y = 40 + 105 * col, 80 + 80 * row
            page.draw_rect(pymupdf.Rect(x, y, x + 105, y + 80), width=0.6)
            page.insert_text((x + 6, y + 14), str(2 + 7 * row + col), fontsize=10, fontname="hebo")
            write(page, x + 6, y + 30, entries[(row + col) % 5], size=9)
    answer = read(document, tmp_path)

    (table,) = [box["table"] for box in answer["boxes"] if "table" in box]
    days = ["\n".join([str(2 + 7 * row + col), *entries[(row + col) % 5]]) for row in range(3) for col in range(5)]
    assert [cell["text"] for cell in table["cells"]] == days


def draw_two_columns(font: str, size: float, make_line: Any) -> tuple[Any, list[str]]:
    """Draw a title over two columns with three sections each, whose headings are level; also return its lines."""
    document, page = new_page(842)
    page.insert_text((150, 60), make_line(0, 0, 0)[:20], fontsize=16, fontname=font)
    expected = [make_line(0, 0, 0)[:20]]
    for col in (0, 1):
        y = 120.0
        for section in range(3):
            lines = [f"{2 * section + col + 1}. {make_line(col, section, 9)[:12]}"]
            lines += [make_line(col, section, row) for row in range(12)]
            for row, line in enumerate(lines):
                page.insert_text((50 + 255 * col, y), line, fontsize=size + (0 if row else 2), fontname=font)
                y += 12.5 if row else 18
            y += 16
            expected += lines
    return document, expected


def make_english(col: int, section: int, row: int) -> str:
    return f"c{col}s{section}r{row} {PROSE[row % 6]}"[:44]


def make_korean(col: int, section: int, row: int) -> str:
    words = KOREAN.split()
    start = 5 * row + 3 * col + section
    return " ".join([f"가{col}{section}{row}", *(words[(start + n) % len(words)] for n in range(4))])


@pytest.mark.parametrize(("font", "make_line"), [("tiro", make_english), ("korea", make_korean)])
def test_two_columns_are_not_mixed(tmp_path: Path, font: str, make_line: Any) -> None:
    """Under a title, the left column is read before the right one, although their sections begin at one height."""
    document, expected = draw_two_columns(font, 10, make_line)
    found = read_lines(document, tmp_path)

    assert measure_order(" ".join(expected).split(), " ".join(found).split()) >= 0.97


def place(lines: list[tuple[float, float, str]], size: float = 10, blocks: list[int] | None = None) -> list[StyledWord]:
    """Place lines at (x, y of the baseline, text), with words as wide as their letters."""
    words = []
    for number, (x, y, text) in enumerate(lines):
        left = x
        for word in text.split():
            box = Rect(left, y - size, left + size / 2 * len(word), y + 0.3 * size)
            words.append(StyledWord(box, word, number, size, block=blocks[number] if blocks else number))
            left = box.x1 + size / 3
    return words


def join(rows: list[reading_order.Row]) -> list[str]:
    return [" ".join(word.text for word in row) for row in rows]


def test_names_and_values_are_rows() -> None:
    """Short lines on the same baselines are read across, also if the names were drawn before the values."""
    lines = [(0, 20 * n, f"name {n}") for n in range(4)] + [(200, 20 * n, f"value {n}") for n in range(4)]

    assert join(reading_order.order_lines(place(lines))) == [f"name {n} value {n}" for n in range(4)]


def test_lines_that_overlap_are_not_one_row() -> None:
    """Two lines above each other whose boxes overlap, as large letters make them, are never mixed."""
    lines: list[tuple[float, float, str]] = [(0, 10, "Department of the Treasury"), (10, 15, "Income Tax Return")]

    assert join(reading_order.group_rows(place(lines))) == ["Department of the Treasury", "Income Tax Return"]


def test_columns_of_different_pitch_are_read_in_turn() -> None:
    """Two notes whose lines are not level are columns, however short they are."""
    left = [(0.0, 12.0 * n, f"left {n}") for n in range(4)]
    right = [(200.0, 17.0 * n + 5, f"right {n}") for n in range(3)]
    lines = [line for pair in zip(left, right, strict=False) for line in pair] + left[3:]

    found = join(reading_order.order_lines(place(lines)))
    assert found == [text for _, _, text in left + right]


def test_cards_of_one_region_are_read_in_the_order_in_which_they_were_drawn() -> None:
    """Level lines are columns if each column was drawn as a block of its own, before the next."""
    cards = [[(150.0 * col, 14.0 * row, f"card{col} line{row} ends") for row in range(3)] for col in range(3)]
    in_turn = [line for card in cards for line in card]
    across = [card[row] for row in range(3) for card in cards]
    by_column = [text for _, _, text in in_turn]

    assert join(reading_order.order_lines(place(in_turn, blocks=[n // 3 for n in range(9)]))) == by_column
    assert len(reading_order.order_lines(place(across))) == 3


def test_a_heading_over_columns_comes_first() -> None:
    """A line across the gutter is a band of its own, above the columns."""
    lines = [(0.0, 0.0, "one heading that runs over both of the two columns of text below it")]
    lines += [(170.0 * col, 30 + 12.0 * n, f"c{col} r{n} tells of water") for n in range(5) for col in (0, 1)]
    found = join(reading_order.order_lines(place(lines)))

    assert [line[:5] for line in found[1:]] == [f"c{col} r{n}" for col in (0, 1) for n in range(5)]


@pytest.mark.parametrize(("first", "expected"), [("he", "The"), ("hen", "Then")])
def test_a_drop_cap_is_joined(first: str, expected: str) -> None:
    """The cap and the rest of its word are one word."""
    cap = StyledWord(Rect(0, 0, 28, 46), "T", 0, 36)
    rows = reading_order.group_rows(
        [cap, *_number(place([(32, 15, f"{first} level"), (32, 29, "is low"), (32, 43, "x")]))]
    )

    assert join(rows) == [f"{expected} level", "is low", "x"]


@pytest.mark.parametrize(("font", "top"), [("", 9), ("Times", -4)])
def test_a_drop_cap_joins_the_first_line_beside_its_ink(font: str, top: float) -> None:
    """OCR's box begins with the ink; that of a font begins higher, beside the end of the text above."""
    cap = StyledWord(Rect(0, top, 28, 46), "T", 0, 36, font=font)
    lines: list[tuple[float, float, str]] = [(32, 1, "ends above"), (32, 15, "he level"), (32, 29, "is"), (32, 43, "x")]

    assert join(reading_order.group_rows([cap, *_number(place(lines))])) == ["ends above", "The level", "is", "x"]


def test_a_drop_cap_that_is_a_word_stays_one() -> None:
    """ "A" in front of a word that the text repeats is not joined to it."""
    cap = StyledWord(Rect(0, 0, 28, 46), "A", 0, 36)
    lines: list[tuple[float, float, str]] = [(32, 15, "village lies here"), (32, 29, "the village is"), (32, 43, "old")]

    assert join(reading_order.group_rows([cap, *_number(place(lines))]))[0] == "A village lies here"


@pytest.mark.parametrize(
    ("letter", "first", "expected"),
    [
        ("A", "storm of the winter", "A storm of"),
        ("A", "ll the boats of the town", "All the"),
        ("I", "was in the town and it", "I was"),
        ("I", "n the winter of the year", "In the"),
        ("O", "strey is the town of the", "Ostrey is"),
        ("Y", "el barco de los del puerto en", "Y el"),
        ("E", "l barco de los del puerto en", "El barco"),
    ],
)
def test_a_drop_cap_is_a_word_if_the_language_says_so(letter: str, first: str, expected: str) -> None:
    """Word lists decide between "A storm" and "All": no other word of the page has to repeat them."""
    cap = StyledWord(Rect(0, 0, 28, 46), letter, 0, 36)
    lines: list[tuple[float, float, str]] = [
        (32, 15, first),
        (32, 29, "de la" if letter in "YE" else "and of"),
        (32, 43, "x"),
    ]

    assert join(reading_order.group_rows([cap, *_number(place(lines))]))[0].startswith(expected)


def _number(words: list[StyledWord]) -> list[StyledWord]:
    return [StyledWord(w.box, w.text, w.line + 1, w.size, block=w.block + 1) for w in words]


@pytest.mark.parametrize("turn", [90, 180, 270])
def test_turned_lines_keep_the_order_of_their_words(tmp_path: Path, turn: int) -> None:
    """Lines that run up, down or upside down are read as they were drawn, after the upright text."""
    document, page = new_page()
    write(page, 60, 60, PROSE)
    dx, dy = {90: (14, 0), 180: (0, -14), 270: (-14, 0)}[turn]
    lines = ("Answers: the second pump", "and the third one never does")
    for row, line in enumerate(lines):
        page.insert_text((400 + dx * row, 350 + dy * row), line, rotate=turn)

    assert read_lines(document, tmp_path) == [*PROSE, *lines]


def test_columns_beside_turned_text_are_not_mixed() -> None:
    """A vertical note in a region does not keep its columns from being read in turn."""
    left = [(0.0, 12.0 * n, f"left line {n} of text") for n in range(4)]
    right = [(200.0, 12.0 * n, f"right line {n} of text") for n in range(4)]
    words = place([line for pair in zip(left, right, strict=True) for line in pair])
    note = StyledWord(Rect(400, 0, 410, 60), "note", 99, 10, upright=False)

    assert join(reading_order.order_lines([note, *words])) == [text for _, _, text in left + right] + ["note"]


def test_bands_with_other_columns_are_read_one_after_the_other() -> None:
    """Three columns close below two are a band of their own."""
    upper = [Rect(0, 0, 250, 100), Rect(270, 0, 520, 100)]
    lower = [Rect(180.0 * n, 110, 180.0 * n + 160, 210) for n in range(3)]

    assert reading_order.order_boxes([*upper, *lower]) == list(range(5))


def test_a_heading_below_columns_leads_what_follows_it() -> None:
    """A heading near the table below it is read with that; one above text of its column stays in the column."""
    prose, box, heading = Rect(94, 314, 380, 359), Rect(393, 311, 461, 383), Rect(78, 401, 176, 414)
    below, column = Rect(79, 430, 495, 517), Rect(78, 420, 380, 517)

    assert reading_order.order_boxes([prose, box, heading, below]) == [0, 1, 2, 3]
    assert reading_order.order_boxes([prose, box, heading, column]) == [0, 2, 3, 1]


def test_a_header_below_the_title_follows_it() -> None:
    """The layout model takes a line of authors for a header; the running header stands above the title."""
    labels = ("page-header", "page-header", "section-header", "page-header")
    boxes = (Rect(430, 29, 560, 38), Rect(250, 68, 360, 75), Rect(145, 51, 467, 66), Rect(50, 28.5, 150, 38))
    regions = [Region(label, box) for label, box in zip(labels, boxes, strict=True)]

    ordered = reading_order.sort_regions(regions, Rect(0, 0, 612, 792))

    assert [regions.index(region) for region in ordered] == [3, 0, 2, 1]


def test_deeply_nested_boxes_are_ordered() -> None:
    """Each box of a spiral separates the rest, some hundred times."""
    rects, x, y, end = [], 0.0, 0.0, 1e6
    for n in range(600):
        rects.append(Rect(x, y, x + 100, end) if n % 2 else Rect(x, y, end, y + 100))
        x, y = (x + 200, y) if n % 2 else (x, y + 200)

    assert reading_order.order_boxes(rects) == list(range(len(rects)))


RECTS = st.lists(
    st.builds(
        lambda x, y, w, h: Rect(x, y, x + w, y + h),
        *(st.floats(0, 500) for _ in range(2)),
        *(st.floats(0, 200) for _ in range(2)),
    ),
    max_size=20,
)


def test_an_inset_in_the_gutter_does_not_break_the_columns() -> None:
    """Text flows around a pull quote, or a photo with its caption: it is read between the columns, not their halves."""
    left, right = (
        [Rect(x, 80, x + 240, 280), Rect(x + beside, 290, x + beside + 150, 420), Rect(x, 430, x + 240, 700)]
        for x, beside in ((40, 0), (310, 90))
    )
    quote, photo, caption = Rect(205, 320, 385, 390), Rect(202, 300, 388, 385), Rect(204, 390, 330, 402)

    assert reading_order.order_boxes([*left, quote, *right]) == list(range(7))
    assert reading_order.order_boxes([*left, photo, caption, *right]) == list(range(8))


def test_an_inset_in_one_of_two_gutters_leaves_three_columns() -> None:
    """The third column is read last, whatever stands between the first two."""
    first, second, third = (
        [Rect(x, 80, x + 160, 280), Rect(x + side[0], 290, x + side[1], 420), Rect(x, 430, x + 160, 700)]
        for x, side in ((40, (0, 100)), (220, (60, 160)), (400, (0, 160)))
    )

    assert reading_order.order_boxes([*first, Rect(150, 320, 270, 390), *second, *third]) == list(range(10))


def test_headings_and_figures_across_divide_columns() -> None:
    """What has no text beside it ends the columns above it: two articles are read one after the other."""
    upper, lower = ([Rect(x, y, x + 240, y + 200) for x in (40, 310)] for y in (100, 400))
    for x0, x1 in ((40, 550), (150, 440)):
        heads = [Rect(x0, y, x1, y + 20) for y in (60, 350)]

        assert reading_order.order_boxes([heads[0], *upper, heads[1], *lower]) == list(range(6))


def test_cards_below_columns_are_no_inset() -> None:
    """The middle one of three cards lies across the gutter above it and begins with its neighbours."""
    columns = [[Rect(x, y, x + 240, y + 100) for x in (40, 310)] for y in (100, 350)]
    cards = [Rect(40.0 + 180 * n, 230, 40.0 + 180 * n + 150, 320 - 5 * n) for n in range(3)]

    assert reading_order.order_boxes([*columns[0], *cards, *columns[1]]) == list(range(7))


@given(RECTS)
def test_every_box_is_read_once(rects: list[Rect]) -> None:
    """Ordering loses no box and repeats none, whatever their positions."""
    assert sorted(reading_order.order_boxes(rects)) == list(range(len(rects)))
    assert sorted(i for block in reading_order.split_blocks(rects) for i in block) == list(range(len(rects)))


def test_a_few_lines_do_not_close_a_gutter() -> None:
    """Columns of a dense page are read one after the other, although headlines and stray words cross their gutters."""
    rects = [Rect(85.0 * col, 12.0 * row, 85.0 * col + 82, 12.0 * row + 11) for row in range(60) for col in range(4)]
    crossing = [Rect(85.0 * col + 30, 200.0 * col, 85.0 * col + 130, 200.0 * col + 11) for col in range(3)]
    order = [i for block in reading_order.split_blocks([*rects, *crossing]) for i in block if i < len(rects)]

    assert [i % 4 for i in order] == [col for col in range(4) for _ in range(60)]


def place_columns(*columns: tuple[str, ...]) -> list[StyledWord]:
    """Words of columns whose lines stand beside each other, with little white between the columns."""
    words = []
    for col, lines in enumerate(columns):
        for row, line in enumerate(lines):
            texts = line.split()
            for number, text in enumerate(texts):
                x = 160.0 * col + 150.0 * number / len(texts)
                box = Rect(x, 12.0 * row, x + 150 / len(texts) - 3, 12.0 * row + 10)
                words.append(StyledWord(box, text, len(columns) * row + col))
    return words


def test_a_region_across_a_gutter_is_read_column_by_column() -> None:
    """Whatever the layout model joins, columns of running text that a gutter separates are read one after the other."""
    words = sorted(place_columns(PROSE[:3], PROSE[3:]), key=lambda word: word.line)
    region = Region("text", Rect(0, 0, 320, 40), tuple(words))
    parts = reading_order.split_at_gutters([region], [Rect(147, 0, 160, 34)])

    assert [" ".join(word.text for word in part.words) for part in parts] == [" ".join(PROSE[:3]), " ".join(PROSE[3:])]


def test_names_and_values_beside_a_gutter_stay_rows() -> None:
    """White that runs through a list of names and values separates no columns of text."""
    names, values = ("Pump", "Level at noon", "Loss"), ("12", "4.5 m", "none")
    words = sorted(place_columns(names, values), key=lambda word: word.line)
    region = Region("text", Rect(0, 0, 320, 40), tuple(words))

    assert reading_order.split_at_gutters([region], [Rect(147, 0, 160, 34)]) == [region]


RAGGED = (
    "Die Beleuchtung der",
    "Haltestellen wird im",
    "Herbst durch",
    "Leuchten ersetzt, die",
    "weniger brauchen; der",
    "Ausschuss hat es",
    "genehmigt und den",
    "Betrieben mitgeteilt,",
    "wann sie enden.",
)
NAMES = ("Anna Maria Steinberger", "Otto Kranz", "Wilhelmine von Arnsberg", "Karl Theodor Hufnagel", "Eva Lindt") * 2


def place_ragged(*columns: tuple[str, ...]) -> list[StyledWord]:
    """Words of columns with ragged edges and a narrow gutter, whose letters are all 5 points wide."""
    words = []
    for row, texts in enumerate(zip(*columns, strict=True)):
        for col, text in enumerate(texts):
            x = 125.0 * col
            for word in text.split():
                box = Rect(x, 12.0 * row, x + 5 * len(word), 12.0 * row + 10)
                words.append(StyledWord(box, word, len(columns) * row + col))
                x += 5 * len(word) + 5
    return words


@pytest.mark.parametrize("grid", [None, Grid(tuple(12.0 * row for row in range(1, 9)), ())])
def test_ragged_columns_of_long_words_are_read_in_turn(grid: Grid | None) -> None:
    """Lines that end where the next word has no room are running text, though few fill their column.

    The layout model takes some for a table, which has no rules then.
    """
    region = Region("table" if grid else "text", Rect(0, 0, 230, 106), tuple(place_ragged(RAGGED, RAGGED)), grid)
    parts = reading_order.split_at_gutters([region], [Rect(106, 0, 124, 106)])

    assert [" ".join(word.text for word in part.words) for part in parts] == [" ".join(RAGGED)] * 2
    assert [part.label for part in parts] == ["text"] * 2


HEBREW = (
    "הוא הגיע. ההתייעצויות והממצאים יתפרסמו. לא היה כל מענה. ההתנגדויות התקבלו. זה לא היה להתייחסותם. "
    "אז המהנדסים והממונים. כך לא היה הדבר לכאורה המתוכננת."
)
HANGUL = (
    "린다흐정수장은 두곳의 샘물을 주민에게공급하고 있다.수위는 펌프가시작되기 전에 측정하고 다시한번 측정한다."
    "어부들은 얼음창고가 닫는다고 불평하고 있다."
)
HINDI = (
    "जल विभाग नगरके निवासियोंको पानीदेता है।परिषद हर वसंतमें मापके परिणामदेखती है।मछुआरे शिकायतकरते हैंकि "
    "गोदामदोपहरमें बंद होजाता है।पानीका स्तर घंटेकेबाद मापाजाता है।"
)
CHINESE = ("水泵启动之前测量水位，一小时之后", "测量结果。由议会审查", "渔民抱怨冰库", "自来水厂用两处泉水和深井") * 3


@pytest.mark.parametrize(
    ("text", "width"), [(HEBREW, 21), (HANGUL, 10), (HINDI, 21)], ids=["hebrew", "korean", "hindi"]
)
def test_ragged_columns_without_small_letters_are_read_in_turn(text: str, width: int) -> None:
    """The layout model takes them for tables, where no sentence ends inside a line; Hebrew lines end at the left."""
    lines = tuple(textwrap.wrap(text, width))
    gutter = Rect(106, 0, 124, 12.0 * len(lines))

    def split(column: tuple[str, ...]) -> list[str]:
        words = place_ragged(column, column)
        if text == HEBREW:
            words = [replace(w, box=w.box._replace(x0=230 - w.box.x1, x1=230 - w.box.x0)) for w in words]
        table = Region("table", Rect(0, 0, 230, 200), tuple(words), Grid((), ()))
        parts = reading_order.split_at_gutters([table], [gutter])
        return [" ".join(word.text for word in part.words) for part in parts]

    assert split(lines) == [" ".join(lines)] * 2
    assert len(split(tuple(line.translate({ord("."): None, ord("।"): None}) for line in lines))) == 1


def test_short_lines_of_chinese_are_no_columns() -> None:
    """A line of Chinese is broken where the column ends, so one with room for more characters ends there."""
    region = Region("text", Rect(0, 0, 230, 150), tuple(place_ragged(CHINESE, CHINESE[::-1])))

    assert reading_order.split_at_gutters([region], [Rect(106, 0, 124, 150)]) == [region]


def test_strokes_of_letters_are_no_rules_of_a_table() -> None:
    """Long strokes of Arabic letters are seen as rules; columns that the layout model takes for a table are text."""
    strokes = tuple(Rect(x, 12.0 * row, x + 22, 12.0 * row) for row in range(9) for x in (5.0, 130.0))
    table = Region("table", Rect(0, 0, 230, 106), tuple(place_ragged(RAGGED, RAGGED)), Grid((), (), strokes))

    assert [part.label for part in reading_order.split_at_gutters([table], [Rect(106, 0, 124, 106)])] == ["text"] * 2


def test_lines_across_columns_are_cut_between_words() -> None:
    """Where a detector joins the lines of columns, words that begin below each other behind wide blanks tell it."""
    joined, names = (
        [replace(word, line=word.line // 2) for word in place_ragged(*columns)]
        for columns in ((RAGGED, RAGGED), (NAMES, NAMES[::-1]))
    )
    lines = [[word.text for word in line] for _, line in groupby(scanned_page.cut_lines(joined), lambda w: w.line)]

    assert lines == [line.split() for line in RAGGED for _ in (0, 1)]
    assert scanned_page.cut_lines(names) == names


def test_lines_that_run_across_columns_are_marked() -> None:
    """What stays in one piece beside a gutter is uncertain, and so is a line that interrupts one; lists are not."""

    def judge(columns: tuple[tuple[str, ...], ...], gutters: Sequence[Rect], label: str = "text") -> bool:
        words = tuple(
            replace(word, box=word.box.move(-17.0 * (word.box.x0 >= 125), 0)) for word in place_ragged(*columns)
        )
        box = enclose([word.box for word in words])
        return reading_order.judge_columns(Region(label, box, words), gutters).across

    whole, halves = [Rect(106, 0, 107, 106)], [Rect(106, -60, 107, -1), Rect(106, 11, 107, 60)]

    assert judge((RAGGED, RAGGED), whole)
    assert judge((RAGGED[3:4], RAGGED[3:4]), halves)
    assert not judge((RAGGED[3:4], RAGGED[3:4]), halves, "caption")  # across the columns of two tables
    assert not judge((RAGGED, RAGGED), [])
    assert not judge((NAMES, NAMES[::-1]), [Rect(116, 0, 117, 118)])
    assert not judge((RAGGED[3:4], RAGGED[3:4]), halves[:1])


@pytest.mark.parametrize(
    ("columns", "rules"), [((NAMES, NAMES[::-1]), ()), ((RAGGED, RAGGED), (Rect(0, 50, 230, 50),))]
)
def test_tables_are_not_cut_at_gutters(columns: Any, rules: tuple[Rect, ...]) -> None:
    """Names beside each other wrap nowhere, and rules are those of a table, whatever is in its cells."""
    table = Region("table", Rect(0, 0, 230, 120), tuple(place_ragged(*columns)), Grid((), (), rules))

    assert reading_order.split_at_gutters([table], [Rect(116, 0, 124, 118)]) == [table]


def test_a_title_over_columns_comes_first() -> None:
    """A title that reaches over the columns in the middle stands above the outer ones, too."""
    columns = [Rect(150.0 * col, 60, 150.0 * col + 142, 400) for col in range(4)]
    title = Rect(180, 10, 412, 40)

    assert reading_order.order_boxes([*columns, title]) == [4, 0, 1, 2, 3]


def test_text_beside_all_regions_is_read_at_its_height() -> None:
    """What the layout model missed, and has nothing above or below it, follows what stands higher."""
    upper, lower = (Region("text", Rect(50, y, 300, y + 100)) for y in (100, 300))
    missed = Region(reading_order.ORPHAN, Rect(400, 240, 550, 260))

    assert reading_order.sort_regions([missed, upper, lower], Rect(0, 0, 612, 792)) == [upper, missed, lower]


@given(st.lists(st.tuples(st.floats(0, 600), st.floats(0, 300)), min_size=150, max_size=200))
def test_every_line_of_a_dense_page_is_read_once(points: list[tuple[float, float]]) -> None:
    """Whatever crosses the gutters of a dense page, no line is lost."""
    rects = [Rect(x, y, x + 80, y + 10) for x, y in points]

    assert sorted(i for block in reading_order.split_blocks(rects) for i in block) == list(range(len(rects)))


@given(RECTS, st.lists(st.sampled_from(["T", "{", "}", "two words", "שלום (3)", "x"]), min_size=20, max_size=20))
def test_every_letter_is_read_once(rects: list[Rect], texts: list[str]) -> None:
    """Rows and columns lose no letter of a region, also around drop caps and brackets."""
    words = [
        StyledWord(rect, text, number // 2, 10, block=number // 3)
        for number, (rect, text) in enumerate(zip(rects, texts, strict=False))
    ]
    for rows in (reading_order.group_rows(words), reading_order.order_lines(words) if words else []):
        assert sorted("".join(w.text for row in rows for w in row)) == sorted("".join(w.text for w in words))


NOTES = ("The village doctor", "weighed the bridge", "despite the new tax.")


@pytest.mark.parametrize(
    ("shift", "rules", "count"),
    [(5, (), 3), (0, (), 1), (5, (Rect(105, 0, 105, 150),), 1)],
    ids=["notes", "cells", "ruled"],
)
def test_notes_in_the_margin_are_no_cells(shift: float, rules: tuple[Rect, ...], count: int) -> None:
    """Notes between the heights of the lines beside them are texts of their own; cells begin at one height."""
    text = textwrap.wrap(" ".join(PROSE * 2), 44)
    lines = [(10, 20.0 + 13 * row + shift, line) for row, line in enumerate([*NOTES, *[""] * 3, *NOTES]) if line]
    words = place([*lines, *((140, 20.0 + 13 * row, line) for row, line in enumerate(text))])
    table = Region("table", enclose([word.box for word in words]), tuple(words), Grid((), (), rules))

    parts = reading_order.split_notes(table)

    assert [len({word.line for word in part.words}) for part in parts] == (
        [3, 3, len(text)] if count > 1 else [6 + len(text)]
    )


def test_pictures_of_nothing_but_words_are_text() -> None:
    """The cells of a strip are read one after the other, though the layout model takes lines of two for pictures."""
    cells = (("Ticket office", "open 9 to 17"), ("Platform 4", "change at Selby"))
    words = place([(200.0 * col, 15.0 + 20 * row, cells[col][row]) for row in range(2) for col in range(2)])
    upper, lower = (enclose([w.box for w in words if w.line // 2 == row]) for row in range(2))
    page = Rect(0, 0, 400, 45)

    parts = reading_order.assign_words([Region("picture", upper), Region("picture", lower)], words, page)
    photo = reading_order.assign_words([Region("picture", upper), Region("picture", page)], words, page)

    assert [" ".join(word.text for word in part.words) for part in parts] == [" ".join(cell) for cell in cells]
    assert [part.label for part in photo] == ["picture"]
