"""What a model may read, and what is answered from what was read."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.documents import build_document, checkpoint, element, heading
from twopass.api.reading import ReadOptions
from twopass.document import Cell, Table
from twopass.errors import Code, RequestError
from twopass.mcp_server import library
from twopass.mcp_server.library import Library
from twopass.settings import Settings
from twopass.telemetry.progress import Tracker


def store_chunks(output: Path, document: str, *texts: str, source: str = "https://example.com/a.pdf") -> None:
    (output / document).mkdir()
    rows = [{"document": document, "source": source, "section_path": [], "text": text} for text in texts]
    (output / document / "chunks.jsonl").write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows))


def test_search_finds_the_passages_with_most_of_the_words(tmp_path: Path) -> None:
    """Case, width and word endings do not matter; the passage with more of the words comes first."""
    store_chunks(tmp_path, "a", "The notice period.", "Kündigungsfrist: THREE months of notice")
    store_chunks(tmp_path, "b", "Nothing\u2028of it", "ｎｏｔｉｃｅ")
    shelf = Library([], tmp_path, Settings())

    def find(query: str, **more: Any) -> list[str]:
        return [hit.text for hit in shelf.search(query, more.get("document"))]

    assert find("three notice") == ["Kündigungsfrist: THREE months of notice", "The notice period.", "ｎｏｔｉｃｅ"]
    assert find("kündigung") == ["Kündigungsfrist: THREE months of notice"]
    assert find("notice", document="b") == ["ｎｏｔｉｃｅ"]
    assert find("three " * 200_000) == ["Kündigungsfrist: THREE months of notice"]


@pytest.mark.parametrize("damage", ["{", "[]", "{}", '{"document": 7}', "\ufffd", ""], ids=str)
def test_a_damaged_document_hides_no_other(damage: str, tmp_path: Path) -> None:
    """It is not found, and asked for by its id, it is unknown."""
    store_chunks(tmp_path, "a", "Three months of notice.")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "chunks.jsonl").write_text(f"{damage}\n")
    (tmp_path / "folder" / "chunks.jsonl").mkdir(parents=True)
    shelf = Library([], tmp_path, Settings())

    assert [hit.document for hit in shelf.search("notice", None)] == ["a"]
    for name in ("damaged", "folder"):
        with pytest.raises(RequestError, match="NOT_FOUND: document"):
            shelf.search("notice", name)


def test_documents_of_other_folders_are_not_shown(tmp_path: Path) -> None:
    """The output may hold what was read of files that are not allowed: neither a search nor an id shows them."""
    allowed, output = tmp_path / "allowed", tmp_path / "read"
    for folder in (allowed / "deep", output, tmp_path / "allowed2"):
        folder.mkdir(parents=True)
    (tmp_path / "secret.pdf").write_text("")
    (allowed / "link.pdf").symlink_to(tmp_path / "secret.pdf")
    (allowed / "ring.pdf").symlink_to(allowed / "ring.pdf")
    sources = {
        "inside": str(allowed / "deep" / "a.pdf"),
        "address": "s3://bucket/a.pdf",
        "beside": str(tmp_path / "allowed2" / "a.pdf"),
        "above": f"{allowed}/../secret.pdf",
        "link": str(allowed / "link.pdf"),
        "ring": str(allowed / "ring.pdf"),
        "relative": "deep/a.pdf",
    }
    page = checkpoint(1, element("text", "Three months of notice."))
    for name, source in sources.items():
        store_chunks(output, name, "Three months of notice.", source=source)
        stored = build_document(page)
        stored = stored.model_copy(update={"id": name, "source": stored.source.model_copy(update={"uri": source})})
        (output / name / "document.json").write_text(stored.model_dump_json())
    shelf = Library([allowed.resolve()], output, Settings())

    def is_shown(call: Callable[[], object]) -> bool:
        try:
            return bool(call())
        except RequestError as error:
            assert error.code is Code.NOT_FOUND
            return False

    assert {hit.document for hit in shelf.search("notice", None)} == {"inside", "address"}
    assert {name for name in sources if is_shown(partial(shelf.load, name))} == {"inside", "address"}
    assert {name for name in sources if is_shown(partial(shelf.search, "notice", name))} == {"inside", "address"}


async def test_more_documents_than_may_wait_are_refused(tmp_path: Path) -> None:
    """As in `serve`: CONCURRENCY are read and SERVE_QUEUE wait."""
    shelf = Library([tmp_path.resolve()], tmp_path / "read", Settings(concurrency=1, serve_queue=1))
    (tmp_path / "a.pdf").write_bytes(b"")
    options: ReadOptions = {}

    with shelf._reserve(), shelf._reserve(), pytest.raises(RequestError) as caught:
        await shelf.read("a.pdf", options, Tracker(lambda progress: None))

    assert caught.value.code is Code.QUEUE_FULL and "try again later" in caught.value.message


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
