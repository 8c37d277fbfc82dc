"""scripts/process.py: a folder in, artefacts and a summary out, again without reading again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pymupdf
import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inbox = tmp_path / "inbox" / "deep"
    inbox.mkdir(parents=True)
    for name in ("one.pdf", "deep/two.PDF"):
        with pymupdf.open() as pdf:
            pdf.new_page().insert_text((72, 90), f"This is {name}")
            pdf.save(tmp_path / "inbox" / name)
    (tmp_path / "inbox" / "notes.txt").write_text("not a document")
    return tmp_path


def process(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "process.py"), "inbox", "--output", "out", *arguments]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def test_a_folder_is_read_and_summed_up(folder: Path) -> None:
    """Every document below the folder, whatever its suffix's case, and nothing else."""
    ran = process(folder)

    summary = json.loads((folder / "out" / "batch_summary.json").read_text())
    assert ran.returncode == 0, ran.stderr
    assert (summary["total_files"], summary["success"], summary["failed"]) == (2, 2, 0)
    assert all(Path(folder, path).exists() for row in summary["results"] for path in row["output"].values())


def test_one_bad_file_is_told_and_the_rest_is_read(folder: Path) -> None:
    """The exit code says that something failed, the summary says what; a second run reads only that."""
    (folder / "inbox" / "bad.pdf").write_bytes(b"%PDF-1.7 rubbish")

    first = process(folder)
    manifests = {path: path.stat().st_mtime_ns for path in folder.rglob("manifest.json")}
    process(folder)

    rows = {
        Path(row["file"]).name: row
        for row in json.loads((folder / "out" / "batch_summary.json").read_text())["results"]
    }
    assert first.returncode == 1
    assert rows["bad.pdf"]["problems"][0]["code"] == "DAMAGED"
    assert rows["one.pdf"]["status"] == "success"
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("manifest.json")} == manifests


def test_an_empty_folder_is_said_so(tmp_path: Path) -> None:
    """Nothing to read is neither a success nor a crash."""
    (tmp_path / "inbox").mkdir()

    ran = process(tmp_path)

    assert ran.returncode == 2
    assert "nothing to read" in ran.stderr
