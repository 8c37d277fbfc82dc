"""Choose among overlapping regions: score thresholds, suppression and containment, for all pairs at once in NumPy.

The thresholds are those of the GLM-OCR SDK and PaddleX for PP-DocLayoutV3.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from twopass.detection.labels import Label
from twopass.detection.region import Region
from twopass.document import Box

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

THRESHOLD = 0.3
_SAME_LABEL_IOU, _OTHER_LABEL_IOU = 0.6, 0.98  # intersection over union from which the lower score is dropped
_CONTAINED = 0.8  # of a region's area inside another
_NEVER_DROPPED = frozenset({Label.IMAGE, Label.SEAL, Label.CHART})  # by containment
_CONTAINERS = frozenset({Label.REFERENCE})  # dropped if they contain regions; others replace what they contain
# A picture larger than this share of the page is the page itself, if anything else was found on it.
_LANDSCAPE_PICTURE, _PORTRAIT_PICTURE = 0.82, 0.93


def select(regions: Sequence[Region], is_landscape: bool = False, threshold: float = THRESHOLD) -> list[Region]:
    """The regions that remain, in their order."""
    regions = [region for region in regions if region.box.area > 0 and region.score >= threshold]
    regions = _keep(regions, find_unsuppressed(regions))
    regions = _keep(regions, _find_parts_of_page(regions, is_landscape))
    return _keep(regions, find_uncontained(regions))


def _keep(regions: Sequence[Region], flags: Flags) -> list[Region]:
    return [region for region, is_kept in zip(regions, flags, strict=True) if is_kept]


def find_unsuppressed(regions: Sequence[Region]) -> Flags:
    """Which regions are not nearly the same as another of a higher score; of equal scores, the first remains."""
    boxes = stack_boxes([region.box for region in regions])
    areas = _areas(boxes)
    shared = overlap_areas(boxes)
    labels = np.array([region.native_label for region in regions], dtype=object)
    limits = np.where(labels[:, None] == labels[None, :], _SAME_LABEL_IOU, _OTHER_LABEL_IOU)
    is_same = shared >= limits * (areas[:, None] + areas[None, :] - shared)
    kept, dropped = np.zeros(len(regions), bool), np.zeros(len(regions), bool)
    for index in np.argsort([-region.score for region in regions], kind="stable"):
        if not dropped[index]:
            kept[index] = True
            dropped |= is_same[index]
    return kept


def _find_parts_of_page(regions: Sequence[Region], is_landscape: bool) -> Flags:
    """Which regions are not a picture of the whole page; all of them if nothing else was found."""
    limit = _LANDSCAPE_PICTURE if is_landscape else _PORTRAIT_PICTURE
    flags = np.array([region.label is not Label.IMAGE or region.box.area <= limit for region in regions], bool)
    return flags if flags.any() else ~flags


def find_uncontained(regions: Sequence[Region]) -> Flags:
    """Which regions are neither inside another nor a list of references with regions of its own.

    Of two regions that contain each other, the smaller is inside the larger; of equal ones, the later.
    """
    boxes = stack_boxes([region.box for region in regions])
    areas = _areas(boxes)
    inside = overlap_areas(boxes) >= _CONTAINED * areas[:, None]  # [i, j]: i is inside j
    rank = np.argsort(np.argsort(-areas, kind="stable"), kind="stable")  # 0 is the largest
    inside &= rank[:, None] > rank[None, :]
    is_container = np.array([region.label in _CONTAINERS for region in regions], bool)
    is_protected = np.array([region.label in _NEVER_DROPPED for region in regions], bool)
    dropped_outer = is_container & (inside & ~is_container[:, None]).any(axis=0)
    dropped_inner = (inside & ~dropped_outer[None, :]).any(axis=1) & ~is_protected & ~dropped_outer
    return np.asarray(~(dropped_outer | dropped_inner))


def stack_boxes(boxes: Sequence[Box] | Floats) -> Floats:
    return np.array(boxes, float).reshape(len(boxes), 4)


def overlap_areas(boxes: Floats, others: Floats | None = None) -> Floats:
    """The area that each box shares with each of the others, or of `boxes` among themselves."""
    others = boxes if others is None else others
    least = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    sides = np.maximum(least - np.maximum(boxes[:, None, :2], others[None, :, :2]), 0)
    return np.asarray(sides[..., 0] * sides[..., 1])


def _areas(boxes: Floats) -> Floats:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
