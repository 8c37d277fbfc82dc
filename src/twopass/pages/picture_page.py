"""Find the picture on a page that has no text: a photograph, a drawing, a colour chart."""

from __future__ import annotations

import numpy as np

from twopass.document import Box, Element, Figure, Flag, Kind, make_element_id
from twopass.pages import ocr
from twopass.pages.shared_pixels import Pixels
from twopass.pages.strips import Array

INK_CONTRAST = 40  # grey levels (of 255) between ink and the page's background


def find_picture(pixels: Pixels, page: int) -> Element | None:
    """The page's inked area as a picture; None if the page shows a line of script. Runs in page workers."""
    array = pixels.array()
    if ocr.detects_script(array):
        return None
    return Element(
        id=make_element_id(page, 0),
        page=page,
        category=Kind.PICTURE.category,
        kind=Kind.PICTURE,
        boxes=(find_inked_box(array),),
        figure=Figure(),
        flags=(Flag.PICTURE_PAGE,),
    )


def find_inked_box(array: Array) -> Box:
    """The box around all pixels that differ from the median of each colour channel; the whole page if none do."""
    height, width = array.shape[:2]
    background = np.median(array.reshape(-1, 3), axis=0)
    inked = (np.abs(array - background.astype(np.int16)) > INK_CONTRAST).any(axis=2)
    rows, columns = inked.any(axis=1).nonzero()[0], inked.any(axis=0).nonzero()[0]
    if not rows.size:
        return Box(0.0, 0.0, 1.0, 1.0)
    return Box.of(int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1, width, height)
