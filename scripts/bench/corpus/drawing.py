"""Draw one kind of content on a PDF page: boxes of HTML, ruled tables, right-to-left lines, form fields."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from functools import cache

import pymupdf

from scripts.bench.corpus.matching import Rows

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
