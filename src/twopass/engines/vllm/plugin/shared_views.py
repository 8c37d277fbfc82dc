"""The engine's slabs, seen from its core: where a slab lies in, its bytes on the model's device out.

A slab is mapped once and told to the GPU, which then reads it by itself. Its lender keeps it until the
answer is there; where a prompt was cancelled, what is read may be somebody else's, and nobody reads the answer.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress

import torch

from twopass.engines.vllm.plugin.encoder import Seen
from twopass.engines.vllm.plugin.inputs import Place


class Shared:
    """Slabs by owner and descriptor; they are never unmapped, as their owner never shrinks them."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[int, int], torch.Tensor] = {}

    def seen(self, place: Place, device: torch.device) -> Seen:
        whole, count = place.base**2 * 3, place.grid.number
        size = whole + count * place.tile**2 * 3
        views = self._slab(place, device)[:size].to(device, non_blocking=True)
        tiles = views[whole:].view(count, place.tile, place.tile, 3)
        return Seen(views[:whole].view(place.base, place.base, 3), tiles, place.grid)

    def _slab(self, place: Place, device: torch.device) -> torch.Tensor:
        key = (place.owner, place.descriptor)
        if key not in self._buffers:
            self._buffers[key] = _mapped(*key)
            if device.type == "cuda":
                _tell(self._buffers[key], device)
        return self._buffers[key]


def _tell(buffer: torch.Tensor, device: torch.device) -> None:
    """So that the GPU reads it by itself; where it may not, copies wait for each other and nothing else changes."""
    if int(torch.cuda.cudart().cudaHostRegister(buffer.data_ptr(), len(buffer), 0)):
        with suppress(RuntimeError):
            torch.zeros(1, device=device)  # the next kernel is told of the error; let it be this one


def _mapped(owner: int, descriptor: int) -> torch.Tensor:
    """By the owner's own name for it: a core started by `spawn` inherits nothing."""
    file = os.open(f"/proc/{owner}/fd/{descriptor}", os.O_RDWR)
    try:
        return torch.frombuffer(mmap.mmap(file, 0), dtype=torch.uint8)
    finally:
        os.close(file)
