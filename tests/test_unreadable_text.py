"""Text that the reader itself calls unreadable, from page to markdown."""

from __future__ import annotations

from pathlib import Path

import pymupdf
import pytest

from tests.fakes.reader import Reader
from tests.test_picture_pages import SilentEngine
from twopass.engines.cpu.engine import CpuEngine
from twopass.errors import Code
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool

NOISE = "xaqej ojquv wiqaz uzqix qoxev jiqux vaqiz oxqej zuqav iqjoz " * 4


@pytest.fixture
def reader(page_pool: PagePool, buffers: PixelBufferPool) -> Reader:
    return Reader(page_pool, buffers, CpuEngine(2))


async def test_noise_from_a_text_layer_is_marked_and_reported(reader: Reader, tmp_path: Path) -> None:
    """If only noise of the PDF's own text is left of a page, the markdown marks it visibly, and it is no success."""
    with pymupdf.open() as document:
        document.new_page(width=300, height=400).insert_textbox((20, 20, 280, 380), NOISE, fontsize=11)
        document.save(tmp_path / "a.pdf")

    result = await reader.run(engine=SilentEngine(), source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/out")

    assert (result.status, result.documents[0].pages) == ("partial_success", {"text_layer": 1})
    assert {(p.code, p.severity) for p in result.problems} >= {(Code.UNREADABLE_TEXT, "warning")}
    markdown = next((tmp_path / "out").glob("a-*/document.md")).read_text()
    assert markdown.index("**[The following text could not be read reliably.]**") < markdown.index("xaqej")
