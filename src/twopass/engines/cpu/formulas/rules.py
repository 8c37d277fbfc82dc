"""Replace what thin rules belong to by fractions, roots and overlined formulas."""

from __future__ import annotations

from collections.abc import Sequence

from twopass.engines.cpu.formulas import symbols
from twopass.engines.cpu.formulas.parts import AXIS, FULL_SIZE, Part, UnclearError
from twopass.engines.cpu.formulas.rows import find_base, write_row
from twopass.engines.cpu.geometry import Rect, enclose

RULE_REACH = 0.75  # of the type size, between a fraction bar and what is above or below it
NEXT_LINE = 0.3  # of the type size: a larger gap separates the lines of a numerator from other text
TOLERANCE = 0.25  # of the type size by which content may be wider than its rule


def apply_rules(parts: Sequence[Part], rules: Sequence[Rect]) -> list[Part]:
    """Replace what each rule belongs to by a fraction, a root or an overlined formula; the narrowest rules first."""
    rest = list(parts)
    lines = sorted((rule for rule in rules if _is_horizontal(rule)), key=lambda rule: (rule.x1 - rule.x0, rule))
    for n, rule in enumerate(lines):
        later = lines[n + 1 :]
        root = next((part for part in rest if part.char in symbols.ROOTS and _begins_rule(part, rule)), None)
        if root:
            rest = _build_root(rest, root, rule)
            continue
        above, below = _find_beside(rest, rule, later, -1), _find_beside(rest, rule, later, 1)
        if not below or any(part in below for part in above):
            raise UnclearError("rule")
        built = _build_fraction(above, below, rule) if above else _build_overline(below, rule)
        rest = [part for part in rest if part not in above and part not in below] + [built]
    return rest


def _is_horizontal(rule: Rect) -> bool:
    return rule.x1 - rule.x0 > rule.height


def _begins_rule(root: Part, rule: Rect) -> bool:
    is_right = abs(rule.x0 - root.box.x1) <= 0.35 * root.size
    return is_right and abs(rule.centre[1] - root.box.y0) <= 0.35 * root.size


def _build_root(parts: Sequence[Part], root: Part, rule: Rect) -> list[Part]:
    margin = TOLERANCE * root.size
    bottom = root.box.y1
    inside = [
        part
        for part in parts
        if part is not root
        and rule.x0 - margin <= part.centre[0] <= rule.x1 + margin
        and rule.y0 < part.centre[1] < bottom + margin
    ]
    if not inside:
        raise UnclearError("root")
    index = [
        part
        for part in parts
        if part not in inside
        and part.size < FULL_SIZE * inside[0].size
        and root.box.x0 + 0.1 * root.size < part.box.x1
        and part.centre[0] < root.box.x1
        and root.box.y0 - part.size < part.centre[1] < root.centre[1]
        and part is not root
    ]
    base = find_base(inside)
    prefix = rf"\sqrt[{write_row(index)}]" if index else r"\sqrt"
    box = enclose([root.box, rule, *(part.box for part in inside)])
    built = Part(f"{prefix}{{{write_row(inside)}}}", box, base[0], base[1])
    return [part for part in parts if part is not root and part not in inside and part not in index] + [built]


def _find_beside(parts: Sequence[Part], rule: Rect, others: Sequence[Rect], side: int) -> list[Part]:
    """The parts directly above (-1) or below (1) a rule, line by line, up to a gap or another rule."""
    middle = rule.centre[1]
    in_range = []
    for part in parts:
        margin = TOLERANCE * part.size
        is_over = rule.x0 - margin <= part.box.x0 and part.box.x1 <= rule.x1 + margin
        if is_over and side * (part.centre[1] - middle) > 0:
            in_range.append(part)
    found: list[Part] = []
    edge, reach = middle, RULE_REACH
    while True:
        limit = min((side * o.centre[1] for o in others if _is_between(o, rule, side)), default=float("inf"))
        near = [
            part
            for part in in_range
            if part not in found and _gap(part, edge, side) <= reach * part.size and side * part.centre[1] < limit
        ]
        if not near:
            return found
        found += near
        edge, reach = (max(p.bottom for p in found) if side > 0 else min(p.top for p in found)), NEXT_LINE


def _gap(part: Part, edge: float, side: int) -> float:
    return part.top - edge if side > 0 else edge - part.bottom


def _is_between(other: Rect, rule: Rect, side: int) -> bool:
    overlaps = other.x0 < rule.x1 and rule.x0 < other.x1
    return overlaps and side * (other.centre[1] - rule.centre[1]) > 0


def _build_fraction(above: Sequence[Part], below: Sequence[Part], rule: Rect) -> Part:
    latex = rf"\frac{{{write_row(above)}}}{{{write_row(below)}}}"
    parts = [*above, *below]
    size = max(part.size for part in parts)
    axis = rule.centre[1]
    return Part(latex, enclose([rule, *(part.box for part in parts)]), axis + AXIS * size, size, axis=axis)


def _build_overline(below: Sequence[Part], rule: Rect) -> Part:
    y, size = find_base(below)
    return Part(rf"\overline{{{write_row(below)}}}", enclose([rule, *(part.box for part in below)]), y, size)
