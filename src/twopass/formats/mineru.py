"""A Draft in, MinerU's content_list.json out, for tools that were made for MinerU.

Knows MinerU's types, its grid of 0 to 1000 and its pages from 0. What it has no word for (summaries, sections,
confidence) is left to DocJSON.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twopass.document import Document, Element, Figure, Kind
from twopass.formats import escaping
from twopass.formats.draft import Draft
from twopass.text import prose, table_markup

GRID = 1000
Entry = dict[str, Any]
Notes = Mapping[str, Sequence[Element]]


def write(draft: Draft) -> bytes:
    """The list that MinerU calls `<name>_content_list.json`, in reading order, furniture with its own types."""
    told = entries(draft.document)
    return (json.dumps(told, ensure_ascii=False, indent=2) + "\n").encode(errors="backslashreplace")


def entries(document: Document) -> list[Entry]:
    """Captions and footnotes of tables and figures lie in these; every other element is an entry of its own."""
    owners = {e.id for e in document.elements if e.kind is Kind.TABLE or e.is_figure}
    notes: dict[str, list[Element]] = defaultdict(list)
    for element in document.elements:
        if element.kind in (Kind.CAPTION, Kind.FOOTNOTE) and element.parent_id in owners:
            notes[element.parent_id].append(element)
    held = {note.id for own in notes.values() for note in own}
    return [_entry(element, notes) for element in document.elements if element.id not in held]


def _entry(element: Element, notes: Notes) -> Entry:
    told = _TOLD.get(element.kind, _text)(element, notes)
    where: Entry = {"page_idx": element.page - 1}
    if element.box:
        where["bbox"] = list(element.box.to_grid(GRID))
    return {**told, **where}


def _text(element: Element, notes: Notes) -> Entry:
    return {"type": "text", "text": prose.flow(element.text)}


def _heading(element: Element, notes: Notes) -> Entry:
    level = 1 if element.kind is Kind.TITLE else (element.level or 1)
    return {**_text(element, notes), "text_level": level}


def _typed(name: str) -> Callable[[Element, Notes], Entry]:
    return lambda element, notes: {"type": name, "text": prose.flow(element.text)}


def _item(element: Element, notes: Notes) -> Entry:
    lines = [line.strip() for line in element.text.splitlines() if line.strip()]
    return {"type": "list", "sub_type": "text", "list_items": lines}


def _code(element: Element, notes: Notes) -> Entry:
    return {"type": "code", "sub_type": "code", "code_body": element.text, "code_caption": []}


def _equation(element: Element, notes: Notes) -> Entry:
    latex = element.formula and element.formula.latex
    if not latex:
        return {"type": "equation", "text": element.text, "text_format": "text", "img_path": element.image or ""}
    text = f"$$\n{escaping.maths(latex)}\n$$"
    return {"type": "equation", "text": text, "text_format": "latex", "img_path": element.image or ""}


def _table(element: Element, notes: Notes) -> Entry:
    known = element.table
    cells = known.cells if known else ()
    body = table_markup.html(cells, escaping.html_cell) if cells else escaping.html_cell(element.text)
    return {
        "type": "table",
        "img_path": element.image or "",
        "table_caption": _said(element, Kind.CAPTION, notes),
        "table_footnote": _said(element, Kind.FOOTNOTE, notes),
        "table_body": body,
    }


def _figure(element: Element, notes: Notes) -> Entry:
    figure = element.figure
    told = [figure.visible_text or "", figure.description or "", _data(figure)] if figure else []
    content = "\n\n".join(dict.fromkeys(filter(None, [element.text, *told])))
    return {
        "type": "image",
        "img_path": element.image or "",
        "image_caption": _said(element, Kind.CAPTION, notes),
        "image_footnote": _said(element, Kind.FOOTNOTE, notes),
        **({"content": content} if content else {}),
    }


def _data(figure: Figure) -> str:
    return table_markup.html(figure.data.cells, escaping.html_cell) if figure.data else ""


def _said(element: Element, kind: Kind, notes: Notes) -> list[str]:
    return [prose.flow(note.text) for note in notes.get(element.id, ()) if note.kind is kind]


_TOLD: Mapping[Kind, Callable[[Element, Notes], Entry]] = {
    Kind.TITLE: _heading,
    Kind.SECTION_HEADER: _heading,
    Kind.LIST_ITEM: _item,
    Kind.CODE: _code,
    Kind.FORMULA: _equation,
    Kind.TABLE: _table,
    Kind.PICTURE: _figure,
    Kind.CHART: _figure,
    Kind.PAGE_HEADER: _typed("header"),
    Kind.PAGE_FOOTER: _typed("footer"),
    Kind.FOOTNOTE: _typed("page_footnote"),
}
