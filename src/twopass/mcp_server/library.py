"""The documents that a model may read: files of the allowed folders and addresses, and what was read of them.

It knows nothing of MCP. Everything that was read lies in one output folder, as `twopass read` leaves it there.
"""

from __future__ import annotations

import asyncio
import csv
import io
import os
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from twopass import locations
from twopass.api import reading
from twopass.api.document import Document
from twopass.api.reading import ReadOptions
from twopass.document import Element, Section, Table
from twopass.errors import Code, InvalidJob, RequestError, SourceError
from twopass.fleet.discovery import Found, Skipped, find_documents
from twopass.formats.registry import WRITERS
from twopass.job import Format
from twopass.settings import Settings
from twopass.telemetry.progress import Tracker
from twopass.values import Value

_DOCJSON, _CHUNKS = WRITERS[Format.DOCJSON].name, WRITERS[Format.CHUNKS].name
_FORMATS = (Format.DOCJSON, Format.CHUNKS)
_LINK_OUT = "a link to a file outside of these folders"
_MAX_WORDS = 30  # of a query; each is looked for in every chunk
_READ_IT = "read it with read_document, and use the id of its answer"


class Passage(Value, extra="ignore"):
    """A line of chunks.jsonl."""

    document: str
    source: str
    pages: tuple[int, ...] = ()
    section_path: tuple[str, ...] = ()
    text: str
    boxes: tuple[dict[str, Any], ...] = ()
    element_ids: tuple[str, ...] = ()


@dataclass
class Library:
    """The files below `folders` may be read, and no others; the folders are resolved."""

    folders: Sequence[Path]
    output: Path
    settings: Settings
    _slots: asyncio.Semaphore = field(init=False)
    _active: int = 0
    _read: set[str] = field(default_factory=set)  # ids

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.settings.concurrency)

    async def list_files(self) -> Found:
        """The documents below the allowed folders, and what is not read there, with the reason."""
        places = [str(folder) for folder in self.folders]
        found = await find_documents(places, self.settings, [str(self.output.resolve())])
        inside = [file for file in found.documents if self._resolve(file.location)]
        links = [Skipped(file.location, _LINK_OUT) for file in found.documents if file not in inside]
        return Found(inside, [*found.skipped, *links])

    async def read(self, source: str, options: ReadOptions, progress: Tracker) -> Document:
        """Read a document; pages that are stored are not read again. Raises TwopassError."""
        place = self._locate(source)
        with self._reserve():
            async with self._slots:
                options = {**options, "formats": _FORMATS}
                document = await reading.read_from_loop(place, self.output, self.settings, options, progress)
                self._read.add(document.id)
                return document

    @contextmanager
    def _reserve(self) -> Iterator[None]:
        if self._active >= self.settings.concurrency + self.settings.serve_queue:
            raise RequestError(Code.QUEUE_FULL, f"{self._active} documents are being read or wait; try again later")
        self._active += 1
        try:
            yield
        finally:
            self._active -= 1

    def _locate(self, source: str) -> str:
        """The URI, for which the rules of sources hold, or the path, without links; raises InvalidJob or SourceError.

        A path that leads elsewhere is refused before it is looked up: whether it exists is none of the caller's
        business.
        """
        if locations.is_uri(source):
            return source
        path = self._resolve(source)
        if path is None:
            known = ", ".join([*map(str, self.folders), *(scheme.prefix for scheme in locations.SOURCES)])
            message = f"source: only files below the folders that the server was started with; use one of {known}"
            raise InvalidJob(Code.INVALID_JOB, message)
        if not path.is_file():
            message = f"{source}: no such file; list_files names what is there"
            raise SourceError(Code.SOURCE_NOT_FOUND, message)
        return str(path)

    def _resolve(self, source: str) -> Path | None:
        """The path below an allowed folder; None if there is none. A relative one may be of any of the folders."""
        found = []
        for folder in self.folders:
            try:
                path = locations.resolve(folder / source)
            except (OSError, ValueError):  # links in a ring, a null character
                continue
            if any(map(path.is_relative_to, self.folders)):
                found.append(path)
        return next((path for path in found if path.is_file()), found[0] if found else None)

    def load(self, document_id: str) -> Document:
        """A document that was read; raises RequestError."""
        path = self._folder(document_id) / _DOCJSON
        try:
            document = Document.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            raise _no_document() from None
        if not self._may_show(document.id, document.source.uri):
            raise _no_document()
        return document

    def _may_show(self, document_id: str, source: str) -> bool:
        """Whether it was read here, or its source may be: the output may have documents of other folders, too."""
        is_allowed = locations.is_uri(source) or (os.path.isabs(source) and self._resolve(source) is not None)
        return is_allowed or document_id in self._read

    def _folder(self, document_id: str) -> Path:
        if not document_id or "\0" in document_id or Path(document_id).name != document_id or document_id == "..":
            raise RequestError(Code.NOT_FOUND, f"document: not an id; {_READ_IT}")
        return self.output / document_id

    def crop(self, document_id: str, element_id: str) -> Path:
        """The picture of a table or figure; raises RequestError."""
        element = find_element(self.load(document_id), element_id)
        path = self._folder(document_id) / (element.image or "")
        if not element.image or not path.is_file():
            message = "element: there is no picture of it; pictures, charts and tables have one"
            raise RequestError(Code.NOT_FOUND, message)
        return path

    def search(self, query: str, document_id: str | None) -> list[Passage]:
        """The chunks with words of the query, of one document or of all that were read, those with most words first.

        Raises RequestError.
        """
        words = list(dict.fromkeys(re.findall(r"\w+", fold(query))))[:_MAX_WORDS]
        if not words:
            raise RequestError(Code.INVALID_JOB, "query: has no word")
        folder = self._folder(document_id) if document_id else None
        files = [folder / _CHUNKS] if folder else sorted(self.output.glob(f"*/{_CHUNKS}"))
        shown = [chunks for path in files if (chunks := self._load_chunks(path)) is not None]
        if folder and not shown:
            raise _no_document()
        hits = [hit for chunks in shown for chunk in chunks if (hit := _rank(chunk, words))]
        hits.sort(key=lambda hit: hit[0], reverse=True)  # stable: equal ones stay in document order
        return [passage for _, passage in hits]

    def _load_chunks(self, path: Path) -> list[Passage] | None:
        """The chunks of one document; None if there is none, or it may not be shown or is damaged."""
        try:
            with path.open(errors="replace") as file:
                chunks = [Passage.model_validate_json(line) for line in file]  # not splitlines: texts may hold U+2028
        except (OSError, ValidationError):
            return None
        return None if any(not self._may_show(one.document, one.source) for one in chunks[:1]) else chunks


def _no_document() -> RequestError:
    return RequestError(Code.NOT_FOUND, f"document: there is none of this id; {_READ_IT}")


def _rank(chunk: Passage, words: Sequence[str]) -> tuple[tuple[int, int], Passage] | None:
    """How many of the words it has, and how often; None without one. A word may be a part of a longer one."""
    text = fold(" ".join([*chunk.section_path, chunk.text]))
    counts = [text.count(word) for word in words]
    return ((sum(map(bool, counts)), sum(counts)), chunk) if any(counts) else None


def fold(text: str) -> str:
    """The text as it is compared: without case, and without accents that are characters of their own."""
    return unicodedata.normalize("NFKC", text).casefold()


def find_element(document: Document, element_id: str) -> Element:
    """The element of this id; raises RequestError."""
    for element in document.elements:
        if element.id == element_id:
            return element
    raise RequestError(Code.NOT_FOUND, "element: there is none of this id; get_markdown names those of a page")


def find_section(document: Document, section_id: str) -> Section:
    """The section of this id; raises RequestError."""
    for section in walk(document.sections):
        if section.id == section_id:
            return section
    raise RequestError(Code.NOT_FOUND, "section: there is none of this id; read_document lists them")


def walk(sections: Sequence[Section]) -> Iterator[Section]:
    """All sections in document order."""
    for section in sections:
        yield section
        yield from walk(section.children)


def select(document: Document, page: int | None, section_id: str | None) -> Callable[[Element], bool]:
    """Whether an element is of this page and of this section; raises RequestError if there is no such."""
    if page is not None and page not in {one.number for one in document.pages}:
        message = f"page: {page} was not read of this document; list_pages lists those that were"
        raise RequestError(Code.NOT_FOUND, message)
    ids: set[str] | None = None
    if section_id is not None:
        ids = {name for one in walk([find_section(document, section_id)]) for name in one.element_ids}
    return lambda element: (page is None or element.page == page) and (ids is None or element.id in ids)


def shrink(path: Path, side: int) -> tuple[bytes, tuple[int, int]]:
    """The picture as PNG, no longer and no wider than `side` pixels, and the size that it has in the file."""
    from PIL import Image

    output = io.BytesIO()
    with Image.open(path) as image:
        size = image.size
        image.thumbnail((side, side))
        image.save(output, "PNG")
    return output.getvalue(), size


def to_csv(table: Table) -> str:
    """The cells in rows and columns; a cell over several is written once, into its first place."""
    grid = [[""] * table.cols for _ in range(table.rows)]
    for cell in table.cells:
        grid[cell.row][cell.col] = cell.text
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(grid)
    return written.getvalue()
