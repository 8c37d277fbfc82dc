"""Write the LaTeX of a formula from the positions of its characters and rules.

This is plain geometry. Every character is placed with confidence, or there is no LaTeX: matrices, cases and binomials,
characters that are not known, and anything else whose place is unclear give None.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace

from twopass.engines.cpu.formulas import symbols
from twopass.engines.cpu.formulas.parts import AXIS, FULL_SIZE, SAME_BASELINE, TALL, WORD_GAP, Glyph, Part, UnclearError
from twopass.engines.cpu.formulas.rows import write_row
from twopass.engines.cpu.formulas.rules import apply_rules
from twopass.engines.cpu.geometry import Rect, enclose

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
        parts = apply_rules(_apply_accents(parts), rules)
        rows = [write_row(row) for row in _split_rows(parts)]
    except UnclearError:
        return None
    latex = rows[0] if len(rows) == 1 else r"\begin{gathered} " + r" \\ ".join(rows) + r" \end{gathered}"
    return latex + (rf" \tag{{{number}}}" if number else "")


def _to_part(glyph: Glyph) -> Part:
    is_mark = glyph.text in symbols.ROOTS or glyph.text in symbols.ACCENTS
    latex = glyph.text if is_mark else symbols.write_symbol(glyph.text)
    if latex is None or glyph.size <= 0:
        raise UnclearError(glyph.text)
    return Part(latex, glyph.box, glyph.y, glyph.size, glyph.text, is_upright=not glyph.italic)


def _split_number(parts: Sequence[Part]) -> tuple[list[Part], str | None]:
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


def _join_words(parts: Sequence[Part], has_italics: bool) -> list[Part]:
    """Join upright letters into words: functions such as `log`, and text if variables are in italics."""
    words: list[list[Part]] = []
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
    joined: list[Part] = []
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


def _is_beside(first: Part, second: Part) -> bool:
    gap = second.box.x0 - first.box.x1
    is_same = abs(first.y - second.y) < SAME_BASELINE * first.size and first.size == second.size
    return is_same and -WORD_GAP * first.size < gap < WORD_GAP * first.size


def _apply_accents(parts: Sequence[Part]) -> list[Part]:
    """Put accents over the letters below them."""
    accents = [part for part in parts if part.char in symbols.ACCENTS]
    others = [part for part in parts if part.char not in symbols.ACCENTS]
    for accent in accents:
        below = [part for part in others if _is_over(accent, part)]
        if len(below) != 1:
            raise UnclearError(accent.char)
        base = below[0]
        latex = f"\\{symbols.ACCENTS[accent.char]}{{{base.latex}}}"
        accented = replace(base, latex=latex, box=base.box.union(accent.box), char="")
        others = [accented if part is base else part for part in others]
    return others


def _is_over(accent: Part, part: Part) -> bool:
    """Whether an accent is above a letter. A combining one has no width, and is at the end of its letter."""
    x, margin = accent.centre[0], 0.1 * part.size
    if unicodedata.combining(accent.char):
        is_same_line = abs(accent.y - part.y) <= SAME_BASELINE * part.size and accent.size == part.size
        return is_same_line and part.box.x0 + margin < x <= part.box.x1 + margin
    is_above = -margin <= part.box.y0 - accent.box.y1 <= 3 * margin
    return is_above and part.box.x0 - margin <= x <= part.box.x1 + margin


def _split_rows(parts: Sequence[Part]) -> list[list[Part]]:
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
        raise UnclearError("rows")
    rows: list[list[Part]] = [[] for _ in lines]
    for part in parts:
        y = part.y if part.axis is None else part.axis + AXIS * size
        rows[min(range(len(lines)), key=lambda n: abs(lines[n] - y))].append(part)
    return rows
