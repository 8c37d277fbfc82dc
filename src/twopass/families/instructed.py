"""DeepSeek-OCR's pass 1 with a prompt for each category in pass 2, for chat models that follow instructions.

Each prompt gives the text around the element and asks for items, keywords, a summary and the fields of the
element's category, as JSON; answers are read leniently. DeepSeek-OCR itself follows no instructions: this family is
for engines that serve another model. Knows prompts and answers. Knows nothing of engines or files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from twopass.document import (
    Analysis,
    Axis,
    Category,
    Component,
    Connection,
    Element,
    Figure,
    Kind,
    Source,
)
from twopass.families import lenient_json, table_parser, text_layer_check
from twopass.families.deepseek import element_prompts, elements
from twopass.families.deepseek.family import DeepseekOcrFamily, crop_mode
from twopass.families.interface import Question, Reply
from twopass.families.lenient_json import string, strings
from twopass.text import surrounding_text

NO_CONTEXT = "No surrounding context available."
MOST_KEYWORDS = 10
FRAME = """<image>
{grounding}Analyze this {what}.

Context from surrounding text:
{context}

Extract the following:
1. [항목] {items}
2. [키워드] {keywords}
3. [자연어 요약] {summary}

Output format (JSON):
{{"items": [], "keywords": [], "summary": ""{extra}}}"""


class Ask(NamedTuple):
    """What the frame is filled with for one category."""

    what: str
    items: str
    keywords: str
    summary: str
    extra: str = ""
    grounded: bool = False


_TEN = "5-10 keywords for vector embedding"
ASKS = {
    Category.TEXT_HEADER: Ask(
        "document header element", "Full header text", "3-5 keywords for indexing", "One sentence: what it introduces"
    ),
    Category.TEXT_SECTION: Ask(
        "section heading element", "Section numbering and title", _TEN, "2-3 sentences: what the section covers"
    ),
    Category.TEXT_PARAGRAPH: Ask(
        "text paragraph element", "Full paragraph text (OCR)", _TEN, "2-3 sentences: the main points"
    ),
    Category.TABLE: Ask(
        "table element in detail",
        "Column headers, row headers, key cells",
        _TEN,
        "2-3 sentences: what the table shows",
        ', "markdown": "", "complexity": "simple or complex (over 30 % merged cells, or irregular)",'
        ' "complexity_reason": ""',
        grounded=True,
    ),
    Category.GRAPH: Ask(
        "graph/chart element in detail",
        "Title, type, x and y axis label and unit, legend, trends",
        _TEN,
        "2-3 sentences: what it shows, trends, significant points",
        ', "graph_data": {"title": "", "graph_type": "line_chart, bar_chart, scatter_plot or pie_chart",'
        ' "x_axis": {"label": "", "unit": ""}, "y_axis": {"label": "", "unit": ""}, "legend": [], "trends": []}',
        grounded=True,
    ),
    Category.DIAGRAM: Ask(
        "diagram element in detail",
        "Type, shapes and nodes, connections from and to, annotations",
        _TEN,
        "2-3 sentences: process, flow, decision points",
        ', "diagram_data": {"diagram_type": "", "components": [{"id": "", "label": ""}],'
        ' "connections": [{"from": "", "to": ""}], "mermaid": "",'
        ' "complexity": "complex when over 10 components, else simple", "complexity_reason": ""}',
        grounded=True,
    ),
    Category.COMPLEX_IMAGE: Ask(
        "complex visual element that cannot be properly processed as table/graph/diagram",
        "Best guess of the underlying type, visible text, elements",
        _TEN,
        "2-3 sentences: what it is, why it is complex, what can be extracted",
        ', "complexity_data": {"underlying_type": "table, graph, diagram, photo, drawing, mixed or unknown",'
        ' "visible_text": "", "complexity_reasons": ["low_resolution", "merged_cells", "irregular_layout"]}',
    ),
}
# What a complex image says it is underneath is asked about once more, as that.
UNDERNEATH = {"graph": Category.GRAPH, "diagram": Category.DIAGRAM}


@dataclass(frozen=True)
class InstructedFamily(DeepseekOcrFamily):
    """Only pass 2 differs."""

    name: str = "deepseek_ocr_json"

    def question(
        self,
        element: Element,
        everything: bool,
        size: tuple[int, int],
        beside: Sequence[Element],
        replies: Sequence[Reply] = (),
    ) -> Question | None:
        category = _next(element, replies)
        if category is None or min(size) < element_prompts.LEAST_SIDE:
            return None
        visual = element.is_figure or element.kind in (Kind.TABLE, Kind.FORMULA)
        if not (visual or everything or text_layer_check.DOUBTFUL in element.flags):
            return None
        around = surrounding_text.context(element, beside) or NO_CONTEXT
        return Question(prompt(category, around), crop_mode(size, self.crop_modes))

    def reread(self, element: Element, replies: Sequence[Reply]) -> Element:
        for reply in replies:
            element = _told(element, reply)
        return element


DEEPSEEK_OCR_JSON = InstructedFamily()


def prompt(category: Category, around: str) -> str:
    ask = ASKS[category]
    return FRAME.format(
        grounding="<|grounding|>" if ask.grounded else "",
        what=ask.what,
        context=around,
        items=ask.items,
        keywords=ask.keywords,
        summary=ask.summary,
        extra=ask.extra,
    )


def _next(element: Element, replies: Sequence[Reply]) -> Category | None:
    if not replies:
        return element.category
    if len(replies) > 1 or element.category is not Category.COMPLEX_IMAGE:
        return None
    told = lenient_json.read(replies[0].text) or {}
    return UNDERNEATH.get(string(lenient_json.table(told.get("complexity_data")).get("underlying_type")) or "")


def _told(element: Element, reply: Reply) -> Element:
    """The element with what one reply says; a reply that is no object only leaves its flag."""
    why = element_prompts.failure(reply)
    told = lenient_json.read(reply.text)
    if why or told is None:
        return element_prompts.flagged(element, why or "pass2_unparsed")
    known = _content(element, told, reply)
    update = {
        "keywords": strings(told.get("keywords"))[:MOST_KEYWORDS] or element.keywords,
        "summary": string(told.get("summary")) or element.summary,
        "analysis": Analysis(source=Source.MODEL, prompt=reply.prompt),
    }
    return known.model_copy(update=update)


def _content(element: Element, told: dict[str, Any], reply: Reply) -> Element:
    """What the element's kind has room for; text and tables only where the new reading stands."""
    if element.is_figure:
        return _figure(element, told)
    if element.kind is Kind.TABLE:
        return _table(element, told, reply)
    text = "\n".join(strings(told.get("items")))
    if not text:
        return element
    again = elements.told(element, text)
    return element_prompts.standing(element, again, element_prompts.judged(element, again, reply.layer), reply)


def _table(element: Element, told: dict[str, Any], reply: Reply) -> Element:
    parts = table_parser.parts(string(told.get("markdown")) or "")
    table = next((part.table for part in parts if part.table), None)
    if table is None:
        return element
    complexity = "complex" if string(told.get("complexity")) == "complex" else table.complexity
    again = elements.told(element, "", table.model_copy(update={"complexity": complexity}))
    return element_prompts.standing(element, again, element_prompts.judged(element, again, reply.layer), reply)


def _figure(element: Element, told: dict[str, Any]) -> Element:
    figure = element.figure or Figure()
    kind, category = element.kind, element.category
    if graph := lenient_json.table(told.get("graph_data")):
        kind, category, figure = Kind.CHART, Category.GRAPH, _graph(figure, graph)
    elif diagram := lenient_json.table(told.get("diagram_data")):
        kind, category, figure = Kind.PICTURE, Category.DIAGRAM, _diagram(figure, diagram)
    elif other := lenient_json.table(told.get("complexity_data")):
        figure = _complex(figure, other)
    return element.model_copy(update={"kind": kind, "category": category, "figure": figure, "read_by": 2})


def _graph(figure: Figure, told: dict[str, Any]) -> Figure:
    axes = (_axis(told.get("x_axis")), _axis(told.get("y_axis")))
    update = {
        "type": string(told.get("graph_type")) or "chart",
        "description": string(told.get("title")) or figure.description,
        "axes": axes if any(axis != Axis() for axis in axes) else (),
        "legend": strings(told.get("legend")),
        "trends": strings(told.get("trends")),
    }
    return figure.model_copy(update=update)


def _axis(told: Any) -> Axis:
    axis = lenient_json.table(told)
    return Axis(label=string(axis.get("label")), unit=string(axis.get("unit")))


def _diagram(figure: Figure, told: dict[str, Any]) -> Figure:
    parts = [(string(one.get("id")), string(one.get("label"))) for one in lenient_json.tables(told.get("components"))]
    ends = [(string(one.get("from")), string(one.get("to"))) for one in lenient_json.tables(told.get("connections"))]
    update = {
        "type": string(told.get("diagram_type")) or "diagram",
        "components": tuple(Component(id=i or label or "", label=label or i or "") for i, label in parts if i or label),
        "connections": tuple(Connection(source=a, target=b) for a, b in ends if a and b),
        "mermaid": string(told.get("mermaid")),
        "reasons": strings(told.get("complexity_reason")),
    }
    return figure.model_copy(update=update)


def _complex(figure: Figure, told: dict[str, Any]) -> Figure:
    update = {
        "underlying_type": string(told.get("underlying_type")) or "unknown",
        "visible_text": string(told.get("visible_text")) or figure.visible_text,
        "reasons": strings(told.get("complexity_reasons")),
    }
    return figure.model_copy(update=update)
