"""Pictures to views: what the official code makes, and as many places in the prompt as the model gives back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from PIL import Image, ImageOps

from twopass.engines.vllm import tiling
from twopass.engines.vllm.tiling import DEEPSEEK_OCR, DEEPSEEK_OCR_2, Tiles
from twopass.pages import pillow_image
from twopass.pages.shared_pixels import PixelBufferPool, Pixels
from twopass.runtime.page_pool import PagePool

A4 = (1190, 1684)
PLACES = [
    ("tiny", A4, 73), ("small", A4, 111), ("base", A4, 273), ("large", A4, 421), ("gundam", A4, 903),
    ("gundam", (1684, 1190), 893), ("gundam", (1000, 1000), 693), ("gundam", (1600, 900), 483),
    ("gundam", (6000, 1000), 883), ("gundam", (1000, 6000), 933), ("gundam", (640, 640), 273), ("gundam", (1, 1), 273),
]  # fmt: skip


def picture(width: int, height: int) -> tiling.Array:
    return np.random.default_rng(1).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize(("mode", "size", "places"), PLACES)
def test_places_are_the_officials(mode: str, size: tuple[int, int], places: int) -> None:
    assert DEEPSEEK_OCR.tokens(mode, DEEPSEEK_OCR.tiles(*size, mode, 6)) == places


def test_the_second_model_has_no_newlines() -> None:
    assert DEEPSEEK_OCR_2.tokens("gundam", DEEPSEEK_OCR_2.tiles(*A4, "gundam", 6)) == 1121
    assert DEEPSEEK_OCR_2.tokens("base", DEEPSEEK_OCR_2.tiles(*A4, "base", 6)) == 257


@pytest.mark.parametrize(("mode", "side"), [("tiny", 512), ("small", 640)])
def test_small_views_are_stretched(mode: str, side: int) -> None:
    page = picture(300, 420)

    seen = tiling.views(DEEPSEEK_OCR, page, mode, Tiles(1, 1))

    assert np.array_equal(seen.whole, np.asarray(Image.fromarray(page).resize((side, side))))
    assert seen.tiles.shape == (0, 640, 640, 3)


@pytest.mark.parametrize(("mode", "side"), [("base", 1024), ("large", 1280)])
def test_large_views_are_padded(mode: str, side: int) -> None:
    """vLLM stretches them."""
    page = picture(300, 500)

    seen = tiling.views(DEEPSEEK_OCR, page, mode, Tiles(1, 1))

    assert np.array_equal(seen.whole, np.asarray(ImageOps.pad(Image.fromarray(page), (side, side), color=(127,) * 3)))


@pytest.mark.parametrize("size", [(600, 60), (60, 600), (961, 640)])
def test_what_is_long_and_narrow_is_padded_in_small_modes(size: tuple[int, int]) -> None:
    """A line of text keeps its shape: the whole picture lies between bars of grey."""
    picture = np.zeros((size[1], size[0], 3), np.uint8)

    whole = tiling.views(DEEPSEEK_OCR, picture, "small", Tiles(1, 1)).whole

    black = np.argwhere((whole == 0).all(-1))
    height, width = black.max(0) - black.min(0) + 1
    assert max(width, height) == 640
    assert abs(width / height - size[0] / size[1]) < 0.1 * size[0] / size[1]
    assert (whole[0, 0] == tiling.GREY).all()


def test_tiles_are_the_stretched_page_row_by_row() -> None:
    page = picture(*A4)

    seen = tiling.views(DEEPSEEK_OCR, page, "gundam", Tiles(2, 3))

    grid = np.asarray(Image.fromarray(page).resize((1280, 1920)))
    assert np.array_equal(seen.tiles[1], grid[:640, 640:])
    assert np.array_equal(seen.tiles[4], grid[1280:, :640])


@pytest.mark.parametrize(("mode", "tiles"), [("gundam", Tiles(2, 3)), ("tiny", Tiles(1, 1)), ("base", Tiles(1, 1))])
def test_a_page_without_colour_is_what_three_bands_would_be(mode: str, tiles: Tiles) -> None:
    """One speck of colour makes it go the longer way; but for what lies around the speck, they are equal."""
    grey = np.repeat(picture(*A4)[:, :, :1], 3, axis=2)
    speck = grey.copy()
    speck[-1, -1] = (255, 0, 0)

    seen, other = (tiling.views(DEEPSEEK_OCR, page, mode, tiles) for page in (grey, speck))

    assert pillow_image.image(grey).mode == "L" and pillow_image.image(speck).mode == "RGB"
    for ours, theirs in zip(seen, other, strict=True):
        assert ours.shape == theirs.shape
        assert (ours != theirs).sum() <= 1e-4 * ours.size
    assert (seen.whole[..., 0] == seen.whole[..., 2]).all()


@given(
    arrays(np.uint8, array_shapes(min_dims=2, max_dims=2, max_side=5).map(lambda sides: (*sides, 3)), fill=st.just(7))
)
def test_pixels_survive_their_bands(pixels: tiling.Array) -> None:
    image = pillow_image.image(pixels)

    assert np.array_equal(pillow_image.rgb(image), pixels)
    assert image.mode == ("L" if (pixels == pixels[:, :, :1]).all() else "RGB")


@given(
    width=st.integers(1, 4000), height=st.integers(1, 4000), crops=st.integers(2, 9),
    vision=st.sampled_from([DEEPSEEK_OCR, DEEPSEEK_OCR_2]), data=st.data(),
)  # fmt: skip
def test_any_picture_fits_the_memory_kept_for_it(
    width: int, height: int, crops: int, vision: tiling.Vision, data: st.DataObject
) -> None:
    mode = data.draw(st.sampled_from(sorted(vision.modes)))

    tiles = vision.tiles(width, height, mode, crops)

    assert tiles.number <= crops
    assert vision.nbytes(mode, tiles) <= vision.most_bytes


async def test_a_page_worker_leaves_the_views_in_a_slab() -> None:
    """A crop is cut out of its page's memory on the way, and the slab outlives whoever lent it."""
    page = picture(900, 700)
    room = DEEPSEEK_OCR.most_bytes
    buffers, kept = PixelBufferPool(1, 1 << 24), PixelBufferPool(1, 1 << 30, fixed=room)
    page_pool = PagePool(1, buffers, more_buffers=(kept,))
    await page_pool.open()
    try:
        async with buffers.lend(page.nbytes) as memory:
            np.frombuffer(memory.map(page.nbytes), np.uint8)[:] = page.reshape(-1)
            crop = Pixels(900, 700, memory).crop(100, 50, 500, 650).crop(0, 0, 300, 600)
            async with kept.lend(room) as buffer:
                await page_pool.call(tiling.prepare, DEEPSEEK_OCR, crop, "tiny", Tiles(1, 1), buffer)
                seen = tiling.mapped(DEEPSEEK_OCR, buffer, "tiny", Tiles(1, 1))
    finally:
        await page_pool.close()

    there = tiling.views(DEEPSEEK_OCR, page[50:650, 100:400], "tiny", Tiles(1, 1))
    assert np.array_equal(seen.whole, there.whole)
    buffers.close()
    kept.close()
