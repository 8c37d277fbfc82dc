"""scripts/bench/jobs.py: pages of the mix become documents with scripted answers, and jobs that are measured."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.bench import harness, jobs, mix, s3_server
from scripts.bench.mix import ScriptedAnswerEngine, TokenMeter
from tests.fakes.reader import Reader
from twopass.detection.region import DETECT
from twopass.engines.interface import Completion, Engine, Prompt
from twopass.families import registry
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings
from twopass.worker import Worker, open_worker

MIX = harness.read_mix(640)
SEQUENCES = 4
BLANK = next(page for page in MIX if page["kind"] == "blank")


class SteadyEngine(Engine):
    """Stream tokens at a steady pace, without any text."""

    kind, precision, family, sequences, needs_canary = "vllm", "dummy", "deepseek_ocr", SEQUENCES, False

    async def open(self, page_pool: PagePool) -> None: ...

    async def close(self) -> None: ...

    async def generate(self, prompt: Prompt) -> Completion:
        if prompt.text == DETECT:
            return Completion("{}", "stop")
        for _ in range(0, prompt.sampling.max_tokens, 64):
            await asyncio.sleep(0.001)
            assert prompt.loop_check and not prompt.loop_check("")
        return Completion("?", "length", tokens_out=prompt.sampling.max_tokens)


@pytest.fixture
def worker() -> Iterator[Worker]:
    with open_worker(Settings(page_workers=1, window=2 * SEQUENCES, log_level="ERROR")) as worker:
        yield replace(worker, engine=SteadyEngine(), family=registry.get_family("deepseek_ocr"))


@pytest.mark.parametrize("pass2", ["auto", "all"])
async def test_a_job_asks_about_every_crop_of_the_mix_and_nothing_else(
    page_pool: PagePool, buffers: PixelBufferPool, tmp_path: Path, pass2: str
) -> None:
    """Every page ends as read, and each prompt has a scripted answer; with `pass2: all`, texts are asked about, too."""
    pages = [next(page for page in MIX if page["kind"] == kind and page["crops"]) for kind in ("slide", "letter")]
    pages.append(next(page for page in MIX if len(page["crops"]) == 3))
    ((data, answers),) = mix.build_documents(pages)
    (tmp_path / "mix.pdf").write_bytes(data)
    engine = ScriptedAnswerEngine(SteadyEngine(), answers, TokenMeter(SEQUENCES, 3))

    result = await Reader(page_pool, buffers, engine).run(
        source=str(tmp_path / "mix.pdf"), output=f"{tmp_path}/out", mode="gundam", pass2=pass2
    )

    assert result.documents[0].pages == {"read": 3}
    assert {prompt.id for prompt in engine.asked} == set(mix.select_asked(answers, pass2 == "all"))
    assert len(mix.select_asked(answers, True)) > len(mix.select_asked(answers))
    assert not engine.unknown


def script_letter(family: str, file: Path) -> ScriptedAnswerEngine:
    """Write a letter with crops to the file; the engine has the family's answers for it."""
    ((data, answers),) = mix.build_documents([next(page for page in MIX if page["kind"] == "letter" and page["crops"])])
    file.write_bytes(data)
    inner = SteadyEngine()
    inner.family = family
    return ScriptedAnswerEngine(inner, answers, TokenMeter(SEQUENCES, 1))


async def test_a_job_of_another_family_gets_answers_in_its_form(
    page_pool: PagePool, buffers: PixelBufferPool, tmp_path: Path
) -> None:
    """Unlimited-OCR reads the same pages from its own tags, without doubtful pages or unscripted questions."""
    engine = script_letter("unlimited_ocr", tmp_path / "mix.pdf")

    result = await Reader(page_pool, buffers, engine).run(
        source=str(tmp_path / "mix.pdf"), output=f"{tmp_path}/out", mode="gundam"
    )

    assert result.documents[0].pages == {"read": 1}
    assert not engine.unknown
    assert engine.meter.begun == 1


async def test_a_job_of_a_region_reader_gets_detections_and_is_asked_about_every_region(
    page_pool: PagePool, buffers: PixelBufferPool, tmp_path: Path
) -> None:
    """The detector's findings are those blocks that the mix drew; a page begins when it is detected."""
    engine = script_letter("glm_ocr", tmp_path / "mix.pdf")

    result = await Reader(page_pool, buffers, engine).run(source=str(tmp_path / "mix.pdf"), output=f"{tmp_path}/out")

    assert result.documents[0].pages == {"read": 1} and engine.meter.begun == 1
    assert {prompt.text for prompt in engine.asked} > {DETECT, "Text Recognition:"}
    assert not engine.unknown


def test_pages_for_a_latency_run_are_one_document() -> None:
    """A result has its stages by document, so nineteen pages must not be cut into documents of sixteen."""
    assert [len(list(mix.build_documents(MIX[:19], count))) for count in (16, 19)] == [2, 1]


async def test_whole_jobs_are_measured_against_the_engine_alone(worker: Worker) -> None:
    """The result has pages a second for every number of jobs, page slots and way, latencies, and the engine's share."""
    with s3_server.start_server() as endpoint:
        settings = worker.settings.model_copy(update={
            "bucket_endpoint_url": endpoint, "bucket_access_key_id": "key",
            "bucket_secret_access_key": Settings(bucket_secret_access_key="s").bucket_secret_access_key,
        })  # fmt: skip
        s3_server.connect(endpoint).create_bucket(Bucket=s3_server.BUCKET)
        facts = await asyncio.to_thread(
            jobs.measure,
            replace(worker, settings=settings),
            endpoint,
            [*MIX[:12], BLANK, *MIX[12:16]],
            [1, 2],
            [6],
            list(jobs.WAYS),
            ["small_crops"],
            (1, 2),
            1,
        )

    assert facts["pages_per_s"] == facts["pages_per_s_by"]["1_jobs"] > 0
    assert {name for name, rate in facts["pages_per_s_by"].items() if rate > 0} == {
        "1_jobs", "2_jobs", "6_in_flight", "pass2_all", "mode_auto", "input_small_crops",
    }  # fmt: skip
    assert facts["latency_s"].keys() == {"1_pages", "2_pages"} and min(facts["latency_s"].values()) > 0
    assert facts["cpu_ms_per_page"]["workers"] > facts["cpu_ms_per_page"]["core"] == 0 < facts["host_peak_mib"]
    assert facts["cpu_ms_per_page_by_stage"]["render"] > 0
    assert facts["share_of_engine"] > 0  # of an engine that takes no CPU time
    assert facts["tokens_a_page"] > facts["first_pass_tokens"]
