"""A document as programs get it: DocJSON's fields, its markdown and the files that were written for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from pydantic import PrivateAttr

from twopass import document
from twopass.document import Element
from twopass.formats.registry import WRITERS
from twopass.formats.writer_input import WriterInput
from twopass.job import Format

MARKDOWN = WRITERS[Format.MARKDOWN].name


class Document(document.Document):
    """A read document: `pages`, `elements`, `sections`, `problems`, `status`, as DocJSON names them.

    `Document.model_validate_json(data)` loads a `document.json`, without its other files.
    """

    _artefacts: Mapping[str, bytes] = PrivateAttr(default_factory=dict)

    @property
    def markdown(self) -> str:
        """The text of `document.md`."""
        stored = self._artefacts.get(MARKDOWN)
        return WriterInput(self).markdown[0] if stored is None else stored.decode()

    def markdown_of(self, elements: Iterable[Element]) -> str:
        """The text of some of its elements, such as those of a page, as `document.md` shows them by default."""
        return WriterInput(self.model_copy(update={"elements": tuple(elements)})).markdown[0]

    @property
    def artefacts(self) -> Mapping[str, bytes]:
        """The document's files by name, such as `document.json`, `document.md` and `images/p0001-e0003.png`."""
        return MappingProxyType(self._artefacts)

    def save(self, folder: str | Path) -> None:
        """Write the artefacts into a folder, which is created; files of the same names are replaced."""
        for name, data in self._artefacts.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def attach(read: document.Document, artefacts: Mapping[str, bytes]) -> Document:
    """The document with its files."""
    attached = Document.model_construct(**dict(read))
    attached._artefacts = artefacts
    return attached
