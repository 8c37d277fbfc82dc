"""Compare the cpu engine with pymupdf4llm on a folder of PDFs: words, order, running headers and seconds.

Both are measured against the words of the page's own text layer (as a multiset, without case, punctuation and
hyphens at line ends). Per page:

- recall: share of the layer's words that the markdown has; ours counts body and furniture, as pymupdf4llm's
  `to_markdown(use_ocr=False)` keeps its headers and footers.
- order: share of neighbours on a line of the layer that are still neighbours in the markdown.
- flow: the same for the last word of a line and the first of the next in one block of the layer. It shows whether
  columns are kept apart.
- running: lines in the page's margins that are at the same height on three pages or more and are still in the
  markdown: ours as assembled, without furniture, theirs as `to_markdown` returns it. Digits count as equal, lines
  without letters do not count.

A page without a layer, or with one hidden under a scan, cannot be compared: only its words are counted.

These are the tables of `python -m scripts.bench corpus FOLDER --words`.
"""

from __future__ import annotations

import html
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pymupdf
from pymupdf4llm.helpers.document_layout import parse_document

from scripts.bench.corpus.matching import PICTURE_TEXT_MARKS
from twopass.document import Checkpoint, Element, Meta, Page, Run, SourceInfo, State
from twopass.engines.cpu.page import read_page
from twopass.families.layout.family import LayoutFamily
from twopass.pages.rendered_page import PagePointer
from twopass.pages.shared_pixels import Pixels
from twopass.steps import assemble, render
from twopass.text import prose

MIN_REPEATS = 3  # pages that have a running line at the same height
MARGIN = 0.12  # of the page's height, at top and bottom, where running headers are
SIDE_MARGIN = 0.08  # of its width, where publishers stamp their files
MARKUP = re.compile(rf"</?(?:table|tr|td|th|br|sup|sub|u)\b[^<>]*>|[*`~]|{PICTURE_TEXT_MARKS}")
MAX_PIXELS = 40_000_000
COLUMNS = (
    *("file", "page", "via", "words", "recall", "theirs", "order", "theirs", "flow", "theirs", "running", "theirs"),
    *("s", "theirs"),
)

RunningLine = tuple[str, int]  # the line and its top, in hundredths of the page's height


@dataclass(frozen=True)
class ReaderOutput:
    """One reader's text of a page: all of it, and the body without the furniture that the reader removed."""

    text: str
    body: str
    seconds: float
    via: str = ""
    elements: tuple[Element, ...] = ()


@dataclass(frozen=True)
class LayerText:
    """The page's text layer."""

    lines: tuple[tuple[str, ...], ...]  # words
    breaks: tuple[tuple[str, str], ...]  # the words before and after the end of a line, within a block
    margins: tuple[RunningLine, ...]


def compare_file(file: Path, limit: int) -> Iterator[tuple[str, ...]]:
    """Yield one row a page."""
    with pymupdf.open(file) as document:
        numbers = range(1, min(len(document), limit) + 1)
        layers = [read_layer(document[number - 1]) for number in numbers]
    pages_with = Counter(line for layer in layers for line in {(_fold(text), top) for text, top in layer.margins})
    running = {line for line, count in pages_with.items() if count >= MIN_REPEATS and re.search("[^#\\s]", line[0])}
    ours = assemble_bodies([read_ours(file, number) for number in numbers])
    for number, layer, our_output in zip(numbers, layers, ours, strict=True):
        yield _format_row(file, number, layer, our_output, read_theirs(file, number), running)


def _format_row(
    file: Path, number: int, layer: LayerText, ours: ReaderOutput, theirs: ReaderOutput, running: set[RunningLine]
) -> tuple[str, ...]:
    is_comparable = ours.via == "text_layer"
    lines = [text for text, top in layer.margins if (_fold(text), top) in running]
    figures = [
        f"{measure(layer, output.text):.3f}" if is_comparable else ""
        for measure in (measure_recall, measure_order, measure_flow)
        for output in (ours, theirs)
    ]
    remaining = [
        str(sum(_contains(output.body, line) for line in lines)) if is_comparable else "" for output in (ours, theirs)
    ]
    words = sum(map(len, layer.lines)) if is_comparable else len(split_words(ours.text))
    seconds = (f"{ours.seconds:.2f}", f"{theirs.seconds:.2f}")
    return (file.stem, str(number), ours.via, str(words), *figures, *remaining, *seconds)


def read_layer(page: Any) -> LayerText:
    """The text layer's lines as words, and the lines in the page's margins."""
    lines: dict[tuple[int, int], list[Any]] = {}
    for word in page.get_text("words", flags=pymupdf.TEXTFLAGS_WORDS & ~pymupdf.TEXT_PRESERVE_LIGATURES):
        lines.setdefault((word[5], word[6]), []).append(word)
    height = abs(page.rect.height)
    texts = [" ".join(word[4] for word in line) for line in lines.values()]
    boxes = [pymupdf.Rect(line[0][:4]) * page.rotation_matrix for line in lines.values()]  # of a line's first word
    margins = (
        (text, round(100 * box.y0 / height))
        for text, box in zip(texts, boxes, strict=True)
        if box.y1 < MARGIN * height
        or box.y0 > (1 - MARGIN) * height
        or box.x1 < SIDE_MARGIN * page.rect.width
        or box.x0 > (1 - SIDE_MARGIN) * page.rect.width
    )
    words = [tuple(split_words(line)) for line in _join_hyphenated("\n".join(texts)).split("\n")]
    return LayerText(tuple(words), tuple(_find_breaks(texts, [block for block, _ in lines])), tuple(margins))


def _find_breaks(texts: Sequence[str], blocks: Sequence[int]) -> Iterator[tuple[str, str]]:
    for (text, block), (next_text, next_block) in pairwise(zip(texts, blocks, strict=True)):
        before, after = split_words(text), split_words(next_text)
        if block == next_block and before and after and not text.endswith(("-", "\u00ad")):
            yield before[-1], after[0]


def read_ours(file: Path, number: int) -> ReaderOutput:
    with pymupdf.open(file) as document:
        page = document[number - 1]
        zoom = min(2.0, (MAX_PIXELS / abs(page.rect)) ** 0.5)
        pixmap = page.get_pixmap(matrix=pymupdf.Matrix(zoom, zoom), alpha=False)
        pixels = Pixels(pixmap.width, pixmap.height, data=bytes(pixmap.samples))
        turn = render.detect_text_turn(page, render.get_text_page(page)) or 0  # as the step render does
    started = time.perf_counter()
    answer = LayoutFamily().parse(read_page(PagePointer(str(file), number, turn), pixels, None), number)
    seconds = time.perf_counter() - started
    return ReaderOutput(_join(answer.elements), "", seconds, answer.via or "", answer.elements)


def assemble_bodies(outputs: Sequence[ReaderOutput]) -> list[ReaderOutput]:
    """Fill in the bodies; which lines are furniture shows only when all pages are assembled."""
    checkpoints = [
        Checkpoint(page=Page(number=n, width_pt=1, height_pt=1, state=State.READ), elements=output.elements)
        for n, output in enumerate(outputs, 1)
    ]
    source = SourceInfo(uri="", sha256="", bytes=0, mime="application/pdf", page_count=len(outputs))
    document = assemble.document(source, Meta(), Run(options={}), "compared", checkpoints)
    bodies = [[e for e in document.elements if e.page == n and e.is_body] for n in range(1, len(outputs) + 1)]
    return [replace(output, body=_join(body)) for output, body in zip(outputs, bodies, strict=True)]


def _join(elements: Sequence[Element]) -> str:
    return "\n\n".join(element.markdown or element.text for element in elements)


def read_theirs(file: Path, number: int) -> ReaderOutput:
    started = time.perf_counter()
    with redirect_stdout(StringIO()), pymupdf.open(file) as document:
        parsed = parse_document(document, pages=[number - 1], use_ocr=False, force_text=True)
        text = parsed.to_markdown()
        return ReaderOutput(text, text, time.perf_counter() - started)


def split_words(text: str) -> list[str]:
    return prose.split_words(html.unescape(MARKUP.sub(" ", _join_hyphenated(text))))


def _join_hyphenated(text: str) -> str:
    return re.sub(r"(?<=[^\W\d_])[-\u00ad]\s+(?=[a-zß-ÿ])", "", text)


def measure_recall(layer: LayerText, text: str) -> float:
    return _share(Counter(word for line in layer.lines for word in line), Counter(split_words(text)))


def measure_order(layer: LayerText, text: str) -> float:
    wanted = Counter(pair for line in layer.lines for pair in pairwise(line))
    return _share(wanted, Counter(pairwise(split_words(text))))


def measure_flow(layer: LayerText, text: str) -> float:
    return _share(Counter(layer.breaks), Counter(pairwise(split_words(text))))


def _share(wanted: Counter[Any], found: Counter[Any]) -> float:
    return (wanted & found).total() / wanted.total() if wanted else 1.0


def _fold(line: str) -> str:
    """A line's words with all numbers alike: a header with a page number is then the same on every page."""
    return re.sub(r"\d+", "#", " ".join(prose.split_words(line)))


def _contains(text: str, line: str) -> bool:
    return f" {' '.join(split_words(line))} " in f" {' '.join(split_words(text))} "
