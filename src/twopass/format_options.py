"""The options of markdown and chunks, as jobs give them and manifests keep them.

They only change how artefacts are written, not how documents are read, so they are not part of a document's identity.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from twopass.values import Value, refuse_boolean


class Images(StrEnum):
    """How markdown and HTML show crops: `folder` links files beside them, `data` embeds them as data URIs."""

    FOLDER = "folder"
    DATA = "data"


class Maths(StrEnum):
    """The delimiters of LaTeX: `$x$` and `$$x$$`, or `\\(x\\)` and `\\[x\\]`."""

    DOLLAR = "$"
    BACKSLASH = "\\("


class Tables(StrEnum):
    """`auto`: GFM, but HTML if cells span; `html` or `gfm`: always that format (GFM leaves spanned cells empty)."""

    AUTO = "auto"
    HTML = "html"
    GFM = "gfm"


class Furniture(StrEnum):
    """What becomes of running headers, running footers and page numbers in the text formats.

    `auto` leaves out what three pages repeat, and page numbers; `keep` nothing; `omit` also what is only labelled as a
    header or footer, and logos in the margins.
    """

    AUTO = "auto"
    KEEP = "keep"
    OMIT = "omit"


class HiddenText(StrEnum):
    """What becomes of text that nobody can see on the page, in all formats but DocJSON and the review page.

    `omit` leaves it out, `mark` says in the text that it is hidden (and puts it into docling's layer `invisible`),
    `keep` writes it like any other text.
    """

    OMIT = "omit"
    MARK = "mark"
    KEEP = "keep"


def accept_boolean_furniture(value: Any) -> Any:
    """A validator of furniture, which was true or false before it had three values."""
    return (Furniture.KEEP if value else Furniture.AUTO) if isinstance(value, bool) else value


class Markdown(Value):
    """How document.md and document.html are written; `front_matter`, `maths` and `tables` concern document.md only."""

    front_matter: bool = False
    images: Images = Images.FOLDER
    maths: Maths = Maths.DOLLAR
    tables: Tables = Tables.AUTO
    page_marks: bool = True
    furniture: Furniture = Field(Furniture.AUTO, description="true, as before: keep; false: auto")
    merge_tables: bool = True

    _accept_boolean = field_validator("furniture", mode="before")(accept_boolean_furniture)


class Chunks(Value):
    """How large the pieces for a vector index are, in estimated tokens."""

    max_tokens: int = Field(512, ge=64, le=32_768)
    min_tokens: int = Field(128, ge=0, description="smaller neighbours below one heading are joined")

    _refuse_boolean = field_validator("*", mode="before")(refuse_boolean)

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        if self.min_tokens > self.max_tokens:
            raise ValueError("min_tokens: larger than max_tokens")
        return self


class FormatOptions(Value):
    """All format options; the manifest keeps them, so that formats written later use the same ones."""

    markdown: Markdown = Markdown()
    chunks: Chunks = Chunks()
    hidden_text: HiddenText = HiddenText.OMIT
