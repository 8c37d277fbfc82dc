"""Plain text in, Markdown that shows exactly that text out.

Knows which characters Markdown would misread, and where. Knows nothing of elements or pages.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable

from twopass.format_options import Maths
from twopass.text import prose

_MATHS = re.compile(r"\\\((.+?)\\\)|\\\[(.+?)\\\]", flags=re.DOTALL)
# Every branch begins with its own character, and looks behind only then: so the search leaps from one to the next.
_MISREAD = re.compile(
    r"\\(?=[!-/:-@\[-`{-~]|$)"  # an escape that was none
    r"|\*(?:(?<!\s\*)|(?!\s))|_(?:(?<![^\W_]_)|(?![^\W_]))"  # emphasis; 5 * 3 and snake_case are safe
    r"|<!--|`|\$|<(?=[A-Za-z/!?])|\](?=[(\[:])"  # code, maths, tags and autolinks, links and their definitions
    r"|~(?:(?=~)|(?<=\w~)|(?<=\S~)(?=\s|$))"  # struck out
    r"|&(?=#?\w{1,31};)"  # entities
)
FENCES = {
    Maths.DOLLAR: (("$", "$"), ("$$", "$$")),
    Maths.BACKSLASH: (("\\(", "\\)"), ("\\[", "\\]")),
}  # inline, display
_ENTITIES = {"&": "&amp;", "<!--": "&lt;!--"}
_LEADING = re.compile(r"#{1,6}(?=\s|$)|>|[-+](?=\s|$)|-(?=[-\s]*$)|=(?==*\s*$)|\[(?=[ xX]\]\s)|(?<=\d)[.)](?=\s|$)")
_NUMBERED = re.compile(r"\d{1,9}(?=[.)](?:\s|$))")


def shown(text: str, style: Maths = Maths.DOLLAR) -> str:
    """One line of running text; `\\(x\\)` and `\\[x\\]` become what the style puts around maths."""
    parts, start, formula = [], 0, _formula(style)
    for found in _MATHS.finditer(text):
        parts += [_escaped(text[start : found.start()]), formula(found)]
        start = found.end()
    return "".join([*parts, _escaped(text[start:])])


def kept(markdown: str, style: Maths = Maths.DOLLAR) -> str:
    """One line that is Markdown already: only maths in our spelling, and no comment that could pass for a page mark."""
    return _MATHS.sub(_formula(style), markdown).replace("<!--", "&lt;!--")


def leading(text: str) -> str:
    """A line that begins a block: what would make it a heading, list, quote or rule is escaped."""
    numbered = _NUMBERED.match(text)
    at = numbered.end() if numbered else 0
    found = _LEADING.match(text, at)
    return f"{text[:at]}\\{text[at:]}" if found else text


def heading_end(line: str) -> str:
    """The end of a heading: a closing run of # would be dropped."""
    return re.sub(r"(^|\s)(#+)$", r"\1\\\2", line)


def alternative(text: str, style: Maths = Maths.DOLLAR) -> str:
    """An image's alternative text, brackets balanced or not."""
    return re.sub(r"\\?([\[\]])", r"\\\1", shown(text, style))


def cell(text: str, style: Maths = Maths.DOLLAR) -> str:
    """A cell of a GFM table."""
    return "<br>".join(shown(line, style) for line in _lines(text)).replace("|", "\\|")


def html_cell(text: str, style: Maths = Maths.DOLLAR) -> str:
    """A cell of an HTML table, where Markdown is not read."""
    return "<br>".join(html.escape(_MATHS.sub(_formula(style), line), quote=False) for line in _lines(text))


def _lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def maths(latex: str) -> str:
    """A formula's LaTeX without delimiters: no blank lines, no dollar that would end it."""
    latex = re.sub(r"^\s*(?:\\\[|\\\(|\$\$?)|(?:\\\]|\\\)|\$\$?)\s*$", "", latex)
    lines = "\n".join(line.rstrip() for line in latex.splitlines() if line.strip())
    return re.sub(r"(?<!\\)\$", r"\\$", lines)


def _formula(style: Maths) -> Callable[[re.Match[str]], str]:
    def spelled(found: re.Match[str]) -> str:
        line = " ".join(maths(found.group(1) or found.group(2)).split())
        begin, end = FENCES[style][0 if found.group(1) else 1]
        return f"{begin}{line}{end}" if line else ""

    return spelled


def _escaped(text: str) -> str:
    return _MISREAD.sub(lambda found: _ENTITIES.get(found.group(), "\\" + found.group()), text)


def flat(text: str) -> str:
    """Prose of an HTML string on one line."""
    return prose.flow(html.unescape(prose.plain(text)))
