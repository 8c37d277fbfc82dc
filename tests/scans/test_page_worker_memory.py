"""The memory of a page worker while it reads many pages."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pymupdf
import pytest
from PIL import Image

from twopass.engines.cpu.page import read_page
from twopass.pages.rendered_page import PagePointer
from twopass.pages.shared_pixels import PixelBufferPool, Pixels
from twopass.runtime.page_pool import PagePool
from twopass.steps import render
from twopass.steps.render import DrawRequest


def add_text_page(pdf: Any, number: int) -> None:
    pdf.new_page().insert_text((72, 90), [f"Line {n} of page {number} tells of a gauge." for n in range(40)])


def add_picture_page(pdf: Any, number: int) -> None:
    """Add a page with a picture of three megabytes when decoded."""
    add_text_page(pdf, number)
    buffer = io.BytesIO()
    Image.new("RGB", (1000, 1000), (number, 0, 0)).save(buffer, "PNG")
    pdf[-1].insert_image((72, 600, 200, 728), stream=buffer.getvalue())


@pytest.mark.parametrize(("add_page", "pages"), [(add_text_page, 1), (add_picture_page, 1), (add_text_page, 12)])
async def test_a_page_worker_does_not_leak_memory(
    tmp_path: Path, buffers: PixelBufferPool, add_page: Callable[[Any, int], None], pages: int
) -> None:
    """After twelve pages a worker uses at most 4 MiB more than after six, for many documents and for a long one.

    What it holds for a moment is no leak: the least of the last three pages counts.
    """
    room, memory = 1200 * 1700 * 3, []
    page_pool = PagePool(1, buffers, timeout_s=120)
    await page_pool.open()
    child = psutil.Process(await page_pool.call(os.getpid))

    async with buffers.lend(room) as buffer:
        for first in range(0, 12, pages):
            path = tmp_path / f"{first}.pdf"
            with pymupdf.open() as pdf:
                for number in range(first, first + pages):
                    add_page(pdf, number)
                pdf.save(path)
            for number in range(1, pages + 1):
                pointer = PagePointer(str(path), number)
                rendered = await page_pool.call(render.draw_pdf, DrawRequest(pointer, 2.0, buffer, room))
                await page_pool.call(read_page, pointer, Pixels(rendered.width, rendered.height, buffer), None)
                memory.append(child.memory_info().rss)
            path.unlink()
    await page_pool.close()

    assert min(memory[-3:]) - memory[5] < 4 << 20
