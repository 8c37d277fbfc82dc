"""Draw pages with the fonts inside PyMuPDF, and read them with the cpu engine.

Right-to-left text is drawn as PDF writers do: in reading order, or from left to right as displayed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pymupdf

from twopass.engines.cpu.page import read_page
from twopass.pages.rendered_page import PagePointer
from twopass.pages.shared_pixels import Pixels

HEBREW, ARABIC = 5, 6  # MuPDF's numbers of the scripts
SPACE = 0.27  # of the type size
_LTR = re.compile(r"[A-Za-z](?:[A-Za-z0-9 .]*[A-Za-z0-9])?|\d+(?:[.,:/٬]\d+)*%?")
_BRACKETS = str.maketrans("()[]", ")(][")


def display(line: str) -> str:
    """Return the letters of a right-to-left line from left to right: a small writer of bidirectional text."""
    parts: list[str] = []
    position = 0
    for found in _LTR.finditer(line):
        parts += [*line[position : found.start()].translate(_BRACKETS), found[0]]
        position = found.end()
    return "".join(reversed([*parts, *line[position:].translate(_BRACKETS)]))


class Pen:
    """Draws on a page, letter by letter, in a font that has the letter."""

    def __init__(self, page: Any, script: int, size: float = 12) -> None:
        self.page, self.size = page, size
        self.fonts = (pymupdf.Font(script=script), pymupdf.Font("helv"))

    def measure(self, text: str) -> float:
        return sum(self._advance(letter) for letter in text)

    def draw_line(self, line: str, right: float, y: float, order: str = "displayed") -> None:
        """Draw a right-to-left line that ends at x = `right`.

        `order` says in which order its words come: "displayed", from left to right in one go; "words", in reading
        order, each word from left to right.
        """
        shown = display(line)
        x = right - self.measure(shown)
        if order == "displayed":
            self._write(shown, x, y)
            return
        starts = [found.span() for found in re.finditer(r"\S+", shown)]
        for start, stop in reversed(starts):
            self._write(shown[start:stop], x + self.measure(shown[:start]), y)

    def draw_lines(self, lines: Sequence[str], right: float, y: float, order: str = "displayed") -> None:
        for row, line in enumerate(lines):
            self.draw_line(line, right, y + 1.5 * self.size * row, order)

    def _advance(self, letter: str) -> float:
        return SPACE * self.size if letter == " " else float(self._font(letter).glyph_advance(ord(letter))) * self.size

    def _font(self, letter: str) -> Any:
        return next((font for font in self.fonts if font.has_glyph(ord(letter))), self.fonts[0])

    def _write(self, text: str, x: float, y: float) -> None:
        writer = pymupdf.TextWriter(self.page.rect)
        for letter in text:
            writer.append((x, y), letter, font=self._font(letter), fontsize=self.size)
            x += self._advance(letter)
        writer.write_text(self.page)


def read(document: Any, folder: Path) -> Any:
    """Return the cpu engine's answer about the first page."""
    path = folder / "page.pdf"
    document.save(path)
    pixmap = document[0].get_pixmap(dpi=100)
    pixels = Pixels(pixmap.width, pixmap.height, data=bytes(pixmap.samples))
    return json.loads(read_page(PagePointer(str(path), 1), pixels, None))


def read_lines(document: Any, folder: Path) -> list[str]:
    """Return the lines of the first page in reading order, without tables."""
    return [line["text"] for box in read(document, folder)["boxes"] for line in box.get("lines", ())]


def measure_order(expected: Sequence[str], found: Sequence[str]) -> float:
    """Return the length of the longest common subsequence of words, as a share of the expected words."""
    best = [0] * (len(found) + 1)
    for word in expected:
        row = [0]
        for position, other in enumerate(found):
            row.append(best[position] + 1 if word == other else max(best[position + 1], row[-1]))
        best = row
    return best[-1] / len(expected)
