"""Write the parts of one row: what is on its base line, with scripts and limits."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from twopass.engines.cpu.formulas import symbols
from twopass.engines.cpu.formulas.parts import AXIS, FULL_SIZE, SAME_BASELINE, TALL, WORD_GAP, Part, UnclearError

SUPERSCRIPT, SUBSCRIPT = 0.15, 0.08  # of the type size, above or below the base line
SAME_AXIS = 0.22  # of the type size
QUAD = 1.0  # of the type size: a wider gap is a \quad
SCRIPT_GAP = 0.7  # of the type size, between a base and its scripts
SCRIPT_OVERLAP = 0.35  # of the type size, by which a script may overlap its slanted base,
NEXT_OVERLAP = 0.1  # and the part after it
DIGIT_GAP = 0.35  # of the type size: thousands are separated by less, two numbers by more


def find_base(parts: Sequence[Part]) -> tuple[float, float]:
    """The base line and the type size of a row: those of most of its largest characters."""
    size = max(part.size for part in parts)
    full = [part for part in parts if part.size >= FULL_SIZE * size]
    plain = [part for part in full if part.axis is None and not part.is_tall]
    full = plain or [part for part in full if part.axis is not None] or full
    groups = [[other.y for other in full if abs(other.y - part.y) <= SAME_BASELINE * size] for part in full]
    largest = max(groups, key=len)
    return statistics.median_low(largest), size


def write_row(parts: Sequence[Part]) -> str:
    """Write parts on one base line, with their scripts and limits."""
    if any(part.char in symbols.ROOTS for part in parts):
        raise UnclearError("root")
    y, size = find_base(parts)
    rest = list(parts)
    limits: dict[int, tuple[list[Part], list[Part]]] = {}
    for operator in [part for part in parts if part.has_limits]:
        above, below = (_find_limits(operator, rest, side, size) for side in (-1, 1))
        rest = [part for part in rest if part not in above and part not in below]
        limits[id(operator)] = (above, below)
    return _write_tokens(_attach_scripts(rest, limits, y, size), size)


def _attach_scripts(
    parts: Sequence[Part], limits: Mapping[int, tuple[list[Part], list[Part]]], y: float, size: float
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
                raise UnclearError(part.latex)
            above, below = limits.get(id(part), ([], []))
            tokens.append(_Token(part, list(above), list(below)))
            continue
        (tokens[-1].above if role == "above" else tokens[-1].below).append(part)
        script_end = max(script_end, part.box.x1)
    return tokens


@dataclass(frozen=True)
class _Token:
    """A part on the base line, and its scripts or limits."""

    base: Part
    above: list[Part]
    below: list[Part]

    @property
    def end(self) -> float:
        return max(part.box.x1 for part in (self.base, *self.above, *self.below))


def _find_limits(operator: Part, parts: Sequence[Part], side: int, size: float) -> list[Part]:
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


def _find_role(part: Part, y: float, size: float, previous: _Token | None) -> str:
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
        raise UnclearError(part.latex)
    is_tall = previous.base.box.height > TALL * size
    if not is_tall and part.box.x0 < previous.base.box.x1 - SCRIPT_OVERLAP * size:
        raise UnclearError(part.latex)  # it stands over or under its base
    if is_tall:
        return "above" if part.centre[1] < previous.base.centre[1] else "below"
    rise = y - part.y if part.axis is None else y - AXIS * size - part.axis
    if rise >= SUPERSCRIPT * size:
        return "above"
    if rise <= -SUBSCRIPT * size:
        return "below"
    raise UnclearError(part.latex)


def _write_tokens(tokens: Sequence[_Token], size: float) -> str:
    stretched = _find_stretched([token.base for token in tokens], size)
    latex = ""
    for n, token in enumerate(tokens):
        written = stretched.get(n, "") + token.base.latex
        written += f"_{{{write_row(token.below)}}}" if token.below else ""
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


def _write_superscript(parts: Sequence[Part]) -> str:
    primes = [part for part in parts if part.char in symbols.PRIMES]
    others = [part for part in parts if part.char not in symbols.PRIMES]
    return "".join(part.latex for part in primes) + (f"^{{{write_row(others)}}}" if others else "")


def _is_digit(part: Part) -> bool:
    return part.char.isdecimal() and part.char.isascii()


def _find_stretched(parts: Sequence[Part], size: float) -> dict[int, str]:
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
