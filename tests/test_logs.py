"""Logs: what a line holds, and what it never holds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog

from twopass import logs
from twopass.settings import Settings


@pytest.fixture(autouse=True)
def structlog_as_it_was() -> Iterator[None]:
    """What `set_up` configures for the process is undone."""
    yield
    structlog.reset_defaults()


def failing(secret: str) -> None:
    raise LookupError(f"a secret of {len(secret)} characters")


@pytest.mark.parametrize("endpoint_id", [None, "endpoint"])
def test_a_traceback_shows_no_locals(endpoint_id: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    """A job's keys are locals of what failed: its frames are logged, its values are not."""
    logs.set_up(Settings(runpod_endpoint_id=endpoint_id))
    try:
        failing("hunter2" * 2)
    except LookupError:
        structlog.get_logger().exception("job failed")

    told = capsys.readouterr().err
    assert "LookupError" in told and "in failing" in told
    assert "hunter2hunter2" not in told
