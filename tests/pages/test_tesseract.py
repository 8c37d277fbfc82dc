"""Strips of lines as images for Tesseract."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from twopass.pages import scripts, tesseract
from twopass.pages.scripts import PageLanguage, Tesseract
from twopass.pages.strips import Array, Letter
from twopass.pages.tesseract import Glyph


@given(st.lists(st.integers(1, 40_000), max_size=400), st.sampled_from([40, 56, 64]))
def test_every_strip_is_in_one_image_that_tesseract_takes(widths: list[int], height: int) -> None:
    """Neither a very long line nor many lines make an image that is refused or fills the memory."""
    scaled = [np.broadcast_to(np.uint8(0), (height, min(width, tesseract.WIDEST - 2 * height))) for width in widths]
    batches = list(tesseract._split_batches(scaled, height))

    assert sum(map(len, batches)) == len(scaled)
    for batch in batches:
        rows, columns = (2 * len(batch) + 1) * height, max(strip.shape[1] for strip in batch) + 2 * height
        assert max(rows, columns) <= tesseract.WIDEST
        assert len(batch) == 1 or rows * columns <= tesseract.MAX_PIXELS


def place(text: str, x: float) -> list[Glyph]:
    """A word whose letters are ten pixels apart."""
    return [Glyph(letter, x + 10 * number, x + 10 * number + 9) for number, letter in enumerate(text)]


def spell(words: Sequence[Sequence[Glyph]]) -> list[str]:
    return ["".join(glyph.text for glyph in word) for word in words]


def test_letters_that_tesseract_reads_in_two_lines_are_read_once() -> None:
    """The longest line counts, whichever comes first, and MuPDF's word across the end of a line is two."""
    whole = [place("level", 0), place("is", 60), place("measured", 100)]
    part, joined = place("sune", 130), [*place("at", 190), *place("measuned", 101)]
    run_on = place("levelismeasure", 5)

    assert spell(tesseract.drop_repeated([part, *whole, joined], 40)) == ["level", "is", "measured", "at"]
    assert spell(tesseract.drop_repeated([*whole, place("lvl", 10)], 40)) == ["level", "is", "measured"]
    assert spell(tesseract.drop_repeated([*whole, run_on], 40)) == ["level", "is", "measured"]


@given(st.lists(st.tuples(st.text("ab\u0e49", min_size=1, max_size=5), st.integers(1, 90))), st.booleans())
def test_a_line_of_which_no_letters_overlap_stays_whole(words: list[tuple[str, int]], is_rtl: bool) -> None:
    """From left to right, whichever way it is read."""
    line, x = list[list[Glyph]](), 0.0
    for text, gap in words:
        line.append(place(text, x + gap))
        x = line[-1][-1].x1 + gap

    assert tesseract.drop_repeated(line[::-1] if is_rtl else line, 40) == line


def test_latin_words_of_a_right_to_left_line_keep_their_order() -> None:
    """The line is given from left to right; only its right-to-left words are reversed."""
    assert scripts.order_rtl(["\u0628", "World", "Bank", "\u0627"]) == ["\u0627", "World", "Bank", "\u0628"]


@given(st.lists(st.sampled_from(["ab", "C", "\u0627", "12", "\u0628"])))
def test_ordering_a_line_loses_no_word(words: list[str]) -> None:
    """Whatever the words are."""
    assert sorted(scripts.order_rtl(words)) == sorted(words)


@given(st.lists(st.tuples(st.floats(0, 400), st.sampled_from(["\uac00", "1", "."]))), st.lists(st.floats(0, 380)))
def test_joining_a_korean_line_loses_no_letter(letters: list[tuple[float, str]], words: list[float]) -> None:
    """Spaces are added between letters and Latin words, and nothing else changes."""
    glyphs = [Glyph(text, x, x + 10) for x, text in letters]
    latin = [Glyph("ab", x, x + 20) for x in words]
    text = scripts.join_korean(glyphs, latin, np.full((20, 420, 3), 255, np.uint8))

    assert sorted(text.replace(" ", "")) == sorted("".join(glyph.text for glyph in (*glyphs, *latin)))


def test_a_latin_word_that_cannot_be_read_makes_its_line_doubtful() -> None:
    """Where RapidOCR is unsure of Latin letters, even of the word alone, Tesseract reads something else."""
    strip = np.full((20, 100, 3), 255, np.uint8)
    strip[4:16, 20:60:3] = 0
    letters = [Letter(text, 25.0 + 10 * n, 0.6) for n, text in enumerate("Pum")]

    assert scripts.find_latin_words(strip, letters, lambda _: letters) == scripts.LatinWords((), scripts.DOUBTFUL_SCORE)


def read_as(*texts: str) -> list[str | None]:
    """Read one strip with a Tesseract that gives these texts, one a call."""
    answers = iter(texts)

    def recognise(strips: Sequence[Array], language: str, height: int) -> list[list[list[Glyph]]]:
        return [[[Glyph(letter, 0, 1) for letter in next(answers)]] for _ in strips]

    engine = Tesseract(frozenset({"rus", "eng"}), recognise)
    return scripts.read(engine, [np.full((40, 400, 3), 255, np.uint8)], PageLanguage("rus", 0.9))


def test_what_two_sizes_of_a_latin_line_agree_on_is_read() -> None:
    """Of a page in Cyrillic, a line of Latin words is trusted only if it stays the same in another size."""
    assert read_as("Microsoft Azure", "Microsoft Azure") == ["Microsoft Azure"]
    assert read_as("Mlcr0s 5fi Aru", "Hiuna Wzne 1") == [None]
    assert read_as("1234 5678", "1234 5678") == [None]
