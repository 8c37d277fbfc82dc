"""Suppression and containment, compared with plain loops over all pairs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.detection import drawn
from twopass.detection import suppression
from twopass.detection.labels import Label
from twopass.detection.region import Region, make_region
from twopass.document import Box

page_regions = st.lists(drawn.regions.filter(lambda region: region.box.area > 0), max_size=14)


def suppress_plainly(regions: list[Region]) -> list[bool]:
    """The best region first, each dropping the later ones that are nearly the same."""
    kept: list[int] = []
    for index in sorted(range(len(regions)), key=lambda i: -regions[i].score):
        one = regions[index]
        for other_index in kept:
            other = regions[other_index]
            limit = 0.6 if one.native_label == other.native_label else 0.98
            shared = one.box.overlap(other.box)
            if shared >= limit * (one.box.area + other.box.area - shared):
                break
        else:
            kept.append(index)
    return [index in kept for index in range(len(regions))]


def contain_plainly(regions: list[Region]) -> list[bool]:
    def is_inside(i: int, j: int) -> bool:
        if i == j or regions[i].box.overlap(regions[j].box) < 0.8 * regions[i].box.area:
            return False
        return (-regions[i].box.area, i) > (-regions[j].box.area, j)

    count = range(len(regions))
    lists = {
        j
        for j in count
        if regions[j].label is Label.REFERENCE
        and any(is_inside(i, j) and regions[i].label is not Label.REFERENCE for i in count)
    }
    kept = []
    for i in count:
        protected = regions[i].label in (Label.IMAGE, Label.SEAL, Label.CHART)
        inside = any(is_inside(i, j) for j in count if j not in lists)
        kept.append(i not in lists and (protected or not inside))
    return kept


@given(page_regions)
def test_suppression_equals_a_plain_loop(regions: list[Region]) -> None:
    """Of regions that are nearly the same, the one of the highest score remains."""
    assert suppression.find_unsuppressed(regions).tolist() == suppress_plainly(regions)


@given(page_regions)
def test_containment_equals_a_plain_loop(regions: list[Region]) -> None:
    """A region inside another is dropped, except pictures, seals and charts, and entries of a list of references."""
    assert suppression.find_uncontained(regions).tolist() == contain_plainly(regions)


@given(st.lists(drawn.boxes, max_size=10), st.lists(drawn.boxes, max_size=10))
def test_shared_areas_equal_those_of_pairs(boxes: list[Box], others: list[Box]) -> None:
    """The area of each pair is what the two boxes share."""
    areas = suppression.overlap_areas(suppression.stack_boxes(boxes), suppression.stack_boxes(others))

    assert areas.shape == (len(boxes), len(others))
    assert all(
        abs(areas[i, j] - box.overlap(other)) < 1e-12 for i, box in enumerate(boxes) for j, other in enumerate(others)
    )


@given(page_regions, st.booleans())
def test_every_dropped_region_is_covered_or_unsure(regions: list[Region], is_landscape: bool) -> None:
    """Selection keeps the order, and invents nothing."""
    kept = suppression.select(regions, is_landscape)

    remaining = iter(regions)
    assert all(any(region is other for other in remaining) for region in kept)
    assert all(region.score >= suppression.THRESHOLD for region in kept)


def test_a_picture_of_the_whole_page_is_dropped_unless_it_is_all() -> None:
    """A scan is not one picture, but a page that shows one picture is."""
    page = make_region("image", Box(0.0, 0.0, 1.0, 0.95), score=0.9)
    text = make_region("text", Box(0.1, 0.1, 0.4, 0.4), score=0.9)

    assert suppression.select([page, text]) == [text]
    assert suppression.select([page]) == [page]


def test_entries_replace_their_list_of_references() -> None:
    """A list of references gives way to its entries; alone it remains."""
    whole = make_region("reference", Box(0.1, 0.1, 0.9, 0.9))
    entry = make_region("reference_content", Box(0.1, 0.1, 0.9, 0.2))

    assert suppression.select([whole, entry]) == [entry]
    assert suppression.select([whole]) == [whole]
