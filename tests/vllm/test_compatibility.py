"""What the plugin requires of vLLM is in the installed vLLM, and is all that the plugin replaces."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
import vllm
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.worker.gpu_worker import Worker

from tests.fakes.replaced_methods import find_replaced, has_row
from twopass.engines.vllm.plugin import decode_steps, model, readers, scheduler, worker
from twopass.engines.vllm.plugin.compatibility import REPLACED, Replaced, compare, find_changed_parts
from twopass.models import MODELS

# Classes of the plugin, the classes of vLLM that they extend, and the models with which they are used.
OURS = [
    (model.DeepseekOcr, model.DeepseekOcr, ["deepseek_ocr", "unlimited_ocr"]),
    (model.DeepseekOcr2, model.DeepseekOcr2, ["deepseek_ocr2"]),
    (model.UnlimitedOcr, model.UnlimitedOcr, ["unlimited_ocr"]),
    (model._Processor, model._Processor, ["deepseek_ocr", "deepseek_ocr2", "unlimited_ocr"]),
    (readers.GlmOcr, readers.GlmOcr, ["glm_ocr"]),
    (readers.PaddleOcrVl, readers.PaddleOcrVl, ["paddleocr_vl"]),
    (model._Ocr1Info, model._Ocr1Info, ["deepseek_ocr"]),
    (model._Ocr2Info, model._Ocr2Info, ["deepseek_ocr2"]),
    (model._UnlimitedInfo, model._UnlimitedInfo, ["unlimited_ocr"]),
    (model._DummyInputs, model._DummyInputs, ["deepseek_ocr", "unlimited_ocr"]),
    (model._Ocr2DummyInputs, model._Ocr2DummyInputs, ["deepseek_ocr2"]),
    (worker.DraftingWorker, Worker, MODELS),  # on GPUs; in this suite its base is the worker for CPUs
    (decode_steps.DecodeScheduler, AsyncScheduler, MODELS),
    (scheduler.GroupScheduler, AsyncScheduler, MODELS),
]


@pytest.mark.parametrize("has_gpu", [True, False])
@pytest.mark.parametrize("model", MODELS)
def test_the_installed_vllm_fits(model: str, has_gpu: bool) -> None:
    """The plugin is on in this suite, in all of its parts."""
    assert find_changed_parts(model, has_gpu) == {}


def test_every_method_that_the_plugin_replaces_is_checked() -> None:
    """A new method of the plugin needs its row in the table of what vLLM must have, for each model that it serves."""
    replaced = [
        (methods, model) for ours, base, models in OURS for methods in find_replaced(ours, base) for model in models
    ]

    assert len(replaced) > 20
    assert not [(methods, model) for methods, model in replaced if not has_row(methods, model)]


def copy_vllm(folder: Path) -> None:
    """Copy vLLM's own files, as far as the table names them."""
    for file in {row.file for row in REPLACED}:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(vllm.__file__).parent / file, folder / file)


def patch_embedding(folder: Path, patch: str) -> None:
    """Insert a line into the function of PaddleOCR-VL that embeds images."""
    path = folder / "model_executor/models/paddleocr_vl.py"
    path.write_text(re.sub(r"(?s)(def embed_multimodal\(.*?:\n)(?=        \w)", rf"\1{patch}\n", path.read_text()))
    assert patch in path.read_text()


def find_changed(folder: Path) -> dict[str, Mapping[str, str]]:
    found = {model: compare(folder, [row for row in REPLACED if row.is_used(model, True)]) for model in MODELS}
    return {model: parts for model, parts in found.items() if parts}


@pytest.mark.parametrize("comment", ["        # patched", "# patched", '        """Patched."""'])
def test_a_comment_changes_nothing(comment: str, tmp_path: Path) -> None:
    """In a copy of vLLM's own files: neither for the model of that file nor for another one."""
    copy_vllm(tmp_path)
    patch_embedding(tmp_path, comment)

    assert find_changed(tmp_path) == {}


def test_a_changed_function_of_one_model_stops_that_model_only(tmp_path: Path) -> None:
    """In a copy of vLLM's own files; the reason names the function."""
    copy_vllm(tmp_path)
    patch_embedding(tmp_path, "        self.is_patched = True")

    changed = find_changed(tmp_path)

    assert list(changed) == ["paddleocr_vl"]
    assert "PaddleOCRVLForConditionalGeneration.embed_multimodal" in changed["paddleocr_vl"]["models"]


@pytest.mark.parametrize("row", REPLACED, ids=str)
def test_a_function_that_vllm_changes_is_noticed(tmp_path: Path, row: Replaced) -> None:
    """In vLLM's own file, as it would be in a patched build of the same version."""
    path = tmp_path / row.file
    path.parent.mkdir(parents=True)
    shutil.copy(Path(vllm.__file__).parent / row.file, path)
    renamed = tmp_path / "renamed"
    renamed.joinpath(row.file).parent.mkdir(parents=True)
    name = row.name.rpartition(".")[2]
    renamed.joinpath(row.file).write_text(re.sub(rf"(def|class) {name}\b", rf"\1 renamed_{name}", path.read_text()))

    assert compare(tmp_path, [row]) == {}
    assert compare(renamed, [row]) == {row.part: f"{row} is missing"}
