"""Crops as the input of region readers: their size, their patches and the chat around them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twopass.engines.interface import Prompt
from twopass.engines.vllm import crop_image
from twopass.engines.vllm.arguments import build_arguments, choose_image_input
from twopass.engines.vllm.crop_image import CropImages
from twopass.errors import InvalidSetting
from twopass.families.regions.reader import READERS
from twopass.models import MODELS, PAGE_PRESETS, REGION_PRESETS, CropInput
from twopass.pages.shared_pixels import PixelBufferPool, Pixels
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings

GLM, PADDLE = MODELS["glm_ocr"].crop_input, MODELS["paddleocr_vl"].crop_input
# The ids that GLM-OCR's processor gives for its prompt, with three image tokens; of the text only the ids of its bytes.
GLM_IDS = {"[gMASK]": 59248, "<sop>": 59250, "<|user|>": 59253, "<|begin_of_image|>": 59256, "<|image|>": 59280,
           "<|end_of_image|>": 59257, "<|assistant|>": 59254}  # fmt: skip

sides = st.integers(1, 6000)


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


def plan(spec: CropInput, width: int, height: int) -> crop_image.CropImage:
    planned = CropImages(spec).plan(Prompt("p", "OCR:", Pixels(width, height, data=b"")))
    assert planned
    return planned


@given(st.sampled_from([GLM, PADDLE]), sides, sides)
def test_every_crop_fits_its_buffer_and_a_step(spec: CropInput, width: int, height: int) -> None:
    """Buffers and steps are as large as the largest crop."""
    images, planned = CropImages(spec), plan(spec, width, height)

    assert 0 < planned.nbytes <= images.max_nbytes
    assert 0 < planned.tokens <= images.max_tokens
    assert planned.nbytes == planned.tokens * 3 * (spec.patch * spec.merge) ** 2


@pytest.mark.parametrize(
    ("spec", "order"), [(GLM, [0, 1, 4, 5, 2, 3, 6, 7]), (PADDLE, range(8))], ids=["glm", "paddle"]
)
def test_patches_are_in_the_models_order(spec: CropInput, order: Sequence[int]) -> None:
    """GLM-OCR gets the four patches of a token one after the other, PaddleOCR-VL rows of patches."""
    numbers = np.arange(8, dtype=np.uint8).reshape(2, 4)  # two rows of four patches
    image = np.stack([numbers.repeat(14, 0).repeat(14, 1) + 10 * channel for channel in range(3)], axis=-1)

    patches = crop_image.cut_patches(spec, image)

    assert patches.shape == (8, 3, 14, 14)
    assert [patch[0].max() for patch in patches] == list(order)
    assert all((patch[channel] == patch[0, 0, 0] + 10 * channel).all() for patch in patches for channel in range(3))


def test_a_patch_keeps_rows_and_columns() -> None:
    """Pixels are not transposed in a patch."""
    image = np.random.default_rng(1).integers(0, 256, (28, 28, 3), np.uint8)

    first, second, third, _ = crop_image.cut_patches(PADDLE, image)

    assert np.array_equal(first.transpose(1, 2, 0), image[:14, :14])
    assert np.array_equal(second.transpose(1, 2, 0), image[:14, 14:])
    assert np.array_equal(third.transpose(1, 2, 0), image[14:, :14])


async def test_a_page_worker_writes_the_patches_of_a_crop() -> None:
    """They are in the shared buffer, resized once from the raw pixels."""
    image = np.random.default_rng(2).integers(0, 256, (120, 300, 3), np.uint8)
    images = CropImages(GLM)
    planned = images.plan(Prompt("p", "OCR:", Pixels(300, 120, data=image.tobytes())))
    assert planned
    buffers = PixelBufferPool(1, 1 << 62, fixed_size=images.max_nbytes)
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
        choose_image_input(Settings(model="other"))
