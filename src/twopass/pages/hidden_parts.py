"""What office files have that is on none of their pages: hidden sheets, rows and slides, comments, notes, deletions.

Of web pages, LibreOffice would print what browsers hide, so that it is cut out before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import accumulate

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
    unless_target: str = "\0"  # how the file ends that the element inserts

    def fits(self, element: str, inside: Sequence[str], attributes: Attributes) -> bool:
        return (
            element == self.element
            and (not self.inside or self.inside in inside)
            and not attributes.get("Target", "").lower().endswith(self.unless_target)
            and all(attributes.get(key, self.default) in values for key, values in self.values.items())
        )


_NOTES = {"presentation:class": ("notes",), "presentation:placeholder": ("", "false")}
_COLLAPSED = {"table:visibility": ("collapse", "filter")}
_CHUNK = {"Type": ("http://schemas.openxmlformats.org/officeDocument/2006/relationships/aFChunk",)}
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
    r"word/_rels/document\.xml\.rels": [
        _Mark("inserted files", "Relationship", values=_CHUNK, unless_target=".docx")  # web pages, RTF
    ],
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
_MAY_HIDE = re.compile(rb"hidden|display|font-size|opacity|<template|<dialog", re.IGNORECASE)
_NOT_DRAWN = re.compile(r"display\s*:\s*none|opacity\s*:\s*0+(?:\.0*)?(?![\d.])", re.IGNORECASE)
_INVISIBLE = re.compile(r"visibility\s*:\s*(?:hidden|collapse)|font-size\s*:\s*0+(?:\.0*)?(?![\d.])", re.IGNORECASE)
_SHOWN_AGAIN = re.compile(r"visibility|font-size|class\s*=|id\s*=", re.IGNORECASE)  # what may undo these inside
_DISPLAY = re.compile(r"display\s*:", re.IGNORECASE)
_CSS_OTHER = re.compile(
    r"/\*.*?\*/|@[^{};]*(?:;|\{(?:[^{}]*\{[^{}]*\})*[^{}]*\})", re.DOTALL
)  # such as for small screens
_CSS_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_ENDS_BEFORE = {  # elements whose end tag may be missing, and what ends them
    "p": frozenset(
        ("p", "div", "table", "ul", "ol", "dl", "pre", "blockquote", "form", "section", "article")
        + ("h1", "h2", "h3", "h4", "h5", "h6", "hr")
    ),
    "li": frozenset({"li"}),
    **dict.fromkeys(("dt", "dd"), frozenset({"dt", "dd"})),
    **dict.fromkeys(("td", "th"), frozenset({"td", "th", "tr", "tbody"})),
    "tr": frozenset({"tr", "tbody"}),
    "option": frozenset({"option"}),
}
VOID_ELEMENTS = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr")
)


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


def cut_from_html(data: bytes) -> tuple[bytes, frozenset[str]]:
    """The page without the elements that its markup hides, and what they are.

    Style sheets count if they are in the page, for the rules of one element, class or id.
    """
    if not _MAY_HIDE.search(data):
        return data, frozenset()
    text = data.decode("latin-1")  # a character for each byte; tags are ASCII
    page = _WebPage(text)
    kept, end = list[str](), 0
    for start, stop in page.hidden:
        kept.append(text[end:start])
        end = stop
    return "".join((*kept, text[end:])).encode("latin-1"), frozenset({HIDDEN_TEXT} if page.hides_text else ())


@dataclass
class _Element:
    """An element that is not closed yet, by where its tag and its content start."""

    name: str
    start: int
    content: int
    is_undrawn: bool
    is_invisible: bool
    has_text: bool = False


class _WebPage(HTMLParser):
    """The ranges of hidden elements, outermost only, and whether one of them has text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self._text = text
        self._lines = list(accumulate((len(line) + 1 for line in text.split("\n")), initial=0))
        self._open = list[_Element]()
        self._rules: dict[str, tuple[bool, bool]] = {}
        self.hidden = list[tuple[int, int]]()
        self.hides_text = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        start = self._find_position()
        if self._open and tag in _ENDS_BEFORE.get(self._open[-1].name, ()):
            self._end(len(self._open) - 1, start)
        if tag not in VOID_ELEMENTS:
            content = start + len(self.get_starttag_text() or "")
            self._open.append(_Element(tag, start, content, *self._find_style(tag, dict(attrs))))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)  # in HTML, the slash means nothing

    def handle_endtag(self, tag: str) -> None:
        start = self._find_position()
        index = next((index for index in reversed(range(len(self._open))) if self._open[index].name == tag), None)
        if index is None:
            return
        while len(self._open) > index + 1:
            self._end(len(self._open) - 1, start)
        stop = self._text.find(">", start) + 1 or len(self._text)
        self._end(index, stop)

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1].name == "style":
            self._read_rules(data)
        elif self._open and not data.isspace() and self._open[-1].name != "script":
            self._open[-1].has_text = True

    def _find_position(self) -> int:
        line, column = self.getpos()
        return self._lines[line - 1] + column

    def _read_rules(self, sheet: str) -> None:
        for selectors, style in _CSS_RULE.findall(_CSS_OTHER.sub(" ", sheet)):
            hides = bool(_NOT_DRAWN.search(style)), bool(_INVISIBLE.search(style))
            if any(hides) or _DISPLAY.search(style):
                self._rules |= dict.fromkeys((selector.strip().lower() for selector in selectors.split(",")), hides)

    def _find_style(self, tag: str, attributes: dict[str, str | None]) -> tuple[bool, bool]:
        """Whether the element is not drawn, and whether its own text is invisible."""
        style = attributes.get("style") or ""
        if "hidden" in attributes or tag == "template" or (tag == "dialog" and "open" not in attributes):
            return True, False
        names = [f".{name}" for name in (attributes.get("class") or "").split()]
        names += [f"#{attributes['id']}"] if attributes.get("id") else []
        names = [name.lower() for name in (tag, *names, *(tag + name for name in names))]
        found = [self._rules[name] for name in names if name in self._rules and not _DISPLAY.search(style)]
        found.append((bool(_NOT_DRAWN.search(style)), bool(_INVISIBLE.search(style))))
        return any(row[0] for row in found), any(row[1] for row in found)

    def _end(self, index: int, stop: int) -> None:
        element = self._open.pop(index)
        if element.is_undrawn or (element.is_invisible and not _SHOWN_AGAIN.search(self._text, element.content, stop)):
            while self.hidden and self.hidden[-1][0] > element.start:
                self.hidden.pop()
            self.hidden.append((element.start, stop))
            self.hides_text = self.hides_text or element.has_text
        elif self._open:
            self._open[-1].has_text |= element.has_text
