"""Write the LaTeX of a formula from the positions of its characters and rules.

This is plain geometry. Every character is placed with confidence, or there is no LaTeX: matrices, cases and binomials,
characters that are not known, and anything else whose place is unclear give None.
"""

from __future__ import annotations

import re
import statistics
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from twopass.document import Rect, enclose
from twopass.engines.cpu.formulas import symbols

SAME_BASELINE = 0.12  # of the type size
FULL_SIZE = 0.87  # of the largest type size: smaller characters are scripts; TeX sets them at 0.7
AXIS = 0.25  # of the type size: how far fraction bars are above the base line
WORD_GAP = 0.15  # of the type size: closer letters form a word
TALL = 1.35  # of the type size: taller delimiters grow with their content


@dataclass(frozen=True)
class Glyph:
    """A character: the box of its ink, its base line `y`, its type size in points, and whether it is set in italics."""

    text: str
    box: Rect
    y: float
    size: float
    italic: bool = False


@dataclass(frozen=True, eq=False)  # two equal characters in one place are two
class _Part:
    """A character, a word or a built formula on its base line `y`; `axis` is where its fraction bar is."""

    latex: str
    box: Rect
    y: float
    size: float
    char: str = ""
    axis: float | None = None
    is_word: bool = False
    is_upright: bool = False

    @property
    def top(self) -> float:
        """The upper edge: of small signs such as a minus, where letters beside them would have theirs."""
        return self.box.y0 if self.axis is not None or self.is_tall else min(self.box.y0, self.y - 0.6 * self.size)

    @property
    def bottom(self) -> float:
        return self.box.y1 if self.axis is not None or self.is_tall else max(self.box.y1, self.y)

    @property
    def centre(self) -> tuple[float, float]:
        return self.box.centre

    @property
    def has_limits(self) -> bool:
        return self.char in symbols.LARGE or (self.is_word and self.latex.lstrip("\\") in symbols.WITH_LIMITS)

    @property
    def is_tall(self) -> bool:
        """Whether it may be set off the base line: a large operator or a delimiter."""
        return bool(self.char) and (
            self.char in symbols.LARGE or self.char in symbols.INTEGRALS or self.char in symbols.DELIMITERS
        )


class _UnclearError(Exception):
    """A character has no certain place."""


# ---- one row: what is on its base line, with scripts and limits ----

SUPERSCRIPT, SUBSCRIPT = 0.15, 0.08  # of the type size, above or below the base line
SAME_AXIS = 0.22  # of the type size
QUAD = 1.0  # of the type size: a wider gap is a \quad
SCRIPT_GAP = 0.7  # of the type size, between a base and its scripts
SCRIPT_OVERLAP = 0.35  # of the type size, by which a script may overlap its slanted base
NEXT_OVERLAP = 0.1  # of the type size, by which it may overlap the part after it
DIGIT_GAP = 0.35  # of the type size: thousands are separated by less, two numbers by more


def _find_base(parts: Sequence[_Part]) -> tuple[float, float]:
    """The base line and the type size of a row: those of most of its largest characters."""
    size = max(part.size for part in parts)
    full = [part for part in parts if part.size >= FULL_SIZE * size]
    plain = [part for part in full if part.axis is None and not part.is_tall]
    full = plain or [part for part in full if part.axis is not None] or full
    groups = [[other.y for other in full if abs(other.y - part.y) <= SAME_BASELINE * size] for part in full]
    largest = max(groups, key=len)
    return statistics.median_low(largest), size


def _write_row(parts: Sequence[_Part]) -> str:
    """Write parts on one base line, with their scripts and limits."""
    if any(part.char in symbols.ROOTS for part in parts):
        raise _UnclearError("root")
    y, size = _find_base(parts)
    rest = list(parts)
    limits: dict[int, tuple[list[_Part], list[_Part]]] = {}
    for operator in [part for part in parts if part.has_limits]:
        above, below = (_find_limits(operator, rest, side, size) for side in (-1, 1))
        rest = [part for part in rest if part not in above and part not in below]
        limits[id(operator)] = (above, below)
    return _write_tokens(_attach_scripts(rest, limits, y, size), size)


def _attach_scripts(
    parts: Sequence[_Part], limits: Mapping[int, tuple[list[_Part], list[_Part]]], y: float, size: float
) -> list[_Token]:
    """Attach each script to the part before it; one that reaches over the next part belongs to neither with certainty.

    `limits` are what is above and below an operator, by the operator's id.
    """
    tokens: list[_Token] = []
    script_end = float("-inf")
    for part in sorted(parts, key=lambda part: part.box.x0):
        role = _find_role(part, y, size, tokens[-1] if tokens else None)
        if role == "base":
            if script_end > part.box.x0 + NEXT_OVERLAP * size:
                raise _UnclearError(part.latex)
            above, below = limits.get(id(part), ([], []))
            tokens.append(_Token(part, list(above), list(below)))
            continue
        (tokens[-1].above if role == "above" else tokens[-1].below).append(part)
        script_end = max(script_end, part.box.x1)
    return tokens


@dataclass(frozen=True)
class _Token:
    """A part on the base line, and its scripts or limits."""

    base: _Part
    above: list[_Part]
    below: list[_Part]

    @property
    def end(self) -> float:
        return max(part.box.x1 for part in (self.base, *self.above, *self.below))


def _find_limits(operator: _Part, parts: Sequence[_Part], side: int, size: float) -> list[_Part]:
    """The characters that are centred above (-1) or below (1) an operator."""
    box = operator.box
    beyond = [
        part
        for part in parts
        if part is not operator
        and part.size < FULL_SIZE * max(size, operator.size)
        and (part.box.y0 >= box.y1 - 0.2 * size if side > 0 else part.box.y1 <= box.y0 + 0.2 * size)
        and (part.box.y0 - box.y1 if side > 0 else box.y0 - part.box.y1) < size
    ]
    found = [part for part in beyond if part.box.x0 < box.x1 and box.x0 < part.box.x1]
    while found:
        x0, x1 = min(part.box.x0 for part in found), max(part.box.x1 for part in found)
        more = [
            part
            for part in beyond
            if part not in found and -part.size < max(part.box.x0 - x1, x0 - part.box.x1) < 0.4 * part.size
        ]
        if not more:
            break
        found += more
    return found


def _find_role(part: _Part, y: float, size: float, previous: _Token | None) -> str:
    """Whether a part is on the base line, or a script above or below it."""
    if part.axis is not None and abs(part.axis - (y - AXIS * size)) <= SAME_AXIS * size:
        return "base"
    if part.char in symbols.PRIMES and previous is not None and part.centre[1] < y - AXIS * size:
        return "above"
    is_full = part.size >= FULL_SIZE * size
    is_on_line = abs(part.y - y) <= SAME_BASELINE * size or part.is_tall
    if part.axis is None and is_full and is_on_line and part.char not in symbols.PRIMES:
        return "base"
    if previous is None or is_full or part.box.x0 - previous.end > SCRIPT_GAP * size:
        raise _UnclearError(part.latex)
    is_tall = previous.base.box.height > TALL * size
    if not is_tall and part.box.x0 < previous.base.box.x1 - SCRIPT_OVERLAP * size:
        raise _UnclearError(part.latex)  # it stands over or under its base
    if is_tall:
        return "above" if part.centre[1] < previous.base.centre[1] else "below"
    rise = y - part.y if part.axis is None else y - AXIS * size - part.axis
    if rise >= SUPERSCRIPT * size:
        return "above"
    if rise <= -SUBSCRIPT * size:
        return "below"
    raise _UnclearError(part.latex)


def _write_tokens(tokens: Sequence[_Token], size: float) -> str:
    stretched = _find_stretched([token.base for token in tokens], size)
    latex = ""
    for n, token in enumerate(tokens):
        written = stretched.get(n, "") + token.base.latex
        written += f"_{{{_write_row(token.below)}}}" if token.below else ""
        written += _write_superscript(token.above) if token.above else ""
        written = (_write_space(tokens[n - 1], token, size) if n else "") + written
        joins = n > 0 and (
            _are_one_number(tokens[n - 1], token, size) or (latex.endswith(".") and _is_digit(token.base))
        )
        latex += ("" if not latex or joins or token.base.char == "." else " ") + written
    return latex


def _are_one_number(previous: _Token, token: _Token, size: float) -> bool:
    is_bare = not previous.above and not previous.below
    return is_bare and _is_digit(previous.base) and _is_digit(token.base) and not _is_apart(previous, token, size)


def _is_apart(previous: _Token, token: _Token, size: float) -> bool:
    return token.base.box.x0 - previous.end > DIGIT_GAP * size


def _write_space(previous: _Token, token: _Token, size: float) -> str:
    """The space that LaTeX would not set by itself: a wide one, and one beside words."""
    gap = token.base.box.x0 - previous.end
    if gap > QUAD * size:
        return r"\quad "
    one, other = previous.base, token.base
    if _is_digit(one) and _is_digit(other) and _is_apart(previous, token, size):
        return r"\ "
    is_text = any(part.is_word and part.latex.startswith(r"\text") for part in (one, other))
    has_sign = any(part.char and not part.char.isalnum() for part in (one, other))  # LaTeX sets space around signs
    return r"\ " if is_text and not has_sign and gap > WORD_GAP * size else ""


def _write_superscript(parts: Sequence[_Part]) -> str:
    primes = [part for part in parts if part.char in symbols.PRIMES]
    others = [part for part in parts if part.char not in symbols.PRIMES]
    return "".join(part.latex for part in primes) + (f"^{{{_write_row(others)}}}" if others else "")


def _is_digit(part: _Part) -> bool:
    return part.char.isdecimal() and part.char.isascii()


def _find_stretched(parts: Sequence[_Part], size: float) -> dict[int, str]:
    r"""Which delimiters of a row are `\left` and `\right`: tall ones in pairs."""
    opened: list[int] = []
    found: dict[int, str] = {}
    pairs = dict(zip(symbols.CLOSING, symbols.OPENING, strict=True))
    for n, part in enumerate(parts):
        if part.box.height <= TALL * size:
            continue
        if part.char in symbols.OPENING:
            opened.append(n)
        elif part.char in pairs and opened and parts[opened[-1]].char == pairs[part.char]:
            found |= {opened.pop(): r"\left", n: r"\right"}
    return found


# ---- what thin rules belong to ----

RULE_REACH = 0.75  # of the type size, between a fraction bar and what is above or below it
NEXT_LINE = 0.3  # of the type size: a larger gap separates the lines of a numerator from other text
TOLERANCE = 0.25  # of the type size by which content may be wider than its rule


def _apply_rules(parts: Sequence[_Part], rules: Sequence[Rect]) -> list[_Part]:
    """Replace what each rule belongs to by a fraction, a root or an overlined formula; the narrowest rules first."""
    rest = list(parts)
    lines = sorted((rule for rule in rules if rule.width > rule.height), key=lambda rule: (rule.width, rule))
    for n, rule in enumerate(lines):
        later = lines[n + 1 :]
        root = next((part for part in rest if part.char in symbols.ROOTS and _begins_rule(part, rule)), None)
        if root:
            rest = _build_root(rest, root, rule)
            continue
        above, below = _find_beside(rest, rule, later, -1), _find_beside(rest, rule, later, 1)
        if not below or any(part in below for part in above):
            raise _UnclearError("rule")
        built = _build_fraction(above, below, rule) if above else _build_overline(below, rule)
        rest = [part for part in rest if part not in above and part not in below] + [built]
    return rest


def _begins_rule(root: _Part, rule: Rect) -> bool:
    is_right = abs(rule.x0 - root.box.x1) <= 0.35 * root.size
    return is_right and abs(rule.centre[1] - root.box.y0) <= 0.35 * root.size


def _build_root(parts: Sequence[_Part], root: _Part, rule: Rect) -> list[_Part]:
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
        raise _UnclearError("root")
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
    base = _find_base(inside)
    prefix = rf"\sqrt[{_write_row(index)}]" if index else r"\sqrt"
    box = enclose([root.box, rule, *(part.box for part in inside)])
    built = _Part(f"{prefix}{{{_write_row(inside)}}}", box, base[0], base[1])
    return [part for part in parts if part is not root and part not in inside and part not in index] + [built]


def _find_beside(parts: Sequence[_Part], rule: Rect, others: Sequence[Rect], side: int) -> list[_Part]:
    """The parts directly above (-1) or below (1) a rule, line by line, up to a gap or another rule."""
    middle = rule.centre[1]
    in_range = []
    for part in parts:
        margin = TOLERANCE * part.size
        is_over = rule.x0 - margin <= part.box.x0 and part.box.x1 <= rule.x1 + margin
        if is_over and side * (part.centre[1] - middle) > 0:
            in_range.append(part)
    found: list[_Part] = []
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


def _gap(part: _Part, edge: float, side: int) -> float:
    return part.top - edge if side > 0 else edge - part.bottom


def _is_between(other: Rect, rule: Rect, side: int) -> bool:
    overlaps = other.x0 < rule.x1 and rule.x0 < other.x1
    return overlaps and side * (other.centre[1] - rule.centre[1]) > 0


def _build_fraction(above: Sequence[_Part], below: Sequence[_Part], rule: Rect) -> _Part:
    latex = rf"\frac{{{_write_row(above)}}}{{{_write_row(below)}}}"
    parts = [*above, *below]
    size = max(part.size for part in parts)
    axis = rule.centre[1]
    return _Part(latex, enclose([rule, *(part.box for part in parts)]), axis + AXIS * size, size, axis=axis)


def _build_overline(below: Sequence[_Part], rule: Rect) -> _Part:
    y, size = _find_base(below)
    return _Part(rf"\overline{{{_write_row(below)}}}", enclose([rule, *(part.box for part in below)]), y, size)


# ---- formulas ----

MAX_GLYPHS, MAX_RULES = 400, 40  # of a formula: more are a table, or a drawing
ROW_DISTANCE = 1.1  # of the type size: base lines of two rows are further apart
NUMBER_GAP = 1.5  # of the type size, between a formula and its number
_NUMBER = re.compile(r"[(\[]([A-Z]?\.?\d+(?:\.\d+)*[a-z]?)[)\]]")


def write_latex(glyphs: Sequence[Glyph], rules: Sequence[Rect]) -> str | None:
    """The LaTeX of a displayed formula, without delimiters; None where any character has no certain place."""
    if not 0 < len(glyphs) <= MAX_GLYPHS or len(rules) > MAX_RULES:
        return None
    try:
        parts, number = _split_number([_to_part(glyph) for glyph in glyphs])
        has_italics = any(glyph.italic or symbols.is_italic(glyph.text) for glyph in glyphs)
        parts = _join_words(parts, has_italics)
        parts = _apply_rules(_apply_accents(parts), rules)
        rows = [_write_row(row) for row in _split_rows(parts)]
    except _UnclearError:
        return None
    latex = rows[0] if len(rows) == 1 else r"\begin{gathered} " + r" \\ ".join(rows) + r" \end{gathered}"
    return latex + (rf" \tag{{{number}}}" if number else "")


def _to_part(glyph: Glyph) -> _Part:
    is_mark = glyph.text in symbols.ROOTS or glyph.text in symbols.ACCENTS
    latex = glyph.text if is_mark else symbols.write_symbol(glyph.text)
    if latex is None or glyph.size <= 0:
        raise _UnclearError(glyph.text)
    return _Part(latex, glyph.box, glyph.y, glyph.size, glyph.text, is_upright=not glyph.italic)


def _split_number(parts: Sequence[_Part]) -> tuple[list[_Part], str | None]:
    """Take off the number of the formula: the last characters, in brackets and apart from the rest."""
    ordered = sorted(parts, key=lambda part: part.box.x0)
    for start in range(1, len(ordered)):
        gap = ordered[start].box.x0 - max(part.box.x1 for part in ordered[:start])
        if gap < NUMBER_GAP * ordered[start].size:
            continue
        found = _NUMBER.fullmatch("".join(part.char for part in ordered[start:]))
        if found and max(abs(part.y - ordered[start].y) for part in ordered[start:]) < 1:
            return ordered[:start], found.group(1)
    return list(parts), None


# ---- words and accents ----


def _join_words(parts: Sequence[_Part], has_italics: bool) -> list[_Part]:
    """Join upright letters into words: functions such as `log`, and text if variables are in italics."""
    words: list[list[_Part]] = []
    for part in sorted(parts, key=lambda part: (part.y, part.box.x0)):
        is_letter = part.is_upright and symbols.is_letter(part.char)
        if (
            is_letter
            and words
            and words[-1][-1].is_upright
            and symbols.is_letter(words[-1][-1].char)
            and _is_beside(words[-1][-1], part)
        ):
            words[-1].append(part)
        else:
            words.append([part])
    joined: list[_Part] = []
    for word in words:
        text = "".join(part.char for part in word)
        box = enclose([part.box for part in word])
        if len(word) > 1 and text in symbols.FUNCTIONS:
            joined.append(replace(word[0], latex=f"\\{text}", box=box, char="", is_word=True))
        elif len(word) > 1 and (has_italics or len(word) > 2 or not text.islower()):
            joined.append(replace(word[0], latex=rf"\text{{{text}}}", box=box, char="", is_word=True))
        else:
            joined += word
    return joined


def _is_beside(first: _Part, second: _Part) -> bool:
    gap = second.box.x0 - first.box.x1
    is_same = abs(first.y - second.y) < SAME_BASELINE * first.size and first.size == second.size
    return is_same and -WORD_GAP * first.size < gap < WORD_GAP * first.size


def _apply_accents(parts: Sequence[_Part]) -> list[_Part]:
    """Put accents over the letters below them."""
    accents = [part for part in parts if part.char in symbols.ACCENTS]
    others = [part for part in parts if part.char not in symbols.ACCENTS]
    for accent in accents:
        below = [part for part in others if _is_over(accent, part)]
        if len(below) != 1:
            raise _UnclearError(accent.char)
        base = below[0]
        latex = f"\\{symbols.ACCENTS[accent.char]}{{{base.latex}}}"
        accented = replace(base, latex=latex, box=base.box.union(accent.box), char="")
        others = [accented if part is base else part for part in others]
    return others


def _is_over(accent: _Part, part: _Part) -> bool:
    """Whether an accent is above a letter. A combining one has no width, and is at the end of its letter."""
    x, margin = accent.centre[0], 0.1 * part.size
    if unicodedata.combining(accent.char):
        is_same_line = abs(accent.y - part.y) <= SAME_BASELINE * part.size and accent.size == part.size
        return is_same_line and part.box.x0 + margin < x <= part.box.x1 + margin
    is_above = -margin <= part.box.y0 - accent.box.y1 <= 3 * margin
    return is_above and part.box.x0 - margin <= x <= part.box.x1 + margin


def _split_rows(parts: Sequence[_Part]) -> list[list[_Part]]:
    """Split a formula of several lines; lines that share large brackets are no rows but a matrix."""
    plain = [part for part in parts if part.axis is None and not part.is_tall]
    if not plain:
        return [list(parts)]
    size = max(part.size for part in plain)
    lines: list[float] = []
    for part in sorted(plain, key=lambda part: part.y):
        if part.size >= FULL_SIZE * size and (not lines or part.y - lines[-1] > SAME_BASELINE * size):
            lines.append(part.y)
    if len(lines) < 2:
        return [list(parts)]
    has_brackets = any(part.char in symbols.DELIMITERS and part.box.height > TALL * size for part in parts)
    if has_brackets or min(b - a for a, b in zip(lines, lines[1:], strict=False)) < ROW_DISTANCE * size:
        raise _UnclearError("rows")
    rows: list[list[_Part]] = [[] for _ in lines]
    for part in parts:
        y = part.y if part.axis is None else part.axis + AXIS * size
        rows[min(range(len(lines)), key=lambda n: abs(lines[n] - y))].append(part)
    return rows
