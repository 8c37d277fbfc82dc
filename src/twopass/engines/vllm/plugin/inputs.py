"""Views of one picture in a slab in, what vLLM carries to the model out: where the slab is, and how views lie in it.

Ten megabytes a page would otherwise be copied into a socket, out of it, and into memory that a GPU may read.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import torch
from vllm.inputs.engine import MultiModalInput, mm_input
from vllm.multimodal.inputs import (
    MultiModalBatchedField,
    MultiModalFieldElem,
    MultiModalKwargsItem,
    MultiModalKwargsItems,
    PlaceholderRange,
)

from twopass.engines.vllm.tiling import Tiles
from twopass.pages.shared_pixels import PixelBuffer

SLAB = "slab"
_ON_CPU = MultiModalBatchedField(keep_on_cpu=True)  # read by Python: on a GPU each read would wait for it


class Place(NamedTuple):
    """A slab by its owner's process and descriptor; the sides of the whole and of a tile, and the tiles' grid."""

    owner: int
    descriptor: int
    base: int
    tile: int
    across: int
    down: int

    @property
    def grid(self) -> Tiles:
        return Tiles(self.across, self.down)


def item(buffer: PixelBuffer, base: int, tile: int, tiles: Tiles) -> MultiModalKwargsItem:
    place = Place(os.getpid(), buffer.descriptor, base, tile, *tiles)
    return MultiModalKwargsItem({SLAB: MultiModalFieldElem(data=torch.tensor(place), field=_ON_CPU)})


def prompt(
    before: Sequence[int], image: int, places: int, after: Sequence[int], picture: MultiModalKwargsItem, name: str
) -> MultiModalInput:
    """A whole input for the engine: token ids with `places` for the picture between them."""
    return mm_input(
        [*before, *[image] * places, *after],
        MultiModalKwargsItems({"image": [picture]}),
        {"image": [name]},
        {"image": [PlaceholderRange(offset=len(before), length=places)]},
    )
