"""Logs: what a line contains, and what it never contains."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest
import structlog

from twopass.errors import Code, SourceError
from twopass.settings import Settings
from twopass.telemetry import logs


@pytest.fixture(autouse=True)
def reset_structlog() -> Iterator[None]:
    """Undo what `set_up` configures for the process."""
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def reset_asyncio_log() -> Iterator[None]:
    """Remove the filter that `set_up` adds to asyncio's logger."""
    yield
    for line in list(logging.getLogger("asyncio").filters):
        logging.getLogger("asyncio").removeFilter(line)


def fail(secret: str) -> None:
    try:
        raise LookupError(f"text of the document: {secret}")
    except LookupError as error:
        raise ExceptionGroup(secret, [ValueError(secret)]) from error


@pytest.mark.parametrize("endpoint_id", [None, "endpoint"])
def test_a_traceback_shows_no_locals_and_no_messages(
    endpoint_id: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """A logged exception shows frames and types only: its values and messages may hold keys or quote the document."""
    logs.set_up(Settings(runpod_endpoint_id=endpoint_id))
    try:
        fail("hunter" + "2")  # frames show their source
    except ExceptionGroup:
        structlog.get_logger().exception("job failed")

    line = capsys.readouterr().err
    assert all(name in line for name in ("LookupError", "ValueError", "ExceptionGroup", "in fail"))
    assert "hunter2" not in line


def test_a_line_on_the_platform_has_runpods_format(capsys: pytest.CaptureFixture[str]) -> None:
    """RunPod's console filters by requestId and shows message and level; page and document are fields of their own."""
    logs.set_up(Settings(runpod_endpoint_id="endpoint"))

    with structlog.contextvars.bound_contextvars(job="job-1", page=3, document="report-0123456789ab"):
        structlog.get_logger().warning("page unread", code="DEADLINE")

    assert json.loads(capsys.readouterr().err) == {
        "requestId": "job-1",
        "message": "page unread",
        "level": "warning",
        "page": 3,
        "document": "report-0123456789ab",
        "code": "DEADLINE",
    }


def log_lines(settings: Settings, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What is written with these settings for an event and an error."""
    logs.set_up(settings)
    structlog.get_logger().info("worker ready")
    structlog.get_logger().error("engine died")
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("log_format", "endpoint_id", "lines", "is_json"),
    [
        (None, None, 2, False),
        (None, "endpoint", 2, True),
        ("json", None, 2, True),
        ("text", "endpoint", 2, False),
        ("quiet", None, 1, False),
        ("quiet", "endpoint", 1, True),
    ],
)
def test_log_format_selects_how_lines_are_written(
    log_format: str | None, endpoint_id: str | None, lines: int, is_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """LOG_FORMAT takes precedence over RunPod's variable, and `quiet` writes errors only."""
    written = log_lines(Settings(log_format=log_format, runpod_endpoint_id=endpoint_id), capsys)

    assert len(written) == lines and "engine died" in written[-1]
    assert all(line.startswith("{") for line in written) == is_json


def test_log_lines_follow_a_replaced_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line goes to the stderr of the moment, so that rich can print it above the bars that it draws."""
    logs.set_up(Settings())
    replacement = io.StringIO()
    monkeypatch.setattr(sys, "stderr", replacement)

    structlog.get_logger().info("page unread")

    assert "page unread" in replacement.getvalue()


def test_messages_of_our_own_errors_are_logged(capsys: pytest.CaptureFixture[str]) -> None:
    """The messages of our own errors quote nothing, so they are logged."""
    logs.set_up(Settings())
    try:
        raise SourceError(Code.DAMAGED, "the document has no pages")
    except SourceError:
        structlog.get_logger().exception("job failed")

    assert "DAMAGED: the document has no pages" in capsys.readouterr().err


async def test_a_task_that_is_never_awaited_logs_no_message(caplog: pytest.LogCaptureFixture) -> None:
    """asyncio's own record about such a task contains no exception message either."""
    logs.set_up(Settings())

    async def lost() -> None:
        raise ValueError("hunter" + "2")

    task = asyncio.create_task(lost())
    await asyncio.sleep(0)
    del task
    gc.collect()

    assert "Task exception was never retrieved" in caplog.text and "in lost" in caplog.text
    assert "hunter2" not in caplog.text


def test_core_dumps_are_disabled() -> None:
    """The core limit is one byte: a limit of 0 would not stop a dump through a pipe."""
    script = "import resource; from twopass.telemetry import logs; from twopass.settings import Settings;"
    script += "logs.set_up(Settings()); print(*resource.getrlimit(resource.RLIMIT_CORE))"

    process = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)

    assert process.stdout.split() in ([b"1", b"1"], [b"0", b"0"])
