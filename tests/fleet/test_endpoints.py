"""Endpoints: how their answers are parsed, and job ids of the local API."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.bench.campaign import SimulatedLoop
from tests.fakes.platform import Json
from twopass.errors import AnswerError, Code
from twopass.fleet.endpoints.interface import JobState
from twopass.fleet.endpoints.runpod import POLLS_PER_S, STATES, SUBMITS_PER_S, LocalApi, Pace, RunPod, parse_status
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


def test_calls_are_spread_when_there_are_many() -> None:
    """RunPod limits the requests of an endpoint: calls at once begin one after the other, and a single one at once."""

    async def call_all() -> list[float]:
        pace, loop = Pace(10), asyncio.get_running_loop()
        begun: list[float] = []

        async def call() -> None:
            await pace.wait()
            begun.append(loop.time())

        await asyncio.gather(*(call() for _ in range(4)))
        await asyncio.sleep(5)
        await call()
        return begun

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        begun = runner.run(call_all())

    assert begun == pytest.approx([0, 0.1, 0.2, 0.3, 5.3])


def test_requests_to_an_endpoint_are_spread() -> None:
    """A campaign has hundreds of jobs open: those that it sends and polls at once stay below RunPod's limits."""
    begun: dict[str, list[float]] = {"POST": [], "GET": []}

    def answer(request: httpx.Request) -> httpx.Response:
        begun[request.method].append(asyncio.get_running_loop().time())
        return httpx.Response(200, json={"id": "a", "status": "IN_QUEUE"})

    async def call_all() -> None:
        async with RunPod("endpoint", "key", 60, transport=httpx.MockTransport(answer)) as endpoint:
            await asyncio.gather(*(endpoint.submit({}) for _ in range(4)), *(endpoint.poll("a") for _ in range(4)))

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(call_all())

    assert begun["POST"] == pytest.approx([number / SUBMITS_PER_S for number in range(4)])
    assert begun["GET"] == pytest.approx([number / POLLS_PER_S for number in range(4)])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)


STATUSES = st.sampled_from(sorted(STATES))


def test_the_times_of_a_job_are_seconds() -> None:
    """RunPod reports milliseconds in the queue and on a worker; a missing time is None."""
    ended = parse_status({"status": "COMPLETED", "output": {}, "delayTime": 61_500, "executionTime": 2000})
    waiting = parse_status({"status": "IN_QUEUE"})

    assert (ended.queued_s, ended.seconds, ended.is_open) == (61.5, 2.0, False)
    assert (waiting.queued_s, waiting.seconds, waiting.is_open) == (None, None, True)


@given(st.dictionaries(st.sampled_from(["status", "output", "error", "delayTime", "executionTime"]), JSON | STATUSES))
def test_any_status_answer_is_parsed(answer: Json) -> None:
    """An answer of any shape has a state of RunPod's, or cannot be parsed: it is never taken for a lost job's."""
    try:
        status = parse_status(answer)
    except AnswerError as error:
        assert error.code is Code.ENDPOINT_ANSWER
        assert not isinstance(answer.get("status"), str) or answer["status"] not in STATES
    else:
        assert answer["status"] in STATES
        assert status.is_open == (status.state in (JobState.WAITING, JobState.RUNNING))
