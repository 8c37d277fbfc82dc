"""The LaTeX of formulas, from the positions of their characters and rules."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import pymupdf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twopass.document import Rect, enclose
from twopass.engines.cpu.content import Region, StyledWord
from twopass.engines.cpu.formulas import glyphs, symbols
from twopass.engines.cpu.formulas.glyphs import add_latex
from twopass.engines.cpu.formulas.latex import Glyph, write_latex
from twopass.engines.cpu.page import read_page
from twopass.families.layout.family import LayoutFamily
from twopass.formats.html.text import make_mathml_converter
from twopass.pages.rendered_page import PagePointer
from twopass.pages.shared_pixels import Pixels

ROOT = Path(__file__).parents[3]
CONVERT = make_mathml_converter()


def write_glyphs(text: str, x: float = 0.0, y: float = 100.0, size: float = 10.0, italic: bool = True) -> list[Glyph]:
    """Characters side by side on one base line, each half as wide as its size; a blank is a gap of that width."""
    step = size / 2
    return [
        Glyph(char, Rect(x + n * step, y - 0.7 * size, x + (n + 1) * step, y), y, size, italic and char.isalpha())
        for n, char in enumerate(text)
        if char != " "
    ]


def rule(x0: float, x1: float, y: float) -> Rect:
    return Rect(x0, y, x1, y + 0.4)


def parse(latex: str | None) -> str:
    """The LaTeX, which the converter to MathML accepts."""
    assert latex is not None and CONVERT(latex, True) is not None
    return latex


def test_a_fraction_has_a_bar_with_characters_above_and_below() -> None:
    """The bar is at the height of the minus sign, and the rest of the formula is beside it."""
    glyphs = [*write_glyphs("P="), *write_glyphs("ρgQH", 15, 93), *write_glyphs("3600η", 13, 107)]

    assert parse(write_latex(glyphs, [rule(12, 38, 97.3)])) == r"P = \frac{\rho g Q H}{3600 \eta}"


def test_fractions_are_nested() -> None:
    """The narrowest bar is inside the others, above or below them."""
    inner = [*write_glyphs("a", 12, 86, 7), *write_glyphs("b", 12, 94, 7)]
    glyphs = [*write_glyphs("1+", 0, 91.5), *inner, *write_glyphs("c", 6, 107)]

    latex = write_latex(glyphs, [rule(11, 17, 87.5), rule(0, 18, 97.3)])

    assert parse(latex) == r"\frac{1 + \frac{a}{b}}{c}"


def test_small_raised_and_lowered_characters_are_scripts() -> None:
    """Superscripts and subscripts of one character, and scripts of scripts."""
    glyphs = [*write_glyphs("x"), *write_glyphs("2", 5, 96, 7), *write_glyphs("i", 5, 102.5, 7)]
    nested = [*write_glyphs("e"), *write_glyphs("−t", 5, 96, 7), *write_glyphs("2", 12.2, 93.5, 5)]

    assert parse(write_latex(glyphs, [])) == "x_{i}^{2}"
    assert parse(write_latex(nested, [])) == "e^{- t^{2}}"


def test_operators_have_limits_above_and_below() -> None:
    """Limits may begin to the left of the operator; an integral has them at its side."""
    tall = Glyph("∑", Rect(10, 88, 22, 104), 100, 10)
    glyphs = [tall, *write_glyphs("i=1", 11, 111, 7), *write_glyphs("n", 14, 86, 7), *write_glyphs("x", 24)]
    integral = Glyph("∫", Rect(10, 88, 16, 108), 100, 10)
    sided = [integral, *write_glyphs("∞", 17, 91, 7), *write_glyphs("0", 15, 109, 7), *write_glyphs("f", 22)]
    word = [*write_glyphs("lim", italic=False), *write_glyphs("n→∞", 2, 107, 7), *write_glyphs("x", 17)]

    assert parse(write_latex(glyphs, [])) == r"\sum_{i = 1}^{n} x"
    assert parse(write_latex(sided, [])) == r"\int_{0}^{\infty} f"
    assert parse(write_latex(word, [])) == r"\lim_{n \to \infty} x"


def test_a_rule_at_a_radical_makes_a_root() -> None:
    """The root covers what is under its rule; a small number in front of it is its index."""
    radical = Glyph("√", Rect(0, 90, 8, 102), 100, 10)
    under = write_glyphs("x+1", 8)

    assert parse(write_latex([radical, *under], [rule(8, 23, 90)])) == r"\sqrt{x + 1}"
    index = write_glyphs("3", 0.5, 95, 5)
    assert parse(write_latex([*index, radical, *under], [rule(8, 23, 90)])) == r"\sqrt[3]{x + 1}"
    assert write_latex([radical, *under], []) is None


def test_a_rule_without_anything_above_it_is_an_overline() -> None:
    """The mean of a variable has a rule over it."""
    assert parse(write_latex(write_glyphs("x+y"), [rule(0, 15, 91)])) == r"\overline{x + y}"


def test_words_and_functions_are_upright() -> None:
    """Upright letters side by side are a function or text; italic ones are variables."""
    glyphs = [*write_glyphs("log", italic=False), *write_glyphs("xy", 17), *write_glyphs("if", 35, italic=False)]

    assert parse(write_latex(glyphs, [])) == r"\log x y \ \text{if}"


def test_the_number_of_a_formula_is_a_tag() -> None:
    """A number in brackets, apart from the formula."""
    glyphs = [*write_glyphs("a=b"), *write_glyphs("(2.1)", 300)]

    assert parse(write_latex(glyphs, [])) == r"a = b \tag{2.1}"


def test_accents_are_over_their_letters() -> None:
    """A combining accent follows its letter, any other one is above it."""
    combining = Glyph("\u0302", Rect(5, 90, 5, 92), 100, 10)
    above = Glyph("˜", Rect(1, 89, 4, 92), 100, 10)

    assert parse(write_latex([*write_glyphs("y"), combining], [])) == r"\hat{y}"
    assert parse(write_latex([*write_glyphs("y"), above], [])) == r"\tilde{y}"


def test_characters_that_are_scripts_by_themselves_stay_scripts() -> None:
    """Unicode has raised and lowered digits; a digit in a circle is no plain digit."""
    assert parse(write_latex(write_glyphs("E=mc²"), [])) == "E = m c {}^{2}"
    assert parse(write_latex(write_glyphs("x₁"), [])) == "x {}_{1}"
    assert write_latex(write_glyphs("①+1"), []) is None


def test_digits_apart_are_several_numbers() -> None:
    """Thousands are separated by a thin space, numbers by a wider one."""
    thousands = [*write_glyphs("10"), *write_glyphs("000", 12)]

    assert parse(write_latex(thousands, [])) == "10000"
    assert parse(write_latex(write_glyphs("1 2 3"), [])) == r"1 \ 2 \ 3"


def test_tall_brackets_grow() -> None:
    """Brackets around a fraction are in pairs of left and right."""
    brackets = [Glyph("(", Rect(0, 86, 4, 110), 100, 10), Glyph(")", Rect(12, 86, 16, 110), 100, 10)]
    glyphs = [*brackets, *write_glyphs("a", 5, 93), *write_glyphs("b", 5, 107), *write_glyphs("2", 16, 88, 7)]

    assert parse(write_latex(glyphs, [rule(5, 10, 97.3)])) == r"\left( \frac{a}{b} \right)^{2}"


def test_rows_are_gathered() -> None:
    """Lines below each other are rows."""
    glyphs = [*write_glyphs("a=b"), *write_glyphs("c=d", 0, 115)]

    assert parse(write_latex(glyphs, [])) == r"\begin{gathered} a = b \\ c = d \end{gathered}"


@pytest.mark.parametrize(
    "glyphs",
    [
        [*write_glyphs("a\ue000b")],  # a private character
        [*write_glyphs("a\ufffd")],
        [*write_glyphs("a⎡")],  # a piece of a bracket
        [*write_glyphs("A="), *write_glyphs("a", 15, 94), *write_glyphs("b", 15, 106)],  # a binomial
        [Glyph("(", Rect(0, 85, 4, 120), 100, 10), *write_glyphs("a", 5, 95), *write_glyphs("b", 5, 110)],  # a matrix
        [*write_glyphs("2", 0, 96, 7), *write_glyphs("x", 5)],  # a script before its base
        [*write_glyphs("a"), *write_glyphs("=", 12), *write_glyphs("de", 8.5, 93, 5)],  # above what follows
        [*write_glyphs("a=b"), *write_glyphs("n", 6, 108, 7)],  # below a relation
        [*write_glyphs("x"), *write_glyphs("y", 6, 97)],  # neither on the base line nor a script
        [],
    ],
)
def test_unclear_formulas_have_no_latex(glyphs: list[Glyph]) -> None:
    """One character without a certain place is enough."""
    assert write_latex(glyphs, []) is None


def test_a_rule_that_belongs_to_nothing_has_no_latex() -> None:
    """A rule with nothing below it is neither a fraction bar nor an overline."""
    assert write_latex(write_glyphs("a=b"), [rule(0, 15, 140)]) is None


def test_every_symbol_is_known_to_the_converter() -> None:
    """No entry of the tables is misspelt."""
    for char in symbols.SYMBOLS:
        latex = symbols.write_symbol(char)
        assert latex and CONVERT(f"x {latex} y", True), char
    for name in set(symbols.ACCENTS.values()):
        assert CONVERT(rf"\{name}{{x}}", True), name
    for name in symbols.FUNCTIONS:
        assert CONVERT(rf"\{name} x", True), name


def test_codes_of_tex_fonts_are_characters() -> None:
    """Fonts without Unicode names give codes of letters for operators; codes of two meanings are unknown."""
    assert [symbols.decode(char, symbols.find_font_family("ABCDEF+CMEX10")) for char in "XZp("] == [
        *("∑", "∫", "√", symbols.UNKNOWN)
    ]
    assert symbols.decode("L", "CMSY") == "ℒ"
    assert symbols.decode("2", "CMSY") == symbols.UNKNOWN
    assert symbols.decode("2", symbols.find_font_family("Times-Roman")) == "2"


CHARS = st.sampled_from([*"abXYZ0123+-=()[]{}|,.<>", *"αβΩ∑∫√≤×∞′ˆ𝑥ℝ{%&_", "\u0302", "\ue000"]) | st.characters()
POSITIONS = st.integers(0, 60)
GLYPHS = st.lists(
    st.builds(
        lambda char, x, y, size, italic: Glyph(char, Rect(x, y - 0.7 * size, x + size / 2, y), y, size, italic),
        CHARS,
        POSITIONS,
        st.sampled_from([86, 93, 96, 100, 103, 107, 115]),
        st.sampled_from([5, 7, 10, 14, 0]),
        st.booleans(),
    ),
    max_size=12,
)
RULES = st.lists(st.builds(lambda x, w, y: rule(x, x + w, y), POSITIONS, st.integers(1, 60), st.integers(80, 120)))


@given(GLYPHS, RULES)
def test_any_glyphs_give_latex_with_every_letter_or_none(glyphs: list[Glyph], rules: list[Rect]) -> None:
    """It never raises; the converter accepts the LaTeX, and its letters and digits are those of the glyphs."""
    latex = write_latex(glyphs, rules)

    if latex is not None:
        assert count_braces(latex) == 0 and CONVERT(latex, True) is not None
        assert read_letters(latex) == sorted(c for g in glyphs for c in normalise(g.text) if c.isalnum())


@given(st.text(st.sampled_from("abcxyz0123456789+-=αβγ≤×"), min_size=1, max_size=20))
def test_a_plain_line_always_has_latex(text: str) -> None:
    """Characters on one base line are written in their order, and the converter accepts them."""
    latex = parse(write_latex(write_glyphs(text), []))

    assert read_letters(latex) == sorted(c for c in text if c.isalnum())


def normalise(text: str) -> str:
    return unicodedata.normalize("NFKC", text.translate(str.maketrans("µ∆", "μΔ")))


def count_braces(latex: str) -> int:
    bare = re.sub(r"\\[{}]", "", latex)
    depth = 0
    for char in bare:
        depth += {"{": 1, "}": -1}.get(char, 0)
        assert depth >= 0
    return depth


def read_letters(latex: str) -> list[str]:
    """The letters and digits that the LaTeX shows: of commands, the Greek letters and the names of functions."""
    letters = {command: normalise(char) for char, command in symbols.SYMBOLS.items()}
    found: list[str] = []
    for command, char in re.findall(r"(\\[A-Za-z]+)|([^\W_])", latex.replace("{gathered}", "")):
        name = command[1:]
        shown = letters.get(command, name if name in symbols.FUNCTIONS else "") if command else char
        found += [c for c in shown if c.isalnum()]
    return sorted(found)


# ---- pages ----


def read_formulas(path: Path, number: int) -> list[Any]:
    with pymupdf.open(path) as document:
        pixmap = document[number - 1].get_pixmap(dpi=72)
    pixels = Pixels(pixmap.width, pixmap.height, data=bytes(pixmap.samples))
    answer = LayoutFamily().parse(read_page(PagePointer(str(path), number), pixels, None), number)
    return [element for element in answer.elements if element.formula]


def test_the_formulas_of_a_page_have_latex_and_their_text() -> None:
    """The sample's page of formulas: the LaTeX is in the Markdown, and the text keeps every word."""
    found = read_formulas(ROOT / "samples" / "sample.pdf", 5)

    assert [e.formula.latex for e in found] == [
        r"P = \frac{\rho g Q H}{3600 \eta} \tag{1}",
        r"L = 100 \times \frac{V - S - F}{V} \tag{2}",
    ]
    assert found[0].markdown == f"$$\n{found[0].formula.latex}\n$$"
    assert "3600" in found[0].text


def test_a_page_without_latex_keeps_its_text() -> None:
    """A formula that is not clear is flat text, as before."""
    layout = {"v": 2, "width": 600, "height": 800, "via": "text_layer"}
    line = {"box": (50, 300, 550, 340), "text": "A = ( a b )", "size": 10.0}
    box = {"label": "formula", "box": (50, 300, 550, 340), "lines": [line]}

    flat, clear = (
        LayoutFamily().parse(json.dumps({**layout, "boxes": [b]}), 1).elements[0]
        for b in (box, {**box, "latex": r"A = (a b)"})
    )

    assert (flat.formula and flat.formula.latex, flat.markdown) == (None, "A = ( a b )")
    assert (clear.formula and clear.formula.latex, clear.text) == ("A = (a b)", "A = ( a b )")
    assert flat.confidence and clear.confidence and flat.confidence.score < clear.confidence.score


def draw_formula(page: Any) -> None:
    """A fraction under a root, beside the letter P: in Times Italic, Symbol and lines."""
    page.insert_text((100, 200), "P =", fontname="tiit", fontsize=12)
    page.insert_text((120, 209), "\xd6", fontname="symb", fontsize=28)  # √ in Symbol's encoding
    page.insert_text((137, 193), "a+b", fontname="tiit", fontsize=12)
    page.insert_text((143, 208), "g", fontname="symb", fontsize=12)  # γ
    page.draw_line((136, 197), (158, 197), width=0.5)
    page.draw_line((135, 183), (160, 183), width=0.5)


def take_words(page: Any) -> list[StyledWord]:
    return [StyledWord(Rect(*word[:4]), word[4], n) for n, word in enumerate(page.get_text("words"))]


def read_regions(page: Any, *regions: Region) -> list[Region]:
    flags = pymupdf.TEXT_COLLECT_VECTORS
    return add_latex(page, page.get_textpage(flags=flags).extractDICT()["blocks"], regions)


def test_a_drawn_formula_is_read_from_its_page() -> None:
    """Characters and rules come from the file, and the words of the region say which are its own."""
    with pymupdf.open() as document:
        page = document.new_page()
        page.insert_text((100, 160), "A line above it", fontname="tiro", fontsize=12)
        draw_formula(page)
        words = [word for word in take_words(page) if word.box.y0 > 165]
        box = enclose([word.box for word in words])

        (region,) = read_regions(page, Region("formula", box, tuple(words)))
        (other,) = read_regions(page, Region("text", box, tuple(words)))
        (changed,) = read_regions(page, Region("formula", box, (replace(words[0], text="Q"), *words[1:])))

    assert parse(region.latex) == r"P = \sqrt{\frac{a + b}{\gamma}}"
    assert other.latex is None
    assert changed.latex is None  # the words are not those of the characters


def test_a_formula_with_other_drawings_has_no_latex() -> None:
    """Bars of a determinant that are drawn as lines would be lost."""
    with pymupdf.open() as document:
        page = document.new_page()
        draw_formula(page)
        words = take_words(page)
        box = enclose([word.box for word in words])
        page.draw_line((117, 185), (117, 206), width=0.5)

        (region,) = read_regions(page, Region("formula", box, tuple(words)))

    assert region.latex is None


def test_a_stray_sign_that_touches_a_formula_belongs_to_it() -> None:
    """The layout model may leave a radical out; letters that it left out stay paragraphs."""
    sign, letter = (StyledWord(Rect(48, 98, 56, 110), text, 9) for text in ("√", "b"))
    word = StyledWord(Rect(50, 100, 60, 110), "x", 1)
    host = Region("formula", word.box, (word,))

    with pymupdf.open() as document:
        page = document.new_page()
        merged = read_regions(page, host, Region("orphan", sign.box, (sign,)))
        apart = read_regions(page, host, Region("orphan", letter.box, (letter,)))

    assert [[w.text for w in region.words] for region in merged] == [["x", "√"]]
    assert [[w.text for w in region.words] for region in apart] == [["x"], ["b"]]


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("d2 + 9 = 34", "formula"),
        ("x ≤ sin y + max(a, b)", "formula"),
        ("E = mc² + Q/2", "formula"),
        ("H₂O + CO₂", "formula"),
        ("2 A → B", "formula"),
        ("Results for n = 12", "section-header"),
        ("3.1 A + B", "section-header"),
        ("Q & A", "section-header"),
    ],
)
def test_a_line_of_a_formula_is_no_heading(text: str, label: str) -> None:
    """What says how terms relate, in letters and not in words, is a formula, whatever the model calls it."""
    words = tuple(StyledWord(Rect(20.0 * n, 0, 20.0 * n + 15, 10), part, 0) for n, part in enumerate(text.split()))
    regions = [Region("section-header", Rect(0, 0, 200, 10), words), Region("text", Rect(0, 20, 200, 30), words)]

    assert [region.label for region in glyphs.label_formulas(regions)] == [label, "text"]
