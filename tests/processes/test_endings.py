"""How documents end: during a shutdown, with unread or failed pages, and with several workers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.reader import Reader
from tests.test_pipeline import ScriptedEngine, make_chapter_pdf, snapshot_artefacts
from twopass.document import Status
from twopass.engines.cpu.engine import CpuEngine
from twopass.engines.interface import Completion, Incident, Prompt
from twopass.errors import Code, InvalidJob
from twopass.job import EntryPoint, Job
from twopass.page_range import format_page_ranges
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings
from twopass.telemetry.progress import Phase, Progress, Tracker


@pytest.fixture
def reader(page_pool: PagePool, buffers: PixelBufferPool) -> Reader:
    return Reader(page_pool, buffers, CpuEngine(2))


@pytest.fixture
def fields(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(6))
    return {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}


class GatedEngine(ScriptedEngine):
    """Answers about page 2 only after `allow_page_2` is set. A prompt id ends with the last digit of its page."""

    def __init__(self) -> None:
        super().__init__()
        self.page_2_started, self.allow_page_2 = asyncio.Event(), asyncio.Event()

    async def generate(self, prompt: Prompt) -> Completion:
        if prompt.id.endswith("2"):
            self.page_2_started.set()
            await self.allow_page_2.wait()
        return await super().generate(prompt)


async def test_a_shutdown_finishes_the_page_in_flight_and_starts_no_other(
    reader: Reader, fields: dict[str, Any], tmp_path: Path
) -> None:
    """If a shutdown begins during page 2, that page is stored and pages 3 to 6 are unread; no manifest is written."""
    engine = GatedEngine()
    work = asyncio.create_task(reader.run(1, engine, **fields))
    await engine.page_2_started.wait()
    reader.shutdown.begin(30)
    engine.allow_page_2.set()

    result = await work

    document = result.documents[0]
    assert (document.status, document.pages, document.left) == ("partial_success", {"read": 2, "unread": 4}, "3-6")
    assert [(problem.code, problem.message) for problem in result.problems] == [
        (Code.SHUTDOWN, "pages 3-6: the worker is shutting down; send the same job again to continue")
    ]
    assert sorted(path.name for path in tmp_path.rglob("pages/*")) == ["0001.json", "0002.json"]
    assert not list(tmp_path.rglob("manifest.json"))


async def test_the_next_worker_completes_the_document_with_the_same_bytes(
    reader: Reader, page_pool: PagePool, buffers: PixelBufferPool, fields: dict[str, Any], tmp_path: Path
) -> None:
    """After a shutdown another worker reads only the unread pages and writes the bytes of an undisturbed run."""
    engine = GatedEngine()
    work = asyncio.create_task(reader.run(1, engine, **fields))
    await engine.page_2_started.wait()
    reader.shutdown.begin(0.05)  # page 2 takes longer
    await work
    second = ScriptedEngine()

    await Reader(page_pool, buffers, CpuEngine(2)).run(engine=second, **fields)
    await Reader(page_pool, buffers, CpuEngine(2)).run(
        engine=ScriptedEngine(), **{**fields, "output": f"{tmp_path}/alone"}
    )

    assert sorted(prompt_id[-1] for prompt_id in second.prompt_ids) == ["2", "3", "4", "5", "6"]
    assert snapshot_artefacts(tmp_path / "out") == snapshot_artefacts(tmp_path / "alone")


async def test_a_job_that_arrives_during_a_shutdown_fails_at_once(reader: Reader, fields: dict[str, Any]) -> None:
    """A job that arrives during a shutdown fetches nothing, and its error says to send it again."""
    reader.shutdown.begin(30)

    answer = (await reader.run(**fields)).as_answer()

    assert answer["error"] == "SHUTDOWN: the worker is shutting down; send the same job again to continue"


async def test_stored_pages_are_loaded_before_others_are_read(reader: Reader, fields: dict[str, Any]) -> None:
    """If the deadline passes while page 1 is read, the result contains the pages that another worker stored."""
    await reader.run(engine=ScriptedEngine(), slice="4-6", **fields)
    slow = ScriptedEngine(delay=lambda prompt: 60.0)

    interrupted = await reader.run(1, slow, deadline_s=2, **fields)

    assert (interrupted.documents[0].pages, interrupted.documents[0].left) == ({"read": 3, "unread": 3}, "1-3")


async def test_a_finished_document_has_no_unread_or_failed_pages(reader: Reader, fields: dict[str, Any]) -> None:
    """`left` and `failed` of a finished document are null, also when the same job is sent again."""
    for _ in range(2):
        document = (await reader.run(engine=ScriptedEngine(), **fields)).documents[0]
        assert (document.left, document.failed) == (None, None)


async def test_a_document_that_cannot_be_written_in_time_is_reported(
    reader: Reader, page_pool: PagePool, buffers: PixelBufferPool, fields: dict[str, Any]
) -> None:
    """If the grace period ends after the last page, the result says so, and the next job only writes the document."""

    def shut_down(progress: Progress) -> None:
        if progress.phase is Phase.ASSEMBLING:
            reader.shutdown.begin(0)

    first = await reader.run(engine=ScriptedEngine(), progress=Tracker(shut_down), **fields)
    engine = ScriptedEngine()
    second = await Reader(page_pool, buffers, CpuEngine(2)).run(engine=engine, **fields)

    assert (first.status, first.documents[0].pages) == ("partial_success", {"read": 6})
    assert first.problems[-1].message.startswith("the pages are read, but the document is not written")
    assert (second.status, engine.prompt_ids) == ("success", [])


def test_pages_are_reported_as_ranges() -> None:
    """Page numbers are reported in the form that the fields `pages` and `slice` accept."""
    assert format_page_ranges([]) is None
    assert format_page_ranges([3]) == "3"
    assert format_page_ranges([1, 2, 3, 5, 8, 9]) == "1-3,5,8-9"


# ---- failed pages ---------------------------------------------------------------------------------


class EmptyAnswerEngine(ScriptedEngine):
    """Gives empty answers about these pages, with this finish reason."""

    def __init__(self, *pages: int, finish_reason: str = "length") -> None:
        super().__init__()
        self._pages, self._finish_reason = tuple(f"p{page:04d}" for page in pages), finish_reason

    async def generate(self, prompt: Prompt) -> Completion:
        answer = await super().generate(prompt)
        name = prompt.id.rpartition("/")[2]
        return Completion("", self._finish_reason) if name.startswith(self._pages) else answer


def make_drawings_pdf(page_count: int) -> bytes:
    """Pages with ink and no text, so that there is no text layer to fall back on."""
    import pymupdf

    with pymupdf.open() as pdf:
        for number in range(page_count):
            pdf.new_page().draw_rect((100, 400, 300, 500 + number), fill=(0.2, 0.5, 0.5))
        return bytes(pdf.tobytes())


@pytest.mark.parametrize(
    ("failed_pages", "status"),
    [
        ({}, "partial_success"),
        ({"partial_success": 3}, "success"),
        ({"partial_success": "50%"}, "success"),
        ({"partial_success": "40%"}, "partial_success"),
        ({"failure": 3}, "partial_success"),
        ({"failure": 2}, "failure"),
        ({"failure": "40%"}, "failure"),
    ],
)
async def test_the_job_sets_how_many_failed_pages_a_success_may_have(
    reader: Reader, tmp_path: Path, failed_pages: dict[str, Any], status: Status
) -> None:
    """With two failed pages of five, `failed_pages` decides the status; the artefacts are written in any case."""
    (tmp_path / "a.pdf").write_bytes(make_drawings_pdf(5))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out", "failed_pages": failed_pages}

    for _ in range(2):  # the second answer comes from the manifest
        document = (await reader.run(engine=EmptyAnswerEngine(2, 4), **fields)).documents[0]
        assert (document.status, document.failed) == (status, "2,4")
        assert set(document.artefacts) == {"document.json", "document.md"}


async def test_a_repeated_job_may_have_other_failed_pages_thresholds(reader: Reader, tmp_path: Path) -> None:
    """`failed_pages` is not part of the document id: the status changes and no page is read again."""
    (tmp_path / "a.pdf").write_bytes(make_drawings_pdf(4))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    first = (await reader.run(engine=EmptyAnswerEngine(2), **fields)).documents[0]
    engine = EmptyAnswerEngine()

    again = (await reader.run(engine=engine, failed_pages={"partial_success": 2}, **fields)).documents[0]

    assert (first.status, again.status, again.id, engine.prompt_ids) == ("partial_success", "success", first.id, [])


@pytest.mark.parametrize("wrong", [{"failure": 0}, {"failure": "many"}, {"partial_success": "101%"}, {"other": 1}])
def test_an_invalid_threshold_of_failed_pages_is_refused(wrong: dict[str, Any]) -> None:
    """An invalid `failed_pages` is refused with an error that names the field."""
    with pytest.raises(InvalidJob, match=r"failed_pages\."):
        Job.parse({"input": {"source": "a.pdf", "failed_pages": wrong}}, Settings(), EntryPoint.LOCAL)


# ---- engines that die -----------------------------------------------------------------------------


async def test_a_page_that_crashes_the_engine_is_retried_by_the_next_job(reader: Reader, tmp_path: Path) -> None:
    """A page that crashes the engine is asked about once, on no other rung, and is not stored; the others are read."""
    (tmp_path / "a.pdf").write_bytes(make_drawings_pdf(3))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    engine = EmptyAnswerEngine(2, finish_reason="crash")

    result = await reader.run(engine=engine, **fields)
    again = await reader.run(engine=ScriptedEngine(), **fields)

    assert (result.documents[0].status, result.documents[0].failed) == ("partial_success", "2")
    assert [problem.code for problem in result.problems] == [Code.ENGINE_CRASH]
    assert sum(prompt_id.rpartition("/")[2].startswith("p0002") for prompt_id in engine.prompt_ids) == 1
    assert again.status == "success"


async def test_incidents_of_the_engine_are_reported_by_the_jobs_they_happened_in(
    reader: Reader, fields: dict[str, Any], tmp_path: Path
) -> None:
    """A non-fatal failure of the engine is a warning in the result of the job in which it happened, and in no other."""

    class IncidentEngine(ScriptedEngine):
        def __init__(self) -> None:
            super().__init__()
            self.incidents: list[Incident] = []

        async def generate(self, prompt: Prompt) -> Completion:
            if prompt.id.endswith("3"):
                self.incidents.append(Incident(Code.ENGINE_MEMORY, "it reads 4 prompts at once now"))
            return await super().generate(prompt)

    engine = IncidentEngine()
    first = await reader.run(engine=engine, **fields)
    second = await reader.run(engine=engine, resume=False, pages="1-2", **fields)

    assert first.status == "success"
    assert [(problem.code, problem.severity, problem.message) for problem in first.problems] == [
        (Code.ENGINE_MEMORY, "warning", "it reads 4 prompts at once now")
    ]
    assert second.problems == ()
    stored = json.loads(next(tmp_path.rglob("jobs/job/result.json")).read_text())
    assert stored["status"] == "success"


# ---- transient failures -----------------------------------------------------------------------------


async def test_a_lost_page_that_another_worker_has_read_is_not_missing(
    reader: Reader, page_pool: PagePool, buffers: PixelBufferPool, tmp_path: Path
) -> None:
    """Before the document is assembled, a page lost to a crash is loaded again, because another worker may have it."""
    (tmp_path / "a.pdf").write_bytes(make_drawings_pdf(4))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    other = Reader(page_pool, buffers, CpuEngine(2))

    class MeanwhileEngine(EmptyAnswerEngine):
        """While it reads page 4, another worker reads page 2."""

        async def generate(self, prompt: Prompt) -> Completion:
            if prompt.id.rpartition("/")[2].startswith("p0004"):  # it has lost page 2 already
                await other.run(engine=ScriptedEngine(), job_id="other", slice="2", **fields)
            return await super().generate(prompt)

    result = await reader.run(1, MeanwhileEngine(2, finish_reason="crash"), **fields)

    assert (result.status, result.documents[0].pages) == ("success", {"read": 4})


# ---- two workers on one document --------------------------------------------------------------------


async def test_two_workers_that_start_together_share_a_document(
    reader: Reader, page_pool: PagePool, buffers: PixelBufferPool, tmp_path: Path
) -> None:
    """Workers that begin together start at different pages and meet late, so that few pages are read twice."""
    (tmp_path / "a.pdf").write_bytes(make_chapter_pdf(40))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    engines = [ScriptedEngine(delay=lambda prompt: 0.2) for _ in range(2)]
    other = Reader(page_pool, buffers, CpuEngine(2), pick_start=lambda count: count // 3)

    results = await asyncio.gather(
        reader.run(2, engines[0], job_id="one", **fields), other.run(2, engines[1], job_id="two", **fields)
    )
    await reader.run(engine=ScriptedEngine(), **{**fields, "output": f"{tmp_path}/alone"})

    assert [result.status for result in results] == ["success", "success"]
    counts = [len(engine.prompt_ids) for engine in engines]
    assert sum(counts) <= 50 and min(counts) >= 10  # 80 if both read all pages
    assert snapshot_artefacts(tmp_path / "out") == snapshot_artefacts(tmp_path / "alone")
