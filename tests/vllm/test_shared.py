"""A slab of one process, seen by another that knows only its number there."""

from __future__ import annotations

import multiprocessing
import os

import numpy as np
import torch

from twopass.engines.vllm import tiling
from twopass.engines.vllm.plugin import inputs
from twopass.engines.vllm.plugin.inputs import SLAB, Place
from twopass.engines.vllm.plugin.shared_views import Shared
from twopass.engines.vllm.tiling import DEEPSEEK_OCR
from twopass.pages.shared_pixels import PixelBuffer, PixelBufferPool


def seen(place: Place) -> tuple[bytes, bytes]:
    """In a process that inherited no descriptors, as a core that was started again."""
    found = Shared().seen(place, torch.device("cpu"))
    return found.whole.numpy().tobytes(), found.tiles.numpy().tobytes()


def test_a_core_reads_the_views_that_a_page_worker_made() -> None:
    """Whole and tiles, bit by bit, by process and descriptor alone."""
    picture = np.random.default_rng(1).integers(0, 256, (900, 1300, 3), np.uint8)
    tiles = DEEPSEEK_OCR.tiles(1300, 900, "gundam", 6)
    made = tiling.views(DEEPSEEK_OCR, picture, "gundam", tiles)
    buffers = PixelBufferPool(1, 1 << 62, fixed=DEEPSEEK_OCR.most_bytes)
    (number,) = buffers.descriptors
    there = tiling.mapped(DEEPSEEK_OCR, PixelBuffer(number), "gundam", tiles)
    there.whole[:], there.tiles[:] = made.whole, made.tiles
    item = inputs.item(PixelBuffer(number), 1024, 640, tiles)
    place = Place(*item[SLAB].data.tolist())

    with multiprocessing.get_context("spawn").Pool(1) as pool:
        whole, cut = pool.apply(seen, (place,))

    assert place.owner == os.getpid()
    assert (whole, cut) == (made.whole.tobytes(), made.tiles.tobytes())
    buffers.close()
