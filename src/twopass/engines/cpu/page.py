"""Read one page into the JSON that families/layout/ parses. Runs in page workers.

A page with a usable text layer is read from that layer, any other page by OCR. PyMuPDF's layout model then finds the
regions from the positions of lines and drawings.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from twopass.engines.cpu import layer_check, reading_order, scanned_page, table_grid
from twopass.engines.cpu.reading_order import Grid, Rect, Region, StyledWord
from twopass.errors import SourceError
from twopass.pages import ocr, source_files
from twopass.pages.rendered_page import PagePointer
from twopass.pages.shared_pixels import Pixels
from twopass.text.prose import is_garbage

GRAMMAR_VERSION = 2
POINTS_PER_PIXEL = 0.5  # of an image file; any value works, because boxes are parsed as fractions of the page
# A page with more lines skips the layout model, which took 0.4 s at 240, 1.5 s at 600, 3 s at 800, 15 s at 2,400.
DENSE_LINES = 700
DENSE_SHAPES = 350  # scattered drawings: 500 squares took 2.7 s, 1,000 9 s, 2,000 20 s; tables have 1 to 60
BACKGROUND_SHARE = 0.02  # of the page: a larger drawing is a background, which would join all others
MASK_SIDE = 2000  # pixels of the mask in which drawings are counted
MAX_DRAWINGS = 10_000  # the ruled tables of a page had 2,470 at most
MAX_LAYOUT_AREA = 50e6  # square points: the model renders the page at 72 dpi, and MuPDF refuses 20,000 × 20,000
DENSE_HIDDEN_LINES = 400  # a hidden layer with more is kept: OCR of an 800-line newspaper took 31 s
FEW_WORDS = 20  # fewer visible words on a scan may be a stamp
OCR_ADVANTAGE = 1.5  # OCR must read this many times their number to replace them
MIN_OCR_SHARE = 0.1  # of a hidden layer's words: less means that OCR saw no text, or a smudge
MIN_AGREEMENT = 0.7  # of an odd-looking visible layer with the pixels: below it, fonts map letters to wrong ones
MAX_RULE_OVERHANG = 150.0  # points by which a table's rules may be longer than its text


@dataclass(frozen=True)
class _TextLayerWords:
    """The words in a page's text layer; `hidden` if most are invisible or lie under a scan."""

    words: tuple[StyledWord, ...]
    hidden: bool

    @property
    def is_garbage(self) -> bool:
        return is_garbage(" ".join(word.text for word in self.words))

    @property
    def lines(self) -> int:
        return len({word.line for word in self.words})


@dataclass(frozen=True)
class _PageContent:
    """The content of the answer: `via` is text_layer, hidden_layer or ocr, `skew` is in degrees clockwise.

    `agreement` of the layer with the pixels is None if it was not measured, or the pixels could not tell.
    """

    width: float
    height: float
    via: str
    regions: Sequence[Region]
    score: float | None = None
    dense: bool = False
    unreadable: bool = False
    skew: float = 0.0
    lacks_annotations: bool = False
    agreement: float | None = None


@cache
def load_layout_model() -> None:
    """Load the layout model, which takes a second or two; the models of RapidOCR load at the first scan."""
    import onnxruntime

    def one_thread() -> Any:
        options = make_options()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        return options

    # pymupdf.layout uses default session options: a spinning thread per core in every worker, 0.35 s of CPU time
    # per page instead of 0.23. Replacing SessionOptions is the only way to change them.
    make_options, onnxruntime.SessionOptions = onnxruntime.SessionOptions, one_thread
    import pymupdf4llm  # noqa: F401 - importing it activates the layout model


def read_page(pointer: PagePointer, pixels: Pixels, language: str | None) -> str:
    """Return the page as compact JSON; the same page always gives the same bytes."""
    if not pointer.is_pdf:
        return _to_json(_read_image(pixels, language, use_model=True))
    try:
        with _open_upright(pointer) as page:
            return _to_json(_read_pdf_page(page, pixels, language, use_model=True))
    except SourceError:
        return _to_json(_read_bare_page(pointer, pixels, language, use_model=True))


def read_page_simply(pointer: PagePointer, pixels: Pixels, language: str | None) -> str:
    """The same without the layout model and annotations, for a page on which these took too long."""
    read = partial(_read_bare_page, pointer) if pointer.is_pdf else _read_image
    return _to_json(read(pixels, language, use_model=False))


def _read_image(pixels: Pixels, language: str | None, use_model: bool) -> _PageContent:
    width, height = pixels.width * POINTS_PER_PIXEL, pixels.height * POINTS_PER_PIXEL
    return _read_scan(pixels, language, width, height, use_model)


def _read_bare_page(pointer: PagePointer, pixels: Pixels, language: str | None, use_model: bool) -> _PageContent:
    """Read the page without its annotations, whose damage may keep it from being turned upright."""
    opened = source_files.open_bare_page(pointer.file, pointer.number, pointer.turn, pointer.password)
    with opened as (page, had_annotations):
        page.remove_rotation()
        content = _read_pdf_page(page, pixels, language, use_model)
    return replace(content, lacks_annotations=had_annotations)


def _read_pdf_page(page: Any, pixels: Pixels, language: str | None, use_model: bool) -> _PageContent:
    """Choose the text layer or OCR: a visible layer first, then OCR, then a hidden layer that OCR does not beat."""
    blocks, layer, is_scan = _extract_text(page)
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


def _read_layer(
    page: Any, blocks: Sequence[Any], layer: _TextLayerWords, pixels: Pixels, use_model: bool
) -> _PageContent:
    """Read the page from its layer, and compare the layer with the pixels if it is hidden or looks odd."""
    via = "hidden_layer" if layer.hidden else "text_layer"
    content = _analyse_layout(page, blocks, layer.words, via, use_model)
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


# ---- its text layer ----


def _extract_text(page: Any) -> tuple[list[Any], _TextLayerWords, bool]:
    """Return MuPDF's blocks, the words of the text layer, and whether an image fills the page."""
    import pymupdf

    flags = (
        pymupdf.TEXT_COLLECT_STYLES
        | pymupdf.TEXT_COLLECT_VECTORS
        | pymupdf.TEXT_PRESERVE_IMAGES
        | pymupdf.TEXT_MEDIABOX_CLIP
    )
    textpage = page.get_textpage(flags=flags)
    blocks = textpage.extractDICT()["blocks"]
    words = tuple(_build_words(textpage.extractWORDS(), [block for block in blocks if block["type"] == 0]))
    is_scan, hidden = source_files.detect_scan(page) if words else (True, False)
    return blocks, _TextLayerWords(words, hidden), is_scan


def _build_words(raw_words: Sequence[Any], blocks: Sequence[Any]) -> Iterator[StyledWord]:
    """Yield MuPDF's words with the style of their lines; lines are numbered in the order of their first words."""
    numbers: dict[tuple[int, int], int] = {}
    for x0, y0, x1, y1, text, block, line, _ in raw_words:
        number = numbers.setdefault((block, line), len(numbers))
        source = blocks[block]["lines"][line]
        spans = [span for span in source["spans"] if span["text"].strip()] or source["spans"]
        yield StyledWord(
            Rect(x0, y0, x1, y1),
            text.encode("utf-8", "replace").decode(),
            number,
            size=max(spans, key=lambda span: len(span["text"]))["size"],
            bold=all(span["flags"] & 16 for span in spans),
            mono=all(span["flags"] & 8 for span in spans),
            upright=abs(source["dir"][0]) > 0.9,
        )


# ---- its layout ----


def _analyse_layout(
    page: Any, blocks: Sequence[Any], words: Sequence[StyledWord], via: str, use_model: bool
) -> _PageContent:
    """Group the words into regions in reading order; the layout model is skipped on a dense or very large page."""
    bounds = Rect(*page.rect)
    dense = (
        not use_model
        or bounds.area > MAX_LAYOUT_AREA
        or len({word.line for word in words}) > DENSE_LINES
        or _count_shapes(blocks, bounds) > DENSE_SHAPES
    )
    regions = [] if dense else _detect_regions(page, blocks)
    regions = reading_order.sort_regions(reading_order.assign_words(regions, words, bounds), bounds)
    return _PageContent(bounds.x1, bounds.y1, via, regions, dense=dense)


def _detect_regions(page: Any, blocks: Sequence[Any]) -> list[Region]:
    """Return the regions that the layout model finds, and pictures that it missed."""
    load_layout_model()
    from pymupdf4llm.helpers import utils

    page.get_layout(return_raw=True)
    groups = [group for group in page.layout_information or () if _is_large(group["group_bbox"])]
    rules = tuple(_find_rules(blocks))
    regions = [_build_region(group, rules) for group in groups]
    page.layout_information = [(*region.box, region.label) for region in regions]
    detected = len(regions)
    utils.add_image_orphans(page, list(blocks))
    regions += [Region("picture", Rect(*box[:4])) for box in page.layout_information[detected:]]
    drawings = [Rect(*block["bbox"]) for block in blocks if block["type"] == 3]
    return reading_order.grow_pictures(regions, drawings, Rect(*page.rect))


def _count_shapes(blocks: Sequence[Any], bounds: Rect) -> int:
    """Count scattered drawings: not the rules of a table, which touch each other, nor its cells, which are aligned."""
    drawings = [Rect(*block["bbox"]) for block in blocks if block["type"] == 3]
    drawings = [box for box in drawings if box.area < BACKGROUND_SHARE * bounds.area]
    if not DENSE_SHAPES < len(drawings) <= MAX_DRAWINGS:
        return len(drawings)
    import cv2  # most pages have few drawings and do without it

    aligned = min(len({round(box.x0) for box in drawings}), len({round(box.y0) for box in drawings}))
    scale = min(1.0, MASK_SIDE / max(bounds.x1, bounds.y1))  # at most one pixel per point
    mask = np.zeros((math.ceil(scale * bounds.y1) + 1, math.ceil(scale * bounds.x1) + 1), np.uint8)
    for box in drawings:
        x0, y0, x1, y1 = (int(scale * side) for side in box)
        cv2.rectangle(mask, (x0, y0), (x1, y1), 1, cv2.FILLED)
    separate = cv2.connectedComponents(mask)[0] - 1  # without the background
    return min(separate, aligned)


def _is_large(box: Sequence[float]) -> bool:
    return box[2] - box[0] > 2 and box[3] - box[1] > 2


def _build_region(group: Any, rules: Sequence[Rect]) -> Region:
    box, label, lines = Rect(*map(float, group["group_bbox"])), group["class_name"], group.get("table_grid")
    if label != "table":
        return Region(label, box)
    if not lines:
        return Region("text", box)
    rows = tuple(float(y) + box.y0 for y in lines.h_lines)
    cols = tuple(float(x) + box.x0 for x in lines.v_lines)
    return Region(label, box, grid=Grid(rows, cols, tuple(_find_table_rules(box, rules))))


def _find_table_rules(box: Rect, rules: Sequence[Rect]) -> list[Rect]:
    """Return the rules that cross the table's text and the rules around those, without frames of the page."""
    margin = table_grid.MAX_BORDER_DISTANCE
    width, height = box.x1 - box.x0 + MAX_RULE_OVERHANG, box.height + MAX_RULE_OVERHANG
    fitting = [rule for rule in rules if rule.x1 - rule.x0 <= width and rule.height <= height]
    outer = Rect(box.x0 - margin, box.y0 - margin, box.x1 + margin, box.y1 + margin)
    crossing = [rule for rule in fitting if rule.intersects(outer)]
    bounds = reading_order.enclose([box, *crossing])
    return [rule for rule in fitting if bounds.contains(rule.centre, table_grid.SAME_LINE)]


def _find_rules(blocks: Sequence[Any]) -> Iterator[Rect]:
    """Yield thin drawings and the four sides of drawn boxes."""
    for block in blocks:
        if block["type"] != 3:
            continue
        box = Rect(*block["bbox"])
        if min(box.x1 - box.x0, box.y1 - box.y0) <= table_grid.MAX_RULE_WIDTH:
            yield box
        elif block.get("stroked") and block.get("isrect"):
            yield box._replace(y1=box.y0)
            yield box._replace(y0=box.y1)
            yield box._replace(x1=box.x0)
            yield box._replace(x0=box.x1)


# ---- its pixels ----


def _read_scan(pixels: Pixels, language: str | None, width: float, height: float, use_model: bool) -> _PageContent:
    """Read the page by OCR; width and height of the page are in points."""
    import pymupdf

    array = pixels.array()
    scan = ocr.read(array, language)
    skew = scanned_page.estimate_skew(scan.lines)
    scale = width / pixels.width
    words = tuple(scanned_page.split_into_words(scan.lines, scale, skew, width, height))
    if not words:
        return _PageContent(width, height, "ocr", (), scan.score, unreadable=scan.unreadable)
    with pymupdf.open() as document:
        page = document.new_page(width=width, height=height)
        scanned_page.draw_page(page, array, words, skew)
        blocks, _, _ = _extract_text(page)
        content = _analyse_layout(page, blocks, words, "ocr", use_model)
    source_files.empty_mupdf_store()  # which holds the scan's image; it is not rendered again
    return _PageContent(width, height, "ocr", content.regions, scan.score, content.dense, scan.unreadable, skew)


# ---- the answer ----


def _to_json(content: _PageContent) -> str:
    answer: dict[str, Any] = {
        "v": GRAMMAR_VERSION,
        "width": round(content.width, 2),
        "height": round(content.height, 2),
        "via": content.via,
        "score": 1.0 if content.score is None else round(content.score, 4),
        "agreement": None if content.agreement is None else round(content.agreement, 4),
        "dense": content.dense,
        "unreadable_script": content.unreadable,
        **({"lacks_annotations": True} if content.lacks_annotations else {}),
        "boxes": [_region_to_json(region, content) for region in content.regions],
    }
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":"))


def _region_to_json(region: Region, content: _PageContent) -> dict[str, Any]:
    box: dict[str, Any] = {"label": region.label, "box": _to_page_box(region.box, content)}
    if region.grid is not None:
        rows, cols, cells = table_grid.build_cells(region.box, region.grid, region.words)
        box["table"] = {"rows": rows, "cols": cols, "cells": [vars(cell) for cell in cells]}
        return box
    if region.words:
        lines = reading_order.group_rows if region.label in ("picture", "formula") else reading_order.order_lines
        box["lines"] = [_line_to_json(line, content) for line in lines(region.words)]
    return box


def _line_to_json(words: Sequence[StyledWord], content: _PageContent) -> dict[str, Any]:
    line: dict[str, Any] = {
        "box": _to_page_box(reading_order.enclose([word.box for word in words]), content),
        "text": " ".join(word.text for word in words),
        "size": round(statistics.median(word.size for word in words), 1),
    }
    if all(word.bold for word in words):
        line["bold"] = True
    if all(word.mono for word in words):
        line["mono"] = True
    if content.via == "ocr":
        line["score"] = round(statistics.mean(word.score for word in words), 4)
    return line


def _to_page_box(box: Rect, content: _PageContent) -> list[float]:
    """Return the box in page coordinates: words of a skewed scan were straightened."""
    if not content.skew:
        return [round(value, 2) for value in box]
    corners = [
        scanned_page.rotate_point(x, y, content.skew, content.width, content.height)
        for x in (box.x0, box.x1)
        for y in (box.y0, box.y1)
    ]
    xs, ys = zip(*corners, strict=True)
    return [round(value, 2) for value in (min(xs), min(ys), max(xs), max(ys))]
