"""Clean what readers write about one region: repetitions, formulas, bullets, charts and boilerplate."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from twopass.document import Table
from twopass.families import table_parser
from twopass.families.grounded import loops
from twopass.text import maths, superscripts

REPEATS = 10  # copies from which a repetition is a loop
_MIN_UNIT = 10  # characters of a unit that repeats
_SAME_LINES = 0.8  # of at least REPEATS lines
_TAIL = 8000  # characters at the end in which a repetition is looked for
_BOILERPLATE = frozenset({"the image is too blurry to recognize any text content", "[non-text]"})
_FENCE = re.compile(r"\A```[\w-]*\n(.*?)\n?```\Z", re.DOTALL)
_BULLET = re.compile(r"^([ \t]*)[·•*●]\s+", re.MULTILINE)
_LEADERS = re.compile(r"([.·_…])\1{3,}")
_MATHS = re.compile(r"(?<![\\$])\$(?: ([^$\n]+?) |[^$\n]*)\$")  # with blanks within the signs in group 1


def clean_code(text: str, is_long_from: int) -> tuple[str, bool]:
    """The text of a listing, whose signs all have a meaning, and whether a repetition was cut from it."""
    return cut_repetition(_strip_fence(text.encode("utf-8", "replace").decode()), is_long_from)


def clean_text(text: str, is_long_from: int) -> tuple[str, bool]:
    """The text of a region, and whether a repetition was cut from it. Boilerplate is no text."""
    text = _strip_fence(text.encode("utf-8", "replace").decode())
    text = _LEADERS.sub(lambda run: run.group(1) * 3, text)  # a table of contents has hundreds of dots in a row
    text, was_cut = cut_repetition(text, is_long_from)
    if is_boilerplate(text):
        return "", was_cut
    text = superscripts.replace_tags(_BULLET.sub(r"\1- ", text))
    return _MATHS.sub(lambda found: f"${found[1]}$" if found[1] else found.group(), text).strip(), was_cut


def is_boilerplate(text: str) -> bool:
    """Whether a reader wrote this where it read no text."""
    return text.strip().rstrip(".").lower() in _BOILERPLATE


def _strip_fence(text: str) -> str:
    """The content of a fenced block; other text without the spaces around it."""
    found = _FENCE.match(text.strip())
    return found.group(1).strip() if found else text.strip()


def cut_repetition(text: str, is_long_from: int) -> tuple[str, bool]:
    """Cut a unit that a long text repeats at its end, but for its first copy, and a line that makes up most lines."""
    if len(text) < is_long_from:
        return text, False
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    line, times = (*Counter(lines).most_common(1), ("", 0))[0]
    is_most = len(line) > 1 and times >= _SAME_LINES * len(lines)
    if is_most and len(lines) >= _count_copies(line):
        first = lines.index(line)
        return "\n".join([*lines[: first + 1], *(other for other in lines[first + 1 :] if other != line)]), True
    tail = text.rstrip()[-_TAIL:]
    for period in range(_MIN_UNIT, len(tail) // REPEATS + 1):
        equal = _count_equal(tail, period)
        if equal + period >= _count_copies(tail[-period:]) * period:
            cut = len(text.rstrip()) - equal
            return text[:cut].rstrip(), True
    return text, False


def _count_copies(unit: str) -> int:
    """From how many copies of a unit on it is a loop: an empty form has many equal rows."""
    return loops.ROW_REPEATS if loops.has_table_markup(unit) else REPEATS


def _count_equal(text: str, period: int) -> int:
    """How many characters at the end equal those `period` places before them."""
    if text[-period:] != text[-2 * period : -period]:
        return 0
    count = 0
    for index in range(len(text) - 1, period - 1, -1):
        if text[index] != text[index - period]:
            break
        count += 1
    return count


def unwrap_formula(text: str) -> str:
    """LaTeX without the signs around it; a text with words beside formulas as it is."""
    text = _strip_fence(text)
    return maths.to_latex(text) if maths.is_formula(text) else text


def parse_table(text: str) -> Table | None:
    """The tables in HTML or GFM, and text beside them, as one table; None where there is no table."""
    return table_parser.join_parts(table_parser.split_tables(_strip_fence(text)))


def parse_chart(text: str) -> Table | None:
    """Data of a chart in lines `a | b`, the first of them the header, or in a table; None for other text."""
    if table := parse_table(text):
        return table
    runs = [
        (has_bar, list(lines)) for has_bar, lines in groupby(_strip_fence(text).splitlines(), lambda one: "|" in one)
    ]
    if sum(len(run) for has_bar, run in runs if has_bar) < 2:
        return None
    parts = [_parse_lines(run) if has_bar else table_parser.Part("\n".join(run), None) for has_bar, run in runs]
    return table_parser.join_parts([part for part in parts if part.text.strip()])


def _parse_lines(written: Sequence[str]) -> table_parser.Part:
    lines = [line.strip().strip("|") for line in written]
    rule = "|".join(["---"] * (lines[0].count("|") + 1))
    source = "\n".join([f"|{lines[0]}|", f"|{rule}|", *(f"|{line}|" for line in lines[1:])])
    return table_parser.Part(source, table_parser.parse_gfm(source))
