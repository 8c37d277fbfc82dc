"""The section tree: levels, outline entries, and a summary and keywords for each section."""

from __future__ import annotations

from hypothesis import given, settings

from tests.fakes.documents import (
    RUN,
    SOURCE,
    build_document,
    checkpoint,
    checkpoint_lists,
    describe_tree,
    element,
    flatten_sections,
    heading,
    metas,
    plain_table,
)
from twopass.document import Checkpoint, Meta, OutlineEntry
from twopass.steps import assemble, enrich
from twopass.text import prose


def test_sections_follow_the_numbering() -> None:
    """Level hints do not matter if all headings have the same one."""
    texts = ["Summary", "1 Intro", "1.1 Scope", "1.1.1 More", "2 Works", "Annex: Letter"]
    document = build_document(checkpoint(1, *(heading(text, level=2) for text in texts)))

    assert describe_tree(document.sections) == [
        (None, "Summary", []),
        ("1", "Intro", [("1.1", "Scope", [("1.1.1", "More", [])])]),
        ("2", "Works", []),
        (None, "Annex: Letter", []),
    ]
    assert document.sections[1].children[0].children[0].path == ("Intro", "Scope", "More")


def test_a_heading_above_all_numbered_ones_is_at_the_top_level() -> None:
    """The level hints of numbered headings define the scale for the others."""
    numbered = [heading("1 Intro", level=2), heading("1.1 Scope", level=3), heading("Letters", level=1)]

    assert [section.title for section in build_document(checkpoint(1, *numbered)).sections] == ["Intro", "Letters"]


def test_level_hints_rank_headings_without_other_evidence() -> None:
    """Only the order of the hints counts, not the number at which they begin."""
    document = build_document(
        checkpoint(1, heading("Springs", level=2), heading("Upper", level=4), heading("Net", level=2))
    )

    assert describe_tree(document.sections) == [(None, "Springs", [(None, "Upper", [])]), (None, "Net", [])]


def test_the_outline_sets_levels_and_adds_missing_sections() -> None:
    """Its levels apply to headings without a number; entries without a heading become sections at their page."""
    outline = (
        OutlineEntry(level=1, title="Report", page=1),
        OutlineEntry(level=2, title="Springs", page=1),
        OutlineEntry(level=3, title="Upper spring", page=1),
        OutlineEntry(level=2, title="Hidden", page=2),
    )
    first = checkpoint(
        1, element("title", "Report"), heading("SPRINGS"), element("text", "Upper spring"), element("text", "It runs.")
    )
    second = checkpoint(2, element("text", "No heading here."))

    document = build_document(first, second, outline=outline)

    assert describe_tree(document.sections) == [(None, "SPRINGS", [(None, "Upper spring", [])]), (None, "Hidden", [])]
    assert document.sections[-1].element_ids == ("p0002-e000",)


def test_a_section_holds_the_elements_after_its_heading() -> None:
    """Elements before the first heading belong to no section; keywords and summary come from the section's elements."""
    text = element("text", "The springs are deep. They never froze.", keywords=("springs",))
    document = build_document(checkpoint(1, element("text", "Before."), heading("1 Water"), text))

    (section,) = document.sections
    assert section.element_ids == ("p0001-e001", "p0001-e002")
    assert section.keywords == ("springs",)
    assert section.summary == "The springs are deep. They never froze."


def test_a_section_without_prose_is_summarized_by_its_tables() -> None:
    """This holds also if a short sentence points at the table; a continued table counts once."""
    costs = element("table", table=plain_table(["a"]), summary="Table 1: Costs.")
    alone = checkpoint(1, heading("1 Works"), costs)
    pointed = checkpoint(1, heading("1 Works"), element("text", "See below."), costs)
    longer = checkpoint(2, element("table", table=plain_table(["b"]), summary="Table 1: Costs, continued."))

    assert [build_document(page, longer).sections[0].summary for page in (alone, pointed)] == ["Table 1: Costs."] * 2


def test_a_section_with_only_a_list_is_summarized_by_its_items() -> None:
    """A single stray word beside the items does not count as prose."""
    items = [element("list_item", f"{name} is a spring of the upper valley.") for name in ("Lind", "Ach")]

    (section,) = build_document(checkpoint(1, heading("1 Water"), *items, element("text", "guidance"))).sections

    assert section.summary == "Lind is a spring of the upper valley. Ach is a spring of the upper valley. guidance"


def test_an_empty_section_is_summarized_by_its_subsections() -> None:
    """Their prose is used, or their figures if they have no prose."""
    figure, text = element("picture", summary="Figure 1: A map."), element("text", "The springs are deep.")
    page = checkpoint(1, heading("1 Water"), heading("1.1 Upper"), text, heading("2 Maps"), heading("2.1 All"), figure)

    summaries = [section.summary for section in flatten_sections(build_document(page).sections)]
    assert summaries == [text.text] * 2 + [figure.summary] * 2


@settings(max_examples=40)
@given(checkpoint_lists, metas)
def test_a_section_has_a_summary_if_one_of_its_elements_has(checkpoints: tuple[Checkpoint, ...], meta: Meta) -> None:
    """Elements of subsections at any depth and headings count too, and the same holds for keywords."""
    document = assemble.document(SOURCE, meta, RUN, "id", [enrich.page(page, None) for page in checkpoints])
    by_id = {e.id: e for e in document.elements}

    for section in flatten_sections(document.sections):
        elements = [by_id[name] for one in flatten_sections((section,)) for name in one.element_ids]
        assert bool(section.summary) >= any(e.summary and not e.continues for e in elements)
        assert bool(section.keywords) == any(e.keywords for e in elements if prose.split_words(" ".join(e.keywords)))
