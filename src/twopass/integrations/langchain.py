"""A document loader for LangChain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Unpack

from langchain_core.document_loaders import BaseLoader
from langchain_core.documents import Document

from twopass.api.reading import Location, ReadOptions
from twopass.integrations.parts import PartReader
from twopass.settings import Settings


class TwopassLoader(BaseLoader):  # type: ignore[misc]
    """Loads files, folders, s3:// prefixes and https:// addresses; each chunk, or page, is a document.

    It reads a document when it is asked for its first part. With `output` everything that was read is kept there, and
    the same call goes on where an earlier one ended. `problems` says after the loading what was not read, and why.
    Other arguments are options of `twopass.read`.
    """

    def __init__(
        self,
        sources: Location | Sequence[Location],
        *,
        unit: str = "chunk",
        output: Location | None = None,
        settings: Settings | None = None,
        **options: Unpack[ReadOptions],
    ) -> None:
        self._reader = PartReader(sources, unit, output, settings, options)

    @property
    def problems(self) -> list[str]:
        return self._reader.problems

    def lazy_load(self) -> Iterator[Document]:
        for part in self._reader.read():
            content = "\n\n".join(filter(None, (part.section, part.text)))
            yield Document(id=part.id, page_content=content, metadata=part.metadata)
