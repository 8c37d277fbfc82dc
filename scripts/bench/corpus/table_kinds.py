"""Draw tables of the kinds that readers break, in several fonts and layouts, with the cells that are right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pymupdf

from twopass.acceptance.drawn_pages import A4
from twopass.document import Cell, Table

PADDING = 5.0  # points between a text and the edge of its cell
LEADING = 1.15  # times the type size, between the lines of one cell
PROSE = (
    "The pilots of the estuary met in the spring and read the log of the winter, in which each of them had written",
    "what the buoys needed. Two lamps were out for nine days, and a third had drifted half a mile to the north. The",
    "harbour master asked for a boat of shallow draught, because the sands had moved and the old channel was closed.",
)
NAMES = ("Aldersund", "Brackwater", "Corran Point", "Dunmere", "Eastholm", "Fernsey", "Gullwick", "Hollowness")
PALE, GREY = (0.92, 0.95, 0.98), (0.75, 0.8, 0.85)


@dataclass(frozen=True)
class Look:
    """How a table is set: the fonts of body and header, the type size, the left edge, and the space between rows."""

    number: int  # some kinds differ in more by it
    font: str
    bold: str
    size: float
    left: float
    room: float
    top: float = 190.0

    def measure(self, text: str) -> float:
        return float(pymupdf.get_text_length(text, self.font, self.size))


LOOKS = (
    Look(0, "helv", "hebo", 9.0, 62.0, 5.0),
    Look(1, "tiro", "tibo", 10.5, 84.0, 3.0, 260.0),
    Look(2, "helv", "helv", 7.5, 110.0, 7.0, 330.0),
)


@dataclass(frozen=True)
class DrawnCell:
    """A cell as it is set: `text` has the line breaks of the page; `side` is l, c or r, "" for the column's."""

    row: int
    col: int
    text: str
    rows: int = 1
    cols: int = 1
    side: str = ""


@dataclass(frozen=True)
class Sheet:
    """A table to draw: its cells, the widths of its columns and their sides, and what is drawn around them.

    `rules` is none, grid, frame, rows or book: over, under and below the header. `under` are cells of the header with
    a rule below them. `above` and `below` are lines that do not belong to the table.
    """

    cells: tuple[DrawnCell, ...]
    widths: tuple[float, ...]
    sides: str
    rules: str = "none"
    header: int = 1
    shade: str = ""
    above: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    under: tuple[tuple[int, int], ...] = ()

    @property
    def rows(self) -> int:
        return max(cell.row + cell.rows for cell in self.cells)


def grid(rows: Sequence[Sequence[str]], first: int = 0) -> tuple[DrawnCell, ...]:
    """One cell a text, from the row `first` on."""
    return tuple(DrawnCell(r, c, text) for r, row in enumerate(rows, first) for c, text in enumerate(row))


# ---- how a sheet is drawn ----


def place(sheet: Sheet, look: Look) -> tuple[list[float], list[float]]:
    """The edges of the columns and rows, in points."""
    scale = look.size / 9.0
    xs, ys = [look.left], [look.top]
    for width in sheet.widths:
        xs.append(xs[-1] + width * scale)
    for row in range(sheet.rows):
        lines = max((c.text.count("\n") + 1 for c in sheet.cells if c.row == row and c.rows == 1), default=1)
        ys.append(ys[-1] + look.size * LEADING * lines + look.room)
    return xs, ys


def draw(page: Any, sheet: Sheet, look: Look) -> None:
    xs, ys = place(sheet, look)
    draw_borders(page, sheet, xs, ys)
    for cell in sheet.cells:
        draw_text(page, sheet, look, cell, xs, ys)
    for n, line in enumerate(sheet.above):
        page.insert_text((xs[0], ys[0] - 6 - 1.3 * look.size * (len(sheet.above) - n - 1)), line,
                         fontname=look.font, fontsize=look.size)  # fmt: skip
    for n, line in enumerate(sheet.below):
        page.insert_text((xs[0], ys[-1] + (1.6 + 1.3 * n) * look.size), line,
                         fontname=look.font, fontsize=look.size - 1)  # fmt: skip


def draw_text(page: Any, sheet: Sheet, look: Look, cell: DrawnCell, xs: Sequence[float], ys: Sequence[float]) -> None:
    side = cell.side or ("c" if cell.cols > 1 else sheet.sides[cell.col])
    font = look.bold if cell.row < sheet.header else look.font
    left, right = xs[cell.col] + PADDING, xs[cell.col + cell.cols] - PADDING
    top, bottom = ys[cell.row], ys[cell.row + cell.rows]
    lines = cell.text.split("\n")
    y = top + look.room / 2 + 0.85 * look.size
    if cell.rows > 1 or cell.row < sheet.header:
        y = (top + bottom) / 2 + 0.35 * look.size - (len(lines) - 1) * LEADING * look.size / 2
    for n, line in enumerate(lines):
        text, mark, rest = line.partition("^")
        width = pymupdf.get_text_length(text, font, look.size) + pymupdf.get_text_length(rest, font, 0.6 * look.size)
        x = {"l": left, "r": right - width, "c": (left + right - width) / 2}[side]
        at = y + n * LEADING * look.size
        page.insert_text((x, at), text, fontname=font, fontsize=look.size)
        if mark:
            end = x + pymupdf.get_text_length(text, font, look.size)
            page.insert_text((end, at - 0.35 * look.size), rest, fontname=font, fontsize=0.6 * look.size)


def draw_borders(page: Any, sheet: Sheet, xs: Sequence[float], ys: Sequence[float]) -> None:
    for cell in sheet.cells if sheet.shade else ():
        box = (xs[cell.col], ys[cell.row], xs[cell.col + cell.cols], ys[cell.row + cell.rows])
        if cell.row < sheet.header:
            page.draw_rect(box, color=None, fill=GREY)
        elif sheet.shade == "all" or cell.row % 2:
            page.draw_rect(box, color=None, fill=PALE)
    if sheet.rules in ("grid", "open"):
        for cell in sheet.cells if sheet.rules == "grid" else open_cells(sheet):
            page.draw_rect((xs[cell.col], ys[cell.row], xs[cell.col + cell.cols], ys[cell.row + cell.rows]), width=0.6)
    full = {"none": (), "grid": (), "open": (), "rows": range(len(ys)), "frame": (0, sheet.header, len(ys) - 1)}
    for row in full.get(sheet.rules, (0, sheet.header, len(ys) - 1)):
        draw_rule(page, xs[0], xs[-1], ys[row])
    if sheet.rules == "frame":
        for x in (xs[0], xs[-1]):
            page.draw_line((x, ys[0]), (x, ys[-1]), width=0.6)
    for row, col in sheet.under:
        cell = next(c for c in sheet.cells if (c.row, c.col) == (row, col))
        draw_rule(page, xs[col] + 2, xs[col + cell.cols] - 2, ys[row + cell.rows])


def open_cells(sheet: Sheet) -> list[DrawnCell]:
    """The cells, with one in place of those over several columns."""
    wide = [cell for cell in sheet.cells if cell.cols > 1]
    one = replace(wide[0], cols=sum(cell.cols for cell in wide))
    return [cell for cell in sheet.cells if cell.cols == 1] + [one]


def draw_rule(page: Any, left: float, right: float, y: float) -> None:
    page.draw_line((left, y), (right, y), width=0.6)


def draw_prose(page: Any, y: float, left: float = 62.0, size: float = 9.5) -> None:
    for row, line in enumerate(PROSE):
        page.insert_text((left, y + 1.3 * size * row), line, fontname="tiro", fontsize=size)


# ---- the kinds ----


def measure_values(n: int, cols: int, most: int = 90_000) -> list[str]:
    """Numbers that look like measured values, the same for the same row."""
    return [f"{(n * 7919 + c * 104_729 + 613) * 37 % most:,}" for c in range(cols)]


def lead(look: Look, texts: Sequence[str], width: float, dots: str) -> list[str]:
    """Fill texts with dots up to a width, in points at 9 points."""
    room = width * look.size / 9.0 - 2 * PADDING - 2
    return [text + " " + dots * int((room - look.measure(text + " ")) / look.measure(dots)) for text in texts]


def leader_dots(look: Look) -> Sheet:
    labels = lead(look, NAMES[:6], 200, (".", ". ", "…")[look.number])
    rows = [["", "2017", "2018", "2019"], *([label, *measure_values(n, 3)] for n, label in enumerate(labels))]
    return Sheet(grid(rows), (200, 60, 60, 60), "lrrr")


def leader_dots_prices(look: Look) -> Sheet:
    labels = lead(look, ("Rope, per fathom", "Tar, the barrel", "Lamp oil", "Nails", "Chain"), 220, ".")
    rows = [[label, price] for label, price in zip(labels, ("812", "64", "1,130", "27", "405"), strict=True)]
    return Sheet(grid([["Article", "Price"], *rows]), (220, 60), "lr", "book")


WRAPPED = (
    ("Buoy", "State", "Asked for"),
    ("North cardinal off\nCorran Point", "Chain worn in the third link, moved\ntwo cables in the gale", "New chain"),
    ("Bell buoy", "Bell silent since the second week of\nFebruary; the clapper is lost", "Clapper and\na spare"),
    ("Outer mark", "Paint faded, top mark bent by ice", "Paint"),
    ("Lamp of the inner\nroads", "Burns at half its strength", "Two cells and\na lens"),
)  # fmt: skip


def wrapped_cells(look: Look) -> Sheet:
    return Sheet(grid(WRAPPED), (110, 180, 80), "lll", "book" if look.room > 4 else "none")


def wrapped_close(look: Look) -> Sheet:
    """Rows as close as the lines of a cell."""
    return Sheet(grid(WRAPPED), (110, 180, 80), "lll", "book")


def spaced_thousands(look: Look) -> Sheet:
    space = ("\u00a0", " ", " ")[look.number]
    rows = [
        [name, *(v.replace(",", space) for v in measure_values(n + 3, 3, 900_000))] for n, name in enumerate(NAMES[:6])
    ]
    return Sheet(grid([["Port", "Arrivals", "Tonnage", "Dues"], *rows]), (110, 70, 70, 70), "lrrr", "book")


def header_levels(look: Look) -> Sheet:
    cells = (
        DrawnCell(0, 0, "Year", 2, side="l"),
        DrawnCell(0, 1, "Inward", 1, 2),
        DrawnCell(0, 3, "Outward", 1, 2),
        *grid([["", "Ships", "Tons", "Ships", "Tons"]], 1)[1:],
        *grid([[str(1901 + n), *measure_values(n, 4, 9000)] for n in range(7)], 2),
    )
    return Sheet(cells, (70, 60, 60, 60, 60), "lrrrr", "book", 2, under=((0, 1), (0, 3)))


def header_levels_bare(look: Look) -> Sheet:
    return replace(header_levels(look), under=())


def header_three_levels(look: Look) -> Sheet:
    cells = (
        DrawnCell(0, 0, "Year", 3, side="l"),
        DrawnCell(0, 1, "Number of pilots", 1, 3),
        DrawnCell(0, 4, "Number of boats", 1, 3),
        *(DrawnCell(1, col, "Total", 2, side="r") for col in (1, 4)),
        *(DrawnCell(1, col, "Licence", 1, 2) for col in (2, 5)),
        *(DrawnCell(2, col, text) for col, text in ((2, "Full"), (3, "Coast"), (5, "Full"), (6, "Coast"))),
        *grid([[str(1911 + n), *measure_values(n, 6, 9000)] for n in range(8)], 3),
    )
    return Sheet(cells, (60, 50, 50, 50, 50, 50, 50), "lrrrrrr", "book", 3, under=((0, 1), (0, 4), (1, 2), (1, 5)))


def header_wrapped(look: Look) -> Sheet:
    cells = (
        DrawnCell(0, 0, "Station", 2, side="l"),
        DrawnCell(0, 1, "Hours with\nfog", 2, side="r"),
        DrawnCell(0, 2, "Signals", 1, 2),
        DrawnCell(1, 2, "By day\n(all)", side="r"),
        DrawnCell(1, 3, "By night\n(lamp)", side="r"),
        *grid([[name, *measure_values(n, 3, 3000)] for n, name in enumerate(NAMES[:6])], 2),
    )
    return Sheet(cells, (90, 70, 60, 60), "lrrr", "book", 2, under=((0, 2),))


def header_narrow(look: Look) -> Sheet:
    """Texts of the header that are closer than words."""
    rows = [["Berth", "Under\nten tons", "Ten tons\nand over", "All ships\nin port", "Ships laid\nup"],
            *([name, *measure_values(n, 4, 9000)] for n, name in enumerate(NAMES[:6]))]  # fmt: skip
    return Sheet(grid(rows), (80, 46, 46, 48, 50), "lrrrr", "book")


def title_in_frame(look: Look) -> Sheet:
    cells = (
        DrawnCell(0, 0, "Table 4. Lights of the estuary and their keepers", 1, 4, "l"),
        *grid([["Light", "Height", "Flash", "Keeper"]], 1),
        *grid([[name, f"{9 + n} m", f"{2 + n} s", keeper] for n, (name, keeper) in enumerate(
            zip(NAMES[:5], ("Orla", "Piet", "Quint", "Rosa", "Sven"), strict=True))], 2),
        DrawnCell(7, 0, "Source: books of the pilot station, read in April.", 1, 4, "l"),
    )  # fmt: skip
    return Sheet(cells, (90, 60, 60, 80), "lrrl", "grid", 2)


def unit_line(look: Look) -> Sheet:
    cells = (
        DrawnCell(0, 1, "Coal", 1, 2),
        DrawnCell(0, 3, "Timber", 1, 2),
        DrawnCell(0, 0, "Port", 2, side="l"),
        *grid([["", "In", "Out", "In", "Out"]], 1)[1:],
        *grid([[name, *measure_values(n, 4, 9000)] for n, name in enumerate(NAMES[:6])], 2),
    )
    sheet = Sheet(cells, (90, 60, 60, 60, 60), "lrrrr", "book", 2, under=((0, 1), (0, 3)))
    return replace(sheet, above=("[In thousands of tons]",), below=("See notes at the end of the report.",))


def group_labels(look: Look) -> Sheet:
    ships = [[f"  {name}", *measure_values(n, 3, 900)] for n, name in enumerate(("Sloops", "Ketches", "Brigs"))]
    rows = [
        ["Kind of ship", "1901", "1902", "1903"],
        ["Ships that came from ports of the northern coast and islands", "", "", ""],
        *ships,
        ["Ships of other ports", "", "", ""],
        *ships[:0:-1],
    ]
    return Sheet(grid(rows), (140, 60, 60, 60), "lrrr", "book")


def centred_labels(look: Look) -> Sheet:
    head, body = (
        [["Source", "One", "Two", "Three", "Four"]],
        [["Log of 1901", *measure_values(1, 4, 900)], ["Log of 1902", *measure_values(2, 4, 900)]],
    )
    cells = (
        *grid(head),
        DrawnCell(1, 1, "Ships in the roads", 1, 4),
        *grid(body, 2),
        DrawnCell(4, 1, "Ships in port", 1, 4),
        *grid(body[::-1], 5),
    )
    return Sheet(cells, (110, 55, 55, 55, 55), "lrrrr", "book")


def key_values(look: Look) -> Sheet:
    names = ("Ship", "Call sign", "Master", "Arrived", "Berth", "Cargo")
    values = ("Grey Petrel of Fernsey", "XQ 4471", "Anneke Dunmere", "3 May 1911", "17", "Barley and hides")
    rules = ("none", "grid", "none")[look.number]
    return Sheet(grid(list(zip(names, values, strict=True))), (90, 160), "ll", rules, 0)


def superscripts(look: Look) -> Sheet:
    def mark(text: str, n: int) -> str:
        return f"{text}^{1 + n % 3}" if n % 2 else text

    rows = [[name, *(mark(v, n + c) for c, v in enumerate(measure_values(n, 2)))] for n, name in enumerate(NAMES[:6])]
    return Sheet(grid([["Parish", "Souls", "Hearths^a"], *rows]), (110, 80, 80), "lrr", "book")


def shaded_office(look: Look) -> Sheet:
    rows = [[name, str(2 + n), f"{3 + n}.50", f"{(2 + n) * (3.5 + n):.2f}"] for n, name in enumerate(NAMES[:6])]
    return Sheet(grid([["Item", "Quantity", "Price", "Amount"], *rows]), (130, 70, 70, 80), "lrrr", shade="all")


def banded(look: Look) -> Sheet:
    rows = [[name, f"No. {n + 3}", str(1890 + n), *measure_values(n, 1, 900)] for n, name in enumerate(NAMES[:6])]
    return Sheet(grid([["Pilot", "Boat", "Since", "Trips"], *rows]), (120, 80, 70, 70), "llrr", shade="odd")


def row_spans(look: Look) -> Sheet:
    ports = [("", name, str(n + 2), str(n * 3 + 1)) for n, name in enumerate(NAMES[:5])]
    body = [cell for cell in grid(ports, 1) if cell.col]
    coasts = (DrawnCell(1, 0, "North", 3, side="l"), DrawnCell(4, 0, "South", 2, side="l"))
    return Sheet((*grid([["Coast", "Port", "Lamps", "Keepers"]]), *coasts, *body), (80, 100, 60, 60), "llrr", "grid")


def open_header(look: Look) -> Sheet:
    """Texts in one ruled cell of the header, each in the middle of two columns."""
    dates = ("12/31/1909", "12/31/1910", "6/30/1911")
    rows = [[name, *measure_values(n, 6, 90)] for n, name in enumerate(NAMES[:5])]
    cells = (
        DrawnCell(0, 0, "Cargo", 2, side="l"),
        *(DrawnCell(0, 1 + 2 * n, date, 1, 2) for n, date in enumerate(dates)),
        *grid([["", *("Tons", "%") * 3]], 1)[1:],
        *grid(rows, 2),
    )
    return Sheet(cells, (80, 52, 40, 52, 40, 52, 40), "lrrrrrr", "open", 2)


def row_rules(look: Look) -> Sheet:
    """A rule below each row, whose texts are wrapped."""
    return Sheet(grid(WRAPPED), (110, 180, 80), "lll", "rows")


def long_numbers(look: Look) -> Sheet:
    """Numbers that are closer than words."""
    rows = [[name, *(f"{3_000_000 - n * 40_961 + c * 7_919:,}" for c in range(5))] for n, name in enumerate(NAMES[:6])]
    return Sheet(grid([["State", *map(str, range(1901, 1906))], *rows]), (80, 51, 47, 47, 47, 47), "lrrrrr", "book")


def scaled_rules(look: Look) -> Sheet:
    """The rules of three header levels, drawn at a tenth of their size."""
    return replace(header_three_levels(look), rules="scaled")


KINDS: dict[str, Callable[[Look], Sheet]] = {
    kind.__name__: kind
    for kind in (
        leader_dots, leader_dots_prices, wrapped_cells, wrapped_close, spaced_thousands, header_levels,
        header_levels_bare, header_three_levels, header_wrapped, header_narrow, title_in_frame, unit_line, group_labels,
        centred_labels, key_values, superscripts, shaded_office, banded, row_spans, open_header, row_rules,
        long_numbers, scaled_rules,
    )
}  # fmt: skip


# ---- pages of other kinds ----


def draw_beside_prose(page: Any, look: Look) -> list[list[str]]:
    """A ruled table at the side of a paragraph that runs around it."""
    rows = [["Lamp", "Height", "Flash"], *([name, f"{9 + n} m", f"{2 + n} s"] for n, name in enumerate(NAMES[:4]))]
    words = " ".join((*PROSE, *PROSE, *PROSE)).split()
    is_right, width = look.number != 1, 62.0 * 3
    left = 533.0 - width if is_right else 62.0
    y, top = 120.0, 150.0
    bottom = top + 17.0 * len(rows)
    page.insert_text((left, top - 5), "Table 2. Lamps", fontname=look.bold, fontsize=8)
    for r, row in enumerate(rows):
        for c, text in enumerate(row):
            page.draw_rect((left + 62 * c, top + 17 * r, left + 62 * c + 62, top + 17 * r + 17), width=0.6)
            page.insert_text((left + 62 * c + 4, top + 17 * r + 12), text, fontname=look.font, fontsize=8)
    while words and y < 300:
        beside = top - 16 < y < bottom + 12
        x0, x1 = (62.0, left - 10 if beside else 533.0) if is_right else (left + width + 10 if beside else 62.0, 533.0)
        line: list[str] = []
        while words and pymupdf.get_text_length(" ".join([*line, words[0]]), "tiro", 10) < x1 - x0:
            line.append(words.pop(0))
        page.insert_text((x0, y), " ".join(line), fontname="tiro", fontsize=10)
        y += 13
    return rows


def draw_text_file(page: Any, look: Look) -> list[list[str]]:
    """A table of a text file, whose columns are aligned with blanks, in a font of one width."""
    masters = ("Orla Bek", "Piet", "Quint", "Rosa", "Sven Aas", "Tove")
    body = [[NAMES[n], *measure_values(n, 2, 9000), master] for n, master in enumerate(masters)]
    rows = [["Port", "Ships", "Tons", "Master"], *body]
    lines = [f"{a:<14}{b:>8}{c:>9}  {d}" for a, b, c, d in rows]
    if look.number != 2:
        lines.insert(1, "-" * 40)
    for n, line in enumerate(lines):
        page.insert_text((look.left, look.top + 12 * n), line, fontname="cour", fontsize=9)
    return rows


def draw_text_box(page: Any, look: Look) -> list[list[str]]:
    """A table of a text file with borders of characters."""
    rows = [["Port", "Ships", "Tons"], *([name, *measure_values(n, 2, 9000)] for n, name in enumerate(NAMES[:5]))]
    border = "+--------------+--------+--------+"
    lines = [border]
    for n, (a, b, c) in enumerate(rows):
        lines += [f"| {a:<13}| {b:>6} | {c:>6} |", *([border] if n in (0, len(rows) - 1) else [])]
    for n, line in enumerate(lines):
        page.insert_text((look.left, look.top + 12 * n), line, fontname="cour", fontsize=9)
    return rows


def draw_padded(page: Any, look: Look) -> list[list[str]]:
    """A table that a browser printed, with padding and a box of its own in each cell."""
    rows = [
        ["Step", "Done by", "On"],
        *([name, "pilot" if n % 2 else "keeper", f"{n + 1} May"] for n, name in enumerate(NAMES[:5])),
    ]
    for r, row in enumerate(rows):
        for c, text in enumerate(row):
            box = pymupdf.Rect(
                look.left + 120 * c, look.top + 34 * r, look.left + 120 * c + 114, look.top + 34 * r + 28
            )
            page.draw_rect(box, color=(0.5, 0.5, 0.5), fill=PALE if r else GREY, width=0.5)
            page.insert_text((box.x0 + 12, box.y0 + 18), text, fontname=look.font, fontsize=look.size)
    return rows


PAGES: dict[str, Callable[[Any, Look], list[list[str]]]] = {
    draw.__name__.removeprefix("draw_"): draw
    for draw in (draw_beside_prose, draw_text_file, draw_text_box, draw_padded)
}


@dataclass(frozen=True)
class TablePage:
    """A drawn page: its name, its kinds with the right cells of each, and the document."""

    name: str
    truth: dict[str, Table]
    pdf: Any = field(repr=False)


def draw_page(kind: str, number: int) -> TablePage:
    """A page with prose and a table of one kind, in the look of this number."""
    look = LOOKS[number]
    document, page = _begin_page()
    if kind in KINDS:
        truth, bottom = _draw_kind(page, kind, look)
        draw_prose(page, bottom + 60)
    else:
        truth = describe(Sheet(grid(PAGES[kind](page, look)), (), ""))
        draw_prose(page, 560)
    return TablePage(f"{kind}-{number + 1}", {kind: truth}, document)


def draw_stack(kinds: Sequence[str], number: int) -> TablePage:
    """A long page with tables of several kinds below each other, in the look of this number."""
    document, page = _begin_page(2 * A4[1])
    bottom, truth = LOOKS[0].top - 60, dict[str, Table]()
    for kind in kinds:
        truth[kind], bottom = _draw_kind(page, kind, replace(LOOKS[number], top=bottom + 40))
        draw_prose(page, bottom + 35)
        bottom += 60
    return TablePage("-".join(kinds), truth, document)


def _begin_page(height: float = A4[1]) -> tuple[Any, Any]:
    document = pymupdf.open()
    page = document.new_page(width=A4[0], height=height)
    page.insert_text((62, 60), "Report of the pilots", fontname="hebo", fontsize=14)
    draw_prose(page, 80)
    return document, page


def _draw_kind(page: Any, kind: str, look: Look) -> tuple[Table, float]:
    """Draw a table; returns its right cells and where it ends."""
    look = replace(look, room=0.0) if kind == "wrapped_close" else look
    sheet = KINDS[kind](look)
    (draw_scaled if sheet.rules == "scaled" else draw)(page, sheet, look)
    return describe(sheet), place(sheet, look)[1][-1]


def draw_all() -> Iterator[TablePage]:
    """All kinds in all looks, each on a page of its own."""
    for kind in (*KINDS, *PAGES):
        yield from (draw_page(kind, number) for number in range(len(LOOKS)))


def draw_scaled(page: Any, sheet: Sheet, look: Look) -> None:
    """Draw the text, and the rules with a stroke of ten times its width at a tenth of the size."""
    draw(page, replace(sheet, rules="none", under=()), look)
    (xs, ys), height = place(sheet, look), page.rect.height
    rules = [(xs[c], xs[c + 1], ys[row]) for row in (0, sheet.header, len(ys) - 1) for c in range(len(xs) - 1)]
    for row, col in sheet.under:
        cell = next(c for c in sheet.cells if (c.row, c.col) == (row, col))
        rules += [(xs[c], xs[c + 1], ys[row + cell.rows]) for c in range(col, col + cell.cols)]
    lines = (f"{10 * a:.1f} {10 * (height - y):.1f} m {10 * b:.1f} {10 * (height - y):.1f} l S" for a, b, y in rules)
    stream = f" q 0.1 0 0 0.1 0 0 cm 5 w {' '.join(lines)} Q".encode()
    page.clean_contents()
    xref = page.get_contents()[0]
    page.parent.update_stream(xref, page.parent.xref_stream(xref) + stream)


def describe(sheet: Sheet) -> Table:
    """The right cells: a title in the frame and a note below the last row are none."""
    own = [cell for cell in sheet.cells if not cell.text.startswith(("Table ", "Source:"))]
    first = min(cell.row for cell in own)
    cells = tuple(
        Cell(row=cell.row - first, col=cell.col, row_span=cell.rows, col_span=cell.cols, text=_unwrap(cell.text))
        for cell in own
    )
    rows, cols = max(c.row + c.row_span for c in cells), max(c.col + c.col_span for c in cells)
    return Table(rows=rows, cols=cols, cells=cells, html="")


def _unwrap(text: str) -> str:
    return " ".join(text.replace("^", "").split())


def save_all(folder: Path) -> list[TablePage]:
    """Write all pages as NAME.pdf; the same pages each time."""
    pages = list(draw_all())
    for page in pages:
        page.pdf.save(folder / f"{page.name}.pdf", no_new_id=True, garbage=3, deflate=True)
    return pages
