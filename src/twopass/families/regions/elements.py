"""What a reader answered about a region, as the text of its element."""

from __future__ import annotations

import re
from collections.abc import Sequence

from twopass.document import Analysis, Element, Flag, Kind, Source
from twopass.families import content, text_layer_check
from twopass.families.detected_page import fall_back
from twopass.families.grounded import answer_text
from twopass.families.interface import Reply
from twopass.families.regions import cleanup, otsl
from twopass.families.regions.reader import RegionReader, TableGrammar, Task
from twopass.text import headings, maths, prose

# The readers end paragraphs with one line end, which Markdown would close; items of a list stay together.
_LINE_END = re.compile(r"(?<!\n)\n(?!\n|[ \t]*- )")
_BULLET = "- "  # cleanup.py has written every bullet like this
_SAME_EDGE = 0.01  # of the page's width, between left edges: 10 of 1,000 in GLM's SDK


def with_text(element: Element, text: str) -> Element:
    """The element with its text, and what follows from it for its kind."""
    if element.kind not in (Kind.CODE, Kind.FORMULA):
        text = maths.unify_dollars(text)
    if element.is_heading:
        line = prose.unwrap(text)
        found = headings.parse_numbering(line) if element.kind is Kind.SECTION_HEADER else None
        return content.write(element, line, level=found.depth if found else None)
    markdown = _LINE_END.sub("\n\n", answer_text.to_markdown(text)) if element.kind is Kind.TEXT else None
    return content.write(element, text, markdown, latex=text)


def apply_reply(element: Element, reply: Reply, reader: RegionReader) -> Element:
    """The element as its reader read it. Where that is nothing, the words of the text layer are used."""
    task = Task(reply.question.name)
    limit = reader.long_table if task is Task.TABLE else reader.long_text
    clean = cleanup.clean_code if element.kind is Kind.CODE else cleanup.clean_text
    text, was_cut = clean(reply.text, limit)
    if was_cut or reply.finish_reason == "loop":
        element = element.with_flags(Flag.REPETITION_CUT)
    if reply.finish_reason == "length":
        element = element.with_flags(Flag.CUT_OFF)
    read = None if reply.finish_reason in ("error", "crash") else _write(element, text, task, reader)
    if read is None or not (read.text or read.table or (read.figure and read.figure.data)):
        if element.text:  # OCR found it and read it, so that this is a second reading
            return element.with_flags(Flag.PASS2_EMPTY)
        return fall_back(element, reply.layer_text, with_text)
    update = {"read_by": 2, "analysis": Analysis(source=Source.MODEL, prompt=task)}
    return text_layer_check.check_region(
        read.without_flag(Flag.UNREAD_REGION).model_copy(update=update), reply.layer_text
    )


def _write(element: Element, text: str, task: Task, reader: RegionReader) -> Element:
    """Write a cleaned reply into its element, in the form that the task gives it."""
    if task is Task.TABLE:
        table = otsl.parse(text) if reader.tables is TableGrammar.OTSL else None
        table = table or cleanup.parse_table(text)
        return content.write_table(element, table) if table else with_text(element.with_flags(Flag.NOT_A_TABLE), text)
    if task is Task.CHART:
        data = cleanup.parse_chart(text)
        return content.write_table(element, data) if data else with_text(element, text)
    return _write_formula(element, text) if task is Task.FORMULA else with_text(element, text)


def _write_formula(element: Element, text: str) -> Element:
    """A formula as its LaTeX; with words beside it, it is a paragraph."""
    text = cleanup.unwrap_formula(maths.delimit_environments(text))
    if maths.is_formula(text):
        return with_text(element, text)
    element = element.model_copy(update={"kind": Kind.TEXT, "formula": None})
    text = maths.unify_delimiters(text)
    return content.write(element, text, answer_text.to_markdown(text))


def add_missing_bullets(elements: Sequence[Element]) -> tuple[Element, ...]:
    """Add the bullet that a reader left out of a text between two items at its left edge, as GLM's SDK does.

    It is added to the markdown; `text` stays as it was read.
    """
    completed = list(elements)
    for index in range(1, len(elements) - 1):
        above, element, below = elements[index - 1 : index + 2]
        if _is_item(above) and _is_item(below) and _lacks_bullet(element) and _are_aligned(above, element, below):
            completed[index] = element.model_copy(update={"markdown": _BULLET + element.markdown})
    return tuple(completed)


def _is_item(element: Element) -> bool:
    return element.kind is Kind.TEXT and element.text.startswith(_BULLET)


def _lacks_bullet(element: Element) -> bool:
    return element.kind is Kind.TEXT and bool(element.text) and not _is_item(element)


def _are_aligned(*elements: Element) -> bool:
    edges = [element.box.x0 for element in elements if element.box]
    return len(edges) == len(elements) and max(edges) - min(edges) <= _SAME_EDGE
