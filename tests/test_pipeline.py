"""The whole flow in this process: same bytes whatever the order, shares and slices, and bad pages beside good ones."""

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
from tests.fakes.reader import Reader
from tests.fakes.workers import DyingWorkers
from twopass.contexts import GIVE_UP
from twopass.engines.cpu.engine import CpuEngine
from twopass.engines.interface import Completion, Engine, Prompt
from twopass.engines.replay import ReplayEngine
from twopass.errors import Code, EngineError, InvalidJob, StoreError, WorkerDied
from twopass.formats import registry
from twopass.job import Door, Format, Job
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings
from twopass.steps import report, upload
from twopass.telemetry.progress import Tracker

LINE = "The meter of the pump was read on Monday and entered in the log book by both operators."
CLOCKED = {"manifest.json", "progress.json", "result.json"}
EVERY = [str(name) for name in Format]


def pdf_of(pages: int) -> bytes:
    with pymupdf.open() as pdf:
        for number in range(1, pages + 1):
            page = pdf.new_page()
            page.insert_text((72, 90), f"{number} Chapter {number}", fontsize=18, fontname="hebo")
            page.insert_textbox((72, 120, 500, 300), f"{LINE} Page {number}. " * 4, fontsize=11)
            page.draw_rect((100, 400, 300, 600), fill=(0.2 * (number % 5), 0.5, 0.5))
        return bytes(pdf.tobytes())


def drawing() -> bytes:
    """A page with ink and without text."""
    with pymupdf.open() as pdf:
        pdf.new_page().draw_rect((100, 400, 300, 600), fill=(0.2, 0.5, 0.5))
        return bytes(pdf.tobytes())


@pytest.fixture
def reader(page_pool: PagePool, buffers: PixelBufferPool) -> Reader:
    return Reader(page_pool, buffers, CpuEngine(2))


def stable(folder: Path) -> dict[str, bytes]:
    """Every artefact's bytes; of the checkpoints everything but the cost block."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in CLOCKED:
            data = path.read_bytes()
            if path.parent.name == "pages":
                data = json.dumps({**json.loads(data), "cost": None}).encode()
            found[str(path.relative_to(folder))] = data
    return found


def answer_of(prompt: Prompt) -> str:
    """What a scripted engine says of a page: a heading, a paragraph and a picture."""
    number = int(prompt.id[-4:])
    box = [72, 80, 300, 100]
    heading = {"label": "section-header", "box": box, "lines": [{"box": box, "text": f"{number} Chapter", "size": 18}]}
    body = {
        "label": "text",
        "box": [72, 120, 500, 300],
        "lines": [{"box": [72, 120, 500, 140], "text": LINE, "size": 11}],
    }
    picture = {"label": "picture", "box": [100, 400, 300, 600], "lines": []}
    page = {"v": 1, "width": 595, "height": 842, "via": "text_layer", "score": 1.0, "boxes": [heading, body, picture]}
    return json.dumps(page)


class ScriptedEngine(Engine):
    """Answers by a function, after a delay by another; remembers what it was asked."""

    kind, precision, family, sequences = "replay", "recorded", "layout", 64

    def __init__(
        self, answer: Callable[[Prompt], str] = answer_of, delay: Callable[[Prompt], float] = lambda prompt: 0.0
    ) -> None:
        self.asked: list[str] = []
        self._answer, self._delay = answer, delay

    async def open(self, page_pool: PagePool) -> None:
        """Nothing to open."""

    async def generate(self, prompt: Prompt) -> Completion:
        self.asked.append(prompt.id)
        await asyncio.sleep(self._delay(prompt))
        return Completion(self._answer(prompt))

    async def close(self) -> None:
        """Nothing to close."""


async def test_documents_of_a_page_are_read_together(reader: Reader, tmp_path: Path) -> None:
    """A job of many small documents keeps the engine as busy as one of many pages."""
    for number in range(12):
        (tmp_path / f"{number:02d}.pdf").write_bytes(pdf_of(1) + b"%% another: %d" % number)
    together = asyncio.Barrier(6)

    class Waiting(ScriptedEngine):
        async def generate(self, prompt: Prompt) -> Completion:
            if "-e" not in prompt.id:
                async with asyncio.timeout(60):
                    await together.wait()
            return await super().generate(prompt)

    sources = [f"{tmp_path}/{number:02d}.pdf" for number in range(12)]
    result = await reader.run(6, Waiting(), sources=sources, output=f"{tmp_path}/out")

    assert [document.pages for document in result.documents] == [{"read": 1}] * 12
    assert [document.source for document in result.documents] == sources


async def test_documents_of_one_job_are_fetched_by_one_client(
    reader: Reader, endpoint: str, bucket: Any, tmp_path: Path
) -> None:
    """Two at first, side by side; who comes later takes a connection that one of them has left."""
    for number in range(6):
        bucket.put_object(Bucket="bucket", Key=f"{number}.pdf", Body=pdf_of(1) + b"%% another: %d" % number)
    proxy = s3.Proxy(endpoint)
    with proxy.running() as url:
        keys = {"bucket_access_key_id": s3.KEY, "bucket_secret_access_key": s3.SECRET}
        reader.settings = Settings(bucket_endpoint_url=url, **keys)
        sources = [f"s3://bucket/{number}.pdf" for number in range(6)]
        result = await reader.run(1, ScriptedEngine(), sources=sources, output=f"{tmp_path}/out")

    assert [document.pages for document in result.documents] == [{"read": 1}] * 6
    assert proxy.connections < len(proxy.seen) == 6


async def test_equal_files_of_one_job_are_read_once(reader: Reader, tmp_path: Path) -> None:
    """The same attachment in twelve folders: one is read, the others find it finished; all are told."""
    data = pdf_of(2)
    for number in range(12):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "terms.pdf").write_bytes(data)
    engine = ScriptedEngine(delay=lambda prompt: 0.1)

    sources = [f"{tmp_path}/{number}/terms.pdf" for number in range(12)]
    result = await reader.run(16, engine, sources=sources, output=f"{tmp_path}/out")

    assert len([asked for asked in engine.asked if "-e" not in asked]) == 2
    assert [document.source for document in result.documents] == sources
    assert {document.id for document in result.documents} == {result.documents[0].id}
    assert all(document.status == "success" for document in result.documents)
    assert result.usage["pages_read_now"] == 2
    alone = await reader.run(16, ScriptedEngine(), source=sources[0], output=f"{tmp_path}/alone")
    assert result.usage["tokens_out"] == alone.usage["tokens_out"]


async def test_the_next_document_begins_when_pages_of_the_last_leave_places(reader: Reader, tmp_path: Path) -> None:
    """Before its end: the last page of one is read beside the first of the next."""
    for name in ("one", "two"):
        (tmp_path / f"{name}.pdf").write_bytes(pdf_of(4) + b"%% another: " + name.encode())
    begun: dict[str, set[str]] = {}

    class Waiting(ScriptedEngine):
        async def generate(self, prompt: Prompt) -> Completion:
            document, _, page = prompt.id.partition("/")
            begun.setdefault(document, set()).add(page)
            async with asyncio.timeout(60):
                while page == "p0004" and len(begun) < 2:
                    await asyncio.sleep(0.01)
            return await super().generate(prompt)

    sources = [f"{tmp_path}/one.pdf", f"{tmp_path}/two.pdf"]
    result = await reader.run(4, Waiting(), sources=sources, output=f"{tmp_path}/out")

    assert [document.pages for document in result.documents] == [{"read": 4}] * 2


async def test_sources_that_fill_the_disk_are_read_two_by_two(reader: Reader, tmp_path: Path) -> None:
    """However many places for pages there are."""
    data = pdf_of(1)
    for number in range(8):
        (tmp_path / f"{number}.pdf").write_bytes(data + b"%% another: %d" % number)
    reading: set[str] = set()
    most = 0

    class Counting(ScriptedEngine):
        async def generate(self, prompt: Prompt) -> Completion:
            nonlocal most
            document = prompt.id.partition("/")[0]
            reading.add(document)
            most = max(most, len(reading))
            await asyncio.sleep(0.05)
            reading.discard(document)
            return await super().generate(prompt)

    small = replace(
        reader, settings=reader.settings.model_copy(update={"max_source_bytes": len(data + b"%% another: %d" % 0)})
    )
    sources = [f"{tmp_path}/{number}.pdf" for number in range(8)]
    result = await small.run(16, Counting(), sources=sources, output=f"{tmp_path}/out")

    assert most <= 2
    assert [document.pages for document in result.documents] == [{"read": 1}] * 8


async def test_a_deadline_leaves_none_of_many_documents_out(reader: Reader, tmp_path: Path) -> None:
    """Those that were begun, those that waited and those that nobody had fetched: each says why it was not read."""
    for number in range(30):
        (tmp_path / f"{number:02d}.pdf").write_bytes(pdf_of(2) + b"%% another: %d" % number)

    sources = [f"{tmp_path}/{number:02d}.pdf" for number in range(30)]
    async with asyncio.timeout(60):
        result = await reader.run(
            4, ScriptedEngine(delay=lambda prompt: 600.0), sources=sources, output=f"{tmp_path}/out", deadline_s=3
        )

    assert [document.source for document in result.documents] == sources
    assert all(document.status == "failure" for document in result.documents)
    assert {problem.code for problem in result.problems} == {Code.DEADLINE}
    assert len(result.problems) >= 30


async def test_window_one_and_sixty_four_write_the_same_bytes(reader: Reader, tmp_path: Path) -> None:
    """How many pages are in flight, and in which order they finish, changes no byte."""
    (tmp_path / "a.pdf").write_bytes(pdf_of(9))
    rolls = random.Random(7)

    await reader.run(1, ScriptedEngine(), source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/one", formats=EVERY)
    jittery = ScriptedEngine(delay=lambda prompt: rolls.random() / 20)
    await reader.run(64, jittery, source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/many", formats=EVERY)

    assert len(stable(tmp_path / "one")) == 9 + 9 + len(EVERY)
    assert stable(tmp_path / "one") == stable(tmp_path / "many")


async def test_the_cpu_engine_writes_the_same_bytes_in_any_window(reader: Reader, tmp_path: Path) -> None:
    """The same promise with the engine of any laptop."""
    (tmp_path / "a.pdf").write_bytes(pdf_of(3))

    await reader.run(1, source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/one")
    await reader.run(64, source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/many")

    assert stable(tmp_path / "one") == stable(tmp_path / "many")


async def test_one_worker_and_three_write_the_same_bytes(reader: Reader, tmp_path: Path) -> None:
    """Three workers on one document share its pages and leave what one would have left."""
    (tmp_path / "a.pdf").write_bytes(pdf_of(12))
    source = f"{tmp_path}/a.pdf"
    engines = [ScriptedEngine(delay=lambda prompt: random.random() / 50) for _ in range(3)]

    await reader.run(4, ScriptedEngine(), source=source, output=f"{tmp_path}/one")
    results = await asyncio.gather(*(reader.run(4, e, source=source, output=f"{tmp_path}/three") for e in engines))

    assert {result.status for result in results} == {"success"}
    assert stable(tmp_path / "one") == stable(tmp_path / "three")


async def test_three_cpu_workers_write_the_same_bytes(reader: Reader, tmp_path: Path) -> None:
    """The same with the engine of any laptop: nothing that one worker saw of other pages reaches a checkpoint."""
    (tmp_path / "a.pdf").write_bytes(pdf_of(6))
    source = f"{tmp_path}/a.pdf"

    await reader.run(source=source, output=f"{tmp_path}/one")
    await asyncio.gather(*(reader.run(source=source, output=f"{tmp_path}/three") for _ in range(3)))

    assert stable(tmp_path / "one") == stable(tmp_path / "three")


async def test_a_sliced_document_has_the_same_bytes_as_a_whole_one(reader: Reader, tmp_path: Path) -> None:
    """Two slices and an assembling job leave what one job would have left; the slices leave no manifest."""
    (tmp_path / "a.pdf").write_bytes(pdf_of(5))
    source, sliced = f"{tmp_path}/a.pdf", tmp_path / "sliced"

    await reader.run(source=source, output=f"{tmp_path}/whole", formats=EVERY)
    await reader.run(source=source, output=str(sliced), slice="1-3")
    await reader.run(source=source, output=str(sliced), slice="4-")
    manifests = list(sliced.rglob("manifest.json"))
    assembling = ScriptedEngine()
    assembling.kind, assembling.precision = reader.engine.kind, reader.engine.precision
    await reader.run(engine=assembling, source=source, output=str(sliced), formats=EVERY)

    assert not manifests
    assert not assembling.asked
    assert stable(tmp_path / "whole") == stable(sliced)


async def test_a_repeated_job_asks_nothing(reader: Reader, tmp_path: Path) -> None:
    """A finished document is answered from its manifest, whatever engine stands by."""
    (tmp_path / "a.pdf").write_bytes(pdf_of(2))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    await reader.run(engine=ScriptedEngine(), **fields)

    again, progress = ScriptedEngine(), Tracker()
    result = await reader.run(engine=again, progress=progress, **fields)

    assert not again.asked
    assert result.documents[0].pages == {"read": 2}
    assert result.documents[0].usage == {"pages_read_now": 0}
    assert (progress.now.pages_done, progress.now.percent) == (2, 100.0)


async def test_a_repeated_document_keeps_its_problems(reader: Reader, tmp_path: Path) -> None:
    """What was wrong with a finished document is told again, with its code and page."""
    (tmp_path / "a.pdf").write_bytes(pdf_of(2))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    empty = ScriptedEngine(lambda prompt: "" if prompt.id.endswith("2") else answer_of(prompt))
    first = await reader.run(engine=empty, **fields)

    again = await reader.run(engine=empty, **fields)

    assert [problem.code for problem in again.problems] == [Code.EMPTY]
    assert again.problems == first.problems
    assert again.status == first.status


async def test_a_format_asked_for_later_joins_the_others(reader: Reader, tmp_path: Path) -> None:
    """The manifest lists all that lies there; nothing is read again and nothing is forgotten."""
    (tmp_path / "a.pdf").write_bytes(pdf_of(2))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    await reader.run(engine=ScriptedEngine(), formats=["docjson"], **fields)

    later = ScriptedEngine()
    await reader.run(engine=later, formats=["markdown"], **fields)

    manifest = json.loads(next((tmp_path / "out").rglob("manifest.json")).read_text())
    assert not later.asked
    assert set(manifest["result"]["artefacts"]) == {"document.json", "document.md"}


async def test_a_finished_document_is_spelled_anew(reader: Reader, tmp_path: Path) -> None:
    """Other options of markdown ask no engine, and change every artefact that shows or counts them, no checkpoint."""
    (tmp_path / "a.pdf").write_bytes(pdf_of(2))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    first = await reader.run(engine=ScriptedEngine(), formats=EVERY, **fields)
    before = stable(tmp_path / "out")

    later = ScriptedEngine()
    again = await reader.run(engine=later, markdown={"front_matter": True, "images": "data"}, **fields)
    after = stable(tmp_path / "out")

    changed = {name.rpartition("/")[2] for name in before if before[name] != after[name]}
    assert not later.asked and before.keys() == after.keys()
    assert first.documents[0].id == again.documents[0].id
    assert changed == {"document.md", "document.json", "docling.json", "chunks.jsonl", "document.zip"}
    markdown = next((tmp_path / "out").rglob("document.md")).read_text()
    assert markdown.startswith("---\ntitle") and "](data:image/png;base64," in markdown
    assert manifest_in(tmp_path / "out")["writing"]["markdown"]["front_matter"]


async def test_a_job_that_says_nothing_of_spelling_leaves_it(reader: Reader, tmp_path: Path) -> None:
    """A format asked for later is spelled like the others; the same job again finds all as it wants it."""
    (tmp_path / "a.pdf").write_bytes(pdf_of(1))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    await reader.run(engine=ScriptedEngine(), markdown={"page_marks": False}, **fields)

    await reader.run(engine=ScriptedEngine(), formats=["review"], **fields)
    manifest = next((tmp_path / "out").rglob("manifest.json"))
    written = manifest.stat().st_mtime_ns
    repeated = await reader.run(engine=ScriptedEngine(), markdown={"page_marks": False}, **fields)

    assert "page:" not in next((tmp_path / "out").rglob("document.md")).read_text()
    assert set(manifest_in(tmp_path / "out")["result"]["artefacts"]) == {"document.json", "document.md", "review.html"}
    assert manifest.stat().st_mtime_ns == written and repeated.documents[0].usage == {"pages_read_now": 0}


async def test_many_page_pictures_lie_beside_the_review_page(
    reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above the limit none is in it; the archive has them too, and so shows all that it needs."""
    monkeypatch.setattr(upload, "EMBEDDED", 20_000)  # of 20 MB: a document of so many pages takes minutes to draw
    (tmp_path / "a.pdf").write_bytes(pdf_of(4))

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


async def test_a_page_that_cannot_be_drawn_again_is_missed_by_name(reader: Reader, tmp_path: Path) -> None:
    """The review page is written without its picture, and the result says so; the document itself has all it had."""
    (tmp_path / "a.pdf").write_bytes(pdf_of(2))
    dying = replace(reader, page_pool=DyingWorkers(reader.page_pool, preview_of=4))

    result = await dying.run(
        1, ScriptedEngine(), formats=["docjson", "review"], source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/out"
    )

    document = json.loads(next((tmp_path / "out").rglob("document.json")).read_text())
    page = next((tmp_path / "out").rglob("review.html")).read_text()
    assert [(p.code, p.severity, p.page) for p in result.problems] == [
        (Code.RENDER_CRASH, "warning", n) for n in (1, 2)
    ]
    assert page.count("There is no picture of this page.") == 2
    assert document["problems"] == [] and result.status == "success"


async def test_what_cannot_be_written_here_is_refused(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a page is read, with what to install."""
    monkeypatch.setitem(registry.EXTRAS, Format.DOCLING, ("docling", "no_such_module"))

    with pytest.raises(InvalidJob, match=r"formats: docling needs .*twopass\[docling\]"):
        await reader.run(source="a.pdf", formats=["docling"])


async def test_a_late_job_leaves_a_finished_document_alone(reader: Reader, tmp_path: Path) -> None:
    """A job that runs into its deadline writes no artefact, least of all over a finished one."""
    (tmp_path / "a.pdf").write_bytes(pdf_of(2))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    await reader.run(engine=ScriptedEngine(), formats=["docjson"], **fields)
    for checkpoint in (tmp_path / "out").rglob("pages/*.json"):
        checkpoint.unlink()
    before = next((tmp_path / "out").rglob("document.json")).read_bytes()

    late = await reader.run(engine=ScriptedEngine(delay=lambda prompt: 60.0), deadline_s=1.5, **fields)

    assert late.documents[0].pages == {"unread": 2}
    assert late.documents[0].artefacts == {}
    assert next((tmp_path / "out").rglob("document.json")).read_bytes() == before


async def test_a_source_that_comes_after_the_deadline_ends_with_its_code(reader: Reader, tmp_path: Path) -> None:
    """The deadline bounds fetching too: a job with many sources ends in time with an answer."""
    (tmp_path / "a.pdf").write_bytes(pdf_of(1))

    result = await reader.run(source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/out", deadline_s=1e-6)

    assert result.as_answer()["error"].startswith("DEADLINE")


async def test_a_long_document_that_fits_is_returned_inline(reader: Reader, tmp_path: Path) -> None:
    """What counts is the answer's size and not a guess from its pages."""
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


def test_what_can_never_fit_is_refused_before_it_is_read() -> None:
    """An hour of reading for an answer that nobody gets is worse than a refusal."""
    job = Job.parse({"input": {"source": "a.pdf", "inline": ["docjson"]}}, Settings(), Door.LOCAL)

    report.check_inline(job, 400)
    with pytest.raises(StoreError, match="OUTPUT_MISSING: 600 pages"):
        report.check_inline(job, 600)


async def test_two_addresses_of_one_file_make_one_document(reader: Reader, tmp_path: Path) -> None:
    """Whoever assembles writes the same bytes: the document names the source as its first page was read from."""
    data = pdf_of(2)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.pdf").write_bytes(data)
    output = f"{tmp_path}/out"
    await reader.run(engine=ScriptedEngine(), source=f"{tmp_path}/one/a.pdf", output=output)
    before = stable(tmp_path / "out")
    next((tmp_path / "out").rglob("manifest.json")).unlink()

    await reader.run(engine=ScriptedEngine(), source=f"{tmp_path}/two/a.pdf", output=output)

    assert stable(tmp_path / "out") == before


async def test_a_page_that_kills_its_worker_twice_takes_the_text_layer(reader: Reader, tmp_path: Path) -> None:
    """The engine's worker dying over a born-digital page loses its layout, not its words."""
    (tmp_path / "a.pdf").write_bytes(pdf_of(2))

    def dies(prompt: Prompt) -> str:
        if prompt.id.endswith("2"):
            raise WorkerDied(Code.RENDER_CRASH, "a page worker died in read_page")
        return answer_of(prompt)

    progress = Tracker()
    engine = ScriptedEngine(dies)
    result = await reader.run(engine=engine, progress=progress, source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/out")

    markdown = next((tmp_path / "out").rglob("document.md")).read_text()
    assert result.documents[0].pages == {"read": 1, "text_layer": 1}
    assert [problem.code for problem in result.problems] == [Code.RENDER_CRASH]
    assert len([prompt for prompt in engine.asked if prompt.endswith("2")]) == 2
    assert "Page 2" in markdown
    assert progress.now.elements_done == progress.now.elements_total


async def test_a_page_lost_to_a_dead_worker_is_tried_again_by_the_next_job(reader: Reader, tmp_path: Path) -> None:
    """The document is finished and says what is missing; the same job again reads that page and all formats anew."""
    (tmp_path / "a.pdf").write_bytes(pdf_of(3))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    dying = replace(reader, page_pool=DyingWorkers(reader.page_pool, draw_pdf=2))
    first = await dying.run(1, ScriptedEngine(), **fields)
    told = manifest_in(tmp_path / "out")

    second = ScriptedEngine()
    again = await reader.run(engine=second, formats=["docjson"], **fields)
    await reader.run(engine=ScriptedEngine(), source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/healthy")

    assert (first.status, first.documents[0].pages) == ("partial_success", {"failed": 1, "read": 2})
    assert [(p.code, p.page) for p in first.problems] == [(Code.RENDER_CRASH, 1)]
    assert "send the same job again" in first.problems[0].message
    assert told["result"]["status"] == "partial_success"
    assert [prompt[-1] for prompt in second.asked] == ["1"]
    assert (again.status, again.problems) == ("success", ())
    assert manifest_in(tmp_path / "out")["result"]["pages"] == {"read": 3}
    assert stable(tmp_path / "out") == stable(tmp_path / "healthy")


async def test_a_scan_that_kills_the_engines_worker_is_tried_again(reader: Reader, tmp_path: Path) -> None:
    """A page without a text layer fails, and its checkpoint does not stand in the way of the next job."""
    (tmp_path / "a.pdf").write_bytes(drawing())
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}

    def dies(prompt: Prompt) -> str:
        raise WorkerDied(Code.RENDER_TIMEOUT, "read_page took over 120 s")

    first = await reader.run(engine=ScriptedEngine(dies), **fields)
    stored = list((tmp_path / "out").rglob("pages/*.json"))
    again = await reader.run(engine=ScriptedEngine(), **fields)

    assert [(p.code, p.page) for p in first.problems] == [(Code.RENDER_TIMEOUT, 1)]
    assert "send the same job again" in first.problems[0].message
    assert not stored
    assert again.documents[0].pages == {"read": 1}


async def test_a_page_lost_to_an_accident_is_taken_from_who_read_it(reader: Reader, tmp_path: Path) -> None:
    """Two workers on one document leave one: the checkpoint of the luckier one stands in both answers."""
    (tmp_path / "a.pdf").write_bytes(drawing())
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    asked, stored = asyncio.Event(), asyncio.Event()

    class Unlucky(ScriptedEngine):
        async def generate(self, prompt: Prompt) -> Completion:
            asked.set()
            await stored.wait()
            raise WorkerDied(Code.RENDER_CRASH, "a page worker died in read_page")

    unlucky = asyncio.create_task(reader.run(engine=Unlucky(), **fields))
    await asked.wait()
    lucky = await reader.run(engine=ScriptedEngine(), **fields)
    stored.set()

    assert (lucky.documents[0].pages, (await unlucky).documents[0].pages) == ({"read": 1}, {"read": 1})


def manifest_in(output: Path) -> dict[str, Any]:
    return dict(json.loads(next(output.rglob("manifest.json")).read_text()))


async def test_a_job_that_was_cut_off_reads_only_what_is_missing(reader: Reader, tmp_path: Path) -> None:
    """After the deadline the document has no manifest; the same job again finishes it."""
    (tmp_path / "a.pdf").write_bytes(pdf_of(6))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    slow = ScriptedEngine(delay=lambda prompt: 60.0 if prompt.id.endswith(("5", "6")) else 0.0)

    cut = await reader.run(engine=slow, deadline_s=3, **fields)
    manifests = list((tmp_path / "out").rglob("manifest.json"))
    second = ScriptedEngine()
    whole = await reader.run(engine=second, **fields)

    assert cut.status == "partial_success"
    assert cut.documents[0].pages == {"read": 4, "unread": 2}
    assert {problem.code for problem in cut.problems} == {Code.DEADLINE}
    assert not manifests
    assert sorted(prompt[-1] for prompt in second.asked) == ["5", "6"]
    assert whole.status == "success"


async def test_a_job_that_goes_on_counts_only_what_it_spent(reader: Reader, tmp_path: Path) -> None:
    """Each page's tokens and seconds are in the answer of the job that read it, once."""
    (tmp_path / "a.pdf").write_bytes(pdf_of(6))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}

    class Dear(ScriptedEngine):
        async def generate(self, prompt: Prompt) -> Completion:
            return replace(await super().generate(prompt), tokens_in=100, tokens_out=7, seconds=2.0)

    slow = Dear(delay=lambda prompt: 60.0 if prompt.id.endswith(("5", "6")) else 0.0)
    cut = (await reader.run(engine=slow, job_id="one", deadline_s=3, **fields)).documents[0].usage
    whole = (await reader.run(engine=Dear(), job_id="two", **fields)).documents[0]

    names = ("tokens_in", "tokens_out", "engine_s", "pages_read_now")
    assert [cut[name] for name in names] == [400, 28, 8.0, 4]
    assert [whole.usage[name] for name in names] == [200, 14, 4.0, 2]
    assert whole.usage["pages_per_s"] == pytest.approx(2 / whole.timings["duration_s"], rel=0.1)


async def test_a_missing_crop_is_cut_again_from_the_checkpoint(reader: Reader, tmp_path: Path) -> None:
    """A kill between a checkpoint and its images costs no second reading."""
    (tmp_path / "a.pdf").write_bytes(pdf_of(2))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    await reader.run(engine=ScriptedEngine(), **fields)
    before = stable(tmp_path / "out")
    for path in (tmp_path / "out").rglob("*"):
        if path.name == "manifest.json" or path.name == "p0002-e002.png":
            path.unlink()

    again = ScriptedEngine()
    await reader.run(engine=again, **fields)

    assert not again.asked
    assert stable(tmp_path / "out") == before


async def test_a_page_that_cannot_be_drawn_again_keeps_its_text(reader: Reader, tmp_path: Path) -> None:
    """A job that goes on and finds a crop missing loses that crop, not the page and not the document."""
    (tmp_path / "a.pdf").write_bytes(pdf_of(2))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    await reader.run(engine=ScriptedEngine(), **fields)
    for path in (tmp_path / "out").rglob("*"):
        if path.name == "manifest.json" or path.name == "p0002-e002.png":
            path.unlink()

    again = ScriptedEngine()
    dying = replace(reader, page_pool=DyingWorkers(reader.page_pool, draw_pdf=2))
    result = await dying.run(engine=again, **fields)

    assert not again.asked
    assert (result.status, result.documents[0].pages) == ("success", {"read": 2})
    assert [(p.code, p.severity, p.page) for p in result.problems] == [(Code.RENDER_CRASH, "warning", 2)]
    assert images_of(tmp_path / "out") == ["images/p0001-e002.png"]
    assert links_of(tmp_path / "out") == ["images/p0001-e002.png"]


async def test_a_crop_that_cannot_be_cut_is_no_broken_link(reader: Reader, tmp_path: Path) -> None:
    """Its element stands without it, the problem names the page, and nothing is read a second time for it."""
    (tmp_path / "a.pdf").write_bytes(pdf_of(2))
    engine = ScriptedEngine()

    dying = replace(reader, page_pool=DyingWorkers(reader.page_pool, png_of=2))
    result = await dying.run(1, engine, source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/out")

    assert len(engine.asked) == 2
    assert [(p.code, p.severity, p.page) for p in result.problems] == [(Code.RENDER_CRASH, "warning", 1)]
    assert images_of(tmp_path / "out") == links_of(tmp_path / "out") == ["images/p0002-e002.png"]
    assert not list((tmp_path / "out").rglob("p0001-e002.png"))


def images_of(output: Path) -> list[str]:
    """The crops that document.json names."""
    document = json.loads(next(output.rglob("document.json")).read_text())
    return [element["image"] for element in document["elements"] if element["image"]]


def links_of(output: Path) -> list[str]:
    """The crops that document.md shows."""
    return re.findall(r"!\[.*?\]\((.*?)\)", next(output.rglob("document.md")).read_text())


async def test_recorded_completions_read_the_document_again(reader: Reader, tmp_path: Path) -> None:
    """The replay engine answers from checkpoints: what it makes equals what was recorded, up to the id."""
    (tmp_path / "a.pdf").write_bytes(pdf_of(3))
    await reader.run(source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/first")

    replay = ReplayEngine.from_folder(tmp_path / "first")
    result = await reader.run(engine=replay, source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/second")

    first, second = (next((tmp_path / name).glob("a-*/document.md")) for name in ("first", "second"))
    assert result.status == "success"
    assert first.read_bytes() == second.read_bytes()


async def test_a_page_nothing_was_read_on_takes_the_text_layer(reader: Reader, tmp_path: Path) -> None:
    """An empty answer on an inked page goes down the ladder and is counted and said."""
    (tmp_path / "a.pdf").write_bytes(pdf_of(3))
    empty = ScriptedEngine(lambda prompt: answer_of(prompt) if not prompt.id.endswith("2") else "")

    result = await reader.run(engine=empty, source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/out")

    document = json.loads(next((tmp_path / "out").glob("a-*/document.json")).read_text())
    assert result.status == "success"
    assert result.documents[0].pages == {"read": 2, "text_layer": 1}
    assert [(p.code, p.page) for p in result.problems] == [(Code.EMPTY, 2)]
    assert "log book" in " ".join(element["text"] for element in document["elements"] if element["page"] == 2)


async def test_a_broken_page_costs_only_itself(reader: Reader, tmp_path: Path) -> None:
    """One page object is rubbish: the others keep their numbers and are read, the document is partial."""
    with pymupdf.open(stream=pdf_of(3)) as pdf:
        pdf.update_object(pdf.page_xref(1), "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 0 0] >>")
        (tmp_path / "a.pdf").write_bytes(pdf.tobytes())

    result = await reader.run(engine=ScriptedEngine(), source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/out")

    states = result.documents[0].pages
    assert sum(states.values()) == 3
    assert states["read"] == 2


class Mortal(ScriptedEngine):
    """Dies over the prompts named, as often as it is told, and lives again afterwards."""

    def __init__(self, *endings: str, deaths: float = 1, code: Code = Code.ENGINE_DEAD) -> None:
        super().__init__()
        self._endings, self._deaths, self._code = endings, deaths, code

    async def generate(self, prompt: Prompt) -> Completion:
        if self._deaths > 0 and prompt.id.endswith(self._endings):
            self._deaths -= 1
            self.asked.append(prompt.id)
            raise EngineError(self._code, "the engine is gone")
        return await super().generate(prompt)


@pytest.mark.parametrize("code", [Code.ENGINE_DEAD, Code.ENGINE_MEMORY])
async def test_an_engine_that_dies_and_revives_loses_one_page(reader: Reader, tmp_path: Path, code: Code) -> None:
    """That page is unread and says why and what to do; the others are read, and no manifest calls it complete."""
    (tmp_path / "a.pdf").write_bytes(pdf_of(5))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}

    result = await reader.run(1, Mortal("3", code=code), **fields)

    (problem,) = result.problems
    assert (result.status, result.documents[0].pages) == ("partial_success", {"read": 4, "unread": 1})
    assert (problem.code, problem.page) == (code, 3)
    assert problem.message == "page 3: the engine is gone; send the same job again to go on"
    assert result.documents[0].usage["pages_read_now"] == 4
    assert not list((tmp_path / "out").rglob("pages/0003.json"))
    assert not list((tmp_path / "out").rglob("manifest.json"))


async def test_an_engine_that_stays_dead_ends_in_a_failure_with_its_code(reader: Reader, tmp_path: Path) -> None:
    """No page was read, nothing is stored, and every page is accounted for."""
    (tmp_path / "a.pdf").write_bytes(pdf_of(3))
    progress = Tracker()

    dead = Mortal("", deaths=99)
    result = await reader.run(engine=dead, progress=progress, source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/out")

    assert (result.status, result.documents[0].pages) == ("failure", {"unread": 3})
    assert result.as_answer()["error"].startswith("ENGINE_DEAD: pages 1-3: the engine is gone")
    assert not list((tmp_path / "out").rglob("pages/*.json"))
    assert (progress.now.pages_done, progress.now.pages_total, progress.now.percent) == (0, 3, 0.0)


async def test_what_a_dead_engine_left_is_read_by_the_same_job_again(reader: Reader, tmp_path: Path) -> None:
    """The finished document equals an undisturbed one byte for byte, and only the lost pages are asked about."""
    (tmp_path / "a.pdf").write_bytes(pdf_of(6))
    source = f"{tmp_path}/a.pdf"
    await reader.run(engine=ScriptedEngine(), source=source, output=f"{tmp_path}/undisturbed")

    await reader.run(2, Mortal("3", deaths=1), source=source, output=f"{tmp_path}/out")
    await reader.run(2, Mortal("3", deaths=99), source=source, output=f"{tmp_path}/out")
    good = ScriptedEngine()
    whole = await reader.run(2, good, source=source, output=f"{tmp_path}/out")

    assert whole.status == "success"
    assert [prompt[-1] for prompt in good.asked] == ["3"]
    assert manifest_in(tmp_path / "out")["result"]["pages"] == {"read": 6}
    assert stable(tmp_path / "out") == stable(tmp_path / "undisturbed")


async def test_a_page_that_a_dead_engine_left_is_taken_from_who_read_it(reader: Reader, tmp_path: Path) -> None:
    """Two workers on one document, the engine of one gone: the other's pages stand in both answers."""
    (tmp_path / "a.pdf").write_bytes(pdf_of(1))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    asked, stored = asyncio.Event(), asyncio.Event()

    class Dying(ScriptedEngine):
        async def generate(self, prompt: Prompt) -> Completion:
            asked.set()
            await stored.wait()
            raise EngineError(Code.ENGINE_DEAD, "the engine is gone")

    dying = asyncio.create_task(reader.run(engine=Dying(), **fields))
    await asked.wait()
    await reader.run(engine=ScriptedEngine(), **fields)
    stored.set()

    assert (await dying).documents[0].pages == {"read": 1}


async def test_a_dead_engine_is_not_asked_about_every_page_of_a_book(reader: Reader, tmp_path: Path) -> None:
    """After so many pages in a row the rest is not even rendered: an hour of nothing helps nobody."""
    (tmp_path / "a.pdf").write_bytes(pdf_of(GIVE_UP + 20))

    dead = Mortal("", deaths=999)
    result = await reader.run(2, dead, source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/out", dpi=36)

    assert GIVE_UP <= len(dead.asked) <= GIVE_UP + 4
    assert result.documents[0].pages == {"unread": GIVE_UP + 20}


async def test_an_engine_that_dies_in_pass_2_leaves_no_half_page(reader: Reader, tmp_path: Path) -> None:
    """What pass 1 read is not stored alone: the next job reads the page whole, and all is as if nothing had been."""
    (tmp_path / "a.pdf").write_bytes(recorded.report())
    key = hashlib.sha256((tmp_path / "a.pdf").read_bytes()).hexdigest()[:12]
    fields = {"source": f"{tmp_path}/a.pdf", "pages": "1-2"}

    class Dying(recorded.Listening):
        async def generate(self, prompt: Prompt) -> Completion:
            if prompt.id.endswith("p0001-e007-2"):
                raise EngineError(Code.ENGINE_DEAD, "the engine is gone")
            return await super().generate(prompt)

    await reader.run(engine=recorded.Listening(key), output=f"{tmp_path}/undisturbed", **fields)
    cut = await reader.run(engine=Dying(key), output=f"{tmp_path}/out", **fields)
    left = [path.name for path in (tmp_path / "out").rglob("pages/*.json")]
    whole = await reader.run(engine=recorded.Listening(key), output=f"{tmp_path}/out", **fields)

    assert cut.documents[0].pages == {"repaired": 1, "unread": 1}
    assert left == ["0002.json"]
    assert whole.documents[0].pages == {"read": 1, "repaired": 1}
    assert stable(tmp_path / "out") == stable(tmp_path / "undisturbed")


async def test_progress_ends_at_a_hundred_per_cent(reader: Reader, tmp_path: Path) -> None:
    """Pages and elements known are pages and elements done."""
    (tmp_path / "a.pdf").write_bytes(pdf_of(3))
    progress = Tracker()

    await reader.run(engine=ScriptedEngine(), progress=progress, source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/out")

    now = progress.now
    assert (now.pages_done, now.pages_total, now.percent, now.phase) == (3, 3, 100.0, "done")
    assert now.elements_done == now.elements_total == 9


class Sure(ScriptedEngine):
    """A model that also says what it thought of its tokens."""

    family = "deepseek_ocr"

    async def generate(self, prompt: Prompt) -> Completion:
        answer = "<|ref|>text<|/ref|><|det|>[[100, 100, 900, 200]]<|/det|>\nForty-one hives stood on the roof."
        return Completion(answer, logprob=-0.1)


async def test_tokens_tell_how_sure_a_reading_is_where_nothing_else_does(reader: Reader, tmp_path: Path) -> None:
    with pymupdf.open() as pdf:
        pdf.new_page().draw_rect(pymupdf.Rect(50, 50, 300, 300), fill=(0, 0, 1))
        pdf.save(tmp_path / "a.pdf")

    await reader.run(engine=Sure(), source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/out")

    (document,) = (tmp_path / "out").glob("*/document.json")
    (element,) = json.loads(document.read_text())["elements"]
    assert element["confidence"] == {"score": 0.9048, "method": "logprob"}
