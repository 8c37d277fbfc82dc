"""The loaders with the real packages, and the examples of docs/retrieval.md, which run unchanged."""

from __future__ import annotations

import re
from pathlib import Path

import pymupdf
import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

from tests import ROOT
from tests.fakes.documents import build_document, checkpoint, element, plain_table
from twopass import Settings
from twopass.errors import InvalidJob, SourceError
from twopass.formats.registry import WRITERS
from twopass.formats.writer_input import WriterInput
from twopass.integrations.langchain import TwopassLoader
from twopass.integrations.llama_index import TwopassReader
from twopass.job import Format

PAGE = ROOT / "docs" / "retrieval.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
SETTINGS = Settings(page_workers=1)
OTHER = Settings(page_workers=1, worker_calls=999)  # an engine that is not started yet


def draw_report(path: Path, place: str) -> None:
    """Two pages, each with a heading and a text."""
    with pymupdf.open() as pdf:
        for number, title in enumerate(("Losses", "Pumps"), start=1):
            page = pdf.new_page()
            page.insert_text((72, 90), f"{number} {title}", fontsize=20, fontname="hebo")
            page.insert_text((72, 130), f"{title} of {place}: water that was produced but not sold fell.", fontsize=11)
        pdf.save(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`contracts` with two reports, a damaged file and a text, in a folder of its own."""
    folder = tmp_path_factory.mktemp("index") / "contracts"
    folder.mkdir()
    draw_report(folder / "a.pdf", "Aberdeen")
    draw_report(folder / "b.pdf", "Bath")
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 and nothing more")
    (folder / "notes.txt").write_text("no document")
    return folder


def test_a_folder_is_loaded_page_by_page_with_places_and_states(folder: Path) -> None:
    """Each page is a document of LangChain's own class; what was not read is a problem and ends nothing."""
    loader = TwopassLoader(folder, unit="page", settings=SETTINGS)
    documents = loader.load()

    assert [document.id for document in documents] == [
        f"{document.metadata['document']}/p000{document.metadata['page']}" for document in documents
    ]
    assert [(Path(d.metadata["source"]).name, d.metadata["page"]) for d in documents] == [
        ("a.pdf", 1), ("a.pdf", 2), ("b.pdf", 1), ("b.pdf", 2),
    ]  # fmt: skip
    first = documents[0]
    assert "Losses of Aberdeen" in first.page_content and "Pumps" not in first.page_content
    assert first.metadata["state"] == "read" and not first.metadata["has_loss"] and first.metadata["boxes"]
    problems = "\n".join(loader.problems)
    assert "notes.txt: not read" in problems and re.search(r"broken\.pdf: \w+: ", problems)


def test_chunks_have_the_headings_above_their_text_and_their_pages(folder: Path) -> None:
    """Loading is lazy: the first chunk comes before the second document is read, and ids do not change."""
    loader = TwopassLoader([folder / "a.pdf", folder / "broken.pdf"], settings=SETTINGS, chunks={"min_tokens": 0})
    lazily = loader.lazy_load()
    first = next(lazily)
    assert loader.problems == []
    rest = list(lazily)

    assert first.page_content.startswith("1 Losses\n\n") or "Losses" in first.metadata["section_path"][0]
    assert first.metadata["pages"] == [1] and first.metadata["boxes"] and first.metadata["state"] == "read"
    assert rest and len({first.id, *(document.id for document in rest)}) == 1 + len(rest)
    assert len(loader.problems) == 1


def test_the_same_call_goes_on_where_an_earlier_one_ended(folder: Path, tmp_path: Path) -> None:
    """Documents that are in the output are loaded without an engine, and equal what the first call gave."""
    lazily = TwopassLoader(folder / "a.pdf", output=tmp_path, settings=SETTINGS).lazy_load()
    first = [next(lazily), *lazily]
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("pages/*.json")}
    again = TwopassLoader(folder / "a.pdf", output=tmp_path, settings=OTHER).load()

    assert again == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("pages/*.json")} == written


def test_a_missing_file_ends_nothing(folder: Path) -> None:
    """In both libraries it is a problem with its code, and the sources after it are loaded."""
    sources = [folder / "missing.pdf", folder / "a.pdf"]
    loader, reader = TwopassLoader(sources, settings=SETTINGS), TwopassReader(settings=SETTINGS)

    assert loader.load() and reader.load_data(sources)
    assert loader.problems == reader.problems
    assert re.search(r"missing\.pdf: SOURCE_NOT_FOUND: ", loader.problems[0]) and len(loader.problems) == 1
    with pytest.raises(SourceError, match=r"missing\.pdf"):  # nothing else was named
        TwopassLoader(folder / "missing.pdf", settings=SETTINGS).load()


def test_a_wrong_option_is_refused_before_anything_is_read(folder: Path) -> None:
    """The message names the option."""
    with pytest.raises(InvalidJob, match="unit: 'line'"):
        TwopassLoader(folder, unit="line")
    with pytest.raises(InvalidJob, match="page: not an option"):
        TwopassLoader(folder, settings=SETTINGS, page="1").load()  # type: ignore[call-arg]


def test_a_store_holds_each_chunk_once(folder: Path) -> None:
    """Loading a folder twice into a store of LangChain replaces its documents."""
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=16))
    for _ in range(2):
        store.add_documents(TwopassLoader(folder / "b.pdf", settings=SETTINGS, unit="page").load())

    assert len(store.store) == 2


def test_llama_index_sees_no_boxes(folder: Path) -> None:
    """Its documents have all metadata, of which embeddings and models see title, section and page."""
    reader = TwopassReader(settings=SETTINGS)
    (document, *_) = reader.load_data(folder / "a.pdf")

    assert document.metadata["boxes"] and document.metadata["source"].endswith("a.pdf")
    assert "boxes" not in document.get_content(metadata_mode="embed")
    assert "page: 1" in document.get_content(metadata_mode="llm")


def test_there_is_an_example_for_each_library() -> None:
    """The page has one example each for LangChain, LlamaIndex and Docling."""
    names = [next(name for name in ("langchain", "llama_index", "docling") if name in code) for code in EXAMPLES]

    assert names == ["langchain", "llama_index", "docling"]


@pytest.mark.parametrize("code", EXAMPLES[:2], ids=["langchain", "llama_index"])
def test_an_example_of_a_loader_runs(
    code: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs word for word beside a folder `contracts`, finds some text, and says what could not be read.

    Run again, it reads no page.
    """
    monkeypatch.chdir(folder.parent)

    def list_pages() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in (folder.parent / "contracts-read").rglob("*.json")}

    exec(compile(code, "retrieval.md", "exec"), {})
    written = list_pages()
    exec(compile(code, "retrieval.md", "exec"), {})

    output = capsys.readouterr().out
    assert len([path for path in written if path.parent.name == "pages"]) == 4 and list_pages() == written
    assert re.search(r"water that was produced|Losses|Pumps", output) and "broken.pdf" in output


def test_the_example_of_doclings_chunkers_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It runs word for word, except for the folder."""
    page = (element("section_header", "2 Pumps", level=1), element("table", table=plain_table(["A", "B"], ["1", "2"])))
    writer = WRITERS[Format.DOCLING]
    assert writer.write
    (tmp_path / writer.name).write_bytes(writer.write(WriterInput(build_document(checkpoint(1, *page)))))
    assert "output/sample-0123456789ab" in EXAMPLES[2]

    exec(compile(EXAMPLES[2].replace("output/sample-0123456789ab", str(tmp_path)), "retrieval.md", "exec"), {})

    assert "Pumps" in capsys.readouterr().out
