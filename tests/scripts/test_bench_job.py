"""scripts/bench_job.py: the mix becomes documents whose every crop is asked about, and jobs that are measured."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests import ROOT
from tests.fakes.reader import Reader
from twopass.engines.interface import Completion, Engine, Prompt
from twopass.families import registry
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings
from twopass.worker import Worker, open_worker

sys.path.append(str(ROOT / "scripts"))

import bench_job

MIX = json.loads(bench_job.MIX.read_text())
SEATS = 4
BLANK = next(page for page in MIX if page["kind"] == "blank")


class Typist(Engine):
    """Says nothing, at a steady pace."""

    kind, precision, family, sequences, canary = "vllm", "dummy", "deepseek_ocr", SEATS, False

    async def open(self, page_pool: PagePool) -> None: ...

    async def close(self) -> None: ...

    async def generate(self, prompt: Prompt) -> Completion:
        for _ in range(0, prompt.sampling.max_tokens, 64):
            await asyncio.sleep(0.001)
            assert prompt.watch and not prompt.watch("")
        return Completion("?", "length", tokens_out=prompt.sampling.max_tokens)


@pytest.fixture
def opened() -> Iterator[Worker]:
    with open_worker(Settings(page_workers=1, window=2 * SEATS, log_level="ERROR")) as made:
        yield replace(made, engine=Typist(), family=registry.named("deepseek_ocr"))


@pytest.mark.parametrize("pass2", ["auto", "all"])
async def test_every_crop_of_the_mix_is_asked_about_and_nothing_else(
    page_pool: PagePool, buffers: PixelBufferPool, tmp_path: Path, pass2: str
) -> None:
    """Pages of every kind end as read, and each prompt is one that the mix has tokens for; with `all`, texts too."""
    pages = [next(page for page in MIX if page["kind"] == kind and page["crops"]) for kind in ("slide", "letter")]
    ((data, said),) = bench_job.documents([*pages, next(page for page in MIX if len(page["crops"]) == 3)])
    (tmp_path / "mix.pdf").write_bytes(data)
    engine = bench_job.Believed(Typist(), said, bench_job.Meter(SEATS, 3))

    result = await Reader(page_pool, buffers, engine).run(
        source=str(tmp_path / "mix.pdf"), output=f"{tmp_path}/out", mode="gundam", pass2=pass2
    )

    assert result.documents[0].pages == {"read": 3}
    assert {prompt.id for prompt in engine.asked} == set(bench_job.asked_of(said, pass2 == "all"))
    assert len(bench_job.asked_of(said, True)) > len(bench_job.asked_of(said))
    assert not engine.unknown


def test_a_document_that_is_read_alone_is_one_file() -> None:
    """However many pages it has: a job of several tells no stages of its own."""
    assert [len(list(bench_job.documents(MIX[:19], each))) for each in (16, 19)] == [2, 1]


async def test_a_job_is_told_beside_its_engine_alone(opened: Worker) -> None:
    """Both in pages a second while the seats are taken."""
    with bench_job.store() as endpoint:
        settings = opened.settings.model_copy(update={
            "bucket_endpoint_url": endpoint, "bucket_access_key_id": "key",
            "bucket_secret_access_key": Settings(bucket_secret_access_key="s").bucket_secret_access_key,
        })  # fmt: skip
        bench_job.client(endpoint).create_bucket(Bucket=bench_job.BUCKET)
        told = await asyncio.to_thread(
            bench_job.measured,
            replace(opened, settings=settings),
            endpoint,
            [*MIX[:12], BLANK, *MIX[12:16]],
            [1, 2],
            [6],
            list(bench_job.WAYS),
            (1, 2),
            1,
        )

    assert told["pages_per_s"] == told["pages_per_s_by"]["1_jobs"] > 0
    assert {name for name, rate in told["pages_per_s_by"].items() if rate > 0} == {
        "1_jobs", "2_jobs", "6_in_flight", "pass2_all", "mode_auto",
    }  # fmt: skip
    assert told["latency_s"].keys() == {"1_pages", "2_pages"} and min(told["latency_s"].values()) > 0
    assert told["cpu_ms_per_page"]["workers"] > told["cpu_ms_per_page"]["core"] == 0 < told["host_peak_mib"]
    assert told["cpu_ms_per_page_by_stage"]["render"] > 0
    assert told["share_of_engine"] > 0  # of a typist who waits for nothing
    assert told["tokens_a_page"] > told["first_pass_tokens"]
