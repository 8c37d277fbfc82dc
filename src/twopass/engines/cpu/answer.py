"""Write what was read on a page as the JSON that families/layout/ parses."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from twopass.document import Rect, enclose
from twopass.engines.cpu import bidi, reading_order, scanned_page, spaced_words
from twopass.engines.cpu.content import PageContent, Region, StyledWord
from twopass.engines.cpu.tables.cells import GridCell, build_cells

GRAMMAR_VERSION = 3
MIN_COMPARED = 0.8  # of a line's characters, in fonts that were compared with the pixels
MAX_BLANKS = 80  # between two words of code


def to_json(content: PageContent) -> str:
    answer: dict[str, Any] = {
        "v": GRAMMAR_VERSION,
        "width": round(content.width, 2),
        "height": round(content.height, 2),
        "via": content.via,
        "score": 1.0 if content.score is None else round(content.score, 4),
        **({"pixels_per_point": round(content.pixels_per_point, 3)} if content.pixels_per_point else {}),
        "agreement": None if content.agreement is None else round(content.agreement, 4),
        "dense": content.dense,
        "unreadable_script": content.unreadable,
        **({"tesseract": content.tesseract} if content.tesseract else {}),
        **({"lacks_lines": True} if content.lacks_lines else {}),
        **({"lacks_annotations": True} if content.lacks_annotations else {}),
        **({"lying_fonts": True} if content.fonts.lying else {}),
        "boxes": [_region_to_json(region, content) for region in content.regions],
    }
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":"))


def _region_to_json(region: Region, content: PageContent) -> dict[str, Any]:
    box: dict[str, Any] = {"label": region.label, "box": _to_page_box(region.box, content)}
    if region.grid is not None:
        rows, cols, cells, is_doubtful = build_cells(region.box, region.grid, region.words)
        if bidi.is_rtl(region.words):
            cells = _mirror_cells(cells, cols)
        box["table"] = {"rows": rows, "cols": cols, "cells": [vars(cell) for cell in cells]}
        if is_doubtful:
            box["table"]["doubtful"] = True
        box |= _score_of_pixels(region.words) | _describe_fonts(region.words, content)
        return box | _place_words(region.words, content)
    if region.words:
        group = reading_order.group_rows if region.label in ("picture", "formula") else reading_order.order_lines
        lines = spaced_words.join_stacked([spaced_words.join(row) for row in group(region.words)])
        box["lines"] = [_line_to_json(line, content) for line in lines]
        box |= _place_words([word for line in lines for word in line], content)
    if region.latex:
        box["latex"] = region.latex
    if region.across:
        box["across"] = True
    return box


def _place_words(words: Sequence[StyledWord], content: PageContent) -> dict[str, Any]:
    """The places of the words that OCR read: the others are in the file."""
    read = [word for word in words if content.via == "ocr" or word.from_pixels]
    return {"words": [[*_to_page_box(word.box, content), word.text] for word in read]} if read else {}


def _mirror_cells(cells: Sequence[GridCell], cols: int) -> list[GridCell]:
    """Number the columns of a right-to-left table from the right, where it begins."""
    mirrored = [replace(cell, col=cols - cell.col - cell.col_span) for cell in cells]
    return sorted(mirrored, key=lambda cell: (cell.row, cell.col))


def _line_to_json(words: Sequence[StyledWord], content: PageContent) -> dict[str, Any]:
    # The number of a line of code may be in another font.
    is_mono = all(word.mono for word in (words[1:] if len(words) > 1 and words[0].text.isdecimal() else words))
    is_listing = is_mono and content.via == "text_layer"
    words = words if is_listing else [replace(word, text=word.written) for word in words]
    line: dict[str, Any] = {
        "box": _to_page_box(enclose([word.box for word in words]), content),
        "text": _join_mono_words(words) if is_listing else " ".join(word.text for word in words),
        "size": round(statistics.median(word.size for word in words), 1),
    }
    if all(word.bold for word in words):
        line["bold"] = True
    if is_mono:
        line["mono"] = True
    if content.via == "text_layer" and (runs := _place_runs(line["text"], words)):
        line["runs"] = runs
    line |= _score_of_pixels(words) | _describe_fonts(words, content)
    if content.via == "ocr":
        line["score"] = round(statistics.mean(word.score for word in words), 4)
    return line


def _score_of_pixels(words: Sequence[StyledWord]) -> dict[str, Any]:
    """The mean score of the words that OCR read, and whether an image shows them; empty without such words."""
    found = [word for word in words if word.from_pixels]
    if not found:
        return {}
    score = {"from_pixels": round(statistics.mean(word.score for word in found), 4)}
    return score if all(word.font for word in found) else {**score, "in_image": True}


def _describe_fonts(words: Sequence[StyledWord], content: PageContent) -> dict[str, Any]:
    """Whether nearly all words are in fonts that were compared with the pixels, or some in one that may lie."""
    own = [word for word in words if not word.from_pixels]
    if content.via != "text_layer" or not own:
        return {}
    if any(word.font in content.fonts.wrong for word in own):
        return {"lies": True}
    compared = sum(len(word.text) for word in own if word.font in content.fonts.honest)
    return {"compared": True} if compared >= MIN_COMPARED * sum(len(word.text) for word in own) else {}


def _join_mono_words(words: Sequence[StyledWord]) -> str:
    """Join words of one width for all letters with as many blanks as the page shows, which code may need."""
    letter = statistics.median(word.box.width / len(word.text) for word in words)
    text = words[0].text
    for before, word in pairwise(words):
        gap = word.box.x0 - before.box.x1
        text += " " * min(max(round(gap / letter), 1) if letter > 0 else 1, MAX_BLANKS) + word.text
    return text


def _place_runs(text: str, words: Sequence[StyledWord]) -> list[tuple[int, int, str]]:
    """The runs of the words as [start, end, style] in the line's text, whatever stands between the words."""
    runs, end = [], 0
    for word in words:
        start = text.find(word.text, end)
        if start < 0:  # the line spells the word differently
            continue
        end = start + len(word.text)
        runs += [(start + run.start, start + min(run.end, len(word.text)), run.style) for run in word.runs]
    return runs


def _to_page_box(box: Rect, content: PageContent) -> list[float]:
    """The box in page coordinates: words of a skewed scan were straightened."""
    if not content.skew:
        return [round(value, 2) for value in box]
    corners = (
        scanned_page.rotate_point(x, y, content.skew, content.width, content.height)
        for x in (box.x0, box.x1)
        for y in (box.y0, box.y1)
    )
    return [round(value, 2) for value in Rect.around(corners)]
