"""Measure what the audit knows of a PDF's own text: hidden text, fonts with wrong characters, and its confidence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pymupdf
from PIL import Image

from scripts.bench import hidden_pages, lying_pages
from scripts.bench.hidden_pages import A4, HIDDEN, LABEL, SEEN, SHOWN, WAYS, Line
from twopass.document import Document, Flag
from twopass.pages.rendered_page import PagePointer
from twopass.pages.shared_pixels import PixelBuffer, PixelBufferPool
from twopass.steps import render
from twopass.steps.render import DrawRequest, DrawResult

FONTS = ("helv", "tiro", "cour")
BUFFER_BYTES = 1 << 28
ZOOM = 2.0  # as jobs draw pages by default
UNSURE = 0.5  # a confidence that says that the text may be wrong
BINS = (0.0, 0.5, 0.7, 0.85, 0.9, 1.01)
ROUGH = 10  # grey levels of noise on a scan

Read = Callable[[bytes], Document]


class _Drawer:
    """Draws pages as page workers do."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "page.pdf"
        (number,) = PixelBufferPool(1, BUFFER_BYTES, fixed_size=BUFFER_BYTES).descriptors
        self._buffer = PixelBuffer(number)

    def draw(self, data: bytes) -> DrawResult:
        self._path.write_bytes(data)
        return self.draw_file(self._path, 1)

    def draw_file(self, path: Path, number: int) -> DrawResult:
        return render.draw_pdf(DrawRequest(PagePointer(str(path), number), ZOOM, self._buffer, BUFFER_BYTES))


# ---- hidden text -----------------------------------------------------------------------------------


def measure_hidden(files: Sequence[Path], list_pages: Callable[[Path], Sequence[int]]) -> None:
    """Draw lines in all ways, fonts and sizes; then the pages of sound files, whose hidden words are listed."""
    shapes = list(product(FONTS, (A4, LABEL)))
    with TemporaryDirectory() as folder:
        drawer = _Drawer(Path(folder))
        print(f"{'hidden text':34}{'pages':>7}{'words left':>12}{'reported':>10}{'others lost':>13}")
        for way, draw in WAYS.items():
            found = [drawer.draw(hidden_pages.draw(draw, HIDDEN, *shape)) for shape in shapes]
            _print_way(way, found, HIDDEN)
        print(f"{'text that is seen':34}{'pages':>7}{'words left':>12}{'lost':>10}")
        for way, draw in SEEN.items():
            found = [drawer.draw(hidden_pages.draw(draw, SHOWN, *shape)) for shape in shapes]
            kept = sum(_count(SHOWN, one.words.texts) for one in found)
            print(f"{way:34}{len(found):7}{kept:12}{sum(len(one.unseen.hidden) for one in found):10}")
        blank = [drawer.draw(_draw_blank(*shape)) for shape in shapes]
        kept, undrawn = (sum(_count(SHOWN, texts) for texts in found) for found in _split_undrawn(blank))
        print(f"a font that draws nothing: {len(blank)} pages, {kept} words kept, {undrawn} reported as not drawn")
        _list_hidden(drawer, files, list_pages)


def _print_way(way: str, found: Sequence[DrawResult], text: str) -> None:
    left = sum(_count(text, one.words.texts) for one in found)
    reported = sum(_count(text, one.unseen.hidden.texts) for one in found)
    others = sum(len(one.unseen.hidden) for one in found) - reported
    print(f"{way:34}{len(found):7}{left:12}{reported:10}{others:13}")


def _split_undrawn(found: Sequence[DrawResult]) -> tuple[list[Sequence[str]], list[Sequence[str]]]:
    return [one.words.texts for one in found], [one.unseen.undrawn.texts for one in found]


def _count(text: str, words: Sequence[str]) -> int:
    return sum((Counter(text.split()) & Counter(words)).values())


def _draw_blank(font: str, size: tuple[float, float]) -> bytes:
    """A page whose last line is in a font that draws nothing; the others are in another font."""
    with pymupdf.open() as pdf:
        page = pdf.new_page(width=size[0], height=size[1])
        page.insert_text((20, 30), "The harbour board met", fontname="hebo")
        hidden_pages.write_in_blank_font(Line(page, SHOWN, font))
        return bytes(pdf.tobytes())


def _list_hidden(drawer: _Drawer, files: Sequence[Path], list_pages: Callable[[Path], Sequence[int]]) -> None:
    pages = hidden = undrawn = lying = 0
    for file in files:
        for number in list_pages(file):
            unseen = drawer.draw_file(file, number).unseen
            pages, hidden = pages + 1, hidden + len(unseen.hidden)
            undrawn, lying = undrawn + len(unseen.undrawn), lying + len(unseen.lying)
            if unseen.hidden:
                reasons = "; ".join(sorted(set(unseen.reasons)))
                print(f"    {file.name} {number}: {' '.join(unseen.hidden.texts)[:80]} ({reasons})")
    print(
        f"sound pages: {pages}; words hidden: {hidden}; not drawn: {undrawn}; in fonts found to lie: {lying}",
        flush=True,
    )


# ---- fonts that name wrong characters --------------------------------------------------------------


def measure_fonts(read: Read) -> None:
    """Read pages of which one font is shifted: characters of its text that are right or flagged, of all."""
    print(f"{'shifted':20}{'in a':12}{'characters':>11}{'right':>8}{'flagged':>9}{'silently wrong':>16}")
    for (name, kinds), (place, lines) in product(lying_pages.SHIFTS.items(), lying_pages.PLACES.items()):
        if not any(_is_shifted(letter, kinds) for line in lines for letter in line):
            continue
        total = right = flagged = 0
        for font in lying_pages.FONTS:
            document = read(lying_pages.draw(place, font, kinds))
            for word in " ".join(lines).split():
                total += len(word)
                right += len(word) * _is_right(word, document)
                flagged += len(word) * (not _is_right(word, document) and _is_flagged(place, document))
        wrong = total - right - flagged
        print(
            f"{name:20}{place:12}{total:11}{right / total:8.1%}{flagged / total:9.1%}{wrong / total:16.1%}", flush=True
        )


def _is_shifted(letter: str, kinds: str) -> bool:
    return (letter.isalpha() and "l" in kinds) or (letter.isdecimal() and "d" in kinds)


def _is_right(word: str, document: Document) -> bool:
    return any(word in text.split() for element in document.elements for text in element.texts)


def _is_flagged(place: str, document: Document) -> bool:
    """Whether no element with text at this place claims to be right."""
    top, bottom = {"heading": (60, 90), "paragraph": (105, 170), "column": (195, 315)}[place]
    own = [e for e in document.elements if e.box and top / A4[1] <= e.box.centre[1] <= bottom / A4[1]]
    return all(Flag.UNREADABLE in e.flags or (e.confidence is not None and e.confidence.score <= UNSURE) for e in own)


# ---- calibration -----------------------------------------------------------------------------------


def measure_calibration(read: Read) -> None:
    """Compare the confidence of elements with the share of their words that the page shows, in five bins."""
    words: Counter[int] = Counter()
    right: Counter[int] = Counter()
    for truth, data in _draw_known():
        shown = Counter(_split(truth))
        for element in read(data).elements:
            if element.confidence and not element.is_hidden:
                place = next(n for n in range(len(BINS) - 1) if element.confidence.score < BINS[n + 1])
                own = Counter(_split(" ".join(element.texts)))
                words[place] += own.total()
                right[place] += (own & shown).total()
    print(f"{'confidence':16}{'words':>8}{'right':>9}")
    for n in range(len(BINS) - 1):
        share = f"{right[n] / words[n]:9.1%}" if words[n] else f"{'–':>9}"
        print(f"{BINS[n]:.2f} to {min(BINS[n + 1], 1):.2f}    {words[n]:8}{share}", flush=True)


def _split(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _draw_known() -> Iterator[tuple[str, bytes]]:
    """Pages with the words that they show: honest, lying and hidden text, as files and as scans of them."""
    numbers = " ".join(f"{name} {number}" for name, number in lying_pages.ROWS)
    truth = " ".join((lying_pages.HEADING, *lying_pages.PARAGRAPH, numbers, *lying_pages.OTHERS))
    rows = " ".join(f"Row {n}: the pilot boards vessel {n} at the buoy" for n in range(5))
    for place, font, kinds in product(lying_pages.PLACES, (None, *lying_pages.FONTS), lying_pages.SHIFTS.values()):
        yield truth, lying_pages.draw(place, font, kinds)
    for way in ("white", "black bar", "invisible mode", "clip of a shape"):
        yield rows, hidden_pages.draw(WAYS[way], HIDDEN)
    for dpi, noise in product((60, 75, 100, 150), (0, ROUGH, 4 * ROUGH)):
        yield truth, _scan(lying_pages.draw("paragraph", None), dpi, noise)
        yield truth, _scan(lying_pages.draw("paragraph", None), dpi, noise, layer=lying_pages.draw("paragraph", "tiro"))


def _scan(data: bytes, dpi: int, noise: int, layer: bytes | None = None) -> bytes:
    """A page as a picture with noise; with `layer`, over invisible text that is partly wrong, as bad OCR leaves it."""
    with pymupdf.open("pdf", data) as pdf, pymupdf.open() as scan:
        pixmap = pdf[0].get_pixmap(dpi=dpi, colorspace=pymupdf.csGRAY)
        grey = np.frombuffer(pixmap.samples, np.uint8).reshape(pixmap.height, pixmap.width).astype(int)
        rough = grey + np.random.default_rng(dpi + noise).normal(0, noise, grey.shape)
        picture = hidden_pages.encode(Image.fromarray(rough.clip(0, 255).astype(np.uint8)))
        page = scan.new_page(width=A4[0], height=A4[1])
        page.insert_image(page.rect, stream=picture)
        if layer:
            with pymupdf.open("pdf", layer) as other:
                for x, _, _, y, text, *_ in other[0].get_text("words"):
                    page.insert_text((x, y - 3), text, fontsize=10, render_mode=3)
        return bytes(scan.tobytes())
