"""Documents as the pages or chunks that an index holds, one document after the other."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from twopass.api import functions
from twopass.api.document import Document
from twopass.api.reading import Location, ReadOptions
from twopass.errors import Code, InvalidJob, SourceError, StoreError, TwopassError
from twopass.fleet import discovery
from twopass.fleet.discovery import DocumentRef, Found
from twopass.formats.registry import WRITERS
from twopass.job import Format
from twopass.runtime import loop_thread
from twopass.settings import Settings, load_settings


class Unit(StrEnum):
    """What one entry of the index is."""

    CHUNK = "chunk"
    PAGE = "page"


@dataclass(frozen=True)
class Part:
    """A page or a chunk with its place. Its `section` is not part of the text."""

    id: str
    text: str
    section: str
    metadata: dict[str, Any]


@dataclass
class PartReader:
    """Reads documents when they are asked for. `problems` are those of what was read so far, and files left out."""

    sources: Location | Sequence[Location]
    unit: str
    output: Location | None
    settings: Settings | None
    options: ReadOptions
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.unit not in set(Unit):
            raise InvalidJob(Code.INVALID_JOB, f"unit: {self.unit!r} is not one of {', '.join(Unit)}")

    def read(self) -> Iterator[Part]:
        """Every part that has text. A document that cannot be read is a problem, and the others follow."""
        self.problems.clear()
        found = self._find()
        self.problems += [f"{file.name}: not read: {file.reason}" for file in found.skipped]
        for place in found.documents:
            try:
                document = self._read_document(place.location)
            except InvalidJob:  # an option is wrong, for every document
                raise
            except TwopassError as error:
                self.problems.append(f"{place.name}: {error}")
            else:
                self.problems += [f"{place.name}: {one.code}: {one.message}" for one in document.problems]
                yield from _list_pages(document) if self.unit == Unit.PAGE else _list_chunks(document)

    def _find(self) -> Found:
        """What the sources hold. One that cannot be listed, such as a missing file, is a problem if others can be.

        Raises the last one's SourceError or StoreError if none can be listed.
        """
        places = [self.sources] if isinstance(self.sources, str | os.PathLike) else self.sources
        excluded = [os.fspath(self.output)] if self.output else []
        listed: list[Found] = []
        with loop_thread.open_loop() as loop:
            for index, place in enumerate([os.fspath(one) for one in places], 1):
                try:
                    listed.append(loop_thread.run(discovery.find_documents([place], self._settings, excluded), loop))
                except (SourceError, StoreError) as error:
                    self.problems.append(f"{DocumentRef(place).name}: {error}")
                    if len(self.problems) == index == len(places):
                        raise
        return discovery.join(listed)

    @property
    def _settings(self) -> Settings:
        return self.settings or load_settings()

    def _read_document(self, place: str) -> Document:
        formats = (*self.options.get("formats", ()), Format.MARKDOWN, Format.CHUNKS)
        options: ReadOptions = {**self.options, "formats": formats}
        return functions.read(place, output=self.output, settings=self.settings, **options)


def _list_pages(document: Document) -> Iterator[Part]:
    for page in document.pages:
        elements = [element for element in document.elements if element.page == page.number]
        text = document.markdown_of(elements)
        if text.strip():
            metadata = {
                "source": document.source.uri,
                "document": document.id,
                "title": document.meta.title,
                "page": page.number,
                "page_count": document.source.page_count,
                "state": str(page.state),
                "has_loss": page.has_loss,
                "boxes": [{"page": e.page, "box": list(box)} for e in elements for box in e.boxes],
                "language": page.language,
            }
            yield Part(f"{document.id}/p{page.number:04d}", text, "", metadata)


_CHUNK_FIELDS = ("source", "document", "title", "pages", "boxes", "section_path", "md_span", "keywords", "summary")


def _list_chunks(document: Document) -> Iterator[Part]:
    pages = {page.number: page for page in document.pages}
    for line in document.artefacts[WRITERS[Format.CHUNKS].name].decode().splitlines():
        chunk = json.loads(line)
        of_chunk = [pages[number] for number in chunk["pages"]]
        metadata = {
            **{name: chunk[name] for name in _CHUNK_FIELDS},
            "page": chunk["pages"][0],
            "state": max((str(page.state) for page in of_chunk), key=_order_state),
            "has_loss": any(page.has_loss for page in of_chunk),
            "language": chunk["language"],
        }
        yield Part(chunk["id"], chunk["text"], " > ".join(chunk["section_path"]), metadata)


def _order_state(state: str) -> bool:
    """A state other than `read` is said of a chunk if one of its pages has it."""
    return state != "read"
