"""Find the regions of a page with PyMuPDF's layout model, and the rules that are drawn in its tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from twopass.document import Rect, enclose
from twopass.engines.cpu.content import Grid, Region, Shade, StyledWord
from twopass.engines.cpu.tables import grid_lines
from twopass.engines.cpu.tables.rules import drop_inside, find_nested

# A page with more lines skips the layout model, which took 0.4 s at 240, 1.5 s at 600, 3 s at 800, 15 s at 2,400.
DENSE_LINES = 700
DENSE_SHAPES = 350  # scattered drawings: 500 squares took 2.7 s, 1,000 9 s, 2,000 20 s; tables have 1 to 60
BACKGROUND_SHARE = 0.02  # of the page: a larger drawing is a background, which would join all others
MASK_SIDE = 2000  # pixels of the mask in which drawings are counted
MAX_DRAWINGS = 10_000  # the ruled tables of a page had 2,470 at most
MAX_LAYOUT_AREA = 50e6  # square points: the model renders the page at 72 dpi, and MuPDF refuses 20,000 × 20,000
MAX_BORDER_DISTANCE = 12.0  # points, from the text's box to the outermost rule around it
MAX_DRAWING_SHARE = 0.5  # of the page: a larger drawing is a background, not part of a picture
MAX_GROWTHS = 4  # rounds: each drawing that is added may touch the next, as arrows connect the boxes of a diagram
MIN_CELL_PICTURE = 10.0  # points: smaller images in cells are bullets, ticks and lines
MAX_CELL_SHARE = 0.5  # of a table: a larger image is its background, or a scan of it
MAX_CELL_PICTURES = 100  # of one table
MAX_RULE_OVERHANG = 150.0  # points by which a table's rules may be longer than its text


@cache
def load_layout_model() -> None:
    """Load the layout model, which takes a second or two; the models of RapidOCR load at the first scan."""
    import onnxruntime

    def one_thread() -> Any:
        options = make_options()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        return options

    # pymupdf.layout uses default session options: a spinning thread per core in every worker, 0.35 s of CPU time
    # per page instead of 0.23. Replacing SessionOptions is the only way to change them.
    make_options, onnxruntime.SessionOptions = onnxruntime.SessionOptions, one_thread
    import pymupdf4llm  # noqa: F401 - importing it activates the layout model


def is_dense(blocks: Sequence[Any], words: Sequence[StyledWord], bounds: Rect) -> bool:
    """Whether the layout model would take too long for the page."""
    return (
        bounds.area > MAX_LAYOUT_AREA
        or len({word.line for word in words}) > DENSE_LINES
        or _count_shapes(blocks, bounds) > DENSE_SHAPES
    )


def detect(page: Any, blocks: Sequence[Any], rules: Sequence[Rect], shades: Sequence[Shade]) -> list[Region]:
    """The regions that the layout model finds, and pictures that it missed."""
    load_layout_model()
    from pymupdf4llm.helpers import utils

    page.get_layout(return_raw=True)
    groups = [group for group in page.layout_information or () if _is_large(group["group_bbox"])]
    regions = [_build_region(group, rules, shades) for group in groups]
    page.layout_information = [(*region.box, region.label) for region in regions]
    detected = len(regions)
    utils.add_image_orphans(page, list(blocks))
    regions += [Region("picture", Rect(*box[:4])) for box in page.layout_information[detected:]]
    drawings = [Rect(*block["bbox"]) for block in blocks if block["type"] == 3]
    return _grow_pictures(regions, drawings, Rect(*page.rect))


def _count_shapes(blocks: Sequence[Any], bounds: Rect) -> int:
    """Count scattered drawings: not the rules of a table, which touch each other, nor its cells, which are aligned."""
    drawings = [Rect(*block["bbox"]) for block in blocks if block["type"] == 3]
    drawings = [box for box in drawings if box.area < BACKGROUND_SHARE * bounds.area]
    if not DENSE_SHAPES < len(drawings) <= MAX_DRAWINGS:
        return len(drawings)
    import cv2  # most pages have few drawings and do without it

    aligned = min(len({round(box.x0) for box in drawings}), len({round(box.y0) for box in drawings}))
    scale = min(1.0, MASK_SIDE / max(bounds.x1, bounds.y1))  # at most one pixel per point
    mask = np.zeros((math.ceil(scale * bounds.y1) + 1, math.ceil(scale * bounds.x1) + 1), np.uint8)
    for box in drawings:
        x0, y0, x1, y1 = (int(scale * side) for side in box)
        cv2.rectangle(mask, (x0, y0), (x1, y1), 1, cv2.FILLED)
    separate = cv2.connectedComponents(mask)[0] - 1  # without the background
    return min(separate, aligned)


def _is_large(box: Sequence[float]) -> bool:
    return box[2] - box[0] > 2 and box[3] - box[1] > 2


def _build_region(group: Any, rules: Sequence[Rect], shades: Sequence[Shade]) -> Region:
    box, label, lines = Rect(*map(float, group["group_bbox"])), group["class_name"], group.get("table_grid")
    if label != "table":
        return Region(label, box)
    if not lines:
        return Region("text", box)
    own = _find_table_rules(box, rules)
    nested = find_nested(own)
    heights = (float(y) + box.y0 for y in lines.h_lines)
    rows = tuple(y for y in heights if not any(inner.y0 < y < inner.y1 for inner in nested))
    cols = tuple(float(x) + box.x0 for x in lines.v_lines)
    behind = tuple(shade for shade in shades if box.contains(shade.box.centre, MAX_BORDER_DISTANCE))
    return Region(label, box, grid=Grid(rows, cols, tuple(drop_inside(own, nested)), behind))


def _find_table_rules(box: Rect, rules: Sequence[Rect]) -> list[Rect]:
    """The rules that cross the table's text and the rules around those, without frames of the page."""
    width, height = box.width + MAX_RULE_OVERHANG, box.height + MAX_RULE_OVERHANG
    fitting = [rule for rule in rules if rule.width <= width and rule.height <= height]
    outer = box.grow(MAX_BORDER_DISTANCE)
    crossing = [rule for rule in fitting if rule.intersects(outer)]
    bounds = enclose([box, *crossing])
    return [rule for rule in fitting if bounds.contains(rule.centre, grid_lines.SAME_LINE)]


def _grow_pictures(regions: Sequence[Region], drawings: Sequence[Rect], page: Rect) -> list[Region]:
    """Enlarge pictures to include the drawings that cross their edge, so that a crop does not cut a diagram's boxes."""
    texts = [region.box for region in regions if region.label != "picture"]
    small = [drawing for drawing in drawings if drawing.area <= MAX_DRAWING_SHARE * page.area]
    free = [drawing for drawing in small if not any(drawing.intersects(text) for text in texts)]
    return [replace(r, box=_grow(r.box, free)) if r.label == "picture" else r for r in regions]


def _grow(box: Rect, drawings: Sequence[Rect]) -> Rect:
    for _ in range(MAX_GROWTHS):
        larger = enclose([box, *(drawing for drawing in drawings if drawing.intersects(box))])
        if larger == box:
            return box
        box = larger
    return box


def add_cell_pictures(regions: Sequence[Region], blocks: Sequence[Any]) -> list[Region]:
    """The regions, with a picture behind a table for each image in its cells; backgrounds of words are none."""
    pictures = [region.box for region in regions if region.label == "picture"]
    images = [Rect(*block["bbox"]) for block in blocks if block["type"] == 1]
    free = [image for image in images if not any(box.contains(image.centre) for box in pictures)]
    added: list[Region] = []
    for region in regions:
        own = [image for image in free if region.label == "table" and _is_in_cell(image, region)] if free else []
        added += [region, *(Region("picture", image) for image in own[:MAX_CELL_PICTURES])]
    return added


def _is_in_cell(image: Rect, table: Region) -> bool:
    """Whether an image is a picture in a cell of a table: no bullet, and with no word of the table on it."""
    return (
        min(image.width, image.height) >= MIN_CELL_PICTURE
        and image.area <= MAX_CELL_SHARE * table.box.area
        and table.box.grow(MAX_BORDER_DISTANCE).contains(image.centre)
        and not any(image.contains(word.box.centre) for word in table.words)
    )
