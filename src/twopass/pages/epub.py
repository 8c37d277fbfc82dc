"""Convert EPUB books to PDF with MuPDF. Runs in page workers."""

from __future__ import annotations

import math
from importlib.metadata import version
from typing import Any

from twopass.errors import Code, SourceError
from twopass.pages import office_package
from twopass.pages.source_files import SAVE_AGAIN, empty_mupdf_store, translate_pdf_errors

_PAGE = (420.0, 595.0)  # points: A5, on which a line has about 70 characters
_FONT_SIZE = 11.0
_WIDEST = 4000.0  # points, for tables and words that no line can hold
_MARGIN = 40.0
_STYLE = "pre, code, listing { white-space: pre-wrap }"


def describe_converter() -> str:
    """What decides how a book's pages look."""
    return f"MuPDF {version('pymupdf')}, layout 2"


def convert(source: str, target: str) -> None:
    """Convert the book to the PDF `target`, with its title and table of contents. Raises SourceError."""
    import pymupdf

    if office_package.check(source).is_encrypted:
        raise SourceError(Code.ENCRYPTED, "the book is protected; save it without protection")
    office_package.check_chapters(source)
    try:
        with translate_pdf_errors(source), pymupdf.open(source, filetype="epub") as book:
            if book.is_pdf or not book.is_reflowable:
                raise SourceError(Code.DAMAGED, f"the book cannot be opened; {SAVE_AGAIN}")
            _lay_out(book)
            with pymupdf.open("pdf", book.convert_to_pdf()) as pdf:
                pdf.set_toc([entry for entry in book.get_toc() if entry[2] > 0])
                pdf.set_metadata({name: book.metadata.get(name) or "" for name in ("title", "author")})
                pdf.save(target)
    finally:
        empty_mupdf_store()


def _lay_out(book: Any) -> None:
    """Lay the pages out, as wide as the widest table or word demands: what stands beside a page would be lost."""
    import pymupdf

    pymupdf.mupdf.fz_set_user_css(_STYLE)
    width, needed = 0.0, _PAGE[0]
    while width < needed and width < _WIDEST:
        width = min(needed, _WIDEST)
        height = max(_PAGE[1], width / math.sqrt(2))
        book.layout(width=width, height=height, fontsize=_FONT_SIZE)
        right = max((block[2] for page in book for block in page.get_text("blocks", flags=0)), default=0)
        needed = right + _MARGIN if right > width else width
    if width < needed:
        message = f"a line or table of the book is over {_WIDEST:g} points wide; {SAVE_AGAIN}"
        raise SourceError(Code.SOURCE_TOO_LARGE, message)
