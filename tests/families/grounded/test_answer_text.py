"""Text that a model writes between its tags, cleaned."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from twopass.families.grounded import answer_text


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
