"""Files that break readers: each ends with a code or a state, and the same workers read on."""

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

from tests.fakes.reader import Reader
from twopass.document import State, Status
from twopass.engines.cpu.engine import CpuEngine
from twopass.errors import Code
from twopass.job import Result
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings

LINE = "The meter of the pump was read on Monday and entered in the log book by both operators."


@pytest.fixture
def reader(page_pool: PagePool, buffers: PixelBufferPool) -> Reader:
    return Reader(page_pool, buffers, CpuEngine(2), Settings(max_page_pixels=2_000_000))


def good(pages: int = 1) -> bytes:
    with pymupdf.open() as pdf:
        for number in range(pages):
            pdf.new_page().insert_textbox((72, 72, 500, 300), f"{LINE} Page {number}. " * 4)
        return bytes(pdf.tobytes())


def pdf_of(*objects: str) -> bytes:
    """A PDF of these objects, the first of them its catalog, with a right cross-reference table."""
    data, places = b"%PDF-1.7\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(data))
        data += f"{number} 0 obj\n{body}\nendobj\n".encode()
    rows = "".join(f"{place:010} 00000 n \n" for place in places)
    size = len(objects) + 1
    trailer = f"trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{len(data)}\n%%EOF\n"
    return data + f"xref\n0 {size}\n0000000000 65535 f \n{rows}{trailer}".encode()


def no_pages() -> bytes:
    return pdf_of("<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [] /Count 0 >>")


def looping_tree() -> bytes:
    return pdf_of("<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 /Parent 2 0 R >>")


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("report.txt", LINE)
    return buffer.getvalue()


def enormous() -> bytes:
    with pymupdf.open() as pdf:
        pdf.new_page(width=20_000, height=20_000).insert_text((2000, 3000), "Enormous", fontsize=2000)
        return bytes(pdf.tobytes())


def broken_stream() -> bytes:
    """Two pages, the second one's drawing orders compressed and overwritten in their middle."""
    with pymupdf.open(stream=good(2)) as pdf:
        number = pdf[1].get_contents()[0]
        broken = bytearray(zlib.compress(pdf.xref_stream(number)))
        broken[len(broken) // 3 :] = b"\xff" * (len(broken) - len(broken) // 3)
        pdf.update_stream(number, bytes(broken), compress=False)
        pdf.xref_set_key(number, "Filter", "/FlateDecode")
        return bytes(pdf.tobytes())


def pixel_bomb() -> bytes:
    """A PNG's first bytes that claim 100,000 × 100,000 pixels."""
    header = b"IHDR" + struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    data = b"IDAT" + zlib.compress(b"\0" * 1000)
    chunks = (
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in (header, data)
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def half_a_tiff() -> bytes:
    """Two frames; the second one's compressed pixels are overwritten."""
    frames = []
    for word in ("First", "Second"):
        frame = Image.new("RGB", (900, 300), "white")
        ImageDraw.Draw(frame).text((60, 80), f"{word} frame of two", fill="black", font_size=60)
        frames.append(frame)
    first, both = io.BytesIO(), io.BytesIO()
    frames[0].save(first, "TIFF", compression="tiff_deflate")
    frames[0].save(both, "TIFF", compression="tiff_deflate", save_all=True, append_images=frames[1:])
    data = bytearray(both.getvalue())
    with Image.open(io.BytesIO(data)) as image:
        image.seek(1)
        place, size = image.tag_v2[273][0], image.tag_v2[279][0]  # type: ignore[attr-defined]
    data[place : place + size] = b"\xff" * size
    return bytes(data)


def tiff_without_a_width() -> bytes:
    """Two frames; the second one says nothing of its width, and Pillow raises a TypeError."""
    buffer = io.BytesIO()
    frame = Image.new("RGB", (90, 30), "white")
    frame.save(buffer, "TIFF", save_all=True, append_images=[frame])
    data = bytearray(buffer.getvalue())
    first = int.from_bytes(data[4:8], "little")
    after = first + 2 + 12 * int.from_bytes(data[first : first + 2], "little")
    second = int.from_bytes(data[after : after + 4], "little")
    data[second + 2 : second + 4] = (60_000).to_bytes(2, "little")  # its first entry, the width, is another tag
    return bytes(data)


async def read(reader: Reader, path: Path) -> Result:
    """The bad file's result; what it left behind is looked at, and a good file is read after it."""
    output = path.parent / "out"
    result = await reader.run(source=str(path), output=str(output))
    after = path.parent / "good.pdf"
    after.write_bytes(good())
    healthy = await reader.run(source=str(after), output=str(output / "good"))

    document = result.documents[0]
    manifests = [found for found in output.rglob("manifest.json") if not found.is_relative_to(output / "good")]
    assert healthy.documents[0].pages == {"read": 1}
    assert Code.INTERNAL not in {problem.code for problem in result.problems}
    assert bool(document.pages) == bool(document.artefacts) == (len(manifests) == 1)
    assert result.status is Status.SUCCESS or result.problems
    assert State.UNREAD not in document.pages
    return result


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (no_pages, Code.DAMAGED),
        (looping_tree, Code.DAMAGED),
        (zipped, Code.SOURCE_UNSUPPORTED),
        (pixel_bomb, Code.SOURCE_TOO_LARGE),
        (tiff_without_a_width, Code.DAMAGED),
    ],
)
async def test_what_is_no_document_is_refused_with_its_code(
    reader: Reader, tmp_path: Path, make: Callable[[], bytes], code: Code
) -> None:
    """Whatever its name says; nothing is left behind that looks complete."""
    (tmp_path / "bad.pdf").write_bytes(make())

    result = await read(reader, tmp_path / "bad.pdf")

    assert result.as_answer()["error"].startswith(code)
    assert {problem.code for problem in result.problems} == {code}


async def test_an_enormous_page_is_read_smaller(reader: Reader, tmp_path: Path) -> None:
    """20,000 × 20,000 points are scaled down, read without the layout model, and both are said."""
    (tmp_path / "bad.pdf").write_bytes(enormous())

    result = await read(reader, tmp_path / "bad.pdf")

    assert result.documents[0].pages == {"read": 1}
    assert {problem.code for problem in result.problems} == {Code.PIXEL_LIMIT, Code.DENSE_PAGE}


async def test_a_page_with_broken_orders_leaves_the_others(reader: Reader, tmp_path: Path) -> None:
    """Both pages have a state, and the whole one is read."""
    (tmp_path / "bad.pdf").write_bytes(broken_stream())

    result = await read(reader, tmp_path / "bad.pdf")

    assert sum(result.documents[0].pages.values()) == 2
    assert result.documents[0].pages["read"] >= 1


async def test_a_tiffs_broken_second_frame_leaves_the_first(reader: Reader, tmp_path: Path) -> None:
    """The document is partial, and the lost page has its code."""
    (tmp_path / "bad.tiff").write_bytes(half_a_tiff())

    result = await read(reader, tmp_path / "bad.tiff")

    assert result.status is Status.PARTIAL_SUCCESS
    assert result.documents[0].pages == {"failed": 1, "read": 1}
    assert [(problem.code, problem.page) for problem in result.problems] == [(Code.DAMAGED, 2)]


@pytest.mark.parametrize("share", [0.02, 0.1, 0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97, 0.999])
async def test_a_file_cut_off_anywhere_ends_with_a_code_or_with_pages(
    reader: Reader, tmp_path: Path, share: float
) -> None:
    """Half a download never hangs and never passes for nothing."""
    whole = good(3)
    (tmp_path / "bad.pdf").write_bytes(whole[: int(share * len(whole))])

    result = await read(reader, tmp_path / "bad.pdf")

    assert result.documents[0].pages or result.as_answer()["error"].startswith(Code.DAMAGED)
