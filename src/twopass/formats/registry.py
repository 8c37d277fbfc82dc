"""The artefacts: each with its file name, content type and the function that writes it from a WriterInput."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import NamedTuple

from twopass.errors import Code, InvalidJob, advise_install
from twopass.formats import chunks, docjson, docling, mineru, review
from twopass.formats.html import document as html_document
from twopass.formats.writer_input import WriterInput
from twopass.job import Format


class Writer(NamedTuple):
    name: str
    content_type: str
    write: Callable[[WriterInput], bytes] | None  # None for the archive, which is packed from the other artefacts


def _write_docjson(inputs: WriterInput) -> bytes:
    return docjson.dumps(inputs.with_spans)


def _write_markdown(inputs: WriterInput) -> bytes:
    return inputs.markdown[0].encode(errors="replace")


WRITERS: dict[Format, Writer] = {
    Format.DOCJSON: Writer("document.json", "application/json", _write_docjson),
    Format.MARKDOWN: Writer("document.md", "text/markdown; charset=utf-8", _write_markdown),
    Format.HTML: Writer("document.html", "text/html; charset=utf-8", html_document.write),
    Format.REVIEW: Writer("review.html", "text/html; charset=utf-8", review.write),
    Format.CHUNKS: Writer("chunks.jsonl", "application/jsonl", chunks.write),
    Format.DOCLING: Writer("docling.json", "application/json", docling.write),
    Format.MINERU: Writer("content_list.json", "application/json", mineru.write),
    Format.ZIP: Writer("document.zip", "application/zip", None),
}
EXTRAS = {Format.DOCLING: ("docling", "docling_core")}  # format -> the extra to install, and the module it provides


def check_installed(formats: Iterable[Format]) -> None:
    """Raise InvalidJob if a format needs a package that is not installed; called before anything is read."""
    for name in formats:
        if not is_installed(name):
            extra, module = EXTRAS[name]
            message = f"formats: {name} needs {module}, in the worker's environment: {advise_install(extra)}"
            raise InvalidJob(Code.INVALID_JOB, message)


def is_installed(name: Format) -> bool:
    """Whether this installation can write the format."""
    return name not in EXTRAS or find_spec(EXTRAS[name][1]) is not None
