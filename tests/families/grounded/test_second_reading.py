"""Pass 2 of the DeepSeek-OCR family: the next question, the reading that is used, and what figures become."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import documents
from tests.fakes.answers import TABLE, block
from tests.fakes.recorded import html
from twopass.document import Category, Element, Figure, Formula, Kind, Source
from twopass.families import agreement, content, table_parser
from twopass.families.deepseek import PROMPTS, QUESTION_PROMPTS
from twopass.families.grounded import elements, figures
from twopass.families.grounded.second_reading import QuestionName
from twopass.families.interface import ElementContext, Question, Reply
from twopass.families.registry import FAMILIES
from twopass.text import table_markup

FAMILY = FAMILIES["deepseek_ocr"]
SENTENCE = "The meter of the pump was read on Monday and entered in the log book."
SIZE = (400, 300)


def element(kind: str, text: str = "", *flags: str, **fields: Any) -> Element:
    return documents.element(kind, text, markdown=text, flags=flags, **fields)


def picture(**fields: Any) -> Element:
    return element("picture", figure=Figure(), **fields)


def reply(text: str, name: str = "text", finish_reason: str = "stop", layer_text: str | None = None) -> Reply:
    return Reply(Question(name, QUESTION_PROMPTS[QuestionName(name)]), text, finish_reason, layer_text)


def apply(before: Element, *replies: Reply) -> Element:
    return FAMILY.apply_replies(before, replies)


@pytest.mark.parametrize(
    ("before", "ask_all", "prompt"),
    [
        (element("table"), False, "document"),
        (picture(), False, "figure"),
        (element("formula", "x"), False, "free"),
        (element("text", SENTENCE, "doubtful"), False, "free"),
        (element("section_header", "1 A", "doubtful"), False, "free"),
        (element("text", SENTENCE), False, None),
        (element("text", SENTENCE), True, "free"),
        (element("caption", SENTENCE), True, "free"),
    ],
)
def test_every_kind_is_asked_the_prompt_that_the_model_knows(
    before: Element, ask_all: bool, prompt: str | None
) -> None:
    """Tables are read as documents, pictures as figures, the rest without boxes; sound text only with `ask_all`."""
    question = FAMILY.next_question(ElementContext(before, ask_all, SIZE, ()))

    assert (question.prompt if question else None) == (PROMPTS[prompt] if prompt else None)


def test_a_crop_that_shows_nothing_is_not_asked_about() -> None:
    """A crop smaller than MIN_CROP_SIDE shows a rule or a dot, so no question is asked about it."""
    assert FAMILY.next_question(ElementContext(picture(), True, (400, 17), ())) is None


MOLECULE = "CC(=O)Oc1ccccc1C(=O)O"
# the replies so far -> whether a figure is described next, with figure_descriptions all, charts and none
DESCRIBED = {
    "nothing yet": ((), None),
    "words": (("A label",), (True, False, False)),
    "nothing": (("",), (True, False, False)),
    "data": ((TABLE,), (True, True, False)),
    "a molecule": ((MOLECULE,), (True, False, False)),
    "a description": ((TABLE, "A photo."), (False, False, False)),
}


@pytest.mark.parametrize(("answers", "described"), DESCRIBED.values(), ids=DESCRIBED)
def test_a_picture_is_parsed_and_then_described(answers: tuple[str, ...], described: tuple[bool, ...] | None) -> None:
    """Every picture is asked for data once, and then, as the job chooses, for a description once."""
    replies = [reply(text, "figure_data") for text in answers]
    asked = [
        FAMILY.next_question(ElementContext(picture(), False, SIZE, (), replies, name))
        for name in ("all", "charts", "none")
    ]

    wanted = ["figure"] * 3 if described is None else ["describe" if wanted else None for wanted in described]
    assert [question and question.prompt for question in asked] == [name and PROMPTS[name] for name in wanted]


def test_a_chart_without_data_is_still_a_chart() -> None:
    """What pass 1 labels as a chart is described with `charts`, even if no data was found in it."""
    chart = element("chart", figure=Figure())

    question = FAMILY.next_question(ElementContext(chart, False, SIZE, (), [reply("", "figure_data")], "charts"))

    assert question and question.prompt == PROMPTS["describe"]


# the reading of pass 1, the reply of pass 2 -> the pass that is used, the flags it must have
VERDICTS = {
    "cut": (SENTENCE, reply("The meter", finish_reason="length"), 1, {"pass2_cut"}),
    "stopped as a loop": (SENTENCE, reply(SENTENCE, finish_reason="loop"), 1, {"pass2_loop"}),
    "loops": (SENTENCE, reply("The meter of " * 200), 1, {"pass2_loop"}),
    "empty": (SENTENCE, reply(" \n"), 1, {"pass2_empty"}),
    "only tags": (SENTENCE, reply("<|ref|>text<|/ref|>"), 1, {"pass2_empty"}),
    "nothing before": ("", reply(SENTENCE), 2, set()),
    "the same": (SENTENCE, reply(SENTENCE), 2, set()),
    "nearly the same": (SENTENCE, reply(SENTENCE.replace("Monday", "Mondav")), 2, set()),
    "a word more": (SENTENCE, reply(SENTENCE + " again."), 2, set()),
    "a little more": (SENTENCE, reply(SENTENCE + " Both signed it."), 2, {"pass2_disagrees"}),
    "its neighbour": (SENTENCE, reply(SENTENCE + " Both operators signed it in the evening."), 1, {"pass2_disagrees"}),
    "something else": (SENTENCE, reply("The weather is fine today in the north."), 1, {"pass2_disagrees"}),
    "less": (SENTENCE, reply("The meter of the pump."), 1, {"pass2_disagrees"}),
    "cleaner": ("Th\ufffd m\ufffdt\ufffdr \ufffdf a w\ufffdll", reply("The meter of a well"), 2, {"pass2_disagrees"}),
    "layer for pass 2": ("Tbe rneter ol tbe qump vas", reply(SENTENCE, layer_text=SENTENCE), 2, {"pass2_disagrees"}),
    "layer for pass 1": (
        SENTENCE,
        reply("Tbe rneter ol tbe qump vas reab", layer_text=SENTENCE),
        1,
        {"pass2_disagrees"},
    ),
    "layer for both": (SENTENCE, reply(SENTENCE, layer_text=SENTENCE), 1, set()),
    "a layer of one word": (SENTENCE, reply(SENTENCE, layer_text="Draft"), 2, set()),
}


@pytest.mark.parametrize(("first", "second", "read_by", "flags"), VERDICTS.values(), ids=VERDICTS)
def test_the_better_reading_is_used(first: str, second: Reply, read_by: int, flags: set[str]) -> None:
    """Each row of the table in second_reading.py holds: a worse second reading never replaces the first."""
    after = apply(element("text", first, "doubtful"), second)

    assert after.read_by == read_by
    assert after.text == (first if read_by == 1 else second.text)
    assert {flag for flag in after.flags if flag.startswith("pass2")} == flags
    assert ("doubtful" in after.flags) == (read_by == 1)


# kind, the readings of pass 1 and pass 2, neither doubtful -> the pass that is used, whether they differ
SURE = {
    "marks": ("text", "**Note**: see [the log](http://a.b) of the pump", "Note: see the log of the pump", 1, True),
    "maths": ("text", "The value \\( x_1 \\) of the pump is higher", "The value x1 of the pump is higher", 1, False),
    "lines of a list": ("list_item", "- the pump\n- the valve\n- the tank", "the pump the valve the tank", 1, True),
    "lines of code": ("code", "def f(x):\n    return x", "def f(x): return x", 1, False),
    "the text below a heading": ("section_header", "3 Results", "3 Results\nThe yield", 1, True),
    "a little below a heading": ("section_header", "3 Results of Pumps", "3 Results of Pumps now", 1, True),
    "the heading below a caption": ("caption", "See Table 3 here.", "See Table 3 here.\n4 All", 1, True),
    "a number not seen": ("formula", "\\[ a = b \\tag{1} \\]", "\\[ a = b \\]", 1, False),
    "a number after it not seen": ("formula", "\\[ a = b \\] \\quad (1)", "\\[ a = b \\]", 1, False),
    "the text below a formula": ("formula", "\\[ a = b \\]", "\\[ a = b \\]\nwhere a is long", 1, True),
    "a formula": ("formula", "\\[ a = b \\]", "\\[ a=b \\]", 2, False),
}


@pytest.mark.parametrize(("kind", "first", "second", "read_by", "differs"), SURE.values(), ids=SURE)
def test_a_sound_reading_keeps_its_marks(kind: str, first: str, second: str, read_by: int, differs: bool) -> None:
    """A second reading that agrees only sets the confidence; text beside the element in its crop is not used."""
    before = elements.with_content(element(kind), first)
    after = apply(before, reply(second))

    assert (after.read_by, "pass2_disagrees" in after.flags) == (read_by, differs)
    assert after.confidence and after.confidence.method == "agreement"
    assert (after.text, after.markdown) == (before.text, before.markdown) or read_by == 2


ROWS = [["Name", "Qty", "Price"], *([f"item {n}", str(n), f"{n}.50"] for n in range(10))]
SPANS = (
    '<table><tr><td rowspan="2">Region</td><td colspan="2">Sales</td></tr>'
    "<tr><td>2023</td><td>2024</td></tr><tr><td>North</td><td>10</td><td>20</td></tr></table>"
)
# the tables of pass 1 and pass 2 -> the pass that is used
SHAPES = {
    "one column": (html(ROWS), html([" ".join(row)] for row in ROWS), 1),
    "one row": (html(ROWS), html([sum(ROWS, [])]), 1),
    "turned": (html(ROWS), html(zip(*ROWS, strict=True)), 1),
    "no spans": (SPANS, SPANS.replace(' rowspan="2"', "").replace(' colspan="2"', ""), 1),
    "the same": (SPANS, SPANS, 2),
    "empty cells filled": (html([["", ""]]), html(ROWS), 2),
    "words only": ("\n".join(" ".join(row) for row in ROWS), html(ROWS), 2),
    "words only, a row": ("\n".join(" ".join(row) for row in ROWS), html(ROWS[:1]), 1),
}


@pytest.mark.parametrize(("first", "second", "read_by"), SHAPES.values(), ids=SHAPES)
def test_a_table_keeps_its_shape_and_words(first: str, second: str, read_by: int) -> None:
    """Pass 2 may correct cells but not drop any; a different shape is flagged as a disagreement."""
    part = table_parser.split_tables(first)[0]
    before = content.write_table(element("table"), part.table) if part.table else element("table", part.text)
    after = apply(before, reply(second, "table"))

    assert (after.read_by, "pass2_disagrees" in after.flags) == (read_by, read_by == 1)
    assert (after.table == before.table and after.text == before.text) or read_by == 2
    assert after.confidence and (after.confidence.score < 0.9) == (read_by == 1 or not before.text)


def table_element(rows: Sequence[Sequence[str]]) -> Element:
    table = table_parser.parse_html(html(rows))
    return content.write_table(element("table"), table)


SIX_ROWS = [["Year", "Rain", "Snow"], *([str(2020 + n), f"{600 + n}", f"{70 + n}"] for n in range(5))]
CUT = SIX_ROWS[:3]
OTHER_ROWS = [*CUT[:2], ["2021", "999", "71"], *SIX_ROWS[3:]]  # a cell of pass 1 differs
NEW_ROWS = [[*row, ""] for row in SIX_ROWS[:3]]  # one column more, and nothing in it
WORDS = " ".join(sum(SIX_ROWS, []))
FEW_WORDS = " ".join(sum(CUT, []))
# the rows of pass 1 and pass 2, the words of the text layer -> the pass that is used
CUT_SHORT = {
    "the layer has all words": (CUT, SIX_ROWS, WORDS, 2),
    "the layer has the words of pass 1": (CUT, SIX_ROWS, FEW_WORDS, 1),
    "the layer prefers other cells": (CUT, OTHER_ROWS, WORDS.replace("601", "999"), 2),
    "the layer has the words of pass 2": (SIX_ROWS, CUT, FEW_WORDS, 2),
    "the layer has none of the words": (CUT, SIX_ROWS, "a stamp on a scan", 2),
    "the layer has one word": (CUT, SIX_ROWS, "Draft", 2),
    "one row of many": (SIX_ROWS * 9, [*SIX_ROWS * 9, SIX_ROWS[1]], f"{WORDS} " * 9 + "2020 600 70", 2),
    "one invented row of many": (SIX_ROWS * 9, [*SIX_ROWS * 9, SIX_ROWS[1]], f"{WORDS} " * 9, 1),
    "rows at the end": (CUT, SIX_ROWS, None, 2),
    "rows at the start": (SIX_ROWS[3:], SIX_ROWS, None, 2),
    "rows in between": ([SIX_ROWS[0], SIX_ROWS[5]], SIX_ROWS, None, 2),
    "a column": ([row[:2] for row in SIX_ROWS], SIX_ROWS, None, 2),
    "a cell that differs": (CUT, OTHER_ROWS, None, 1),
    "another order": (CUT[::-1], SIX_ROWS, None, 1),
    "only empty cells": (CUT, NEW_ROWS, None, 1),
    "all cells in one row": (CUT, [sum(SIX_ROWS, [])], None, 1),
}


@pytest.mark.parametrize(("first", "second", "layer", "read_by"), CUT_SHORT.values(), ids=CUT_SHORT)
def test_a_table_that_pass_1_cut_short_is_completed(
    first: list[list[str]], second: list[list[str]], layer: str | None, read_by: int
) -> None:
    """Of two shapes the layer chooses; where it does not, more cells win if all of pass 1 are among them."""
    before = table_element(first)
    after = apply(before, reply(html(second), "table", layer_text=layer))

    assert after.read_by == read_by
    assert after.table == (before if read_by == 1 else table_element(second)).table
    assert "pass2_disagrees" in after.flags


def test_more_rows_without_the_spans_of_pass_1_are_not_used() -> None:
    """Merged cells are part of a table's shape, so a reading without them is not the same table with more rows."""
    more = SPANS.replace("</table>", "<tr><td>South</td><td>30</td><td>40</td></tr></table>")
    flat = more.replace(' rowspan="2"', "").replace(' colspan="2"', "")
    before = content.write_table(element("table"), table_parser.parse_html(SPANS))

    assert [apply(before, reply(text, "table")).read_by for text in (more, flat)] == [2, 1]


CELLS = st.lists(st.lists(st.sampled_from(["", "1", "2", "12.5", "North"]), max_size=4), min_size=1, max_size=6)


@given(CELLS, CELLS, st.none() | st.lists(st.sampled_from(["1", "2", "12.5", "North", "South"]), max_size=9))
def test_the_table_is_always_one_that_a_pass_gave(
    first: list[list[str]], second: list[list[str]], layer: list[str] | None
) -> None:
    """Tables are never mixed, and without a text layer no cell of pass 1 is lost to another shape."""
    before, other = table_element(first), table_element(second)
    after = apply(before, reply(html(second), "table", layer_text=" ".join(layer) if layer else None))

    assert after.table in (before.table, other.table)
    assert before.table and after.table
    if layer is None and (before.table.rows, before.table.cols) != (after.table.rows, after.table.cols):
        lost = Counter(cell.text for cell in before.table.cells) - Counter(cell.text for cell in after.table.cells)
        assert not lost - Counter({"": lost[""]})


def test_agreement_is_the_confidence_and_the_prompt_is_recorded() -> None:
    """A usable reply sets confidence and analysis; a failed reply sets neither."""
    after = apply(element("text", SENTENCE), reply(SENTENCE.upper()))
    failed = apply(element("text", SENTENCE), reply(""))

    assert after.confidence and (after.confidence.score, after.confidence.method) == (1.0, "agreement")
    assert (after.analysis.source, after.analysis.prompt) == (Source.MODEL, PROMPTS["free"])
    assert (failed.analysis.source, failed.confidence) == (Source.NONE, None)


@given(st.text(max_size=60), st.text(max_size=200), st.sampled_from(["stop", "length", "loop", "abort"]))
def test_any_reply_leaves_an_element(first: str, second: str, finish: str) -> None:
    """Any reply about any kind of element gives an element, and never empties one that had text."""
    for kind in Kind:
        before = documents.element(kind, first, figure=Figure() if kind in (Kind.PICTURE, Kind.CHART) else None)
        after = apply(before, reply(second, "figure_data", finish), reply(second, "description", finish))
        assert after.id == before.id and after.boxes == before.boxes
        assert after.text or after.table or after.figure or not before.text.strip()


def test_a_heading_keeps_its_level() -> None:
    """The level of pass 1 stays: on its own crop the model writes every heading with one hash."""
    after = apply(
        element("section_header", "2.1 Purnps", "doubtful", level=3), reply("# 2.1 Pumps", layer_text="2.1 Pumps now")
    )

    assert (after.text, after.level, after.numbering, after.markdown) == ("2.1 Pumps", 3, "2.1", "### 2.1 Pumps")


def test_a_table_without_cells_gets_them() -> None:
    """They come from grounded or bare HTML; a reply without a table leaves the element as it was."""
    bare = apply(element("table"), reply(TABLE, "table"))
    grounded = apply(element("table"), reply(block("table", TABLE), "table"))
    none = apply(element("table"), reply("No table here.", "table"))

    assert bare.table == grounded.table and bare.table and bare.table.rows == 2
    assert (bare.read_by, none.read_by, none.flags) == (2, 1, ("pass2_empty",))


def test_a_table_that_lost_a_row_in_pass_2_keeps_it() -> None:
    """The table of pass 1 is used when pass 2 has fewer rows, and the element is flagged."""
    whole = table_parser.parse_html(
        TABLE.replace("</table>", "<tr><td>P-2</td><td>9.1</td></tr><tr><td>P-3</td><td>7</td></tr></table>")
    )
    before = element("table", table_markup.to_text(whole), table=whole)

    assert apply(before, reply(TABLE, "table")).table == whole
    assert "pass2_disagrees" in apply(before, reply(TABLE, "table")).flags


@pytest.mark.parametrize(("second", "flags"), [(TABLE, ()), ("", ("repeats_limited", "pass2_empty"))])
def test_a_table_that_pass_2_replaces_is_no_longer_flagged(second: str, flags: tuple[str, ...]) -> None:
    """Pass 2 reads with the usual n-gram ban, so the flag of a later rung ends with that rung's reading."""
    before = element("table", "", "repeats_limited", table=table_parser.parse_html(TABLE))

    assert apply(before, reply(second, "table")).flags == flags


def test_formulas_are_compared_by_their_latex() -> None:
    """Spaces and delimiters are ignored, and a number that only pass 2 read is kept."""
    before = element("formula", "\\[ a=b \\]", formula=Formula(latex="a=b"))

    assert apply(before, reply("\\[ a = b \\tag{2} \\]")).formula == Formula(latex="a = b \\tag{2}")
    assert apply(before, reply("\\( a = b \\)")).confidence.score == 1.0  # type: ignore[union-attr]
    assert apply(before, reply("Nothing")).formula == before.formula


def test_a_chart_has_its_data_axes_and_legend() -> None:
    """The first column is the x axis, units are in brackets, and the text layer gives the confidence."""
    two = apply(picture(), reply(TABLE, "figure_data", layer_text="Pump Flow m³ h P 1 12.5"))
    data = "<table><tr><td>Year</td><td>North</td><td>South</td></tr><tr><td>2021</td><td>1</td><td>2</td></tr></table>"
    three = apply(picture(), reply(data, "figure_data")).figure

    assert (two.kind, two.category, two.confidence and two.confidence.score) == (Kind.CHART, Category.GRAPH, 1.0)
    assert two.figure and [(axis.label, axis.unit) for axis in two.figure.axes] == [("Pump", None), ("Flow", "m³/h")]
    assert three and three.legend == ("North", "South")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("CC(=O)Oc1ccccc1C(=O)O", True),
        ("<smiles>CCO</smiles>", True),
        ("```\nC1=CC=CC=C1\n```", True),
        ("[Na+].[Cl-]", False),
        ("POISON", False),
        ("NO", False),
        ("(1)", False),
        ("C(C", False),
        ("a b", False),
        ("", False),
    ],
)
def test_a_molecule_is_distinguished_from_a_word(text: str, found: bool) -> None:
    """A SMILES string has bonds or rings and balanced brackets; words in capitals are not molecules."""
    assert bool(figures.find_smiles(text)) == found


GEOMETRY = """{'Line': {'line': ['(0, 0) -- (4, 0)', '(4, 0) -- (0, 3)'], 'line_type': ['--', '--'],
'line_endpoint': ['A: (0, 0)', 'B: (4, 0)', 'C: (0, 3)']}, 'Circle': {'circle_center': ['(1, 1)'], 'radius': [1.5]}}"""


def test_a_geometric_figure_is_parsed_and_never_evaluated() -> None:
    """Points, lines between named points, and circles are read; text that looks like code is never evaluated."""
    figure = apply(picture(), reply(GEOMETRY, "figure_data")).figure

    assert figure and figure.type == "geometry"
    assert [c.label for c in figure.components] == ["A (0, 0)", "B (4, 0)", "C (0, 3)", "circle (1, 1), radius 1.5"]
    assert [(c.source, c.target) for c in figure.connections] == [("A", "B"), ("B", "C")]
    assert figures.parse_geometry("__import__('os').system('true') # line_type") is None


@pytest.mark.parametrize(
    ("text", "category", "kind"),
    [
        ("This is a bar chart of rain by year.", Category.GRAPH, "bar_chart"),
        ("The image is a line graph. The x-axis shows years.", Category.GRAPH, "line_chart"),
        ("The image is a flowchart with three nodes.", Category.DIAGRAM, "diagram"),
        ("A flow diagram. The chart on its left is small.", Category.DIAGRAM, "diagram"),
        ("This photograph shows a wall.", Category.COMPLEX_IMAGE, "image"),
        ("A wall.", Category.COMPLEX_IMAGE, "image"),
        ("이 이미지는 연도별 강수량을 나타낸 막대 그래프입니다.", Category.GRAPH, "bar_chart"),
        ("가로축은 연도이고 세로축은 매출이다. 꺾은선이 올라간다.", Category.GRAPH, "line_chart"),
        ("bar chart로 그린 매출.", Category.GRAPH, "bar_chart"),
        ("이 그림은 접수 절차의 순서도이다. 화살표가 다음 단계로 이어진다.", Category.DIAGRAM, "diagram"),
        ("시스템 구성도. 차트 하나가 옆에 있다.", Category.DIAGRAM, "diagram"),
        ("이 사진은 돌담을 보여준다.", Category.COMPLEX_IMAGE, "image"),
        ("这是一张柱状图，横轴表示年份。", Category.GRAPH, "bar_chart"),
        ("該折線圖顯示降雨量。", Category.GRAPH, "line_chart"),
        ("这张图片是一个流程图，箭头连接各个节点。", Category.DIAGRAM, "diagram"),
        ("系統架構圖。", Category.DIAGRAM, "diagram"),
        ("照片中有一面墙。", Category.COMPLEX_IMAGE, "image"),
    ],
)
def test_a_description_decides_the_category(text: str, category: Category, kind: str) -> None:
    """English, Korean and Chinese words about charts and diagrams are counted, those of the first sentence more."""
    after = apply(picture(), reply("", "figure_data"), reply(text, "description"))

    assert (after.category, after.figure and after.figure.type) == (category, kind)
    assert after.figure and after.figure.description == after.summary == text


RAIN = html([["Year", "North (mm)", "South (mm)"], ["2021", "1", "9"], ["2022", "3", "5"], ["2023", "2", "1"]])
STEPS = html([["Start", "Check"], ["Read", "Write"]])


def test_a_chart_with_data_is_described_as_well() -> None:
    """Data and description are both kept; the description gives the summary and the type of the chart."""
    description = "A line chart of rain. The north rises. It falls later. The south falls."
    before = apply(picture(), reply(RAIN, "figure_data"))
    after = apply(picture(), reply(RAIN, "figure_data"), reply(description, "description"))

    assert before.figure and after.figure and after.figure.data == before.figure.data
    assert (after.figure.type, after.figure.description) == ("line_chart", description)
    assert after.summary == "A line chart of rain. The north rises. It falls later."
    assert (after.figure.axes, after.figure.trends) == (before.figure.axes, before.figure.trends)


def test_what_the_data_gives_is_derived_and_says_so() -> None:
    """Axes, legend and trends come from the data, in words of no language, and a flag names each of them."""
    after = apply(picture(), reply(RAIN, "figure_data"))
    plain = apply(picture(), reply(TABLE, "figure_data"))

    assert after.figure and after.figure.legend == ("North (mm)", "South (mm)")
    assert after.figure.trends == (
        "North (mm): 1 (2021) ↗ 3 (2022) ↘ 2 (2023)",
        "South (mm): 9 (2021) ↘ 1 (2023)",
    )
    assert after.flags == ("derived_axes", "derived_legend", "derived_trends")
    assert plain.flags == ("derived_axes",)


# the rows of a chart's data -> the trends
TRENDS = {
    "equal": ([["2021", "5"], ["2022", "5"], ["2023", "5"]], ("Q: 5 (2021) → 5 (2023)",)),
    "units and thousands": (
        [["1월", "$1,200"], ["2월", "$900"], ["3월", "$1,000"]],
        ("Q: $1,200 (1월) ↘ $900 (2월) ↗ $1,000 (3월)",),
    ),
    "decimal commas": ([["1", "1,5 %"], ["2", "2,5 %"], ["3", "1,75 %"]], ("Q: 1,5 % (1) ↗ 2,5 % (2) ↘ 1,75 % (3)",)),
    "below zero": ([["1", "−2"], ["2", "0"], ["3", "-3"]], ("Q: −2 (1) ↗ 0 (2) ↘ -3 (3)",)),
    "names": ([["Apples", "1"], ["Pears", "2"], ["Plums", "3"]], ()),
    "two points": ([["2021", "1"], ["2022", "2"]], ()),
    "a total": ([["2021", "1"], ["2022", "2"], ["Total", "3"]], ()),
    "backwards": ([["2023", "1"], ["2022", "2"], ["2021", "3"]], ()),
    "a gap": ([["2021", "1"], ["2022", ""], ["2023", "3"]], ()),
    "words": ([["2021", "low"], ["2022", "high"], ["2023", "low"]], ()),
    "other units": ([["2021", "900 K"], ["2022", "1.1 M"], ["2023", "1.2 M"]], ()),
    "thousands or decimals": ([["2021", "999"], ["2022", "1.234"], ["2023", "1.300"]], ()),
    "losses in brackets": ([["2021", "(5)"], ["2022", "(3)"], ["2023", "(1)"]], ()),
}


@pytest.mark.parametrize(("rows", "trends"), TRENDS.values(), ids=TRENDS)
def test_trends_are_only_derived_from_numbers_in_an_order(rows: list[list[str]], trends: tuple[str, ...]) -> None:
    """A series has a trend if all of its values can be compared and its labels grow; otherwise nothing is claimed."""
    assert figures.derive_trends(table_parser.parse_html(html([["T", "Q"], *rows]))) == trends


@given(st.lists(st.lists(st.text("0123456789.,%-− a년", max_size=5), max_size=3), max_size=5))
def test_any_data_gives_trends_of_its_own_values(rows: list[list[str]]) -> None:
    """Trends of any table quote values of the table and nothing else."""
    table = table_parser.parse_html(html(rows))
    values = {" ".join(cell.text.split()) for cell in table.cells}

    for trend in figures.derive_trends(table):
        points = re.split(" [↗↘→] ", trend)
        assert len(points) >= 2
        assert all(point.rpartition(" (")[0] in values for point in points[1:])


# the reply for data, the description -> the category
CATEGORIES = {
    "data": (RAIN, "A diagram with arrows and nodes.", Category.GRAPH),
    "data without numbers, a diagram": (STEPS, "A flowchart with arrows.", Category.DIAGRAM),
    "data without numbers, a chart": (STEPS, "A bar chart.", Category.GRAPH),
    "data without numbers": (STEPS, "Four words.", Category.GRAPH),
    "nodes and connections": (GEOMETRY, "A chart with curves.", Category.DIAGRAM),
    "a molecule": (MOLECULE, "A diagram.", Category.COMPLEX_IMAGE),
    "words only": ("Read\nWrite", "A flowchart with arrows.", Category.DIAGRAM),
}


@pytest.mark.parametrize(("data", "description", "category"), CATEGORIES.values(), ids=CATEGORIES)
def test_what_was_extracted_counts_before_words(data: str, description: str, category: Category) -> None:
    """Numbers make a graph, and nodes or connections a diagram, whatever the description says."""
    after = apply(picture(), reply(data, "figure_data"), reply(description, "description"))

    assert after.category is category
    assert after.figure and after.figure.description == description
    assert (after.kind is Kind.CHART) == (category is Category.GRAPH)
    assert category is Category.GRAPH or not (after.figure.axes or after.figure.legend)


def test_words_in_a_picture_are_kept_beside_its_description() -> None:
    """Words that `Parse the figure.` reads are the visible text; a sentence about the picture is not."""
    description = reply("A drawing of a hill.", "description")
    words = apply(picture(), reply("Spring\nReservoir", "figure_data"), description)
    sentence = apply(picture(), reply("The figure shows a hill.", "figure_data"), description)
    others = [
        apply(picture(), reply(text, "figure_data"))
        for text in ("이 그림은 언덕을 보여준다.", "这张图片展示了一座山。")
    ]

    assert words.figure and (words.figure.visible_text, words.figure.underlying_type) == (
        "Spring\nReservoir",
        "drawing",
    )
    assert sentence.figure and sentence.figure.visible_text is None
    assert [other.figure.visible_text for other in others if other.figure] == [None, None]


def test_readings_are_compared_as_readers_see_them() -> None:
    """Readings are compared without case, spaces, full-width letters and maths delimiters."""
    assert agreement.similarity("The Pump \\( x \\)", "the pump $x$") == 1.0
    assert agreement.similarity("ＡＢ", "ab") == 1.0
    assert agreement.similarity("", "") == 1.0 and agreement.similarity("a", "") == 0.0
    assert agreement.word_coverage("a a b", "a b c") == 0.6667
    assert agreement.word_coverage("!", "a") is None
