"""Count the steps that a backtracking search takes, so that a test can compare inputs without a clock.

It walks the syntax tree that `re` itself builds, tries the alternatives in the same order and so takes the path that
`re` takes, without its shortcuts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from re import _compiler, _parser  # type: ignore[attr-defined]
from re import _constants as op
from typing import Any

Then = Callable[[int], int]  # what follows: the end of the whole match, or -1
Node = Callable[[int, Then], int]
_SINGLE = {op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN}
MOST_STEPS = 200_000  # more is exponential


class TooManySteps(Exception):
    """The search does not end in any useful time."""


class StepCounter:
    """Searches texts with one pattern, and counts the steps."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.steps = 0
        self._text = ""
        self._groups: dict[int, tuple[int, int]] = {}
        tree = _parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE)
        self._state, self._root = tree.state, self._make_sequence(list(tree), pattern.flags)

    def find_spans(self, text: str) -> list[tuple[int, int]]:
        """Return the spans of all matches, as `finditer` does."""
        self._text, spans, start = text, [], 0
        while start <= len(text):
            self._groups.clear()
            end = self._root(start, lambda position: position)
            if end >= 0:
                spans.append((start, end))
            start = end if end > start else start + 1
        return spans

    def match(self, text: str, is_full: bool = False) -> int:
        """Return the end of a match at the text's beginning, -1 for none."""
        self._text = text
        self._groups.clear()
        return self._root(0, lambda position: position if not is_full or position == len(text) else -1)

    def _make_sequence(self, items: Sequence[Any], flags: int) -> Node:
        nodes = [self._make_node(code, value, flags) for code, value in items]
        if len(nodes) == 1:
            return nodes[0]

        def run(position: int, then: Then, n: int = 0) -> int:
            if n == len(nodes):
                return then(position)
            return nodes[n](position, lambda reached: run(reached, then, n + 1))

        return run

    def _make_node(self, code: Any, value: Any, flags: int) -> Node:
        if code in _SINGLE:
            return self._make_single(self._make_test(code, value, flags))
        if code in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            return self._make_repeat(code, *value, flags)
        if code is op.SUBPATTERN:
            group, added, removed, items = value
            return self._make_group(group, self._make_sequence(list(items), (flags | added) & ~removed))
        if code is op.BRANCH:
            branches = [self._make_sequence(list(items), flags) for items in value[1]]
            return lambda position, then: self._try_all(branches, position, then)
        if code in (op.ASSERT, op.ASSERT_NOT):
            return self._make_look(value, flags, is_wanted=code is op.ASSERT)
        if code is op.ATOMIC_GROUP:
            return self._make_atomic(self._make_sequence(list(value), flags))
        if code is op.GROUPREF:
            return lambda position, then: self._repeat_group(value, position, then)
        assert code is op.AT, code
        return self._make_place(value, flags)

    def _make_test(self, code: Any, value: Any, flags: int) -> Callable[[str], bool]:
        one = _compiler.compile(_parser.SubPattern(_parser.State(), [(code, value)]), flags & ~re.DEBUG)
        known: dict[str, bool] = {}

        def test(character: str) -> bool:
            if character not in known:
                known[character] = one.match(character) is not None
            return known[character]

        return test

    def _make_single(self, test: Callable[[str], bool]) -> Node:
        def run(position: int, then: Then) -> int:
            self.steps += 1
            if position < len(self._text) and test(self._text[position]):
                return then(position + 1)
            return -1

        return run

    def _make_repeat(self, code: Any, least: int, most: Any, items: Any, flags: int) -> Node:
        most = 10**9 if most is op.MAXREPEAT else most
        if len(items) == 1 and items[0][0] in _SINGLE:
            return self._repeat_single(code, least, most, self._make_test(*items[0], flags))
        body = self._make_sequence(list(items), flags)

        def run(position: int, then: Then, count: int = 0) -> int:
            self.steps += 1
            if self.steps > MOST_STEPS:
                raise TooManySteps

            def again(reached: int) -> int:
                return -1 if reached == position and count >= least else run(reached, then, count + 1)

            if code is op.MIN_REPEAT and count >= least and (end := then(position)) >= 0:
                return end
            if count < most and (end := body(position, again)) >= 0:
                return end
            return then(position) if count >= least and code is not op.MIN_REPEAT else -1

        return self._make_atomic(run) if code is op.POSSESSIVE_REPEAT else run

    def _repeat_single(self, code: Any, least: int, most: int, test: Callable[[str], bool]) -> Node:
        def run(position: int, then: Then) -> int:
            end, limit = position, min(len(self._text), position + most)
            wanted = position + least if code is op.MIN_REPEAT else limit
            while end < min(wanted, limit) and test(self._text[end]):
                end += 1
                self.steps += 1
            if end - position < least:
                return -1
            if code is op.POSSESSIVE_REPEAT:
                return then(end)
            return (
                self._grow(end, limit, test, then)
                if code is op.MIN_REPEAT
                else self._shrink(end, position + least, then)
            )

        return run

    def _grow(self, end: int, limit: int, test: Callable[[str], bool], then: Then) -> int:
        while (found := then(end)) < 0 and end < limit and test(self._text[end]):
            end += 1
            self.steps += 1
        return found

    def _shrink(self, end: int, least: int, then: Then) -> int:
        while (found := then(end)) < 0 and end > least:
            end -= 1
            self.steps += 1
        return found

    def _make_group(self, group: int | None, body: Node) -> Node:
        if group is None:
            return body

        def run(position: int, then: Then) -> int:
            def close(reached: int) -> int:
                before = self._groups.get(group)
                self._groups[group] = (position, reached)
                if (end := then(reached)) < 0 and before is not None:
                    self._groups[group] = before
                return end

            return body(position, close)

        return run

    def _try_all(self, branches: Sequence[Node], position: int, then: Then) -> int:
        for branch in branches:
            self.steps += 1
            if (end := branch(position, then)) >= 0:
                return end
        return -1

    def _make_atomic(self, body: Node) -> Node:
        def run(position: int, then: Then) -> int:
            end = body(position, lambda reached: reached)
            return then(end) if end >= 0 else -1

        return run

    def _make_look(self, value: Any, flags: int, is_wanted: bool) -> Node:
        direction, items = value
        body, width = self._make_sequence(list(items), flags), items.getwidth()[0]

        def run(position: int, then: Then) -> int:
            self.steps += 1
            start = position if direction > 0 else position - width
            is_found = start >= 0 and body(start, lambda reached: reached) >= 0
            return then(position) if is_found == is_wanted else -1

        return run

    def _repeat_group(self, group: int, position: int, then: Then) -> int:
        if group not in self._groups:
            return -1
        start, end = self._groups[group]
        self.steps += end - start + 1
        same = self._text[start:end]
        return then(position + len(same)) if self._text.startswith(same, position) else -1

    def _make_place(self, place: Any, flags: int) -> Node:
        signs = {op.AT_BEGINNING: "^", op.AT_BEGINNING_STRING: r"\A", op.AT_BOUNDARY: r"\b", op.AT_NON_BOUNDARY: r"\B"}
        signs |= {op.AT_END: "$", op.AT_END_STRING: r"\Z"}
        sign = re.compile(signs[place], flags & (re.MULTILINE | re.ASCII))

        def run(position: int, then: Then) -> int:
            self.steps += 1
            return then(position) if sign.match(self._text, position) else -1

        return run
