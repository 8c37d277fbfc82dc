"""Escape plain text so that Markdown shows exactly that text."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from twopass.document import Cell
from twopass.format_options import Maths
from twopass.text import links, markdown_escapes, maths
from twopass.text.links import ShownLink

# A formula in a model's Markdown may have dollars, too; as in GitHub's reader, no blank is inside of them.
_STYLED_MATHS = re.compile(
    rf"{maths.FORMULA.pattern}|\$\$((?:[^$\\]|\\[\s\S])++)\$\$|(?<!\\)\$(?!\s)((?:[^$\\]|\\[\s\S])++)(?<!\s)\$(?!\d)"
)
BLOCK_END = "<!-- -->"  # ends a list or a note, which Markdown would continue with a list or indented text below it
# What readers without fenced code, such as Python-Markdown without its extension, would take for tags and links.
_COMPLETE_TAG = re.compile(r"<!--(?:(?!--!?>|<!--)[\s\S])*+-->|</?[A-Za-z](?:[^<>\"']|\"[^<>\"]*\"|'[^<>']*')*+>")
CODE_BEGIN, CODE_END = "<pre><code>", "</code></pre>"
# What would live within HTML where a reader takes that for Markdown: in cells, and in code.
_LIVE_IN_CELL = re.compile(r"\](?=[(:\[])|(?<=[*_`)\]])\{")
_LIVE_IN_CODE = re.compile(rf"{_LIVE_IN_CELL.pattern}|[*_`{{]")
_LINK = re.compile(r"\](?=[(:\[])")
_INERT_FENCE = re.compile(r"^([^\S\n]*(?:``|~~))(?=[`~])", flags=re.MULTILINE)
_NAMED = re.compile(r"&(?=#?\w+;)")  # in an address, would be the name of a character
_TASK = re.compile(r"\[(?=[ xX]\](?:\s|$))")
# Python-Markdown's, of what is before them.
_ATTRIBUTES = re.compile(r"(?<=[*_`~)\]>])(?=\{[^{}]*\})")
_NO_SPACE = "\u200b"  # where a blank would be ignored
UNREADABLE = str.maketrans("", "", "\x00\x02\x03")  # dropped by Python-Markdown, so that what surrounds them meets
_BEGIN_DELIMITER = re.compile(r"\A(?:\\\[|\\\(|\$\$?)")
_END_DELIMITER = re.compile(r"(?:\\\]|\\\)|\$\$?)\Z")
_PLACEHOLDER = "\ufdd0"  # a noncharacter of Unicode, for a formula while the text around it is escaped
_MATHS_DELIMITERS = {  # inline, display
    Maths.DOLLAR: (("$", "$"), ("$$", "$$")),
    Maths.BACKSLASH: (("\\(", "\\)"), ("\\[", "\\]")),
}


def escape_text(text: str, style: Maths = Maths.DOLLAR, alone: bool = False) -> str:
    """Escape one line of text; `\\(x\\)` and `\\[x\\]` get the delimiters of the style.

    `alone` says that it is all of its block: then only what has an effect within this text is escaped.
    """
    text = text.translate(UNREADABLE)
    alone = alone and not maths.FORMULA.search(text)
    return maths.rewrite(
        text,
        lambda formula: _write_formula(formula, style),
        lambda rest: markdown_escapes.escape_inline(rest, alone),
    )


def escape_paragraph(text: str, style: Maths = Maths.DOLLAR) -> str:
    """Escape one line of text that is a block of its own."""
    return markdown_escapes.escape_line_start(escape_text(text, style, alone=True))


def make_inert(text: str) -> str:
    """Put a blank into what would be a tag, a link or an attribute if somebody else takes the text for Markdown.

    For formats whose text is plain, so that it cannot be escaped, but which others convert to Markdown.
    """
    tags = markdown_escapes.find_tags(text)
    text = re.sub("<", lambda found: "< " if found.start() in tags else "<", text)
    text = _TASK.sub(f"[{_NO_SPACE}", text)
    text = _INERT_FENCE.sub(r"\1 ", _LINK.sub("] ", text.replace("]:", f"]{_NO_SPACE}:")))
    # Attributes of the block, which may have braces in them; a heading ends before a run of #.
    if text.rstrip().rstrip("#").rstrip().endswith("}"):
        text = text.replace("{", f"{_NO_SPACE}{{")
    return _ATTRIBUTES.sub(_NO_SPACE, markdown_escapes.CUT_ENTITY.sub(f"&{_NO_SPACE}", text))


def normalize_markdown(markdown: str, style: Maths = Maths.DOLLAR) -> str:
    """Give the maths of a line of a model's Markdown the style's delimiters; of its markup only styles stay."""
    formulas: list[str] = []

    def hide(found: re.Match[str]) -> str:
        formulas.append(_write_formula(found, style))
        return _PLACEHOLDER

    bare = markdown.translate(UNREADABLE).replace(_PLACEHOLDER, "\ufffd")
    styled = markdown_escapes.escape_styled(_STYLED_MATHS.sub(hide, bare))
    texts = styled.split(_PLACEHOLDER)
    return "".join(part for pair in zip(texts, [*formulas, ""], strict=True) for part in pair)


def write_code(text: str) -> str:
    """Write code as a block: fenced, but indented if it holds tags or links, since every reader knows indented code.

    Code with a tag or a comment that does not end in it is written as HTML: the parser of Python-Markdown, which reads
    code, too, would go on into what follows.
    """
    text = text.translate(UNREADABLE)
    if markdown_escapes.CUT_ENTITY.search(text) or markdown_escapes.find_tags(_COMPLETE_TAG.sub("", text)):
        return f"{CODE_BEGIN}{_escape_html(text, _LIVE_IN_CODE)}{CODE_END}"
    if _LINK.search(text) or markdown_escapes.find_tags(text):
        return f"{BLOCK_END}\n\n" + "\n".join(f"    {line}" if line.strip() else "" for line in text.split("\n"))
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{fence}\n{text}\n{fence}"


def _escape_html(text: str, live: re.Pattern[str]) -> str:
    """Escape text within HTML, also what would live in it if a reader took it for Markdown."""
    escaped = html.escape(text, quote=False)
    return live.sub(lambda found: f"&#{ord(found.group())};", escaped)


def escape_mermaid(code: str) -> str:
    """Write tags with Mermaid's own escape, and nothing that readers without fenced code would take for a block."""
    code = _LINK.sub("] ", code.translate(UNREADABLE))
    tags = markdown_escapes.find_tags(code)
    escaped = re.sub("<(?!br ?/?>)", lambda found: "#lt;" if found.start() in tags else "<", code)
    escaped = markdown_escapes.CUT_ENTITY.sub("#amp;", escaped)
    return re.sub(r"^ {0,3}(?=[#>=-])", "    ", escaped, flags=re.MULTILINE)


def escape_heading_end(line: str) -> str:
    """Escape a trailing run of #, which Markdown would drop from a heading; Python-Markdown also behind a letter."""
    bare = line.rstrip("#")
    return bare + "\\#" * (len(line) - len(bare))


def escape_alt_text(text: str, style: Maths = Maths.DOLLAR) -> str:
    """Escape an image's alternative text; its brackets need not be balanced."""
    return _escape_brackets(escape_text(text, style, alone=True))


def _escape_brackets(markdown: str) -> str:
    return re.sub(
        r"\\[\s\S]|[\[\]]", lambda found: found.group() if found.group()[0] == "\\" else f"\\{found.group()}", markdown
    )


def write_link(markdown: str, uri: str, is_image: bool = False) -> str:
    """A link with this Markdown as its text, which may be an image."""
    address = _NAMED.sub("&amp;", links.encode_address(uri))
    return f"[{markdown if is_image else _escape_brackets(markdown)}]({address})"


class Insertion(NamedTuple):
    """Markdown that replaces text[start:end]."""

    start: int
    end: int
    markdown: str


def make_links(text: str, shown: Iterable[ShownLink], escape: Callable[[str], str]) -> list[Insertion]:
    return [Insertion(one.start, one.end, write_link(escape(text[one.start : one.end]), one.uri)) for one in shown]


def insert(text: str, insertions: Iterable[Insertion], escape: Callable[[str], str]) -> str:
    """Escape one line of text around the insertions; of those that overlap, the first is used."""
    written, start = "", 0
    for begin, end, markdown in sorted(insertions):
        if begin >= start:
            before = escape(text[start:begin])
            written += re.sub(r"!\Z", r"\\!", before) + markdown  # without the backslash, an image
            if text.startswith(("(", "[", "{") if markdown.endswith(")") else ("(", "[", ":", "{"), end):
                # the mark of a note would become a link or the note itself, and a link get attributes
                written += markdown_escapes.escape_character(text[end])
                end += 1
            start = end
    return written + escape(text[start:])


def write_line(text: str, shown: Sequence[ShownLink], style: Maths = Maths.DOLLAR) -> str:
    """Escape one line of text that is all of its block, with its links."""
    if not shown:
        return escape_text(text, style, alone=True)
    escape = partial(escape_text, style=style)
    return insert(text, make_links(text, shown, escape), escape)


def escape_gfm_cell(cell: Cell, style: Maths = Maths.DOLLAR) -> str:
    """Escape the text of a cell of a GFM table."""
    lines = split_lines(cell)
    if len(lines) == 1:
        return write_line(*lines[0], style).replace("|", "\\|")
    escape = partial(escape_text, style=style)
    written = (insert(line, make_links(line, shown, escape), escape) for line, shown in lines)
    return "<br>".join(written).replace("|", "\\|")


def escape_html_cell(cell: Cell, style: Maths = Maths.DOLLAR) -> str:
    """Escape the text of a cell of an HTML table, where Markdown does not apply."""
    return "<br>".join(_write_html_line(line, shown, style) for line, shown in split_lines(cell))


def _write_html_line(line: str, shown: Sequence[ShownLink], style: Maths) -> str:
    written, end = "", 0
    for link in shown:
        content = _escape_html_line(line[link.start : link.end], style)
        written += _escape_html_line(line[end : link.start], style)
        written += f'<a href="{html.escape(links.encode_address(link.uri))}">{content}</a>'
        end = link.end
    return written + _escape_html_line(line[end:], style)


def _escape_html_line(line: str, style: Maths) -> str:
    line = maths.FORMULA.sub(lambda found: _delimit(_join(found), found, style), line)
    return _escape_html(line, _LIVE_IN_CELL)


_LinkedLine = tuple[str, Sequence[ShownLink]]


def split_lines(cell: Cell) -> list[_LinkedLine]:
    """The lines of a cell, each with its links."""
    lines: list[_LinkedLine] = []
    letters = 0
    for line in (" ".join(line.split()) for line in cell.text.splitlines() if line.strip()):
        lines.append((line, links.locate(cell.links, cell.text, line, letters)))
        letters += links.count_letters(line) if cell.links else 0
    return lines


def clean_latex(latex: str) -> str:
    """Remove delimiters and blank lines from LaTeX, and escape dollars, which would end the formula."""
    latex = _END_DELIMITER.sub("", _BEGIN_DELIMITER.sub("", latex.translate(UNREADABLE).strip()))
    lines = "\n".join(line.rstrip() for line in latex.splitlines() if line.strip())
    return re.sub(r"\\[\s\S]|\$", lambda found: "\\$" if found.group() == "$" else found.group(), lines)


def _write_formula(found: re.Match[str], style: Maths) -> str:
    return _delimit(maths.escape_latex(_join(found)), found, style)


def _join(found: re.Match[str]) -> str:
    """The LaTeX of a formula on one line."""
    return " ".join(clean_latex(found[found.lastindex or 0]).split())


def _delimit(latex: str, found: re.Match[str], style: Maths) -> str:
    is_display = found.lastindex in (2, 3)
    begin, end = _MATHS_DELIMITERS[style][is_display]
    return f"{begin}{latex}{end}" if latex else ""


def write_display_formula(latex: str, style: Maths = Maths.DOLLAR) -> str:
    begin, end = _MATHS_DELIMITERS[style][1]
    return f"{begin}\n{maths.escape_display(latex)}\n{end}"
