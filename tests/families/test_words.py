"""Every word of an answer is in an element, once: answers of every grammar, put together from what models write."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import ROOT
from tests.fakes import answers
from twopass.document import Box, Cell, Element, Flag, Kind, RungName
from twopass.errors import Code
from twopass.families import registry, word_account
from twopass.families.interface import ParsedPage, Rung
from twopass.text import table_markup

# What the models write between tags; each @ is a word that occurs nowhere else.
PARAGRAPHS = (
    "@ @\n@", "@-\n@ @- @", "@ **@ @** ~~@~~", "@ &lt; @ &amp;amp; @", "@<br>@ <b>@</b><sup>@</sup>", 
    "`@` [@](http://a.b/c)",
    "# @ @", "#### @", "####### @", "- @\n- @ @", "1. @\n(a) @", "• @", "[^1]: @", "¹ @", "* @", "<p>@</p>", "---\n@",
    "```python\n# @\n@ = @\n```", "```@ @\n@\n```", "```@ = @```", "~~~\n@\n~~~", 
    "import @\n# @\n@ = 1", "    # @\n    @ @",
    "<html><body><p>@</p></body></html>", "![@ @](x.png) @", "<img src='a.png' alt='@ @'/> @", "<center>@</center>",
)  # fmt: skip
FORMULAS = (
    r"\[@ = @\] (@)", r"\[@\] @ \[@\]", r"@ \(@\) @", r"\(@\), \(@\)", "$$@$$ @ $$@$$", r"@ = @ \tag{@}", 
    r"\[@", r"@ \[@ @",
    r"@\]@", "$@$ @ $@$", r"\[@\]. @: @", "$$\n@\n$$\n@", r"\[@ \text{ if } \(@\)\] (3)", 
    r"\begin{cases} @ & \text{if $@$} \end{cases}",
    r"\(@ = @\) and \(@ = @\)", r"\[@\] (1) \[@\] (2)",
)  # fmt: skip
CELLS = (
    "", "@", "@ @", "@<br>@", "<p>@</p><p>@</p>", "- @\n- @", "<ul><li>@</li><li>@</li></ul>", r"@ \(@\) $@$",
    "&lt;@&gt;",
    "<ol><li>@<li>@</ol>", "@<hr>@", "<div>@</div><div>@</div>",
    "<!-- x --><a href='b'>@</a> <code>@</code> <del>@</del>",
    "![@](a.png)", "<img src=x alt='@ @'>", "<img src=x>", "<table><tr><td>@</td></tr><tr><td>@</td></tr></table>",
)  # fmt: skip
ROWS = (
    "<tr>{}{}</tr>", "<tr>{}</tr>", "<tr></tr>", "<tr>@{}", "{}{}</tr>", "<TR class=a>{}</TR>@", 
    "<thead><tr>{}</tr></thead><tbody>",
    "<tr>{}<tr>{}", "<caption>@</caption>", "<colgroup><col></colgroup>@", "</tbody>",
)  # fmt: skip
CELL_TAGS = ("<td>{}</td>", "<th>{}</th>", "<TD>{}", '<td rowspan="2">{}</td>', "<td colspan=3 class='a b'>{}</td>")
TABLES = ("<table>{}</table>", "<table border='1'>{}", "<TABLE>@{}@</TABLE>")
FRAMES = (
    "{}", "{}", "@\n{}\n@", "<html><body>{}</body></html>",
    "<!DOCTYPE html><html><head><title>@</title></head><body>{}</body></html>",
    '<?xml version="1.0"?><html><head><title>@</title></head><body>{}',
    "```html\n{}\n```", "<div><p>@</p>{}</div>", "<figure>{}<figcaption>@</figcaption></figure>", "{}{}",
)  # fmt: skip
GFM = ("|@|@ @|\n|---|---|\n|@||\n|@\\|@|@|@|", "@\n\n|@|\n|---|\n\n@", "|@|\n|---|---|\n|@|@|")
LABELS = (
    *(
        "text",
        "title",
        "sub_title",
        "table",
        "equation",
        "image",
        "image_caption",
        "list",
        "code",
        "header",
        "page_number",
    ),
    *("table_footnote", "chart", "stanza", "@ @ @"),
)
BOXES = ("[[1, 2, 900, 900]]", "[[1, 2, 900, 900], [5, 5, 9, 9]]", "[1, 2, 3, 4]", "[[900, 900, 1, 2]]", "[[1, 2]]", "")
REFS = (
    "<|ref|>{}<|/ref|><|det|>{}<|/det|>\n",
    "<|ref|>{}<|/ref|>\n",
    "<|ref|>{}<|det|>{}<|/det|>\n",
    "<|det|>{} {}<|/det|>",
)
OTSL = ("<fcel>@ @", "<ecel>", "<lcel>", "<ucel>", "<xcel>", "<ched>@", "<fcel>", "<nl>", "<nl>@", "@<fcel>@<nl>")
CHARTS = ("@ | @\n", "@|@|@\n", "@\n", "| @ | @ |\n", "\n", "@ @ | \n")


def fill(template: str) -> str:
    """The template with a word of its own in each place."""
    numbers = count()
    return re.sub(
        "@", lambda _: f"zo{''.join('bcdfghjklm'[int(digit)] + 'a' for digit in str(next(numbers)))}", template
    )


def put(templates: Sequence[str], *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """A template with what the strategies draw in its places."""

    def place(template: str, values: tuple[str, ...]) -> str:
        left = iter(values * 2)
        return re.sub(r"\{\}", lambda _: next(left), template)

    return st.builds(place, st.sampled_from(templates), st.tuples(*parts))


paragraphs, formulas = st.sampled_from(PARAGRAPHS), st.sampled_from(FORMULAS)
rows = put(ROWS, put(CELL_TAGS, st.sampled_from(CELLS)), put(CELL_TAGS, st.sampled_from(CELLS)))
html = put(FRAMES, put(TABLES, st.lists(rows, max_size=4).map("".join)))
tables = html | st.sampled_from(GFM)
contents = paragraphs | formulas | tables | st.just("") | st.tuples(paragraphs, tables).map("\n".join)
refs = put(REFS, st.sampled_from(LABELS), st.sampled_from(BOXES))
grounded = st.tuples(
    st.sampled_from(("", "@\n")),
    st.lists(st.tuples(refs, contents, st.just("\n\n")).map("".join), max_size=4).map("".join),
).map("".join)
plain = st.lists(contents, max_size=4).map("\n\n".join)


def parse(family: str, text: str, grammar: str) -> ParsedPage:
    return registry.get_family(family).parse(text, 1, Rung(RungName.NORMAL, "", grammar=grammar))


def find_unwritten(element: Element) -> list[str]:
    """The words of an element's text that its markdown lacks."""
    shown = [element.model_copy(update={"text": element.markdown})]
    is_shown_otherwise = element.table or element.figure or Flag.HEADING_REPEATED in element.flags
    return [] if is_shown_otherwise else [*word_account.compare(word_account.list_words(element.text), shown).lost]


def check(family: str, text: str, grammar: str) -> None:
    parsed = parse(family, text, grammar)
    found = registry.get_family(family).account(text, parsed.elements)

    assert parsed.reason is not Code.LOOP
    if parsed.reason is Code.TRUNCATED:
        return  # a tag at the end without its boxes was cut, which the reason says
    assert (found.lost, found.repeated) == ((), ()), text
    assert [find_unwritten(element) for element in parsed.elements if find_unwritten(element)] == []


@pytest.mark.parametrize("family", ["deepseek_ocr", "deepseek_ocr_json", "unlimited_ocr"])
@settings(max_examples=50)
@given(text=grounded.map(fill))
def test_no_word_of_a_page_is_lost_or_repeated(family: str, text: str) -> None:
    """Whatever stands between tags, whole or not, is in the elements once, and in their markdown."""
    check(family, text, "document")


@settings(max_examples=50)
@given(plain.map(fill))
def test_no_word_of_an_answer_without_tags_is_lost_or_repeated(text: str) -> None:
    """The same for an answer without boxes."""
    check("deepseek_ocr", text, "plain")


@pytest.mark.parametrize("family", ["glm_ocr", "paddleocr_vl"])
@settings(max_examples=50)
@given(
    st.tuples(st.just("text") | st.just("seal"), contents)
    | st.tuples(st.just("formula"), formulas | paragraphs)
    | st.tuples(st.just("table"), tables | contents | st.lists(st.sampled_from(OTSL), max_size=9).map("".join))
    | st.tuples(st.just("chart"), tables | paragraphs | st.lists(st.sampled_from(CHARTS), max_size=6).map("".join))
)
def test_no_word_of_a_region_is_lost_or_repeated(family: str, drawn: tuple[str, str]) -> None:
    """The same for an answer about one region of any kind."""
    task, text = drawn
    check(family, fill(text), task)


def lay_out(texts: Sequence[tuple[str, Sequence[str]]]) -> str:
    """The JSON of a page whose regions have these labels and lines; the lines of a table are its rows."""
    boxes: list[dict[str, Any]] = []
    for n, (label, lines) in enumerate(texts):
        box = [50, 80 + 60 * n, 500, 130 + 60 * n]
        cells = [Cell(row=row, col=0, text=text).model_dump() for row, text in enumerate(lines)]
        table = {"rows": len(lines), "cols": 1, "cells": cells}
        written = [
            {"box": [50, box[1] + 12 * row, 500, box[1] + 12 * row + 10], "text": one, "size": 10.0}
            for row, one in enumerate(lines)
        ]
        boxes.append({"label": label, "box": box, **({"table": table} if label == "table" else {"lines": written})})
    return json.dumps({"v": 3, "width": 595.0, "height": 842.0, "via": "text_layer", "score": 1.0, "boxes": boxes})


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["title", "section-header", "text", "list-item", "table", "picture", "caption", "orphan"]),
            st.lists(st.sampled_from(["@ @", "• @", "1. @", "@ @-", '@ "@"', "# @", "@ = @"]), min_size=1, max_size=3),
        ),
        max_size=5,
    )
)  # fmt: skip
def test_no_word_of_a_layout_is_lost_or_repeated(drawn: list[tuple[str, list[str]]]) -> None:
    """The same for the regions of the cpu engine; a word that a line's end breaks is one word."""
    text = lay_out(json.loads(fill(json.dumps(drawn))))

    found = registry.get_family("layout").account(text, parse("layout", text, "document").elements)

    assert (found.lost, found.repeated) == ((), ())


def find_records() -> Iterator[Path]:
    """Answers of the real model in the repository."""
    return (ROOT / "src/twopass/acceptance/records").rglob("*.txt")


@pytest.mark.parametrize(
    "path", [path for path in find_records() if "simple_form.grounding" not in path.name], ids=lambda path: path.stem
)
def test_recorded_answers_lose_and_repeat_no_word(path: Path) -> None:
    """The answers of the real model that do not loop are in their elements, word for word."""
    check("deepseek_ocr", path.read_text(), "document" if "grounding" in path.name else "plain")


def test_lost_and_repeated_words_are_found() -> None:
    """A word that is left out, or written once more, is named; joined and parted words are neither."""
    page = Element(
        id="a",
        page=1,
        category=Kind.TEXT.category,
        kind=Kind.TEXT,
        boxes=(Box(0, 0, 1, 1),),
        text="carbonfree in in ten year",
    )
    table = table_markup.build_table(1, 1, [Cell(row=0, col=0, text="12")])
    other = page.model_copy(update={"kind": Kind.TABLE, "table": table, "text": "not shown"})

    found = word_account.compare(
        word_account.list_words("<td>12</td> carbon free in \\frac tenyear lost"), [page, other]
    )

    assert found == (("lost",), ("in",))


def test_equal_cells_of_a_chart_are_counted_each() -> None:
    """A chart may have one value several times, and none of them is lost."""
    text = "Year | Tolls | Ships\n1984 | 5 | 5\n1985 | 5 | 7"

    assert registry.get_family("glm_ocr").account(text, parse("glm_ocr", text, "chart").elements) == ((), ())


def test_words_of_boilerplate_are_not_lost() -> None:
    """What Unlimited-OCR writes where it read no text is no word of the page."""
    text = answers.block("text", "[Non-Text]")

    assert registry.get_family("unlimited_ocr").account(text, parse("unlimited_ocr", text, "document").elements) == (
        (),
        (),
    )


def test_signs_that_look_like_tags_are_not_lost() -> None:
    """A tag that the page shows, and the model escaped, is a word of the page."""
    text = answers.block("table", "<table><tr><td>&lt;tr&gt; &lt;br&gt;</td></tr></table>")
    text += answers.block("text", "The tag &lt;b&gt; makes it bold.")

    check("deepseek_ocr", text, "document")


def test_a_heading_that_was_cut_from_its_paragraph_is_not_lost() -> None:
    """The model repeated it there, so that its words are those of the heading, and the next word is whole."""
    text = answers.block("sub_title", "## Neue Gebühren") + answers.block("text", "Neue GebührenDie Sätze gelten.")

    check("deepseek_ocr", text, "document")
