"""The views of an image are those of the official code, and the prompt has as many image tokens as the model makes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from PIL import Image, ImageOps

from twopass.engines.vllm import images, tiling
from twopass.models import MODELS, TileGrid
from twopass.pages import pillow_image
from twopass.pages.shared_pixels import PixelBufferPool, Pixels
from twopass.runtime.page_pool import PagePool

DEEPSEEK_OCR, DEEPSEEK_OCR_2, UNLIMITED_OCR = (
    MODELS[name].vision for name in ("deepseek_ocr", "deepseek_ocr2", "unlimited_ocr")
)

A4 = (1190, 1684)
TOKEN_COUNTS = [
    ("tiny", A4, 73), ("small", A4, 111), ("base", A4, 273), ("large", A4, 421), ("gundam", A4, 903),
    ("gundam", (1684, 1190), 893), ("gundam", (1000, 1000), 693), ("gundam", (1600, 900), 483),
    ("gundam", (6000, 1000), 883), ("gundam", (1000, 6000), 933), ("gundam", (640, 640), 273), ("gundam", (1, 1), 273),
]  # fmt: skip


def noise(width: int, height: int) -> tiling.Array:
    return np.random.default_rng(1).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize(("mode", "size", "tokens"), TOKEN_COUNTS)
def test_token_counts_are_those_of_the_official_code(mode: str, size: tuple[int, int], tokens: int) -> None:
    """In every mode, and for images of several shapes."""
    assert DEEPSEEK_OCR.count_tokens(mode, DEEPSEEK_OCR.choose_grid(*size, mode, 6)) == tokens


def test_the_second_model_has_no_newlines() -> None:
    """DeepSeek-OCR-2 has no token at the end of a row."""
    assert DEEPSEEK_OCR_2.count_tokens("gundam", DEEPSEEK_OCR_2.choose_grid(*A4, "gundam", 6)) == 1121
    assert DEEPSEEK_OCR_2.count_tokens("base", DEEPSEEK_OCR_2.choose_grid(*A4, "base", 6)) == 257


@pytest.mark.parametrize(
    ("size", "crops", "tokens"),
    [(A4, 12, 903), (A4, 32, 903), ((2480, 3508), 32, 2733), ((1600, 900), 32, 3113), ((1600, 900), 12, 483),
     ((600, 20000), 32, 3793)],
)  # fmt: skip
def test_unlimited_ocr_has_more_tiles(size: tuple[int, int], crops: int, tokens: int) -> None:
    """With all 32 tiles as officially, and with the twelve that are used unless a worker allows more."""
    assert UNLIMITED_OCR.count_tokens("gundam", UNLIMITED_OCR.choose_grid(*size, "gundam", crops)) == tokens
    assert UNLIMITED_OCR.default_crops == UNLIMITED_OCR.most_crops == 12


@pytest.mark.parametrize(("mode", "side"), [("tiny", 512), ("small", 640)])
def test_small_views_are_stretched(mode: str, side: int) -> None:
    """In modes of up to 640 pixels, the image is resized to a square, and there are no tiles."""
    page = noise(300, 420)

    views = tiling.make_views(DEEPSEEK_OCR, page, mode, TileGrid(1, 1))

    assert np.array_equal(views.global_view, np.asarray(Image.fromarray(page).resize((side, side))))
    assert views.tiles.shape == (0, 640, 640, 3)


@pytest.mark.parametrize(("mode", "side"), [("base", 1024), ("large", 1280)])
def test_large_views_are_padded(mode: str, side: int) -> None:
    """In larger modes the image keeps its shape on a grey square; stock vLLM stretches it."""
    page = noise(300, 500)

    global_view = tiling.make_views(DEEPSEEK_OCR, page, mode, TileGrid(1, 1)).global_view

    expected = ImageOps.pad(Image.fromarray(page), (side, side), color=(127,) * 3)
    assert np.array_equal(global_view, np.asarray(expected))


@pytest.mark.parametrize("size", [(600, 60), (60, 600), (961, 640)])
def test_a_long_narrow_image_is_padded_in_small_modes(size: tuple[int, int]) -> None:
    """A line of text keeps its shape: the image is placed between bars of grey."""
    image = np.zeros((size[1], size[0], 3), np.uint8)

    global_view = tiling.make_views(DEEPSEEK_OCR, image, "small", TileGrid(1, 1)).global_view

    black = np.argwhere((global_view == 0).all(-1))
    height, width = black.max(0) - black.min(0) + 1
    assert max(width, height) == 640
    assert abs(width / height - size[0] / size[1]) < 0.1 * size[0] / size[1]
    assert (global_view[0, 0] == tiling.GREY).all()


def test_tiles_are_the_stretched_page_row_by_row() -> None:
    """The page is resized to the size of the whole grid and then cut; tiles are in reading order."""
    page = noise(*A4)

    views = tiling.make_views(DEEPSEEK_OCR, page, "gundam", TileGrid(2, 3))

    grid = np.asarray(Image.fromarray(page).resize((1280, 1920)))
    assert np.array_equal(views.tiles[1], grid[:640, 640:])
    assert np.array_equal(views.tiles[4], grid[1280:, :640])


@pytest.mark.parametrize(
    ("mode", "grid"), [("gundam", TileGrid(2, 3)), ("tiny", TileGrid(1, 1)), ("base", TileGrid(1, 1))]
)
def test_a_grey_page_gives_the_same_views_as_in_three_bands(mode: str, grid: TileGrid) -> None:
    """A single coloured pixel disables the shortcut for grey; the views are equal except around that pixel."""
    grey = np.repeat(noise(*A4)[:, :, :1], 3, axis=2)
    speck = grey.copy()
    speck[-1, -1] = (255, 0, 0)

    grey_views, speck_views = (tiling.make_views(DEEPSEEK_OCR, page, mode, grid) for page in (grey, speck))

    assert pillow_image.to_image(grey).mode == "L" and pillow_image.to_image(speck).mode == "RGB"
    for ours, theirs in zip(grey_views, speck_views, strict=True):
        assert ours.shape == theirs.shape
        assert (ours != theirs).sum() <= 1e-4 * ours.size
    assert (grey_views.global_view[..., 0] == grey_views.global_view[..., 2]).all()


@given(
    arrays(np.uint8, array_shapes(min_dims=2, max_dims=2, max_side=5).map(lambda sides: (*sides, 3)), fill=st.just(7))
)
def test_pixels_survive_the_conversion_to_pillow(pixels: tiling.Array) -> None:
    """Grey images become one band and others three, and both convert back to the same pixels."""
    image = pillow_image.to_image(pixels)

    assert np.array_equal(pillow_image.to_rgb_array(image), pixels)
    assert image.mode == ("L" if (pixels == pixels[:, :, :1]).all() else "RGB")


@given(
    width=st.integers(1, 4000), height=st.integers(1, 4000), crops=st.integers(2, 9),
    spec=st.sampled_from([DEEPSEEK_OCR, DEEPSEEK_OCR_2, UNLIMITED_OCR]), data=st.data(),
)  # fmt: skip
def test_the_views_of_any_image_fit_into_a_buffer(
    width: int, height: int, crops: int, spec: tiling.VisionSpec, data: st.DataObject
) -> None:
    """No image has more tiles than allowed, nor views larger than `max_nbytes`."""
    mode = data.draw(st.sampled_from(sorted(spec.modes)))

    grid = spec.choose_grid(width, height, mode, crops)

    assert grid.tile_count <= crops
    assert spec.nbytes(mode, grid) <= spec.max_nbytes
    assert spec.count_tokens(mode, grid) <= spec.max_tokens


async def test_a_page_worker_writes_the_views_into_a_buffer() -> None:
    """It cuts the crop out of its page's buffer, and the views stay readable after their buffer is given back."""
    page = noise(900, 700)
    size = DEEPSEEK_OCR.max_nbytes
    page_buffers, view_buffers = PixelBufferPool(1, 1 << 24), PixelBufferPool(1, 1 << 30, fixed_size=size)
    page_pool = PagePool(1, page_buffers, more_buffers=(view_buffers,))
    await page_pool.open()
    try:
        async with page_buffers.lend(page.nbytes) as page_buffer:
            np.frombuffer(page_buffer.map(page.nbytes), np.uint8)[:] = page.reshape(-1)
            crop = Pixels(900, 700, page_buffer).crop(100, 50, 500, 650).crop(0, 0, 300, 600)
            async with view_buffers.lend(size) as buffer:
                await page_pool.call(images.write_views, DEEPSEEK_OCR, crop, "tiny", TileGrid(1, 1), buffer)
                written = tiling.map_views(DEEPSEEK_OCR, buffer, "tiny", TileGrid(1, 1))
    finally:
        await page_pool.close()

    expected = tiling.make_views(DEEPSEEK_OCR, page[50:650, 100:400], "tiny", TileGrid(1, 1))
    assert np.array_equal(written.global_view, expected.global_view)
    page_buffers.close()
    view_buffers.close()
