"""Fixtures are nouns: what tests share."""

from __future__ import annotations

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
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool

KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH", "CI")


def pytest_configure() -> None:
    """Time is no test: a busy machine fails none."""
    settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("patient")


@pytest.fixture(autouse=True, scope="session")
def heard_interrupts() -> None:
    """A shell that starts tests in the background lets them ignore Ctrl-C, and whatever they start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def bare_environment() -> None:
    """No setting of the machine reaches a test."""
    for name in set(os.environ) - {*KEPT, "PYTEST_CURRENT_TEST", "PYTEST_VERSION"}:
        del os.environ[name]


@pytest.fixture(autouse=True)
def plain_logs() -> Iterator[None]:
    """No test inherits another's log, whose file is closed by then."""
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
    """Two page workers for all tests: each takes a second to start."""
    page_pool = PagePool(2, buffers, timeout_s=120)
    await page_pool.open()
    yield page_pool
    await page_pool.close()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """An S3 of moto's, over real HTTP."""
    with s3.moto_server() as url:
        yield url


@pytest.fixture(scope="module")
def client(endpoint: str) -> Iterator[Any]:
    with s3.client(endpoint) as opened:
        yield opened


@pytest.fixture
def bucket(endpoint: str, client: Any) -> Iterator[Any]:
    """A client of the empty bucket `bucket`."""
    client.create_bucket(Bucket="bucket")
    yield client
    s3.empty(endpoint)
