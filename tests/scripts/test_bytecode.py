"""Bytecode in images: what is missing or stale is compiled, and the build fails if it cannot be."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from scripts import bytecode
from tests import ROOT


def test_what_is_missing_or_stale_is_compiled(tmp_path: Path) -> None:
    """Files that are no Python of any version are left out: packages bring templates and tests."""
    package = tmp_path / "package"
    package.mkdir()
    for name, text in (("fresh", "a = 1"), ("stale", "a = 1"), ("template", "a = {{ b }} ]"), ("zeros", "\0")):
        (package / f"{name}.py").write_text(text)
    bytecode.compile_all([str(tmp_path)])
    os.utime(package / "stale.py", (1, 1))
    assert not bytecode._is_compiled(package / "stale.py")

    assert bytecode.compile_all([str(tmp_path)]) == (4, [])
    assert [name for name in ("fresh", "stale") if not bytecode._is_compiled(package / f"{name}.py")] == []


def test_bytecode_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    """Something else is where it would be; root may write everywhere."""
    (tmp_path / "module.py").write_text("a = 1")
    (tmp_path / "__pycache__").write_text("")

    script = [sys.executable, str(ROOT / "scripts" / "bytecode.py"), str(tmp_path)]
    ran = subprocess.run(script, capture_output=True, text=True)

    assert ran.returncode == 1
    assert "1 without bytecode" in ran.stdout and "module.py" in ran.stderr


def test_bytecode_of_another_python_does_not_count(tmp_path: Path) -> None:
    """An import would compile the source again."""
    source = tmp_path / "module.py"
    source.write_text("a = 1")
    bytecode.compile_all([str(tmp_path)])
    compiled = Path(importlib.util.cache_from_source(source))
    data = compiled.read_bytes()
    compiled.write_bytes(b"old\n" + data[4:])

    assert not bytecode._is_compiled(source)
    os.utime(source, (1, 1))
    compiled.write_bytes(data)
    assert not bytecode._is_compiled(source)
