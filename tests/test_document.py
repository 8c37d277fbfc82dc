"""Boxes convert without loss to grids and pixels, and a document's status follows from its pages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.documents import boxes, checkpoint, element
from twopass.document import Box, Flag, Page, Problem, Severity, State, Status, derive_status, enclose
from twopass.errors import Code

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
