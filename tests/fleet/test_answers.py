"""Answers of any shape: a coded failure of one job, never a traceback, and the other documents go on."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.actors import Cluster
from tests.fakes.endpoint import ScriptedEndpoint, succeed
from tests.fakes.platform import Platform, ScriptedBackend
from tests.fleet.test_campaign import PLAN, Listener, simulate
from tests.fleet.test_endpoints import JSON, ONE_ATTEMPT
from twopass.errors import AnswerError, Code, TwopassError
from twopass.fleet.campaign import Campaign, DocumentOutcome
from twopass.fleet.discovery import DocumentPreparer, DocumentRef
from twopass.fleet.endpoints import answers
from twopass.fleet.endpoints.actor_pool import ActorPool, PoolSize, Reply
from twopass.fleet.endpoints.answers import ActorReply
from twopass.fleet.endpoints.interface import JobState, JobStatus
from twopass.fleet.endpoints.runpod import LocalApi, RunPod
from twopass.fleet.ledger import Ledger
from twopass.fleet.submission import ResultSaver


class Deep(list[Any]):
    """A list in a list, 100,000 times."""

    def __init__(self) -> None:
        inner: list[Any] = []
        for _ in range(100_000):
            inner = [inner]
        super().__init__(inner)

    def __repr__(self) -> str:
        return "Deep()"


DEEP = Deep()
GOOD = {"status": "success", "documents": [{"id": "a-1", "status": "success", "pages": {"read": 1}}]}


def change(path: str, value: Any) -> dict[str, Any]:
    """A good result with another value at this path, such as `documents.0.id`."""
    result = json.loads(json.dumps(GOOD))
    *parents, last = path.split(".")
    place = result
    for name in parents:
        place = place[int(name)] if isinstance(place, list) else place.setdefault(name, {})
    place[last] = value
    return dict(result)


MALFORMED = [
    [1, 2],
    "text",
    7,
    {},
    {"documents": []},
    {"documents": {"a": 1}},
    {"documents": [None]},
    {"documents": [[1]]},
    {"detail": [1]},
    DEEP,
    {"status": {1, 2}, "documents": DEEP},
    *[change("usage", value) for value in (None, [1], "x", 5)],
    *[change("usage.pages_read_now", value) for value in ("x", -1, 1.5, None, True, 10**400, float("nan"), [1])],
    *[change("usage.engine_s", value) for value in ("x", -1, 1e300, 10**400, float("inf"), {})],
    *[change("usage.cost", value) for value in ("x", -1, 1e300, 10**400, {}, [])],
    *[change("documents.0.status", value) for value in (None, 1, "done", ["success"])],
    *[change("documents.0.id", value) for value in (1, "", "..", "../a", "a/b", "a\0b", "x" * 5000, "\ud800", {})],
    *[change("documents.0.pages", value) for value in (None, [1], {"unread": "x"}, {"unread": -1}, {"read": 1e300})],
    *[change("documents.0.artefacts", value) for value in (None, [1], {"a": 1}, {"a": {}}, {"..": {"uri": "x"}})],
    *[change("documents.0.artefacts", value) for value in ({"a": {"uri": 1}}, {"a": {"uri": None}})],
    *[change("documents.0.inline", value) for value in (None, [1], "x")],
    *[change("problems", value) for value in (None, [1], "x", {"a": 1}, [None])],
    *[change("duplicate_of", value) for value in (1, "", "a b", "x" * 5000, "\n", {})],
]


def answer_first(answer: Callable[[], JobStatus]) -> ScriptedEndpoint:
    """An endpoint that answers the polls of the first document's jobs like this."""
    return ScriptedEndpoint(lambda job: answer() if job["source"].endswith("/0.pdf") else succeed(job))


def send(endpoint: ScriptedEndpoint, folder: str | Path) -> list[DocumentOutcome]:
    """Read two documents, and save their results."""
    listener, state = Listener(), Path(folder)
    refs = [DocumentRef(f"s3://bucket/{number}.pdf") for number in range(2)]
    saver = ResultSaver(listener, state / "saved", None)
    campaign = Campaign(endpoint, DocumentPreparer(), Ledger(state / "state.jsonl"), PLAN, saver)

    async def run_campaign() -> list[DocumentOutcome]:
        await campaign.run(refs)
        return sorted(listener.ended, key=lambda outcome: outcome.number)

    return simulate(run_campaign())


@pytest.mark.parametrize("output", MALFORMED, ids=lambda output: repr(output)[:60])
def test_a_malformed_result_fails_its_job_once(tmp_path: Path, output: Any) -> None:
    """The job has a code and is not sent again, by this command or the next: it would cost as much. Others go on."""
    endpoint = answer_first(lambda: JobStatus(JobState.ENDED, output))

    outcomes = send(endpoint, tmp_path)
    again = send(endpoint, tmp_path)

    assert [outcome.status for outcome in outcomes] == ["failure", "success"]
    assert (outcomes[0].error or "").startswith("ENDPOINT_ANSWER: the job's result cannot be parsed")
    assert [outcome.runs for outcome in again] == [1, 0]
    assert len(endpoint.inputs) == 2


ANY_STATUS = st.builds(
    JobStatus,
    st.sampled_from(JobState),
    JSON | st.sampled_from(MALFORMED) | st.builds(change, st.sampled_from(["usage", "documents", "problems"]), JSON),
    st.none() | st.text(max_size=20),
    st.none() | st.floats(0, 1e9),
)


@settings(max_examples=50)
@given(ANY_STATUS)
def test_no_answer_to_a_poll_ends_the_campaign(status: JobStatus) -> None:
    """Whatever a job's output is while it runs and when it ends, its document has a result or a coded error."""
    statuses = iter([status])
    with TemporaryDirectory() as folder:
        first, second = send(answer_first(lambda: next(statuses, succeed({"source": "x"}))), folder)

    assert second.status == "success"
    assert first.status in ("success", "partial_success", "failure")
    assert first.error is None or re.match(r"[A-Z_]+: ", first.error)
    if status.is_open:
        assert first.status == "success"


GARBLED = [
    b"",
    b"[1,2]",
    b"null",
    b"<html><body>Bad gateway</body></html>",
    b"[" * 200_000,
    b"\xff\xfe\x00{",
    b'{"id": 5}',
    b'{"id": null, "status": null}',
    b'{"id": "a\\nb", "status": "COMPLETED", "output": {"usage": null}}',
    b'{"id": "../cancel/a", "status": "WAITING"}',
    b'{"id": "a", "status": "COMPLETED", "output": {"documents": [{"status": "success"}], "usage": null}}',
    b'{"id": "a", "status": "COMPLETED", "output": [1, 2], "executionTime": 1e999}',
    b'{"id": "a", "status": "COMPLETED", "output": ' + b'{"a":' * 300 + b"1" + b"}" * 301,
    b'{"id": "a", "status": ["COMPLETED"], "executionTime": ' + b"9" * 4000 + b"}",
    b'{"id": "a", "status": "FAILED", "error": {"a": [NaN]}}',
    b'{"id": "\\ud800", "status": "\\ud800"}',
]


async def send_to(platform: Platform, url: str, folder: str | Path, documents: int) -> list[DocumentOutcome]:
    """Read documents, one after the other."""
    listener, refs = Listener(), [DocumentRef(f"s3://bucket/{number}.pdf") for number in range(documents)]
    async with RunPod(url, platform.key, 60, answer_policy=ONE_ATTEMPT) as endpoint:
        plan = replace(PLAN, in_flight=1)
        await Campaign(endpoint, DocumentPreparer(), Ledger(Path(folder) / "s"), plan, listener).run(refs)
    return listener.ended


async def send_garbled(answers: Sequence[bytes]) -> list[DocumentOutcome]:
    """Read documents of which each of these is the answer to one's job that is sent, and to another one's poll."""
    runs: list[str] = []

    def garble(path: str) -> bytes | None:
        if path == "/run":
            runs.append(path)
            return answers[len(runs) - 1] if len(runs) <= len(answers) else None
        number = int(path.rpartition("job-")[2]) if path.startswith("/status/job-") else 0
        return answers[number - 1] if number <= len(answers) else None

    status = {"status": "COMPLETED", "output": GOOD}
    platform = Platform(ScriptedBackend(lambda job: status), garble=garble)
    with platform.serve() as url, TemporaryDirectory() as folder:
        return await send_to(platform, url, folder, 2 * len(answers) + 1)


async def test_a_garbled_answer_fails_its_job() -> None:
    """Whether it is the answer to a job that is sent or to a poll, the job has a code, and other documents go on."""
    outcomes = await send_garbled(GARBLED)

    assert [outcome.status for outcome in outcomes] == ["failure"] * 2 * len(GARBLED) + ["success"]
    assert {(outcome.error or "").partition(":")[0] for outcome in outcomes[:-1]} == {"ENDPOINT_ANSWER", "JOB_LOST"}


@settings(max_examples=5)
@given(st.lists(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()), min_size=1, max_size=20))
async def test_no_bytes_end_the_campaign(answers: list[bytes]) -> None:
    """Any JSON and any bytes as an answer over HTTP leave the other documents alone."""
    outcomes = await send_garbled(answers)

    assert outcomes[-1].status == "success"
    assert all((outcome.error or "").startswith("ENDPOINT_ANSWER") for outcome in outcomes[:-1])


async def test_a_job_is_not_sent_twice_because_of_its_answer(tmp_path: Path) -> None:
    """A garbled answer to /run may hide a job: it is not repeated, and the next command repeats its key."""
    platform = Platform(ScriptedBackend(lambda job: {"status": "COMPLETED", "output": GOOD}))
    platform.garble = lambda path: b"<html>" if path == "/run" and len(platform.requests) == 1 else None
    with platform.serve() as url:
        for _ in range(2):
            await send_to(platform, url, tmp_path, 3)
    keys = [body["input"]["idempotency_key"] for body in platform.bodies]
    sending = [json.loads(line) for line in (tmp_path / "s").read_text().splitlines() if '"sending"' in line]

    assert len(sending) == len(keys) == 3
    assert keys[-1] == sending[0]["sending"]


async def test_a_poll_that_is_garbled_once_is_repeated() -> None:
    """A proxy's page in between fails no job."""
    pages = [b"<html>", b"[1,2]"]
    platform = Platform(ScriptedBackend(lambda job: {"status": "COMPLETED", "output": GOOD}))
    platform.garble = lambda path: pages.pop() if pages and path.startswith("/status") else None
    with platform.serve() as url:
        policy = replace(ONE_ATTEMPT, attempts=3, delays=(), is_retryable=lambda error: isinstance(error, AnswerError))
        async with RunPod(url, platform.key, 60, answer_policy=policy) as endpoint:
            status = await endpoint.poll(await endpoint.submit({"source": "a"}))

    assert status.state is JobState.ENDED


@pytest.mark.parametrize("garbled", [b"[1,2]", b"<html>", b"[" * 200_000, b'{"status": 1}', b"\xff"])
async def test_a_local_api_that_answers_anything_fails_the_job(garbled: bytes) -> None:
    """A worker's local API is parsed as RunPod is."""
    platform = Platform(ScriptedBackend(lambda job: None), key=None, garble=lambda path: garbled)
    with platform.serve() as url:
        async with LocalApi(url, ONE_ATTEMPT) as endpoint, asyncio.timeout(60):
            job_id = await endpoint.submit({"source": "a"})
            with pytest.raises(AnswerError, match="ENDPOINT_ANSWER"):
                while (await endpoint.poll(job_id)).is_open:
                    await asyncio.sleep(0)


OBJECTS = JSON | st.sampled_from([DEEP, {1: 2}, {"a": object()}, b"\xff", Reply, 10**4000, float("nan"), {"a": DEEP}])


@given(st.builds(Reply, OBJECTS, OBJECTS, OBJECTS, OBJECTS) | OBJECTS)
def test_any_object_of_an_actor_is_a_reply_or_a_coded_error(reply: Any) -> None:
    """What a Ray actor returns is pickled, so that it may be anything."""
    try:
        parsed = answers.parse(ActorReply, reply, "a Ray actor's reply")
    except TwopassError as error:
        assert error.code is Code.ENDPOINT_ANSWER
    else:
        assert parsed.seconds >= 0


async def test_an_actor_whose_reply_cannot_be_parsed_loses_one_job() -> None:
    """Another job of the same actor goes on."""
    cluster = Cluster()
    pool = ActorPool(cluster.start, PoolSize())
    jobs = [asyncio.create_task(pool.run(name, {})) for name in ("a", "b")]
    async with asyncio.timeout(60):
        while not (cluster.actors and len(cluster.actors[0].jobs) == 2):
            await asyncio.sleep(0)
        cluster.actors[0].jobs["a"].set_exception(AnswerError(Code.ENDPOINT_ANSWER, "x"))
        cluster.actors[0].finish("b")
        lost, status = await asyncio.gather(*jobs, return_exceptions=True)
    await pool.close()

    assert isinstance(lost, AnswerError)
    assert isinstance(status, JobStatus) and status.state is JobState.ENDED
