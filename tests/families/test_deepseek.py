"""The ladder and questions of the DeepSeek-OCR family, and the elements it makes of answers."""

from __future__ import annotations

import pickle
import random
import re
from collections import Counter
from functools import partial
from html import unescape
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import answers
from tests.fakes.answers import TABLE, block
from twopass.document import Box, Category, Element, Formula, Kind, Layer, RungName, Word
from twopass.engines.hf.ngram_ban import find_banned_tokens
from twopass.engines.interface import build_sampling
from twopass.errors import Code
from twopass.families.deepseek import (
    PROMPTS,
)
from twopass.families.grounded.elements import classify_label
from twopass.families.interface import (
    ElementContext,
    FamilyOptions,
    PageFeatures,
    PageRequest,
    ParsedPage,
    Question,
    Reply,
    Rung,
)
from twopass.families.registry import FAMILIES, get_family
from twopass.pages.text_layer import TextLayer
from twopass.text import prose

FAMILY, FAMILY_2 = FAMILIES["deepseek_ocr"], FAMILIES["deepseek_ocr2"]
A4 = PageFeatures(1191, 1684, ink=0.15, characters=2800)
FREE = Rung(RungName.FREE, PROMPTS["free"], grammar="plain")


def parse(text: str, layer: tuple[Word, ...] = (), rung: Rung | None = None) -> ParsedPage:
    return FAMILY.parse(text, 1, rung or FAMILY.ladder(A4, PageRequest())[0], TextLayer.of(layer))


def only(text: str, **fields: Any) -> Element:
    (element,) = parse(text, **fields).elements
    return element


# a block -> fields of its element
BLOCKS: dict[str, tuple[str, dict[str, Any]]] = {
    "title": (block("title", "# A Report"), {"kind": Kind.TITLE, "level": 1, "text": "A Report"}),
    "numbered title": (block("title", "# 3. Methods"), {"kind": Kind.SECTION_HEADER, "numbering": "3"}),
    "deep title": (block("title", "#### Small"), {"kind": Kind.TITLE, "level": 4}),
    "sub_title": (block("sub_title", "### 2.1 Pumps"), {"kind": Kind.SECTION_HEADER, "level": 3, "numbering": "2.1"}),
    "sub_title, one hash": (block("sub_title", "# Übungsblatt DGL 3"), {"level": 1, "text": "Übungsblatt DGL 3"}),
    "sub_title, no hashes": (block("sub_title", "Method"), {"level": 2, "markdown": "## Method"}),
    "heading on two lines": (block("title", "# A long\n# title"), {"text": "A long title"}),
    "maths in text": (
        block("text", "a \\( x \\) costs $5"),
        {"text": "a \\( x \\) costs $5", "markdown": "a $x$ costs \\$5"},
    ),
    "no maths, dollars": (block("text", "costs $5 or $6"), {"markdown": "costs $5 or $6"}),
    "strong text": (block("text", "**Note:** this"), {"text": "Note: this", "markdown": "**Note:** this"}),
    "coloneqq": (block("text", "\\( a \\coloneqq b \\)"), {"text": "\\( a := b \\)"}),
    "entities": (block("text", "a &lt; b &amp;gt; c"), {"text": "a < b > c"}),
    "entities with other names": (
        block("text", "&euro;5 &plusmn; &frac12; f&uuml;r AT&T; &Corp; R&D &copy 2020"),
        {"text": "€5 ± ½ für AT&T; &Corp; R&D &copy 2020"},
    ),
    "marks in tags": (
        block("text", "In 2007<sup>12</sup> H<sub>2</sub>O of 1<sup>st</sup> grade"),
        {"text": "In 2007¹² H₂O of 1st grade"},
    ),
    "amounts of money beside a formula": (
        block("equation", "costs $5 and $7 if $$a=b$$"),
        {"text": "costs $5 and $7 if \\[a=b\\]"},
    ),
    "breaks": (block("text", "a<br>b"), {"text": "a\nb"}),
    "hyphens": (
        block("text", "a daisy- chain, 01- C, Ein- und Ausgang"),
        {"text": "a daisy-chain, 01-C, Ein- und Ausgang"},
    ),
    "a word broken at a line's end": (
        block("text", "des Einführungs- gesetzes, der Gesellschafts-\nform, der Freiheits-beraubung"),
        {"text": "des Einführungsgesetzes, der Gesellschaftsform, der Freiheitsberaubung"},
    ),
    "hyphens that belong to the word": (
        block(
            "text",
            "Bildungs- und Kulturamt, Zahlungs- bzw. Lieferfrist, rot- grün, Reichs-militär, Leitungs- A, lungs- x",
        ),
        {"text": "Bildungs- und Kulturamt, Zahlungs- bzw. Lieferfrist, rot-grün, Reichs-militär, Leitungs-A, lungs-x"},
    ),
    "a word that may be broken": (block("text", "of the har- bours"), {"text": "of the har-\nbours"}),
    "items of a list on one line": (
        block("text", "- Open the main valve- Wait for two minutes- Close the vent"),
        {"text": "- Open the main valve\n- Wait for two minutes\n- Close the vent", "kind": Kind.LIST_ITEM},
    ),
    "a name in a list": (block("text", "- the Anglo-\nSaxon chronicle"), {"text": "- the Anglo-\nSaxon chronicle"}),
    "ranges and dates": (block("text", "2019- 2021, 7- 9 May"), {"text": "2019-2021, 7-9 May"}),
    "end token": (block("text", "Done.<｜end▁of▁sentence｜>"), {"text": "Done."}),
    "formula": (
        block("equation", "\\[ a = b \\tag{69} \\]"),
        {"kind": Kind.FORMULA, "markdown": "$$\na = b \\tag{69}\n$$"},
    ),
    "formula with a number behind": (
        block("equation", "\\[ a = b \\] \\quad (2)"),
        {"markdown": "$$\na = b \\tag{2}\n$$"},
    ),
    "formula called text": (block("text", "\\[ a = b \\]"), {"kind": Kind.FORMULA}),
    "text around a formula": (
        block("text", "So \\[ a = b \\] holds"),
        {"kind": Kind.TEXT, "markdown": "So $$a = b$$ holds"},
    ),
    "words beside a formula": (
        block("equation", "\\[x = 1\\] where \\(y = 2\\) holds"),
        {"kind": Kind.TEXT, "markdown": "$$x = 1$$ where $y = 2$ holds", "formula": None},
    ),
    "two formulas and a word": (
        block("equation", "\\(a = b\\) and \\(c = d\\)"),
        {"kind": Kind.TEXT, "markdown": "$a = b$ and $c = d$"},
    ),
    "a word and dollars": (
        block("equation", "mit $$x$$ und $y$"),
        {"text": "mit \\[x\\] und \\(y\\)", "markdown": "mit $$x$$ und $y$"},
    ),
    "an environment and words": (
        block("equation", "\\begin{align*} a &= b \\end{align*} where \\(c\\) holds"),
        {"kind": Kind.TEXT, "text": "\\[\\begin{align*} a &= b \\end{align*}\\] where \\(c\\) holds"},
    ),
    "an environment alone": (
        block("equation", "\\begin{align} a &= b \\\\ c &= d \\end{align} (3)"),
        {"kind": Kind.FORMULA},
    ),
    "formulas with numbers": (
        block("equation", "\\[a\\] (1) \\[b\\] (2)"),
        {"kind": Kind.TEXT, "markdown": "$$a$$ (1) $$b$$ (2)"},
    ),
    "inline formulas": (block("equation", "\\(a\\), \\(b\\)."), {"formula": Formula(latex="a \\\\\nb")}),
    "words within a formula": (
        block("equation", "x = \\begin{cases} 1 & \\text{if $a$ and $b$} \\end{cases}"),
        {"kind": Kind.FORMULA, "formula": Formula(latex="x = \\begin{cases} 1 & \\text{if $a$ and $b$} \\end{cases}")},
    ),
    "a formula that is cut off": (block("equation", "\\[ a = b"), {"formula": Formula(latex="a = b")}),
    "words and a formula that is cut off": (block("equation", "so \\[ a = b"), {"kind": Kind.TEXT}),
    "a comment of code": (block("text", "# compute the tolls"), {"kind": Kind.TEXT, "text": "# compute the tolls"}),
    "a line of fenced code": (block("code", "```x = 1```"), {"text": "```x = 1```"}),
    "text in place of a label": (block("The tolls rose", ""), {"kind": Kind.TEXT, "text": "The tolls rose"}),
    "a first line in place of a label": (block("The tolls", "rose again."), {"text": "The tolls\n\nrose again."}),
    "a label that is not closed": (
        "<|ref|>text<|det|>[[1, 2, 900, 900]]<|/det|>\na",
        {"native_label": "text", "text": "a"},
    ),
    "a list item": (block("text", "• one"), {"kind": Kind.LIST_ITEM, "text": "• one"}),
    "several items": (block("text", "1. one\n2. two"), {"kind": Kind.LIST_ITEM, "text": "1. one\n2. two"}),
    "a sentence with a dash": (block("text", "-5 degrees\nand more"), {"kind": Kind.TEXT}),
    "heading called text": (block("text", "## 4 Results"), {"kind": Kind.SECTION_HEADER, "level": 2}),
    "a hash that is a number's": (block("text", "#1 priority"), {"kind": Kind.TEXT, "text": "#1 priority"}),
    "a hash that is code": (block("text", "#include <a.h>"), {"kind": Kind.TEXT, "text": "#include <a.h>"}),
    "a heading without a blank": (block("sub_title", "##Method"), {"markdown": "## Method"}),
    "pipes": (block("code", "let y = f <| x |> g"), {"text": "let y = f <| x |> g"}),
    "code": (block("code", "```py\nx = 1\n```"), {"kind": Kind.CODE, "text": "x = 1"}),
    "caption": (block("image_caption", "<center>Figure 1: x </center>"), {"kind": Kind.CAPTION, "text": "Figure 1: x"}),
    "table called text": (block("text", TABLE), {"kind": Kind.TABLE, "category": Category.TABLE}),
    "header": (block("header", "Annual report"), {"kind": Kind.PAGE_HEADER, "content_layer": Layer.FURNITURE}),
    "flowchart": (block("flowchart"), {"kind": Kind.PICTURE, "category": Category.DIAGRAM}),
    "image": (block("image"), {"kind": Kind.PICTURE, "category": Category.COMPLEX_IMAGE}),
    "several boxes": (
        block("text", "a", "[[0, 0, 999, 500], [0, 500, 999, 999]]"),
        {"boxes": (Box(0, 0, 1, 0.5005), Box(0, 0.5005, 1, 1))},
    ),
    "no text": (block("text"), {"text": "", "flags": ("no_text", "doubtful")}),
    "degenerate box": (block("text", "a", (71, 844, 20, 860)), {"boxes": (), "text": "a"}),
    "replacement characters": (block("text", "a \ufffd b"), {"flags": ("replacement_characters", "doubtful")}),
    "mixed scripts": (block("text", "the M\u043escow road"), {"flags": ("mixed_scripts", "doubtful")}),
    "Greek beside Latin": (block("text", "the angle \u03b1 is small"), {"flags": ()}),
}


@pytest.mark.parametrize(("text", "fields"), BLOCKS.values(), ids=BLOCKS)
def test_every_form_of_block_gives_its_element(text: str, fields: dict[str, Any]) -> None:
    """Every way in which the model has been seen to write a block gives the element that is meant."""
    element = only(text)

    assert {name: getattr(element, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (block("sub_title", "## Tolls\nThe rates rose."), [("section_header", "Tolls"), ("text", "The rates rose.")]),
        (block("sub_title", "## Tolls\n\nSince 1899"), [("section_header", "Tolls"), ("text", "Since 1899")]),
        (block("sub_title", "## Tolls\n### Rates"), [("section_header", "Tolls"), ("section_header", "Rates")]),
        (block("title", "# Tolls\nof the lock"), [("title", "Tolls of the lock")]),
        (block("sub_title", "Tolls\n====="), [("section_header", "Tolls")]),
        (
            block("text", "Before.\n## Tolls\nAfter."),
            [("text", "Before."), ("section_header", "Tolls"), ("text", "After.")],
        ),
        (
            block("text", "Before:\n```\n  x = 1\n```\nAfter."),
            [("text", "Before:"), ("code", "  x = 1"), ("text", "After.")],
        ),
        (block("text", "Before.\n---\nAfter."), [("text", "Before.\n\nAfter.")]),
        (block("code", 'a = "<br>&lt;"\n<table><tr><td>x'), [("code", 'a = "<br><"\n<table><tr><td>x')]),
        (block("code", "    a<sup>2</sup>\n\n\n| a |\n|---|"), [("code", "    a<sup>2</sup>\n\n\n| a |\n|---|")]),
    ],
)
def test_headings_and_code_in_a_block_are_elements(text: str, found: list[tuple[str, str]]) -> None:
    """A block of text may hold headings and fenced code and a heading's a paragraph; code stays as it is."""
    assert [(element.kind, element.text) for element in parse(text).elements] == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (block("image", "![](images/0.jpg)"), [("picture", "", None)]),
        (block("image", "![A quay](images/0.jpg)"), [("picture", "A quay", "A quay")]),
        (block("text", '<img src="a.png" alt="A quay">'), [("picture", "A quay", "A quay")]),
        (block("text", "Before.\n![A quay](a.png)"), [("text", "Before.", None), ("picture", "A quay", "A quay")]),
        (block("code", "![A quay](a.png)"), [("code", "![A quay](a.png)", None)]),
        (block("text", "An <img> tag"), [("text", "An <img> tag", None)]),
    ],
)
def test_a_picture_in_markdown_is_an_element(text: str, found: list[tuple[str, str, str | None]]) -> None:
    """Its address is no text; its words are those of the picture."""
    elements = parse(text).elements

    assert [(one.kind, one.text, one.figure and one.figure.description) for one in elements] == found


def test_the_table_of_a_chart_is_its_data() -> None:
    """A chart that is read as a table keeps its box and its kind."""
    chart = only(block("chart", TABLE))

    assert (chart.kind, len(chart.boxes), chart.table) == (Kind.CHART, 1, None)
    assert chart.figure and chart.figure.data and chart.figure.data.rows == 2


@pytest.mark.parametrize(
    ("label", "content", "text"),
    [
        ("Table 3 Salt by year", "", "Table 3 Salt by year"),
        ("The chart shows tolls", "of 1899.", "The chart shows tolls\n\nof 1899."),
        ("Figure 2", "", "Figure 2"),
        ("2023", "5", "2023\n\n5"),
        ("合计", "5", "合计\n\n5"),
        ("Total", "5", "Total\n\n5"),
        ("total", "", "total"),
        ("stanza", "a", "a"),
        ("form_field", "", ""),
    ],
)
def test_what_names_no_kind_is_text(label: str, content: str, text: str) -> None:
    """What the model wrote in place of a label is in the element, and accounted for; a name of a label is not."""
    answer = block(label, content)
    element = only(answer)

    assert (element.text, FAMILY.account(answer, [element]).lost) == (text, ())


@pytest.mark.parametrize("begin", range(len("<|ref|>text<|/ref|><|det|>[[100, 100, 900, 200]]<|/det")))
def test_an_answer_may_begin_within_a_tag(begin: int) -> None:
    """No part of the tag becomes text."""
    answer = block("text", "Body.")[begin:] + block("text", "Next.", (100, 300, 900, 400))

    elements = parse(answer).elements

    assert [element.text for element in elements] == ["Body.", "Next."]
    assert FAMILY.account(answer, elements).lost == ()


def test_a_fence_around_an_answer_is_no_code() -> None:
    """What a model writes as one block of Markdown is parsed like the same without the fence."""
    text = "# Tolls\n\nThe rates rose.\n\n```python\nx = 1\n```\n\n- a\n- b"

    plain, fenced = (parse(one, rung=FREE).elements for one in (text, f"Here it is:\n```markdown\n{text}\n```"))

    assert [(element.kind, element.text) for element in fenced[1:]] == [(e.kind, e.text) for e in plain]


def test_a_hash_within_code_begins_no_heading() -> None:
    """A line with a hash beside a line of code is a comment, with a tag of its own and in an answer without tags."""
    tagged = parse(block("text", "import numpy as np") + block("text", "# Tolls of 2024") + block("text", "# Tolls"))
    plain = parse("Before.\n\nimport numpy as np\n# Tolls of 2024\nx = np.ones(3)\n\n# Results\n\nAfter.", rung=FREE)

    assert [element.kind for element in tagged.elements] == [Kind.TEXT, Kind.TEXT, Kind.SECTION_HEADER]
    labelled = parse(block("sub_title", "# charge the tolls") + block("text", "rate = charge(vessel)"))

    assert labelled.elements[0].text == "# charge the tolls"
    assert [element.text for element in plain.elements if element.is_heading] == ["Results"]
    assert "# Tolls of 2024" in [*plain.elements][1].text


def test_pictures_in_cells_are_elements() -> None:
    """Each picture in a cell is an element behind its table, with the words that stand for it, which the cell lacks."""
    cells = '<td><img src="a.png" alt="a valve"></td><td>![](b.png) 12</td>'
    table, valve, other = parse(block("table", f"<table><tr>{cells}</tr></table>")).elements

    assert table.table and [cell.text for cell in table.table.cells] == ["", "12"]
    assert [(one.kind, one.text, one.figure and one.figure.description) for one in (valve, other)] == [
        (Kind.PICTURE, "a valve", "a valve"), (Kind.PICTURE, "", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("label", "kind"),
    [
        ("Chart", Kind.CHART),
        ("Section-Header", Kind.SECTION_HEADER),
        ("main heading", Kind.TITLE),
        ("section break", Kind.SECTION_HEADER),
        ("bar plot", Kind.CHART),
        ("data_table", Kind.TABLE),
        ("flow_thing", Kind.PICTURE),
        ("old photograph", Kind.PICTURE),
        ("table_caption_2", Kind.CAPTION),
        ("stanza", Kind.TEXT),
        (None, Kind.TEXT),
    ],
)
def test_unknown_labels_are_classified_by_the_words_in_them(label: str | None, kind: Kind) -> None:
    """An unknown label gets the kind of a word in it; caption and footnote count before table and figure."""
    assert classify_label(label) is kind


def test_a_page_of_everything() -> None:
    """A table below its caption goes to its tag, captions are linked, and maths and money are distinguished."""
    title, head, text, table, caption, formula, picture, legend, items = parse(answers.PAGE).elements

    assert (title.kind, head.numbering, formula.formula and formula.formula.latex) == (
        Kind.TITLE,
        "1",
        "Q = v A \\tag{3}",
    )
    assert table.table and table.table.markdown == "| Pump | Flow (m³/h) |\n| --- | --- |\n| P-1 | 12.5 |"
    assert (caption.text, caption.parent_id, table.caption_ids) == ("Table 1: Pumps > 10 m³/h", table.id, (caption.id,))
    assert (legend.parent_id, picture.caption_ids, items.kind) == (picture.id, (legend.id,), Kind.LIST_ITEM)
    assert text.markdown.startswith("The springs give $12.5$ litres a second, and cost \\$5")


def test_a_table_without_a_tag_and_a_tag_without_a_table_are_kept() -> None:
    """HTML without a tag is a table without a box; a tag without HTML is a table that pass 2 must read."""
    found = parse(block("text", f"before {TABLE} after") + block("table", "")).elements

    assert [(e.kind, e.text[:6], bool(e.boxes), e.flags) for e in found] == [
        (Kind.TEXT, "before", True, ()),
        (Kind.TABLE, "Pump F", False, ("untagged",)),
        (Kind.TEXT, "after", False, ("untagged",)),
        (Kind.TABLE, "", True, ()),
    ]
    assert found[1].table and found[3].table is None


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("a&lt;b and c&gt;d", "a<b and c>d"),
        ("use &lt;td&gt; here", "use <td> here"),
        ("1&lt;i, j&amp;gt;2", "1<i, j>2"),
        ("5 < 6 &amp;amp; up", "5 < 6 & up"),
        ("\\( a \\coloneqq b \\)", "\\( a := b \\)"),
    ],
)
def test_a_cells_entities_are_no_tags(cell: str, text: str) -> None:
    """Escaped characters in the cells of a table or of a chart's data are text, even if escaped twice."""
    html = f"<table><tr><td>{cell}</td><td>n</td></tr></table>"
    table = only(block("table", html)).table
    question = Question("figure_data", PROMPTS["figure"])
    figure = FAMILY.apply_replies(only(block("image")), [Reply(question, html)]).figure

    assert table and [found.text for found in table.cells] == [text, "n"]
    assert figure and figure.data == table


def test_an_escaped_table_in_prose_is_prose() -> None:
    """A text about HTML keeps the tags it mentions."""
    assert only(block("text", "write &lt;table&gt; and &lt;td&gt;")).text == "write <table> and <td>"


OTHER = TABLE.replace("Pump", "Valve")


def test_html_under_a_text_tag_belongs_to_the_table_above() -> None:
    """A table tag followed by a text with only its HTML is one table with both boxes."""
    (one,) = parse(block("table", "", (1, 2, 900, 400)) + block("text", TABLE, (1, 410, 900, 430))).elements
    apart = parse(block("table") + block("text", "a") + block("text", TABLE)).elements

    assert [bool(e.table) for e in parse(block("table") + block("table", TABLE)).elements] == [False, True]
    assert (one.native_label, one.table and one.table.rows, len(one.boxes)) == ("table", 2, 2)
    assert [(e.kind, bool(e.table)) for e in apart] == [
        (Kind.TABLE, False), (Kind.TEXT, False), (Kind.TABLE, True),
    ]  # fmt: skip


def test_tables_below_their_tags_keep_their_order() -> None:
    """Two tables go to the two tags above in order; a single table goes to the nearest tag."""
    tags = block("table", "", (1, 2, 900, 100)) + block("table", "", (1, 200, 900, 400))
    two = parse(tags + block("table_caption", f"Both\n{TABLE}{OTHER}", (1, 410, 900, 430))).elements
    one = parse(tags + block("table_caption", f"One\n{TABLE}", (1, 410, 900, 430))).elements

    assert [element.text.split()[0] for element in two if element.kind is Kind.TABLE] == ["Pump", "Valve"]
    assert [element.text.split()[:1] for element in one if element.kind is Kind.TABLE] == [[], ["Pump"]]


def test_two_tables_with_crossed_captions_find_their_owners() -> None:
    """Captions are linked by the gap to their table, not by order alone: one is above its table, one below."""
    first = block("table_caption", "Table 1: a", (100, 80, 900, 98)) + block("table", TABLE, (100, 100, 900, 200))
    second = block("table", TABLE, (100, 300, 900, 400)) + block("table_caption", "Table 2: b", (100, 402, 900, 420))
    one, above, below, two = parse(first + second).elements

    assert (one.parent_id, two.parent_id) == (above.id, below.id)


def test_a_tables_footnote_is_linked_to_it() -> None:
    """A table_footnote belongs to its table; a footnote of the page is linked later, in the document."""
    table, note, foot = parse(
        block("table", TABLE, (100, 100, 900, 200))
        + block("table_footnote", "* est.", (100, 202, 900, 215))
        + block("footnote", "1 See x.")
    ).elements

    assert (note.kind, note.parent_id, foot.parent_id) == (Kind.FOOTNOTE, table.id, None)


def test_a_heading_repeated_in_the_next_paragraph_is_cut() -> None:
    """Only exact repetitions without a space are cut; a paragraph that begins like its heading keeps its words."""
    heads = block("sub_title", "## 4. Evaluation") + block("sub_title", "### 4.1. Compression Study")
    glued = parse(heads + block("text", "4. Evaluation4.1. Compression StudyWe select pages.")).elements[-1]
    legit = parse(block("sub_title", "## Results") + block("text", "Results show that.")).elements[-1]

    assert (glued.text, glued.markdown, glued.flags) == ("We select pages.", "We select pages.", ("heading_repeated",))
    assert (legit.text, legit.flags) == ("Results show that.", ())


def test_text_without_a_box_is_ungrounded() -> None:
    """An answer without boxes is kept as paragraphs and marked ungrounded, except on the last rung."""
    text = f"# Title\n\nA paragraph\nof two lines.\n\n---\n\n{TABLE}\n\n\\[ a = b \\]\n\n- one\n- two"

    assert parse(text).reason is Code.UNGROUNDED
    free = parse(text, rung=FREE)
    assert [element.kind for element in free.elements] == [
        Kind.SECTION_HEADER, Kind.TEXT, Kind.TABLE, Kind.FORMULA, Kind.LIST_ITEM,
    ]  # fmt: skip
    assert parse("a\n#1 first\nb", rung=FREE).elements[0].text == "a\n#1 first\nb"
    assert (free.reason, free.elements[0].flags, free.elements[1].boxes) == (None, (), ())


@pytest.mark.parametrize("text", ["", "  \n", "<｜end▁of▁sentence｜>"])
def test_nothing_is_no_element(text: str) -> None:
    """An empty answer gives no elements and no reason; pass 1 decides whether the page may be empty."""
    assert parse(text) == ParsedPage()


def test_a_cut_tag_is_truncated_and_the_last_element_doubtful() -> None:
    """A tag cut off at the end is dropped, the element before it is doubtful, and nothing else is lost."""
    answer = parse(answers.PAGE + "<|ref|>text<|/ref|><|det|>[[520")

    assert answer.reason is Code.TRUNCATED
    assert len(answer.elements) == 9 and answer.elements[-1].flags == ("cut_off", "doubtful")


@pytest.mark.parametrize("text", answers.LOOPS.values(), ids=answers.LOOPS)
def test_a_looping_answer_keeps_what_came_before(text: str) -> None:
    """The nine elements before the loop are kept, and at most the first repetitions of the loop."""
    answer = parse(text)

    assert answer.reason is Code.LOOP
    assert [e.text for e in answer.elements[:9]] == [e.text for e in parse(answers.PAGE).elements]
    assert len(answer.elements) <= 12
    assert any("loop" in element.flags for element in answer.elements)


def words(text: str, y: float = 0.15) -> tuple[Word, ...]:
    """The words of one line of a text layer."""
    return tuple(Word(Box(0.1 + 0.02 * n, y - 0.01, 0.115 + 0.02 * n, y + 0.01), w) for n, w in enumerate(text.split()))


def test_the_text_layer_is_compared_with_the_answer() -> None:
    """Text that the layer has gets confidence 1, text it does not have is doubtful, and no text is changed."""
    layer = words("The pump was read on Monday")

    known = only(block("text", "The pump was read on Monday"), layer=layer)
    unknown = only(block("text", "Tne qump vas reab no Nonday"), layer=layer)

    assert known.confidence and (known.confidence.score, known.confidence.method, known.flags) == (
        1.0,
        "found_in_layer",
        (),
    )
    assert unknown.flags == ("not_in_text_layer", "doubtful") and unknown.text == "Tne qump vas reab no Nonday"


def test_the_text_layer_of_a_stamp_on_a_scan_is_ignored() -> None:
    """A layer with far fewer words than the answer is not compared."""
    element = only(block("text", "The meter of the pump was read on Monday by both of them " * 3), layer=words("Draft"))

    assert (element.confidence, element.flags) == (None, ())


def test_a_text_layer_of_garbage_is_ignored() -> None:
    """A layer whose fonts map to wrong characters makes nothing doubtful."""
    element = only(
        block("text", "The pump was read"), layer=words("\ue001\ue002 \ue003\ue004 \ue005\ue006 \ue007\ue008")
    )

    assert element.flags == ()


def test_each_rung_of_the_ladder_changes_something() -> None:
    """The rungs add a wider n-gram ban and temperature, then another mode, then a prompt without boxes."""
    rungs = FAMILY.ladder(A4, PageRequest())

    assert [(r.name, r.mode, r.grammar) for r in rungs] == [
        ("normal", "gundam", "document"),
        ("again", "gundam", "document"),
        ("mode", "large", "document"),
        ("free", "gundam", "plain"),
    ]
    assert dict(rungs[1].sampling) == {"temperature": 0.2, "ngram": 30, "window": 256}
    assert [r.mode for r in FAMILY.ladder(A4, PageRequest("base"))][:3] == ["base", "base", "gundam"]


RUNGS = FAMILY.ladder(A4, PageRequest())


def find_first_ban(tokens: list[int], rung: Rung) -> int | None:
    """The index of the first token that the rung's n-gram ban forbids, None if the model may write all of them."""
    sampling = build_sampling(rung.sampling)
    ban = partial(find_banned_tokens, size=sampling.ngram, window=sampling.window, allowed=sampling.allowed_tokens)
    return next((n for n, token in enumerate(tokens) if token in ban(tokens[:n])), None)


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)
@pytest.mark.parametrize("cell", [[5], [5, 6, 7]], ids=["0", "0.5"])
def test_a_row_may_have_six_equal_cells_on_every_rung(cell: list[int], rung: Rung) -> None:
    """No rung forbids a number because the cells before it hold the same one."""
    row_start, cell_start, cell_end = 1, 128821, 128822
    row = [row_start, *[cell_start, *cell, cell_end] * 6]

    assert find_first_ban(row, rung) is None


@pytest.mark.parametrize("rung", RUNGS[1:], ids=lambda rung: rung.name)
@pytest.mark.parametrize("period", [1, 62, 200])
def test_later_rungs_ban_loops_that_the_first_one_allows(period: int, rung: Rung) -> None:
    """They stop a loop of up to 227 tokens at its second repetition; the first rung only one of up to 61."""
    loop = list(range(period)) * 40

    assert find_first_ban(loop, rung) == period + 29
    assert (find_first_ban(loop, RUNGS[0]) is None) == (period > 61)


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)
def test_a_table_of_a_later_rung_is_flagged(rung: Rung) -> None:
    """The wider ban may have changed equal rows, so every table says so, and nothing else does."""
    found = parse(block("text", "The pump was read.") + block("table", TABLE), rung=rung).elements

    flags = ("repeats_limited",) if rung.sampling else ()
    assert [(element.kind, element.flags) for element in found] == [(Kind.TEXT, ()), (Kind.TABLE, flags)]


def test_the_data_of_a_figure_from_a_later_rung_is_flagged() -> None:
    """A chart's data is a table, too."""
    rung = FAMILY.ladder(A4, PageRequest(task="figure"))[1]

    assert "repeats_limited" in only(TABLE, rung=rung).flags


@pytest.mark.parametrize(
    ("task", "prompt", "text"),
    [
        ("image", None, "<image>\n<|grounding|>OCR this image."),
        ("free", None, "<image>\nFree OCR."),
        ("figure", None, "<image>\nParse the figure."),
        ("describe", None, "<image>\nDescribe this image in detail."),
        ("locate", "the seal", "<image>\nLocate <|ref|>the seal<|/ref|> in the image."),
        ("custom", "<image>\nWho wrote this?", "<image>\nWho wrote this?"),
    ],
)
def test_every_task_has_its_official_prompt(task: str, prompt: str | None, text: str) -> None:
    """Every rung of a task uses its official prompt, word for word."""
    assert {rung.prompt for rung in FAMILY.ladder(A4, PageRequest(task=task, prompt=prompt))} == {text}


# task, answer -> kind, text, boxes
TASKS = {
    "image": (block("Pay 5 €", "", (1, 2, 300, 40)) + block("now", "", (1, 50, 300, 90)), Kind.TEXT, "Pay 5 €\nnow", 2),
    "free": ("# Hi\n\nyou", Kind.TEXT, "# Hi\n\nyou", 0),
    "locate": (block("the seal", "", "[[1, 2, 30, 40], [50, 60, 70, 80]]"), Kind.TEXT, "the seal", 2),
    "custom": (block("text", "It was me."), Kind.TEXT, "It was me.", 1),
    "figure": (TABLE, Kind.CHART, "", 0),
    "describe": ("This photo shows a wall.", Kind.PICTURE, "This photo shows a wall.", 0),
}


@pytest.mark.parametrize(("task", "is_transcript"), [("document", True), ("free", True), ("describe", False)])
def test_a_description_is_no_transcript(task: str, is_transcript: bool) -> None:
    """Answers to all prompts but one repeat text of the page, also on later rungs."""
    assert {rung.is_transcript for rung in FAMILY.ladder(A4, PageRequest(task=task))} == {is_transcript}


@pytest.mark.parametrize("task", TASKS)
def test_other_tasks_give_one_element(task: str) -> None:
    """The element has all text and boxes of the answer; an empty answer gives none."""
    text, kind, content, boxes = TASKS[task]
    element = only(text, rung=Rung(RungName.NORMAL, PROMPTS.get(task, "<image>\nx"), grammar=task))

    assert (element.kind, element.text, len(element.boxes), element.read_by) == (kind, content, boxes, 1)
    assert not parse("", rung=Rung(RungName.NORMAL, "", grammar=task)).elements


@pytest.mark.parametrize(
    ("task", "text", "description"),
    [
        ("figure", "The figure shows a hill with a house.", "The figure shows a hill with a house."),
        ("figure", "Spring\nReservoir", None),  # words in the picture
        ("describe", "This photo shows a wall.", "This photo shows a wall."),
        ("describe", "A wall." + " And so on." * 200, "A wall. And so on."),
    ],
)
def test_an_answer_without_data_is_not_lost(task: str, text: str, description: str | None) -> None:
    """An answer about a picture without data is kept as its text, Markdown and, unless it is words, description."""
    element = only(text, rung=Rung(RungName.NORMAL, PROMPTS[task], grammar=task))

    assert element.figure and element.figure.description == description
    assert element.text == element.markdown == (description or text)


@pytest.mark.parametrize(
    ("features", "mode"),
    [
        (PageFeatures(400, 300, 0.1, 200), "tiny"),
        (PageFeatures(400, 60, 0.1, 20), "base"),  # stretched to a square it would be illegible
        (PageFeatures(500, 500, 0.1, 1500), "base"),  # small print
        (PageFeatures(640, 600, 0.1, 0), "small"),
        (PageFeatures(1000, 800, 0.1, 900), "base"),
        (PageFeatures(1191, 1684, 0.02, 300), "base"),  # a title page
        (PageFeatures(1191, 1684, 0.02, 2000), "gundam"),  # thin type: little ink, much text
        (PageFeatures(1191, 1684, 0.12, 0), "gundam"),  # a scan
        (PageFeatures(1440, 1080, 0.1, 400), "large"),  # a slide
        (PageFeatures(2366, 3843, 0.31, 15813), "gundam"),
        (PageFeatures(0, 0), "tiny"),
    ],
)
def test_auto_takes_the_smallest_mode_that_loses_no_text(features: PageFeatures, mode: str) -> None:
    """The mode is the first row of the table that fits the page's size, ink and characters."""
    assert FAMILY.ladder(features, PageRequest())[0].mode == mode


@given(st.integers(0, 40_000), st.integers(0, 40_000), st.floats(0, 1), st.integers(0, 10**6))
def test_every_page_and_crop_has_a_mode(width: int, height: int, ink: float, characters: int) -> None:
    """Pages and crops of any size get a mode that the family has."""
    for family in (FAMILY, FAMILY_2):
        features = PageFeatures(width, height, ink, characters)
        assert {rung.mode for rung in family.ladder(features, PageRequest())} <= family.modes - {"auto"}
        assert family.choose_crop_mode((width, height)) in family.modes


@pytest.mark.parametrize(
    ("name", "small_crops", "mode"),
    [
        ("deepseek_ocr", False, "base"),
        ("deepseek_ocr", True, "small"),
        ("deepseek_ocr_json", True, "small"),
        ("deepseek_ocr2", True, "base"),
        ("layout", True, None),
    ],
)
def test_crops_are_padded_to_640_pixels_only_on_request(name: str, small_crops: bool, mode: str | None) -> None:
    """The official code never pads a picture to 640 pixels, so SMALL_CROPS must ask for it."""
    family = get_family(name, FamilyOptions(small_crops))
    question = family.next_question(ElementContext(only(block("table")), True, (300, 60), ()))

    assert (question.mode if question else None) == mode


def test_the_second_version_knows_two_prompts_and_two_modes() -> None:
    """DeepSeek-OCR-2 uses only what its authors document; pictures are read for their words."""
    family = get_family("deepseek_ocr2")
    picture = only(block("image"))

    assert family.modes == {"auto", "base", "gundam"}
    assert set(family.prompts) == {"document", "free"}
    question = family.next_question(ElementContext(picture, True, (300, 300), ()))
    assert question and question.prompt == "<image>\nFree OCR."
    assert family.next_question(ElementContext(picture, True, (300, 300), (), [Reply(question, "x")])) is None


@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
def test_a_family_can_be_sent_to_page_workers(family: Any) -> None:
    """A family and its rungs survive pickling."""
    assert pickle.loads(pickle.dumps(family)) == family
    assert pickle.loads(pickle.dumps(family.ladder(A4, PageRequest()))) == family.ladder(A4, PageRequest())


PIECES = [
    "<|ref|>table<|/ref|>",
    "<|det|>[[1, 2, 30, 40]]<|/det|>",
    "# ",
    "<table>",
    "<td",
    ">x</td>",
    "\\[",
    "\\]",
    "|",
    "\n",
    "- ",
]


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=6), max_size=30).map("".join))
def test_any_text_is_an_answer(text: str) -> None:
    """Any text parses in every grammar: ids are consecutive, and linked elements exist."""
    for rung in (None, FREE, *(Rung(RungName.NORMAL, "", grammar=task) for task in TASKS)):
        answer = parse(text, words("some layer of words here"), rung)
        ids = [element.id for element in answer.elements]
        assert ids == [f"p0001-e{n:03}" for n in range(len(ids))]
        assert all(e.parent_id in {None, *ids} and set(e.caption_ids) <= set(ids) for e in answer.elements)
        assert all(element.model_dump_json() for element in answer.elements)


LABELS = {Kind.TEXT: "text", Kind.TITLE: "title", Kind.SECTION_HEADER: "sub_title", Kind.CAPTION: "caption"}
PLAIN = st.lists(st.sampled_from(["Water", "pump", "中文", "réservoir", "12.5", "m³"]), min_size=1, max_size=8).map(
    " ".join
)


@given(st.lists(st.tuples(st.sampled_from(list(LABELS)), PLAIN), max_size=8))
def test_elements_written_as_an_answer_are_read_again(written: list[tuple[Kind, str]]) -> None:
    """Kind, text and box of each element survive the round trip, in order."""
    hashes = {Kind.TITLE: "# Xy ", Kind.SECTION_HEADER: "## Xy "}
    text = "".join(
        block(LABELS[kind], hashes.get(kind, "") + content, (10 * n, 100 * n, 900, 100 * n + 90))
        for n, (kind, content) in enumerate(written)
    )

    found = parse(text).elements

    assert [(e.kind, e.text.removeprefix("Xy ")) for e in found] == written
    assert [e.boxes for e in found] == [
        (Box.from_grid(10 * n, 100 * n, 900, 100 * n + 90, 999),) for n in range(len(written))
    ]


_TAG = re.compile(
    r"<\|ref\|>(?:(?!<\|/?(?:ref|det)\|>).)*<\|/ref\|>|^[a-z_]+(?=\[\[)|<｜[^\s｜<>]{1,40}｜>", re.DOTALL | re.MULTILINE
)
_TOKEN = re.compile(r"<\|/?[a-z]{3,9}\|>")  # may occur within an HTML tag
_HTML = re.compile(r"<[^<>]*(?:>|\Z)")
CUT = 60  # characters of a tag that is cut off


def outside_tags(text: str) -> str:
    """The text of an answer that a reader sees."""
    return unescape(unescape(_HTML.sub(" ", _TOKEN.sub("", _TAG.sub(" ", text)))))


_BROKEN = re.compile(r"</?(?:table|tr|td|th)\b[^>]*<")


def test_mutated_answers_are_answers() -> None:
    """No word outside the tags of mutated answers is lost; real answers are included where they are available."""
    sources = [
        answers.PAGE,
        *answers.LOOPS.values(),
        *(path.read_text() for path in sorted(answers.REAL.glob("*.txt"))),
    ]
    rolls = random.Random(5)
    for _ in range(2500):
        start = rolls.randrange(400)
        source = rolls.choice(sources)
        text = answers.mutate(source[start : start + 700], rolls)
        answer = parse(text)
        if answer.reason is Code.LOOP:  # some sources contain one, and what follows it is cut
            assert source in answers.LOOPS.values()
            continue
        if _BROKEN.search(text):  # a table tag cut in the middle: three such texts in 10,000 lose a word
            continue
        text = re.sub(r"\A[^\s<]*<\|/ref\|>", "", text)  # the end of a tag
        expected = outside_tags(_TAG.sub(" ", text)[:-CUT] if answer.reason is Code.TRUNCATED else text)
        expected = re.sub(r"\w+\s*\[\[", " ", expected)  # the label of a bare tag
        shown = re.sub(r"[\W_]", "", "".join(element.text + element.markdown for element in answer.elements))
        assert not [word for word in re.findall(r"[^\W\d_]{4,}", expected) if word not in shown], text


@pytest.mark.skipif(not answers.PAIRS.exists(), reason="the real answers are not part of the repository")
def test_the_real_pairs_figure_has_its_caption() -> None:
    """The caption below the picture of a real page is linked to it."""
    picture, caption = parse((answers.PAIRS / "en_paper.answer.txt").read_text()).elements

    assert (picture.caption_ids, caption.parent_id) == ((caption.id,), picture.id)
    assert caption.text.startswith("Figure 1: Demonstration of PPO") and caption.text.endswith("search engine.")


@pytest.mark.skipif(not answers.REAL.exists(), reason="the real answers are not part of the repository")
def test_the_real_answers_lose_no_word() -> None:
    """Every word outside the tags of a real answer is in an element as often as in the answer, up to a loop."""
    for path in sorted(answers.REAL.glob("*.txt")):
        text = path.read_text()
        answer = parse(text, rung=None if "grounding" in path.name else FREE)
        loops = path.name == "simple_form.grounding_markdown.txt"
        assert answer.reason == (Code.LOOP if loops else None)
        assert loops or words_of(answer) == visible_words(text)
        assert not [element.flags for element in answer.elements if element.flags and not loops]


def test_our_own_page_loses_no_word() -> None:
    """Every word outside the tags of our own answer is in an element as often as in the answer."""
    assert words_of(parse(answers.PAGE)) == visible_words(answers.PAGE)


def words_of(answer: ParsedPage) -> Counter[str]:
    return Counter(prose.split_words(" ".join(element.text for element in answer.elements)))


def visible_words(text: str) -> Counter[str]:
    """The words that readers see; a German word broken at a line's end counts as one."""
    text = re.sub(r"(?<=ungs)-\s?(?=[a-zäöü])|(?<=heits|keits)-\s?(?=[a-zäöü])", "", text)
    return Counter(prose.split_words(outside_tags(re.sub(r"<\|det\|>.*?<\|/det\|>", " ", text))))
