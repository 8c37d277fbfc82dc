"""Fixtures that all tests share."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests import ROOT
from tests.fakes import s3
from twopass.pages import source_files
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool

KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH", "CI")


def pytest_configure() -> None:
    """Hypothesis must not fail a test because the machine is busy, and tries other examples in each run.

    The layout model is loaded by the tests that use it, and not by each process that collects tests. Garbage is
    searched for among all objects a tenth as often: looking at all modules and tests took a fifteenth of the time.
    """
    gc.set_threshold(700, 10, 100)
    source_files.import_mupdf()
    health = [HealthCheck.too_slow]
    settings.register_profile("no_deadline", deadline=None, max_examples=25, suppress_health_check=health)
    settings.load_profile("no_deadline")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the sample, which takes longest to read: at the end, the other processes would wait for it."""
    items.sort(key=lambda item: "test_sample.py" not in item.nodeid)


def pytest_unconfigure() -> None:
    """Let pytest, which now collects garbage five times to find what was not closed, look at everything only once.

    What becomes garbage after this is not looked at.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def interrupt_handler() -> None:
    """Restore the default handler of SIGINT: a shell lets background processes, and their children, ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def bare_environment() -> None:
    """Remove the machine's environment variables, which could be settings."""
    for name in set(os.environ) - {*KEPT, "PYTEST_CURRENT_TEST", "PYTEST_VERSION"}:
        del os.environ[name]


@pytest.fixture(autouse=True)
def default_logging() -> Iterator[None]:
    """Reset logging after each test: the next one must not write to a log file that is closed."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def sample() -> Path:
    return ROOT / "samples" / "sample.pdf"


@pytest.fixture(scope="session")
async def buffers() -> AsyncIterator[PixelBufferPool]:
    buffers = PixelBufferPool(16, 1 << 28)
    yield buffers
    buffers.close()


@pytest.fixture(scope="session")
async def page_pool(buffers: PixelBufferPool) -> AsyncIterator[PagePool]:
    """One page worker for all tests of a process: it takes seconds to load what it calls, and pytest has processes."""
    page_pool = PagePool(1, buffers, timeout_s=120)
    await page_pool.open()
    yield page_pool
    await page_pool.close()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The URL of moto's S3 server on this machine."""
    with s3.moto_server() as url:
        yield url


@pytest.fixture(scope="module")
def client(endpoint: str) -> Iterator[Any]:
    with s3.client(endpoint) as client:
        yield client


@pytest.fixture
def bucket(endpoint: str, client: Any) -> Iterator[Any]:
    """An S3 client, with one empty bucket that is named `bucket`."""
    client.create_bucket(Bucket="bucket")
    yield client
    s3.reset(endpoint)
