"""Logs: what a line holds, and what it never holds."""

from __future__ import annotations

import asyncio
import gc
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
def structlog_as_it_was() -> Iterator[None]:
    """What `set_up` configures for the process is undone."""
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def asyncio_as_it_was() -> Iterator[None]:
    """So is asyncio's filter."""
    yield
    for line in list(logging.getLogger("asyncio").filters):
        logging.getLogger("asyncio").removeFilter(line)


def failing(secret: str) -> None:
    try:
        raise LookupError(f"text of the document: {secret}")
    except LookupError as error:
        raise ExceptionGroup(secret, [ValueError(secret)]) from error


@pytest.mark.parametrize("endpoint_id", [None, "endpoint"])
def test_a_traceback_shows_no_locals_and_no_messages(
    endpoint_id: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """What failed holds a job's keys and quotes its document: frames and types are logged, values are not."""
    logs.set_up(Settings(runpod_endpoint_id=endpoint_id))
    try:
        failing("hunter" + "2")  # frames show their source
    except ExceptionGroup:
        structlog.get_logger().exception("job failed")

    line = capsys.readouterr().err
    assert all(told in line for told in ("LookupError", "ValueError", "ExceptionGroup", "in failing"))
    assert "hunter2" not in line


def test_a_line_on_the_platform_is_in_its_shape(capsys: pytest.CaptureFixture[str]) -> None:
    """RunPod's console filters by requestId and shows message and level; page and document stand beside them."""
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


def test_our_own_messages_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """They are written to be read, and quote nothing."""
    logs.set_up(Settings())
    try:
        raise SourceError(Code.DAMAGED, "the document has no pages")
    except SourceError:
        structlog.get_logger().exception("job failed")

    assert "DAMAGED: the document has no pages" in capsys.readouterr().err


async def test_a_task_that_nobody_awaits_tells_no_text(caplog: pytest.LogCaptureFixture) -> None:
    """asyncio's own line about it quotes nothing either."""
    logs.set_up(Settings())

    async def lost() -> None:
        raise ValueError("hunter" + "2")

    task = asyncio.create_task(lost())
    await asyncio.sleep(0)
    del task
    gc.collect()

    assert "Task exception was never retrieved" in caplog.text and "in lost" in caplog.text
    assert "hunter2" not in caplog.text


def test_no_dump_keeps_what_a_process_holds() -> None:
    """One byte is allowed: none would not stop a dump that goes through a pipe."""
    script = "import resource; from twopass.telemetry import logs; from twopass.settings import Settings;"
    script += "logs.set_up(Settings()); print(*resource.getrlimit(resource.RLIMIT_CORE))"

    told = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)

    assert told.stdout.split() in ([b"1", b"1"], [b"0", b"0"])
