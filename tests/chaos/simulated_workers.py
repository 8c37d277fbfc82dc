"""An endpoint whose workers read pages for dollars, while answers, jobs and workers get lost as a seed says.

Every page that is read is counted, so that what a campaign spends can be compared with what it needs.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from twopass.errors import AnswerError, Code, EndpointError
from twopass.fleet.discovery import DocumentPreparer, DocumentRef, PreparedDocument
from twopass.fleet.endpoints.interface import JobState, JobStatus
from twopass.page_range import PageRange

PAGE_DOLLARS = 0.0001  # a page of a second, for this price of a second

# How jobs end, and how often of 100: at their deadline or complete, with a dead engine, or forgotten by the platform.
ENDINGS = {"ends": 80, "dies": 10, "gone": 10}
LOST_ANSWERS, GARBLED_POLLS = 0.1, 0.03  # the command ends, or the document fails, until the command is repeated


def count_pages(source: str) -> int:
    """The pages of a document: 1 to 60, always the same ones for its name."""
    return random.Random(source).randint(1, 60)


@dataclass(frozen=True)
class Bill:
    """What a campaign spent: jobs that read pages, and dollars; needed for pages read once, twice for all others."""

    run: int
    run_twice: int
    needed: float
    twice: float

    def __str__(self) -> str:
        jobs = f"{self.run} jobs run, {self.run - self.run_twice} needed, {self.run_twice} run twice"
        return f"{jobs}; ${self.needed + self.twice:.4f} spent, ${self.needed:.4f} needed, ${self.twice:.4f} paid twice"


@dataclass
class SimulatedWorkers:
    """Each job reads `deadline_pages` until its deadline. With `has_store`, pages are kept and keys are claimed."""

    seed: int
    has_store: bool
    deadline_pages: int = 25
    stored: Counter[tuple[str, int]] = field(default_factory=Counter)
    reads: Counter[tuple[str, int]] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)
    unseen: float = 0.0  # seconds of jobs whose ids were lost for good: without a store, a key finds no job
    run_twice: int = 0  # jobs of which every page had been read before
    statuses: list[JobStatus] = field(default_factory=list)
    claims: dict[str, str] = field(default_factory=dict)
    unknown_runs: Counter[str] = field(default_factory=Counter)  # of which the campaign cannot know what they read

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    @property
    def bill(self) -> Bill:
        twice = self.reads.total() - len(self.reads)
        return Bill(self.runs.total(), self.run_twice, PAGE_DOLLARS * len(self.reads), PAGE_DOLLARS * twice)

    async def submit(self, job_input: Mapping[str, Any]) -> str:
        self.statuses.append(self._run(str(len(self.statuses)), job_input))
        if self._random.random() < LOST_ANSWERS:
            self.unknown_runs[job_input["source"]] += 1
            self.unseen += 0 if self.has_store else self.statuses[-1].seconds or 0.0
            raise EndpointError(Code.ENDPOINT_UNAVAILABLE, "the connection was cut")
        return str(len(self.statuses) - 1)

    async def poll(self, job_id: str) -> JobStatus:
        if self._random.random() < GARBLED_POLLS:
            raise AnswerError(Code.ENDPOINT_ANSWER, "the job's status is not JSON")
        return self.statuses[int(job_id)]

    async def cancel(self, job_id: str) -> None: ...

    def _run(self, job_id: str, job: Mapping[str, Any]) -> JobStatus:
        """Read the job's pages at once; returns how it ends."""
        if self.has_store and (owner := self.claims.setdefault(job["idempotency_key"], job_id)) != job_id:
            return JobStatus(JobState.ENDED, {"detail": {"duplicate_of": owner}}, f"DUPLICATE: {owner}")
        if "slice" in job and not self.has_store:
            return JobStatus(JobState.ENDED, None, "OUTPUT_MISSING: slice: needs an output")
        source = job["source"]
        pages = PageRange.parse(job.get("slice", "1-")).select(count_pages(source))
        (ending,) = self._random.choices(list(ENDINGS), list(ENDINGS.values()))
        unread = [page for page in pages if not self.stored[source, page]]
        limit = self.deadline_pages if ending == "ends" else self._random.randint(0, self.deadline_pages)
        read_now = unread[:limit]
        self.run_twice += bool(read_now) and all(self.reads[source, page] for page in read_now)
        self.reads.update((source, page) for page in read_now)
        self.stored.update((source, page) for page in read_now if self.has_store)
        self.runs[source] += bool(read_now)
        if ending == "gone":
            self.unknown_runs[source] += 1
            return JobStatus(JobState.GONE, seconds=float(len(read_now)))
        return self._describe(source, len(pages), len(unread), len(read_now), ending)

    def _describe(self, source: str, pages: int, unread: int, read_now: int, ending: str) -> JobStatus:
        """The worker's answer, with the pages that were found in the store."""
        left = unread - read_now
        counts = {"read": pages - left, "unread": left}
        status = "success" if not left else "partial_success" if left < pages else "failure"
        output: dict[str, Any] = {
            "status": status,
            "documents": [{"source": source, "status": status, "pages": {name: n for name, n in counts.items() if n}}],
            "usage": {"pages_read_now": read_now, "engine_s": float(read_now)},
            **({"store": "conditional"} if self.has_store else {}),
        }
        if status == "failure":
            return JobStatus(
                JobState.ENDED, {"detail": output}, f"{'ENGINE_DEAD' if ending == 'dies' else 'DEADLINE'}: x"
            )
        return JobStatus(JobState.ENDED, output, seconds=float(read_now))


class SimulatedDocuments(DocumentPreparer):
    """Knows each document's pages without a file."""

    async def prepare(self, document: DocumentRef) -> PreparedDocument:
        return PreparedDocument(document.location, document.location, count_pages(document.location))
