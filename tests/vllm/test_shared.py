"""Another process reads image views from our buffer, knowing only this process's id and the descriptor."""

from __future__ import annotations

import multiprocessing
import os

import numpy as np
import torch

from twopass.engines.vllm import images, tiling
from twopass.engines.vllm.plugin import shared_images
from twopass.engines.vllm.plugin.shared_images import BUFFER, SharedBuffers, ViewsRef
from twopass.models import MODELS
from twopass.pages.shared_pixels import PixelBuffer, PixelBufferPool, Pixels

DEEPSEEK_OCR = MODELS["deepseek_ocr"].vision


def load_views(ref: ViewsRef) -> tuple[bytes, bytes]:
    """Runs in a process that inherited no descriptors, like a core that was restarted."""
    views = SharedBuffers().load_views(ref, torch.device("cpu"))
    return views.global_view.numpy().tobytes(), views.tiles.numpy().tobytes()


def test_a_core_reads_the_views_that_a_page_worker_made() -> None:
    """Global view and tiles arrive bit by bit, by process id and descriptor alone."""
    image = np.random.default_rng(1).integers(0, 256, (900, 1300, 3), np.uint8)
    grid = DEEPSEEK_OCR.choose_grid(1300, 900, "gundam", 6)
    pixels = Pixels(1300, 900, data=image.tobytes())
    views = tiling.make_views(DEEPSEEK_OCR, image, "gundam", grid)
    buffers = PixelBufferPool(1, 1 << 62, fixed_size=DEEPSEEK_OCR.max_nbytes)
    (number,) = buffers.descriptors
    images.write_views(DEEPSEEK_OCR, pixels, "gundam", grid, PixelBuffer(number))
    item = shared_images.build_views(PixelBuffer(number), 1024, 640, grid)
    ref = ViewsRef(*item[BUFFER].data.tolist())

    with multiprocessing.get_context("spawn").Pool(1) as pool:
        global_view, tiles = pool.apply(load_views, (ref,))

    assert ref.owner == os.getpid()
    assert (global_view, tiles) == (views.global_view.tobytes(), views.tiles.tobytes())
    buffers.close()
