"""The reading order of regions: the model's, corrected where it contradicts the columns.

A region that ends above another of the same column is read before it, whatever the model says. Where this decides
nothing, the model's order holds.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from twopass.detection.labels import RULES
from twopass.detection.region import Region
from twopass.detection.suppression import stack_boxes
from twopass.document import Layer

_SAME_COLUMN = 0.5  # of the narrower region's width that two regions of one column share
_OVERHANG = 0.25  # of the lower height by which a region may reach into the one below it: boxes are not exact


class Ordered(NamedTuple):
    """Regions in reading order. `contradictions` counts the pairs that the model had in the opposite order."""

    regions: tuple[Region, ...]
    contradictions: int


def sort(regions: Sequence[Region]) -> Ordered:
    """Put regions in reading order. Regions that the model did not see follow the one above them in their column."""
    before = find_precedence(regions)
    ranks = _rank(regions, before)
    contradictions = int((before & (ranks[:, None] > ranks[None, :])).sum())
    return Ordered(tuple(regions[index] for index in _sort_topologically(before, ranks)), contradictions)


def find_precedence(regions: Sequence[Region]) -> npt.NDArray[np.bool_]:
    """[i, j] is True where i stands above j in one column. Headers, footers and page numbers are in no column."""
    boxes = stack_boxes([region.box for region in regions])
    x0, y0, x1, y1 = boxes.T
    shared = np.minimum(x1[:, None], x1) - np.maximum(x0[:, None], x0)
    in_column = shared >= _SAME_COLUMN * np.minimum((x1 - x0)[:, None], x1 - x0)
    lower_height = np.minimum((y1 - y0)[:, None], y1 - y0)
    centre = (y0 + y1) / 2
    is_above = (y1[:, None] <= y0 + _OVERHANG * lower_height) & (centre[:, None] < centre)
    is_body = np.array([_is_body(region) for region in regions], bool)
    return np.asarray(in_column & is_above & is_body[:, None] & is_body[None, :])


def _is_body(region: Region) -> bool:
    return region.label is None or RULES[region.label].layer is Layer.BODY


def _rank(regions: Sequence[Region], before: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """The model's order; a region that the model did not see comes directly after the nearest one above it."""
    ranks = np.array([np.nan if region.order is None else region.order for region in regions], float)
    bottoms = np.array([region.box.y1 for region in regions], float)
    tops = np.array([region.box.y0 for region in regions], float)
    seen = ~np.isnan(ranks)
    filled = ranks.copy()
    for index in np.flatnonzero(~seen):
        above, below = np.flatnonzero(before[:, index] & seen), np.flatnonzero(before[index] & seen)
        if len(above):
            filled[index] = ranks[above[np.argmax(bottoms[above])]] + 0.5
        elif len(below):
            filled[index] = ranks[below].min() - 0.5
        elif seen.any():
            higher = seen & (tops <= tops[index])
            filled[index] = ranks[higher].max() + 0.5 if higher.any() else ranks[seen].min() - 0.5
        else:
            filled[index] = tops[index]
    return filled


def _sort_topologically(before: npt.NDArray[np.bool_], ranks: npt.NDArray[np.float64]) -> list[int]:
    """Of the regions whose predecessors are all placed, the lowest rank comes next.

    There is no cycle, because a predecessor's centre is always higher on the page.
    """
    waiting = before.sum(axis=0)
    ready = [(float(ranks[index]), index) for index in np.flatnonzero(waiting == 0).tolist()]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, index = heapq.heappop(ready)
        order.append(index)
        for follower in np.flatnonzero(before[index]).tolist():
            waiting[follower] -= 1
            if waiting[follower] == 0:
                heapq.heappush(ready, (float(ranks[follower]), follower))
    return order
