"""Boxes: one geometry inside, conversions at the edges only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.documents import boxes, checkpoint
from twopass.document import Box, Page, Problem, Severity, State, Status, status_of
from twopass.errors import Code

GRID = 999
grid_numbers = st.integers(0, GRID)
sizes = st.integers(1, 5000)


@given(boxes, st.sampled_from([GRID, 1000]))
def test_a_box_survives_the_grid_within_a_cell(box: Box, grid: int) -> None:
    """Box -> grid -> Box moves no side by more than one cell."""
    again = Box.from_grid(*box.to_grid(grid), grid)

    assert all(abs(one - other) <= 1 / grid for one, other in zip(box, again, strict=True))


@given(grid_numbers, grid_numbers, grid_numbers, grid_numbers)
def test_the_grid_survives_a_box(x0: int, y0: int, x1: int, y1: int) -> None:
    """What the model said can be said again, with the corners in order."""
    box = Box.from_grid(x0, y0, x1, y1, GRID)

    assert box.to_grid(GRID) == (min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))


@given(st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=4), st.floats(0.1, 1e4), st.floats(0.1, 1e4))
def test_any_corners_make_a_box_on_the_page(corners: list[float], width: float, height: float) -> None:
    """Never outside, never inside out."""
    box = Box.of(*corners, width, height)

    assert 0 <= box.x0 <= box.x1 <= 1
    assert 0 <= box.y0 <= box.y1 <= 1


@given(boxes, sizes, sizes, st.integers(0, 20))
def test_a_crop_is_never_empty(box: Box, width: int, height: int, padding: int) -> None:
    """Also of a line without height at the page's edge; and it stays within the image."""
    x0, y0, x1, y1 = box.to_pixels(width, height, padding)

    assert 0 <= x0 < x1 <= width
    assert 0 <= y0 < y1 <= height


@given(boxes, boxes)
def test_a_union_holds_both_boxes(one: Box, other: Box) -> None:
    """And overlaps each by its own area."""
    whole = one.union(other)

    assert whole.overlap(one) == pytest.approx(one.area)
    assert whole.overlap(other) == pytest.approx(other.area)


def pages(*states: State) -> tuple[Page, ...]:
    return tuple(checkpoint(n, state=state).page for n, state in enumerate(states, start=1))


def test_a_document_succeeds_only_whole() -> None:
    """One lost page or one error makes it partial; nothing usable is failure; a warning changes nothing."""
    error = Problem(code=Code.LOOP, message="page 1: looped")
    warning = error.model_copy(update={"severity": Severity.WARNING})

    assert status_of(pages(State.READ, State.BLANK), (warning,)) is Status.SUCCESS
    assert status_of(pages(State.READ, State.FAILED)) is Status.PARTIAL_SUCCESS
    assert status_of(pages(State.READ), (error,)) is Status.PARTIAL_SUCCESS
    assert status_of(pages(State.UNREAD, State.FAILED)) is Status.FAILURE
