"""How documents become jobs, and what happens if the answer to a sent job is lost."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scripts.bench.campaign import SimulatedLoop
from tests.fakes.endpoint import ScriptedEndpoint, succeed
from tests.fakes.platform import Json
from twopass.errors import EndpointError
from twopass.fleet.campaign import MAX_DUPLICATES, UNSENT, Campaign, DocumentOutcome, Plan
from twopass.fleet.discovery import DocumentPreparer, DocumentRef
from twopass.fleet.endpoints.interface import JobState, JobStatus
from twopass.fleet.ledger import Ledger
from twopass.storage.folder_store import FolderStore

PLAN = Plan({}, "x", poll_s=0.0, outlives_command=True)


class Listener:
    """Keeps the outcomes."""

    def __init__(self) -> None:
        self.ended: list[DocumentOutcome] = []

    def document_started(self, name: str, pages: int | None, jobs: int) -> None: ...

    def document_progressed(self, name: str, pages_done: int, phase: str) -> None: ...

    def pages_found(self, name: str, pages: int) -> None: ...

    async def document_ended(self, outcome: DocumentOutcome) -> None:
        self.ended.append(outcome)


async def run(endpoint: ScriptedEndpoint, state: Path, plan: Plan = PLAN, documents: int = 1) -> list[DocumentOutcome]:
    """Read remote documents, which are not counted, with the state in this file."""
    refs = [DocumentRef(f"s3://bucket/{number}.pdf") for number in range(documents)]
    listener = Listener()
    await Campaign(endpoint, DocumentPreparer(), Ledger(state), plan, listener).run(refs)
    return sorted(listener.ended, key=lambda outcome: outcome.number)


def simulate(running: Coroutine[Any, Any, list[DocumentOutcome]]) -> list[DocumentOutcome]:
    """Run a campaign whose pauses take no time."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(running)


@pytest.mark.parametrize(
    ("fields", "pages", "slices"),
    [
        ({}, 100, []),
        ({}, 101, ["1-100", "101-101"]),
        ({}, None, []),
        ({"pages": "50-260"}, 300, ["50-149", "150-249", "250-260"]),
        ({"pages": "1-20,200-"}, 290, ["1-279", "280-290"]),
        ({"resume": False}, 300, []),
    ],
)
def test_slices_cover_the_requested_pages(fields: Json, pages: int | None, slices: list[str]) -> None:
    """Each slice is a range with the same number of requested pages; there is none if one job reads them all."""
    assert Plan(fields, "x").slices(pages) == slices


def read_part(job: Mapping[str, Any], unread: int, read_now: int = 30, error: str | None = None) -> JobStatus:
    """The status of a job of 100 pages that ended at its deadline, without a store unless the job names one."""
    document = {"source": job["source"], "status": "partial_success", "pages": {"read": 100 - unread, "unread": unread}}
    output: Json = {"documents": [document], "usage": {"pages_read_now": read_now, "engine_s": 2.0}}
    output |= {"status": "success" if not unread else "partial_success"}
    if not unread:
        output["documents"] = [{**document, "status": "success"}]
    return JobStatus(JobState.ENDED, output if error is None else {"detail": output}, error, seconds=3.0)


@pytest.mark.parametrize("resume", [None, False, "false", 0, "no"])
@pytest.mark.parametrize("error", [None, "DEADLINE: the job's deadline passed"])
def test_pages_that_are_not_kept_are_no_progress(tmp_path: Path, resume: Any, error: str | None) -> None:
    """Without a store, or with resume false however it is written, a try is a try, even if each reads a little more."""
    unread = iter(range(70, 0, -1))
    endpoint = ScriptedEndpoint(lambda job: read_part(job, next(unread), error=error))
    fields = {} if resume is None else {"output": "s3://bucket/out/", "resume": resume}

    (outcome,) = simulate(run(endpoint, tmp_path / "state.jsonl", replace(PLAN, fields=fields, attempts=3)))

    assert (len(endpoint.reads), outcome.runs, outcome.pages_now, outcome.seconds) == (3, 3, 90, 6.0)
    assert (outcome.error or "").startswith(error or "JOB_LOST: 68 pages unread; given up after 3 runs")
    assert "set --output" in (outcome.error or "") if resume is None else "leave out resume" in (outcome.error or "")


@pytest.mark.parametrize("left", [[70, 70, 70], [70, 75, 70], [100, 100, 100]])
def test_a_store_that_forgets_pages_is_no_progress(tmp_path: Path, left: list[int]) -> None:
    """Pages that were read are progress only if fewer are unread than ever before; else they are the same ones."""
    unread = iter([*left, *left, *left])
    endpoint = ScriptedEndpoint(lambda job: read_part(job, next(unread)))

    plan = replace(PLAN, fields={"output": "s3://bucket/out/"}, attempts=2)
    (outcome,) = simulate(run(endpoint, tmp_path / "state.jsonl", plan))

    assert len(endpoint.reads) == 3
    assert "given up after 2 runs that stored no new page" in (outcome.error or "")


def test_a_job_that_stores_pages_is_continued(tmp_path: Path) -> None:
    """As long as each run leaves fewer pages, `--tries` does not count; a store is known by its result, too."""
    unread = iter([80, 60, 40, 20, 0])

    def answer(job: Mapping[str, Any]) -> JobStatus:
        status = read_part(job, next(unread), 20)
        return replace(status, output={**status.output, "store": "conditional"})

    endpoint = ScriptedEndpoint(answer)

    (outcome,) = simulate(run(endpoint, tmp_path / "state.jsonl", replace(PLAN, attempts=1)))

    assert (outcome.status, outcome.error, outcome.runs, outcome.pages_now) == ("success", None, 5, 100)


def test_a_job_that_reads_one_page_a_run_ends(tmp_path: Path) -> None:
    """A document that kills each worker at its next page costs no more than `--max-runs` runs."""
    unread = iter(range(99, 0, -1))
    endpoint = ScriptedEndpoint(lambda job: read_part(job, next(unread), 1, "ENGINE_DEAD: gone"))

    plan = replace(PLAN, fields={"output": "s3://bucket/out/"}, max_runs=5)
    (outcome,) = simulate(run(endpoint, tmp_path / "state.jsonl", plan))

    assert outcome.runs == len(endpoint.reads) == 5
    assert (outcome.error or "").startswith("RUN_LIMIT: 5 runs did not complete the job (ENGINE_DEAD: gone)")


def test_a_lost_job_has_the_time_that_it_was_seen_running(tmp_path: Path) -> None:
    """An endpoint that forgets a job does not say how long it ran; its cost counts all the same."""
    states = iter([JobStatus(JobState.WAITING), *([JobStatus(JobState.RUNNING)] * 5), JobStatus(JobState.GONE)])
    endpoint = ScriptedEndpoint(lambda job: next(states))
    plan = replace(PLAN, poll_s=2.0, attempts=1, price=0.5)

    (outcome,) = simulate(run(endpoint, tmp_path / "state.jsonl", plan))

    assert (outcome.seconds, outcome.cost) == (10.0, 5.0)


async def test_jobs_that_name_each_other_as_duplicates_end(tmp_path: Path) -> None:
    """Two jobs of which each says that the other reads are not followed for ever."""

    def answer(job: Mapping[str, Any]) -> JobStatus:
        other = "2" if len(endpoint.reads) % 2 else "1"
        return JobStatus(JobState.ENDED, {"detail": {"duplicate_of": other}}, "DUPLICATE: x")

    endpoint = ScriptedEndpoint(answer)
    endpoint.inputs.append({})  # job 1; the campaign's is job 2

    (outcome,) = await run(endpoint, tmp_path / "state.jsonl")

    assert (outcome.error or "").startswith("ENDPOINT_ANSWER: job")


class RunningEndpoint(ScriptedEndpoint):
    """Each job runs for ten polls; how many ran at one time is counted."""

    def __init__(self, answer: Any) -> None:
        super().__init__(answer)
        self.polls: Counter[str] = Counter()
        self.most_at_once = 0

    async def poll(self, job_id: str) -> JobStatus:
        self.polls[job_id] += 1
        running = sum(count < 10 for count in self.polls.values())
        self.most_at_once = max(self.most_at_once, running)
        return JobStatus(JobState.RUNNING) if self.polls[job_id] < 10 else await super().poll(job_id)


@pytest.mark.parametrize("limit", [1.0, 2.0, 5.0, 9.0, 11.0])
@pytest.mark.parametrize("in_flight", [1, 4, 100])
async def test_no_job_is_sent_that_would_exceed_the_limit(tmp_path: Path, limit: float, in_flight: int) -> None:
    """Each of 20 documents costs 2 dollars; jobs in flight count before they end, and only the first one can exceed."""
    endpoint = RunningEndpoint(succeed)
    plan = replace(PLAN, price=1.0, max_cost=limit, in_flight=in_flight)

    outcomes = await run(endpoint, tmp_path / "state.jsonl", plan, documents=20)
    again = await run(endpoint, tmp_path / "state.jsonl", plan, documents=20)

    cost = sum(outcome.cost or 0 for outcome in outcomes)
    assert cost == max(2.0, limit // 2 * 2) == sum(2.0 for _ in endpoint.reads)
    unsent = [outcome for outcome in outcomes if outcome.status == UNSENT]
    assert len(unsent) == 20 - cost / 2 == sum(outcome.status == UNSENT for outcome in again)
    assert all((outcome.error or "").startswith(f"COST_LIMIT: --max-cost {limit:g}: $") for outcome in unsent)


async def test_enough_money_does_not_slow_a_campaign_down(tmp_path: Path) -> None:
    """Where the limit is far away, as many jobs run at once as without it, from the first one on."""
    endpoint = RunningEndpoint(succeed)

    await run(endpoint, tmp_path / "state.jsonl", replace(PLAN, price=0.01, max_cost=1000.0, in_flight=8), documents=20)

    assert endpoint.most_at_once == 8


async def test_a_job_that_was_sent_before_is_followed_whatever_it_costs(tmp_path: Path) -> None:
    """An earlier command has sent it, so that it costs money in any case; nothing else is sent."""
    endpoint = ScriptedEndpoint()
    ledger = Ledger(tmp_path / "state.jsonl")
    ledger.forget_job("earlier", None, 7.0, 1)
    await run(ScriptedEndpoint(), tmp_path / "other.jsonl", PLAN)
    (sent,) = [json.loads(line) for line in (tmp_path / "other.jsonl").read_text().splitlines() if '"job": "1"' in line]
    ledger.record_job(sent["key"], "1")
    endpoint.inputs.append({"source": "s3://bucket/0.pdf"})

    plan = replace(PLAN, price=1.0, max_cost=5.0)
    outcomes = await run(endpoint, tmp_path / "state.jsonl", plan, documents=2)

    assert [outcome.status for outcome in outcomes] == ["success", UNSENT]
    assert len(endpoint.inputs) == 1


async def test_a_job_whose_answer_was_lost_is_followed_by_the_next_run(tmp_path: Path) -> None:
    """The repeated command sends the same key, learns the id of the first job, and takes its result."""
    endpoint = ScriptedEndpoint(lost_answers=1)
    with pytest.raises(EndpointError):
        await run(endpoint, tmp_path / "state.jsonl")

    (outcome,) = await run(endpoint, tmp_path / "state.jsonl")
    again = await run(endpoint, tmp_path / "state.jsonl")

    first, second = (job["idempotency_key"] for job in endpoint.inputs)
    assert first == second
    assert endpoint.reads == ["1"]
    assert outcome.status == again[0].status == "success"


async def test_jobs_that_name_ever_new_originals_end(tmp_path: Path) -> None:
    """An endpoint for which every job is a duplicate of another one is not followed for ever."""

    class Endless(ScriptedEndpoint):
        async def poll(self, job_id: str) -> JobStatus:
            self.reads.append(job_id)
            return JobStatus(JobState.ENDED, {"status": "failure", "duplicate_of": f"{job_id}1"}, "DUPLICATE: other")

    endpoint = Endless()

    (outcome,) = await run(endpoint, tmp_path / "state.jsonl")

    assert (outcome.error or "").startswith("ENDPOINT_ANSWER") and len(endpoint.reads) == MAX_DUPLICATES


def test_a_job_that_is_sent_again_has_another_key(tmp_path: Path) -> None:
    """An attempt that was lost must not keep the next one from reading, and documents do not share keys."""
    answers = [JobStatus(JobState.GONE, error="lost")]
    endpoint = ScriptedEndpoint(lambda job: answers.pop() if answers else succeed(job))

    outcomes = simulate(run(endpoint, tmp_path / "state.jsonl", replace(PLAN, in_flight=1), documents=2))

    assert [outcome.status for outcome in outcomes] == ["success", "success"]
    assert len({job["idempotency_key"] for job in endpoint.inputs}) == 3


def test_a_job_whose_original_is_gone_is_sent_again(tmp_path: Path) -> None:
    """The first job, whose answer was lost, ended without a result: the next attempt reads under another key."""
    answers = [JobStatus(JobState.GONE, error="lost")]
    endpoint = ScriptedEndpoint(lambda job: answers.pop() if answers else succeed(job), lost_answers=1)
    with pytest.raises(EndpointError):
        simulate(run(endpoint, tmp_path / "state.jsonl"))

    (outcome,) = simulate(run(endpoint, tmp_path / "state.jsonl"))

    assert outcome.status == "success"
    assert endpoint.reads == ["1", "3"]


async def test_an_endpoint_that_does_not_know_keys_gets_none(tmp_path: Path) -> None:
    """Workers of 0.2.0 refuse the field: their job is sent again without it, and so are all later ones."""

    def answer(job: Mapping[str, Any]) -> JobStatus:
        error = "INVALID_JOB: idempotency_key: unknown field"
        return JobStatus(JobState.ENDED, None, error) if "idempotency_key" in job else succeed(job)

    endpoint = ScriptedEndpoint(answer)

    outcomes = await run(endpoint, tmp_path / "state.jsonl", replace(PLAN, in_flight=1, attempts=1), documents=2)

    assert [outcome.status for outcome in outcomes] == ["success", "success"]
    assert ["idempotency_key" in job for job in endpoint.inputs] == [True, False, False]


def test_an_endpoint_that_refuses_a_key_it_did_not_get_ends_the_job(tmp_path: Path) -> None:
    """Without a key the refusal is an error like others: the job is not sent for ever."""
    refusal = JobStatus(JobState.ENDED, None, "INVALID_JOB: idempotency_key: unknown field")
    answers = iter([refusal] * 9)
    endpoint = ScriptedEndpoint(lambda job: next(answers, succeed(job)))

    (outcome,) = simulate(run(endpoint, tmp_path / "state.jsonl"))

    assert (len(endpoint.reads), outcome.error) == (2, refusal.error)


async def test_jobs_that_end_with_the_command_have_no_key(tmp_path: Path) -> None:
    """A local API's jobs are gone with the connection, and its job ids are not those that its worker sees."""
    endpoint = ScriptedEndpoint()

    await run(endpoint, tmp_path / "state.jsonl", replace(PLAN, outlives_command=False))

    assert "idempotency_key" not in endpoint.inputs[0]


async def test_documents_are_taken_when_there_is_room_for_them(tmp_path: Path) -> None:
    """A long list takes no memory ahead of its jobs: no more documents are taken than jobs may be in flight."""
    taken = 0
    ahead: list[int] = []

    def name_documents() -> Iterator[DocumentRef]:
        nonlocal taken
        for taken in range(1, 31):
            yield DocumentRef(f"s3://bucket/{taken}.pdf")

    polled: set[str] = set()

    def answer(job: Mapping[str, Any]) -> JobStatus:
        ahead.append(taken - len(listener.ended))
        is_first_poll = job["source"] not in polled
        polled.add(job["source"])
        return JobStatus(JobState.RUNNING) if is_first_poll else succeed(job)

    endpoint, listener, plan = ScriptedEndpoint(answer), Listener(), replace(PLAN, in_flight=4)
    campaign = Campaign(endpoint, DocumentPreparer(), Ledger(tmp_path / "s"), plan, listener)
    await campaign.run(name_documents())

    assert max(ahead) == 4
    assert sorted(outcome.number for outcome in listener.ended) == list(range(30))
    assert {f"s3://bucket/{outcome.number + 1}.pdf" for outcome in listener.ended} == {
        outcome.name for outcome in listener.ended
    }


async def test_a_document_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    """A document that is not counted is known by its address; a listing says whether its bytes are others."""
    endpoint = ScriptedEndpoint()
    for version in ("v1", "v1", "v2", None):
        campaign = Campaign(endpoint, DocumentPreparer(), Ledger(tmp_path / "state.jsonl"), PLAN, Listener())
        await campaign.run([DocumentRef("s3://bucket/a.pdf", version)])

    assert len(endpoint.inputs) == 2


@pytest.mark.parametrize(
    ("pages", "severity", "sent"),
    [
        ({"read": 3}, "warning", 1),
        ({"read": 2, "failed": 1}, "warning", 2),
        ({"read": 3}, "error", 2),
    ],
)
async def test_a_document_with_losses_is_not_sent_again(tmp_path: Path, pages: Json, severity: str, sent: int) -> None:
    """What the audit misses of a page that was read is missing each time; a failed page or an artefact may not be."""

    def lose(job: Mapping[str, Any]) -> JobStatus:
        document = {"source": job["source"], "status": "partial_success", "pages": pages}
        problem = {"code": "REGIONS_UNREAD", "severity": severity, "message": "1 of 2 regions not read"}
        output = {"status": "partial_success", "documents": [document], "problems": [problem]}
        return JobStatus(JobState.ENDED, output, seconds=3.0)

    endpoint = ScriptedEndpoint(lose)
    for _ in range(2):
        (outcome,) = await run(endpoint, tmp_path / "state.jsonl")

    assert (len(endpoint.inputs), outcome.status) == (sent, "partial_success")


async def test_a_file_is_uploaded_only_for_a_job_that_is_sent(tmp_path: Path) -> None:
    """A repeated command makes no request for documents that were read."""
    (tmp_path / "a.pdf").write_bytes(b"%PDF")
    (tmp_path / "up").mkdir()
    endpoint, store = ScriptedEndpoint(), FolderStore(tmp_path / "up")
    for _ in range(2):
        ledger = Ledger(tmp_path / "state.jsonl")
        campaign = Campaign(endpoint, DocumentPreparer(upload=store, ledger=ledger), ledger, PLAN, Listener())
        await campaign.run([DocumentRef(str(tmp_path / "a.pdf"))])
        uploaded = [path for path in (tmp_path / "up").rglob("*") if path.is_file()]
        for path in uploaded:
            path.unlink()
    await store.close()

    (job,) = endpoint.inputs
    assert job["source"].startswith(str(tmp_path / "up")) and job["source"].endswith("/a.pdf")
    assert uploaded == []
