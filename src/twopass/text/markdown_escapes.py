"""Escape the characters of plain text that Markdown (CommonMark and GFM, with maths in dollars) would interpret.

A character that cannot have an effect where it stands is left as it is, so that the source stays readable: one asterisk
alone, an underscore in a word, a price without a second dollar.
"""

from __future__ import annotations

import html.entities
import re
import string
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

# Each branch starts with a literal character and looks behind only after it, so the search skips to candidates.
_SPECIAL = re.compile(
    r"\\(?=[!-/:-@\[-`{-~]|$)"  # a backslash that would escape the next character
    r"|\*(?:(?<!\s\*)|(?!\s))|_(?:(?<![^\W_]_)|(?![^\W_]))"  # emphasis; 5 * 3 and snake_case are safe
    r"|<!--|`|\$|<(?=[A-Za-z/!?])|\](?=[(:])"  # code, maths, tags and autolinks, links and their definitions
    r"|~(?:(?=~)|(?<=\w~)|(?<=\S~)(?=\s|$))"  # strikethrough
    r"|&(?=#?\w{1,31};)"  # entities
)
_CANDIDATES = re.compile(r"[\\*_`$<\]~&]")
_DOLLAR = re.compile(r"\$+")
_BACKTICKS = re.compile(r"`+")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|(\w{1,31}));", re.ASCII)
_DEFINITION = re.compile(r"\s*\[[^\[\]]+(\]):")
_LINE_START = re.compile(
    r"#{1,6}(?=\s|$)|>|[-+*](?=\s|$)"  # headings, quotes, lists
    r"|([-*_])(?=(?:\s*\1){2,}\s*$)|`(?=``+[^`]*$)|~(?=~~)"  # rules, fenced code
    r"|<(?=[A-Za-z/!?])"  # an HTML block needs no end of its first tag
)
_LIST_NUMBER = re.compile(r"[0-9]{1,9}(?=[.)](?:\s|$))")
_RULE_IN_LIST = re.compile(r"-(?:\s*-)+\s*$")  # with the item's own dash, a rule
_TASK = re.compile(r"\[(?=[ xX]\](?:\s|$))")
_ENTITIES = {"&": "&amp;", "<!--": "&lt;!--"}


def escape_inline(text: str, alone: bool = False) -> str:
    """Escape one line of text.

    `alone` says that the line is all of its block, so that no other text can end what it begins.
    """
    return _escape_at(text, _find_active(text) if alone else _find_special(text))


def escape_parts(parts: Sequence[str]) -> list[str]:
    """Escape the parts of one line, between which marks of emphasis and tags will stand."""
    text, start, escaped = "".join(parts), 0, []
    special, has_maths = _find_special(text), any(True for _ in _find_maths(text))
    for part in parts:
        own = {position - start for position in special if start <= position < start + len(part)} | _find_special(part)
        escaped.append(_escape_at(part, {position for position in own if has_maths or part[position] != "$"}))
        start += len(part)
    return escaped


def escape_line_start(text: str, in_list: bool = False) -> str:
    """Escape what would turn a block's first line, already escaped inside, into a heading, list, quote, rule or code.

    `in_list` says that the line follows the marker of a list item, where `[ ]` would be a check box.
    """
    if numbered := _LIST_NUMBER.match(text):
        return f"{numbered.group()}\\{text[numbered.end() :]}"
    is_special = _LINE_START.match(text) or (in_list and (_TASK.match(text) or _RULE_IN_LIST.match(text)))
    return f"\\{text}" if is_special else text


def _escape_at(text: str, positions: set[int]) -> str:
    parts, start = [], 0
    for position in sorted(positions):
        mark = "<!--" if text.startswith("<!--", position) else text[position]
        parts += [text[start:position], _ENTITIES.get(mark, "\\" + mark)]
        start = position + len(mark)
    return "".join([*parts, text[start:]])


def _find_special(text: str) -> set[int]:
    """The positions of all characters that could have an effect beside some other text."""
    return {found.start() for found in _SPECIAL.finditer(text)}


def _find_active(text: str) -> set[int]:
    """The positions of all characters that Markdown would interpret in a text that is all of its block."""
    present = set(_CANDIDATES.findall(text))
    finders: dict[str, Callable[[str], Iterator[int]]] = {
        "\\": _find_backslashes,
        "*": lambda text: _find_emphasis(text, "*"),
        "_": lambda text: _find_emphasis(text, "_"),
        "~": lambda text: _find_emphasis(text, "~"),
        "`": _find_code,
        "$": _find_maths,
        "<": _find_tags,
        "]": _find_links,
        "&": _find_entities,
    }
    return {position for mark in present for position in finders[mark](text)}


def _find_backslashes(text: str) -> Iterator[int]:
    """Yield backslashes that would escape the next character, or break the line."""
    for found in re.finditer(r"\\", text):
        following = text[found.end() : found.end() + 1]
        if not following or following in string.punctuation:
            yield found.start()


def _find_emphasis(text: str, mark: str) -> Iterator[int]:
    """Yield the marks of every run that may begin an emphasis which a later run may end, or the reverse."""
    runs = [found.span() for found in re.finditer(rf"{re.escape(mark)}+", text)]
    opening = [_can_open(text, start, stop, mark) for start, stop in runs]
    closing = [_can_close(text, start, stop, mark) for start, stop in runs]
    for index, (start, stop) in enumerate(runs):
        if (opening[index] and any(closing[index + 1 :])) or (closing[index] and any(opening[:index])):
            yield from range(start, stop)


def _can_open(text: str, start: int, stop: int, mark: str) -> bool:
    """Whether a run is left-flanking, in either reading of the specification's "punctuation" (with symbols or not)."""
    before, after = text[start - 1 : start], text[stop : stop + 1]
    if mark == "_" and not _may_separate(before):
        return False
    return not _is_space(after) and (not _is_punctuation(after) or _may_separate(before))


def _can_close(text: str, start: int, stop: int, mark: str) -> bool:
    before, after = text[start - 1 : start], text[stop : stop + 1]
    if mark == "_" and not _may_separate(after):
        return False
    return not _is_space(before) and (not _is_punctuation(before) or _may_separate(after))


def _is_space(character: str) -> bool:
    return not character or character.isspace()


def _is_punctuation(character: str) -> bool:
    return character in string.punctuation or unicodedata.category(character)[0] == "P"


def _may_separate(character: str) -> bool:
    return _is_space(character) or _is_punctuation(character) or unicodedata.category(character)[0] in "SZC"


def _find_code(text: str) -> Iterator[int]:
    """Yield all backticks if two runs of them are equally long: such a pair encloses code."""
    runs = [found.span() for found in _BACKTICKS.finditer(text)]
    by_length = groupby(sorted(stop - start for start, stop in runs))
    if any(len(list(group)) > 1 for _, group in by_length):
        yield from (position for start, stop in runs for position in range(start, stop))


def _find_maths(text: str) -> Iterator[int]:
    """Yield all dollars if two of them can enclose a formula.

    As in GitHub's and pandoc's readers, a formula has no blank inside its dollars, and no digit follows it.
    """
    runs = [found.span() for found in _DOLLAR.finditer(text)]
    opening = [stop - start > 1 or not _is_space(text[stop : stop + 1]) for start, stop in runs]
    closing = [
        stop - start > 1 or not (_is_space(text[start - 1 : start]) or text[stop : stop + 1].isdigit())
        for start, stop in runs
    ]
    if any(opens and any(closing[index + 1 :]) for index, opens in enumerate(opening)):
        yield from (position for start, stop in runs for position in range(start, stop))


def _find_tags(text: str) -> Iterator[int]:
    """Yield the beginnings of comments, and of what a later ">" would make a tag or an address."""
    last = text.rfind(">")
    for found in re.finditer(r"<(?:!--|(?=[A-Za-z/!?]))", text):
        if len(found.group()) > 1 or found.start() < last:
            yield found.start()


def _find_links(text: str) -> Iterator[int]:
    """Yield the bracket before the address of a link, and that before the colon of a definition."""
    first, last = text.find("["), text.rfind(")")
    for found in re.finditer(r"\](?=\()", text):
        if 0 <= first < found.start() < last:
            yield found.start()
    if definition := _DEFINITION.match(text):
        yield definition.start(1)


def _find_entities(text: str) -> Iterator[int]:
    for found in _ENTITY.finditer(text):
        if not found.group(1) or found.group(1) + ";" in html.entities.html5:
            yield found.start()
