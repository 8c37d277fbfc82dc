"""LaTeX in, MathML that every browser draws by itself out; None where the LaTeX cannot be understood.

Knows what models write around a formula. Needs no network, no fonts and no script.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_TAG = re.compile(r"\\tag\s*\*?\s*\{([^{}]*)\}")
_LABEL = re.compile(r"\\(?:label\s*\{[^{}]*\}|nonumber\b|notag\b)")
LONGEST = 20_000  # characters: no formula is longer, a loop is


def converter() -> Callable[[str, bool], str | None]:
    """A function from LaTeX without delimiters, and whether it stands on its own line, to MathML."""
    from math_core import LatexError, LatexToMathML

    drawing = LatexToMathML(allow_unreliable_rendering=True, fancy_error=False)

    def converted(latex: str, display: bool) -> str | None:
        number = " ".join(f"({told.group(1)})" for told in _TAG.finditer(latex))
        bare = _LABEL.sub("", _TAG.sub("", latex)).strip()
        if not bare or len(bare) > LONGEST:
            return None
        # Rows without an environment around them, as models write them.
        for spelled in (bare, rf"\begin{{aligned}}{bare}\end{{aligned}}"):
            try:
                whole = spelled + (rf"\qquad\text{{{number}}}" if number else "")
                return drawing.convert_with_local_state(whole, displaystyle=display)
            except LatexError:
                continue
        return None

    return converted
