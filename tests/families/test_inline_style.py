"""Styles of the text layer are written as Markdown, and a reader of it sees exactly the words."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from twopass.families.layout.inline_style import write_styles
from twopass.families.layout.page_layout import LayoutLine
from twopass.text import prose

GFM = MarkdownIt("commonmark").enable(["table", "strikethrough"])
BOX = (0.0, 0.0, 1.0, 1.0)
PARTS = [
    "a",
    "word",
    "É",
    "中",
    " ",
    " ",
    "*",
    "_",
    "**",
    "~~",
    "`",
    "$",
    "<b>",
    "<",
    ">",
    "[x](y)",
    "(",
    ")",
    ".",
    "-",
]
PARTS += ["- ", "1. ", "#", "# ", "\\", "&amp;", "—", "€", "7", "mea-", "|", "!"]
STYLES = ["", "b", "i", "bi", "^", "_", "b^"]
styled_lines = st.lists(st.lists(st.tuples(st.sampled_from(PARTS), st.sampled_from(STYLES)), max_size=7), max_size=3)


def make_line(parts: list[tuple[str, str]]) -> LayoutLine:
    """A line of pieces of text, each with its style."""
    text, runs = "", []
    for piece, style in parts:
        if style:
            runs.append((len(text), len(text) + len(piece), style))
        text += piece
    return LayoutLine(box=BOX, text=text, runs=tuple(runs))


def show(source: str) -> str:
    """The characters that a reader sees, and the name of any markup but emphasis, superscripts and subscripts."""
    shown = ""
    for token in GFM.parse(source):
        for child in token.children or ():
            if child.type == "text":
                shown += child.content
            elif child.type == "html_inline" and child.content in ("<sup>", "</sup>", "<sub>", "</sub>"):
                continue
            elif child.type not in ("strong_open", "strong_close", "em_open", "em_close"):
                shown += f"[{child.type}]"
        if token.type not in ("paragraph_open", "paragraph_close", "inline"):
            shown += f"[{token.type}]"
    return shown


def style(*lines: list[tuple[str, str]], **options: object) -> str | None:
    built = [make_line(line) for line in lines]
    return write_styles(prose.to_one_line("\n".join(line.text for line in built)), built, **options)  # type: ignore[arg-type]


@settings(max_examples=500)
@given(styled_lines)
def test_a_reader_sees_exactly_the_words(parts: list[list[tuple[str, str]]]) -> None:
    """Whatever the text and its styles, no character is lost, and no asterisk of a style is shown."""
    lines = [make_line(line) for line in parts]
    text = prose.to_one_line("\n".join(line.text for line in lines))

    markdown = write_styles(text, lines)

    assert markdown is None or show(markdown) == text


@given(st.text(max_size=30), st.lists(st.tuples(st.integers(-5, 40), st.integers(-5, 40), st.text(max_size=3))))
def test_any_runs_are_accepted(text: str, runs: list[tuple[int, int, str]]) -> None:
    """Runs that lie outside of the text, overlap or name unknown styles break nothing."""
    line = LayoutLine(box=BOX, text=text, runs=tuple(runs))

    assert write_styles(prose.to_one_line(text), [line]) in (write_styles(prose.to_one_line(text), [line]), None)


def test_runs_join_over_words_and_lines() -> None:
    """Bold words that follow each other are one bold phrase, also over the end of a line and a broken word."""
    assert style([("plain ", ""), ("bold words", "b")], [("and more", "b"), (" plain", "")]) == (
        "plain **bold words and more** plain"
    )
    assert style([("a ", ""), ("mea-", "i")], [("surement", "i"), (" b", "")]) == "a *measurement* b"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([("x", ""), ("2", "^"), (" m", "")], "x<sup>2</sup> m"),
        ([("2007", ""), ("¹", "^"), (" H", ""), ("₂", "_")], "2007<sup>1</sup> H<sub>2</sub>"),
        ([("H", ""), ("2", "_"), ("O", "")], "H<sub>2</sub>O"),
        ([("the ", ""), ("very ", "b"), ("end", "")], "the **very** end"),
        ([("a", ""), ("(b)", "b"), ("c ", ""), ("d", "i")], "a(b)c *d*"),
        ([("Abstract", "b"), ("—This", "i"), (" is", "")], "**Abstract**—This is"),
        ([("ab", "b"), ("cd", "i")], "**ab**cd"),
        ([("both", "bi"), (" *", "")], "***both*** \\*"),
        ([("1", "^"), ("Note", "")], "<sup>1</sup>Note"),
        ([("costs $5 ", ""), ("now", "b")], "costs $5 **now**"),
        ([("plain", "")], None),
    ],
)
def test_styles_are_written_where_markdown_shows_them(parts: list[tuple[str, str]], expected: str | None) -> None:
    """Blanks stay outside of the marks, and a style that Markdown could not show is left out."""
    assert style(parts) == expected


def test_the_style_of_the_body_is_not_written() -> None:
    """On a page whose running text is bold, bold says nothing; other styles are kept."""
    assert style([("all bold and ", "b"), ("slanted", "bi")], common="b") == "all bold and *slanted*"
