"""chunks.jsonl holds every word in chunks within the limit, each with its place in the document."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import html

from tests.fakes.documents import MIDDLE, build_document, checkpoint, documents, element, plain_table, texts
from twopass.document import Box, Cell, Document, Element, Kind, Link, Table
from twopass.format_options import Chunks, FormatOptions, Furniture, Markdown
from twopass.formats import chunks, markdown, splitting
from twopass.formats.writer_input import WriterInput
from twopass.steps import enrich
from twopass.text import prose

ENGLISH = "The upper spring rises below the old quarry and was first measured in the dry summer of 1921. "
KOREAN = "상수도 위원회는 저수지의 수위를 매주 두 번 측정하고 그 결과를 기록부에 적는다. "
CHINESE = "水务局每周测量两次水库的水位，并将结果记录在册。山谷上方的泉水在干旱的夏天首次被测量。"


def write_chunks(
    document: Document, max_tokens: int = 512, min_tokens: int = 0, **options: Any
) -> list[dict[str, Any]]:
    sizes = Chunks(max_tokens=max_tokens, min_tokens=min_tokens)
    inputs = WriterInput(document, FormatOptions(markdown=Markdown(**options), chunks=sizes))
    return [json.loads(line) for line in chunks.write(inputs).decode().splitlines()]


def report(*more: Element) -> Document:
    """A document of two chapters, the first with a subsection."""
    return build_document(
        checkpoint(
            1,
            element("title", "Water"),
            element("section_header", "1 Springs", level=1),
            element("text", ENGLISH * 2),
            element("section_header", "1.1 The upper spring", level=2),
            element("text", ENGLISH),
            element("section_header", "2 Pumps", level=1),
            element("text", ENGLISH),
            *more,
        )
    )


@given(documents(), st.sampled_from([64, 128, 512]), st.sampled_from(Furniture))
def test_no_word_is_lost_and_no_chunk_is_too_large(document: Document, max_tokens: int, furniture: Furniture) -> None:
    """Every word of document.md is in a chunk, ids are unique, and spans are within document.md."""
    found = write_chunks(document, max_tokens, max_tokens // 2, furniture=furniture)
    body = markdown.write(document, Markdown(page_marks=False, furniture=furniture))[0]
    text = markdown.write(document, Markdown(furniture=furniture))[0]

    words = {word for chunk in found for word in prose.split_words(chunk["text"])}

    assert set(prose.split_words(body)) <= words
    assert all(chunk["tokens"] == splitting.count_tokens(chunk["text"]) <= max_tokens for chunk in found)
    assert len({chunk["id"] for chunk in found}) == len(found)
    assert all(0 <= chunk["md_span"][0] < chunk["md_span"][1] <= len(text) for chunk in found)


@settings(max_examples=200)
@given(texts, st.integers(20, 80))
def test_splitting_a_block_loses_only_whitespace(block: str, limit: int) -> None:
    """The parts of a split block each fit and together hold everything but the whitespace between them."""
    block = (block + "\n") * 9
    parts = splitting.split(block, limit)

    assert "".join("".join(block[p.start : p.end].split()) for p in parts) == "".join(block.split())
    assert all(splitting.count_tokens(part.text) <= limit for part in parts)


def test_chunks_end_where_sections_end() -> None:
    """Each section is a chunk that has the headings above it and its exact span in document.md."""
    document = report()
    text = markdown.write(document)[0]

    found = write_chunks(document)

    assert [chunk["section_path"] for chunk in found] == [[], ["Springs"], ["Springs", "The upper spring"], ["Pumps"]]
    assert [text[slice(*chunk["md_span"])] for chunk in found] == [chunk["text"] for chunk in found]
    assert found[1]["text"].startswith("## 1 Springs\n\nThe upper spring rises")
    assert found[1]["id"] == "paper-0123456789ab/p0001-e001"
    assert found[1]["pages"] == [1] and found[1]["boxes"][0] == {"page": 1, "box": list(MIDDLE)}


def test_small_neighbours_below_one_heading_are_joined() -> None:
    """Small chunks are joined within a chapter; the title joins the first, and the path is what all share."""
    found = write_chunks(report(), min_tokens=200)

    assert [chunk["section_path"] for chunk in found] == [["Springs"], ["Pumps"]]
    assert found[0]["section_ids"] == ["s001", "s002"]
    assert "1.1 The upper spring" in found[0]["text"]


@pytest.mark.parametrize("sentence", [ENGLISH, KOREAN, CHINESE])
def test_a_long_paragraph_is_split_between_sentences(sentence: str) -> None:
    """English, Korean and Chinese are split between sentences; each part has its own span and summary."""
    enriched = enrich.page(checkpoint(1, element("text", sentence * 18)), None)
    document = build_document(enriched)
    text = markdown.write(document)[0]

    found = write_chunks(document, 128)

    assert len(found) > 2
    assert all(re.search(r"[.。]$", chunk["text"]) for chunk in found)
    assert [text[slice(*chunk["md_span"])] for chunk in found] == [chunk["text"] for chunk in found]
    assert [chunk["id"].partition("/")[2] for chunk in found[:2]] == ["p0001-e000", "p0001-e000.2"]
    assert all(chunk["keywords"] and chunk["summary"] in chunk["text"] for chunk in found)


@pytest.mark.parametrize("tables", ["gfm", "html"])
def test_every_part_of_a_long_table_has_its_head(tables: str) -> None:
    """Each part of a split table repeats its head, also over pages, and each row is in exactly one part."""
    rows = [[f"Pump {n}", f"{n} m³/h", "runs"] for n in range(40)]
    first = element("table", table=plain_table(["Name", "Flow", "State"], *rows[:20], header=True), box=None)
    second = element("table", table=plain_table(["Name", "Flow", "State"], *rows[20:], header=True), box=None)

    found = write_chunks(build_document(checkpoint(1, first), checkpoint(2, second)), 128, tables=tables)

    assert len(found) > 3
    assert all("Name" in chunk["text"] and "Flow" in chunk["text"] for chunk in found)
    names = [name for chunk in found for name in re.findall(r"Pump \d+", chunk["text"])]
    assert names == [row[0] for row in rows]
    assert tables == "gfm" or all(chunk["text"].endswith("</table>") for chunk in found)
    assert {page for chunk in found for page in chunk["pages"]} == {1, 2}


def census(rows: int = 30) -> Element:
    """A table whose district spans all rows, and whose quarters span ten rows each."""
    cells = [Cell(row=0, col=col, text=text, header=True) for col, text in enumerate(["District", "Quarter", "Parish"])]
    cells.append(Cell(row=1, col=0, row_span=rows, text="Upper Marsh"))
    cells += [Cell(row=1 + n, col=1, row_span=10, text=f"Quarter {n // 10}") for n in range(0, rows, 10)]
    cells += [Cell(row=1 + n, col=2, text=f"Parish {n}") for n in range(rows)]
    return element("table", table=Table(html="", rows=rows + 1, cols=3, cells=tuple(cells)), box=None)


def test_a_part_of_a_table_repeats_the_cells_that_span_into_it() -> None:
    """Each row of a later part has the cells that span it, which `repeated` names; each row is in one part."""
    found = write_chunks(build_document(checkpoint(1, census())), 160)

    assert len(found) > 2
    rows = [row for chunk in found for row in html.fromstring(chunk["text"]).iter("tr") if row.find("td") is not None]
    parishes = [row[-1].text_content() for row in rows]
    assert parishes == [f"Parish {n}" for n in range(30)]
    for chunk in found[1:]:
        text, first = chunk["text"], int(re.findall(r"Parish (\d+)", chunk["text"])[0])
        assert f'<td rowspan="{30 - first}">Upper Marsh</td><td' in text
        assert f"Quarter {first // 10}</td><td>Parish {first}</td>" in text
        assert all(word in chunk["repeated"] for word in ("District", "Parish", "Upper Marsh"))
    assert found[0]["repeated"] == ""


def test_spanning_cells_too_long_to_repeat_are_repeated_empty() -> None:
    """Where the texts of spanning cells leave no room for rows, the cells are repeated without text."""
    cells = [Cell(row=0, col=0, row_span=30, text=ENGLISH * 5)]
    cells += [Cell(row=n, col=1, text=f"Parish {n}") for n in range(30)]
    table = Table(html="", rows=30, cols=2, cells=tuple(cells))

    found = write_chunks(build_document(checkpoint(1, element("table", table=table))), 128)

    later = [chunk["text"] for chunk in found if "quarry" not in chunk["text"]]
    assert len(later) > 2
    assert all(re.match(r'<table>\n<tr><td(?: rowspan="\d+")?></td><td>Parish', text) for text in later[1:])
    assert all(chunk["tokens"] <= 128 for chunk in found)


def test_a_column_of_header_cells_is_no_head() -> None:
    """Only rows of header cells are repeated, not a row that begins with one."""
    cells = [Cell(row=n, col=0, text=f"Pump {n}", header=True) for n in range(40)]
    cells += [Cell(row=n, col=1, text=f"{n} m", header=n == 0, row_span=1 + (n == 38)) for n in range(39)]
    table = element("table", table=Table(html="", rows=40, cols=2, cells=tuple(cells)))

    found = write_chunks(build_document(checkpoint(1, table)), 128)

    assert all(chunk["repeated"].count("Pump") == 1 for chunk in found[1:])


def test_a_paragraph_over_two_pages_is_joined() -> None:
    """A paragraph that continues on the next page is one chunk with both pages."""
    first, second = element("text", "The town has a reser-"), element("text", "voir and two springs.")

    (chunk,) = write_chunks(build_document(checkpoint(1, first), checkpoint(2, second)))

    assert chunk["text"] == "The town has a reservoir and two springs."
    assert chunk["pages"] == [1, 2] and len(chunk["boxes"]) == 2


def test_a_caption_goes_with_its_table() -> None:
    """A caption is in the chunk of its table, even if it would fit into the chunk before."""
    parts: Sequence[Element] = (
        element("text", ENGLISH * 4),
        element("caption", "Table 1: The pumps", parent_id="p0001-e002"),
        element("table", table=plain_table(*([f"Pump {n}", "runs"] for n in range(6))), caption_ids=("p0001-e001",)),
    )

    found = write_chunks(build_document(checkpoint(1, *parts)), 128)

    assert [chunk["kinds"] for chunk in found] == [["text"], ["caption", "table"]]


def test_figures_and_links_are_named() -> None:
    """A chunk lists the crops in it with their captions, and the URIs of the PDF links on its text."""
    figure = element("picture", image="images/p0001-e000.png", caption_ids=("p0001-e001",))
    caption = element("caption", "Figure 1: Rain", parent_id="p0001-e000")
    links = (
        Link(box=Box(0.2, 0.42, 0.3, 0.44), uri="https://a.example/"),
        Link(box=Box(0, 0, 0.1, 0.1), uri="https://b.example/"),
    )

    (chunk,) = write_chunks(build_document(checkpoint(1, figure, caption, element("text", "See there."), links=links)))

    assert chunk["figures"] == [
        {"element": "p0001-e000", "image": "images/p0001-e000.png", "caption": "Figure 1: Rain"}
    ]
    assert chunk["links"] == ["https://a.example/"]


def test_pictures_in_the_markdown_stay_out_of_the_chunks() -> None:
    """Embedded pictures are not in a chunk's text, but its span covers them in document.md."""
    document = build_document(
        checkpoint(1, element("picture", image="images/p0001-e000.png"), element("text", "Rain."))
    )
    uri = "data:image/png;base64," + "A" * 9999
    inputs = WriterInput(document, FormatOptions(markdown=Markdown(images="data")), {"images/p0001-e000.png": uri})

    (line,) = chunks.write(inputs).splitlines()

    start, end = json.loads(line)["md_span"]
    assert "base64" not in json.loads(line)["text"]
    assert end - start > 9999


@settings(max_examples=100)
@given(st.text(max_size=80), st.text(max_size=80))
def test_tokens_add_up(one: str, other: str) -> None:
    """Appending text never lowers the estimated token count, and whitespace alone counts nothing."""
    assert splitting.count_tokens(one + " " + other) >= splitting.count_tokens(one)
    assert splitting.count_tokens("   ") == 0 and splitting.count_tokens("word") == 1


def test_a_chunk_lists_the_kinds_of_its_elements() -> None:
    """A chunk lists docling's label of each kind of element in it, once."""
    (chunk,) = write_chunks(build_document(checkpoint(1, element("list_item", "• one"), element("list_item", "• two"))))

    assert chunk["kinds"] == [str(Kind.LIST_ITEM)]
    assert chunk["text"] == "- one\n- two"
