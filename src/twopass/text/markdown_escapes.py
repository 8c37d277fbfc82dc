"""Escape the characters of plain text that a reader of Markdown would interpret.

Readers differ: CommonMark with GitHub's tables, strikethrough and maths in dollars, and Python-Markdown, for which
fewer characters can be escaped by a backslash and more of them emphasise. An escape is one that all of them understand:
a backslash, or an entity where some would show the backslash. Tags are always escaped, also those that never end: what
is raw HTML for one reader is text for another.

A character that cannot have an effect where it stands is left as it is, so that the source stays readable: one asterisk
alone, an underscore in a word, a price without a second dollar.
"""

from __future__ import annotations

import html
import re
import string
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence

# Each branch starts with a literal character and looks behind only after it, so the search skips to candidates.
_SPECIAL = re.compile(
    r"\\(?=[!-/:-@\[-`{-~]|$)"  # a backslash that would escape the next character
    r"|\*(?:(?<!\s\*)|(?!\s))|_(?:(?<![^\W_]_)|(?![^\W_]))"  # emphasis; 5 * 3 and snake_case are safe
    r"|`|\$|\](?=\()|\[(?=\^)"  # code, maths, links and footnotes
    r"|~(?:(?=~)|(?<!\s~))"  # strikethrough
)
_CANDIDATES = re.compile(r"[\\*_`$<\]\[~&{]")
_TAG = re.compile(r"<[A-Za-z/!?]")
_MAY_BE_TAGS = re.compile(r"<[^>\s]*")
_ADDRESS = re.compile(r"(https?|ftp|www)(?::(?=//)|\.)\S*", flags=re.IGNORECASE)
_DOLLAR = re.compile(r"\$+")
_BACKTICKS = re.compile(r"`+")
_ENTITY = re.compile(r"&(?:#[0-9]+|#[xX][0-9a-fA-F]+|[0-9a-zA-Z]{1,31});")
# The beginning of a number that is none: behind it, the HTML parser of Python-Markdown confuses what it has read.
CUT_ENTITY = re.compile(r"&(?=#(?!(?:[0-9]+|[xX][0-9a-fA-F]+);))")
_LINE_START = re.compile(
    r"#|>|[-+*:](?=\s|$)"  # headings, quotes, lists, definitions
    r"|([-*_])(?=(?:\s*\1){2,}\s*$)|`(?=``+[^`]*$)|~(?=~~)"  # rules, fenced code
    r"|\[(?=.*\]:)|\*(?=\[.*\]:)"  # definitions of links, notes and abbreviations, with escaped brackets in them
)
_LIST_NUMBER = re.compile(r"\d+(?=[.)](?:\s|$))")
_RULE_IN_LIST = re.compile(r"-(?:\s*-)+\s*$")  # with the item's own dash, a rule
_DELIMITER_ROW = re.compile(r"[\s:-]*\|[\s:|-]*$")  # Python-Markdown takes two list items for the head of a table
_TASK = re.compile(r"\[(?=[ xX]\](?:\s|$))")
# Python-Markdown shows the backslash before other characters.
_ENTITIES = {mark: f"&#{ord(mark)};" for mark in "\"$%',/:;=?@^~"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"}

# What stays in a line of Markdown that a model wrote: escapes, scripts and breaks; links and other tags become text.
_STYLED = re.compile(
    r"\\(?P<escaped>[!-/:-@\[-`{-~])"
    r"|(?P<tag></?su[bp]>|<br ?/?>)"
    rf"|(?P<mark><|{CUT_ENTITY.pattern}"
    r"|\](?=\()|\[(?=\^)|\A(?:[#>]|:(?=\s)|~(?=~~)|\*?\[(?=[^\[\]]*\]:))|(?<=[*_~`>)\]])\{|\{(?=[^{}]*\}\s*\Z))"
)
_TASK_ITEM = re.compile(r"\A((?:[-+*]|\d+[.)])\s+)\[(?=[ xX]\](?:\s|$))")
_SCRIPT = re.compile(r"<(/?)(su[bp])>")
_UNLIKE_IN_CODE = re.compile(r"[\\<$&{]|\]\(|\[\^")  # what readers see otherwise in code than beside it


def escape_character(mark: str) -> str:
    """Escape a punctuation character of ASCII so that every reader shows it."""
    return _ENTITIES.get(mark, "\\" + mark)


def escape_inline(text: str, alone: bool = False) -> str:
    """Escape one line of text.

    `alone` says that the line is all of its block, so that no other text can end what it begins.
    """
    positions = _find_active(text) if alone else _find_special(text)
    return _escape_at(text, positions | _find_cut_addresses(text, positions))


def _find_cut_addresses(text: str, positions: set[int]) -> set[int]:
    """Where to escape addresses that hold an escape: a reader that links addresses would show it."""
    found, ordered = set(), sorted(positions)
    for address in _ADDRESS.finditer(text) if positions else ():
        if bisect_left(ordered, address.start()) < bisect_left(ordered, address.end()):
            found.add(address.end(1))
    return found


def escape_parts(parts: Sequence[str]) -> list[str]:
    """Escape the parts of one line, between which marks of emphasis and tags will stand."""
    text, start, escaped = "".join(parts), 0, []
    special, has_maths = _find_special(text), any(True for _ in _find_maths(text))
    for part in parts:
        own = _find_special(part) | {n - start for n in special & set(range(start, start + len(part)))}
        escaped.append(_escape_at(part, {position for position in own if has_maths or part[position] != "$"}))
        start += len(part)
    return escaped


def escape_styled(markdown: str) -> str:
    """Leave the styles of a line of Markdown, and turn its links, attributes and other tags into text."""
    if _UNLIKE_IN_CODE.search(markdown):
        markdown = re.sub(r"(?<!\\)`", r"\\`", markdown)
    paired, tags = _find_paired(markdown), find_tags(markdown)

    def replace(found: re.Match[str]) -> str:
        if found["tag"]:
            is_kept = found.start() in paired or found["tag"].startswith("<br")
            return found["tag"] if is_kept else f"&lt;{found['tag'][1:]}"
        if found["mark"] == "<" and found.start() not in tags:
            return "<"
        return escape_character(found["escaped"] or found["mark"][-1])

    return _TASK_ITEM.sub(r"\1\\[", _STYLED.sub(replace, markdown))


def _find_paired(markdown: str) -> set[int]:
    """The positions of the tags of scripts that are closed in the right order."""
    paired: set[int] = set()
    open_tags: list[re.Match[str]] = []
    for found in _SCRIPT.finditer(markdown):
        if not found[1]:
            open_tags.append(found)
        elif open_tags and open_tags[-1][2] == found[2]:
            paired |= {open_tags.pop().start(), found.start()}
    return paired


def escape_line_start(text: str, in_list: bool = False) -> str:
    """Escape what would turn a block's first line, already escaped inside, into a heading, list, quote, rule or code.

    `in_list` says that the line follows the marker of a list item, where `[ ]` would be a check box.
    """
    text = text.lstrip()
    if _DELIMITER_ROW.match(text):
        return text.replace("|", "&#124;", 1)
    if numbered := _LIST_NUMBER.match(text):
        return f"{numbered.group()}\\{text[numbered.end() :]}"
    is_special = _LINE_START.match(text) or (in_list and (_TASK.match(text) or _RULE_IN_LIST.match(text)))
    return escape_character(text[0]) + text[1:] if is_special else text


def escape_block_end(text: str) -> str:
    """Escape what would give attributes to a block that ends with this text, already escaped inside."""
    return _escape_at(text, {n for n in _find_attributes(text) if not text[:n].endswith("\\")})


def _escape_at(text: str, positions: set[int]) -> str:
    parts, start = [], 0
    for position in sorted(positions):
        parts += [text[start:position], escape_character(text[position])]
        start = position + 1
    return "".join([*parts, text[start:]])


def _find_special(text: str) -> set[int]:
    """The positions of all characters that could have an effect beside some other text."""
    special = {found.start() for found in _SPECIAL.finditer(text)}
    return special.union(find_tags(text), _find_attributes(text), _find_entities(text))


def _find_active(text: str) -> set[int]:
    """The positions of all characters that a reader would interpret in a text that is all of its block."""
    present = set(_CANDIDATES.findall(text))
    return {position for mark in present for position in _FINDERS[mark](text)}


def _find_backslashes(text: str) -> Iterator[int]:
    """Yield backslashes that would escape the next character, or break the line."""
    for found in re.finditer(r"\\", text):
        following = text[found.end() : found.end() + 1]
        if not following or following in string.punctuation:
            yield found.start()


def _find_asterisks(text: str) -> Iterator[int]:
    """Yield all asterisks if there are two runs that touch a character: Python-Markdown takes any two for emphasis."""
    runs = [found.span() for found in re.finditer(r"\*+", text)]
    touching = [run for run in runs if run[1] - run[0] > 3 or not _is_between_blanks(text, run)]
    if len(touching) > 1:
        yield from _list_positions(touching)


def _find_underscores(text: str) -> Iterator[int]:
    """Yield the underscores of runs at the edges of words, if one before a word can be ended by one behind a word."""
    runs = [found.span() for found in re.finditer("_+", text) if not _is_between_blanks(text, found.span())]
    opening = [run for run in runs if not text[run[0] - 1 : run[0]].isalnum()]
    closing = [run for run in runs if not text[run[1] : run[1] + 1].isalnum()]
    if opening and closing and opening[0] < closing[-1]:
        yield from _list_positions([*opening, *closing])


def _find_tildes(text: str) -> Iterator[int]:
    """Yield the tildes of runs that may begin or end struck-out text, if one that may begin it comes first."""
    runs = [found.span() for found in re.finditer("~+", text)]
    opening = [run for run in runs if not _is_space(text[run[1] : run[1] + 1])]
    closing = [run for run in runs if not _is_space(text[run[0] - 1 : run[0]])]
    if opening and closing and opening[0] < closing[-1]:
        yield from _list_positions([*opening, *closing])


def _list_positions(runs: Sequence[tuple[int, int]]) -> Iterator[int]:
    return (position for start, stop in runs for position in range(start, stop))


def _is_between_blanks(text: str, run: tuple[int, int]) -> bool:
    start, stop = run
    return _is_space(text[start - 1 : start]) and _is_space(text[stop : stop + 1])


def _is_space(character: str) -> bool:
    return not character or character.isspace()


def _find_code(text: str) -> Iterator[int]:
    """Yield all backticks if there are two runs of them, which enclose code; for Python-Markdown of any lengths."""
    runs = [found.span() for found in _BACKTICKS.finditer(text)]
    if len(runs) > 1:
        yield from _list_positions(runs)


def _find_maths(text: str) -> Iterator[int]:
    """Yield all dollars if two of them can enclose a formula.

    As in GitHub's and pandoc's readers, a formula has no blank inside its dollars, and no digit follows it.
    """
    runs = [found.span() for found in _DOLLAR.finditer(text)]
    opening = [run for run in runs if run[1] - run[0] > 1 or not _is_space(text[run[1] : run[1] + 1])]
    closing = [
        run
        for run in runs
        if run[1] - run[0] > 1 or not (_is_space(text[run[0] - 1 : run[0]]) or text[run[1] : run[1] + 1].isdigit())
    ]
    if opening and closing and opening[0] < closing[-1]:
        yield from _list_positions(runs)


def find_tags(text: str) -> set[int]:
    """The positions of the signs that begin tags, comments and addresses such as <a@b>, ended or not."""
    found: set[int] = set()
    for word in _MAY_BE_TAGS.finditer(text):
        last = text.rfind("@", *word.span())
        found |= {n for n in range(*word.span()) if text[n] == "<" and (n < last or _TAG.match(text, n))}
    return found


def _find_links(text: str) -> Iterator[int]:
    """Yield the bracket before the address of a link."""
    return (found.start() for found in re.finditer(r"\](?=\()", text))


def _find_notes(text: str) -> Iterator[int]:
    return (found.start() for found in re.finditer(r"\[(?=\^)", text))


def _find_attributes(text: str) -> Iterator[int]:
    """Yield the braces before attributes, which would become those of the block; they may have braces in them."""
    if text.rstrip().endswith("}"):
        yield from (found.start() for found in re.finditer(r"\{", text))


def _find_entities(text: str) -> Iterator[int]:
    """Yield the signs before the names of characters; browsers know some names also as the beginning of others."""
    for found in _ENTITY.finditer(text):
        if found.group()[1] == "#" or html.unescape(found.group()) != found.group():
            yield found.start()
    yield from (found.start() for found in CUT_ENTITY.finditer(text))


_FINDERS: dict[str, Callable[[str], Iterable[int]]] = {
    "\\": _find_backslashes,
    "*": _find_asterisks,
    "_": _find_underscores,
    "~": _find_tildes,
    "`": _find_code,
    "$": _find_maths,
    "<": find_tags,
    "]": _find_links,
    "[": _find_notes,
    "&": _find_entities,
    "{": _find_attributes,
}
