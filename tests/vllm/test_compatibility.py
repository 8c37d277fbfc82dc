"""What the plugin requires of vLLM is in the installed vLLM, and is all that the plugin replaces."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import vllm
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from twopass.engines.vllm.plugin import model, ngram_ban, scheduler, worker
from twopass.engines.vllm.plugin.compatibility import (
    FRAGMENTS,
    FUNCTIONS,
    TESTED_VLLM,
    Fragment,
    Function,
    find_problems,
    find_problems_of_installed,
)

MODELS = (model.DeepseekOcr, model.DeepseekOcr2, model.UnlimitedOcr, model._Processor)
OURS = [
    *((ours, ours.__mro__[1:]) for ours in MODELS),
    *((ours, ours.__mro__[1:]) for ours in (model._Info, model._InfoV2, model._InfoUnlimited)),
    *((ours, ours.__mro__[1:]) for ours in (model._DummyInputs, model._DummyInputsV2)),
    *((ours, ours.__mro__[1:]) for ours in (ngram_ban.NoRepeatNGram, worker.DecodingWorker)),
    (worker.DecodingRunner, GPUModelRunner.__mro__),
    (scheduler.GroupScheduler, AsyncScheduler.__mro__),
]


def test_the_installed_vllm_has_no_problems() -> None:
    """The plugin is on in this suite."""
    assert find_problems_of_installed() == ()


def find_replaced() -> Iterator[str]:
    """Names of the methods of our classes that vLLM's classes have as well."""
    for ours, bases in OURS:
        for name, value in vars(ours).items():
            is_method = callable(value) or isinstance(value, classmethod)
            stock = any(name in vars(base) for base in bases if base.__module__.startswith("vllm."))
            if is_method and stock:
                yield name


def test_every_method_that_the_plugin_replaces_is_checked() -> None:
    """A new method of the plugin needs its row in the list of what vLLM must have."""
    replaced = set(find_replaced()) - {"__subclasshook__"}  # from ABC

    assert len(replaced) > 15
    assert replaced <= {function.name for function in FUNCTIONS}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The files of vLLM that are checked."""
    for file in {part.file for part in (*FUNCTIONS, *FRAGMENTS)}:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(vllm.__file__).parent / file, tmp_path / file)
    return tmp_path


@pytest.mark.parametrize("part", [*FUNCTIONS, *FRAGMENTS], ids=str)
def test_a_method_or_placeholder_that_vllm_renames_is_noticed(copy: Path, part: Function | Fragment) -> None:
    """In vLLM's own files, as they would be in a patched build of the same version."""
    path = copy / part.file
    old = rf"\bdef {part.name}\b" if isinstance(part, Function) else re.escape(part.code)
    path.write_text(re.sub(old, "def renamed" if isinstance(part, Function) else "renamed", path.read_text()))

    assert f"{part} is missing" in find_problems(TESTED_VLLM, copy)
