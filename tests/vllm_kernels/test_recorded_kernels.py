"""Kernels compiled from a record, without a GPU, are found by a process that needs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# Stands for a start on an H100, without one: Triton compiles for the driver that it is given.
LAUNCH = """
import sys
from pathlib import Path
from types import SimpleNamespace
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from twopass.engines.vllm import kernels
driver.set_active(SimpleNamespace(
    get_current_target=lambda: GPUTarget("cuda", 90, 32), get_current_device=lambda: 0, get_current_stream=lambda _: 0,
))
if len(sys.argv) > 1:
    kernels.record(Path(sys.argv[1]))
from tests.fakes.recorded_kernel import double, scale
pointer = SimpleNamespace(dtype="float32", data_ptr=lambda: 0)
odd = SimpleNamespace(dtype="float32", data_ptr=lambda: 4)
scale.warmup(pointer, odd, 1000, 1, 64, tl.float16, double, grid=(1,), num_warps=2)
scale.warmup(odd, pointer, 1024, 48, 32, tl.float32, double, grid=(1,), num_stages=2)
"""


def run(cache: Path, *arguments: str) -> None:
    inherited = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment = inherited | {"TRITON_CACHE_DIR": str(cache), "TRITON_STORE_BINARY_ONLY": "1"}
    subprocess.run([sys.executable, *arguments], env=environment, check=True)


def read_binaries(cache: Path) -> dict[str, bytes]:
    return {str(file.relative_to(cache)): file.read_bytes() for file in cache.rglob("*.cubin")}


def test_a_start_finds_each_kernel_that_was_compiled_from_the_record_of_another(tmp_path: Path) -> None:
    """Types, functions and constants come back from the record as Triton hashes them."""
    recorded, compiled, record = tmp_path / "recorded", tmp_path / "compiled", tmp_path / "record.jsonl"
    run(recorded, "-c", LAUNCH, str(record))

    run(compiled, "-m", "twopass.engines.vllm.kernels", "90", "--record", str(record))
    before = read_binaries(compiled)
    run(compiled, "-c", LAUNCH)

    assert len(before) == 2
    assert read_binaries(recorded) == before == read_binaries(compiled)


def test_a_record_of_one_chip_serves_others(tmp_path: Path) -> None:
    """An image is built once for all kinds of GPUs."""
    record = tmp_path / "record.jsonl"
    run(tmp_path / "recorded", "-c", LAUNCH, str(record))

    run(tmp_path / "compiled", "-m", "twopass.engines.vllm.kernels", "80", "89", "--record", str(record))

    assert len(read_binaries(tmp_path / "compiled")) == 4


def test_a_kernel_that_no_longer_exists_is_left_out(tmp_path: Path) -> None:
    """A record of an earlier version fails no build."""
    record = tmp_path / "record.jsonl"
    run(tmp_path / "recorded", "-c", LAUNCH, str(record))
    record.write_text(record.read_text().replace('"scale"', '"removed"', 1))

    run(tmp_path / "compiled", "-m", "twopass.engines.vllm.kernels", "90", "--record", str(record))

    assert len(read_binaries(tmp_path / "compiled")) == 1


def test_a_variant_that_cannot_be_compiled_is_left_out(tmp_path: Path) -> None:
    """A record of another Triton fails no build, and one of a version without a module fails none either."""
    record = tmp_path / "record.jsonl"
    run(tmp_path / "recorded", "-c", LAUNCH, str(record))
    first, second = record.read_text().splitlines()
    moved = first.replace("tests.fakes.recorded_kernel", "tests.fakes.removed", 1)
    record.write_text("\n".join([first.replace('"*fp32"', '"*unknown"'), moved, second]))

    run(tmp_path / "compiled", "-m", "twopass.engines.vllm.kernels", "90", "--record", str(record))

    assert len(read_binaries(tmp_path / "compiled")) == 1
