"""Text that the first reading missed becomes elements, whatever reads the pages."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pymupdf
import pytest
from PIL import Image

from tests.fakes import documents
from tests.fakes.lines_family import LinesFamily
from tests.fakes.reader import Reader
from tests.fakes.scripted import ScriptedEngine, detect_regions
from twopass.detection.region import DETECT, make_region
from twopass.document import Box, PageImage, Word
from twopass.engines.cpu.engine import CpuEngine
from twopass.engines.interface import Prompt
from twopass.job import EntryPoint, Job
from twopass.pages import ocr
from twopass.pages.ink import Turn
from twopass.pages.rendered_page import PagePointer, RenderedPage
from twopass.pages.shared_pixels import PixelBufferPool, Pixels
from twopass.pages.text_layer import NO_LAYER, TextLayer
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings
from twopass.steps import missed_text
from twopass.steps.missed_text import KnownText, MissedLine
from twopass.steps.page_context import PageContext

DPI = 144
SIZE = (400, 300)  # points
FIRST, SECOND, ACCOUNT = "The harbour board met in March.", "Pay to the new account below.", "20-4471-9083"
LINES = {60: FIRST, 120: SECOND, 270: ACCOUNT}  # by their baselines


def draw_page(page: Any) -> None:
    for y, text in LINES.items():
        page.insert_text((40, y), text, fontsize=12)


def place(y: float, x1: float = 360) -> Box:
    """The box of the line on a baseline."""
    return Box.of(36, y - 12, x1, y + 4, *SIZE)


def know(*lines: int) -> list[KnownText]:
    return [KnownText((place(y),), LINES[y]) for y in lines]


def render(on_page: Callable[[Any], object] = draw_page) -> tuple[Pixels, TextLayer]:
    with pymupdf.open() as pdf:
        page = pdf.new_page(width=SIZE[0], height=SIZE[1])
        on_page(page)
        pixmap = page.get_pixmap(dpi=DPI)
        words = TextLayer.of(Word(Box.of(*word[:4], *SIZE), word[4]) for word in page.get_text("words"))
        return Pixels(pixmap.width, pixmap.height, data=pixmap.samples), words


def find(known: Sequence[KnownText], has_layer: bool = False, **drawn: Any) -> list[MissedLine]:
    pixels, words = render(**drawn)
    return list(missed_text.find(pixels, DPI, known, words if has_layer else NO_LAYER))


@pytest.mark.parametrize("has_layer", [True, False])
def test_a_missed_line_is_found_and_read(has_layer: bool) -> None:
    """By the layer's words, and on a scan by its ink."""
    (line,) = find(know(60, 270), has_layer)

    assert line.text.replace(" ", "") == SECOND.replace(" ", "")
    assert (line.score is None) is has_layer


@pytest.mark.parametrize("has_layer", [True, False])
def test_a_single_number_counts(has_layer: bool) -> None:
    """An account number alone in a corner may be what matters."""
    assert [line.text for line in find(know(60, 120), has_layer)] == [ACCOUNT]


@pytest.mark.parametrize("has_layer", [True, False])
def test_nothing_is_found_on_a_page_that_was_read(has_layer: bool) -> None:
    """Every line has its element."""
    assert find(know(60, 120, 270), has_layer) == []


@pytest.mark.parametrize("has_layer", [True, False])
def test_text_beside_its_box_is_not_missed(has_layer: bool) -> None:
    """The boxes of models are not exact."""
    moved = KnownText((place(104),), SECOND)

    assert find([*know(60, 270), moved], has_layer) == []


def test_the_same_words_elsewhere_are_other_words() -> None:
    """A heading that a list of contents has as well."""
    contents = KnownText((place(60),), f"{FIRST} {SECOND}")

    assert [line.text for line in find([contents, *know(270)])] == [SECOND]


@pytest.mark.parametrize("read", [SECOND, "Pah to thc nem accouut bclow."])
def test_an_answer_without_boxes_is_compared_by_its_text(read: str) -> None:
    """Some answers of models have no positions, and OCR may misread more than the model."""
    assert find([KnownText((), f"{FIRST} {read} {ACCOUNT}")]) == []
    assert [line.text for line in find([KnownText((), f"{FIRST} {ACCOUNT}")])] == [SECOND]


@pytest.mark.parametrize("has_layer", [True, False])
def test_a_line_that_an_element_lacks_is_found_in_its_box(has_layer: bool) -> None:
    """The layer has the second line of a paragraph whose first one was read; a scan has too much ink for the text."""
    paragraph = KnownText((Box.of(36, 40, 360, 130, *SIZE),), FIRST)

    assert [line.text for line in find([paragraph, *know(270)], has_layer)] == [SECOND]


def test_a_lost_line_is_not_found_where_others_have_its_words() -> None:
    """Paragraphs share words, and only one of them lost some."""
    lost = "If you do not need the crane, you can tell the board."
    other = "If you do not need the quay, or the crane, you can leave; tell the clerk, if not the board."

    def draw_paragraphs(page: Any) -> None:
        for y, text in ((60, FIRST), (74, lost), (120, other), (134, FIRST), (148, other)):
            page.insert_text((36, y), text, fontsize=8)

    def know_lines(y0: float, y1: float, *texts: str) -> KnownText:
        return KnownText((Box.of(34, y0, 390, y1, *SIZE),), " ".join(texts))

    known = [know_lines(50, 78, FIRST), know_lines(110, 152, other, FIRST, other)]

    assert [line.text for line in find(known, has_layer=True, on_page=draw_paragraphs)] == [lost]


def list_berths(*numbers: int) -> dict[int, str]:
    """Lines by their baselines."""
    return {40 + 14 * n: f"Berth {n} was let for {n + 90} days, as the board said in March." for n in numbers}


def draw_berths(page: Any) -> None:
    for y, text in list_berths(*range(11)).items():
        page.insert_text((40, y), text, fontsize=10)


@pytest.mark.parametrize("has_layer", [True, False])
def test_lines_with_other_numbers_are_other_lines(has_layer: bool) -> None:
    """Rows of a list may differ in nothing else."""
    kept = list_berths(0, 1, 2, 3, 4, 6, 7, 8, 9, 10)
    known = [KnownText((Box.of(38, y - 10, 380, y + 3, *SIZE),), text) for y, text in kept.items()]

    found = find(known, has_layer, on_page=draw_berths)

    assert ["Berth 5" in line.text for line in found] == [True]


@pytest.mark.parametrize("degrees", [-2.5, 2.5])
def test_a_line_of_a_skewed_scan_is_found(degrees: float) -> None:
    """The upright boxes around the lines beside it cover it."""
    pixels, _ = render(draw_berths)
    turn = Turn(degrees, pixels.width, pixels.height)
    skewed = Turn(-degrees, pixels.width, pixels.height).level_pixels(pixels.array())
    kept = list_berths(0, 1, 2, 3, 4, 6, 7, 8, 9, 10)
    boxes = [turn.restore(Box.of(38, y - 10, 380, y + 3, *SIZE)) for y in kept]
    known = [KnownText((box,), text) for box, text in zip(boxes, kept.values(), strict=True)]

    (line,) = missed_text.find(Pixels(pixels.width, pixels.height, data=skewed.tobytes()), DPI, known, NO_LAYER)

    assert "Berth 5" in line.text
    assert turn.restore(Box.of(38, 100, 380, 113, *SIZE)).contains(line.box.centre)


def test_the_words_of_a_line_up_the_margin_are_one_line() -> None:
    """Papers have their number there."""
    text = "Report 4471-B of 8 November"

    def draw_margin(page: Any) -> None:
        draw_page(page)
        page.insert_text((390, 280), text, fontsize=11, rotate=90)

    assert [line.text for line in find(know(60, 120, 270), has_layer=True, on_page=draw_margin)] == [text]


def test_strokes_of_a_signature_are_no_text() -> None:
    """They are read as one letter again and again."""

    def sign(page: Any) -> None:
        draw_page(page)
        points = [(70 + n, 190 + 18 * math.sin(n / 2) * math.exp(-n / 60)) for n in range(90)]
        page.draw_polyline(points, color=(0, 0, 0.6), width=1.4)

    assert find(know(60, 120, 270), on_page=sign) == []


@pytest.mark.parametrize("read", ["Pay to the new ac- count below.", "Pay to thenew accountbelow."])
def test_words_that_are_spelled_otherwise_are_not_missed(read: str) -> None:
    """With hyphens and with other blanks."""
    assert find([*know(60, 270), KnownText((place(120),), read)], has_layer=True) == []


def test_words_under_a_bar_are_not_text_that_was_missed() -> None:
    """What is blacked out must not come back as found text."""

    def redact(page: Any) -> None:
        draw_page(page)
        page.draw_rect((36, 106, 360, 126), fill=(0, 0, 0))

    assert find(know(60, 270), has_layer=True, on_page=redact) == []


def test_a_word_beside_the_line_does_not_hide_it() -> None:
    """The text of an element may be a part of the line."""
    assert [line.text for line in find([*know(60, 270), KnownText((place(104),), "new")])] == [SECOND]


def test_all_lines_of_a_page_are_read_if_the_first_ones_are_text() -> None:
    """A whole column may be missed; on a page of shapes few lines are tried."""
    texts = [f"Berth {n} was let for {n}0 days." for n in range(11, 25)]

    def draw_column(page: Any) -> None:
        for row, text in enumerate(texts):
            page.insert_text((40, 20 + 20 * row), text, fontsize=10)

    found = find([], on_page=draw_column)

    assert len(found) == len(texts)


def test_words_that_are_printed_twice_are_read_once() -> None:
    """Programs print a word again to make it bold."""

    def overprint(page: Any) -> None:
        draw_page(page)
        page.insert_text((40.4, 120), SECOND, fontsize=12)

    assert find(know(60, 120, 270), has_layer=True, on_page=overprint) == []


def test_a_layer_that_says_something_else_is_not_believed() -> None:
    """Where fonts lie, text is read from the pixels."""
    pixels, words = render()
    lying = TextLayer.of(Word(word.box, word.text.translate({n: n + 3 for n in range(97, 120)})) for word in words)

    found = missed_text.find(pixels, DPI, know(60), lying)

    assert sorted(line.text.replace(" ", "") for line in found) == sorted([ACCOUNT, SECOND.replace(" ", "")])


def test_a_line_that_the_layer_misreads_is_not_added_to_the_right_reading() -> None:
    """The layers of old scans have wrong letters in some lines."""
    pixels, words = render()
    wrong = TextLayer.of(Word(word.box, word.text.translate(str.maketrans("et", "cf"))) for word in words)
    paragraph = KnownText((Box.of(36, 40, 360, 130, *SIZE),), f"{FIRST} {SECOND}")

    assert list(missed_text.find(pixels, DPI, [paragraph, *know(270)], wrong)) == []


def test_poor_print_does_not_make_the_layer_wrong() -> None:
    """RapidOCR reads some of its letters, with a low score."""
    pixels, words = render()
    faint = np.asarray(cv2.dilate(np.array(pixels.array()), np.ones((1, 4), np.uint8)), np.uint8)
    (reading,) = ocr.recognise([faint[208:250, 70:410]])

    found = missed_text.find(Pixels(pixels.width, pixels.height, data=faint.tobytes()), DPI, know(60, 270), words)

    assert reading[1] < missed_text.MIN_SCORE
    assert [line.text for line in found] == [SECOND]


KOREAN = "국립중앙박물관은 서울에 있는 한국의 대표적인 박물관입니다"


def draw_korean(page: Any) -> None:
    for y in (60, 120):
        page.insert_text((40, y), KOREAN, fontname="korea", fontsize=11)


def test_ink_in_a_script_that_cannot_be_read_is_found_without_text() -> None:
    """On a page in that script; whoever can read it is asked, or it is reported."""
    found = find([KnownText((place(60),), KOREAN)], on_page=draw_korean)

    assert found
    assert {(line.text, place(120, 400).contains(line.box.centre)) for line in found} == {("", True)}


# ---- whole pages -----------------------------------------------------------------------------------


@pytest.fixture
def reader(page_pool: PagePool, buffers: PixelBufferPool) -> Reader:
    return Reader(page_pool, buffers, CpuEngine(2))


async def read(
    reader: Reader,
    folder: Path,
    engine: ScriptedEngine,
    on_page: Callable[[Any], object] = draw_page,
    **fields: Any,
) -> dict[str, Any]:
    """The document of the page as a scan."""
    source = folder / "scan.pdf"
    with pymupdf.open() as pdf, pymupdf.open() as scan:
        page = pdf.new_page(width=SIZE[0], height=SIZE[1])
        on_page(page)
        scan.new_page(width=SIZE[0], height=SIZE[1]).insert_image(page.rect, pixmap=page.get_pixmap(dpi=DPI))
        source.write_bytes(scan.tobytes())
    family = LinesFamily() if engine.family == "lines_ocr" else None
    result = await reader.run(engine=engine, family=family, source=str(source), output=f"{folder}/out", **fields)
    assert result.documents[0].id, result.problems
    return json.loads(next((folder / "out").glob("*/document.json")).read_text())  # type: ignore[no-any-return]


def answer_lines(prompt: Prompt) -> str:
    """The first and the last line of the page; about a crop, its words."""
    if prompt.id.endswith("p0001"):
        return f"text 9 15 90 22 {FIRST}\ntext 9 85 90 93 {ACCOUNT}"
    return SECOND


def answer_regions(prompt: Prompt) -> str:
    if prompt.text == DETECT:
        return detect_regions([make_region("text", place(y), order=n) for n, y in enumerate((60, 270))])
    return {"e000": FIRST, "e001": ACCOUNT}.get(prompt.id[-4:], SECOND)


ENGINES: dict[str, Callable[[Prompt], str]] = {"lines_ocr": answer_lines, "glm_ocr": answer_regions}


@pytest.mark.parametrize("family", ENGINES)
async def test_a_model_is_asked_about_what_it_missed(reader: Reader, tmp_path: Path, family: str) -> None:
    """In pass 2, as about any doubtful element; the text stands where the page has it, and a finding says so."""
    engine = ScriptedEngine(family, ENGINES[family])

    document = await read(reader, tmp_path, engine)

    assert [element["text"] for element in document["elements"]] == [FIRST, SECOND, ACCOUNT]
    assert document["elements"][1]["read_by"] == 2
    assert "missed" in document["elements"][1]["flags"]
    assert [prompt.id[-4:] for prompt in engine.prompts].count("e002") == 1
    assert [finding["kind"] for finding in document["pages"][0]["audit"]["findings"]] == ["text_missed"]
    assert [problem["code"] for problem in document["problems"]] == ["MISSED_TEXT"]


@pytest.mark.parametrize("family", ENGINES)
async def test_without_questions_the_page_has_what_was_found(reader: Reader, tmp_path: Path, family: str) -> None:
    """The budget may be 0; nothing is lost then."""
    engine = ScriptedEngine(family, ENGINES[family])
    reader = replace(reader, settings=reader.settings.model_copy(update={"missed_questions": 0}))

    document = await read(reader, tmp_path, engine)

    assert [element["text"].replace(" ", "") for element in document["elements"]] == [
        text.replace(" ", "") for text in (FIRST, SECOND, ACCOUNT)
    ]
    assert document["elements"][1]["confidence"]["method"] == "ocr"
    assert not any(prompt.id.endswith("e002") for prompt in engine.prompts)


@pytest.mark.parametrize("answer", ["", "Something else entirely, that the page does not show."])
async def test_an_answer_that_does_not_fit_loses_nothing(reader: Reader, tmp_path: Path, answer: str) -> None:
    """What was found stays, as the first of two readings."""
    engine = ScriptedEngine("lines_ocr", lambda prompt: answer if "p0001-e002" in prompt.id else answer_lines(prompt))

    document = await read(reader, tmp_path, engine)

    assert len(document["elements"]) == 3
    assert document["elements"][1]["text"]


class SamePagePool(PagePool):
    """Runs every call in this process."""

    def __init__(self) -> None:
        """It has no page workers."""

    async def call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)


async def test_large_print_is_found_at_any_resolution() -> None:
    """How large letters are follows from the page's resolution: a headline is no picture on a sharp image of it."""
    with pymupdf.open() as pdf:
        page = pdf.new_page(width=595, height=842)
        page.insert_text((40, 90), "QUAY 9 SHUT", fontsize=76)
        pixmap = page.get_pixmap(dpi=DPI)
    image = PageImage(width_px=pixmap.width, height_px=pixmap.height, dpi=DPI)
    first = documents.checkpoint(1, documents.element("text", SECOND, place(270)), image=image)
    pixels = Pixels(pixmap.width, pixmap.height, data=pixmap.samples)
    job = Job.parse({"id": "job", "input": {"source": "a.pdf", "inline": ["markdown"]}}, Settings(), EntryPoint.LOCAL)
    rendered = RenderedPage(first.page, pixels, PagePointer("a.pdf", 1))
    engine = ScriptedEngine("lines_ocr", answer_lines)

    found = await missed_text.add(PageContext(rendered, "a", job, engine, LinesFamily(), SamePagePool()), first)

    assert [element.text for element in found.elements] == ["QUAY 9 SHUT", SECOND]


async def test_ink_that_nobody_reads_is_shown(reader: Reader, tmp_path: Path) -> None:
    """The element has an image of the place, and the page a finding: people may read it."""
    engine = ScriptedEngine("lines_ocr", lambda prompt: "" if "p0001-e" in prompt.id else f"text 9 15 99 22 {KOREAN}")

    document = await read(reader, tmp_path, engine, on_page=draw_korean)

    unread = [element for element in document["elements"] if "missed" in element["flags"]]
    assert {finding["kind"] for finding in document["pages"][0]["audit"]["findings"]} == {"unread_ink"}
    assert [problem["code"] for problem in document["problems"]] == ["UNREAD_INK"]
    assert document["status"] == "partial_success"
    for element in unread:
        with Image.open(next((tmp_path / "out").glob(f"*/{element['image']}"))) as image:
            (x0, y0, x1, y1), pixels = element["boxes"][0], np.asarray(image.convert("L"))
        assert image.size == pytest.approx(((x1 - x0) * 800, (y1 - y0) * 600), abs=16)  # with a margin
        assert np.ptp(pixels) > 150
