"""Write the state of a form's check boxes and radio buttons as words where they stand.

Text extraction gives the values of text fields and lists already, as their appearance shows them. Of a checked box it
gives a letter of a symbol font or nothing, of an unchecked one nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from twopass.document import Rect
from twopass.engines.cpu.content import Region, StyledWord

CHECKED, UNCHECKED = "☑", "☐"
FORM_FIELD = "form field"  # in place of the font's name, for the marks of this module
HIDDEN = (1, 3)  # PyMuPDF's field_display
MAX_BOXES = 500  # of a page; each takes 0.5 ms
MAX_MARK_LENGTH = 1  # characters of the mark that a box's appearance shows
MAX_GAP = 2.5  # of the box's height, between it and the first or last word of its label
MIN_ROW_OVERLAP = 0.5  # of the smaller height, for a box and a word in one row


def add_marks(page: Any, words: Sequence[StyledWord]) -> tuple[StyledWord, ...]:
    """The words with a mark for every box and button, in place of the letter that its appearance shows."""
    boxes = list(islice(_find_boxes(page), MAX_BOXES))
    if not boxes:
        return tuple(words)
    drawn = {_find_drawn_mark(words, box) for box, _ in boxes}
    kept = [word for index, word in enumerate(words) if index not in drawn]
    first = max((word.line for word in words), default=-1) + 1
    marks = (
        StyledWord(box, CHECKED if checked else UNCHECKED, first + index, size=box.height, font=FORM_FIELD)
        for index, (box, checked) in enumerate(boxes)
    )
    return (*kept, *marks)


def _find_boxes(page: Any) -> Iterator[tuple[Rect, bool]]:
    """Yield each visible check box and radio button, and whether it is checked."""
    import pymupdf

    if page.first_widget is None:
        return
    for widget in page.widgets(types=(pymupdf.PDF_WIDGET_TYPE_CHECKBOX, pymupdf.PDF_WIDGET_TYPE_RADIOBUTTON)):
        box = Rect(*widget.rect)
        if widget.field_display not in HIDDEN and box.area > 0:
            yield box, _is_checked(page, widget)


def _is_checked(page: Any, widget: Any) -> bool:
    """Whether the box shows that it is checked; without a state of its own, what its field says."""
    kind, state = page.parent.xref_get_key(widget.xref, "AS")
    if kind == "name":
        return bool(state != "/Off")
    return widget.field_value not in (None, False, "", "Off")


def _find_drawn_mark(words: Sequence[StyledWord], box: Rect) -> int | None:
    """The index of the one word in a box if it is a mark; a box with several words is drawn over its label."""
    inside = [index for index, word in enumerate(words) if box.contains(word.box.centre)]
    return inside[0] if len(inside) == 1 and len(words[inside[0]].text) <= MAX_MARK_LENGTH else None


def extend_regions(regions: Sequence[Region], words: Sequence[StyledWord]) -> list[Region]:
    """Enlarge regions to include the boxes beside their words: the layout model sees only their labels."""
    extended = list(regions)
    for mark in words:
        if mark.font != FORM_FIELD or any(region.box.contains(mark.box.centre) for region in extended):
            continue
        label = _find_label(mark, words)
        index = next((i for i, region in enumerate(extended) if label and region.box.contains(label.box.centre)), None)
        if index is not None:
            extended[index] = replace(extended[index], box=extended[index].box.union(mark.box))
    return extended


def _find_label(mark: StyledWord, words: Sequence[StyledWord]) -> StyledWord | None:
    """The nearest word in the row of a box: behind it, or else before it."""
    reach = MAX_GAP * mark.box.height
    row = [word for word in words if word.font != FORM_FIELD and _is_in_row(mark.box, word.box)]
    behind = [word for word in row if 0 <= word.box.x0 - mark.box.x1 + 1 <= reach]
    before = [word for word in row if 0 <= mark.box.x0 - word.box.x1 + 1 <= reach]
    if behind:
        return min(behind, key=lambda word: word.box.x0)
    return max(before, key=lambda word: word.box.x1, default=None)


def _is_in_row(one: Rect, other: Rect) -> bool:
    overlap = one.overlap_y(other)
    return overlap >= MIN_ROW_OVERLAP * min(one.height, other.height) > 0
