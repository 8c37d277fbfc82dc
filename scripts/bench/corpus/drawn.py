"""Draw the documents of the checks in checks/drawn.jsonl, as PDFs with a text layer and as scans."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pymupdf

from scripts import ROOT
from scripts.bench.corpus.checks import Rows
from twopass.acceptance import drawn_pages
from twopass.acceptance.drawn_pages import A4, DrawnPage, Write

MARGIN = 64  # points
BODY_PT = 11
ARABIC_SCRIPT = 6  # MuPDF's number of the script, for its own Noto Naskh
PRESENTATION_FORMS = range(0xFE70, 0xFEFD)
ARABIC_LINE_PT = 30

Place = Callable[[int, int], tuple[float, float]]


def write_html(page: pymupdf.Page, box: Sequence[float], body: str, size: float = BODY_PT) -> float:
    """Set HTML in a box and return where it ends; raises ValueError where it does not fit at its size."""
    spare, _ = page.insert_htmlbox(box, body, css=f"* {{font-size: {size}px; font-family: serif}}", scale_low=1)
    if spare < 0:
        raise ValueError(f"does not fit into {box}: {body[:60]}")
    return float(box[3] - spare)


def write_paragraphs(page: pymupdf.Page, paragraphs: Sequence[str], top: float = MARGIN + 30) -> float:
    """Set paragraphs over the page's width, and return where they end."""
    body = "".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
    return write_html(page, (MARGIN, top, page.rect.width - MARGIN, page.rect.height - MARGIN), body)


def write_cells(page: pymupdf.Page, rows: Rows, place: Place, size: float = 10) -> None:
    """Write the texts of a table's cells; `place` gives the start of a cell's baseline by row and column."""
    for r, row in enumerate(rows):
        for c, text in enumerate(row):
            page.insert_text(place(r, c), text, fontsize=size, fontname="hebo" if r == 0 else "helv")


def rule_cells(
    page: pymupdf.Page, rows: Rows, corner: tuple[float, float], cell: tuple[float, float], spans: int = 1
) -> None:
    """Draw rules around all cells; in the first row the cells after the first are `spans` columns wide."""
    (left, top), (width, height) = corner, cell
    for r, row in enumerate(rows):
        c = 0
        while c < len(row):
            wide = spans if r == 0 and c > 0 else 1
            x, y = left + c * width, top + r * height
            page.draw_rect((x, y, x + wide * width, y + height), color=(0, 0, 0), width=0.7)
            c += wide


def rule_double(
    page: pymupdf.Page, rows: Rows, corner: tuple[float, float], cell: tuple[float, float], gap: float = 2.5
) -> None:
    """Draw a box of its own in each cell and one around all: every border is double."""
    (left, top), (width, height) = corner, cell
    page.draw_rect((left - gap, top - gap, left + width * len(rows[0]) + gap, top + height * len(rows) + gap))
    for r, row in enumerate(rows):
        for c in range(len(row)):
            x, y = left + c * width, top + r * height
            page.draw_rect((x + gap / 2, y + gap / 2, x + width - gap / 2, y + height - gap / 2), width=0.5)


@cache
def _load_arabic_forms() -> dict[tuple[str, str], str]:
    """Map (how it joins, letter or lam-alef) to the character that has this form."""
    decompositions = {chr(code): unicodedata.decomposition(chr(code)).split() for code in PRESENTATION_FORMS}
    return {
        (parts[0].strip("<>"), "".join(chr(int(part, 16)) for part in parts[1:])): form
        for form, parts in decompositions.items()
        if len(parts) > 1
    }


def shape_arabic(word: str) -> str:
    """The letters of a word in the forms in which they join, in the order in which they stand from the left.

    MuPDF's own shaping maps several glyphs to no character, so that no reader could know them.
    """
    forms = _load_arabic_forms()
    units, rest = list[str](), word
    while rest:
        units.append(rest[:2] if len(rest) > 1 and ("isolated", rest[:2]) in forms else rest[0])
        rest = rest[len(units[-1]) :]
    shaped = []
    for n, unit in enumerate(units):
        joins_before = n > 0 and ("initial", units[n - 1]) in forms and ("final", unit) in forms
        joins_after = n + 1 < len(units) and ("initial", unit) in forms and ("final", units[n + 1]) in forms
        name = {(0, 0): "isolated", (0, 1): "initial", (1, 1): "medial", (1, 0): "final"}[joins_before, joins_after]
        shaped.append(forms.get((name, unit), unit))
    return "".join(reversed(shaped))


def write_arabic(page: pymupdf.Page, lines: Sequence[str], top: float, size: float = 15) -> None:
    """Set lines against the right margin, each as one run of glyphs from the left, as PDFs have them."""
    font = pymupdf.Font(script=ARABIC_SCRIPT, language="ar")
    writer = pymupdf.TextWriter(page.rect)
    for n, line in enumerate(lines):
        glyphs = " ".join(shape_arabic(word) for word in reversed(line.split()))
        start = page.rect.width - MARGIN - font.text_length(glyphs, size)
        writer.append((start, top + n * ARABIC_LINE_PT), glyphs, font, size)
    writer.write_text(page)


def write_fraction(page: pymupdf.Page, at: tuple[float, float], parts: tuple[str, str, str, str]) -> None:
    """Set `left numerator/denominator right` as a displayed formula in 14 points; `at` is where its baseline starts."""
    left, numerator, denominator, right = parts
    font, size, (x, y) = pymupdf.Font("tiit"), 14, at
    page.insert_text((x, y), left, fontname="tiit", fontsize=size)
    x += font.text_length(left, size) + 6
    widths = [font.text_length(part, size) for part in (numerator, denominator)]
    wide = max(widths) + 8
    for text, width, down in zip((numerator, denominator), widths, (-8, 13), strict=True):
        page.insert_text((x + (wide - width) / 2, y + down), text, fontname="tiit", fontsize=size)
    page.draw_line((x, y - 4), (x + wide, y - 4), width=0.7)
    page.insert_text((x + wide + 6, y), right, fontname="tiit", fontsize=size)


def add_field(page: pymupdf.Page, name: str, value: str | bool, box: Sequence[float]) -> None:
    """Add a filled text field, or for a bool a check box."""
    widget = pymupdf.Widget()
    widget.rect, widget.field_name = pymupdf.Rect(box), name
    is_box = isinstance(value, bool)
    widget.field_type = pymupdf.PDF_WIDGET_TYPE_CHECKBOX if is_box else pymupdf.PDF_WIDGET_TYPE_TEXT
    widget.field_value = value
    page.add_widget(widget)


PDF = ROOT / "samples" / "sample.pdf"
TRUTH = ROOT / "samples" / "sample.truth.json"


class SampleTable(NamedTuple):
    """A table and the number of its page; places that a spanning cell covers are empty."""

    page: int
    rows: Rows


def load() -> list[SampleTable]:
    """All tables but the second part of one that continues: readers may join it to the first."""
    tables = json.loads(TRUTH.read_text(encoding="utf-8"))["tables"]
    return [_build(table) for table in tables if "(continued)" not in table["caption"]]


def _build(table: dict[str, Any]) -> SampleTable:
    texts = {(cell["row"], cell["col"]): cell["text"] for cell in table["cells"]}
    rows = [[texts.get((row, col), "") for col in range(table["cols"])] for row in range(table["rows"])]
    return SampleTable(table["page"], rows)


def list_pages() -> tuple[DrawnPage, ...]:
    """The sample's upright pages that have tables, to be drawn on A4 pages."""
    tables = load()
    with pymupdf.open(PDF) as sample:
        numbers = sorted({table.page for table in tables if not sample[table.page - 1].rotation})
    return tuple(
        _copy_page(number, tuple(table.rows for table in tables if table.page == number)) for number in numbers
    )


def _copy_page(number: int, tables: tuple[Rows, ...]) -> DrawnPage:
    def write(page: pymupdf.Page) -> None:
        with pymupdf.open(PDF) as sample:
            page.show_pdf_page(page.rect, sample, number - 1)

    return DrawnPage(write, "", tables)


CELL = (108, 26)  # points, width and height
SMALL_PAGE = (180, 300)  # points: a receipt
SMALL_PAGE_DPI = 200
CORNER = (MARGIN, 150)


@dataclass(frozen=True)
class DrawnDocument:
    """A PDF to draw. `order` is whether its words are compared as a sequence with the text of its pages."""

    name: str
    pages: tuple[DrawnPage, ...]
    is_scan: bool = False
    order: bool = False

    @property
    def tables(self) -> list[Rows]:
        return [rows for page in self.pages for rows in page.tables]

    @property
    def text(self) -> str:
        return "\n".join(page.text for page in self.pages)


def draw_drop_cap(page: pymupdf.Page) -> None:
    top, left = 120, MARGIN
    page.insert_text((left, top + 32), "A", fontname="tibo", fontsize=44)
    first, rest = DROP_CAP
    words, lines, font = first.split(), list[str](), pymupdf.Font("tiro")
    while words and len(lines) < 3:
        line = [words.pop(0)]
        while words and font.text_length(" ".join([*line, words[0]]), 12) < 420:
            line.append(words.pop(0))
        lines.append(" ".join(line))
    for n, text in enumerate(lines):
        page.insert_text((left + (36 if n < 2 else 0), top + 12 + 16 * n), text, fontname="tiro", fontsize=12)
    write_html(page, (left, top + 52, A4[0] - MARGIN, 500), f"<p>{' '.join(words)}</p><p>{rest}</p>", 12)


def draw_cards(page: pymupdf.Page) -> None:
    page.insert_text((MARGIN, 90), "Four stations of the waterworks", fontname="hebo", fontsize=18)
    for n, (title, *lines) in enumerate(CARDS):
        x, y = MARGIN + 240 * (n % 2), 120 + 130 * (n // 2)
        page.draw_rect((x, y, x + 215, y + 105), color=(0.4, 0.4, 0.4), fill=(0.95, 0.97, 1))
        page.insert_text((x + 12, y + 24), title, fontname="hebo", fontsize=13)
        for row, line in enumerate(lines):
            page.insert_text((x + 12, y + 48 + 18 * row), line, fontname="helv", fontsize=11)


def draw_tax_form(page: pymupdf.Page) -> None:
    """Blocks side by side whose lines are at different heights, as in the head of a tax form."""
    page.insert_text((MARGIN, 84), "Form", fontname="helv", fontsize=9)
    page.insert_text((MARGIN + 24, 90), "W-17", fontname="hebo", fontsize=24)
    for n, line in enumerate(("Department of Wells", "Office for Village Water")):
        page.insert_text((MARGIN, 106 + 10 * n), line, fontname="helv", fontsize=8)
    page.insert_text((200, 92), "Household Water Return", fontname="hebo", fontsize=17)
    page.insert_text((200, 110), "For the year from 1 April to 31 March", fontname="helv", fontsize=9)
    page.insert_text((440, 84), "File number", fontname="helv", fontsize=8)
    page.insert_text((440, 104), "2071-55", fontname="cour", fontsize=14)
    page.draw_line((MARGIN, 124), (A4[0] - MARGIN, 124))
    labels = (("Your first name", "Agnes"), ("Your last name", "Whitlock"), ("Meter number", "5518"))
    for n, (label, value) in enumerate(labels):
        x = MARGIN + 156 * n
        page.draw_rect((x, 134, x + 150, 170))
        page.insert_text((x + 4, 144), label, fontname="helv", fontsize=7)
        page.insert_text((x + 6, 163), value, fontname="cour", fontsize=12)
    rows = (("1", "Water used in the house, in cubic metres", "96"), ("2", "Water used in the garden", "14"),
            ("3", "Add lines 1 and 2", "110"))  # fmt: skip
    for n, (number, label, amount) in enumerate(rows):
        y = 200 + 22 * n
        page.insert_text((MARGIN, y), number, fontname="hebo", fontsize=10)
        page.insert_text((MARGIN + 18, y), label, fontname="helv", fontsize=10)
        page.draw_rect((460, y - 14, 530, y + 5))
        page.insert_text((500, y), amount, fontname="cour", fontsize=11)


def draw_fields(page: pymupdf.Page) -> None:
    page.insert_text((MARGIN, 90), "Application for a water connection", fontname="hebo", fontsize=16)
    for n, (label, value) in enumerate((("Name", "Edith Marlow"), ("Street", "Orchard Way 12"), ("Plot", "B 407"))):
        page.insert_text((MARGIN, 134 + 30 * n), label, fontname="helv", fontsize=11)
        add_field(page, label, value, (140, 120 + 30 * n, 340, 138 + 30 * n))
    for n, (label, is_on) in enumerate((("Drinking water", True), ("Garden water", False))):
        add_field(page, label, is_on, (MARGIN, 230 + 26 * n, MARGIN + 13, 243 + 26 * n))
        page.insert_text((MARGIN + 24, 241 + 26 * n), label, fontname="helv", fontsize=11)
    page.insert_text((MARGIN, 310), "The fee is due within thirty days.", fontname="helv", fontsize=11)
    write_html(page, (MARGIN, 330, 500, 420), "<p>☑ The owner agrees to the works</p><p>☐ A pump is needed</p>")


def draw_hebrew(page: pymupdf.Page) -> None:
    body = "".join(f"<p dir='rtl'>{line}</p>" for line in (*HEBREW, HEBREW_MIXED))
    write_html(page, (MARGIN, 100, A4[0] - MARGIN, 500), body, 14)


def draw_arabic(page: pymupdf.Page) -> None:
    write_arabic(page, ARABIC_LINES, 120)


def write_lines(lines: Sequence[str], size: float = 14) -> DrawnPage:
    def write(page: pymupdf.Page) -> None:
        body = "".join(f"<p>{line}</p>" for line in lines)
        write_html(page, (MARGIN, 100, A4[0] - MARGIN, 600), body, size)

    return DrawnPage(write, "\n".join(lines))


def draw_letterhead(page: pymupdf.Page) -> None:
    """One page with a header and a footer that no other page repeats."""
    page.insert_text((MARGIN, 36), "Annual report of the waterworks", fontname="heit", fontsize=8)
    page.insert_text((450, 36), "Page 1 of 1", fontname="heit", fontsize=8)
    page.draw_line((MARGIN, 42), (A4[0] - MARGIN, 42), width=0.5)
    page.insert_text((MARGIN, 96), "Pressure and leaks", fontname="hebo", fontsize=16)
    write_paragraphs(page, REPORT, 110)
    page.draw_line((MARGIN, 800), (A4[0] - MARGIN, 800), width=0.5)
    page.insert_text((MARGIN, 812), "Village Council, Church Row 1, telephone 42", fontname="helv", fontsize=7)


def draw_running(number: int) -> Write:
    """One of several pages with a running title, a margin note and a page number; a sentence crosses to the next."""

    def write(page: pymupdf.Page) -> None:
        page.insert_text((MARGIN, 40), "The History of the Waterworks", fontname="tiit", fontsize=9)
        page.insert_text((A4[0] - MARGIN - 20, 40), str(40 + number), fontname="tiro", fontsize=9)
        page.insert_text((A4[0] - 18, 560), "Copied from the village library, 24 October 2020", fontsize=7,
                         rotate=90, color=(0.4, 0.4, 0.4))  # fmt: skip
        first = "extensions proposed by the engineers were built. " if number == 2 else ""
        last = "The council voted on the plan, and in the end only 2" if number == 1 else ""
        text = COLUMNS[2 * number - 2 : 2 * number]
        write_paragraphs(page, [first + text[0], text[1], *filter(None, (last,))])

    return write


def draw_footnotes(page: pymupdf.Page) -> None:
    body = (
        "<p>The spring yields four litres a second in a normal year.<sup>1</sup> In the drought it fell to less than "
        "one, and the reservoir was filled from the river for 19 nights.<sup>2</sup> The pressure is stored in bar "
        "for gauge 7, and the logbook gives the flow in litres.</p><p>The area of the forest above the spring is "
        "12 km<sup>2</sup>, of which two thirds belong to the parish.</p>"
    )
    write_html(page, (MARGIN, 90, A4[0] - MARGIN, 400), body)
    page.draw_line((MARGIN, 700), (200, 700), width=0.5)
    notes = "<p><sup>1</sup> Measured at the spring house on the first Monday of each month.</p>"
    notes += "<p><sup>2</sup> Minutes of the council, 3 September 1921.</p>"
    write_html(page, (MARGIN, 706, A4[0] - MARGIN, 780), notes, 8)
    page.insert_text((A4[0] / 2, 815), "7", fontname="tiro", fontsize=9)


def draw_table(rows: Rows, style: str, caption: str) -> DrawnPage:
    (left, top), (width, height) = CORNER, CELL

    def write(page: pymupdf.Page) -> None:
        page.insert_text((MARGIN, 100), caption, fontname="hebo", fontsize=12)
        write_html(page, (MARGIN, 108, A4[0] - MARGIN, 146), "<p>The figures were collected by the wardens.</p>")
        if style == "ruled":
            rule_cells(page, rows, CORNER, (width, height))
        if style == "spanning":
            rule_cells(page, rows, CORNER, (width * 0.85, height), spans=2)
        if style == "double":
            rule_double(page, rows, CORNER, (width, height))
        wide = width * (0.85 if style == "spanning" else 1)
        write_cells(page, rows, lambda r, c: (left + c * wide + 8, top + r * height + height * 0.66))
        bottom = top + height * len(rows)
        write_html(page, (MARGIN, bottom + 20, A4[0] - MARGIN, bottom + 90), f"<p>{REPORT[0]}</p>")

    return DrawnPage(write, caption, (rows,))


def draw_ledger(page: pymupdf.Page) -> None:
    """A table as an office program exports it: uneven columns, numbers to the right, rules below the rows only."""
    page.insert_text((MARGIN, 100), "Cash book of the waterworks", fontname="hebo", fontsize=12)
    starts, font = (MARGIN, MARGIN + 60, MARGIN + 300, MARGIN + 390), pymupdf.Font("helv")
    for r, row in enumerate(TABLE_LEDGER):
        y = 150 + 22 * r
        for c, text in enumerate(row):
            x = starts[c] if c < 2 else starts[c] + 70 - font.text_length(text, 10)
            page.insert_text((x, y), text, fontname="hebo" if r == 0 else "helv", fontsize=10)
        page.draw_line((MARGIN, y + 6), (MARGIN + 465, y + 6), width=0.5)


def draw_contents(page: pymupdf.Page) -> None:
    page.insert_text((MARGIN, 90), "Contents", fontname="hebo", fontsize=18)
    font = pymupdf.Font("tiro")
    for n, (title, number) in enumerate(CONTENTS):
        y, end = 130 + 24 * n, A4[0] - MARGIN - 24
        page.insert_text((MARGIN, y), title, fontname="tiro", fontsize=12)
        dots = int((end - MARGIN - font.text_length(title, 12) - 12) / font.text_length(".", 12))
        page.insert_text((end - dots * font.text_length(".", 12), y), "." * dots, fontname="tiro", fontsize=12)
        page.insert_text((A4[0] - MARGIN - 14, y), number, fontname="tiro", fontsize=12)


def draw_code(page: pymupdf.Page) -> None:
    write_html(page, (MARGIN, 80, A4[0] - MARGIN, 140), "<p>The gauge is read every minute by this program:</p>")
    for n, line in enumerate(CODE):
        page.insert_text((MARGIN + 12, 160 + 15 * n), line, fontname="cour", fontsize=10.5)
    write_html(page, (MARGIN, 280, A4[0] - MARGIN, 340), "<p>It stops when the level falls below zero.</p>")


def draw_characters(page: pymupdf.Page) -> None:
    body = (
        "<p>The valve <b>must not</b> be opened before the <i>second chamber</i> is empty.</p>"
        "<p>Mrs. Bo\u0308hme and Jose\u0301 Nu\u0301n\u0303ez signed for the Cre\u0300vecœur estate.</p>"
        "<p>The loss was 157. The year before it had been 212.</p>"
        "<p>Each person uses about 130 l, that is 0.13 m<sup>3</sup>, of CO<sub>2</sub>-free water.</p>"
        "<p>The office and the first floor were flooded.</p>"
        f"<p>{CHINESE}</p>"
    )
    write_html(page, (MARGIN, 90, A4[0] - MARGIN, 330), body, 12)
    for n, line in enumerate(("Close the inlet", "Drain the basin", "Brush the walls")):
        page.insert_text((MARGIN + 10, 360 + 18 * n), "\u2022", fontname="symb", fontsize=12)
        page.insert_text((MARGIN + 26, 360 + 18 * n), line, fontname="helv", fontsize=12)
    for n, letter in enumerate("SPECIFICATIONS"):  # letter by letter, with wide spacing
        page.insert_text((MARGIN + n * 17, 440), letter, fontname="hebo", fontsize=13)


def draw_fractions(page: pymupdf.Page) -> None:
    sets = (
        ("The flow is the volume divided by the time:", ("Q =", "V", "t", "")),
        ("The pressure follows from force and area:", ("p =", "F + W", "A", "")),
        ("The loss in the pipe grows with its length:", ("h =", "f L", "2 g d", "+ c")),
    )
    for n, (text, parts) in enumerate(sets):
        page.insert_text((MARGIN, 100 + 90 * n), text, fontname="tiro", fontsize=12)
        write_fraction(page, (220, 138 + 90 * n), parts)
    page.insert_text(
        (MARGIN, 380), "The energy of the falling water is E = m g h in joules.", fontname="tiro", fontsize=12
    )
    page.insert_text((260, 420), "v", fontname="tiit", fontsize=14)
    page.insert_text((267, 414), "2", fontname="tiro", fontsize=9)
    page.insert_text((275, 420), "= 2 g h", fontname="tiit", fontsize=14)
    page.insert_text((MARGIN, 450), "Here v is the speed at the outlet.", fontname="tiro", fontsize=12)


def draw_figure(page: pymupdf.Page) -> None:
    """A page with a text layer and one large picture that has words of its own."""
    write_html(page, (MARGIN, 80, A4[0] - MARGIN, 130), "<p>The way of the water from the spring to the houses:</p>")
    with pymupdf.open() as pdf:
        picture = pdf.new_page(width=460, height=420)
        for n, label in enumerate(FIGURE_LABELS):
            picture.draw_rect((120, 20 + 100 * n, 340, 80 + 100 * n), color=(0, 0, 0.5), fill=(0.9, 0.95, 1))
            picture.insert_text((150, 56 + 100 * n), label, fontname="hebo", fontsize=17)
        stream = picture.get_pixmap(dpi=SMALL_PAGE_DPI).tobytes("png")
    page.insert_image((MARGIN, 150, MARGIN + 460, 570), stream=stream)


def draw_receipt(page: pymupdf.Page) -> None:
    for n, line in enumerate(RECEIPT_LINES):
        page.insert_text((14, 40 + 26 * n), line, fontname="helv", fontsize=9)


def _single(name: str, write: Write, text: str = "", order: bool = False) -> DrawnDocument:
    return DrawnDocument(name, (DrawnPage(write, text),), order=order)


def list_documents() -> tuple[DrawnDocument, ...]:
    """All documents in the order of their names in checks/drawn.jsonl."""
    two_columns = drawn_pages.prose(COLUMNS, "The Village Waterworks", BODY_PT, columns=2)
    tables = {
        "table_ruled": draw_table(TABLE_PLAIN, "ruled", "Reservoirs of the village"),
        "table_double": draw_table(TABLE_DOUBLE, "double", "Pressure at the valves"),
        "table_spanning": draw_table(TABLE_SPANNING, "spanning", "Consumption by district"),
        "table_borderless": draw_table(TABLE_BORDERLESS, "", "Meters by street"),
        "table_ledger": DrawnPage(draw_ledger, "Cash book", (TABLE_LEDGER,)),
    }
    arabic = DrawnPage(draw_arabic, "\n".join(ARABIC_LINES))
    hebrew = DrawnPage(draw_hebrew, "\n".join((*HEBREW, HEBREW_MIXED)))
    return (
        DrawnDocument("two_columns", (two_columns,), order=True),
        DrawnDocument("two_columns_scan", (two_columns,), is_scan=True, order=True),
        DrawnDocument("korean_columns", (drawn_pages.prose(KOREAN_COLUMNS, columns=2),), order=True),
        _single("drop_cap", draw_drop_cap, "A" + " ".join(DROP_CAP), order=True),
        _single("cards", draw_cards),
        DrawnDocument("cards_scan", (DrawnPage(draw_cards, ""),), is_scan=True),
        _single("tax_form", draw_tax_form),
        _single("fields", draw_fields),
        DrawnDocument("hebrew", (hebrew,), order=True),
        DrawnDocument("arabic", (arabic,), order=True),
        DrawnDocument("korean_scan", (write_lines(KOREAN),), is_scan=True),
        DrawnDocument("russian_scan", (write_lines(RUSSIAN),), is_scan=True),
        _single("letterhead", draw_letterhead),
        DrawnDocument("letterhead_scan", (DrawnPage(draw_letterhead, ""),), is_scan=True),
        DrawnDocument("running", tuple(DrawnPage(draw_running(number), "") for number in (1, 2, 3))),
        _single("footnotes", draw_footnotes),
        *(DrawnDocument(name, (page,)) for name, page in tables.items()),
        *(DrawnDocument(f"{name}_scan", (page,), is_scan=True) for name, page in tables.items()),
        DrawnDocument("sample_tables_scan", list_pages(), is_scan=True),
        _single("contents", draw_contents),
        _single("code", draw_code),
        _single("characters", draw_characters),
        _single("fractions", draw_fractions),
        _single("figure", draw_figure),
    )


RECEIPT = "receipt_scan.pdf"


def save_all(folder: Path) -> list[Path]:
    """Draw all documents as PDFs into a folder."""
    paths = []
    for document in list_documents():
        path = folder / f"{document.name}.pdf"
        (drawn_pages.save_scans if document.is_scan else drawn_pages.save)(document.pages, path)
        paths.append(path)
    _save_receipt(folder / RECEIPT)
    return [*paths, folder / RECEIPT]


def _save_receipt(path: Path) -> None:
    """Save a scan of a page that is much smaller than A4."""
    with pymupdf.open() as pdf, pymupdf.open() as scan:
        drawn = pdf.new_page(width=SMALL_PAGE[0], height=SMALL_PAGE[1])
        draw_receipt(drawn)
        image = drawn.get_pixmap(dpi=SMALL_PAGE_DPI, colorspace=pymupdf.csGRAY).tobytes("jpeg", jpg_quality=80)
        scan.new_page(width=SMALL_PAGE[0], height=SMALL_PAGE[1]).insert_image((0, 0, *SMALL_PAGE), stream=image)
        scan.ez_save(path)


COLUMNS = (
    "The waterworks of the village began with a quarrel about a ditch. In the dry summer of 1911 the miller kept the "
    "sluice shut for nine days, and the cattle of the lower farms had to be driven to the river every evening.",
    "The council met in the schoolroom and heard three proposals. A dam would have drowned the orchard; a pump would "
    "have needed coal; a pipe from the spring above the forest needed only patience and a loan.",
    "Work on the pipe started in the following March. Forty men dug by hand through clay and then through chalk, and "
    "the schoolmaster recorded the depth of the trench each Saturday in a green notebook.",
    "The first water ran into the reservoir on a Sunday in October. It was brown for an hour and then perfectly clear. "
    "The priest tasted it first, the mayor second, and the miller did not come at all.",
    "Since then the works have been extended twice. A second chamber was added when the railway came, and a chlorine "
    "room was built after the fever year, against the advice of the brewer.",
    "Today two wardens share the duty. One reads the gauges before breakfast, the other walks the line on Thursdays "
    "and listens for leaks with an iron rod pressed to the ear.",
    "Leaks are found mostly in frost. A wet patch on a dry road is a certain sign, but a cellar may fill for a week "
    "before its owner complains, because nobody likes to see the road dug up.",
    "The meters were read with a lantern until 1958. Every house paid by the bucket that the warden estimated, and "
    "the estimates were famous for being kind to widows and hard on innkeepers.",
    "A new law ended this custom. Brass meters came by train in wooden boxes, and a clerk from the district town "
    "showed how to seal them with lead so that no screw could be turned unseen.",
    "The oldest meter still turns in the bakery. It has counted more than ninety thousand cubic metres, and the baker "
    "has refused every offer to replace it with an electronic one.",
)

DROP_CAP = (
    "nyone who follows the pipe uphill reaches the spring house after an hour. The door is low and made of oak, and "
    "the key hangs in the warden's kitchen beside the almanac.",
    "Inside it is cold even in August. The water rises through gravel into a basin of dressed stone, and a brass "
    "plate names the masons who laid it.",
)

CARDS = (
    ("Reservoir North", "Built of brick in 1912.", "Holds 300 cubic metres.", "Key: warden's kitchen."),
    ("Reservoir South", "Built of concrete in 1938.", "Holds 450 cubic metres.", "Key: railway office."),
    ("Spring House", "Built of oak and stone.", "Yields 4 litres a second.", "Key: forest lodge."),
    ("Pump Cellar", "Built below the school.", "Lifts water 38 metres.", "Key: head teacher."),
)

HEBREW = (
    "המים מגיעים ממעיין שמעל היער, ומוזרמים בצינור ברזל אל מאגר גדול.",
    "המאגר נבנה מלבנים אדומות לפני מאה שנים, והוא מספק מים לכל בתי הכפר.",
    "שני שומרים בודקים את השעונים בכל בוקר ורושמים את הלחץ במחברת ירוקה.",
    "בחורף הצינור קופא לפעמים, ואז אנשי הכפר ממלאים דליים ליד הבאר הישנה.",
)
HEBREW_MIXED = "בשנת 1958 הותקנו 120 מדי מים מדגם Aqua-7 בבתי הכפר."

ARABIC_LINES = (
    "تدير بلدية القرية محطة صغيرة لضخ الماء منذ سنوات طويلة",
    "يأتي الماء من ينابيع فوق الغابة ويصل إلى خزان كبير",
    "يقرأ العمال العدادات كل شهر ويكتبون النتائج في دفتر أخضر",
    "تحتاج الأنابيب القديمة إلى إصلاح قبل بداية فصل الشتاء",
    "وافق مجلس القرية على شراء مضخة جديدة بعد نقاش قصير",
)

KOREAN = (
    "마을 수도 사업소는 숲 위의 샘에서 물을 끌어온다.",
    "물은 쇠로 만든 관을 따라 큰 저수지로 흘러간다.",
    "두 명의 관리인이 매일 아침 계량기를 읽고 기록한다.",
    "겨울에는 관이 얼어서 주민들이 우물에서 물을 길었다.",
    "새 펌프를 사는 안건은 회의에서 모두 찬성했다.",
)

KOREAN_COLUMNS = (
    "마을의 수도는 도랑을 둘러싼 다툼에서 시작되었다. 가뭄이 심했던 여름에 방앗간 주인은 아흐레 동안 수문을 닫았다.",
    "마을 회의는 교실에서 열렸고 세 가지 제안을 들었다. 둑을 쌓으면 과수원이 잠기고 펌프에는 석탄이 필요했다.",
    "이듬해 삼월에 관을 묻는 공사가 시작되었다. 마흔 명이 진흙과 석회암을 손으로 파 내려갔다.",
    "시월의 어느 일요일에 첫 물이 저수지로 들어왔다. 한 시간 동안 흐렸다가 곧 맑아졌다.",
    "지금은 두 관리인이 일을 나누어 맡는다. 한 사람은 아침마다 계량기를 읽고 다른 사람은 목요일에 관을 살핀다.",
    "가장 오래된 계량기는 아직도 빵집에서 돌아간다. 주인은 새것으로 바꾸자는 제안을 모두 거절했다.",
)

RUSSIAN = (
    "Деревенский водопровод начинается у родника над лесом.",
    "Вода течёт по чугунной трубе в большой кирпичный резервуар.",
    "Два сторожа каждое утро проверяют давление и пишут отчёт.",
    "Зимой труба иногда замерзает, и люди носят воду из колодца.",
    "Совет деревни решил купить новый насос до начала весны.",
)

CHINESE = "村里的自来水厂从森林上方的泉眼引水，沿着铁管流入砖砌的蓄水池。"

REPORT = (
    "The pressure at the upper valve stayed between 3.8 and 4.1 bar throughout the year. It fell only once, during the "
    "fire at the sawmill, when three hoses were connected to the hydrant in Mill Lane for almost six hours.",
    "The inspectors examined 214 joints and found 9 of them wet. They recommend new rubber rings for the joints below "
    "the railway, where the passing trains shake the pipe more than the engineers had expected.",
    "The council discussed the report in May and accepted its conclusions. The rings have been ordered, and the "
    "repair will take place in September, when the demand is low and the road is dry.",
    "In the long run the pipe below the railway will have to be replaced altogether. The engineers have drawn up two "
    "proposals, one with a tunnel and one with a bridge, and the second is cheaper by a third.",
)

TABLE_PLAIN = (
    ("Reservoir", "Volume", "Year", "State"),
    ("North", "300", "1912", "good"),
    ("South", "450", "1938", "cracked"),
    ("Tower", "120", "1966", "good"),
    ("Forest", "80", "1971", "closed"),
)
TABLE_DOUBLE = (
    ("Valve", "Pressure", "Checked"),
    ("Mill Lane", "3.9 bar", "4 May"),
    ("School", "4.0 bar", "6 May"),
    ("Bakery", "3.7 bar", "9 May"),
)
# The first row's second and fourth cells span two columns.
TABLE_SPANNING = (
    ("District", "Consumption", "", "Losses", ""),
    ("", "2023", "2024", "2023", "2024"),
    ("Upper", "8120", "7940", "410", "395"),
    ("Lower", "9655", "9310", "720", "505"),
    ("Mill", "2210", "2385", "96", "88"),
)
TABLE_BORDERLESS = (
    ("Street", "Houses", "Meters", "Unpaid"),
    ("Church Row", "42", "40", "3"),
    ("Mill Lane", "57", "55", "0"),
    ("Station Road", "31", "31", "5"),
    ("Orchard Way", "18", "17", "1"),
)
TABLE_LEDGER = (
    ("Date", "Entry", "Debit", "Credit"),
    ("02 Jan", "Water rates, upper district", "", "1,240.00"),
    ("09 Jan", "Repair of pump no. 2", "385.50", ""),
    ("17 Jan", "Chlorine, four drums", "96.20", ""),
    ("30 Jan", "Water rates, lower district", "", "1,455.75"),
)

CONTENTS = (
    ("1 The spring and its owners", "3"),
    ("2 The pipe through the forest", "11"),
    ("3 Reservoirs and their keepers", "24"),
    ("4 Prices, meters and quarrels", "37"),
    ("5 The years after the railway", "52"),
)

CODE = (
    "def read_gauge(level):",
    "    if level < 0:",
    "        raise ValueError(level)",
    "    for valve in open_valves:",
    "        valve.turn(level * 2)",
    "    return level",
)

RECEIPT_LINES = (
    "WATERWORKS OFFICE",
    "Receipt no. 2071",
    "Meter 5518",
    "Used 34 m3",
    "Paid 61.20",
    "Thank you, see you soon",
)

FIGURE_LABELS = ("Spring house", "Filter basin", "Upper reservoir", "Village main")
