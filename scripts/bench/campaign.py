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
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from scripts import ROOT
from scripts.bench import corpus_server, s3_calls
from scripts.bench.corpus_server import BUCKET, PREFIX, Corpus
from scripts.bench.options import create_parser
from scripts.bench.report import print_json
from scripts.bench.simulated_fleet import SimulatedFleet, SimulatedLoop, SimulatedPreparer
from twopass.cli.submission import SummaryWriter
from twopass.fleet.budget import MEASURED_PAGES_PER_S
from twopass.fleet.campaign import Campaign, DocumentOutcome, Plan
from twopass.fleet.discovery import DocumentPreparer, find_documents, open_page_counter
from twopass.fleet.display import CampaignDisplay
from twopass.fleet.ledger import Ledger
from twopass.fleet.submission import ResultSaver
from twopass.settings import Settings

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
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder, corpus_server.start_server(options.corpus) as url:
        for name in ("first", "resumed"):
            facts[name] = _measure(name, arguments, url, folder)
            print_json(**{name: facts[name]})
    if parsed.counted:
        facts["counting"] = measure_counting(parsed.counted)
        print_json(counting=facts["counting"])
    if parsed.s3:
        facts["s3"] = s3_calls.measure()
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
        documents, _ = await find_documents([f"s3://{BUCKET}/{PREFIX}"], self._settings, ())
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
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder, corpus_server.start_server(corpus) as url:
        first, again = (asyncio.run(_count(url, Path(folder) / "state.jsonl")) for _ in range(2))
    return {"documents": count, "first_ms": round(first * 1000 / count, 2), "again_ms": round(again * 1000 / count, 3)}


async def _count(url: str, state: Path) -> float:
    settings = Settings(bucket_endpoint_url=url, bucket_access_key_id="any", bucket_secret_access_key="any")
    documents = iter((await find_documents([f"s3://{BUCKET}/{PREFIX}"], settings, ())).documents)
    async with open_page_counter(settings) as counter:
        preparer = DocumentPreparer(counter, ledger=Ledger(state))
        started = time.monotonic()

        async def prepare_all(shared: Iterator[Any]) -> None:
            for document in shared:
                await preparer.prepare(document)

        await asyncio.gather(*(prepare_all(documents) for _ in range(16)))
        return time.monotonic() - started
