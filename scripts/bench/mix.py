"""The mix: pages of many kinds, drawn as PDFs, and an engine that gives scripted answers about them.

    python -m scripts.bench.mix docs/bench/mix.json

Shares and means of the kinds are published by peers or counted in documents' ground truth; the spread within a kind
is assumed. The generator is seeded: the file is the same each time.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import math
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pymupdf
from PIL import Image

from scripts.bench.harness import A4, STREAM_INTERVAL, create_parser, read_cpu_seconds
from scripts.bench.s3_server import BUCKET
from twopass.detection import region
from twopass.detection.region import DETECT
from twopass.document import Box
from twopass.engines.interface import Completion, Engine, Prompt
from twopass.families import registry

SEED, PAGES = 20261121, 640
SPREAD = 0.35  # standard deviation of the logarithm of tokens within a kind
BOX_TOKENS = 17  # of pass 1 for each element, in addition to its text
MAX_TOKENS = 6000


class Kind(NamedTuple):
    """A kind of page: its share of all pages, and means a page."""

    share: float
    tokens: int
    elements: int
    tables: float
    figures: float
    formulas: float


KINDS = {
    "slide": Kind(0.15, 250, 8, 0.1, 0.9, 0.0),
    "letter": Kind(0.40, 700, 12, 0.15, 0.15, 0.05),
    "paper": Kind(0.25, 1300, 22, 0.5, 0.8, 1.5),
    "financial": Kind(0.12, 1700, 18, 2.0, 0.2, 0.0),
    "newspaper": Kind(0.06, 4500, 70, 0.2, 3.0, 0.0),
    "blank": Kind(0.02, 10, 0, 0.0, 0.0, 0.0),
}
CROPS = {  # range of widths, range of heights, tokens out
    "table": ((700, 1100), (200, 900), 450),
    "figure": ((300, 900), (250, 800), 160),
    "formula": ((200, 700), (40, 130), 60),
}


def main() -> None:
    parser = create_parser("scripts.bench.mix", __doc__)
    parser.add_argument("file", type=Path)
    parser.parse_args().file.write_text(generate())


def generate() -> str:
    """The file's text."""
    rng = np.random.default_rng(SEED)
    names = rng.choice(list(KINDS), PAGES, p=[kind.share for kind in KINDS.values()])
    lines = ",\n".join(json.dumps(_draw_page(str(name), KINDS[str(name)], rng)) for name in names)
    return f"[\n{lines}\n]\n"


def _draw_page(name: str, kind: Kind, rng: np.random.Generator) -> dict[str, object]:
    """Draw a page; each of its `crops` is kind, width, height in pixels at 144 dpi, tokens out."""
    elements = int(rng.poisson(kind.elements))
    tokens = _draw_tokens(kind.tokens, rng) + BOX_TOKENS * elements
    means = {"table": kind.tables, "figure": kind.figures, "formula": kind.formulas}
    crops = [_draw_crop(crop_kind, rng) for crop_kind, mean in means.items() for _ in range(rng.poisson(mean))]
    return {"kind": name, "tokens": min(tokens, MAX_TOKENS), "elements": elements, "crops": crops}


def _draw_crop(kind: str, rng: np.random.Generator) -> list[object]:
    widths, heights, tokens = CROPS[kind]
    return [kind, int(rng.integers(*widths)), int(rng.integers(*heights)), _draw_tokens(tokens, rng)]


def _draw_tokens(mean: int, rng: np.random.Generator) -> int:
    return max(int(mean * rng.lognormal(-(SPREAD**2) / 2, SPREAD)), 1)


SIZE = (595, 842)  # of A4 in points
POINTS_PER_PIXEL = 842 / A4[1]  # at 144 dpi
MARGIN = 40
MAX_CROPS_SHARE = 0.6  # of the page's height; more crops are drawn smaller
LETTERS_PER_TOKEN = 3.6
PHOTO_TOKENS = 20  # of the empty answer to a photo when it is read as a chart
SENTENCE = "The level in the borehole is measured before the pump starts and after it has run for one hour. "

PointBox = tuple[float, float, float, float]  # in points


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

    def add_block(self, label: str, content: str, box: PointBox) -> str:
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


def _place_crops(crops: Sequence[tuple[str, int, int, int]]) -> Iterator[tuple[Crop, PointBox]]:
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


def _draw_table(drawn: DrawnPage, tokens: int, box: PointBox) -> None:
    rows = [[f"{row}.{column}" for column in range(4)] for row in range(max(int((box[3] - box[1]) / 14), 2))]
    for row, cells in enumerate(rows):
        for column, cell in enumerate(cells):
            at = (box[0] + column * (box[2] - box[0]) / 4 + 2, box[1] + 11 + 14 * row)
            drawn.pdf_page.insert_text(at, cell, fontsize=9)
    html = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>" for cells in rows)
    name = drawn.add_block("table", f"<table>{html}</table>", box)
    drawn.answers[name] = ScriptedAnswer(f"<table>{html}</table>", tokens)


def _draw_formula(drawn: DrawnPage, tokens: int, box: PointBox) -> None:
    drawn.pdf_page.insert_text((box[0] + 4, box[1] + 14), "Q = v A", fontsize=12)
    name = drawn.add_block("equation", "\\[ Q = v A \\]", box)
    drawn.answers[name] = ScriptedAnswer("\\[ Q = v A \\]", tokens)


def _draw_figure(drawn: DrawnPage, tokens: int, box: PointBox, photo: bytes, number: int) -> None:
    """Draw a photo. Odd numbers are read as charts; a second prompt asks what each of them shows."""
    drawn.pdf_page.insert_image(box, stream=photo, keep_proportion=False)
    name = drawn.add_block("image", "", box)
    chart = "<table><tr><td>Year</td><td>Rain</td></tr><tr><td>2021</td><td>610</td></tr></table>"
    description = f"A photo of pump {number}, seen from the side, with a grey wall behind it."
    drawn.answers[name] = ScriptedAnswer(chart, tokens) if number % 2 else ScriptedAnswer("", PHOTO_TOKENS)
    drawn.answers[f"{name}-2"] = ScriptedAnswer(description, tokens)


PAGES_PER_DOCUMENT = 16
PHOTOS = 4  # different ones


def build_documents(
    pages: Sequence[Mapping[str, Any]], pages_per_document: int = PAGES_PER_DOCUMENT
) -> Iterator[tuple[bytes, dict[str, ScriptedAnswer]]]:
    """Yield PDFs of so many pages each, and their answers by prompt id."""
    rng = np.random.default_rng(1)
    photos = [make_photo(rng) for _ in range(PHOTOS)]
    for start in range(0, len(pages), pages_per_document):
        chunk = pages[start : start + pages_per_document]
        with pymupdf.open() as pdf:
            drawn_pages = [draw_page(pdf, page, photos) for page in chunk]
            data = bytes(pdf.tobytes(deflate=True, garbage=1)) + b"%% %d" % start  # no two documents are equal
        key = hashlib.sha256(data).hexdigest()[:12]
        answers = {}
        for number, (page, drawn) in enumerate(zip(chunk, drawn_pages, strict=True), 1):
            answers[f"{key}/p{number:04d}"] = ScriptedAnswer("".join(drawn.blocks), page["tokens"])
            answers |= {f"{key}/p{number:04d}-{name}": answer for name, answer in drawn.answers.items()}
        yield data, answers


def select_asked(answers: Mapping[str, ScriptedAnswer], pass2_all: bool = False) -> dict[str, ScriptedAnswer]:
    """What a job asks for: texts only with `pass2: all`."""
    return {name: answer for name, answer in answers.items() if answer.is_asked_by_auto or pass2_all}


@dataclass(frozen=True)
class DocumentSet:
    """Documents on S3 or in a folder, the scripted answers of each, and where jobs write."""

    pages: Sequence[Mapping[str, Any]]
    uris: Sequence[str]
    document_answers: Sequence[Mapping[str, ScriptedAnswer]]
    pass2_all: bool = False
    output: str = f"s3://{BUCKET}/out"

    def take(self, count: int) -> DocumentSet:
        """The first documents that have at least so many pages."""
        documents = math.ceil(count / PAGES_PER_DOCUMENT)
        return replace(
            self, pages=self.pages[: documents * PAGES_PER_DOCUMENT], uris=self.uris[:documents],
            document_answers=self.document_answers[:documents],
        )  # fmt: skip

    @cached_property
    def answers(self) -> dict[str, ScriptedAnswer]:
        return {name: answer for answers in self.document_answers for name, answer in answers.items()}

    @cached_property
    def asked(self) -> dict[str, ScriptedAnswer]:
        return select_asked(self.answers, self.pass2_all)

    @property
    def prompts_per_page(self) -> float:
        return len(self.asked) / len(self.pages)

    @property
    def tokens_per_page(self) -> float:
        return sum(answer.tokens for answer in self.asked.values()) / len(self.pages)

    @property
    def asked_pages(self) -> int:
        """Number of pages that reach the engine; blank ones do not."""
        return sum(page["elements"] > 0 for page in self.pages)


def upload_documents(
    pages: Sequence[Mapping[str, Any]], client: Any, folder: str = "in", pages_per_document: int = PAGES_PER_DOCUMENT
) -> DocumentSet:
    uris, document_answers = list[str](), list[Mapping[str, ScriptedAnswer]]()
    for number, (data, answers) in enumerate(build_documents(pages, pages_per_document)):
        uris.append(f"s3://{BUCKET}/{folder}/{number:03d}.pdf")
        client.put_object(Bucket=BUCKET, Key=f"{folder}/{number:03d}.pdf", Body=data)
        document_answers.append(answers)
    return DocumentSet(pages, uris, document_answers)


def write_documents(pages: Sequence[Mapping[str, Any]], folder: Path) -> DocumentSet:
    """Write the documents into a folder, where jobs write, too: no server and no boto3 are needed."""
    paths, document_answers = list[str](), list[Mapping[str, ScriptedAnswer]]()
    for number, (data, answers) in enumerate(build_documents(pages)):
        path = folder / f"{number:03d}.pdf"
        path.write_bytes(data)
        paths.append(str(path))
        document_answers.append(answers)
    return DocumentSet(pages, paths, document_answers, output=str(folder / "out"))


_LABELS = {"equation": "display_formula"}  # of DeepSeek-OCR and of the detector, where they differ
_TAGS = re.compile(r"<\|ref\|>(.*?)<\|/ref\|><\|det\|>\[(\[.*?\])\]<\|/det\|>")


class Snapshot(NamedTuple):
    at: float  # on the monotonic clock
    tokens: int
    cpu_seconds: dict[str, float]


@dataclass
class TokenMeter:
    """Count tokens generated between two moments: when `first` pages have begun, and when all `pages` have."""

    first: int
    pages: int
    begun: int = 0
    tokens: int = 0
    snapshots: list[Snapshot] = field(default_factory=list)
    last_page_begun: asyncio.Event = field(default_factory=asyncio.Event)

    def begin_page(self) -> None:
        self.begun += 1
        if self.begun in (min(self.first, self.pages - 1), self.pages):
            self.snapshots.append(Snapshot(time.monotonic(), self.tokens, read_cpu_seconds()))
        if self.begun == self.pages:
            self.last_page_begun.set()

    @property
    def period(self) -> tuple[float, float]:
        """Start and end of the measurement, on the monotonic clock."""
        return self.snapshots[0].at, self.snapshots[-1].at

    @property
    def tokens_per_s(self) -> float:
        first, last = self.snapshots[0], self.snapshots[-1]
        return (last.tokens - first.tokens) / (last.at - first.at)

    @property
    def pages_begun_per_s(self) -> float:
        """Unlike tokens, pages compare models that ask about different crops."""
        start, end = self.period
        return (self.pages - min(self.first, self.pages - 1)) / (end - start)

    def cpu_ms(self, tokens: float) -> dict[str, float]:
        """The CPU milliseconds that so many tokens took, by kind of process."""
        first, last = self.snapshots[0], self.snapshots[-1]
        per_token = 1000 * tokens / (last.tokens - first.tokens)
        return {
            kind: round(per_token * (seconds - first.cpu_seconds[kind]), 1)
            for kind, seconds in last.cpu_seconds.items()
        }


class ScriptedAnswerEngine(Engine):
    """Let the inner engine generate as many tokens as the mix says, and return the scripted text instead of its own."""

    def __init__(self, inner: Engine, answers: Mapping[str, ScriptedAnswer], meter: TokenMeter) -> None:
        self._inner, self._answers, self.meter = inner, answers, meter
        self.kind, self.precision, self.family = inner.kind, inner.precision, inner.family
        self.sequences, self.needs_canary, self.buffer_pools = inner.sequences, inner.needs_canary, inner.buffer_pools
        self.uses_drafts = inner.uses_drafts
        self._page_prompt = registry.get_family(inner.family).prompts.get("document")  # readers have none
        self.asked: list[Prompt] = []
        self.unknown: Counter[str] = Counter()  # prompts without a scripted answer, by page and element

    async def open(self, page_pool: Any) -> None: ...

    async def close(self) -> None: ...

    async def generate(self, prompt: Prompt) -> Completion:
        answer = self._answers.get(prompt.id)
        if answer is None:
            self.unknown[prompt.id.rpartition("/")[2]] += 1
            answer = ScriptedAnswer(SENTENCE, PHOTO_TOKENS)
        self.asked.append(prompt)
        if prompt.text == DETECT:
            self.meter.begin_page()
            return replace(await self._inner.generate(prompt), text=write_detection(answer.text), finish_reason="stop")
        completion = await self._generate_tokens(prompt, answer)
        return replace(completion, text=write_tags(answer.text, self.family), finish_reason="stop")

    async def _generate_tokens(self, prompt: Prompt, answer: ScriptedAnswer) -> Completion:
        counted = 0

        def count(_: str) -> bool:
            """Count streamed tokens and run the pipeline's loop check on the scripted text; never end the answer."""
            nonlocal counted
            step = min(STREAM_INTERVAL, answer.tokens - counted)
            counted += step
            self.meter.tokens += step
            if prompt.loop_check:
                prompt.loop_check(answer.text[: round(len(answer.text) * counted / answer.tokens)])
            return False

        sampling = replace(prompt.sampling, max_tokens=answer.tokens, ignore_eos=True)
        if prompt.text == self._page_prompt and "-e" not in prompt.id:
            self.meter.begin_page()
        completion = await self._inner.generate(replace(prompt, sampling=sampling, loop_check=count))
        if completion.finish_reason != "length":
            raise RuntimeError(f"{prompt.id}: {completion.finish_reason} after {completion.tokens_out} tokens")
        self.meter.tokens += completion.tokens_out - counted
        return completion


def write_tags(answer: str, family: str) -> str:
    """Write an answer of DeepSeek-OCR with the tags of another family: Unlimited-OCR has the label beside the box."""
    return _TAGS.sub(r"<|det|>\1 \2<|/det|>", answer) if family == "unlimited_ocr" else answer


def write_detection(answer: str) -> str:
    """What a layout detector finds where DeepSeek-OCR answers this about a page: the same blocks."""
    regions = [
        region.make_region(_LABELS.get(label, label), Box(*(at / 999 for at in json.loads(box))), order=order)
        for order, (label, box) in enumerate(_TAGS.findall(answer))
    ]
    return region.to_json(region.Detection(regions=tuple(regions)))


if __name__ == "__main__":
    main()
