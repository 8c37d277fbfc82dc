"""The detector's child process without PyTorch; tests/vllm_families/test_detector.py has the model."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from twopass.engines.detector.process import INHERITED, ChildDetector, DetectorOptions
from twopass.errors import Code, EngineError
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool


@pytest.fixture
async def page_pool() -> AsyncIterator[PagePool]:
    """A pool without children of its own."""
    buffers = PixelBufferPool(1, 1 << 20)
    yield PagePool(0, buffers)
    buffers.close()


@pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is installed here")
async def test_a_missing_library_is_an_error_with_advice(page_pool: PagePool) -> None:
    """The error has a code and names the extra to install, and is no crash of the child."""
    detector = ChildDetector(DetectorOptions(Path("weights")))

    with pytest.raises(EngineError, match=r"needs torch: run `python -m pip install '\.\[hf\]'`") as caught:
        await detector.open(page_pool)
    await detector.close()

    assert caught.value.code is Code.PLATFORM


async def test_only_the_detectors_child_sees_which_gpus_it_may_use(
    page_pool: PagePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not use a GPU that this process may not; page workers use none. Neither gets credentials."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    seen = {}
    for name, names in (("detector", INHERITED), ("page worker", ())):
        child = page_pool.create_sibling(1, 60.0, 1 << 30, names)
        await child.open()
        seen[name] = [await child.call(os.getenv, key) for key in ("CUDA_VISIBLE_DEVICES", "AWS_SECRET_ACCESS_KEY")]
        await child.close()

    assert seen == {"detector": ["3", None], "page worker": [None, None]}
