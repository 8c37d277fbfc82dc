"""The prompts for the seven categories, and the lenient parsing of chat models' replies."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import documents
from tests.fakes.documents import element
from twopass.document import Box, Category, Figure, Kind, Source
from twopass.families import lenient_json
from twopass.families.instructed import CATEGORY_PROMPTS, InstructedFamily, build_prompt
from twopass.families.interface import ElementContext, Question, Reply

FAMILY = InstructedFamily()
FIELDS = {"items": ["a"], "keywords": ["pump", "water"], "summary": "A pump."}
SIZE = (400, 300)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(FIELDS),
        f"Sure!\n```json\n{json.dumps(FIELDS, indent=1)}\n```\nAnything else?",
        f"The answer: {json.dumps(FIELDS)} as you asked",
        '{"items": ["a",], "keywords": ["pump", "water",], "summary": "A pump.",}',
        '{"항목": ["a"], "키워드": ["pump", "water"], "자연어 요약": "A pump."}',
        "1. [항목]\n- a\n2. [키워드] pump, water\n3. [자연어 요약] A pump.",
        "**[Items]**\n* a\n[Keywords]: pump、water\n[Summary]\nA pump.",
    ],
)
def test_an_object_is_found_in_every_form(text: str) -> None:
    """The object is found in code fences, between other text, with trailing commas, Korean keys or bracket labels."""
    assert lenient_json.parse_object(text) == FIELDS


@given(
    st.text(max_size=80)
    | st.lists(st.sampled_from(["{", "}", "[", "]", '"a"', ":", ",", "[항목]", "1"]), max_size=30).map("".join)
)
def test_any_answer_is_an_object_or_none(text: str) -> None:
    """Any text gives an object with string keys or None; nothing raises."""
    found = lenient_json.parse_object(text)

    assert found is None or all(isinstance(key, str) for key in found)


def test_deep_nesting_is_no_object() -> None:
    """A hundred thousand nested braces give None and no error."""
    assert lenient_json.parse_object('{"a":' * 50_000 + "}" * 50_000) is None


@pytest.mark.parametrize("category", Category)
def test_every_category_has_its_prompt(category: Category) -> None:
    """Every prompt has one image, the context and the labels; only tables, graphs and diagrams ask for grounding."""
    text = build_prompt(category, "[text_header] {A} title")

    assert text.count("<image>") == 1
    assert CATEGORY_PROMPTS[category].subject in text and "[text_header] {A} title" in text
    assert ("<|grounding|>" in text) == (category in ("table", "graph", "diagram"))
    assert all(label in text for label in ("[항목]", "[키워드]", "[자연어 요약]", '"summary": ""'))


def test_the_text_around_an_element_is_in_its_prompt() -> None:
    """The prompt contains the text around the element, or a line that says there is none."""
    table, near = element("table", box=Box(0.1, 0.4, 0.9, 0.5)), element("text", "The pumps.", Box(0.1, 0.3, 0.9, 0.38))
    near = near.model_copy(update={"id": "other"})

    with_context = FAMILY.next_question(ElementContext(table, False, SIZE, (table, near)))
    without = FAMILY.next_question(ElementContext(table, False, SIZE, ()))

    assert with_context and "[text_paragraph] The pumps." in with_context.prompt
    assert without and "No surrounding context available." in without.prompt


def test_a_complex_image_is_asked_about_again_as_its_underlying_type() -> None:
    """A complex image that is a graph gets the graph prompt, once; a photo gets no second question."""
    picture = element("picture", figure=Figure())
    graph, photo = (
        reply("complex_image", json.dumps({"complexity_data": {"underlying_type": kind}}))
        for kind in ("graph", "photo")
    )

    question = FAMILY.next_question(ElementContext(picture, False, SIZE, (), [graph]))

    assert question and CATEGORY_PROMPTS[Category.GRAPH].subject in question.prompt
    assert FAMILY.next_question(ElementContext(picture, False, SIZE, (), [photo])) is None
    assert FAMILY.next_question(ElementContext(picture, False, SIZE, (), [graph, graph])) is None


@pytest.mark.parametrize(
    ("underlying", "category"),
    [
        ("diagram", Category.DIAGRAM),
        ("순서도", Category.DIAGRAM),
        ("꺾은선 그래프", Category.GRAPH),
        ("流程图", Category.DIAGRAM),
    ],
)
def test_an_underlying_type_is_understood_in_three_languages(underlying: str, category: Category) -> None:
    """Chat models answer in the language of the page, although the prompt names the types in English."""
    picture = element("picture", figure=Figure())
    first = reply("complex_image", json.dumps({"complexity_data": {"underlying_type": underlying}}))

    question = FAMILY.next_question(ElementContext(picture, False, SIZE, (), [first]))

    assert question and question.name == category


def reply(category: str, text: str) -> Reply:
    return Reply(Question(category, "the prompt"), text)


def apply(before: Any, **fields: Any) -> Any:
    """The element after a reply to the question about its category."""
    return FAMILY.apply_replies(before, [reply(before.category, json.dumps({**FIELDS, **fields}))])


def test_a_graph_fills_its_fields() -> None:
    """A reply with graph data makes a chart with axes, legend and trends; keywords and summary come from the model."""
    axes = {"x_axis": {"label": "Year"}, "y_axis": {"label": "Rain", "unit": "mm"}}
    data = {"title": "Rain", "graph_type": "bar_chart", **axes, "legend": ["North"], "trends": ["falls"]}
    graph = apply(element("picture", figure=Figure()), graph_data=data)

    assert (graph.kind, graph.category, graph.figure.type, graph.figure.trends) == (
        Kind.CHART,
        "graph",
        "bar_chart",
        ("falls",),
    )
    assert graph.figure.axes[1].unit == "mm"
    assert (graph.keywords, graph.summary, graph.analysis.source) == (("pump", "water"), "A pump.", Source.MODEL)


def test_a_diagram_fills_its_fields() -> None:
    """A reply with diagram data sets components, connections and mermaid; a connection without both ends is dropped."""
    data = {"diagram_type": "flow", "components": [{"id": "a", "label": "Spring"}, {"label": "Tank"}, {}],
            "connections": [{"from": "a", "to": "Tank"}, {"from": "a"}], "mermaid": "graph TD; a-->b"}  # fmt: skip
    diagram = apply(element("picture", figure=Figure()), diagram_data=data)

    assert diagram.category == "diagram" and diagram.figure.mermaid == "graph TD; a-->b"
    assert [(c.id, c.label) for c in diagram.figure.components] == [("a", "Spring"), ("Tank", "Tank")]
    assert [(c.source, c.target) for c in diagram.figure.connections] == [("a", "Tank")]


def test_a_table_comes_as_gfm() -> None:
    """The table of a reply is GFM, and the reply says whether it is complex."""
    table = apply(element("table"), markdown="| a | b |\n|---|---|\n| 1 | 2 |", complexity="complex")

    assert (table.table.rows, table.table.complexity, table.read_by) == (2, "complex", 2)


def test_a_table_that_pass_1_cut_short_is_completed() -> None:
    """A second reading with all cells of the first and more rows is used, as for any family that reads tables."""
    first = apply(element("table"), markdown="| a | b |\n|---|---|\n| 1 | 2 |")
    after = apply(first, markdown="| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |")

    assert after.table.rows == 3 and "pass2_disagrees" in after.flags


def test_a_paragraphs_items_are_its_text() -> None:
    """The items replace the text by the same rules as any second reading; the summary is always taken."""
    filled = apply(element("text", ""), items=["The pump was read."])
    kept = apply(element("text", "The meter of the pump was read on Monday."), items=["Weather."])

    assert (filled.text, kept.text) == ("The pump was read.", "The meter of the pump was read on Monday.")
    assert kept.summary == "A pump."


def test_an_answer_that_is_no_object_leaves_a_flag() -> None:
    """A reply without an object only adds a flag to the element."""
    before = element("table", "a b")

    assert FAMILY.apply_replies(before, [reply("table", "I cannot help with that.")]).flags == ("pass2_unparsed",)
    assert FAMILY.apply_replies(before, [reply("table", "")]).flags == ("pass2_empty",)


VALUES = st.recursive(documents.json_values, lambda inner: st.lists(inner, max_size=2), max_leaves=4)


@given(
    st.dictionaries(
        st.sampled_from(["items", "keywords", "summary", "markdown", "graph_data", "diagram_data", "complexity_data"]),
        VALUES,
    )
)
def test_fields_of_any_shape_are_some_element(fields: dict[str, Any]) -> None:
    """Fields of the wrong type, such as a list in place of a text, still give an element."""
    for kind in (Kind.TEXT, Kind.TABLE, Kind.PICTURE, Kind.TITLE, Kind.FORMULA):
        before = element(kind, "words", figure=Figure() if kind is Kind.PICTURE else None)
        assert FAMILY.apply_replies(before, [reply(before.category, json.dumps(fields))]).model_dump_json()
