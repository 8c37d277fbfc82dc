"""The text of a page's text layer, as a model would write it."""

from __future__ import annotations

import re

from hypothesis import assume, given
from hypothesis import strategies as st

from twopass.document import Box, Word
from twopass.pages import draft_text
from twopass.pages.draft_text import MAX_CHARACTERS
from twopass.pages.text_layer import NO_LAYER, TextLayer
from twopass.text import prose

LETTER = 0.01  # width of a letter as a share of the page
SHARES = st.floats(0, 1)
BOXES = st.builds(Box.of, SHARES, SHARES, SHARES, SHARES)
PLACES = st.tuples(st.integers(0, 2), st.integers(0, 2))
READABLE = st.text("aeäßQZ水の.,7-\u2010\u00ad\ufb01", min_size=1, max_size=8)


def place_words(texts: st.SearchStrategy[str]) -> st.SearchStrategy[list[tuple[Word, tuple[int, int]]]]:
    return st.lists(st.tuples(st.builds(Word, BOXES, texts), PLACES), max_size=12)


def write(*lines: tuple[int, float, float, str]) -> str:
    """Write lines of a block, a left edge, a height on the page and a text; each of them is 0.01 high."""
    words, places = [], []
    for number, (block, x, y, text) in enumerate(lines):
        for word in text.split():
            words.append(Word(Box(x, y, x + LETTER * len(word), y + 0.01), word))
            places.append((block, number))
            x += LETTER * (len(word) + 1)
    return draft_text.write(TextLayer.of(words), places)


def test_the_lines_of_a_block_are_one_paragraph() -> None:
    """Lines are joined by spaces and blocks by a newline; the hyphen of a broken word is dropped, others stay."""
    text = write(
        (0, 0.1, 0.10, "The upper spring is meas-"),
        (0, 0.1, 0.12, "ured at the pump-"),
        (0, 0.1, 0.14, "House, which is old."),
        (1, 0.1, 0.20, "The lower one is not."),
    )

    assert text == "The upper spring is measured at the pump-House, which is old.\nThe lower one is not."


def test_chinese_lines_are_joined_without_a_space() -> None:
    """The lines of a Chinese paragraph have nothing between them, as in a model's answer."""
    assert write((0, 0.1, 0.10, "水质报告"), (0, 0.1, 0.12, "的内容")) == "水质报告的内容"


def test_the_cells_of_a_table_are_lines() -> None:
    """A model writes a tag between cells, and a cell after a newline has the same tokens as after a tag."""
    rows = write(
        (0, 0.1, 0.10, "Pump"), (0, 0.5, 0.10, "Flow"), (0, 0.1, 0.12, "North"), (0, 0.5, 0.12, "12.5")
    )  # fmt: skip

    assert rows == "Pump\nFlow\nNorth\n12.5"


def test_words_that_are_set_apart_to_justify_a_line_stay_in_it() -> None:
    """MuPDF makes a line of each word where the spaces are wide; the paragraph goes on."""
    assert write((0, 0.1, 0.1, "Bishop"), (0, 0.17, 0.1, "of"), (0, 0.1, 0.12, "Winchester")) == "Bishop of Winchester"


def test_ligatures_are_written_as_letters() -> None:
    """Models write the letters of a ligature, whatever the font has."""
    assert write((0, 0.1, 0.1, "\ufb01rst e\ufb00ect, o\ufb03ce")) == "first effect, office"


def test_a_long_text_is_cut() -> None:
    """The text of a newspaper's page is longer than any answer about it."""
    assert len(write((0, 0.1, 0.1, "water " * 4_000))) == MAX_CHARACTERS


def test_words_beyond_the_limit_are_not_looked_at() -> None:
    """A page with hundreds of thousands of words takes no longer than a full one, and its text is the same."""
    words = [(0, 0.1, 0.1, "a")] * (2 * draft_text.MAX_WORDS)

    assert write(*words) == write(*words[: draft_text.MAX_WORDS])


def test_a_layer_that_is_garbage_gives_no_text() -> None:
    """Glyphs that no font maps to characters are not worth a verification; neither is a page without words."""
    assert write((0, 0.1, 0.1, "\ufffd\ufffd\ufffd ab \x02\x02")) == ""
    assert draft_text.write(NO_LAYER, []) == ""


@given(place_words(READABLE))
def test_every_word_of_the_layer_is_in_the_text(placed: list[tuple[Word, tuple[int, int]]]) -> None:
    """All letters of the layer are written in its order, wherever its lines are; only hyphens may be lost."""
    layer = TextLayer.of(word for word, _ in placed)
    assume(not prose.is_garbage(" ".join(layer.texts)))

    text = draft_text.write(layer, [place for _, place in placed])

    assert reduce_to_letters(text) == reduce_to_letters("".join(layer.texts).replace("\ufb01", "fi"))


def reduce_to_letters(text: str) -> str:
    return re.sub(r"[\s\-\u2010\u00ad]", "", text)


@given(place_words(st.text(min_size=1)))
def test_any_layer_gives_a_text(placed: list[tuple[Word, tuple[int, int]]]) -> None:
    """Words of any characters at any place give some text within the limit."""
    text = draft_text.write(TextLayer.of(word for word, _ in placed), [place for _, place in placed])

    assert len(text) <= MAX_CHARACTERS
