"""content_list.json has MinerU's entry types, fields and coordinates."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from tests.fakes.documents import BOTTOM, MIDDLE, build_document, checkpoint, documents, element, plain_table
from twopass.document import Document, Figure, Formula
from twopass.formats import mineru
from twopass.formats.writer_input import WriterInput
from twopass.text import prose


def write_entries(document: Document) -> list[dict[str, Any]]:
    return json.loads(mineru.write(WriterInput(document)))  # type: ignore[no-any-return]


@given(documents())
def test_no_word_of_an_element_is_lost(document: Document) -> None:
    """Every word of every element is in an entry; furniture too, under MinerU's own types for it."""
    words = prose.split_words(json.dumps(write_entries(document), ensure_ascii=False).replace("\\n", " "))
    expected = {
        word
        for e in document.elements
        if not (e.formula and e.formula.latex) and not (e.table and e.table.cells)
        for word in prose.split_words(e.text)
    }

    joined_words = "".join(words)
    assert all(word in joined_words for word in expected)


@pytest.mark.parametrize(("kind", "field"), [("table", "table_body"), ("chart", "content")])
def test_a_text_whose_only_word_names_a_character_is_kept(kind: str, field: str) -> None:
    """An entity that a page shows as such is a word, although it has no letters of its own."""
    [found] = write_entries(build_document(checkpoint(1, element(kind, "< &lt; |"))))

    assert "&amp;lt;" in found[field]


def test_a_formula_with_blank_latex_keeps_its_text() -> None:
    """LaTeX of blanks only is none: the entry has what was read as text."""
    page = checkpoint(1, element("formula", "E = 1", formula=Formula(latex=" ")))

    [found] = write_entries(build_document(page))

    assert (found["text"], found["text_format"]) == ("E = 1", "text")


def test_entries_follow_minerus_format() -> None:
    """Entries have MinerU's types, levels, captions inside their owner, boxes 0 to 1000 and pages from 0."""
    page = (
        element("title", "Water"),
        element("section_header", "1.1 Springs", level=2),
        element("text", "Two of\nthem."),
        element("caption", "Table 1: Pumps", parent_id="p0001-e004"),
        element("table", table=plain_table(["Pump", "<12.5"], header=True), image="images/p0001-e004.png"),
        element("picture", figure=Figure(description="A wall."), image="images/p0001-e005.png"),
        element("formula", formula=Formula(latex="E = 1")),
        element("page_footer", "Page 1", BOTTOM, content_layer="furniture"),
        element("code", "a  b\n  c", None),
    )

    found = write_entries(build_document(checkpoint(1, *page)))

    place = {"page_idx": 0, "bbox": [100, 400, 900, 500]}
    assert MIDDLE == (0.1, 0.4, 0.9, 0.5)
    assert found[0] == {"type": "text", "text": "Water", "text_level": 1, **place}
    assert found[1] == {"type": "text", "text": "1.1 Springs", "text_level": 2, **place}
    assert found[2] == {"type": "text", "text": "Two of them.", **place}
    assert found[3]["table_caption"] == ["Table 1: Pumps"] and found[3]["img_path"] == "images/p0001-e004.png"
    assert found[3]["table_body"] == "<table>\n<tr><th>Pump</th><th>&lt;12.5</th></tr>\n</table>"
    assert (found[4]["type"], found[4]["content"]) == ("image", "A wall.")
    assert found[5] == {"type": "equation", "text": "$$\nE = 1\n$$", "text_format": "latex", "img_path": "", **place}
    assert found[6]["type"] == "footer"
    assert found[7] == {"type": "code", "sub_type": "code", "code_body": "a  b\n  c", "code_caption": [], "page_idx": 0}
