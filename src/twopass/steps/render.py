"""One page of a checked file in, its pixels in a slab and its text layer out; or a small picture of it for people.

Crop box and /Rotate are honoured, a page that lies sideways is turned, a page without ink is
found blank, a page beyond the pixel limit is scaled down. Knows nothing of engines or elements.
"""

from __future__ import annotations

import io
import math
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from twopass.document import PLACES, Box, Link, Page, PageImage, Problem, Severity, State
from twopass.engines.interface import PagePointer
from twopass.errors import Code, SourceError
from twopass.pages import ocr
from twopass.pages.rendered_page import Picture
from twopass.pages.shared_pixels import PixelBuffer, PixelBufferPool, Pixels
from twopass.pages.source_files import CheckedFile, PageSize, covered, drawn, opened_image, pictured, upright
from twopass.pages.text_layer import NO_LAYER, TextLayer
from twopass.runtime.page_pool import PagePool

INK_BLOCK = 4  # ink is told on 4 × 4 averages: single specks of a scanner vanish, a lone page number stays
INK_CONTRAST = 40  # grey levels from the page's own background
BLANK_INK = 4e-5  # share of inked blocks; a 9-point page number on A4 has 1.2e-4
TURN_SHARE = 0.6  # of the characters, to call a page sideways
TURN_CHARACTERS = 20  # fewer say nothing about the page
PREVIEW_PX = 1400  # of the longer side: small print can be read, and a page of text has 130 kB
PREVIEW_QUALITY, PREVIEW_METHOD = 60, 2  # two thirds of a JPEG's bytes; a higher method is only slower
QUICK_S = 0.25  # of a processor, to draw a page that is drawn in another size, too; resizing one takes 0.02 to 0.1
PICTURES = 0.1  # of the page: more are resized with it, since MuPDF enlarges pictures without smoothing them
HIDDEN_CHARACTERS = 800  # fewer under a scan may be rubbish that OCR made of a page lying sideways

Array = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Drawn:
    """What the page worker says of a page it drew into a slab."""

    width: int
    height: int
    rotation_in: int
    turn: int
    ink: float
    is_scalable: bool = False
    words: TextLayer = NO_LAYER
    links: tuple[Link, ...] = ()


@asynccontextmanager
async def page(
    file: CheckedFile, number: int, dpi: int, max_pixels: int, page_pool: PagePool, buffers: PixelBufferPool
) -> AsyncIterator[Picture]:
    """Page `number` (from 1) drawn; raises SourceError or WorkerDied when it cannot be."""
    size = file.pages[number - 1]
    if size is None:
        raise SourceError(Code.DAMAGED, f"page {number}: the file's page object cannot be opened")
    zoom = _zoom(size, dpi, max_pixels)
    room = (math.ceil(size.width_pt * zoom) + 2) * (math.ceil(size.height_pt * zoom) + 2) * 3
    async with buffers.lend(room) as buffer:
        pointer = PagePointer(str(file.path), number, 0, file.password)
        if file.is_pdf:
            drawn = await page_pool.call(draw_pdf, pointer, zoom, buffer, room)
        else:
            drawn = await page_pool.call(draw_image, pointer, _pixels(size, zoom), buffer, room)
        yield _picture(pointer, size, drawn, zoom, scaled=zoom < (size.dpi or dpi) / 72, buffer=buffer)


def _zoom(size: PageSize, dpi: int, max_pixels: int) -> float:
    """Pixels a point: what was asked for, or less so that the page stays within the limit."""
    wanted = (size.dpi or dpi) / 72
    most = math.sqrt(max_pixels / (size.width_pt * size.height_pt))
    if wanted <= most:
        return wanted
    # To whole pixels on the way down: rounding up would step over the limit again.
    whole = min(max(math.floor(side * most), 1) / side for side in (size.width_pt, size.height_pt))
    return whole * (1 - 1e-9)


def _pixels(size: PageSize, zoom: float) -> tuple[int, int]:
    """Width and height of the page drawn so large; whole pixels down, but for the error of the division before."""
    return max(int(size.width_pt * zoom + 1e-6), 1), max(int(size.height_pt * zoom + 1e-6), 1)


def _picture(
    pointer: PagePointer, size: PageSize, drawn: Drawn, zoom: float, scaled: bool, buffer: PixelBuffer
) -> Picture:
    sideways = drawn.turn in (90, 270)
    page = Page(
        number=pointer.number,
        width_pt=round(size.height_pt if sideways else size.width_pt, 3),
        height_pt=round(size.width_pt if sideways else size.height_pt, 3),
        rotation_in=drawn.rotation_in,
        rotation_applied=drawn.turn,
        image=PageImage(width_px=drawn.width, height_px=drawn.height, dpi=round(zoom * 72, 3)),
        state=State.BLANK if drawn.ink < BLANK_INK and not drawn.words else State.READ,
        links=drawn.links,
    )
    problems = (_scaled(pointer.number, zoom),) if scaled else ()
    pixels = Pixels(drawn.width, drawn.height, buffer)
    pointer = replace(pointer, turn=drawn.turn, is_scalable=drawn.is_scalable)
    return Picture(page, pixels, pointer, drawn.words, drawn.ink, problems)


def _scaled(number: int, zoom: float) -> Problem:
    message = f"page {number}: scaled to {zoom * 72:.0f} dpi to stay within MAX_PAGE_PIXELS"
    return Problem(code=Code.PIXEL_LIMIT, severity=Severity.WARNING, page=number, message=message)


def draw_pdf(pointer: PagePointer, zoom: float, buffer: PixelBuffer, room: int) -> Drawn:
    """In a page worker: draw a PDF page, upright, into the slab."""
    with upright(pointer.file, pointer.number, 0, pointer.password) as page:
        rotation_in, text = page.rotation, text_of(page)
        turn = _turn_of_text(page, text)
        page.set_rotation((rotation_in + (turn or 0)) % 360)
        began = time.process_time()
        listed = page.get_displaylist()  # parsed once for its pixels and for where its pictures lie
        array = drawn(listed, zoom, zoom)
        is_quick = time.process_time() - began < QUICK_S
        is_scalable = is_quick and turn is not None and pictured(listed) <= PICTURES
        if turn is None and ink_of(array) >= BLANK_INK and (turn := ocr.turn(array)):
            page.set_rotation((rotation_in + turn) % 360)
            array = np.rot90(array, -turn // 90)
        height, width = _put(array, buffer, room)
        words, links = _words(page, text), _links(page)
        return Drawn(width, height, rotation_in, turn or 0, ink_of(array), is_scalable, words, links)


def draw_image(pointer: PagePointer, size: tuple[int, int], buffer: PixelBuffer, room: int) -> Drawn:
    """In a page worker: decode one frame of an image file, upright, in so many pixels, into the slab."""
    from PIL import ImageOps

    with opened_image(pointer.file, 1 << 62) as image:  # its pixels were checked when it was fetched
        image.seek(pointer.number - 1)
        ImageOps.exif_transpose(image, in_place=True)  # no copy: the largest image takes a gigabyte
        upright = flat(image)
    if upright.size != size:  # too large, or a fax with fewer dots down than across
        upright = upright.resize(size)
    array = np.asarray(upright)
    ink = ink_of(array)
    turn = ocr.turn(array) if ink >= BLANK_INK else 0
    height, width = _put(np.rot90(array, -turn // 90), buffer, room)
    return Drawn(width, height, 0, turn, ink)


async def preview(file: CheckedFile, read: Page, page_pool: PagePool) -> bytes:
    """A page that was read as a small WebP, turned as it was read; raises SourceError or WorkerDied."""
    pointer = PagePointer(str(file.path), read.number, read.rotation_applied, file.password)
    return await page_pool.insist(preview_of, pointer, file.is_pdf, read.height_pt / read.width_pt)


def preview_of(pointer: PagePointer, is_pdf: bool, shape: float) -> bytes:
    """In a page worker: the picture, `shape` times as high as wide."""
    from PIL import Image, ImageOps

    size = (max(round(PREVIEW_PX / max(shape, 1.0)), 1), max(round(PREVIEW_PX * min(shape, 1.0)), 1))
    if is_pdf:
        upright = Image.fromarray(_small(pointer))
    else:
        with opened_image(pointer.file, 1 << 62) as image:
            image.seek(pointer.number - 1)
            upright = flat(ImageOps.exif_transpose(image)).rotate(-pointer.turn, expand=True)
    buffer = io.BytesIO()
    fitting = upright if upright.size == size else upright.resize(size)
    fitting.save(buffer, "WEBP", quality=PREVIEW_QUALITY, method=PREVIEW_METHOD)
    return buffer.getvalue()


def _small(pointer: PagePointer) -> Array:
    with upright(pointer.file, pointer.number, pointer.turn, pointer.password) as page:
        zoom = PREVIEW_PX / max(page.rect.width, page.rect.height)
        return drawn(page.get_displaylist(), zoom, zoom)


def flat(image: Any) -> Any:
    """RGB on white paper: transparency shows the page, 16-bit grey keeps its range."""
    from PIL import Image

    if image.mode in ("I;16", "I;16B", "I;16L", "I", "F"):
        values = np.array(image, np.float32)
        values /= max(float(values.max(initial=0)), 255.0)
        values *= 255
        image = Image.fromarray(values.astype(np.uint8))
    if image.has_transparency_data:
        paper = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(paper, image.convert("RGBA"))
    return image if image.mode == "RGB" else image.convert("RGB")


def _put(array: Array, buffer: PixelBuffer, room: int) -> tuple[int, int]:
    """Copy the pixels into the slab; their height and width."""
    height, width, _ = array.shape
    with buffer.map(room) as memory:
        np.frombuffer(memory, np.uint8, array.size).reshape(array.shape)[:] = array
    return height, width


def text_of(page: Any) -> Any:
    """MuPDF's text page, once for words and their direction. Of the page: its display list leaves out invisible
    words of no height, which is how scanners write them."""
    import pymupdf

    return page.get_textpage(flags=pymupdf.TEXTFLAGS_WORDS)


def _turn_of_text(page: Any, text: Any) -> int | None:
    """The clockwise turn that makes the text layer upright; None when the page is a scan that must tell itself."""
    counts = _characters_by_turn(page, text)
    total = sum(counts.values())
    if not total or (total < HIDDEN_CHARACTERS and covered(page)[1]):
        return None
    turn, characters = counts.most_common(1)[0]
    return turn if total >= TURN_CHARACTERS and characters >= TURN_SHARE * total else 0


def _characters_by_turn(page: Any, text: Any) -> Counter[int]:
    counts: Counter[int] = Counter()
    matrix = page.rotation_matrix
    for block in text.extractDICT()["blocks"]:
        for line in block.get("lines", ()):
            dx, dy = line["dir"]
            x, y = dx * matrix.a + dy * matrix.c, dx * matrix.b + dy * matrix.d
            turn = (0 if x > 0 else 180) if abs(x) >= abs(y) else (90 if y < 0 else 270)
            counts[turn] += sum(len(span["text"].strip()) for span in line["spans"])
    return counts


def _words(page: Any, text: Any) -> TextLayer:
    """The text layer's words, boxes as fractions of the displayed page."""
    words = text.extractWORDS()
    corners = np.array([word[:4] for word in words], np.float64).reshape(-1, 2, 2)  # word, corner, x and y
    a, b, c, d, e, f = page.rotation_matrix
    shown = (corners @ ((a, b), (c, d)) + (e, f)) / (page.rect.width, page.rect.height)
    boxes = np.concatenate((shown.min(1), shown.max(1)), 1).clip(0, 1).round(PLACES)
    return TextLayer([_utf8(word[4]) for word in words], boxes.tobytes())


def _links(page: Any) -> tuple[Link, ...]:
    links = (link for link in page.get_links() if link.get("uri"))
    return tuple(Link(box=_displayed(page, link["from"]), uri=_utf8(link["uri"])) for link in links)


def _displayed(page: Any, rect: Any) -> Box:
    """PyMuPDF's coordinates of an unrotated page as fractions of the displayed one."""
    import pymupdf

    x0, y0, x1, y1 = pymupdf.Rect(rect) * page.rotation_matrix
    return Box.of(x0, y0, x1, y1, page.rect.width, page.rect.height)


def _utf8(text: str) -> str:
    # lone surrogates come from broken fonts and cannot be written as JSON
    return text.encode("utf-8", "replace").decode()


def ink_of(array: Array) -> float:
    """Share of 4 × 4 blocks that differ from the page's background in red, green or blue: yellow is no grey."""
    rows, columns = array.shape[0] // INK_BLOCK, array.shape[1] // INK_BLOCK
    if not rows or not columns:
        return 1.0
    lines = array[: rows * INK_BLOCK, : columns * INK_BLOCK].reshape(rows, INK_BLOCK, columns * INK_BLOCK * 3)
    # Whole lines added to each other, and to themselves a pixel and two further on: sums over axes take twice as long.
    down = np.add(lines[:, 0], lines[:, 1], dtype=np.int16)
    down += lines[:, 2]
    down += lines[:, 3]
    pairs = down[:, :-3] + down[:, 3:]
    blocks = pairs[:, :-6] + pairs[:, 6:]
    contrast = INK_CONTRAST * INK_BLOCK**2
    bands = (np.ascontiguousarray(blocks[:, band :: INK_BLOCK * 3]) for band in range(3))
    inked = [np.abs(band - np.int16(np.median(band))) > contrast for band in bands]
    return float(np.logical_or.reduce(inked).mean())
