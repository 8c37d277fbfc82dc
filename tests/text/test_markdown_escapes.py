"""Markdown shows escaped text exactly, and what it would not interpret stays readable in the source."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from twopass.text import markdown_escapes, prose

GFM = MarkdownIt("commonmark").enable(["table", "strikethrough"])
PIECES = [
    *"*_`~$<>[]()!#+-=&;:|\\\"'",
    "a",
    "b",
    "É",
    "ß",
    "7",
    " ",
    "\u00a0",
    "€",
    "—",
    "中",
    "\u0301",
    "\u200b",
    "b>",
]
PIECES += ["**", "__", "~~", "``", "```", "~~~", "---", "[ ]", "1.", "157.", "2)", "٣.", "<br>", "<!--", "-->", "&amp;"]
PIECES += ["&#42;", "&bogus;", "](x)", "[a]: b", "* * *", "<a href=", "<a:b>", "<?", "<!X"]
lines = st.lists(st.sampled_from(PIECES), max_size=14).map("".join) | st.text(max_size=40)


def show(source: str) -> str:
    """The text that a reader sees; any markup is shown as the name of its token."""
    shown = ""
    for token in GFM.parse(source):
        if token.type == "inline":
            shown += "".join(c.content if c.type == "text" else f"[{c.type}]" for c in token.children or ())
        elif token.type not in ("paragraph_open", "paragraph_close"):
            shown += f"[{token.type}]"
    return shown


def escape(text: str, alone: bool = True) -> str:
    return markdown_escapes.escape_line_start(markdown_escapes.escape_inline(text, alone))


@settings(max_examples=500)
@given(lines, st.booleans())
@example("*a*", True)
@example("a$*b$c*", True)
@example("***", True)
@example("```a``b", True)
@example("_ _ _", True)
def test_a_reader_sees_exactly_the_text(text: str, alone: bool) -> None:
    """Rendered by a Markdown reader, a block of any text shows this text and nothing else."""
    text = prose.to_one_line(text.replace("\0", "").encode("utf-8", "replace").decode())

    assert show(escape(text, alone)) == text


@settings(max_examples=300)
@given(lines)
@example("--")
@example("- -")
def test_a_reader_sees_exactly_the_text_of_a_list_item(text: str) -> None:
    """After the marker of a list item, the same text is shown, without check boxes and lists of its own."""
    text = prose.to_one_line(text.replace("\0", "").encode("utf-8", "replace").decode())
    inline = markdown_escapes.escape_inline(text, alone=True)

    shown = show("- " + markdown_escapes.escape_line_start(inline, in_list=True))

    assert shown == f"[bullet_list_open][list_item_open]{text}[list_item_close][bullet_list_close]"
    assert not markdown_escapes.escape_line_start(inline, in_list=True).startswith("[ ] ")


@settings(max_examples=300)
@given(lines, lines)
def test_two_texts_of_one_block_do_not_complete_each_other(first: str, second: str) -> None:
    """Escaped without `alone`, what one text begins cannot be ended by a text that follows in the same block."""
    texts = [prose.to_one_line(text.replace("\0", "").encode("utf-8", "replace").decode()) for text in (first, second)]

    inline = " ".join(markdown_escapes.escape_inline(text) for text in texts)

    assert show("x " + inline).rstrip() == f"x {' '.join(texts)}".rstrip()


@pytest.mark.parametrize(
    "text",
    [
        "snake_case and _private",
        "5 * 3 and 7*2",
        "Rating: 4*",
        "a footnote mark* alone",
        "costs $5 and $6 million",
        "C# and a-b, x > y and x < y",
        "a < b and c > d in a formula",
        "x_1 and R&D",
        "values [1][2] and f[i]",
        "about ~5 m",
        "AT&T; R&D",
        "the year 157. It was",
        "- ".strip() + "5 degrees",
        "+5 and +6",
        "{a, b} is a set",
        "1.5 metres",
        "157.",
        "one ` backtick",
    ],
)
def test_what_markdown_would_not_interpret_stays_readable(text: str) -> None:
    """Nothing is escaped where every Markdown reader shows the same without it."""
    assert escape(text) == (text if text != "157." else "157\\.")


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("157. The committee", "157\\. The committee"),
        ("157) The committee", "157\\) The committee"),
        ("* a", "\\* a"),
        ("a *b* c", "a \\*b\\* c"),
        ("---", "\\---"),
        ("$x$ in maths", "&#36;x&#36; in maths"),
        ("&amp; and &bogus;", "&amp;amp; and &bogus;"),
        ("<div", "&lt;div"),
        ("a<b in a formula", "a&lt;b in a formula"),
        ("#hashtag", "\\#hashtag"),
        ("١٥٧. نص", "١٥٧\\. نص"),
        ("a* and b*", "a\\* and b\\*"),
        ("```", "\\```"),
    ],
)
def test_what_markdown_would_interpret_is_escaped(text: str, escaped: str) -> None:
    """Lists, rules, emphasis, maths, entities, HTML and code are escaped where they would begin."""
    assert escape(text) == escaped
