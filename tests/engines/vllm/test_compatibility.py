"""The plugin changes a vLLM only where its code is what the plugin was written for; elsewhere vLLM's own code runs."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.fakes.vllm_package import fit, write_function, write_package
from twopass.engines.gpus import GpuInfo
from twopass.engines.vllm import plugin
from twopass.engines.vllm.arguments import NEEDED_FOR_DRAFTS, build_arguments, choose_drafts
from twopass.engines.vllm.plugin import compatibility
from twopass.engines.vllm.plugin.compatibility import (
    BAN,
    DECODE_GRAPHS,
    DECODE_STEPS,
    DRAFTS,
    MEMORY,
    REPLACED,
    RESTARTS,
    SCHEDULER,
    WINDOWS,
    WORKER,
    Replaced,
    compare,
    hash_code,
)
from twopass.models import MODELS, PAGE_PRESETS
from twopass.settings import Settings

CALL = "from twopass.engines.vllm import plugin; import vllm; plugin.{}(); print(vllm.registered)"
OPEN = """
from pathlib import Path
from twopass.engines.vllm.engine import VllmEngine
from twopass.settings import Settings
VllmEngine(Settings(preset="cpu", page_workers=1), Path("nowhere"))
"""
ONE_OFF = """
from twopass.engines.vllm import plugin
import vllm
plugin.activate(lambda model: {"models": "changed"} if model == "paddleocr_vl" else {})
print(vllm.registered)
"""
FITTING = [fit(row) for row in REPLACED]
OPTIONAL = (SCHEDULER, WORKER, DRAFTS, BAN, RESTARTS, DECODE_GRAPHS, DECODE_STEPS, MEMORY, WINDOWS)


def run(folder: Path, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process whose vllm is the package in this folder."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT / "src")]), **variables}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=180)


def hash_function(source: str) -> str:
    (definition,) = ast.parse(source).body
    return hash_code(definition)


def test_a_vllm_with_all_functions_fits(tmp_path: Path) -> None:
    """Whatever its version is: what counts is the code that the plugin replaces and calls."""
    assert compare(write_package(tmp_path, FITTING), FITTING) == {}


@pytest.mark.parametrize("row", FITTING, ids=str)
def test_each_missing_function_is_noticed(tmp_path: Path, row: Replaced) -> None:
    """The reason names the function and its file."""
    package = write_package(tmp_path, [other for other in FITTING if str(other) != str(row)])

    concerned = {other.part for other in FITTING if str(other) == str(row)}  # several parts may depend on it
    assert compare(package, FITTING) == dict.fromkeys(concerned, f"{row} is missing")


@pytest.mark.parametrize("row", FITTING, ids=str)
def test_each_changed_function_is_noticed(tmp_path: Path, row: Replaced) -> None:
    """One other value in its body is enough."""
    path = write_package(tmp_path, FITTING) / row.file
    indent, name = "    " if "." in row.name else "", row.name.rpartition(".")[2]
    path.write_text(path.read_text().replace(write_function(name, indent), write_function(name, indent, "return 2")))

    assert row.part in compare(path.parents[row.file.count("/")], FITTING)


@pytest.mark.parametrize(
    "patch",
    [("# about", "# more about"), ("return 1", "return 1  # patched"), ("(\n    self,\n)", "(self)"),
     ("    return 1", '    """Patched."""\n\n\n# patched\n    return 1')],
    ids=["comment", "comment at a line", "layout", "docstring"],
)  # fmt: skip
def test_what_python_does_not_run_may_change(patch: tuple[str, str]) -> None:
    """Comments, docstrings and the layout of lines, as in a release that only documents."""
    source = write_function("schedule", "")
    assert patch[0] in source

    assert hash_function(source.replace(*patch)) == hash_function(source)


def test_a_decorator_is_part_of_a_function() -> None:
    """It may compile the function or switch gradients on."""
    source = write_function("schedule", "")

    assert hash_function(f"@compiled\n{source}") != hash_function(source)


SETTER = """
class Runner:
    @property
    def state(self):
        return 1

    @state.setter
    def state(self, value):
        self.value = value
"""


@pytest.mark.parametrize("change", [("return 1", "return 2"), ("self.value = value", "self.value = 1")])
def test_every_definition_of_a_name_counts(tmp_path: Path, change: tuple[str, str]) -> None:
    """A property and its setter have one name, and either may be what the plugin relies on."""
    path = tmp_path / "runner.py"

    def find_problem(source: str, hashes: tuple[str, ...]) -> str | None:
        path.write_text(source)
        compatibility._load_definitions.cache_clear()
        return compare(tmp_path, [Replaced(DRAFTS, path.name, "Runner.state", hashes)]).get(DRAFTS)

    methods = ast.parse(SETTER).body[0].body  # type: ignore[attr-defined]
    hashes = (hash_code(*methods),)

    assert find_problem(SETTER, hashes) is None
    assert find_problem(SETTER.replace(*change), hashes)


PAGES = {"deepseek_ocr", "deepseek_ocr2", "unlimited_ocr"}
DEPENDENT = [  # what is changed, and the models with which an engine on a GPU, or without one, depends on it
    ("PaddleOCRVLForConditionalGeneration.__init__", {"paddleocr_vl"}, {"paddleocr_vl"}),
    ("Glm4vForConditionalGeneration.embed_multimodal", {"glm_ocr"}, {"glm_ocr"}),
    ("DeepseekOCR2ForCausalLM.__init__", {"deepseek_ocr2"}, {"deepseek_ocr2"}),
    ("UnlimitedOCRForCausalLM.__init__", {"unlimited_ocr"}, {"unlimited_ocr"}),
    ("DeepseekOCRProcessingInfo.get_image_size_with_most_features", {"deepseek_ocr"}, {"deepseek_ocr"}),
    ("DeepseekOCRForCausalLM.__init__", {"deepseek_ocr", "unlimited_ocr"}, {"deepseek_ocr", "unlimited_ocr"}),
    ("ImageEncoderViT.forward", PAGES, PAGES),
    ("Block.__init__", PAGES, PAGES),
    ("mm_input", set(MODELS), set(MODELS)),
    ("launch_core_engines", set(MODELS), set(MODELS)),
    ("Scheduler.schedule", set(MODELS), set(MODELS)),
    ("GPUModelRunner.sample_tokens", PAGES, set()),
    ("CudaGraphManager.dispatch", PAGES, set()),
    ("DefaultModelState.prepare_attn", {"unlimited_ocr"}, set()),
    ("GPUModelRunner.__init__", set(MODELS), set()),
    ("GPUModelRunner.profile_run", set(MODELS), set()),
    ("Sampler.add_request", PAGES, set()),
    ("process_dict_updates", set(), PAGES),
]


@pytest.mark.parametrize(("name", "on_gpus", "on_cpus"), DEPENDENT, ids=[name for name, *_ in DEPENDENT])
def test_a_change_concerns_only_engines_that_depend_on_it(
    name: str, on_gpus: set[str], on_cpus: set[str], tmp_path: Path
) -> None:
    """A change in the file of PaddleOCR-VL does not stop DeepSeek-OCR, nor one in V1's runner drafts on a GPU."""
    package = write_package(tmp_path, [row for row in FITTING if row.name != name])

    def find_concerned(has_gpu: bool) -> set[str]:
        used = {model: [row for row in FITTING if row.is_used(model, has_gpu)] for model in MODELS}
        return {model for model, rows in used.items() if compare(package, rows)}

    assert (find_concerned(True), find_concerned(False)) == (on_gpus, on_cpus)


def test_every_model_has_a_class() -> None:
    """A new model of vLLM needs one that takes our pixels."""
    assert set(plugin.CLASSES) == set(MODELS)


def test_a_class_that_does_not_fit_leaves_the_others_registered(tmp_path: Path) -> None:
    """The log names the model and the reason."""
    write_package(tmp_path)

    ran = run(tmp_path, ONE_OFF)

    off, _ = plugin.CLASSES["paddleocr_vl"]
    assert ran.stdout.strip() == str([name for name, _ in plugin.CLASSES.values() if name != off])
    assert "plugin of twopass is off for paddleocr_vl, vLLM keeps its own model classes: changed" in ran.stderr


def test_every_part_has_rows_and_says_what_runs_instead() -> None:
    """Without the required parts there is no engine."""
    assert {row.part for row in REPLACED} == {*compatibility.REQUIRED, *compatibility.INSTEAD}
    assert set(compatibility.INSTEAD) == set(OPTIONAL)


def test_the_plugin_changes_nothing_where_it_is_only_installed(tmp_path: Path) -> None:
    """A vLLM that serves another model does not know of it; ENGINE=vllm or the switch turns it on."""
    write_package(tmp_path, REPLACED)

    assert run(tmp_path, CALL.format("register")).stdout.strip() == "[]"
    assert run(tmp_path, CALL.format("register")).stderr == ""


@pytest.mark.parametrize("variables", [{plugin.SWITCH: "1"}, {"ENGINE": "vllm"}], ids=str)
def test_a_vllm_that_does_not_fit_keeps_its_model_classes(tmp_path: Path, variables: dict[str, str]) -> None:
    """The log has a warning with the reason."""
    write_package(tmp_path, REPLACED)  # with other bodies than vLLM's

    ran = run(tmp_path, CALL.format("register"), **variables)

    assert ran.stdout.strip() == "[]"
    assert re.match(r"plugin of twopass is off, vLLM keeps its own model classes: .* is not that of vLLM", ran.stderr)


def test_our_engine_refuses_a_vllm_whose_models_do_not_fit(tmp_path: Path) -> None:
    """It could not read images our way; the error has a code and says what to do."""
    write_package(tmp_path)

    ran = run(tmp_path, OPEN)

    assert re.search(r"ENGINE_DEAD.* is missing.*: use the container image or `make gpu`", ran.stderr)


@pytest.mark.parametrize("part", OPTIONAL)
def test_vllms_own_code_runs_instead_of_a_part_that_does_not_fit(part: str, tmp_path: Path) -> None:
    """The arguments that would bring in that part are missing, and the others are there."""
    settings = Settings(draft_tokens=4)

    def build(changed: list[str]) -> dict[str, Any]:
        drafts = choose_drafts(settings, GpuInfo(count=1), changed)
        return build_arguments(settings, tmp_path, PAGE_PRESETS["24"], most_drafts=drafts, changed=changed)

    usual, changed = build([]), build([part])

    drafts = {"speculative_config"} if part in NEEDED_FOR_DRAFTS else set()
    absent = {SCHEDULER: {"scheduler_cls"}, WORKER: {"worker_cls"}}.get(part, set())
    assert set(usual) - set(changed) == {*drafts, *absent}
    assert (changed["logits_processors"] == [plugin.STOCK_NGRAM]) == (part == BAN)
