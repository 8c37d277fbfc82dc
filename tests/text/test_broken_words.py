"""Words of elements that line ends break, joined by the words of the whole document."""

from __future__ import annotations

from tests.fakes.documents import BOTTOM, TOP, build_document, checkpoint, element
from twopass.document import Cell, Checkpoint, Document, Figure, Flag
from twopass.families import content, detected_page
from twopass.formats import markdown
from twopass.steps import enrich
from twopass.text import table_markup


def write_body(document: Document) -> str:
    return markdown.write(document)[0]


def test_a_word_of_another_page_decides() -> None:
    """The pages of a document are read one by one, but its last page decides on a hyphen of the first."""
    broken = element("text", "a wave-\nbreaker of stone", markdown="a *wave-\nbreaker* of stone")
    document = build_document(checkpoint(1, broken), checkpoint(2, element("text", "The wave-breaker is old.")))

    assert document.elements[0].text == "a wave-breaker of stone"
    assert document.elements[0].markdown == "a *wave-breaker* of stone"


def test_a_hyphen_between_pages_is_decided_by_the_document() -> None:
    """Two parts of a paragraph are joined as the document writes the word elsewhere."""
    first = element("text", "The keeper repaired the old wave-", BOTTOM)
    second = element("text", "breaker in spring. The wave-breaker is old.", TOP)

    assert "old wave-breaker in spring" in write_body(build_document(checkpoint(1, first), checkpoint(2, second)))


def test_broken_words_of_cells_are_joined_in_all_forms_of_the_table() -> None:
    """Cells, text, HTML and GFM."""
    cells = [Cell(row=0, col=0, text="Har-\nbour", header=True), Cell(row=1, col=0, text="carbon-\nfree")]
    table = content.write_table(element("table"), table_markup.build_table(2, 1, cells))
    (joined,) = build_document(checkpoint(1, table, language="en")).elements

    assert joined.table and [cell.text for cell in joined.table.cells] == ["Harbour", "carbon-free"]
    assert joined.text == "Harbour\ncarbon-free"
    assert joined.markdown == "| Harbour |\n| --- |\n| carbon-free |"
    assert "<td>carbon-free</td>" in joined.table.html


def test_lines_of_code_stay_as_they_are() -> None:
    """A minus at the end of a line of code is no hyphen."""
    (code,) = build_document(checkpoint(1, element("code", "a-\nb", markdown="```\na-\nb\n```"))).elements

    assert code.text == "a-\nb"


def test_texts_of_pictures_are_joined_as_well() -> None:
    """What a picture shows, in both places that have it."""
    picture = element("picture", "depth-of-\nwater", figure=Figure(visible_text="depth-of-\nwater"))
    (joined,) = build_document(checkpoint(1, picture, language="en")).elements

    assert joined.text == "depth-of-water" == (joined.figure and joined.figure.visible_text)


def test_keywords_have_no_halves_of_words_and_the_page_keeps_its_line_ends() -> None:
    """A page's keywords come from whole words; its text is left for the document to decide on."""
    text = "The evapora-\ntion of the harbour basin is measured. The harbour basin is deep."
    page: Checkpoint = enrich.page(checkpoint(1, element("text", text)), "en")

    assert page.elements[0].text == text
    assert not any("evapora" in phrase.split() for phrase in page.elements[0].keywords)


def test_words_of_the_text_layer_that_replace_an_answer_are_joined_as_well() -> None:
    """A layer's words come without their lines, in text and in pictures."""
    region = element("text", "", flags=(Flag.UNREAD_REGION,))
    read = detected_page.fall_back(region, "the old har- bours of the carbon- free coast", content.write)
    (joined,) = build_document(checkpoint(1, read, language="en")).elements

    assert joined.text == joined.markdown == "the old harbours of the carbon-free coast"
