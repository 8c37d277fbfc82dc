"""Seed 000's seven prompts, and answers of chat models read leniently."""

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
from twopass.families.instructed import ASKS, DEEPSEEK_OCR_JSON, prompt
from twopass.families.interface import Reply

FAMILY = DEEPSEEK_OCR_JSON
TOLD = {"items": ["a"], "keywords": ["pump", "water"], "summary": "A pump."}
SIZE = (400, 300)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(TOLD),
        f"Sure!\n```json\n{json.dumps(TOLD, indent=1)}\n```\nAnything else?",
        f"The answer: {json.dumps(TOLD)} as you asked",
        '{"items": ["a",], "keywords": ["pump", "water",], "summary": "A pump.",}',
        '{"항목": ["a"], "키워드": ["pump", "water"], "자연어 요약": "A pump."}',
        "1. [항목]\n- a\n2. [키워드] pump, water\n3. [자연어 요약] A pump.",
        "**[Items]**\n* a\n[Keywords]: pump、water\n[Summary]\nA pump.",
    ],
)
def test_an_object_is_found_in_any_dress(text: str) -> None:
    """Fences, talk around it, trailing commas, Korean keys, bracket labels."""
    assert lenient_json.read(text) == TOLD


@given(
    st.text(max_size=80)
    | st.lists(st.sampled_from(["{", "}", "[", "]", '"a"', ":", ",", "[항목]", "1"]), max_size=30).map("".join)
)
def test_any_answer_is_an_object_or_none(text: str) -> None:
    """Nothing breaks the reader."""
    told = lenient_json.read(text)

    assert told is None or all(isinstance(key, str) for key in told)


def test_deep_nesting_is_no_trap() -> None:
    """A hundred thousand braces are no object."""
    assert lenient_json.read('{"a":' * 50_000 + "}" * 50_000) is None


@pytest.mark.parametrize("category", Category)
def test_every_category_has_its_prompt(category: Category) -> None:
    """One frame, one image, the context; grounding for tables, graphs and diagrams only."""
    text = prompt(category, "[text_header] {A} title")

    assert text.count("<image>") == 1 and ASKS[category].what in text and "[text_header] {A} title" in text
    assert ("<|grounding|>" in text) == (category in ("table", "graph", "diagram"))
    assert all(label in text for label in ("[항목]", "[키워드]", "[자연어 요약]", '"summary": ""'))


def test_the_text_around_an_element_is_in_its_prompt() -> None:
    """Or a line that says there is none."""
    table, near = element("table", box=Box(0.1, 0.4, 0.9, 0.5)), element("text", "The pumps.", Box(0.1, 0.3, 0.9, 0.38))
    near = near.model_copy(update={"id": "other"})

    with_context, without = FAMILY.question(table, False, SIZE, (table, near)), FAMILY.question(table, False, SIZE, ())

    assert with_context and "[text_paragraph] The pumps." in with_context.prompt
    assert without and "No surrounding context available." in without.prompt


def test_what_a_complex_image_is_underneath_is_asked_once_more() -> None:
    """A graph then as a graph; a photo no more."""
    picture = element("picture", figure=Figure())
    graph, photo = (
        Reply(json.dumps({"complexity_data": {"underlying_type": kind}}), "") for kind in ("graph", "photo")
    )

    question = FAMILY.question(picture, False, SIZE, (), [graph])

    assert question and ASKS[Category.GRAPH].what in question.prompt
    assert FAMILY.question(picture, False, SIZE, (), [photo]) is None
    assert FAMILY.question(picture, False, SIZE, (), [graph, graph]) is None


def told(known: Any, **fields: Any) -> Any:
    return FAMILY.reread(known, [Reply(json.dumps({**TOLD, **fields}), "the prompt")])


def test_a_graph_fills_its_fields() -> None:
    """Axes, legend and trends; keywords and summary are the model's."""
    axes = {"x_axis": {"label": "Year"}, "y_axis": {"label": "Rain", "unit": "mm"}}
    data = {"title": "Rain", "graph_type": "bar_chart", **axes, "legend": ["North"], "trends": ["falls"]}
    graph = told(element("picture", figure=Figure()), graph_data=data)

    assert (graph.kind, graph.category, graph.figure.type, graph.figure.trends) == (
        Kind.CHART,
        "graph",
        "bar_chart",
        ("falls",),
    )
    assert graph.figure.axes[1].unit == "mm"
    assert (graph.keywords, graph.summary, graph.analysis.source) == (("pump", "water"), "A pump.", Source.MODEL)


def test_a_diagram_fills_its_fields() -> None:
    """Components, connections, mermaid; what has no ends is no connection."""
    data = {"diagram_type": "flow", "components": [{"id": "a", "label": "Spring"}, {"label": "Tank"}, {}],
            "connections": [{"from": "a", "to": "Tank"}, {"from": "a"}], "mermaid": "graph TD; a-->b"}  # fmt: skip
    diagram = told(element("picture", figure=Figure()), diagram_data=data)

    assert diagram.category == "diagram" and diagram.figure.mermaid == "graph TD; a-->b"
    assert [(c.id, c.label) for c in diagram.figure.components] == [("a", "Spring"), ("Tank", "Tank")]
    assert [(c.source, c.target) for c in diagram.figure.connections] == [("a", "Tank")]


def test_a_table_comes_as_gfm() -> None:
    """And says itself whether it is complex."""
    table = told(element("table"), markdown="| a | b |\n|---|---|\n| 1 | 2 |", complexity="complex")

    assert (table.table.rows, table.table.complexity, table.read_by) == (2, "complex", 2)


def test_a_paragraphs_items_are_its_text() -> None:
    """By the same rules as any second reading."""
    known = told(element("text", ""), items=["The pump was read."])
    kept = told(element("text", "The meter of the pump was read on Monday."), items=["Weather."])

    assert (known.text, kept.text) == ("The pump was read.", "The meter of the pump was read on Monday.")
    assert kept.summary == "A pump."


def test_an_answer_that_is_no_object_leaves_a_flag() -> None:
    """And everything as it was."""
    known = element("table", "a b")

    assert FAMILY.reread(known, [Reply("I cannot help with that.", "")]).flags == ("pass2_unparsed",)
    assert FAMILY.reread(known, [Reply("", "")]).flags == ("pass2_empty",)


VALUES = st.recursive(documents.json_values, lambda inner: st.lists(inner, max_size=2), max_leaves=4)


@given(
    st.dictionaries(
        st.sampled_from(["items", "keywords", "summary", "markdown", "graph_data", "diagram_data", "complexity_data"]),
        VALUES,
    )
)
def test_fields_of_any_shape_are_some_element(fields: dict[str, Any]) -> None:
    """Chat models put lists where texts belong, and the reverse."""
    for kind in (Kind.TEXT, Kind.TABLE, Kind.PICTURE, Kind.TITLE, Kind.FORMULA):
        known = element(kind, "words", figure=Figure() if kind is Kind.PICTURE else None)
        assert FAMILY.reread(known, [Reply(json.dumps(fields), "")]).model_dump_json()
