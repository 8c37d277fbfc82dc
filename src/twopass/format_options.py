"""How artefacts are spelled: the options of markdown and of chunks, as jobs give and manifests keep them.

They change no reading, so they are no part of a document's identity. Knows nothing of documents.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Options(BaseModel):
    """Frozen; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Images(StrEnum):
    """How document.md shows crops: as files beside it, or in itself."""

    FOLDER = "folder"
    DATA = "data"


class Maths(StrEnum):
    """What stands around LaTeX: `$x$` and `$$x$$`, or `\\(x\\)` and `\\[x\\]`."""

    DOLLAR = "$"
    BACKSLASH = "\\("


class Tables(StrEnum):
    """auto: GFM, and HTML where cells span; html, gfm: always that, GFM with blanks where a cell spans."""

    AUTO = "auto"
    HTML = "html"
    GFM = "gfm"


class Markdown(Options):
    """How document.md is spelled."""

    front_matter: bool = False
    images: Images = Images.FOLDER
    maths: Maths = Maths.DOLLAR
    tables: Tables = Tables.AUTO
    page_marks: bool = True
    furniture: bool = False
    merge_tables: bool = True


class Chunks(Options):
    """How large the pieces for a vector index are, in tokens as `tokens.count` estimates them."""

    max_tokens: int = Field(512, ge=64, le=32_768)
    min_tokens: int = Field(128, ge=0, description="smaller neighbours below one heading are put together")

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.min_tokens > self.max_tokens:
            raise ValueError("min_tokens: larger than max_tokens")
        return self


class Writing(Options):
    """All of it; what a manifest keeps, so that formats made later are spelled alike."""

    markdown: Markdown = Markdown()
    chunks: Chunks = Chunks()
