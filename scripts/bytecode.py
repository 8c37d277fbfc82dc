"""Compile all Python files of this interpreter's packages to bytecode, and check that imports will use it.

Without it, an import compiles each file again, in every new container: that doubles the time of vLLM's imports. vLLM's
image comes without, because its packages are installed by a program that leaves it out.

    python scripts/bytecode.py [FOLDER...]
"""

from __future__ import annotations

import compileall
import importlib.util
import os
import site
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

HEADER = struct.Struct("<4sIII")  # of bytecode: version, flags, the source's time and size


def compile_all(folders: Sequence[str]) -> tuple[int, list[Path]]:
    """Compile what is not compiled; returns how many files there are, and those of which imports use no bytecode."""
    for folder in folders:
        compileall.compile_dir(folder, quiet=2, workers=0)  # False for files that no Python compiles, such as templates
    sources = [source for folder in folders for source in _find_sources(Path(folder))]
    return len(sources), [source for source in sources if not _is_compiled(source) and _compiles(source)]


def _find_sources(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*.py") if path.is_file())


def _is_compiled(source: Path) -> bool:
    """Whether an import takes the bytecode: it is of this Python, and of the source as it is."""
    try:
        with open(importlib.util.cache_from_source(source), "rb") as file:
            magic, flags, seconds, size = HEADER.unpack(file.read(HEADER.size))
    except (OSError, struct.error):
        return False
    status = source.stat()
    is_current = (seconds, size) == (int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF)
    return magic == importlib.util.MAGIC_NUMBER and (bool(flags) or is_current)


def _compiles(source: Path) -> bool:
    try:
        compile(source.read_bytes(), source, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def main() -> None:
    folders = sys.argv[1:] or [folder for folder in site.getsitepackages() if os.path.isdir(folder)]
    count, missing = compile_all(folders)
    print(f"{count} Python files in {', '.join(folders)}, {len(missing)} without bytecode")
    if missing or not count:
        raise SystemExit("\n".join(map(str, missing[:20])) or "no Python file was found")


if __name__ == "__main__":
    main()
