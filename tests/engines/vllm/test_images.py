"""How images become a model's input: views whose tiles are rendered, and crops as patches with the chat around them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pymupdf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twopass.engines.interface import Prompt
from twopass.engines.vllm import images, tiling
from twopass.engines.vllm.arguments import build_arguments
from twopass.engines.vllm.images import CropImages
from twopass.errors import InvalidSetting
from twopass.families.regions.reader import READERS
from twopass.models import MODELS, PAGE_PRESETS, REGION_PRESETS, CropInput, TileGrid
from twopass.pages import source_files
from twopass.pages.rendered_page import PagePointer
from twopass.pages.shared_pixels import PixelBuffer, PixelBufferPool, Pixels
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings
from twopass.steps import render
from twopass.steps.render import DrawRequest

DEEPSEEK_OCR = MODELS["deepseek_ocr"].vision
GLM, PADDLE = MODELS["glm_ocr"].crop_input, MODELS["paddleocr_vl"].crop_input
# The ids that GLM-OCR's processor gives for its prompt, with three image tokens; of the text only the ids of its bytes.
GLM_IDS = {"[gMASK]": 59248, "<sop>": 59250, "<|user|>": 59253, "<|begin_of_image|>": 59256, "<|image|>": 59280,
           "<|end_of_image|>": 59257, "<|assistant|>": 59254}  # fmt: skip

sides = st.integers(1, 6000)
LOREM = "The borehole reached water at a depth of forty metres, where gravel gives way to clay. " * 4


@pytest.fixture
def pdf(tmp_path: Path) -> Path:
    """A page with text, a filled box in its upper left corner, a red line, a red box and an image."""
    path = tmp_path / "page.pdf"
    with pymupdf.open() as document:
        page = document.new_page(width=420, height=595)
        page.draw_rect((10, 10, 110, 60), fill=(0, 0, 0))
        page.draw_line((20, 580), (400, 580), color=(1, 0, 0), width=3)
        page.insert_textbox((30, 120, 390, 420), LOREM, fontsize=11)
        grey = pymupdf.Pixmap(pymupdf.csRGB, pymupdf.IRect(0, 0, 64, 64))
        grey.clear_with(90)
        page.insert_image((250, 450, 390, 560), pixmap=grey)
        page.draw_rect((30, 430, 200, 560), fill=(1, 0, 0))
        document.save(path)
    return path


@contextmanager
def lend_buffers() -> Iterator[tuple[PixelBuffer, PixelBuffer]]:
    """One buffer for a page, one for its views."""
    pools = PixelBufferPool(1, 1 << 28), PixelBufferPool(1, DEEPSEEK_OCR.max_nbytes, fixed_size=DEEPSEEK_OCR.max_nbytes)
    try:
        first, second = ([PixelBuffer(number) for number in pool.descriptors][0] for pool in pools)
        yield first, second
    finally:
        for pool in pools:
            pool.close()


def render_first_page(path: Path, buffer: PixelBuffer, password: str | None = None) -> render.DrawResult:
    """Render the first page at 144 dpi into the buffer."""
    os.ftruncate(buffer.descriptor, 1 << 24)
    return render.draw_pdf(DrawRequest(PagePointer(str(path), 1, 0, password), 2.0, buffer, 1 << 24))


def make_both(
    path: Path, mode: str, password: str | None = None
) -> tuple[tiling.Views, tiling.Views, render.DrawResult]:
    """The views resized from the page's pixels, those with rendered tiles, and what the page's rendering returned."""
    with lend_buffers() as (page_buffer, view_buffer):
        result = render_first_page(path, page_buffer, password)
        pixels = Pixels(result.width, result.height, page_buffer)
        grid = DEEPSEEK_OCR.choose_grid(result.width, result.height, mode, 6)
        resized = tiling.make_views(DEEPSEEK_OCR, pixels.array().copy(), mode, grid)
        pointer = PagePointer(str(path), 1, result.turn, password)
        images.write_views(DEEPSEEK_OCR, pixels, mode, grid, view_buffer, pointer)
        written = tiling.map_views(DEEPSEEK_OCR, view_buffer, mode, grid)
        return resized, tiling.Views(written.global_view.copy(), written.tiles.copy()), result


def mean_difference(one: tiling.Array, other: tiling.Array) -> float:
    """Mean difference between blocks of 16 × 16; small if both images show the same things in the same places."""
    blocks = [
        image.astype(np.float32)
        .reshape(*image.shape[:-3], image.shape[-3] // 16, 16, image.shape[-2] // 16, 16, 3)
        .mean((-4, -2))
        for image in (one, other)
    ]
    return float(np.abs(blocks[0] - blocks[1]).mean()) if one.size else 0.0


def assert_similar(resized: tiling.Views, rendered: tiling.Views) -> None:
    for one, other in zip(resized, rendered, strict=True):
        assert one.shape == other.shape
        assert mean_difference(one, other) < 1.0


@pytest.mark.parametrize("mode", sorted(DEEPSEEK_OCR.modes))
def test_rendered_tiles_show_what_enlarged_ones_show(pdf: Path, mode: str) -> None:
    """Rendered tiles have the same content with other pixels; the global view is identical."""
    resized, rendered, result = make_both(pdf, mode)

    assert np.array_equal(resized.global_view, rendered.global_view)
    assert_similar(resized, rendered)
    assert result.is_scalable
    assert not rendered.tiles.size or not np.array_equal(resized.tiles, rendered.tiles)


@pytest.mark.parametrize(("width", "height", "grid"), [(840, 1190, (2, 3)), (1280, 1920, (2, 3)), (400, 500, (1, 1))])
def test_tiles_are_upscaled_if_the_page_has_fewer_pixels(width: int, height: int, grid: tuple[int, int]) -> None:
    """A page with as many pixels as its tiles is not upscaled, nor is one without tiles."""
    assert DEEPSEEK_OCR.is_upscaled(width, height, TileGrid(*grid)) == ((width, height) == (840, 1190))


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_the_pages_rotation_and_crop_box_apply(pdf: Path, rotation: int) -> None:
    """Tiles respect /Rotate and the crop box, sideways text is upright, and the shared open file is left unchanged."""
    turned = pdf.with_name("turned.pdf")
    with pymupdf.open(pdf) as document:
        document[0].set_cropbox(pymupdf.Rect(5, 5, 410, 590))
        document[0].set_rotation(rotation)
        document.save(turned)

    resized, rendered, result = make_both(turned, "gundam")

    assert_similar(resized, rendered)
    assert result.turn == -rotation % 360
    with source_files.open_shared_pdf(str(turned), None) as shared:
        assert shared[0].rotation == rotation


def test_a_page_of_an_encrypted_file_is_rendered_with_its_password(pdf: Path) -> None:
    """The password in the page pointer opens the file again for the tiles."""
    locked = pdf.with_name("locked.pdf")
    with pymupdf.open(pdf) as document:
        document.save(locked, encryption=pymupdf.PDF_ENCRYPT_AES_256, owner_pw="owner", user_pw="open")

    resized, rendered, _ = make_both(locked, "gundam", "open")

    assert_similar(resized, rendered)


def test_a_page_that_renders_slowly_is_not_scalable(tmp_path: Path) -> None:
    """The tiles of a page with three thousand lines are resized, which takes the same time for any page."""
    strokes = " ".join(f"0 {n % 595} m 420 {(7 * n) % 595} l S" for n in range(3000))
    with pymupdf.open() as document:
        page = document.new_page(width=420, height=595)
        page.clean_contents()
        document.update_stream(page.get_contents()[0], f"3 w {strokes}".encode())
        document.save(tmp_path / "map.pdf")

    with lend_buffers() as (buffer, _):
        result = render_first_page(tmp_path / "map.pdf", buffer)

    assert not result.is_scalable


@pytest.mark.parametrize("rotation", [0, 90])
def test_a_page_with_a_large_image_is_not_scalable(pdf: Path, rotation: int) -> None:
    """MuPDF enlarges images without smoothing. The share of the page that images cover ignores its rotation."""
    with pymupdf.open(pdf) as document:
        page, grey = document[0], pymupdf.Pixmap(pymupdf.csRGB, pymupdf.IRect(0, 0, 64, 64))
        small_share = source_files.measure_image_share(page.get_displaylist())
        page.insert_image((20, 350, 400, 590), pixmap=grey, keep_proportion=False)
        large_share = source_files.measure_image_share(page.get_displaylist())
        page.set_rotation(rotation)
        document.save(pdf.with_name("with_image.pdf"))

    result = make_both(pdf.with_name("with_image.pdf"), "gundam")[2]

    assert small_share == pytest.approx(110 * 110 / (420 * 595), rel=0.01)
    assert large_share - small_share == pytest.approx(380 * 240 / (420 * 595), rel=0.01)
    assert not result.is_scalable


def test_an_inline_image_counts() -> None:
    """Old fax software writes a scan into the page's content stream, so that it is not among the resources."""
    with pymupdf.open() as document:
        page = document.new_page(width=420, height=595)
        page.insert_text((30, 30), LOREM)
        scan = b"q 400 0 0 500 10 10 cm BI /W 2 /H 2 /BPC 8 /CS /G ID \x00\x80\x80\x00 EI Q"
        document.update_stream(page.get_contents()[0], page.read_contents() + b"\n" + scan)

        assert source_files.measure_image_share(document[0].get_displaylist()) == pytest.approx(
            400 * 500 / (420 * 595), rel=0.01
        )


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("unit", ["1", "2"])
def test_a_full_page_image_is_detected_at_any_rotation(rotation: int, unit: str) -> None:
    """On a long page, an image placed at the wrong rotation would cover too little to be a scan; in any user unit."""
    with pymupdf.open() as document:
        page = document.new_page(width=400, height=900)
        page.insert_image(page.rect, pixmap=pymupdf.Pixmap(pymupdf.csRGB, pymupdf.IRect(0, 0, 8, 18)))
        page.set_rotation(rotation)
        document.xref_set_key(page.xref, "UserUnit", unit)

        assert source_files.detect_scan(document.reload_page(page))[0]


def test_invisible_words_are_read(tmp_path: Path) -> None:
    """The text layer over a scan, in a font whose glyphs have no height, which MuPDF's display list leaves out."""
    scan = pymupdf.open()
    scan.new_page().insert_text((0, 12), "word")
    picture = scan[0].get_pixmap(clip=(0, 0, 26, 15), dpi=144)
    letters = [f"/{chr(letter)}" for letter in range(97, 123)]
    written = [f"BT 3 Tr /helv 12 Tf 1 0 0 1 {40 + 60 * n} 700 Tm (word) Tj ET" for n in range(5)]
    with pymupdf.open() as document:
        page = document.new_page()
        page.insert_text((40, 60), "seen", fontname="cour")
        for n in range(5):
            page.insert_image(
                (40 + 60 * n, page.rect.height - 712, 66 + 60 * n, page.rect.height - 697), pixmap=picture
            )
        document.update_object(empty := document.get_new_xref(), "<<>>")
        document.update_stream(empty, b"500 0 0 0 0 0 d1")
        font = (
            "<</Type/Font/Subtype/Type3/FontBBox[0 0 1000 1000]/FontMatrix[.001 0 0 .001 0 0]/FirstChar 97/LastChar 122"
            f"/Widths[{'500 ' * 26}]/Encoding<</Type/Encoding/Differences[97{''.join(letters)}]>>"
            f"/CharProcs<<{''.join(f'{letter} {empty} 0 R' for letter in letters)}>>>>"
        )
        document.update_object(page.insert_font("helv"), font)
        document.update_stream(page.get_contents()[0], page.read_contents() + " ".join(["", *written]).encode())
        document.save(tmp_path / "scan.pdf")

    with lend_buffers() as (buffer, _):
        result = render_first_page(tmp_path / "scan.pdf", buffer)

    assert result.words.texts == ("seen", *5 * ["word"])


@settings(max_examples=30)
@given(width=st.floats(3, 2000), height=st.floats(3, 2000))
def test_a_page_of_any_size_fills_its_tiles(width: float, height: float) -> None:
    """The page is rendered up to the last pixel: a black page leaves nothing white."""
    with pymupdf.open() as document:
        page = document.new_page(width=width, height=height)
        page.draw_rect(page.rect + (-9, -9, 9, 9), fill=(0, 0, 0))
        grid = DEEPSEEK_OCR.choose_grid(round(width * 2), round(height * 2), "gundam", 6)

        pixels = images.render_page(page.get_displaylist(), *DEEPSEEK_OCR.grid_size(grid))

    assert not pixels.any()


class SpecialTokenizer:
    """Knows special tokens; every other character is a token of its own."""

    def __init__(self, special: dict[str, int]) -> None:
        self._special = special

    def convert_tokens_to_ids(self, token: str) -> int:
        return self._special[token]

    def encode(self, text: str, add_special_tokens: bool) -> Sequence[int]:
        assert not add_special_tokens
        ids = []
        while text:
            token = next((token for token in self._special if text.startswith(token)), text[0])
            ids.append(self._special[token] if token in self._special else ord(token))
            text = text.removeprefix(token)
        return ids


def plan(spec: CropInput, width: int, height: int) -> Any:
    planned = CropImages(spec).plan(Prompt("p", "OCR:", Pixels(width, height, data=b"")))
    assert planned
    return planned


@given(st.sampled_from([GLM, PADDLE]), sides, sides)
def test_every_crop_fits_its_buffer_and_a_step(spec: CropInput, width: int, height: int) -> None:
    """Buffers and steps are as large as the largest crop."""
    crops, planned = CropImages(spec), plan(spec, width, height)

    assert 0 < planned.nbytes <= crops.max_nbytes
    assert 0 < planned.tokens <= crops.max_tokens
    assert planned.nbytes == planned.tokens * 3 * (spec.patch * spec.merge) ** 2


@pytest.mark.parametrize(
    ("spec", "order"), [(GLM, [0, 1, 4, 5, 2, 3, 6, 7]), (PADDLE, range(8))], ids=["glm", "paddle"]
)
def test_patches_are_in_the_models_order(spec: CropInput, order: Sequence[int]) -> None:
    """GLM-OCR gets the four patches of a token one after the other, PaddleOCR-VL rows of patches."""
    numbers = np.arange(8, dtype=np.uint8).reshape(2, 4)  # two rows of four patches
    image = np.stack([numbers.repeat(14, 0).repeat(14, 1) + 10 * channel for channel in range(3)], axis=-1)

    patches = images.cut_patches(spec, image)

    assert patches.shape == (8, 3, 14, 14)
    assert [patch[0].max() for patch in patches] == list(order)
    assert all((patch[channel] == patch[0, 0, 0] + 10 * channel).all() for patch in patches for channel in range(3))


def test_a_patch_keeps_rows_and_columns() -> None:
    """Pixels are not transposed in a patch."""
    image = np.random.default_rng(1).integers(0, 256, (28, 28, 3), np.uint8)

    first, second, third, _ = images.cut_patches(PADDLE, image)

    assert np.array_equal(first.transpose(1, 2, 0), image[:14, :14])
    assert np.array_equal(second.transpose(1, 2, 0), image[:14, 14:])
    assert np.array_equal(third.transpose(1, 2, 0), image[14:, :14])


async def test_a_page_worker_writes_the_patches_of_a_crop() -> None:
    """They are in the shared buffer, resized once from the raw pixels."""
    image = np.random.default_rng(2).integers(0, 256, (120, 300, 3), np.uint8)
    crops = CropImages(GLM)
    planned = crops.plan(Prompt("p", "OCR:", Pixels(300, 120, data=image.tobytes())))
    assert planned
    buffers = PixelBufferPool(1, 1 << 62, fixed_size=crops.max_nbytes)
    page_pool = PagePool(1, buffers)
    await page_pool.open()

    async with buffers.lend(planned.nbytes) as buffer:
        await planned.write(buffer, page_pool)
        written = np.frombuffer(buffer.map(planned.nbytes), np.uint8)
        await page_pool.close()

        assert (planned.width, planned.height) == (308, 112)
        assert written.mean() == pytest.approx(image.mean(), abs=1)
        assert planned.tokens == 11 * 4
    buffers.close()


def test_the_prompt_of_glm_ocr_has_the_published_ids() -> None:
    """As zai-org/GLM-OCR's chat template with its tokenizer, one image token where there will be many."""
    before, image, after = CropImages(GLM).tokenize(SpecialTokenizer(GLM_IDS), "T:")

    assert before == [59248, 59250, 59253, ord("\n"), 59256]
    assert image == 59280
    assert after == [59257, ord("T"), ord(":"), 59254, ord("\n")]


def test_the_prompt_of_paddleocr_vl_is_that_of_its_chat_template() -> None:
    """Both lines end with a newline, and no space follows `Assistant:`."""
    assert PADDLE.format_prompt("OCR:") == (
        "<|begin_of_sentence|>User: <|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>OCR:\nAssistant:\n"
    )


def test_modes_of_other_models_are_refused() -> None:
    """Such a prompt gets finish_reason error."""
    assert CropImages(GLM).plan(Prompt("p", "OCR:", Pixels(9, 9, data=b""), mode="gundam")) is None


def test_readers_have_no_ban_and_a_step_for_their_largest_crop() -> None:
    """Without a logits processor vLLM can use its faster runner; other models keep the ban."""
    arguments = build_arguments(Settings(model="glm_ocr"), Path("m"), REGION_PRESETS["8"])

    assert "logits_processors" not in arguments
    assert arguments["max_num_batched_tokens"] >= CropImages(GLM).max_tokens == 6144
    assert build_arguments(Settings(), Path("m"), PAGE_PRESETS["8"])["logits_processors"]


def test_every_reader_has_prompts_and_presets() -> None:
    """A model that reads regions has a row of prompts, and presets of the same names as the others."""
    assert set(READERS) == {name for name, model in MODELS.items() if model.reads_regions}
    assert set(REGION_PRESETS) == set(PAGE_PRESETS)
    assert MODELS["glm_ocr"].find_preset("auto", 24) == REGION_PRESETS["24"] != PAGE_PRESETS["24"]
    assert MODELS["deepseek_ocr"].find_preset("auto", 24) == PAGE_PRESETS["24"]


def test_an_unknown_model_is_refused_with_the_names_of_all() -> None:
    """The message says what MODEL may be."""
    with pytest.raises(InvalidSetting, match="deepseek_ocr, .*glm_ocr, paddleocr_vl"):
        images.choose(Settings(model="other"))
