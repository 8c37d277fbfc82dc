"""Convert LaTeX to MathML, which browsers render without network access, fonts or scripts."""

from __future__ import annotations

import re
from collections.abc import Callable

_TAG = re.compile(r"\\tag\s*\*?\s*\{([^{}]*)\}")
_LABEL = re.compile(r"\\(?:label\s*\{[^{}]*\}|nonumber\b|notag\b)")
MAX_LENGTH = 20_000  # characters; longer text is a repetition loop of the model, not a formula


def make_converter(annotate: bool = False) -> Callable[[str, bool], str | None]:
    """Return a function that converts LaTeX without delimiters; its second argument is whether it is display maths.

    It returns None for LaTeX that cannot be parsed. `annotate` adds the LaTeX as an annotation, which is not shown.
    """
    from math_core import LatexError, LatexToMathML

    latex_to_mathml = LatexToMathML(annotation=annotate, allow_unreliable_rendering=True, fancy_error=False)

    def convert(latex: str, display: bool) -> str | None:
        number = " ".join(f"({tag.group(1)})" for tag in _TAG.finditer(latex))
        bare = _LABEL.sub("", _TAG.sub("", latex)).strip()
        if not bare or len(bare) > MAX_LENGTH:
            return None
        # Models write rows without an environment, which only parse inside one.
        for candidate in (bare, rf"\begin{{aligned}}{bare}\end{{aligned}}"):
            try:
                numbered = candidate + (rf"\qquad\text{{{number}}}" if number else "")
                return latex_to_mathml.convert_with_local_state(numbered, displaystyle=display)
            except LatexError:
                continue
        return None

    return convert
