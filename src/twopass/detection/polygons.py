"""Repair the polygons of regions: degenerate ones give way to the box."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from twopass.detection.region import Polygon, Region

Points = npt.NDArray[np.float64]

_MIN_POLYGON_AREA = 1e-6  # of the page: a square of 1 in 1,000
_MIN_SIDE = 0.001  # of the page: a box with a shorter side holds no letter, and no reader accepts its crop


class Repaired(NamedTuple):
    """Regions whose boxes and polygons can be used, and how many were dropped for that."""

    regions: tuple[Region, ...]
    dropped: int


def repair(regions: Sequence[Region]) -> Repaired:
    """Clip polygons to the page, replace degenerate ones by their region's box, and drop regions without area."""
    kept = []
    for region in regions:
        if min(region.box.width, region.box.height) < _MIN_SIDE:
            continue
        polygon = clean_polygon(region.polygon)
        if polygon != region.polygon:
            region = region.model_copy(update={"polygon": polygon})
        kept.append(region)
    return Repaired(tuple(kept), len(regions) - len(kept))


def clean_polygon(polygon: Polygon) -> Polygon:
    """The polygon without points that repeat or are not finite, clipped to the page; () if nothing is left of it."""
    if not polygon:
        return ()
    points = np.array(polygon, float)
    points = np.clip(points[np.isfinite(points).all(axis=1)], 0.0, 1.0)
    if len(points):
        points = points[(points != np.roll(points, 1, axis=0)).any(axis=1)]
    if len(points) < 3 or measure_area(points) < _MIN_POLYGON_AREA:
        return ()
    return tuple((float(x), float(y)) for x, y in points)


def measure_area(points: Points) -> float:
    """The area inside a polygon that does not cross itself."""
    x, y = points[:, 0], points[:, 1]
    return float(abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2)
