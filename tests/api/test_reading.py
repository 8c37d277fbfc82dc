"""`read` and `read_pages`: documents are read in the caller's process, whole or page by page."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path
from typing import Any

import pymupdf
import pytest

from tests.fakes import s3
from tests.fakes.scripted import OpeningEngine
from twopass import Document, Job, Settings, read, read_pages
from twopass.api.reading import ReadOptions, parse_job, read_from_loop
from twopass.document import Kind
from twopass.engines import factory
from twopass.errors import Code, EngineError, InvalidJob, InvalidSetting, SourceError, TwopassError
from twopass.telemetry.progress import Tracker

SETTINGS = Settings(page_workers=1)  # one worker for all tests of this file
OF_THE_PLATFORM = {"id", "entry_point", "queued_s", "upload", "idempotency_key"}
OF_MANY_JOBS = {"sources", "output", "inline", "slice"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a PDF of three pages."""
    monkeypatch.chdir(tmp_path)
    with pymupdf.open() as pdf:
        for number in (1, 2, 3):
            page = pdf.new_page()
            page.insert_text((72, 90), f"Chapter {number}", fontsize=20, fontname="hebo")
            page.insert_text((72, 140), f"It lifts water to tower {number}.", fontsize=11)
        pdf.save(tmp_path / "file.pdf")
    return tmp_path


def test_a_document_has_its_text_and_leaves_nothing_behind(folder: Path) -> None:
    """The document has elements and markdown, and no file was written."""
    document = read("file.pdf", settings=SETTINGS)

    assert (document.status, document.problems) == ("success", ())
    assert [e.text for e in document.elements if e.kind is Kind.TEXT] == [
        f"It lifts water to tower {number}." for number in (1, 2, 3)
    ]
    assert "It lifts water to tower 3." in document.markdown
    assert [path.name for path in folder.iterdir()] == ["file.pdf"]


def test_a_default_bucket_is_not_written() -> None:
    """BUCKET_NAME is where a worker's artefacts go; a program's document goes nowhere without `output`."""
    assert parse_job("file.pdf", None, {}, Settings(bucket_name="bucket")).output is None


def test_a_path_and_the_bytes_of_the_file_are_the_same_document(folder: Path) -> None:
    """A path object and bytes are sources, too; only the recorded name differs."""
    by_name, by_path = (read(source, pages="1", settings=SETTINGS) for source in ("file.pdf", Path("file.pdf")))
    by_content = read((folder / "file.pdf").read_bytes(), pages="1", settings=SETTINGS)

    assert by_name == by_path
    assert by_content.markdown == by_name.markdown
    assert by_content.source.sha256 == by_name.source.sha256


def test_a_document_on_s3_is_read(folder: Path, bucket: Any, endpoint: str) -> None:
    """An s3:// address with keys of its own is a source."""
    bucket.upload_file("file.pdf", "bucket", "in/file.pdf")
    settings = Settings(page_workers=1, allow_private_sources=True)

    document = read(
        "s3://bucket/in/file.pdf", pages="2", settings=settings,
        s3={"access_key_id": s3.KEY, "secret_access_key": s3.SECRET, "endpoint_url": endpoint, "region": "us-east-1"},
    )  # fmt: skip

    assert "tower 2" in document.markdown and document.source.uri == "s3://bucket/in/file.pdf"


async def test_reading_works_inside_a_running_event_loop(folder: Path) -> None:
    """As in Jupyter, where every cell runs on an event loop."""
    assert asyncio.get_running_loop().is_running()
    assert "tower 1" in read("file.pdf", pages="1", settings=SETTINGS).markdown
    assert [page.pages[0].number for page in read_pages("file.pdf", pages="2", settings=SETTINGS)] == [2]


def test_every_page_is_yielded_as_a_document_of_its_own(folder: Path) -> None:
    """Each page has its number, its elements and its markdown."""
    pages = {page.pages[0].number: page for page in read_pages("file.pdf", settings=SETTINGS)}

    assert sorted(pages) == [1, 2, 3]
    assert all(len(page.pages) == 1 and page.status == "success" for page in pages.values())
    assert "tower 2" in pages[2].markdown and "tower 3" not in pages[2].markdown
    assert pages[2].artefacts["document.md"].decode() == pages[2].markdown


def test_a_page_comes_before_the_others_are_read(folder: Path) -> None:
    """Leaving the loop after the first page stops the reading: the document is never written."""
    with pymupdf.open() as pdf:
        for number in range(300):
            pdf.new_page().insert_text((72, 90), f"Page {number}")
        pdf.save("long.pdf")
    pages = read_pages("long.pdf", output="out", settings=SETTINGS)
    next(pages)
    pages.close()  # type: ignore[attr-defined]

    assert list((folder / "out").rglob("pages/*.json"))
    assert not list((folder / "out").rglob("manifest.json"))


def test_pages_can_be_read_again_after_a_loop_was_left(folder: Path) -> None:
    """An abandoned loop leaves the engine usable."""
    for _ in read_pages("file.pdf", settings=SETTINGS):
        break

    assert read("file.pdf", pages="3", settings=SETTINGS).status == "success"


def test_an_output_keeps_the_files_and_what_was_read(folder: Path) -> None:
    """The second call returns the same document and writes nothing again; formats can be added."""
    first = read("file.pdf", output="out", settings=SETTINGS)
    written = {path: path.stat().st_mtime_ns for path in (folder / "out" / first.id).rglob("*.*")}
    second = read("file.pdf", output=Path("out"), settings=SETTINGS)
    more = read("file.pdf", output="out", formats=["chunks"], settings=SETTINGS)

    assert (folder / "out" / first.id / "document.md").read_text() == first.markdown
    assert (second, second.artefacts) == (first, first.artefacts)
    assert {path for path in written if path.name == "0001.json"}
    assert all(path.stat().st_mtime_ns == written[path] for path in written if path.parent.name == "pages")
    assert {"chunks.jsonl", "document.md"} <= set(more.artefacts)
    assert [path.name for path in (folder / "out").iterdir()] == [first.id]


def test_a_saved_document_has_its_pictures(sample: Path, tmp_path: Path) -> None:
    """`save` writes the markdown and the crops that it links to."""
    document = read(sample, pages="6-7", formats=["markdown", "review"], settings=SETTINGS)
    document.save(tmp_path / "new" / "folder")

    saved = {str(path.relative_to(tmp_path / "new" / "folder")) for path in tmp_path.rglob("*.*")}
    crops = {element.image for element in document.elements if element.image}
    assert crops and saved == {"document.json", "document.md", "review.html", *crops}
    assert any(f"({crop})" in document.markdown for crop in crops)


def test_a_stored_document_is_loaded_with_its_markdown(folder: Path) -> None:
    """DocJSON alone is enough for the markdown, and a document can be pickled."""
    document = read("file.pdf", pages="1", settings=SETTINGS)

    loaded = Document.model_validate_json(document.artefacts["document.json"])
    assert (loaded.elements, loaded.markdown) == (document.elements, document.markdown)
    assert pickle.loads(pickle.dumps(document)).artefacts == document.artefacts


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("missing.pdf", Code.SOURCE_NOT_FOUND),
        (".", Code.SOURCE_NOT_FOUND),
        (b"", Code.DAMAGED),
        (b"no document", Code.SOURCE_UNSUPPORTED),
    ],
)
def test_a_source_that_is_no_document_raises_its_code(folder: Path, source: str | bytes, code: Code) -> None:
    """The exception is a SourceError with the code that a job's result would have."""
    with pytest.raises(SourceError) as raised:
        read(source, settings=SETTINGS)
    with pytest.raises(SourceError):
        list(read_pages(source, settings=SETTINGS))

    assert raised.value.code is code


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"pages": "five"}, "pages"),
        ({"formats": ["docx"]}, "formats"),
        ({"colour": 1}, "colour"),
        ({"slice": "1"}, "slice"),
        ({"inline": ["markdown"]}, "inline"),
    ],
)
def test_a_wrong_option_is_named_before_anything_is_read(options: Any, name: str) -> None:
    """Both functions check options at once, also before the first page is asked for."""
    for function in (read, read_pages):
        with pytest.raises(InvalidJob, match=rf"INVALID_JOB: {name}"):
            function("missing.pdf", settings=SETTINGS, **options)


def test_a_document_that_is_not_finished_is_not_in_the_output(sample: Path, tmp_path: Path) -> None:
    """When the deadline passes, there is an exception with its code, because the output has no document yet."""
    with pytest.raises(TwopassError) as raised:
        read(sample, output=tmp_path, deadline_s=0.5, settings=SETTINGS)

    assert raised.value.code is Code.DEADLINE


def test_the_options_are_the_fields_of_a_job() -> None:
    """A new field of Job is an option of `read`, unless it is for many documents or set by the platform."""
    assert set(ReadOptions.__annotations__) == set(Job.model_fields) - OF_THE_PLATFORM - OF_MANY_JOBS


def test_a_wrong_setting_of_the_environment_has_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an error of twopass, as of a worker, and names the setting."""
    monkeypatch.setenv("ENGINE", "nothing")

    with pytest.raises(InvalidSetting, match="ENGINE") as raised:
        read("any.pdf")

    assert raised.value.code is Code.INVALID_SETTING


async def test_an_engine_that_did_not_open_is_started_again_by_the_next_call(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each way to read raises its error, and the document is read once it opens."""
    broken = [OpeningEngine(lambda: True, EngineError(Code.ENGINE_DEAD, "no GPU")) for _ in range(3)]
    engines = [*broken, OpeningEngine(lambda: True)]
    monkeypatch.setattr(factory, "create_engine", lambda settings: engines.pop(0))
    settings = Settings(page_workers=1, concurrency=2)  # a worker of its own

    with pytest.raises(EngineError, match="no GPU"):
        read("file.pdf", settings=settings)
    with pytest.raises(EngineError, match="no GPU"):
        list(read_pages("file.pdf", settings=settings))
    with pytest.raises(EngineError, match="no GPU"):
        await read_from_loop("file.pdf", None, settings, {}, Tracker())
    document = await read_from_loop("file.pdf", None, settings, {}, Tracker())

    assert "tower 2" in document.markdown
    assert [engine.steps[-1] for engine in broken] == ["closed"] * 3
