"""Gutters between columns of lines, in drawn pixels: rows of black bars are words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from twopass.document import Rect
from twopass.pages import columns
from twopass.pages.columns import Corners
from twopass.pages.strips import Array

HEIGHT, PITCH = 20, 24  # of a line, in pixels


def draw(*lines: Sequence[tuple[int, int]]) -> Array:
    """A page with one row of words for each line, as their left and right sides."""
    page = np.full((PITCH * len(lines) + 20, 800, 3), 255, np.uint8)
    for row, words in enumerate(lines):
        for left, right in words:
            for x in range(left, right, 6):
                page[10 + PITCH * row + 5 : 10 + PITCH * row + 15, x : x + 3] = 0
            page[10 + PITCH * row + 5 : 10 + PITCH * row + 15, right - 3 : right] = 0
    return page


def enclose(*lines: Sequence[tuple[int, int]]) -> list[Corners]:
    """One detected line around all words of each row."""
    found: list[Corners] = []
    for row, words in enumerate(lines):
        x0, x1, y0 = words[0][0] - 3.0, words[-1][1] + 3.0, 10.0 + PITCH * row
        found.append(((x0, y0), (x1, y0), (x1, y0 + HEIGHT), (x0, y0 + HEIGHT)))
    return found


def split(*lines: Sequence[tuple[int, int]]) -> list[Corners]:
    return columns.split_lines(draw(*lines), enclose(*lines))


LEFT = [[(20, 100), (108, 200), (206, 380)], [(20, 160), (166, 250), (257, 380)], [(20, 90), (96, 380)]]
RIGHT = [[(394, 500), (507, 600), (607, 780)], [(394, 470), (476, 780)], [(394, 620), (627, 780)]]


def test_lines_across_a_gutter_are_cut_there() -> None:
    """A detector joins the lines of two columns with little white between them; each column is read for itself."""
    rows = [left + right for left, right in zip(2 * LEFT, 2 * RIGHT, strict=True)]
    pieces = split(*rows)

    assert len(pieces) == 2 * len(rows)
    assert all(piece[1][0] < 394 or piece[0][0] > 380 for piece in pieces)


def test_a_heading_across_a_gutter_stays_whole() -> None:
    """Only lines with white in the gutter are cut."""
    rows = [[(20, 300), (308, 600)], *(left + right for left, right in zip(3 * LEFT, 3 * RIGHT, strict=True))]

    assert sum(piece[1][0] - piece[0][0] > 500 for piece in split(*rows)) == 1


def test_a_wide_blank_in_few_lines_is_no_gutter() -> None:
    """Wide blanks of justified text are below each other by chance."""
    whole = [(20, 150), (156, 300), (306, 450), (456, 780)]
    rows = [whole, whole, *([(20, 200), (212, 500), (506, 780)] for _ in range(4)), whole]

    assert len(split(*rows)) == len(rows)


def test_gutters_are_found_between_lines() -> None:
    """The layout model joins columns as detectors do, so that the lines' places must tell where columns are."""
    boxes = [Rect(x, PITCH * row, x + 180, PITCH * row + HEIGHT) for row in range(6) for x in (20, 212, 404)]

    assert [(round(gutter.x0), round(gutter.x1)) for gutter in sorted(columns.find_gutters(boxes))] == [
        (200, 212),
        (392, 404),
    ]


def test_boxes_that_reach_into_a_gutter_do_not_hide_it() -> None:
    """Detectors give some lines more room than others, so that little white is left between their boxes."""
    boxes = [Rect(x, PITCH * row, x + 180, PITCH * row + HEIGHT) for row in range(8) for x in (20, 212)]
    wide = [box._replace(x1=208) if box.x0 == 20 and row % 3 == 0 else box for row, box in enumerate(boxes)]
    wide = [box._replace(x0=210) if box.x0 == 212 and row % 5 == 0 else box for row, box in enumerate(wide)]
    white = columns.find_gutters(wide)

    assert [(gutter.y0, gutter.y1) for gutter in white] == [(0, 7 * PITCH + HEIGHT)]
