"""Our views equal those of vLLM's own processor in gundam mode, where it follows the official code."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from vllm.model_executor.models.unlimited_ocr import UnlimitedOCRProcessingInfo
from vllm.transformers_utils.processors.deepseek_ocr import ImageTransform, count_tiles, dynamic_preprocess

from twopass.engines.vllm import tiling
from twopass.engines.vllm.plugin.encoder import normalise
from twopass.models import MODELS, TileGrid

DEEPSEEK_OCR, DEEPSEEK_OCR_2, UNLIMITED_OCR = (
    MODELS[name].vision for name in ("deepseek_ocr", "deepseek_ocr2", "unlimited_ocr")
)


@pytest.mark.parametrize("crops", [*range(2, 10), 12, 32])
@pytest.mark.parametrize("spec", [DEEPSEEK_OCR, DEEPSEEK_OCR_2, UNLIMITED_OCR])
def test_images_are_cut_into_the_same_grids(crops: int, spec: tiling.VisionSpec) -> None:
    """For random sizes, and for sizes with tied grids, where the order of the candidates decides."""
    rng = random.Random(crops)
    sizes = [(rng.randint(1, 5000), rng.randint(1, 5000)) for _ in range(2000)]
    sizes += [(across * side, down * side) for across in range(1, 7) for down in range(1, 7) for side in (150, 900)]

    for width, height in sizes:
        if max(width, height) > spec.tile_size:
            theirs = count_tiles(width, height, max_num=crops, image_size=spec.tile_size)
            assert spec.choose_grid(width, height, "gundam", crops) == TileGrid(*theirs), (width, height)


def test_image_tokens_are_those_of_vllms_class() -> None:
    """Unlimited-OCR with all its 32 tiles, for random sizes of images."""
    info = UnlimitedOCRProcessingInfo(None)
    rng = random.Random(32)
    sizes = [(rng.randint(1, 5000), rng.randint(1, 5000)) for _ in range(2000)]

    for width, height in sizes:
        grid = UNLIMITED_OCR.choose_grid(width, height, "gundam", UNLIMITED_OCR.official_crops)
        theirs = info.get_num_image_tokens(image_width=width, image_height=height)
        assert UNLIMITED_OCR.count_tokens("gundam", grid) == theirs, (width, height)


@pytest.mark.parametrize("size", [(1190, 1684), (1684, 1190), (700, 2000), (641, 641)])
def test_pixels_are_equal(size: tuple[int, int]) -> None:
    """They are identical after normalisation to the model's bfloat16."""
    from PIL import Image, ImageOps

    page = Image.fromarray(np.random.default_rng(1).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))
    grid = DEEPSEEK_OCR.choose_grid(*size, "gundam", 6)
    theirs, _ = dynamic_preprocess(page, image_size=640, max_num=6)
    padded = ImageOps.pad(page, (1024, 1024), color=(127, 127, 127))
    expected = torch.stack([ImageTransform()(one) for one in (padded,)]), torch.stack([*map(ImageTransform(), theirs)])

    views = tiling.make_views(DEEPSEEK_OCR, np.asarray(page), "gundam", grid)

    for ours, reference in zip((views.global_view[None], views.tiles), expected, strict=True):
        assert torch.equal(normalise(torch.from_numpy(ours.copy()), torch.bfloat16), reference.bfloat16())
