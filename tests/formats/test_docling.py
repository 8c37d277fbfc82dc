"""docling.json: a DoclingDocument as docling's own tools want it, and nothing lost on the way back."""

from __future__ import annotations

import json

import pytest
from docling_core.transforms.chunker import HierarchicalChunker, HybridChunker
from docling_core.transforms.chunker.tokenizer.base import BaseTokenizer
from docling_core.types.doc import DoclingDocument
from hypothesis import given, settings

from tests.fakes.documents import BOTTOM, MIDDLE, assembled, checkpoint, documents, element, grid
from twopass.document import Document, Figure, Formula, PageImage
from twopass.formats import docling, token_estimate
from twopass.formats.draft import Draft


class Estimating(BaseTokenizer):
    """Counts as chunks.jsonl does: no vocabulary, no network."""

    most: int = 128

    def count_tokens(self, text: str) -> int:
        return token_estimate.count(text)

    def get_max_tokens(self) -> int:
        return self.most

    def get_tokenizer(self) -> object:
        return token_estimate.count


@settings(max_examples=60)
@given(documents())
def test_nothing_is_lost_on_the_way_there_and_back(document: Document) -> None:
    """Through docling's own reading and writing of the file too."""
    data = docling.write(Draft(document))
    theirs = DoclingDocument.model_validate_json(data)
    again = json.dumps(theirs.export_to_dict()).encode()

    assert docling.loads(again) == docling.loads(data) == Draft(document).placed


def report() -> Document:
    page = (
        element("title", "Water in the Hills"),
        element("section_header", "1 Springs", level=1),
        element("list_item", "1. Open the valve."),
        element("list_item", "2. Close it."),
        element("caption", "Table 1: The pumps", parent_id="p0001-e005"),
        element("table", table=grid(["Pump", "Flow"], ["North", "12.5"], header=True), caption_ids=("p0001-e004",)),
        element("picture", figure=Figure(description="A wall."), image="images/p0001-e006.png", summary="A wall."),
        element("formula", formula=Formula(latex="E = 1")),
        element("text", "The town has a reser-"),
        element("page_footer", "Page 1", BOTTOM, content_layer="furniture"),
    )
    image = PageImage(width_px=1190, height_px=1684, dpi=144)
    rest = checkpoint(2, element("text", "voir and two springs."))
    return assembled(checkpoint(1, *page, image=image), rest)


def test_doclings_markdown_tells_the_document() -> None:
    """Headings, lists, tables with captions and formulas where docling expects them; furniture is furniture."""
    text = docling.converted(report()).export_to_markdown()

    assert text.startswith("# Water in the Hills\n\n## 1 Springs\n\n")
    assert "The town has a reservoir and two springs." in text
    assert "1. Open the valve.\n2. Close it." in text
    assert text.index("Table 1: The pumps") < text.index("North") and text.count("Table 1") == 1
    assert "$$E = 1$$" in text
    assert "Page 1" not in text


def test_places_are_points_of_the_page() -> None:
    """From the top left; what runs on has a place for each of its parts."""
    told = docling.converted(report())
    (joined,) = (item for item in told.texts if "reservoir" in item.text)

    place = joined.prov[0]
    assert [p.page_no for p in joined.prov] == [1, 2]
    assert [joined.text[slice(*p.charspan)] for p in joined.prov] == ["The town has a reser", "voir and two springs."]
    assert (place.bbox.l, place.bbox.t) == (MIDDLE.x0 * 595, MIDDLE.y0 * 842)
    assert place.bbox.coord_origin == "TOPLEFT"


def test_docling_finds_what_it_has_words_for() -> None:
    """Captions, crops, descriptions and summaries in docling's own fields."""
    told = docling.converted(report())
    (picture,), (table,) = told.pictures, told.tables

    assert picture.meta and picture.meta.description and picture.meta.description.text == "A wall."
    assert picture.image and str(picture.image.uri) == "images/p0001-e006.png"
    assert [ref.resolve(told).text for ref in table.captions] == ["Table 1: The pumps"]
    assert told.export_to_html() and told.export_to_doctags()


def test_doclings_chunkers_cut_it() -> None:
    """Below the headings it stands under, with the pages it stands on; the hybrid one within its limit."""
    told = DoclingDocument.model_validate_json(docling.write(Draft(report())))

    whole = list(HierarchicalChunker().chunk(told))
    fitted = list(HybridChunker(tokenizer=Estimating(most=24)).chunk(told))

    (spring,) = (chunk for chunk in whole if "reservoir" in chunk.text)
    assert spring.meta.headings == ["Water in the Hills", "1 Springs"] or spring.meta.headings == ["1 Springs"]
    assert {place.page_no for item in spring.meta.doc_items for place in item.prov} == {1, 2}
    assert len(fitted) > 1 and all(token_estimate.count(chunk.text) <= 24 for chunk in fitted)


def test_somebody_elses_docling_document_is_refused() -> None:
    """It has no pages, states or readings of ours to give back."""
    with pytest.raises(ValueError, match="twopass__document"):
        docling.loads(DoclingDocument(name="x").model_dump_json().encode())
