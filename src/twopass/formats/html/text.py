"""Render texts of a document as inline HTML: escaped, with formulas as MathML and references to footnotes as links."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from markupsafe import Markup, escape

from twopass.formats import escaping, mathml
from twopass.formats.html import inline_markdown
from twopass.formats.html.page import tag
from twopass.text import maths

# Noncharacters of Unicode stand for finished markup while the text around it is converted. HTML allows them nowhere.
_PLACEHOLDER = re.compile("\ufdd0([0-9]+)\ufdd1")
_NONCHARACTERS = re.compile("[\ufdd0-\ufdef]")


class Insertion(NamedTuple):
    """Markup that replaces text[start:end]."""

    start: int
    end: int
    markup: Markup


class TextRenderer:
    """Renders the texts of a document. `annotate` adds the LaTeX of a formula to its MathML, where it is not shown."""

    def __init__(self, annotate: bool = False) -> None:
        self._convert = mathml.make_converter(annotate)

    def render_formula(self, latex: str, display: bool = True) -> Markup:
        """Return MathML, or the LaTeX source if it cannot be converted."""
        converted = self._convert(latex, display)
        return Markup(converted) if converted else tag("code", latex, class_="latex")

    def render(self, text: str, is_markdown: bool = False, insertions: Sequence[Insertion] = ()) -> Markup:
        """Render plain text or one line of Markdown; of insertions that overlap, the first is used."""
        text = _NONCHARACTERS.sub("\ufffd", text)
        hidden: list[Markup] = []
        source, position = "", 0
        for start, end, markup in sorted(insertions):
            if start >= position:
                source += self._hide_maths(text[position:start], hidden) + _hide(markup, hidden)
                position = end
        source += self._hide_maths(text[position:], hidden)
        show = partial(_show, hidden=hidden)
        return inline_markdown.to_html(source, show) if is_markdown else show(source)

    def _hide_maths(self, text: str, hidden: list[Markup]) -> str:
        """Replace formulas by placeholders, and put their MathML into the list."""

        def replace(found: re.Match[str]) -> str:
            latex = " ".join(escaping.clean_latex(found[1] or found[2]).split())
            return _hide(self.render_formula(latex, display=False), hidden) if latex else ""

        return maths.FORMULA.sub(replace, text)


def _hide(markup: Markup, hidden: list[Markup]) -> str:
    hidden.append(markup)
    return f"\ufdd0{len(hidden) - 1}\ufdd1"


def _show(text: str, hidden: Sequence[Markup]) -> Markup:
    """Escape a text, and put the markup back in place of its placeholders."""
    parts = _PLACEHOLDER.split(text)  # texts and numbers in turn
    return Markup("").join(hidden[int(part)] if n % 2 else escape(part) for n, part in enumerate(parts))
