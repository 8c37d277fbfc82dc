"""Pages and files that take far more time than others: they are read as far as possible, and within their limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pymupdf
import pytest

from tests.fakes import hostile
from tests.fakes.page_pool import CrashingPagePool, TimingOutPagePool
from tests.fakes.reader import Reader
from tests.fakes.source_files import SENTENCE, make_pdf
from twopass.document import Confidence, ConfidenceMethod, Document, State, Status
from twopass.engines.cpu.engine import CpuEngine
from twopass.errors import Code
from twopass.formats import docjson
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.result import Result
from twopass.runtime.cpu_budget import limit_cpu_time
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings
from twopass.steps import render

LIMIT_S = 8.0  # of processor time, per page
RESERVE_S = 10.0  # beyond it, for the text layer alone
TOLERANCE_S = 3.0  # the limit is checked four times a second; loading a library takes longer


@pytest.fixture(scope="module")
async def page_pool(buffers: PixelBufferPool) -> AsyncIterator[PagePool]:
    """One page worker; a call is slow after a second."""
    page_pool = PagePool(1, buffers, timeout_s=LIMIT_S, slow_call_s=1.0)
    await page_pool.open()
    yield page_pool
    await page_pool.close()


@pytest.fixture
async def reader(page_pool: PagePool, buffers: PixelBufferPool) -> Reader:
    engine = CpuEngine(1)
    return Reader(page_pool, buffers, engine, Settings(worker_timeout_s=LIMIT_S))


async def read(reader: Reader, folder: Path, data: bytes) -> tuple[Result, Document]:
    (folder / "a.pdf").write_bytes(data)
    result = await reader.run(source=f"{folder}/a.pdf", output=f"{folder}/out", formats=["docjson", "markdown"])
    return result, docjson.loads(next((folder / "out").rglob("document.json")).read_bytes())


def measure_cpu_time(result: Result) -> float:
    stages = result.documents[0].timings["stages"]
    return sum(float(stage["cpu_s"]) for stage in stages.values())


async def test_a_page_with_many_links_is_read_with_all_of_them(reader: Reader, tmp_path: Path) -> None:
    """4,000 links are read in the time of a page: `get_links` would take many times as long."""
    result, document = await read(reader, tmp_path, hostile.build_links(4_000))

    assert (result.status, result.problems) == (Status.SUCCESS, ())
    assert len(document.pages[0].links) == 4_000
    assert document.elements[0].text == hostile.SENTENCE


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the limit may end Hypothesis's GC hook
def test_links_that_take_too_long_are_left_out() -> None:
    """The links that were read within the limit are kept, and the caller learns that some are missing."""
    with pymupdf.open(stream=hostile.build_links(20_000)) as pdf:
        links, _, is_complete = render.read_annotations(pdf[0], 0.05)

    assert len(links) < 20_000 and not is_complete


async def test_a_plot_with_many_points_is_read_without_the_layout_model(reader: Reader, tmp_path: Path) -> None:
    """The layout model takes 20 s for 2,000 scattered squares: their page is read as a dense one, with a warning."""
    result, document = await read(reader, tmp_path, hostile.build_squares(2_000))

    assert document.pages[0].state is State.READ
    assert document.elements[0].text == hostile.SENTENCE
    assert [problem.code for problem in result.problems] == [Code.DENSE_PAGE]
    assert measure_cpu_time(result) < LIMIT_S


async def test_a_page_stopped_in_the_layout_model_is_read_without_it(reader: Reader, tmp_path: Path) -> None:
    """If the layout model uses up its share of a page's time, the page is read again without it, not failed."""
    slow = replace(reader, page_pool=TimingOutPagePool(reader.page_pool, "read_page"))
    result, document = await read(slow, tmp_path, make_pdf(lambda page: page.insert_text((72, 72), SENTENCE)))

    assert document.pages[0].state is State.READ
    assert document.elements[0].text == SENTENCE
    assert [problem.code for problem in result.problems] == [Code.DENSE_PAGE]


def build_cells(rows: int, columns: int) -> bytes:
    """A table of separately filled cells with gaps between them."""

    def draw(page: pymupdf.Page) -> None:
        shape = page.new_shape()
        for number in range(rows * columns):
            x, y = 40 + number % columns * 64, 60 + number // columns * 12
            shape.draw_rect((x, y, x + 61, y + 9))
            shape.finish(fill=(0.9, 0.9, 0.9), color=None)
            page.insert_text((x + 2, y + 7), f"{number}", fontsize=6)
        shape.commit(overlay=False)

    return make_pdf(draw)


async def test_a_table_of_many_filled_cells_is_not_taken_for_a_plot(reader: Reader, tmp_path: Path) -> None:
    """480 cells that do not touch each other are aligned: the layout model reads their page, and finds the table."""
    result, document = await read(reader, tmp_path, build_cells(60, 8))

    assert result.problems == ()
    assert "table" in {element.kind for element in document.elements}


async def test_a_page_that_crashes_the_layout_model_is_read_without_it(reader: Reader, tmp_path: Path) -> None:
    """A page that kills its page worker in the layout model is read without it at once."""
    crashing = replace(reader, page_pool=CrashingPagePool(reader.page_pool, read_page=1))
    _, document = await read(crashing, tmp_path, make_pdf(lambda page: page.insert_text((72, 72), SENTENCE)))

    assert document.pages[0].state is State.READ
    assert document.elements[0].text == SENTENCE


async def test_a_pdf_without_its_header_is_read_from_its_text_layer(reader: Reader, tmp_path: Path) -> None:
    """A PDF without `%PDF-`, which MuPDF repairs, is not taken for an image."""
    data = make_pdf(lambda page: page.insert_text((72, 72), SENTENCE))
    without_header = data.replace(b"%PDF-", b"")
    _, document = await read(reader, tmp_path, without_header)

    assert without_header != data
    assert document.elements[0].confidence == Confidence(score=0.98, method=ConfidenceMethod.CHECKED_LAYER)


async def test_a_page_without_annotations_has_all_its_time_for_rendering(reader: Reader, tmp_path: Path) -> None:
    """A page without annotations is not rendered again when its time is over: nothing would be different."""
    slow = replace(reader, page_pool=TimingOutPagePool(reader.page_pool, "draw_pdf"))
    _, document = await read(slow, tmp_path, make_pdf(lambda page: page.insert_text((72, 72), SENTENCE)))

    assert (document.pages[0].state, document.pages[0].image) == (State.TEXT_LAYER, None)


async def test_a_page_that_no_engine_call_can_read_has_its_text_layer(reader: Reader, tmp_path: Path) -> None:
    """If the page cannot be read without the layout model either, its text layer is used before it is failed."""
    slow = replace(reader, page_pool=TimingOutPagePool(reader.page_pool, "read_page", "read_page_simply"))
    result, document = await read(slow, tmp_path, make_pdf(lambda page: page.insert_text((72, 72), SENTENCE)))

    assert document.pages[0].state is State.TEXT_LAYER
    assert document.elements[0].text == SENTENCE
    assert [problem.code for problem in result.problems] == [Code.RENDER_TIMEOUT]


async def test_a_page_that_takes_too_long_to_render_is_rendered_without_annotations(
    reader: Reader, tmp_path: Path
) -> None:
    """If rendering uses up half of a page's time, the page is rendered without annotations, and a warning says so."""
    slow = replace(reader, page_pool=TimingOutPagePool(reader.page_pool, "draw_pdf"))
    result, document = await read(slow, tmp_path, hostile.build_links(3))

    assert document.pages[0].state is State.READ
    assert (document.pages[0].image is not None, document.pages[0].links) == (True, ())
    assert [problem.code for problem in result.problems] == [Code.PARTS_OMITTED]


async def test_a_page_that_cannot_be_rendered_in_time_has_its_text_layer(reader: Reader, tmp_path: Path) -> None:
    """If a page cannot be rendered within its time at all, its text layer is read in a reserve of time."""
    slow = replace(reader, page_pool=TimingOutPagePool(reader.page_pool, "draw_pdf", "draw_bare_pdf"))
    result, document = await read(slow, tmp_path, hostile.build_links(3))

    assert (document.pages[0].state, document.pages[0].image) == (State.TEXT_LAYER, None)
    assert document.elements[0].text == hostile.SENTENCE
    assert [problem.code for problem in result.problems] == [Code.RENDER_TIMEOUT]


@pytest.mark.parametrize("key", [b"Parent", b"Kids"])
async def test_a_page_with_a_damaged_form_field_is_read(reader: Reader, tmp_path: Path, key: bytes) -> None:
    """A form field that breaks MuPDF, or on which it never returns, costs the annotations and not the page."""
    result, document = await read(reader, tmp_path, hostile.build_cyclic_widget(key))

    assert document.pages[0].state is State.READ
    assert document.elements[0].text == hostile.SENTENCE
    assert Code.PARTS_OMITTED in {problem.code for problem in result.problems}
    assert Code.DAMAGED not in {problem.code for problem in result.problems}
    assert measure_cpu_time(result) < LIMIT_S + RESERVE_S + TOLERANCE_S


async def test_a_decompression_bomb_is_refused_within_one_limit(reader: Reader, tmp_path: Path) -> None:
    """A small file that expands to 3 GB is refused after one limit of processor time, not one per attempt."""
    (tmp_path / "a.pdf").write_bytes(hostile.build_bomb(3 << 30))
    impatient = replace(reader, settings=Settings(worker_timeout_s=2.0))

    with limit_cpu_time(1000.0) as budget:
        result = await impatient.run(source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/out")

    assert result.status is Status.FAILURE
    assert result.problems[0].code is Code.RENDER_TIMEOUT
    assert "WORKER_TIMEOUT_S" in result.problems[0].message
    assert 1000.0 - budget.remaining_s < 2.0 + 1.0


async def test_other_documents_are_read_beside_a_hung_one(buffers: PixelBufferPool, tmp_path: Path) -> None:
    """With one page worker and one page slot, a hung page holds up the documents behind it only until it is slow."""
    (tmp_path / "hung.pdf").write_bytes(hostile.build_cyclic_widget(b"Kids"))
    for number in range(2):
        text = f"Page {number} of the water works."
        pdf = make_pdf(lambda page, text=text: page.insert_text((72, 72), text))
        (tmp_path / f"quick-{number}.pdf").write_bytes(pdf)
    names = ["hung.pdf", *(f"quick-{number}.pdf" for number in range(2))]
    page_pool = PagePool(1, buffers, timeout_s=600.0, slow_call_s=1.0)
    await page_pool.open()
    reader = Reader(page_pool, buffers, CpuEngine(1), Settings(worker_timeout_s=600.0))

    job = asyncio.create_task(reader.run(1, sources=[f"{tmp_path}/{name}" for name in names], output=f"{tmp_path}/out"))
    async with asyncio.timeout(120):
        while len(list((tmp_path / "out").rglob("manifest.json"))) < 2:
            await asyncio.sleep(0.1)

    assert not list((tmp_path / "out").glob("hung*/manifest.json")) and not job.done()
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    await page_pool.close()
