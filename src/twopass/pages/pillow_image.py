"""Convert between pixel arrays and Pillow images. A page without colour becomes a single band.

One band takes a third of the work of three. The result is the same, because Pillow processes each band by itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.uint8]


def to_image(pixels: Array) -> Any:
    """Convert height × width × 3 pixels to an image: mode L if red, green and blue are equal everywhere, else RGB."""
    from PIL import Image

    contiguous = np.ascontiguousarray(pixels)
    return Image.fromarray(contiguous[:, :, 0] if _is_grey(contiguous) else contiguous)


def to_rgb_array(image: Any) -> Array:
    """Convert an image of any mode to height × width × 3 pixels."""
    return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))


def _is_grey(pixels: Array) -> bool:
    """Whether red, green and blue are equal everywhere. `pixels` must be contiguous.

    Compares every byte with its neighbour, because comparing strided channels takes longer.
    """
    flat = pixels.reshape(-1)
    differ = flat[1:] != flat[:-1]
    differ[2::3] = False  # blue against the red of the next pixel
    return not differ.any()
