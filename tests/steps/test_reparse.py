"""`twopass reparse`: formats from checkpoints, and recorded answers parsed again, without an engine."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.fakes import recorded, s3
from tests.fakes.reader import Reader
from twopass.cli.app import app
from twopass.document import Checkpoint
from twopass.engines.cpu.engine import CpuEngine
from twopass.job import EntryPoint, Format, Job
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings
from twopass.steps import fetch, render, reparse
from twopass.steps.document_folder import DocumentFolder, ManifestDetails
from twopass.storage.folder_store import FolderStore
from twopass.storage.sources import Sources

Reread = Callable[..., Awaitable[tuple[int, ...]]]
ALL_FORMATS = [str(name) for name in Format]
TIMED_FILES = ("manifest.json",)


@pytest.fixture(autouse=True)
def one_page_worker(monkeypatch: pytest.MonkeyPatch, bare_environment: None) -> None:
    """The command starts one page worker, which is enough for four pages."""
    monkeypatch.setenv("PAGE_WORKERS", "1")


@pytest.fixture(scope="module")
async def made(page_pool: PagePool, buffers: PixelBufferPool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two documents of one source: `few` has the default formats, `all` has every format."""
    folder = tmp_path_factory.mktemp("reparse")
    source = folder / "report.pdf"
    source.write_bytes(recorded.report())
    reader = Reader(page_pool, buffers, CpuEngine(2), dpi=72)
    for name, formats in (("few", ALL_FORMATS[:2]), ("all", ALL_FORMATS)):
        engine = recorded.RecordingEngine(hashlib.sha256(source.read_bytes()).hexdigest()[:12])
        await reader.run(engine=engine, source=str(source), output=f"{folder}/{name}", formats=formats)
    return folder


@pytest.fixture
def few(made: Path, tmp_path: Path) -> Path:
    """A finished document that a test may change."""
    place = next((made / "few").glob("report-*"))
    return Path(shutil.copytree(place, tmp_path / "few" / place.name))


def snapshot(folder: Path) -> dict[str, bytes]:
    """All files without times: no manifest, and checkpoints without their cost."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in TIMED_FILES:
            data = path.read_bytes()
            if path.parent.name == "pages":
                data = json.dumps({**json.loads(data), "cost": None}).encode()
            files[str(path.relative_to(folder))] = data
    return files


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["reparse", *map(str, arguments)], catch_exceptions=False)


def run(*arguments: object) -> dict[str, Any]:
    """Run the command, which must succeed, and return what it prints."""
    result = invoke(*arguments)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)  # type: ignore[no-any-return]


@pytest.fixture
def reread(made: Path, page_pool: PagePool, buffers: PixelBufferPool) -> Reread:
    """What `--reread` does, with the page workers of all tests. It returns the pages that changed."""

    async def reread(folder: Path, newer: Path, source: Path = made / "report.pdf") -> tuple[int, ...]:
        stored = await reparse.load_document(DocumentFolder(FolderStore(folder.parent), folder.name))
        output, dpi = DocumentFolder(FolderStore(newer), folder.name), reparse.restore_job(stored.details).dpi
        job = Job.parse({"input": {"source": str(source)}}, Settings(), EntryPoint.LOCAL)
        async with fetch.document(str(source), job, Settings(), page_pool, Sources(Settings())) as file:

            def render_page(number: int) -> Any:
                return render.page(file, number, dpi, 40_000_000, page_pool, buffers)

            _, changed = await reparse.reread_document(stored, output, (), render_page, page_pool)
        return changed

    return reread


def test_every_format_comes_from_the_checkpoints(few: Path, made: Path) -> None:
    """All formats have the bytes that a job with all formats writes, and the manifest lists them."""
    report = run(few, "--formats", ",".join(ALL_FORMATS))

    manifest = json.loads((few / "manifest.json").read_text())
    assert snapshot(few) == snapshot(next((made / "all").glob("report-*")))
    assert report["problems"] == []
    assert set(manifest["result"]["artefacts"]) == {Path(uri).name for uri in report["artefacts"].values()}
    assert len(manifest["result"]["artefacts"]) == len(ALL_FORMATS)


def test_document_json_is_not_needed(few: Path, made: Path) -> None:
    """Formats can be written without document.json and without the source."""
    (few / "document.json").unlink()

    run(few, "--formats", "docjson,chunks", "--source", "/nowhere.pdf")

    assert snapshot(few)["document.json"] == snapshot(next((made / "all").glob("report-*")))["document.json"]
    assert (few / "chunks.jsonl").exists()


def test_a_folder_in_a_bucket_gets_the_same_formats(
    few: Path,
    made: Path,
    endpoint: str,
    bucket: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Checkpoints are read from S3 and artefacts are written there; the source is a local file."""
    for path in few.rglob("*"):
        if path.is_file():
            bucket.upload_file(str(path), "bucket", f"out/{few.name}/{path.relative_to(few)}")
    for name, value in (("ENDPOINT_URL", endpoint), ("ACCESS_KEY_ID", s3.KEY), ("SECRET_ACCESS_KEY", s3.SECRET)):
        monkeypatch.setenv(f"BUCKET_{name}", value)

    report = run(f"s3://bucket/out/{few.name}", "--formats", ",".join(ALL_FORMATS), "--source", made / "report.pdf")

    whole = next((made / "all").glob("report-*"))
    written = {key.removeprefix(f"out/{few.name}/"): data for key, data in s3.read_objects(bucket).items()}
    assert report["problems"] == []
    assert {Path(uri).name for uri in report["artefacts"].values()} <= set(written)
    assert written["document.json"] == (whole / "document.json").read_bytes()
    assert written["review.html"] == (whole / "review.html").read_bytes()


def test_format_options_are_kept(few: Path) -> None:
    """Options of one run also apply to formats that are written later."""
    run(few, "--formats", "markdown", "--markdown", '{"page_marks": false}')
    run(few, "--formats", "chunks")

    assert "<!-- page: 1 -->" not in (few / "document.md").read_text()
    (first, *_) = (few / "chunks.jsonl").read_text().splitlines()
    start, end = json.loads(first)["md_span"]
    assert (few / "document.md").read_text()[start:end] == json.loads(first)["text"]


def test_another_file_is_not_the_source(few: Path, tmp_path: Path) -> None:
    """A source with another hash is rejected, because its page images would not match the boxes."""
    other = tmp_path / "other.pdf"
    other.write_bytes(recorded.report() + b"\n%")

    failed = invoke(few, "--formats", "review", "--source", other)

    assert failed.exit_code == 1
    assert "SOURCE_NOT_FOUND" in failed.stderr


def test_an_unfinished_document_is_rejected(few: Path) -> None:
    """If a checkpoint is missing, nothing is written, because the page would be missing from it."""
    (few / "pages" / "0002.json").unlink()

    failed = invoke(few, "--formats", "chunks")

    assert failed.exit_code == 1
    assert "OUTPUT_MISSING: " in failed.stderr
    assert not (few / "chunks.jsonl").exists()


def test_pages_that_were_read_after_the_manifest_are_left_to_a_job(few: Path) -> None:
    """Formats that need the source would lack them; the manifest says which pages its formats have."""
    manifest = json.loads((few / "manifest.json").read_text())
    manifest["result"]["pages"]["read"] -= 1
    manifest["result"]["pages"]["failed"] += 1
    (few / "manifest.json").write_text(json.dumps(manifest))

    failed = invoke(few, "--formats", "chunks")

    assert failed.exit_code == 1
    assert "OUTPUT_MISSING: " in failed.stderr and "send the job again" in failed.stderr
    assert not (few / "chunks.jsonl").exists()


def test_parsing_current_answers_again_changes_nothing(few: Path, tmp_path: Path) -> None:
    """No page changes, and the new document equals the old one, crops included."""
    report = run(few, "--reread", "--output", tmp_path / "newer")

    assert report["pages_changed"] == []
    assert snapshot(tmp_path / "newer" / few.name) == snapshot(few)


def test_pages_of_a_version_without_audit_get_one(few: Path) -> None:
    """Formats that are written again have what the pages' flags and problems say was lost, and so has the result."""
    path = few / "pages" / "0001.json"
    page = json.loads(path.read_text())
    del page["page"]["audit"]
    page["elements"][2]["flags"] = ["cut_off"]
    path.write_text(json.dumps(page))

    run(few, "--formats", "docjson")

    audit = json.loads((few / "document.json").read_text())["pages"][0]["audit"]
    manifest = json.loads((few / "manifest.json").read_text())
    assert [(finding["kind"], finding["element"]) for finding in audit["findings"]] == [("answer_cut", "p0001-e002")]
    assert manifest["result"]["audit"]["findings"]["answer_cut"] == {"count": 1, "pages": "1"}
    assert manifest["audits"]["1"] == audit


async def test_answers_that_are_parsed_again_are_audited_again(few: Path, reread: Reread, tmp_path: Path) -> None:
    """What an older version found in its elements, and the present one does not, is no finding any more."""
    path = few / "pages" / "0001.json"
    page = json.loads(path.read_text())
    sound = page["page"]["audit"]
    page["page"]["audit"] = {**sound, "findings": [{"kind": "answer_cut", "element": "p0001-e002"}], "words_read": 9}
    path.write_text(json.dumps(page))

    await reread(few, tmp_path / "newer")

    newer = tmp_path / "newer" / few.name
    assert json.loads((newer / "pages" / "0001.json").read_text())["page"]["audit"] == sound
    assert json.loads((newer / "manifest.json").read_text())["result"]["audit"]["findings"].keys() == {"answer_looped"}


def test_the_options_of_a_document_are_restored() -> None:
    """Recorded answers are parsed with every option that the document was read with."""
    fields = {"source": "a.pdf", "mode": "base", "figure_descriptions": "none", "sampling": {"ngram": 20}}
    job = Job.parse({"input": fields}, Settings(), EntryPoint.LOCAL)
    options = json.loads(json.dumps({**job.reading_options, "engine": "vllm", "family": "deepseek_ocr"}))

    restored = reparse.restore_job(ManifestDetails(options=options))

    assert restored.reading_options == job.reading_options


OLD_MISTAKES: dict[str, Callable[[dict[str, Any]], None]] = {
    "a text was cut": lambda page: page["elements"][2].update(text="The reservoir", markdown="The reservoir"),
    "a table had no cells": lambda page: page["elements"][3].update(table=None, text="Pump Flow"),
    "a paragraph was lost, and ids were different": lambda page: page.update(elements=_without(page["elements"], 2)),
    "a chart was not understood": lambda page: page["elements"][5].update(figure=None, read_by=1),
}


def _without(elements: list[dict[str, Any]], lost: int) -> list[dict[str, Any]]:
    """The elements without one, numbered as if it had never been found."""
    kept = [element for n, element in enumerate(elements) if n != lost]
    names = {element["id"]: f"p0001-e{n:03d}" for n, element in enumerate(kept)}
    for element in kept:
        element["id"] = names[element["id"]]
        element["image"] = element["image"] and f"images/{element['id']}.png"
        element["parent_id"] = names.get(element["parent_id"])
        element["caption_ids"] = [names[name] for name in element["caption_ids"] if name in names]
    return kept


@pytest.mark.parametrize("mistake", OLD_MISTAKES)
async def test_mistakes_of_an_older_parser_are_corrected(
    few: Path, reread: Reread, tmp_path: Path, mistake: str
) -> None:
    """The recorded answers of both passes restore the page; other pages stay unchanged."""
    path = few / "pages" / "0001.json"
    page = json.loads(path.read_text())
    expected_elements = [dict(element) for element in page["elements"]]
    crops = {e["id"]: (few / e["image"]).read_bytes() for e in page["elements"] if e["image"]}
    OLD_MISTAKES[mistake](page)
    if "ids" in mistake:
        page = _rename_answers(page, expected_elements, few, crops)
    path.write_text(json.dumps(page))

    changed = await reread(few, tmp_path / "newer")

    newer = tmp_path / "newer" / few.name
    read = Checkpoint.model_validate_json((newer / "pages" / "0001.json").read_bytes())
    assert changed == (1,)
    wanted = Checkpoint.model_validate({**page, "elements": expected_elements})
    names = ("id", "kind", "text", "boxes", "table", "figure", "formula", "read_by", "image")
    assert [[getattr(e, n) for n in names] for e in read.elements] == [
        [getattr(e, n) for n in names] for e in wanted.elements
    ]
    assert {e.id: (newer / e.image).read_bytes() for e in read.elements if e.image} == crops
    assert "Water in the Hills" in (newer / "document.md").read_text()


async def test_a_chart_that_an_older_version_did_not_describe_keeps_its_data(
    few: Path, reread: Reread, tmp_path: Path
) -> None:
    """Where only the first of two answers about a chart is recorded, it is used, and the other one is named missing."""
    path = few / "pages" / "0001.json"
    page = json.loads(path.read_text())
    chart = page["elements"][5]
    page["completions"] = [c for c in page["completions"] if not c["prompt_id"].endswith(f"{chart['id']}-2")]
    path.write_text(json.dumps(page))

    await reread(few, tmp_path / "newer")

    read = Checkpoint.model_validate_json((tmp_path / "newer" / few.name / "pages" / "0001.json").read_bytes())
    figure = read.elements[5].figure
    assert figure and figure.data and figure.data.rows == 3 and figure.description is None
    assert {"unasked", "pass2_cut"} & set(read.elements[5].flags) == {"unasked"}


def _rename_answers(
    page: dict[str, Any], expected: list[dict[str, Any]], folder: Path, crops: dict[str, bytes]
) -> dict[str, Any]:
    """Give the answers about elements, and their crops, the ids that the older parser used."""
    places = {json.dumps(element["boxes"]): element["id"] for element in page["elements"]}
    names = {e["id"]: places[json.dumps(e["boxes"])] for e in expected if json.dumps(e["boxes"]) in places}
    for completion in page["completions"]:
        key, _, suffix = completion["prompt_id"].partition("/")
        name = suffix[:10]
        if name in names:
            completion["prompt_id"] = f"{key}/{names[name]}{suffix[10:]}"
    for old in crops:
        (folder / "images" / f"{old}.png").unlink()
    for old, data in crops.items():
        (folder / "images" / f"{names[old]}.png").write_bytes(data)
    return page


def test_a_finished_document_is_not_overwritten(few: Path) -> None:
    """--reread into the folder of a finished document fails and changes nothing."""
    before = snapshot(few)

    failed = invoke(few, "--reread", "--output", few.parent)

    assert failed.exit_code == 1
    assert "OUTPUT_DENIED" in failed.stderr
    assert snapshot(few) == before


async def test_pages_of_the_cpu_engine_are_parsed_again(
    page_pool: PagePool, buffers: PixelBufferPool, reread: Reread, tmp_path: Path
) -> None:
    """The answers of the cpu engine are recorded, too, and correct a misread page."""
    source = tmp_path / "report.pdf"
    source.write_bytes(recorded.report())
    reader = Reader(page_pool, buffers, CpuEngine(2))
    await reader.run(source=str(source), output=f"{tmp_path}/out", pages="1-2")
    folder = next((tmp_path / "out").glob("report-*"))
    path = folder / "pages" / "0002.json"
    page = json.loads(path.read_text())
    right = page["elements"][1]["text"]
    page["elements"][1]["text"] = "misread"
    path.write_text(json.dumps(page))

    changed = await reread(folder, tmp_path / "newer", source)

    read = json.loads((tmp_path / "newer" / folder.name / "pages" / "0002.json").read_text())
    assert changed == (2,)
    assert read["elements"][1]["text"] == right
    assert "misread" not in (tmp_path / "newer" / folder.name / "document.md").read_text()
