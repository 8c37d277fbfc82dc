"""Find paragraphs of ink on a scan that lie outside all detected regions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from twopass.document import Box

Image = npt.NDArray[np.uint8]

_LONG_SIDE = 1400  # pixels of the copy that is searched: letters of 8 points are 10 pixels high on A4
_CONTRAST = 70  # grey levels from the page's background
_MARGIN = 0.006  # of the page, around regions: their boxes may cut strokes
_MIN_SPECK = 4  # pixels: smaller spots are noise, which would be joined to blocks
_JOIN_ACROSS, _JOIN_DOWN = 0.016, 0.010  # of the long side: the gaps between words and lines that are closed
_MIN_WIDTH, _MIN_HEIGHT = 0.02, 0.006  # of the long side: a smaller block is no line of text, and a rule is flatter
_MIN_INK, _MAX_INK = 0.03, 0.75  # share of a block's pixels: frames have less, shadows and bars have more
_MIN_SPOTS = 6  # in a block: letters are separate, lines of drawings are not
_MAX_BLOCKS = 500  # more are noise: a page of text is one to fifty blocks
_EDGE = 0.004  # of the page: what touches its edge is the shadow of the paper


def find_missed_ink(image: Image, boxes: Sequence[Box]) -> tuple[Box, ...]:
    """The boxes of blocks that look like text outside the boxes, from top to bottom. `image` is RGB."""
    import cv2

    spots = _find_ink(image)
    height, width = spots.shape
    for box in boxes:
        x0, y0, x1, y1 = Box.of(*box.grow(_MARGIN)).to_pixels(width, height)
        spots[y0:y1, x0:x1] = 0
    if not spots.any():
        return ()
    centres = _drop_specks(spots)
    side = max(width, height)
    kernel = np.ones((2 * round(_JOIN_DOWN * side / 2) + 1, 2 * round(_JOIN_ACROSS * side / 2) + 1), np.uint8)
    count, blocks, stats, _ = cv2.connectedComponentsWithStats(cv2.dilate(spots, kernel))
    if count > _MAX_BLOCKS:
        return ()
    letters = np.bincount(blocks[centres[:, 1], centres[:, 0]], minlength=count)
    found = []
    for block in range(1, count):
        left, top, across, down = stats[block, :4].tolist()  # of the block as dilated
        part = np.s_[top : top + down, left : left + across]
        rows, columns = np.nonzero((blocks[part] == block) & (spots[part] > 0))
        if letters[block] < _MIN_SPOTS or not _is_dense(rows, columns, side):
            continue
        box = Box.of(
            float(left + columns.min()),
            float(top + rows.min()),
            float(left + columns.max() + 1),
            float(top + rows.max() + 1),
            width,
            height,
        )
        if not _touches_edge(box):
            found.append(box)
    return tuple(sorted(found, key=lambda box: (box.y0, box.x0)))


def _is_dense(rows: npt.NDArray[np.intp], columns: npt.NDArray[np.intp], side: int) -> bool:
    """Whether the pixels at these positions are large enough for a line of text, and as dense as one."""
    across, down = int(np.ptp(columns)) + 1, int(np.ptp(rows)) + 1
    if across < _MIN_WIDTH * side or down < _MIN_HEIGHT * side:
        return False
    return _MIN_INK <= len(rows) / (across * down) <= _MAX_INK


def _find_ink(image: Image) -> Image:
    """Pixels that differ from the most frequent grey level, as 1, in a copy of at most _LONG_SIDE."""
    import cv2

    scale = min(1.0, _LONG_SIDE / max(image.shape[:2]))
    size = (max(round(image.shape[1] * scale), 1), max(round(image.shape[0] * scale), 1))
    small = cv2.resize(image, size, interpolation=cv2.INTER_AREA) if scale < 1 else image
    grey = cv2.cvtColor(np.ascontiguousarray(small), cv2.COLOR_RGB2GRAY).astype(np.int16)
    background = int(np.bincount(grey.ravel().astype(np.intp), minlength=256).argmax())
    return np.asarray(np.abs(grey - background) > _CONTRAST, np.uint8)


def _drop_specks(spots: Image) -> npt.NDArray[np.intp]:
    """Remove small spots in place; returns the x and y of one pixel of each other spot."""
    import cv2

    _, labels, stats, _ = cv2.connectedComponentsWithStats(spots)
    is_speck = stats[:, cv2.CC_STAT_AREA] < _MIN_SPECK
    spots[is_speck[labels]] = 0
    numbers, first = np.unique(labels, return_index=True)
    kept = first[(numbers > 0) & ~is_speck[numbers]]
    return np.stack([kept % spots.shape[1], kept // spots.shape[1]], axis=1)


def _touches_edge(box: Box) -> bool:
    return min(box.x0, box.y0) < _EDGE or max(box.x1, box.y1) > 1 - _EDGE
