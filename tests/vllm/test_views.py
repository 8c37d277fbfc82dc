"""Our views against vLLM's own processor, where it does what the official code does: in gundam mode."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from vllm.transformers_utils.processors.deepseek_ocr import ImageTransform, count_tiles, dynamic_preprocess

from twopass.engines.vllm import tiling
from twopass.engines.vllm.plugin.encoder import normalised
from twopass.engines.vllm.tiling import DEEPSEEK_OCR, DEEPSEEK_OCR_2, Tiles


@pytest.mark.parametrize("crops", range(2, 10))
@pytest.mark.parametrize("vision", [DEEPSEEK_OCR, DEEPSEEK_OCR_2])
def test_pictures_are_cut_alike(crops: int, vision: tiling.Vision) -> None:
    """Any size, those of equal shapes among them, where the order of the candidates decides."""
    rng = random.Random(crops)
    sizes = [(rng.randint(1, 5000), rng.randint(1, 5000)) for _ in range(2000)]
    sizes += [(across * side, down * side) for across in range(1, 7) for down in range(1, 7) for side in (150, 900)]

    for width, height in sizes:
        if max(width, height) > vision.tile:
            theirs = count_tiles(width, height, max_num=crops, image_size=vision.tile)
            assert vision.tiles(width, height, "gundam", crops) == Tiles(*theirs), (width, height)


@pytest.mark.parametrize("size", [(1190, 1684), (1684, 1190), (700, 2000), (641, 641)])
def test_pixels_are_equal(size: tuple[int, int]) -> None:
    """To the last bit after normalising, in the model's bfloat16."""
    from PIL import Image, ImageOps

    page = Image.fromarray(np.random.default_rng(1).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))
    tiles = DEEPSEEK_OCR.tiles(*size, "gundam", 6)
    theirs, _ = dynamic_preprocess(page, image_size=640, max_num=6)
    whole = ImageOps.pad(page, (1024, 1024), color=(127, 127, 127))
    expected = torch.stack([ImageTransform()(one) for one in (whole,)]), torch.stack([*map(ImageTransform(), theirs)])

    seen = tiling.views(DEEPSEEK_OCR, np.asarray(page), "gundam", tiles)

    for ours, reference in zip((seen.whole[None], seen.tiles), expected, strict=True):
        assert torch.equal(normalised(torch.from_numpy(ours.copy()), torch.bfloat16), reference.bfloat16())
