#!/usr/bin/env python3
"""Milliseconds of one core a page takes until a model can look at it: the way the official code goes, and ours.

    python scripts/bench_host.py [FILE.pdf …]

The official way: a pixmap at 144 dpi, a PNG, Pillow, tiles and the whole, floats (vLLM's own copy of that code, so it
wants vllm). Ours: the page drawn into shared memory, with its words, ink and the direction of its text, and views of 8
bits beside it: tiles drawn anew, and, for comparison, resized from the page's pixels as DRAW_VIEWS=false does.
All in gundam mode, one thread; the median of the rounds, page by page in turn.
"""

from __future__ import annotations

import io
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "VLLM_PLUGINS": ""}

import pymupdf
import torch
from PIL import Image, ImageOps

from twopass.engines.interface import PagePointer
from twopass.engines.vllm import render_tiles as drawn_views
from twopass.engines.vllm import tiling
from twopass.pages.shared_pixels import PixelBuffer, PixelBufferPool, Pixels
from twopass.steps import render

ROUNDS = 5
DPI, MODE, MOST_TILES = 144, "gundam", 6
VISION = tiling.DEEPSEEK_OCR


def main(paths: Sequence[str]) -> None:
    torch.set_num_threads(1)
    files = [Path(path) for path in paths] or [Path("samples/sample.pdf")]
    buffers = PixelBufferPool(1, 1 << 30)
    (drawn,) = map(PixelBuffer, buffers.descriptors)
    prepared = PixelBufferPool(1, VISION.most_bytes, fixed=VISION.most_bytes)
    (seen,) = map(PixelBuffer, prepared.descriptors)
    print(f"{'':42} {'official':>9} {'drawn anew':>14} {'resized':>14}   parts: page, views; resized; not drawn anew")
    for file in files:
        with pymupdf.open(file) as pdf:
            count = pdf.page_count
        told = [_page(file, number, drawn, seen) for number in range(1, count + 1)]
        official, page, seen_ms, resized, left = (statistics.mean(part) for part in zip(*told, strict=True))
        row = f"{count:5} {official:9.1f}{_against(official, page + seen_ms)}{_against(official, page + resized)}"
        print(f"{file.name:36} {row}   {page:7.1f} {seen_ms:6.1f} {resized:6.1f} {left:6.0%}", flush=True)
    for pool in (buffers, prepared):
        pool.close()


def _against(official: float, ours: float) -> str:
    return f" {ours:7.1f} {official / ours:6.2f}"


def _page(file: Path, number: int, drawn: PixelBuffer, seen: PixelBuffer) -> tuple[float, float, float, float, bool]:
    """Milliseconds: the official way, the page, its views, resized ones; and whether it is not drawn anew."""
    pointer = PagePointer(str(file), number)
    room = 1 << 28
    os.ftruncate(drawn.descriptor, room)
    shown = render.draw_pdf(pointer, DPI / 72, drawn, room)
    pointer = replace(pointer, turn=shown.turn)
    pixels = Pixels(shown.width, shown.height, drawn)
    tiles = VISION.tiles(shown.width, shown.height, MODE, MOST_TILES)
    official, drawing, redrawn, resized = [], [], [], []
    for _ in range(ROUNDS):
        official.append(_ms(lambda: _official(file, number)))
        drawing.append(_ms(lambda: render.draw_pdf(pointer, DPI / 72, drawn, room)))
        resized.append(_ms(lambda: tiling.prepare(VISION, pixels, MODE, tiles, seen)))
        if shown.is_scalable:
            redrawn.append(_ms(lambda: drawn_views.prepare(VISION, pointer, pixels, MODE, tiles, seen)))
    middle = statistics.median
    return middle(official), middle(drawing), middle(redrawn or resized), middle(resized), not shown.is_scalable


def _official(file: Path, number: int) -> None:
    from vllm.transformers_utils.processors.deepseek_ocr import ImageTransform, dynamic_preprocess

    with pymupdf.open(file) as pdf:
        png = pdf[number - 1].get_pixmap(matrix=pymupdf.Matrix(DPI / 72, DPI / 72), alpha=False).tobytes("png")
    image = Image.open(io.BytesIO(png)).convert("RGB")
    transform = ImageTransform()
    cut, _ = dynamic_preprocess(image, image_size=640)
    torch.stack([transform(one) for one in cut]).to(torch.bfloat16)
    transform(ImageOps.pad(image, (1024, 1024), color=(127, 127, 127))).to(torch.bfloat16)


def _ms(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return 1000 * (time.process_time() - before)


if __name__ == "__main__":
    main(sys.argv[1:])
