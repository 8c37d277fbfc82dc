"""Many workers that read nothing, in simulated time: how a campaign behaves with them.

The event loop's clock stands while code runs and jumps to the next timer instead of waiting, so that hours pass in
minutes and do not depend on this machine. What remains is the processor time of the campaign's own code.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from scripts.bench.corpus_server import BUCKET, Corpus
from twopass.fleet.discovery import DocumentPreparer, DocumentRef, PreparedDocument
from twopass.fleet.endpoints import runpod
from twopass.fleet.endpoints.interface import JobState, JobStatus
from twopass.fleet.endpoints.runpod import Pace

RATE_WINDOW_S = 10.0  # of RunPod's rate limits


class _JumpingSelector(selectors.EpollSelector):
    """Reports what is ready, and skips the time for which nothing would be."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped_s = 0.0
        self.threads_at_work = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(timeout if self.threads_at_work else 0)
        if not ready:
            self.skipped_s += timeout
        return ready


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop that does not wait for timers."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.skipped_s

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        future = super().run_in_executor(executor, func, *args)
        self._jumping.threads_at_work += 1
        future.add_done_callback(self._end_thread_work)
        return future

    def _end_thread_work(self, future: Any) -> None:
        self._jumping.threads_at_work -= 1


class PeakRate:
    """The most events in RATE_WINDOW_S of simulated time."""

    def __init__(self) -> None:
        self._times: deque[float] = deque()
        self.total, self.peak = 0, 0

    def count(self, now: float) -> None:
        self.total += 1
        self._times.append(now)
        while self._times[0] <= now - RATE_WINDOW_S:
            self._times.popleft()
        self.peak = max(self.peak, len(self._times))


@dataclass(frozen=True)
class SimulatedJob:
    """A job for some pages of a document; the last job of a sliced document reads none."""

    document: int
    pages: int
    page_slice: str | None
    starts: float
    ends: float


@dataclass
class SimulatedFleet:
    """An endpoint with so many workers, each of which reads `pages_per_s` in `concurrency` jobs at once.

    A job takes `overhead_s` besides its pages. Pages are counted where a worker would write them. With `is_limited`,
    requests are spread as RunPod's limits demand.
    """

    corpus: Corpus
    workers: int
    pages_per_s: float
    concurrency: int = 4
    overhead_s: float = 1.0
    is_limited: bool = False
    slice_pages: int = 100
    on_first_submit: Callable[[], None] = lambda: None
    pages_written: int = 0
    jobs: dict[str, SimulatedJob] = field(default_factory=dict)
    submits: PeakRate = field(default_factory=PeakRate)
    polls: PeakRate = field(default_factory=PeakRate)

    def __post_init__(self) -> None:
        self._free_at = [0.0] * (self.workers * self.concurrency)  # of each place for a job
        self._submit_pace, self._poll_pace = Pace(runpod.SUBMITS_PER_S), Pace(runpod.POLLS_PER_S)

    async def submit(self, job_input: Mapping[str, Any]) -> str:
        if self.is_limited:
            await self._submit_pace.wait()
        now = asyncio.get_running_loop().time()
        if not self.submits.total:
            self.on_first_submit()
        self.submits.count(now)
        number, page_slice = self.corpus.number(job_input["source"]), job_input.get("slice")
        pages = self._pages_to_read(number, page_slice)
        starts = max(now, heapq.heappop(self._free_at))
        ends = starts + self.overhead_s + pages * self.concurrency / self.pages_per_s
        heapq.heappush(self._free_at, ends)
        job_id = f"{self.submits.total:08x}-0000-4000-8000-0123456789ab-e1"  # as long as RunPod's
        self.jobs[job_id] = SimulatedJob(number, pages, page_slice, starts, ends)
        return job_id

    def _pages_to_read(self, number: int, page_slice: str | None) -> int:
        if page_slice:
            first, _, last = page_slice.partition("-")
            return int(last) - int(first) + 1
        pages = self.corpus.page_count(number)
        return 0 if self.slice_pages and pages > self.slice_pages else pages

    async def poll(self, job_id: str) -> JobStatus:
        if self.is_limited:
            await self._poll_pace.wait()
        now = asyncio.get_running_loop().time()
        self.polls.count(now)
        job = self.jobs.get(job_id)
        if job is None:
            return JobStatus(JobState.GONE, error="the endpoint does not know the job any more")
        if now < job.starts:
            return JobStatus(JobState.WAITING)
        if now < job.ends:
            done = round(job.pages * (now - job.starts) / (job.ends - job.starts))
            return JobStatus(JobState.RUNNING, {"phase": "reading", "pages_done": done, "pages_total": job.pages})
        del self.jobs[job_id]
        self.pages_written += job.pages
        return JobStatus(JobState.ENDED, build_result(self.corpus, job), None, job.ends - job.starts)

    async def cancel(self, job_id: str) -> None:
        self.jobs.pop(job_id, None)


def build_result(corpus: Corpus, job: SimulatedJob) -> dict[str, Any]:
    """A worker's answer, with the fields and the size of a real one."""
    folder = f"s3://corpus-output/out/{job.document:08d}-{corpus.etag(job.document)[:12]}"
    stages = ("fetch", "render", "pass1", "pass2", "upload", "assemble")
    timings = {
        "started": "2026-11-25T12:00:00.000+00:00",
        "finished": "2026-11-25T12:00:17.000+00:00",
        "duration_s": 17.123,
        "stages": {stage: {"wall_s": 12.345, "cpu_s": 4.567} for stage in stages},
    }
    usage = {
        "tokens_in": 901 * job.pages,
        "tokens_out": 1705 * job.pages,
        "engine_s": round(0.08 * job.pages, 3),
        "pages_read_now": job.pages,
    }
    artefacts = {
        name: {"uri": f"{folder}/{name}", "bytes": 22_000 * job.pages, "sha256": "0" * 64, "content_type": kind}
        for name, kind in (("document.json", "application/json"), ("document.md", "text/markdown; charset=utf-8"))
    }
    document = {
        "id": folder.rpartition("/")[2],
        "source": f"s3://{BUCKET}/{corpus.key(job.document)}",
        "status": "success",
        "pages": {"read": job.pages if job.page_slice else corpus.page_count(job.document)},
        "artefacts": {} if job.page_slice else artefacts,
        "inline": {},
        "timings": timings,
        "usage": {**usage, "pages_per_s": 3.1, "page_p95_s": 9.87},
    }
    return {
        "status": "success",
        "documents": [document],
        "problems": [],
        "timings": {"queued_s": 0.25, **timings},
        "usage": usage,
        "result_uri": "s3://corpus-output/out/jobs/00000000-0000-4000-8000-0123456789ab-e1/result.json",
        "omitted": {},
        "store": "conditional",
    }


@dataclass(frozen=True)
class SimulatedPreparer(DocumentPreparer):
    """Knows each document's pages without fetching it."""

    corpus: Corpus = Corpus(1, 1)

    async def prepare(self, document: DocumentRef) -> PreparedDocument:
        number = self.corpus.number(document.location)
        return PreparedDocument(document.location, self.corpus.etag(number) * 2, self.corpus.page_count(number))
