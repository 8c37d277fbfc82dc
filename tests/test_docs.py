"""What the documents say is what the program does."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import make_docs  # noqa: E402 - scripts are no package


def test_the_readmes_settings_are_the_codes() -> None:
    """Every environment variable, its default and its meaning; `make docs` writes them."""
    text = (ROOT / "README.md").read_text()

    assert make_docs.with_settings(text) == text


def tree_names() -> list[str]:
    """Paths of the README's tree: at a line's beginning, indented below their folder."""
    tree = (ROOT / "README.md").read_text().partition("<!-- tree -->")[2].split("```")[1]
    place, names = [""], []
    for line in tree.strip().splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        for name in re.match(r"\s*((?:[\w./]*[./]\w* ?)+)", line)[1].split():  # type: ignore[index]
            place[depth + 1 :] = [f"{place[depth]}{name}"]
            names.append(f"{place[depth]}{name}")
    return names


def test_the_readmes_tree_is_on_the_disk() -> None:
    """Every file and folder the tree names exists."""
    assert len(tree_names()) > 25
    assert not [name for name in tree_names() if not (ROOT / name).exists()]


def test_the_disk_is_in_the_readmes_tree() -> None:
    """Every module of the package is named, or lies in a folder whose line tells of it."""
    named = set(tree_names())
    told = {"src/twopass/formats/", "src/twopass/families/", "src/twopass/engines/"}

    modules = [str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("*.py") if path.name != "__init__.py"]

    assert told <= named
    assert not [name for name in modules if name not in named and not name.startswith(tuple(told))]


def test_the_readmes_two_commands_are_in_the_makefile() -> None:
    """A newcomer types `make demo` and `make test`."""
    makefile = (ROOT / "Makefile").read_text()

    assert re.search(r"^demo:", makefile, re.M)
    assert re.search(r"^test:", makefile, re.M)
