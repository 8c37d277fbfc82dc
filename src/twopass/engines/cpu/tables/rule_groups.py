"""Group the rules of a page that touch each other, and tell nested tables from the tables around them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from twopass.engines.cpu.geometry import Rect, enclose
from twopass.engines.cpu.tables.rules import arrange

TOUCH = 1.0  # points between two rules that touch; a nested table keeps more distance from the cell around it
MAX_RULES = 2000  # more are not grouped: all pairs are compared


def group_touching(rules: Sequence[Rect], reach: float = TOUCH) -> list[list[Rect]]:
    """Return the rules in groups of those at most `reach` points apart, directly or through others.

    If there are too many rules, they are one group.
    """
    unique = sorted(set(rules))
    if len(unique) > MAX_RULES or not unique:
        return [unique] if unique else []
    boxes = np.array(unique)
    starts, stops = boxes[:, :2] - reach / 2, boxes[:, 2:] + reach / 2
    free = np.ones(len(unique), bool)
    groups: list[list[Rect]] = []
    while free.any():
        group, edge = [], [int(free.argmax())]
        free[edge] = False
        while edge:
            group += edge
            touching = (starts[None] <= stops[edge][:, None]).all(2) & (stops[None] >= starts[edge][:, None]).all(2)
            edge = [int(index) for index in np.flatnonzero(touching.any(0) & free)]
            free[edge] = False
        groups.append([unique[index] for index in sorted(group)])
    return groups


def is_grid(rules: Sequence[Rect]) -> bool:
    """Return whether rules make two cells or more."""
    lines = sorted(len(arrange(rules, axis, ())) for axis in (0, 1))
    return lines[0] >= 2 and lines[1] >= 3


def find_nested(rules: Sequence[Rect]) -> list[Rect]:
    """Return the bounds of tables within a cell of the largest table."""
    groups = group_touching(rules)
    outer = max(groups, key=lambda group: enclose(group).area, default=[])
    if len(groups) < 2 or not is_grid(outer):
        return []
    bounds = enclose(outer)
    others = [(enclose(group), group) for group in groups if group is not outer]
    return [box for box, group in others if bounds.contains(box[:2]) and bounds.contains(box[2:]) and is_grid(group)]


def drop_inside(rules: Sequence[Rect], boxes: Sequence[Rect]) -> list[Rect]:
    """Drop the rules of nested tables, which have these bounds."""
    return [rule for rule in rules if not any(box.contains(rule.centre, TOUCH / 2) for box in boxes)]
