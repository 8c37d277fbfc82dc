"""A text between two items of a list is an item, too."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import documents
from twopass.document import Box, Element
from twopass.families.regions.elements import add_missing_bullets
from twopass.families.regions.family import RegionFamily
from twopass.families.regions.reader import READERS
from twopass.models import MODELS


def stack(*texts: str, left: float = 0.1, kind: str = "text") -> list[Element]:
    """Elements one below the other; the second one begins at `left` and is of the given kind."""
    return [
        documents.element(
            kind if n == 1 else "text",
            text,
            Box(left if n == 1 else 0.1, n / 9, 0.9, (n + 0.5) / 9),
            id=str(n),
            markdown=text,
        )
        for n, text in enumerate(texts)
    ]


def test_a_text_between_two_items_gets_a_bullet() -> None:
    """Every reader's pages are completed; the text itself stays as it was read."""
    for name in READERS:
        _, middle, _ = RegionFamily(MODELS[name]).finish_page(stack("- lime", "sand", "- gravel"))

        assert (middle.text, middle.markdown) == ("sand", "- sand")


@pytest.mark.parametrize(
    "elements",
    [
        stack("- lime", "sand"),
        stack("- lime", "sand", "gravel"),
        stack("lime", "sand", "- gravel"),
        stack("- lime", "sand", "- gravel", left=0.12),
        stack("- lime", "", "- gravel"),
        stack("- lime", "Sand", "- gravel", kind="section_header"),
    ],
)
def test_other_texts_get_none(elements: list[Element]) -> None:
    """At the end of a list, with an edge of its own, without text, and in a heading."""
    assert add_missing_bullets(elements) == tuple(elements)


@given(st.lists(st.sampled_from(["- a", "b", ""]), max_size=6))
def test_only_markdown_changes(texts: list[str]) -> None:
    """No element is added, moved or removed."""
    elements = stack(*texts)

    completed = add_missing_bullets(elements)

    assert [element.text for element in completed] == texts
    assert [e.model_copy(update={"markdown": ""}) for e in completed] == [
        e.model_copy(update={"markdown": ""}) for e in elements
    ]
