"""Right-to-left pages: the order of words, columns and table cells, and the forms of letters."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pymupdf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engines.cpu.drawn_pages import ARABIC, HEBREW, Pen, measure_order, read, read_lines
from tests.engines.cpu.test_layer_words import draw_accent, name_font
from twopass.document import Rect
from twopass.engines.cpu import bidi, layer_words, reading_order, scanned_page
from twopass.engines.cpu.content import StyledWord
from twopass.engines.cpu.layer_words import Letter
from twopass.families.layout.family import LayoutFamily
from twopass.pages import ocr

HEBREW_LINES = (
    "מכון התקנים פרסם בשנת 2021 תקן חדש למים (מהדורה שנייה) בירושלים.",
    "לפי הדוח של World Health Organization, ב-5 מדינות נמדדו 1,250 דגימות.",
    "השימוש בשפת Python 3 נפוץ מאוד: כ-40% מן התלמידים בחרו בה השנה.",
)
ARABIC_LINES = (
    "اللغة العربية هي أكثر اللغات السامية تحدثا، في عام 1973 أصبحت لغة رسمية.",
    "أصدرت منظمة الصحة (WHO) تقريرا عن المياه في 12 دولة عربية.",
    "يستخدم الباحثون برنامج Python 3 لتحليل البيانات بسرعة.",
)
PERSIAN_LINES = (
    "فردوسی شاهنامه را در سال ۱۰۱۰ میلادی به پایان رساند.",
    "این کتاب (شاهنامه) نزدیک به ۵۰٬۰۰۰ بیت دارد و در UNESCO ثبت شد.",
)
RIGHT = (
    "המים בכפר נבדקים בכל",
    "יום לפני הפעלת המשאבה",
    "ואחרי שעה אחת של עבודה",
    "המחירים הם של ינואר",
    "וחצי מן האובדן נמצא",
    "בחלק העליון של הכפר",
)
LEFT = (
    "שני המפעילים רושמים את",
    "מה שהם רואים בסיבוב",
    "והמועצה קוראת באביב",
    "בסוף השנה נכתב דוח",
    "על מצב הצינורות כולם",
    "ועל המחירים החדשים",
)


def draw(lines: tuple[str, ...], script: int, order: str = "displayed") -> Any:
    document = pymupdf.open()
    Pen(document.new_page(width=595, height=400), script, 11).draw_lines(lines, 540, 60, order)
    return document


@pytest.mark.parametrize("order", ["displayed", "words"])
@pytest.mark.parametrize(("lines", "script"), [(HEBREW_LINES, HEBREW), (ARABIC_LINES, ARABIC), (PERSIAN_LINES, ARABIC)])
def test_words_are_in_reading_order(tmp_path: Path, lines: tuple[str, ...], script: int, order: str) -> None:
    """Words, numbers, Latin names and punctuation are read from the right, however they were drawn."""
    assert tuple(read_lines(draw(lines, script, order), tmp_path)) == lines


def test_text_that_a_browser_drew_is_in_reading_order(tmp_path: Path) -> None:
    """MuPDF's own HTML writer draws words in reading order, which MuPDF then splits into several lines."""
    document = pymupdf.open()
    html = "".join(f'<p dir="rtl">{line}</p>' for line in HEBREW_LINES)
    document.new_page(width=700, height=300).insert_htmlbox(pymupdf.Rect(30, 30, 670, 280), html)

    assert tuple(read_lines(document, tmp_path)) == HEBREW_LINES


def test_hebrew_in_an_english_paragraph_is_turned_alone(tmp_path: Path) -> None:
    """In a left-to-right paragraph only the quoted words are read from right to left."""
    document = pymupdf.open()
    html = "<p>The town hall has the words שלום לכל (2021) אורחי העיר over its door, and below them a date.</p>"
    document.new_page(width=700, height=300).insert_htmlbox(pymupdf.Rect(30, 30, 670, 280), html)

    expected = "The town hall has the words שלום לכל (2021) אורחי העיר over its door, and below them a date."
    assert read_lines(document, tmp_path) == [expected]


def test_columns_are_read_from_right_to_left(tmp_path: Path) -> None:
    """The right column of a right-to-left page comes first."""
    document = pymupdf.open()
    pen = Pen(document.new_page(width=595, height=500), HEBREW, 10)
    pen.draw_lines(RIGHT, 540, 100)
    pen.draw_lines(LEFT, 280, 100)
    found = read_lines(document, tmp_path)

    assert tuple(found) == RIGHT + LEFT
    assert measure_order(" ".join(RIGHT + LEFT).split(), " ".join(found).split()) >= 0.97


def test_a_table_begins_at_its_right_side(tmp_path: Path) -> None:
    """The first column of a right-to-left table is the right one, and its HTML says dir=rtl."""
    document = pymupdf.open()
    page = document.new_page(width=595, height=500)
    pen = Pen(page, HEBREW, 10)
    pen.draw_lines(RIGHT, 540, 60)
    rows = [["עיר", "שנה", "מים (ליטר)"], ["חיפה", "2021", "40"], ["עכו", "2022", "50"], ["צפת", "2023", "(60)"]]
    for row, texts in enumerate(rows):
        for col, text in enumerate(texts):
            x1, y0 = 500 - 120 * col, 250 + 22 * row
            page.draw_rect(pymupdf.Rect(x1 - 120, y0, x1, y0 + 22), width=0.8)
            pen.draw_line(text, x1 - 8, y0 + 15)
    answer = read(document, tmp_path)

    (table,) = [box["table"] for box in answer["boxes"] if "table" in box]
    assert [[c["text"] for c in table["cells"] if c["row"] == row] for row in range(4)] == rows
    (element,) = [e for e in LayoutFamily().parse(json.dumps(answer), 1).elements if e.table]
    assert element.table is not None and element.table.html.startswith('<table dir="rtl">')


def test_forms_of_letters_become_letters(tmp_path: Path) -> None:
    """A font that stores the form a letter has in its word, or a ligature, gives the letters themselves."""
    shaped = "\ufe91\ufef4\ufe96 \ufedb\ufe92\ufef4\ufeae \ufeb3\ufefc\ufee1"

    assert read_lines(draw((shaped, shaped), ARABIC), tmp_path) == ["بيت كبير سلام"] * 2


@pytest.mark.parametrize("order", ["displayed", "words"])
def test_a_ligature_of_two_letters_keeps_their_order(tmp_path: Path, order: str) -> None:
    """One glyph may stand for two letters; MuPDF reverses them where it reverses the line."""
    document = draw(("\ufeb3\ufefc\ufee1 \ufedb\ufe92\ufef4\ufeae", "\ufeb3\ufefc\ufee1"), ARABIC, order)
    for xref in range(1, document.xref_length()):
        if document.xref_is_stream(xref) and b"beginbfchar" in (stream := document.xref_stream(xref)):
            document.update_stream(xref, stream.replace(b"<fefc>", b"<06440627>").replace(b"<FEFC>", b"<06440627>"))

    assert read_lines(document, tmp_path) == ["سلام كبير", "سلام"]


def test_latin_lines_of_a_right_to_left_page_keep_their_accents_and_signs(tmp_path: Path) -> None:
    """Accents over letters are joined, and bullets of symbol fonts are translated, as on any other page."""
    document = pymupdf.open()
    page = document.new_page(width=595, height=400)
    page.insert_text((547, 60), "A", fontname="helv", fontsize=11)
    name_font(page, "ABCDEF+SymbolMT", {"A": "\uf0b7"})
    page.insert_text((90, 120), "\xa8", fontname="tiro", fontsize=11)  # an accent that is a line of its own
    page.insert_text((200, 120), "2021", fontname="tiro", fontsize=11)
    draw_accent(page, 60, 120, "B", "\xa8", "o", "hme")
    Pen(page, HEBREW, 11).draw_lines(RIGHT, 540, 60, "displayed")
    lines = read_lines(document, tmp_path)

    assert f"• {RIGHT[0]}" in lines
    assert "Böhme" in " ".join(lines)


def test_styles_are_kept_in_right_to_left_lines(tmp_path: Path) -> None:
    """Words of a line that is split into pieces are bold, slanted or raised as in any other line."""
    document = pymupdf.open()
    html = '<p dir="rtl">המים בכפר <b>bold words</b> נבדקים 5 m<sup>2</sup> בכל יום</p>'
    document.new_page(width=700, height=300).insert_htmlbox(pymupdf.Rect(30, 30, 670, 280), html)

    (line,) = [line for box in read(document, tmp_path)["boxes"] for line in box["lines"]]

    styled = [(line["text"][start:end], style) for start, end, style in line["runs"]]
    assert styled == [("bold", "b"), ("words", "b"), ("²", "^")]


@pytest.mark.parametrize(("jump", "expected"), [(0, ["שלום"]), (3, ["של", "ום"])])
def test_a_line_is_split_where_its_letters_jump(jump: float, expected: list[str]) -> None:
    """MuPDF leaves out some spaces of a right-to-left line; the positions of letters still show them."""
    line = [
        Letter(letter, Rect(x - jump * (n > 1), 0, x + 5 - jump * (n > 1), 10), 0, 10.0, 0)
        for n, (letter, x) in enumerate(zip("שלום", (95, 90, 85, 80), strict=True))
    ]

    assert [piece.text for piece in layer_words.split_rtl_line(line)] == expected


def place(texts: list[str], size: float = 10) -> list[StyledWord]:
    """Place texts from left to right; a text that begins with "+" touches the one before it."""
    words, x = [], 0.0
    for text in texts:
        x += 0 if text.startswith("+") else 5
        text = text.removeprefix("+")
        words.append(StyledWord(Rect(x, 0, x + 5 * len(text), 10), text, 0, size, is_piece=True))
        x += 5 * len(text)
    return words


@pytest.mark.parametrize(
    ("from_left", "expected"),
    [
        (["שנייה", "(", "+מהדורה", "+)"], "(מהדורה) שנייה"),  # as displayed: the left bracket closes
        (["שנייה", ")", "+מהדורה", "+("], "(מהדורה) שנייה"),  # as meant
        (["עולם", "Python", "(", "+version", "3", "+)", "שלום"], "שלום Python (version 3) עולם"),
        (["Python", "+,", "42", "שלום"], "שלום 42 ,Python"),
        (["Python", ",", "+42", "שלום"], "שלום 42, Python"),
        (["%", "+40", "שלום"], "שלום 40%"),
    ],
)
def test_brackets_and_numbers_find_their_side(from_left: list[str], expected: str) -> None:
    """Punctuation between two directions belongs to the paragraph's, and a bracket to the words at which it stands."""
    assert " ".join(word.text for word in bidi.order_row(place(from_left), rtl=True)) == expected


@pytest.mark.parametrize("line", [*HEBREW_LINES, *ARABIC_LINES, *PERSIAN_LINES])
def test_a_line_of_ocr_keeps_its_order(line: str) -> None:
    """OCR gives a line in reading order; its words are placed from the right and read back the same."""
    found = ocr.OcrLine(((0, 0), (900, 0), (900, 20), (0, 20)), line, 0.9)
    words = list(scanned_page.split_into_words([found], 1.0, 0.0, 900, 100))

    assert words[0].box.x0 > 450 and words[-1].box.x1 < 450
    assert [" ".join(word.text for word in row) for row in reading_order.group_rows(words)] == [line]


TOKENS = st.lists(st.text(st.sampled_from("אבג ابٻ xyz 123 ()[]«» .,:%/-+'\u05b0\u200c٣٤"), min_size=1, max_size=6))


@given(TOKENS, st.booleans())
def test_no_letter_is_lost(texts: list[str], rtl: bool) -> None:
    """Ordering keeps every letter; brackets may be mirrored."""
    spans = [text[start:stop] for text in texts for start, stop in bidi.split_text(text, arabic=True)]
    row = [StyledWord(Rect(9.0 * i, 0, 9.0 * i + i % 9, 10), s, 0, 10, is_piece=True) for i, s in enumerate(spans)]
    found = "".join(word.text for word in bidi.order_row(row, rtl))

    assert count_letters(found) == count_letters("".join(texts))


def count_letters(text: str) -> Counter[str]:
    return Counter(text.translate(str.maketrans(")]»", "([«")).replace(" ", ""))


@given(TOKENS, st.booleans())
def test_runs_cover_every_piece_once(texts: list[str], rtl: bool) -> None:
    """Runs follow each other without gaps."""
    assert [i for start, stop in bidi.find_runs(texts, rtl) for i in range(start, stop)] == list(range(len(texts)))


@given(st.text())
def test_pieces_cover_everything_but_spaces(text: str) -> None:
    """Pieces are in order, do not overlap and leave out only white space."""
    pieces = bidi.split_text(text, arabic=False)
    covered = [i for start, stop in pieces for i in range(start, stop)]

    assert covered == sorted(set(covered))
    assert all(text[i].isspace() or not text[i].strip() for i in set(range(len(text))) - set(covered))
