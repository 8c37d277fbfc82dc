"""Images of files to upright pixels: the same as Pillow's for a whole image, in the memory of one copy."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pymupdf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from tests.fakes import hostile
from twopass.errors import Code, SourceError
from twopass.pages import image_bands, source_files
from twopass.pages.rendered_page import PagePointer
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool
from twopass.steps import render

MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "I", "F")
FORMATS = {"1": "PNG", "L": "PNG", "LA": "PNG", "P": "PNG", "RGB": "WEBP", "RGBA": "PNG", "CMYK": "TIFF"}


def draw_whole(image: Any, size: tuple[int, int]) -> Any:
    """What bands must be equal to."""
    upright = image_bands.flatten(ImageOps.exif_transpose(image))
    return np.asarray(upright if upright.size == size else upright.resize(size))


def encode(mode: str, width: int, height: int, orientation: int) -> bytes:
    """An image of noise as a file; in palette mode one colour is transparent."""
    noise = np.random.default_rng(7).integers(64, 192, (height, width, 4), np.uint8)
    image = Image.fromarray(noise, "RGBA")
    if mode in ("I;16", "I", "F"):
        values = noise[:, :, 0].astype(np.uint16) * 200
        image = Image.fromarray(values if mode == "I;16" else values.astype({"I": np.int32, "F": np.float32}[mode]))
    elif mode != "RGBA":
        image = image.convert("RGB").convert(mode)
    file, exif = io.BytesIO(), Image.Exif()
    exif[source_files.ORIENTATION] = orientation
    transparency = {"transparency": 3} if mode == "P" else {}
    image.save(file, FORMATS.get(mode, "TIFF"), exif=exif, **transparency)
    return file.getvalue()


def draw_both(data: bytes, size: tuple[int, int] | None, band_pixels: int) -> tuple[Any, Any]:
    """The image in bands and as a whole; without a size, it is not resized."""
    with Image.open(io.BytesIO(data)) as image:
        size = size or ImageOps.exif_transpose(image).size
        whole = draw_whole(image, size).astype(int)
    with Image.open(io.BytesIO(data)) as image:
        return image_bands.draw(image, size, band_pixels).astype(int), whole


SIDES = st.tuples(st.integers(1, 60), st.integers(1, 60))


@settings(max_examples=40)
@given(st.sampled_from(MODES), st.integers(0, 9), SIDES, SIDES | st.none(), st.integers(1, 2000))
def test_an_image_is_drawn_as_a_whole_image_would_be(
    mode: str, orientation: int, side: tuple[int, int], size: tuple[int, int] | None, band_pixels: int
) -> None:
    """Whatever the mode and the orientation: in bands if it keeps its size, and in one band if it is resized."""
    drawn, whole = draw_both(encode(mode, *side, orientation), size, band_pixels if size is None else 1 << 20)

    assert drawn.tolist() == whole.tolist()


@settings(max_examples=40)
@given(st.sampled_from(("L", "LA", "RGB", "RGBA")), st.integers(1, 8), SIDES, SIDES, st.integers(1, 2000))
def test_bands_that_are_resized_meet(
    mode: str, orientation: int, side: tuple[int, int], size: tuple[int, int], band_pixels: int
) -> None:
    """No seam is seen between bands. Pillow may resize them across first and not down first, which rounds otherwise."""
    drawn, whole = draw_both(encode(mode, *side, orientation), size, band_pixels)

    assert np.abs(drawn - whole).max() <= 2


def write_grey_alpha(path: Path, side: int) -> Path:
    """A white square as PNG, which Pillow decodes to four bytes per pixel."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    compressor, row = zlib.compressobj(1), b"\0" + b"\xff" * (side * 2)
    data = b"".join(compressor.compress(row) for _ in range(side)) + compressor.flush()
    header = struct.pack(">IIBBBBB", side, side, 8, 4, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b""))
    return path


async def test_a_small_file_with_many_pixels_takes_the_memory_of_one_copy(tmp_path: Path) -> None:
    """A page worker that may use 2.5 times the memory of the decoded image is not killed."""
    pointer, side = PagePointer(str(write_grey_alpha(tmp_path / "white.png", 6000)), 1), 500
    buffers, room = PixelBufferPool(1, 1 << 20), side * side * 3
    page_pool = PagePool(1, buffers, memory_bytes=6000 * 6000 * 4 * 5 // 2, preload=())  # no memory of other libraries
    await page_pool.open()
    async with buffers.lend(room) as buffer:
        drawn = await page_pool.call(render.draw_image, pointer, (side, side), buffer, room)
    await page_pool.close()
    buffers.close()

    assert (drawn.width, drawn.ink) == (side, 0.0)


def test_a_webp_that_takes_gigabytes_to_decode_is_refused_before(tmp_path: Path) -> None:
    """A WebP of 38 bytes can have 250 million pixels, of which the decoder makes four copies."""
    (path := tmp_path / "white.webp").write_bytes(write_webp_header(15_000, 10_001))

    with (
        pytest.raises(SourceError, match="15000 × 10001 pixels.*use another format") as caught,
        source_files.open_image(str(path), 1 << 62),
    ):
        pass

    assert caught.value.code is Code.SOURCE_TOO_LARGE


def write_webp_header(width: int, height: int) -> bytes:
    """A lossless WebP: signature, width and height less one in 14 bits each; the rest is the smallest stream."""
    bits = (width - 1) | (height - 1) << 14
    body = b"\x2f" + struct.pack("<I", bits) + bytes.fromhex("07d0fffef7bfff8188e87f00")
    chunk = b"VP8L" + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", len(chunk) + 5) + b"WEBP" + chunk + b"\0"


@pytest.mark.parametrize("is_mask", [False, True], ids=["image", "soft-mask"])
def test_a_pdf_with_a_jpeg_2000_image_of_too_many_pixels_is_refused_before(is_mask: bool) -> None:
    """The size counts that the image states itself, not that of its dictionary."""
    codestream = b"\xff\x4f\xff\x51\0\x29\0\0" + struct.pack(">4I", 15_000, 10_001, 0, 0)
    image = b"<</Type/XObject/Subtype/Image/Width 8/Height 8/BitsPerComponent 8/ColorSpace/DeviceGray"
    jpx = image + b"/Filter/JPXDecode/Length %d>>stream\n%s\nendstream" % (len(codestream), codestream)
    objects = {
        1: b"<</Type/Catalog/Pages 2 0 R>>",
        2: b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        3: b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Resources<</XObject<</I %d 0 R>>>>>>" % (5 if is_mask else 4),
        4: jpx,
        5: image + b"/SMask 4 0 R/Length 64>>stream\n" + bytes(64) + b"\nendstream",
    }

    with pymupdf.open(stream=hostile.build_pdf(objects)) as pdf, pytest.raises(SourceError, match="15000 × 10001"):
        source_files.check_images(pdf[0])
