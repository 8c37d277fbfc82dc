"""The format `pdf`: a scan whose words can be found at their places, with what an engine knows of them."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import pymupdf
import pytest
from typer.testing import CliRunner

from tests.fakes import recorded
from tests.fakes.page_pool import CrashingPagePool
from tests.fakes.reader import Reader
from twopass.cli.app import app
from twopass.document import Status
from twopass.engines.cpu.engine import CpuEngine
from twopass.errors import Code
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.result import Result
from twopass.runtime.page_pool import PagePool

Words = list[tuple[str, pymupdf.Rect]]


@pytest.fixture(scope="module")
def reader(page_pool: PagePool, buffers: PixelBufferPool) -> Reader:
    return Reader(page_pool, buffers, CpuEngine(2))


@pytest.fixture(scope="module")
async def made(reader: Reader, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the report, whose first page is a scan, and with what was read of it."""
    folder = tmp_path_factory.mktemp("searchable")
    save_scan(folder)
    await read(reader, folder, "docjson")
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """The same in a place that a test may change."""
    return Path(shutil.copytree(made, tmp_path / "copy"))


def list_words(page: pymupdf.Page) -> Words:
    return [(word[4], pymupdf.Rect(word[:4])) for word in page.get_text("words")]


def save_scan(folder: Path) -> None:
    with pymupdf.open(stream=recorded.report()) as drawn, pymupdf.open() as pdf:
        pixels = drawn[0].get_pixmap(dpi=150)
        pdf.new_page(width=recorded.WIDTH, height=recorded.HEIGHT).insert_image(drawn[0].rect, pixmap=pixels)
        pdf.insert_pdf(drawn, from_page=1)
        pdf.save(folder / "report.pdf")


def list_drawn_words() -> Words:
    """Words of the first page as it was drawn, but for those that the model writes otherwise."""
    formula, doubted = pymupdf.Rect(recorded.FORMULA_AT), pymupdf.Rect(recorded.DOUBTED_AT)
    with pymupdf.open(stream=recorded.report()) as drawn:
        return [word for word in list_words(drawn[0]) if not word[1].intersects(formula | doubted)]


def measure_share(found: Words, truth: Words) -> float:
    """The share of words of which half of the true box is in their own one."""
    near = [any(text == one and abs(box & rect) >= abs(box) / 2 for one, rect in found) for text, box in truth]
    return sum(near) / len(near)


async def read(reader: Reader, folder: Path, name: str = "pdf") -> Result:
    """Read the report, or write one more format of what was read."""
    source = folder / "report.pdf"
    engine = recorded.RecordingEngine(hashlib.sha256(source.read_bytes()).hexdigest()[:12])
    return await reader.run(1, engine, source=str(source), output=f"{folder}/out", formats=[name])


def open_result(folder: Path) -> pymupdf.Document:
    return pymupdf.open(next((folder / "out").rglob("document.pdf")))


async def test_words_of_a_model_that_knows_only_boxes(reader: Reader, folder: Path) -> None:
    """Words of headings, paragraphs, captions and cells are at their places, in reading order."""
    await read(reader, folder)

    with open_result(folder) as pdf:
        found = list_words(pdf[0])
    assert measure_share(found, list_drawn_words()) == 1.0
    assert [text for text, _ in found][:5] == ["Water", "in", "the", "Hills", "1"]


async def test_pages_with_text_and_pages_that_failed_stay(reader: Reader, folder: Path) -> None:
    """Each word of a text layer is there once, and a page that was not read has no text."""
    await read(reader, folder)

    with pymupdf.open(folder / "report.pdf") as source, open_result(folder) as pdf:
        before, after = [page.get_text() for page in source], [page.get_text() for page in pdf]
    assert after[1:] == before[1:] and before[1] and not before[3]


async def test_a_page_whose_words_cannot_be_placed_is_reported(reader: Reader, folder: Path) -> None:
    """The page stays as it was."""
    result = await read(replace(reader, page_pool=CrashingPagePool(reader.page_pool, place=2)), folder)

    with open_result(folder) as pdf:
        assert pdf[0].get_text() == ""
    lost = [problem for problem in result.problems if "document.pdf" in problem.message]
    assert [(problem.code, problem.page) for problem in lost] == [(Code.RENDER_CRASH, 1)]
    assert result.documents[0].status is Status.PARTIAL_SUCCESS
    assert [problem.page for problem in result.problems if problem.code is Code.FORMAT_LOST] == [1]


async def test_a_pdf_that_cannot_be_written_is_reported(reader: Reader, folder: Path) -> None:
    """The document has its other formats, and no artefact that is not there."""
    result = await read(replace(reader, page_pool=CrashingPagePool(reader.page_pool, write=2)), folder)

    assert set(result.documents[0].artefacts) == {"document.json"}
    assert any("document.pdf is not written" in problem.message for problem in result.problems)
    assert result.documents[0].status is Status.PARTIAL_SUCCESS


def test_a_folder_of_scans_becomes_searchable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the command of docs/formats.md: OCR knows where words stand on an image."""
    save_scan(tmp_path)
    (tmp_path / "scans").mkdir()
    with pymupdf.open(tmp_path / "report.pdf") as pdf:
        pdf[0].get_pixmap(dpi=150).save(tmp_path / "scans" / "scan.png")
    monkeypatch.chdir(tmp_path)

    done = CliRunner().invoke(app, ["read", "scans/", "--formats", "pdf", "--output", "searchable"])

    with pymupdf.open(next((tmp_path / "searchable").glob("scan-*/document.pdf"))) as pdf:
        zoom = pymupdf.Matrix(pdf[0].rect.width / recorded.WIDTH, pdf[0].rect.height / recorded.HEIGHT)
        truth = [(text, box * zoom) for text, box in list_drawn_words()]
        assert done.exit_code == 0 and measure_share(list_words(pdf[0]), truth) >= 0.95


async def test_the_archive_has_it(reader: Reader, folder: Path) -> None:
    """The same bytes, also of a document that was finished before."""
    await read(reader, folder)
    await read(reader, folder, "zip")

    shutil.unpack_archive(next((folder / "out").rglob("document.zip")), folder / "zip")
    assert (folder / "zip" / "document.pdf").read_bytes() == next((folder / "out").rglob("document.pdf")).read_bytes()
