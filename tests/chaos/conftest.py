"""Fixtures of the tests that repeat often: kills, hostile files, a soak. `make test-chaos` runs a few of each, `make
chaos` all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes import s3

KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH", "CI")


@pytest.fixture(autouse=True)
def bare_environment() -> None:
    """Remove all settings of the machine except CHAOS_*, which say how often the tests repeat."""
    for name in set(os.environ) - {*KEPT, "PYTEST_CURRENT_TEST", "PYTEST_VERSION"}:
        if not name.startswith("CHAOS_"):
            del os.environ[name]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Run moto's S3 server over HTTP; yields its URL."""
    with s3.moto_server() as url:
        yield url


@pytest.fixture(scope="module")
def bucket(endpoint: str) -> Iterator[Any]:
    """Create the empty bucket `bucket`; yields a client."""
    with s3.client(endpoint, "bucket") as client:
        yield client


@pytest.fixture(scope="module")
def worker_env(endpoint: str, bucket: Any) -> dict[str, str]:
    """The environment of a worker: its bucket, two page workers and four jobs at once."""
    return {
        **s3.worker_keys(endpoint),
        "BUCKET_NAME": "bucket",
        "BUCKET_PREFIX": "out",
        "PROGRESS_INTERVAL_S": "0.05",
        "PAGE_WORKERS": "2",
        "CONCURRENCY": "4",
    }
