"""Run whole jobs on the mix's documents, and the same requests on the engine alone."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from scripts.bench.harness import print_json
from scripts.bench.mix import DocumentSet
from scripts.bench.scripted_engine import ScriptedAnswerEngine, TokenMeter
from scripts.bench.workload import A4
from twopass import pipeline
from twopass.engines.interface import Prompt
from twopass.job import EntryPoint, Job
from twopass.pages.shared_pixels import Pixels
from twopass.result import Result
from twopass.telemetry.progress import Tracker
from twopass.worker import Worker

_numbers = itertools.count()


def warm_up_pages(slots: int) -> int:
    """How many pages must have begun until the engine is surely full: half as many again as there are slots."""
    return round(1.5 * slots)


async def run_jobs(worker: Worker, documents: DocumentSet, count: int, **fields: str) -> ScriptedAnswerEngine:
    """Run the documents as so many jobs at once until the last page has begun; `fields` are added to each job."""
    engine = _script_engine(worker, documents)
    scripted = replace(worker, engine=engine)
    tasks = [
        asyncio.create_task(
            _run_job(_make_job(documents.uris[n::count], documents.output, scripted, **fields), scripted)
        )
        for n in range(count)
    ]
    await _wait_for_last_page(engine.meter, tasks)
    if engine.unknown:
        print_json(unknown=dict(engine.unknown.most_common(5)))
    return engine


async def run_engine_alone(worker: Worker, asked: Sequence[Prompt], documents: DocumentSet) -> TokenMeter:
    """Send the same requests in the same order to the engine, without the pipeline around it."""
    engine = _script_engine(worker, documents)
    async with _lend_noise_page(worker) as page:
        prompts = [replace(prompt, image=_crop_like(prompt.image, page), page=None) for prompt in asked]
        slots = asyncio.Semaphore(worker.page_slots.count)

        async def ask(prompt: Prompt) -> None:
            async with slots:
                await engine.generate(prompt)

        tasks = [asyncio.create_task(ask(prompt)) for prompt in prompts]
        await _wait_for_last_page(engine.meter, tasks)
    return engine.meter


async def measure_latency(worker: Worker, documents: DocumentSet) -> tuple[float, dict[str, dict[str, float]]]:
    """Run one job alone; return its seconds from start to result, and its `wall_s` and `cpu_s` by stage."""
    meter = TokenMeter(2, documents.asked_pages)
    scripted = replace(worker, engine=ScriptedAnswerEngine(worker.engine, documents.answers, meter))
    started = time.monotonic()
    (document,) = (await _run_job(_make_job(documents.uris, documents.output, scripted), scripted)).documents
    return time.monotonic() - started, document.timings["stages"]


def _script_engine(worker: Worker, documents: DocumentSet) -> ScriptedAnswerEngine:
    meter = TokenMeter(warm_up_pages(worker.page_slots.count), documents.asked_pages)
    return ScriptedAnswerEngine(worker.engine, documents.answers, meter)


def _make_job(uris: Sequence[str], output: str, worker: Worker, **fields: str) -> Job:
    name = f"job{next(_numbers)}"
    mode = "gundam" if "gundam" in worker.family.modes else "auto"  # readers have no modes
    job_input = {"sources": uris, "output": f"{output}/{name}/", "mode": mode, "resume": False, **fields}
    return Job.parse({"id": name, "input": job_input}, worker.settings, EntryPoint.LOCAL)


async def _run_job(job: Job, worker: Worker) -> Result:
    result = await pipeline.run(job, worker, Tracker())
    if result.status != "success":
        raise RuntimeError(f"{job.id}: {result.problems[:3]}")
    return result


async def _wait_for_last_page(meter: TokenMeter, tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Wait until the last page has begun, then cancel the tasks; raise what one of them raised."""
    last_page = asyncio.create_task(meter.last_page_begun.wait())
    while not last_page.done():
        if not tasks:
            last_page.cancel()
            raise RuntimeError(f"only {meter.begun} of {meter.pages} pages have begun, and no job is left")
        done, _ = await asyncio.wait((last_page, *tasks), return_when=asyncio.FIRST_COMPLETED)
        tasks = [task for task in tasks if not task.done()]
        for task in done:
            task.result()
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


@asynccontextmanager
async def _lend_noise_page(worker: Worker) -> AsyncIterator[Pixels]:
    width, height = A4
    async with worker.buffers.lend(width * height * 3) as buffer:
        noise = np.random.default_rng(2).integers(0, 256, width * height * 3, np.uint8)
        np.frombuffer(buffer.map(noise.nbytes), np.uint8)[:] = noise
        yield Pixels(width, height, buffer)


def _crop_like(image: Pixels, page: Pixels) -> Pixels:
    """A crop of the page that is as large as the image."""
    return page.crop(0, 0, min(image.width, page.width), min(image.height, page.height))
