"""Fetching sources: types by content, limits, passwords, and errors before any page is rendered."""

from __future__ import annotations

import base64
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pymupdf
import pytest
from PIL import Image

from tests.fakes.page_pool import CrashingPagePool
from tests.fakes.source_files import SourceReader, insert_text, make_image, make_pdf
from twopass.document import State
from twopass.errors import Code, SourceError, WorkerDied
from twopass.job import EntryPoint, Job
from twopass.steps import fetch
from twopass.storage.sources import Sources

HEIC = Path(__file__).parents[1] / "fakes" / "files" / "rectangle.heic"  # nothing that is installed can write one


@pytest.mark.parametrize(
    ("data", "mime"),
    [
        (make_pdf(insert_text), "application/pdf"),
        (b"leading rubbish\n" + make_pdf(insert_text), "application/pdf"),
        (make_image("PNG"), "image/png"),
        (make_image("JPEG"), "image/jpeg"),
        (make_image("WEBP"), "image/webp"),
        (make_image("TIFF"), "image/tiff"),
        (make_image("BMP"), "image/bmp"),
        (make_image("GIF"), "image/gif"),
        (make_image("JPEG2000"), "image/jp2"),
        (make_image("JPEG2000", no_jp2=True), "image/jp2"),
        (make_image("AVIF"), "image/avif"),
        (HEIC.read_bytes(), "image/heic"),
    ],
    ids=[
        *("pdf", "pdf-late-header", "png", "jpeg", "webp", "tiff", "bmp", "gif", "jp2", "j2k", "avif", "heic"),
    ],
)
async def test_the_type_is_detected_from_the_content(source_reader: SourceReader, data: bytes, mime: str) -> None:
    """A file's name does not matter: every supported type is read from a file called .bin and can be rendered."""
    async with source_reader.render(data) as rendered, source_reader.open(data, "b.bin") as file:
        assert file.info.mime == mime
        assert rendered.page.state is State.READ


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", Code.DAMAGED),
        (b"PK\x03\x04 a zip", Code.SOURCE_UNSUPPORTED),
        (b"%PDF-1.7 and nothing else", Code.DAMAGED),
        (make_pdf(insert_text)[:300], Code.DAMAGED),
        (make_image("PNG")[:60], Code.DAMAGED),
        (make_image("PNG", (2000, 1000)), Code.SOURCE_TOO_LARGE),
    ],
    ids=["empty", "zip", "no-objects", "truncated", "cut-png", "pixels"],
)
async def test_an_unreadable_source_is_refused_with_its_error_code(
    source_reader: SourceReader, data: bytes, code: Code
) -> None:
    """The source is refused before any page is rendered, and the next source is read."""
    with pytest.raises(SourceError) as caught:
        async with source_reader.open(data):
            pass

    assert caught.value.code is code
    async with source_reader.open(make_pdf(insert_text)) as file:
        assert file.info.page_count == 1


@pytest.mark.parametrize("lead", [b"", b"x\n" * 2000], ids=["without a header", "after other data"])
async def test_a_pdf_that_mupdf_repairs_is_read(source_reader: SourceReader, lead: bytes) -> None:
    """A PDF whose header is missing or far behind the start is opened, as MuPDF repairs it."""
    data = make_pdf(insert_text)
    damaged = lead + data if lead else data[data.index(b"\n") :]

    async with source_reader.open(damaged) as file:
        assert (file.info.mime, file.info.page_count) == ("application/pdf", 1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"<!DOCTYPE html><html><body>Log in</body></html>", "but a web page; check that its address needs no login"),
        (b"<html>Log in</html>\nstartxref\n0\n%%EOF", "is a file of another type"),
        (b"plain text", "not a PDF, PNG, JPEG, WebP, TIFF, BMP"),
    ],
)
async def test_a_file_of_another_type_is_named_as_such(source_reader: SourceReader, data: bytes, message: str) -> None:
    """The message says what is wrong with a file that is no document."""
    with pytest.raises(SourceError, match=message) as caught:
        async with source_reader.open(data):
            pass

    assert caught.value.code is Code.SOURCE_UNSUPPORTED


async def test_a_source_is_inspected_again_after_its_page_worker_died(source_reader: SourceReader) -> None:
    """One death of the page worker may be an accident; after a second one the source fails."""
    once, twice = (
        CrashingPagePool(source_reader.page_pool, inspect=1),
        CrashingPagePool(source_reader.page_pool, inspect=2),
    )

    async with replace(source_reader, page_pool=once).open(make_pdf(insert_text)) as file:
        assert file.info.page_count == 1
    with pytest.raises(WorkerDied):
        async with replace(source_reader, page_pool=twice).open(make_pdf(insert_text)):
            pass


async def test_a_source_with_too_many_pages_is_refused(source_reader: SourceReader) -> None:
    """The page limit is checked when the file is opened."""
    with pymupdf.open() as pdf:
        for _ in range(21):
            pdf.new_page()
        data = pdf.tobytes()

    with pytest.raises(SourceError, match="SOURCE_TOO_LARGE: 21 pages"):
        async with source_reader.open(data):
            pass


@pytest.mark.parametrize(("password", "outcome"), [(None, "send its password"), ("no", "is wrong"), ("open", None)])
async def test_an_encrypted_pdf_opens_with_its_password(
    source_reader: SourceReader, password: str | None, outcome: str | None
) -> None:
    """Without a password and with a wrong one, the error says which of the two it is."""
    with pymupdf.open() as pdf:
        insert_text(pdf.new_page())
        data = pdf.tobytes(encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw="open", owner_pw="own")
    fields = {"password": password} if password else {}

    if outcome:
        with pytest.raises(SourceError, match=f"ENCRYPTED.*{outcome}"):
            async with source_reader.open(data, **fields):
                pass
    else:
        async with source_reader.render(data, **fields) as rendered:
            assert rendered.words


async def test_every_page_of_a_tiff_is_a_page(source_reader: SourceReader) -> None:
    """A multi-page TIFF is a document, and its second page has its own size."""
    frames = [Image.new("L", (100, 50), 255), Image.new("1", (60, 80), 0)]
    buffer = io.BytesIO()
    frames[0].save(buffer, "TIFF", save_all=True, append_images=frames[1:])

    async with source_reader.render(buffer.getvalue(), number=2) as rendered:
        assert (rendered.pixels.width, rendered.pixels.height) == (60, 80)


async def test_the_further_frames_of_a_phones_jpeg_are_not_pages(source_reader: SourceReader) -> None:
    """They are a depth map or a preview."""
    data = make_image("MPO", save_all=True, append_images=[Image.new("RGB", (400, 200), "red")])

    async with source_reader.render(data) as rendered, source_reader.open(data, "b.bin") as file:
        assert file.info.page_count == 1
        assert rendered.pixels.array()[60, 80].max() < 60


@pytest.mark.parametrize("kind", ["WEBP", "PNG", "GIF", "AVIF"])
async def test_every_frame_of_an_animation_is_a_page(source_reader: SourceReader, kind: str) -> None:
    """Nobody knows which of them matters."""
    data = make_image(kind, save_all=True, append_images=[Image.new("RGB", (400, 200), "red")])

    async with source_reader.render(data, number=2) as rendered, source_reader.open(data, "b.bin") as file:
        assert file.info.page_count == 2
        red, green, _ = rendered.pixels.array()[60, 80]
        assert red > 200 > 60 > green


async def test_an_animation_has_as_many_pages_as_any_document(source_reader: SourceReader) -> None:
    """The limit of pages is that of frames."""
    frames = [Image.new("L", (40, 20), 10 * number) for number in range(21)]
    data = make_image("GIF", (40, 20), save_all=True, append_images=frames)

    with pytest.raises(SourceError, match="SOURCE_TOO_LARGE: 22 pages"):
        async with source_reader.open(data):
            pass


@pytest.mark.parametrize("kind", ["WEBP", "GIF", "BMP", "JPEG2000", "AVIF", "HEIC"])
async def test_a_damaged_image_ends_in_its_code(source_reader: SourceReader, kind: str) -> None:
    """Half of a file is refused, or its page fails and says why."""
    data = HEIC.read_bytes() if kind == "HEIC" else make_image(kind, (400, 400))

    with pytest.raises(SourceError) as caught:
        async with source_reader.render(data[: len(data) // 2]):
            pass
    assert caught.value.code is Code.DAMAGED


async def test_inline_data_is_a_source(tmp_path: Path, source_reader: SourceReader) -> None:
    """A job can carry a small page inside its request, as a data URI."""
    uri = "data:image/png;base64," + base64.b64encode(make_image("PNG")).decode()
    job = Job.parse({"input": {"source": uri}}, source_reader.settings, EntryPoint.SERVERLESS)

    async with fetch.document(
        uri, job, source_reader.settings, source_reader.page_pool, Sources(source_reader.settings)
    ) as file:
        assert file.stem == "inline"
        assert np.isclose(file.pages[0].width_pt, 200) if file.pages[0] else False
