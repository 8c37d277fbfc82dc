"""Documents that are finished need no engine: they are found by what an engine of the same settings would record."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.engines.test_weights import write_detector
from tests.fakes import openai_server, recorded
from tests.fakes.openai_server import OpenAIServer
from tests.fakes.reader import Reader
from twopass import pipeline
from twopass.engines import factory
from twopass.engines.cpu.engine import CpuEngine
from twopass.engines.gpus import GpuInfo
from twopass.engines.interface import Identity, describe
from twopass.engines.vllm.arguments import predict_precision
from twopass.job import EntryPoint, Format, Job
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings
from twopass.steps.report import Outcome
from twopass.storage.outputs import open_output

SETTINGS = Settings(page_workers=1, log_level="ERROR")
CPU = Identity("cpu", "float32", "layout")
DPI = 72  # small pages take less time


@pytest.fixture(scope="module")
async def made(page_pool: PagePool, buffers: PixelBufferPool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a document, and what was read of it in `out`."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "report.pdf").write_bytes(recorded.report())
    reader = Reader(page_pool, buffers, CpuEngine(2), SETTINGS, dpi=DPI)
    await reader.run(source=str(folder / "report.pdf"), output=str(folder / "out"))
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """The same in a place that a test may change."""
    return Path(shutil.copytree(made, tmp_path / "copy"))


async def find(folder: Path, **fields: object) -> Outcome | None:
    asked = {"source": str(folder / "report.pdf"), "output": str(folder / "out"), "dpi": DPI, **fields}
    job = Job.parse({"id": "again", "input": asked}, SETTINGS, EntryPoint.LOCAL)
    async with open_output(job.output, SETTINGS, None) as output:
        return await pipeline.find_finished(job, SETTINGS, CPU, output)


def read_artefacts(folder: Path) -> dict[str, bytes]:
    paths = [path for path in (folder / "out").glob("report-*/**/*") if path.is_file() and path.name != "manifest.json"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


async def test_a_finished_document_is_found_and_nothing_of_it_is_written(folder: Path) -> None:
    """The result is that of the job that read it, with no page read now."""
    before = read_artefacts(folder)
    found = await find(folder)

    assert found and (found.result.status, found.result.usage["pages_read_now"]) == ("success", 0)
    assert set(found.result.artefacts) == {"document.json", "document.md"}
    assert read_artefacts(folder) == before


async def test_formats_are_added_as_reading_adds_them(
    folder: Path, made: Path, page_pool: PagePool, buffers: PixelBufferPool, tmp_path: Path
) -> None:
    """Every format, also the review page with its pictures, has the bytes that a worker with an engine writes."""
    other, formats = Path(shutil.copytree(made, tmp_path / "other")), [str(name) for name in Format]
    found = await find(folder, formats=formats)
    reader = Reader(page_pool, buffers, CpuEngine(2), SETTINGS, dpi=DPI)
    read = await reader.run(source=str(other / "report.pdf"), output=str(other / "out"), formats=formats)

    assert found and set(found.result.artefacts) == set(read.documents[0].artefacts)
    assert read_artefacts(folder) == read_artefacts(other)
    assert (found.result.status, found.problems) == (read.status, read.problems)


UNFINISHED = {"manifest": "manifest.json", "page": "pages/0001.json", "crop": "images/*.png"}


@pytest.mark.parametrize("missing", UNFINISHED.values(), ids=UNFINISHED)
async def test_a_document_that_lacks_something_is_read(folder: Path, missing: str) -> None:
    """Without its manifest, or without a page or crop that the new format is made of, it is left to a worker."""
    for path in list((folder / "out").glob(f"report-*/{missing}")):
        path.unlink()

    assert await find(folder, formats=["docjson", "html"]) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"resume": False},
        {"mode": "base"},
        {"pages": "1"},
        {"dpi": 100},
        {"source": "missing.pdf"},
        {"idempotency_key": "key"},
        {"slice": "1"},
    ],
    ids=str,
)
async def test_another_document_is_not_taken_for_it(folder: Path, fields: dict[str, object]) -> None:
    """What changes the id, or has to be reported or claimed, is left to a worker."""
    assert await find(folder, **fields) is None


# ---- what an engine would record ----------------------------------------------------------------


@pytest.mark.parametrize("model", ["", "tiny"])
@pytest.mark.parametrize("extra", [{}, {"openai_plain": True}, {"openai_modes": True}], ids=str)
async def test_a_server_of_models_is_identified_without_a_prompt(
    page_pool: PagePool, model: str, extra: dict[str, bool]
) -> None:
    """It is the identity of the opened engine. A server whose model a setting names is not asked at all."""
    async with openai_server.serve(OpenAIServer()) as server:
        settings = Settings(engine="openai", openai_base_url=server.url, openai_model=model or None, **extra)
        identity = await factory.identify(settings)
        engine = factory.create_reader(settings)
        await engine.open(page_pool)
        await engine.close()

    assert identity and describe(identity) == describe(engine) and identity.family == engine.family
    assert not server.requests
    assert (await factory.identify(settings) is not None) is bool(model)  # now that it is gone


async def test_a_detector_in_front_is_part_of_the_identity(tmp_path: Path) -> None:
    """A missing one is not downloaded for it."""
    write_detector(tmp_path)
    asked = {"engine": "openai", "openai_base_url": "http://localhost:1/v1", "openai_model": "tiny"}
    settings = Settings(**asked, structure="fallback", detector_device="cpu", detector_dir=tmp_path)
    missing = settings.model_copy(update={"detector_dir": tmp_path / "none", "allow_download": True})

    identity = await factory.identify(settings)
    assert identity and identity.detector == factory.create_engine(settings).detector
    assert await factory.identify(missing) is None


async def test_engines_that_run_models_are_identified_without_starting(tmp_path: Path) -> None:
    """Neither vLLM nor Transformers is imported; the precision is the preset's or the setting's."""
    cpu = await factory.identify(Settings(tessdata_dir=tmp_path))
    hf = await factory.identify(Settings(engine="hf", dtype="float16"))
    vllm = await factory.identify(Settings(engine="vllm", preset="cpu"))

    assert cpu == CPU and hf == Identity("hf", "float16", "deepseek_ocr")
    assert vllm == Identity("vllm", "float32+4096-context", "deepseek_ocr")
    assert predict_precision(Settings(), GpuInfo(count=1, memory_gb=79.6)) == "bfloat16"
    assert await factory.identify(Settings(engine="vllm", preset="cpu", model="gpt")) is None
