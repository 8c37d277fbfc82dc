"""Columns of names and values that the layout model takes for regions of their own."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from twopass.document import Rect, enclose
from twopass.engines.cpu import reading_order
from twopass.engines.cpu.content import Region, StyledWord
from twopass.engines.cpu.tables.cells import build_cells
from twopass.engines.cpu.tables.value_columns import join_values

NAMES = ("Oat milk 1L", "Tomatoes", "Rye bread", "Coffee", "TOTAL")
PRICES = ("2.49", "1.84", "3.20", "7.99", "15.52")
PROSE = (
    "Nobody in the village remembered who had",
    "built the low stone bridge. A ledger of that",
    "year lists barrels of salt, rope and pigeons.",
    "Her brother kept bees behind the chapel until",
    "the winter of the great frost.",
)
POEM = ("The tide came in", "by the old stair", "and no one saw", "the lantern there", "O keeper wake")
OTHER_POEM = ("Seven small boats", "went out at dawn", "with salt and rope", "and nets half drawn", "They count to six")
LEADING, HEIGHT, LETTER = 16.0, 10.0, 5.0  # points


def column(x: float, lines: Sequence[str], y: float = 50.0, leading: float = LEADING) -> Region:
    """A region of text whose lines begin at x."""
    words: list[StyledWord] = []
    for row, line in enumerate(lines):
        start, top = x, y + leading * row
        for text in line.split():
            end = start + LETTER * len(text)
            words.append(StyledWord(Rect(start, top, end, top + HEIGHT), text, line=int(1000 * x + top), size=8.0))
            start = end + LETTER / 2
    return Region("text", enclose([word.box for word in words]), tuple(words))


def read_rows(table: Region) -> list[list[str]]:
    assert table.grid is not None
    cells = build_cells(table.box, table.grid, table.words).cells
    rows = max(cell.row for cell in cells) + 1
    return [[cell.text for cell in cells if cell.row == row] for row in range(rows)]


def read_texts(regions: Sequence[Region]) -> list[str]:
    return [" ".join(w.text for row in reading_order.order_lines(region.words) for w in row) for region in regions]


def test_each_name_is_in_a_row_with_its_price() -> None:
    """A column of prices beside a column of names makes a table of both."""
    (table,) = join_values([column(20, NAMES), column(200, PRICES)])

    assert read_rows(table) == [list(row) for row in zip(NAMES, PRICES, strict=True)]


def test_names_and_prices_are_joined_that_are_a_region_each() -> None:
    """Lines set far apart are regions of one name or one price."""
    names = [column(20, [name], 50 + 40 * row) for row, name in enumerate(NAMES)]
    prices = [column(200, [price], 52 + 40 * row) for row, price in enumerate(PRICES)]

    (table,) = join_values([*names, *prices])

    assert read_rows(table) == [list(row) for row in zip(NAMES, PRICES, strict=True)]


def test_what_stands_above_and_below_the_rows_stays_text() -> None:
    """The address of a shop and its thanks are in the region of the names, and not in the table."""
    names = column(20, ["Kiln Road", *NAMES, "Thank you"], 50 - LEADING)

    above, below, table = join_values([names, column(200, PRICES)])

    assert read_texts([above, below]) == ["Kiln Road", "Thank you"]
    assert len(read_rows(table)) == len(NAMES)


def test_quantities_names_and_prices_are_one_table() -> None:
    """Three columns of which two have values are joined."""
    regions = [column(20, ["2", "1", "1", "3", "1"]), column(60, NAMES), column(200, PRICES)]

    (table,) = join_values(regions)

    assert read_rows(table)[0] == ["2", "Oat milk 1L", "2.49"]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (PROSE, tuple(reversed(PROSE))),
        (POEM, OTHER_POEM),
        (NAMES, ("white", "red", "brown", "black", "none")),
        (PROSE, ("1204", "1241", "1352", "1537", "1796")),
        (("1", "2", "3", "4", "5"), NAMES),
        (NAMES, ("(1)", "(2)", "(3)", "(4)", "(5)")),
        (NAMES[:3], (*PRICES, *PRICES)),
    ],
    ids=["prose", "poems", "words", "prose beside numbers", "numbered lines", "numbered formulas", "few names"],
)
def test_columns_stay_apart(left: Sequence[str], right: Sequence[str]) -> None:
    """Lines at equal heights are no rows if they are prose, verse or counted."""
    regions = [column(20, left), column(300, right)]

    assert join_values(regions) == regions


def test_years_beside_a_few_lines_of_a_text_stay_apart() -> None:
    """Years in the margin are no values of the lines beside them if most lines have none."""
    years = column(200, ["1874", "1881", "1890", "1902", "1911"], leading=3 * LEADING)
    regions = [column(20, NAMES * 3), years]

    assert join_values(regions) == regions


def test_prices_at_other_heights_than_the_names_stay_apart() -> None:
    """Numbers between the lines of a text beside them are no values of these."""
    regions = [column(20, NAMES), column(200, PRICES, 50 + LEADING / 2)]

    assert join_values(regions) == regions


def test_rows_with_other_text_between_them_stay_apart() -> None:
    """What stands between names and prices would be lost in the middle of a table."""
    regions = [column(20, NAMES), Region("formula", Rect(120, 60, 160, 90), column(120, ["x"], 66).words)]
    regions.append(column(200, PRICES))

    assert join_values(regions) == regions
