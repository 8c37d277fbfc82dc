"""DeepSeek-OCR's pass 1 with one pass 2 prompt per category, for chat models that follow instructions.

Each prompt gives the text around the element and asks for items, keywords, a summary and the fields of the category
as JSON; replies are parsed leniently. DeepSeek-OCR itself does not follow instructions: this family is for engines
that serve another model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from twopass.document import Analysis, Axis, Category, Component, Connection, Element, Figure, Flag, Kind, Source
from twopass.families import content, lenient_json, table_parser
from twopass.families.deepseek import DeepseekOcrFamily
from twopass.families.grounded import elements, figures, second_reading
from twopass.families.interface import ElementContext, Question, Reply
from twopass.families.lenient_json import as_object, as_objects, as_string, as_strings
from twopass.families.word_account import WordAccount
from twopass.models import DEFAULT_MODEL, MODELS, Model
from twopass.text import surrounding_text

_NO_CONTEXT = "No surrounding context available."
_MAX_KEYWORDS = 10
_TEMPLATE = """<image>
{grounding}Analyze this {subject}.

Context from surrounding text:
{context}

Extract the following:
1. [항목] {items}
2. [키워드] {keywords}
3. [자연어 요약] {summary}

Output format (JSON):
{{"items": [], "keywords": [], "summary": ""{extra}}}"""


class CategoryPrompt(NamedTuple):
    """The values of _TEMPLATE's placeholders for one category; `grounded` asks the model for boxes."""

    subject: str
    items: str
    keywords: str
    summary: str
    extra: str = ""
    grounded: bool = False


_KEYWORDS = "5-10 keywords for vector embedding"
CATEGORY_PROMPTS = {
    Category.TEXT_HEADER: CategoryPrompt(
        "document header element", "Full header text", "3-5 keywords for indexing", "One sentence: what it introduces"
    ),
    Category.TEXT_SECTION: CategoryPrompt(
        "section heading element", "Section numbering and title", _KEYWORDS, "2-3 sentences: what the section covers"
    ),
    Category.TEXT_PARAGRAPH: CategoryPrompt(
        "text paragraph element", "Full paragraph text (OCR)", _KEYWORDS, "2-3 sentences: the main points"
    ),
    Category.TABLE: CategoryPrompt(
        "table element in detail",
        "Column headers, row headers, key cells",
        _KEYWORDS,
        "2-3 sentences: what the table shows",
        ', "markdown": "", "complexity": "simple or complex (over 30 % merged cells, or irregular)",'
        ' "complexity_reason": ""',
        grounded=True,
    ),
    Category.GRAPH: CategoryPrompt(
        "graph/chart element in detail",
        "Title, type, x and y axis label and unit, legend, trends",
        _KEYWORDS,
        "2-3 sentences: what it shows, trends, significant points",
        ', "graph_data": {"title": "", "graph_type": "line_chart, bar_chart, scatter_plot or pie_chart",'
        ' "x_axis": {"label": "", "unit": ""}, "y_axis": {"label": "", "unit": ""}, "legend": [], "trends": []}',
        grounded=True,
    ),
    Category.DIAGRAM: CategoryPrompt(
        "diagram element in detail",
        "Type, shapes and nodes, connections from and to, annotations",
        _KEYWORDS,
        "2-3 sentences: process, flow, decision points",
        ', "diagram_data": {"diagram_type": "", "components": [{"id": "", "label": ""}],'
        ' "connections": [{"from": "", "to": ""}], "mermaid": "",'
        ' "complexity": "complex when over 10 components, else simple", "complexity_reason": ""}',
        grounded=True,
    ),
    Category.COMPLEX_IMAGE: CategoryPrompt(
        "complex visual element that cannot be properly processed as table/graph/diagram",
        "Best guess of the underlying type, visible text, elements",
        _KEYWORDS,
        "2-3 sentences: what it is, why it is complex, what can be extracted",
        ', "complexity_data": {"underlying_type": "table, graph, diagram, photo, drawing, mixed or unknown",'
        ' "visible_text": "", "complexity_reasons": ["low_resolution", "merged_cells", "irregular_layout"]}',
    ),
}
_FIGURE_CATEGORIES = frozenset({Category.GRAPH, Category.DIAGRAM, Category.COMPLEX_IMAGE})


@dataclass(frozen=True)
class InstructedFamily(DeepseekOcrFamily):
    """DeepSeek-OCR with other questions in pass 2. Each question has the name of its category.

    They are about elements that have been read: its pages cannot be detected.
    """

    model: Model = MODELS[DEFAULT_MODEL]

    @property
    def name(self) -> str:
        return f"{self.model.name}_json"

    def account(self, text: str, elements: Sequence[Element]) -> WordAccount:
        """A reply with an object is about the element, and its words are not those of the page."""
        return WordAccount() if lenient_json.parse_object(text) else super().account(text, elements)

    def next_question(self, context: ElementContext) -> Question | None:
        element = context.element
        category = _next_category(element, context.replies)
        if category is None or min(context.crop_size) < second_reading.MIN_CROP_SIDE:
            return None
        is_visual = element.is_figure or element.kind in (Kind.TABLE, Kind.FORMULA)
        if not (is_visual or context.ask_all or Flag.DOUBTFUL in element.flags):
            return None
        surroundings = surrounding_text.collect_context(element, context.page_elements) or _NO_CONTEXT
        return Question(category, build_prompt(category, surroundings), self.choose_crop_mode(context.crop_size))

    def apply_replies(self, element: Element, replies: Sequence[Reply]) -> Element:
        for reply in replies:
            element = _apply_reply(element, reply)
        return element


def build_prompt(category: Category, context: str) -> str:
    values = CATEGORY_PROMPTS[category]
    return _TEMPLATE.format(
        grounding="<|grounding|>" if values.grounded else "",
        subject=values.subject,
        context=context,
        items=values.items,
        keywords=values.keywords,
        summary=values.summary,
        extra=values.extra,
    )


def _next_category(element: Element, replies: Sequence[Reply]) -> Category | None:
    """The category to ask about, None when there is nothing more to ask.

    A complex image whose underlying type is a graph or a diagram is asked about again with the prompt of that category.
    """
    if not replies:
        return element.category
    if len(replies) > 1 or element.category is not Category.COMPLEX_IMAGE:
        return None
    fields = lenient_json.parse_object(replies[0].text) or {}
    underlying = as_string(as_object(fields.get("complexity_data")).get("underlying_type"))
    return figures.classify_words(underlying or "")


def _apply_reply(element: Element, reply: Reply) -> Element:
    """The element with what a reply says; a reply that holds no object only adds a flag."""
    flag = second_reading.find_failure(reply)
    fields = lenient_json.parse_object(reply.text)
    if flag or fields is None:
        return element.with_flags(flag or Flag.PASS2_UNPARSED)
    update = {
        "keywords": as_strings(fields.get("keywords"))[:_MAX_KEYWORDS] or element.keywords,
        "summary": as_string(fields.get("summary")) or element.summary,
        "analysis": Analysis(source=Source.MODEL, prompt=reply.question.prompt),
    }
    return _apply_content(element, fields, reply).model_copy(update=update)


def _apply_content(element: Element, fields: dict[str, Any], reply: Reply) -> Element:
    """Apply the fields of the category that was asked about; text and tables only where the new reading is better."""
    category = Category(reply.question.name)
    if category in _FIGURE_CATEGORIES:
        return _apply_figure(element, fields)
    if category is Category.TABLE:
        return _apply_table(element, fields, reply)
    text = "\n".join(as_strings(fields.get("items")))
    return _apply_reading(element, elements.with_content(element, text), reply) if text else element


def _apply_table(element: Element, fields: dict[str, Any], reply: Reply) -> Element:
    parts = table_parser.split_tables(as_string(fields.get("markdown")) or "")
    table = next((part.table for part in parts if part.table), None)
    if table is None:
        return element
    complexity = "complex" if as_string(fields.get("complexity")) == "complex" else table.complexity
    table = table.model_copy(update={"complexity": complexity})
    return _apply_reading(element, content.write_table(element, table), reply)


def _apply_reading(first: Element, second: Element, reply: Reply) -> Element:
    verdict = second_reading.judge(first, second, reply.layer_text)
    return second_reading.apply_verdict(first, second, verdict, reply)


def _apply_figure(element: Element, fields: dict[str, Any]) -> Element:
    figure = element.figure or Figure()
    kind, category = element.kind, element.category
    if graph := as_object(fields.get("graph_data")):
        kind, category, figure = Kind.CHART, Category.GRAPH, _fill_graph(figure, graph)
    elif diagram := as_object(fields.get("diagram_data")):
        kind, category, figure = Kind.PICTURE, Category.DIAGRAM, _fill_diagram(figure, diagram)
    elif image := as_object(fields.get("complexity_data")):
        figure = _fill_complex_image(figure, image)
    return element.model_copy(update={"kind": kind, "category": category, "figure": figure, "read_by": 2})


def _fill_graph(figure: Figure, graph: dict[str, Any]) -> Figure:
    axes = (_parse_axis(graph.get("x_axis")), _parse_axis(graph.get("y_axis")))
    update = {
        "type": as_string(graph.get("graph_type")) or "chart",
        "description": as_string(graph.get("title")) or figure.description,
        "axes": axes if any(axis != Axis() for axis in axes) else (),
        "legend": as_strings(graph.get("legend")),
        "trends": as_strings(graph.get("trends")),
    }
    return figure.model_copy(update=update)


def _parse_axis(value: Any) -> Axis:
    axis = as_object(value)
    return Axis(label=as_string(axis.get("label")), unit=as_string(axis.get("unit")))


def _fill_diagram(figure: Figure, diagram: dict[str, Any]) -> Figure:
    nodes = [
        (as_string(node.get("id")), as_string(node.get("label"))) for node in as_objects(diagram.get("components"))
    ]
    ends = [(as_string(line.get("from")), as_string(line.get("to"))) for line in as_objects(diagram.get("connections"))]
    update = {
        "type": as_string(diagram.get("diagram_type")) or "diagram",
        "components": tuple(
            Component(id=node_id or label or "", label=label or node_id or "")
            for node_id, label in nodes
            if node_id or label
        ),
        "connections": tuple(Connection(source=source, target=target) for source, target in ends if source and target),
        "mermaid": as_string(diagram.get("mermaid")),
        "reasons": as_strings(diagram.get("complexity_reason")),
    }
    return figure.model_copy(update=update)


def _fill_complex_image(figure: Figure, image: dict[str, Any]) -> Figure:
    update = {
        "underlying_type": as_string(image.get("underlying_type")) or "unknown",
        "visible_text": as_string(image.get("visible_text")) or figure.visible_text,
        "reasons": as_strings(image.get("complexity_reasons")),
    }
    return figure.model_copy(update=update)
