"""In a page worker: one page of a file in, the JSON that families/layout.py parses out.

A page with a usable text layer is read from it, any other through OCR; both then go through
PyMuPDF's layout model, which sees where lines stand and what is drawn. Knows PyMuPDF and, through
`scan`, pixels. Knows nothing of elements, documents or jobs.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from twopass.engines.cpu import reading_order, scanned_page, table_grid
from twopass.engines.cpu.reading_order import Grid, Rect, Region, Word
from twopass.engines.interface import PagePointer
from twopass.pages import ocr, source_files
from twopass.pages.shared_pixels import Pixels
from twopass.text.prose import is_garbage

GRAMMAR = 1
IMAGE_POINTS = 0.5  # points a pixel of an image file; boxes are read as fractions, so any will do
DENSE_LINES = 700  # text lines: the model took 0.4 s at 240, 1.5 s at 600, 3 s at 800, 15 s at 2,400
LARGEST = 50e6  # square points: the model draws the page at 72 dpi, and MuPDF refuses 20,000 × 20,000
DENSE_LAYER = 400  # lines of a hidden layer that are not read again: OCR of an 800-line newspaper took 31 s
FEW_WORDS = 20  # visible words on such a scan may be a stamp; OCR must read MUCH_MORE to replace them
MUCH_MORE = 1.5
NEXT_TO_NOTHING = 0.1  # of a hidden layer's words: OCR saw no text, or a smudge
THIN = table_grid.THIN
LONGER = 150.0  # points by which a table's rules are longer than its text at most


@dataclass(frozen=True)
class _Layer:
    """A page's own text: what is seen of it, and what lies unseen under a scan."""

    words: tuple[Word, ...]
    hidden: bool

    @property
    def is_garbage(self) -> bool:
        return is_garbage(" ".join(word.text for word in self.words))

    @property
    def lines(self) -> int:
        return len({word.line for word in self.words})


@dataclass(frozen=True)
class _Seen:
    """What goes into the answer."""

    width: float
    height: float
    via: str
    regions: Sequence[Region]
    score: float | None = None
    dense: bool = False
    unreadable: bool = False
    skew: float = 0.0


@cache
def load() -> None:
    """Have the layout model ready (a second or two); RapidOCR's come with the first scan."""
    import onnxruntime

    def one_thread() -> Any:
        options = make_options()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        return options

    # pymupdf.layout takes default options: a spinning thread per core in every worker, 0.35 s of
    # processor a page instead of 0.23. Nothing else lets us say so.
    make_options, onnxruntime.SessionOptions = onnxruntime.SessionOptions, one_thread
    import pymupdf4llm  # noqa: F401 - its import switches the layout model on


def read_page(pointer: PagePointer, pixels: Pixels, language: str | None) -> str:
    """The page as compact JSON; the same bytes for the same page."""
    if not _is_pdf(pointer.file):
        return _written(_scanned(pixels, language, pixels.width * IMAGE_POINTS, pixels.height * IMAGE_POINTS))
    with _upright(pointer) as page:
        return _written(_read(page, pixels, language))


def _read(page: Any, pixels: Pixels, language: str | None) -> _Seen:
    blocks, layer, full_image = _text_layer(page)
    visible = bool(layer.words) and not layer.hidden and not layer.is_garbage
    if visible and not (full_image and len(layer.words) < FEW_WORDS):
        return _laid_out(page, blocks, layer.words, "text_layer")
    kept = bool(layer.words) and not layer.is_garbage
    if kept and layer.lines > DENSE_LAYER:
        return _laid_out(page, blocks, layer.words, "hidden_layer")
    seen = _scanned(pixels, language, page.rect.width, page.rect.height)
    read = sum(len(region.words) for region in seen.regions)
    enough = (NEXT_TO_NOTHING if layer.hidden else MUCH_MORE) * len(layer.words)
    if kept and read < enough:
        return _laid_out(page, blocks, layer.words, "hidden_layer" if layer.hidden else "text_layer")
    return seen


# -- the file


def _is_pdf(file: str) -> bool:
    with open(file, "rb") as stream:
        return b"%PDF-" in stream.read(1024)


@contextmanager
def _upright(pointer: PagePointer) -> Iterator[Any]:
    """The page, upright and without /Rotate."""
    with source_files.shared_pdf(pointer.file, pointer.password) as shared:
        page = shared[pointer.number - 1]
        if not (page.rotation or pointer.turn):
            yield page
            return
    # Taking a rotation out rewrites the page, and the shared file must stay as it is.
    with source_files.opened_pdf(pointer.file, pointer.password) as own:
        page = own[pointer.number - 1]
        page.set_rotation((page.rotation + pointer.turn) % 360)
        page.remove_rotation()
        yield page


# -- its text


def _text_layer(page: Any) -> tuple[list[Any], _Layer, bool]:
    """MuPDF's blocks, the words on the page, and whether a scan fills the page."""
    import pymupdf

    flags = (
        pymupdf.TEXT_COLLECT_STYLES
        | pymupdf.TEXT_COLLECT_VECTORS
        | pymupdf.TEXT_PRESERVE_IMAGES
        | pymupdf.TEXT_MEDIABOX_CLIP
    )
    textpage = page.get_textpage(flags=flags)
    blocks = textpage.extractDICT()["blocks"]
    words = tuple(_words(textpage.extractWORDS(), [block for block in blocks if block["type"] == 0]))
    full_image, hidden = source_files.covered(page) if words else (True, False)
    return blocks, _Layer(words, hidden), full_image


def _words(found: Sequence[Any], blocks: Sequence[Any]) -> Iterator[Word]:
    numbers: dict[tuple[int, int], int] = {}
    for x0, y0, x1, y1, text, block, line, _ in found:
        number = numbers.setdefault((block, line), len(numbers))
        source = blocks[block]["lines"][line]
        spans = [span for span in source["spans"] if span["text"].strip()] or source["spans"]
        yield Word(
            Rect(x0, y0, x1, y1),
            text.encode("utf-8", "replace").decode(),
            number,
            size=max(spans, key=lambda span: len(span["text"]))["size"],
            bold=all(span["flags"] & 16 for span in spans),
            mono=all(span["flags"] & 8 for span in spans),
            upright=abs(source["dir"][0]) > 0.9,
        )


# -- its layout


def _laid_out(page: Any, blocks: Sequence[Any], words: Sequence[Word], via: str) -> _Seen:
    whole = Rect(*page.rect)
    dense = len({word.line for word in words}) > DENSE_LINES or whole.area > LARGEST
    regions = [] if dense else _regions(page, blocks)
    filled = reading_order.fill(regions, words, whole)
    return _Seen(whole.x1, whole.y1, via, reading_order.in_order(filled, whole), dense=dense)


def _regions(page: Any, blocks: Sequence[Any]) -> list[Region]:
    """What the layout model sees, and pictures that it missed."""
    load()
    from pymupdf4llm.helpers import utils

    page.get_layout(return_raw=True)
    raw = [group for group in page.layout_information or () if _is_large(group["group_bbox"])]
    rules = tuple(_rules(blocks))
    regions = [_region(group, rules) for group in raw]
    page.layout_information = [(*region.box, region.label) for region in regions]
    known = len(regions)
    utils.add_image_orphans(page, list(blocks))
    regions += [Region("picture", Rect(*box[:4])) for box in page.layout_information[known:]]
    drawings = [Rect(*block["bbox"]) for block in blocks if block["type"] == 3]
    return reading_order.grown(regions, drawings, Rect(*page.rect))


def _is_large(box: Sequence[float]) -> bool:
    return box[2] - box[0] > 2 and box[3] - box[1] > 2


def _region(group: Any, rules: Sequence[Rect]) -> Region:
    box, label, lines = Rect(*map(float, group["group_bbox"])), group["class_name"], group.get("table_grid")
    if label != "table":
        return Region(label, box)
    if not lines:
        return Region("text", box)
    rows, cols = (tuple(float(at) for at in axis) for axis in (lines.h_lines, lines.v_lines))
    near = tuple(_around(box, rules))
    return Region(label, box, grid=Grid(tuple(at + box.y0 for at in rows), tuple(at + box.x0 for at in cols), near))


def _around(box: Rect, rules: Sequence[Rect]) -> list[Rect]:
    """The rules that run through the table's text, and those that these lead to; no frames of the page."""
    reach = table_grid.CLOSED
    width, height = box.x1 - box.x0 + LONGER, box.height + LONGER
    fitting = [rule for rule in rules if rule.x1 - rule.x0 <= width and rule.height <= height]
    outer = Rect(box.x0 - reach, box.y0 - reach, box.x1 + reach, box.y1 + reach)
    through = [rule for rule in fitting if rule.meets(outer)]
    hull = reading_order.around([box, *through])
    return [rule for rule in fitting if hull.holds(rule.centre, table_grid.SAME_LINE)]


def _rules(blocks: Sequence[Any]) -> Iterator[Rect]:
    """Thin drawings, and the four sides of drawn boxes."""
    for block in blocks:
        if block["type"] != 3:
            continue
        box = Rect(*block["bbox"])
        if min(box.x1 - box.x0, box.y1 - box.y0) <= THIN:
            yield box
        elif block.get("stroked") and block.get("isrect"):
            yield box._replace(y1=box.y0)
            yield box._replace(y0=box.y1)
            yield box._replace(x1=box.x0)
            yield box._replace(x0=box.x1)


# -- its pixels


def _scanned(pixels: Pixels, language: str | None, width: float, height: float) -> _Seen:
    import pymupdf

    array = pixels.array()
    reading = ocr.read(array, language)
    skew = scanned_page.skew(reading.lines)
    scale = width / pixels.width
    words = tuple(scanned_page.words_of(reading.lines, scale, skew, width, height))
    if not words:
        return _Seen(width, height, "ocr", (), reading.score, unreadable=reading.unreadable)
    with pymupdf.open() as document:
        page = document.new_page(width=width, height=height)
        scanned_page.draw(page, array, words, skew)
        blocks, _, _ = _text_layer(page)
        seen = _laid_out(page, blocks, words, "ocr")
    source_files.empty_store()  # of the picture, which nobody draws again
    return _Seen(width, height, "ocr", seen.regions, reading.score, seen.dense, reading.unreadable, skew)


# -- the answer


def _written(seen: _Seen) -> str:
    answer: dict[str, Any] = {
        "v": GRAMMAR,
        "width": round(seen.width, 2),
        "height": round(seen.height, 2),
        "via": seen.via,
        "score": 1.0 if seen.score is None else round(seen.score, 4),
        "dense": seen.dense,
        "unreadable_script": seen.unreadable,
        "boxes": [_box(region, seen) for region in seen.regions],
    }
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":"))


def _box(region: Region, seen: _Seen) -> dict[str, Any]:
    box: dict[str, Any] = {"label": region.label, "box": _placed(region.box, seen)}
    if region.grid is not None:
        rows, cols, cells = table_grid.cells(region.box, region.grid, region.words)
        box["table"] = {"rows": rows, "cols": cols, "cells": [vars(cell) for cell in cells]}
        return box
    if region.words:
        lines = reading_order.rows if region.label in ("picture", "formula") else reading_order.columns
        box["lines"] = [_line(line, seen) for line in lines(region.words)]
    return box


def _line(words: Sequence[Word], seen: _Seen) -> dict[str, Any]:
    line: dict[str, Any] = {
        "box": _placed(reading_order.around([word.box for word in words]), seen),
        "text": " ".join(word.text for word in words),
        "size": round(statistics.median(word.size for word in words), 1),
    }
    if all(word.bold for word in words):
        line["bold"] = True
    if all(word.mono for word in words):
        line["mono"] = True
    if seen.via == "ocr":
        line["score"] = round(statistics.mean(word.score for word in words), 4)
    return line


def _placed(box: Rect, seen: _Seen) -> list[float]:
    """Back to where it stands on a page that leans."""
    if not seen.skew:
        return [round(value, 2) for value in box]
    corners = [
        scanned_page.turned(x, y, seen.skew, seen.width, seen.height)
        for x in (box.x0, box.x1)
        for y in (box.y0, box.y1)
    ]
    xs, ys = zip(*corners, strict=True)
    return [round(value, 2) for value in (min(xs), min(ys), max(xs), max(ys))]
