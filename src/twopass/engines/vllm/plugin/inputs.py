"""Build vLLM's input for a prompt whose image views are in a shared buffer.

vLLM carries only a reference to the buffer and the layout of the views. Otherwise ten megabytes a page would be
copied into a socket, out of it, and into memory that a GPU may read.
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

from twopass.engines.vllm.tiling import TileGrid
from twopass.pages.shared_pixels import PixelBuffer

BUFFER = "buffer"
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


def build_item(buffer: PixelBuffer, base_size: int, tile_size: int, grid: TileGrid) -> MultiModalKwargsItem:
    ref = BufferRef(os.getpid(), buffer.descriptor, base_size, tile_size, *grid)
    return MultiModalKwargsItem({BUFFER: MultiModalFieldElem(data=torch.tensor(ref), field=_ON_CPU)})


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
