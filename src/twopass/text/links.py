"""Find the words that a PDF's links cover in the texts of elements, whoever read them.

Letters are compared, so that line ends, hyphens and marks of style between them do not matter. Where an element has the
same words several times, the text in front of the link tells which of them it is.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rapidfuzz import fuzz

from twopass.document import Cell, Element, Link, TextLink

_LIVE = re.compile(r"(?:https?://|mailto:)[^\s\ufffd]+", flags=re.IGNORECASE)  # all that a reader may click
_MAX_ADDRESS = 4096  # characters
_MIN_SIMILAR = 85  # per cent
_MIN_LETTERS, _MAX_LETTERS = 6, 500  # of words that are similar: shorter ones are others, longer ones take too long
_MAX_LINKS = 2000  # of a page; more are no links of a text
_MIN_OVERLAP = 0.3  # of the link's area, for an element whose words it may cover
_MIN_COVERED = 0.5  # of a picture, for a link on it: of a map with several places, none is that of the picture
_MAX_OCCURRENCES = 200  # of a link's words in one element
_MAX_GAP = 3  # characters between two lines of one link
# Characters of an address that some reader of Markdown would take for its end or for markup.
_UNSAFE = re.compile(r"[<>()\[\]{}\"'\\`*|^$]")


class Letters(NamedTuple):
    """The letters and digits of a text, folded, and the position of each in it."""

    text: str
    positions: list[int]

    @classmethod
    def of(cls, text: str) -> Letters:
        if text.isascii():
            positions = [position for position, character in enumerate(text) if character.isalnum()]
            return cls("".join(text[position] for position in positions).casefold(), positions)
        pairs = [
            (letter, position)
            for position, character in enumerate(text)
            for letter in unicodedata.normalize("NFKD", character).casefold()
            if letter.isalnum()
        ]
        return cls("".join(letter for letter, _ in pairs), [position for _, position in pairs])


def is_live(uri: str) -> bool:
    """Whether the text formats make a link of the address: only http, https and mailto, without hidden characters."""
    is_visible = all(unicodedata.category(character)[0] not in "CZ" for character in uri)
    return is_visible and len(uri) <= _MAX_ADDRESS and bool(_LIVE.fullmatch(uri))


def encode_address(uri: str) -> str:
    """The address without the signs that some reader of Markdown or HTML would take for its end or for markup."""
    return _UNSAFE.sub(lambda found: f"%{ord(found.group()):02X}", uri)


# ---- links to elements ----


def attach(elements: Sequence[Element], links_of: Mapping[int, Sequence[Link]]) -> list[Element]:
    """The elements with the links of their texts; `links_of` are those of the pages, by number."""
    by_page: dict[int, list[Element]] = defaultdict(list)
    for element in elements:
        if links_of.get(element.page):
            by_page[element.page].append(element)
    attached: dict[str, Element] = {}
    for page, own in by_page.items():
        targets = [_Target(element) for element in own if element.boxes]
        for link in dict.fromkeys(links_of[page][:_MAX_LINKS]):
            if is_live(link.uri):
                _attach(link, targets)
        attached |= {target.element.id: target.with_links() for target in targets if target.found}
    return [attached.get(element.id, element) for element in elements]


class _Place(NamedTuple):
    """Where a link's words are: the index of the text, which is a cell's in a table, and characters of it."""

    owner: int
    start: int
    end: int
    uri: str


@dataclass
class _Target:
    """An element that links may belong to, with what was found of them."""

    element: Element
    found: list[_Place | str] = field(default_factory=list)  # a link of the whole element is only its address

    def __post_init__(self) -> None:
        cells = self.element.table.cells if self.element.table else ()
        self._texts = [cell.text for cell in cells] or [self.element.text]
        self._letters: Letters | None = None
        self._owners: list[int] = []

    @property
    def letters(self) -> str:
        """The letters of all texts; computed where a link may be in the element."""
        if self._letters is None:
            each = [Letters.of(text) for text in self._texts]
            self._owners = [n for n, letters in enumerate(each) for _ in letters.positions]
            positions = [position for letters in each for position in letters.positions]
            self._letters = Letters("".join(letters.text for letters in each), positions)
        return self._letters.text

    def measure(self, link: Link) -> float:
        """The share of the link that lies on the element."""
        overlap = max(box.overlap(link.box) for box in self.element.boxes)
        return overlap / link.box.area if link.box.area > 0 else 0.0

    def add(self, link: Link, start: int, end: int) -> bool:
        """Add the link of these letters, with the signs at its ends; False if they are in several cells."""
        assert self._letters
        if self._owners[start] != self._owners[end - 1]:
            return False
        owner = self._owners[start]
        first, last = self._letters.positions[start], self._letters.positions[end - 1] + 1
        span = _include_signs(self._texts[owner], first, last, link.text or "")
        self.found.append(_Place(owner, *span, link.uri))
        return True

    def find(self, link: Link, words: str) -> bool:
        """Add the link at the occurrence of its words behind the same text as in the PDF; False if it has none."""
        starts = list(_find_all(self.letters, words))
        before = Letters.of(link.before).text
        starts.sort(key=lambda start: -_count_common_end(before, self.letters[max(start - len(before), 0) : start]))
        return any(self.add(link, start, start + len(words)) for start in starts)

    def find_similar(self, link: Link, words: str) -> bool:
        """Add the link where the element says almost the same, because a letter was read differently."""
        if not _MIN_LETTERS <= len(words) <= min(_MAX_LETTERS, len(self.letters)):
            return False
        found = fuzz.partial_ratio_alignment(words, self.letters, score_cutoff=_MIN_SIMILAR)
        return (
            found is not None and found.dest_end > found.dest_start and self.add(link, found.dest_start, found.dest_end)
        )

    def cover(self, link: Link) -> bool:
        """Add the link to a picture that it covers."""
        box = self.element.box
        is_covered = self.element.is_figure and box is not None and link.box.overlap(box) >= _MIN_COVERED * box.area > 0
        if is_covered:
            self.found.append(link.uri)
        return is_covered

    def with_links(self) -> Element:
        places = [place for place in self.found if isinstance(place, _Place)]
        whole = tuple(TextLink(uri=uri) for uri in dict.fromkeys(p for p in self.found if isinstance(p, str)))
        links = [tuple(_join(text, [p for p in places if p.owner == n])) for n, text in enumerate(self._texts)]
        if self.element.table and self.element.table.cells:
            cells = [_with_links(*pair) for pair in zip(self.element.table.cells, links, strict=True)]
            table = self.element.table.model_copy(update={"cells": tuple(cells)})
            return self.element.model_copy(update={"table": table, "links": whole})
        return self.element.model_copy(update={"links": (*links[0], *whole[:1])})


def _with_links(cell: Cell, links: tuple[TextLink, ...]) -> Cell:
    return cell.model_copy(update={"links": links}) if links else cell


def _attach(link: Link, targets: Iterable[_Target]) -> None:
    """Add the link to the element that has its words, or to the picture that it covers."""
    shares = [(target.measure(link), target) for target in targets]
    near = [t for share, t in sorted(shares, key=lambda pair: -pair[0]) if share >= _MIN_OVERLAP]
    words = Letters.of(link.text or "").text
    is_found = bool(words) and (
        any(target.find(link, words) for target in near) or any(target.find_similar(link, words) for target in near)
    )
    if not is_found:
        any(target.cover(link) for target in near)


def _leading_signs(text: str) -> str:
    return text[: next((n for n, character in enumerate(text) if character.isalnum() or character.isspace()), 0)]


def _find_all(text: str, words: str) -> Iterator[int]:
    start = text.find(words)
    for _ in range(_MAX_OCCURRENCES):
        if start < 0:
            return
        yield start
        start = text.find(words, start + 1)


def _count_common_end(one: str, other: str) -> int:
    pairs = zip(reversed(one), reversed(other), strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _join(text: str, places: Sequence[_Place]) -> Iterator[TextLink]:
    """The links of one text in order; the lines of one link are joined, and of links that overlap the upper one stays.

    The PDF's last annotation is the one on top.
    """
    kept: list[_Place] = []
    for place in reversed(places):
        if not any(place.start < other.end and other.start < place.end for other in kept):
            kept.append(place)
    joined: list[_Place] = []
    for place in sorted(kept, key=lambda place: place.start):
        last = joined[-1] if joined else None
        if last and last.uri == place.uri and _is_gap(text[last.end : place.start]):
            joined[-1] = last._replace(end=place.end)
        else:
            joined.append(place)
    return (TextLink(uri=place.uri, start=place.start, end=place.end) for place in joined)


def _is_gap(between: str) -> bool:
    return len(between) <= _MAX_GAP and not any(map(str.isalnum, between))


# ---- links in what a format shows ----


class ShownLink(NamedTuple):
    """Characters [start, end) of a text that a format shows, which are a link."""

    start: int
    end: int
    uri: str


def locate(
    links: Sequence[TextLink], source: str, shown: str, skipped: int = 0, is_markdown: bool = False
) -> list[ShownLink]:
    """Where the links of the text `source` are in `shown`, a part of it whose other signs may differ.

    `skipped` is the number of letters in front of that part.
    """
    if not links:
        return []
    own, positions = Letters.of(source), _find_shown_letters(shown) if is_markdown else Letters.of(shown).positions
    located = []
    for link in links:
        if link.start is None or link.end is None:
            continue
        first = max(bisect_left(own.positions, link.start) - skipped, 0)
        last = min(bisect_left(own.positions, link.end) - skipped, len(positions)) - 1
        if first <= last:
            span = _include_signs(shown, positions[first], positions[last] + 1, source[link.start : link.end])
            located.append(ShownLink(*(_include_marks(shown, *span) if is_markdown else span), link.uri))
    return located


def count_letters(text: str) -> int:
    return len(Letters.of(text).positions)


_MARK, _ESCAPED = re.compile(r"\*+|</?su[bp]>"), re.compile(r"\\[\s\S]")
_STARS = re.compile(r"\**")
_UNSHOWN = re.compile(r"</?su[bp]>|<br ?/?>|&(?:#\w+|\w+);")


def _find_shown_letters(shown: str) -> list[int]:
    """The positions of the letters that a reader sees: not those of tags and of the names of characters."""
    hidden = {n for found in _UNSHOWN.finditer(shown) for n in range(*found.span())}
    positions = Letters.of(shown).positions
    return [position for position in positions if position not in hidden] if hidden else positions


def _include_signs(shown: str, start: int, end: int, covered: str) -> tuple[int, int]:
    before, after = _leading_signs(covered), _leading_signs(covered[::-1])[::-1]
    start -= len(before) if before and shown[:start].endswith(before) else 0
    end += len(after) if after and shown.startswith(after, end) else 0
    return start, end


def is_balanced(markdown: str) -> bool:
    """Whether all styles that begin in a piece of Markdown end in it."""
    opened: list[str] = []
    for mark in _MARK.findall(_ESCAPED.sub("", markdown)):
        if opened and mark.replace("/", "") == opened[-1]:
            opened.pop()
        else:
            opened.append(mark)
    return not opened


def _include_marks(markdown: str, start: int, end: int) -> tuple[int, int]:
    """The span with the asterisks at one of its ends, if they close or open those inside it."""
    if is_balanced(markdown[start:end]):
        return start, end
    stop = end + len(_STARS.match(markdown, end)[0])  # type: ignore[index]  # which may be empty
    begin = len(markdown[:start].rstrip("*"))
    return (start, stop) if stop > end else (begin, end)
