"""Boxes convert without loss, a document's status follows from its pages, and flags, states and attempts have words."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.documents import boxes, checkpoint, element
from twopass.document import (
    Attempt,
    Box,
    Finding,
    FindingKind,
    Flag,
    Page,
    PageAudit,
    Problem,
    RungName,
    Severity,
    State,
    Status,
    derive_status,
    enclose,
)
from twopass.errors import Code
from twopass.families import registry
from twopass.families.interface import FamilyOptions, PageFeatures, PageRequest, Structure
from twopass.steps import fallback, pass1

GRID = 999
grid_numbers = st.integers(0, GRID)
sizes = st.integers(1, 5000)


@given(boxes, st.sampled_from([GRID, 1000]))
def test_a_box_survives_the_grid_within_one_grid_unit(box: Box, grid: int) -> None:
    """Converting a box to a grid and back moves no side by more than one grid unit."""
    converted = Box.from_grid(*box.to_grid(grid), grid)

    assert all(abs(one - other) <= 1 / grid for one, other in zip(box, converted, strict=True))


@given(grid_numbers, grid_numbers, grid_numbers, grid_numbers)
def test_grid_coordinates_survive_a_box(x0: int, y0: int, x1: int, y1: int) -> None:
    """Grid coordinates converted to a box and back are the same, with the corners in order."""
    box = Box.from_grid(x0, y0, x1, y1, GRID)

    assert box.to_grid(GRID) == (min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))


@given(st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=4), st.floats(0.1, 1e4), st.floats(0.1, 1e4))
def test_any_corners_make_a_box_on_the_page(corners: list[float], width: float, height: float) -> None:
    """Any two corners make a box within the page, with its corners in order."""
    box = Box.of(*corners, width, height)

    assert 0 <= box.x0 <= box.x1 <= 1
    assert 0 <= box.y0 <= box.y1 <= 1


@given(boxes, sizes, sizes, st.integers(0, 20))
def test_a_crop_is_never_empty(box: Box, width: int, height: int, padding: int) -> None:
    """A crop has at least one pixel and stays within the image, also for a line without height at its edge."""
    x0, y0, x1, y1 = box.to_pixels(width, height, padding)

    assert 0 <= x0 < x1 <= width
    assert 0 <= y0 < y1 <= height


@given(boxes, boxes)
def test_a_union_holds_both_boxes(one: Box, other: Box) -> None:
    """The union of two boxes overlaps each of them by its full area."""
    union = enclose([one, other])

    assert type(union) is Box
    assert union == one.union(other)
    assert union.overlap(one) == pytest.approx(one.area)
    assert union.overlap(other) == pytest.approx(other.area)


def pages(*states: State) -> tuple[Page, ...]:
    return tuple(checkpoint(n, state=state).page for n, state in enumerate(states, start=1))


def test_a_document_succeeds_only_if_it_is_complete() -> None:
    """One lost page or one error makes it partial, all pages lost a failure; a warning changes nothing."""
    error = Problem(code=Code.LOOP, message="page 1: looped")
    warning = error.model_copy(update={"severity": Severity.WARNING})

    assert derive_status(pages(State.READ, State.BLANK), (warning,)) is Status.SUCCESS
    assert derive_status(pages(State.READ, State.FAILED)) is Status.PARTIAL_SUCCESS
    assert derive_status(pages(State.READ), (error,)) is Status.PARTIAL_SUCCESS
    assert derive_status(pages(State.UNREAD, State.FAILED)) is Status.FAILURE


def test_a_loss_within_a_page_is_no_success() -> None:
    """A page may be read and lack a region; a finding that is no loss changes nothing."""
    (page,) = pages(State.READ)
    lost, altered = (
        page.model_copy(update={"audit": PageAudit(findings=(Finding(kind=kind),))})
        for kind in (FindingKind.REGION_UNREAD, FindingKind.CONTENT_ALTERED)
    )

    assert derive_status((page, lost)) is Status.PARTIAL_SUCCESS
    assert derive_status((page, altered)) is Status.SUCCESS


def test_a_flag_of_a_later_version_survives_and_is_shown_by_its_name() -> None:
    """A document of a later version is read, and its flags stay in it as they are."""
    (read,) = checkpoint(1, element("text", "Water", flags=("newer", "loop"))).elements

    assert read.flags == ("newer", Flag.LOOP) and read.flags[0].sentence == "newer"
    assert type(read).model_validate_json(read.model_dump_json()) == read


def test_what_is_no_flag_is_noticed() -> None:
    """Text that is put into an element in place of a flag is noticed when the element is written."""
    unknown = element("text", "Water").model_copy(update={"flags": ("loop",)})

    with pytest.warns(UserWarning, match="Expected `enum`"):
        unknown.model_dump_json()


def test_flags_and_states_are_explained_in_sentences() -> None:
    """Words of flags and states are whole sentences without the names that the code uses."""
    sentences = [*(flag.sentence for flag in Flag), *(state.sentence for state in State)]

    assert all(re.fullmatch(r"[A-Z][^_]+\.", sentence) for sentence in sentences)


def test_the_attempts_that_have_words_are_those_of_the_families() -> None:
    """Each attempt of every family has words, and so has the use of the PDF's own text."""
    features = PageFeatures(1190, 1684)
    structures = [Structure.MODEL, Structure.DETECTOR, Structure.FALLBACK]
    detected = [registry.get_family("deepseek_ocr", FamilyOptions(structure=structure)) for structure in structures]
    rungs = {
        rung.name
        for family in (*registry.FAMILIES.values(), *detected)
        for task in family.tasks
        for rung in family.ladder(features, PageRequest(task=task, prompt="x"))
    }

    assert rungs | {RungName.TEXT_LAYER} == set(RungName)


def test_every_reason_of_an_unusable_answer_is_explained() -> None:
    """Each code that says why a page's answer could not be used has words."""
    assert all(code.reason != code for code in (*pass1.INCOMPLETE.values(), *fallback._EXPLANATIONS))


def test_attempts_without_words_are_shown_as_they_are() -> None:
    """What a later version adds is shown by its name instead of being hidden."""
    assert Code.CANARY.reason == "CANARY"
    assert Attempt(rung="newer", reason=Code.LOOP).words == "newer: the answer repeated itself"
    assert Attempt(rung="newer").model_dump(mode="json")["rung"] == "newer"
