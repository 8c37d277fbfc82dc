"""The types of files that are read: how each is recognised by its content, its suffixes, and what opens it.

A type that LibreOffice or MuPDF converts to a PDF has a `converter`, and pages like any other PDF.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from twopass.errors import Code, SourceError


class Converter(Enum):
    """What converts files to PDFs."""

    LIBREOFFICE = "LibreOffice"
    MUPDF = "MuPDF"


@dataclass(frozen=True)
class FileType:
    """`load_filter` is LibreOffice's name of the format, so that it reads no file as another format."""

    mime: str
    suffixes: tuple[str, ...]
    converter: Converter | None = None
    load_filter: str = ""


def _office(mime: str, suffix: str, load_filter: str) -> FileType:
    return FileType(f"application/vnd.{mime}", (suffix,), Converter.LIBREOFFICE, load_filter)


PDF = FileType("application/pdf", (".pdf",))
HTML = FileType("text/html", (".html", ".htm", ".xhtml"), Converter.LIBREOFFICE, "HTML (StarWriter)")
RTF = FileType("application/rtf", (".rtf",), Converter.LIBREOFFICE, "Rich Text Format")
EPUB = FileType("application/epub+zip", (".epub",), Converter.MUPDF)
_PNG, _JPEG = FileType("image/png", (".png",)), FileType("image/jpeg", (".jpg", ".jpeg"))
_WEBP, _TIFF = FileType("image/webp", (".webp",)), FileType("image/tiff", (".tif", ".tiff"))
_BMP, _GIF = FileType("image/bmp", (".bmp", ".dib")), FileType("image/gif", (".gif",))
_JPEG_2000 = FileType("image/jp2", (".jp2", ".j2k", ".jpx"))
_HEIC, _AVIF = FileType("image/heic", (".heic", ".heif")), FileType("image/avif", (".avif",))
_IMAGES = (_PNG, _JPEG, _WEBP, _TIFF, _BMP, _GIF, _JPEG_2000, _HEIC, _AVIF)
_OPENXML = "openxmlformats-officedocument"
_OOXML = {  # by the folder of their parts
    b"word": _office(f"{_OPENXML}.wordprocessingml.document", ".docx", "MS Word 2007 XML"),
    b"ppt": _office(f"{_OPENXML}.presentationml.presentation", ".pptx", "Impress MS PowerPoint 2007 XML"),
    b"xl": _office(f"{_OPENXML}.spreadsheetml.sheet", ".xlsx", "Calc MS Excel 2007 XML"),
}
_ODF = (
    _office("oasis.opendocument.text", ".odt", "writer8"),
    _office("oasis.opendocument.presentation", ".odp", "impress8"),
    _office("oasis.opendocument.spreadsheet", ".ods", "calc8"),
)
TYPES = (PDF, *_IMAGES, *_OOXML.values(), *_ODF, RTF, HTML, EPUB)
_BY_SUFFIX = {suffix: kind for kind in TYPES for suffix in kind.suffixes}
IN_FOLDERS = frozenset(_BY_SUFFIX) - set(HTML.suffixes)  # a folder's web pages are seldom what somebody wants to read
NAMES = (
    "PDF, PNG, JPEG, WebP, TIFF, BMP, GIF, JPEG 2000, HEIC, AVIF, docx, pptx, xlsx, odt, odp, ods, RTF, HTML or EPUB"
)

_HEAD_BYTES = 1024  # PDF readers accept other data before the header up to here
_TAIL_BYTES = 1024  # and other data after the end
_DIRECTORY_BYTES = 1 << 16  # at the end of a ZIP archive: its directory, or the last names of it
_PDF_OBJECT = re.compile(rb"(?:^|\s)\d+ \d+ obj\b")
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", _PNG),
    (b"\xff\xd8\xff", _JPEG),
    (b"II*\x00", _TIFF),
    (b"MM\x00*", _TIFF),
    (b"II+\x00", _TIFF),
    (b"MM\x00+", _TIFF),
    (b"GIF87a", _GIF),
    (b"GIF89a", _GIF),
    (b"\x00\x00\x00\x0cjP  \r\n\x87\n", _JPEG_2000),
    (b"\xff\x4f\xff\x51", _JPEG_2000),  # without a container
    (b"{\\rtf", RTF),
)
_ZIP, _OLE = b"PK\x03\x04", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_OOXML_PART = re.compile(rb"PK\x01\x02.{42}(word|ppt|xl)/", re.DOTALL)  # an entry of the directory
_STORED_TYPE = re.compile(rb"PK\x03\x04.{26}mimetype([a-z.+/-]+)", re.DOTALL)  # the first entry of ODF and EPUB
_ZIP_END = b"PK\x05\x06"  # a record that has the size of the directory
_MAX_DIRECTORY_BYTES, _MAX_MIME_BYTES = 1 << 20, 100
_BINARY_WORKBOOK = "xl/workbook.bin"  # of xlsb, which is no xlsx
_ENCRYPTED_PACKAGE = "EncryptedPackage".encode("utf-16-le")  # a name in the directory of an OLE file
_BMP_HEADERS = (12, 40, 52, 56, 64, 108, 124)  # bytes of the header that follows that of the file
_BRANDS = {
    b"avif": _AVIF,
    b"avis": _AVIF,
    b"heic": _HEIC,
    b"heix": _HEIC,
    b"heim": _HEIC,
    b"hevc": _HEIC,
    b"hevx": _HEIC,
}
_HTML_STARTS = (b"<!doctype html", b"<html")


def is_image(mime: str) -> bool:
    return mime.startswith("image/")


def of_suffix(suffix: str) -> FileType | None:
    """The type of files with this suffix, in any case."""
    return _BY_SUFFIX.get(suffix.lower())


def detect(path: Path, suffix: str) -> FileType:
    """The type of the file by its content; raises SourceError for an empty or unsupported file.

    `suffix` is that of its name: a web page is a document only if it is called one, and not the form of a login in
    place of a PDF; an encrypted file does not say what is in it.
    """
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        file.seek(max(path.stat().st_size - _DIRECTORY_BYTES, 0))
        tail = file.read()
    if not head:
        raise SourceError(Code.DAMAGED, "the source is empty: 0 bytes; copy or upload it again")
    if b"%PDF-" in head:
        return PDF
    named = of_suffix(suffix)
    kind = _detect_by_start(path, head, tail) or (
        named if named is HTML and b"<" in head and b"\x00" not in head else None
    )
    if kind:
        return kind
    if _PDF_OBJECT.search(head) or b"startxref" in tail[-_TAIL_BYTES:]:
        return PDF  # without its header; MuPDF repairs it
    if head.startswith(_OLE):
        return _detect_encrypted(path, named)
    raise SourceError(Code.SOURCE_UNSUPPORTED, _explain(head))


def _detect_by_start(path: Path, head: bytes, tail: bytes) -> FileType | None:
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return _WEBP
    if head.startswith(_ZIP):
        return _detect_in_zip(path, head, tail)
    if head[4:8] == b"ftyp":
        return _detect_brand(head[: int.from_bytes(head[:4], "big")])
    is_bmp = head.startswith(b"BM") and int.from_bytes(head[14:18], "little") in _BMP_HEADERS
    return _BMP if is_bmp else None


def _detect_brand(box: bytes) -> FileType | None:
    """The type of a file in the container of MP4, by its brands; the first is the file's own."""
    brands = (box[start : start + 4] for start in (8, *range(16, len(box), 4)))
    return next((_BRANDS[brand] for brand in brands if brand in _BRANDS), None)


def _detect_in_zip(path: Path, head: bytes, tail: bytes) -> FileType | None:
    """The type of an office file or book: the archive names it, or has the main part that only this type has.

    A damaged archive, or one with a huge directory, is judged by the names at its start and end.
    """
    end = tail.rfind(_ZIP_END)
    if end >= 0 and int.from_bytes(tail[end + 12 : end + 16], "little") <= _MAX_DIRECTORY_BYTES:
        with suppress(zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, NotImplementedError, ValueError):
            return _detect_in_package(path)
    if stored := _STORED_TYPE.match(head):
        return _find_named(stored[1])
    part = _OOXML_PART.search(tail)
    return _OOXML[part[1]] if part else None


def _detect_in_package(path: Path) -> FileType | None:
    with zipfile.ZipFile(path) as package:
        names = package.namelist()
        if "mimetype" in names:  # compressed in some books, though it should not be
            with package.open("mimetype") as part:
                return _find_named(part.read(_MAX_MIME_BYTES).strip())
    if _BINARY_WORKBOOK in names:
        return None
    return next(
        (kind for folder, kind in _OOXML.items() if any(name.startswith(f"{folder.decode()}/") for name in names)), None
    )


def _find_named(mime: bytes) -> FileType | None:
    named = mime.removesuffix(b"-template").decode(errors="replace")
    return next((kind for kind in (*_ODF, EPUB) if kind.mime == named), None)


def _detect_encrypted(path: Path, named: FileType | None) -> FileType:
    """The type of an encrypted docx, pptx or xlsx, which is in an OLE file like those of Office 97."""
    with path.open("rb") as file:
        is_encrypted = any(_ENCRYPTED_PACKAGE in block for block in iter(lambda: file.read(1 << 20), b""))
    if is_encrypted:
        return named if named and named in _OOXML.values() else _OOXML[b"word"]
    message = "the source is a file of Office 97–2003 or another program; save it as docx, pptx, xlsx or PDF"
    raise SourceError(Code.SOURCE_UNSUPPORTED, message)


def _explain(head: bytes) -> str:
    message = f"by its content, the source is not a {NAMES} file"
    if head.lstrip().lower().startswith(_HTML_STARTS):
        return f"{message} but a web page; check that its address needs no login, or call it .html to read it"
    return f"{message}; convert it"
