r"""Formulas in text: LaTeX between `\(` and `\)` or `\[` and `\]`, as models write them, and how Markdown holds LaTeX.

No parser of Markdown that knows formulas decodes entities in them, and those that do not know them interpret their
signs. So what Markdown or HTML would interpret is written in another way that LaTeX shows alike.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import partial

from twopass.text import markdown_escapes

# A formula ends before the next beginning of one like it, so that a text of beginnings is searched once.
INLINE, DISPLAY = r"\\\(((?:[^\\]|\\[^()])++)\\\)", r"\\\[((?:[^\\]|\\[^\[\]])++)\\\]"
FORMULA = re.compile(f"{INLINE}|{DISPLAY}")  # inline in group 1, display in group 2
_UNSTARRED = {"align": "aligned", "gather": "gathered", "multline": "gathered", "equation": "gathered"}
_SPECIAL = re.compile(
    r"\\(?P<environment>begin|end)\s*\{(?P<name>[A-Za-z]+)\*+\}"  # no blank may stand before this asterisk
    r"|(?P<sign>\\?<)"  # of a tag, a comment or an address
    r"|\\[\s\S]"  # other commands and escapes stay as they are
    r"| ?(?P<mark>\*+|(?<![^\W_])_+) ?"  # behind a letter or digit, an underscore begins no emphasis
    r"|(?P<bracket>\](?=\()|\[(?=\^)|&(?=#))"  # of links, of references to footnotes and of numbered characters
    r"|(?P<quote>`)|(?P<tie>~)"
)
# In the first place of a line: headings, quotes, lists, rules, tables, definitions, attributes.
_LINE_START = re.compile(
    r"[#>]|[-+*:](?=\s|$)|[-=_|:*](?=[-=_|:*\s]*$)|\d+[.)](?=\s|$)|\[(?=[^\]]*\]:)|\{(?=[^{}]*\}\s*$)"
)


def escape_latex(latex: str) -> str:
    """One line of LaTeX that reads the same, and in which no reader of Markdown finds tags, links or styles."""
    tags = markdown_escapes.find_tags(latex)
    line = " ".join(_SPECIAL.sub(partial(_replace, tags), latex).split())
    is_open = (len(line) - len(line.rstrip("\\"))) % 2 == 1  # a backslash escapes the delimiter, or breaks the line
    return line + " {}" if is_open else line


def escape_display(latex: str) -> str:
    """LaTeX of several lines, none of which begins a block of Markdown."""
    lines = map(escape_latex, latex.splitlines())
    return "\n".join(f"{{}}{line}" if _LINE_START.match(line) else line for line in lines if line)


def _replace(tags: Collection[int], found: re.Match[str]) -> str:
    kind, text = found.lastgroup, found.group()
    if kind == "name":
        return f"\\{found['environment']}{{{_UNSTARRED.get(found['name'], found['name'])}}}"
    if kind == "mark":
        return f" {found['mark']} "
    if kind == "sign":
        return f"{text} " if found.end() - 1 in tags else text
    return {"bracket": f"{text} ", "quote": "\u2018", "tie": "\\ "}.get(kind or "", text)
