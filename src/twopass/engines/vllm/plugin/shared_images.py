"""Images in shared memory: the references that a prompt carries, and in the core process the tensors behind them.

vLLM carries only a reference to a buffer and the layout of what is in it, views or patches. Otherwise ten megabytes a
page would be copied into a socket, out of it, and into memory that a GPU may read. In the core, a buffer is mapped once
and registered with the GPU, which then reads it directly. The engine keeps the buffer lent until the answer is
complete. After a cancelled prompt the core may read another prompt's views, but its answer is discarded.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
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

from twopass.engines.vllm.plugin.encoder import ViewTensors
from twopass.models import TileGrid
from twopass.pages.shared_pixels import PixelBuffer

BUFFER, GRID = "buffer", "image_grid_thw"  # the second is what vLLM calls it, which computes positions from it
_ON_CPU = MultiModalBatchedField(keep_on_cpu=True)  # Python reads it; each read from a GPU would wait for the GPU


class ViewsRef(NamedTuple):
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
    return _build_item({BUFFER: ViewsRef(os.getpid(), buffer.descriptor, base_size, tile_size, *grid)})


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


class SharedBuffers:
    """Mapped buffers by owner and descriptor; never unmapped, as their owner never shrinks them."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[int, int], torch.Tensor] = {}

    def load_views(self, ref: ViewsRef, device: torch.device) -> ViewTensors:
        """Copy one image's views to the device."""
        base_bytes, count = ref.base_size**2 * 3, ref.grid.tile_count
        size = base_bytes + count * ref.tile_size**2 * 3
        views = self._map_for(ref, device)[:size].to(device, non_blocking=True)
        tiles = views[base_bytes:].view(count, ref.tile_size, ref.tile_size, 3)
        return ViewTensors(views[:base_bytes].view(ref.base_size, ref.base_size, 3), tiles, ref.grid)

    def load_patches(self, refs: Iterable[PatchesRef], patch_bytes: int, device: torch.device) -> torch.Tensor:
        """Copy the patches of all images to the device together: patches × bytes of one.

        The GPU does not read these buffers itself. Registering one would keep memory for its largest image, and crops
        are small.
        """
        parts = [self._map(ref.owner, ref.descriptor)[: ref.patches * patch_bytes] for ref in refs]
        return torch.cat(parts).to(device).view(-1, patch_bytes)

    def _map_for(self, ref: ViewsRef, device: torch.device) -> torch.Tensor:
        """The buffer's memory, which the device may read directly."""
        is_new = (ref.owner, ref.descriptor) not in self._buffers
        buffer = self._map(ref.owner, ref.descriptor)
        if is_new and device.type == "cuda":
            _register_with_gpu(buffer, device)
        return buffer

    def _map(self, owner: int, descriptor: int) -> torch.Tensor:
        key = (owner, descriptor)
        if key not in self._buffers:
            self._buffers[key] = _map_descriptor(*key)
        return self._buffers[key]


def _register_with_gpu(buffer: torch.Tensor, device: torch.device) -> None:
    """Let the GPU read the buffer directly; if that is not permitted, copies are synchronous, with no other effect."""
    if int(torch.cuda.cudart().cudaHostRegister(buffer.data_ptr(), len(buffer), 0)):
        with suppress(RuntimeError):
            torch.zeros(1, device=device)  # the next kernel raises the pending error: this one, so that no other does


def _map_descriptor(owner: int, descriptor: int) -> torch.Tensor:
    """Open through the owner's /proc entry, because a core started by `spawn` inherits no descriptors."""
    file = os.open(f"/proc/{owner}/fd/{descriptor}", os.O_RDWR)
    try:
        return torch.frombuffer(mmap.mmap(file, 0), dtype=torch.uint8)
    finally:
        os.close(file)
