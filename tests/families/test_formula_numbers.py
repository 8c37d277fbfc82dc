"""The numbers beside formulas become part of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import documents
from twopass.document import Box, Element, Formula
from twopass.families import formula_numbers, registry

FORMULA_BOX, NUMBER_BOX, LOWER_BOX = Box(0.2, 0.4, 0.7, 0.45), Box(0.85, 0.41, 0.9, 0.43), Box(0.85, 0.6, 0.9, 0.62)


def formula(latex: str = "a = b", element_id: str = "f") -> Element:
    fields = {"id": element_id, "native_label": "display_formula", "formula": Formula(latex=latex)}
    return documents.element("formula", latex, FORMULA_BOX, **fields)


def number(text: str, box: Box = NUMBER_BOX, element_id: str = "n") -> Element:
    return documents.element("text", text, box, id=element_id, native_label="formula_number")


@pytest.mark.parametrize(
    ("name", "latex"),
    [
        ("glm_ocr", r"a = b \tag{3}"),
        ("paddleocr_vl", r"a = b \tag*{(3)}"),
        ("deepseek_ocr", r"a = b \tag{3}"),
        ("unlimited_ocr", r"a = b \tag{3}"),
    ],
)
@pytest.mark.parametrize("is_before", [False, True])
def test_a_number_beside_a_formula_is_merged_into_it(name: str, latex: str, is_before: bool) -> None:
    """On either side, in the form of the reader's own tools; the formula keeps the number's box as well."""
    pair = [number("(3)"), formula()] if is_before else [formula(), number("(3)")]

    [merged] = registry.get_family(name).finish_page(pair)

    assert (merged.id, merged.text, merged.boxes) == ("f", latex, (FORMULA_BOX, NUMBER_BOX))
    assert merged.formula and merged.formula.latex == latex and merged.markdown == f"$$\n{latex}\n$$"


@pytest.mark.parametrize(
    "elements",
    [
        [formula(), number("(3)", LOWER_BOX)],
        [formula(), number("")],
        [formula(""), number("(3)")],
        [formula(), number("see the equation below for more")],
        [formula(), number("}{")],
        [formula(), documents.element("text", "(3)", NUMBER_BOX, id="t", native_label="text")],
        [number("(3)")],
    ],
    ids=["lower", "unread number", "unread formula", "a sentence", "braces", "another label", "alone"],
)
def test_what_is_no_number_of_a_formula_stays_an_element(elements: list[Element]) -> None:
    """Nothing is lost where the pair is not certain."""
    assert formula_numbers.merge(elements) == tuple(elements)


def test_a_formula_that_has_its_number_gets_no_other() -> None:
    """The reader saw the number beside the formula; the region of the number adds its box only."""
    [merged] = formula_numbers.merge([formula(r"a = b \tag{3}"), number("(3)")])

    assert merged.text == r"a = b \tag{3}" and merged.boxes == (FORMULA_BOX, NUMBER_BOX)


def test_each_number_goes_to_a_formula_of_its_own() -> None:
    """Of two numbers beside one formula the second stays."""
    merged = formula_numbers.merge([number("(2)", element_id="m"), formula(), number("(3)")])

    assert [element.id for element in merged] == ["f", "n"]
    assert merged[0].text == r"a = b \tag{2}"


@given(st.lists(st.tuples(st.booleans(), st.text(max_size=25)), max_size=8), st.sampled_from(["tag", "tag*"]))
def test_merging_loses_no_box(parts: list[tuple[bool, str]], tag: str) -> None:
    """Whatever texts formulas and numbers have."""
    elements = [
        (formula if is_formula else number)(text, element_id=str(n)) for n, (is_formula, text) in enumerate(parts)
    ]

    merged = formula_numbers.merge(elements, tag)

    assert sorted(box for e in merged for box in e.boxes) == sorted(box for e in elements for box in e.boxes)
    assert all(element.model_dump_json() for element in merged)
