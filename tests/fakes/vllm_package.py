"""A package called vllm with the functions of a table, and nothing that works but the registry of models."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from twopass.engines.vllm.plugin.compatibility import Replaced, hash_code

INIT = """
__version__ = "0.0"
registered = []
class ModelRegistry:
    @staticmethod
    def register_model(architecture, path):
        registered.append(architecture)
"""


def write_package(folder: Path, replaced: Iterable[Replaced] = ()) -> Path:
    """Write folder/vllm with a body for each function; returns the package's folder."""
    classes: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in {str(row): row for row in replaced}.values():  # several parts may depend on one function
        owner, _, name = row.name.rpartition(".")
        classes[row.file][owner].append(write_function(name, "    " if owner else ""))
    files = {"__init__.py": INIT}
    for file, owners in classes.items():
        files[file] = "\n".join(
            "\n".join([*([f"class {owner}:"] if owner else []), *functions]) for owner, functions in owners.items()
        )
    for file, text in files.items():
        path = folder / "vllm" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return folder / "vllm"


def write_function(name: str, indent: str, body: str = "return 1") -> str:
    """A function whose parameters are on lines of their own, as vLLM writes long ones."""
    lines = [f"def {name}(", "    self,", ") -> int:", f"    {body}", "", f"    # about {name}"]
    return "\n".join(indent + line if line else line for line in lines)


def fit(row: Replaced) -> Replaced:
    """The row with the hash of what `write_package` writes for it."""
    (definition,) = ast.parse(write_function(row.name.rpartition(".")[2], "")).body
    return row._replace(hashes=(hash_code(definition),))
