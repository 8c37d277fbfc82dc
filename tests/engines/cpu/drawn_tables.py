"""Tables that the tests draw, with the cells that a reader should find in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pymupdf

LEFT, TOP, ROW_HEIGHT = 70.0, 170.0, 20.0  # points
PADDING = 6.0  # points
GREY, LIGHT = (0.82, 0.86, 0.9), (0.93, 0.94, 0.95)
PROSE = (
    "The level in the borehole is measured before the pump starts and after it has run for one hour. Both",
    "operators write down what they see on their rounds, and the council reads the book of the year in spring.",
    "Prices are those of January, and half of the loss is now thought to lie in the mains of the upper village.",
)


@dataclass(frozen=True)
class DrawnCell:
    """A cell of the truth; `right` says that its text is set at its right edge, as numbers are."""

    row: int
    col: int
    text: str
    row_span: int = 1
    col_span: int = 1
    header: bool = False

    @property
    def key(self) -> tuple[int, int, int, int, str]:
        return self.row, self.col, self.row_span, self.col_span, self.text


@dataclass(frozen=True)
class DrawnTable:
    """A table's cells and the positions of its grid lines, in points."""

    cells: tuple[DrawnCell, ...]
    xs: tuple[float, ...]
    ys: tuple[float, ...]

    def box(self, cell: DrawnCell) -> pymupdf.Rect:
        return pymupdf.Rect(
            self.xs[cell.col], self.ys[cell.row], self.xs[cell.col + cell.col_span], self.ys[cell.row + cell.row_span]
        )

    @property
    def frame(self) -> pymupdf.Rect:
        return pymupdf.Rect(self.xs[0], self.ys[0], self.xs[-1], self.ys[-1])

    @property
    def header_rows(self) -> int:
        return 1 + max((cell.row for cell in self.cells if cell.header), default=-1)


def lay_out(cells: Sequence[DrawnCell], widths: Sequence[float], top: float = TOP) -> DrawnTable:
    rows = max(cell.row + cell.row_span for cell in cells)
    xs = [LEFT]
    for width in widths:
        xs.append(xs[-1] + width)
    return DrawnTable(tuple(cells), tuple(xs), tuple(top + ROW_HEIGHT * row for row in range(rows + 1)))


def fill_rows(rows: Sequence[Sequence[str]], header_rows: int = 1) -> list[DrawnCell]:
    """Return one cell per text; an empty text is an empty cell."""
    return [DrawnCell(r, c, text, header=r < header_rows) for r, row in enumerate(rows) for c, text in enumerate(row)]


SIMPLE = lay_out(
    fill_rows(
        [
            ("Source", "Spring", "Autumn", "Remark"),
            ("Weiher", "27,940", "24,310", "meter exchanged in April"),
            ("Moos", "11,205", "9,870", "none"),
            ("Borehole", "8,460", "14,925", "61 days without a break"),
            ("Total", "47,605", "49,105", "three per cent more"),
        ]
    ),
    (90, 80, 80, 160),
)
MERGED = lay_out(
    [
        DrawnCell(0, 0, "Group", 2, header=True),
        DrawnCell(0, 1, "Source", 2, header=True),
        DrawnCell(0, 2, "2023", 1, 2, header=True),
        DrawnCell(0, 4, "2024", 1, 2, header=True),
        *(DrawnCell(1, c, text, header=True) for c, text in enumerate(("Jan-Jun", "Jul-Dec") * 2, 2)),
        DrawnCell(2, 0, "Springs", 2),
        *(DrawnCell(2, c, text) for c, text in enumerate(("Weiher", "27,940", "24,310", "28,115", "21,860"), 1)),
        *(DrawnCell(3, c, text) for c, text in enumerate(("Moos", "11,205", "9,870", "11,930", "8,455"), 1)),
        DrawnCell(4, 0, "Borehole", 1, 2),
        *(DrawnCell(4, c, text) for c, text in enumerate(("8,460", "14,925", "7,310", "18,740"), 2)),
        DrawnCell(5, 0, "All sources together", 1, 2),
        *(DrawnCell(5, c, text) for c, text in enumerate(("47,605", "49,105", "47,355", "49,055"), 2)),
    ],
    (70, 70, 75, 75, 75, 75),
)
THREE_HEADERS = lay_out(
    [
        DrawnCell(0, 0, "Station", 3, header=True),
        DrawnCell(0, 1, "Measured values", 1, 4, header=True),
        DrawnCell(1, 1, "Upper village", 1, 2, header=True),
        DrawnCell(1, 3, "Lower village", 1, 2, header=True),
        *(DrawnCell(2, c, text, header=True) for c, text in enumerate(("pH", "Chlorine", "pH", "Chlorine"), 1)),
        *(DrawnCell(3, c, text) for c, text in enumerate(("School", "7.41", "0.08", "7.38", "0.05"))),
        *(DrawnCell(4, c, text) for c, text in enumerate(("Town hall", "7.44", "0.07", "7.36", "0.06"))),
        *(DrawnCell(5, c, text) for c, text in enumerate(("Reservoir", "7.52", "0.11", "7.49", "0.12"))),
    ],
    (100, 85, 85, 85, 85),
)

# ---- how borders are drawn ----

Borders = Callable[[Any, DrawnTable], None]


def draw_lines(page: Any, table: DrawnTable) -> None:
    """Draw each cell as a stroked box, so that neighbours share an edge."""
    for cell in table.cells:
        page.draw_rect(table.box(cell), width=0.8)


def draw_double(page: Any, table: DrawnTable) -> None:
    """Draw each edge as two rules 3 points apart, as word processors draw double borders."""
    for cell in table.cells:
        box = table.box(cell)
        page.draw_rect(box + (1.5, 1.5, -1.5, -1.5), width=0.5)
    page.draw_rect(table.frame + (-1.5, -1.5, 1.5, 1.5), width=0.5)


def draw_gaps(page: Any, table: DrawnTable) -> None:
    """Draw a box of its own in each cell, with gaps of 5 points between cells, as browsers print tables."""
    for cell in table.cells:
        page.draw_rect(table.box(cell) + (2.5, 2.5, -2.5, -2.5), width=0.7)
    page.draw_rect(table.frame + (-2.5, -2.5, 2.5, 2.5), width=0.7)


def draw_filled(page: Any, table: DrawnTable) -> None:
    """Draw each edge of each cell as a thin filled box with squares at the corners, as Word exports tables."""
    for cell in table.cells:
        box = table.box(cell)
        thin = 0.48
        for x, y in ((box.x0, box.y0), (box.x1, box.y0), (box.x0, box.y1), (box.x1, box.y1)):
            page.draw_rect(pymupdf.Rect(x, y, x + thin, y + thin), color=None, fill=(0, 0, 0))
        for y in (box.y0, box.y1):
            page.draw_rect(pymupdf.Rect(box.x0 + thin, y, box.x1, y + thin), color=None, fill=(0, 0, 0))
        for x in (box.x0, box.x1):
            page.draw_rect(pymupdf.Rect(x, box.y0 + thin, x + thin, box.y1), color=None, fill=(0, 0, 0))


def draw_shading(page: Any, table: DrawnTable) -> None:
    """Fill the header and every second row cell by cell, and draw no rule."""
    for cell in table.cells:
        if cell.header or cell.row % 2 == 0:
            page.draw_rect(table.box(cell), color=None, fill=GREY if cell.header else LIGHT)


def draw_booktabs(page: Any, table: DrawnTable) -> None:
    """Draw rules over, under and between header and body, and a shorter rule under each spanning header."""
    for row, width in ((0, 1.2), (table.header_rows, 0.6), (-1, 1.2)):
        page.draw_line((table.xs[0], table.ys[row]), (table.xs[-1], table.ys[row]), width=width)
    for cell in table.cells:
        if cell.header and cell.col_span > 1:
            box = table.box(cell)
            page.draw_line((box.x0 + 6, box.y1), (box.x1 - 6, box.y1), width=0.4)


def draw_nothing(page: Any, table: DrawnTable) -> None:
    """Draw no border."""


STYLES: dict[str, Borders] = {
    "lines": draw_lines,
    "double": draw_double,
    "gaps": draw_gaps,
    "filled": draw_filled,
    "shading": draw_shading,
    "booktabs": draw_booktabs,
    "none": draw_nothing,
}
TABLES = {"simple": SIMPLE, "merged": MERGED, "three-headers": THREE_HEADERS}


def draw_table(
    page: Any, table: DrawnTable, borders: Borders, bold_header: bool = True, padding: float = PADDING
) -> None:
    """Draw a table; `padding` is the space in points between a cell's text and its left or right edge."""
    borders(page, table)
    for cell in table.cells:
        font = "hebo" if cell.header and bold_header else "helv"
        box = table.box(cell)
        width = pymupdf.get_text_length(cell.text, font, 9)
        is_centred = cell.header and cell.col_span > 1
        x = (box.x0 + box.x1 - width) / 2 if is_centred else box.x0 + padding
        if cell.text[:1].isdigit() and not cell.header:
            x = box.x1 - padding - width
        page.insert_text((x, (box.y0 + box.y1) / 2 + 3.2), cell.text, fontname=font, fontsize=9)


def draw_page(table: DrawnTable, borders: Borders, padding: float = PADDING) -> Any:
    """Draw a page with a heading, a paragraph, the table and another paragraph; returns the document."""
    document = pymupdf.open()
    page = document.new_page()
    page.insert_text((LEFT, 80), "Levels and volumes", fontname="hebo", fontsize=16)
    draw_prose(page, 105)
    draw_table(page, table, borders, padding=padding)
    draw_prose(page, table.ys[-1] + 50)
    return document


def draw_prose(page: Any, y: float, left: float = LEFT) -> None:
    for row, line in enumerate(PROSE):
        page.insert_text((left, y + 13 * row), line, fontname="tiro", fontsize=10)


# ---- how well a table was read ----


def find_tables(answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from (box["table"] for box in answer["boxes"] if "table" in box)


def score_cells(answer: dict[str, Any], truth: DrawnTable) -> float:
    """Return the share of the truth's cells that the page's best table has with equal row, column, spans and text."""
    expected = {cell.key for cell in truth.cells}
    return max((len(expected & set(_read_keys(table))) / len(expected) for table in find_tables(answer)), default=0.0)


def score_header(answer: dict[str, Any], truth: DrawnTable) -> bool:
    """Return whether exactly the truth's header cells are headers."""
    expected = sorted(cell.key for cell in truth.cells if cell.header)
    return any(sorted(_read_keys(table, header=True)) == expected for table in find_tables(answer))


def _read_keys(table: dict[str, Any], header: bool = False) -> Iterator[tuple[int, int, int, int, str]]:
    for cell in table["cells"]:
        if cell["header"] or not header:
            yield cell["row"], cell["col"], cell["row_span"], cell["col_span"], " ".join(cell["text"].split())
