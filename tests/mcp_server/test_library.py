"""What a model may read, and what is answered from what was read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.documents import build_document, checkpoint, element, heading
from twopass.document import Cell, Table
from twopass.errors import Code, RequestError
from twopass.mcp_server import library
from twopass.mcp_server.library import Library
from twopass.settings import Settings


def store_chunks(output: Path, document: str, *texts: str) -> None:
    (output / document).mkdir()
    rows = [{"document": document, "section_path": [], "text": text} for text in texts]
    (output / document / "chunks.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_search_finds_the_passages_with_most_of_the_words(tmp_path: Path) -> None:
    """Case, width and word endings do not matter; the passage with more of the words comes first."""
    store_chunks(tmp_path, "a", "The notice period.", "Kündigungsfrist: THREE months of notice")
    store_chunks(tmp_path, "b", "Nothing of it", "ｎｏｔｉｃｅ")
    shelf = Library([], tmp_path, Settings())

    def find(query: str, **more: Any) -> list[str]:
        return [hit["text"] for hit in shelf.search(query, more.get("document"), more.get("limit", 10))]

    assert find("three notice") == ["Kündigungsfrist: THREE months of notice", "The notice period.", "ｎｏｔｉｃｅ"]
    assert find("kündigung") == ["Kündigungsfrist: THREE months of notice"]
    assert find("notice", document="b") == ["ｎｏｔｉｃｅ"]
    assert find("notice", limit=1) == ["The notice period."]


def test_a_table_becomes_rows_of_equal_length() -> None:
    """A cell over two columns is written once; commas, quotes and line breaks are quoted."""
    cells = (Cell(row=0, col=0, col_span=2, text='a "b", c'), Cell(row=1, col=0, text="1\n2"), Cell(row=1, col=1))

    assert library.to_csv(Table(html="", rows=2, cols=2, cells=cells)) == '"a ""b"", c",\n"1\n2",\n'


def test_pages_and_sections_select_elements() -> None:
    """A section includes its subsections; both together are what is in both; unknown ones are refused."""
    first = (heading("1 Terms", level=1), heading("1.1 Notice", level=2), element("text", "Three months."))
    second = (element("text", "More."), heading("2 Price", level=1), element("text", "Five."))
    document = build_document(checkpoint(1, *first), checkpoint(2, *second))

    def texts(page: int | None, section: str | None) -> list[str]:
        return [e.text for e in filter(library.select(document, page, section), document.elements)]

    assert texts(2, None) == ["More.", "2 Price", "Five."]
    assert texts(None, "s001") == ["1 Terms", "1.1 Notice", "Three months.", "More."]
    assert texts(2, "s001") == ["More."]
    for page, section in ((3, None), (None, "s009")):
        with pytest.raises(RequestError) as caught:
            texts(page, section)
        assert caught.value.code is Code.NOT_FOUND
