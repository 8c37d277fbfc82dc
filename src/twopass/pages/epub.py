"""Convert EPUB books to PDF with MuPDF. Runs in page workers."""

from __future__ import annotations

from importlib.metadata import version

from twopass.errors import Code, SourceError
from twopass.pages import office_package
from twopass.pages.source_files import SAVE_AGAIN, empty_mupdf_store, translate_pdf_errors

_PAGE = (420.0, 595.0)  # points: A5, on which a line has about 70 characters
_FONT_SIZE = 11.0


def describe_converter() -> str:
    """What decides how a book's pages look."""
    return f"MuPDF {version('pymupdf')}"


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
            book.layout(width=_PAGE[0], height=_PAGE[1], fontsize=_FONT_SIZE)
            with pymupdf.open("pdf", book.convert_to_pdf()) as pdf:
                pdf.set_toc([entry for entry in book.get_toc() if entry[2] > 0])
                pdf.set_metadata({name: book.metadata.get(name) or "" for name in ("title", "author")})
                pdf.save(target)
    finally:
        empty_mupdf_store()
