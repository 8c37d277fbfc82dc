"""The text layer of a page: packed for transfer between processes, and grouped into paragraphs."""

from __future__ import annotations

import pickle
import re
from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.fakes.source_files import SENTENCE
from twopass.document import Box, Word
from twopass.pages import text_layer
from twopass.pages.text_layer import MAX_CHARACTERS, NO_LAYER, TextLayer, to_paragraph_elements
from twopass.text import prose

SHARES = st.floats(0, 1)
BOXES = st.builds(Box.of, SHARES, SHARES, SHARES, SHARES)
WORDS = st.lists(st.builds(Word, BOXES, st.text(min_size=1)), max_size=12)


@given(WORDS)
def test_a_text_layer_equals_the_words_it_was_made_from(words: list[Word]) -> None:
    """Before and after pickling, single words and slices are the original ones, with boxes equal to the last bit."""
    layer = TextLayer.of(words)

    for same in (layer, pickle.loads(pickle.dumps(layer))):
        assert list(same) == words == [same[n] for n in range(len(same))]
        assert list(same[1:3]) == words[1:3]
        assert bool(same) == bool(words)
        assert same == layer and hash(same) == hash(layer)
        assert (same == TextLayer.of(words[1:])) == (not words)


@given(WORDS, st.lists(BOXES, max_size=3), st.sampled_from((0.0, 0.01, 0.5)))
def test_a_word_is_inside_a_box_that_contains_its_centre(words: list[Word], boxes: list[Box], margin: float) -> None:
    """Each word is returned once and in the layer's order, even if it lies in two boxes."""

    def contains(box: Box, x: float, y: float) -> bool:
        return box.x0 - margin <= x <= box.x1 + margin and box.y0 - margin <= y <= box.y1 + margin

    inside = [word.text for word in words if any(contains(box, *word.box.centre) for box in boxes)]

    assert TextLayer.of(words).inside(boxes, margin) == " ".join(inside)


def test_an_empty_layer_has_no_words() -> None:
    """NO_LAYER is falsy and holds no text in any box."""
    assert not NO_LAYER and NO_LAYER.inside([Box(0, 0, 1, 1)]) == ""


def make_words(text: str) -> tuple[Word, ...]:
    return tuple(Word(Box(0.1 * n, 0.1, 0.1 * n + 0.09, 0.12), word) for n, word in enumerate(text.split()))


@pytest.mark.parametrize("letter", ["\ufffd", "\uf0b7", "\U000f1234", "\x02", "\x93"])
def test_a_text_layer_without_meaning_is_rejected(letter: str) -> None:
    """Fonts without a character map yield replacement, private-use and control characters instead of letters."""
    garbage = make_words(f"{letter * 4} ab {letter * 3}")

    assert to_paragraph_elements(garbage, 1) == ()


@pytest.mark.parametrize("text", ["水质 报告", "수질 보고서", "\uf0b7 Bullets of symbol fonts", "naïve – “quoted”"])
def test_a_text_layer_in_any_script_is_accepted(text: str) -> None:
    """A private-use bullet among words does not make a text layer garbage."""
    found = to_paragraph_elements(make_words(text), 1)

    assert " ".join(element.text for element in found) == text


PUMPS = "The level in the borehole is measured before the pump starts and after it has run for one hour. "
RULES = "Nobody may open the valve of the upper spring without telling both operators of the water works first. "
YEARS = "Prices are those of January, and half of what was lost last summer is now thought to lie in other villages. "
PROSE = PUMPS + RULES + YEARS + SENTENCE
NETS = "GND VCC VDD VSS SCK NRST SWCLK SWDIO SPLY XTRST PWM CTRL VBAT " * 20
PARTS = " ".join(f"BGX-{number}-TRK M{number}x12 DIN{number} HQLR{number}" for number in range(4000, 4100))


def test_a_text_layer_with_exchanged_letters_is_rejected() -> None:
    """A font that maps every letter to another one yields words of consonants in any capitalisation."""
    exchanged = PROSE.lower().translate(str.maketrans("abcdefghijklmnopqrstuvwxyz", "zabcdefghijklmnopqrstuvwxy"))

    assert to_paragraph_elements(make_words(exchanged), 1) == ()


@pytest.mark.parametrize(
    "text",
    [PROSE, PROSE.upper(), NETS, PARTS, "Strč prst skrz krk, plch zdrhl skrz drn. " * 20],
    ids=["prose", "capitals", "nets", "parts", "czech"],
)
def test_words_with_few_vowels_are_accepted(text: str) -> None:
    """Acronyms, part numbers and Czech are not garbage."""
    assert to_paragraph_elements(make_words(text), 1)


BOX = Box(0.1, 0.1, 0.2, 0.2)  # any will do
PLACES = st.tuples(st.integers(0, 2), st.integers(0, 2))
READABLE = st.text("aeäßQZ水の.,7-\u2010\u00ad\ufb01", min_size=1, max_size=8)


def place_words(texts: st.SearchStrategy[str]) -> st.SearchStrategy[list[tuple[str, tuple[int, int]]]]:
    return st.lists(st.tuples(texts, PLACES), max_size=12)


def write(*lines: str) -> str:
    """Write lines, of one block each."""
    return write_words([(word, (number, 0)) for number, line in enumerate(lines) for word in line.split()])


def write_words(placed: Sequence[tuple[str, tuple[int, int]]]) -> str:
    return text_layer.write_draft(TextLayer.of(Word(BOX, text) for text, _ in placed), [place for _, place in placed])


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
    lines = ["a"] * (2 * text_layer.MAX_WORDS)

    assert write(*lines) == write(*lines[: text_layer.MAX_WORDS])


def test_a_layer_that_is_garbage_gives_no_text() -> None:
    """Glyphs that no font maps to characters are not worth a verification; neither is a page without words."""
    assert write("\ufffd\ufffd\ufffd ab \x02\x02") == ""
    assert text_layer.write_draft(NO_LAYER, []) == ""


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


def test_a_word_on_two_lines_keeps_its_line_end() -> None:
    """The document's words decide on the hyphen, also where only the layer is shown."""
    places = {"old": Box(0.1, 0.1, 0.2, 0.12), "har-": Box(0.2, 0.1, 0.3, 0.12), "bours": Box(0.1, 0.13, 0.2, 0.15)}
    layer = TextLayer.of(Word(box, text) for text, box in places.items())

    assert [element.text for element in to_paragraph_elements(layer, 1)] == ["old har-\nbours"]
