"""Convert one line of Markdown to HTML of a few known tags; all other markup is shown as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from twopass.formats.html.page import CLICKABLE_SCHEMES, open_tag, tag

_SCRIPT_TAG = re.compile(r"<(/?)(sup|sub)>")
_LINE_BREAK = re.compile(r"<br\s*/?>")


def to_html(markdown: str, render_text: Callable[[str], Markup]) -> Markup:
    """Convert Markdown; `render_text` escapes the text between the marks."""
    (line,) = _make_parser().parseInline(markdown)
    return _Renderer(render_text).render(line.children or ())


@cache
def _make_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable("strikethrough").disable("image")
    parser.validateLink = lambda url: url.startswith(CLICKABLE_SCHEMES)  # type: ignore[method-assign]
    return parser


class _Renderer:
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
