"""What a reader answered about a region, as the text of its element."""

from __future__ import annotations

import re
from typing import Any

from twopass.document import (
    HEADINGS,
    Analysis,
    Element,
    Flag,
    Formula,
    Kind,
    Source,
    Table,
)
from twopass.families import table_parser, text_layer_check
from twopass.families.detected_page import fall_back
from twopass.families.interface import Reply
from twopass.families.regions import cleanup, otsl
from twopass.families.regions.reader import RegionReader, TableGrammar, Task
from twopass.text import headings, prose

# The readers end paragraphs with one line end, which Markdown would close; items of a list stay together.
_LINE_END = re.compile(r"(?<!\n)\n(?!\n|[ \t]*- )")


def with_text(element: Element, text: str) -> Element:
    """The element with its text, and what follows from it for its kind."""
    update: dict[str, Any] = {"text": text, "markdown": text}
    if element.kind is Kind.TEXT:
        update["markdown"] = _LINE_END.sub("\n\n", text)
    if element.kind in HEADINGS:
        line = prose.to_one_line(text)
        found = headings.parse_numbering(line)
        update = {"text": line, "markdown": f"# {line}"}
        if element.kind is Kind.SECTION_HEADER:
            level = found.depth if found else 2
            update |= {"level": level, "numbering": found.text if found else None}
            update["markdown"] = f"{'#' * level} {line}"
    elif element.kind is Kind.CODE:
        update["markdown"] = f"```\n{text}\n```"
    elif element.kind is Kind.FORMULA:
        update |= {"formula": Formula(latex=text), "markdown": f"$$\n{text}\n$$"}
    elif element.figure:
        update["figure"] = element.figure.model_copy(update={"visible_text": text})
    return element.model_copy(update=update)


def with_table(element: Element, table: Table) -> Element:
    """A table, or a chart with its data."""
    text = table_parser.table_text(table)
    update: dict[str, Any] = {"text": text, "markdown": table.markdown or table.html}
    if element.figure:
        return element.model_copy(update={**update, "figure": element.figure.model_copy(update={"data": table})})
    return element.model_copy(update={**update, "table": table})


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
    read = element if reply.finish_reason in ("error", "crash") else _write(element, text, task, reader)
    if not (read.text or read.table or (read.figure and read.figure.data)):
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
        return with_table(element, table) if table else with_text(element.with_flags(Flag.NOT_A_TABLE), text)
    if task is Task.CHART:
        data = cleanup.parse_chart(text)
        return with_table(element, data) if data else with_text(element, text)
    return with_text(element, cleanup.unwrap_formula(text) if task is Task.FORMULA else text)
