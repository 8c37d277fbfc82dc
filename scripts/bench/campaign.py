"""Simulate a campaign of many documents over many workers, and count the S3 requests of real jobs.

    python -m scripts.bench campaign [--documents 200000] [--pages 10000000] [--workers 500] [--json FILE]

The listing, the state file, the campaign, its display and its summary are real; the bucket's documents exist only in
its listing, and the workers read nothing and count the pages that they would write. Their time is simulated; what is
measured is the time and the memory of this machine. The first run is killed, the second one resumes it. Each is a
process of its own.

Then real documents are fetched and counted by the real command, one part, and real jobs are run by the cpu engine
against a server that counts their requests.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import io
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from scripts import ROOT
from scripts.bench import s3_server
from scripts.bench.harness import MIX_FILE, create_parser, print_json
from scripts.bench.s3_server import CORPUS_BUCKET, PREFIX, Corpus
from twopass import pipeline
from twopass.cli.submission import SummaryWriter
from twopass.fleet.budget import MEASURED_PAGES_PER_S
from twopass.fleet.campaign import Campaign, DocumentOutcome, Plan
from twopass.fleet.discovery import DocumentPreparer, DocumentRef, PreparedDocument, find_documents, open_page_counter
from twopass.fleet.display import CampaignDisplay
from twopass.fleet.endpoints import runpod
from twopass.fleet.endpoints.interface import JobState, JobStatus
from twopass.fleet.endpoints.runpod import Pace
from twopass.fleet.ledger import Ledger
from twopass.fleet.submission import ResultSaver
from twopass.job import EntryPoint, Job
from twopass.runtime import loop_thread
from twopass.settings import Settings
from twopass.telemetry import logs
from twopass.telemetry.progress import Tracker
from twopass.worker import Worker, open_worker

SAMPLES = 10  # of memory and time during a run
IN_FLIGHT = 1.25  # jobs for each that a fleet can run, so that workers need not wait for the next poll
MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Options:
    documents: int
    pages: int
    workers: int
    pages_per_s: float
    stop_at: float
    is_limited: bool

    @property
    def corpus(self) -> Corpus:
        return Corpus(self.documents, self.pages)


def main(arguments: Sequence[str]) -> None:
    parser = _create_parser()
    parsed = parser.parse_args(arguments)
    options = Options(parsed.documents, parsed.pages, parsed.workers, parsed.pages_per_s, parsed.stop_at, parsed.limits)
    if parsed.run:
        _run_child(options, parsed.run, parsed.endpoint, parsed.folder)
        return
    facts: dict[str, Any] = {"documents": options.documents, "workers": options.workers}
    with (
        tempfile.TemporaryDirectory(prefix="campaign-") as folder,
        s3_server.start_corpus_server(options.corpus) as url,
    ):
        for name in ("first", "resumed"):
            facts[name] = _measure(name, arguments, url, folder)
            print_json(**{name: facts[name]})
    if parsed.counted:
        facts["counting"] = measure_counting(parsed.counted)
        print_json(counting=facts["counting"])
    if parsed.s3:
        facts["s3"] = measure()
        print_json(s3=facts["s3"])
    if parsed.json:
        parsed.json.write_text(json.dumps({"campaign": facts}, indent=1, sort_keys=True) + "\n")


def _create_parser() -> argparse.ArgumentParser:
    parser = create_parser("scripts.bench campaign", __doc__)
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--pages", type=int, default=10_000_000)
    parser.add_argument("--workers", type=int, default=500)
    parser.add_argument("--pages-per-s", type=float, default=MEASURED_PAGES_PER_S, help="of each worker")
    parser.add_argument("--stop-at", type=float, default=0.95, help="part of the documents after which it is killed")
    parser.add_argument("--limits", action="store_true", help="spread requests as RunPod's limits demand")
    parser.add_argument("--counted", type=int, default=300, help="real documents that are fetched and counted")
    parser.add_argument("--no-s3", dest="s3", action="store_false", help="run no real jobs")
    parser.add_argument("--json", type=Path)
    for name in ("--run", "--endpoint", "--folder"):  # of the processes that this one starts
        parser.add_argument(name, help=argparse.SUPPRESS)
    return parser


# ---- one run, in a process of its own -----------------------------------------------------------


def _measure(name: str, arguments: Sequence[str], url: str, folder: str) -> dict[str, Any]:
    """Run the campaign in a child process; returns what it printed, and its peak memory and processor time."""
    command = [sys.executable, "-m", "scripts.bench", "campaign", *arguments]
    started = time.monotonic()
    with subprocess.Popen(
        [*command, "--run", name, "--endpoint", url, "--folder", folder], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout
        lines = list(child.stdout)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, -signal.SIGKILL):
        raise RuntimeError(f"the {name} run failed: {child.returncode}")
    return {
        **json.loads(lines[-1]),
        "process_s": round(time.monotonic() - started, 1),
        "peak_mib": round(usage.ru_maxrss / 1024),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 1),
    }


def _run_child(options: Options, name: str, endpoint: str, folder: str) -> None:
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(_Run(options, name, endpoint, Path(folder)).run())


class _Run:
    """One run of the campaign, as `twopass submit` makes it."""

    def __init__(self, options: Options, name: str, endpoint: str, folder: Path) -> None:
        self._options, self._name, self._folder = options, name, folder
        self._settings = Settings(
            bucket_endpoint_url=endpoint, bucket_access_key_id="any", bucket_secret_access_key="any"
        )
        self._started = time.monotonic()
        self._facts: dict[str, Any] = {}
        self._samples: list[dict[str, Any]] = []
        self._ended = 0
        corpus = options.corpus
        self._fleet = SimulatedFleet(
            corpus,
            options.workers,
            options.pages_per_s,
            is_limited=options.is_limited,
            on_first_submit=self._mark_first,
        )

    async def run(self) -> None:
        documents, _ = await find_documents([f"s3://{CORPUS_BUCKET}/{PREFIX}"], self._settings, ())
        self._facts["listed_s"] = self._age_s()
        ledger = Ledger(self._folder / "state.jsonl")
        self._facts["loaded_s"] = self._age_s()
        places = self._options.workers * self._fleet.concurrency
        fields = {"output": "s3://corpus-output/out/"}
        plan = Plan(fields, "simulated", in_flight=round(IN_FLIGHT * places), outlives_command=True)
        preparer = SimulatedPreparer(corpus=self._options.corpus)
        with ExitStack() as stack:
            board = stack.enter_context(CampaignDisplay(len(documents), Console(file=io.StringIO())))
            summary = stack.enter_context(SummaryWriter(self._folder, len(documents), board))
            listener = _Watcher(ResultSaver(summary, self._folder, None), self._count_end)
            await Campaign(self._fleet, preparer, ledger, plan, listener).run(documents)
            summary.finish(self._age_s())
        self._report()

    def _age_s(self) -> float:
        return round(time.monotonic() - self._started, 2)

    def _mark_first(self) -> None:
        self._facts["first_job_s"] = self._age_s()

    def _count_end(self) -> None:
        self._ended += 1
        if self._ended % max(self._options.documents // SAMPLES, 1) == 0:
            self._samples.append(
                {"documents": self._ended, "cpu_s": round(time.process_time(), 1), "mib": round(_read_memory_mib())}
            )
        if self._name == "first" and self._ended >= self._options.stop_at * self._options.documents:
            self._report()
            os.kill(os.getpid(), signal.SIGKILL)

    def _report(self) -> None:
        simulated_s = asyncio.get_running_loop().time()
        pages = self._fleet.pages_written
        print_json(
            **self._facts, ended_s=self._age_s(), documents_ended=self._ended, samples=self._samples,
            pages_written=pages, jobs=self._fleet.submits.total, polls=self._fleet.polls.total,
            submits_in_10_s=self._fleet.submits.peak, polls_in_10_s=self._fleet.polls.peak,
            simulated_s=round(simulated_s, 1), simulated_pages_per_s=round(pages / simulated_s, 1) if pages else 0.0,
            state_mib=round((self._folder / "state.jsonl").stat().st_size / MEBIBYTE, 1),
        )  # fmt: skip


class _Watcher:
    """Counts documents that end, and passes all events on."""

    def __init__(self, listener: ResultSaver, count_end: Any) -> None:
        self._listener, self._count_end = listener, count_end

    def document_started(self, name: str, pages: int | None, jobs: int) -> None:
        self._listener.document_started(name, pages, jobs)

    def document_progressed(self, name: str, pages_done: int, phase: str) -> None:
        self._listener.document_progressed(name, pages_done, phase)

    def pages_found(self, name: str, pages: int) -> None:
        self._listener.pages_found(name, pages)

    async def document_ended(self, outcome: DocumentOutcome) -> None:
        await self._listener.document_ended(outcome)
        self._count_end()


def _read_memory_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MEBIBYTE


# ---- real documents are counted -----------------------------------------------------------------


def measure_counting(count: int) -> dict[str, Any]:
    """Fetch and count so many documents, then once more with what the ledger remembers; milliseconds for each."""
    corpus = Corpus(count, 50 * count)
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder, s3_server.start_corpus_server(corpus) as url:
        first, again = (asyncio.run(_count(url, Path(folder) / "state.jsonl")) for _ in range(2))
    return {"documents": count, "first_ms": round(first * 1000 / count, 2), "again_ms": round(again * 1000 / count, 3)}


async def _count(url: str, state: Path) -> float:
    settings = Settings(bucket_endpoint_url=url, bucket_access_key_id="any", bucket_secret_access_key="any")
    documents = iter((await find_documents([f"s3://{CORPUS_BUCKET}/{PREFIX}"], settings, ())).documents)
    async with open_page_counter(settings) as counter:
        preparer = DocumentPreparer(counter, ledger=Ledger(state))
        started = time.monotonic()

        async def prepare_all(shared: Iterator[Any]) -> None:
            for document in shared:
                await preparer.prepare(document)

        await asyncio.gather(*(prepare_all(documents) for _ in range(16)))
        return time.monotonic() - started


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
        "source": f"s3://{CORPUS_BUCKET}/{corpus.key(job.document)}",
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


SAMPLE, SAMPLE_PAGES = ROOT / "samples" / "sample.pdf", 12

# AWS, S3 Standard, us-east-1, dollars for a request; DELETE costs nothing. R2 and RunPod have other prices.
DOLLARS: Mapping[str, float] = {"PUT": 5e-6, "LIST": 5e-6, "GET": 4e-7, "HEAD": 4e-7, "DELETE": 0.0}

# What a request is for, by its path. The first match counts.
PURPOSES: Mapping[str, str] = {
    "listing": r"/bench/?$",
    "source": r"/bench/in/",
    "checkpoint of a page": r"/pages/\d+\.json$",
    "crop": r"/images/",
    "progress": r"/jobs/[^/]+/progress\.json$",
    "result": r"/jobs/[^/]+/result\.json$",
    "claim": r"/jobs/claims/",
    "probe": r"/\.twopass-probe$",
    "manifest": r"/manifest\.json$",
    "artefacts": r"",
}
OF_PAGES = ("checkpoint of a page", "crop")

Requests = Counter[tuple[str, str]]


class RequestCounter:
    """Counts requests by operation and purpose."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.requests: Requests = Counter()

    def count(self, operation: str, path: str) -> None:
        purpose = next(name for name, pattern in PURPOSES.items() if re.search(pattern, path))
        with self._lock:
            self.requests[operation, purpose] += 1

    def take(self) -> Requests:
        with self._lock:
            taken, self.requests = self.requests, Counter()
        return taken


@contextmanager
def serve(counter: RequestCounter) -> Iterator[str]:
    """Yield the endpoint URL of a server in this process."""
    with loop_thread.open_loop() as loop:
        runner, url = loop_thread.run(s3_server.start_here(s3_server.create_application(counter.count)), loop)
        try:
            yield url
        finally:
            loop_thread.run(runner.cleanup(), loop)


def measure() -> dict[str, Any]:
    """Run a job for one page, one for the sample, and one for a slice of it; returns requests and dollars."""
    counter = RequestCounter()
    with serve(counter) as url:
        settings = Settings(
            engine="cpu", bucket_endpoint_url=url, bucket_access_key_id=s3_server.ACCESS_KEY,
            bucket_secret_access_key=s3_server.SECRET_KEY, log_level="WARNING",
        )  # fmt: skip
        logs.set_up(settings)
        s3_server.connect(url).put_object(Bucket=s3_server.BUCKET, Key="in/sample.pdf", Body=SAMPLE.read_bytes())
        counter.take()
        with open_worker(settings) as worker:
            jobs: dict[str, dict[str, str]] = {
                "first job of a worker": {"pages": "2"},
                "one page": {"pages": "1"},
                "document": {},
                "slice": {"slice": "1-6", "dpi": 100},  # type: ignore[dict-item]
            }
            counted = {}
            for name, fields in jobs.items():
                _run_job(worker, name.replace(" ", "-"), fields)
                counted[name] = counter.take()
    return {
        "jobs": {name: _describe(requests) for name, requests in counted.items()},
        "crops_a_page_of_the_mix": round(_crops_per_page(), 3),
    }


def _run_job(worker: Worker, name: str, fields: Mapping[str, Any]) -> None:
    bucket = f"s3://{s3_server.BUCKET}"
    job_input = {"source": f"{bucket}/in/sample.pdf", "output": f"{bucket}/out/", "idempotency_key": name, **fields}
    job = Job.parse({"id": f"job-{name}", "input": job_input}, worker.settings, EntryPoint.SERVERLESS)
    result = worker.run(pipeline.run(job, worker, Tracker()))
    if result.status != "success":
        raise RuntimeError(f"{name}: {result.problems[:3]}")


def _describe(requests: Requests) -> dict[str, Any]:
    return {
        "requests": {f"{operation} {purpose}": count for (operation, purpose), count in sorted(requests.items())},
        "dollars": round(price(requests), 9),
        "dollars_besides_pages": round(price(requests, besides=OF_PAGES), 9),
    }


def price(requests: Requests, besides: tuple[str, ...] = ()) -> float:
    return sum(DOLLARS[operation] * count for (operation, purpose), count in requests.items() if purpose not in besides)


def _crops_per_page() -> float:
    """Figures and tables, whose crops are stored, on a page of the mix."""
    pages = json.loads(MIX_FILE.read_text())
    return sum(crop[0] in ("figure", "table") for page in pages for crop in page["crops"]) / len(pages)
