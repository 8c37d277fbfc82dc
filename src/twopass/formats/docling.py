"""Convert a Document to a DoclingDocument (docling.json) for docling's chunkers and exporters, and back.

Fields that docling does not have are kept in the metadata of one group that docling's exporters and chunkers skip, so
nothing is lost on the way back.

Docling's texts are plain, and its export to Markdown escapes only some of them. So what would be a tag or a link there
has a blank in it; `orig` and the kept fields hold the text as it was read.
"""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from twopass.document import Cell, Document, Element, Figure, Flag, Kind, Page, Table
from twopass.format_options import Markdown
from twopass.formats import escaping, flow, hidden_text
from twopass.formats.writer_input import WriterInput
from twopass.text import links, list_items, maths, prose

if TYPE_CHECKING:
    from docling_core.types.doc.common.reference import ProvenanceItem
    from docling_core.types.doc.document import DoclingDocument
    from docling_core.types.doc.items.node import NodeItem
    from docling_core.types.doc.items.table.table_data import TableData

# One group, because docling's exporters and chunkers print the metadata of an item with the item's text.
_GROUP = "twopass"
_METADATA_KEY = "twopass__document"
_MAX_HEADING_LEVEL = 100  # of docling
_NOTE_KINDS = frozenset({Kind.CAPTION, Kind.FOOTNOTE})
_UNKNOWN_TYPE = "application/octet-stream"


def write(inputs: WriterInput) -> bytes:
    """docling.json; equal documents give equal bytes."""
    shown = hidden_text.show(inputs.with_spans, inputs.options.hidden_text)
    exported = convert(shown).export_to_dict()
    return json.dumps(exported, ensure_ascii=False, separators=(",", ":")).encode(errors="backslashreplace")


def convert(document: Document) -> DoclingDocument:
    """Convert each element to an item, in document order; elements that continue each other become one item."""
    return _Converter(document).convert()


def loads(data: bytes) -> Document:
    """Read the Document back from a docling.json, with the texts and cells that docling's items hold now."""
    from docling_core.types.doc.document import DoclingDocument

    return restore(DoclingDocument.model_validate_json(data))


def restore(docling_document: DoclingDocument) -> Document:
    """Rebuild the Document. Raises ValueError if twopass did not write it, or if items were added or removed since."""
    group = next((group for group in docling_document.groups if group.name == _GROUP), None)
    kept = (group.meta.get_custom_part() if group and group.meta else {}).get(_METADATA_KEY)
    if kept is None:
        raise ValueError(f"no {_METADATA_KEY}: this docling document was not made by twopass")
    if kept["counts"] != _count_items(docling_document):
        raise ValueError("items were added or removed, so items cannot be matched to elements")
    elements = [_restore_element(fields, docling_document) for fields in kept["elements"]]
    return Document.model_validate({**kept["document"], "elements": elements})


def _count_items(docling_document: DoclingDocument) -> list[int]:
    return [len(docling_document.texts), len(docling_document.tables), len(docling_document.pictures)]


def _restore_element(fields: Mapping[str, Any], docling_document: DoclingDocument) -> dict[str, Any]:
    """The element's fields, with the text or cells of the item that holds them."""
    from docling_core.types.doc.common.reference import RefItem

    element = {name: value for name, value in fields.items() if name != "item"}
    if (reference := fields.get("item")) is None:
        return element
    item: Any = RefItem(cref=reference).resolve(docling_document)
    if element["kind"] == Kind.TABLE:
        cells = [_restore_cell(cell) for cell in item.data.table_cells]
        return {**element, "table": {**element["table"], "cells": cells}}
    return {**element, "text": item.orig}


def _restore_cell(cell: Any) -> dict[str, Any]:
    return {
        "row": cell.start_row_offset_idx,
        "col": cell.start_col_offset_idx,
        "row_span": cell.row_span,
        "col_span": cell.col_span,
        "text": cell.text,
        "header": cell.column_header,
    }


class _Converter:
    """The conversion of one document: the DoclingDocument so far, and the item of each converted element."""

    def __init__(self, document: Document) -> None:
        from docling_core.types.doc.document import DoclingDocument

        self._document = document
        self._pages = {page.number: page for page in document.pages}
        self._flow = flow.build(document, Markdown(merge_tables=False))
        self._by_id = {element.id: element for element in document.elements}
        self._docling = DoclingDocument(name=document.meta.title or document.id, origin=self._make_origin())
        self._items: dict[str, NodeItem] = {}  # by element id
        self._holders: dict[str, str] = {}  # element id -> the item that holds all of its text or cells
        self._list: NodeItem | None = None  # the list that the next list item belongs to

    def convert(self) -> DoclingDocument:
        from docling_core.types.doc.base import Size

        for page in self._document.pages:
            self._docling.add_page(page.number, Size(width=page.width_pt, height=page.height_pt))
        continuations = set(self._flow.next_of.values())
        notes = self._collect_notes(continuations | set(self._flow.next_of))
        attached = {note.id for attached_notes in notes.values() for note in attached_notes}
        for element in self._document.elements:
            if element.id in continuations or element.id in attached:
                continue
            self._add(element)
            for note in notes.get(element.id, ()):
                self._add_note(note, element)
        self._add_remainder()
        return self._docling

    def _collect_notes(self, joined: set[str]) -> dict[str, list[Element]]:
        """Captions and footnotes of each table and figure, without those that are joined with other elements."""
        parents = {e.parent_id for e in self._document.elements if e.kind in _NOTE_KINDS}
        owners = [e for e in self._document.elements if e.id in parents and (e.kind is Kind.TABLE or e.is_figure)]
        notes: dict[str, list[Element]] = {owner.id: [] for owner in owners}
        for element in self._document.elements:
            if element.kind in _NOTE_KINDS and element.parent_id in notes and element.id not in joined:
                notes[element.parent_id].append(element)
        return notes

    def _add_remainder(self) -> None:
        """Add the group whose metadata keeps everything that no item holds."""
        from docling_core.types.doc.common.content_layer import ContentLayer
        from docling_core.types.doc.common.meta import BaseMeta

        fields = self._document.model_dump(mode="json", by_alias=True, exclude={"elements"})
        elements = [_dump_remainder(element, self._holders.get(element.id)) for element in self._document.elements]
        kept = {"document": fields, "elements": elements, "counts": _count_items(self._docling)}
        group = self._docling.add_group(name=_GROUP, content_layer=ContentLayer.INVISIBLE)
        group.meta = BaseMeta.model_validate({_METADATA_KEY: kept})

    def _make_origin(self) -> Any:
        from docling_core.types.doc.common.origin import DocumentOrigin

        source = self._document.source
        is_known = source.mime in mimetypes.types_map.values()
        name = urlsplit(source.uri).path.rpartition("/")[2] or self._document.id
        digest = int(source.sha256[:16], 16)
        return DocumentOrigin(mimetype=source.mime if is_known else _UNKNOWN_TYPE, binary_hash=digest, filename=name)

    def _add(self, element: Element) -> None:
        chain = [element, *self._follow(element)]
        if element.kind is not Kind.LIST_ITEM or not element.is_body:
            self._list = None
        self._items[element.id] = self._add_item(chain)

    def _follow(self, element: Element) -> Iterator[Element]:
        """Yield the element's continuations."""
        while (following := self._flow.next_of.get(element.id)) is not None:
            element = self._by_id[following]
            yield element

    def _add_note(self, note: Element, owner: Element) -> None:
        """Add a caption or footnote below its table or figure."""
        self._list = None
        parent = self._items[owner.id]
        item = self._add_text([note], parent)
        references = parent.captions if note.kind is Kind.CAPTION else parent.footnotes
        references.append(item.get_ref())

    def _add_item(self, chain: Sequence[Element]) -> NodeItem:
        element = chain[0]
        if element.kind is Kind.TABLE:
            return self._add_table(element)
        return self._add_figure(element) if element.is_figure else self._add_text(chain, None)

    def _add_table(self, element: Element) -> NodeItem:
        """Add a table, and below it what its text says and its cells do not."""
        from docling_core.types.doc.labels import DocItemLabel

        own_text, cells = flow.get_own_text(element), element.table.cells if element.table else ()
        data = _make_table_data(element.table, "" if cells else own_text)
        place, layer = self._make_provenance(element), self._find_layer(element)
        table: Any = self._docling.add_table(data, prov=place, content_layer=layer)
        if cells and own_text:
            own_text = escaping.make_inert(own_text)
            self._docling.add_text(DocItemLabel.TEXT, own_text, prov=place, parent=table, content_layer=layer)
        if cells and all(escaping.make_inert(cell.text) == cell.text and not cell.links for cell in cells):
            self._holders[element.id] = table.self_ref
        return table

    def _add_figure(self, element: Element) -> NodeItem:
        """Add a picture with its metadata, and below it the text visible in it."""
        from docling_core.types.doc.labels import DocItemLabel

        place, layer, figure = self._make_provenance(element), self._find_layer(element), element.figure
        picture = self._docling.add_picture(image=self._make_image(element), prov=place, content_layer=layer)
        picture.label = DocItemLabel.CHART if element.kind is Kind.CHART else DocItemLabel.PICTURE
        texts = flow.describe_figure(element)
        picture.meta = _make_picture_meta(figure, texts.description) if figure else None
        if visible := escaping.make_inert(texts.visible):
            self._docling.add_text(DocItemLabel.TEXT, visible, prov=place, parent=picture, content_layer=layer)
        return picture

    def _add_text(self, chain: Sequence[Element], parent: NodeItem | None) -> NodeItem:
        from docling_core.types.doc.labels import DocItemLabel

        element = chain[0]
        text, places = self._join(chain)
        orig = element.text if len(chain) == 1 else text
        fields: dict[str, Any] = {
            "orig": orig,
            "prov": places[0],
            "parent": parent,
            "content_layer": self._find_layer(element),
        }
        if len(chain) == 1 and (uri := _find_hyperlink(element)):
            fields["hyperlink"] = uri
        item: Any
        if element.kind is Kind.TITLE:
            item = self._docling.add_title(text, **fields)
        elif element.kind is Kind.SECTION_HEADER:
            level = min(max(element.level or 1, 1), _MAX_HEADING_LEVEL)
            item = self._docling.add_heading(text, level=level, **fields)
        elif element.kind is Kind.LIST_ITEM and element.is_body:
            self._list = self._list or self._docling.add_list_group()
            marker, rest = list_items.parse(text)
            fields["parent"] = self._list
            item = self._docling.add_list_item(
                rest, enumerated=list_items.get_number(marker) is not None, marker=marker.strip(), **fields
            )
        elif element.kind is Kind.FORMULA:
            item = self._docling.add_formula(maths.escape_display(flow.get_latex(element)) or text, **fields)
        elif element.kind is Kind.CODE:
            item = self._docling.add_code(escaping.make_inert(element.text), **fields)
        else:
            label = DocItemLabel.TEXT if element.kind is Kind.LIST_ITEM else DocItemLabel(str(element.kind))
            item = self._docling.add_text(label, text, **fields)
        item.prov.extend(places[1:])
        if len(chain) == 1 and element.text:  # docling drops an empty `orig`
            self._holders[element.id] = item.self_ref
        return item

    def _join(self, chain: Sequence[Element]) -> tuple[str, list[ProvenanceItem]]:
        """The joined text of the elements, and the provenance of each part of it."""
        written = [self._flow.by_id.get(element.id, element).text for element in chain]  # with its bullets
        texts = [escaping.make_inert(prose.to_one_line(text)) for text in written]
        gaps = [""] * len(texts)
        for n in range(1, len(texts)):
            texts[n - 1], gaps[n], texts[n] = self._flow.join_lines(texts[n - 1], texts[n])
        joined, places = "", []
        for element, gap, text in zip(chain, gaps, texts, strict=True):
            start = len(joined + gap)
            joined += gap + text
            places.append(self._make_provenance(element, (start, len(joined))))
        return joined, places

    def _make_provenance(self, element: Element, span: tuple[int, int] = (0, 0)) -> ProvenanceItem:
        """Page and box in points; without a box the whole page (the kept fields say that there was none)."""
        from docling_core.types.doc.base import BoundingBox
        from docling_core.types.doc.common.reference import ProvenanceItem

        page, box = self._find_page(element), element.box
        x0, y0, x1, y1 = box or (0.0, 0.0, 1.0, 1.0)
        width, height = page.width_pt, page.height_pt
        bounds = BoundingBox(l=x0 * width, t=y0 * height, r=x1 * width, b=y1 * height)
        return ProvenanceItem(page_no=element.page, bbox=bounds, charspan=span)

    def _find_page(self, element: Element) -> Page:
        return self._pages[element.page]

    def _find_layer(self, element: Element) -> Any:
        from docling_core.types.doc.common.content_layer import ContentLayer

        if Flag.HIDDEN_TEXT in element.flags:
            return ContentLayer.INVISIBLE
        return ContentLayer.BODY if element.is_body else ContentLayer.FURNITURE

    def _make_image(self, element: Element) -> Any:
        """A reference to the crop stored beside the document, sized in pixels of the rendered page."""
        from docling_core.types.doc.base import Size
        from docling_core.types.doc.common.reference import ImageRef

        page_image, box = self._find_page(element).image, element.box
        if not element.image or page_image is None or box is None:
            return None
        x0, y0, x1, y1 = box.to_pixels(page_image.width_px, page_image.height_px)
        size = Size(width=x1 - x0, height=y1 - y0)
        return ImageRef(mimetype="image/png", dpi=round(page_image.dpi), size=size, uri=element.image)


def _find_hyperlink(element: Element) -> Any:
    """The address of an element whose whole text is one link; docling has no other links."""
    from pydantic import AnyUrl

    line = flow.InlineText(element.text, False)
    shown = flow.locate_links(element, line)
    if len(shown) != 1 or any(map(str.isalnum, element.text[: shown[0].start] + element.text[shown[0].end :])):
        return None
    with suppress(ValueError):  # docling's parser refuses some addresses
        return AnyUrl(links.encode_address(shown[0].uri))
    return None


def _make_picture_meta(figure: Figure, description: str) -> Any:
    """The figure's values that docling has fields for; None if there are none."""
    from docling_core.types.doc.items.picture.meta import PictureMeta

    meta: dict[str, Any] = {}
    if description:
        meta["description"] = {"text": escaping.make_inert(description)}
    if figure.type:
        meta["classification"] = {"predictions": [{"class_name": escaping.make_inert(figure.type)}]}
    if figure.smiles:
        meta["molecule"] = {"smi": escaping.make_inert(figure.smiles)}
    if figure.data:
        meta["tabular_chart"] = {"chart_data": _make_table_data(figure.data, "")}
    if figure.mermaid:
        meta["code"] = {"text": escaping.make_inert(figure.mermaid)}
    return PictureMeta.model_validate(meta) if meta else None


def _dump_remainder(element: Element, item: str | None) -> dict[str, Any]:
    """The element's fields without what its item holds: its text, or a table's cells."""
    fields = element.model_dump(mode="json", exclude_defaults=True)
    if item is None:
        return fields
    if element.kind is Kind.TABLE:
        fields["table"] = {name: value for name, value in fields["table"].items() if name != "cells"}
    else:
        fields.pop("text", None)
    return {**fields, "item": item}


def _make_table_data(table: Table | None, text: str) -> TableData:
    """A table's cells; without any, its text and this one as the only cell (which is not restored as a cell)."""
    from docling_core.types.doc.items.table.table_data import TableCell, TableData

    only = "\n".join(filter(None, (flow.get_table_text(table) if table else "", text)))
    cells = (table.cells if table else ()) or ((Cell(row=0, col=0, text=only),) if only else ())
    rows = max([table.rows if table else 0, *(cell.row + cell.row_span for cell in cells)])
    cols = max([table.cols if table else 0, *(cell.col + cell.col_span for cell in cells)])
    table_cells = [
        TableCell(
            start_row_offset_idx=cell.row,
            end_row_offset_idx=cell.row + cell.row_span,
            start_col_offset_idx=cell.col,
            end_col_offset_idx=cell.col + cell.col_span,
            row_span=cell.row_span,
            col_span=cell.col_span,
            text=escaping.make_inert(cell.text),
            column_header=cell.header,
        )
        for cell in cells
    ]
    return TableData(table_cells=table_cells, num_rows=rows, num_cols=cols)
