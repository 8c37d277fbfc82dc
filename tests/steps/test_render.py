"""Rendering pages: geometry as displayed, rotation, ink, resolutions and transparency."""

from __future__ import annotations

import io
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pymupdf
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, TiffImagePlugin, TiffTags
from PIL.TiffImagePlugin import RESOLUTION_UNIT, X_RESOLUTION, Y_RESOLUTION

from tests.fakes import damaged_pages
from tests.fakes.page_pool import LyingPagePool
from tests.fakes.source_files import A4, SENTENCE, SourceReader, insert_text, make_image, make_pdf
from twopass.document import FindingKind, State
from twopass.errors import Code, SourceError, WorkerDied
from twopass.pages import image_bands
from twopass.steps import render


def test_sixteen_bit_grey_keeps_its_range() -> None:
    """The lightest value becomes white and the darkest black, and the source image is not changed."""
    values = np.array([[0, 32_768, 65_535]], np.uint16)
    frame = Image.fromarray(values)

    grey = np.asarray(image_bands.flatten(frame))[0, :, 0]

    assert grey.tolist() == [0, 127, 255]
    assert np.asarray(frame).tolist() == values.tolist()


@pytest.mark.parametrize(
    ("values", "expected"),
    [([0.0, 0.5, 1.0], [0, 127, 255]), ([-9.0, 128.0, 255.0], [0, 128, 255]), ([0.0, 500.0, 1000.0], [0, 127, 255])],
)
def test_floating_point_grey_is_seen(values: list[float], expected: list[int]) -> None:
    """Values from 0 to 1 would be a black page, and negative ones light spots."""
    frame = Image.fromarray(np.array([values], np.float32))

    assert np.asarray(image_bands.flatten(frame))[0, :, 0].tolist() == expected


async def test_geometry_is_that_of_the_displayed_page(source_reader: SourceReader) -> None:
    """Page size, pixels and word boxes are those of the crop box after /Rotate."""

    def draw(page: Any) -> None:
        page.insert_text((150, 130), "corner")
        page.draw_rect((200, 200, 300, 300), fill=(0, 0, 0))
        page.set_cropbox((100, 100, 500, 700))
        page.set_rotation(90)

    async with source_reader.render(make_pdf(draw)) as rendered:
        assert (rendered.page.width_pt, rendered.page.height_pt) == (600, 400)
        assert rendered.page.rotation_in == 90
        assert (rendered.pixels.width, rendered.pixels.height) == (600, 400)
        box = rendered.words[0].box
        assert 0.9 < box.x0 < 1 and 0.1 < box.y0 < 0.15
        assert rendered.pixels.array()[150, 450].tolist() == [0, 0, 0]


@pytest.mark.parametrize("turn", [90, 180, 270])
async def test_a_sideways_page_is_turned_upright(source_reader: SourceReader, turn: int) -> None:
    """Text that runs up, down or upside down without /Rotate is upright after rendering."""

    def draw(page: Any) -> None:
        for line in range(12):
            at = {90: (100 + 20 * line, 700), 270: (500 - 20 * line, 100), 180: (500, 700 - 20 * line)}[turn]
            page.insert_text(at, SENTENCE, fontsize=8, rotate={90: 90, 270: 270, 180: 180}[turn])

    async with source_reader.render(make_pdf(draw)) as rendered:
        assert rendered.page.rotation_applied == turn
        first, second = rendered.words[0].box, rendered.words[1].box
        assert second.x0 > first.x0
        assert abs(second.y0 - first.y0) < 0.002
        sideways = turn != 180
        assert (rendered.page.width_pt, rendered.page.height_pt) == ((842, 595) if sideways else (595, 842))


@pytest.mark.parametrize("turn", [0, 180, 270])  # where text runs upwards, MuPDF makes a block of each line
async def test_a_draft_has_the_text_of_the_page(source_reader: SourceReader, turn: int) -> None:
    """The draft is the text as it reads on the upright page, with broken words whole."""

    def draw(page: Any) -> None:
        broken = SENTENCE.replace("near", "ne-\nar")
        for at in (100, 300):
            page.insert_text({0: (90, at), 180: (500, 800 - at), 270: (500 - at, 90)}[turn], broken, rotate=turn)

    async with replace(source_reader, with_draft=True).render(make_pdf(draw)) as rendered:
        assert rendered.page.rotation_applied == turn
        assert rendered.draft == f"{SENTENCE} {SENTENCE}"


async def test_no_draft_is_written_unasked(source_reader: SourceReader) -> None:
    """An engine that has no use for drafts costs no page worker time for them."""
    async with source_reader.render(make_pdf(insert_text)) as rendered:
        assert rendered.words and rendered.draft == ""


async def test_a_page_without_ink_is_blank(source_reader: SourceReader) -> None:
    """An empty page is blank; a scan that shows only a page number is not."""

    def number(page: Any) -> None:
        with pymupdf.open() as other:
            source = other.new_page(width=A4[0], height=A4[1])
            source.insert_text((297, 800), "7", fontsize=9)
            page.insert_image(page.rect, pixmap=source.get_pixmap(dpi=150))

    async with source_reader.render(make_pdf(lambda page: None), dpi=100) as empty:
        assert empty.page.state is State.BLANK
    async with source_reader.render(make_pdf(number), dpi=100) as numbered:
        assert numbered.page.state is State.READ


@pytest.mark.parametrize(
    "colour", [(0, 1, 1), (0, 1, 0), (1, 1, 0), (1, 0, 1)], ids=["cyan", "green", "yellow", "magenta"]
)
async def test_bright_colours_are_ink(source_reader: SourceReader, colour: tuple[float, float, float]) -> None:
    """A page with only a shape in a bright colour is not blank, although some of its channels are at full level."""

    def shape(page: Any) -> None:
        page.draw_rect((100, 100, 200, 160), color=colour, fill=colour)

    async with source_reader.render(make_pdf(shape)) as rendered:
        assert rendered.page.state is State.READ


def test_a_page_of_one_colour_has_no_ink() -> None:
    """The background is the page's own colour, white or any other."""
    white = np.full((80, 60, 3), 255, np.uint8)
    blue = np.full((83, 61, 3), (10, 20, 200), np.uint8)

    assert (render.measure_ink(white), render.measure_ink(blue)) == (0, 0)


@given(rows=st.integers(4, 30), columns=st.integers(4, 30), seed=st.integers(0, 2**32 - 1))
def test_ink_is_the_share_of_blocks_unlike_the_background(rows: int, columns: int, seed: int) -> None:
    """The result equals a direct sum over 4 × 4 blocks per band; incomplete blocks at the edges do not count."""
    page = np.random.default_rng(seed).choice(np.array([0, 200, 255], np.uint8), (rows, columns, 3), p=[0.2, 0.1, 0.7])

    blocks = page[: rows // 4 * 4, : columns // 4 * 4].reshape(rows // 4, 4, columns // 4, 4, 3).sum((1, 3))
    unlike = np.abs(blocks - np.median(blocks, (0, 1)).astype(int)) > 40 * 16

    assert render.measure_ink(page) == unlike.any(-1).mean()


async def test_a_page_beyond_the_pixel_limit_is_scaled_down_with_a_warning(source_reader: SourceReader) -> None:
    """A page of 20,000 × 20,000 points is rendered at a lower resolution and not refused."""
    async with source_reader.render(make_pdf(insert_text, (20_000, 20_000)), dpi=144) as rendered:
        assert 1_900_000 < rendered.pixels.width * rendered.pixels.height <= 2_000_000
        assert [problem.code for problem in rendered.problems] == [Code.PIXEL_LIMIT]


async def test_the_size_of_an_image_follows_from_its_resolution(source_reader: SourceReader) -> None:
    """Pixels stay as they are; points follow from the stated resolution, or from 144 dpi if there is none."""
    async with (
        source_reader.render(make_image("PNG", dpi=(200, 200))) as stated,
        source_reader.render(make_image("PNG")) as unstated,
    ):
        assert (stated.pixels.width, stated.pixels.height) == (400, 200)
        assert stated.page.width_pt == pytest.approx(144, abs=0.1)
        assert unstated.page.width_pt == pytest.approx(200)


async def test_a_fax_has_the_shape_of_its_paper(source_reader: SourceReader) -> None:
    """An image of 204 dpi across and 98 dpi down is rendered with square pixels and its true page length."""
    async with source_reader.render(make_image("TIFF", (864, 500), dpi=(204, 98))) as rendered:
        width, height = rendered.page.width_pt, rendered.page.height_pt
        assert (width, height) == (pytest.approx(864 / 204 * 72, abs=0.01), pytest.approx(500 / 98 * 72, abs=0.01))
        assert (rendered.pixels.width, rendered.pixels.height) == (864, 1040)
        assert rendered.page.image and rendered.page.image.dpi == 204
        assert rendered.pixels.array()[110:150, 60].max() < 60  # rows 40 to 80 of the file begin at 83 and end at 166


@pytest.mark.parametrize("kind", ["TIFF", "JPEG", "PNG"])
async def test_a_turned_image_keeps_its_shape(source_reader: SourceReader, kind: str) -> None:
    """The resolutions across and down turn with the image, for formats whose size Pillow turns and for the others."""
    exif = Image.Exif()
    exif[0x0112] = 6

    async with source_reader.render(make_image(kind, exif=exif, dpi=(200, 100))) as rendered:
        assert rendered.page.width_pt == pytest.approx(144, abs=0.1)
        assert rendered.page.height_pt == pytest.approx(144, abs=0.1)
        assert (rendered.pixels.width, rendered.pixels.height) == (400, 400)


def make_tiff(numerator: int, denominator: int) -> bytes:
    """A TIFF that states this fraction for its dots across."""
    return make_image("TIFF", dpi=(204, 98)).replace(
        struct.pack("<II", 204, 1), struct.pack("<II", numerator, denominator)
    )


def make_infinite_tiff() -> bytes:
    """A TIFF that states an infinite resolution."""
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    for tag in (X_RESOLUTION, Y_RESOLUTION):
        tags.tagtype[tag] = TiffTags.FLOAT
        tags[tag] = float("inf")
    tags[RESOLUTION_UNIT] = 2
    return make_image("TIFF", tiffinfo=tags)


@pytest.mark.parametrize(
    "data",
    [
        make_tiff(0, 0),
        make_tiff(0, 1),
        make_infinite_tiff(),
        make_image("PNG", dpi=(0, 0)),
        make_image("PNG", dpi=(1, 1)),
        make_image("JPEG", dpi=(60_000, 60_000)),
        make_image("TIFF", dpi=(2400, 98)),
    ],
    ids=["nan", "zero", "infinite", "none", "one", "absurd", "stretched"],
)
async def test_an_implausible_resolution_is_ignored(source_reader: SourceReader, data: bytes) -> None:
    """The image then has 144 dpi, and no stated value ends the page worker."""
    async with source_reader.render(data) as rendered:
        assert (rendered.page.width_pt, rendered.page.height_pt) == (200, 100)
        assert (rendered.pixels.width, rendered.pixels.height) == (400, 200)


async def test_the_exif_orientation_is_applied(source_reader: SourceReader) -> None:
    """With EXIF orientation 6, a photograph is turned by 90 degrees."""
    exif = Image.Exif()
    exif[0x0112] = 6

    async with source_reader.render(make_image("JPEG", exif=exif, quality=95)) as rendered:
        assert (rendered.pixels.width, rendered.pixels.height) == (200, 400)
        assert rendered.pixels.array()[80, 140].max() < 60


async def test_transparency_becomes_white(source_reader: SourceReader) -> None:
    """A transparent PNG is read as it looks on a white page, not on black."""
    image = Image.new("RGBA", (100, 100), (0, 0, 0, 0))
    image.paste((0, 0, 0, 255), (10, 10, 40, 40))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")

    async with source_reader.render(buffer.getvalue()) as rendered:
        assert rendered.pixels.array()[80, 80].tolist() == [255, 255, 255]
        assert rendered.pixels.array()[20, 20].tolist() == [0, 0, 0]


async def test_the_error_of_a_page_leaves_its_number_to_the_caller(source_reader: SourceReader) -> None:
    """A page that cannot be opened is DAMAGED; the page number, which every caller adds, is not in the message."""
    async with source_reader.open(make_pdf(insert_text)) as file:
        with pytest.raises(SourceError) as caught:
            async with render.page(
                replace(file, pages=(None,)), 1, 72, 10**6, source_reader.page_pool, source_reader.buffers
            ):
                pass

    assert str(caught.value) == "DAMAGED: the file's page object cannot be opened; save the file with another program"


async def test_a_page_worker_that_claims_too_many_pixels_fails_its_page(source_reader: SourceReader) -> None:
    """A page that would not fit into its buffer is not read from it: that would end the process of all jobs."""
    source_reader.page_pool = LyingPagePool(source_reader.page_pool, width=1 << 20)

    with pytest.raises(WorkerDied, match="RENDER_CRASH"):
        async with source_reader.render(make_pdf(lambda page: None)):
            pass


@pytest.mark.parametrize("way", ["content stream missing", "content stream, start overwritten"])
async def test_a_page_of_which_nothing_is_drawn_is_not_blank(source_reader: SourceReader, way: str) -> None:
    """The page has failed, and its problem and its audit say what is damaged."""
    data = damaged_pages.damage(make_pdf(insert_text), 0, way)

    async with source_reader.render(data) as rendered:
        assert (rendered.page.state, rendered.page.reason) == (State.FAILED, Code.CONTENT_LOST)
        (problem,) = rendered.problems
        assert problem.code is Code.CONTENT_LOST and problem.message.startswith("page 1: nothing of it is drawn: ")
        assert rendered.page.audit and rendered.page.audit.findings[0].said in problem.message


async def test_a_damaged_page_keeps_what_is_drawn(source_reader: SourceReader) -> None:
    """The page is read, and its audit has the loss."""
    data = damaged_pages.damage(make_pdf(insert_text), 0, "JPEG 2000 cut")

    async with source_reader.render(data) as rendered:
        assert rendered.page.state is State.READ and rendered.words
        assert rendered.page.audit and rendered.page.audit.count(FindingKind.IMAGE_LOST) == 1


async def test_a_page_without_contents_is_blank(source_reader: SourceReader) -> None:
    """An empty page is no damage."""
    async with source_reader.render(make_pdf(lambda page: None)) as rendered:
        assert (rendered.page.state, rendered.page.audit, rendered.problems) == (State.BLANK, None, ())


async def test_damage_is_reported_of_a_page_that_only_gives_its_text(source_reader: SourceReader) -> None:
    """The audit also begins where a page is not rendered."""
    data = damaged_pages.damage(make_pdf(insert_text), 0, "form missing")

    async with source_reader.open(data) as file:
        page, words = await render.text_only(file, 1, source_reader.page_pool)

    assert words and page.audit and page.audit.has_loss
