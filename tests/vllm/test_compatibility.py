"""What the plugin requires of vLLM is in the installed vLLM, and is all that the plugin replaces."""

from __future__ import annotations

import re
import shutil
from itertools import chain
from pathlib import Path

import pytest
import vllm
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.worker.gpu_worker import Worker

from tests.fakes.replaced_methods import find_replaced, has_row
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
    *((ours, ours) for ours in MODELS),
    *((ours, ours) for ours in (model._Info, model._InfoV2, model._InfoUnlimited)),
    *((ours, ours) for ours in (model._DummyInputs, model._DummyInputsV2)),
    (worker.DraftingWorker, Worker),  # on GPUs; in this suite its base is the worker for CPUs
    (scheduler.GroupScheduler, AsyncScheduler),
]


def test_the_installed_vllm_fits() -> None:
    """The plugin is on in this suite, in all of its parts."""
    assert find_changed_parts() == {}


def test_every_method_that_the_plugin_replaces_is_checked() -> None:
    """A new method of the plugin needs its row in the table of what vLLM must have."""
    replaced = [*chain.from_iterable(find_replaced(ours, base) for ours, base in OURS)]

    assert len(replaced) > 20
    assert not [methods for methods in replaced if not has_row(methods)]


@pytest.mark.parametrize("row", REPLACED, ids=str)
def test_a_function_that_vllm_changes_is_noticed(tmp_path: Path, row: Replaced) -> None:
    """In vLLM's own file, as it would be in a patched build of the same version."""
    path = tmp_path / row.file
    path.parent.mkdir(parents=True)
    shutil.copy(Path(vllm.__file__).parent / row.file, path)
    before = compare(tmp_path, [row])
    name = row.name.rpartition(".")[2]
    path.write_text(re.sub(rf"(def|class) {name}\b", rf"\1 renamed_{name}", path.read_text()))

    assert before == {}
    assert compare(tmp_path, [row]) == {row.part: f"{row} is missing"}
