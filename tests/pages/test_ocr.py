"""Lines of scans: tiles of very long pages, and which lines are sure."""

from __future__ import annotations

import numpy as np
import psutil
import pymupdf
import pytest

from twopass.document import Rect
from twopass.pages import ocr
from twopass.pages.ocr import OcrLine
from twopass.pages.strips import Array


def test_a_very_long_scan_is_split_into_tiles() -> None:
    """The detector enlarges short sides, so a till roll read as a whole would need gigabytes."""
    array = np.full((4000, 200, 3), 255, np.uint8)
    tiles = list(ocr.split_tiles(array))

    assert sum(tile.shape[0] for _, tile in tiles) == 4000
    assert max(tile.shape[0] for _, tile in tiles) <= ocr.TILE_ASPECT * 200


def test_a_line_in_a_wide_strip_is_detected_whole() -> None:
    """A picture of one line is read as it is: a cut would run through its words."""
    with pymupdf.open() as document:
        page = document.new_page(width=800, height=50)
        page.insert_text((10, 32), "The inspector recommended replacing seventeen corroded housings", fontsize=24)
        pixmap = page.get_pixmap(dpi=144)
    array = np.frombuffer(pixmap.samples, np.uint8).reshape(pixmap.height, pixmap.width, 3)

    assert len(ocr.detect_lines(array)) == 1


def test_a_very_wide_strip_is_cut_between_words() -> None:
    """Where tiles are needed, they end in the widest blank, and not between two letters."""
    array = np.full((60, 9000, 3), 255, np.uint8)
    for left in range(0, 9000, 100):
        for x in range(left, left + 70, 10):
            array[20:40, x : x + 7] = 0
    cuts = [offset for offset, _ in ocr.split_tiles(array)][1:]

    assert cuts
    assert all(cut % 100 > 70 for cut in cuts)


@pytest.mark.parametrize(
    ("text", "score", "coverage", "is_sure"),
    [
        ("The level is measured", 0.97, 1.0, True),
        ("测量水位", 0.97, 1.0, True),
        ("12.5 %", 0.97, 1.0, True),
        ("The level is measured", 0.8, 1.0, False),
        ("D rld nk, 12 %.", 0.97, 0.3, False),
        ("νιη. στμη ετριται πριν", 0.97, 1.0, False),
    ],
)
def test_a_line_is_sure_if_all_of_it_was_read(text: str, score: float, coverage: float, is_sure: bool) -> None:
    """A high score is not enough: RapidOCR reads only the Latin words of a Cyrillic line, and parts of Greek."""
    corners = ((0.0, 0.0), (300.0, 0.0), (300.0, 20.0), (0.0, 20.0))

    assert OcrLine(corners, text, score, coverage=coverage).is_sure == is_sure


def read_as(*texts: str, score: float = 0.6, coverage: float = 1.0) -> list[OcrLine]:
    """Lines below each other, as the recogniser reads them."""
    corners = [((0.0, y), (300.0, y), (300.0, y + 20.0), (0.0, y + 20.0)) for y in range(0, 30 * len(texts), 30)]
    return [OcrLine(quad, text, score, coverage=coverage) for quad, text in zip(corners, texts, strict=True)]


def test_handwriting_that_is_read_in_part_is_kept() -> None:
    """Doubtful words of a known language are no foreign script: they are kept with their low score."""
    lines = read_as("cae in on thursday wth a roken ast", "all day. Nokody has swe the inspctor siwe the storn")

    assert ocr.find_legible(lines) == lines


@pytest.mark.parametrize(
    ("text", "coverage"),
    [("suoaounuaiananiaTvoiaontaqnasinanona jnanon", 1.0), ("s=v70=7a00u2mua201vua=70na7v007nv2ua", 1.0)]
    + [("the water is measured before the pump starts", 0.3), ("απ δ πηγ αι μα γετροη", 1.0)],
)
def test_letters_read_in_a_foreign_script_are_not_kept(text: str, coverage: float) -> None:
    """What is read in Thai or Greek, or of a few Latin words of a line, is no text in Latin script."""
    assert not ocr.find_legible(read_as(text, text, text, coverage=coverage))


def test_marks_are_one_or_two_letters_that_are_most_of_many_lines() -> None:
    """Crosses and circles of a plot are no text; doubtful words, a few letters on a sign, and sure ones are."""
    marks, words = read_as(*"OXOXOXOX", score=0.9), read_as(*["—Anna—", "17.5"] * 4, score=0.8)

    assert ocr.find_marks([*marks, *words[:2]]) == marks
    assert not any(map(ocr.find_marks, (words, [*marks, *words], marks[:4], read_as(*"OXOXOXOX", score=0.99))))


def test_what_is_read_does_not_depend_on_the_threads() -> None:
    """Idle cores read lines of a page, and no line is padded to the width of another."""
    with pymupdf.open() as document:
        page = document.new_page(width=300, height=80)
        page.insert_text((10, 30), "The level is measured", fontsize=12)
        page.insert_text((10, 60), "before the pump starts and after it has run", fontsize=12)
        pixmap = page.get_pixmap(dpi=144)
    array = np.frombuffer(pixmap.samples, np.uint8).reshape(pixmap.height, pixmap.width, 3)
    alone = ocr.read(array)
    with ocr.use_threads(4):
        together = ocr.read(array)

    assert together == alone
    assert [line.text for line in alone.lines] == [
        "The level is measured",
        "before the pump starts and after it has run",
    ]


def test_long_lines_leave_little_memory_behind() -> None:
    """What six long lines take at once is given back, but for what their output needs until the next ones are read."""
    session = ocr.load_recogniser().session.session
    pixels = np.zeros((6, 3, 48, 1600), np.float32)
    name = session.get_inputs()[0].name
    before = psutil.Process().memory_info().rss

    for lines in (pixels, pixels[:1, :, :, :320]):
        session.run(None, {name: lines})

    assert session.get_session_options().enable_cpu_mem_arena
    assert psutil.Process().memory_info().rss - before < 100 << 20  # 290 MB and more if the session keeps its arena


def test_a_sign_that_is_seen_and_not_read_lacks_lines() -> None:
    """A short text in a script that was not learnt is neither read as something else nor passed over in silence."""
    with pymupdf.open() as document:
        page = document.new_page(width=400, height=200)
        page.insert_htmlbox((40, 40, 380, 160), '<p style="font-size:48pt">ทางออกฉุกเฉิน</p>')
        pixmap = page.get_pixmap(dpi=144)
    array = np.frombuffer(pixmap.samples, np.uint8).reshape(pixmap.height, pixmap.width, 3)
    result = ocr.read(array)

    assert result.lacks_lines or result.unreadable
    assert not result.lines


def draw_sign(*lines: tuple[str, int]) -> Array:
    """Lines of text in white on blue, each in its size in points."""
    html = "".join(f'<p style="font-size:{size}pt;color:white;margin:0">{text}</p>' for text, size in lines)
    with pymupdf.open() as document:
        page = document.new_page(width=420, height=240)
        page.draw_rect(page.rect, fill=(0.1, 0.3, 0.6), color=None)
        page.insert_htmlbox((30, 40, 400, 220), html)
        pixmap = page.get_pixmap(dpi=144)
    return np.frombuffer(pixmap.samples, np.uint8).reshape(pixmap.height, pixmap.width, 3)


@pytest.mark.parametrize(
    ("foreign", "english"),
    [
        ("금연", "NO SMOKING"),
        ("주의", "CAUTION"),
        ("화장실", "Restroom"),
        ("ระวัง", "CAUTION WET FLOOR"),
        ("ΕΞΟΔΟΣ", "EXIT"),
    ],
)
def test_a_line_that_is_not_read_beside_one_that_is_has_its_box(foreign: str, english: str) -> None:
    """A short word in a script that was not learnt is neither Latin letters nor passed over."""
    result = ocr.read(draw_sign((foreign, 40), (english, 22)))

    (read,), (unread,) = result.lines, result.unread
    assert read.text == english and result.lacks_lines
    assert Rect.around(unread).centre[1] < read.box.y0


@pytest.mark.parametrize("text", ["NO SMOKING", "Größe 42", "禁止吸烟", "TAXI"])
def test_a_sign_that_is_read_lacks_nothing(text: str) -> None:
    """Scripts that were learnt have no line that may be another one."""
    result = ocr.read(draw_sign((text, 40)))

    assert [line.text for line in result.lines] == [text] and not result.lacks_lines


def test_a_small_line_of_low_score_is_kept() -> None:
    """A nearly empty page keeps its words: grain lowers the score of small letters, and of no large ones."""
    with pymupdf.open() as document:
        page = document.new_page(width=420, height=300)
        page.insert_text((60, 60), "p. 17", fontsize=8)
        pixmap = page.get_pixmap(dpi=144)
    clean = np.frombuffer(pixmap.samples, np.uint8).reshape(pixmap.height, pixmap.width, 3)
    grain = np.random.default_rng(0).normal(0, 18, (*clean.shape[:2], 1))
    result = ocr.read(np.clip(0.8 * clean + 30 + grain, 0, 255).astype(np.uint8))

    (line,) = result.lines
    assert line.score < ocr.SIGN_SCORE and line.text == "p. 17" and not result.lacks_lines
