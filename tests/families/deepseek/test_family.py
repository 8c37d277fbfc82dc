"""What the DeepSeek-OCR family asks, and what elements it makes of answers."""

from __future__ import annotations

import pickle
import random
import re
from collections import Counter
from html import unescape
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import answers
from tests.fakes.answers import TABLE, block
from twopass.document import Box, Category, Element, Kind, Layer, Word
from twopass.errors import Code
from twopass.families.deepseek.elements import kind_of
from twopass.families.deepseek.family import CROP_MODES, DEEPSEEK_OCR, DEEPSEEK_OCR_2, PROMPTS, crop_mode, page_mode
from twopass.families.interface import Answer, Asked, Look, Reply, Rung
from twopass.families.registry import FAMILIES, named
from twopass.pages.text_layer import TextLayer
from twopass.text import prose

FAMILY = DEEPSEEK_OCR
A4 = Look(1191, 1684, ink=0.15, characters=2800)
FREE = Rung("free", PROMPTS["free"], reads="plain")


def parse(text: str, layer: tuple[Word, ...] = (), rung: Rung | None = None) -> Answer:
    return FAMILY.parse(text, 1, rung or FAMILY.ladder(A4, Asked())[0], TextLayer.of(layer))


def only(text: str, **fields: Any) -> Element:
    (element,) = parse(text, **fields).elements
    return element


# label and content -> the fields that must come of it
QUIRKS: dict[str, tuple[str, dict[str, Any]]] = {
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
    "breaks": (block("text", "a<br>b"), {"text": "a\nb"}),
    "hyphens": (
        block("text", "a daisy- chain, 01- C, Ein- und Ausgang"),
        {"text": "a daisy-chain, 01-C, Ein- und Ausgang"},
    ),
    "a word broken at a line's end": (
        block("text", "des Einführungs- gesetzes, der Gesellschafts-\nform, der Freiheits-beraubung"),
        {"text": "des Einführungsgesetzes, der Gesellschaftsform, der Freiheitsberaubung"},
    ),
    "hyphens that are spelt": (
        block(
            "text",
            "Bildungs- und Kulturamt, Zahlungs- bzw. Lieferfrist, rot- grün, Reichs-militär, Leitungs- A, lungs- x",
        ),
        {"text": "Bildungs- und Kulturamt, Zahlungs- bzw. Lieferfrist, rot-grün, Reichs-militär, Leitungs-A, lungs-x"},
    ),
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


@pytest.mark.parametrize(("text", "fields"), QUIRKS.values(), ids=QUIRKS)
def test_every_quirk_has_its_element(text: str, fields: dict[str, Any]) -> None:
    """What the model has been seen to write, and what people mean by it."""
    element = only(text)

    assert {name: getattr(element, name) for name in fields} == fields


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
def test_unknown_labels_are_told_by_what_is_in_them(label: str | None, kind: Kind) -> None:
    """Labels by what they contain, with captions and notes before what they belong to."""
    assert kind_of(label) is kind


def test_a_page_of_everything() -> None:
    """The interposed caption gives its table back; captions know their owners; maths and money are apart."""
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
    """HTML that nobody announced is a table without a box; a tag alone is a table that pass 2 must read."""
    lone, tagged = parse(block("text", f"before {TABLE} after") + block("table", "")).elements[1], None
    found = parse(block("text", f"before {TABLE} after") + block("table", "")).elements

    assert [(e.kind, e.text[:6], bool(e.boxes), e.flags) for e in found] == [
        (Kind.TEXT, "before", True, ()),
        (Kind.TABLE, "Pump F", False, ("untagged",)),
        (Kind.TEXT, "after", False, ("untagged",)),
        (Kind.TABLE, "", True, ()),
    ]
    assert lone.table and tagged is None


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("a&lt;b and c&gt;d", "a<b and c>d"),
        ("use &lt;td&gt; here", "use <td> here"),
        ("1&lt;i, j&amp;gt;2", "1<i, j>2"),
        ("5 < 6 &amp;amp; up", "5 < 6 & up"),
        ("\\( a \\coloneqq b \\)", "\\( a := b \\)"),
    ],
)
def test_a_cells_entities_are_no_tags(cell: str, said: str) -> None:
    """Of a table and of a chart's data: what is escaped is text, however often."""
    told = f"<table><tr><td>{cell}</td><td>n</td></tr></table>"
    table = only(block("table", told)).table
    figure = FAMILY.reread(only(block("image")), [Reply(told, PROMPTS["figure"])]).figure

    assert table and [found.text for found in table.cells] == [said, "n"]
    assert figure and figure.data == table


def test_an_escaped_table_in_prose_is_prose() -> None:
    """A text about HTML says its tags."""
    assert only(block("text", "write &lt;table&gt; and &lt;td&gt;")).text == "write <table> and <td>"


OTHER = TABLE.replace("Pump", "Valve")


def test_html_under_a_tag_of_its_own_is_the_tables() -> None:
    """A table's tag, then a text that is only its HTML: one table, in both boxes."""
    (one,) = parse(block("table", "", (1, 2, 900, 400)) + block("text", TABLE, (1, 410, 900, 430))).elements
    apart = parse(block("table") + block("text", "a") + block("text", TABLE)).elements

    assert [bool(e.table) for e in parse(block("table") + block("table", TABLE)).elements] == [False, True]
    assert (one.native_label, one.table and one.table.rows, len(one.boxes)) == ("table", 2, 2)
    assert [(e.kind, bool(e.table)) for e in apart] == [
        (Kind.TABLE, False), (Kind.TEXT, False), (Kind.TABLE, True),
    ]  # fmt: skip


def test_tables_below_their_tags_keep_their_order() -> None:
    """Two tags and two tables: the first is the first's; one table alone is the nearest tag's."""
    tags = block("table", "", (1, 2, 900, 100)) + block("table", "", (1, 200, 900, 400))
    two = parse(tags + block("table_caption", f"Both\n{TABLE}{OTHER}", (1, 410, 900, 430))).elements
    one = parse(tags + block("table_caption", f"One\n{TABLE}", (1, 410, 900, 430))).elements

    assert [element.text.split()[0] for element in two if element.kind is Kind.TABLE] == ["Pump", "Valve"]
    assert [element.text.split()[:1] for element in one if element.kind is Kind.TABLE] == [[], ["Pump"]]


def test_two_tables_with_crossed_captions_find_their_owners() -> None:
    """By white space, not by order alone: a caption above and one below."""
    first = block("table_caption", "Table 1: a", (100, 80, 900, 98)) + block("table", TABLE, (100, 100, 900, 200))
    second = block("table", TABLE, (100, 300, 900, 400)) + block("table_caption", "Table 2: b", (100, 402, 900, 420))
    one, above, below, two = parse(first + second).elements

    assert (one.parent_id, two.parent_id) == (above.id, below.id)


def test_a_tables_footnote_is_tied_to_it() -> None:
    """table_footnote belongs to the table; a page's footnote is left to the document."""
    table, note, foot = parse(
        block("table", TABLE, (100, 100, 900, 200))
        + block("table_footnote", "* est.", (100, 202, 900, 215))
        + block("footnote", "1 See x.")
    ).elements

    assert (note.kind, note.parent_id, foot.parent_id) == (Kind.FOOTNOTE, table.id, None)


def test_a_heading_glued_to_the_next_paragraph_is_cut() -> None:
    """Only to the letter, only without a blank between: a paragraph that begins like its heading keeps its words."""
    heads = block("sub_title", "## 4. Evaluation") + block("sub_title", "### 4.1. Compression Study")
    glued = parse(heads + block("text", "4. Evaluation4.1. Compression StudyWe select pages.")).elements[-1]
    legit = parse(block("sub_title", "## Results") + block("text", "Results show that.")).elements[-1]

    assert (glued.text, glued.markdown, glued.flags) == ("We select pages.", "We select pages.", ("heading_repeated",))
    assert (legit.text, legit.flags) == ("Results show that.", ())


def test_text_without_a_box_is_ungrounded() -> None:
    """Kept paragraph by paragraph; on the last rung it is an answer."""
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
    """Whether an inked page may be empty is the ladder's question."""
    assert parse(text) == Answer()


def test_a_cut_tag_is_truncated_and_the_last_element_doubtful() -> None:
    """Nothing before it is lost."""
    answer = parse(answers.PAGE + "<|ref|>text<|/ref|><|det|>[[520")

    assert answer.reason is Code.TRUNCATED
    assert len(answer.elements) == 9 and answer.elements[-1].flags == ("cut_off", "doubtful")


@pytest.mark.parametrize("text", answers.LOOPS.values(), ids=answers.LOOPS)
def test_a_looping_answer_keeps_what_came_before(text: str) -> None:
    """The page's nine elements, and at most the loop's first rounds."""
    answer = parse(text)

    assert answer.reason is Code.LOOP
    assert [e.text for e in answer.elements[:9]] == [e.text for e in parse(answers.PAGE).elements]
    assert len(answer.elements) <= 12
    assert any("loop" in element.flags for element in answer.elements)


def words(text: str, y: float = 0.15) -> tuple[Word, ...]:
    """A line of a text layer."""
    return tuple(Word(Box(0.1 + 0.02 * n, y - 0.01, 0.115 + 0.02 * n, y + 0.01), w) for n, w in enumerate(text.split()))


def test_the_text_layer_is_a_witness() -> None:
    """What it knows is sure, what it does not know is doubtful, and it changes no text."""
    layer = words("The pump was read on Monday")

    known = only(block("text", "The pump was read on Monday"), layer=layer)
    strange = only(block("text", "Tne qump vas reab no Nonday"), layer=layer)

    assert known.confidence and (known.confidence.score, known.confidence.method, known.flags) == (
        1.0,
        "text_layer",
        (),
    )
    assert strange.flags == ("not_in_text_layer", "doubtful") and strange.text == "Tne qump vas reab no Nonday"


def test_a_stamp_on_a_scan_is_no_witness() -> None:
    """A layer that says far less than was read knows nothing of the page."""
    element = only(block("text", "The meter of the pump was read on Monday by both of them " * 3), layer=words("Draft"))

    assert (element.confidence, element.flags) == (None, ())


def test_a_layer_of_garbage_is_no_witness() -> None:
    """Fonts that lie accuse nobody."""
    element = only(
        block("text", "The pump was read"), layer=words("\ue001\ue002 \ue003\ue004 \ue005\ue006 \ue007\ue008")
    )

    assert element.flags == ()


def test_the_ladder_goes_on_with_a_changed_condition() -> None:
    """Tighter ban and some chance; another mode; no boxes."""
    rungs = FAMILY.ladder(A4, Asked())

    assert [(r.name, r.mode, r.reads) for r in rungs] == [
        ("normal", "gundam", "document"),
        ("again", "gundam", "document"),
        ("mode", "large", "document"),
        ("free", "gundam", "plain"),
    ]
    assert dict(rungs[1].sampling) == {"temperature": 0.2, "ngram": 10, "window": 256}
    assert [r.mode for r in FAMILY.ladder(A4, Asked("base"))][:3] == ["base", "base", "gundam"]


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
    """Word for word, on every rung."""
    assert {rung.prompt for rung in FAMILY.ladder(A4, Asked(task=task, prompt=prompt))} == {text}


# task, answer -> kind, text, boxes
TASKS = {
    "image": (block("Pay 5 €", "", (1, 2, 300, 40)) + block("now", "", (1, 50, 300, 90)), Kind.TEXT, "Pay 5 €\nnow", 2),
    "free": ("# Hi\n\nyou", Kind.TEXT, "# Hi\n\nyou", 0),
    "locate": (block("the seal", "", "[[1, 2, 30, 40], [50, 60, 70, 80]]"), Kind.TEXT, "the seal", 2),
    "custom": (block("text", "It was me."), Kind.TEXT, "It was me.", 1),
    "figure": (TABLE, Kind.CHART, "", 0),
    "describe": ("This photo shows a wall.", Kind.PICTURE, "This photo shows a wall.", 0),
}


@pytest.mark.parametrize("task", TASKS)
def test_other_tasks_give_one_element(task: str) -> None:
    """With its text and boxes; what was empty is nothing."""
    text, kind, said, boxes = TASKS[task]
    element = only(text, rung=Rung("normal", PROMPTS.get(task, "<image>\nx"), reads=task))

    assert (element.kind, element.text, len(element.boxes), element.read_by) == (kind, said, boxes, 1)
    assert not parse("", rung=Rung("normal", "", reads=task)).elements


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
    """It is the picture's description, text and Markdown."""
    element = only(text, rung=Rung("normal", PROMPTS[task], reads=task))

    assert element.figure and element.figure.description == description
    assert element.text == element.markdown == (description or text)


@pytest.mark.parametrize(
    ("look", "mode"),
    [
        (Look(400, 300, 0.1, 200), "tiny"),
        (Look(400, 60, 0.1, 20), "base"),  # stretched to a square it would be illegible
        (Look(500, 500, 0.1, 1500), "base"),  # small print
        (Look(640, 600, 0.1, 0), "small"),
        (Look(1000, 800, 0.1, 900), "base"),
        (Look(1191, 1684, 0.02, 300), "base"),  # a title page
        (Look(1191, 1684, 0.02, 2000), "gundam"),  # thin type: little ink, much text
        (Look(1191, 1684, 0.12, 0), "gundam"),  # a scan
        (Look(1440, 1080, 0.1, 400), "large"),  # a slide
        (Look(2366, 3843, 0.31, 15813), "gundam"),
        (Look(0, 0), "tiny"),
    ],
)
def test_auto_takes_the_smallest_mode_that_loses_no_text(look: Look, mode: str) -> None:
    """By size, ink and the text layer, from one table."""
    assert page_mode(look) == mode


@given(st.integers(0, 40_000), st.integers(0, 40_000), st.floats(0, 1), st.integers(0, 10**6))
def test_every_page_and_crop_has_a_mode(width: int, height: int, ink: float, characters: int) -> None:
    """Whatever its size; and the one asked for stands."""
    for family in (DEEPSEEK_OCR, DEEPSEEK_OCR_2):
        look = Look(width, height, ink, characters)
        assert {rung.mode for rung in family.ladder(look, Asked())} <= family.modes - {"auto"}
        assert crop_mode((width, height), family.crop_modes) in family.modes
    assert crop_mode((300, 60), CROP_MODES) == "small"


def test_the_second_version_knows_two_prompts_and_two_modes() -> None:
    """Only what its authors document; pictures are read for their words."""
    family = named("deepseek_ocr2")
    picture = only(block("image"))

    assert family.modes == {"auto", "base", "gundam"}
    assert set(family.prompts) == {"document", "free"}
    question = family.question(picture, True, (300, 300), ())
    assert question and question.prompt == "<image>\nFree OCR."
    assert family.question(picture, True, (300, 300), (), [Reply("x", "")]) is None


@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
def test_a_family_travels_to_page_workers(family: Any) -> None:
    """With its rungs."""
    assert pickle.loads(pickle.dumps(family)) == family
    assert pickle.loads(pickle.dumps(family.ladder(A4, Asked()))) == family.ladder(A4, Asked())


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
    """Of every grammar; ids count, boxes lie on the page, and whoever is named exists."""
    for rung in (None, FREE, *(Rung("normal", "", reads=task) for task in TASKS)):
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
def test_elements_written_as_an_answer_are_read_again(told: list[tuple[Kind, str]]) -> None:
    """Kind, text and box of each, in order."""
    hashes = {Kind.TITLE: "# Xy ", Kind.SECTION_HEADER: "## Xy "}
    text = "".join(
        block(LABELS[kind], hashes.get(kind, "") + said, (10 * n, 100 * n, 900, 100 * n + 90))
        for n, (kind, said) in enumerate(told)
    )

    found = parse(text).elements

    assert [(e.kind, e.text.removeprefix("Xy ")) for e in found] == told
    assert [e.boxes for e in found] == [
        (Box.from_grid(10 * n, 100 * n, 900, 100 * n + 90, 999),) for n in range(len(told))
    ]


_TAG = re.compile(
    r"<\|ref\|>(?:(?!<\|/?(?:ref|det)\|>).)*<\|/ref\|>|^[a-z_]+(?=\[\[)|<｜[^\s｜<>]{1,40}｜>", re.DOTALL | re.MULTILINE
)
_TOKEN = re.compile(r"<\|/?[a-z]{3,9}\|>")  # may stand within an HTML tag
_HTML = re.compile(r"<[^<>]*(?:>|\Z)")
CUT = 60  # characters of a tag that breaks off


def outside_tags(text: str) -> str:
    """What an answer says to people."""
    return unescape(unescape(_HTML.sub(" ", _TOKEN.sub("", _TAG.sub(" ", text)))))


_BROKEN = re.compile(r"</?(?:table|tr|td|th)\b[^>]*<")


def test_ten_thousand_mutations_are_ten_thousand_answers() -> None:
    """Real ones where somebody has them, and our own: no word outside their tags is lost."""
    sources = [
        answers.PAGE,
        *answers.LOOPS.values(),
        *(path.read_text() for path in sorted(answers.REAL.glob("*.txt"))),
    ]
    rolls = random.Random(5)
    for _ in range(10_000):
        start = rolls.randrange(400)
        source = rolls.choice(sources)
        text = answers.mutated(source[start : start + 700], rolls)
        answer = parse(text)
        if answer.reason is Code.LOOP:  # rightly, now and then: what follows it is cut off
            assert source in answers.LOOPS.values()
            continue
        if _BROKEN.search(text):  # a table's tag cut in its middle: of three such texts in 10,000 a word is lost
            continue
        told = outside_tags(_TAG.sub(" ", text)[:-CUT] if answer.reason is Code.TRUNCATED else text)
        told = re.sub(r"\w+\s*\[\[", " ", told)  # the bare form of a tag: its label
        shown = re.sub(r"[\W_]", "", "".join(element.text + element.markdown for element in answer.elements))
        assert not [word for word in re.findall(r"[^\W\d_]{4,}", told) if word not in shown], text


@pytest.mark.skipif(not answers.PAIRS.exists(), reason="real answers are not beside the repository")
def test_the_real_pairs_figure_has_its_caption() -> None:
    """One picture of a paper, and the caption below it."""
    picture, caption = parse((answers.PAIRS / "en_paper.answer.txt").read_text()).elements

    assert (picture.caption_ids, caption.parent_id) == ((caption.id,), picture.id)
    assert caption.text.startswith("Figure 1: Demonstration of PPO") and caption.text.endswith("search engine.")


@pytest.mark.skipif(not answers.REAL.exists(), reason="real answers are not beside the repository")
def test_the_real_answers_lose_no_word() -> None:
    """Every word outside the tags is in an element as often as it was told, up to a loop."""
    for path in sorted(answers.REAL.glob("*.txt")):
        text = path.read_text()
        answer = parse(text, rung=None if "grounding" in path.name else FREE)
        loops = path.name == "simple_form.grounding_markdown.txt"
        assert answer.reason == (Code.LOOP if loops else None)
        assert loops or said(answer) == heard(text)
        assert not [element.flags for element in answer.elements if element.flags and not loops]


def test_our_own_page_loses_no_word() -> None:
    """The same of an answer that everybody has."""
    assert said(parse(answers.PAGE)) == heard(answers.PAGE)


def said(answer: Answer) -> Counter[str]:
    return Counter(prose.words(" ".join(element.text for element in answer.elements)))


def heard(text: str) -> Counter[str]:
    """Halves of a German word that a line's end broke are one."""
    text = re.sub(r"(?<=ungs)-\s?(?=[a-zäöü])|(?<=heits|keits)-\s?(?=[a-zäöü])", "", text)
    return Counter(prose.words(outside_tags(re.sub(r"<\|det\|>.*?<\|/det\|>", " ", text))))
