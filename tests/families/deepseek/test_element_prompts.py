"""Pass 2 of the DeepSeek-OCR family: what is asked next, which reading stands, what pictures become."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import documents
from tests.fakes.answers import TABLE, block
from tests.fakes.recorded import html
from twopass.document import Category, Element, Figure, Formula, Kind, Source
from twopass.families import agreement, table_parser
from twopass.families.deepseek import elements, figures
from twopass.families.deepseek.family import DEEPSEEK_OCR, PROMPTS
from twopass.families.interface import Reply

FAMILY = DEEPSEEK_OCR
SAID = "The meter of the pump was read on Monday and entered in the log book."
SIZE = (400, 300)


def element(kind: str, text: str = "", *flags: str, **fields: Any) -> Element:
    return documents.element(kind, text, markdown=text, flags=flags, **fields)


def picture(**fields: Any) -> Element:
    return element("picture", figure=Figure(), **fields)


def reply(text: str, prompt: str = "free", finish: str = "stop", layer: str | None = None) -> Reply:
    return Reply(text, PROMPTS[prompt], finish, layer)


def again(known: Element, *replies: Reply) -> Element:
    return FAMILY.reread(known, replies)


@pytest.mark.parametrize(
    ("known", "everything", "prompt"),
    [
        (element("table"), False, "document"),
        (picture(), False, "figure"),
        (element("formula", "x"), False, "free"),
        (element("text", SAID, "doubtful"), False, "free"),
        (element("section_header", "1 A", "doubtful"), False, "free"),
        (element("text", SAID), False, None),
        (element("text", SAID), True, "free"),
        (element("caption", SAID), True, "free"),
    ],
)
def test_every_kind_is_asked_the_prompt_that_the_model_knows(
    known: Element, everything: bool, prompt: str | None
) -> None:
    """Tables as documents, pictures as figures, all else without boxes; sound text only where all is wanted."""
    question = FAMILY.question(known, everything, SIZE, ())

    assert (question.prompt if question else None) == (PROMPTS[prompt] if prompt else None)


def test_a_crop_that_shows_nothing_is_not_asked_about() -> None:
    """A rule or a dot, padding included."""
    assert FAMILY.question(picture(), True, (400, 17), ()) is None


@pytest.mark.parametrize(
    ("answers", "prompt"),
    [
        ((), "figure"),
        (("A label",), "describe"),
        (("",), "describe"),
        ((TABLE,), None),
        (("CC(=O)Oc1ccccc1C(=O)O",), None),
        (("A label", "A photo."), None),
    ],
)
def test_a_picture_is_described_where_parsing_gave_no_data(answers: tuple[str, ...], prompt: str | None) -> None:
    """At most two questions."""
    question = FAMILY.question(picture(), False, SIZE, (), [reply(text, "figure") for text in answers])

    assert (question.prompt if question else None) == (PROMPTS[prompt] if prompt else None)


# pass 1, pass 2, the layer -> who stands, flags that must be there
VERDICTS = {
    "cut": (SAID, reply("The meter", finish="length"), 1, {"pass2_cut"}),
    "stopped as a loop": (SAID, reply(SAID, finish="loop"), 1, {"pass2_loop"}),
    "loops": (SAID, reply("The meter of " * 200), 1, {"pass2_loop"}),
    "empty": (SAID, reply(" \n"), 1, {"pass2_empty"}),
    "only tags": (SAID, reply("<|ref|>text<|/ref|>"), 1, {"pass2_empty"}),
    "nothing before": ("", reply(SAID), 2, set()),
    "the same": (SAID, reply(SAID), 2, set()),
    "nearly the same": (SAID, reply(SAID.replace("Monday", "Mondav")), 2, set()),
    "a word more": (SAID, reply(SAID + " again."), 2, set()),
    "a little more": (SAID, reply(SAID + " Both signed it."), 2, {"pass2_disagrees"}),
    "its neighbour": (SAID, reply(SAID + " Both operators signed it in the evening."), 1, {"pass2_disagrees"}),
    "something else": (SAID, reply("The weather is fine today in the north."), 1, {"pass2_disagrees"}),
    "less": (SAID, reply("The meter of the pump."), 1, {"pass2_disagrees"}),
    "cleaner": ("Th\ufffd m\ufffdt\ufffdr \ufffdf a w\ufffdll", reply("The meter of a well"), 2, {"pass2_disagrees"}),
    "layer for pass 2": ("Tbe rneter ol tbe qump vas", reply(SAID, layer=SAID), 2, {"pass2_disagrees"}),
    "layer for pass 1": (SAID, reply("Tbe rneter ol tbe qump vas reab", layer=SAID), 1, {"pass2_disagrees"}),
    "layer for both": (SAID, reply(SAID, layer=SAID), 1, set()),
    "a layer of one word": (SAID, reply(SAID, layer="Draft"), 2, set()),
}


@pytest.mark.parametrize(("first", "second", "read_by", "flags"), VERDICTS.values(), ids=VERDICTS)
def test_the_better_reading_stands(first: str, second: Reply, read_by: int, flags: set[str]) -> None:
    """The table in the module's docstring, row by row; a worse reading loses nothing of pass 1."""
    known = again(element("text", first, "doubtful"), second)

    assert known.read_by == read_by
    assert known.text == (first if read_by == 1 else second.text)
    assert {flag for flag in known.flags if flag.startswith("pass2")} == flags
    assert ("doubtful" in known.flags) == (read_by == 1)


# pass 1, pass 2 -> who stands, flags that must be there, where nothing was doubtful
SURE = {
    "marks": ("text", "**Note**: see [the log](http://a.b) of the pump", "Note: see the log of the pump", 1, True),
    "maths": ("text", "The value \\( x_1 \\) of the pump is higher", "The value x1 of the pump is higher", 1, False),
    "lines of a list": ("list_item", "- the pump\n- the valve\n- the tank", "the pump the valve the tank", 1, True),
    "lines of code": ("code", "def f(x):\n    return x", "def f(x): return x", 1, False),
    "the text below a heading": ("section_header", "3 Results", "3 Results\nThe yield", 1, True),
    "a little below a heading": ("section_header", "3 Results of Pumps", "3 Results of Pumps now", 1, True),
    "the heading below a caption": ("caption", "See Table 3 here.", "See Table 3 here.\n4 All", 1, True),
    "a number not seen": ("formula", "\\[ a = b \\tag{1} \\]", "\\[ a = b \\]", 1, False),
    "a number behind not seen": ("formula", "\\[ a = b \\] \\quad (1)", "\\[ a = b \\]", 1, False),
    "the text below a formula": ("formula", "\\[ a = b \\]", "\\[ a = b \\]\nwhere a is long", 1, True),
    "a formula": ("formula", "\\[ a = b \\]", "\\[ a=b \\]", 2, False),
}


@pytest.mark.parametrize(("kind", "first", "second", "read_by", "differs"), SURE.values(), ids=SURE)
def test_a_sound_reading_keeps_its_marks(kind: str, first: str, second: str, read_by: int, differs: bool) -> None:
    """What agrees raises the confidence only; what stands beside a crop is not taken in."""
    known = elements.told(element(kind), first)
    after = again(known, reply(second))

    assert (after.read_by, "pass2_disagrees" in after.flags) == (read_by, differs)
    assert after.confidence and after.confidence.method == "agreement"
    assert (after.text, after.markdown) == (known.text, known.markdown) or read_by == 2


ROWS = [["Name", "Qty", "Price"], *([f"item {n}", str(n), f"{n}.50"] for n in range(10))]
SPANS = (
    '<table><tr><td rowspan="2">Region</td><td colspan="2">Sales</td></tr>'
    "<tr><td>2023</td><td>2024</td></tr><tr><td>North</td><td>10</td><td>20</td></tr></table>"
)
# pass 1's table, pass 2's -> who stands
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
    """A nearer look may correct cells and not lose them; pass 1's other shape is told as a disagreement."""
    tables = table_parser.parts(first)[0]
    known = elements.told(element("table"), tables.text, tables.table)
    after = again(known, reply(second, "document"))

    assert (after.read_by, "pass2_disagrees" in after.flags) == (read_by, read_by == 1)
    assert (after.table == known.table and after.text == known.text) or read_by == 2
    assert after.confidence and (after.confidence.score < 0.9) == (read_by == 1 or not known.text)


def test_agreement_is_the_confidence_and_the_prompt_is_named() -> None:
    """Of a reply that could have stood; one that failed analysed nothing."""
    known = again(element("text", SAID), reply(SAID.upper()))
    failed = again(element("text", SAID), reply(""))

    assert known.confidence and (known.confidence.score, known.confidence.method) == (1.0, "agreement")
    assert (known.analysis.source, known.analysis.prompt) == (Source.MODEL, PROMPTS["free"])
    assert (failed.analysis.source, failed.confidence) == (Source.NONE, None)


@given(st.text(max_size=60), st.text(max_size=200), st.sampled_from(["stop", "length", "loop", "abort"]))
def test_any_reply_leaves_an_element(first: str, second: str, finish: str) -> None:
    """Of every kind, and never one that says less than nothing."""
    for kind in Kind:
        known = documents.element(kind, first, figure=Figure() if kind in (Kind.PICTURE, Kind.CHART) else None)
        after = again(known, reply(second, "figure", finish), reply(second, "describe", finish))
        assert after.id == known.id and after.boxes == known.boxes
        assert after.text or after.table or after.figure or not known.text.strip()


def test_a_heading_keeps_its_level() -> None:
    """On its own crop every heading has one hash."""
    known = again(
        element("section_header", "2.1 Purnps", "doubtful", level=3), reply("# 2.1 Pumps", layer="2.1 Pumps now")
    )

    assert (known.text, known.level, known.numbering, known.markdown) == ("2.1 Pumps", 3, "2.1", "### 2.1 Pumps")


def test_a_table_without_cells_gets_them() -> None:
    """From grounded or bare HTML; an answer without a table leaves it as it was."""
    bare, grounded = again(element("table"), reply(TABLE)), again(element("table"), reply(block("table", TABLE)))
    none = again(element("table"), reply("No table here."))

    assert bare.table == grounded.table and bare.table and bare.table.rows == 2
    assert (bare.read_by, none.read_by, none.flags) == (2, 1, ("pass2_empty",))


def test_a_table_that_lost_a_row_in_pass_2_keeps_it() -> None:
    """The page's reading has more of the words."""
    whole = table_parser.html(
        TABLE.replace("</table>", "<tr><td>P-2</td><td>9.1</td></tr><tr><td>P-3</td><td>7</td></tr></table>")
    )
    known = element("table", table_parser.words(whole), table=whole)

    assert again(known, reply(TABLE)).table == whole
    assert "pass2_disagrees" in again(known, reply(TABLE)).flags


def test_formulas_are_compared_by_their_latex() -> None:
    """Blanks and delimiters do not count, and a number that pass 2 saw is kept."""
    known = element("formula", "\\[ a=b \\]", formula=Formula(latex="a=b"))

    assert again(known, reply("\\[ a = b \\tag{2} \\]")).formula == Formula(latex="a = b \\tag{2}")
    assert again(known, reply("\\( a = b \\)")).confidence.score == 1.0  # type: ignore[union-attr]
    assert again(known, reply("Nothing")).formula == known.formula


def test_a_chart_has_its_data_axes_and_legend() -> None:
    """The first column is what it runs over; units stand in brackets; the layer says how sure the numbers are."""
    two = again(picture(), reply(TABLE, "figure", layer="Pump Flow m³ h P 1 12.5"))
    data = "<table><tr><td>Year</td><td>North</td><td>South</td></tr><tr><td>2021</td><td>1</td><td>2</td></tr></table>"
    three = again(picture(), reply(data, "figure")).figure

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
def test_a_molecule_is_told_from_a_word(text: str, found: bool) -> None:
    """By bonds, rings and balance."""
    assert bool(figures.smiles(text)) == found


GEOMETRY = """{'Line': {'line': ['(0, 0) -- (4, 0)', '(4, 0) -- (0, 3)'], 'line_type': ['--', '--'],
'line_endpoint': ['A: (0, 0)', 'B: (4, 0)', 'C: (0, 3)']}, 'Circle': {'circle_center': ['(1, 1)'], 'radius': [1.5]}}"""


def test_a_plane_figure_is_read_and_never_run() -> None:
    """Points, lines by their points, circles; what looks like code is text."""
    figure = again(picture(), reply(GEOMETRY, "figure")).figure

    assert figure and figure.type == "geometry"
    assert [c.label for c in figure.components] == ["A (0, 0)", "B (4, 0)", "C (0, 3)", "circle (1, 1), radius 1.5"]
    assert [(c.source, c.target) for c in figure.connections] == [("A", "B"), ("B", "C")]
    assert figures.geometry("__import__('os').system('true') # line_type") is None


@pytest.mark.parametrize(
    ("text", "category", "kind"),
    [
        ("This is a bar chart of rain by year.", Category.GRAPH, "bar_chart"),
        ("The image is a line graph. The x-axis shows years.", Category.GRAPH, "line_chart"),
        ("The image is a flowchart with three nodes.", Category.DIAGRAM, "diagram"),
        ("A flow diagram. The chart on its left is small.", Category.DIAGRAM, "diagram"),
        ("This photograph shows a wall.", Category.COMPLEX_IMAGE, "image"),
        ("A wall.", Category.COMPLEX_IMAGE, "image"),
    ],
)
def test_a_description_decides_the_category(text: str, category: Category, kind: str) -> None:
    """By the words of charts and of diagrams, the first sentence above all."""
    known = again(picture(), reply("", "figure"), reply(text, "describe"))

    assert (known.category, known.figure and known.figure.type) == (category, kind)
    assert known.figure and known.figure.description == known.summary == text


def test_words_in_a_picture_are_kept_beside_its_description() -> None:
    """What `Parse the figure.` read stands in it; a sentence about it does not."""
    known = again(picture(), reply("Spring\nReservoir", "figure"), reply("A drawing of a hill.", "describe"))
    talk = again(picture(), reply("The figure shows a hill.", "figure"), reply("A drawing of a hill.", "describe"))

    assert known.figure and (known.figure.visible_text, known.figure.underlying_type) == (
        "Spring\nReservoir",
        "drawing",
    )
    assert talk.figure and talk.figure.visible_text is None


def test_agreement_sees_what_readers_see() -> None:
    """Case, blanks, full width and delimiters of maths count for nothing."""
    assert agreement.similarity("The Pump \\( x \\)", "the pump $x$") == 1.0
    assert agreement.similarity("ＡＢ", "ab") == 1.0
    assert agreement.similarity("", "") == 1.0 and agreement.similarity("a", "") == 0.0
    assert agreement.known("a a b", "a b c") == 0.6667
    assert agreement.known("!", "a") is None
