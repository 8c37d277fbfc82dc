"""Read one page into the JSON that families/layout/ parses. Runs in page workers.

A page with a usable text layer is read from that layer, any other page by OCR. PyMuPDF's layout model then finds the
regions from the positions of lines and drawings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from twopass.engines.cpu import (
    answer,
    broken_fonts,
    layer_check,
    layer_words,
    layout_regions,
    reading_order,
    scanned_page,
    widgets,
)
from twopass.engines.cpu.answer import PageContent
from twopass.engines.cpu.formulas import glyphs
from twopass.engines.cpu.geometry import Rect, StyledWord
from twopass.engines.cpu.layer_words import LayerWords
from twopass.engines.cpu.tables import scanned_rules
from twopass.engines.cpu.tables.regions import add_ruled_tables, settle_tables
from twopass.engines.cpu.tables.rules import find_rules, find_shades
from twopass.errors import SourceError
from twopass.pages import ocr, source_files
from twopass.pages.rendered_page import PagePointer
from twopass.pages.shared_pixels import Pixels

POINTS_PER_PIXEL = 0.5  # of an image file; any value works, because boxes are parsed as fractions of the page
DENSE_HIDDEN_LINES = 400  # a hidden layer with more is kept: OCR of an 800-line newspaper took 31 s
FEW_WORDS = 20  # fewer visible words on a scan may be a stamp
OCR_ADVANTAGE = 1.5  # OCR must read this many times their number to replace them
MIN_OCR_SHARE = 0.1  # of a hidden layer's words: less means that OCR saw no text, or a smudge
MIN_AGREEMENT = 0.7  # of an odd-looking visible layer with the pixels: below it, fonts map letters to wrong ones


def read_page(pointer: PagePointer, pixels: Pixels, language: str | None) -> str:
    """Return the page as compact JSON; the same page always gives the same bytes."""
    if not pointer.is_pdf:
        return answer.to_json(_read_image(pixels, language, use_model=True))
    try:
        with _open_upright(pointer) as page:
            return answer.to_json(_read_pdf_page(page, pixels, language, use_model=True))
    except SourceError:
        return answer.to_json(_read_bare_page(pointer, pixels, language, use_model=True))


def read_page_simply(pointer: PagePointer, pixels: Pixels, language: str | None) -> str:
    """The same without the layout model and annotations, for a page on which these took too long."""
    read = partial(_read_bare_page, pointer) if pointer.is_pdf else _read_image
    return answer.to_json(read(pixels, language, use_model=False))


def _read_image(pixels: Pixels, language: str | None, use_model: bool) -> PageContent:
    width, height = pixels.width * POINTS_PER_PIXEL, pixels.height * POINTS_PER_PIXEL
    return _read_scan(pixels, language, width, height, use_model)


def _read_bare_page(pointer: PagePointer, pixels: Pixels, language: str | None, use_model: bool) -> PageContent:
    """Read the page without its annotations, whose damage may keep it from being turned upright."""
    opened = source_files.open_bare_page(pointer.file, pointer.number, pointer.turn, pointer.password)
    with opened as (page, had_annotations):
        page.remove_rotation()
        content = _read_pdf_page(page, pixels, language, use_model)
    return replace(content, lacks_annotations=had_annotations)


def _read_pdf_page(page: Any, pixels: Pixels, language: str | None, use_model: bool) -> PageContent:
    """Choose the text layer or OCR: a visible layer first, then OCR, then a hidden layer that OCR does not beat."""
    blocks, layer, is_scan = layer_words.extract(page)
    if not layer.hidden:
        words = broken_fonts.repair(layer.words, pixels.array(), pixels.width / page.rect.width)
        layer = replace(layer, words=words)
    is_usable = bool(layer.words) and not layer.is_garbage
    if is_usable and not layer.hidden and not (is_scan and len(layer.words) < FEW_WORDS):
        content = _read_layer(page, blocks, layer, pixels, use_model)
        if content.agreement is None or content.agreement >= MIN_AGREEMENT:
            return content
        is_usable = False
    elif is_usable and layer.lines > DENSE_HIDDEN_LINES:
        return _read_layer(page, blocks, layer, pixels, use_model)
    content = _read_scan(pixels, language, page.rect.width, page.rect.height, use_model)
    ocr_words = sum(len(region.words) for region in content.regions)
    required_words = (MIN_OCR_SHARE if layer.hidden else OCR_ADVANTAGE) * len(layer.words)
    if is_usable and ocr_words < required_words:
        return _read_layer(page, blocks, layer, pixels, use_model)
    return content


def _read_layer(page: Any, blocks: Sequence[Any], layer: LayerWords, pixels: Pixels, use_model: bool) -> PageContent:
    """Read the page from its layer, and compare the layer with the pixels if it is hidden or looks odd."""
    via = "hidden_layer" if layer.hidden else "text_layer"
    content = _analyse_layout(page, blocks, layer.words, via, use_model)
    if not layer.hidden:
        content = replace(content, regions=glyphs.add_latex(page, blocks, content.regions))
    if not layer.hidden and not layer_check.is_suspicious(layer.words):
        return content
    scale = pixels.width / page.rect.width
    return replace(content, agreement=layer_check.measure_agreement(layer.words, pixels.array(), scale))


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
    bounds = Rect(*page.rect)
    rules = [*find_rules(blocks), *pixel_rules]
    shades = list(find_shades(blocks, bounds))
    dense = not use_model or layout_regions.is_dense(blocks, words, bounds)
    regions = [] if dense else widgets.extend_regions(layout_regions.detect(page, blocks, rules, shades), words)
    regions = add_ruled_tables(regions, rules, shades, words)
    regions = settle_tables(reading_order.assign_words(regions, words, bounds))
    regions = reading_order.sort_regions(regions, bounds)
    return PageContent(bounds.x1, bounds.y1, via, regions, dense=dense)


# ---- its pixels ----


def _read_scan(pixels: Pixels, language: str | None, width: float, height: float, use_model: bool) -> PageContent:
    """Read the page by OCR; width and height of the page are in points."""
    import pymupdf

    array = pixels.array()
    scan = ocr.read(array, language)
    skew = scanned_page.estimate_skew(scan.lines)
    scale = width / pixels.width
    words = tuple(scanned_page.split_into_words(scan.lines, scale, skew, width, height))
    if not words:
        return PageContent(width, height, "ocr", (), scan.score, unreadable=scan.unreadable)
    with pymupdf.open() as document:
        page = document.new_page(width=width, height=height)
        scanned_page.draw_page(page, array, words, skew)
        blocks, _, _ = layer_words.extract(page)
        rules = scanned_rules.drop_letters(scanned_rules.find_rules(array, scale, skew), words)
        words = tuple(scanned_rules.split_words(words, rules))
        content = _analyse_layout(page, blocks, words, "ocr", use_model, rules)
    source_files.empty_mupdf_store()  # which holds the scan's image; it is not rendered again
    return PageContent(width, height, "ocr", content.regions, scan.score, content.dense, scan.unreadable, skew)
