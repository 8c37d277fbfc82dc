"""The README's examples for retrieval, as they stand there, on the folder of a document."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import ROOT
from tests.fakes.documents import assembled, checkpoint, element, grid
from twopass.formats.draft import Draft
from twopass.formats.registry import WRITERS
from twopass.job import Format

PLACE = "output/sample-0123456789ab"
EXAMPLES = [code for code in re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """chunks.jsonl and docling.json of a small report."""
    page = (
        element("section_header", "1 Losses", level=1),
        element("text", "Water that was produced but not sold fell from 14.1 to 11.6 per cent. " * 9),
        element("section_header", "2 Pumps", level=1),
        element("table", table=grid(["Pump", "Flow"], ["North", "12.5"], header=True)),
    )
    draft = Draft(assembled(checkpoint(1, *page)))
    for name in (Format.CHUNKS, Format.DOCLING):
        writer = WRITERS[name]
        assert writer.write
        (tmp_path / writer.name).write_bytes(writer.write(draft))
    return tmp_path


def test_there_are_examples() -> None:
    """One for each library that the README names."""
    assert [next(n for n in ("langchain", "llama_index", "docling") if n in code) for code in EXAMPLES] == [
        "langchain",
        "llama_index",
        "docling",
    ]


@pytest.mark.parametrize("code", EXAMPLES, ids=["langchain", "llama_index", "docling"])
def test_an_example_of_the_readme_runs(code: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Word for word, but for where the document lies; it finds something of the document."""
    assert PLACE in code

    exec(compile(code.replace(PLACE, str(folder)), "README.md", "exec"), {})

    told = capsys.readouterr().out
    assert "1" in told and re.search(r"Water that was produced|Losses|Pump", told)
