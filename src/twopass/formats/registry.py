"""The artefacts: each with its file name, content type and the function that writes it; and the archive of them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from typing import NamedTuple

from twopass.errors import Code, InvalidJob, advise_install
from twopass.formats import chunks, docjson, docling, mineru, review, words
from twopass.formats.html import document as html_document
from twopass.formats.words import Loss
from twopass.formats.writer_input import WriterInput
from twopass.job import Format


class Writer(NamedTuple):
    """`check` compares what was written with the document; None for formats that are not for reading its text."""

    name: str
    content_type: str
    write: Callable[[WriterInput], bytes] | None  # None for the archive of the others, and for the PDF with the pages
    check: Callable[[WriterInput, bytes], Sequence[Loss]] | None = None


def _write_markdown(inputs: WriterInput) -> bytes:
    return inputs.markdown[0].encode(errors="replace")


_JSON, _HTML = "application/json", "text/html; charset=utf-8"
_MARKDOWN = "text/markdown; charset=utf-8"
WRITERS: dict[Format, Writer] = {
    Format.DOCJSON: Writer("document.json", _JSON, lambda inputs: docjson.dumps(inputs.with_spans)),
    Format.MARKDOWN: Writer("document.md", _MARKDOWN, _write_markdown, words.check_markdown),
    Format.HTML: Writer("document.html", _HTML, html_document.write, words.check_html),
    Format.REVIEW: Writer("review.html", _HTML, review.write),
    Format.CHUNKS: Writer("chunks.jsonl", "application/jsonl", chunks.write, words.check_chunks),
    Format.DOCLING: Writer("docling.json", _JSON, docling.write, words.check_docling),
    Format.MINERU: Writer("content_list.json", _JSON, mineru.write, words.check_mineru),
    Format.PDF: Writer("document.pdf", "application/pdf", None),
    Format.ZIP: Writer("document.zip", "application/zip", None),
}
NEEDS_SOURCE = frozenset({Format.REVIEW, Format.PDF})  # they show the pages themselves
_EXTRAS = {Format.DOCLING: ("docling", "docling_core")}  # format -> the extra to install, and the module it provides


def check_installed(formats: Iterable[Format]) -> None:
    """Raise InvalidJob if a format needs a package that is not installed; called before anything is read."""
    for name in formats:
        if not is_installed(name):
            extra, module = _EXTRAS[name]
            message = f"formats: {name} needs {module}, in the worker's environment: {advise_install(extra)}"
            raise InvalidJob(Code.INVALID_JOB, message)


def is_installed(name: Format) -> bool:
    """Whether this installation can write the format."""
    return name not in _EXTRAS or find_spec(_EXTRAS[name][1]) is not None


_COMPRESSED_SUFFIXES = (".png", ".webp", ".pdf")  # stored as they are: they are compressed already
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest date ZIP allows, given to every file instead of the current time
_FILE_MODE = 0o644 << 16


class ZipBuilder:
    """Packs document.zip, whose bytes depend only on the names, the bytes and the order of its files.

    Files are added one at a time, so that memory holds only the archive and one file.
    """

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._zip = zipfile.ZipFile(self._buffer, "w")

    def add(self, name: str, data: bytes) -> None:
        entry = zipfile.ZipInfo(name, _ZIP_EPOCH)
        entry.create_system = 3  # Unix, on every platform
        entry.external_attr = _FILE_MODE
        entry.compress_type = zipfile.ZIP_STORED if name.endswith(_COMPRESSED_SUFFIXES) else zipfile.ZIP_DEFLATED
        self._zip.writestr(entry, data)

    def finish(self) -> bytes:
        self._zip.close()
        return self._buffer.getvalue()
