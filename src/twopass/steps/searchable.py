"""The text of pages for the searchable PDF: which texts of the elements, and where words are known to stand."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

from twopass.document import Element, Flag, Kind, Page
from twopass.errors import SourceError
from twopass.families.layout import page_layout
from twopass.pages import searchable_pdf
from twopass.pages.rendered_page import PagePointer
from twopass.pages.searchable_pdf import PageText, PlacedText
from twopass.pages.source_files import CheckedFile
from twopass.pages.word_places import GridText, Text
from twopass.runtime import scratch
from twopass.runtime.page_pool import PagePool
from twopass.storage import error_mapping

_OF_LAYER = frozenset({Flag.HIDDEN_LAYER, Flag.TEXT_LAYER})


def describe(page: Page, elements: Iterable[Element], answers: Iterable[str], file: CheckedFile) -> PageText:
    """The texts of a page that was read, and the places of words that the engine's answers have."""
    shown = () if page.is_lost else tuple(element for element in elements if element.boxes and not element.is_hidden)
    texts = tuple(text for element in shown if (text := _describe(element)).text or text.cells)
    keeps_layer = any(not _OF_LAYER.isdisjoint(element.flags) for element in shown)
    pointer = PagePointer(str(file.path), page.number, page.rotation_applied, file.password, is_pdf=file.is_pdf)
    return PageText(pointer, texts, page_layout.find_words(answers), keeps_layer)


def _describe(element: Element) -> Text:
    if element.table:
        cells = (
            GridText((cell.row, cell.row + cell.row_span), (cell.col, cell.col + cell.col_span), cell.text)
            for cell in element.table.cells
            if cell.text
        )
        return Text(element.boxes, cells=tuple(cells))
    if element.kind is Kind.FORMULA:
        latex = element.formula.latex if element.formula else None
        return Text(element.boxes, latex or element.text, is_formula=True)
    if element.is_figure:
        visible = element.figure.visible_text if element.figure else None
        return Text(element.boxes, visible or "", is_picture=True)
    return Text(element.boxes, element.text)


async def place(page: PageText, page_pool: PagePool) -> PlacedText:
    """Find the places of the words. Raises SourceError or WorkerDied."""
    return await page_pool.call_with_retry(searchable_pdf.place, page)


async def write(file: CheckedFile, pages: Sequence[PlacedText], page_pool: PagePool) -> bytes:
    """The bytes of the PDF, which a page worker writes to a file: answers are limited.

    Raises SourceError or WorkerDied.
    """
    with error_mapping.map_errors("the worker's disk", SourceError), scratch.open_folder() as folder:
        target = folder / "searchable.pdf"
        sizes = None if file.is_pdf else file.pages
        await page_pool.call_with_retry(
            searchable_pdf.write, str(file.path), str(target), file.password, sizes, tuple(pages)
        )
        return await asyncio.to_thread(Path.read_bytes, target)
