"""Words whose letters stand apart are joined, and no other words are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pymupdf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engines.cpu.drawn_pages import read_lines
from twopass.document import Rect
from twopass.engines.cpu import spaced_words
from twopass.engines.cpu.content import StyledRun, StyledWord, join_words

SENTENCE = "The level in the borehole is measured before the pump starts."


def new_page() -> tuple[Any, Any]:
    document = pymupdf.open()
    return document, document.new_page(width=595, height=300)


def draw_letters(page: Any, text: str, x: float, y: float, gap: float, size: float = 12, font: str = "helv") -> None:
    """Draw each letter by itself, with a gap after it in points; a blank is as wide as three gaps."""
    measure = pymupdf.Font(font)
    for letter in text:
        if letter != " ":
            page.insert_text((x, y), letter, fontsize=size, fontname=font)
        x += 3 * gap if letter == " " else measure.text_length(letter, size) + gap


def place(parts: list[tuple[str, float]], size: float = 10) -> list[StyledWord]:
    """Words with the gap in points that follows each."""
    words, x = [], 0.0
    for text, gap in parts:
        words.append(StyledWord(Rect(x, 0, x + size / 2 * len(text), size), text, 0, size))
        x = words[-1].box.x1 + gap
    return words


def texts(words: list[StyledWord]) -> list[str]:
    return [word.text for word in words]


def test_a_letter_spaced_heading_is_words(tmp_path: Path) -> None:
    """Letters with wide gaps are the words that still wider gaps separate."""
    document, page = new_page()
    draw_letters(page, "WATER REPORT", 60, 60, 6)
    page.insert_text((60, 100), SENTENCE)

    assert read_lines(document, tmp_path) == ["WATER REPORT", SENTENCE]


@pytest.mark.parametrize("title", ["OLMo2 for Boats", "REPORT OF 2024", "Model-X2: Rivers & Lakes", "2 OLMo 2 Furious"])
def test_digits_and_signs_are_parts_of_spaced_words(tmp_path: Path, title: str) -> None:
    """A title with space between its letters keeps its digits and hyphens in their words, and its words apart."""
    document, page = new_page()
    draw_letters(page, title, 60, 60, 5, 16, "hebo")
    page.insert_text((60, 100), SENTENCE)

    assert read_lines(document, tmp_path) == [title, SENTENCE]


@pytest.mark.parametrize("spacing", [2.2, 2.6, 2.8])
def test_spaced_letters_with_kerning_are_words(tmp_path: Path, spacing: float) -> None:
    """Kerning brings some letters so close that MuPDF leaves them together; they are pieces of the same words."""
    document, page = new_page()
    draw_kerned(page, "WATER REPORT", 60, 60, spacing, {"WA": 0.6, "AT": 0.9, "RT": 0.3})
    page.insert_text((60, 100), SENTENCE)

    assert "WATER" not in page.get_text().split()
    assert read_lines(document, tmp_path) == ["WATER REPORT", SENTENCE]


def draw_kerned(page: Any, text: str, x: float, y: float, spacing: float, kerning: dict[str, float]) -> None:
    """Draw each letter by itself, with a space in points that some pairs have less of."""
    for letter, following in zip(text, text[1:] + " ", strict=True):
        if letter != " ":
            page.insert_text((x, y), letter, fontsize=12)
        x += pymupdf.Font("helv").text_length(letter, 12) + spacing - kerning.get(letter + following, 0)


def test_letters_at_equal_distances_are_words(tmp_path: Path) -> None:
    """Letters that stand in cells of one width are joined, although narrow letters leave wider gaps."""
    document, page = new_page()
    for cell, letter in enumerate("SPECIFICATIONS LIST"):
        page.insert_text((60 + 17 * cell, 60), letter, fontsize=13)
    page.insert_text((60, 100), SENTENCE)

    assert read_lines(document, tmp_path) == ["SPECIFICATIONS LIST", SENTENCE]


def test_chinese_letters_have_no_spaces(tmp_path: Path) -> None:
    """Letters that are placed one by one, with a little space, are joined; Latin words beside them are not."""
    document, page = new_page()
    draw_letters(page, "林达赫水厂从两处泉水取水", 60, 60, 3, font="china-s")
    page.insert_text((60, 100), SENTENCE)

    assert read_lines(document, tmp_path)[0] == "林达赫水厂从两处泉水取水"


def test_stacked_letters_are_a_word(tmp_path: Path) -> None:
    """A word whose letters stand one below the other is read as a word."""
    document, page = new_page()
    for row, letter in enumerate("WATER"):
        page.insert_text((60, 60 + 14 * row), letter, fontsize=12)
    page.insert_text((60, 200), SENTENCE)

    assert "WATER" in read_lines(document, tmp_path)


def test_marks_of_a_list_are_no_word(tmp_path: Path) -> None:
    """Letters that follow each other in the alphabet are marks, in a row and one below the other."""
    document, page = new_page()
    for row, letter in enumerate("ABCD"):
        page.insert_text((60, 60 + 14 * row), letter, fontsize=12)
    draw_letters(page, "ABCDE", 60, 160, 6)
    page.insert_text((60, 200), SENTENCE)

    assert read_lines(document, tmp_path) == [*"ABCD", "A B C D E", SENTENCE]


def test_a_broken_word_is_joined() -> None:
    """Narrow gaps within a word are those that the row's other gaps are much wider than."""
    parts = [
        ("This", 3.0),
        ("S", 1.2),
        ("pec", 1.0),
        ("ifi", 1.2),
        ("es", 3.0),
        ("the", 3.0),
        ("level", 3.0),
        ("of", 0.0),
    ]

    assert texts(spaced_words.join(place(parts))) == ["This", "Specifies", "the", "level", "of"]


@pytest.mark.parametrize(
    "parts",
    [
        [("a", 3), ("b", 3), ("c", 0)],
        [("J", 3), ("R", 3), ("Smith", 3), ("reads", 0)],
        [("it", 2), ("is", 2), ("a", 2), ("level", 0)],
        [("one", 3), ("Two", 1), ("Three", 3), ("four", 3), ("five", 0)],
        [("x", 30), ("y", 30), ("z", 30), ("w", 0)],
        [("where", 3), ("x", 3), ("y", 3), ("z", 3), ("w", 3), ("are", 3), ("known", 0)],
        [("I", 3), ("am", 3), ("a", 3), ("b", 3), ("c", 3), ("to", 3), ("x", 0)],
        [("2001;", 2), ("N", 2), ("Engl", 2), ("J", 2), ("Med", 2), ("344:", 2), ("3-10", 0)],
        [("N", 2), ("Engl", 2), ("J", 2), ("Med", 0)],
        [("al.", 2), ("J", 2), ("A", 2), ("m", 2), ("C", 2), ("Soc.", 0)],
        [("90", 21), ("aniline", 1.65), ("and", 1.4), ("its", 1.7), ("salts", 200), ("202", 30), ("101", 0)],
        [("form", 0.6), ("(e.g.", 1.5), ("by", 0.6), ("others.", 1.5), ("Thus", 2), ("neither", 2), ("partial", 0)],
    ],
)
def test_other_words_stay_apart(parts: list[tuple[str, float]]) -> None:
    """Variables, initials, short words, capitals, letters far apart, and words as close as others of the row."""
    assert texts(spaced_words.join(place(parts))) == [text for text, _ in parts]


def test_styles_move_with_their_letters() -> None:
    """The runs of a joined word are those of its parts at their new places."""
    first, second = place([("S", 0.5), ("pec", 0)])
    first = StyledWord(first.box, "S", 0, 10, runs=(StyledRun(0, 1, "b"),))
    second = StyledWord(second.box, "pec", 0, 10, runs=(StyledRun(1, 3, "i"),))

    merged = join_words(first, second)

    assert (merged.text, merged.runs) == ("Spec", (StyledRun(0, 1, "b"), StyledRun(2, 4, "i")))


@given(st.lists(st.tuples(st.sampled_from(["a", "Bc", "def", "水", "か。", "1"]), st.floats(-20, 40)), max_size=12))
def test_no_letter_is_lost(parts: list[tuple[str, float]]) -> None:
    """Whatever the gaps, the letters and their order stay, in rows and in stacks."""
    row = place(parts)

    assert "".join(texts(spaced_words.join(row))) == "".join(text for text, _ in parts)
    stacked = spaced_words.join_stacked([[word] for word in row])
    assert "".join(word.text for words in stacked for word in words) == "".join(text for text, _ in parts)


@pytest.mark.parametrize("font", ["helv", "tiro", "hebo"])
def test_signs_that_a_rule_separates_from_their_word_are_its_own(tmp_path: Path, font: str) -> None:
    """A full stop that is drawn by itself behind an underlined word, a little apart, has no blank before it."""
    document, page = new_page()
    x = 60.0
    for part, is_underlined in (("See the ", False), ("harbour office", True), (". Or the (", False), ("rules", True)):
        page.insert_text((x, 60), part, fontsize=11, fontname=font)
        width = pymupdf.get_text_length(part, font, 11)
        if is_underlined:
            page.draw_line((x, 62), (x + width, 62))
        x += width + (1.5 if is_underlined else 0)
    page.insert_text((x, 60), "), of May.", fontsize=11, fontname=font)

    assert read_lines(document, tmp_path) == ["See the harbour office. Or the (rules), of May."]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([("page", 3.0), (".", 3), (".", 3), (".", 3), ("5", 0)], ["page", ".", ".", ".", "5"]),
        ([("Quoi", 2.6), ("?", 0)], ["Quoi", "?"]),
        ([("office", 1.5), (").", 3), ("(", 0.5), ("see", 0)], ["office).", "(see"]),
    ],
)
def test_signs_behind_a_space_stay_apart(parts: list[tuple[str, float]], expected: list[str]) -> None:
    """Leaders, and signs that a language sets behind a space, keep it."""
    assert texts(spaced_words.join(place(parts))) == expected


def test_words_of_handwriting_are_not_joined() -> None:
    """Slanted letters leave little space between words that OCR, which is unsure of them, has read apart."""
    places = [("and", 0.0, 30.0), ("for", 31.0, 50.0), ("th", 60.0, 72.0), ("wo", 73.0, 85.0), ("jars", 95.0, 120.0)]
    row = [StyledWord(Rect(x0, 0, x1, 12), text, 0, 12, score=0.6) for text, x0, x1 in places]

    assert [word.text for word in spaced_words.join(row)] == [text for text, _, _ in places]


def test_marks_of_their_own_belong_to_the_words_before_them() -> None:
    """273,418,905 and a raised 1 as two texts, with or without space between them; a smaller word is no mark.

    Nor is the text behind a drop cap, and the mark of the next note stays before it.
    """
    number, name = (
        StyledWord(Rect(0, 0, 50, 10), "273,418,905", 0, 10),
        StyledWord(Rect(80, 0, 110, 10), "Borea", 1, 10),
    )
    marks = [StyledWord(Rect(52, -1, 56, 5), "1", 2, 6), StyledWord(Rect(110, -1, 113, 5), "b", 3, 6)]
    notes = [StyledWord(Rect(0, 130, 30, 140), "2020.", 10, 10), StyledWord(Rect(33, 130, 36, 136), "b", 10, 10)]
    notes[1] = replace(notes[1], runs=(StyledRun(0, 1, "^"),))
    cap = [StyledWord(Rect(0, 70, 30, 110), "T", 8, 46), StyledWord(Rect(31, 70, 36, 80), "o", 9, 10)]
    line = [StyledWord(Rect(0, 48, 50, 58), "clean", 6, 10), StyledWord(Rect(52, 47, 56, 53), "4", 6, 10)]
    line[1] = replace(line[1], runs=(StyledRun(0, 1, "^"),))
    others = [StyledWord(Rect(0, 24, 50, 34), "61,002", 4, 10), StyledWord(Rect(52, 28, 56, 34), "2", 5, 6)]

    joined = spaced_words.join_marks([number, name, *marks, *others, *line, *cap, *notes])

    assert [word.written for word in joined] == [
        "273,418,905¹",
        "Boreaᵇ",
        "61,002",
        "2",
        "clean⁴",
        "T",
        "o",
        "2020.",
        "b",
    ]
