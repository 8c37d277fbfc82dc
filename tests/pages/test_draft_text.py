"""The text of a page's text layer, as a model would write it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hypothesis import assume, given
from hypothesis import strategies as st

from twopass.document import Box, Word
from twopass.pages import draft_text
from twopass.pages.draft_text import MAX_CHARACTERS
from twopass.pages.text_layer import NO_LAYER, TextLayer
from twopass.text import prose

BOX = Box(0.1, 0.1, 0.2, 0.2)  # any will do
PLACES = st.tuples(st.integers(0, 2), st.integers(0, 2))
READABLE = st.text("aeäßQZ水の.,7-\u2010\u00ad\ufb01", min_size=1, max_size=8)


def place_words(texts: st.SearchStrategy[str]) -> st.SearchStrategy[list[tuple[str, tuple[int, int]]]]:
    return st.lists(st.tuples(texts, PLACES), max_size=12)


def write(*lines: str) -> str:
    """Write lines, of one block each."""
    return write_words([(word, (number, 0)) for number, line in enumerate(lines) for word in line.split()])


def write_words(placed: Sequence[tuple[str, tuple[int, int]]]) -> str:
    return draft_text.write(TextLayer.of(Word(BOX, text) for text, _ in placed), [place for _, place in placed])


def test_lines_are_joined_as_those_of_a_paragraph() -> None:
    """The hyphen of a word that is broken at a line's end is dropped, others stay."""
    text = write("The upper spring is meas-", "ured at the pump-", "House, which is - well-", "known and old.")

    assert text == "The upper spring is measured at the pump-House, which is - wellknown and old."


def test_chinese_lines_are_joined_without_a_space() -> None:
    """The lines of a Chinese paragraph have nothing between them, as in a model's answer."""
    assert write("水质报告", "的内容") == "水质报告的内容"


def test_ligatures_are_written_as_letters() -> None:
    """Models write the letters of a ligature, whatever the font has."""
    assert write("\ufb01rst e\ufb00ect, o\ufb03ce") == "first effect, office"


def test_a_long_text_is_cut() -> None:
    """The text of a newspaper's page is longer than any answer about it."""
    assert len(write("water " * 4_000)) == MAX_CHARACTERS


def test_words_beyond_the_limit_are_not_looked_at() -> None:
    """A page with hundreds of thousands of words takes no longer than a full one, and its text is the same."""
    lines = ["a"] * (2 * draft_text.MAX_WORDS)

    assert write(*lines) == write(*lines[: draft_text.MAX_WORDS])


def test_a_layer_that_is_garbage_gives_no_text() -> None:
    """Glyphs that no font maps to characters are not worth a verification; neither is a page without words."""
    assert write("\ufffd\ufffd\ufffd ab \x02\x02") == ""
    assert draft_text.write(NO_LAYER, []) == ""


@given(place_words(READABLE))
def test_every_word_of_the_layer_is_in_the_text(placed: list[tuple[str, tuple[int, int]]]) -> None:
    """All letters of the layer are written in its order, wherever its lines are; only hyphens may be lost."""
    texts = [text for text, _ in placed]
    assume(not prose.is_garbage(" ".join(texts)))

    assert reduce_to_letters(write_words(placed)) == reduce_to_letters("".join(texts).replace("\ufb01", "fi"))


def reduce_to_letters(text: str) -> str:
    return re.sub(r"[\s\-\u2010\u00ad]", "", text)


@given(place_words(st.text(min_size=1)))
def test_any_layer_gives_a_text(placed: list[tuple[str, tuple[int, int]]]) -> None:
    """Words of any characters in any lines give some text within the limit."""
    assert len(write_words(placed)) <= MAX_CHARACTERS
