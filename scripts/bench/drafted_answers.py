"""Answers to replay, with the texts that drafts can come from."""

from __future__ import annotations

import html
import random
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pymupdf

import twopass
from twopass.document import ConfidenceMethod, Element, Kind, Table
from twopass.families.grounded.loops import is_in_loop
from twopass.pages.rendered_page import PagePointer
from twopass.pages.shared_pixels import PixelBuffer, PixelBufferPool
from twopass.steps.render import DrawRequest, draw_pdf

GRID = 999
DPI = 144  # of pages drawn as images
DRAWN_ZOOM, DRAWN_BYTES = 0.5, 1 << 24
MIN_CHARACTERS = 100  # shorter answers take too few steps
WRONG_WORDS = 0.03
LABELS = {
    Kind.TITLE: "title", Kind.SECTION_HEADER: "sub_title", Kind.CAPTION: "image_caption", Kind.TABLE: "table",
    Kind.PICTURE: "image", Kind.CHART: "image", Kind.FORMULA: "equation",
}  # fmt: skip
_MARKUP = re.compile(r"<\|ref\|>.*?<\|/ref\|><\|det\|>.*?<\|/det\|>|</?[a-z][^<>]*>|^#+ |\*\*|^---$", re.DOTALL | re.M)


@dataclass(frozen=True)
class Answer:
    """An answer and the text of its page; `text` is empty where the page has none."""

    group: str
    file: str
    answer: str
    text: str

    @property
    def drafts(self) -> dict[str, str]:
        """What drafts can come from, by how good it is."""
        texts = {"right": self.text, "wrong": replace_words(self.text)} if self.text else {}
        return {"none": "", **texts}


def replace_words(text: str) -> str:
    """Make `WRONG_WORDS` of the words wrong, the same ones in each run."""
    rolls = random.Random(text)
    return " ".join(word[::-1] + "x" if rolls.random() < WRONG_WORDS else word for word in text.split(" "))


def read_recorded(folder: Path) -> Iterator[Answer]:
    """Yield recorded answers, each once and none that loops, with their own text in place of a text layer."""
    seen = set()
    for path in sorted(folder.rglob("*.txt")):
        text = path.read_bytes().decode()
        if text not in seen and len(text) >= MIN_CHARACTERS and not is_in_loop(text):
            yield Answer("recorded answer", path.stem, text, strip_answer(text))
        seen.add(text)


def strip_answer(answer: str) -> str:
    """An answer's words as a text layer would have them: without markup, in one line."""
    text = html.unescape(_MARKUP.sub(" ", answer)).replace("\\(", "").replace("\\)", "")
    return " ".join(re.sub(r"(?<=\w)- (?=\w)", "-", text).split())  # the model writes a space after hyphens


def read_pdf(file: Path, pages: int, with_ocr: bool) -> Iterator[Answer]:
    """Yield the first pages of a PDF as the cpu engine reads them, and each table as the answer to its crop.

    With OCR, yield pages that have a good text layer a second time, read from their image.
    """
    layers = _read_layers(file, pages)
    for number, elements in _read_elements(file, len(layers)).items():
        layer = layers[number]
        is_digital = bool(layer) and _is_from_layer(elements)
        group = "born-digital page" if is_digital else "scan with a layer" if layer else "scan without a layer"
        tables = [write_table(element.table) for element in elements if element.table]
        answers = [Answer(group, file.stem, write_answer(elements), layer)]
        answers += [Answer("table crop", file.stem, table, table) for table in tables]  # drafted from pass 1's answer
        if is_digital and with_ocr:
            answers.append(Answer("born-digital page, read by OCR", file.stem, _read_image(file, number), layer))
        yield from (answer for answer in answers if len(answer.answer) >= MIN_CHARACTERS)


def _is_from_layer(elements: Sequence[Element]) -> bool:
    """Whether most characters come from a text layer without flaws; text in figures never does."""
    characters: Counter[ConfidenceMethod | None] = Counter()
    for element in elements:
        characters[element.confidence.method if element.confidence else None] += len(element.text)
    from_layer = characters[ConfidenceMethod.TEXT_LAYER] + characters[ConfidenceMethod.CHECKED_LAYER]
    return 2 * from_layer > characters.total()


def _read_image(file: Path, number: int) -> str:
    """The answer for a page of which the cpu engine gets the pixels only."""
    with tempfile.TemporaryDirectory() as folder, pymupdf.open(file) as pdf:
        image = Path(folder) / "page.png"
        pdf[number - 1].get_pixmap(dpi=DPI).save(image)
        return write_answer(_read_elements(image, 1).get(1, []))


def _read_layers(file: Path, pages: int) -> dict[int, str]:
    """The text that the prompt about each page carries as its draft."""
    with pymupdf.open(file) as pdf:
        count = min(pages, len(pdf))
    # The page worker's own rendering writes the text; its pixels are not used, so that a small image will do.
    [buffer] = map(PixelBuffer, PixelBufferPool(1, DRAWN_BYTES, fixed_size=DRAWN_BYTES).descriptors)
    pointers = {number: PagePointer(str(file), number) for number in range(1, count + 1)}
    return {
        number: draw_pdf(DrawRequest(pointer, DRAWN_ZOOM, buffer, DRAWN_BYTES, with_draft=True)).draft
        for number, pointer in pointers.items()
    }


def _read_elements(file: Path, pages: int) -> dict[int, list[Element]]:
    """Read a file with the cpu engine; returns the elements of each page in reading order."""
    document = twopass.read(file, pages=f"1-{pages}")
    in_order = sorted(document.elements, key=lambda element: element.order)
    return {page.number: [element for element in in_order if element.page == page.number] for page in document.pages}


def write_answer(elements: Sequence[Element]) -> str:
    """Write elements as DeepSeek-OCR writes a page. It omits running headers, footers and page numbers."""
    return "".join(
        f"<|ref|>{LABELS.get(element.kind, 'text')}<|/ref|><|det|>"
        f"[[{', '.join(map(str, element.box.to_grid(GRID)))}]]<|/det|>\n{_write_content(element)}  \n\n"
        for element in elements
        if element.box and element.is_body
    )


def _write_content(element: Element) -> str:
    if element.table:
        return write_table(element.table)
    if element.is_figure:
        return ""
    if element.kind is Kind.FORMULA:
        return f"\\[ {(element.formula and element.formula.latex) or element.text} \\]"
    if element.kind is Kind.CAPTION:
        return f"<center>{element.text} </center>"
    return f"{'#' * (element.level or 2)} {element.text}" if element.is_heading else element.text


def write_table(table: Table) -> str:
    rows: list[list[str]] = [[] for _ in range(table.rows)]
    for cell in table.cells:
        spans = {"rowspan": cell.row_span, "colspan": cell.col_span}
        attributes = "".join(f' {name}="{span}"' for name, span in spans.items() if span > 1)
        rows[cell.row].append(f"<td{attributes}>{cell.text}</td>")
    lines = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f"<table>{lines}</table>"
