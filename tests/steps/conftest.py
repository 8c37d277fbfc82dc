"""Fixtures for the tests of single steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.source_files import SourceReader
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings


@pytest.fixture
def source_reader(tmp_path: Path, page_pool: PagePool, buffers: PixelBufferPool) -> SourceReader:
    """A reader with low limits: 20 pages, 2 million pixels per page, 1 million pixels per image."""
    return SourceReader(
        tmp_path, page_pool, buffers, Settings(max_page_pixels=2_000_000, max_pages=20, max_image_pixels=1_000_000)
    )
