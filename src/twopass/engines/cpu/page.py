"""Read one page into the JSON that families/layout/ parses. Runs in page workers.

A page with a usable text layer is read from that layer, any other page by OCR. PyMuPDF's layout model then finds the
regions from the positions of lines and drawings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from twopass.document import Rect, enclose
from twopass.engines.cpu import (
    answer,
    layer_check,
    layer_words,
    layout_regions,
    letter_boxes,
    picture_text,
    reading_order,
    scanned_page,
    spaced_words,
    widgets,
)
from twopass.engines.cpu.content import PageContent, Region, StyledWord
from twopass.engines.cpu.formulas import glyphs
from twopass.engines.cpu.layer_words import LayerWords
from twopass.engines.cpu.tables.regions import add_ruled_tables, settle_tables
from twopass.engines.cpu.tables.rules import drop_letters, find_rules, find_scanned_rules, find_shades, split_words
from twopass.errors import SourceError
from twopass.pages import colored_ink, ocr, source_files
from twopass.pages.lying_fonts import Fonts
from twopass.pages.ocr import ReadLines
from twopass.pages.rendered_page import PagePointer
from twopass.pages.scripts import Tesseract
from twopass.pages.shared_pixels import Pixels
from twopass.pages.strips import Array
from twopass.pages.text_layer import TextLayer

POINTS_PER_PIXEL = 0.5  # of an image file; any value works, because boxes are parsed as fractions of the page
DENSE_HIDDEN_LINES = 400  # a hidden layer with more is kept: OCR of an 800-line newspaper took 31 s
MIN_OCR_SHARE = 0.1  # of a hidden layer's words: less means that OCR saw no text, or a smudge
MAX_UNSEEN_AGREEMENT = 0.77  # of such a layer: no better than one never compared, whatever a few lines say
MIN_AGREEMENT = 0.7  # of an odd-looking visible layer with the pixels: below it, fonts map letters to wrong ones


def read_page(
    pointer: PagePointer,
    pixels: Pixels,
    language: str | None,
    tesseract: Tesseract | None = None,
    threads: int = 1,
    read_lines: ReadLines = ocr.read_lines,
) -> str:
    """The page as compact JSON; the same page always gives the same bytes.

    `tesseract` reads scripts that RapidOCR does not know; None without its language files. `threads` recognise lines.
    `read_lines` is called once at most for the print, and once for each coloured ink across it: what it reads is never
    discarded for a second reading.
    """
    read = partial(read_lines, language=language, tesseract=tesseract)
    with ocr.use_threads(threads):
        if not pointer.is_pdf:
            return answer.to_json(_read_image(pixels, read, use_model=True))
        if pointer.is_bare:  # what broke or never returned while the page was drawn would do so again
            return answer.to_json(_read_bare_page(pointer, pixels, read, use_model=True))
        try:
            with _open_upright(pointer) as page:
                return answer.to_json(_read_pdf_page(page, pointer.hidden, pixels, read, use_model=True))
        except SourceError:
            return answer.to_json(_read_bare_page(pointer, pixels, read, use_model=True))


def read_page_simply(
    pointer: PagePointer, pixels: Pixels, language: str | None, tesseract: Tesseract | None = None, threads: int = 1
) -> str:
    """The same without the layout model and annotations, for a page on which these took too long."""
    read = partial(_read_bare_page, pointer) if pointer.is_pdf else _read_image
    read_lines = partial(ocr.read_lines, language=language, tesseract=tesseract)
    with ocr.use_threads(threads):
        return answer.to_json(read(pixels, read_lines, use_model=False))


def _read_image(pixels: Pixels, read: ReadLines, use_model: bool) -> PageContent:
    width, height = pixels.width * POINTS_PER_PIXEL, pixels.height * POINTS_PER_PIXEL
    return _lay_out_scan(*_read_scan(None, pixels.array(), read), (), width, height, use_model)


def _read_bare_page(pointer: PagePointer, pixels: Pixels, read: ReadLines, use_model: bool) -> PageContent:
    """Read the page without its annotations, whose damage may keep it from being turned upright."""
    opened = source_files.open_bare_page(pointer.file, pointer.number, pointer.turn, pointer.password)
    with opened as (page, had_annotations):
        page.remove_rotation()
        content = _read_pdf_page(page, pointer.hidden, pixels, read, use_model)
    return replace(content, lacks_annotations=had_annotations)


def _read_pdf_page(page: Any, hidden: TextLayer, pixels: Pixels, read: ReadLines, use_model: bool) -> PageContent:
    """Choose the text layer or OCR: a visible layer first, then OCR, then a hidden layer that OCR does not beat.

    `hidden` are words of the layer that cannot be seen where they stand.
    """
    blocks, layer, is_scan = layer_words.extract(page)
    layer = layer.without(hidden, Rect(*page.rect)).without_copies()
    is_usable = bool(layer.words) and not layer.is_garbage
    fonts = Fonts()
    if is_usable and not layer.hidden:
        scale = pixels.width / page.rect.width
        fonts = layer_check.examine_fonts(layer.words, pixels.array(), scale)
        is_usable = not layer_check.is_for_ocr(layer.words, fonts)
        if is_usable:
            layer = replace(layer, words=layer_check.repair_fonts(layer.words, fonts, pixels.array(), scale))
    if is_usable and not layer.hidden:
        agreement = _measure_agreement(page, layer, pixels) if layer_check.is_suspicious(layer.words) else None
        if agreement is None or agreement >= MIN_AGREEMENT:
            content = _read_visible_layer(page, blocks, layer.words, is_scan, pixels, read, use_model)
            return replace(content, agreement=agreement, fonts=fonts)
        is_usable = False
    elif is_usable and layer.lines > DENSE_HIDDEN_LINES:
        return _read_hidden_layer(page, blocks, layer, pixels, use_model)
    array, scan = _read_scan(page, pixels.array(), read)
    if is_usable and sum(len(line.text.split()) for line in scan.lines) < MIN_OCR_SHARE * len(layer.words):
        content = _read_hidden_layer(page, blocks, layer, pixels, use_model)
        agreement = None if content.agreement is None else min(content.agreement, MAX_UNSEEN_AGREEMENT)
        return replace(content, agreement=agreement)
    if is_usable:
        scan = layer_check.choose_lines(scan, layer.words, pixels.width / page.rect.width)
    content = _lay_out_scan(array, scan, (), page.rect.width, page.rect.height, use_model)
    return replace(content, fonts=fonts)


def _read_visible_layer(
    page: Any,
    blocks: Sequence[Any],
    words: Sequence[StyledWord],
    is_scan: bool,
    pixels: Pixels,
    read: ReadLines,
    use_model: bool,
) -> PageContent:
    """Read the page from its layer, and by OCR what only its images show.

    If that is more than the layer, the page is a scan with some text over it.
    """
    bounds, array, words = Rect(*page.rect), pixels.array(), spaced_words.join_marks(words)
    quads = picture_text.find_lines(blocks, words, bounds, array) if use_model or is_scan else []
    scan = _read_lines(page, array, quads, read) if quads else ocr.OcrResult((), unreadable=False)
    scan = replace(scan, lines=picture_text.drop_shapes(scan, is_scan))
    found = scanned_page.split_into_words(scan.lines, bounds.x1 / pixels.width, 0.0, bounds.x1, bounds.y1)
    added = [replace(word, from_pixels=True) for word in _renumber(found, words)]
    if is_scan and len(added) > len(words):
        return _lay_out_scan(array, scan, words, bounds.x1, bounds.y1, use_model)
    content = _analyse_layout(page, blocks, [*words, *added], "text_layer", use_model)
    content = replace(content, regions=glyphs.add_latex(page, blocks, content.regions))
    content = _add_unread(content, scan, bounds.x1 / pixels.width)
    return replace(content, lacks_lines=scan.unreadable or scan.lacks_lines, tesseract=scan.language)


def _renumber(words: Iterable[StyledWord], others: Sequence[StyledWord]) -> Iterator[StyledWord]:
    """Number the words' lines behind those of the others."""
    first = 1 + max((word.line for word in others), default=-1)
    return (replace(word, line=first + word.line) for word in words)


def _read_hidden_layer(
    page: Any, blocks: Sequence[Any], layer: LayerWords, pixels: Pixels, use_model: bool
) -> PageContent:
    content = _analyse_layout(page, blocks, layer.words, "hidden_layer", use_model)
    return replace(content, agreement=_measure_agreement(page, layer, pixels))


def _measure_agreement(page: Any, layer: LayerWords, pixels: Pixels) -> float | None:
    return layer_check.measure_agreement(layer.words, pixels.array(), pixels.width / page.rect.width)


# ---- the file ----


@contextmanager
def _open_upright(pointer: PagePointer) -> Iterator[Any]:
    """Open the page, upright and without /Rotate."""
    with source_files.open_shared_pdf(pointer.file, pointer.password) as shared:
        page = shared[pointer.number - 1]
        if not (page.rotation or pointer.turn):
            yield page
            return
    # Removing a rotation rewrites the page, and the shared document must not change.
    with source_files.open_pdf(pointer.file, pointer.password) as document:
        page = document[pointer.number - 1]
        page.set_rotation((page.rotation + pointer.turn) % 360)
        page.remove_rotation()
        yield page


# ---- its layout ----


def _analyse_layout(
    page: Any,
    blocks: Sequence[Any],
    words: Sequence[StyledWord],
    via: str,
    use_model: bool,
    pixel_rules: Sequence[Rect] = (),
) -> PageContent:
    """Group the words into regions in reading order; the layout model is skipped on a dense or very large page.

    `pixel_rules` are those that are seen in the pixels of a scan.
    """
    bounds, is_scan = Rect(*page.rect), via == "ocr"
    fields = widgets.find_fields(page)
    drawn = widgets.drop_borders(blocks, fields) if fields else blocks
    rules = [*find_rules(drawn), *pixel_rules]
    words, shades = letter_boxes.join(words, rules), list(find_shades(drawn))
    dense = not use_model or layout_regions.is_dense(blocks, words, bounds)
    regions = [] if dense else layout_regions.detect(page, blocks, rules, shades)
    regions = add_ruled_tables(widgets.extend_regions(regions, words, fields), rules, shades, words)
    regions = widgets.join_forms(reading_order.assign_words(regions, words, bounds), fields)
    forms = [region for region in regions if widgets.is_form(region, fields)]
    others = settle_tables([region for region in regions if not any(region is form for form in forms)], drawn)
    if is_scan:
        gutters, bands = scanned_page.find_gutters(words), scanned_page.find_bands(words)
        others = [part for region in others for part in reading_order.split_notes(region)]
        others = reading_order.split_at_gutters(others, gutters)
        others = [reading_order.judge_columns(region, [*gutters, *bands]) for region in others]
    regions = reading_order.sort_regions([*others, *forms], bounds)
    regions = widgets.split_forms(regions, fields) if forms else regions  # whose lines stay together
    regions = layout_regions.add_cell_pictures(glyphs.label_formulas(regions), blocks)
    return PageContent(bounds.x1, bounds.y1, via, regions, dense=dense)


# ---- its pixels ----


def _read_scan(page: Any, array: Array, read: ReadLines) -> tuple[Array, ocr.OcrResult]:
    """Read a page of a PDF, or an image without one: the print, and apart from it the coloured ink that crosses it.

    Returns the print's pixels, too.
    """
    inks = colored_ink.find_inks(array)
    printed = colored_ink.lift(array, inks) if inks else array
    quads = ocr.detect_lines(printed)
    scan = _read_lines(page, printed, quads, read, inks) if page else read(printed, quads)
    for ink in inks:
        scan = _add_ink(scan, ink, array, read)
    return printed, scan


def _add_ink(scan: ocr.OcrResult, ink: colored_ink.Ink, array: Array, read: ReadLines) -> ocr.OcrResult:
    """The result with what the ink says; it counts as a line that was left out if it hides print."""
    drawn = ink.draw(array)
    found = read(drawn, ocr.detect_quickly(drawn)).move(ink.box.x0, ink.box.y0)
    lines = picture_text.drop_shapes(found, is_scan=False)
    apart = (*scan.apart, lines) if lines else scan.apart
    unread = found.unread if lines or found.unreadable else ()  # rings and signatures are no text
    hidden = (ink.corners,) if ink.hides_print(array) else ()
    return replace(scan, apart=apart, unread=(*scan.unread, *unread, *hidden))


def _read_lines(
    page: Any, array: Array, quads: Sequence[ocr.Corners], read: ReadLines, inks: Sequence[colored_ink.Ink] = ()
) -> ocr.OcrResult:
    """Read detected lines, from a sharper rendering of the page if they are small; `inks` are lifted from it."""
    sharp = scanned_page.render_sharper(page, array, quads)
    if sharp is not None and inks:
        sharp = colored_ink.lift(sharp, inks, sharp.shape[0] / array.shape[0])
    scan = read(array, quads, sharp=sharp)
    own = scanned_page.measure_own_zoom(page)
    return replace(scan, zoom=min(scan.zoom, own * page.rect.width / array.shape[1])) if own else scan


def _lay_out_scan(
    array: Array,
    scan: ocr.OcrResult,
    layer: Sequence[StyledWord],
    width: float,
    height: float,
    use_model: bool,
) -> PageContent:
    """Arrange the lines of a scan and the words that are typed over it; width and height of the page are in points."""
    import pymupdf

    skew, scale = scanned_page.estimate_skew(scan.lines, array), width / array.shape[1]
    own = list(scanned_page.straighten(layer, skew, width, height))
    read = scanned_page.cut_lines(list(scanned_page.split_into_words(scan.lines, scale, skew, width, height)))
    words = (*own, *_renumber(read, own))
    if not words:
        return _describe_scan(PageContent(width, height, "ocr", ()), scan, scale)
    with pymupdf.open() as document:
        page = document.new_page(width=width, height=height)
        blocks = [{"type": 1, "bbox": tuple(page.rect)}]  # the scan; MuPDF would encode its pixels as a PNG file
        if use_model and not layout_regions.is_dense(blocks, words, Rect(*page.rect)):
            scanned_page.draw_page(page, array, words, skew)
        rules = drop_letters(find_scanned_rules(array, scale, skew), words)
        words = tuple(split_words(words, rules))
        content = _analyse_layout(page, blocks, words, "ocr", use_model, rules)
    source_files.empty_mupdf_store()  # which holds the scan's image; it is not rendered again
    content = _add_apart(replace(content, skew=skew), scan, scale)
    return _describe_scan(_add_unread(content, scan, scale), scan, scale)


def _add_apart(content: PageContent, scan: ocr.OcrResult, scale: float) -> PageContent:
    """The content with a region for each coloured ink that crosses print, behind what stands above it."""
    regions = list(content.regions)
    for lines in scan.apart:
        words = scanned_page.split_into_words(lines, scale, content.skew, content.width, content.height)
        numbered = tuple(_renumber(words, [word for region in regions for word in region.words]))
        _insert(Region("orphan", enclose([word.box for word in numbered]), numbered), regions)
    return replace(content, regions=regions)


def _add_unread(content: PageContent, scan: ocr.OcrResult, scale: float) -> PageContent:
    """The content with a region for each line that was left out, behind what stands above it.

    A page of nothing else stays without regions, so that it counts as not read.
    """
    regions = list(content.regions)
    for corners in scan.unread if regions else ():
        box = scanned_page.place(corners, scale, content.skew, content.width, content.height)
        _insert(Region("unread", box), regions)
    return replace(content, regions=regions)


def _insert(region: Region, regions: list[Region]) -> None:
    above = (number for number, other in enumerate(regions, 1) if _is_above(other.box, region.box))
    regions.insert(max(above, default=0), region)


def _is_above(box: Rect, other: Rect) -> bool:
    return box.centre[1] < other.centre[1] and box.overlap_x(other) > 0


def _describe_scan(content: PageContent, scan: ocr.OcrResult, scale: float) -> PageContent:
    return replace(
        content,
        score=scan.score,
        pixels_per_point=scan.zoom / scale,
        unreadable=scan.unreadable,
        lacks_lines=scan.lacks_lines and not scan.unreadable,
        tesseract=scan.language,
    )
