"""The documents of `twopass read`: found in files, folders, prefixes and lists, or on stdin."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from twopass import locations
from twopass.errors import Code, SourceError
from twopass.fleet import discovery
from twopass.job import Upload
from twopass.page_range import PageRange
from twopass.runtime import scratch
from twopass.settings import Settings
from twopass.storage import download, error_mapping

STDIN = "-"  # as a place
STDIN_NAME = "stdin"


@dataclass(frozen=True)
class InputFile:
    """A document to read, as a path or URI, and the argument of the command line that named it or its folder.

    `upload` is a document that came on stdin.
    """

    location: str
    root: str
    upload: Upload | None = None

    @property
    def is_local(self) -> bool:
        return not locations.is_uri(self.location)

    @property
    def source(self) -> str | None:
        """The source in the document's job; None if the document is sent with the job."""
        return None if self.upload else self.location

    @property
    def path(self) -> Path:
        """Where a local document is."""
        return self.upload.path if self.upload else Path(self.location)

    @property
    def name(self) -> str:
        return locations.redact(self.location)

    @property
    def job_id(self) -> str:
        """The same id in every run, and a different one for every file."""
        slug = re.sub(r"[^\w.]+", "-", self._name_below_root()).strip("-.")[:40]
        place = locations.absolute(self.location).encode(errors="surrogateescape")
        digest = hashlib.sha256(place).hexdigest()[:8]
        return f"read-{slug}-{digest}"

    @property
    def folder(self) -> str:
        """The folder in whose bar it is counted."""
        is_in_folder = self.upload or self.location != self.root
        return self.root if is_in_folder else os.path.dirname(self.name) or "."

    def _name_below_root(self) -> str:
        if self.is_local and Path(self.root).is_dir():
            return str(Path(self.location).relative_to(self.root))
        return os.path.basename(self.name)


@contextmanager
def keep_stdin(places: Sequence[str], settings: Settings) -> Iterator[Upload | None]:
    """Keep what comes on stdin in a temporary file, if it is one of the places; raises SourceError."""
    if STDIN not in places:
        yield None
        return
    if sys.stdin is None or sys.stdin.isatty():
        message = f"{STDIN}: no document comes on stdin; write twopass read {STDIN} < file.pdf"
        raise SourceError(Code.SOURCE_NOT_FOUND, message)
    with scratch.open_folder() as folder:
        path = folder / STDIN_NAME
        with (
            error_mapping.map_errors(STDIN_NAME, SourceError),
            download.TargetFile(path, settings.max_source_bytes, STDIN_NAME) as copy,
        ):
            while chunk := sys.stdin.buffer.read(download.CHUNK_BYTES):
                copy.write(chunk)
            copy.finish()
        yield Upload(STDIN_NAME, path)


async def find(
    places: Sequence[str], output: str | None, settings: Settings, stdin: Upload | None = None
) -> list[InputFile]:
    """List the documents in these places, each once, in a stable order, without those in the output.

    Raises TwopassError, which names a place that does not exist.
    """
    found: dict[str, InputFile] = {}
    for place in map(locations.normalize, places):
        if place == STDIN:
            found[place] = InputFile(STDIN_NAME, STDIN_NAME, stdin)
            continue
        for document in await discovery.find_documents([place], settings, (output,) if output else ()):
            file = InputFile(document.location, place)
            found.setdefault(os.path.abspath(file.location) if file.is_local else file.location, file)
    return list(found.values())


def shuffle(files: Sequence[InputFile]) -> list[InputFile]:
    """The files in random order, so that processes with the same arguments read different documents first."""
    return random.SystemRandom().sample(files, len(files))


def check_pages(files: Sequence[InputFile], pages: str | None, password: str | None, settings: Settings) -> None:
    """Raise SourceError if `pages` names no page of any file.

    A file that cannot be opened is not counted: reading it tells why, with its code. Neither is any if one is remote.
    """
    selection = PageRange.parse(pages) if pages else None
    if selection and not selection.select(1) and all(file.is_local for file in files):
        asyncio.run(_check_pages(files, selection, password, settings))


async def _check_pages(
    files: Sequence[InputFile], selection: PageRange, password: str | None, settings: Settings
) -> None:
    async with discovery.open_page_counter(settings, password) as counter:
        for file in files:
            count = await counter.count(file.path)
            if count is None or selection.select(count):
                return
    found = f"{file.location} has {count}" if len(files) == 1 else f"none of the {len(files)} documents has them"
    raise SourceError(Code.PAGE_RANGE, f"--pages: pages {selection.text} requested, but {found}: no page to read")
