"""How documents end: the worker's end, what is left to read, failed pages and what a job says of them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.reader import Reader
from tests.test_pipeline import ScriptedEngine, pdf_of, stable
from twopass.document import Status
from twopass.engines.cpu.engine import CpuEngine
from twopass.engines.interface import Completion, Incident, Prompt
from twopass.errors import Code, InvalidJob
from twopass.job import Door, Job, ranges
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings
from twopass.telemetry.progress import Phase, Progress, Tracker


@pytest.fixture
def reader(page_pool: PagePool, buffers: PixelBufferPool) -> Reader:
    return Reader(page_pool, buffers, CpuEngine(2))


@pytest.fixture
def fields(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "a.pdf").write_bytes(pdf_of(6))
    return {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}


class Gated(ScriptedEngine):
    """Page 2 is answered when told to; a page's number is its prompt's last figure."""

    def __init__(self) -> None:
        super().__init__()
        self.reading, self.go_on = asyncio.Event(), asyncio.Event()

    async def generate(self, prompt: Prompt) -> Completion:
        if prompt.id.endswith("2"):
            self.reading.set()
            await self.go_on.wait()
        return await super().generate(prompt)


async def test_a_worker_told_to_stop_finishes_what_it_reads_and_begins_nothing(
    reader: Reader, fields: dict[str, Any], tmp_path: Path
) -> None:
    """Page 2 is under way and is stored; pages 3 to 6 are left, the result says so, and no manifest lies there."""
    engine = Gated()
    work = asyncio.create_task(reader.run(1, engine, **fields))
    await engine.reading.wait()
    reader.closing.announce(30)
    engine.go_on.set()

    result = await work

    document = result.documents[0]
    assert (document.status, document.pages, document.left) == ("partial_success", {"read": 2, "unread": 4}, "3-6")
    assert [(told.code, told.message) for told in result.problems] == [
        (Code.SHUTDOWN, "pages 3-6: the worker was told to stop; send the same job again to go on")
    ]
    assert sorted(path.name for path in tmp_path.rglob("pages/*")) == ["0001.json", "0002.json"]
    assert not list(tmp_path.rglob("manifest.json"))


async def test_what_a_stopped_worker_left_makes_the_same_document(
    reader: Reader, page_pool: PagePool, buffers: PixelBufferPool, fields: dict[str, Any], tmp_path: Path
) -> None:
    """The next worker asks about the pages that are left, and writes an undisturbed run's bytes."""
    engine = Gated()
    work = asyncio.create_task(reader.run(1, engine, **fields))
    await engine.reading.wait()
    reader.closing.announce(0.05)  # too short for page 2
    await work
    second = ScriptedEngine()

    await Reader(page_pool, buffers, CpuEngine(2)).run(engine=second, **fields)
    await Reader(page_pool, buffers, CpuEngine(2)).run(
        engine=ScriptedEngine(), **{**fields, "output": f"{tmp_path}/alone"}
    )

    assert sorted(prompt[-1] for prompt in second.asked) == ["2", "3", "4", "5", "6"]
    assert stable(tmp_path / "out") == stable(tmp_path / "alone")


async def test_a_job_that_comes_to_a_closing_worker_is_told_at_once(reader: Reader, fields: dict[str, Any]) -> None:
    """Nothing is fetched for it; its caller reads what to do."""
    reader.closing.announce(30)

    answer = (await reader.run(**fields)).as_answer()

    assert answer["error"] == "SHUTDOWN: the worker was told to stop; send the same job again to go on"


async def test_pages_that_lie_there_are_taken_before_others_are_read(reader: Reader, fields: dict[str, Any]) -> None:
    """A deadline while page 1 is read costs none of the pages that another worker stored."""
    await reader.run(engine=ScriptedEngine(), slice="4-6", **fields)
    slow = ScriptedEngine(delay=lambda prompt: 60.0)

    cut = await reader.run(1, slow, deadline_s=2, **fields)

    assert (cut.documents[0].pages, cut.documents[0].left) == ({"read": 3, "unread": 3}, "1-3")


async def test_a_finished_document_has_nothing_left(reader: Reader, fields: dict[str, Any]) -> None:
    """Neither now nor when the same job comes again."""
    for _ in range(2):
        document = (await reader.run(engine=ScriptedEngine(), **fields)).documents[0]
        assert (document.left, document.failed) == (None, None)


async def test_a_document_that_cannot_be_written_in_time_says_so(
    reader: Reader, page_pool: PagePool, buffers: PixelBufferPool, fields: dict[str, Any]
) -> None:
    """All pages are read and stored when the grace is over: the next job writes the document and reads nothing."""

    def now(progress: Progress) -> None:
        if progress.phase is Phase.ASSEMBLING:
            reader.closing.announce(0)

    first = await reader.run(engine=ScriptedEngine(), progress=Tracker(now), **fields)
    asked = ScriptedEngine()
    second = await Reader(page_pool, buffers, CpuEngine(2)).run(engine=asked, **fields)

    assert (first.status, first.documents[0].pages) == ("partial_success", {"read": 6})
    assert first.problems[-1].message.startswith("the pages are read, the document is not written")
    assert (second.status, asked.asked) == ("success", [])


def test_pages_are_told_as_ranges() -> None:
    """As `pages` and `slice` take them."""
    assert ranges([]) is None
    assert ranges([3]) == "3"
    assert ranges([1, 2, 3, 5, 8, 9]) == "1-3,5,8-9"


# ---- failed pages ---------------------------------------------------------------------------------


class Silent(ScriptedEngine):
    """Has nothing to say about these pages of drawings; counts how often it was asked."""

    def __init__(self, *pages: int, reason: str = "stop") -> None:
        super().__init__()
        self._pages, self._reason = tuple(f"p{page:04d}" for page in pages), reason

    async def generate(self, prompt: Prompt) -> Completion:
        answer = await super().generate(prompt)
        name = prompt.id.rpartition("/")[2]
        return Completion("", self._reason) if name.startswith(self._pages) else answer


def drawings(count: int) -> bytes:
    """Pages with ink and no text, so that no text layer steps in."""
    import pymupdf

    with pymupdf.open() as pdf:
        for number in range(count):
            pdf.new_page().draw_rect((100, 400, 300, 500 + number), fill=(0.2, 0.5, 0.5))
        return bytes(pdf.tobytes())


@pytest.mark.parametrize(
    ("failed_pages", "status"),
    [
        ({}, "partial_success"),
        ({"partial_success": 3}, "success"),
        ({"partial_success": "50%"}, "success"),
        ({"partial_success": "20%"}, "partial_success"),
        ({"failure": 3}, "partial_success"),
        ({"failure": 2}, "failure"),
        ({"failure": "20%"}, "failure"),
    ],
)
async def test_a_policy_says_how_many_failed_pages_a_success_may_have(
    reader: Reader, tmp_path: Path, failed_pages: dict[str, Any], status: Status
) -> None:
    """Two of ten pages failed; whatever the policy calls that, what was read lies there and failed pages are named."""
    (tmp_path / "a.pdf").write_bytes(drawings(10))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out", "failed_pages": failed_pages}

    for _ in range(2):  # read, and repeated from the manifest
        document = (await reader.run(engine=Silent(4, 9), **fields)).documents[0]
        assert (document.status, document.failed) == (status, "4,9")
        assert set(document.artefacts) == {"document.json", "document.md"}


async def test_a_repeated_job_may_have_another_policy(reader: Reader, tmp_path: Path) -> None:
    """It is no part of the document's identity: nothing is read again for it."""
    (tmp_path / "a.pdf").write_bytes(drawings(4))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    first = (await reader.run(engine=Silent(2), **fields)).documents[0]
    asked = Silent()

    again = (await reader.run(engine=asked, failed_pages={"partial_success": 2}, **fields)).documents[0]

    assert (first.status, again.status, again.id, asked.asked) == ("partial_success", "success", first.id, [])


@pytest.mark.parametrize("wrong", [{"failure": 0}, {"failure": "many"}, {"partial_success": "101%"}, {"other": 1}])
def test_a_policy_that_says_nothing_is_refused(wrong: dict[str, Any]) -> None:
    """The error names the field."""
    with pytest.raises(InvalidJob, match=r"failed_pages\."):
        Job.parse({"input": {"source": "a.pdf", "failed_pages": wrong}}, Settings(), Door.LOCAL)


# ---- engines that die -----------------------------------------------------------------------------


async def test_a_page_that_kills_engines_fails_and_is_tried_again_by_the_next_job(
    reader: Reader, tmp_path: Path
) -> None:
    """It is asked about once, takes no rung of the ladder, and is never stored; the others make a document."""
    (tmp_path / "a.pdf").write_bytes(drawings(3))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    engine = Silent(2, reason="crash")

    result = await reader.run(engine=engine, **fields)
    again = await reader.run(engine=ScriptedEngine(), **fields)

    assert (result.documents[0].status, result.documents[0].failed) == ("partial_success", "2")
    assert [told.code for told in result.problems] == [Code.ENGINE_CRASH]
    assert sum(name.rpartition("/")[2].startswith("p0002") for name in engine.asked) == 1
    assert again.status == "success"


async def test_what_befell_an_engine_is_told_by_the_jobs_of_that_time(
    reader: Reader, fields: dict[str, Any], tmp_path: Path
) -> None:
    """A restart costs nothing and is no secret; the next job knows nothing of it."""

    class Unwell(ScriptedEngine):
        def __init__(self) -> None:
            super().__init__()
            self.incidents: list[Incident] = []

        async def generate(self, prompt: Prompt) -> Completion:
            if prompt.id.endswith("3"):
                self.incidents.append(Incident(Code.ENGINE_MEMORY, "it reads 4 prompts at once now"))
            return await super().generate(prompt)

    engine = Unwell()
    first = await reader.run(engine=engine, **fields)
    second = await reader.run(engine=engine, resume=False, pages="1-2", **fields)

    assert first.status == "success"
    assert [(told.code, told.severity, told.message) for told in first.problems] == [
        (Code.ENGINE_MEMORY, "warning", "it reads 4 prompts at once now")
    ]
    assert second.problems == ()
    stored = json.loads(next(tmp_path.rglob("jobs/job/result.json")).read_text())
    assert stored["status"] == "success"


# ---- accidents --------------------------------------------------------------------------------------


async def test_a_page_that_another_worker_read_meanwhile_is_no_loss(
    reader: Reader, page_pool: PagePool, buffers: PixelBufferPool, tmp_path: Path
) -> None:
    """Ours was lost to an accident; when all pages are there it is looked for again, and the document is whole."""
    (tmp_path / "a.pdf").write_bytes(drawings(4))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    other = Reader(page_pool, buffers, CpuEngine(2))

    class Late(Silent):
        async def generate(self, prompt: Prompt) -> Completion:
            if prompt.id.rpartition("/")[2].startswith("p0004"):  # page 2 is lost by now
                await other.run(engine=ScriptedEngine(), job_id="other", slice="2", **fields)
            return await super().generate(prompt)

    result = await reader.run(1, Late(2, reason="crash"), **fields)

    assert (result.status, result.documents[0].pages) == ("success", {"read": 4})


# ---- two workers on one document --------------------------------------------------------------------


async def test_two_workers_that_begin_together_share_a_document(
    reader: Reader, page_pool: PagePool, buffers: PixelBufferPool, tmp_path: Path
) -> None:
    """Who meets the other goes on elsewhere: together they ask about few pages twice, and write one document."""
    (tmp_path / "a.pdf").write_bytes(pdf_of(40))
    fields = {"source": f"{tmp_path}/a.pdf", "output": f"{tmp_path}/out"}
    engines = [ScriptedEngine(delay=lambda prompt: 0.2) for _ in range(2)]
    other = Reader(page_pool, buffers, CpuEngine(2))

    results = await asyncio.gather(
        reader.run(2, engines[0], job_id="one", **fields), other.run(2, engines[1], job_id="two", **fields)
    )
    await reader.run(engine=ScriptedEngine(), **{**fields, "output": f"{tmp_path}/alone"})

    assert [result.status for result in results] == ["success", "success"]
    asked = [len(engine.asked) for engine in engines]
    assert sum(asked) <= 56 and min(asked) >= 10  # 80 if they went side by side
    assert stable(tmp_path / "out") == stable(tmp_path / "alone")
