"""The start of the vLLM engine: compile caches and reading weights ahead."""

from __future__ import annotations

import os
import re
from pathlib import Path

import psutil
import pytest

from twopass.engines.gpus import GpuInfo
from twopass.engines.vllm import startup


def test_each_kind_of_gpu_has_its_own_compile_cache() -> None:
    """Code compiled for one kind does not run, or runs badly, on another; hosts of one kind share it."""
    h200, other_host = (GpuInfo(name="NVIDIA H200", driver=driver) for driver in ("580.1", "570.1"))

    keys = {startup.cache_key(machine) for machine in (h200, GpuInfo(name="NVIDIA L4"), GpuInfo())}

    assert len(keys) == 3
    assert startup.cache_key(other_host) == startup.cache_key(h200)
    assert all(re.fullmatch(r"[A-Za-z0-9._+-]+", key) for key in keys)


def test_read_ahead_ends_with_its_context(tmp_path: Path) -> None:
    """The reader process is gone on exit even if it has not finished; an empty folder needs none."""
    with startup.read_ahead(tmp_path):
        pass
    os.mkfifo(tmp_path / "model.safetensors")  # blocks its reader: nothing writes to it

    before = psutil.Process().children()
    with startup.read_ahead(tmp_path):
        readers = [child for child in psutil.Process().children() if child not in before]

    assert [reader for reader in readers if reader.is_running()] == []
    assert len(readers) == 1


def test_a_measured_cache_is_reused_with_the_presets_share_of_memory_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise GPU_MEMORY_UTILIZATION, or room for a detector, would have no effect after the first start."""
    monkeypatch.delenv(startup.MEMORY_PLAN, raising=False)
    assert startup.choose_memory_plan(is_usual_share=True) == {startup.MEMORY_PLAN: "1"}
    assert startup.choose_memory_plan(is_usual_share=False) == {startup.MEMORY_PLAN: "0"}

    monkeypatch.setenv(startup.MEMORY_PLAN, "1")
    assert startup.choose_memory_plan(is_usual_share=False) == {}
