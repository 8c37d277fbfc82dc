"""A reader for LlamaIndex."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Unpack

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from twopass.api.reading import Location, ReadOptions
from twopass.integrations.parts import PartReader
from twopass.settings import Settings

_SHOWN = ("title", "section", "page")  # what embeddings and language models see of the metadata


class TwopassReader(BaseReader):  # type: ignore[misc]
    """Reads files, folders, s3:// prefixes and https:// addresses; each chunk, or page, is a document.

    The arguments are those of `twopass.integrations.langchain.TwopassLoader`, and so is `problems`.
    """

    def __init__(
        self,
        *,
        unit: str = "chunk",
        output: Location | None = None,
        settings: Settings | None = None,
        **options: Unpack[ReadOptions],
    ) -> None:
        self._arguments = unit, output, settings, options
        self.problems: list[str] = []

    def lazy_load_data(self, sources: Location | Sequence[Location]) -> Iterator[Document]:
        reader = PartReader(sources, *self._arguments)
        self.problems = reader.problems
        for part in reader.read():
            metadata = {**part.metadata, "section": part.section}
            hidden = [name for name in metadata if name not in _SHOWN]  # boxes would be longer than the text
            yield Document(
                id_=part.id,
                text=part.text,
                metadata=metadata,
                excluded_embed_metadata_keys=hidden,
                excluded_llm_metadata_keys=hidden,
            )
