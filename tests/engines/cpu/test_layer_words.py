"""The words of a text layer: accents, signs of symbol fonts, and the styles of fonts."""

from __future__ import annotations

import unicodedata
from typing import Any

import pymupdf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twopass.document import Box, Rect, Word
from twopass.engines.cpu import layer_words
from twopass.engines.cpu.content import StyledRun, StyledWord
from twopass.engines.cpu.layer_words import LayerWords
from twopass.pages.text_layer import TextLayer
from twopass.text import symbol_fonts

TIMES = pymupdf.Font("tiro")
SIZE = 11.0


def draw_page() -> Any:
    return pymupdf.open().new_page(width=595, height=400)


def read_words(page: Any) -> list[StyledWord]:
    """The words of the page after it was saved and opened again, as any reader sees it."""
    document = pymupdf.open(stream=page.parent.tobytes())
    return list(layer_words.extract(document[0])[1].words)


def read_texts(page: Any) -> list[str]:
    return [word.text for word in read_words(page)]


def draw_accent(
    page: Any, x: float, y: float, before: str, accent: str, letter: str, after: str, rise: float = 0
) -> None:
    """Draw a word as TeX does: the accent first, as a character of its own over the place of its letter."""
    page.insert_text((x, y), before, fontname="tiro", fontsize=SIZE)
    x += TIMES.text_length(before, SIZE)
    shift = (TIMES.text_length(letter, SIZE) - TIMES.text_length(accent, SIZE)) / 2
    page.insert_text((x + shift, y - rise), accent, fontname="tiro", fontsize=SIZE)
    page.insert_text((x, y), letter + after, fontname="tiro", fontsize=SIZE)


def name_font(page: Any, name: str, codes: dict[str, str]) -> None:
    """Give the page's only font another name, and map letters to other characters as its ToUnicode table says."""
    document = page.parent
    (font,) = {entry[0] for entry in page.get_fonts()}
    entries = "\n".join(f"<{ord(letter):02x}> <{ord(code):04x}>" for letter, code in codes.items())
    table = document.get_new_xref()
    document.update_object(table, "<<>>")
    cmap = (
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /X def /CMapType 2 def\n"
        "1 begincodespacerange <00> <ff> endcodespacerange\n"
        f"{len(codes)} beginbfchar\n{entries}\nendbfchar endcmap end end"
    )
    document.update_stream(table, cmap.encode())
    document.xref_set_key(font, "ToUnicode", f"{table} 0 R")
    document.xref_set_key(font, "BaseFont", f"/{name}")


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (("M", "\xa8", "u", "ller"), "Müller"),
        (("Universit", "\xb4", "e", ""), "Université"),
        (("", "\xa8", "O", "sterreich"), "Österreich"),
        (("gar", "\xb8", "c", "on"), "garçon"),
    ],
)
def test_an_accent_drawn_over_a_letter_is_joined_with_it(word: tuple[str, str, str, str], expected: str) -> None:
    """An accent that TeX draws over a letter becomes one character with it, also over a capital, where it is raised."""
    page = draw_page()
    draw_accent(page, 60, 80, *word, rise=2 if word[2].isupper() else 0)
    page.insert_text((60, 110), "plain words", fontname="tiro", fontsize=SIZE)

    assert read_texts(page) == [expected, "plain", "words"]


def test_an_accent_drawn_after_the_word_is_joined_with_its_letter() -> None:
    """The order in which letter and accent are drawn makes no difference."""
    page = draw_page()
    page.insert_text((60, 80), "Universite de Paris", fontname="tiro", fontsize=SIZE)
    page.insert_text((60 + TIMES.text_length("Universit", SIZE) + 0.6, 80), "\xb4", fontname="tiro", fontsize=SIZE)

    assert read_texts(page) == ["Université", "de", "Paris"]


def test_an_accent_beside_letters_stays_as_it_is() -> None:
    """An accent that is over no letter, and quotes and carets in a line, are characters of their own."""
    page = draw_page()
    page.insert_text((60, 80), "the sign \xa8 and x^2 `quoted\xb4", fontname="tiro", fontsize=SIZE)

    assert read_texts(page) == ["the", "sign", "\xa8", "and", "x^2", "`quoted\xb4"]


@pytest.mark.parametrize(("width", "expected"), [(1, ["naïf"]), (4, ["na", "ïf"])])
def test_a_blank_beside_an_accent_is_a_space_only_if_the_page_shows_one(width: float, expected: list[str]) -> None:
    """Text extraction puts a blank before a raised accent; the letters around it say whether it is a space."""
    places = [("n", 0), ("a", 5), (" ", 10), ("\xa8", 10 + width), ("ı", 10 + width), ("f", 15 + width)]
    chars = [{"c": c, "bbox": (x, 10, x + (width if c == " " else 5), 20)} for c, x in places]
    block = {"lines": [{"spans": [{"size": 10.0, "chars": chars}]}]}

    words = layer_words.build_words(layer_words.compose_accents(layer_words.split_block(block)))

    assert [word.text for word in words] == expected


@given(st.text(st.sampled_from("ab \xa8\xb4^ui"), max_size=12), st.lists(st.floats(0, 60), min_size=12, max_size=12))
def test_no_letter_is_lost_when_accents_are_joined(text: str, positions: list[float]) -> None:
    """Wherever letters and accents stand, every letter is in one word, with or without an accent."""
    chars = [{"c": c, "bbox": (x, 10, x + 5, 20)} for c, x in zip(text, positions, strict=False)]
    block = {"lines": [{"spans": [{"size": 10.0, "chars": chars}]}]}

    composed = layer_words.compose_accents(layer_words.split_block(block))

    joined = "".join(word.text for word in layer_words.build_words(composed))
    plain = [c for c in unicodedata.normalize("NFD", joined) if c.isalpha()]
    assert plain == [c for c in text if c.isalpha()]


@pytest.mark.parametrize(
    ("font", "code", "expected"),
    [
        ("ABCDEF+Symbol", "\uf0b7", "•"),
        ("Wingdings-Regular", "\uf0a7", "▪"),
        ("Wingdings-Regular", "\uf0fe", "☑"),
        ("Wingdings-Regular", "\uf0a8", "☐"),
        ("Wingdings-Regular", "\uf06f", "☐"),
        ("Wingdings", "l", "●"),
        ("ABCDEF+ZapfDingbats", "4", "✔"),
        ("SymbolMT", "\uf061", "α"),
        ("Arial", "\uf0b7", "•"),
        ("Arial", "\uf8ff", "\uf8ff"),
        ("Arial", "l", "l"),
    ],
)
def test_signs_of_symbol_fonts_are_what_they_show(font: str, code: str, expected: str) -> None:
    """The font's name decides which bullet, box or letter its code draws; unknown codes stay."""
    page = draw_page()
    page.insert_text((60, 80), "A item", fontname="helv", fontsize=SIZE)
    name_font(page, font, {"A": code, **dict.fromkeys("item", "\u2022")})

    assert read_texts(page)[0] == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("carbonXfree har-", "bours"), ["carbon-free", "har-", "bours"]),
        (("the dualX", "use quay"), ["the", "dual\u00ad", "use", "quay"]),
        (("carbonXfree dualX", "use"), ["carbon-free", "dual-", "use"]),
        (("Part X rules", "dualX"), ["Part", "-", "rules", "dual-"]),
        (("paid X38,00", "dualX"), ["paid", "-38,00", "dual-"]),
    ],
)
def test_a_soft_hyphen_that_the_page_shows_inside_a_line_is_a_hyphen(lines: list[str], expected: list[str]) -> None:
    """Then the font calls all its hyphens soft; at line ends alone, they are what they say."""
    page = draw_page()
    for number, line in enumerate(lines):
        page.insert_text((60, 80 + 14 * number), line, fontname="helv", fontsize=SIZE)
    name_font(page, "Arial", {letter: letter for letter in "".join(lines)} | {"X": "\u00ad"})

    assert read_texts(page) == expected


@given(st.characters(exclude_categories=["Cs"]), st.text(max_size=20))
def test_any_character_of_any_font_stays_one_character(character: str, font: str) -> None:
    """Translation never raises, and gives one character for one."""
    assert len(symbol_fonts.translate(character, font)) == 1


@given(
    st.lists(
        st.tuples(st.sampled_from(["e", "\u0301", "\u0323", "x", "\u1112", "\u1161", "\u11ab"]), st.integers(0, 3))
    )
)
def test_composed_characters_keep_their_spans(characters: list[tuple[str, int]]) -> None:
    """A word in NFC has one span a character, and the letters that were not composed keep their own."""
    word = layer_words.SpannedWord(
        "".join(c for c, _ in characters), Rect(0, 0, 1, 1), tuple(span for _, span in characters)
    )

    composed = layer_words.compose_word(word)

    assert composed.text == unicodedata.normalize("NFC", word.text)
    assert len(composed.spans) == len(composed.text)
    plain = [(c, span) for c, span in characters if c == "x"]
    assert [(c, span) for c, span in zip(composed.text, composed.spans, strict=True) if c == "x"] == plain


def test_a_mark_that_is_longer_than_its_number_is_raised() -> None:
    """In a cell, "15" may have the marks "2,3": that no digit joins the number, however few it has."""
    page = draw_page()
    for n, cell in enumerate(("15<sup>2,3</sup>", "7<sup>12</sup>", "m<sup>10</sup>", "4<sub>12</sub>")):
        page.insert_htmlbox((60, 60 + 40 * n, 500, 90 + 40 * n), f"<p>{cell}</p>")

    assert [word.written for word in read_words(page)] == ["15²,³", "7¹²", "m¹⁰", "4₁₂"]


def test_letters_of_two_sizes_on_one_baseline_are_no_marks() -> None:
    """Small capitals and units stand beside larger letters, not above them."""
    page = draw_page()
    page.insert_htmlbox((60, 60, 500, 120), '<p>5<span style="font-size: 8px">mm</span></p>')

    assert [word.written for word in read_words(page)] == ["5mm"]


def test_words_carry_the_style_of_their_fonts() -> None:
    """Bold, italic, superscripts and subscripts are runs of characters; the text stays plain."""
    page = draw_page()
    page.insert_htmlbox(
        (60, 60, 500, 120),
        "<p>Plain <b>bold</b> and <i>slanted</i> in m<sup>2</sup> of H<sub>2</sub>O, <b>h</b>alf.</p>",
    )

    words = read_words(page)

    assert [word.text for word in words] == ["Plain", "bold", "and", "slanted", "in", "m2", "of", "H2O,", "half."]
    assert {word.text: [tuple(run) for run in word.runs] for word in words if word.runs} == {
        "bold": [(0, 4, "b")],
        "slanted": [(0, 7, "i")],
        "m2": [(1, 2, "^")],
        "H2O,": [(1, 2, "_")],
        "half.": [(0, 1, "b")],
    }


def test_words_with_a_shadow_are_there_once() -> None:
    """What is drawn again beside itself is one text; equal words further apart, as in two rows, are two."""
    with pymupdf.open() as document:
        page = document.new_page(width=400, height=200)
        for x, y, text in ((22, 52, "Quay News"), (20, 50, "Quay News"), (20, 59, "Quay"), (21, 120, "11 11")):
            page.insert_text((x, y), text, fontsize=16 if y < 55 else 8)
        _, layer, _ = layer_words.extract(page)

    assert [word.text for word in layer.without_copies().words] == ["Quay", "News", "Quay", "11", "11"]


def test_doubled_quotes_are_marks_and_their_styles_stay() -> None:
    """Quotation marks take the place of doubled signs, but not in code, and the style behind them keeps its letters."""
    with pymupdf.open() as document:
        page = document.new_page(width=400, height=200)
        page.insert_text((20, 50), "He said ``no''", fontname="tiro")
        page.insert_text((20, 80), "x = ``ls''", fontname="cour")
        _, layer, _ = layer_words.extract(page)

    assert [word.text for word in layer.words] == ["He", "said", "“no”", "x", "=", "``ls''"]


def test_the_runs_of_a_word_move_with_its_quotes() -> None:
    """Characters behind a doubled sign are one place earlier."""
    word = StyledWord(Rect(0, 0, 40, 10), "``bold''", 0, runs=(StyledRun(2, 6, "b"),))

    (replaced,) = layer_words._replace_quotes((word,))

    assert replaced.text[slice(*replaced.runs[0][:2])] == "bold"


@pytest.mark.parametrize(("text", "box", "stays"), [
    ("order", (0.1, 0.1, 0.2, 0.12), False),
    ("ord", (0.1, 0.1, 0.15, 0.12), False),
    ("lock", (0.1, 0.1, 0.2, 0.12), False),
    ("xyz", (0.1, 0.1, 0.15, 0.12), True),
    ("order", (0.5, 0.1, 0.6, 0.12), True),
])  # fmt: skip
def test_hidden_words_and_their_parts_are_left_out(text: str, box: tuple[float, ...], stays: bool) -> None:
    """What stands where a hidden word stands is left out, and a part of it with its letters; other words stay."""
    page = Rect(0, 0, 500, 500)
    layer = LayerWords((StyledWord(Rect(*(500 * side for side in box)), text, 0),), hidden=False)

    left = layer.without(TextLayer.of([Word(Box(0.1, 0.1, 0.2, 0.12), "order")]), page)

    assert bool(left.words) is stays


@pytest.mark.parametrize(("name", "is_mono"), [("cour", True), ("helv", False), ("tiro", False)])
def test_a_font_with_one_width_is_known_by_its_letters(name: str, is_mono: bool) -> None:
    """Fonts of code may have any name; a line with another font beside them is no line of code."""
    size, x, words = 10.0, 0.0, []
    for n, text in enumerate(["while", "window", "import", "letters", "total", "return", "until", "print", "mill"]):
        width = pymupdf.get_text_length(text, name, size)
        words.append(StyledWord(Rect(x, 0, x + width, size), text, n // 4, size=size, font="Nameless"))
        x += width + 5
    other = StyledWord(Rect(0, 20, 40, 30), "see", 2, size=size, font="Other")

    marked = layer_words._mark_mono((*words, other))

    assert [word.mono for word in marked] == [is_mono] * 8 + [False] * 2
