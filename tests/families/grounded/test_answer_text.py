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


def test_bullets_and_numbers_that_go_on_within_a_line_begin_items() -> None:
    """The same bullet again, or the next number behind a small letter; boxes and other numbers stay in their line."""
    expected = {
        "• Grease it• Lift it • Note it": "• Grease it\n• Lift it\n• Note it",
        "1. Pull the lever2. Turn the wheel3. Wait": "1. Pull the lever\n2. Turn the wheel\n3. Wait",
        "☐ One ☑ Two ☐ Three": "☐ One ☑ Two ☐ Three",
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
