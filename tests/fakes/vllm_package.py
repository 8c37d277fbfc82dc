"""A package called vllm with what our plugin requires of vLLM, and nothing that works but the registry of models."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from itertools import groupby
from pathlib import Path

from twopass.engines.vllm.plugin.compatibility import FRAGMENTS, FUNCTIONS, TESTED_VLLM, Fragment, Function

INIT = """
__version__ = {version!r}
registered = []
class ModelRegistry:
    @staticmethod
    def register_model(architecture, path):
        registered.append(architecture)
"""


def write_package(
    folder: Path,
    version: str = TESTED_VLLM,
    without: Collection[Function | Fragment] = (),
    altered: Function | None = None,
) -> Path:
    """Write folder/vllm, without some functions and fragments, and with one more parameter in `altered`."""
    files: dict[str, list[str]] = defaultdict(list, {"__init__.py": [INIT.format(version=version)]})
    for (file, owner), functions in groupby(sorted(FUNCTIONS, key=_place), _place):
        definitions = [_define(one, "more, " if one == altered else "") for one in functions if one not in without]
        files[file] += [f"class {owner}:", "    ...", *(f"    {one}" for one in definitions)] if owner else definitions
    for fragment in FRAGMENTS:
        files[fragment.file] += [] if fragment in without else [f"# {fragment.code}"]
    for name, lines in files.items():
        (folder / "vllm" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "vllm" / name).write_text("\n".join(lines))
    return folder / "vllm"


def _place(function: Function) -> tuple[str, str]:
    return function.file, function.owner or ""


def _define(function: Function, more: str) -> str:
    return f"def {function.name}({more}{', '.join(function.parameters.split())}) -> None:\n        ..."
