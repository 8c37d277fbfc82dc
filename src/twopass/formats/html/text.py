"""Render texts of a document as inline HTML: escaped, with formulas as MathML and references to footnotes as links.

Of Markdown, a few known tags are rendered; all other markup is shown as text. Browsers render MathML without network
access, fonts or scripts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from twopass.document import Cell
from twopass.formats import escaping
from twopass.formats.html.page import CLICKABLE_SCHEMES, open_tag, tag
from twopass.text import links, maths
from twopass.text.links import ShownLink

# Noncharacters of Unicode stand for finished markup while the text around it is converted. HTML allows them nowhere.
_PLACEHOLDER = re.compile("\ufdd0([0-9]+)\ufdd1")
_NONCHARACTERS = re.compile("[\ufdd0-\ufdef]")
_SCRIPT_TAG = re.compile(r"<(/?)(sup|sub)>")
_LINE_BREAK = re.compile(r"<br\s*/?>")
_EQUATION_TAG = re.compile(r"\\tag\s*(\*?)\s*\{([^{}]*)\}")  # with an asterisk, without parentheses
_EQUATION_LABEL = re.compile(r"\\(?:label\s*\{[^{}]*\}|nonumber\b|notag\b)")
_MAX_LATEX_LENGTH = 20_000  # characters; longer text is a repetition loop of the model, not a formula


class Insertion(NamedTuple):
    """Markup that replaces text[start:end]."""

    start: int
    end: int
    markup: Markup


def make_link(content: Markup, uri: str) -> Markup:
    return tag("a", content, href=links.encode_address(uri))


class TextRenderer:
    """Renders the texts of a document. `annotate` adds the LaTeX of a formula to its MathML, where it is not shown."""

    def __init__(self, annotate: bool = False) -> None:
        self._convert = make_mathml_converter(annotate)

    def render_formula(self, latex: str, display: bool = True) -> Markup:
        """MathML, or the LaTeX source if it cannot be converted."""
        converted = self._convert(latex, display)
        return Markup(converted) if converted else tag("code", latex, class_="latex")

    def render_cell(self, cell: Cell) -> Markup:
        """Render the lines of a table's cell."""
        lines = ((line, shown) for line, shown in escaping.split_lines(cell))
        return Markup("<br>").join(self.render(line, shown=shown) for line, shown in lines)

    def render(
        self,
        text: str,
        is_markdown: bool = False,
        insertions: Sequence[Insertion] = (),
        shown: Sequence[ShownLink] = (),
    ) -> Markup:
        """Render plain text or one line of Markdown, with its links; of insertions that overlap, the first is used."""
        text = _NONCHARACTERS.sub("\ufffd", text)
        linked = ((one, self.render(text[one.start : one.end], is_markdown)) for one in shown)
        insertions = [*insertions, *(Insertion(*one[:2], make_link(content, one.uri)) for one, content in linked)]
        hidden: list[Markup] = []
        source, position = "", 0
        for start, end, markup in sorted(insertions):
            if start >= position:
                source += self._hide_maths(text[position:start], hidden) + _hide(markup, hidden)
                position = end
        source += self._hide_maths(text[position:], hidden)
        show = partial(_show, hidden=hidden)
        return _markdown_to_html(source, show) if is_markdown else show(source)

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


def _markdown_to_html(markdown: str, render_text: Callable[[str], Markup]) -> Markup:
    """Convert Markdown; `render_text` escapes the text between the marks."""
    (line,) = _make_parser().parseInline(markdown)
    return _MarkdownRenderer(render_text).render(line.children or ())


@cache
def _make_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable("strikethrough").disable("image")
    parser.validateLink = lambda url: url.lower().startswith(CLICKABLE_SCHEMES)  # type: ignore[method-assign]
    return parser


class _MarkdownRenderer:
    """Writes tokens as HTML in which every tag is closed in the right order, whatever the Markdown says."""

    def __init__(self, render_text: Callable[[str], Markup]) -> None:
        self._render_text = render_text
        self._parts: list[Markup] = []
        self._open: list[str] = []

    def render(self, tokens: Sequence[Token]) -> Markup:
        for token in tokens:
            self._add(token)
        self._close_down_to(0)
        return Markup("").join(self._parts)

    def _add(self, token: Token) -> None:
        if token.type == "html_inline":
            self._add_html(token.content)
        elif token.type in ("softbreak", "hardbreak"):
            self._parts.append(Markup("<br>"))
        elif token.nesting > 0:
            self._begin(token.tag, href=token.attrGet("href"), title=token.attrGet("title"))
        elif token.nesting < 0:
            self._end(token.tag)
        elif token.type == "code_inline":
            self._parts.append(tag("code", self._render_text(token.content)))
        else:
            self._parts.append(self._render_text(token.content))

    def _add_html(self, content: str) -> None:
        if found := _SCRIPT_TAG.fullmatch(content):
            self._end(found[2]) if found[1] else self._begin(found[2])
        else:
            self._parts.append(Markup("<br>") if _LINE_BREAK.fullmatch(content) else self._render_text(content))

    def _begin(self, name: str, **attributes: object) -> None:
        self._parts.append(open_tag(name, **attributes))
        self._open.append(name)

    def _end(self, name: str) -> None:
        """Close the tag and those inside it; an end without a beginning is left out."""
        if name in self._open:
            self._close_down_to(len(self._open) - 1 - self._open[::-1].index(name))

    def _close_down_to(self, depth: int) -> None:
        while len(self._open) > depth:
            self._parts.append(Markup("</{}>").format(self._open.pop()))


def make_mathml_converter(annotate: bool = False) -> Callable[[str, bool], str | None]:
    """A function that converts LaTeX without delimiters; its second argument is whether it is display maths.

    It returns None for LaTeX that cannot be parsed. `annotate` adds the LaTeX as an annotation, which is not shown.
    """
    from math_core import LatexError, LatexToMathML

    latex_to_mathml = LatexToMathML(annotation=annotate, allow_unreliable_rendering=True, fancy_error=False)

    def convert(latex: str, display: bool) -> str | None:
        number = " ".join(tag[2] if tag[1] else f"({tag[2]})" for tag in _EQUATION_TAG.finditer(latex))
        bare = _EQUATION_LABEL.sub("", _EQUATION_TAG.sub("", latex)).strip()
        if not bare or len(bare) > _MAX_LATEX_LENGTH:
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
