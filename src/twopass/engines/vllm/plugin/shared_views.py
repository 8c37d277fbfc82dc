"""Read views and patches from the engine's shared buffers, in the core process, into tensors on the model's device.

A buffer is mapped once and registered with the GPU, which then reads it directly. The engine keeps the buffer lent
until the answer is complete. After a cancelled prompt the core may read another prompt's views, but its answer is
discarded.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable
from contextlib import suppress

import torch

from twopass.engines.vllm.plugin.encoder import ViewTensors
from twopass.engines.vllm.plugin.inputs import BufferRef, PatchesRef


class SharedBuffers:
    """Mapped buffers by owner and descriptor; never unmapped, as their owner never shrinks them."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[int, int], torch.Tensor] = {}

    def load(self, ref: BufferRef, device: torch.device) -> ViewTensors:
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

    def _map_for(self, ref: BufferRef, device: torch.device) -> torch.Tensor:
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
