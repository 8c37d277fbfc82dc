"""Tell the headers, footers, page numbers and margin notes of one page from its body.

The layout model's labels are checked against the page: a header or footer is the outermost text, apart from the body,
short and no sentence. What fails the check may be a footnote or a part of the text. Whether a header leaves the body is
decided by the whole document, which repeats it or does not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from twopass.families.layout.page_layout import LayoutLine, LayoutRegion, PageLayout
from twopass.text import footnotes, page_numbers, prose
from twopass.text.page_furniture import BAND

_LABELS = frozenset({"page-header", "page-footer"})
_SIDE_BAND, _MIN_STAMP_RATIO = 0.08, 5.0  # of the page's width; height over width of text that runs up the paper's edge
_PAGE_NUMBER_BAND = 0.08  # of the page's height, top and bottom: a number alone there is the page number
_MIN_GAP = 0.5  # of the type size, between a header or footer and the body
_NUMBER_GAP = 0.8  # of the line's height, between a page number and the text; the lines of a paragraph are closer
_MAX_SIZE_RATIO = 1.15  # of the body's type size: larger text is a heading
_MAX_SIZE = 0.025  # of the page's height: larger text is that of a slide; headers and footers have 0.008 to 0.02
_MAX_LENGTH, _MAX_IMPRINT_LENGTH = 100, 300  # characters; the longer for copyright lines and names of proceedings
_MAX_PHRASE_WORDS = 6  # a longer text that ends like a sentence is one
_MIN_INSET = 0.04  # of the width of a text, on both sides of a title above it
_MIN_VERTICAL_LINES = 3  # of a page that is set sideways; a note along the edge of a page of pictures has one or two
_VERTICAL_RATIO = 2.0  # height over width of a line that runs up or down the page

_IMPRINT = re.compile(
    r"©|\(c\) \d{4}|copyright|all rights reserved|\b(?:doi|issn|isbn|arxiv|vol\.|pp\.|pages)\b|https?://|www\."
    r"|proceedings|conference|journal|downloaded|licen[sc]ed",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"\s*(?:https?://|www\.)\S+", re.IGNORECASE)
_PAGE_NUMBER = re.compile(r"\[?\d{1,4}\]?")
_NOTE_INSIDE = re.compile(r"[.;)]\s+\d{1,2}\s+[^\W\d_]|[^\W\d_]\s=\s")  # `; 1 See …`, or what letters stand for


class Role(StrEnum):
    """What a region is, or is not, for certain."""

    CONFIRMED = "confirmed"  # a labelled header or footer that the page confirms
    PAGE_NUMBER = "page_number"  # whatever its label
    STAMP = "stamp"  # text along the paper's edge, such as who downloaded the file and when
    INNER = "inner"  # a labelled header or footer outside the margins: body text
    SET_LIKE_TEXT = "set_like_text"  # a labelled footnote neither smaller than the text above it nor apart: body text

    @property
    def is_furniture(self) -> bool:
        return self in (Role.CONFIRMED, Role.PAGE_NUMBER, Role.STAMP)


def analyse(layout: PageLayout) -> list[tuple[LayoutRegion, Role | None]]:
    """The page's regions, with page numbers apart from the text beside them, and their roles."""
    regions = [part for region in layout.boxes for part in _split_page_numbers(region, layout)]
    page = _Page(layout, regions)
    return [(region, page.find_role(region)) for region in regions]


@dataclass(frozen=True)
class _Page:
    """A page's regions, with the direction in which its lines follow each other."""

    layout: PageLayout
    regions: Sequence[LayoutRegion]

    @cached_property
    def is_turned(self) -> bool:
        """Whether most text runs up or down the page, as on a page whose table is set sideways."""
        lines = [line for region in self.layout.boxes for line in region.lines]
        vertical = [line for line in lines if _is_vertical(line)]
        letters = sum(len(line.text) for line in vertical)
        return len(vertical) >= _MIN_VERTICAL_LINES and 2 * letters > sum(len(line.text) for line in lines)

    @cached_property
    def body(self) -> tuple[LayoutRegion, ...]:
        """The regions with text that no label or shape tells from the body."""
        return tuple(r for r in self.regions if r.label not in _LABELS and _holds_text(r) and not self._is_marginal(r))

    @cached_property
    def body_size(self) -> float | None:
        """The median type size of the running text; None where the page has none."""
        has_text = any(region.label == "text" and region.lines for region in self.layout.boxes)
        return self.layout.body_size if has_text else None

    def extent(self, region: LayoutRegion) -> tuple[float, float]:
        """Where a region begins and ends across the page's lines, as fractions of the page."""
        x0, y0, x1, y1 = region.box
        if self.is_turned:
            return x0 / self.layout.width, x1 / self.layout.width
        return y0 / self.layout.height, y1 / self.layout.height

    def find_role(self, region: LayoutRegion) -> Role | None:
        """What the region is for certain; None for what its label says."""
        if self.is_page_number(region):
            return Role.PAGE_NUMBER
        if self.confirms(region):
            return Role.CONFIRMED
        if self.is_stamp(region):
            return Role.STAMP
        if region.label in _LABELS:
            return None if self.is_in_its_margin(region) or self.is_last_on_short_page(region) else Role.INNER
        return Role.SET_LIKE_TEXT if self.is_set_like_text(region) else None

    def is_in_its_margin(self, region: LayoutRegion) -> bool:
        """Whether a header lies in the top margin, or a footer in the bottom margin; on a turned page, in any."""
        start, end = self.extent(region)
        is_top, is_bottom = end <= BAND, start >= 1 - BAND
        if self.is_turned:
            return is_top or is_bottom
        return is_top if region.label == "page-header" else is_bottom

    def is_last_on_short_page(self, region: LayoutRegion) -> bool:
        """Whether a footer is the lowest text of a page that is empty below it, or a header the highest."""
        is_end = region.label == "page-footer"
        start, end = self.extent(region)
        length = self.layout.width if self.is_turned else self.layout.height
        gap = _MIN_GAP * region.size / length
        others = [self.extent(other) for other in self.regions if other is not region and _holds_text(other)]
        is_last = all(o_end + gap <= start if is_end else o_start - gap >= end for o_start, o_end in others)
        is_phrase = _reads_like_furniture(region.text) or bool(_ADDRESS.match(region.text))
        return bool(others) and is_last and self._is_small(region) and is_phrase

    def is_stamp(self, region: LayoutRegion) -> bool:
        """Whether a region is text along the paper's edge, across the direction of the page's text."""
        x0, y0, x1, y1 = region.box
        edge = _SIDE_BAND * self.layout.width
        is_narrow = y1 - y0 > _MIN_STAMP_RATIO * (x1 - x0) and (x1 < edge or x0 > self.layout.width - edge)
        return bool(region.lines) and is_narrow and (not self.is_turned or self.confirms(region))

    def is_page_number(self, region: LayoutRegion) -> bool:
        """Whether a region is a number alone at the paper's edge, or in the margin and apart from all text.

        A number directly below or above text, such as the last one of a column of prices, is not alone.
        """
        is_text = region.label in ("text", "orphan", *_LABELS) and bool(region.lines)
        if not is_text or not page_numbers.parse(region.text):
            return False
        start, end = self.extent(region)
        if end < _PAGE_NUMBER_BAND or start > 1 - _PAGE_NUMBER_BAND:
            return not self._touches_body(region)
        return self._is_in_band(region) and self._is_outermost(region)

    def confirms(self, region: LayoutRegion) -> bool:
        """Whether a region that is labelled header or footer is one for certain."""
        if region.label not in _LABELS or not region.lines or not self._is_in_band(region):
            return False
        if not self._is_small(region) or not self._is_outermost(region):
            return False
        return _reads_like_furniture(region.text) and not (self._is_at_end(region) and self._may_be_note(region))

    def is_set_like_text(self, region: LayoutRegion) -> bool:
        """Whether a footnote is neither in smaller type nor apart from the text above it."""
        if region.label != "footnote" or not region.lines or self.body_size is None:
            return False
        above = [other.box[3] for other in self.body if other.label != "footnote" and _is_above(other, region)]
        size = region.size
        is_apart = not above or region.box[1] - max(above) >= _MIN_GAP * size
        return size >= self.body_size and not is_apart

    def _is_in_band(self, region: LayoutRegion) -> bool:
        start, end = self.extent(region)
        return end <= BAND or start >= 1 - BAND

    def _is_at_end(self, region: LayoutRegion) -> bool:
        return sum(self.extent(region)) > 1

    def _is_small(self, region: LayoutRegion) -> bool:
        size, length = region.size, self.layout.width if self.is_turned else self.layout.height
        return size <= _MAX_SIZE * length and (self.body_size is None or size <= _MAX_SIZE_RATIO * self.body_size)

    def _is_outermost(self, region: LayoutRegion) -> bool:
        """Whether no body text is as far out, and the nearest is apart."""
        start, end = self.extent(region)
        length = self.layout.width if self.is_turned else self.layout.height
        gap = _MIN_GAP * region.size / length
        others = [self.extent(other) for other in self.body if other is not region]
        if self._is_at_end(region):
            return all(other_end + gap <= start for _, other_end in others)
        return all(other_start - gap >= end for other_start, _ in others)

    def _touches_body(self, region: LayoutRegion) -> bool:
        """Whether text of the body in the same column is nearer than the next line of a paragraph would be."""
        x0, y0, x1, y1 = region.box
        gap = _MIN_GAP * region.size
        boxes = [other.box for other in self.body if other is not region]
        return any(a < x1 and x0 < c and b - gap < y1 and y0 < d + gap for a, b, c, d in boxes)

    def _is_marginal(self, region: LayoutRegion) -> bool:
        """Whether a region is a page number at the edge, or text along the paper's edge."""
        start, end = self.extent(region)
        is_edge = end < _PAGE_NUMBER_BAND or start > 1 - _PAGE_NUMBER_BAND
        is_number = bool(region.lines) and is_edge and page_numbers.parse(region.text) is not None
        return is_number or (not self.is_turned and self.is_stamp(region))

    def _may_be_note(self, region: LayoutRegion) -> bool:
        """Whether a footer may be a footnote or a part of one: layout models label some of them footers."""
        if self._is_likely_note(region):
            return True
        others = (other for other in self.regions if other is not region and other.label == "page-footer")
        return any(map(self._is_likely_note, others))

    def _is_likely_note(self, region: LayoutRegion) -> bool:
        """Whether a text explains something, or begins with a mark that the page refers to and not with its number."""
        text = prose.to_one_line(region.text)
        if _NOTE_INSIDE.search(text):
            return True
        note = footnotes.parse_note(text)
        if note is None or not footnotes.is_note(text) or page_numbers.parse(text):
            return False
        if not note[0].isdecimal() or not note[1][:1].isalpha() or prose.ends_sentence(note[1]):
            return True
        texts = [prose.to_one_line(other.text) for other in self.regions if other is not region]
        return any(
            footnotes.may_refer(one, note[0], [text, *texts[:n], *texts[n + 1 :]]) for n, one in enumerate(texts)
        )


def _split_page_numbers(region: LayoutRegion, layout: PageLayout) -> list[LayoutRegion]:
    """Split a region of text from a page number above or below it, or from a title with one above it."""
    lines = region.lines
    if len(lines) < 2 or region.table or region.label in ("picture", "formula", *_LABELS):
        return [region]
    first, last = lines[0], lines[-1]
    if region.label == "text" and first.box[3] <= BAND * layout.height and _is_running_title(first, lines[1:]):
        header = region.with_lines(lines[:1]).model_copy(update={"label": "page-header"})
        return [header, region.with_lines(lines[1:])]
    if first.box[3] <= BAND * layout.height and _is_number_beside(first, lines[1]) and _is_apart(first, lines[1]):
        return [region.with_lines(lines[:1]), *_split_page_numbers(region.with_lines(lines[1:]), layout)]
    if last.box[1] >= (1 - BAND) * layout.height and _is_number_beside(last, lines[-2]) and _is_apart(lines[-2], last):
        return [region.with_lines(lines[:-1]), region.with_lines(lines[-1:])]
    return [region]


def _is_running_title(line: LayoutLine, below: Sequence[LayoutLine]) -> bool:
    """Whether the first line of a text is a title with the page's number, as old OCR puts both into one paragraph.

    It is in capitals, or set in from both sides.
    """
    words = line.text.split()
    is_numbered = len(words) > 1 and any(_PAGE_NUMBER.fullmatch(word) for word in (words[0], words[-1]))
    has_letters = any(map(str.isalpha, line.text)) and any(map(str.islower, "".join(other.text for other in below)))
    if not (is_numbered and has_letters) or len(line.text) > _MAX_LENGTH:
        return False
    left, right = min(other.box[0] for other in below), max(other.box[2] for other in below)
    inset = _MIN_INSET * (right - left)
    is_inset = line.box[0] - left >= inset and right - line.box[2] >= inset
    return not any(map(str.islower, line.text)) or is_inset


def _is_number_beside(line: LayoutLine, other: LayoutLine) -> bool:
    """Whether a line is a number and the other one has words: in a column of numbers, none is the page's."""
    return page_numbers.parse(line.text) is not None and any(map(str.isalpha, other.text))


def _is_apart(upper: LayoutLine, lower: LayoutLine) -> bool:
    return lower.box[1] - upper.box[3] >= _NUMBER_GAP * (upper.box[3] - upper.box[1])


def _is_vertical(line: LayoutLine) -> bool:
    x0, y0, x1, y1 = line.box
    return len(line.text) > 2 and y1 - y0 > _VERTICAL_RATIO * (x1 - x0)


def _is_above(other: LayoutRegion, region: LayoutRegion) -> bool:
    """Whether the other region is in the same column and its centre is higher."""
    in_column = other.box[0] < region.box[2] and region.box[0] < other.box[2]
    return in_column and other.box[1] + other.box[3] < region.box[1] + region.box[3]


def _holds_text(region: LayoutRegion) -> bool:
    return region.label != "picture" and bool(region.lines or region.table)


def _reads_like_furniture(text: str) -> bool:
    """Whether a text is a phrase, such as a title or an imprint, and not a part of a paragraph."""
    line = prose.to_one_line(text)
    if prose.starts_mid_sentence(line) or prose.is_unfinished(line):
        return False
    if _IMPRINT.search(line):
        return len(line) <= _MAX_IMPRINT_LENGTH
    if not any(map(str.isalpha, line)):
        return False  # numbers, such as those of a scale
    is_sentence = prose.ends_sentence(line) and len(prose.split_words(line)) > _MAX_PHRASE_WORDS
    return len(line) <= _MAX_LENGTH and not is_sentence
