"""A Draft in, docling.json out: a DoclingDocument that docling's own chunkers and exporters work with; and back.

What docling has no word for lies in the metadata of one group that docling's exporters and chunkers do not show, so
nothing is lost on the way back. Knows docling-core's types. Knows nothing of docling's converters.
"""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from twopass.document import Cell, Document, Element, Figure, Kind, Page, Table
from twopass.formats import escaping, markdown
from twopass.formats.draft import Draft
from twopass.text import prose

if TYPE_CHECKING:
    from docling_core.types.doc.common.reference import ProvenanceItem
    from docling_core.types.doc.document import DoclingDocument
    from docling_core.types.doc.items.node import NodeItem
    from docling_core.types.doc.items.table.table_data import TableData

GROUP = "twopass"
# In an item's own metadata it would be printed with the item's text, by docling's exporters and into its chunks.
KEPT = "twopass__document"
DEEPEST = 100  # docling's deepest heading
NOTES = frozenset({Kind.CAPTION, Kind.FOOTNOTE})
UNKNOWN_TYPE = "application/octet-stream"


def write(draft: Draft) -> bytes:
    """Equal documents give equal bytes."""
    told = converted(draft.placed).export_to_dict()
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode(errors="backslashreplace")


def converted(document: Document) -> DoclingDocument:
    """Every element as an item, in the order of the document; what runs on is one item with several places."""
    return _Making(document).whole()


def loads(data: bytes) -> Document:
    """The Document that a docling.json of ours was made of; texts and cells are those that docling holds."""
    from docling_core.types.doc.document import DoclingDocument

    return restored(DoclingDocument.model_validate_json(data))


def restored(told: DoclingDocument) -> Document:
    """Raises ValueError where it was not written here, or has other items since."""
    group = next((group for group in told.groups if group.name == GROUP), None)
    kept = (group.meta.get_custom_part() if group and group.meta else {}).get(KEPT)
    if kept is None:
        raise ValueError(f"no {KEPT}: this docling document was not made by twopass")
    if kept["counts"] != _counts(told):
        raise ValueError("items were added or removed since: nobody can tell which element they are")
    elements = [_as_held(part, told) for part in kept["elements"]]
    return Document.model_validate({**kept["document"], "elements": elements})


def _counts(told: DoclingDocument) -> list[int]:
    return [len(told.texts), len(told.tables), len(told.pictures)]


def _as_held(part: Mapping[str, Any], told: DoclingDocument) -> dict[str, Any]:
    """The element's fields, with the text and cells of the item that holds them."""
    from docling_core.types.doc.common.reference import RefItem

    element = {name: value for name, value in part.items() if name != "item"}
    if (place := part.get("item")) is None:
        return element
    item: Any = RefItem(cref=place).resolve(told)
    if element["kind"] == Kind.TABLE:
        return {**element, "table": {**element["table"], "cells": [_cell_of(cell) for cell in item.data.table_cells]}}
    return {**element, "text": item.orig}


def _cell_of(cell: Any) -> dict[str, Any]:
    return {
        "row": cell.start_row_offset_idx,
        "col": cell.start_col_offset_idx,
        "row_span": cell.row_span,
        "col_span": cell.col_span,
        "text": cell.text,
        "header": cell.column_header,
    }


class _Making:
    """One document on its way: what is made already, by the element's id."""

    def __init__(self, document: Document) -> None:
        from docling_core.types.doc.document import DoclingDocument

        self._document = document
        self._pages = {page.number: page for page in document.pages}
        self._next = markdown.running(document)
        self._by_id = {element.id: element for element in document.elements}
        self._told = DoclingDocument(name=document.meta.title or document.id, origin=self._origin())
        self._made: dict[str, NodeItem] = {}
        self._held: dict[str, str] = {}  # element's id -> the item that has all of its text or cells
        self._list: NodeItem | None = None

    def whole(self) -> DoclingDocument:
        from docling_core.types.doc.base import Size

        for page in self._document.pages:
            self._told.add_page(page.number, Size(width=page.width_pt, height=page.height_pt))
        inside = set(self._next.values())
        parents = {e.parent_id for e in self._document.elements if e.kind in NOTES}
        floats = [e for e in self._document.elements if e.id in parents and (e.kind is Kind.TABLE or e.is_figure)]
        notes: dict[str, list[Element]] = {element.id: [] for element in floats}
        for element in self._document.elements:
            if element.kind in NOTES and element.parent_id in notes and element.id not in inside | set(self._next):
                notes[element.parent_id].append(element)
        held = {note.id for own in notes.values() for note in own}
        for element in self._document.elements:
            if element.id in inside or element.id in held:
                continue
            self._add(element)
            for note in notes.get(element.id, ()):
                self._note(note, element)
        self._keep()
        return self._told

    def _keep(self) -> None:
        """All that no item holds."""
        from docling_core.types.doc.common.content_layer import ContentLayer
        from docling_core.types.doc.common.meta import BaseMeta

        rest = self._document.model_dump(mode="json", by_alias=True, exclude={"elements"})
        parts = [_kept(element, self._held.get(element.id)) for element in self._document.elements]
        kept = {"document": rest, "elements": parts, "counts": _counts(self._told)}
        group = self._told.add_group(name=GROUP, content_layer=ContentLayer.INVISIBLE)
        group.meta = BaseMeta.model_validate({KEPT: kept})

    def _origin(self) -> Any:
        from docling_core.types.doc.common.origin import DocumentOrigin

        source = self._document.source
        known = source.mime in mimetypes.types_map.values()
        name = urlsplit(source.uri).path.rpartition("/")[2] or self._document.id
        digest = int(source.sha256[:16], 16)
        return DocumentOrigin(mimetype=source.mime if known else UNKNOWN_TYPE, binary_hash=digest, filename=name)

    def _add(self, element: Element) -> None:
        chain = [element, *self._rest(element)]
        if element.kind is not Kind.LIST_ITEM or not element.is_body:
            self._list = None
        self._made[element.id] = self._item(chain)

    def _rest(self, element: Element) -> Iterator[Element]:
        while (after := self._next.get(element.id)) is not None:
            element = self._by_id[after]
            yield element

    def _note(self, note: Element, owner: Element) -> None:
        """A caption or footnote below what it belongs to."""
        self._list = None
        parent = self._made[owner.id]
        item = self._text([note], parent)
        references = parent.captions if note.kind is Kind.CAPTION else parent.footnotes
        references.append(item.get_ref())

    def _item(self, chain: Sequence[Element]) -> NodeItem:
        element = chain[0]
        common = {"content_layer": self._layer(element)}
        if element.kind is Kind.TABLE:
            table: Any = self._told.add_table(
                _table_data(element.table, element.text), prov=self._place(element), **common
            )
            if element.table:
                self._held[element.id] = table.self_ref
            return table
        return self._figure(element, common) if element.is_figure else self._text(chain, None)

    def _figure(self, element: Element, common: Mapping[str, Any]) -> NodeItem:
        """The picture, what is known of it, and below it the words that stand in it."""
        from docling_core.types.doc.labels import DocItemLabel

        place, figure = self._place(element), element.figure
        picture = self._told.add_picture(image=self._image(element), prov=place, **common)
        picture.label = DocItemLabel.CHART if element.kind is Kind.CHART else DocItemLabel.PICTURE
        picture.meta = _figure_meta(figure) if figure else None
        said = [element.text, (figure.visible_text if figure else None) or ""]
        visible = prose.flow("\n".join(dict.fromkeys(filter(None, said))))
        if visible:
            self._told.add_text(DocItemLabel.TEXT, visible, prov=place, parent=picture, **common)
        return picture

    def _text(self, chain: Sequence[Element], parent: NodeItem | None) -> NodeItem:
        from docling_core.types.doc.labels import DocItemLabel

        element = chain[0]
        text, places = self._joined(chain)
        orig = element.text if len(chain) == 1 else text
        fields: dict[str, Any] = {
            "orig": orig,
            "prov": places[0],
            "parent": parent,
            "content_layer": self._layer(element),
        }
        item: Any
        if element.kind is Kind.TITLE:
            item = self._told.add_title(text, **fields)
        elif element.kind is Kind.SECTION_HEADER:
            level = min(max(element.level or 1, 1), DEEPEST)
            item = self._told.add_heading(text, level=level, **fields)
        elif element.kind is Kind.LIST_ITEM and element.is_body:
            self._list = self._list or self._told.add_list_group()
            marker, kind, rest = markdown.item(text)
            enumerated = (kind or "").startswith("ordered")
            fields["parent"] = self._list
            item = self._told.add_list_item(rest, enumerated=enumerated, marker=marker.strip(), **fields)
        elif element.kind is Kind.FORMULA:
            latex = element.formula and element.formula.latex
            item = self._told.add_formula(escaping.maths(latex) if latex else text, **fields)
        elif element.kind is Kind.CODE:
            item = self._told.add_code(element.text, **fields)
        else:
            label = DocItemLabel.TEXT if element.kind is Kind.LIST_ITEM else DocItemLabel(str(element.kind))
            item = self._told.add_text(label, text, **fields)
        item.prov.extend(places[1:])
        if len(chain) == 1 and element.text:  # docling takes an empty original for none
            self._held[element.id] = item.self_ref
        return item

    def _joined(self, chain: Sequence[Element]) -> tuple[str, list[ProvenanceItem]]:
        """The text of what runs on, and where each part of it stands."""
        texts = [prose.flow(element.text) for element in chain]
        gaps = [""] * len(texts)
        for n in range(1, len(texts)):
            texts[n - 1], gaps[n], texts[n] = prose.join(texts[n - 1], texts[n])
        whole, places = "", []
        for element, gap, text in zip(chain, gaps, texts, strict=True):
            start = len(whole + gap)
            whole += gap + text
            places.append(self._place(element, (start, len(whole))))
        return whole, places

    def _place(self, element: Element, span: tuple[int, int] = (0, 0)) -> ProvenanceItem:
        """In points of the page; all of the page where the reader gave no box, which `boxes` in the meta tells."""
        from docling_core.types.doc.base import BoundingBox
        from docling_core.types.doc.common.reference import ProvenanceItem

        page, box = self._page(element), element.box
        x0, y0, x1, y1 = box or (0.0, 0.0, 1.0, 1.0)
        width, height = page.width_pt, page.height_pt
        bounds = BoundingBox(l=x0 * width, t=y0 * height, r=x1 * width, b=y1 * height)
        return ProvenanceItem(page_no=element.page, bbox=bounds, charspan=span)

    def _page(self, element: Element) -> Page:
        return self._pages[element.page]

    def _layer(self, element: Element) -> Any:
        from docling_core.types.doc.common.content_layer import ContentLayer

        return ContentLayer.BODY if element.is_body else ContentLayer.FURNITURE

    def _image(self, element: Element) -> Any:
        """The crop beside the document, in pixels of the page as it was read."""
        from docling_core.types.doc.base import Size
        from docling_core.types.doc.common.reference import ImageRef

        drawn, box = self._page(element).image, element.box
        if not element.image or drawn is None or box is None:
            return None
        x0, y0, x1, y1 = box.to_pixels(drawn.width_px, drawn.height_px)
        size = Size(width=x1 - x0, height=y1 - y0)
        return ImageRef(mimetype="image/png", dpi=round(drawn.dpi), size=size, uri=element.image)


def _figure_meta(figure: Figure) -> Any:
    """What docling has fields for."""
    from docling_core.types.doc.items.picture.meta import PictureMeta

    told: dict[str, Any] = {}
    if figure.description:
        told["description"] = {"text": figure.description}
    if figure.type:
        told["classification"] = {"predictions": [{"class_name": figure.type}]}
    if figure.smiles:
        told["molecule"] = {"smi": figure.smiles}
    if figure.data:
        told["tabular_chart"] = {"chart_data": _table_data(figure.data, "")}
    if figure.mermaid:
        told["code"] = {"text": figure.mermaid}
    return PictureMeta.model_validate(told) if told else None


def _kept(element: Element, item: str | None) -> dict[str, Any]:
    """The element without what the item holds: its text, or a table's cells."""
    fields = element.model_dump(mode="json", exclude_defaults=True)
    if item is None:
        return fields
    if element.kind is Kind.TABLE:
        fields["table"] = {name: value for name, value in fields["table"].items() if name != "cells"}
    else:
        fields.pop("text", None)
    return {**fields, "item": item}


def _table_data(table: Table | None, text: str) -> TableData:
    """The cells; of a table that has none its text as the only one, which is no cell of ours."""
    from docling_core.types.doc.items.table.table_data import TableCell, TableData

    cells = table.cells if table else (Cell(row=0, col=0, text=text),) if text else ()
    rows = max([table.rows if table else 0, *(cell.row + cell.row_span for cell in cells)])
    cols = max([table.cols if table else 0, *(cell.col + cell.col_span for cell in cells)])
    told = [
        TableCell(
            start_row_offset_idx=cell.row,
            end_row_offset_idx=cell.row + cell.row_span,
            start_col_offset_idx=cell.col,
            end_col_offset_idx=cell.col + cell.col_span,
            row_span=cell.row_span,
            col_span=cell.col_span,
            text=cell.text,
            column_header=cell.header,
        )
        for cell in cells
    ]
    return TableData(table_cells=told, num_rows=rows, num_cols=cols)
