"""docling.json works with docling's own tools, and converts back to the same document."""

from __future__ import annotations

import json

import pytest
from docling_core.transforms.chunker import HierarchicalChunker, HybridChunker
from docling_core.transforms.chunker.tokenizer.base import BaseTokenizer
from docling_core.types.doc import DoclingDocument
from hypothesis import given, settings

from tests.fakes.documents import BOTTOM, MIDDLE, build_document, checkpoint, documents, element, plain_table
from twopass.document import Document, Figure, Formula, PageImage
from twopass.formats import docling, splitting
from twopass.formats.writer_input import WriterInput


class EstimatingTokenizer(BaseTokenizer):
    """Counts tokens as chunks.jsonl does, without a vocabulary or network access."""

    limit: int = 128

    def count_tokens(self, text: str) -> int:
        return splitting.count_tokens(text)

    def get_max_tokens(self) -> int:
        return self.limit

    def get_tokenizer(self) -> object:
        return splitting.count_tokens


@settings(max_examples=60)
@given(documents())
def test_any_document_survives_a_round_trip(document: Document) -> None:
    """Every document converts back to itself, also after docling has read and written the file."""
    data = docling.write(WriterInput(document))
    reexported = json.dumps(DoclingDocument.model_validate_json(data).export_to_dict()).encode()

    assert docling.loads(reexported) == docling.loads(data) == WriterInput(document).with_spans


def report() -> Document:
    page = (
        element("title", "Water in the Hills"),
        element("section_header", "1 Springs", level=1),
        element("list_item", "1. Open the valve."),
        element("list_item", "2. Close it."),
        element("caption", "Table 1: The pumps", parent_id="p0001-e005"),
        element(
            "table", table=plain_table(["Pump", "Flow"], ["North", "12.5"], header=True), caption_ids=("p0001-e004",)
        ),
        element("picture", figure=Figure(description="A wall."), image="images/p0001-e006.png", summary="A wall."),
        element("formula", formula=Formula(latex="E = 1")),
        element("text", "The town has a reser-"),
        element("page_footer", "Page 1", BOTTOM, content_layer="furniture"),
    )
    image = PageImage(width_px=1190, height_px=1684, dpi=144)
    rest = checkpoint(2, element("text", "voir and two springs."))
    return build_document(checkpoint(1, *page, image=image), rest)


def test_doclings_markdown_export_has_the_document() -> None:
    """Docling exports headings, lists, tables with captions and formulas in their place, without furniture."""
    text = docling.convert(report()).export_to_markdown()

    assert text.startswith("# Water in the Hills\n\n## 1 Springs\n\n")
    assert "The town has a reservoir and two springs." in text
    assert "1. Open the valve.\n2. Close it." in text
    assert text.index("Table 1: The pumps") < text.index("North") and text.count("Table 1") == 1
    assert "$$E = 1$$" in text
    assert "Page 1" not in text


def test_filled_boxes_are_bullets_and_those_beside_empty_ones_are_ticked() -> None:
    """As in Markdown."""
    items, box = [element("list_item", f"■ {text}") for text in ("Open it", "Close it")], element("list_item", "□ Wait")

    assert docling.convert(build_document(checkpoint(1, *items))).export_to_markdown() == "- Open it\n- Close it"
    ticked = docling.convert(build_document(checkpoint(1, *items, box))).export_to_markdown()
    assert ticked == "- ■ Open it\n- ■ Close it\n- □ Wait"


def test_provenance_is_in_points_of_the_page() -> None:
    """Boxes are in points from the top left; joined elements have one provenance item for each part."""
    converted = docling.convert(report())
    (joined,) = (item for item in converted.texts if "reservoir" in item.text)

    place = joined.prov[0]
    assert [p.page_no for p in joined.prov] == [1, 2]
    assert [joined.text[slice(*p.charspan)] for p in joined.prov] == ["The town has a reser", "voir and two springs."]
    assert (place.bbox.l, place.bbox.t) == (MIDDLE.x0 * 595, MIDDLE.y0 * 842)
    assert place.bbox.coord_origin == "TOPLEFT"


def test_doclings_own_fields_are_filled() -> None:
    """Captions, crops and descriptions are in the fields docling has for them."""
    converted = docling.convert(report())
    (picture,), (table,) = converted.pictures, converted.tables

    assert picture.meta and picture.meta.description and picture.meta.description.text == "A wall."
    assert picture.image and str(picture.image.uri) == "images/p0001-e006.png"
    assert [ref.resolve(converted).text for ref in table.captions] == ["Table 1: The pumps"]
    assert converted.export_to_html() and converted.export_to_doctags()


def test_doclings_chunkers_split_it() -> None:
    """Docling's chunkers find headings and pages of a chunk, and the hybrid one stays within its limit."""
    loaded = DoclingDocument.model_validate_json(docling.write(WriterInput(report())))

    sections = list(HierarchicalChunker().chunk(loaded))
    fitted = list(HybridChunker(tokenizer=EstimatingTokenizer(limit=24)).chunk(loaded))

    (spring,) = (chunk for chunk in sections if "reservoir" in chunk.text)
    assert spring.meta.headings == ["Water in the Hills", "1 Springs"] or spring.meta.headings == ["1 Springs"]
    assert {place.page_no for item in spring.meta.doc_items for place in item.prov} == {1, 2}
    assert len(fitted) > 1 and all(splitting.count_tokens(chunk.text) <= 24 for chunk in fitted)


def test_a_docling_document_of_another_program_is_refused() -> None:
    """A docling document that twopass did not write has no pages or states to restore, and is refused."""
    with pytest.raises(ValueError, match="twopass__document"):
        docling.loads(DoclingDocument(name="x").model_dump_json().encode())
