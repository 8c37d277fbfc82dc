"""Text that a model writes between its tags, cleaned."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.answers import block
from tests.fakes.documents import build_document, checkpoint, element
from tests.fakes.markdown_readers import Page, read_with_markdown_it
from twopass.document import RungName
from twopass.families import registry, table_parser
from twopass.families.grounded import answer_text, elements
from twopass.families.interface import Rung
from twopass.formats import markdown
from twopass.text import maths


@given(st.text(alphabet="aBö1-–.· \n/@", max_size=40))
def test_only_hyphens_and_blanks_are_fixed(text: str) -> None:
    """Every other character stays in its place, numbers get no new neighbours, and no line is joined with the next."""
    fixed = answer_text.fix_hyphens(text)

    assert re.sub(r"[-\s]", "", fixed) == re.sub(r"[-\s]", "", text)
    assert re.findall(r"\d+", fixed) == re.findall(r"\d+", text)
    assert len(fixed.splitlines()) >= len(text.splitlines())


@given(st.lists(st.text(alphabet="ab c.", min_size=2).map(str.strip).filter(lambda item: len(item) > 1), min_size=2))
def test_items_of_a_list_on_one_line_are_never_joined(items: list[str]) -> None:
    """A hyphen behind a word in small letters and before a capital begins an item."""
    items = [f"Do {item}w" for item in items]

    assert answer_text.fix_hyphens("- " + "- ".join(items)).splitlines() == [f"- {item}" for item in items]


def test_words_with_capitals_in_a_list_are_never_joined() -> None:
    """In German, a noun at the end of an item looks like half of a compound: the blank behind its hyphen stays."""
    items = "- Öffnen Sie das Ventil- Warten Sie zwei Minuten- Schließen Sie es"

    assert answer_text.fix_hyphens(items) == items
    assert answer_text.fix_hyphens("- Die E- Mobilität- Die Bahn") == "- Die E-Mobilität- Die Bahn"
    assert answer_text.fix_hyphens("Die Nord- Ostsee- Bahn") == "Die Nord-Ostsee-Bahn"


def test_bullets_and_numbers_that_go_on_within_a_line_begin_items() -> None:
    """The same bullet again, or the next number behind a small letter; boxes and other numbers stay in their line."""
    expected = {
        "• Grease it• Lift it • Note it": "• Grease it\n• Lift it\n• Note it",
        "1. Pull the lever2. Turn the wheel3. Wait": "1. Pull the lever\n2. Turn the wheel\n3. Wait",
        "\uf0b7 Grease it\uf0b7 Lift it": "\uf0b7 Grease it\n\uf0b7 Lift it",
        "☐ One ☑ Two ☐ Three": "☐ One ☑ Two ☐ Three",
        "□ One ■ Two □ Three": "□ One ■ Two □ Three",
        "1. Let out CO2. Then wait": "1. Let out CO2. Then wait",
        "7. See page8. Begin at mark10. Stop": "7. See page\n8. Begin at mark10. Stop",
    }

    assert {text: answer_text.fix_hyphens(text) for text in expected} == expected


@given(st.text(alphabet="aB•◦12.) \n", max_size=40))
def test_splitting_items_changes_only_blanks(text: str) -> None:
    """Every other character stays, and no line is joined with the next."""
    split = answer_text.split_items(text)

    assert "".join(split.split()) == "".join(text.split())
    assert len(split.splitlines()) >= len(text.splitlines())


@given(
    st.lists(st.sampled_from(["x**2", "0.5**", "f(x)**2", "2**10**3", "0.3***", "** p<0.05", "*.py"]), min_size=1),
    st.sampled_from([" ", " + ", "/", ", ", "\n"]),
    st.sampled_from(["", "**Note** ", "这是**Note**，", "~~Note~~ ***Note*** ", r"\(a^{**}b^{**}\) "]),
)
def test_asterisks_of_terms_are_no_emphasis(terms: list[str], sign: str, beginning: str) -> None:
    """Powers and marks of significance stay, in the text and in what a reader shows, also beside real emphasis."""
    text = sign.join(terms)
    read = elements.with_content(element("text"), beginning + text)
    source = markdown.write(build_document(checkpoint(1, read)))[0]

    assert read.text.endswith(text) and "**Note" not in read.text and "~~" not in read.text
    assert Page(read_with_markdown_it(source)).text.endswith(" ".join(text.split()))


def test_maths_keeps_its_asterisks() -> None:
    """Marks within a formula are no emphasis."""
    assert answer_text.strip_emphasis(r"\(a^{**}b^{**}\) **c \(d\)**") == r"\(a^{**}b^{**}\) c \(d\)"


@pytest.mark.parametrize("sign", ["\r\n", "\r", "\n"])
def test_lines_may_end_in_any_way(sign: str) -> None:
    """No line end becomes two, which would end a paragraph."""
    assert answer_text.clean_prose(f"one{sign}two") == "one\ntwo"


def test_only_whole_entities_are_decoded() -> None:
    """The beginning of another word is no name of a character, nor is a part of an address."""
    text = "a?b=1&copy=2&region=3 &notit; &copyright; AT&T"

    assert answer_text.clean_prose(f"{text} &copy; &amp;lt; &#169;") == f"{text} © < ©"


def test_raised_maths_stays_maths() -> None:
    """A formula within a tag keeps its signs."""
    assert answer_text.clean_prose(r"y<sup>\(a\)</sup> z<sup>a</sup>") == r"y\(a\) zᵃ"


@pytest.mark.parametrize("family", ["deepseek_ocr", "glm_ocr"])
@given(
    st.lists(
        st.sampled_from([r"$x_i < y$", r"$\alpha$", "$n$", "$$E = mc^2$$", "$5", "US$7", "$5 = €4", "$HOME", r"\(z\)"])
    )
)
def test_dollars_enclose_formulas_and_name_amounts(family: str, parts: list[str]) -> None:
    """Whatever stands between, a formula in dollar signs has the delimiters of one, and amounts stay text."""
    inline = [re.sub(r"(?<!\$)\$([^$]+)\$(?!\$)", r"\\(\1\\)", part) for part in ("so", *parts)]
    wanted = [re.sub(r"\$\$(.+)\$\$", r"\\[\1\\]", part) for part in inline]
    text = ", and ".join(["so", *parts])

    rung = Rung(RungName.NORMAL, "", grammar="document" if family == "deepseek_ocr" else "text")
    answer = block("text", text) if family == "deepseek_ocr" else text
    [read] = registry.get_family(family).parse(answer, 1, rung).elements

    assert read.text == ", and ".join(wanted)
    source = markdown.write(build_document(checkpoint(1, read)))[0]
    shown = Page(read_with_markdown_it(source)).text
    assert shown == re.sub(r"\\[()]", "$", text)


@pytest.mark.parametrize("amounts", ["At $1 = A$ 1.50", "($5.00) and ($6.00) = C$ 15", "up to $500_000, or US$ 5"])
def test_amounts_in_two_kinds_of_dollars_are_no_formula(amounts: str) -> None:
    """A formula may end with such a letter, too, and then has signs of LaTeX."""
    assert maths.unify_dollars(rf"{amounts}, and $0 \in A$") == rf"{amounts}, and \(0 \in A\)"


def test_formulas_in_cells_have_delimiters() -> None:
    """The same in tables."""
    [part] = table_parser.split_tables("<table><tr><td>$x^2$</td><td>$5</td></tr></table>")

    assert part.table and [cell.text for cell in part.table.cells] == [r"\(x^2\)", "$5"]
