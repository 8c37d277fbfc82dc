"""Assembling checkpoints into a document: order, captions, footnotes, metadata and problems."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.documents import (
    BOTTOM,
    MIDDLE,
    RUN,
    SOURCE,
    TOP,
    build_document,
    checkpoint,
    checkpoint_lists,
    element,
    flatten_sections,
    heading,
    metas,
    plain_table,
)
from twopass.document import Box, Checkpoint, Kind, Meta, Problem, Status
from twopass.errors import Code
from twopass.steps import assemble


@settings(max_examples=80)
@given(checkpoint_lists, metas, st.randoms(use_true_random=False))
def test_the_order_of_checkpoints_does_not_matter(
    checkpoints: tuple[Checkpoint, ...], meta: Meta, shuffler: random.Random
) -> None:
    """Shuffled checkpoints give the same document, which holds all pages and elements in page order."""
    shuffled = list(checkpoints)
    shuffler.shuffle(shuffled)

    document = assemble.document(SOURCE, meta, RUN, "id", checkpoints)

    assert assemble.document(SOURCE, meta, RUN, "id", shuffled) == document
    assert [page.number for page in document.pages] == sorted(c.page.number for c in checkpoints)
    assert [e.order for e in document.elements] == list(range(sum(len(c.elements) for c in checkpoints)))
    assert [e.page for e in document.elements] == sorted(e.page for e in document.elements)


@settings(max_examples=80)
@given(checkpoint_lists, metas)
def test_every_element_keeps_its_text_and_is_in_one_section_at_most(
    checkpoints: tuple[Checkpoint, ...], meta: Meta
) -> None:
    """No element is merged or dropped, and there are sections whenever there are headings."""
    document = assemble.document(SOURCE, meta, RUN, "id", checkpoints)
    before = {e.id: (e.text, e.boxes) for c in checkpoints for e in c.elements}
    in_sections = [name for section in flatten_sections(document.sections) for name in section.element_ids]

    assert {e.id: (e.text, e.boxes) for e in document.elements} == before
    assert len(in_sections) == len(set(in_sections))
    assert bool(document.sections) >= any(e.is_body and e.is_heading for e in document.elements)
    assert [s.id for s in flatten_sections(document.sections)] == sorted(
        s.id for s in flatten_sections(document.sections)
    )


def test_a_heading_that_names_a_table_is_its_caption() -> None:
    """A heading that begins with `Table 1` begins no section."""
    table = element("table", box=Box(0.1, 0.52, 0.9, 0.7), table=plain_table(["a"]))

    document = build_document(checkpoint(1, heading("Table 1 Clinical features"), table))

    assert document.elements[1].caption_ids == ("p0001-e000",)
    assert document.sections == ()


def test_a_caption_belongs_to_the_nearest_element_of_its_kind() -> None:
    """A table's caption never belongs to a figure, and both ends of the link are set."""
    picture = element("picture", box=Box(0.1, 0.30, 0.9, 0.40))
    caption = element("caption", "Table 1: Works", Box(0.1, 0.41, 0.9, 0.43))
    table = element("table", box=Box(0.1, 0.46, 0.9, 0.6), table=plain_table(["a"]))

    elements = build_document(checkpoint(1, picture, caption, table)).elements

    assert [e.caption_ids for e in elements] == [(), (), (elements[1].id,)]
    assert elements[1].parent_id == elements[2].id


def test_a_caption_far_from_every_figure_has_no_parent() -> None:
    """A caption at the top of a page may belong to the page before."""
    elements = build_document(
        checkpoint(1, element("caption", "Figure 1", TOP), element("picture", box=BOTTOM))
    ).elements

    assert elements[0].parent_id is None


def test_a_footnote_belongs_to_the_text_with_its_mark() -> None:
    """Digits of years and amounts are not footnote marks."""
    texts = (element("text", "In 2024 it grew by 1."), element("text", "It supplied 1,284 people¹ here."))

    elements = build_document(checkpoint(1, *texts, element("footnote", "1 Residents.", BOTTOM))).elements

    assert elements[2].parent_id == elements[1].id


def test_the_metadata_of_the_file_is_kept() -> None:
    """The file's own title is kept; the language is that of most pages."""
    pages = [
        checkpoint(n, element("title", "Shown"), language=language) for n, language in enumerate(["en", "ko", "ko"], 1)
    ]

    document = build_document(*pages, title="Said")

    assert (document.meta.title, document.meta.language) == ("Said", "ko")


@pytest.mark.parametrize(
    "title", ["untitled", "PowerPoint Presentation", "2024.acl-long.841.pdf", "Microsoft Word - a"]
)
def test_a_placeholder_title_is_replaced(title: str) -> None:
    """The title on the page replaces a default that a program wrote into the file."""
    assert build_document(checkpoint(1, element("title", "Springs")), title=title).meta.title == "Springs"


@pytest.mark.parametrize("title", ["untitled", None])
def test_a_document_without_a_title_is_named_by_its_top_heading(title: str | None) -> None:
    """The highest heading of the first page counts with all its lines, a common title never, a numbered one last."""
    abstract, scope = heading("Abstract", level=1), heading("1 Scope", level=1)
    lines = heading("Structure of", level=2), heading("the springs", level=2)

    def get_title(*pages: Checkpoint) -> str | None:
        return build_document(*pages, title=title).meta.title

    assert get_title(checkpoint(1, abstract, heading("Notes", level=3), *lines)) == "Structure of the springs"
    assert get_title(checkpoint(1, scope, *lines)) == "Structure of the springs"
    assert get_title(checkpoint(1, abstract, scope)) == "1 Scope"
    assert get_title(checkpoint(1, abstract), checkpoint(2, *lines)) == title


def test_the_problems_of_pages_are_problems_of_the_document() -> None:
    """They make the document a partial success."""
    problem = Problem(code=Code.TRUNCATED, page=1, message="page 1: cut")
    page = checkpoint(1, element("text", "Body.", MIDDLE)).model_copy(update={"problems": (problem,)})

    document = build_document(page)

    assert (document.problems, document.status) == ((problem,), Status.PARTIAL_SUCCESS)


def test_numbered_paragraphs_whose_numbers_go_on_are_items() -> None:
    """Readers label some of them paragraphs: beside items, and beside each other, they are items, also over pages."""
    first = checkpoint(
        1, element("text", "157. Anna."), element("list_item", "158. Ben."), element("list_item", "a. the lights;")
    )
    second = checkpoint(
        2, element("text", "159. **Cid**.", markdown="159\\. **Cid**."), element("text", "2024. A year.")
    )

    elements = build_document(first, second).elements

    assert [e.kind for e in elements] == [Kind.LIST_ITEM] * 4 + [Kind.TEXT]
    assert elements[3].markdown == "159. **Cid**."


def test_numbers_of_long_works_go_on_beyond_a_thousand() -> None:
    """The paragraphs of a code may have four digits; a larger number is an amount."""
    texts = ["999. Anna.", "1000. Ben.", "1001. Cid.", "20400. Dan.", "20401. Eve."]

    elements = build_document(checkpoint(1, *(element("text", text) for text in texts))).elements

    assert [e.kind for e in elements] == [Kind.LIST_ITEM] * 3 + [Kind.TEXT] * 2


def test_clauses_are_items_if_their_numbers_go_on() -> None:
    """1.1 and 1.2, (a) and (b): all are items or none; 1.1 million is no clause."""
    texts = ["1.1 Fees are due.", "(a) monthly;", "(b) yearly.", "1.2 Fees rise.", "2.1 “Term” ends.", "3.1 million."]
    labels = ["list_item", "list_item", *["text"] * 4]

    page = checkpoint(1, *(element(label, t, markdown=t) for label, t in zip(labels, texts, strict=True)))

    elements = build_document(page).elements

    assert [e.kind for e in elements] == [Kind.LIST_ITEM] * 4 + [Kind.TEXT] * 2
    assert elements[3].markdown == "- 1.2 Fees rise."


def test_a_number_without_a_neighbour_begins_a_paragraph() -> None:
    """A single numbered paragraph, or numbers that run backwards, are no list."""
    texts = ["3. Anna.", "1. Ben.", "7) Cid.", "8. Dan."]

    assert {e.kind for e in build_document(checkpoint(1, *(element("text", t) for t in texts))).elements} == {Kind.TEXT}
