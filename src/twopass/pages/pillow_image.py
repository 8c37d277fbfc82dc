"""Pixels in, a Pillow image out: of one band where they have no colour, which is a third of the work and loses nothing.

Pillow treats each band by itself, so that whatever is made of the one equals what would be made of three.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.uint8]


def image(picture: Array) -> Any:
    """RGB, or L where red, green and blue are the same everywhere. `picture`: height × width × 3."""
    from PIL import Image

    whole = np.ascontiguousarray(picture)
    return Image.fromarray(whole[:, :, 0] if is_grey(whole) else whole)


def rgb(image: Any) -> Array:
    """Its pixels, three bytes each."""
    return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))


def is_grey(picture: Array) -> bool:
    """Of a contiguous picture: each byte is compared with its neighbour, since every third one alone takes longer."""
    flat = picture.reshape(-1)
    differ = flat[1:] != flat[:-1]
    differ[2::3] = False  # blue, and the next pixel's red
    return not differ.any()
