"""A Document in, bytes out: each artefact declared with its name, its content type and the function that writes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from twopass.document import Document
from twopass.formats import docjson, markdown
from twopass.job import Format


class Writer(NamedTuple):
    name: str
    content_type: str
    write: Callable[[Document], bytes]


def _docjson(document: Document) -> bytes:
    return docjson.dumps(markdown.placed(document))


def _markdown(document: Document) -> bytes:
    return markdown.write(document)[0].encode(errors="replace")


WRITERS: dict[Format, Writer] = {
    Format.DOCJSON: Writer("document.json", "application/json", _docjson),
    Format.MARKDOWN: Writer("document.md", "text/markdown; charset=utf-8", _markdown),
}
