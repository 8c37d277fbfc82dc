"""Measure how long a document takes that is read alone, in a fresh worker and in one that has read others.

    python -m scripts.bench latency [--pages 1 19] [--rounds 5] [--jobs 10] [--workers 14]

Each round is a fresh process that opens a worker with a scripted engine, waits --idle-s, and reads the same pages of
docs/bench/mix.json --jobs times from and to a loopback S3 server: `first` is the first job, `last` the last. The engine
writes its images as vLLM's does; by default its tokens cost no time. Medians of the rounds, in seconds: of the start
(`ready`), of the jobs, and of the stages of the first and the last job. Stages of several pages overlap. `MiB` is the
memory of a page worker before the first job and after the last, of its own (USS).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from scripts import ROOT
from scripts.bench import s3_server
from scripts.bench.harness import STREAM_INTERVAL, create_parser, read_mix
from twopass.engines.interface import Completion, GroupMember, Prompt
from twopass.engines.vllm.engine import BUFFERS_PER_SEQUENCE
from twopass.engines.vllm.images import TiledImages
from twopass.models import MODELS
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.engine_status import EngineStatus
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings

SEQUENCES = 64
STAGES = ("fetch", "render", "pass1", "pass2", "assemble", "upload")

Facts = dict[str, Any]


def main(arguments: Sequence[str]) -> None:
    options = _parse_options(arguments)
    if options.child:
        print(json.dumps(measure(options)))
        return
    with s3_server.start_server() as endpoint, tempfile.TemporaryDirectory() as folder:
        table = Table("pages", "round", "ready", *_columns("first"), *_columns("last"), "MiB before", "MiB after")
        for count in options.pages:
            documents = Path(folder) / f"{count}.pickle"
            documents.write_bytes(pickle.dumps(_upload(count, endpoint)))
            rows = [_run_round(documents, endpoint, arguments) for _ in range(options.rounds)]
            medians = [statistics.median(values) for values in zip(*rows, strict=True)]
            for name, row in (("median", medians), ("least", map(min, zip(*rows, strict=True)))):
                table.add_row(str(count), name, *(f"{value:.2f}" for value in row))
        Console(width=200).print(table)


def _parse_options(arguments: Sequence[str]) -> Any:
    parser = create_parser("scripts.bench latency", __doc__)
    parser.add_argument("--pages", type=int, nargs="+", default=[1, 19])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=10, help="in each process")
    parser.add_argument("--workers", type=int, default=0, help="page workers; the default is that of PAGE_WORKERS")
    parser.add_argument("--tokens-per-s", type=float, help="of the engine; by default, tokens cost no time")
    parser.add_argument("--idle-s", type=float, default=3.0, help="between the start and the first job")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--endpoint", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _columns(job: str) -> Iterator[str]:
    return (f"{job} {name}" for name in ("job", *STAGES))


def _upload(count: int, endpoint: str) -> Any:
    from scripts.bench.mix import upload_documents

    pages = [page for page in read_mix(10 * count) if page["crops"]][:count]
    return upload_documents(pages, s3_server.connect(endpoint), f"few{count}", count)


def _run_round(documents: Path, endpoint: str, arguments: Sequence[str]) -> list[float]:
    """Run `measure` in a fresh process."""
    command = (sys.executable, "-m", "scripts.bench", "latency", *arguments)
    inputs = ("--child", str(documents), "--endpoint", endpoint)
    ran = subprocess.run([*command, *inputs], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    facts = json.loads(ran.stdout)
    return [
        facts["ready_s"], *_flatten(facts["jobs"][0]), *_flatten(facts["jobs"][-1]), *facts["mib"],
    ]  # fmt: skip


def _flatten(job: Mapping[str, Any]) -> Iterator[float]:
    yield job["seconds"]
    for stage in STAGES:
        yield job["stages"].get(stage, 0.0)


def measure(options: Any) -> Facts:
    """Open a worker and run the jobs; imports of the benchmark must not spare the worker its own."""
    from twopass.storage import s3
    from twopass.telemetry import logs
    from twopass.worker import open_worker

    settings = Settings(
        engine="vllm", page_workers=options.workers, canary=False, log_level="WARNING", max_num_seqs=SEQUENCES,
        bucket_endpoint_url=options.endpoint, bucket_access_key_id=s3_server.ACCESS_KEY,
        bucket_secret_access_key=s3_server.SECRET_KEY,
    )  # fmt: skip
    logs.set_up(settings)
    engine = HostEngine("0", settings, options.tokens_per_s)
    with open_worker(settings, create_engine=lambda _: engine, preload_main=s3.preload) as worker:
        time.sleep(options.idle_s)
        before = _measure_page_workers()
        documents = pickle.loads(options.child.read_bytes())
        jobs = [_run_job(worker, documents) for _ in range(options.jobs)]
        return {"ready_s": worker.started["ready_s"], "jobs": jobs, "mib": [before, _measure_page_workers()]}


def _run_job(worker: Any, documents: Any) -> Facts:
    from scripts.bench.jobs import measure_latency

    seconds, stages = worker.submit(measure_latency(worker, documents)).result()
    return {"seconds": seconds, "stages": {name: stage["wall_s"] for name, stage in stages.items()}}


def _measure_page_workers() -> float:
    """The mean MiB that a page worker shares with no other process."""
    import psutil

    return float(statistics.mean(child.memory_full_info().uss for child in psutil.Process().children())) / 2**20


class HostEngine(GroupMember):
    """Lets page workers write images as views into buffers of its own, and generates `tokens_per_s` in total.

    Without `tokens_per_s`, tokens cost no time. It never dies.
    """

    kind, precision, family = "vllm", "scripted", "deepseek_ocr"
    needs_canary = False
    uses_drafts = True  # page workers write their texts; tokenizing these is left out, for lack of a tokenizer

    def __init__(self, gpus: str, settings: Settings, tokens_per_s: float | None = None) -> None:
        assert settings.max_num_seqs
        self.gpus, self.sequences = gpus, settings.max_num_seqs
        self._images = TiledImages(MODELS["deepseek_ocr"].vision)
        self._buffers = PixelBufferPool(
            round(BUFFERS_PER_SEQUENCE * self.sequences) + settings.page_worker_count,
            1 << 62,
            fixed_size=self._images.max_nbytes,
        )
        self.buffer_pools = (self._buffers,)
        self._tokens_per_s = tokens_per_s
        self._sequences = asyncio.Semaphore(self.sequences)
        self._active = 0
        self._page_pool: PagePool | None = None
        self.statuses = (EngineStatus(gpus, self.sequences),)

    async def open(self, page_pool: PagePool) -> None:
        self._page_pool = page_pool

    async def generate(self, prompt: Prompt) -> Completion:
        return await self.attempt(prompt)

    async def attempt(self, prompt: Prompt, is_alone: bool = False) -> Completion:
        image = self._images.plan(prompt)
        tokens = prompt.sampling.max_tokens
        assert self._page_pool and image and tokens, "prompts of the mix have a mode and a length"
        async with self._buffers.lend(image.nbytes) as buffer:
            await image.write(buffer, self._page_pool)
            async with self._sequences:
                await self._generate(prompt, tokens)
        return Completion("", "length", tokens_out=tokens)

    async def wait_for_restart(self) -> None:
        """Nothing to wait for."""

    async def close(self) -> None:
        """Nothing to close."""

    async def _generate(self, prompt: Prompt, tokens: int) -> None:
        """Emit tokens in pieces; all answers in the engine share its speed equally."""
        self._active += 1
        try:
            for first in range(0, tokens, STREAM_INTERVAL):
                piece = min(STREAM_INTERVAL, tokens - first)
                await asyncio.sleep(piece * self._active / self._tokens_per_s if self._tokens_per_s else 0)
                if prompt.loop_check and first + piece < tokens:
                    prompt.loop_check("")
        finally:
            self._active -= 1
