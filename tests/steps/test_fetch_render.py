"""Files in, pictures out: types by content, limits before work, geometry as displayed."""

from __future__ import annotations

import base64
import io
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pymupdf
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw, TiffImagePlugin, TiffTags
from PIL.TiffImagePlugin import RESOLUTION_UNIT, X_RESOLUTION, Y_RESOLUTION

from tests.fakes.workers import DyingWorkers
from twopass.document import Box, State, Word
from twopass.errors import Code, SourceError, WorkerDied
from twopass.job import Door, Job
from twopass.pages import source_files, text_layer_paragraphs
from twopass.pages.rendered_page import Picture
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.pages.source_files import CheckedFile
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings
from twopass.steps import fetch, render
from twopass.storage.sources import Sources

A4 = (595, 842)
WORDS = "The quick brown fox jumps over the lazy dog near the old water works of the town."


def pdf_of(draw: Callable[[Any], None], size: tuple[float, float] = A4) -> bytes:
    with pymupdf.open() as pdf:
        draw(pdf.new_page(width=size[0], height=size[1]))
        return bytes(pdf.tobytes())


def image_of(kind: str, size: tuple[int, int] = (400, 200), **options: Any) -> bytes:
    image = Image.new("RGB", size, "white")
    ImageDraw.Draw(image).rectangle((40, 40, 120, 80), fill="black")
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def text(page: Any) -> None:
    page.insert_textbox((72, 72, 500, 300), WORDS * 3)


@dataclass
class Reader:
    """Fetches and draws bytes with one worker."""

    folder: Path
    page_pool: PagePool
    buffers: PixelBufferPool
    settings: Settings

    @asynccontextmanager
    async def file(self, data: bytes, name: str = "file.bin", **fields: Any) -> AsyncIterator[CheckedFile]:
        path = self.folder / name
        path.write_bytes(data)
        job = Job.parse({"input": {"source": str(path), **fields}}, self.settings, Door.LOCAL)
        async with fetch.document(str(path), job, self.settings, self.page_pool, Sources(self.settings)) as file:
            yield file

    @asynccontextmanager
    async def picture(self, data: bytes, number: int = 1, dpi: int = 72, **fields: Any) -> AsyncIterator[Picture]:
        limit = self.settings.max_page_pixels
        async with (
            self.file(data, **fields) as file,
            render.page(file, number, dpi, limit, self.page_pool, self.buffers) as picture,
        ):
            yield picture


@pytest.fixture
def door(tmp_path: Path, page_pool: PagePool, buffers: PixelBufferPool) -> Reader:
    return Reader(
        tmp_path, page_pool, buffers, Settings(max_page_pixels=2_000_000, max_pages=20, max_image_pixels=1_000_000)
    )


@pytest.mark.parametrize(
    ("data", "mime"),
    [
        (pdf_of(text), "application/pdf"),
        (b"leading rubbish\n" + pdf_of(text), "application/pdf"),
        (image_of("PNG"), "image/png"),
        (image_of("JPEG"), "image/jpeg"),
        (image_of("WEBP"), "image/webp"),
        (image_of("TIFF"), "image/tiff"),
    ],
    ids=["pdf", "pdf-late-header", "png", "jpeg", "webp", "tiff"],
)
async def test_the_type_is_told_by_content(door: Reader, data: bytes, mime: str) -> None:
    """A name proves nothing: every type is read from a file called .bin, and gives a picture."""
    async with door.picture(data) as picture, door.file(data, "b.bin") as file:
        assert file.info.mime == mime
        assert picture.page.state is State.READ


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", Code.DAMAGED),
        (b"PK\x03\x04 a zip", Code.SOURCE_UNSUPPORTED),
        (b"%PDF-1.7 and nothing else", Code.DAMAGED),
        (pdf_of(text)[:300], Code.DAMAGED),
        (image_of("PNG")[:60], Code.DAMAGED),
        (image_of("PNG", (2000, 1000)), Code.SOURCE_TOO_LARGE),
    ],
    ids=["empty", "zip", "no-objects", "truncated", "cut-png", "pixels"],
)
async def test_what_cannot_be_read_is_refused_with_a_code(door: Reader, data: bytes, code: Code) -> None:
    """Refused before any page is drawn, and the next file is read."""
    with pytest.raises(SourceError) as caught:
        async with door.file(data):
            pass

    assert caught.value.code is code
    async with door.file(pdf_of(text)) as file:
        assert file.info.page_count == 1


@pytest.mark.parametrize(
    "said", ["invalid literal for int(): 'hunter2'", 'unknown keyword "hunter2', "not a number: b`hunter2'"]
)
def test_what_a_library_quotes_is_not_told(said: str) -> None:
    """Errors name what is wrong with a file and repeat none of its text; its path is nobody's business either."""
    with pytest.raises(SourceError) as caught, source_files.pdf_errors("/tmp/job/source"):
        raise ValueError(f"/tmp/job/source: {said}")

    assert caught.value.message.startswith("MuPDF: the source: ") and "hunter2" not in caught.value.message


def test_a_page_that_a_repair_lost_is_damaged(sample: Path) -> None:
    """MuPDF repairs a file as it reads, and may find fewer pages than it counted."""
    with pytest.raises(SourceError) as caught, source_files.shared_pdf(str(sample), None) as pdf:
        pdf[pdf.page_count]

    assert caught.value.code is Code.DAMAGED


def test_a_grey_picture_of_sixteen_bits_keeps_its_range() -> None:
    """Its lightest value is white, its darkest black, and its frame is not changed under whoever holds it."""
    values = np.array([[0, 32_768, 65_535]], np.uint16)
    frame = Image.fromarray(values)

    grey = np.asarray(render.flat(frame))[0, :, 0]

    assert grey.tolist() == [0, 127, 255]
    assert np.asarray(frame).tolist() == values.tolist()


async def test_a_worker_that_dies_over_a_source_is_tried_once_more(door: Reader) -> None:
    """One death is an accident, two are the file's."""
    once, twice = DyingWorkers(door.page_pool, inspect=1), DyingWorkers(door.page_pool, inspect=2)

    async with replace(door, page_pool=once).file(pdf_of(text)) as file:
        assert file.info.page_count == 1
    with pytest.raises(WorkerDied):
        async with replace(door, page_pool=twice).file(pdf_of(text)):
            pass


async def test_too_many_pages_are_refused(door: Reader) -> None:
    """The page limit is checked when the file is opened."""
    with pymupdf.open() as pdf:
        for _ in range(21):
            pdf.new_page()
        data = pdf.tobytes()

    with pytest.raises(SourceError, match="SOURCE_TOO_LARGE: 21 pages"):
        async with door.file(data):
            pass


@pytest.mark.parametrize(("password", "outcome"), [(None, "send its password"), ("no", "is wrong"), ("open", None)])
async def test_an_encrypted_pdf_opens_with_its_password(
    door: Reader, password: str | None, outcome: str | None
) -> None:
    """Without it, and with a wrong one, the error says which."""
    with pymupdf.open() as pdf:
        text(pdf.new_page())
        data = pdf.tobytes(encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw="open", owner_pw="own")
    fields = {"password": password} if password else {}

    if outcome:
        with pytest.raises(SourceError, match=f"ENCRYPTED.*{outcome}"):
            async with door.file(data, **fields):
                pass
    else:
        async with door.picture(data, **fields) as picture:
            assert picture.words


async def test_the_page_is_the_crop_box_after_rotation(door: Reader) -> None:
    """Geometry is the displayed page's, words included."""

    def draw(page: Any) -> None:
        page.insert_text((150, 130), "corner")
        page.draw_rect((200, 200, 300, 300), fill=(0, 0, 0))
        page.set_cropbox((100, 100, 500, 700))
        page.set_rotation(90)

    async with door.picture(pdf_of(draw)) as picture:
        assert (picture.page.width_pt, picture.page.height_pt) == (600, 400)
        assert picture.page.rotation_in == 90
        assert (picture.pixels.width, picture.pixels.height) == (600, 400)
        box = picture.words[0].box
        assert 0.9 < box.x0 < 1 and 0.1 < box.y0 < 0.15
        assert picture.pixels.array()[150, 450].tolist() == [0, 0, 0]


@pytest.mark.parametrize("turn", [90, 180, 270])
async def test_a_page_that_lies_sideways_is_turned(door: Reader, turn: int) -> None:
    """Text that runs up, down or backwards without /Rotate is upright before pass 1."""

    def draw(page: Any) -> None:
        for line in range(12):
            at = {90: (100 + 20 * line, 700), 270: (500 - 20 * line, 100), 180: (500, 700 - 20 * line)}[turn]
            page.insert_text(at, WORDS, fontsize=8, rotate={90: 90, 270: 270, 180: 180}[turn])

    async with door.picture(pdf_of(draw)) as picture:
        assert picture.page.rotation_applied == turn
        first, second = picture.words[0].box, picture.words[1].box
        assert second.x0 > first.x0
        assert abs(second.y0 - first.y0) < 0.002
        sideways = turn != 180
        assert (picture.page.width_pt, picture.page.height_pt) == ((842, 595) if sideways else (595, 842))


async def test_blank_pages_are_told_by_their_ink(door: Reader) -> None:
    """An empty page is blank; one with nothing but a scanned page number is not."""

    def number(page: Any) -> None:
        with pymupdf.open() as other:
            source = other.new_page(width=A4[0], height=A4[1])
            source.insert_text((297, 800), "7", fontsize=9)
            page.insert_image(page.rect, pixmap=source.get_pixmap(dpi=150))

    async with door.picture(pdf_of(lambda page: None), dpi=100) as empty:
        assert empty.page.state is State.BLANK
    async with door.picture(pdf_of(number), dpi=100) as numbered:
        assert numbered.page.state is State.READ


@pytest.mark.parametrize(
    "colour", [(0, 1, 1), (0, 1, 0), (1, 1, 0), (1, 0, 1)], ids=["cyan", "green", "yellow", "magenta"]
)
async def test_bright_colours_are_ink(door: Reader, colour: tuple[float, float, float]) -> None:
    """A page with nothing but a shape that is full in one or two channels is not lost as blank."""

    def shape(page: Any) -> None:
        page.draw_rect((100, 100, 200, 160), color=colour, fill=colour)

    async with door.picture(pdf_of(shape)) as picture:
        assert picture.page.state is State.READ


def test_a_white_page_has_no_ink_and_a_page_of_one_colour_has_none() -> None:
    """The background is the page's own, whatever its colour."""
    white = np.full((80, 60, 3), 255, np.uint8)
    blue = np.full((83, 61, 3), (10, 20, 200), np.uint8)

    assert (render.ink_of(white), render.ink_of(blue)) == (0, 0)


@given(rows=st.integers(4, 30), columns=st.integers(4, 30), seed=st.integers(0, 2**32 - 1))
def test_ink_is_the_share_of_blocks_unlike_the_background(rows: int, columns: int, seed: int) -> None:
    """Added up in whichever way: blocks of 4 × 4, a band at a time; what is left at the edges does not count."""
    page = np.random.default_rng(seed).choice(np.array([0, 200, 255], np.uint8), (rows, columns, 3), p=[0.2, 0.1, 0.7])

    blocks = page[: rows // 4 * 4, : columns // 4 * 4].reshape(rows // 4, 4, columns // 4, 4, 3).sum((1, 3))
    unlike = np.abs(blocks - np.median(blocks, (0, 1)).astype(int)) > 40 * 16

    assert render.ink_of(page) == unlike.any(-1).mean()


async def test_a_page_beyond_the_pixel_limit_is_scaled_and_said_so(door: Reader) -> None:
    """A 20,000 × 20,000 point page is read at a lower resolution, not refused."""
    async with door.picture(pdf_of(text, (20_000, 20_000)), dpi=144) as picture:
        assert 1_900_000 < picture.pixels.width * picture.pixels.height <= 2_000_000
        assert [problem.code for problem in picture.problems] == [Code.PIXEL_LIMIT]


async def test_an_image_states_its_own_size(door: Reader) -> None:
    """Pixels come as they are; points follow from the stated resolution, 144 dpi without one."""
    async with door.picture(image_of("PNG", dpi=(200, 200))) as stated, door.picture(image_of("PNG")) as silent:
        assert (stated.pixels.width, stated.pixels.height) == (400, 200)
        assert stated.page.width_pt == pytest.approx(144, abs=0.1)
        assert silent.page.width_pt == pytest.approx(200)


async def test_a_fax_has_the_shape_of_its_paper(door: Reader) -> None:
    """204 dots across and 98 down: the page is as long as it was sent, and is drawn with square pixels."""
    async with door.picture(image_of("TIFF", (864, 500), dpi=(204, 98))) as picture:
        width, height = picture.page.width_pt, picture.page.height_pt
        assert (width, height) == (pytest.approx(864 / 204 * 72, abs=0.01), pytest.approx(500 / 98 * 72, abs=0.01))
        assert (picture.pixels.width, picture.pixels.height) == (864, 1040)
        assert picture.page.image and picture.page.image.dpi == 204
        assert picture.pixels.array()[110:150, 60].max() < 60  # rows 40 to 80 of the file begin at 83 and end at 166


@pytest.mark.parametrize("kind", ["TIFF", "JPEG", "PNG"])
async def test_a_turned_image_keeps_its_shape(door: Reader, kind: str) -> None:
    """Resolutions across and down turn with the picture, whichever library has turned its size already."""
    exif = Image.Exif()
    exif[0x0112] = 6

    async with door.picture(image_of(kind, exif=exif, dpi=(200, 100))) as picture:
        assert picture.page.width_pt == pytest.approx(144, abs=0.1)
        assert picture.page.height_pt == pytest.approx(144, abs=0.1)
        assert (picture.pixels.width, picture.pixels.height) == (400, 400)


def tiff_of(numerator: int, denominator: int) -> bytes:
    """A TIFF that states this fraction for its dots across."""
    return image_of("TIFF", dpi=(204, 98)).replace(
        struct.pack("<II", 204, 1), struct.pack("<II", numerator, denominator)
    )


def endless_tiff() -> bytes:
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    for tag in (X_RESOLUTION, Y_RESOLUTION):
        tags.tagtype[tag] = TiffTags.FLOAT
        tags[tag] = float("inf")
    tags[RESOLUTION_UNIT] = 2
    return image_of("TIFF", tiffinfo=tags)


@pytest.mark.parametrize(
    "data",
    [
        tiff_of(0, 0),
        tiff_of(0, 1),
        endless_tiff(),
        image_of("PNG", dpi=(0, 0)),
        image_of("PNG", dpi=(1, 1)),
        image_of("JPEG", dpi=(60_000, 60_000)),
        image_of("TIFF", dpi=(2400, 98)),
    ],
    ids=["nan", "zero", "infinite", "none", "one", "absurd", "stretched"],
)
async def test_a_resolution_that_cannot_be_true_is_none(door: Reader, data: bytes) -> None:
    """The page has 144 dpi then, and no statement of a file ends its worker."""
    async with door.picture(data) as picture:
        assert (picture.page.width_pt, picture.page.height_pt) == (200, 100)
        assert (picture.pixels.width, picture.pixels.height) == (400, 200)


async def test_a_photographs_orientation_is_applied(door: Reader) -> None:
    """EXIF orientation 6 means: turn it a quarter before showing."""
    exif = Image.Exif()
    exif[0x0112] = 6

    async with door.picture(image_of("JPEG", exif=exif, quality=95)) as picture:
        assert (picture.pixels.width, picture.pixels.height) == (200, 400)
        assert picture.pixels.array()[80, 140].max() < 60


async def test_every_page_of_a_tiff_is_a_page(door: Reader) -> None:
    """A multi-page TIFF is a document; its second page has its own size."""
    frames = [Image.new("L", (100, 50), 255), Image.new("1", (60, 80), 0)]
    buffer = io.BytesIO()
    frames[0].save(buffer, "TIFF", save_all=True, append_images=frames[1:])

    async with door.picture(buffer.getvalue(), number=2) as picture:
        assert (picture.pixels.width, picture.pixels.height) == (60, 80)


@pytest.mark.parametrize("kind", ["MPO", "WEBP", "PNG"])
async def test_a_picture_with_frames_is_one_page(door: Reader, kind: str) -> None:
    """A phone's JPEG carries a preview or a depth map, and an animation shows one thing."""
    data = image_of(kind, save_all=True, append_images=[Image.new("RGB", (400, 200), "red")])

    async with door.picture(data) as picture, door.file(data, "b.bin") as file:
        assert file.info.page_count == 1
        assert picture.pixels.array()[60, 80].max() < 60


async def test_transparency_shows_white_paper(door: Reader) -> None:
    """A transparent PNG is read as it looks on a page, not on black."""
    image = Image.new("RGBA", (100, 100), (0, 0, 0, 0))
    image.paste((0, 0, 0, 255), (10, 10, 40, 40))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")

    async with door.picture(buffer.getvalue()) as picture:
        assert picture.pixels.array()[80, 80].tolist() == [255, 255, 255]
        assert picture.pixels.array()[20, 20].tolist() == [0, 0, 0]


async def test_inline_data_is_a_source(tmp_path: Path, door: Reader) -> None:
    """A small page can travel inside the job."""
    uri = "data:image/png;base64," + base64.b64encode(image_of("PNG")).decode()
    job = Job.parse({"input": {"source": uri}}, door.settings, Door.SERVERLESS)

    async with fetch.document(uri, job, door.settings, door.page_pool, Sources(door.settings)) as file:
        assert file.stem == "inline"
        assert np.isclose(file.pages[0].width_pt, 200) if file.pages[0] else False


def words_of(text: str) -> tuple[Word, ...]:
    return tuple(Word(Box(0.1 * n, 0.1, 0.1 * n + 0.09, 0.12), word) for n, word in enumerate(text.split()))


@pytest.mark.parametrize("letter", ["\ufffd", "\uf0b7", "\U000f1234", "\x02", "\x93"])
def test_a_text_layer_that_means_nothing_is_not_taken(letter: str) -> None:
    """Fonts without a character map give replacement, private and control characters instead of letters."""
    garbage = words_of(f"{letter * 4} ab {letter * 3}")

    assert text_layer_paragraphs.elements(garbage, 1) == ()


@pytest.mark.parametrize("text", ["水质 报告", "수질 보고서", "\uf0b7 Bullets of symbol fonts", "naïve – “quoted”"])
def test_a_text_layer_in_any_script_is_taken(text: str) -> None:
    """A private bullet among words is no garbage either."""
    found = text_layer_paragraphs.elements(words_of(text), 1)

    assert " ".join(element.text for element in found) == text


PUMPS = "The level in the borehole is measured before the pump starts and after it has run for one hour. "
RULES = "Nobody may open the valve of the upper spring without telling both operators of the water works first. "
YEARS = "Prices are those of January, and half of what was lost last summer is now thought to lie in other villages. "
PROSE = PUMPS + RULES + YEARS + WORDS
NETS = "GND VCC VDD VSS SCK NRST SWCLK SWDIO SPLY XTRST PWM CTRL VBAT " * 20
PARTS = " ".join(f"BGX-{number}-TRK M{number}x12 DIN{number} HQLR{number}" for number in range(4000, 4100))


def test_a_text_layer_whose_letters_stand_for_others_is_not_taken() -> None:
    """Fonts that name every letter wrongly give words of consonants, whatever their spelling."""
    lied = PROSE.lower().translate(str.maketrans("abcdefghijklmnopqrstuvwxyz", "zabcdefghijklmnopqrstuvwxy"))

    assert text_layer_paragraphs.elements(words_of(lied), 1) == ()


@pytest.mark.parametrize(
    "text",
    [PROSE, PROSE.upper(), NETS, PARTS, "Strč prst skrz krk, plch zdrhl skrz drn. " * 20],
    ids=["prose", "capitals", "nets", "parts", "czech"],
)
def test_words_with_few_vowels_are_no_garbage(text: str) -> None:
    """Acronyms, part numbers and Czech are taken as they are."""
    assert text_layer_paragraphs.elements(words_of(text), 1)
