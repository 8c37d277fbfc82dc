"""Damaged and malicious files: each ends with a code or a page state, and the same page workers read the next file."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pymupdf
import pytest
from PIL import Image, ImageDraw

from tests.fakes import answers
from tests.fakes.reader import Reader
from tests.fakes.scripted import ScriptedEngine
from twopass.document import State, Status
from twopass.engines.cpu.engine import CpuEngine
from twopass.errors import Code
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.result import Result
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings

LINE = "The meter of the pump was read on Monday and entered in the log book by both operators."

GOOD_ANSWER = answers.block("text", f"{LINE} Page 0. " * 4, (110, 80, 850, 180))


@pytest.fixture
def reader(page_pool: PagePool, buffers: PixelBufferPool) -> Reader:
    return Reader(page_pool, buffers, CpuEngine(2), Settings(max_page_pixels=2_000_000), dpi=72)


def make_good_pdf(page_count: int = 1) -> bytes:
    with pymupdf.open() as pdf:
        for number in range(page_count):
            pdf.new_page().insert_textbox((72, 72, 500, 300), f"{LINE} Page {number}. " * 4)
        return bytes(pdf.tobytes())


def build_pdf(*objects: str) -> bytes:
    """A PDF of these objects, the first of them its catalog, with a valid cross-reference table."""
    data, offsets = b"%PDF-1.7\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(data))
        data += f"{number} 0 obj\n{body}\nendobj\n".encode()
    rows = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    trailer = f"trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{len(data)}\n%%EOF\n"
    return data + f"xref\n0 {size}\n0000000000 65535 f \n{rows}{trailer}".encode()


def make_pdf_without_pages() -> bytes:
    return build_pdf("<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [] /Count 0 >>")


def make_looping_page_tree() -> bytes:
    return build_pdf(
        "<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 /Parent 2 0 R >>"
    )


def make_zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("report.txt", LINE)
    return buffer.getvalue()


def make_enormous_page() -> bytes:
    with pymupdf.open() as pdf:
        pdf.new_page(width=20_000, height=20_000).insert_text((2000, 3000), "Enormous", fontsize=2000)
        return bytes(pdf.tobytes())


def make_broken_content_stream() -> bytes:
    """Two pages; the second one's compressed content stream is overwritten after its first third."""
    with pymupdf.open(stream=make_good_pdf(2)) as pdf:
        number = pdf[1].get_contents()[0]
        broken = bytearray(zlib.compress(pdf.xref_stream(number)))
        broken[len(broken) // 3 :] = b"\xff" * (len(broken) - len(broken) // 3)
        pdf.update_stream(number, bytes(broken), compress=False)
        pdf.xref_set_key(number, "Filter", "/FlateDecode")
        return bytes(pdf.tobytes())


def make_pixel_bomb() -> bytes:
    """The first bytes of a PNG whose header claims 100,000 × 100,000 pixels."""
    header = b"IHDR" + struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    data = b"IDAT" + zlib.compress(b"\0" * 1000)
    chunks = (
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in (header, data)
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def make_half_broken_tiff() -> bytes:
    """Two frames; the second one's compressed pixels are overwritten."""
    frames = []
    for word in ("First", "Second"):
        frame = Image.new("RGB", (900, 300), "white")
        ImageDraw.Draw(frame).text((60, 80), f"{word} frame of two", fill="black", font_size=60)
        frames.append(frame)
    buffer = io.BytesIO()
    frames[0].save(buffer, "TIFF", compression="tiff_deflate", save_all=True, append_images=frames[1:])
    data = bytearray(buffer.getvalue())
    with Image.open(io.BytesIO(data)) as image:
        image.seek(1)
        offset, size = image.tag_v2[273][0], image.tag_v2[279][0]  # type: ignore[attr-defined]
    data[offset : offset + size] = b"\xff" * size
    return bytes(data)


def make_tiff_without_width() -> bytes:
    """Two frames; the second one has no width, for which Pillow raises a TypeError."""
    buffer = io.BytesIO()
    frame = Image.new("RGB", (90, 30), "white")
    frame.save(buffer, "TIFF", save_all=True, append_images=[frame])
    data = bytearray(buffer.getvalue())
    first = int.from_bytes(data[4:8], "little")
    next_offset = first + 2 + 12 * int.from_bytes(data[first : first + 2], "little")
    second = int.from_bytes(data[next_offset : next_offset + 4], "little")
    data[second + 2 : second + 4] = (60_000).to_bytes(2, "little")  # an unknown tag in place of the width
    return bytes(data)


async def read_bad_file(reader: Reader, path: Path) -> Result:
    """Read the file and then a good one; check what every bad file must leave behind, and return its result."""
    output = path.parent / "out"
    result = await reader.run(source=str(path), output=str(output))
    good = path.parent / "good.pdf"
    good.write_bytes(make_good_pdf())
    engine = ScriptedEngine("deepseek_ocr", lambda prompt: GOOD_ANSWER)
    healthy = await reader.run(engine=engine, source=str(good), output=str(output / "good"))

    document = result.documents[0]
    manifests = [file for file in output.rglob("manifest.json") if not file.is_relative_to(output / "good")]
    assert healthy.documents[0].pages == {"read": 1}
    assert Code.INTERNAL not in {problem.code for problem in result.problems}
    assert bool(document.pages) == bool(document.artefacts) == (len(manifests) == 1)
    assert result.status is Status.SUCCESS or result.problems
    assert State.UNREAD not in document.pages
    return result


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (make_pdf_without_pages, Code.DAMAGED),
        (make_looping_page_tree, Code.DAMAGED),
        (make_zip, Code.SOURCE_UNSUPPORTED),
        (make_pixel_bomb, Code.SOURCE_TOO_LARGE),
        (make_tiff_without_width, Code.DAMAGED),
    ],
)
async def test_an_unreadable_file_is_refused_with_its_code(
    reader: Reader, tmp_path: Path, make: Callable[[], bytes], code: Code
) -> None:
    """A file without readable pages fails with its code, whatever its name, and no manifest marks it as complete."""
    (tmp_path / "bad.pdf").write_bytes(make())

    result = await read_bad_file(reader, tmp_path / "bad.pdf")

    assert result.as_answer()["error"].startswith(code)
    assert {problem.code for problem in result.problems} == {code}


async def test_an_enormous_page_is_scaled_down(reader: Reader, tmp_path: Path) -> None:
    """A page of 20,000 × 20,000 points is scaled down and read without the layout model, with a problem for each."""
    (tmp_path / "bad.pdf").write_bytes(make_enormous_page())

    result = await read_bad_file(reader, tmp_path / "bad.pdf")

    assert result.documents[0].pages == {"read": 1}
    assert {problem.code for problem in result.problems} == {Code.PIXEL_LIMIT, Code.DENSE_PAGE}


async def test_a_broken_content_stream_loses_only_its_page(reader: Reader, tmp_path: Path) -> None:
    """If one page's content stream is broken, both pages have a state and the other one is read."""
    (tmp_path / "bad.pdf").write_bytes(make_broken_content_stream())

    result = await read_bad_file(reader, tmp_path / "bad.pdf")

    assert sum(result.documents[0].pages.values()) == 2
    assert result.documents[0].pages["read"] >= 1


async def test_a_broken_tiff_frame_loses_only_its_page(reader: Reader, tmp_path: Path) -> None:
    """If one frame is broken, the document is a partial success and the lost page has its code."""
    (tmp_path / "bad.tiff").write_bytes(make_half_broken_tiff())

    result = await read_bad_file(reader, tmp_path / "bad.tiff")

    assert result.status is Status.PARTIAL_SUCCESS
    assert result.documents[0].pages == {"failed": 1, "read": 1}
    assert [(problem.code, problem.page) for problem in result.problems] == [(Code.DAMAGED, 2)]


@pytest.mark.parametrize("share", [0.02, 0.1, 0.25, 0.4, 0.6, 0.8, 0.97, 0.999])
async def test_a_truncated_file_has_pages_or_a_code(reader: Reader, tmp_path: Path, share: float) -> None:
    """A truncated PDF never hangs the job: it has pages, or fails with DAMAGED."""
    data = make_good_pdf(3)
    (tmp_path / "bad.pdf").write_bytes(data[: int(share * len(data))])

    result = await read_bad_file(reader, tmp_path / "bad.pdf")

    assert result.documents[0].pages or result.as_answer()["error"].startswith(Code.DAMAGED)
