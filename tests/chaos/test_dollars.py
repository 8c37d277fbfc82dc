"""What a campaign pays for while answers, jobs and workers are lost: simulated jobs run, needed and run twice."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from scripts.bench.campaign import SimulatedLoop
from tests.chaos.chaos import read_count
from tests.chaos.simulated_workers import PAGE_DOLLARS, SimulatedDocuments, SimulatedWorkers, count_pages
from twopass.errors import Code, EndpointError
from twopass.fleet.campaign import UNSENT, Campaign, DocumentOutcome, Plan
from twopass.fleet.discovery import DocumentRef
from twopass.fleet.ledger import Ledger

DOCUMENTS = read_count("DOCUMENTS", 60)
SOURCES = [f"s3://bucket/{number}.pdf" for number in range(DOCUMENTS)]
PLAN = Plan({}, "simulated", slice_pages=20, in_flight=8, price=PAGE_DOLLARS, outlives_command=True)
MAX_COMMANDS = 50 + DOCUMENTS  # a lost answer in ten ends a command


class Outcomes:
    """Keeps the last outcome of each document."""

    def __init__(self) -> None:
        self.by_name: dict[str, DocumentOutcome] = {}

    def document_started(self, name: str, pages: int | None, jobs: int) -> None: ...

    def document_progressed(self, name: str, pages_done: int, phase: str) -> None: ...

    def pages_found(self, name: str, pages: int) -> None: ...

    async def document_ended(self, outcome: DocumentOutcome) -> None:
        self.by_name[outcome.name] = outcome


def repeat_command(workers: SimulatedWorkers, state: Path, plan: Plan = PLAN) -> dict[str, DocumentOutcome]:
    """Run the campaign, and again while an answer of the endpoint was lost; returns the documents' last outcomes."""
    outcomes = Outcomes()
    for _ in range(MAX_COMMANDS):
        campaign = Campaign(workers, SimulatedDocuments(), Ledger(state), plan, outcomes)
        try:
            with capture_logs(), asyncio.Runner(loop_factory=SimulatedLoop) as runner:
                runner.run(campaign.run(map(DocumentRef, SOURCES)))
        except EndpointError:
            continue
        if not any(is_asked_for_again(outcome) for outcome in outcomes.by_name.values()):
            return outcomes.by_name
    raise AssertionError(f"the campaign does not end within {MAX_COMMANDS} commands")


def is_asked_for_again(outcome: DocumentOutcome) -> bool:
    return (outcome.error or "").startswith((Code.ENDPOINT_ANSWER, Code.ENDPOINT_UNAVAILABLE))


@pytest.mark.parametrize("seed", range(3))
def test_with_an_output_no_page_is_paid_for_twice(tmp_path: Path, seed: int) -> None:
    """Whatever gets lost, each page is read once, and every document is complete at last."""
    workers = SimulatedWorkers(seed, has_store=True)

    outcomes = repeat_command(workers, tmp_path / "state.jsonl", replace(PLAN, attempts=8))

    print(f"\nwith an output, {DOCUMENTS} documents: {workers.bill}", end="")
    assert {outcome.status for outcome in outcomes.values()} == {"success"}
    assert set(workers.reads) == {(source, page) for source in SOURCES for page in range(1, count_pages(source) + 1)}
    assert workers.bill.twice == 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("has_output", [False, True], ids=["no output", "resume false"])
def test_without_kept_pages_a_document_costs_no_more_than_its_tries(
    tmp_path: Path, seed: int, has_output: bool
) -> None:
    """A document that needs longer than a deadline is given up after `attempts` runs, over all commands."""
    workers = SimulatedWorkers(seed, has_store=False)
    fields = {"output": "s3://bucket/out/", "resume": False} if has_output else {}

    outcomes = repeat_command(workers, tmp_path / "state.jsonl", replace(PLAN, fields=fields, slice_pages=0))

    print(f"\n{'resume false' if has_output else 'no output'}, {DOCUMENTS} documents: {workers.bill}", end="")
    assert outcomes.keys() == set(SOURCES)
    for name, outcome in outcomes.items():
        if count_pages(name) <= workers.deadline_pages and outcome.status != "success":
            assert workers.runs[name] >= PLAN.attempts  # each of them died
        elif count_pages(name) > workers.deadline_pages:
            assert (outcome.error or "").startswith(("JOB_LOST", "DEADLINE", "ENGINE_DEAD"))
        assert workers.runs[name] <= PLAN.attempts + workers.unknown_runs[name]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("has_store", [False, True])
def test_a_limit_in_dollars_holds_over_all_commands(tmp_path: Path, seed: int, has_store: bool) -> None:
    """However often the command is repeated, no more is spent than the limit and the jobs in flight when it is reached.

    What jobs cost whose ids were lost for good, which needs a job without an output, nobody knows.
    """
    workers = SimulatedWorkers(seed, has_store)
    limit = PAGE_DOLLARS * sum(map(count_pages, SOURCES)) / 3

    outcomes = repeat_command(
        workers, tmp_path / "state.jsonl", replace(PLAN, max_cost=limit, slice_pages=20 if has_store else 0)
    )

    spent = workers.bill.needed + workers.bill.twice
    unsent = sum(outcome.status == UNSENT for outcome in outcomes.values())
    print(f"\nlimit ${limit:.4f}, {DOCUMENTS} documents, {unsent} not sent: {workers.bill}", end="")
    assert spent - PAGE_DOLLARS * workers.unseen <= limit + PLAN.in_flight * workers.deadline_pages * PAGE_DOLLARS
    assert unsent > 0
