"""The text layer compared with the pixels."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pymupdf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engines.cpu.test_cpu_engine import count_words, map_characters, read, save
from tests.fakes.prose import PROSE
from twopass.document import Rect
from twopass.engines.cpu import layer_check
from twopass.engines.cpu.content import StyledWord
from twopass.families.layout.family import LayoutFamily
from twopass.pages.ocr import Array, OcrLine, OcrResult
from twopass.text import prose

LINES = (
    "The level in the borehole is measured before the pump starts",
    "Prices are those of January and half of the loss is now thought",
    "Both operators write down what they see on their rounds",
)
WRONG = (
    "Tne 1evei ln tbe boreno1e ls rneasurcd beforc thc purnp sfarts",
    "Priccs aie fhose ot Jannaiy anb haif of tne ioss is uow tbougbt",
    "Bofh opciators wriie dovvn wbat tbey sce ou theii ronnds",
)
CYRILLIC = (
    "Все люди рождаются свободными и равными в своем достоинстве",
    "Они наделены разумом и совестью и должны поступать в отношении",
    "Каждый человек должен обладать всеми правами и свободами",
)
GREEK = (
    "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια",
    "Είναι προικισμένοι με λογική και συνείδηση και οφείλουν",
)
IDENTIFIERS = "getUserName currentUser userService findById requestQueue"


@pytest.fixture
def page() -> tuple[Array, list[StyledWord]]:
    """The pixels of a page, and its words."""
    with pymupdf.open() as document:
        page = document.new_page(width=595, height=200)
        for row, line in enumerate(LINES):
            page.insert_text((60, 60 + 30 * row), line, fontsize=12, fontname="tiro")
        return read_words(page)


def draw_paragraphs(lines: tuple[str, ...]) -> tuple[Array, list[StyledWord]]:
    """A page with each line as a paragraph, in any script."""
    with pymupdf.open() as document:
        page = document.new_page(width=595, height=300)
        page.insert_htmlbox((40, 20, 555, 280), "".join(f"<p style='font-size:12px'>{line}</p>" for line in lines))
        return read_words(page)


def read_words(page: Any) -> tuple[Array, list[StyledWord]]:
    """The page's pixels and words, each MuPDF line with a number of its own."""
    pixmap = page.get_pixmap(dpi=144)
    array = np.frombuffer(bytes(pixmap.samples), np.uint8).reshape(pixmap.height, pixmap.width, 3)
    words = page.get_text("words")
    return array, [StyledWord(Rect(*word[:4]), word[4], 1000 * word[5] + word[6]) for word in words]


def replace_words(words: list[StyledWord], lines: tuple[str, ...]) -> list[StyledWord]:
    texts = " ".join(lines).split()
    return [replace(word, text=text) for word, text in zip(words, texts, strict=True)]


def test_a_layer_that_says_what_the_page_shows_agrees(page: tuple[Array, list[StyledWord]]) -> None:
    """A correct layer agrees almost completely, one with errors in most words clearly less, another text hardly."""
    array, words = page
    other = replace_words(words, (LINES[2], LINES[0], LINES[1]))

    right, wrong, unrelated = (
        layer_check.measure_agreement(layer, array, 2.0) or 0.0 for layer in (words, replace_words(words, WRONG), other)
    )

    assert right > 0.97
    assert 0.6 < wrong < 0.9
    assert unrelated < 0.6


def test_pixels_without_readable_lines_say_nothing(page: tuple[Array, list[StyledWord]]) -> None:
    """On an empty picture, and for a layer without long lines, there is no agreement to measure."""
    array, words = page

    assert layer_check.measure_agreement(words, np.full_like(array, 255), 2.0) is None
    assert layer_check.measure_agreement(words[:1], array, 2.0) is None


@pytest.mark.parametrize("lines", [(*CYRILLIC, IDENTIFIERS), (IDENTIFIERS, *GREEK), CYRILLIC])
def test_pixels_in_other_scripts_say_nothing(lines: tuple[str, ...]) -> None:
    """A correct layer is not compared with Latin letters that look like its Cyrillic or Greek ones."""
    array, words = draw_paragraphs(lines)

    agreement = layer_check.measure_agreement(words, array, 2.0)

    assert agreement is None


@pytest.mark.parametrize(("text", "expected"), [("PRICES ÷ 水 3", True), ("ЦЕНЫ и цены", False), ("3 + 4", True)])
def test_letters_decide_whether_the_recogniser_can_read(text: str, expected: bool) -> None:
    """Small and capital letters count alike, and signs and digits not at all."""
    assert layer_check.is_readable(text) is expected


def test_lines_in_other_scripts_are_not_sampled() -> None:
    """Only the lines in Latin script are compared, if they are most of the page."""
    array, words = draw_paragraphs((*LINES, CYRILLIC[0], GREEK[0]))

    agreement = layer_check.measure_agreement(words, array, 2.0)

    assert agreement is not None and agreement > 0.97


def test_chinese_lines_are_sampled() -> None:
    """Han characters are compared, which the recogniser reads."""
    array, words = draw_paragraphs(("水泵启动之前测量钻孔中的水位并记录时间", "两名操作员在巡视时写下他们看到的情况"))

    agreement = layer_check.measure_agreement(words, array, 2.0)

    assert agreement is not None and agreement > 0.9


def test_identifiers_make_no_layer_suspicious() -> None:
    """Names in programs are no sign of wrong fonts, alone or within Cyrillic text."""
    texts = (*CYRILLIC, *[IDENTIFIERS] * 5)

    words = [StyledWord(Rect(0, 0, 1, 1), word, 0) for word in " ".join(texts).split()]

    assert not layer_check.is_suspicious(words)


def test_only_odd_words_make_a_visible_layer_suspicious(page: tuple[Array, list[StyledWord]]) -> None:
    """Ordinary text is not compared, which keeps ordinary pages fast; text with shifted letters is."""
    _, words = page
    shifted = [replace(word, text="".join(chr(ord(letter) + 1) for letter in word.text)) for word in words]

    assert not layer_check.is_suspicious(words)
    assert layer_check.is_suspicious(shifted)


BROKEN = (
    "Every valve in the lower valley was opened in March",
    "and the reservoir above it was empty before noon.",
)


def draw_page(path: Path, characters: dict[str, str], paragraph: tuple[str, ...] = BROKEN) -> Path:
    """A page of sound text with a paragraph whose font maps its letters to other characters."""
    document = pymupdf.open()
    page = document.new_page(width=595, height=500)
    for row, line in enumerate(PROSE * 2):
        page.insert_text((60, 60 + 20 * row), line, fontsize=11, fontname="tiro")
    for row, line in enumerate(paragraph):
        page.insert_text((60, 240 + 20 * row), line, fontsize=11, fontname="helv")
    for row, line in enumerate(PROSE):
        page.insert_text((60, 340 + 20 * row), line, fontsize=11, fontname="tiro")
    (font,) = [entry[0] for entry in page.get_fonts() if entry[4] == "helv"]
    map_characters(document, font, characters)
    return save(document, path)


LETTERS = [chr(code) for code in (*range(ord("a"), ord("z") + 1), *range(ord("A"), ord("Z") + 1))]
SHIFTED = {letter: chr(ord(letter) - 1) for letter in LETTERS}
CONSONANTS = "bcdfghjklmnpqrstvwxz"
MAPS = {
    "shifted": SHIFTED,
    "consonants": dict(zip(CONSONANTS, CONSONANTS[5:] + CONSONANTS[:5], strict=True)),
    "private": {letter: chr(0xE000 + ord(letter)) for letter in LETTERS},
    "unnamed": dict.fromkeys(LETTERS, "\ufffd"),
}


@pytest.mark.parametrize("name", MAPS)
def test_only_the_words_of_a_broken_font_are_read_from_the_pixels(tmp_path: Path, name: str) -> None:
    """Wrong letters, private-use and unnamed characters of one font are read by OCR; the page stays a text layer's."""
    answer = read(draw_page(tmp_path / "broken.pdf", MAPS[name]))

    words = count_words(answer)
    expected = " ".join((*PROSE * 3, *BROKEN)).split()
    assert answer["via"] == "text_layer"
    assert sum((words & type(words)(expected)).values()) >= len(expected) - 2
    assert words.total() <= len(expected) + 2


def test_elements_with_read_words_are_flagged(tmp_path: Path) -> None:
    """Only the elements that have words of the broken font are flagged, with the recogniser's confidence."""
    answer = read(draw_page(tmp_path / "broken.pdf", SHIFTED))

    elements = LayoutFamily().parse(json.dumps(answer), 1).elements
    flagged = [element for element in elements if "broken_font" in element.flags]
    assert [BROKEN[0].split()[1] in element.text for element in elements] == [e in flagged for e in elements]
    assert all(element.confidence and element.confidence.method == "ocr" for element in flagged)


def test_odd_words_that_the_page_shows_are_kept(tmp_path: Path) -> None:
    """Words that no language has stay as they are if the pixels show the same words."""
    odd = tuple(line.translate(str.maketrans(MAPS["consonants"])) for line in BROKEN)

    answer = read(draw_page(tmp_path / "odd.pdf", {"a": "a"}, odd))

    assert set(" ".join(odd).split()) <= set(count_words(answer))
    assert not any("from_pixels" in line for box in answer["boxes"] for line in box["lines"])


@pytest.mark.parametrize(("word", "unnamed"), [("+81-86-251-8301", "+"), ("different", "f")])
def test_one_unnamed_character_of_a_word_is_read(tmp_path: Path, word: str, unnamed: str) -> None:
    """A sign whose font has no name for it is read between the letters around it; the letters stay the layer's."""
    document = pymupdf.open()
    page = document.new_page(width=595, height=300)
    for row, line in enumerate(PROSE):
        page.insert_text((60, 60 + 20 * row), line, fontsize=11, fontname="tiro")
    page.insert_text((60, 140), word, fontsize=11, fontname="helv")
    (font,) = [entry[0] for entry in page.get_fonts() if entry[4] == "helv"]
    map_characters(document, font, {unnamed: "\ufffd"})

    answer = read(save(document, tmp_path / "sign.pdf"))

    assert word in count_words(answer)
    assert answer["via"] == "text_layer"


@given(st.text(max_size=12), st.text(max_size=12))
def test_known_characters_are_never_changed(text: str, reading: str) -> None:
    """Whatever OCR reads, only unnamed characters are replaced."""
    filled = layer_check.fill_in(text, reading)

    known = [character for character in text if not prose.is_senseless(character)]
    rest = iter(filled or "")
    assert filled is None or all(character in rest for character in known)


def test_a_character_is_filled_in_only_if_all_others_agree() -> None:
    """An unnamed character is a sign or a ligature; a reading with other or many more letters fills nothing in."""
    assert layer_check.fill_in("a\ufffdb\u2013c", "a+b-c") == "a+b\u2013c"
    assert layer_check.fill_in("e\ufffdect", "effect") == "effect"
    assert layer_check.fill_in("a\ufffdb", "a+d") is layer_check.fill_in("a\ufffdb", "a++++b") is None


def make_word(text: str, x: float, font: str) -> StyledWord:
    return StyledWord(Rect(x, 10, x + 20, 20), text, 0, size=10, font=font)


fonts = st.sampled_from(["A", "B"])
drawn = st.lists(st.tuples(st.text(max_size=9), st.floats(-50, 300), fonts), max_size=12)


@given(drawn)
def test_words_on_a_blank_page_stay(page: list[tuple[str, float, str]]) -> None:
    """Where OCR reads nothing, every word stays, whatever its characters and wherever it stands."""
    words = [make_word(*word) for word in page]

    blank = np.full((100, 200, 3), 255, np.uint8)

    found = layer_check.examine_fonts(words, blank, 1.0)
    assert layer_check.repair_fonts(words, found, blank, 1.0) == tuple(words)


@pytest.mark.parametrize(("sound", "is_read"), [("источник", False), ("source", True)])
def test_other_scripts_are_not_read_as_latin(sound: str, is_read: bool) -> None:
    """Beside text in a script that the recogniser does not know, a broken font's words stay as they are."""
    with pymupdf.open() as document:
        page = document.new_page(width=300, height=60)
        page.insert_text((10, 30), BROKEN[0][:24], fontsize=14)
        pixmap = page.get_pixmap(dpi=144)
        box = Rect(*page.get_text("blocks")[0][:4])
    array = np.frombuffer(pixmap.samples, np.uint8).reshape(pixmap.height, pixmap.width, 3)
    words = [make_word(sound, 0, "A") for _ in range(20)]
    words.append(StyledWord(box, "\ue001" * 20, 1, size=14, font="B"))

    found = layer_check.examine_fonts(words, array, 2.0)
    repaired = layer_check.repair_fonts(words, found, array, 2.0)

    assert (repaired != tuple(words)) is is_read


def test_a_doubtful_line_is_taken_from_the_hidden_layer_if_that_makes_more_sense() -> None:
    """Old OCR and what OCR reads now are compared line by line; a sure line is kept whatever the layer says."""
    texts = ("Tlie hrbur baord rnet", "The lamps burn all night")
    lines = tuple(
        OcrLine(((0.0, y), (300.0, y), (300.0, y + 20.0), (0.0, y + 20.0)), text, score)
        for text, score, y in zip(texts, (0.6, 0.97), (0.0, 30.0), strict=True)
    )
    layer = [
        StyledWord(Rect(35.0 * n, 15.0 * row, 35.0 * n + 30, 15.0 * row + 10), text, row)
        for row, line in enumerate(("The harbour board met", "Tne larnps bum alI night"))
        for n, text in enumerate(line.split())
    ]
    chosen = layer_check.choose_lines(OcrResult(lines, unreadable=False), layer, 2.0)

    assert [line.text for line in chosen.lines] == ["The harbour board met", texts[1]]
