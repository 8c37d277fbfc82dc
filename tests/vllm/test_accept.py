"""The acceptance run with the real vLLM, and faults that its first stages have to catch."""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tokenizers import pre_tokenizers

from tests.vllm import tiny
from twopass.acceptance import drawn_pages, model_files, reference, vision_inputs
from twopass.acceptance.checks import Check, CheckOutcome
from twopass.acceptance.run import Plan, RequestCounts, run
from twopass.acceptance.tested_models import WholePageModel
from twopass.engines.vllm import tiling
from twopass.engines.vllm.tiling import TileGrid, Views, VisionSpec
from twopass.settings import Settings

pytestmark = pytest.mark.filterwarnings("default")  # torch and vLLM emit warnings that we cannot fix

PICTURES = drawn_pages.draw_pictures()
FORMULA = PICTURES[-1]
DEEPSEEK = WholePageModel("deepseek_ocr")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_checkpoint(tmp_path_factory.mktemp("accept"))


def find_failed(checks: list[Check]) -> list[str]:
    return [check.name for check in checks if check.outcome is CheckOutcome.FAILED]


def rewrite(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def run_stages(folder: Path) -> list[Check]:
    settings = Settings(
        engine="vllm", model_dir=folder, load_format="dummy", dtype="float32", max_model_len=1024, max_num_seqs=2,
        gpu_memory_utilization=0.3, page_workers=1, enforce_eager=True, engine_restarts=0,
    )  # fmt: skip
    return run(
        Plan(settings, pictures=[FORMULA], counts=RequestCounts(together=2, alone=1, block_tokens=128, max_tokens=8))
    )


def test_all_stages_run_with_a_tiny_model(folder: Path) -> None:
    """With random weights, nothing fails, and only what needs the real ones is left out."""
    # In a process of its own, as the command runs: the engine freezes what its first start in a process imports.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        checks = pool.submit(run_stages, folder).result()

    assert list(dict.fromkeys(check.stage for check in checks)) == ["a", "b", "c", "d"]
    assert find_failed(checks) == []
    left_out = {check.name for check in checks if check.outcome is CheckOutcome.NOT_RUN}
    assert left_out == {"checksums", "drafts", "interrupted answers", "canary", "recorded answers"}


def test_the_wrong_tokenizer_class_is_caught(tmp_path: Path) -> None:
    """Some versions of Transformers 5 give models of type llama a class that drops spaces (transformers#45488)."""
    folder = tiny.write_checkpoint(tmp_path / "tiny")
    tokenizer = reference.load_tokenizer(folder)
    assert find_failed(model_files.check_tokenizer(tokenizer, folder)) == []

    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()

    assert find_failed(model_files.check_tokenizer(tokenizer, folder)) == ["encoding", "round trip"]
    assert find_failed(DEEPSEEK.check_tokens(tokenizer, folder, [])) == ["prompts"]


def test_special_tokens_with_other_ids_are_caught(folder: Path, tmp_path: Path) -> None:
    """The n-gram ban exempts table cells by their ids."""
    vocabulary = (folder / "tokenizer.json").read_text()
    other = vocabulary.replace("<td>", "<TD>").replace("<tr>", "<td>").replace("<TD>", "<tr>")
    changed = tiny.write_checkpoint(tmp_path / "tiny")
    (changed / "tokenizer.json").write_text(other)

    checks = DEEPSEEK.check_tokens(reference.load_tokenizer(changed), changed, [])

    assert find_failed(checks) == ["special tokens"]


def test_a_prompt_of_another_length_than_recorded_is_caught(folder: Path) -> None:
    """The tokenizer of the tiny model has a token for each letter."""
    tokenizer, prompt = reference.load_tokenizer(folder), "<image>\nFree OCR."

    checks = list(model_files.check_prompt_lengths(tokenizer, [(prompt, 11), (prompt, 5)]))

    assert find_failed(checks) == [f"length of {prompt!r}"]
    assert [check.value for check in checks] == ["11", "11"]


@pytest.mark.parametrize("model", ["deepseek_ocr", "deepseek_ocr2", "unlimited_ocr"])
def test_the_views_of_every_picture_are_official(folder: Path, model: str) -> None:
    """Prompt ids, grid and pixels equal those of vLLM's own processor."""
    checks = vision_inputs.check_views(
        model, reference.load_tokenizer(folder), WholePageModel(model).prompts[0], PICTURES
    )

    assert find_failed(checks) == []
    assert [check.name for check in checks] == [f"{picture.name}: views" for picture in PICTURES]


def reverse_tiles(spec: VisionSpec, image: tiling.Array, mode: str, grid: TileGrid) -> Views:
    views = tiling.make_views(spec, image, mode, grid)
    return Views(views.global_view, views.tiles[::-1])


def resize_roughly(spec: VisionSpec, image: tiling.Array, mode: str, grid: TileGrid) -> Views:
    """Tiles from an image that was resized with another filter."""
    rough = np.asarray(Image.fromarray(image).resize(spec.grid_size(grid), Image.Resampling.BILINEAR))
    return tiling.make_views(spec, image, mode, grid, render_at=lambda width, height: rough)


def pad_with_black(spec: VisionSpec, image: tiling.Array, mode: str, grid: TileGrid) -> Views:
    views = tiling.make_views(spec, image, mode, grid)
    return Views(np.where(views.global_view == tiling.GREY, 0, views.global_view).astype(np.uint8), views.tiles)


@pytest.mark.parametrize(
    ("make_views", "fault"),
    [(reverse_tiles, "tiles differ"), (resize_roughly, "tiles differ"), (pad_with_black, "global view differ")],
)
def test_other_pixels_are_caught(folder: Path, make_views: vision_inputs.MakeViews, fault: str) -> None:
    """Each changes only one of the views."""
    tokenizer = reference.load_tokenizer(folder)

    prompt = DEEPSEEK.prompts[0]
    (check,) = vision_inputs.check_views("deepseek_ocr", tokenizer, prompt, PICTURES[:1], make_views)

    assert (check.outcome, check.value) == (CheckOutcome.FAILED, fault)


def test_another_beginning_of_text_is_caught(tmp_path: Path) -> None:
    """The official code puts token 0 before every prompt."""
    folder = tiny.write_checkpoint(tmp_path / "tiny")
    rewrite(folder / "tokenizer_config.json", bos_token=tiny.EOS)

    checks = DEEPSEEK.check_tokens(reference.load_tokenizer(folder), folder, [])

    assert find_failed(checks) == ["begin and end of text", "prompts"]
