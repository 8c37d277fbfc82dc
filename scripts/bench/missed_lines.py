"""What the search for missed text finds: on pages as they are read, and on pages of which an element was taken away.

Half of the pages are scans, drawn from the others. What is found on a page as it is read is printed with its text, for
people to judge; text in pictures is counted apart.
"""

from __future__ import annotations

import io
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

import numpy as np
import pymupdf
from PIL import Image

from twopass import Document
from twopass.document import Element, Flag, Kind, Page
from twopass.pages.ink import PageInk
from twopass.pages.rendered_page import PagePointer
from twopass.pages.shared_pixels import Pixels
from twopass.pages.text_layer import NO_LAYER, TextLayer
from twopass.settings import MISSED_QUESTIONS
from twopass.steps import missed_text, picture_text, render
from twopass.steps.missed_text import MissedLine

SCAN_DPI, SCAN_NOISE, SCAN_QUALITY = 150, 5, 65  # of drawn scans: grey levels, and of JPEG
REMOVED = 6  # elements that are taken away from a page, one after the other
LEFT_OUT = 0.05  # of a page's elements, all at once
NEAR = 0.01  # of the page, around an element that was taken away
MIN_LINE = 3  # words of a line that is taken out of an element
_REMOVABLE = frozenset(
    {*(Kind.TEXT, Kind.LIST_ITEM, Kind.TITLE, Kind.SECTION_HEADER, Kind.CAPTION, Kind.FOOTNOTE)}
    | {Kind.PAGE_HEADER, Kind.PAGE_FOOTER}
)


class ReadPage(NamedTuple):
    """A page, what it shows, and the elements that were read on it."""

    name: str
    page: Page
    pixels: Pixels
    words: TextLayer
    elements: tuple[Element, ...]

    def find(self, elements: Sequence[Element]) -> tuple[MissedLine, ...]:
        return missed_text.find(self.pixels, self.dpi, [missed_text.describe(one) for one in elements], self.words)

    @property
    def dpi(self) -> float:
        return self.page.image.dpi if self.page.image else 0.0


@dataclass
class Count:
    """How many of what was taken away was found."""

    taken: int = 0
    found: int = 0

    def add(self, is_found: bool) -> None:
        self.taken += 1
        self.found += is_found

    def __str__(self) -> str:
        return f"{self.found} of {self.taken} ({self.found / max(self.taken, 1):.1%})"


@dataclass
class MissedCounts:
    """What was found on pages of one sort."""

    pages: int = 0
    alarms: list[str] = field(default_factory=list)
    pictures: int = 0
    texts: Count = field(default_factory=Count)
    numbers: Count = field(default_factory=Count)
    lines: Count = field(default_factory=Count)
    blocks: list[int] = field(default_factory=list)
    blocks_left_out: list[int] = field(default_factory=list)
    ink_s: list[float] = field(default_factory=list)
    find_s: list[float] = field(default_factory=list)
    picture_s: list[float] = field(default_factory=list)

    def add(self, read: ReadPage) -> None:
        self.pages += 1
        found = [element for element in read.elements if Flag.MISSED in element.flags]
        self.alarms += [f"{read.name}: {element.text[:80]!r}" for element in found]
        self.pictures += any(element.is_figure and Flag.IMAGE_TEXT in element.flags for element in read.elements)
        self.blocks.append(min(len(found), MISSED_QUESTIONS))
        self._measure(read)
        own = [element for element in read.elements if element.kind in _REMOVABLE and element.boxes and element.text]
        for element in own[:: max(-(-len(own) // REMOVED), 1)]:
            self._take_away(read, element)
        chosen = random.Random(read.name)
        kept = [element for element in read.elements if element not in own or chosen.random() >= LEFT_OUT]
        self.blocks_left_out.append(min(len(missed_text.group_lines(read.find(kept))), MISSED_QUESTIONS))

    def _measure(self, read: ReadPage) -> None:
        boxes = [box for element in read.elements for box in element.boxes]
        began = time.process_time()
        PageInk.find(read.pixels.array(), read.dpi).find_lines(boxes)
        compared = time.process_time()
        read.find(read.elements)
        ended = time.process_time()
        self.ink_s.append(compared - began)
        self.find_s.append(ended - compared)
        figures = [box for element in read.elements if element.is_figure for box in element.boxes]
        texts = [box for element in read.elements if element.text and not element.is_figure for box in element.boxes]
        picture_text.read_pixels(read.pixels, figures, texts)
        self.picture_s.append(time.process_time() - ended)

    def _take_away(self, read: ReadPage, element: Element) -> None:
        found = read.find([one for one in read.elements if one is not element])
        boxes = [box.grow(NEAR) for box in element.boxes]
        is_found = any(box.contains(line.box.centre) for line in found for box in boxes)
        is_number = len(element.text.split()) == 1 and sum(map(str.isdigit, element.text)) > 1
        (self.numbers if is_number else self.texts).add(is_found)
        if shorter := _drop_line(element, read.words):
            line, rest = shorter
            found = read.find([rest if one is element else one for one in read.elements])
            self.lines.add(any(word in one.text for one in found for word in line))


def _drop_line(element: Element, layer: TextLayer) -> tuple[list[str], Element] | None:
    """A line in the middle of an element, and the element without its words; None for a short one, or without layer."""
    words = layer.inside(element.boxes).split()
    line = words[len(words) // 2 : len(words) // 2 + MIN_LINE]
    text = " ".join(line)
    if len(words) < 3 * MIN_LINE or text not in element.text:
        return None
    return line, element.model_copy(update={"text": element.text.replace(text, "", 1)})


def draw_scan(file: Path, numbers: Sequence[int]) -> bytes:
    """These pages of a PDF as a scanner would give them: grey paper, noise, JPEG, no text layer."""
    with pymupdf.open(file) as pdf, pymupdf.open() as scan:
        for number in numbers:
            page, noise = pdf[number - 1], np.random.default_rng(number)
            pixels = _render(page, SCAN_DPI / 72)
            grey = pixels.array() * 0.93 + 8 + noise.normal(0, SCAN_NOISE, (pixels.height, pixels.width, 3))
            buffer = io.BytesIO()
            Image.fromarray(grey.clip(0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=SCAN_QUALITY)
            drawn = scan.new_page(width=page.rect.width, height=page.rect.height)
            drawn.insert_image(drawn.rect, stream=buffer.getvalue())
        return bytes(scan.tobytes())


def list_pages(name: str, source: Path | bytes, document: Document) -> Iterator[ReadPage]:
    """The pages of a document that were read, as they are drawn."""
    with pymupdf.open(source) if isinstance(source, Path) else pymupdf.open(stream=source) as pdf:
        for page in document.pages:
            if page.state != "read" or page.image is None:
                continue
            drawn = pdf[page.number - 1]
            drawn.set_rotation((drawn.rotation + page.rotation_applied) % 360)
            words = NO_LAYER
            if isinstance(source, Path):
                words = render.read_text_only(PagePointer(str(source), page.number))[3]
            own = tuple(element for element in document.elements if element.page == page.number)
            yield ReadPage(f"{name} {page.number}", page, _render(drawn, page.image.dpi / 72), words, own)


def _render(page: Any, zoom: float) -> Pixels:
    pixmap = page.get_pixmap(matrix=pymupdf.Matrix(zoom, zoom), alpha=False)
    return Pixels(pixmap.width, pixmap.height, data=pixmap.samples)


def print_counts(title: str, counts: MissedCounts) -> None:
    pages = {alarm.partition(":")[0] for alarm in counts.alarms}
    print(f"{title}: {counts.pages} pages; with missed text: {len(pages)} ({len(pages) / max(counts.pages, 1):.2%})")
    for alarm in counts.alarms:
        print(f"    {alarm}")
    print(f"    pages with text in pictures: {counts.pictures}")
    print(f"    elements taken away and found: {counts.texts}; single numbers: {counts.numbers}")
    print(f"    lines taken out of elements and found: {counts.lines}")
    left_out = mean(counts.blocks_left_out or [0])
    print(f"    questions a page: {mean(counts.blocks or [0]):.3f}; with {LEFT_OUT:.0%} left out: {left_out:.3f}")
    costs = {"ink": counts.ink_s, "all, with what is read again": counts.find_s, "pictures": counts.picture_s}
    for what, seconds in costs.items():
        own = [1000 * one for one in seconds] or [0.0]
        print(f"    processor ms a page, {what}: mean {mean(own):.1f}, median {median(own):.1f}, most {max(own):.0f}")
