"""Polygons of regions: which can be used, and what becomes of the others."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tests.detection import drawn
from twopass.detection import polygons
from twopass.detection.region import Region, make_region
from twopass.document import Box

wild_points = st.tuples(st.floats(width=32), st.floats(width=32))


@given(st.lists(wild_points, max_size=8).map(tuple))
def test_any_polygon_becomes_usable_or_none(polygon: polygons.Polygon) -> None:
    """A cleaned polygon has an area and lies on the page; cleaning it again changes nothing."""
    cleaned = polygons.clean_polygon(polygon)

    assert polygons.clean_polygon(cleaned) == cleaned
    if cleaned:
        assert len(cleaned) >= 3
        assert all(0 <= side <= 1 and math.isfinite(side) for point in cleaned for side in point)


@given(st.lists(drawn.regions, max_size=10))
def test_dropped_regions_are_counted(regions: list[Region]) -> None:
    """Each region is kept or dropped, and the dropped ones are counted."""
    repaired = polygons.repair(regions)

    assert len(repaired.regions) + repaired.dropped == len(regions)


def test_a_degenerate_polygon_gives_way_to_its_box() -> None:
    """A line is no polygon; its region keeps its box."""
    line = make_region("text", Box(0.1, 0.1, 0.5, 0.5), polygon=[(0.1, 0.1), (0.5, 0.5), (0.1, 0.1)])
    square = make_region("text", Box(0.1, 0.1, 0.5, 0.5), polygon=[(0.1, 0.1), (0.5, 0.1), (0.5, 0.5), (0.1, 0.5)])

    repaired = polygons.repair([line, square])

    assert [region.polygon for region in repaired.regions] == [(), square.polygon]
    assert repaired.dropped == 0


def test_a_region_without_area_is_dropped() -> None:
    """A crop of no width stopped a server of others, so that none is ever sent."""
    flat = make_region("text", Box(0.1, 0.5, 0.9, 0.5))

    assert polygons.repair([flat]) == polygons.Repaired((), 1)
