r"""Merge the numbers that a layout detector found beside formulas into these formulas, as \tag{3}."""

from __future__ import annotations

import re
from collections.abc import Sequence

from twopass.detection.labels import Label
from twopass.document import Element, Formula, Kind
from twopass.families import content

_MAX_NUMBER = 20  # characters: a longer text is not the number of a formula
TAG, TAG_AS_WRITTEN = "tag", "tag*"  # the first one adds the parentheses when it is shown
_PARENTHESES = re.compile(r"\A[(\[（【]\s*(.*?)\s*[)\]）】]\Z", re.DOTALL)
_MATHS = re.compile(r"\A(?:\$++|\\\(|\\\[)\s*+(.*?)\s*(?:\$+|\\\)|\\\])\Z", re.DOTALL)
_HAS_TAG = re.compile(r"\\tag\*?\s*\{")


def merge(elements: Sequence[Element], tag: str = TAG) -> tuple[Element, ...]:
    """The elements, with each number that stands before or after its formula, on its height, merged into it.

    A formula that has a number already keeps it. Numbers without a formula, and those not read, stay as they are.
    """
    merged = {element.id: element for element in elements}
    for index, number in enumerate(elements):
        text = _clean_number(number.text, tag) if number.native_label == Label.FORMULA_NUMBER else ""
        if not text:
            continue
        neighbours = (*elements[index + 1 : index + 2], *elements[max(index - 1, 0) : index])
        formula = next((merged[e.id] for e in neighbours if e.id in merged and _belongs_to(number, merged[e.id])), None)
        if formula:
            merged[formula.id] = _add_number(formula, number, text, tag)
            del merged[number.id]
    return tuple(merged.values())


def _clean_number(text: str, tag: str) -> str:
    """The number as it stands in a tag, without signs that would end it; "" for what is no number."""
    text = " ".join(text.split())
    if found := _MATHS.match(text):
        text = found[1]
    if tag == TAG and (found := _PARENTHESES.match(text)):
        text = found[1]
    is_number = 0 < len(text) <= _MAX_NUMBER and any(letter.isalnum() for letter in text)
    return text if is_number and not set(text) & set("{}$\\") else ""


def _belongs_to(number: Element, formula: Element) -> bool:
    """Whether the centre of the number is on the height of a formula that was read and has one box."""
    if formula.kind is not Kind.FORMULA or not formula.text or len(formula.boxes) != 1 or not number.box:
        return False
    return formula.boxes[0].y0 <= number.box.centre[1] <= formula.boxes[0].y1


def _add_number(formula: Element, number: Element, text: str, tag: str) -> Element:
    """The formula with its number, and with the number's box as another box of its own."""
    latex = (formula.formula or Formula()).latex or formula.text
    formula = formula.model_copy(update={"boxes": (*formula.boxes, *number.boxes)})
    if _HAS_TAG.search(latex):
        return formula
    latex = f"{latex} \\{tag}{{{text}}}"
    return content.write(formula, latex, latex=latex)
