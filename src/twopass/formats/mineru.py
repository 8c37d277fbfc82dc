"""Write MinerU's content_list.json, for tools made for MinerU.

MinerU counts pages from 0, and its texts are Markdown, so they are escaped as in document.md. It has no fields for
summaries, sections and confidence; those are only in DocJSON.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from twopass.document import Cell, Document, Element, Kind, Table
from twopass.formats import escaping, flow
from twopass.formats.writer_input import WriterInput
from twopass.text import links, list_items, markdown_escapes, prose, table_markup

_GRID = 1000  # MinerU's boxes run from 0 to 1000
_Entry = dict[str, Any]
_Notes = Mapping[str, Sequence[Element]]


def write(inputs: WriterInput) -> bytes:
    """The list that MinerU calls `<name>_content_list.json`, in reading order; furniture has its own types."""
    entries = make_entries(inputs.shown)
    return (json.dumps(entries, ensure_ascii=False, indent=2) + "\n").encode(errors="backslashreplace")


def make_entries(document: Document) -> list[_Entry]:
    """Make one entry per element, except captions and footnotes of tables and figures, which are part of those."""
    owners = {e.id for e in document.elements if e.kind is Kind.TABLE or e.is_figure}
    notes: dict[str, list[Element]] = defaultdict(list)
    for element in document.elements:
        if element.kind in (Kind.CAPTION, Kind.FOOTNOTE) and element.parent_id in owners:
            notes[element.parent_id].append(element)
    attached = {note.id for attached_notes in notes.values() for note in attached_notes}
    return [_make_entry(element, notes) for element in document.elements if element.id not in attached]


def _make_entry(element: Element, notes: _Notes) -> _Entry:
    content = _ENTRY_MAKERS.get(element.kind, _make_text)(element, notes)
    place: _Entry = {"page_idx": element.page - 1}
    if element.box:
        place["bbox"] = list(element.box.to_grid(_GRID))
    return {**content, **place}


def _make_text(element: Element, notes: _Notes) -> _Entry:
    return {"type": "text", "text": _write_own_text(element)}


def _write_own_text(element: Element) -> str:
    """The text of an element with its links."""
    text = prose.to_one_line(element.text)
    shown = flow.locate_links(element, flow.InlineText(text, False))
    return markdown_escapes.escape_line_start(escaping.write_line(text, shown))


def _write_text(text: str) -> str:
    return escaping.escape_paragraph(prose.to_one_line(text))


def _make_heading(element: Element, notes: _Notes) -> _Entry:
    level = 1 if element.kind is Kind.TITLE else (element.level or 1)
    text = escaping.escape_heading_end(_write_own_text(element))
    return {"type": "text", "text": text, "text_level": level}


def _make_text_as(entry_type: str) -> Callable[[Element, _Notes], _Entry]:
    return lambda element, notes: {"type": entry_type, "text": _write_own_text(element)}


def _make_furniture_as(entry_type: str) -> Callable[[Element, _Notes], _Entry]:
    """Readers of this format drop the types of furniture, so that a header in the body is text."""
    return lambda element, notes: {**_make_text(element, notes), **({} if element.is_body else {"type": entry_type})}


def _make_list(element: Element, notes: _Notes) -> _Entry:
    lines = [line.strip() for line in element.text.splitlines() if line.strip()]
    skipped = accumulate(map(links.count_letters, lines), initial=0)
    items = [_write_item(element, *pair) for pair in zip(lines, skipped, strict=False)]
    return {"type": "list", "sub_type": "text", "list_items": items}


def _write_item(element: Element, line: str, skipped: int) -> str:
    """Escape an item behind its marker, which stays as it was read."""
    marker = line.removesuffix(list_items.parse(line)[1]) if list_items.begins_item(line) else ""
    rest = line.removeprefix(marker)
    shown = flow.locate_links(element, flow.InlineText(rest, False), skipped + links.count_letters(marker))
    return marker + markdown_escapes.escape_line_start(escaping.write_line(rest, shown), in_list=bool(marker))


def _make_code(element: Element, notes: _Notes) -> _Entry:
    return {"type": "code", "sub_type": "code", "code_body": escaping.make_inert(element.text), "code_caption": []}


def _make_equation(element: Element, notes: _Notes) -> _Entry:
    latex = flow.get_latex(element)
    if not latex:
        return {
            "type": "equation",
            "text": _write_text(element.text),
            "text_format": "text",
            "img_path": element.image or "",
        }
    return {
        "type": "equation",
        "text": escaping.write_display_formula(latex),
        "text_format": "latex",
        "img_path": element.image or "",
    }


def _make_table(element: Element, notes: _Notes) -> _Entry:
    own_text, has_cells = flow.get_own_text(element), bool(element.table and element.table.cells)
    footnotes = _collect_notes(element, Kind.FOOTNOTE, notes)
    return {
        "type": "table",
        "img_path": element.image or "",
        "table_caption": _collect_notes(element, Kind.CAPTION, notes),
        "table_footnote": [_write_text(own_text), *footnotes] if has_cells and own_text else footnotes,
        "table_body": _write_table(element.table, "" if has_cells else own_text),
    }


def _write_table(table: Table | None, text: str = "") -> str:
    """A table as HTML; what has no cells, and the text, are one cell."""
    cells = table.cells if table else ()
    only = "\n".join(filter(None, (flow.get_table_text(table) if table else "", text)))
    return table_markup.to_html(cells or (Cell(row=0, col=0, text=only),), escaping.escape_html_cell)


def _make_image(element: Element, notes: _Notes) -> _Entry:
    texts, data = flow.describe_figure(element), element.figure.data if element.figure else None
    parts = [_write_text(texts.visible), _write_text(texts.description), _write_table(data) if data else ""]
    content = "\n\n".join(filter(None, parts))
    return {
        "type": "image",
        "img_path": element.image or "",
        "image_caption": _collect_notes(element, Kind.CAPTION, notes),
        "image_footnote": _collect_notes(element, Kind.FOOTNOTE, notes),
        **({"content": content} if content else {}),
    }


def _collect_notes(element: Element, kind: Kind, notes: _Notes) -> list[str]:
    return [_write_own_text(note) for note in notes.get(element.id, ()) if note.kind is kind]


_ENTRY_MAKERS: Mapping[Kind, Callable[[Element, _Notes], _Entry]] = {
    Kind.TITLE: _make_heading,
    Kind.SECTION_HEADER: _make_heading,
    Kind.LIST_ITEM: _make_list,
    Kind.CODE: _make_code,
    Kind.FORMULA: _make_equation,
    Kind.TABLE: _make_table,
    Kind.PICTURE: _make_image,
    Kind.CHART: _make_image,
    Kind.PAGE_HEADER: _make_furniture_as("header"),
    Kind.PAGE_FOOTER: _make_furniture_as("footer"),
    Kind.FOOTNOTE: _make_text_as("page_footnote"),
}
