"""Write the styles of a text as Markdown: bold and italic as asterisks, superscripts and subscripts as HTML tags.

A style that Markdown cannot show where it stands is left out: the words matter more.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from twopass.families.layout.page_layout import LayoutLine
from twopass.text import markdown_escapes, superscripts

_MARKERS = {"b": "**", "i": "*", "bi": "***"}
_TAGS = {"^": "sup", "_": "sub"}
_MATHS = re.compile(r"\\[(\[]")  # the delimiters of formulas, which formats/ converts


class _Segment(NamedTuple):
    text: str
    style: str


def write_styles(text: str, lines: Sequence[LayoutLine], common: str = "", start: int = 0) -> str | None:
    """`text[start:]` as Markdown with the styles of its lines; None if it has none, or has formulas.

    `text` holds the characters of the lines in their order, with blanks and hyphens at line ends changed. `common` are
    the styles that most of the page has.
    """
    if not any(line.runs for line in lines) or _MATHS.search(text):
        return None
    styles = [style.translate(dict.fromkeys(map(ord, common))) for style in _align_styles(text, lines)]
    styles[:start] = [""] * min(start, len(styles))
    segments = _separate(_to_segments(text[start:], styles[start:]))
    if not any(segment.style for segment in segments):
        return None
    escaped = markdown_escapes.escape_parts([segment.text for segment in segments])
    markdown = "".join(_mark(part, segment.style) for part, segment in zip(escaped, segments, strict=True))
    return markdown if segments[0].style else markdown_escapes.escape_line_start(markdown)


def _align_styles(text: str, lines: Sequence[LayoutLine]) -> list[str]:
    """The style of each character of the text; a blank has that of both neighbours if they agree."""
    source = [pair for line in lines for pair in zip(line.text, _expand(line), strict=True) if not pair[0].isspace()]
    styles: list[str | None] = []
    position = 0
    for character in text:
        while position < len(source) and not character.isspace() and source[position][0] != character:
            position += 1  # a hyphen at a line's end, which is not in the text
        is_known = position < len(source) and not character.isspace()
        styles.append(source[position][1] if is_known else None if character.isspace() else "")
        position += is_known
    return _fill_blanks(styles)


def _expand(line: LayoutLine) -> list[str]:
    styles = [""] * len(line.text)
    for start, end, style in line.runs:
        known = "".join(letter for letter in "bi^_" if letter in style)
        for position in range(max(start, 0), min(end, len(styles))):
            styles[position] = known
    return styles


def _fill_blanks(styles: Sequence[str | None]) -> list[str]:
    filled, before = [], ""
    following = ""
    after = [following := style if style is not None else following for style in reversed(styles)][::-1]
    for style, next_style in zip(styles, after, strict=True):
        if style is None:
            filled.append(before if before == next_style and not set(before) & set("^_") else "")
        else:
            filled.append(style)
            before = style
    return filled


def _to_segments(text: str, styles: Sequence[str]) -> list[_Segment]:
    """Runs of one style; a script has no other style, because it cannot stand inside asterisks everywhere."""
    simple = ["^" if "^" in style else "_" if "_" in style else style for style in styles]
    pairs = groupby(zip(text, simple, strict=True), key=lambda pair: pair[1])
    return [_Segment("".join(character for character, _ in group), style) for style, group in pairs]


def _separate(segments: Sequence[_Segment]) -> list[_Segment]:
    """Remove asterisks that would not work: between two letters and a sign, or beside other asterisks."""
    kept: list[_Segment] = []
    for index, segment in enumerate(segments):
        before = kept[-1].text[-1:] if kept else ""
        after = segments[index + 1].text[:1] if index + 1 < len(segments) else ""
        if segment.style not in _MARKERS:
            kept.append(segment)
            continue
        is_beside = bool(kept) and kept[-1].style in _MARKERS
        core = segment.text.strip()
        works = core and _may_stand(before, core[0]) and _may_stand(after, core[-1])
        kept.append(segment if works and not is_beside else _Segment(segment.text, ""))
    return kept


def _may_stand(outside: str, inside: str) -> bool:
    """Whether asterisks work between two characters: never after a letter and before a sign inside."""
    is_edge = not outside or outside.isspace() or _is_punctuation(outside)
    return is_edge or not _is_sign(inside)


def _is_punctuation(character: str) -> bool:
    return character in string.punctuation or unicodedata.category(character)[0] == "P"


def _is_sign(character: str) -> bool:
    return not character.isalnum()


def _mark(text: str, style: str) -> str:
    """Put the marks of a style around escaped text, with blanks outside."""
    core = text.strip()
    if not style or not core:
        return text
    tag = _TAGS.get(style)
    if tag:
        text, core = superscripts.from_unicode(text), superscripts.from_unicode(core)
    begin, end = (f"<{tag}>", f"</{tag}>") if tag else (_MARKERS[style],) * 2
    return text.replace(core, f"{begin}{core}{end}", 1)
