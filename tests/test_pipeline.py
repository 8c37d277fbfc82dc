"""Whole jobs in this process: equal bytes in any order and with any workers, repeated jobs, crashes, dead engines."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import re
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pymupdf
import pytest

from tests.fakes import recorded, s3
from tests.fakes.page_pool import CrashingPagePool
from tests.fakes.reader import Reader
from twopass.contexts import EXTRA_FAILURES
from twopass.engines.cpu.engine import CpuEngine
from twopass.engines.interface import Completion, Engine, Prompt
from twopass.engines.replay import ReplayEngine
from twopass.errors import Code, EngineError, InvalidJob, StoreError, WorkerDied
from twopass.formats import registry
from twopass.job import EntryPoint, Format, Job
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.result import Result
from twopass.runtime.page_pool import PagePool
from twopass.runtime.shutdown import Shutdown
from twopass.settings import Settings
from twopass.steps import artefacts, report
from twopass.telemetry.progress import Phase, Progress, Tracker

LINE = "The meter of the pump was read on Monday and entered in the log book by both operators."
TIMED_FILES = {"manifest.json", "progress.json", "result.json"}  # contain times, so their bytes differ
ALL_FORMATS = [str(name) for name in Format]


def write_paragraph(number: int) -> str:
    return f"{LINE} Page {number}. " * 4


def make_chapter_pdf(page_count: int) -> bytes:
    """Each page has a heading, a paragraph and a coloured rectangle."""
    with pymupdf.open() as pdf:
        for number in range(1, page_count + 1):
            page = pdf.new_page()
            page.insert_text((72, 90), f"{number} Chapter {number}", fontsize=18, fontname="hebo")
            page.insert_textbox((72, 120, 500, 300), write_paragraph(number), fontsize=11)
            page.draw_rect((100, 400, 300, 600), fill=(0.2 * (number % 5), 0.5, 0.5))
        return bytes(pdf.tobytes())


def make_drawing_pdf() -> bytes:
    """One page with ink and without text."""
    with pymupdf.open() as pdf:
        pdf.new_page().draw_rect((100, 400, 300, 600), fill=(0.2, 0.5, 0.5))
        return bytes(pdf.tobytes())


@pytest.fixture
def reader(page_pool: PagePool, buffers: PixelBufferPool) -> Reader:
    """Pages are small, because what they show is not looked at."""
    return Reader(page_pool, buffers, CpuEngine(2), dpi=72)


def snapshot_artefacts(folder: Path) -> dict[str, bytes]:
    """The bytes of every file by its path, without what differs between runs: times, and the costs of checkpoints."""
    artefacts = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in TIMED_FILES:
            data = path.read_bytes()
            if path.parent.name == "pages":
                data = json.dumps({**json.loads(data), "cost": None}).encode()
            artefacts[str(path.relative_to(folder))] = data
    return artefacts


def answer_page(prompt: Prompt) -> str:
    """The answer about a page of `make_chapter_pdf`: a heading, a paragraph and a picture."""
    number = int(prompt.id[-4:])
    box = [72, 80, 300, 100]
    heading = {"label": "section-header", "box": box, "lines": [{"box": box, "text": f"{number} Chapter", "size": 18}]}
    body = {
        "label": "text",
        "box": [72, 120, 500, 300],
        "lines": [{"box": [72, 120, 500, 140], "text": write_paragraph(number), "size": 11}],
    }
    picture = {"label": "picture", "box": [100, 400, 300, 600], "lines": []}
    page = {"v": 1, "width": 595, "height": 842, "via": "text_layer", "score": 1.0, "boxes": [heading, body, picture]}
    return json.dumps(page)


class ScriptedEngine(Engine):
    """Answers each prompt with `answer(prompt)` after `delay(prompt)` seconds; remembers the ids of its prompts."""

    kind, precision, family, sequences = "replay", "recorded", "layout", 64

    def __init__(
        self, answer: Callable[[Prompt], str] = answer_page, delay: Callable[[Prompt], float] = lambda prompt: 0.0
    ) -> None:
        self.prompt_ids: list[str] = []
        self._answer, self._delay = answer, delay

    async def open(self, page_pool: PagePool) -> None:
        """Nothing to open."""

    async def generate(self, prompt: Prompt) -> Completion:
        self.prompt_ids.append(prompt.id)
        await asyncio.sleep(self._delay(prompt))
        return Completion(self._answer(prompt))

    async def close(self) -> None:
        """Nothing to close."""


async def test_one_page_documents_are_read_concurrently(reader: Reader, tmp_path: Path) -> None:
    """A job with many small documents keeps the engine as busy as one with many pages."""
    for number in range(12):
        (tmp_path / f"{number:02d}.pdf").write_bytes(make_chapter_pdf(1) + b"%% another: %d" % number)
    six_prompts = asyncio.Barrier(6)

    class BarrierEngine(ScriptedEngine):
        async def generate(self, prompt: Prompt) -> Completion:
            if "-e" not in prompt.id.rpartition("/")[2]:
                async with asyncio.timeout(60):
                    await six_prompts.wait()
            return await super().generate(prompt)

    sources = [f"{tmp_path}/{number:02d}.pdf" for number in range(12)]
    result = await reader.run(6, BarrierEngine(), sources=sources, output=f"{tmp_path}/out")

    assert [document.pages for document in result.documents] == [{"read": 1}] * 12
    assert [document.source for document in result.documents] == sources


async def test_sources_of_one_job_share_connections(reader: Reader, endpoint: str, bucket: Any, tmp_path: Path) -> None:
    """One client fetches all sources of a job and reuses its connections."""
    for number in range(6):
        bucket.put_object(Bucket="bucket", Key=f"{number}.pdf", Body=make_chapter_pdf(1) + b"%% another: %d" % number)
    proxy = s3.Proxy(endpoint)
    with proxy.serve() as url:
        keys = {"bucket_access_key_id": s3.KEY, "bucket_secret_access_key": s3.SECRET}
        reader.settings = Settings(bucket_endpoint_url=url, **keys)
        sources = [f"s3://bucket/{number}.pdf" for number in range(6)]
        result = await reader.run(1, ScriptedEngine(), sources=sources, output=f"{tmp_path}/out")

    assert [document.pages for document in result.documents] == [{"read": 1}] * 6
    assert proxy.connections < len(proxy.requests) == 6


async def test_equal_files_of_one_job_are_read_once(reader: Reader, tmp_path: Path) -> None:
    """Of twelve equal files one is read and the others get its result; the answer lists every source."""
    data = make_chapter_pdf(2)
    for number in range(12):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "terms.pdf").write_bytes(data)
    engine = ScriptedEngine(delay=lambda prompt: 0.1)

    sources = [f"{tmp_path}/{number}/terms.pdf" for number in range(12)]
    result = await reader.run(16, engine, sources=sources, output=f"{tmp_path}/out")

    assert len([prompt_id for prompt_id in engine.prompt_ids if "-e" not in prompt_id.rpartition("/")[2]]) == 2
    assert [document.source for document in result.documents] == sources
    assert {document.id for document in result.documents} == {result.documents[0].id}
    assert all(document.status == "success" for document in result.documents)
    assert result.usage["pages_read_now"] == 2
    alone = await reader.run(16, ScriptedEngine(), source=sources[0], output=f"{tmp_path}/alone")
    assert result.usage["tokens_out"] == alone.usage["tokens_out"]


async def test_the_next_document_starts_before_the_last_one_ends(reader: Reader, tmp_path: Path) -> None:
    """The last page of a document is read at the same time as the first page of the next one."""
    for name in ("one", "two"):
        (tmp_path / f"{name}.pdf").write_bytes(make_chapter_pdf(4) + b"%% another: " + name.encode())
    prompted_pages: dict[str, set[str]] = {}  # of each document

    class WaitingEngine(ScriptedEngine):
        async def generate(self, prompt: Prompt) -> Completion:
            document, _, page = prompt.id.partition("/")
            prompted_pages.setdefault(document, set()).add(page)
            async with asyncio.timeout(60):
                while page == "p0004" and len(prompted_pages) < 2:
                    await asyncio.sleep(0.01)
            return await super().generate(prompt)

    sources = [f"{tmp_path}/one.pdf", f"{tmp_path}/two.pdf"]
    result = await reader.run(4, WaitingEngine(), sources=sources, output=f"{tmp_path}/out")

    assert [document.pages for document in result.documents] == [{"read": 4}] * 2


async def test_at_most_two_sources_of_the_largest_size_are_read_at_once(reader: Reader, tmp_path: Path) -> None:
    """Sources of the largest size are read two at a time, even if more page slots are free."""
    data = make_chapter_pdf(1)
    for number in range(8):
        (tmp_path / f"{number}.pdf").write_bytes(data + b"%% another: %d" % number)
    reading: set[str] = set()
    most = 0

    class CountingEngine(ScriptedEngine):
        async def generate(self, prompt: Prompt) -> Completion:
            nonlocal most
            document = prompt.id.partition("/")[0]
            reading.add(document)
            most = max(most, len(reading))
            await asyncio.sleep(0.05)
            reading.discard(document)
            return await super().generate(prompt)

    limited = replace(
        reader, settings=reader.settings.model_copy(update={"max_source_bytes": len(data + b"%% another: %d" % 0)})
    )
    sources = [f"{tmp_path}/{number}.pdf" for number in range(8)]
    result = await limited.run(16, CountingEngine(), sources=sources, output=f"{tmp_path}/out")

    assert most <= 2
    assert [document.pages for document in result.documents] == [{"read": 1}] * 8


async def test_every_document_is_reported_after_a_deadline(reader: Reader, tmp_path: Path) -> None:
    """Each document that was started, waiting or not yet fetched at the deadline has a problem with code DEADLINE."""
    for number in range(30):
        (tmp_path / f"{number:02d}.pdf").write_bytes(make_chapter_pdf(2) + b"%% another: %d" % number)

    sources = [f"{tmp_path}/{number:02d}.pdf" for number in range(30)]
    async with asyncio.timeout(60):
        result = await reader.run(
            4, ScriptedEngine(delay=lambda prompt: 600.0), sources=sources, output=f"{tmp_path}/out", deadline_s=3
        )

    assert [document.source for document in result.documents] == sources
    assert all(document.status == "failure" for document in result.documents)
    assert {problem.code for problem in result.problems} == {Code.DEADLINE}
    assert len(result.problems) >= 30


async def test_the_number_of_page_slots_changes_no_byte(reader: Reader, tmp_path: Path) -> None:
    """How many pages are in flight, and in which order they finish, changes no byte of an artefact."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(6))
    generator = random.Random(7)

    await reader.run(1, ScriptedEngine(), source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/one", formats=ALL_FORMATS)
    jittery = ScriptedEngine(delay=lambda prompt: generator.random() / 20)
    await reader.run(64, jittery, source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/many", formats=ALL_FORMATS)

    assert len(snapshot_artefacts(tmp_path / "one")) == 6 + 6 + len(ALL_FORMATS)
    assert snapshot_artefacts(tmp_path / "one") == snapshot_artefacts(tmp_path / "many")


async def test_one_worker_and_three_write_the_same_bytes(reader: Reader, tmp_path: Path) -> None:
    """Three workers that share the pages of a document write the same bytes as one worker alone."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(7))
    source = f"{tmp_path}/a.pdf"
    engines = [ScriptedEngine(delay=lambda prompt: random.random() / 50) for _ in range(3)]

    await reader.run(4, ScriptedEngine(), source=source, output=f"{tmp_path}/one")
    results = await asyncio.gather(*(reader.run(4, e, source=source, output=f"{tmp_path}/three") for e in engines))

    assert {result.status for result in results} == {"success"}
    assert snapshot_artefacts(tmp_path / "one") == snapshot_artefacts(tmp_path / "three")


async def test_three_cpu_workers_write_the_same_bytes(reader: Reader, tmp_path: Path) -> None:
    """With the cpu engine, too: a checkpoint depends on no other page that its worker or its page worker has read.

    Two of them share a page worker; all have more page slots than pages.
    """
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(4))
    source, other_pool = f"{tmp_path}/a.pdf", PagePool(1, reader.buffers, timeout_s=120)
    await other_pool.open()
    readers = [reader, reader, replace(reader, page_pool=other_pool)]

    await reader.run(1, source=source, output=f"{tmp_path}/one")
    await asyncio.gather(*(each.run(64, source=source, output=f"{tmp_path}/three") for each in readers))
    await other_pool.close()

    assert snapshot_artefacts(tmp_path / "one") == snapshot_artefacts(tmp_path / "three")


async def test_a_document_read_in_slices_has_the_same_bytes(reader: Reader, tmp_path: Path) -> None:
    """Two slices and an assembling job write the same bytes as one job; the slices write no manifest."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(2))
    source, sliced = f"{tmp_path}/a.pdf", tmp_path / "sliced"

    await reader.run(source=source, output=f"{tmp_path}/whole", formats=ALL_FORMATS)
    await reader.run(source=source, output=str(sliced), slice="1")
    await reader.run(source=source, output=str(sliced), slice="2-")
    manifests = list(sliced.rglob("manifest.json"))
    assembling = ScriptedEngine()
    assembling.kind, assembling.precision = reader.engine.kind, reader.engine.precision
    await reader.run(engine=assembling, source=source, output=str(sliced), formats=ALL_FORMATS)

    assert not manifests
    assert not assembling.prompt_ids
    assert snapshot_artefacts(tmp_path / "whole") == snapshot_artefacts(sliced)


async def test_a_repeated_job_sends_no_prompt(reader: Reader, tmp_path: Path) -> None:
    """A finished document is answered from its manifest, without the engine."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(2))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    await reader.run(engine=ScriptedEngine(), **fields)

    engine, progress = ScriptedEngine(), Tracker()
    result = await reader.run(engine=engine, progress=progress, **fields)

    assert not engine.prompt_ids
    assert result.documents[0].pages == {"read": 2}
    assert result.documents[0].usage == {"pages_read_now": 0}
    assert (progress.now.pages_done, progress.now.percent) == (2, 100.0)


async def test_a_repeated_document_keeps_its_problems(reader: Reader, tmp_path: Path) -> None:
    """The problems of a finished document are reported again, with code and page."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(2))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    empty = ScriptedEngine(lambda prompt: "" if prompt.id.endswith("2") else answer_page(prompt))
    first = await reader.run(engine=empty, **fields)

    again = await reader.run(engine=empty, **fields)

    assert [problem.code for problem in again.problems] == [Code.EMPTY]
    assert again.problems == first.problems
    assert again.status == first.status


async def test_a_format_requested_later_is_added(reader: Reader, tmp_path: Path) -> None:
    """If a job requests another format, no page is read again, and the manifest lists the old and the new artefacts."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(2))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    await reader.run(engine=ScriptedEngine(), formats=["docjson"], **fields)

    later = ScriptedEngine()
    await reader.run(engine=later, formats=["markdown", "html"], **fields)

    manifest = json.loads(next((tmp_path / "out").rglob("manifest.json")).read_text())
    assert not later.prompt_ids
    assert set(manifest["result"]["artefacts"]) == {"document.json", "document.md", "document.html"}


async def test_new_format_options_rewrite_a_finished_document(reader: Reader, tmp_path: Path) -> None:
    """Other markdown options need no engine. They change every artefact that depends on them, and no checkpoint."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(2))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    first = await reader.run(engine=ScriptedEngine(), formats=ALL_FORMATS, **fields)
    before = snapshot_artefacts(tmp_path / "out")

    later = ScriptedEngine()
    again = await reader.run(engine=later, markdown={"front_matter": True, "images": "data"}, **fields)
    after = snapshot_artefacts(tmp_path / "out")

    changed = {name.rpartition("/")[2] for name in before if before[name] != after[name]}
    assert not later.prompt_ids and before.keys() == after.keys()
    assert first.documents[0].id == again.documents[0].id
    assert changed == {"document.md", "document.html", "document.json", "docling.json", "chunks.jsonl", "document.zip"}
    markdown = next((tmp_path / "out").rglob("document.md")).read_text()
    assert 'src="data:image/png;base64,' in next((tmp_path / "out").rglob("document.html")).read_text()
    assert markdown.startswith("---\ntitle") and "](data:image/png;base64," in markdown
    assert read_manifest(tmp_path / "out")["writing"]["markdown"]["front_matter"]


async def test_a_job_without_format_options_keeps_the_existing_ones(reader: Reader, tmp_path: Path) -> None:
    """A format requested later is written with the document's options; the first job, sent again, writes nothing."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(1))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    await reader.run(engine=ScriptedEngine(), markdown={"page_marks": False}, **fields)

    await reader.run(engine=ScriptedEngine(), formats=["review"], **fields)
    manifest = next((tmp_path / "out").rglob("manifest.json"))
    written = manifest.stat().st_mtime_ns
    repeated = await reader.run(engine=ScriptedEngine(), markdown={"page_marks": False}, **fields)

    assert "page:" not in next((tmp_path / "out").rglob("document.md")).read_text()
    assert set(read_manifest(tmp_path / "out")["result"]["artefacts"]) == {
        "document.json",
        "document.md",
        "review.html",
    }
    assert manifest.stat().st_mtime_ns == written and repeated.documents[0].usage == {"pages_read_now": 0}


async def test_many_page_images_are_files_beside_the_review_page(
    reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above the size limit, all page images are files in review/, and the ZIP archive contains them, too."""
    monkeypatch.setattr(artefacts, "MAX_EMBEDDED_BYTES", 20_000)  # 20 MB of pages would take minutes to render
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(4))

    await reader.run(
        engine=ScriptedEngine(), formats=["review", "zip"], source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/out"
    )

    folder = next((tmp_path / "out").glob("a-*"))
    page = (folder / "review.html").read_text()
    pictures = [f"review/p000{n}.webp" for n in (1, 2, 3, 4)]
    with zipfile.ZipFile(folder / "document.zip") as archive:
        assert {*pictures, "review.html", "document.md", "document.json"} <= set(archive.namelist())
    assert "data:image" not in page and all(f'src="{name}"' in page for name in pictures)
    assert all((folder / name).read_bytes()[8:12] == b"WEBP" for name in pictures)


async def test_a_page_without_an_image_in_the_review_page_is_reported(reader: Reader, tmp_path: Path) -> None:
    """If a page cannot be rendered for review.html, the result has a warning, and the document is complete."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(2))
    crashing = replace(reader, page_pool=CrashingPagePool(reader.page_pool, draw_preview=4))

    result = await crashing.run(
        1, ScriptedEngine(), formats=["docjson", "review"], source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/out"
    )

    document = json.loads(next((tmp_path / "out").rglob("document.json")).read_text())
    page = next((tmp_path / "out").rglob("review.html")).read_text()
    assert [(p.code, p.severity, p.page) for p in result.problems] == [
        (Code.RENDER_CRASH, "warning", n) for n in (1, 2)
    ]
    assert page.count("No picture of this page.") == 2
    assert document["problems"] == [] and result.status == "success"


async def test_a_format_whose_library_is_missing_is_refused(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """A format that needs a missing library is refused before the source is fetched; the error names the extra."""
    monkeypatch.setitem(registry._EXTRAS, Format.DOCLING, ("docling", "no_such_module"))

    with pytest.raises(InvalidJob, match=r"formats: docling needs no_such_module, .*'\.\[docling\]'"):
        await reader.run(source="a.pdf", formats=["docling"])


async def test_a_job_cut_off_by_its_deadline_overwrites_no_document(reader: Reader, tmp_path: Path) -> None:
    """A job that runs into its deadline writes no artefact, because it could replace a complete one."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(2))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    await reader.run(engine=ScriptedEngine(), formats=["docjson"], **fields)
    for checkpoint in (tmp_path / "out").rglob("pages/*.json"):
        checkpoint.unlink()
    before = next((tmp_path / "out").rglob("document.json")).read_bytes()

    late = await reader.run(engine=ScriptedEngine(delay=lambda prompt: 60.0), deadline_s=1.5, **fields)

    assert late.documents[0].pages == {"unread": 2}
    assert late.documents[0].artefacts == {}
    assert next((tmp_path / "out").rglob("document.json")).read_bytes() == before


async def test_a_deadline_also_limits_the_fetch(reader: Reader, tmp_path: Path) -> None:
    """A document that is not fetched at the deadline fails with DEADLINE, so that every job answers in time."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(1))

    result = await reader.run(source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/out", deadline_s=1e-6)

    assert result.as_answer()["error"].startswith("DEADLINE")


async def test_a_long_document_that_fits_is_returned_inline(reader: Reader, tmp_path: Path) -> None:
    """The size of the answer decides whether a document is returned inline, and not its number of pages."""
    with pymupdf.open() as pdf:
        for number in range(150):
            pdf.new_page(width=200, height=100).insert_text((20, 50), f"Slide {number}")
        pdf.save(tmp_path / "a.pdf")

    result = await reader.run(
        engine=ScriptedEngine(lambda prompt: ""), source=f"{tmp_path}/a.pdf", inline=["docjson", "markdown"], dpi=36
    )

    inline = result.documents[0].inline
    assert result.status == "success"
    assert len(inline["docjson"]["pages"]) == 150
    assert "Slide 149" in inline["markdown"]


def test_a_document_that_cannot_fit_inline_is_refused_before_it_is_read() -> None:
    """A job without output whose document has far too many pages is refused, instead of failing after an hour."""
    job = Job.parse({"input": {"source": "a.pdf", "inline": ["docjson"]}}, Settings(), EntryPoint.LOCAL)

    report.check_inline(job, 400)
    with pytest.raises(StoreError, match="OUTPUT_MISSING: 600 pages"):
        report.check_inline(job, 600)


async def test_equal_files_at_two_paths_make_one_document(reader: Reader, tmp_path: Path) -> None:
    """The document names the source from which its first page was read, so any job assembles the same bytes."""
    data = make_chapter_pdf(2)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.pdf").write_bytes(data)
    output = f"{tmp_path}/out"
    await reader.run(engine=ScriptedEngine(), source=f"{tmp_path}/one/a.pdf", output=output)
    before = snapshot_artefacts(tmp_path / "out")
    next((tmp_path / "out").rglob("manifest.json")).unlink()

    await reader.run(engine=ScriptedEngine(), source=f"{tmp_path}/two/a.pdf", output=output)

    assert snapshot_artefacts(tmp_path / "out") == before


async def test_a_page_that_crashes_its_page_worker_twice_uses_its_text_layer(reader: Reader, tmp_path: Path) -> None:
    """If reading a page crashes the page worker twice, the page loses its layout and keeps its own text."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(2))

    def crash_on_page_2(prompt: Prompt) -> str:
        if prompt.id.endswith("2"):
            raise WorkerDied(Code.RENDER_CRASH, "a page worker died in read_page")
        return answer_page(prompt)

    progress = Tracker()
    engine = ScriptedEngine(crash_on_page_2)
    result = await reader.run(engine=engine, progress=progress, source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/out")

    markdown = next((tmp_path / "out").rglob("document.md")).read_text()
    assert result.documents[0].pages == {"read": 1, "text_layer": 1}
    assert [problem.code for problem in result.problems] == [Code.RENDER_CRASH]
    assert len([prompt_id for prompt_id in engine.prompt_ids if prompt_id.endswith("2")]) == 2
    assert "Page 2" in markdown
    assert progress.now.elements_done == progress.now.elements_total


async def test_the_next_job_retries_a_page_that_crashed_its_page_worker(reader: Reader, tmp_path: Path) -> None:
    """A page of which nothing can be read fails; the next job reads only that page and rewrites all formats."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(3))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    crashing = replace(reader, page_pool=CrashingPagePool(reader.page_pool, draw_pdf=2, read_text_only=1))
    first = await crashing.run(1, ScriptedEngine(), **fields)
    first_manifest = read_manifest(tmp_path / "out")

    second = ScriptedEngine()
    again = await reader.run(engine=second, formats=["docjson"], **fields)
    await reader.run(engine=ScriptedEngine(), source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/healthy")

    assert (first.status, first.documents[0].pages) == ("partial_success", {"failed": 1, "read": 2})
    assert [(p.code, p.page) for p in first.problems] == [(Code.RENDER_CRASH, 1)]
    assert "send the same job again" in first.problems[0].message
    assert first_manifest["result"]["status"] == "partial_success"
    assert [prompt_id[-1] for prompt_id in second.prompt_ids] == ["1"]
    assert (again.status, again.problems) == ("success", ())
    assert read_manifest(tmp_path / "out")["result"]["pages"] == {"read": 3}
    assert snapshot_artefacts(tmp_path / "out") == snapshot_artefacts(tmp_path / "healthy")


async def test_an_incomplete_format_that_cannot_be_written_again_is_removed(reader: Reader, tmp_path: Path) -> None:
    """It lacks the page that was read since: neither the manifest nor the folder has it any more."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(3))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    crashing = replace(reader, page_pool=CrashingPagePool(reader.page_pool, draw_pdf=2, read_text_only=1))
    await crashing.run(1, ScriptedEngine(), formats=["docjson", "pdf"], **fields)
    before = set(read_manifest(tmp_path / "out")["result"]["artefacts"])

    no_pdf = replace(reader, page_pool=CrashingPagePool(reader.page_pool, place=9, write=9))
    again = await no_pdf.run(engine=ScriptedEngine(), **fields)

    assert before == {"document.json", "document.pdf"} and again.documents[0].pages == {"read": 3}
    assert set(read_manifest(tmp_path / "out")["result"]["artefacts"]) == {"document.json", "document.md"}
    assert not list((tmp_path / "out").rglob("document.pdf"))


async def test_formats_of_a_worker_that_read_fewer_pages_are_written_again(reader: Reader, tmp_path: Path) -> None:
    """Also if it ended while another worker, which was not asked for them, read the rest."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(3))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    crashing = replace(reader, page_pool=CrashingPagePool(reader.page_pool, draw_pdf=2, read_text_only=1))
    others = list[Result]()

    class WaitingEngine(ScriptedEngine):
        async def generate(self, prompt: Prompt) -> Completion:
            if not self.prompt_ids:
                self.prompt_ids.append(prompt.id)
                others.append(await crashing.run(1, ScriptedEngine(), formats=["docjson", "html"], **fields))
            return await super().generate(prompt)

    result = await reader.run(1, WaitingEngine(), **fields)

    names = {"document.json", "document.md", "document.html"}
    assert others[0].documents[0].pages == {"read": 2, "failed": 1}
    assert result.documents[0].pages == {"read": 3} and set(result.documents[0].artefacts) == names
    assert "Page 1. " in next((tmp_path / "out").rglob("document.html")).read_text()


async def test_a_page_that_cannot_be_rendered_keeps_its_text_layer(reader: Reader, tmp_path: Path) -> None:
    """A page that crashes its page worker twice while it is rendered has its text layer instead of nothing."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(2))
    crashing = replace(reader, page_pool=CrashingPagePool(reader.page_pool, draw_pdf=2))
    result = await crashing.run(1, ScriptedEngine(), source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/out")

    assert result.documents[0].pages == {"read": 1, "text_layer": 1}
    assert [(problem.code, problem.page) for problem in result.problems] == [(Code.RENDER_CRASH, 1)]
    assert "Page 1" in next((tmp_path / "out").rglob("document.md")).read_text()


async def test_the_next_job_retries_a_scan_that_crashed_its_page_worker(reader: Reader, tmp_path: Path) -> None:
    """A scan has no text layer: if it crashes its page worker, it fails and is not stored, so the next job reads it."""
    (tmp_path / "a.pdf").write_bytes(make_drawing_pdf())
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}

    def crash(prompt: Prompt) -> str:
        raise WorkerDied(Code.RENDER_TIMEOUT, "read_page took over 120 s")

    first = await reader.run(engine=ScriptedEngine(crash), **fields)
    stored = list((tmp_path / "out").rglob("pages/*.json"))
    again = await reader.run(engine=ScriptedEngine(), **fields)

    assert [(p.code, p.page) for p in first.problems] == [(Code.RENDER_TIMEOUT, 1)]
    assert "send the same job again" in first.problems[0].message
    assert not stored
    assert again.documents[0].pages == {"read": 1}


async def test_a_page_lost_to_a_crash_is_taken_from_another_worker(reader: Reader, tmp_path: Path) -> None:
    """If one of two workers loses a page and the other stores it, both results contain the stored page."""
    (tmp_path / "a.pdf").write_bytes(make_drawing_pdf())
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    started, stored = asyncio.Event(), asyncio.Event()

    class CrashingEngine(ScriptedEngine):
        async def generate(self, prompt: Prompt) -> Completion:
            started.set()
            await stored.wait()
            raise WorkerDied(Code.RENDER_CRASH, "a page worker died in read_page")

    crashing = asyncio.create_task(reader.run(engine=CrashingEngine(), **fields))
    await started.wait()
    other = await reader.run(engine=ScriptedEngine(), **fields)
    stored.set()

    assert (other.documents[0].pages, (await crashing).documents[0].pages) == ({"read": 1}, {"read": 1})


def read_manifest(output: Path) -> dict[str, Any]:
    return dict(json.loads(next(output.rglob("manifest.json")).read_text()))


async def test_a_job_that_was_cut_off_and_is_sent_again_reads_the_unread_pages(reader: Reader, tmp_path: Path) -> None:
    """A document that was cut off has no manifest; the same job again reads the rest and finishes it."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(6))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    slow = ScriptedEngine(delay=lambda prompt: 60.0 if prompt.id.endswith(("5", "6")) else 0.0)

    shutdown = Shutdown()

    def stop(now: Progress) -> None:
        if now.pages_done == 4:
            shutdown.begin(0.0)

    interrupted = await replace(reader, shutdown=shutdown).run(engine=slow, progress=Tracker(stop), **fields)
    manifests = list((tmp_path / "out").rglob("manifest.json"))
    second = ScriptedEngine()
    completed = await reader.run(engine=second, **fields)

    assert interrupted.status == "partial_success"
    assert interrupted.documents[0].pages == {"read": 4, "unread": 2}
    assert {problem.code for problem in interrupted.problems} == {Code.SHUTDOWN}
    assert not manifests
    assert sorted(prompt_id[-1] for prompt_id in second.prompt_ids) == ["5", "6"]
    assert completed.status == "success"


async def test_a_continued_job_reports_only_its_own_usage(reader: Reader, tmp_path: Path) -> None:
    """The tokens and engine seconds of a page are in the result of the job that read it, and in no other."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(6))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}

    class CostlyEngine(ScriptedEngine):
        async def generate(self, prompt: Prompt) -> Completion:
            return replace(await super().generate(prompt), tokens_in=100, tokens_out=7, seconds=2.0)

    part = (await reader.run(engine=CostlyEngine(), job_id="one", slice="1-4", **fields)).documents[0].usage
    completed = (await reader.run(engine=CostlyEngine(), job_id="two", **fields)).documents[0]

    names = ("tokens_in", "tokens_out", "engine_s", "pages_read_now")
    assert [part[name] for name in names] == [400, 28, 8.0, 4]
    assert [completed.usage[name] for name in names] == [200, 14, 4.0, 2]
    pages_in_all = completed.usage["pages_per_s"] * completed.timings["duration_s"]
    assert 1.9 < pages_in_all < 4  # of its own pages; the job ends a little after they are counted


async def test_a_missing_crop_is_cut_again(reader: Reader, tmp_path: Path) -> None:
    """If a worker was killed between a checkpoint and its crops, the next job cuts them without the engine."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(2))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    await reader.run(engine=ScriptedEngine(), **fields)
    before = snapshot_artefacts(tmp_path / "out")
    for path in (tmp_path / "out").rglob("*"):
        if path.name == "manifest.json" or path.name == "p0002-e002.png":
            path.unlink()

    engine = ScriptedEngine()
    await reader.run(engine=engine, **fields)

    assert not engine.prompt_ids
    assert snapshot_artefacts(tmp_path / "out") == before


async def test_a_missing_crop_that_cannot_be_cut_is_dropped_with_a_warning(reader: Reader, tmp_path: Path) -> None:
    """If the page of a missing crop cannot be rendered, only the crop is lost, not the page or the document."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(2))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    await reader.run(engine=ScriptedEngine(), **fields)
    for path in (tmp_path / "out").rglob("*"):
        if path.name == "manifest.json" or path.name == "p0002-e002.png":
            path.unlink()

    engine = ScriptedEngine()
    crashing = replace(reader, page_pool=CrashingPagePool(reader.page_pool, draw_pdf=2))
    result = await crashing.run(engine=engine, **fields)

    assert not engine.prompt_ids
    assert (result.status, result.documents[0].pages) == ("success", {"read": 2})
    assert [(p.code, p.severity, p.page) for p in result.problems] == [(Code.RENDER_CRASH, "warning", 2)]
    assert list_images(tmp_path / "out") == ["images/p0001-e002.png"]
    assert list_image_links(tmp_path / "out") == ["images/p0001-e002.png"]


async def test_a_crop_that_cannot_be_encoded_leaves_no_broken_link(reader: Reader, tmp_path: Path) -> None:
    """An element whose crop cannot be encoded stays without an image, with a warning; its page is not read again."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(2))
    engine = ScriptedEngine()

    crashing = replace(reader, page_pool=CrashingPagePool(reader.page_pool, encode_png=2))
    result = await crashing.run(1, engine, source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/out")

    assert len(engine.prompt_ids) == 2
    assert [(p.code, p.severity, p.page) for p in result.problems] == [(Code.RENDER_CRASH, "warning", 1)]
    assert list_images(tmp_path / "out") == list_image_links(tmp_path / "out") == ["images/p0002-e002.png"]
    assert not list((tmp_path / "out").rglob("p0001-e002.png"))


def list_images(output: Path) -> list[str]:
    """The crops that document.json refers to."""
    document = json.loads(next(output.rglob("document.json")).read_text())
    return [element["image"] for element in document["elements"] if element["image"]]


def list_image_links(output: Path) -> list[str]:
    """The crops that document.md links to."""
    return re.findall(r"!\[.*?\]\((.*?)\)", next(output.rglob("document.md")).read_text())


async def test_replayed_answers_give_the_same_markdown(reader: Reader, tmp_path: Path) -> None:
    """The replay engine answers from checkpoints, and the markdown equals the recorded one byte for byte."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(2))
    await reader.run(source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/first")

    replay = ReplayEngine.from_folder(tmp_path / "first")
    result = await reader.run(engine=replay, source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/second")

    first, second = (next((tmp_path / name).glob("a-*/document.md")) for name in ("first", "second"))
    assert result.status == "success"
    assert first.read_bytes() == second.read_bytes()


async def test_a_page_with_an_empty_answer_uses_its_text_layer(reader: Reader, tmp_path: Path) -> None:
    """If the answer about a page with ink is empty, its own text is used, and the result reports the page."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(3))
    empty = ScriptedEngine(lambda prompt: answer_page(prompt) if not prompt.id.endswith("2") else "")

    result = await reader.run(engine=empty, source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/out")

    document = json.loads(next((tmp_path / "out").glob("a-*/document.json")).read_text())
    assert result.status == "success"
    assert result.documents[0].pages == {"read": 2, "text_layer": 1}
    assert [(p.code, p.page) for p in result.problems] == [(Code.EMPTY, 2)]
    assert "log book" in " ".join(element["text"] for element in document["elements"] if element["page"] == 2)


async def test_an_invalid_page_object_loses_only_its_page(reader: Reader, tmp_path: Path) -> None:
    """If one page object of a PDF is invalid, all pages are still counted and the others are read."""
    with pymupdf.open(stream=make_chapter_pdf(3)) as pdf:
        pdf.update_object(pdf.page_xref(1), "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 0 0] >>")
        (tmp_path / "a.pdf").write_bytes(pdf.tobytes())

    result = await reader.run(engine=ScriptedEngine(), source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/out")

    states = result.documents[0].pages
    assert sum(states.values()) == 3
    assert states["read"] == 2


class DyingEngine(ScriptedEngine):
    """Dies at prompts whose ids end with one of `endings`, `deaths` times, and answers all prompts afterwards."""

    def __init__(self, *endings: str, deaths: float = 1, code: Code = Code.ENGINE_DEAD) -> None:
        super().__init__()
        self._endings, self._deaths, self._code = endings, deaths, code

    async def generate(self, prompt: Prompt) -> Completion:
        if self._deaths > 0 and prompt.id.endswith(self._endings):
            self._deaths -= 1
            self.prompt_ids.append(prompt.id)
            raise EngineError(self._code, "the engine is gone")
        return await super().generate(prompt)


@pytest.mark.parametrize("code", [Code.ENGINE_DEAD, Code.ENGINE_MEMORY])
async def test_an_engine_that_dies_and_recovers_loses_one_page(reader: Reader, tmp_path: Path, code: Code) -> None:
    """The page at which the engine died is unread, with advice; the others are read, and no manifest is written."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(5))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}

    result = await reader.run(1, DyingEngine("3", code=code), **fields)

    (problem,) = result.problems
    assert (result.status, result.documents[0].pages) == ("partial_success", {"read": 4, "unread": 1})
    assert (problem.code, problem.page) == (code, 3)
    assert problem.message == "page 3: the engine is gone; send the same job again to continue"
    assert result.documents[0].usage["pages_read_now"] == 4
    assert not list((tmp_path / "out").rglob("pages/0003.json"))
    assert not list((tmp_path / "out").rglob("manifest.json"))


@pytest.mark.parametrize(
    ("fields", "advice"),
    [
        ({"inline": ["markdown"]}, "sent again, the job begins anew, because it has no output; set output"),
        ({"output": "out", "resume": False}, "sent again, the job begins anew, because resume is false"),
        ({"output": "out"}, "send the same job again to continue"),
    ],
)
@pytest.mark.parametrize("ending", ["deadline", "shutdown", "engine"])
async def test_only_a_job_that_continues_is_advised_to_be_sent_again(
    reader: Reader, tmp_path: Path, fields: dict[str, Any], advice: str, ending: str
) -> None:
    """Pages are found again only in an output, and only with resume; otherwise the message says what is missing."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(3))
    fields = {**fields, "source": f"{tmp_path}/a.pdf"}
    if "output" in fields:
        fields["output"] = f"{tmp_path}/out"
    engine = DyingEngine("", deaths=99) if ending == "engine" else ScriptedEngine()
    if ending == "shutdown":
        reader.shutdown.begin(60)
    if ending == "deadline":
        fields["deadline_s"] = 1e-6

    result = await reader.run(engine=engine, **fields)

    messages = [problem.message for problem in result.problems]
    assert messages and all(advice in message for message in messages)
    assert advice.startswith("send ") or not any("send the same job again" in message for message in messages)


async def test_an_engine_that_stays_dead_fails_the_job_with_its_code(reader: Reader, tmp_path: Path) -> None:
    """With a dead engine no page is read or stored, and the result counts every page as unread."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(3))
    progress = Tracker()

    dead = DyingEngine("", deaths=99)
    result = await reader.run(engine=dead, progress=progress, source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/out")

    assert (result.status, result.documents[0].pages) == ("failure", {"unread": 3})
    assert result.as_answer()["error"].startswith("ENGINE_DEAD: pages 1-3: the engine is gone")
    assert not list((tmp_path / "out").rglob("pages/*.json"))
    assert (progress.now.pages_done, progress.now.pages_total, progress.now.percent) == (0, 3, 0.0)


async def test_the_same_job_again_reads_only_the_pages_that_a_dead_engine_lost(reader: Reader, tmp_path: Path) -> None:
    """The next job sends only the lost pages to the engine, and the document has the bytes of an undisturbed run."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(6))
    source = f"{tmp_path}/a.pdf"
    await reader.run(engine=ScriptedEngine(), source=source, output=f"{tmp_path}/undisturbed")

    await reader.run(2, DyingEngine("3", deaths=1), source=source, output=f"{tmp_path}/out")
    await reader.run(2, DyingEngine("3", deaths=99), source=source, output=f"{tmp_path}/out")
    healthy = ScriptedEngine()
    completed = await reader.run(2, healthy, source=source, output=f"{tmp_path}/out")

    assert completed.status == "success"
    assert [prompt_id[-1] for prompt_id in healthy.prompt_ids] == ["3"]
    assert read_manifest(tmp_path / "out")["result"]["pages"] == {"read": 6}
    assert snapshot_artefacts(tmp_path / "out") == snapshot_artefacts(tmp_path / "undisturbed")


async def test_a_page_lost_to_a_dead_engine_is_taken_from_another_worker(reader: Reader, tmp_path: Path) -> None:
    """If the engine of one of two workers dies, the page that the other worker stored is in both results."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(1))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    started, stored = asyncio.Event(), asyncio.Event()

    class DyingLaterEngine(ScriptedEngine):
        async def generate(self, prompt: Prompt) -> Completion:
            started.set()
            await stored.wait()
            raise EngineError(Code.ENGINE_DEAD, "the engine is gone")

    dying = asyncio.create_task(reader.run(engine=DyingLaterEngine(), **fields))
    await started.wait()
    await reader.run(engine=ScriptedEngine(), **fields)
    stored.set()

    assert (await dying).documents[0].pages == {"read": 1}


async def test_a_dead_engine_is_not_asked_about_every_page(reader: Reader, tmp_path: Path) -> None:
    """After too many lost pages in a row the remaining pages of the document are not even rendered."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(EXTRA_FAILURES + 20))

    dead = DyingEngine("", deaths=999)
    result = await reader.run(2, dead, source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/out", dpi=36)

    assert EXTRA_FAILURES <= len(dead.prompt_ids) <= EXTRA_FAILURES + 4
    assert result.documents[0].pages == {"unread": EXTRA_FAILURES + 20}


async def test_an_engine_that_dies_in_pass_2_stores_nothing_of_the_page(reader: Reader, tmp_path: Path) -> None:
    """If the engine dies in pass 2, the result of pass 1 is not stored.

    The next job reads the page in both passes, and the document has the bytes of an undisturbed run.
    """
    (tmp_path / "a.pdf").write_bytes(recorded.report())
    key = hashlib.sha256((tmp_path / "a.pdf").read_bytes()).hexdigest()[:12]
    fields = {"source": f"{tmp_path}/a.pdf", "pages": "1-2"}

    class DyingInPass2(recorded.RecordingEngine):
        async def generate(self, prompt: Prompt) -> Completion:
            if prompt.id.endswith("p0001-e007-2"):
                raise EngineError(Code.ENGINE_DEAD, "the engine is gone")
            return await super().generate(prompt)

    await reader.run(engine=recorded.RecordingEngine(key), output=f"{tmp_path}/undisturbed", **fields)
    interrupted = await reader.run(engine=DyingInPass2(key), output=f"{tmp_path}/out", **fields)
    stored = [path.name for path in (tmp_path / "out").rglob("pages/*.json")]
    completed = await reader.run(engine=recorded.RecordingEngine(key), output=f"{tmp_path}/out", **fields)

    assert interrupted.documents[0].pages == {"repaired": 1, "unread": 1}
    assert stored == ["0002.json"]
    assert completed.documents[0].pages == {"read": 1, "repaired": 1}
    assert snapshot_artefacts(tmp_path / "out") == snapshot_artefacts(tmp_path / "undisturbed")


async def test_progress_ends_at_a_hundred_per_cent(reader: Reader, tmp_path: Path) -> None:
    """At the end of a job all known pages and elements are counted as done."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(3))
    progress = Tracker()

    await reader.run(engine=ScriptedEngine(), progress=progress, source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/out")

    now = progress.now
    assert (now.pages_done, now.pages_total, now.percent, now.phase) == (3, 3, 100.0, "done")
    assert now.elements_done == now.elements_total == 9


async def test_a_resumed_job_reports_its_true_share(reader: Reader, tmp_path: Path) -> None:
    """While three of six documents are stored, the percentage counts the others, and nothing is assembled yet."""
    for number in range(6):
        (tmp_path / f"{number}.pdf").write_bytes(make_chapter_pdf(1) + b"%% another: %d" % number)
    sources = [f"{tmp_path}/{number}.pdf" for number in range(6)]
    await reader.run(engine=ScriptedEngine(), sources=sources[:3], output=f"{tmp_path}/out")
    reports: list[Progress] = []

    await reader.run(1, ScriptedEngine(), Tracker(reports.append), sources=sources, output=f"{tmp_path}/out")

    assert all(report.percent <= 100 * report.pages_done / 6 for report in reports)
    assert {report.pages_done for report in reports if report.phase in (Phase.ASSEMBLING, Phase.DONE)} == {6}
    assert [report.phase for report in reports if report.percent == 100] == [Phase.DONE]


async def test_what_is_written_after_the_last_page_has_progress_of_its_own(reader: Reader, tmp_path: Path) -> None:
    """Page images of the review page and artefacts are counted one by one, because they take minutes for a book."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(3))
    reports: list[Progress] = []
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out", "formats": ["review", "markdown"]}

    result = await reader.run(engine=ScriptedEngine(), progress=Tracker(reports.append), **fields)

    writing = [report.parts_done for report in reports if report.phase is Phase.ASSEMBLING and report.parts_total]
    assert writing == list(range(3 + len(result.documents[0].artefacts) + 1))
    assert reports[-1].parts_done == reports[-1].parts_total == writing[-1]


async def test_the_pace_of_a_resumed_job_leaves_out_stored_pages(reader: Reader, tmp_path: Path) -> None:
    """Pages of an unfinished document, and finished documents, are found in the output and not read now."""
    for name, pages in (("a", 4), ("b", 3)):
        (tmp_path / f"{name}.pdf").write_bytes(make_chapter_pdf(pages))
    whole, part = f"{tmp_path}/a.pdf", f"{tmp_path}/b.pdf"
    await reader.run(engine=ScriptedEngine(), source=whole, output=f"{tmp_path}/out")
    await reader.run(engine=ScriptedEngine(), source=part, slice="1-2", output=f"{tmp_path}/out")
    progress = Tracker()

    result = await reader.run(1, ScriptedEngine(), progress, sources=[whole, part], output=f"{tmp_path}/out")

    assert result.usage["pages_read_now"] == 1
    assert (progress.now.pages_done, progress.now.pages_stored) == (7, 6)


class LogprobEngine(ScriptedEngine):
    """Reports the mean log probability of the tokens of its answer."""

    family = "deepseek_ocr"

    async def generate(self, prompt: Prompt) -> Completion:
        answer = "<|ref|>text<|/ref|><|det|>[[100, 100, 900, 200]]<|/det|>\nForty-one hives stood on the roof."
        return Completion(answer, logprob=-0.1)


async def test_token_probabilities_give_the_confidence_where_nothing_else_does(reader: Reader, tmp_path: Path) -> None:
    """An element without another confidence gets the mean token probability of its answer."""
    with pymupdf.open() as pdf:
        pdf.new_page().draw_rect(pymupdf.Rect(50, 50, 300, 300), fill=(0, 0, 1))
        pdf.save(tmp_path / "a.pdf")

    await reader.run(engine=LogprobEngine(), source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/out")

    (document,) = (tmp_path / "out").glob("*/document.json")
    (element,) = json.loads(document.read_text())["elements"]
    assert element["confidence"] == {"score": 0.9048, "method": "logprob"}
