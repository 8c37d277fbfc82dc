"""Turn the raw outputs of PP-DocLayoutV3 into regions, as Transformers' own post-processing does.

Scores, labels and order are computed in NumPy for all queries at once; masks are read only for the queries that remain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from twopass.detection import ink, polygons, suppression
from twopass.detection.labels import LABELS
from twopass.detection.region import Detection, Region, make_region, to_json
from twopass.document import Box
from twopass.pages.shared_pixels import Pixels

Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.intp]
Masks = npt.NDArray[np.uint8]
Points = npt.NDArray[np.float64]

EPSILON = 0.004  # of a contour's length: points nearer than this to a straight line are left out
SHARP_ANGLE = 45.0  # degrees: the corner of a rectangle that the mask cut off
RECTANGULAR = 0.9  # of its box: a larger polygon is not stored


class NotFinite(ValueError):
    """The model's outputs hold infinity or no numbers."""


@dataclass(frozen=True)
class RawPage:
    """The model's outputs for one page, in float32.

    `boxes` are centre, width and height as fractions. `read_masks` returns the masks of queries at the model's
    resolution, 1 where the score of the pixel is above the threshold.
    """

    logits: Floats  # queries × labels
    boxes: Floats  # queries × 4
    order_logits: Floats  # queries × queries
    read_masks: Callable[[Indices], Masks]


class Candidates(NamedTuple):
    """Query, label, score and place in the order of each candidate, sorted by place."""

    queries: Indices
    labels: Indices
    scores: Floats
    orders: Indices


def write_answer(raw: RawPage, page: Pixels, threshold: float = suppression.THRESHOLD) -> str:
    """The detection of one page as JSON, with the ink outside all regions; raises NotFinite."""
    regions = find_regions(raw, page.width, page.height, threshold)
    is_landscape = page.width > page.height
    kept = suppression.select(regions, is_landscape, threshold)
    missed = ink.find_missed_ink(page.array(), [region.box for region in kept])
    return to_json(Detection(is_landscape=is_landscape, regions=regions, ink=missed))


def find_regions(raw: RawPage, width: int, height: int, threshold: float) -> tuple[Region, ...]:
    """Every candidate as a region in the model's order; raises NotFinite."""
    if not all(np.isfinite(array).all() for array in (raw.logits, raw.boxes, raw.order_logits)):
        raise NotFinite
    found = pick(raw, threshold)
    if not len(found.queries):
        return ()
    corners = to_corners(raw.boxes[found.queries])
    traced = trace_polygons(corners, raw.read_masks(found.queries), width, height)
    return tuple(
        make_region(
            LABELS[label] if label < len(LABELS) else f"class_{label}",
            box := Box.of(*corner),
            min(float(score), 1.0),
            int(order),
            _to_fractions(polygon, box, width, height),
        )
        for label, corner, score, order, polygon in zip(
            found.labels.tolist(), corners.tolist(), found.scores, found.orders, traced, strict=True
        )
    )


def pick(raw: RawPage, threshold: float) -> Candidates:
    """The best pairs of query and label, as many as there are queries, from the threshold on."""
    scores = _sigmoid(raw.logits).ravel()
    best = np.argsort(-scores, kind="stable")[: len(raw.logits)]
    best = best[scores[best] >= threshold]
    queries, labels = best // raw.logits.shape[1], best % raw.logits.shape[1]
    orders = rank(raw.order_logits)[queries]
    by_order = np.argsort(orders, kind="stable")
    return Candidates(queries[by_order], labels[by_order], scores[best][by_order], orders[by_order])


def rank(order_logits: Floats) -> Indices:
    """The place of each query in reading order: [i, j] above the diagonal says how likely i comes before j."""
    before = _sigmoid(order_logits.astype(np.float64))
    votes = np.triu(before, 1).sum(axis=0) + np.tril(1.0 - before.T, -1).sum(axis=0)
    places = np.empty(len(votes), np.intp)
    places[np.argsort(votes, kind="stable")] = np.arange(len(votes))
    return places


def to_corners(boxes: Floats) -> Floats:
    """Left, top, right, bottom of boxes given as centre, width and height."""
    return np.concatenate([boxes[:, :2] - 0.5 * boxes[:, 2:], boxes[:, :2] + 0.5 * boxes[:, 2:]], axis=1)


def _sigmoid(values: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    with np.errstate(over="ignore"):  # exp of a large number is infinite, and the score 0
        return np.asarray(1 / (1 + np.exp(-values)))


def _to_fractions(polygon: Points | None, box: Box, width: int, height: int) -> Sequence[Sequence[float]]:
    """The polygon in fractions of the page; nothing where it is nearly its box, or has no points."""
    if polygon is None or len(polygon) < 3:
        return ()
    points = polygon / (width, height)
    if not np.isfinite(points).all() or polygons.measure_area(points) >= RECTANGULAR * box.area:
        return ()
    return [list(point) for point in points.tolist()]


def trace_polygons(corners: Floats, masks: Masks, width: int, height: int) -> list[Points | None]:
    """The outline of each mask inside its box, in pixels of the page: the box itself where the mask says nothing."""
    mask_height, mask_width = masks.shape[1:]
    across, down = mask_width / width, mask_height / height
    traced: list[Points | None] = []
    for corner, mask in zip(corners * np.array([width, height, width, height], np.float32), masks, strict=True):
        x0, y0, x1, y1 = (int(side) for side in corner)
        rectangle = np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]], float)
        left, right = np.clip([round(x0 * across), round(x1 * across)], 0, mask_width)
        top, bottom = np.clip([round(y0 * down), round(y1 * down)], 0, mask_height)
        part = mask[top:bottom, left:right]
        if x1 <= x0 or y1 <= y0 or not part.any():
            traced.append(rectangle)
            continue
        polygon = _trace(part, (x1 - x0, y1 - y0))
        if polygon is None or len(polygon) >= 4:
            traced.append(None if polygon is None else polygon + (x0, y0))
        else:
            traced.append(rectangle)
    return traced


def _trace(mask: Masks, size: tuple[int, int]) -> Points | None:
    import cv2

    resized = cv2.resize(mask, size, interpolation=cv2.INTER_NEAREST)
    contours, _ = cv2.findContours(resized, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    if not contours:
        return None
    contour = max(contours, key=cv2.contourArea)
    simple = cv2.approxPolyDP(contour, EPSILON * cv2.arcLength(contour, True), True)
    return _keep_outer_corners(simple.reshape(-1, 2).astype(float))


def _keep_outer_corners(points: Points) -> Points:
    """Leave out corners that point inwards, and move corners that the mask cut off by 45 degrees outwards."""
    to_previous, to_next = np.roll(points, 1, axis=0) - points, np.roll(points, -1, axis=0) - points
    is_outer = to_previous[:, 1] * to_next[:, 0] - to_previous[:, 0] * to_next[:, 1] < 0
    points, to_previous, to_next = points[is_outer], to_previous[is_outer], to_next[is_outer]
    lengths = np.linalg.norm(to_previous, axis=1), np.linalg.norm(to_next, axis=1)
    cosine = np.clip((to_previous * to_next).sum(axis=1) / (lengths[0] * lengths[1]), -1, 1)
    is_cut = np.abs(np.degrees(np.arccos(cosine)) - SHARP_ANGLE) < 1
    direction = to_previous / lengths[0][:, None] + to_next / lengths[1][:, None]
    direction = direction / np.maximum(np.linalg.norm(direction, axis=1), 1e-9)[:, None]
    step = ((lengths[0] + lengths[1]) / 2)[:, None]
    return np.where(is_cut[:, None], points + direction * step, points)
