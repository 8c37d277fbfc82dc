"""What office files have that is on none of their pages: hidden sheets, rows and slides, comments, notes, deletions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Attributes = Mapping[str, str]

COMMENTS, DELETED, HIDDEN_TEXT = "comments", "deleted text", "hidden text"
_ROWS = "hidden rows or columns"
_TRUE = ("1", "true", "on")
_LAST_COLUMN = "16384"  # of Excel: columns hidden up to here are those that nobody uses


@dataclass(frozen=True)
class _Mark:
    """An element that says so, by its name without the prefix, inside another one and with values of attributes."""

    name: str
    element: str
    inside: str = ""
    values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    default: str = ""  # of an attribute that is missing

    def fits(self, element: str, inside: Sequence[str], attributes: Attributes) -> bool:
        return (
            element == self.element
            and (not self.inside or self.inside in inside)
            and all(attributes.get(key, self.default) in values for key, values in self.values.items())
        )


_NOTES = {"presentation:class": ("notes",), "presentation:placeholder": ("", "false")}
_COLLAPSED = {"table:visibility": ("collapse", "filter")}
_MARKS = {  # by the names of the parts that may have them
    r"xl/workbook\.xml": [_Mark("hidden sheets", "sheet", values={"state": ("hidden", "veryHidden")})],
    r"xl/worksheets/[^/]+\.xml": [
        _Mark(_ROWS, "row", values={"hidden": _TRUE}),
        _Mark(_ROWS, "col", values={"hidden": _TRUE}),
    ],
    r"xl/comments.*\.xml": [_Mark(COMMENTS, "comment")],
    r"ppt/comments/.*\.xml": [_Mark(COMMENTS, "cm")],
    r"ppt/slides/[^/]+\.xml": [_Mark("hidden slides", "sld", values={"show": ("0", "false")})],
    r"ppt/notesSlides/[^/]+\.xml": [_Mark("speakers' notes", "r")],  # the number of their page is a `fld`
    r"word/comments\.xml": [_Mark(COMMENTS, "comment")],
    r"word/(?:document\d*|footnotes|endnotes|header\d*|footer\d*)\.xml": [
        _Mark(DELETED, "delText"),
        _Mark(HIDDEN_TEXT, "vanish", inside="r", values={"w:val": _TRUE}, default="1"),
    ],
    r"content\.xml": [
        _Mark("hidden sheets", "table-properties", values={"table:display": ("false",)}),
        _Mark(_ROWS, "table-row", values=_COLLAPSED),
        _Mark(_ROWS, "table-column", values=_COLLAPSED),
        _Mark("hidden slides", "drawing-page-properties", values={"presentation:visibility": ("hidden",)}),
        _Mark("speakers' notes", "frame", inside="notes", values=_NOTES),
        _Mark(COMMENTS, "annotation"),
        _Mark(DELETED, "deletion"),
        _Mark(HIDDEN_TEXT, "text-properties", values={"text:display": ("none",)}),
        _Mark(HIDDEN_TEXT, "section", values={"text:display": ("none",)}),
    ],
}
_PARTS = [(re.compile(part), {mark.element: mark for mark in marks}) for part, marks in _MARKS.items()]
_RTF = {
    COMMENTS: re.compile(rb"\\\*\\annotation\b"),
    DELETED: re.compile(rb"\\deleted(?![0a-z])"),
    HIDDEN_TEXT: re.compile(rb"\\v(?![0a-z])"),
}


def watch(part: str) -> Callable[[str, Sequence[str], Attributes], str | None] | None:
    """A function that names what an element of this part hides, told the elements around it; None if none can."""
    marks = next((marks for pattern, marks in _PARTS if pattern.fullmatch(part)), None)
    if marks is None:
        return None

    def name(element: str, inside: Sequence[str], attributes: Attributes) -> str | None:
        mark = marks.get(element)
        if mark is None or not mark.fits(element, inside, attributes) or attributes.get("max") == _LAST_COLUMN:
            return None
        return mark.name

    return name


def find_in_rtf(data: bytes) -> frozenset[str]:
    return frozenset(name for name, pattern in _RTF.items() if pattern.search(data))
