r"""Formulas in text: LaTeX between `\(` and `\)` or `\[` and `\]`, as models write them, and how Markdown holds LaTeX.

No parser of Markdown that knows formulas decodes entities in them, and those that do not know them interpret their
signs. So what Markdown or HTML would interpret is written in another way that LaTeX shows alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from twopass.text import markdown_escapes

# A formula ends before the next beginning of one like it, so that a text of beginnings is searched once.
INLINE, DISPLAY = r"\\\(((?:[^\\]|\\[^()])++)\\\)", r"\\\[((?:[^\\]|\\[^\[\]])++)\\\]"
FORMULA = re.compile(f"{INLINE}|{DISPLAY}")  # inline in group 1, display in group 2
TRAILING_NUMBER = re.compile(r"(?:\\q?quad|~|\s){0,20}\(\s*([0-9A-Za-z.]{1,8})\s*\)\s*\Z")
_DISPLAY = re.compile(rf"{DISPLAY}|\$\$((?:[^$]|\$(?!\$))++)\$\$")
_ENVIRONMENT = re.compile(  # of a display formula, which needs no delimiters
    r"\\begin\{((?:align|alignat|equation|gather|multline|eqnarray|displaymath)\*?)\}(?:[^\\]|\\(?!begin\{\1\}))*?\\end\{\1\}"
)
_PLAIN_WORD = re.compile(r"(?<![^\W_])(?<!\\)[^\W\d_]{2,}")
_DELIMITED = re.compile(
    rf"{_DISPLAY.pattern}|\\\((?P<inline>(?:[^\\]|\\[^()])++)\\\)|(?<![\\$])\$(?P<dollar>[^$\n]++)\$(?![\d$])"
)
# Of LaTeX's signs, or one letter: other dollars are amounts. No blank is inside, and no word touches it. From a number
# to a country's letters, as in `$1 = A$ 1.50`, it is an amount, too.
_SURE_DOLLARS = re.compile(
    r"(?<![\\$\w])\$(?![\s$])(?!\d[^$\n\\]*\s[A-Z]{1,3}\$)((?=[^$\n]*[\\^_={}])[^$\n]+|[A-Za-z])(?<![\s\\])\$(?![$\w])"
    r"|(?<![\\$])\$\$(?!\$)((?:[^$\\]|\\[\s\S])++)\$\$(?!\$)"
)
_DELIMITER = re.compile(r"(?:\\[()\[\]]|(?<!\\)\$\$?)")
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


def is_formula(text: str) -> bool:
    r"""Whether a text is formulas and nothing else, but for punctuation and a number behind a formula.

    LaTeX without delimiters is one, also if its end is missing: `\[ a = b`.
    """
    found = _find_delimited(text)
    if not found:
        return all(inside for _, inside in _find_depths(_DELIMITER, text.strip()[1:]))
    rest = _remove(found, text)
    only = len(found) == 1 and r"\tag" not in text
    return not (TRAILING_NUMBER.sub("", rest) if only else rest).strip(" \n\t.,;:")


def is_display_formula(text: str) -> bool:
    """Whether a text begins with a display formula and is nothing else than formulas."""
    return _DISPLAY.match(text) is not None and is_formula(text)


def to_latex(text: str) -> str:
    r"""The LaTeX of a formula without delimiters, with its number as \tag; several go on lines of their own."""
    found = _find_delimited(text)
    if not found:
        return re.sub(rf"\A\s*{_DELIMITER.pattern}|{_DELIMITER.pattern}\s*\Z", "", text).strip()
    formulas = [_get_latex(one) for one in found]
    number = TRAILING_NUMBER.search(_remove(found, text))
    tag = rf" \tag{{{number[1]}}}" if number and len(formulas) == 1 and r"\tag" not in formulas[0] else ""
    return " \\\\\n".join(formulas) + tag


def unify_delimiters(text: str) -> str:
    r"""Text with formulas between `\(` and `\)` or `\[` and `\]`, where they stood between dollar signs."""
    parts, at = [], 0
    for found in _find_delimited(text):
        begin, end = (r"\(", r"\)") if found["inline"] or found["dollar"] else (r"\[", r"\]")
        parts += [text[at : found.start()], begin, _get_latex(found), end]
        at = found.end()
    return "".join([*parts, text[at:]])


def unify_dollars(text: str) -> str:
    r"""Text with `\(` and `\)` or `\[` and `\]` in place of dollar signs that surely enclose a formula."""
    if "$" not in text:
        return text
    return rewrite(text, lambda formula: formula.group(), lambda rest: _SURE_DOLLARS.sub(_delimit, rest))


def rewrite(text: str, write: Callable[[re.Match[str]], str], write_rest: Callable[[str], str]) -> str:
    """The text with each formula as `write` gives it, and what stands before, between and behind as `write_rest`."""
    parts, at = [], 0
    for found in FORMULA.finditer(text):
        parts += [write_rest(text[at : found.start()]), write(found)]
        at = found.end()
    return "".join([*parts, write_rest(text[at:])])


def _delimit(found: re.Match[str]) -> str:
    return rf"\({found[1]}\)" if found[1] else rf"\[{found[2].strip()}\]"


def delimit_environments(text: str) -> str:
    """The text with delimiters around its display environments, if words stand beside them."""
    inside = {place for one in _find_delimited(text) for place in range(one.start() + 1, one.end())}
    found = [one for one in _ENVIRONMENT.finditer(text) if one.start() not in inside]
    if not found or not _PLAIN_WORD.search(_remove(found, text)):
        return text
    return _ENVIRONMENT.sub(lambda one: one[0] if one.start() in inside else rf"\[{one[0]}\]", text)


def _find_delimited(text: str) -> list[re.Match[str]]:
    r"""The formulas with delimiters; those within braces, as in `\text{if $x$}`, belong to the LaTeX around them."""
    return [found for found, inside in _find_depths(_DELIMITED, text) if not inside]


def _find_depths(pattern: re.Pattern[str], text: str) -> Iterator[tuple[re.Match[str], bool]]:
    """Yield what a pattern finds, and whether it is within braces."""
    depth = at = 0
    for found in pattern.finditer(text):
        depth += text.count("{", at, found.start()) - text.count("}", at, found.start())
        at = found.start()
        yield found, depth > 0


def _get_latex(found: re.Match[str]) -> str:
    return next(group for group in found.groups() if group).strip()


def _remove(found: Sequence[re.Match[str]], text: str) -> str:
    ends = [0, *(one.end() for one in found)]
    return "".join(text[at:start] for at, start in zip(ends, [*(one.start() for one in found), None], strict=True))


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
