"""What the plugin requires of vLLM is in the installed vLLM, and is all that the plugin replaces."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import vllm
from vllm.v1.core.sched.async_scheduler import AsyncScheduler

from twopass.engines.vllm.plugin import model, readers, scheduler, worker
from twopass.engines.vllm.plugin.compatibility import REPLACED, Replaced, compare, find_changed_parts

MODELS = (
    model.DeepseekOcr,
    model.DeepseekOcr2,
    model.UnlimitedOcr,
    model._Processor,
    readers.GlmOcr,
    readers.PaddleOcrVl,
)
OURS = [
    *((ours, ours.__mro__[1:]) for ours in MODELS),
    *((ours, ours.__mro__[1:]) for ours in (model._Info, model._InfoV2, model._InfoUnlimited)),
    *((ours, ours.__mro__[1:]) for ours in (model._DummyInputs, model._DummyInputsV2, worker.DecodingWorker)),
    (scheduler.GroupScheduler, AsyncScheduler.__mro__),
]


def test_the_installed_vllm_fits() -> None:
    """The plugin is on in this suite, in all of its parts."""
    assert find_changed_parts() == {}


def find_replaced() -> Iterator[str]:
    """Names of the methods of our classes that vLLM's classes have as well."""
    for ours, bases in OURS:
        for name, value in vars(ours).items():
            is_method = callable(value) or isinstance(value, classmethod)
            stock = any(name in vars(base) for base in bases if base.__module__.startswith("vllm."))
            if is_method and stock:
                yield name


def test_every_method_that_the_plugin_replaces_is_checked() -> None:
    """A new method of the plugin needs its row in the table of what vLLM must have."""
    replaced = set(find_replaced()) - {"__subclasshook__"}  # from ABC

    assert len(replaced) > 12
    assert replaced <= {row.name.rpartition(".")[2] for row in REPLACED}


@pytest.mark.parametrize("row", REPLACED, ids=str)
def test_a_function_that_vllm_changes_is_noticed(tmp_path: Path, row: Replaced) -> None:
    """In vLLM's own file, as it would be in a patched build of the same version."""
    path = tmp_path / row.file
    path.parent.mkdir(parents=True)
    shutil.copy(Path(vllm.__file__).parent / row.file, path)
    before = compare(tmp_path, [row])
    name = row.name.rpartition(".")[2]
    path.write_text(path.read_text().replace(f"def {name}(", f"def renamed_{name}("))

    assert before == {}
    assert compare(tmp_path, [row]) == {row.part: f"{row} is missing"}
