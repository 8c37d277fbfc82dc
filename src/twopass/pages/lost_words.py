"""Which words of an office file or book are on none of the pages that it was converted to.

Only text counts that stays as it is when it is printed: no fields, numbers in cells, formulas, headers or footers.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser

from twopass.pages.source_files import open_pdf

_MAX_WORDS = 200_000  # different ones that are compared; a novel has 20,000
_MAX_SEARCHED = 500  # of those that no page has as a word, looked for in its letters
_MAX_NAMED, _MAX_LETTERS = 5, 30
_MAX_PARAGRAPH = 1 << 20
# Words of Latin, Greek and Cyrillic, and letters of Hebrew, Thai, Lao, Chinese, Japanese and Korean, whose lines end
# anywhere. Of scripts whose letters join, such as Arabic and those of India, PDFs do not tell the letters.
_WORD = re.compile(
    r"[0-9a-z\u00df-\u024f\u0370-\u03ff\u0400-\u052f\u1e00-\u1fff]+"
    r"|[\u05d0-\u05ea\u0e01-\u0e2e\u0e81-\u0eae\u3041-\u30ff\u3400-\u9fff\uac00-\ud7a3\U00020000-\U0003ffff]"
)
_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")  # such as soft hyphens
_ESCAPE = re.compile(r"_x[0-9a-f]{4}_", re.IGNORECASE)  # of a character that XML cannot have, in workbooks
_STABLE_FIELDS = ("HYPERLINK", "TOC", "INDEX", "BIBLIOGRAPHY", "CITATION", "ADDIN", "FORMTEXT")  # keep their text
_FALLBACK = frozenset({"Fallback", "oMath"})  # what is shown where a program does not know the other, and formulas


@dataclass(frozen=True)
class _Layout:
    """Where the text of a part stands, by the names of elements without their prefixes."""

    holders: frozenset[str]  # have text themselves
    breaks: frozenset[str]  # end a word
    skipped: frozenset[str]


_DRAWING = _Layout(frozenset({"t"}), frozenset({"p", "br"}), _FALLBACK | {"fld"})
_LAYOUTS = {  # by the names of parts
    r"word/(?:document\d*|footnotes|endnotes)\.xml": _Layout(
        frozenset({"t"}), frozenset({"p", "br", "cr", "tab", "noBreakHyphen"}), _FALLBACK | {"moveFrom"}
    ),
    r"ppt/slides/[^/]+\.xml|xl/drawings/[^/]+\.xml": _DRAWING,
    r"xl/sharedStrings\.xml": _Layout(frozenset({"t"}), frozenset({"si"}), frozenset({"rPh"})),
    r"xl/worksheets/[^/]+\.xml": _Layout(frozenset({"t"}), frozenset({"c"}), frozenset({"rPh"})),
    r"content\.xml": _Layout(
        frozenset({"p", "h", "span", "a", "ruby-base", "ruby-text"}),
        frozenset({"p", "h", "tab", "line-break", "s", "ruby-base", "ruby-text"}),
        frozenset({"annotation", "tracked-changes", "notes", "forms"}),
    ),
}
_PARTS = [(re.compile(part), layout) for part, layout in _LAYOUTS.items()]
_UNPRINTED = frozenset(  # of web pages and books; or not as text
    ("head", "title", "script", "style", "template", "noscript", "select", "textarea", "button", "iframe", "object")
    + ("svg", "math", "canvas", "audio", "video", "rp", "rt")
)
_INLINE = frozenset(
    ("a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "dfn", "em", "font", "i", "ins", "kbd", "mark")
    + ("q", "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "tt", "u", "var", "wbr")
)


class PartWords:
    """Counts the words of one part of an archive, told what its parser meets."""

    def __init__(self, layout: _Layout) -> None:
        self.words = Counter[str]()
        self._layout = layout
        self._opened = list[str]()
        self._skipped = 0  # how many of these must end until text counts
        self._fields = list[str]()  # those that are open in a document, by their instructions
        self._text = list[str]()
        self._length = 0

    def begin(self, element: str, attributes: Mapping[str, str]) -> None:
        self._opened.append(element)
        if self._skipped or element in self._layout.skipped or _is_hidden(element, attributes):
            self._skipped += 1
        elif element in self._layout.breaks:
            self._end_paragraph()
        elif element == "fldChar":
            self._follow_field(attributes.get("w:fldCharType", ""))
        elif element == "fldSimple":
            self._fields.append(attributes.get("w:instr", ""))

    def end(self) -> None:
        element = self._opened.pop()
        if self._skipped:
            self._skipped -= 1
        elif element in self._layout.breaks:
            self._end_paragraph()
        elif element == "fldSimple" and self._fields:
            self._fields.pop()

    def add(self, text: str) -> None:
        if self._skipped or not self._opened:
            return
        if self._opened[-1] == "instrText" and self._fields:
            self._fields[-1] += text
        elif self._opened[-1] in self._layout.holders and self._has_stable_text():
            self._text.append(text)
            self._length += len(text)
            if self._length > _MAX_PARAGRAPH:
                self._end_paragraph()

    def _has_stable_text(self) -> bool:
        return not self._fields or self._fields[-1].strip().startswith(_STABLE_FIELDS)

    def _follow_field(self, mark: str) -> None:
        if mark == "begin":
            self._fields.append("")
        elif mark == "end" and self._fields:
            self._fields.pop()

    def _end_paragraph(self) -> None:
        count(_ESCAPE.sub(" ", "".join(self._text)), self.words)
        self._text.clear()
        self._length = 0


def watch(part: str) -> PartWords | None:
    """What counts the words of this part, if it has text that is printed."""
    return next((PartWords(layout) for pattern, layout in _PARTS if pattern.fullmatch(part)), None)


def count_in_html(data: bytes) -> Counter[str]:
    """The words of a web page or chapter; none of one that is not in UTF-8."""
    try:
        page = _WebPage()
        page.feed(data.decode("utf-8-sig"))
        page.close()
    except UnicodeDecodeError:
        return Counter()
    words = Counter[str]()
    count("".join(page.text), words)
    return words


def count(text: str, words: Counter[str]) -> None:
    """Add the words of the text."""
    words.update(word for word in _split(text) if word in words or len(words) < _MAX_WORDS)


def name(words: Mapping[str, int], pdf: str) -> tuple[str, ...]:
    """A name for the words that are not on the pages of the PDF as often as they should be; nothing if all are."""
    shown, pages = Counter[str](), list[str]()
    with open_pdf(pdf, None) as document:
        for page in document:
            found = list(_split(page.get_text()))
            shown.update(found)
            pages.append("".join(found))
    letters = "".join(pages)
    missing = {word: number for word, number in words.items() if shown[word] < (number if len(word) > 1 else 1)}
    searched = list(missing.items())[:_MAX_SEARCHED]  # words that lines, cells or styles divide are there in pieces
    lost = [word[:_MAX_LETTERS] for word, number in searched if letters.count(word) < number]
    if not lost:
        return ()
    more = f"{'over ' if len(missing) > len(searched) else ''}{len(lost) - _MAX_NAMED:,}"
    return (f"words ({', '.join(lost[:_MAX_NAMED])}{f' and {more} more' if len(lost) > _MAX_NAMED else ''})",)


def _split(text: str) -> Iterator[str]:
    text = _UNSEEN.sub("", unicodedata.normalize("NFKC", text)).casefold()
    return (word[0] for word in _WORD.finditer(text))


def _is_hidden(element: str, attributes: Mapping[str, str]) -> bool:
    """Whether other names say already that it is not printed, or it holds a number."""
    if element == "sld":
        return attributes.get("show") in ("0", "false")
    return element == "table-cell" and attributes.get("office:value-type", "string") != "string"


class _WebPage(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.text = list[str]()
        self._skipped = list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _UNPRINTED:
            self._skipped.append(tag)
        elif tag not in _INLINE:
            self.text.append("\n")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _INLINE:
            self.text.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._skipped:
            del self._skipped[self._skipped.index(tag) :]
        elif tag not in _INLINE:
            self.text.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self.text.append(data)
