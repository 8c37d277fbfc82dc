"""The sample document, read by the whole pipeline, against its ground truth: words, order, tables, sections, links."""

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
from filelock import FileLock

from tests import ROOT
from twopass import pipeline
from twopass.document import Document, Element, Kind, Layer, Section
from twopass.engines.cpu.engine import CpuEngine
from twopass.families import registry
from twopass.formats import chunks, docjson, docling
from twopass.formats.writer_input import WriterInput
from twopass.job import EntryPoint, Job
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
class ReadSample:
    folder: Path
    document: Document
    markdown: str

    def page(self, number: int) -> str:
        """Return the markdown between two page marks."""
        return self.markdown.split(f"<!-- page: {number} -->")[1].partition("<!-- page: ")[0]


@pytest.fixture(scope="session")
async def sample(
    page_pool: PagePool, buffers: PixelBufferPool, tmp_path_factory: pytest.TempPathFactory, testrun_uid: str
) -> ReadSample:
    """Read once, by the first of the processes that run the tests."""
    output = tmp_path_factory.getbasetemp().parent / f"sample-{testrun_uid}"
    with FileLock(f"{output}.lock"):
        if not output.exists():
            await read_sample(page_pool, buffers, output)
    (folder,) = output.glob("sample-*")
    document = docjson.loads((folder / "document.json").read_bytes())
    return ReadSample(folder, document, (folder / "document.md").read_text())


async def read_sample(page_pool: PagePool, buffers: PixelBufferPool, output: Path) -> None:
    engine = CpuEngine(2)
    await engine.open(page_pool)
    loop = asyncio.get_running_loop()
    worker = Worker(Settings(), engine, registry.get_family("layout"), page_pool, buffers, PageSlots(4), loop)
    job = Job.parse(
        {"input": {"source": str(SAMPLES / "sample.pdf"), "output": str(output)}}, worker.settings, EntryPoint.LOCAL
    )
    await pipeline.run(job, worker, Tracker())


def split_words(text: str) -> list[str]:
    """Return Latin words, numbers and single CJK characters, because spaces are not reliable in CJK text."""
    text = re.sub(r"\[\^\d+\]:?|[\\$|]|<[^>]+>", " ", text)
    return re.findall(r"[가-힣\u4e00-\u9fff]|[^\W_가-힣\u4e00-\u9fff]+", text.lower())


def measure_recall(truth: str, text: str) -> float:
    expected, found = Counter(split_words(truth)), Counter(split_words(text))
    return sum((expected & found).values()) / sum(expected.values())


def measure_order(truth: str, text: str) -> float:
    """Return the share of neighbouring words of the truth that are neighbours in the text."""
    expected, found = split_words(truth), split_words(text)
    expected_pairs = Counter(zip(expected, expected[1:], strict=False))
    found_pairs = Counter(zip(found, found[1:], strict=False))
    return sum((expected_pairs & found_pairs).values()) / sum(expected_pairs.values())


async def test_every_word_of_the_born_digital_pages_is_in_the_markdown(sample: ReadSample) -> None:
    """Recall is at least 0.99 over the pages with a text layer, rotated pages included."""
    truth = "\n".join(page["text"] for page in BORN_DIGITAL)

    assert measure_recall(truth, sample.markdown) >= 0.99


async def test_the_words_of_the_scanned_page_are_read(sample: ReadSample) -> None:
    """At least nine of ten words of the skewed, noisy scan are found on its own page."""
    scan = next(page for page in TRUTH["pages"] if page["kind"] == "scanned")

    assert measure_recall(scan["text"], sample.page(scan["number"])) >= 0.90


@pytest.mark.parametrize("page", [p for p in TRUTH["pages"] if p["text"]], ids=lambda page: f"page-{page['number']}")
async def test_words_are_in_reading_order(sample: ReadSample, page: dict[str, Any]) -> None:
    """Neighbouring words stay neighbours on every page; text that continues on another page may be on either."""
    page_and_next = "\n".join(sample.page(n) for n in (page["number"], page["number"] + 1) if n <= len(TRUTH["pages"]))
    before = sample.page(page["number"] - 1) if page["number"] > 1 else ""

    assert measure_order(page["text"], before + page_and_next) >= 0.93


async def test_the_two_columns_are_read_one_after_the_other(sample: ReadSample) -> None:
    """The headings of page 2 come in the order of its columns."""
    titles = [h["title"] for h in TRUTH["headings"] if h["page"] == 2]
    places = [sample.page(2).find(title) for title in titles]

    assert -1 not in places
    assert places == sorted(places)


async def test_every_table_cell_is_in_its_place(sample: ReadSample) -> None:
    """Every table cell has its row, column, spans and text: in ruled, unruled, rotated and continued tables."""
    tables = [element.table for element in sample.document.elements if element.kind is Kind.TABLE and element.table]
    expected = [[to_cell(cell) for cell in table["cells"]] for table in TRUTH["tables"]]

    found = [[to_cell(cell.model_dump()) for cell in table.cells] for table in tables]

    assert [sorted(cells) for cells in found] == [sorted(cells) for cells in expected]


def to_cell(cell: dict[str, Any]) -> tuple[int, int, int, int, str]:
    return cell["row"], cell["col"], cell["row_span"], cell["col_span"], " ".join(cell["text"].split())


async def test_the_section_tree_matches_the_document(sample: ReadSample) -> None:
    """Numbers, titles, levels and nesting of the sections are those of the ground truth."""

    def plain(section: Section) -> dict[str, Any]:
        children = [plain(child) for child in section.children]
        return {"number": section.number, "title": section.title, "level": section.level, "children": children}

    assert [plain(section) for section in sample.document.sections] == TRUTH["sections"]


async def test_running_headers_stay_out_of_the_markdown_and_in_docjson(sample: ReadSample) -> None:
    """Running headers and footers are elements of the DocJSON and are left out of the markdown."""
    furniture = {element.text for element in sample.document.elements if element.content_layer is Layer.FURNITURE}

    assert {"Lindach Valley Water Board", "Annual Report 2024", "Page 3 of 12"} <= furniture
    assert "Page 3 of 12" not in sample.markdown
    assert sample.markdown.count("Annual Report 2024") == 0


async def test_every_image_link_resolves(sample: ReadSample) -> None:
    """Every image link of the markdown leads to a PNG file, and every figure of the truth has one."""
    tokens = markdown_it.MarkdownIt().parse(sample.markdown)
    links = [child.attrGet("src") for token in tokens for child in token.children or () if child.type == "image"]

    assert len(links) == len(TRUTH["figures"])
    assert all((sample.folder / str(link)).read_bytes().startswith(b"\x89PNG") for link in links)


async def test_captions_are_linked_to_their_figures_and_tables(sample: ReadSample) -> None:
    """Every caption is linked to its figure or table, and that links back to the caption."""
    by_id = {element.id: element for element in sample.document.elements}
    captions = {table["caption"] for table in TRUTH["tables"]} | {figure["caption"] for figure in TRUTH["figures"]}

    owners = {e.text: by_id[e.parent_id] for e in sample.document.elements if e.kind is Kind.CAPTION and e.parent_id}

    assert set(owners) == captions
    assert all(is_linked_caption(text, element) for text, element in owners.items())


def is_linked_caption(caption: str, element: Element) -> bool:
    return (element.kind is Kind.TABLE) == caption.startswith("Table") and bool(element.caption_ids)


async def test_footnotes_are_elements_and_markdown_footnotes(sample: ReadSample) -> None:
    """Each footnote is one element on its page and a markdown footnote with its mark."""
    notes = [element for element in sample.document.elements if element.kind is Kind.FOOTNOTE]

    assert [note.page for note in notes] == [note["page"] for note in TRUTH["footnotes"]]
    assert all(f"[^{note['mark']}]: {note['text']}" in sample.markdown for note in TRUTH["footnotes"])


async def test_text_and_tables_that_continue_are_linked_and_joined(sample: ReadSample) -> None:
    """The parts of paragraphs and tables split by columns or pages are linked, and hyphenated words are joined."""
    by_id = {element.id: element for element in sample.document.elements}
    links = [(e, by_id[e.continues]) for e in sample.document.elements if e.continues]
    without_bars = re.sub(r"^ | $", "", re.sub(r" ?\| ?", " ", sample.markdown), flags=re.MULTILINE)

    assert len(links) == len(TRUTH["continues"])
    for truth, (element, before) in zip(TRUTH["continues"], links, strict=True):
        assert (before.page, element.page) == (truth["from_page"], truth["to_page"])
        assert before.continued_by == element.id
        assert truth["joined"] in without_bars


async def test_pages_say_how_they_were_rotated(sample: ReadSample) -> None:
    """The sideways page reports the rotation applied to it; the page with /Rotate is not rotated again."""
    rotations = [page.rotation_applied for page in sample.document.pages]

    assert rotations == [page["rotation_applied"] for page in TRUTH["pages"]]


async def test_only_the_blank_page_is_not_read(sample: ReadSample) -> None:
    """The blank page ends in state blank, all others in state read."""
    states = [page.state for page in sample.document.pages]

    assert states == ["blank" if page["kind"] == "blank" else "read" for page in TRUTH["pages"]]


async def test_keywords_are_in_the_script_of_their_paragraph(sample: ReadSample) -> None:
    """The Korean and Chinese paragraphs of page 8 have keywords in their own script."""
    keywords = " ".join(k for e in sample.document.elements if e.page == 8 for k in e.keywords)

    assert re.search("[가-힣]{2}", keywords)
    assert re.search("[\u4e00-\u9fff]{2}", keywords)


async def test_long_texts_and_sections_have_keywords_and_a_summary(sample: ReadSample) -> None:
    """Every long body text and every section has keywords and a summary; those of texts are marked as derived."""
    long = [e for e in sample.document.elements if e.is_body and e.kind is Kind.TEXT and len(e.text) > 200]

    assert len(long) > 20
    assert all(5 <= len(e.keywords) <= 10 and e.summary and e.analysis.source == "derived" for e in long)
    assert all(section.summary and section.keywords for section in flatten(sample.document.sections))


def flatten(tree: tuple[Section, ...]) -> list[Section]:
    return [descendant for section in tree for descendant in (section, *flatten(section.children))]


async def test_doclings_chunker_keeps_headings_pages_and_words(sample: ReadSample) -> None:
    """Docling's chunks name headings and pages of the document and contain 99 % of the words of its body text."""
    converted = docling.convert(sample.document)

    found_chunks = list(HierarchicalChunker().chunk(converted))

    titles = {title for section in flatten(sample.document.sections) for title in section.path}
    text = "\n".join(chunk.text for chunk in found_chunks)
    prose = [e for e in sample.document.elements if e.is_body and e.kind is Kind.TEXT and not e.continues]
    assert len(found_chunks) > 60
    assert {place.page_no for chunk in found_chunks for item in chunk.meta.doc_items for place in item.prov} == {
        *range(1, 13)
    } - {11}
    assert (
        sum(any(title in heading for title in titles) for c in found_chunks for heading in c.meta.headings or ()) > 60
    )
    assert measure_recall("\n".join(e.text for e in prose), text) >= 0.99
    assert docling.loads(docling.write(WriterInput(sample.document))) == sample.document


async def test_chunks_have_their_pages_sections_links_and_figures(sample: ReadSample) -> None:
    """The chunks have Korean keywords, the table over two pages with its caption, the link and the figures."""
    rows = [json.loads(line) for line in chunks.write(WriterInput(sample.document)).decode().splitlines()]
    works = next(row for row in rows if "Table 3: Larger works in 2024" in row["text"])

    assert re.search("[가-힣]", " ".join(k for row in rows for k in row["keywords"]))
    assert works["pages"] == [4, 5] and works["section_path"] == ["Operation in 2024", "Works carried out"]
    assert [uri for row in rows for uri in row["links"]] == ["https://www.example.org/lindach-water"]
    assert len([f for row in rows for f in row["figures"] if f["caption"] and f["caption"].startswith("Figure")]) == 3
    assert all(row["tokens"] <= 512 and row["keywords"] and row["summary"] for row in rows)
    assert all(sample.markdown[slice(*row["md_span"])] for row in rows)
