"""The examples of docs/retrieval.md run unchanged on the folder of a document."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import ROOT
from tests.fakes.documents import build_document, checkpoint, element, plain_table
from twopass.formats.registry import WRITERS
from twopass.formats.writer_input import WriterInput
from twopass.job import Format

PAGE = ROOT / "docs" / "retrieval.md"
EXAMPLE_FOLDER = "output/sample-0123456789ab"
EXAMPLES = [code for code in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """chunks.jsonl and docling.json of a small report."""
    page = (
        element("section_header", "1 Losses", level=1),
        element("text", "Water that was produced but not sold fell from 14.1 to 11.6 per cent. " * 9),
        element("section_header", "2 Pumps", level=1),
        element("table", table=plain_table(["Pump", "Flow"], ["North", "12.5"], header=True)),
    )
    inputs = WriterInput(build_document(checkpoint(1, *page)))
    for name in (Format.CHUNKS, Format.DOCLING):
        writer = WRITERS[name]
        assert writer.write
        (tmp_path / writer.name).write_bytes(writer.write(inputs))
    return tmp_path


def test_there_is_an_example_for_each_library() -> None:
    """The page has one example each for LangChain, LlamaIndex and Docling."""
    assert [next(n for n in ("langchain", "llama_index", "docling") if n in code) for code in EXAMPLES] == [
        "langchain",
        "llama_index",
        "docling",
    ]


@pytest.mark.parametrize("code", EXAMPLES, ids=["langchain", "llama_index", "docling"])
def test_an_example_runs(code: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each example runs word for word, except for the folder, and finds some text of the document."""
    assert EXAMPLE_FOLDER in code

    exec(compile(code.replace(EXAMPLE_FOLDER, str(folder)), "retrieval.md", "exec"), {})

    output = capsys.readouterr().out
    assert "1" in output and re.search(r"Water that was produced|Losses|Pump", output)
