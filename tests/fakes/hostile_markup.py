"""Texts that become markup if they are written as they are, and what a reader may find in a document of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.fakes.documents import build_document, checkpoint, element, plain_table
from tests.fakes.markdown_readers import Page
from twopass.document import Document, Figure, Formula, Kind
from twopass.text import list_items, maths, prose

PAYLOADS = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<details open ontoggle=alert(1)>",
    "<a href='javascript:alert(1)'>x</a>",
    "<javascript:alert(1)>",
    "<https://evil.example>",
    "<x@evil.example>",
    "<<1@evil.example>",
    "<5<1@evil.example>",
    "[x](javascript:alert(1))",
    "[x](<javascript:alert(1)>)",
    "![x](javascript:alert(1))",
    "[x]: javascript:alert(1)",
    "[^1]: javascript:alert(1)",
    "*[x]: y",
    "x {: onclick=alert(1)}",
    "x {y {: onclick=alert(1)}",
    "`x`{: onclick=alert(1)}",
    "</p></div></td></table><script>alert(1)</script>",
    "<!-- page: 9 -->",
    "<!-- x",
    "<?php x ?>",
    "<![CDATA[<b>]]>",
    "\\<script>alert(1)</script>",
    "\\\\<script>alert(1)</script>",
    "\\[x](javascript:alert(1))",
    "\\[x]: javascript:alert(1)",
    "&lt;script>alert(1)&lt;/script>",
    "&#60;script&#62;alert(1)",
    "&notit;",
    "&#60d",
    "&# x",
    '<a b="',
    "```\n<script>alert(1)</script>\n```",
    "~~~ x\n<script>alert(1)</script>",
    "`````",
    "    <script>alert(1)</script>",
    "x\n===\n<script>",
    "x\n---",
    "> x",
    "# x",
    "#x",
    "# C#",
    "- x",
    "2024. x",
    "1234567890. x",
    "٣. x",
    ": x",
    "***",
    "a* b* c",
    "_ a_ (b_",
    "``a` b",
    "a~b~c",
    "| a | b |\n| - | - |\n| <b> | c |",
    r"\(\text{<script>alert(1)</script>}\)",
    r"\[\text{<img src=x onerror=alert(1)>}\]",
    r"\(a*b*c\) and \(\mathbf{x}_{i}+\mathbf{y}_{j}\)",
    r"\(f[x](javascript:alert(1))\)",
    r"\(x\\\) <b>",
    "[a \\(x\\)](javascript:alert(1))",
    "שלום <img src=x onerror=alert(1) ",
    "\x02# x\x03<b>",
)
FRAGMENTS = (
    *PAYLOADS,
    *"`~*_$\\|-=#+>:[](){}!<\"'&.@",
    *(
        "``",
        "```",
        "~~",
        "**",
        "__",
        "$$",
        "\\(",
        "\\)",
        "\\[",
        "\\]",
        "](",
        "]:",
        "[^1]",
        "[x]",
        "<b",
        "</",
        "<!",
        "<?",
    ),
    *(
        "1.",
        "2)",
        "---",
        "===",
        "- [ ]",
        "{#x}",
        "||",
        "<td>",
        "</table>",
        "<br>",
        "<sup>1</sup>",
        "javascript:alert(1)",
    ),
    *("a", "word", "中文", "é", "שלום", " ", " ", "\n", "\n\n", "\t", "\u00a0", "\u200b", "\u2028", "\x0c"),
)
hostile_texts = st.lists(st.sampled_from(FRAGMENTS), max_size=9).map("".join)
TEXT, LISTS, CELLS = ("p", "div"), ("ul", "ol", "li"), ("table", "thead", "tbody", "tr", "th", "td", "br")
STYLES = ("em", "strong", "del", "s", "code", "sup", "sub", "br")
HEADINGS = tuple(f"h{level}" for level in range(1, 7))
# What the writer makes of an element of each kind; a text may hold list items.
ELEMENTS: Mapping[Kind, tuple[str, ...]] = {
    Kind.TITLE: (*TEXT, *HEADINGS),
    Kind.SECTION_HEADER: (*TEXT, *HEADINGS),
    Kind.TEXT: (*TEXT, *LISTS),
    Kind.LIST_ITEM: (*TEXT, *LISTS),
    Kind.CAPTION: TEXT,
    Kind.FOOTNOTE: TEXT,
    Kind.TABLE: (*TEXT, *CELLS),
    Kind.PICTURE: (*TEXT, *CELLS, "img", "pre", "code"),
    Kind.CHART: (*TEXT, *CELLS, "img", "pre", "code"),
    Kind.FORMULA: TEXT,
    Kind.CODE: ("p", "pre", "code"),
}
SINGLE = frozenset({*HEADINGS, "img", "pre"})  # at most one of them for one element
ATTRIBUTES = {("div", "dir"): "rtl", ("table", "dir"): "rtl", ("img", "src"): "images/a.png"}
ANY_VALUE = {("img", "alt"), ("th", "style"), ("td", "style"), ("th", "align"), ("td", "align"), ("ol", "start")}
BARE_ADDRESSES = ("http://", "https://", "ftp://", "mailto:")  # that GitHub's and marked's readers link as they are
COMMENTS = {"page: 1", "page: 2", ""}
# Without its extensions, Python-Markdown takes tables and fenced code for text, in which it finds styles and blocks.
PLAIN, UNKNOWN = "python-markdown", ("| --- |", "```")
HARMLESS = {"em", "strong", "code", "blockquote", "hr", "br", *HEADINGS, *LISTS}  # br: a blank at a line's end


class Case(NamedTuple):
    """A document, the elements that a reader may find in it, and the text to be shown, if it is known."""

    document: Document
    allowed: tuple[str, ...]
    shown: str | None


def build(kind: Kind, text: str) -> Case:
    """A document with an element of this kind between two paragraphs."""
    fields: dict[str, Any] = {}
    if kind is Kind.TABLE:
        fields = {"table": plain_table(["A", text], [text, "D"], header=True)}
    elif kind in (Kind.PICTURE, Kind.CHART):
        figure = Figure(description=text, visible_text="v " + text, mermaid=text, data=plain_table([text], ["b"]))
        fields = {"figure": figure, "image": "images/a.png"}
    elif kind is Kind.FORMULA:
        fields = {"formula": Formula(latex=text)}
    shown = "- x" + text if kind is Kind.LIST_ITEM else text
    parts = (element("text", "Before."), element(kind, shown, **fields), element("text", "After."))
    return Case(build_document(checkpoint(1, *parts)), ELEMENTS[kind], find_shown(kind, text))


def find_shown(kind: Kind, text: str) -> str | None:
    """What a reader shows of the document; None where it depends on the reader, as that of formulas and lists."""
    is_list = any(list_items.begins_item(line.strip()) for line in text.splitlines())
    several = is_list or len(list_items.split("- x" + text)) > 1
    if maths.FORMULA.search(text) or "\x02" in text or kind in (Kind.FORMULA, Kind.PICTURE, Kind.CHART):
        return None
    if kind in (Kind.TEXT, Kind.LIST_ITEM) and several:
        return None
    line = text if kind is Kind.CODE else prose.to_one_line(text)
    middle = {Kind.TABLE: f"A {text} {text} D", Kind.LIST_ITEM: prose.to_one_line("x" + text)}.get(kind, line)
    return " ".join(f"Before. {middle} After.".split())


def find_faults(page: Page, name: str, source: str, allowed: tuple[str, ...], is_single: bool = True) -> Iterator[str]:
    """Yield what a reader's page holds and the writer did not make; `is_single`: the source holds one element."""
    tolerated = HARMLESS if name == PLAIN and any(mark in source for mark in UNKNOWN) else frozenset()
    for tag, count in page.elements.items():
        if name == "marked" and tag == "a":
            continue  # its links are checked below
        if tag not in tolerated and (tag not in allowed or (is_single and tag in SINGLE and count > 1)):
            yield f"{count} of <{tag}>"
    for tag, attribute, value in page.attributes:
        is_language = (tag, attribute, value) == ("code", "class", "language-mermaid")
        is_address = tag == "a" and attribute == "href" and value.startswith(BARE_ADDRESSES)
        is_known = is_address or ATTRIBUTES.get((tag, attribute)) == value or (tag, attribute) in ANY_VALUE
        if not (is_language or is_known):
            yield f"<{tag} {attribute}={value!r}>"
    yield from (f"comment {comment!r}" for comment in page.comments if comment.strip() not in COMMENTS)
