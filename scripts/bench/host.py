"""Measure how long one core works on a page until a model can read it: the official way, and ours.

    python -m scripts.bench host [FILE.pdf …]

The official way: a pixmap at 144 dpi, a PNG, Pillow, tiles and the whole page, floats (vLLM's own copy of that code,
so vllm must be installed). Ours: the page drawn into shared memory, with its words, ink and the direction of its text,
and 8-bit views next to it. Tiles are drawn again from the PDF; for comparison, they are also resized from the page's
pixels, as with DRAW_VIEWS=false. Everything in gundam mode on one thread; the median of the rounds, which alternate
between the ways.
"""

from __future__ import annotations

import io
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pymupdf
from PIL import Image, ImageOps

from scripts.bench.options import create_parser

if TYPE_CHECKING:
    from twopass.pages.shared_pixels import PixelBuffer

ROUNDS = 5
DPI, MODE, MAX_TILES = 144, "gundam", 6
ROOM = 1 << 28  # bytes for one page


class PageCost(NamedTuple):
    """Milliseconds of one page."""

    official: float
    page: float  # drawn, with its words, ink and direction
    views: float  # drawn again where that is possible, else resized
    resized_views: float
    is_only_resized: bool


def main(arguments: Sequence[str]) -> None:
    parser = create_parser("scripts.bench host", __doc__)
    parser.add_argument("paths", type=Path, nargs="*", default=[Path("samples/sample.pdf")], metavar="FILE.pdf")
    files: list[Path] = parser.parse_args(arguments).paths
    os.environ |= {"OMP_NUM_THREADS": "1", "VLLM_PLUGINS": ""}  # before torch and vllm are imported
    import torch

    from twopass.models import MODELS
    from twopass.pages.shared_pixels import PixelBuffer, PixelBufferPool

    torch.set_num_threads(1)
    view_bytes = MODELS["deepseek_ocr"].vision.max_nbytes
    page_pool, view_pool = PixelBufferPool(1, 1 << 30), PixelBufferPool(1, view_bytes, fixed_size=view_bytes)
    page_buffer, view_buffer = (PixelBuffer(number) for pool in (page_pool, view_pool) for number in pool.descriptors)
    print(f"{'':42} {'official':>9} {'rendered':>14} {'resized':>14}   parts: page, views; resized; not rendered")
    for file in files:
        with pymupdf.open(file) as pdf:
            count = pdf.page_count
        costs = [measure_page(file, number, page_buffer, view_buffer) for number in range(1, count + 1)]
        official, page, views, resized, only_resized = (statistics.mean(part) for part in zip(*costs, strict=True))
        row = f"{count:5} {official:9.1f}{_compare(official, page + views)}{_compare(official, page + resized)}"
        print(f"{file.name:36} {row}   {page:7.1f} {views:6.1f} {resized:6.1f} {only_resized:6.0%}", flush=True)
    for pool in (page_pool, view_pool):
        pool.close()


def _compare(official: float, ours: float) -> str:
    return f" {ours:7.1f} {official / ours:6.2f}"


def measure_page(file: Path, number: int, page_buffer: PixelBuffer, view_buffer: PixelBuffer) -> PageCost:
    from twopass.engines.vllm import images
    from twopass.models import MODELS
    from twopass.pages.rendered_page import PagePointer
    from twopass.pages.shared_pixels import Pixels
    from twopass.steps import render

    vision = MODELS["deepseek_ocr"].vision
    pointer = PagePointer(str(file), number)
    os.ftruncate(page_buffer.descriptor, ROOM)
    request = render.DrawRequest(pointer, DPI / 72, page_buffer, ROOM)
    drawn = render.draw_pdf(request)
    pointer = replace(pointer, turn=drawn.turn)
    pixels = Pixels(drawn.width, drawn.height, page_buffer)
    grid = vision.choose_grid(drawn.width, drawn.height, MODE, MAX_TILES)
    official, page, redrawn, resized = [], [], [], []
    for _ in range(ROUNDS):
        official.append(_measure_ms(lambda: prepare_officially(file, number)))
        page.append(_measure_ms(lambda: render.draw_pdf(request)))
        resized.append(_measure_ms(lambda: images.write_views(vision, pixels, MODE, grid, view_buffer)))
        if drawn.is_scalable:
            redrawn.append(_measure_ms(lambda: images.write_views(vision, pixels, MODE, grid, view_buffer, pointer)))
    views = redrawn or resized
    median = statistics.median
    return PageCost(median(official), median(page), median(views), median(resized), not drawn.is_scalable)


def prepare_officially(file: Path, number: int) -> None:
    import torch
    from vllm.transformers_utils.processors.deepseek_ocr import ImageTransform, dynamic_preprocess

    with pymupdf.open(file) as pdf:
        png = pdf[number - 1].get_pixmap(matrix=pymupdf.Matrix(DPI / 72, DPI / 72), alpha=False).tobytes("png")
    image = Image.open(io.BytesIO(png)).convert("RGB")
    transform = ImageTransform()
    tiles, _ = dynamic_preprocess(image, image_size=640)
    torch.stack([transform(tile) for tile in tiles]).to(torch.bfloat16)
    transform(ImageOps.pad(image, (1024, 1024), color=(127, 127, 127))).to(torch.bfloat16)


def _measure_ms(work: Callable[[], object]) -> float:
    """Return milliseconds of this process's CPU time."""
    started = time.process_time()
    work()
    return 1000 * (time.process_time() - started)
