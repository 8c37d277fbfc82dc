"""Endpoints: how their answers are parsed, and job ids of the local API."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fakes.platform import Json
from twopass.fleet.endpoints.http_api import parse_status
from twopass.fleet.endpoints.interface import JobState
from twopass.fleet.endpoints.local_api import LocalApi
from twopass.runtime import retry

ONE_ATTEMPT = replace(retry.ENDPOINT_REQUEST, attempts=1)


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ({"status": "IN_QUEUE"}, JobState.WAITING),
        ({"status": "IN_PROGRESS", "output": {"pages_done": 1}}, JobState.RUNNING),
        ({"status": "COMPLETED", "output": {"status": "success"}}, JobState.ENDED),
        ({"status": "FAILED", "error": "INTERNAL: x"}, JobState.ENDED),
        ({"status": "COMPLETED"}, JobState.GONE),
        ({"status": "TIMED_OUT"}, JobState.GONE),
    ],
)
def test_every_status_of_the_platform_is_parsed(answer: Json, state: JobState) -> None:
    """COMPLETED without output is a result that the platform lost."""
    assert parse_status(answer).state is state


async def test_a_job_of_the_local_api_is_unknown_to_the_next_process() -> None:
    """The ledger keeps the job's id, and the next process must not find another document's job under it."""
    async with LocalApi("http://127.0.0.1:9", ONE_ATTEMPT) as first:
        earlier = await first.submit({"source": "b.pdf"})
    async with LocalApi("http://127.0.0.1:9", ONE_ATTEMPT) as second:
        later = await second.submit({"source": "a.pdf"})
        gone = await second.poll(earlier)

    assert earlier != later
    assert gone.state is JobState.GONE
