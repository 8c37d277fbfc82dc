"""Count the tokens that each decoder step yields when drafts come from the page's text, without a model.

    python -m scripts.bench acceptance [PDF_OR_FOLDER …] [--answers FOLDER] [--ocr] [--json FILE]

Answers are replayed through the rules that the engine drafts with (engines/vllm/plugin/drafts.py). A step yields
the accepted drafts and one token of the model's own; 1 is decoding without drafts.

- recorded answer: of DeepSeek-OCR, from `*.txt` below --answers; an answer that loops is left out. These pages have no
  text layer: the answer's own words stand in for it.
- born-digital page: the cpu engine's reading in DeepSeek-OCR's grammar; drafts come from the page's text layer. Both
  have the same words, so this is an upper bound. With --ocr the page is also read from its image, by OCR that makes
  more mistakes than the model: a lower bound.
- scan: the same for pages that the cpu engine reads by OCR or whose layer it doubts.
- table crop: the tables of these pages, each drafted from itself as pass 2's answer would be from pass 1's.

Drafts come from nothing but the answer's own past, from the text, or from the text with 3 % of its words wrong.

The model's tokenizer is not used; a stand-in splits as finely. The table of recorded answers shows its count beside the
true one, where a `records.json` has that.
"""

from __future__ import annotations

import argparse
import html
import json
import random
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymupdf
from rich import table as tables

import twopass
from scripts.bench.harness import create_parser, print_table
from twopass.document import ConfidenceMethod, Element, Kind, Table
from twopass.engines.vllm.plugin.drafts import MAX_TOKENS, find_draft
from twopass.families.grounded.loops import is_in_loop
from twopass.pages.rendered_page import PagePointer
from twopass.pages.shared_pixels import PixelBuffer, PixelBufferPool
from twopass.steps.render import DrawRequest, draw_pdf

KINDS = ("tag", "table", "text", "formula")

_SPECIAL = re.compile(r"(<\|/?(?:ref|det)\|>|</?td>)")  # tokens of their own in DeepSeek-OCR's vocabulary
# As its tokenizer splits text before it merges bytes.
_PIECES = re.compile(r" ?[^\W\d_]+|\d{1,3}| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+|.", re.DOTALL)
_WORD_PART = 5  # characters; fitted to the token counts of recorded answers
_WHOLE_WORD = 9  # longer words are split into parts

_SECTIONS = re.compile(
    r"(?P<tag><\|ref\|>.*?<\|/ref\|><\|det\|>.*?<\|/det\|>\n?)|(?P<table><table>.*?</table>)|(?P<formula>\\\[.*?\\\])",
    re.DOTALL,
)


def split_tokens(text: str) -> list[str]:
    """Split a text about as finely as DeepSeek-OCR's tokenizer does."""
    parts = [[part] if _SPECIAL.match(part) else _PIECES.findall(part) for part in _SPECIAL.split(text)]
    return [token for pieces in parts for piece in pieces for token in _split_word(piece)]


def _split_word(piece: str) -> list[str]:
    word = piece.lstrip(" ")
    if not word.isalpha() or len(word) <= _WHOLE_WORD:
        return [piece]
    first = len(piece) - len(word) + _WORD_PART
    return [piece[:first], *(piece[at : at + _WORD_PART] for at in range(first, len(piece), _WORD_PART))]


def split_kinds(answer: str) -> list[tuple[str, str]]:
    """The tokens of an answer, each with its kind."""
    pairs = []
    end = 0
    for match in _SECTIONS.finditer(answer):
        pairs += [("text", token) for token in split_tokens(answer[end : match.start()])]
        pairs += [(str(match.lastgroup), token) for token in split_tokens(match[0])]
        end = match.end()
    return pairs + [("text", token) for token in split_tokens(answer[end:])]


def replay(answer: Sequence[tuple[str, str]], draft: str, count: int) -> Counter[str]:
    """The decoder steps for an answer with `count` drafts a step, by the kind of each step's first token.

    The first token comes from the prompt's own step and is not counted.
    """
    ids: dict[str, int] = {}
    tokens = [ids.setdefault(token, len(ids)) for _, token in answer]
    buffer = [ids.setdefault(token, len(ids)) for token in split_tokens(draft)][:MAX_TOKENS]
    numbers = {number for token, number in ids.items() if token.isdigit()}
    steps: Counter[str] = Counter()
    done, fresh, cursor = 1, 1, 0
    while done < len(tokens):
        proposed, cursor = find_draft(buffer, cursor, tokens[:done], fresh, count, numbers)
        right = [ours == theirs for ours, theirs in zip(proposed, tokens[done:], strict=False)]
        fresh = min((*right, False).index(False) + 1, len(tokens) - done)
        steps[answer[done][0]] += 1
        done += fresh
    return steps


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


COUNTS = (2, 3, 4, 6, 8)
COUNT = 4  # of the tables that show only one
DRAFTS = {"none": "own past", "right": "text", "wrong": "3 % wrong"}
RECORDS = "records.json"


@dataclass
class Tally:
    """Tokens of answers by kind, and steps by draft, drafts per step, and kind of token."""

    answers: int = 0
    tokens: Counter[str] = field(default_factory=Counter)
    steps: Counter[tuple[str, int, str]] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        self.answers += other.answers
        self.tokens += other.tokens
        self.steps += other.steps

    def count_per_step(self, draft: str, count: int, kinds: Sequence[str] = KINDS) -> float | None:
        """Tokens per step in these kinds of tokens; None if the answers have none, or no such draft."""
        steps = sum(self.steps[draft, count, kind] for kind in kinds)
        return round(sum(self.tokens[kind] for kind in kinds) / steps, 2) if steps else None

    @property
    def facts(self) -> dict[str, Any]:
        total = self.tokens.total()
        return {
            "answers": self.answers,
            "tokens": total,
            "percent_of_tokens": {kind: round(100 * self.tokens[kind] / total) for kind in KINDS},
            "tokens_per_step": {
                draft: {count: self.count_per_step(draft, count) for count in COUNTS} for draft in DRAFTS
            },
            f"by_kind_at_{COUNT}": {
                draft: {kind: self.count_per_step(draft, COUNT, [kind]) for kind in KINDS} for draft in DRAFTS
            },
        }


def main(arguments: Sequence[str]) -> None:
    parser = create_parser("scripts.bench acceptance", __doc__)
    parser.add_argument("paths", type=Path, nargs="*", default=[Path("samples/sample.pdf")])
    parser.add_argument("--pages", type=int, default=8, help="of each document at most")
    parser.add_argument("--ocr", action="store_true", help="read born-digital pages from their images, too")
    parser.add_argument("--answers", type=Path, help="folder of recorded answers")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", action="store_true", help="print rows for docs/log/")
    options = parser.parse_args(arguments)
    by_group: defaultdict[str, Tally] = defaultdict(Tally)
    by_file: defaultdict[tuple[str, str], Tally] = defaultdict(Tally)
    for answer in _list_answers(options):
        tally = replay_answer(answer)
        by_group[answer.group].add(tally)
        by_file[answer.group, answer.file].add(tally)
    counts = list(compare_tokens(options.answers)) if options.answers else []
    for table in (_show_groups(by_group), _show_kinds(by_group), _show_files(by_file), _show_counts(counts)):
        print_table(table, options.markdown)
    if options.json:
        facts = {"groups": {group: tally.facts for group, tally in by_group.items()}, "recorded_tokens": counts}
        options.json.write_text(json.dumps({"acceptance": facts}, indent=1) + "\n")


def _list_answers(options: argparse.Namespace) -> Iterator[Answer]:
    if options.answers:
        yield from read_recorded(options.answers)
    for path in options.paths:
        for file in sorted(path.glob("*.pdf")) if path.is_dir() else [path]:
            yield from read_pdf(file, options.pages, options.ocr)


def replay_answer(answer: Answer) -> Tally:
    tokens = split_kinds(answer.answer)
    tally = Tally(1, Counter(kind for kind, _ in tokens[1:]))
    for draft, text in answer.drafts.items():
        for count in COUNTS:
            tally.steps.update({(draft, count, kind): n for kind, n in replay(tokens, text, count).items()})
    return tally


def compare_tokens(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the tokens of recorded answers, ours beside the model's."""
    for path in sorted(folder.rglob(RECORDS)):
        for page in json.loads(path.read_text())["manifest"]["pages"]:
            for mode, facts in page["modes"].items():
                answer = path.parent / f"{page['stem']}.{mode}.txt"
                if answer.exists():
                    ours = len(split_tokens(answer.read_bytes().decode()))
                    yield {"answer": answer.stem, "tokens": ours, "true_tokens": facts["n_output_tokens"]}


def _show_groups(tallies: Mapping[str, Tally]) -> tables.Table:
    shown = tables.Table(
        "group", "answers", "tokens", *(f"{kind} %" for kind in KINDS), "drafts from", *map(str, COUNTS)
    )
    for group, tally in tallies.items():
        shares = [f"{100 * tally.tokens[kind] / tally.tokens.total():.0f}" for kind in KINDS]
        for draft, name in DRAFTS.items():
            rates = [tally.count_per_step(draft, count) for count in COUNTS]
            if any(rates):
                shown.add_row(group, str(tally.answers), str(tally.tokens.total()), *shares, name, *map(_format, rates))
    shown.title = "tokens per step, by drafts per step"
    return shown


def _show_kinds(tallies: Mapping[str, Tally]) -> tables.Table:
    shown = tables.Table("group", "drafts from", *KINDS, title=f"tokens per step by kind of token, {COUNT} drafts")
    for group, tally in tallies.items():
        for draft, name in DRAFTS.items():
            rates = [tally.count_per_step(draft, COUNT, [kind]) for kind in KINDS]
            if any(rates):
                shown.add_row(group, name, *map(_format, rates))
    return shown


def _show_files(tallies: Mapping[tuple[str, str], Tally]) -> tables.Table:
    shown = tables.Table("group", "file", "tokens", *DRAFTS.values(), title=f"tokens per step by file, {COUNT} drafts")
    for (group, file), tally in tallies.items():
        rates = [tally.count_per_step(draft, COUNT) for draft in DRAFTS]
        shown.add_row(group, file, str(tally.tokens.total()), *map(_format, rates))
    return shown


def _show_counts(counts: Sequence[Mapping[str, Any]]) -> tables.Table:
    shown = tables.Table("answer", "tokens", "of the model", title="the stand-in for the tokenizer")
    for count in counts:
        shown.add_row(count["answer"], str(count["tokens"]), str(count["true_tokens"]))
    return shown


def _format(rate: float | None) -> str:
    return "" if rate is None else f"{rate:.2f}"
