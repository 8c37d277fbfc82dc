"""No regular expression of the parsers and writers backtracks more than in proportion to a hostile text.

Each pattern is tried on repetitions of its own pieces and of common characters, and its steps are counted.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from re import _constants as op
from re import _parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from tests.fakes.regex_steps import MOST_STEPS, StepCounter, TooManySteps
from tests.fakes.source_patterns import find_patterns

PACKAGES = ("twopass.families", "twopass.text", "twopass.formats")
# The last ones are beginnings that a pattern's own pieces do not show, because its alternatives share a character.
COMMON = ("a", "A", "1", " ", "\n", "中", "_", "<!--", "<style>", "<td>", '<img alt="')
LENGTH, MOST_GROWTH = 40, 2.6  # for twice the text; a quadratic search takes four times the steps
BOUNDED = {
    "twopass.text.prose._LAST_WORD",  # only tried on LONGEST_WORD characters
    "twopass.text.page_numbers._NAMED",  # only tried on all of a text of at most 60 characters
}
PATTERNS = find_patterns(PACKAGES)


@pytest.fixture(autouse=True)
def deep_recursion() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(50_000)
    yield
    sys.setrecursionlimit(before)


def list_units(pattern: re.Pattern[str]) -> list[str]:
    """The runs of literal characters in a pattern, one character of each set, and common characters."""
    pieces: list[str] = []
    _collect(list(_parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE)), pieces)
    return list(dict.fromkeys([*sorted(set(pieces), key=lambda piece: (len(piece), piece))[:24], *COMMON]))


def _collect(items: Sequence[Any], pieces: list[str]) -> None:
    run = ""
    for code, value in [*items, (None, None)]:
        if code is op.LITERAL:
            run += chr(value)
            continue
        pieces += [run] if run else []
        run = ""
        if code is op.IN:
            pieces += [
                chr(one if name is op.LITERAL else one[0]) for name, one in value if name in (op.LITERAL, op.RANGE)
            ]
        elif code is op.BRANCH:
            for branch in value[1]:
                _collect(list(branch), pieces)
        elif code in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT, op.SUBPATTERN, op.ASSERT, op.ASSERT_NOT):
            _collect(list(value[-1]), pieces)
        elif code is op.ATOMIC_GROUP:
            _collect(list(value), pieces)


def count_steps(pattern: re.Pattern[str], text: str, is_anchored: bool) -> int:
    counter = StepCounter(pattern)
    with suppress(TooManySteps):
        counter.match(text) if is_anchored else counter.find_spans(text)
    return counter.steps


def find_growth(pattern: re.Pattern[str], is_anchored: bool) -> list[str]:
    """Return the units whose repetitions take more than proportional steps."""
    found = []
    for unit in list_units(pattern):
        times = max(LENGTH // len(unit), 8)
        for end in ("", "\x01"):  # a search that fails at the end goes back
            one, two = (count_steps(pattern, unit * n + end, is_anchored) for n in (times, 2 * times))
            if two > min(MOST_GROWTH * one + 30, MOST_STEPS):
                found.append(f"{unit + end!r}: {one}, {two}")
    return found


def test_no_pattern_backtracks_more_than_in_proportion() -> None:
    """Twice the repetitions take about twice the steps."""
    faults = [(found.name, find_growth(found.pattern, found.is_anchored)) for found in PATTERNS]

    assert [(name, units) for name, units in faults if units and name not in BOUNDED] == []


def test_the_patterns_of_all_packages_are_found() -> None:
    """The check looks at many patterns, of each package."""
    assert len(PATTERNS) > 200 and all(any(one.name.startswith(name) for one in PATTERNS) for name in PACKAGES)


@pytest.mark.parametrize("pattern", [r"\s+$", r"[ \t]*<br>", r"\\\((.+?)\\\)", r"(a+)+b", r"(?:^|\n)\s*x", r"\w+1"])
def test_a_quadratic_pattern_is_noticed(pattern: str) -> None:
    """The check fails for patterns that are known to be slow."""
    assert find_growth(re.compile(pattern, re.DOTALL), False)


def test_the_counter_finds_what_re_finds() -> None:
    """The matcher that counts its steps finds the same matches as `re`, so that it takes the same path."""
    for found in PATTERNS:
        units = list_units(found.pattern)
        for n, unit in enumerate(units):
            text = f"{unit}{units[n - 1]} {unit}b{units[n - 2]}"[:40]
            first = found.pattern.match(text)
            assert StepCounter(found.pattern).match(text) == (first.end() if first else -1), (found.name, text)
            if not found.pattern.match(""):
                spans = StepCounter(found.pattern).find_spans(text)
                assert spans == [one.span() for one in found.pattern.finditer(text)], (found.name, text)
