"""The plugin changes only the vLLM that it was tested with; in any other it changes nothing and says so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.fakes.vllm_package import write_package
from twopass.engines.vllm import plugin
from twopass.engines.vllm.plugin.compatibility import (
    FRAGMENTS,
    FUNCTIONS,
    TESTED_VLLM,
    Fragment,
    Function,
    find_problems,
)

REGISTER = "from twopass.engines.vllm import plugin; import vllm; plugin.register(); print(vllm.registered)"
OPEN = """
from pathlib import Path
from twopass.engines.vllm.engine import VllmEngine
from twopass.settings import Settings
VllmEngine(Settings(preset="cpu", page_workers=1), Path("nowhere"))
"""


def run(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process whose vllm is the package in this folder."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT / "src")])}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=60)


@pytest.mark.parametrize("version", [TESTED_VLLM, f"{TESTED_VLLM}+cpu", f"{TESTED_VLLM}+cu130"])
def test_the_tested_version_has_no_problems(tmp_path: Path, version: str) -> None:
    """The name of a build, after a plus, does not matter."""
    assert find_problems(version, write_package(tmp_path)) == ()


@pytest.mark.parametrize("version", ["0.26.1", "0.27.0", "0.33.0", "0.26.0rc1", "0.26.0.post1", "dev", ""])
def test_any_other_version_is_a_problem(tmp_path: Path, version: str) -> None:
    """Even if it has every method: what they do may have changed."""
    (problem,) = find_problems(version, write_package(tmp_path, version))

    assert f"is not {TESTED_VLLM}" in problem


@pytest.mark.parametrize("part", [*FUNCTIONS, *FRAGMENTS], ids=str)
def test_each_missing_part_is_a_problem(tmp_path: Path, part: Function | Fragment) -> None:
    """A method or placeholder that the plugin replaces or uses; the problem names it and its file."""
    assert find_problems(TESTED_VLLM, write_package(tmp_path, without=[part])) == (f"{part} is missing",)


@pytest.mark.parametrize("function", FUNCTIONS, ids=str)
def test_each_changed_signature_is_a_problem(tmp_path: Path, function: Function) -> None:
    """Our method would get arguments that it does not expect."""
    package = write_package(tmp_path, altered=function)

    assert find_problems(TESTED_VLLM, package) == (f"{function} takes other arguments",)


def test_the_plugin_registers_its_models_in_the_tested_vllm(tmp_path: Path) -> None:
    """All classes are replaced, and nothing is said."""
    write_package(tmp_path)

    ran = run(tmp_path, REGISTER)

    assert ran.stdout.strip() == str(list(plugin.ARCHITECTURES))
    assert ran.stderr == ""


@pytest.mark.parametrize(
    ("version", "without"), [("0.27.0", []), (TESTED_VLLM, FUNCTIONS[:1])], ids=["version", "method"]
)
def test_the_plugin_changes_nothing_in_another_vllm(tmp_path: Path, version: str, without: list[Function]) -> None:
    """vLLM keeps its own classes, and the log has a warning with the reason."""
    write_package(tmp_path, version, without)

    ran = run(tmp_path, REGISTER)

    assert ran.stdout.strip() == "[]"
    assert re.match(r"plugin of twopass is off, vLLM keeps its own model classes: .*(0\.27\.0|missing)", ran.stderr)


def test_our_engine_refuses_another_vllm(tmp_path: Path) -> None:
    """It would read without the n-gram ban; the error has a code and says what to do."""
    write_package(tmp_path, "0.27.0")

    ran = run(tmp_path, OPEN)

    assert re.search(r"ENGINE_DEAD.*vLLM 0\.27\.0 is not .*: use the container image or `make gpu`", ran.stderr)
