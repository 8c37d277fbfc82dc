"""Render pages to pixels and read their text layers in page workers; render small previews for people.

Applies the crop box and /Rotate, turns a page whose text runs sideways, detects blank pages by their ink, and scales
down a page beyond the pixel limit.
"""

from __future__ import annotations

import io
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import structlog
from pydantic import Field

from twopass.document import (
    BOX_DECIMALS,
    Box,
    Finding,
    FormField,
    Link,
    Page,
    PageAudit,
    PageImage,
    Problem,
    Rect,
    State,
    Word,
)
from twopass.errors import Code, SourceError, WorkerDied
from twopass.pages import (
    damage,
    hidden_words,
    image_bands,
    lying_fonts,
    optional_content,
    orientation,
    page_annotations,
    text_layer,
)
from twopass.pages.damage import Fault
from twopass.pages.hidden_words import Drawing, Piece, Reason, Style, Unseen
from twopass.pages.lying_fonts import FontWord, full_font_names
from twopass.pages.picture_page import INK_CONTRAST
from twopass.pages.rendered_page import (
    ANNOTATIONS,
    BLANK_INK,
    LINKS,
    SOME_LINKS,
    PagePointer,
    RenderedPage,
    report_omission,
)
from twopass.pages.shared_pixels import PixelBuffer, PixelBufferPool, Pixels
from twopass.pages.source_files import (
    SAVE_AGAIN,
    CheckedFile,
    PageSize,
    check_images,
    detect_scan,
    get_turn_matrix,
    measure_image_share,
    open_bare_page,
    open_image,
    open_page,
    open_revealed_page,
    render_display_list,
)
from twopass.pages.text_layer import NO_LAYER, TextLayer
from twopass.runtime.cpu_budget import StepTimeout, limit_cpu_time, limit_share, limit_step
from twopass.runtime.page_pool import PagePool
from twopass.text.symbol_fonts import is_symbol_font

_INK_BLOCK = 4  # pixels: ink is measured in averages of 4 × 4, which drop a scanner's specks and keep a page number
_TURN_SHARE = 0.6  # of the characters must run in one direction to turn a page
_MIN_TURN_CHARACTERS = 20  # fewer say nothing about the page
_PREVIEW_PX = 1400  # of the longer side: small print is legible, and a page of text takes 130 kB
_PREVIEW_QUALITY, _PREVIEW_METHOD = 60, 2  # two thirds of a JPEG's bytes; a higher method is only slower
# CPU seconds: a page that renders faster may be rendered again in another size; resizing takes 0.02-0.1.
_QUICK_S = 0.25
_SCALABLE_IMAGE_SHARE = 0.1  # of the page: with more, resize the pixels; MuPDF enlarges images without smoothing
_FIRST_TRY_SHARE = 0.5  # of a page's processor time; the rest is for rendering it without annotations
_LINKS_S = 2.0  # processor seconds; 32,768 links take 0.5 s
_PREVIEW_S = 10.0  # processor seconds
_TEXT_ONLY_S = 10.0  # processor seconds, beyond the page's own
_MIN_HIDDEN_CHARACTERS = 800  # fewer under a scan may be noise from an OCR of the page while it lay sideways

Array = npt.NDArray[np.uint8]
# Of what page workers send, which is checked when it arrives.
_Side = Annotated[int, Field(gt=0)]  # in pixels
_Turn = Annotated[int, Field(ge=0, lt=360, multiple_of=90)]  # in degrees

log = structlog.get_logger()


@dataclass(frozen=True)
class DrawRequest:
    """A page of a PDF to draw at `zoom` pixels per point into the buffer, which has `max_bytes`.

    `with_draft`: also write the text of its text layer, with which an engine can draft answers.
    """

    pointer: PagePointer
    zoom: float
    buffer: PixelBuffer
    max_bytes: int
    with_draft: bool = False


@dataclass(frozen=True)
class DrawResult:
    """What a page worker reports about a page that it drew into a buffer: pixels, words, links, form fields.

    `words` are those of the text layer that can be seen, `unseen` has the others. `draft` is the text of the words, if
    it was asked for. `omitted` names what was left out, `faults` what could not be drawn.
    """

    width: _Side
    height: _Side
    rotation_in: int
    turn: _Turn
    ink: float
    is_scalable: bool = False
    words: TextLayer = NO_LAYER
    draft: str = ""
    links: tuple[Link, ...] = ()
    fields: tuple[FormField, ...] = ()
    omitted: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    unseen: Unseen = Unseen()


@asynccontextmanager
async def page(
    file: CheckedFile,
    number: int,
    dpi: int,
    max_pixels: int,
    page_pool: PagePool,
    buffers: PixelBufferPool,
    with_draft: bool = False,
) -> AsyncIterator[RenderedPage]:
    """Render page `number` (from 1). The pixels are valid within the context. Raises SourceError or WorkerDied."""
    size = file.pages[number - 1]
    if size is None:
        raise SourceError(Code.DAMAGED, f"the file's page object cannot be opened; {SAVE_AGAIN}")
    zoom = _compute_zoom(size, dpi, max_pixels)
    max_bytes = (math.ceil(size.width_pt * zoom) + 2) * (math.ceil(size.height_pt * zoom) + 2) * 3
    async with buffers.lend(max_bytes) as buffer:
        pointer = PagePointer(str(file.path), number, 0, file.password, is_pdf=file.is_pdf)
        if file.is_pdf:
            request = DrawRequest(pointer, zoom, buffer, max_bytes, with_draft)
            result = await _draw_pdf(page_pool, request, has_annotations=size.has_annotations)
        else:
            result = await page_pool.call(draw_image, pointer, _compute_pixels(size, zoom), buffer, max_bytes)
        if result.width * result.height * 3 > max_bytes:
            raise WorkerDied(Code.RENDER_CRASH, "a page worker reports more pixels than its buffer has")
        is_reduced = zoom < (size.dpi or dpi) / 72
        yield _build_page(pointer, size, result, zoom, is_reduced=is_reduced, buffer=buffer)


async def _draw_pdf(page_pool: PagePool, request: DrawRequest, has_annotations: bool) -> DrawResult:
    """Draw the page; if it has annotations and that takes half of its processor time, draw it without them."""
    if not has_annotations:
        return await page_pool.call(draw_pdf, request)
    try:
        with limit_share(_FIRST_TRY_SHARE):
            return await page_pool.call(draw_pdf, request)
    except WorkerDied as error:
        if error.code is not Code.RENDER_TIMEOUT:
            raise
        log.warning("page is rendered again without annotations", page=request.pointer.number, code=error.code)
        return await page_pool.call(draw_bare_pdf, request)


def _compute_zoom(size: PageSize, dpi: int, max_pixels: int) -> float:
    """Pixels per point: as requested, or fewer so that the page stays within the limit."""
    requested = (size.dpi or dpi) / 72
    highest = math.sqrt(max_pixels / (size.width_pt * size.height_pt))
    if requested <= highest:
        return requested
    # Round down to whole pixels: rounding up would exceed the limit again.
    rounded = min(max(math.floor(side * highest), 1) / side for side in (size.width_pt, size.height_pt))
    return rounded * (1 - 1e-9)


def _compute_pixels(size: PageSize, zoom: float) -> tuple[int, int]:
    """Width and height in pixels at this zoom, rounded down; 1e-6 makes up for the rounding error of the zoom."""
    return max(int(size.width_pt * zoom + 1e-6), 1), max(int(size.height_pt * zoom + 1e-6), 1)


def _build_page(
    pointer: PagePointer, size: PageSize, result: DrawResult, zoom: float, is_reduced: bool, buffer: PixelBuffer
) -> RenderedPage:
    is_sideways = result.turn in (90, 270)
    page = Page(
        number=pointer.number,
        width_pt=round(size.height_pt if is_sideways else size.width_pt, 3),
        height_pt=round(size.width_pt if is_sideways else size.height_pt, 3),
        rotation_in=result.rotation_in,
        rotation_applied=result.turn,
        image=PageImage(width_px=result.width, height_px=result.height, dpi=round(zoom * 72, 3)),
        state=State.READ,
        links=result.links,
        fields=result.fields,
        audit=_record(result.faults),
    )
    problems = [_report_reduction(pointer.number, zoom)] if is_reduced else []
    problems += [report_omission(pointer.number, result.omitted)] if result.omitted else []
    if result.ink < BLANK_INK and not result.words:
        page, problems = _end_without_ink(page, result, problems)
    pixels = Pixels(result.width, result.height, buffer)
    hidden, is_bare = result.unseen.hidden_in_layer, ANNOTATIONS in result.omitted
    pointer = replace(pointer, turn=result.turn, is_scalable=result.is_scalable, hidden=hidden, is_bare=is_bare)
    ink, draft, unseen = result.ink, result.draft, result.unseen
    return RenderedPage(page, pixels, pointer, result.words, ink, tuple(problems), draft, unseen)


def _end_without_ink(page: Page, result: DrawResult, problems: list[Problem]) -> tuple[Page, list[Problem]]:
    """A page that shows nothing is blank, unless something of it was not drawn: then it is lost."""
    if not (result.faults or ANNOTATIONS in result.omitted):
        return page.model_copy(update={"state": State.BLANK}), problems
    reason = Code.CONTENT_LOST if result.faults else Code.PARTS_OMITTED
    what = "; ".join(fault.what for fault in result.faults) or f"its {ANNOTATIONS} were left out"
    message = f"page {page.number}: nothing of it is drawn: {what}; {SAVE_AGAIN}"
    update = {"state": State.FAILED, "reason": reason}
    return page.model_copy(update=update), [*problems, Problem(code=reason, page=page.number, message=message)]


def _record(faults: Sequence[Fault]) -> PageAudit | None:
    """The beginning of the page's audit; None if it was drawn completely."""
    findings = tuple(Finding(kind=fault.kind, said=fault.what) for fault in faults)
    return PageAudit(findings=findings) if findings else None


def _report_reduction(number: int, zoom: float) -> Problem:
    what = f"rendered at only {zoom * 72:.0f} dpi to stay within MAX_PAGE_PIXELS"
    return Problem.warning(number, Code.PIXEL_LIMIT, what)


def draw_pdf(request: DrawRequest) -> DrawResult:
    """In a page worker: draw a PDF page upright."""
    pointer = request.pointer
    try:
        with open_page(pointer.file, pointer.number, 0, pointer.password) as page:
            result = _draw_page(page, request)
            links, fields, is_complete = read_annotations(page, _LINKS_S)
    except SourceError:
        return draw_bare_pdf(request)
    return replace(result, links=links, fields=fields, omitted=() if is_complete else (SOME_LINKS,))


def draw_bare_pdf(request: DrawRequest) -> DrawResult:
    """In a page worker: the same without annotations, links and form fields."""
    pointer = request.pointer
    with open_bare_page(pointer.file, pointer.number, 0, pointer.password) as (page, had_annotations):
        result = _draw_page(page, request)
    return replace(result, omitted=(LINKS, ANNOTATIONS) if had_annotations else ())


def _draw_page(page: Any, request: DrawRequest) -> DrawResult:
    check_images(page)
    lying_fonts.separate_names(page)
    rotation_in, text = page.rotation, get_text_page(page)
    with full_font_names():
        blocks = text.extractDICT()["blocks"]
    words = text.extractWORDS()
    clipped = _find_clipped(page, words)
    turn = detect_text_turn(page, blocks)
    page.set_rotation((rotation_in + (turn or 0)) % 360)
    began = time.process_time()
    display_list = page.get_displaylist()  # parsed once, for the pixels and for the positions of images
    array = render_display_list(display_list, request.zoom, request.zoom)
    is_quick = time.process_time() - began < _QUICK_S
    image_share = measure_image_share(display_list)
    is_scalable = is_quick and turn is not None and image_share <= _SCALABLE_IMAGE_SHARE
    is_turned = False
    ink = measure_ink(array)
    if turn is None and ink >= BLANK_INK and (turn := orientation.detect_turn(array)):
        page.set_rotation((rotation_in + turn) % 360)
        array, is_turned = np.rot90(array, -turn // 90), True
    height, width = _write_pixels(array, request.buffer, request.max_bytes)
    faults = damage.find_faults(page)
    is_damaged = ink < BLANK_INK and any(fault.is_loss for fault in faults)  # words that stood on a lost scan are kept
    drawing = None if is_damaged else Drawing(array, display_list, request.zoom, image_share, is_turned)
    pieces = hidden_words.split_words(blocks, words)
    seen, layer, unseen = _find_seen(page, pieces, drawing)
    unseen = unseen.add_lacking(_to_layer(page, clipped), Reason.CLIPPED)
    if optional_content.has_layers(page.parent):
        found = _find_switched_off(page, request.pointer, _to_layer(page, words))
        unseen = unseen.add_lacking(found, Reason.LAYER_OFF)
    return DrawResult(
        width,
        height,
        rotation_in,
        turn or 0,
        ink=ink,
        is_scalable=is_scalable,
        words=layer,
        draft=text_layer.write_draft(layer, [(one.block, one.line) for one in seen]) if request.with_draft else "",
        faults=faults,
        unseen=replace(unseen, redactions=_find_redactions(page)),
    )


def _find_seen(
    page: Any, pieces: Sequence[Piece], drawing: Drawing | None
) -> tuple[Sequence[Piece], TextLayer, Unseen]:
    """The words that can be seen, in fonts that do not lie, as pieces and as a layer; and the others.

    Without a drawing to look at, all of them count as seen.
    """
    if drawing is None:
        seen = hidden_words.join_seen(pieces, np.ones(len(pieces), bool))
        return seen, _to_layer(page, seen), Unseen()
    is_seen, unseen = hidden_words.look(page, drawing, _to_layer(page, pieces), [piece.style for piece in pieces])
    seen = hidden_words.join_seen(pieces, is_seen)
    layer = _to_layer(page, seen)
    is_lying = _find_lying(layer, [piece.style for piece in seen], drawing)
    used = [piece for piece, lies in zip(seen, is_lying.tolist(), strict=True) if not lies]
    return used, layer.pick(~is_lying), replace(unseen, lying=layer.pick(is_lying))


def _find_clipped(page: Any, words: Sequence[Any]) -> list[Any]:
    """The words that MuPDF leaves out of `words` because they lie outside the rectangle to which they are clipped.

    A word of which a part is shown is none of them.
    """
    import pymupdf

    flags = pymupdf.TEXTFLAGS_WORDS & ~pymupdf.TEXT_CLIP
    every = page.get_textpage(flags=flags).extractWORDS()
    if len(every) <= len(words):
        return []
    known = {(word[4], *word[:4]) for word in words}
    new = [word for word in every if (word[4], *word[:4]) not in known and any(map(str.isalnum, word[4]))]
    return [word for word in new if not any(_is_part(one, word) for one in words)]


def _is_part(word: Any, other: Any) -> bool:
    """Whether a word is what is shown of another one, in the same place."""
    x, y = (word[0] + word[2]) / 2, (word[1] + word[3]) / 2
    return word[4] in other[4] and other[0] <= x <= other[2] and other[1] <= y <= other[3]


def _find_switched_off(page: Any, pointer: PagePointer, layer: TextLayer) -> TextLayer:
    """The words that only an extraction with all layers of the PDF has; `layer` has those of the others."""
    with open_revealed_page(pointer.file, pointer.number, page.rotation, pointer.password) as revealed:
        found = _to_layer(revealed, get_text_page(revealed).extractWORDS())
    known, new = Counter(layer), list[Word]()
    for word in found:
        if known[word] <= 0:
            new.append(word)
        known[word] -= 1
    return TextLayer.of(new)


def _find_lying(layer: TextLayer, styles: Sequence[Style], drawing: Drawing) -> npt.NDArray[np.bool_]:
    """Which of the words that are seen are in fonts that name other characters than they draw.

    A scan's invisible words say nothing about their font.
    """
    height, width = drawing.array.shape[:2]
    boxes = [Rect(*box) for box in (layer.corners * (width, height, width, height)).tolist()]
    words = [
        FontWord(text, box, style.font, box.width / (drawing.zoom * style.size))
        for text, box, style in zip(layer.texts, boxes, styles, strict=True)
        if style.is_drawn and style.size > 0 and box.width >= box.height and not is_symbol_font(style.font)
    ]
    lying = lying_fonts.examine(words, drawing.array).wrong
    return np.array([style.font in lying for style in styles], bool)


def _find_redactions(page: Any) -> tuple[Box, ...]:
    """Boxes that are marked to be blacked out: what lies below them is still in the file."""
    import pymupdf

    return tuple(_to_box(page, mark.rect) for mark in page.annots(types=[pymupdf.PDF_ANNOT_REDACT]))


def draw_image(pointer: PagePointer, size: tuple[int, int], buffer: PixelBuffer, max_bytes: int) -> DrawResult:
    """In a page worker: draw one frame of an image file upright into the buffer, which has `max_bytes`.

    `size` is the width and height in pixels before the page is turned.
    """
    with open_image(pointer.file, 1 << 62) as image:  # its pixels were checked when the file was fetched
        image.seek(pointer.number - 1)
        array = image_bands.draw(image, size)
    ink = measure_ink(array)
    turn = orientation.detect_turn(array) if ink >= BLANK_INK else 0
    height, width = _write_pixels(np.rot90(array, -turn // 90), buffer, max_bytes)
    return DrawResult(width, height, 0, turn, ink)


async def text_only(file: CheckedFile, number: int, page_pool: PagePool) -> tuple[Page, TextLayer]:
    """Read only the text layer of a page that cannot be rendered. Raises SourceError or WorkerDied."""
    pointer = PagePointer(str(file.path), number, 0, file.password)
    with limit_cpu_time(_TEXT_ONLY_S, nested=False):
        rotation_in, width, height, words, faults = await page_pool.call(read_text_only, pointer)
    page = Page(
        number=number,
        width_pt=width,
        height_pt=height,
        rotation_in=rotation_in,
        state=State.TEXT_LAYER if words else State.FAILED,
        audit=_record(faults),
    )
    return page, words


def read_text_only(pointer: PagePointer) -> tuple[int, float, float, TextLayer, tuple[Fault, ...]]:
    """In a page worker: the page's rotation in degrees, its width and height in points, its words and its faults."""
    with open_bare_page(pointer.file, pointer.number, 0, pointer.password) as (page, _):
        size = round(page.rect.width, 3), round(page.rect.height, 3)
        words = _to_layer(page, get_text_page(page).extractWORDS())
        return page.rotation, *size, words, damage.find_faults(page)


async def preview(file: CheckedFile, page: Page, page_pool: PagePool) -> bytes:
    """Render a small WebP image of a page, turned as the page was read. Raises SourceError or WorkerDied."""
    pointer = PagePointer(str(file.path), page.number, page.rotation_applied, file.password)
    with limit_cpu_time(_PREVIEW_S):
        return await page_pool.call_with_retry(draw_preview, pointer, file.is_pdf, page.height_pt / page.width_pt)


def draw_preview(pointer: PagePointer, is_pdf: bool, aspect: float) -> bytes:
    """In a page worker: draw the preview. `aspect` is its height over its width."""
    from PIL import Image

    size = (max(round(_PREVIEW_PX / max(aspect, 1.0)), 1), max(round(_PREVIEW_PX * min(aspect, 1.0)), 1))
    if is_pdf:
        upright = Image.fromarray(_draw_small(pointer))
    else:
        unturned = size if pointer.turn % 180 == 0 else size[::-1]
        with open_image(pointer.file, 1 << 62) as image:
            image.seek(pointer.number - 1)
            upright = Image.fromarray(image_bands.draw(image, unturned)).rotate(-pointer.turn, expand=True)
    output = io.BytesIO()
    resized = upright if upright.size == size else upright.resize(size)
    resized.save(output, "WEBP", quality=_PREVIEW_QUALITY, method=_PREVIEW_METHOD)
    return output.getvalue()


def _draw_small(pointer: PagePointer) -> Array:
    with open_page(pointer.file, pointer.number, pointer.turn, pointer.password) as page:
        check_images(page)
        zoom = _PREVIEW_PX / max(page.rect.width, page.rect.height)
        return render_display_list(page.get_displaylist(), zoom, zoom)


def _write_pixels(array: Array, buffer: PixelBuffer, max_bytes: int) -> tuple[int, int]:
    """Copy the pixels into the buffer; returns their height and width."""
    height, width, _ = array.shape
    with buffer.map(max_bytes) as memory:
        np.frombuffer(memory, np.uint8, array.size).reshape(array.shape)[:] = array
    return height, width


def get_text_page(page: Any) -> Any:
    """Extract MuPDF's text page, which serves for the words and for their direction.

    It comes from the page and not from the display list, which leaves out invisible words without height: scanners
    write such words.
    """
    import pymupdf

    return page.get_textpage(flags=pymupdf.TEXTFLAGS_WORDS)


def detect_text_turn(page: Any, blocks: Sequence[Any]) -> int | None:
    """The clockwise turn that makes the text layer upright; None if only the pixels of the scan can tell."""
    counts = _count_characters_by_turn(page, blocks)
    total = sum(counts.values())
    if not total or (total < _MIN_HIDDEN_CHARACTERS and detect_scan(page)[1]):
        return None
    turn, characters = counts.most_common(1)[0]
    return turn if total >= _MIN_TURN_CHARACTERS and characters >= _TURN_SHARE * total else 0


def _count_characters_by_turn(page: Any, blocks: Sequence[Any]) -> Counter[int]:
    """Characters of the text layer by the clockwise turn that makes them upright."""
    counts: Counter[int] = Counter()
    matrix = page.rotation_matrix
    for block in blocks:
        for line in block.get("lines", ()):
            dx, dy = line["dir"]
            x, y = dx * matrix.a + dy * matrix.c, dx * matrix.b + dy * matrix.d
            turn = (0 if x > 0 else 180) if abs(x) >= abs(y) else (90 if y < 0 else 270)
            counts[turn] += sum(len(span["text"].strip()) for span in line["spans"])
    return counts


def _to_layer(page: Any, words: Sequence[Sequence[Any]]) -> TextLayer:
    """Convert MuPDF's words to a text layer, with boxes as fractions of the displayed page."""
    corners = np.array([word[:4] for word in words], np.float64).reshape(-1, 2, 2)  # word, corner, x and y
    a, b, c, d, e, f = get_turn_matrix(page)
    displayed = (corners @ ((a, b), (c, d)) + (e, f)) / (page.rect.width, page.rect.height)
    boxes = np.concatenate((displayed.min(1), displayed.max(1)), 1).clip(0, 1).round(BOX_DECIMALS)
    return TextLayer([_replace_surrogates(word[4]) for word in words], boxes.tobytes())


def read_annotations(page: Any, limit_s: float) -> tuple[tuple[Link, ...], tuple[FormField, ...], bool]:
    """Read the page's links to addresses and its form fields, and whether all were read within `limit_s`."""
    links: list[Link] = []
    fields: list[FormField] = []
    try:
        with limit_step(limit_s):
            fields.extend(page_annotations.iterate_fields(page))
            links.extend(page_annotations.iterate_links(page))
    except StepTimeout:
        return tuple(links), tuple(fields), False
    return tuple(links), tuple(fields), True


def _to_box(page: Any, rect: Any) -> Box:
    """Convert PyMuPDF's coordinates of the unrotated page to fractions of the displayed page."""
    import pymupdf

    x0, y0, x1, y1 = pymupdf.Rect(rect) * page.rotation_matrix
    return Box.of(x0, y0, x1, y1, page.rect.width, page.rect.height)


def _replace_surrogates(text: str) -> str:
    # Damaged fonts yield lone surrogates, which cannot be written as JSON.
    return text.encode("utf-8", "replace").decode()


def measure_ink(array: Array) -> float:
    """The share of 4 × 4 blocks that differ from the page's background in red, green or blue.

    Grey levels alone would lose bright colours: yellow has almost the brightness of white.
    """
    rows, columns = array.shape[0] // _INK_BLOCK, array.shape[1] // _INK_BLOCK
    if not rows or not columns:
        return 1.0
    lines = array[: rows * _INK_BLOCK, : columns * _INK_BLOCK].reshape(rows, _INK_BLOCK, columns * _INK_BLOCK * 3)
    # Add whole lines, then add them to themselves shifted by one and by two pixels: sums over axes take twice as long.
    down = np.add(lines[:, 0], lines[:, 1], dtype=np.int16)
    down += lines[:, 2]
    down += lines[:, 3]
    pairs = down[:, :-3] + down[:, 3:]
    blocks = pairs[:, :-6] + pairs[:, 6:]
    contrast = INK_CONTRAST * _INK_BLOCK**2
    bands = (np.ascontiguousarray(blocks[:, band :: _INK_BLOCK * 3]) for band in range(3))
    inked = [np.abs(band - np.int16(np.median(band))) > contrast for band in bands]
    return float(np.logical_or.reduce(inked).mean())
