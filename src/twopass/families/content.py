"""Write text, formulas and tables into elements: what follows from the content of each kind, for every family."""

from __future__ import annotations

from typing import Any

from twopass.document import Element, Figure, Formula, Kind, Table
from twopass.text import headings, table_markup


def write(
    element: Element, text: str, markdown: str | None = None, level: int | None = None, latex: str | None = None
) -> Element:
    """The element with this text; `markdown` is that of its words, by default the text itself.

    `level` is that of a heading, by default its own, else 1 for a title and 2 for others. `latex` is that of a formula.
    """
    markdown = text if markdown is None else markdown
    update: dict[str, Any] = {"text": text, "markdown": markdown}
    if element.is_heading:
        level = level or element.level or (1 if element.kind is Kind.TITLE else 2)
        found = headings.parse_numbering(text)
        update |= {"level": level, "numbering": found.text if found else None, "markdown": f"{'#' * level} {markdown}"}
    elif element.kind is Kind.FORMULA:
        update |= {"formula": Formula(latex=latex or None), **({"markdown": f"$$\n{latex}\n$$"} if latex else {})}
    elif element.is_figure:
        figure = element.figure or Figure()
        update["figure"] = figure.model_copy(update={"visible_text": text or None})
    elif element.kind is Kind.CODE:
        update["markdown"] = f"```\n{text}\n```"
    return element.model_copy(update=update)


def write_table(element: Element, table: Table) -> Element:
    """The table, or the chart with its data."""
    update: dict[str, Any] = {"text": table_markup.to_text(table), "markdown": table.markdown or table.html}
    if element.figure:
        return element.model_copy(update={**update, "figure": element.figure.model_copy(update={"data": table})})
    return element.model_copy(update={**update, "table": table})
