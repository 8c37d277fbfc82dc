"""The reading order of regions."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tests.detection import drawn
from twopass.detection import reading_order
from twopass.detection.region import Region, make_region
from twopass.document import Box

page_regions = st.lists(drawn.regions.filter(lambda region: region.box.area > 0), max_size=12)


def stands_above(one: Region, other: Region) -> bool:
    """The same as `find_precedence` for one pair, without arrays."""
    furniture = {"header", "header_image", "footer", "footer_image", "number"}
    if {one.native_label, other.native_label} & furniture:
        return False
    a, b = one.box, other.box
    shared = min(a.x1, b.x1) - max(a.x0, b.x0)
    reaches = b.y0 + 0.25 * min(a.height, b.height)
    return shared >= 0.5 * min(a.width, b.width) and a.y1 <= reaches and a.centre[1] < b.centre[1]


@given(page_regions)
def test_columns_equal_those_of_a_plain_loop(regions: list[Region]) -> None:
    """What stands above what is the same for arrays and for pairs."""
    found = reading_order.find_precedence(regions)

    assert found.tolist() == [[stands_above(one, other) for other in regions] for one in regions]


@given(page_regions)
def test_a_region_is_read_before_those_below_it(regions: list[Region]) -> None:
    """The order is a permutation that no column contradicts."""
    ordered = reading_order.sort(regions).regions

    assert sorted(map(id, ordered)) == sorted(map(id, regions))
    assert not any(stands_above(later, earlier) for earlier, later in itertools.combinations(ordered, 2))


@given(page_regions)
def test_the_order_of_the_model_holds_where_columns_agree(regions: list[Region]) -> None:
    """Without a contradiction, regions come in the model's order."""
    regions = [region.model_copy(update={"order": index}) for index, region in enumerate(regions)]

    ordered = reading_order.sort(regions)

    if not ordered.contradictions:
        assert list(ordered.regions) == regions


def test_a_wrong_order_in_a_column_is_corrected() -> None:
    """Two columns whose left one the model reads from below are read from above, and the right one after it."""
    left = [make_region("text", Box(0.1, y, 0.45, y + 0.2), order=order) for y, order in ((0.1, 1), (0.35, 0))]
    right = [make_region("text", Box(0.55, y, 0.9, y + 0.2), order=order) for y, order in ((0.1, 2), (0.35, 3))]

    ordered = reading_order.sort([*right, *left])

    assert list(ordered.regions) == [*left, *right]
    assert ordered.contradictions == 1


def test_a_missed_paragraph_follows_the_region_above_it() -> None:
    """A region without an order is placed in its own column, not at the end of the page."""
    upper = make_region("text", Box(0.1, 0.1, 0.45, 0.2), order=0)
    missed = make_region("text", Box(0.1, 0.25, 0.45, 0.4))
    lower = make_region("text", Box(0.1, 0.5, 0.45, 0.9), order=1)
    right = make_region("text", Box(0.55, 0.1, 0.9, 0.9), order=2)

    ordered = reading_order.sort([upper, lower, right, missed])

    assert list(ordered.regions) == [upper, missed, lower, right]
