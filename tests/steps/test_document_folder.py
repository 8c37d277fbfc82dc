"""steps/document_folder.py: what the names of files depend on."""

from __future__ import annotations

import pytest

from twopass.document import Box, Checkpoint, Element, Kind, Page, State
from twopass.steps import document_folder

PAGE = Page(number=1, width_pt=1, height_pt=1, state=State.READ)


@pytest.mark.parametrize(
    ("kind", "name", "image"),
    [
        (Kind.TABLE, "p0001-e000", "images/p0001-e000.png"),
        (Kind.TABLE, "../../other-document/images/p0001-e000", None),
        (Kind.TEXT, "p0001-e000", None),
    ],
)
def test_only_crops_of_the_page_are_named(kind: Kind, name: str, image: str | None) -> None:
    """A page worker that a document has taken over cannot make another document's file a crop of this page."""
    element = Element(
        id=name,
        page=1,
        category=kind.category,
        kind=kind,
        boxes=(Box(0, 0, 1, 1),),
        image="../../other-document/document.json",
    )

    (named,) = document_folder.name_crops(Checkpoint(page=PAGE, elements=(element,))).elements

    assert named.image == image
