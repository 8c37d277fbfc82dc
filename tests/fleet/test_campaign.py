"""How documents become jobs, and what happens if the answer to a sent job is lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.endpoint import ScriptedEndpoint, succeed
from tests.fakes.platform import Json
from twopass.errors import EndpointError
from twopass.fleet.campaign import Campaign, DocumentOutcome, Plan
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

    async def document_ended(self, outcome: DocumentOutcome) -> None:
        self.ended.append(outcome)


async def run(endpoint: ScriptedEndpoint, state: Path, plan: Plan = PLAN, documents: int = 1) -> list[DocumentOutcome]:
    """Read remote documents, which are not counted, with the state in this file."""
    refs = [DocumentRef(f"s3://bucket/{number}.pdf") for number in range(documents)]
    listener = Listener()
    await Campaign(endpoint, DocumentPreparer(), Ledger(state), plan, listener).run(refs)
    return sorted(listener.ended, key=lambda outcome: outcome.number)


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


async def test_a_job_that_is_sent_again_has_another_key(tmp_path: Path) -> None:
    """An attempt that was lost must not keep the next one from reading, and documents do not share keys."""
    answers = [JobStatus(JobState.GONE, error="lost")]
    endpoint = ScriptedEndpoint(lambda job: answers.pop() if answers else succeed(job))

    outcomes = await run(endpoint, tmp_path / "state.jsonl", replace(PLAN, in_flight=1), documents=2)

    assert [outcome.status for outcome in outcomes] == ["success", "success"]
    assert len({job["idempotency_key"] for job in endpoint.inputs}) == 3


async def test_a_job_whose_original_is_gone_is_sent_again(tmp_path: Path) -> None:
    """The first job, whose answer was lost, ended without a result: the next attempt reads under another key."""
    answers = [JobStatus(JobState.GONE, error="lost")]
    endpoint = ScriptedEndpoint(lambda job: answers.pop() if answers else succeed(job), lost_answers=1)
    with pytest.raises(EndpointError):
        await run(endpoint, tmp_path / "state.jsonl")

    (outcome,) = await run(endpoint, tmp_path / "state.jsonl")

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
