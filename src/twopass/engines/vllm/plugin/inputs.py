"""Build vLLM's input for a prompt whose image is in a shared buffer, as views or as patches.

vLLM carries only a reference to the buffer and the layout of what is in it. Otherwise ten megabytes a page would be
copied into a socket, out of it, and into memory that a GPU may read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
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

from twopass.models import TileGrid
from twopass.pages.shared_pixels import PixelBuffer

BUFFER, GRID = "buffer", "image_grid_thw"  # the second is what vLLM calls it, which computes positions from it
_ON_CPU = MultiModalBatchedField(keep_on_cpu=True)  # Python reads it; each read from a GPU would wait for the GPU


class BufferRef(NamedTuple):
    """A buffer by its owner's process id and descriptor; the sides of its views in pixels, and the grid of tiles."""

    owner: int
    descriptor: int
    base_size: int
    tile_size: int
    columns: int
    rows: int

    @property
    def grid(self) -> TileGrid:
        return TileGrid(self.columns, self.rows)


class PatchesRef(NamedTuple):
    """A buffer by its owner's process id and descriptor, and the number of patches in it."""

    owner: int
    descriptor: int
    patches: int


def build_views(buffer: PixelBuffer, base_size: int, tile_size: int, grid: TileGrid) -> MultiModalKwargsItem:
    """The item of an image whose global view and tiles are in the buffer."""
    return _build_item({BUFFER: BufferRef(os.getpid(), buffer.descriptor, base_size, tile_size, *grid)})


def build_patches(buffer: PixelBuffer, rows: int, columns: int) -> MultiModalKwargsItem:
    """The item of an image whose patches are in the buffer: one picture of so many rows and columns."""
    ref = PatchesRef(os.getpid(), buffer.descriptor, rows * columns)
    return _build_item({BUFFER: ref, GRID: (1, rows, columns)})


def _build_item(values: Mapping[str, Sequence[int]]) -> MultiModalKwargsItem:
    return MultiModalKwargsItem(
        {name: MultiModalFieldElem(data=torch.tensor(value), field=_ON_CPU) for name, value in values.items()}
    )


def build_prompt(
    before: Sequence[int],
    image_token: int,
    image_tokens: int,
    after: Sequence[int],
    image: MultiModalKwargsItem,
    image_id: str,
) -> MultiModalInput:
    """Build the engine's input: token ids with `image_tokens` placeholders for the image between them."""
    return mm_input(
        [*before, *[image_token] * image_tokens, *after],
        MultiModalKwargsItems({"image": [image]}),
        {"image": [image_id]},
        {"image": [PlaceholderRange(offset=len(before), length=image_tokens)]},
    )
