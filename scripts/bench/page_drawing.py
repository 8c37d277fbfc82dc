"""Draw pages of the mix into PDFs, together with what a model is to answer about each page and each of its crops."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from scripts.bench.mix import BOX_TOKENS
from scripts.bench.workload import A4

SIZE = (595, 842)  # of A4 in points
POINTS_PER_PIXEL = 842 / A4[1]  # at 144 dpi
MARGIN = 40
MAX_CROPS_SHARE = 0.6  # of the page's height; more crops are drawn smaller
LETTERS_PER_TOKEN = 3.6
PHOTO_TOKENS = 20  # of the empty answer to a photo when it is read as a chart
SENTENCE = "The level in the borehole is measured before the pump starts and after it has run for one hour. "

Box = tuple[float, float, float, float]  # in points


@dataclass(frozen=True)
class ScriptedAnswer:
    """What the engine is to return for a prompt, and how many tokens it generates for it."""

    text: str
    tokens: int
    is_asked_by_auto: bool = True  # if not, only `pass2: all` asks for it


class Crop(NamedTuple):
    """A table, figure or formula, and its size in points."""

    kind: str
    tokens: int
    width: float
    height: float


@dataclass
class DrawnPage:
    """One page while it is drawn: its PDF page, pass 1's answer block by block, and the answers about its crops."""

    pdf_page: Any
    blocks: list[str] = field(default_factory=list)
    answers: dict[str, ScriptedAnswer] = field(default_factory=dict)  # by element and turn: "e003", "e003-2"

    def add_block(self, label: str, content: str, box: Box) -> str:
        """Add to pass 1's answer; return the element's name."""
        x0, y0, x1, y1 = (round(999 * at / size) for at, size in zip(box, SIZE * 2, strict=True))
        self.blocks.append(f"<|ref|>{label}<|/ref|><|det|>[[{x0}, {y0}, {x1}, {y1}]]<|/det|>\n{content}  \n\n")
        return f"e{len(self.blocks) - 1:03d}"


def draw_page(pdf: Any, page: Mapping[str, Any], photos: Sequence[bytes]) -> DrawnPage:
    """Append a page of the mix to the PDF."""
    drawn = DrawnPage(pdf.new_page(width=SIZE[0], height=SIZE[1]))
    crops = list(_place_crops(page["crops"]))
    text_height = min((box[1] for _, box in crops), default=SIZE[1] - MARGIN) - MARGIN
    _draw_text(drawn, page, text_height)
    for number, (crop, box) in enumerate(crops):
        if crop.kind == "table":
            _draw_table(drawn, crop.tokens, box)
        elif crop.kind == "formula":
            _draw_formula(drawn, crop.tokens, box)
        else:
            _draw_figure(drawn, crop.tokens, box, photos[number % len(photos)], number)
    return drawn


def make_photo(rng: np.random.Generator) -> bytes:
    """A JPEG of soft random colours."""
    pixels = Image.fromarray(rng.integers(0, 256, (30, 40, 3), np.uint8))
    buffer = io.BytesIO()
    pixels.resize((800, 600), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=85)
    return buffer.getvalue()


def _place_crops(crops: Sequence[tuple[str, int, int, int]]) -> Iterator[tuple[Crop, Box]]:
    """Set crops in rows at the page's foot, as large as there is room."""
    room = SIZE[0] - 2 * MARGIN
    rows: list[list[Crop]] = []
    for kind, width_px, height_px, tokens in crops:
        width, height = width_px * POINTS_PER_PIXEL, height_px * POINTS_PER_PIXEL
        scale = min(1.0, room / width)
        crop = Crop(kind, tokens, width * scale, height * scale)
        if not rows or sum(other.width for other in rows[-1]) + crop.width > room:
            rows.append([])
        rows[-1].append(crop)
    heights = [max(crop.height for crop in row) for row in rows]
    scale = min(1.0, MAX_CROPS_SHARE * SIZE[1] / sum(heights)) if rows else 1.0
    top = SIZE[1] - MARGIN - sum(heights) * scale
    for row, row_height in zip(rows, heights, strict=True):
        left = float(MARGIN)
        for crop in row:
            yield crop, (left, top + 4, left + crop.width * scale - 4, top + crop.height * scale)
            left += crop.width * scale
        top += row_height * scale


def _draw_text(drawn: DrawnPage, page: Mapping[str, Any], height: float) -> None:
    """Draw as many blocks of text as the page has elements that are no crops, in a font size that fits."""
    blocks = max(page["elements"] - len(page["crops"]), 1 if page["elements"] else 0)
    if not blocks:
        return
    letters = max(int((page["tokens"] - BOX_TOKENS * page["elements"]) * LETTERS_PER_TOKEN / blocks), 8)
    text = (SENTENCE * math.ceil(letters / len(SENTENCE)))[:letters].rsplit(" ", 1)[0]
    width, pitch = SIZE[0] - 2 * MARGIN, height / blocks
    size = min(11.0, math.sqrt(width * pitch / (letters * 0.8)), pitch / 1.5)
    for number in range(blocks):
        top = MARGIN + number * pitch
        content = f"{number} {text}"
        lines = _wrap(content, int(width / (0.5 * size)))
        drawn.pdf_page.insert_text((MARGIN, top + size), lines, fontsize=size)
        bottom = min(top + len(lines) * size * 1.2, SIZE[1])
        name = drawn.add_block("text", content, (MARGIN, top, SIZE[0] - MARGIN, bottom))
        tokens = max(round(len(text) / LETTERS_PER_TOKEN), 1)
        drawn.answers[name] = ScriptedAnswer(content, tokens, is_asked_by_auto=False)


def _wrap(text: str, letters: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) > letters and lines[-1]:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _draw_table(drawn: DrawnPage, tokens: int, box: Box) -> None:
    rows = [[f"{row}.{column}" for column in range(4)] for row in range(max(int((box[3] - box[1]) / 14), 2))]
    for row, cells in enumerate(rows):
        for column, cell in enumerate(cells):
            at = (box[0] + column * (box[2] - box[0]) / 4 + 2, box[1] + 11 + 14 * row)
            drawn.pdf_page.insert_text(at, cell, fontsize=9)
    html = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>" for cells in rows)
    name = drawn.add_block("table", f"<table>{html}</table>", box)
    drawn.answers[name] = ScriptedAnswer(f"<table>{html}</table>", tokens)


def _draw_formula(drawn: DrawnPage, tokens: int, box: Box) -> None:
    drawn.pdf_page.insert_text((box[0] + 4, box[1] + 14), "Q = v A", fontsize=12)
    name = drawn.add_block("equation", "\\[ Q = v A \\]", box)
    drawn.answers[name] = ScriptedAnswer("\\[ Q = v A \\]", tokens)


def _draw_figure(drawn: DrawnPage, tokens: int, box: Box, photo: bytes, number: int) -> None:
    """Draw a photo. Odd numbers are read as charts; a second prompt asks what each of them shows."""
    drawn.pdf_page.insert_image(box, stream=photo, keep_proportion=False)
    name = drawn.add_block("image", "", box)
    chart = "<table><tr><td>Year</td><td>Rain</td></tr><tr><td>2021</td><td>610</td></tr></table>"
    description = f"A photo of pump {number}, seen from the side, with a grey wall behind it."
    drawn.answers[name] = ScriptedAnswer(chart, tokens) if number % 2 else ScriptedAnswer("", PHOTO_TOKENS)
    drawn.answers[f"{name}-2"] = ScriptedAnswer(description, tokens)
