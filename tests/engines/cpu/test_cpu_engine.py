"""The cpu engine on pages that the tests draw."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any, cast

import numpy as np
import pymupdf
import pytest
from PIL import Image

from tests.fakes.prose import PROSE
from twopass.document import Rect
from twopass.engines.cpu import layout_regions, reading_order, scanned_page
from twopass.engines.cpu.content import Region, StyledWord
from twopass.engines.cpu.engine import CpuEngine
from twopass.engines.cpu.page import read_page
from twopass.engines.interface import Prompt
from twopass.errors import Code, EngineError, SourceError
from twopass.families.layout.family import LayoutFamily
from twopass.pages import ocr
from twopass.pages.rendered_page import PagePointer
from twopass.pages.shared_pixels import Pixels
from twopass.runtime.page_pool import PagePool
from twopass.text.confidence import UNCERTAIN_BELOW

HANGUL = "린다흐 정수장은 두 곳의 샘과 한 곳의 관정에서 취수한 물을 주민에게 공급하고 있다."


def save(document: Any, path: Path) -> Path:
    document.save(path)
    document.close()
    return path


def draw_text_page(document: Any, lines: tuple[str, ...] = PROSE * 3, font: str = "tiro", size: float = 11) -> Any:
    page = document.new_page(width=595, height=400)
    for row, line in enumerate(lines):
        page.insert_text((60, 60 + 2 * size * row), line, fontsize=size, fontname=font)
    return page


@pytest.fixture
def text_pdf(tmp_path: Path) -> Path:
    document = pymupdf.open()
    draw_text_page(document)
    return save(document, tmp_path / "text.pdf")


def render_page(page: Any, dpi: int = 144) -> Pixels:
    pixmap = page.get_pixmap(dpi=dpi)
    return Pixels(pixmap.width, pixmap.height, data=bytes(pixmap.samples))


def read(path: Path, number: int = 1, turn: int = 0, pixels: Pixels | None = None) -> Any:
    with pymupdf.open(path) as document:
        pixels = pixels or render_page(document[number - 1])
    return json.loads(read_page(PagePointer(str(path), number, turn), pixels, None))


def count_words(answer: Any) -> Counter[str]:
    lines = [line["text"] for box in answer["boxes"] for line in box.get("lines", ())]
    cells = [cell["text"] for box in answer["boxes"] if "table" in box for cell in box["table"]["cells"]]
    return Counter(word for text in lines + cells for word in text.split())


def count_layer_words(path: Path) -> Counter[str]:
    with pymupdf.open(path) as document:
        return Counter(word[4] for word in document[0].get_text("words"))


def save_scan(page: Any, path: Path, layer: tuple[str, ...] = (), dpi: int = 144) -> Path:
    """Write the page as an image, with an invisible text layer over it if `layer` has lines."""
    pixmap = page.get_pixmap(dpi=dpi)
    document = pymupdf.open()
    copy = document.new_page(width=page.rect.width, height=page.rect.height)
    copy.insert_image(copy.rect, pixmap=pixmap)
    for row, line in enumerate(layer):
        copy.insert_text((60, 60 + 20 * row), line, render_mode=3)
    return save(document, path)


def test_every_word_of_a_text_layer_is_in_a_box(text_pdf: Path) -> None:
    """A born-digital page is read from its text layer, and every word appears exactly once."""
    answer = read(text_pdf)

    assert answer["via"] == "text_layer"
    assert count_words(answer) == count_layer_words(text_pdf)


def test_the_same_page_gives_the_same_bytes(text_pdf: Path) -> None:
    """A second reading in the same worker, which keeps the file open, gives the same bytes."""
    pointer = PagePointer(str(text_pdf), 1)
    with pymupdf.open(text_pdf) as document:
        pixels = render_page(document[0])

    assert read_page(pointer, pixels, None) == read_page(pointer, pixels, None)


@pytest.mark.parametrize(("rotation", "turn"), [(90, 270), (0, 180), (90, 0)])
def test_rotation_and_turn_are_both_applied(tmp_path: Path, rotation: int, turn: int) -> None:
    """The page is read upright according to its /Rotate and the pointer's turn, every time that it is read."""
    document = pymupdf.open()
    draw_text_page(document).set_rotation(rotation)
    path = save(document, tmp_path / "rotated.pdf")
    sideways = (rotation + turn) % 180 == 90

    first, second = read(path, turn=turn), read(path, turn=turn)

    assert first == second
    assert (first["width"], first["height"]) == ((400, 595) if sideways else (595, 400))
    assert count_words(first) == count_layer_words(path)


def test_a_ruled_table_keeps_its_spans(tmp_path: Path) -> None:
    """Two cells without a rule between them are one cell that spans both."""
    document = pymupdf.open()
    page = draw_text_page(document, PROSE[:1] * 3)
    cells = [(0, 0, 2, 1, "Source"), (0, 1, 1, 2, "2024"), (1, 1, 1, 1, "Spring"), (1, 2, 1, 1, "Autumn")]
    cells += [(r, c, 1, 1, f"{r}{c}0") for r in (2, 3, 4) for c in (0, 1, 2)]
    for row, col, row_span, col_span, text in cells:
        box = pymupdf.Rect(100 + 120 * col, 160 + 22 * row, 100 + 120 * (col + col_span), 160 + 22 * (row + row_span))
        page.draw_rect(box, width=0.8)
        page.insert_text((box.x0 + 8, box.y0 + 15), text, fontsize=10)
    answer = read(save(document, tmp_path / "table.pdf"))

    (table,) = [box["table"] for box in answer["boxes"] if "table" in box]
    found = [(c["row"], c["col"], c["row_span"], c["col_span"], c["text"]) for c in table["cells"]]
    assert found == cells
    assert [c["text"] for c in table["cells"] if c["header"]] == ["Source", "2024", "Spring", "Autumn"]


def test_columns_are_read_one_after_the_other(tmp_path: Path) -> None:
    """The lines of two columns of running text are not mixed."""
    document = pymupdf.open()
    page = document.new_page()
    for col in (0, 1):
        for row in range(30):
            page.insert_text(
                (50 + 270 * col, 60 + 14 * row), f"c{col}r{row} runs on with words to its end", fontsize=10
            )
    answer = read(save(document, tmp_path / "columns.pdf"))

    order = [word for box in answer["boxes"] for line in box["lines"] for word in line["text"].split() if "r" in word]
    marks = [word for word in order if word.startswith("c") and word[1:2].isdigit()]
    assert marks == [f"c{col}r{row}" for col in (0, 1) for row in range(30)]


def test_a_dense_page_is_read_without_the_model(tmp_path: Path) -> None:
    """The layout model's time grows faster than the number of lines; above a limit, white space gives the order."""
    document = pymupdf.open()
    page = document.new_page(width=1200, height=1700)
    for col in range(6):
        lines = [f"c{col} r{row} tells of its gauge" for row in range(layout_regions.DENSE_LINES // 6 + 1)]
        page.insert_text((50 + 190 * col, 50), lines, fontsize=8, lineheight=13 / 8)
    path = save(document, tmp_path / "dense.pdf")
    answer = read(path)

    assert answer["dense"] and {box["label"] for box in answer["boxes"]} == {"orphan"}
    assert count_words(answer) == count_layer_words(path)


def test_a_scan_is_read_by_ocr(tmp_path: Path) -> None:
    """A page without a text layer that is skewed by two degrees is read in the right order."""
    with pymupdf.open() as document:
        page = draw_text_page(document, PROSE, size=12)
        path = save_scan(page, tmp_path / "scan.pdf")
    pixels = render_skewed(path, 2.0)
    answer = read(path, pixels=pixels)

    text = " ".join(line["text"] for box in answer["boxes"] for line in box["lines"])
    assert answer["via"] == "ocr" and answer["score"] > 0.9
    expected = " ".join(PROSE).split()
    assert sum((Counter(text.split()) & Counter(expected)).values()) >= 0.9 * len(expected)
    assert text.index("borehole") < text.index("January") < text.index("operators")


def test_a_straight_scan_with_slanted_boxes_is_not_turned() -> None:
    """The box of a short line is slanted if only one of its ends has descenders; turning would blur the rows."""
    array = np.full((400, 600, 3), 255, np.uint8)
    array[40:380:20, 50:550] = 0
    slanted = [ocr.OcrLine(((50, y), (350, y + 3), (350, y + 23), (50, y + 20)), "a line", 1.0) for y in (40, 80, 120)]
    turned = np.asarray(Image.fromarray(array).rotate(-0.573, fillcolor="white"))

    assert scanned_page.estimate_skew(slanted, array) == 0.0
    assert scanned_page.estimate_skew(slanted, turned) == pytest.approx(0.573, abs=0.01)


def render_skewed(path: Path, degrees: float) -> Pixels:
    """Render the first page, rotated clockwise by a few degrees."""
    with pymupdf.open(path) as document:
        straight = render_page(document[0])
    turned = Image.fromarray(straight.array()).rotate(-degrees, Image.Resampling.BICUBIC, fillcolor="white")
    return Pixels(turned.width, turned.height, data=turned.tobytes())


def test_a_hidden_layer_is_replaced_by_ocr(tmp_path: Path) -> None:
    """An invisible text layer under a scan may be wrong, so the page is read from its image."""
    with pymupdf.open() as document:
        path = save_scan(
            draw_text_page(document, PROSE, size=12), tmp_path / "hidden.pdf", layer=("wrong words here",) * 3
        )
    answer = read(path)

    assert answer["via"] == "ocr"
    assert "wrong" not in count_words(answer)


def map_characters(document: Any, font: int, characters: dict[str, str]) -> None:
    """Let a font's ToUnicode table map its characters to others."""
    pairs = "".join(f"<{ord(code):02x}> <{ord(letter):04x}>\n" for code, letter in characters.items())
    table = document.get_new_xref()
    document.update_object(table, "<<>>")
    cmap = f"1 begincodespacerange <00> <ff> endcodespacerange {len(characters)} beginbfchar {pairs} endbfchar"
    document.update_stream(table, cmap.encode())
    document.xref_set_key(font, "ToUnicode", f"{table} 0 R")


def test_a_page_with_a_wrong_font_encoding_is_read_by_ocr(tmp_path: Path) -> None:
    """If a font maps every letter to the one before it, the page is read from its image and not its text layer."""
    document = pymupdf.open()
    page = draw_text_page(document, PROSE, font="helv", size=12)
    map_characters(
        document, page.get_fonts()[0][0], {chr(code): chr(code - 1) for code in range(ord("a"), ord("z") + 1)}
    )
    path = save(document, tmp_path / "encoding.pdf")

    answer = read(path)

    assert "anqdgnkd" in count_layer_words(path)  # borehole
    assert answer["via"] == "ocr"
    assert "borehole" in count_words(answer)


def test_a_font_that_lies_about_consonants_is_found_by_its_pixels(tmp_path: Path) -> None:
    """Words with their vowels pass for text, but look odd and do not match the pixels, from which they are read."""
    consonants = "bcdfghjklmnpqrstvwxz"
    document = pymupdf.open()
    page = draw_text_page(document, PROSE, font="helv", size=12)
    map_characters(
        document, page.get_fonts()[0][0], dict(zip(consonants, consonants[5:] + consonants[:5], strict=True))
    )
    path = save(document, tmp_path / "consonants.pdf")

    answer = read(path)

    assert "borehole" not in count_layer_words(path)
    assert all("from_pixels" in line for box in answer["boxes"] for line in box["lines"])
    assert "borehole" in count_words(answer)


def test_a_clean_visible_layer_is_not_compared(text_pdf: Path) -> None:
    """Only a hidden layer and one that looks odd are compared with the pixels, so that ordinary pages stay fast."""
    assert read(text_pdf)["agreement"] is None


def test_a_hidden_layer_is_used_if_ocr_finds_no_text(tmp_path: Path) -> None:
    """A hidden layer is better than no text, and `via` in the answer says that it was used."""
    with pymupdf.open() as document:
        page = document.new_page(width=595, height=400)
        page.draw_rect(pymupdf.Rect(100, 100, 300, 300), fill=(0.3, 0.5, 0.4))
        path = save_scan(page, tmp_path / "layer.pdf", layer=PROSE)
    answer = read(path)

    assert answer["via"] == "hidden_layer"
    assert count_words(answer) == count_layer_words(path)


def test_a_hidden_layer_that_ocr_does_not_see_is_uncertain(tmp_path: Path) -> None:
    """A few of its lines that agree with the pixels do not outweigh that OCR finds next to none of them."""
    with pymupdf.open() as document:
        page = document.new_page(width=595, height=400)
        for row, line in enumerate(PROSE):
            page.insert_text((60, 60 + 20 * row), line)
        path = save_scan(page, tmp_path / "unseen.pdf", layer=PROSE)
    with pymupdf.open(path) as document:
        pixels = render_page(document[0])

    answer = read_page(PagePointer(str(path), 1), pixels, None, read_lines=lambda *_, **__: ocr.OcrResult((), False))

    elements = LayoutFamily().parse(answer, 1).elements
    assert json.loads(answer)["via"] == "hidden_layer"
    assert all(element.confidence.score < UNCERTAIN_BELOW for element in elements if element.confidence) and elements


def test_a_scan_in_an_unknown_script_is_reported(tmp_path: Path) -> None:
    """The recogniser has not learnt Hangul, so a Korean scan is UNREADABLE_SCRIPT and has no invented text."""
    with pymupdf.open() as document:
        path = save_scan(draw_text_page(document, (HANGUL,) * 3, "korea", 12), tmp_path / "korean.pdf")
    answer = LayoutFamily().parse(json.dumps(read(path)), 1)

    assert answer.reason is Code.UNREADABLE_SCRIPT
    assert not answer.elements


def test_an_image_file_is_read_from_its_pixels(tmp_path: Path) -> None:
    """A PNG has no text layer and is read by OCR."""
    with pymupdf.open() as document:
        pixmap = draw_text_page(document, PROSE).get_pixmap(dpi=144)
    pixmap.save(tmp_path / "page.png")
    pixels = Pixels(pixmap.width, pixmap.height, data=bytes(pixmap.samples))
    answer = json.loads(read_page(PagePointer(str(tmp_path / "page.png"), 1, is_pdf=False), pixels, None))

    assert answer["via"] == "ocr" and "borehole" in count_words(answer)


@pytest.mark.parametrize(("height", "zoom", "score"), [(11, 1.0, 0.66), (11, 4.0, 0.96), (40, 1.0, 0.96)])
def test_small_letters_of_a_scan_are_less_sure(height: int, zoom: float, score: float) -> None:
    """The confidence of a scan depends on the pixels that OCR saw, which a sharper rendering has more of."""
    corners = ((20.0, 20.0), (320.0, 20.0), (320.0, 20.0 + height), (20.0, 20.0 + height))
    line = ocr.OcrLine(corners, "تقوم محطة المياه بتزويد السكان", 1.0)
    pixels = Pixels(600, 400, data=b"\xff" * (600 * 400 * 3))
    scan = ocr.OcrResult((line,), unreadable=False, zoom=zoom)
    answer = read_page(PagePointer("", 1, is_pdf=False), pixels, None, read_lines=lambda *_, **__: scan)
    (element,) = LayoutFamily().parse(answer, 1).elements

    assert element.confidence
    assert element.confidence.score == pytest.approx(score, abs=0.02)


@pytest.mark.parametrize(("dpi", "zoom", "expected"), [(36, 1.0, 0.5), (36, 4.0, 0.5), (300, 1.0, 2.0)])
def test_interpolated_pixels_of_a_scan_do_not_count(tmp_path: Path, dpi: int, zoom: float, expected: float) -> None:
    """Its letters are no larger than in its image, however many pixels the page is drawn with."""
    with pymupdf.open() as document:
        path = save_scan(draw_text_page(document, PROSE, size=12), tmp_path / "scan.pdf", dpi=dpi)
    with pymupdf.open(path) as document:
        pixels = render_page(document[0])
    line = ocr.OcrLine(((20.0, 20.0), (320.0, 20.0), (320.0, 42.0), (20.0, 42.0)), "The level is measured", 1.0)
    scan = ocr.OcrResult((line,), unreadable=False, zoom=zoom)
    answer = json.loads(read_page(PagePointer(str(path), 1), pixels, None, read_lines=lambda *_, **__: scan))

    assert answer["pixels_per_point"] == pytest.approx(expected, rel=0.02)


def test_a_damaged_file_is_a_coded_error(tmp_path: Path) -> None:
    """A file that MuPDF cannot open raises SourceError with the code DAMAGED."""
    (tmp_path / "bad.pdf").write_bytes(b"%PDF-1.7\nnothing of use")

    with pytest.raises(SourceError) as caught:
        read_page(PagePointer(str(tmp_path / "bad.pdf"), 1), Pixels(8, 8, data=bytes(192)), None)
    assert caught.value.code is Code.DAMAGED


def test_an_encrypted_file_opens_with_its_password(tmp_path: Path) -> None:
    """The page pointer carries the password; without it the error code is ENCRYPTED."""
    document = pymupdf.open()
    draw_text_page(document)
    path = tmp_path / "locked.pdf"
    document.save(path, encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw="open", owner_pw="own")
    pixels = Pixels(8, 8, data=bytes(192))

    assert "borehole" in read_page(PagePointer(str(path), 1, password="open"), pixels, None)
    with pytest.raises(SourceError) as caught:
        read_page(PagePointer(str(path), 1), pixels, None)
    assert caught.value.code is Code.ENCRYPTED


def test_a_full_page_picture_with_text_becomes_text() -> None:
    """The words of a picture region that fills the page become text regions."""
    page = Rect(0, 0, 600, 800)
    rects = [Rect(50 + 40 * (n % 10), 50 + 14 * (n // 10), 85 + 40 * (n % 10), 60) for n in range(40)]
    words = [StyledWord(rect, "w", n // 10) for n, rect in enumerate(rects)]
    regions = reading_order.assign_words([Region("picture", page)], words, page)

    assert {region.label for region in regions} == {"orphan"}
    assert sum(len(region.words) for region in regions) == 40


def test_an_image_in_a_cell_is_a_picture_behind_its_table() -> None:
    """An image in a cell is a region of its own; bullets, backgrounds of words and of the table are none."""
    table = Region("table", Rect(0, 0, 400, 200), (StyledWord(Rect(10, 10, 60, 20), "Valve", 0),))
    images = [Rect(100, 20, 180, 80), Rect(200, 20, 208, 28), Rect(5, 5, 90, 40), Rect(0, 0, 400, 200)]
    blocks = [{"type": 1, "bbox": tuple(image)} for image in images] + [{"type": 3, "bbox": (300, 20, 380, 80)}]
    text = Region("text", Rect(0, 300, 400, 320))

    found = layout_regions.add_cell_pictures([table, text], blocks)

    assert found == [table, Region("picture", images[0]), text]
    assert layout_regions.add_cell_pictures(found, blocks) == found


async def test_the_engine_reads_in_a_page_worker(page_pool: PagePool, text_pdf: Path) -> None:
    """The engine answers a prompt with the JSON that a child process returns."""
    engine = CpuEngine(1)
    await engine.open(page_pool)
    prompt = Prompt("a", "layout", Pixels(8, 8, data=bytes(192)), PagePointer(str(text_pdf), 1))

    answer = (await engine.generate(prompt)).text

    assert count_words(json.loads(answer)) == count_layer_words(text_pdf)


async def test_a_prompt_without_a_page_is_an_error() -> None:
    """The engine reads files and cannot answer a prompt that has only pixels."""
    with pytest.raises(EngineError):
        await CpuEngine(1).generate(Prompt("a", "layout", Pixels(8, 8, data=bytes(192))))


class CountingPool:
    """A pool of four page workers that notes how many threads each page may have, and answers when all have begun."""

    count = 4

    def __init__(self, pages: int) -> None:
        self.threads: list[int] = []
        self._begun = asyncio.Barrier(pages)

    async def call(self, function: Any, *args: Any) -> str:
        if function is read_page:
            self.threads.append(args[-1])
            await self._begun.wait()
        return "{}"


@pytest.mark.parametrize(("pages", "threads"), [(1, [4]), (3, [4, 2, 1]), (4, [4, 2, 1, 1])])
async def test_few_pages_use_the_idle_cores(pages: int, threads: list[int]) -> None:
    """A page that is read alone has a thread for each page worker; pages together share them."""
    pool = CountingPool(pages)
    engine = CpuEngine(4)
    await engine.open(cast(PagePool, pool))
    prompt = Prompt("1", "layout", Pixels(1, 1, data=bytes(3)), page=PagePointer("a.pdf", 1))
    await asyncio.gather(*(engine.generate(prompt) for _ in range(pages)))

    assert pool.threads == threads
