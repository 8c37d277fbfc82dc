"""Convert EPUB books to PDF with MuPDF. Runs in page workers."""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Sequence, Set
from dataclasses import dataclass
from html.entities import name2codepoint
from importlib.metadata import version
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from twopass.errors import Code, SourceError
from twopass.pages import glyph_names, lost_words, office_package
from twopass.pages.source_files import SAVE_AGAIN, empty_mupdf_store, translate_pdf_errors

_PAGE = (420.0, 595.0)  # points: A5, on which a line has about 70 characters
_COLUMN = "348pt"  # between its margins
_FONT_SIZE = 11.0
_WIDEST = 4000.0  # points, for tables that no line can hold
_MARGIN = 40.0
_STYLE = "pre, code, listing { white-space: pre-wrap } * { overflow-wrap: break-word !important }"
_PROSE = ("p", "ul", "ol", "dl", "pre", "h1", "h2", "h3", "h4", "h5", "h6")
_NARROW_PROSE = (
    f"{', '.join(_PROSE)} {{ width: {_COLUMN} }} {', '.join(f'table {name}' for name in _PROSE)} {{ width: auto }}"
)
_TOO_DEEP = "depth limit exceeded"  # MuPDF's message when it leaves out what lies deeper
_CHAPTERS = (".xhtml", ".html", ".htm", ".xml")
_XHTML = "http://www.w3.org/1999/xhtml"
_TABLE_PARTS = ("thead", "tbody", "tfoot", "tr", "td", "th")
_LONG_WORD = re.compile(r"\S{60}(?=\S)")
_BREAK = "\u200b"  # where a word may end a line


class _TooWide(Exception):
    """No page can hold a line or table of the book."""


@dataclass(frozen=True)
class _Print:
    """The book's pages in one layout."""

    pdf: Any
    toc: list[tuple[int, str, int]]
    starts: list[int]  # the first page of each chapter, from 0, and the number of pages


def describe_converter() -> str:
    """What decides how a book's pages look."""
    return f"MuPDF {version('pymupdf')}, layout 4"


def convert(source: str, target: str) -> tuple[str, ...]:
    """Convert the book to the PDF `target`, with its title and table of contents.

    Returns what the book says that is on no page. Raises SourceError.
    """
    if office_package.check(source).is_encrypted:
        raise SourceError(Code.ENCRYPTED, "the book is protected; save it without protection")
    words = office_package.check_chapters(source)
    try:
        _convert(source, target)
    except _TooWide:
        _simplify(source, simplified := f"{target}.simplified")
        try:
            _convert(simplified, target)
        except _TooWide as error:
            message = f"a line or table of the book is over {_WIDEST:g} points wide; {SAVE_AGAIN}"
            raise SourceError(Code.SOURCE_TOO_LARGE, message) from error
        finally:
            Path(simplified).unlink()
    finally:
        empty_mupdf_store()
    return lost_words.name(words, target)


def _convert(source: str, target: str) -> None:
    """Print each chapter on A5, or on pages as wide as its tables demand: what stands beside a page would be lost."""
    import pymupdf

    with translate_pdf_errors(source), pymupdf.open(source, filetype="epub") as book:
        if book.is_pdf or not book.is_reflowable:
            raise SourceError(Code.DAMAGED, f"the book cannot be opened; {SAVE_AGAIN}")
        pymupdf.TOOLS.reset_mupdf_warnings()
        edges = _lay_out(book, _PAGE[0], _STYLE)
        if _TOO_DEEP in pymupdf.TOOLS.mupdf_warnings():
            message = f"its elements lie over 90 deep in each other, where MuPDF shows none; {SAVE_AGAIN}"
            raise SourceError(Code.SOURCE_TOO_LARGE, message)
        prints = [_print(book)]
        wide = {chapter for chapter, edge in enumerate(edges) if edge > _PAGE[0]}
        if wide:
            _widen(book, max(edges))
            prints.append(_print(book))
        with _join(prints, wide) as pdf:
            pdf.set_metadata({name: book.metadata.get(name) or "" for name in ("title", "author")})
            pdf.save(target)


def _lay_out(book: Any, width: float, style: str) -> list[float]:
    """Lay the pages out; returns how far each chapter reaches to the right, in points."""
    import pymupdf

    pymupdf.mupdf.fz_style_document(book.this, True, style)
    book.layout(width=width, height=max(_PAGE[1], width / math.sqrt(2)), fontsize=_FONT_SIZE)
    rights = [max((block[2] for block in page.get_text("blocks", flags=0)), default=0.0) for page in book]
    return [max(rights[start:end], default=0.0) for start, end in pairwise(_find_starts(book))]


def _find_starts(book: Any) -> list[int]:
    return [0, *accumulate(book.chapter_page_count(chapter) for chapter in range(book.chapter_count))]


def _widen(book: Any, right: float) -> None:
    """Widen the pages until nothing stands beside them; prose keeps its width. Raises _TooWide."""
    width = _PAGE[0]
    while right > width:
        if width == _WIDEST:
            raise _TooWide
        width = min(right + _MARGIN, _WIDEST)
        right = max(_lay_out(book, width, _STYLE + _NARROW_PROSE))


def _print(book: Any) -> _Print:
    import pymupdf

    pdf = pymupdf.open("pdf", book.convert_to_pdf())
    glyph_names.add(book, pdf)
    return _Print(pdf, book.get_toc(), _find_starts(book))


def _join(prints: Sequence[_Print], wide: Set[int]) -> Any:
    """One PDF with all chapters, those in `wide` from the second print, and with the table of contents."""
    import pymupdf

    joined, places = pymupdf.open(), dict[tuple[int, int], int]()
    for chapter in range(len(prints[0].starts) - 1):
        number = int(chapter in wide)
        start, end = prints[number].starts[chapter : chapter + 2]
        if start < end:
            places |= {(number, page): joined.page_count + page - start for page in range(start, end)}
            joined.insert_pdf(prints[number].pdf, from_page=start, to_page=end - 1)
    toc = list[tuple[int, str, int]]()
    for entries in zip(*(printed.toc for printed in prints), strict=True):
        for number, (level, title, page) in enumerate(entries):
            if (number, page - 1) in places:
                above = toc[-1][0] if toc else 0  # the entry above may have no page
                toc.append((min(level, above + 1), title, places[number, page - 1] + 1))
    joined.set_toc(toc)
    return joined


def _simplify(source: str, target: str) -> None:
    """Write the book without tables around tables, and with places where long words may end a line.

    MuPDF gives a column the width of all its text on one line, and breaks no word in a cell.
    """
    with zipfile.ZipFile(source) as book, zipfile.ZipFile(target, "w") as simplified:
        for part in book.infolist():
            data = book.read(part)
            simplified.writestr(part, _simplify_chapter(data) if part.filename.endswith(_CHAPTERS) else data)


def _simplify_chapter(data: bytes) -> bytes:
    """The chapter itself if it is not XML."""
    parser = ElementTree.XMLParser()
    parser.entity.update({name: chr(code) for name, code in name2codepoint.items()})
    try:
        chapter = ElementTree.fromstring(data, parser)
        for element in chapter.iter():
            element.text, element.tail = map(_break_words, (element.text, element.tail))
        for table in [element for element in chapter.iter() if _get_name(element) == "table"]:
            if sum(_get_name(element) == "table" for element in table.iter()) > 1:
                _replace_table(table)
        ElementTree.register_namespace("", _XHTML)
        return ElementTree.tostring(chapter)
    except (ElementTree.ParseError, RecursionError):
        return data


def _get_name(element: ElementTree.Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _break_words(text: str | None) -> str | None:
    return text and _LONG_WORD.sub(rf"\g<0>{_BREAK}", text)


def _replace_table(table: ElementTree.Element) -> None:
    """Make blocks of the table and of its cells, but not of those of tables in it."""
    parts = [table]
    while parts:
        part = parts.pop()
        if part is table or _get_name(part) in _TABLE_PARTS:
            part.tag = part.tag.replace(_get_name(part), "div")
        parts += [child for child in part if _get_name(child) != "table"]
