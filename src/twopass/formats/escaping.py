"""Escape plain text so that Markdown shows exactly that text."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

from twopass.format_options import Maths
from twopass.text import markdown_escapes, prose

MATHS = re.compile(r"\\\((.+?)\\\)|\\\[(.+?)\\\]", flags=re.DOTALL)  # inline in group 1, display in group 2
MATHS_DELIMITERS = {  # inline, display
    Maths.DOLLAR: (("$", "$"), ("$$", "$$")),
    Maths.BACKSLASH: (("\\(", "\\)"), ("\\[", "\\]")),
}


def escape_text(text: str, style: Maths = Maths.DOLLAR, alone: bool = False) -> str:
    """Escape one line of text; `\\(x\\)` and `\\[x\\]` get the delimiters of the style.

    `alone` says that it is all of its block: then only what has an effect within this text is escaped.
    """
    parts, start, replace_maths = [], 0, _make_maths_replacer(style)
    alone = alone and not MATHS.search(text)
    for found in MATHS.finditer(text):
        parts += [markdown_escapes.escape_inline(text[start : found.start()]), replace_maths(found)]
        start = found.end()
    return "".join([*parts, markdown_escapes.escape_inline(text[start:], alone)])


def normalise_markdown(markdown: str, style: Maths = Maths.DOLLAR) -> str:
    """Give the maths of a Markdown line the style's delimiters; escape comments, which could forge a page mark."""
    return MATHS.sub(_make_maths_replacer(style), markdown).replace("<!--", "&lt;!--")


def escape_heading_end(line: str) -> str:
    """Escape a trailing run of #, which Markdown would drop from a heading."""
    return re.sub(r"(^|\s)(#+)$", r"\1\\\2", line)


def escape_alt_text(text: str, style: Maths = Maths.DOLLAR) -> str:
    """Escape an image's alternative text; its brackets need not be balanced."""
    return re.sub(r"\\?([\[\]])", r"\\\1", escape_text(text, style, alone=True))


def escape_gfm_cell(text: str, style: Maths = Maths.DOLLAR) -> str:
    """Escape the text of a cell of a GFM table."""
    lines = _split_lines(text)
    return "<br>".join(escape_text(line, style, alone=len(lines) == 1) for line in lines).replace("|", "\\|")


def escape_html_cell(text: str, style: Maths = Maths.DOLLAR) -> str:
    """Escape the text of a cell of an HTML table, where Markdown does not apply."""
    lines = (MATHS.sub(_make_maths_replacer(style), line) for line in _split_lines(text))
    return "<br>".join(html.escape(line, quote=False) for line in lines)


def _split_lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def clean_latex(latex: str) -> str:
    """Remove delimiters and blank lines from LaTeX, and escape dollars, which would end the formula."""
    latex = re.sub(r"^\s*(?:\\\[|\\\(|\$\$?)|(?:\\\]|\\\)|\$\$?)\s*$", "", latex)
    lines = "\n".join(line.rstrip() for line in latex.splitlines() if line.strip())
    return re.sub(r"(?<!\\)\$", r"\\$", lines)


def _make_maths_replacer(style: Maths) -> Callable[[re.Match[str]], str]:
    def replace(found: re.Match[str]) -> str:
        line = " ".join(clean_latex(found.group(1) or found.group(2)).split())
        begin, end = MATHS_DELIMITERS[style][0 if found.group(1) else 1]
        return f"{begin}{line}{end}" if line else ""

    return replace


def html_to_text(text: str) -> str:
    """Return the text of an HTML string on one line."""
    return prose.to_one_line(html.unescape(prose.strip_markup(text)))
