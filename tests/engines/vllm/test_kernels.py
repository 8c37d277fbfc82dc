"""Kernels that a start on a GPU recorded."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

from twopass.engines.vllm import kernels


def test_the_record_names_kernels_of_the_plugin_that_exist() -> None:
    """A kernel that was moved or renamed would be compiled at every start, and nothing would say so."""
    variants = [kernels.Variant(**json.loads(line)) for line in kernels.RECORDED.read_text().splitlines()]
    own = {(one.module, one.name) for one in variants if one.module.startswith("twopass.")}

    assert len(own) == 5
    for module, name in own:
        spec = find_spec(module)
        assert spec and spec.origin
        assert f"\ndef {name}(" in Path(spec.origin).read_text()


def test_no_window_of_a_job_needs_a_kernel_that_is_not_recorded() -> None:
    """The ban's kernel has a block of the window's next power of two, at least 16; a job's window is at most 10,000."""
    variants = [kernels.Variant(**json.loads(line)) for line in kernels.RECORDED.read_text().splitlines()]
    blocks = {dict((place[0], value) for place, value in one.constants)[10] for one in variants if "_ban" in one.name}

    assert blocks == {1 << power for power in range(4, 15)}


def test_records_of_several_starts_are_merged(tmp_path: Path) -> None:
    """What both used is kept once, so that a record grows by what is new."""
    file = tmp_path / "record.jsonl"
    file.write_text("b\na\nb\n")

    assert kernels.merge(file) == 2
    assert file.read_text() == "a\nb\n"
