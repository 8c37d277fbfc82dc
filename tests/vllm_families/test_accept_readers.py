"""The acceptance run of GLM-OCR and PaddleOCR-VL with the real vLLM, and faults that its first stages have to catch."""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from tests.vllm_families import tiny_readers
from twopass.acceptance import drawn_pages, reference
from twopass.acceptance.checks import Check, CheckOutcome
from twopass.acceptance.run import Plan, RequestCounts, run
from twopass.acceptance.tested_models import CutPatches, RegionReaderModel
from twopass.engines.vllm import images, tiling
from twopass.families.regions.reader import READERS
from twopass.models import CropInput
from twopass.settings import Settings

pytestmark = pytest.mark.filterwarnings("default")  # torch and vLLM emit warnings that we cannot fix

FORMULA = drawn_pages.draw_pictures()[-1]
COUNTS = RequestCounts(together=3, alone=1, block_tokens=128, max_tokens=8)


@pytest.fixture(scope="module", params=sorted(READERS))
def model(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_readers.write_checkpoint(tmp_path_factory.mktemp("accept"), model)


def find_failed(checks: list[Check]) -> list[str]:
    return [check.name for check in checks if check.outcome is CheckOutcome.FAILED]


def run_stages(model: str, folder: Path) -> list[Check]:
    settings = Settings(
        engine="vllm", model=model, model_dir=folder, load_format="dummy", dtype="float32", max_model_len=4096,
        max_num_seqs=2, gpu_memory_utilization=0.3, page_workers=1, enforce_eager=True, engine_restarts=0,
    )  # fmt: skip
    return run(Plan(settings, pictures=[FORMULA], counts=COUNTS))


def test_all_stages_run_with_a_tiny_reader(model: str, folder: Path) -> None:
    """With random weights, nothing fails; what needs real weights is left out, and no detector is needed."""
    # In a process of its own, as the command runs: the engine freezes what its first start in a process imports.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        checks = pool.submit(run_stages, model, folder).result()

    assert list(dict.fromkeys(check.stage for check in checks)) == ["a", "b", "c", "d"]
    assert find_failed(checks) == []
    passed = {check.name for check in checks if check.outcome is CheckOutcome.PASSED}
    assert {"special tokens", "prompts", f"{FORMULA.name}: patches", "3 at once"} <= passed
    left_out = {check.name for check in checks if check.outcome is CheckOutcome.NOT_RUN}
    assert left_out == {"checksums", "drafts", "interrupted answers", "canary", "recorded answers"}


def test_a_vocabulary_with_other_ids_is_caught(model: str, tmp_path: Path) -> None:
    """The image's token would stand for a letter."""
    folder = tiny_readers.write_checkpoint(tmp_path / "tiny", model)
    path = folder / "tokenizer.json"
    file = json.loads(path.read_text())
    tokens = [token for token in file["added_tokens"] if "mage" in token["content"].lower()]
    first, second = tokens[:2]
    vocabulary = file["model"]["vocab"]
    vocabulary[first["content"]], vocabulary[second["content"]] = second["id"], first["id"]
    first["id"], second["id"] = second["id"], first["id"]
    path.write_text(json.dumps(file))

    checks = RegionReaderModel(model).check_tokens(reference.load_tokenizer(folder), folder, [])

    assert find_failed(checks) == ["special tokens"]


def test_another_chat_template_is_caught(model: str, tmp_path: Path) -> None:
    """Our prompts are those of the released template."""
    folder = tiny_readers.write_checkpoint(tmp_path / "tiny", model)
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text().replace("\n", " "))

    checks = RegionReaderModel(model).check_tokens(reference.load_tokenizer(folder), folder, [])

    assert find_failed(checks) == ["prompts"]


def reverse_patches(spec: CropInput, image: tiling.Array) -> tiling.Array:
    return images.cut_patches(spec, image)[::-1]


def move_down(spec: CropInput, image: tiling.Array) -> tiling.Array:
    return images.cut_patches(spec, np.ascontiguousarray(np.roll(image, 1, axis=0)))


@pytest.mark.parametrize("cut_patches", [reverse_patches, move_down])
def test_other_pixels_are_caught(model: str, folder: Path, cut_patches: CutPatches) -> None:
    """Patches in another order, and an image that is moved by a row of pixels."""
    tokenizer = reference.load_tokenizer(folder)

    (check,) = RegionReaderModel(model, cut_patches=cut_patches).check_inputs(tokenizer, folder, [FORMULA], [])

    assert check.outcome is CheckOutcome.FAILED
