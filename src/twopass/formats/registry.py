"""A Draft in, bytes out: each artefact declared with its name, its content type and the function that writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import NamedTuple

from twopass.errors import Code, InvalidJob
from twopass.formats import chunks, docjson, docling, mineru, review
from twopass.formats.draft import Draft
from twopass.job import Format


class Writer(NamedTuple):
    name: str
    content_type: str
    write: Callable[[Draft], bytes] | None  # None: packed of the others, when they are written


def _docjson(draft: Draft) -> bytes:
    return docjson.dumps(draft.placed)


def _markdown(draft: Draft) -> bytes:
    return draft.markdown[0].encode(errors="replace")


WRITERS: dict[Format, Writer] = {
    Format.DOCJSON: Writer("document.json", "application/json", _docjson),
    Format.MARKDOWN: Writer("document.md", "text/markdown; charset=utf-8", _markdown),
    Format.REVIEW: Writer("review.html", "text/html; charset=utf-8", review.write),
    Format.CHUNKS: Writer("chunks.jsonl", "application/jsonl", chunks.write),
    Format.DOCLING: Writer("docling.json", "application/json", docling.write),
    Format.MINERU: Writer("content_list.json", "application/json", mineru.write),
    Format.ZIP: Writer("document.zip", "application/zip", None),
}
EXTRAS = {Format.DOCLING: ("docling", "docling_core")}  # format -> what to install, and what then can be imported


def check(wanted: Iterable[Format]) -> None:
    """Refuse what this installation cannot write, before anything is read; raises InvalidJob."""
    for name in wanted:
        extra, module = EXTRAS.get(name, (None, None))
        if module and find_spec(module) is None:
            message = f"formats: {name} needs `python -m pip install 'twopass[{extra}]'` where the worker is installed"
            raise InvalidJob(Code.INVALID_JOB, message)
