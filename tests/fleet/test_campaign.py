"""How documents become jobs."""

from __future__ import annotations

import pytest

from tests.fakes.platform import Json
from twopass.fleet.campaign import Plan


@pytest.mark.parametrize(
    ("fields", "pages", "slices"),
    [
        ({}, 100, []),
        ({}, 101, ["1-100", "101-101"]),
        ({}, None, []),
        ({"pages": "50-260"}, 300, ["50-149", "150-249", "250-260"]),
        ({"pages": "1-20,200-"}, 290, ["1-279", "280-290"]),
        ({"resume": False}, 300, []),
    ],
)
def test_slices_cover_the_requested_pages(fields: Json, pages: int | None, slices: list[str]) -> None:
    """Each slice is a range with the same number of requested pages; there is none if one job reads them all."""
    assert Plan(fields, "x").slices(pages) == slices
