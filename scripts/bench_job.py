#!/usr/bin/env python3
"""Whole jobs on this machine's GPU, against the engine alone on the same requests: PDFs from an S3, artefacts to it.

    python scripts/bench_job.py --model-dir DIR [--json bench.json] [--jobs 1 2 4] [--windows 8 32 128 512]
                                [--ways pass2_all mode_auto]

The pages are those of docs/bench/mix.json, drawn with text, tables, formulas and pictures. Random weights do: the
engine makes as many tokens as the mix says and is then believed to have answered what the page says, so that pass 2
cuts and asks about real crops; where those of a page do not fit on A4, they are drawn smaller. Measured from when
half as many pages again as may be in flight have begun until the last one has, for jobs and for the engine alone.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import io
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import numpy as np
import pymupdf
from botocore.config import Config
from PIL import Image

import bench_usage
from bench import ENVIRONMENT, MIX
from bench_engine import A4, INTERVAL, load_format, tell
from make_mix import BOX_TOKENS
from twopass import pipeline
from twopass.engines.interface import Completion, Engine, Prompt, Sampling
from twopass.families.deepseek.family import PROMPTS
from twopass.job import Door, Job, Result
from twopass.pages.shared_pixels import Pixels
from twopass.runtime.page_slots import PageSlots
from twopass.settings import Settings
from twopass.telemetry import logs
from twopass.telemetry.progress import Tracker
from twopass.worker import AHEAD, Worker, open_worker

ROOT = Path(__file__).parents[1]
BUCKET = "bench"
PAGES_A_DOCUMENT = 16
PAGE_BYTES = (A4[0] + 2) * (A4[1] + 2) * 3  # as steps/render.py takes them
POINTS = (595, 842)
SCALE = 842 / A4[1]  # points of a pixel at 144 dpi
MARGIN = 40
CROPS_AT_MOST = 0.6  # of the page's height; more are drawn smaller
TOKEN = 3.6  # letters
NOTHING, WORDS_OF_A_PHOTO = "", 20
SENTENCE = "The level in the borehole is measured before the pump starts and after it has run for one hour. "
CEILING_PUTS = 400
LATENCIES, LATENCY_ROUNDS = (1, 19), 3  # pages of a document that is read alone
WAYS: Mapping[str, Mapping[str, str]] = {"pass2_all": {"pass2": "all"}, "mode_auto": {"mode": "auto"}}
_numbers = itertools.count()


@dataclass(frozen=True)
class Said:
    text: str
    tokens: int
    with_auto: bool = True  # or it is asked about with `pass2: all` alone


@dataclass
class Sheet:
    """One page of the mix: drawn into a PDF, and what is said of it and of its crops."""

    blocks: list[str] = field(default_factory=list)
    answers: dict[str, Said] = field(default_factory=dict)  # "e003", "e003-2": of crops, by element and turn

    def block(self, label: str, content: str, box: tuple[float, float, float, float]) -> str:
        """Its element's name."""
        x0, y0, x1, y1 = (round(999 * at / size) for at, size in zip(box, POINTS * 2, strict=True))
        self.blocks.append(f"<|ref|>{label}<|/ref|><|det|>[[{x0}, {y0}, {x1}, {y1}]]<|/det|>\n{content}  \n\n")
        return f"e{len(self.blocks) - 1:03d}"


def drawn(pdf: Any, page: Mapping[str, Any], photos: Sequence[bytes]) -> Sheet:
    """A page of the mix at the end of the PDF."""
    sheet, made = Sheet(), pdf.new_page(width=POINTS[0], height=POINTS[1])
    crops = list(_placed(page["crops"]))
    free = min((box[1] for *_, box in crops), default=POINTS[1] - MARGIN) - MARGIN
    _prose(sheet, made, page, free)
    for number, (kind, tokens, box) in enumerate(crops):
        _cropped(sheet, made, kind, tokens, box, photos[number % len(photos)], number)
    return sheet


def _placed(crops: Sequence[tuple[str, int, int, int]]) -> Iterator[tuple[str, int, tuple[float, float, float, float]]]:
    """Shelves from the page's foot up, as large as they fit."""
    room = POINTS[0] - 2 * MARGIN
    shelves: list[list[tuple[str, int, float, float]]] = []
    for kind, width, height, tokens in crops:
        shrunk = min(1.0, room / (width * SCALE))
        one = (kind, tokens, width * SCALE * shrunk, height * SCALE * shrunk)
        if not shelves or sum(w for _, _, w, _ in shelves[-1]) + one[2] > room:
            shelves.append([])
        shelves[-1].append(one)
    tall = sum(max(h for _, _, _, h in shelf) for shelf in shelves)
    shrunk = min(1.0, CROPS_AT_MOST * POINTS[1] / tall) if tall else 1.0
    top = POINTS[1] - MARGIN - tall * shrunk
    for shelf in shelves:
        left = float(MARGIN)
        for kind, tokens, w, h in shelf:
            yield kind, tokens, (left, top + 4, left + w * shrunk - 4, top + h * shrunk)
            left += w * shrunk
        top += max(h for _, _, _, h in shelf) * shrunk


def _prose(sheet: Sheet, made: Any, page: Mapping[str, Any], height: float) -> None:
    """The page's text in as many blocks as it has elements beside its crops, as large as it fits."""
    blocks = max(page["elements"] - len(page["crops"]), 1 if page["elements"] else 0)
    if not blocks:
        return
    letters = max(int((page["tokens"] - BOX_TOKENS * page["elements"]) * TOKEN / blocks), 8)
    text = (SENTENCE * math.ceil(letters / len(SENTENCE)))[:letters].rsplit(" ", 1)[0]
    width, each = POINTS[0] - 2 * MARGIN, height / blocks
    size = min(11.0, math.sqrt(width * each / (letters * 0.8)), each / 1.5)
    for number in range(blocks):
        box = (MARGIN, MARGIN + number * each, POINTS[0] - MARGIN, MARGIN + (number + 0.95) * each)
        lines = _wrapped(f"{number} {text}", int(width / (0.5 * size)))
        made.insert_text((box[0], box[1] + size), lines, fontsize=size)
        foot = min(box[1] + len(lines) * size * 1.2, POINTS[1])
        name = sheet.block("text", f"{number} {text}", (box[0], box[1], box[2], foot))
        sheet.answers[name] = Said(f"{number} {text}", max(round(len(text) / TOKEN), 1), with_auto=False)


def _wrapped(text: str, letters: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) > letters and lines[-1]:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _cropped(
    sheet: Sheet, made: Any, kind: str, tokens: int, box: tuple[float, float, float, float], photo: bytes, number: int
) -> None:
    if kind == "table":
        rows = [[f"{row}.{column}" for column in range(4)] for row in range(max(int((box[3] - box[1]) / 14), 2))]
        for row, cells in enumerate(rows):
            for column, cell in enumerate(cells):
                at = (box[0] + column * (box[2] - box[0]) / 4 + 2, box[1] + 11 + 14 * row)
                made.insert_text(at, cell, fontsize=9)
        html = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>" for cells in rows)
        name = sheet.block("table", f"<table>{html}</table>", box)
        sheet.answers[name] = Said(f"<table>{html}</table>", tokens)
    elif kind == "formula":
        made.insert_text((box[0] + 4, box[1] + 14), "Q = v A", fontsize=12)
        name = sheet.block("equation", "\\[ Q = v A \\]", box)
        sheet.answers[name] = Said("\\[ Q = v A \\]", tokens)
    else:
        made.insert_image(box, stream=photo, keep_proportion=False)
        name = sheet.block("image", "", box)
        chart = "<table><tr><td>Year</td><td>Rain</td></tr><tr><td>2021</td><td>610</td></tr></table>"
        described = f"A photo of pump {number}, seen from the side, with a grey wall behind it."
        sheet.answers[name] = Said(chart, tokens) if number % 2 else Said(NOTHING, WORDS_OF_A_PHOTO)
        sheet.answers[f"{name}-2"] = Said(described, tokens)


def documents(
    pages: Sequence[Mapping[str, Any]], each: int = PAGES_A_DOCUMENT
) -> Iterator[tuple[bytes, dict[str, Said]]]:
    """PDFs of so many pages each, and what is said by prompt id."""
    rng = np.random.default_rng(1)
    photos = [_photo(rng) for _ in range(4)]
    for start in range(0, len(pages), each):
        some = pages[start : start + each]
        with pymupdf.open() as pdf:
            sheets = [drawn(pdf, page, photos) for page in some]
            data = bytes(pdf.tobytes(deflate=True, garbage=1)) + b"%% %d" % start  # no two the same
        key = hashlib.sha256(data).hexdigest()[:12]
        said = {}
        for number, (page, sheet) in enumerate(zip(some, sheets, strict=True), 1):
            said[f"{key}/p{number:04d}"] = Said("".join(sheet.blocks), page["tokens"])
            said |= {f"{key}/p{number:04d}-{name}": answer for name, answer in sheet.answers.items()}
        yield data, said


def _photo(rng: np.random.Generator) -> bytes:
    small = Image.fromarray(rng.integers(0, 256, (30, 40, 3), np.uint8))
    buffer = io.BytesIO()
    small.resize((800, 600), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=85)
    return buffer.getvalue()


class Mark(NamedTuple):
    at: float
    made: int
    cpu: dict[str, float]


@dataclass
class Meter:
    """Tokens made between two moments: when `first` pages have begun, and when all have."""

    first: int
    pages: int
    begun: int = 0
    made: int = 0
    marks: list[Mark] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def mark(self) -> None:
        self.marks.append(Mark(time.monotonic(), self.made, bench_usage.cpu_seconds()))

    def page(self) -> None:
        """One more has begun."""
        self.begun += 1
        if self.begun in (min(self.first, self.pages - 1), self.pages):
            self.mark()
        if self.begun == self.pages:
            self.over.set()

    @property
    def between(self) -> tuple[float, float]:
        return self.marks[0].at, self.marks[-1].at

    @property
    def tokens_per_s(self) -> float:
        (since, first, _), (until, last, _) = self.marks[0], self.marks[-1]
        return (last - first) / (until - since)

    def cpu_ms(self, tokens: float) -> dict[str, float]:
        """By kind of process, of so many tokens."""
        (_, first, before), (_, last, after) = self.marks[0], self.marks[-1]
        return {kind: round(1000 * tokens * (after[kind] - before[kind]) / (last - first), 1) for kind in after}


class Believed(Engine):
    """An engine that works as hard as the mix says and is believed to have answered the page."""

    def __init__(self, inner: Engine, said: Mapping[str, Said], observer: Meter) -> None:
        self._inner, self._said, self.observer = inner, said, observer
        self.kind, self.precision, self.family = inner.kind, inner.precision, inner.family
        self.sequences, self.canary, self.buffers = inner.sequences, inner.canary, inner.buffers
        self.asked: list[Prompt] = []
        self.unknown: Counter[str] = Counter()

    async def open(self, workers: Any) -> None: ...

    async def close(self) -> None: ...

    async def generate(self, prompt: Prompt) -> Completion:
        said = self._said.get(prompt.id)
        if said is None:
            self.unknown[prompt.id.rpartition("/")[2]] += 1
            said = Said(SENTENCE, WORDS_OF_A_PHOTO)
        self.asked.append(prompt)
        answer = await self._made(prompt, said)
        return replace(answer, text=said.text, finish_reason="stop")

    async def _made(self, prompt: Prompt, said: Said) -> Completion:
        before = 0

        def watch(_: str) -> bool:
            """What the pipeline's own would have looked at, and no verdict."""
            nonlocal before
            step = min(INTERVAL, said.tokens - before)
            before += step
            self.observer.made += step
            if prompt.watch:
                prompt.watch(said.text[: round(len(said.text) * before / said.tokens)])
            return False

        sampling = Sampling(max_tokens=said.tokens, ignore_eos=True)
        if is_page(prompt):
            self.observer.page()
        answer = await self._inner.generate(replace(prompt, sampling=sampling, watch=watch))
        if answer.finish_reason != "length":
            raise RuntimeError(f"{prompt.id}: {answer.finish_reason} after {answer.tokens_out} tokens")
        self.observer.made += answer.tokens_out - before
        return answer


def is_page(prompt: Prompt) -> bool:
    return prompt.text == PROMPTS["document"] and "-e" not in prompt.id


def asked_of(said: Mapping[str, Said], everything: bool = False) -> dict[str, Said]:
    """Without the second answers of pictures that the first was enough for; texts with `everything` only."""
    return {
        name: one
        for name, one in said.items()
        if (one.with_auto or everything) and not (name.endswith("-2") and said[name.removesuffix("-2")].text)
    }


@contextmanager
def store() -> Iterator[str]:
    """An S3 in a process of its own."""
    command = [sys.executable, str(ROOT / "scripts" / "bench_s3.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        try:
            yield child.stdout.readline().strip()
        finally:
            child.terminate()


def client(endpoint: str) -> Any:
    config = Config(s3={"addressing_style": "path"}, max_pool_connections=32)
    session = boto3.Session("key", "secret", region_name="us-east-1")
    return session.client("s3", endpoint_url=endpoint, config=config)


@dataclass(frozen=True)
class Shelf:
    """Documents in the S3 under their names, and what is said of each and of its pages."""

    pages: Sequence[Mapping[str, Any]]
    names: Sequence[str]
    answers: Sequence[Mapping[str, Said]]
    everything: bool = False  # pass 2 asks about texts too

    def first(self, count: int) -> Shelf:
        """So many pages, in whole documents."""
        some = math.ceil(count / PAGES_A_DOCUMENT)
        pages = self.pages[: some * PAGES_A_DOCUMENT]
        return replace(self, pages=pages, names=self.names[:some], answers=self.answers[:some])

    @cached_property
    def said(self) -> dict[str, Said]:
        return {name: one for some in self.answers for name, one in some.items()}

    @cached_property
    def asked(self) -> dict[str, Said]:
        return asked_of(self.said, self.everything)

    @property
    def prompts_a_page(self) -> float:
        return len(self.asked) / len(self.pages)

    @property
    def tokens_a_page(self) -> float:
        return sum(one.tokens for one in self.asked.values()) / len(self.pages)

    @property
    def asked_about(self) -> int:
        """Pages; blank ones are seen to be that."""
        return sum(page["elements"] > 0 for page in self.pages)


def shelved(pages: Sequence[Mapping[str, Any]], to: Any, folder: str = "in", each: int = PAGES_A_DOCUMENT) -> Shelf:
    names, answers = list[str](), list[Mapping[str, Said]]()
    for number, (data, said) in enumerate(documents(pages, each)):
        names.append(f"s3://{BUCKET}/{folder}/{number:03d}.pdf")
        to.put_object(Bucket=BUCKET, Key=f"{folder}/{number:03d}.pdf", Body=data)
        answers.append(said)
    return Shelf(pages, names, answers)


def full_at(places: int) -> int:
    """Pages that have begun when all seats are surely taken: half as many again as may be in flight."""
    return round(1.5 * places)


async def jobs(opened: Worker, shelf: Shelf, count: int, **more: str) -> Believed:
    """The documents as so many jobs at once, until the last page has begun; `more` are further fields of theirs."""
    engine = Believed(opened.engine, shelf.said, Meter(full_at(opened.window.places), shelf.asked_about))
    told = replace(opened, engine=engine)
    running = [asyncio.create_task(_succeeded(_job(shelf.names[n::count], told, **more), told)) for n in range(count)]
    await _until_over(engine.observer, running)
    if engine.unknown:
        tell(unknown=dict(engine.unknown.most_common(5)))
    return engine


async def latency(opened: Worker, shelf: Shelf) -> tuple[float, dict[str, float]]:
    """Seconds from the job's beginning to its result, with nothing beside it; milliseconds of a processor by stage."""
    told = replace(opened, engine=Believed(opened.engine, shelf.said, Meter(2, shelf.asked_about)))
    before = time.monotonic()
    (document,) = (await _succeeded(_job(shelf.names, told), told)).documents
    seconds = time.monotonic() - before
    return seconds, {
        name: 1000 * spent["cpu_s"] / len(shelf.pages) for name, spent in document.timings["stages"].items()
    }


def _job(names: Sequence[str], opened: Worker, **more: str) -> Job:
    name = f"job{next(_numbers)}"
    given = {"sources": names, "output": f"s3://{BUCKET}/out/{name}/", "mode": "gundam", "resume": False, **more}
    return Job.parse({"id": name, "input": given}, opened.settings, Door.LOCAL)


async def _succeeded(job: Job, opened: Worker) -> Result:
    result = await pipeline.run(job, opened, Tracker())
    if result.status != "success":
        raise RuntimeError(f"{job.id}: {result.problems[:3]}")
    return result


async def alone(opened: Worker, asked: Sequence[Prompt], shelf: Shelf) -> Meter:
    """The same requests in the same order, with nothing around the engine."""
    engine = Believed(opened.engine, shelf.said, Meter(full_at(opened.window.places), shelf.asked_about))
    async with _shown(opened) as page:
        prompts = [replace(one, image=_alike(one.image, page), page=None) for one in asked]
        seats = asyncio.Semaphore(opened.window.places)

        async def seated(prompt: Prompt) -> None:
            async with seats:
                await engine.generate(prompt)

        running = [asyncio.create_task(seated(prompt)) for prompt in prompts]
        await _until_over(engine.observer, running)
    return engine.observer


async def _until_over(observer: Meter, running: Sequence[asyncio.Task[Any]]) -> None:
    over = asyncio.create_task(observer.over.wait())
    while not over.done():
        if not running:
            over.cancel()
            raise RuntimeError(f"{observer.begun} of {observer.pages} pages have begun, and nothing goes on")
        done, _ = await asyncio.wait((over, *running), return_when=asyncio.FIRST_COMPLETED)
        running = [task for task in running if not task.done()]
        for task in done:
            task.result()  # what failed is told
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)


@asynccontextmanager
async def _shown(opened: Worker) -> Any:
    width, height = A4
    async with opened.buffers.lend(width * height * 3) as buffer:
        noise = np.random.default_rng(2).integers(0, 256, width * height * 3, np.uint8)
        np.frombuffer(buffer.map(noise.nbytes), np.uint8)[:] = noise
        yield Pixels(width, height, buffer)


def _alike(image: Pixels, page: Pixels) -> Pixels:
    """So much of the page as the picture was large."""
    return page.crop(0, 0, min(image.width, page.width), min(image.height, page.height))


def ceiling(endpoint: str) -> float:
    """Puts of 30 kB a second that the S3 takes from this process, sixteen at a time."""
    to, data = client(endpoint), os.urandom(30_000)
    before = time.monotonic()
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: to.put_object(Bucket=BUCKET, Key=f"c/{n}", Body=data), range(CEILING_PUTS)))
    return CEILING_PUTS / (time.monotonic() - before)


def measured(
    opened: Worker, endpoint: str, pages: Sequence[Mapping[str, Any]], counts: Sequence[int],
    windows: Sequence[int] = (), ways: Sequence[str] = (), few: Sequence[int] = LATENCIES, rounds: int = LATENCY_ROUNDS,
) -> dict[str, Any]:  # fmt: skip
    """{"pages_per_s", "share_of_engine", …}, the first of `counts` being the one that is told as the job's.

    Told as `found`, too, as soon as it is. `windows`: pages in flight, tried one after the other with five times as
    many pages, 48 at least, where there are so many. `ways`: of WAYS, each as one job. `few`: documents of so many
    pages that are read alone, `rounds` times.
    """
    to = client(endpoint)
    shelf = shelved(pages, to)
    tokens = shelf.tokens_a_page
    told: dict[str, Any] = {}

    def found(**more: Any) -> None:
        told.update(more)
        tell(found={"job_mix": told})

    found(
        pages=len(pages), s3_puts_per_s=round(ceiling(endpoint)), tokens_a_page=round(tokens),
        first_pass_tokens=round(statistics.mean(page["tokens"] for page in pages)),
        prompts_a_page=round(shelf.prompts_a_page, 2), latency_s={}, pages_per_s_by={},
    )  # fmt: skip
    for some in few:
        seconds, by_stage = _latency(opened, shelved(pages[:some], to, f"few{some}", some), rounds)
        found(latency_s={**told["latency_s"], f"{some}_pages": seconds}, cpu_ms_per_page_by_stage=by_stage)

    def by(name: str, pages_per_s: float) -> None:
        found(pages_per_s_by={**told["pages_per_s_by"], name: round(pages_per_s, 2)})

    first: Believed | None = None
    with bench_usage.watched() as usage:
        for number in counts:
            engine = opened.submit(jobs(opened, shelf, number)).result()
            speed = engine.observer.tokens_per_s
            taken = {"cpu_ms_per_page": engine.observer.cpu_ms(tokens), **usage.between(*engine.observer.between)}
            tell(jobs=number, tokens_per_s=speed, **taken)
            by(f"{number}_jobs", speed / tokens)
            if first is None:
                first = engine
                found(pages_per_s=round(speed / tokens, 2), tokens_per_s=round(speed), **taken)
        assert first
        of_engine = opened.submit(alone(opened, first.asked, shelf)).result()  # watched too: that takes its share
    found(
        share_of_engine=round(first.observer.tokens_per_s / of_engine.tokens_per_s, 3),
        alone_tokens_per_s=round(of_engine.tokens_per_s), alone_cpu_ms_per_page=of_engine.cpu_ms(tokens),
    )  # fmt: skip
    for places in windows:
        part = shelf.first(max(5 * places, 48))
        observer = opened.submit(jobs(replace(opened, window=PageSlots(places)), part, 1)).result().observer
        by(f"{places}_in_flight", observer.tokens_per_s / part.tokens_a_page)
    for way in ways:
        part = replace(shelf, everything="pass2" in WAYS[way])
        engine = opened.submit(jobs(opened, part, 1, **WAYS[way])).result()
        tell(way=way, prompts_a_page=part.prompts_a_page, modes=dict(Counter(one.mode for one in engine.asked)))
        by(way, engine.observer.tokens_per_s / part.tokens_a_page)
    return told


def _latency(opened: Worker, shelf: Shelf, rounds: int) -> tuple[float, dict[str, float]]:
    """Medians of the seconds, and of each stage's milliseconds a page."""
    seen = [opened.submit(latency(opened, shelf)).result() for _ in range(rounds)]
    tell(pages=len(shelf.pages), latency_s=[seconds for seconds, _ in seen])
    by_stage = {name: round(statistics.median(stages[name] for _, stages in seen), 1) for name in seen[0][1]}
    return round(statistics.median(seconds for seconds, _ in seen), 2), by_stage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model-dir", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--pages", type=int, default=1600)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1])
    parser.add_argument("--windows", type=int, nargs="*", default=[], help="pages in flight, one after the other")
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=[], help="otherwise than pass2 auto in gundam")
    parser.add_argument("--quantization")
    parser.add_argument("--kv-cache-dtype", default="auto")
    parser.add_argument("--sequences", type=int, default=512)
    parser.add_argument("--workers", type=int, default=max(len(os.sched_getaffinity(0)) - 2, 1))
    options = parser.parse_args()
    places = round(AHEAD * options.sequences)
    most = max((places, *options.windows))
    if options.pages <= (least := full_at(most)):
        parser.error(f"--pages: more than {least}, or no moment has all seats taken")
    mix = json.loads(MIX.read_text())
    pages = [mix[number % len(mix)] for number in range(options.pages)]
    os.environ |= ENVIRONMENT
    with store() as endpoint:
        settings = Settings(
            engine="vllm", model_dir=options.model_dir, load_format=load_format(options.model_dir),
            max_num_seqs=options.sequences,
            quantization=options.quantization, kv_cache_dtype=options.kv_cache_dtype, page_workers=options.workers,
            canary=False, log_level="WARNING", bucket_endpoint_url=endpoint, window=most,
            bucket_access_key_id="key", bucket_secret_access_key="secret", window_bytes=most * PAGE_BYTES,
        )  # fmt: skip
        logs.set_up(settings)
        with open_worker(settings) as opened:
            usual = replace(opened, window=PageSlots(places))
            told = measured(usual, endpoint, pages, options.jobs, options.windows, options.ways)
    tell(found={"job_mix": told})
    if options.json:
        found = json.loads(options.json.read_text()) if options.json.exists() else {}
        options.json.write_text(json.dumps({**found, "job_mix": told}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
