"""The sample document against its ground truth: words, order, tables, sections, links, through the whole flow."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import markdown_it
import pytest
from docling_core.transforms.chunker import HierarchicalChunker

from tests import ROOT
from twopass import pipeline
from twopass.document import Document, Element, Kind, Layer, Section
from twopass.engines.cpu.engine import CpuEngine
from twopass.families import registry
from twopass.formats import chunks, docjson, docling
from twopass.formats.draft import Draft
from twopass.job import Door, Job
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool
from twopass.runtime.page_slots import PageSlots
from twopass.settings import Settings
from twopass.telemetry.progress import Tracker
from twopass.worker import Worker

SAMPLES = ROOT / "samples"
TRUTH: dict[str, Any] = json.loads((SAMPLES / "sample.truth.json").read_text())
BORN_DIGITAL = [page for page in TRUTH["pages"] if page["kind"] in ("born_digital", "rotated", "sideways")]


@dataclass(frozen=True)
class Read:
    folder: Path
    document: Document
    markdown: str

    def page(self, number: int) -> str:
        """The markdown between two page marks."""
        return self.markdown.split(f"<!-- page: {number} -->")[1].partition("<!-- page: ")[0]


@pytest.fixture(scope="session")
async def read(page_pool: PagePool, buffers: PixelBufferPool, tmp_path_factory: pytest.TempPathFactory) -> Read:
    output = tmp_path_factory.mktemp("sample")
    engine = CpuEngine(2)
    await engine.open(page_pool)
    loop = asyncio.get_running_loop()
    worker = Worker(Settings(), engine, registry.named("layout"), page_pool, buffers, PageSlots(4), loop)
    job = Job.parse(
        {"input": {"source": str(SAMPLES / "sample.pdf"), "output": str(output)}}, worker.settings, Door.LOCAL
    )
    result = await pipeline.run(job, worker, Tracker())
    folder = output / str(result.documents[0].id)
    document = docjson.loads((folder / "document.json").read_bytes())
    return Read(folder, document, (folder / "document.md").read_text())


def words(text: str) -> list[str]:
    """Latin words and numbers, and every CJK character: those scripts set no spaces that can be trusted."""
    text = re.sub(r"\[\^\d+\]:?|[\\$|]|<[^>]+>", " ", text)
    return re.findall(r"[가-힣\u4e00-\u9fff]|[^\W_가-힣\u4e00-\u9fff]+", text.lower())


def recall(truth: str, text: str) -> float:
    wanted, found = Counter(words(truth)), Counter(words(text))
    return sum((wanted & found).values()) / sum(wanted.values())


def order(truth: str, text: str) -> float:
    """Share of neighbouring words of the truth that are neighbours in the text."""
    wanted, found = words(truth), words(text)
    pairs, there = Counter(zip(wanted, wanted[1:], strict=False)), Counter(zip(found, found[1:], strict=False))
    return sum((pairs & there).values()) / sum(pairs.values())


async def test_every_word_of_the_born_digital_pages_is_in_the_markdown(read: Read) -> None:
    """Recall is at least 0.99 over the pages that have a text layer, the turned ones included."""
    truth = "\n".join(page["text"] for page in BORN_DIGITAL)

    assert recall(truth, read.markdown) >= 0.99


async def test_the_scanned_pages_words_are_read(read: Read) -> None:
    """The skewed, noisy scan keeps at least nine words of ten, on its own page."""
    scan = next(page for page in TRUTH["pages"] if page["kind"] == "scanned")

    assert recall(scan["text"], read.page(scan["number"])) >= 0.90


@pytest.mark.parametrize("page", [p for p in TRUTH["pages"] if p["text"]], ids=lambda page: f"page-{page['number']}")
async def test_words_stand_in_reading_order(read: Read, page: dict[str, Any]) -> None:
    """Neighbours stay neighbours on every page; what runs over two pages may stand on either."""
    around = "\n".join(read.page(n) for n in (page["number"], page["number"] + 1) if n <= len(TRUTH["pages"]))
    before = read.page(page["number"] - 1) if page["number"] > 1 else ""

    assert order(page["text"], before + around) >= 0.93


async def test_the_two_columns_are_read_one_after_the_other(read: Read) -> None:
    """Headings of page 2 come in the order of the columns."""
    titles = [h["title"] for h in TRUTH["headings"] if h["page"] == 2]
    places = [read.page(2).find(title) for title in titles]

    assert -1 not in places
    assert places == sorted(places)


async def test_every_table_cell_is_in_its_place(read: Read) -> None:
    """Row, column, spans and text of every cell of every table, ruled, unruled, turned and continued."""
    tables = [element.table for element in read.document.elements if element.kind is Kind.TABLE and element.table]
    wanted = [[cell_of(cell) for cell in table["cells"]] for table in TRUTH["tables"]]

    found = [[cell_of(cell.model_dump()) for cell in table.cells] for table in tables]

    assert [sorted(cells) for cells in found] == [sorted(cells) for cells in wanted]


def cell_of(cell: dict[str, Any]) -> tuple[int, int, int, int, str]:
    return cell["row"], cell["col"], cell["row_span"], cell["col_span"], " ".join(cell["text"].split())


async def test_the_section_tree_is_the_documents(read: Read) -> None:
    """Numbers, titles, levels and nesting are those of the ground truth."""

    def plain(section: Section) -> dict[str, Any]:
        children = [plain(child) for child in section.children]
        return {"number": section.number, "title": section.title, "level": section.level, "children": children}

    assert [plain(section) for section in read.document.sections] == TRUTH["sections"]


async def test_running_headers_stay_out_of_the_markdown_and_in_docjson(read: Read) -> None:
    """Furniture is data, not text."""
    furniture = {element.text for element in read.document.elements if element.content_layer is Layer.FURNITURE}

    assert {"Lindach Valley Water Board", "Annual Report 2024", "Page 3 of 12"} <= furniture
    assert "Page 3 of 12" not in read.markdown
    assert read.markdown.count("Annual Report 2024") == 0


async def test_every_image_link_resolves(read: Read) -> None:
    """Each picture of the markdown lies beside it, and each figure of the truth has one."""
    tokens = markdown_it.MarkdownIt().parse(read.markdown)
    links = [child.attrGet("src") for token in tokens for child in token.children or () if child.type == "image"]

    assert len(links) == len(TRUTH["figures"])
    assert all((read.folder / str(link)).read_bytes().startswith(b"\x89PNG") for link in links)


async def test_captions_stand_with_what_they_explain(read: Read) -> None:
    """Every caption of a figure or table is tied to it, and it to the caption."""
    by_id = {element.id: element for element in read.document.elements}
    captions = {table["caption"] for table in TRUTH["tables"]} | {figure["caption"] for figure in TRUTH["figures"]}

    tied = {e.text: by_id[e.parent_id] for e in read.document.elements if e.kind is Kind.CAPTION and e.parent_id}

    assert set(tied) == captions
    assert all(matches(text, element) for text, element in tied.items())


def matches(caption: str, element: Element) -> bool:
    return (element.kind is Kind.TABLE) == caption.startswith("Table") and bool(element.caption_ids)


async def test_footnotes_are_footnotes(read: Read) -> None:
    """Each note is one element of its page and a markdown footnote with its mark."""
    notes = [element for element in read.document.elements if element.kind is Kind.FOOTNOTE]

    assert [note.page for note in notes] == [note["page"] for note in TRUTH["footnotes"]]
    assert all(f"[^{note['mark']}]: {note['text']}" in read.markdown for note in TRUTH["footnotes"])


async def test_what_runs_on_is_linked_and_joined(read: Read) -> None:
    """Paragraphs over columns and pages and the table over two pages are linked; hyphenated words are whole."""
    by_id = {element.id: element for element in read.document.elements}
    links = [(e, by_id[e.continues]) for e in read.document.elements if e.continues]
    without_bars = re.sub(r"^ | $", "", re.sub(r" ?\| ?", " ", read.markdown), flags=re.MULTILINE)

    assert len(links) == len(TRUTH["continues"])
    for truth, (element, before) in zip(TRUTH["continues"], links, strict=True):
        assert (before.page, element.page) == (truth["from_page"], truth["to_page"])
        assert before.continued_by == element.id
        assert truth["joined"] in without_bars


async def test_pages_say_how_they_were_turned(read: Read) -> None:
    """The page that lies sideways is turned, the one with /Rotate is not turned again."""
    turned = [page.rotation_applied for page in read.document.pages]

    assert turned == [page["rotation_applied"] for page in TRUTH["pages"]]


async def test_every_page_ends_in_its_state(read: Read) -> None:
    """The blank page is blank, all others are read."""
    states = [page.state for page in read.document.pages]

    assert states == ["blank" if page["kind"] == "blank" else "read" for page in TRUTH["pages"]]


async def test_pages_know_their_language(read: Read) -> None:
    """Korean and Chinese paragraphs keep their keywords, in their own script."""
    keywords = " ".join(k for e in read.document.elements if e.page == 8 for k in e.keywords)

    assert re.search("[가-힣]{2}", keywords)
    assert re.search("[\u4e00-\u9fff]{2}", keywords)


async def test_every_element_is_analysed(read: Read) -> None:
    """Body text has keywords and a summary, marked as derived."""
    long = [e for e in read.document.elements if e.is_body and e.kind is Kind.TEXT and len(e.text) > 200]

    assert len(long) > 20
    assert all(5 <= len(e.keywords) <= 10 and e.summary and e.analysis.source == "derived" for e in long)
    assert all(section.summary and section.keywords for section in flattened(read.document.sections))


def flattened(tree: tuple[Section, ...]) -> list[Section]:
    return [one for section in tree for one in (section, *flattened(section.children))]


async def test_doclings_chunkers_run_on_it(read: Read) -> None:
    """Every chunk stands below headings of the document and on pages of it, and no word of the body's prose is lost."""
    told = docling.converted(read.document)

    found = list(HierarchicalChunker().chunk(told))

    titles = {title for section in flattened(read.document.sections) for title in section.path}
    text = "\n".join(chunk.text for chunk in found)
    prose = [e for e in read.document.elements if e.is_body and e.kind is Kind.TEXT and not e.continues]
    assert len(found) > 60
    assert {place.page_no for chunk in found for item in chunk.meta.doc_items for place in item.prov} == {
        *range(1, 13)
    } - {11}
    assert sum(any(title in heading for title in titles) for c in found for heading in c.meta.headings or ()) > 60
    assert recall("\n".join(e.text for e in prose), text) >= 0.99
    assert docling.loads(docling.write(Draft(read.document))) == read.document


async def test_its_chunks_tell_where_they_stand(read: Read) -> None:
    """Three languages, the table over two pages with its caption, the link and the figures."""
    rows = [json.loads(line) for line in chunks.write(Draft(read.document)).decode().splitlines()]
    works = next(row for row in rows if "Table 3: Larger works in 2024" in row["text"])

    assert re.search("[가-힣]", " ".join(k for row in rows for k in row["keywords"]))
    assert works["pages"] == [4, 5] and works["section_path"] == ["Operation in 2024", "Works carried out"]
    assert [uri for row in rows for uri in row["links"]] == ["https://www.example.org/lindach-water"]
    assert len([f for row in rows for f in row["figures"] if f["caption"] and f["caption"].startswith("Figure")]) == 3
    assert all(row["tokens"] <= 512 and row["keywords"] and row["summary"] for row in rows)
    assert all(read.markdown[slice(*row["md_span"])] for row in rows)
