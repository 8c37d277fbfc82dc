"""A folder of PDFs in, our pages beside pymupdf4llm's by words, order, running headers and seconds out.

The yardstick is the page's own text layer, word for word (as a multiset, without case, marks and
line-end hyphens). Per page:

- recall: share of the layer's words that the markdown has; ours counts body and furniture, as
  pymupdf4llm's `to_markdown(use_ocr=False)` does with its headers and footers left in.
- order: share of neighbours on a line of the layer that are still neighbours in the markdown.
- flow: the same for the last word of a line and the first of the next in one block of the layer: columns.
- running: lines in the page's margins that stand at the same height on three pages or more
  (figures count as equal, lines without letters do not count) and are still in the markdown: ours as
  assembled, without furniture, theirs as `to_markdown` gives it.

A page without a layer, or with one hidden under a scan, has no yardstick: only its words are counted.

    python scripts/compare_corpus.py FOLDER [--pages N] [--markdown]
"""

from __future__ import annotations

import argparse
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
from rich.console import Console
from rich.table import Table

from twopass.document import Checkpoint, Element, Meta, Page, Run, SourceInfo, State
from twopass.engines.cpu.page import read_page
from twopass.engines.interface import PagePointer
from twopass.families.layout import LayoutFamily
from twopass.pages.shared_pixels import Pixels
from twopass.steps import assemble
from twopass.text import prose

REPEATED = 3  # pages of the file that have the line at the same height
BAND = 0.12  # of the page's height, above and below, where running headers stand
SIDE = 0.08  # of its width, where publishers stamp their files
MARKUP = re.compile(r"</?(?:table|tr|td|th|br|sup|sub|u)\b[^<>]*>|[*`~]|----- (?:Start|End) of picture text -----")
MAX_PIXELS = 40_000_000
COLUMNS = (
    "file",
    "page",
    "via",
    "words",
    "recall",
    "theirs",
    "order",
    "theirs",
    "flow",
    "theirs",
    "running",
    "theirs",
    "s",
    "theirs",
)


@dataclass(frozen=True)
class Side:
    """What one reader made of a page."""

    text: str
    body: str
    seconds: float
    via: str = ""
    elements: tuple[Element, ...] = ()


@dataclass(frozen=True)
class Layer:
    lines: tuple[tuple[str, ...], ...]
    breaks: tuple[tuple[str, str], ...]  # the words on both sides of a line's end, within a block
    margins: tuple[tuple[str, int], ...]  # a line and how far down it stands, in hundredths of the page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pages", type=int, default=10, help="of each file, from the first")
    parser.add_argument("--markdown", action="store_true", help="for docs/log/")
    arguments = parser.parse_args()
    rows = [row for file in sorted(arguments.folder.glob("*.pdf")) for row in compared(file, arguments.pages)]
    print(as_markdown(rows)) if arguments.markdown else Console(width=140).print(as_table(rows))


def compared(file: Path, limit: int) -> Iterator[tuple[str, ...]]:
    """One row a page."""
    with pymupdf.open(file) as document:
        numbers = range(1, min(len(document), limit) + 1)
        layers = [layer(document[number - 1]) for number in numbers]
        seen = Counter(place for one in layers for place in {(_folded(line), at) for line, at in one.margins})
        running = {place for place, times in seen.items() if times >= REPEATED and re.search("[^#\\s]", place[0])}
    sides = assembled([ours(file, number) for number in numbers])
    for number, own, we in zip(numbers, layers, sides, strict=True):
        yield _row(file, number, own, we, theirs(file, number), running)


def _row(file: Path, number: int, own: Layer, we: Side, they: Side, running: set[tuple[str, int]]) -> tuple[str, ...]:
    counted = we.via == "text_layer"
    margins = [line for line, at in own.margins if (_folded(line), at) in running]
    figures = [
        f"{measure(own, side.text):.3f}" if counted else "" for measure in (recall, order, flow) for side in (we, they)
    ]
    left = [str(sum(_has(side.body, line) for line in margins)) if counted else "" for side in (we, they)]
    count = str(len(tokens(we.text))) if not counted else str(sum(map(len, own.lines)))
    return (file.stem, str(number), we.via, count, *figures, *left, f"{we.seconds:.2f}", f"{they.seconds:.2f}")


def layer(page: Any) -> Layer:
    """The text layer's lines as words, and the lines in its margins."""
    lines: dict[tuple[int, int], list[Any]] = {}
    for word in page.get_text("words", flags=pymupdf.TEXTFLAGS_WORDS & ~pymupdf.TEXT_PRESERVE_LIGATURES):
        lines.setdefault((word[5], word[6]), []).append(word)
    height = abs(page.rect.height)
    texts = [" ".join(word[4] for word in line) for line in lines.values()]
    shown = [pymupdf.Rect(line[0][:4]) * page.rotation_matrix for line in lines.values()]
    margins = (
        (text, round(100 * rect.y0 / height))
        for text, rect in zip(texts, shown, strict=True)
        if rect.y1 < BAND * height
        or rect.y0 > (1 - BAND) * height
        or rect.x1 < SIDE * page.rect.width
        or rect.x0 > (1 - SIDE) * page.rect.width
    )
    read = [tuple(tokens(line)) for line in _dehyphenated("\n".join(texts)).split("\n")]
    return Layer(tuple(read), tuple(_breaks(texts, [block for block, _ in lines])), tuple(margins))


def _breaks(texts: Sequence[str], blocks: Sequence[int]) -> Iterator[tuple[str, str]]:
    for (text, block), (following, other) in pairwise(zip(texts, blocks, strict=True)):
        before, after = tokens(text), tokens(following)
        if block == other and before and after and not text.endswith(("-", "\u00ad")):
            yield before[-1], after[0]


def ours(file: Path, number: int) -> Side:
    with pymupdf.open(file) as document:
        page = document[number - 1]
        zoom = min(2.0, (MAX_PIXELS / abs(page.rect)) ** 0.5)
        pixmap = page.get_pixmap(matrix=pymupdf.Matrix(zoom, zoom), alpha=False)
        pixels = Pixels(pixmap.width, pixmap.height, held=bytes(pixmap.samples))
    started = time.perf_counter()
    answer = LayoutFamily().parse(read_page(PagePointer(str(file), number, turn(file, number)), pixels, None), number)
    seconds = time.perf_counter() - started
    return Side(_joined(answer.elements), "", seconds, answer.via or "", answer.elements)


def assembled(sides: Sequence[Side]) -> list[Side]:
    """The pages with what the document's other pages tell of their furniture."""
    checkpoints = [
        Checkpoint(page=Page(number=n, width_pt=1, height_pt=1, state=State.READ), elements=side.elements)
        for n, side in enumerate(sides, 1)
    ]
    source = SourceInfo(uri="", sha256="", bytes=0, mime="application/pdf", page_count=len(sides))
    whole = assemble.document(source, Meta(), Run(options={}), "compared", checkpoints)
    bodies = [[e for e in whole.elements if e.page == n and e.is_body] for n in range(1, len(sides) + 1)]
    return [replace(side, body=_joined(body)) for side, body in zip(sides, bodies, strict=True)]


def turn(file: Path, number: int) -> int:
    """What the renderer would turn the page by; see steps/render.py."""
    from twopass.steps import render

    with pymupdf.open(file) as document:
        page = document[number - 1]
        return render._turn_of_text(page, render.text_of(page)) or 0


def _joined(elements: Sequence[Element]) -> str:
    return "\n\n".join(element.markdown or element.text for element in elements)


def theirs(file: Path, number: int) -> Side:
    started = time.perf_counter()
    with redirect_stdout(StringIO()), pymupdf.open(file) as document:
        parsed = parse_document(document, pages=[number - 1], use_ocr=False, force_text=True)
        text = parsed.to_markdown()
        return Side(text, text, time.perf_counter() - started)


def tokens(text: str) -> list[str]:
    return prose.words(html.unescape(MARKUP.sub(" ", _dehyphenated(text))))


def _dehyphenated(text: str) -> str:
    return re.sub(r"(?<=[^\W\d_])[-\u00ad]\s+(?=[a-zß-ÿ])", "", text)


def recall(own: Layer, text: str) -> float:
    return _share(Counter(word for line in own.lines for word in line), Counter(tokens(text)))


def order(own: Layer, text: str) -> float:
    return _share(Counter(pair for line in own.lines for pair in pairwise(line)), Counter(pairwise(tokens(text))))


def flow(own: Layer, text: str) -> float:
    return _share(Counter(own.breaks), Counter(pairwise(tokens(text))))


def _share(wanted: Counter[Any], found: Counter[Any]) -> float:
    return (wanted & found).total() / wanted.total() if wanted else 1.0


def _folded(line: str) -> str:
    return re.sub(r"\d+", "#", " ".join(prose.words(line)))


def _has(text: str, line: str) -> bool:
    return f" {' '.join(tokens(line))} " in f" {' '.join(tokens(text))} "


def as_markdown(rows: Sequence[Sequence[str]]) -> str:
    lines = [COLUMNS, ["---"] * len(COLUMNS), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def as_table(rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title="words and order against the text layer; ours, then pymupdf4llm's")
    for column in COLUMNS:
        table.add_column(column)
    for row in rows:
        table.add_row(*row)
    return table


if __name__ == "__main__":
    main()
