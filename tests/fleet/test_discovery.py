"""Which documents the given places hold."""

from __future__ import annotations

import asyncio
from pathlib import Path

from twopass.fleet.discovery import DocumentRef, find_documents
from twopass.settings import Settings


def test_a_list_has_one_place_per_line(tmp_path: Path) -> None:
    """Comments and blank lines are skipped, duplicates are read once, and the results folder is left out."""
    (tmp_path / "in").mkdir()
    for name in ("in/a.pdf", "in/b.TIF", "in/c.txt"):
        (tmp_path / name).touch()
    (tmp_path / "in" / "out").mkdir()
    (tmp_path / "in" / "out" / "crop.png").touch()
    (tmp_path / "list.txt").write_text(f"# mine\n\n{tmp_path}/in\n{tmp_path}/in/a.pdf\nhttps://h/x.pdf\n")

    documents = asyncio.run(find_documents([f"@{tmp_path}/list.txt"], Settings(), [f"{tmp_path}/in/out"]))

    assert documents == [
        DocumentRef(f"{tmp_path}/in/a.pdf"),
        DocumentRef(f"{tmp_path}/in/b.TIF"),
        DocumentRef("https://h/x.pdf"),
    ]
