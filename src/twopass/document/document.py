"""A read document: DocJSON 1.1."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from twopass.document.audit import PageAudit
from twopass.document.element import Analysis, Element
from twopass.document.page import Canary, Page, Problem, Severity, Status
from twopass.values import Value

SCHEMA = "docjson-1.1"


class Section(Value):
    """One node of the section tree; `path` holds the titles from the root to this section."""

    id: str
    number: str | None = None
    title: str
    level: int
    path: tuple[str, ...] = ()
    element_ids: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    summary: str | None = None
    analysis: Analysis = Analysis()
    children: tuple[Section, ...] = ()


class SourceInfo(Value):
    uri: str = Field(description="without query and user info")
    etag: str | None = None
    sha256: str
    bytes: int
    mime: str
    page_count: int


class OutlineEntry(Value):
    level: int
    title: str
    page: int | None = None


class Meta(Value):
    """What the file says about itself; null when it says nothing."""

    title: str | None = None
    author: str | None = None
    subject: str | None = None
    date: str | None = None
    language: str | None = None
    document_type: str | None = None
    outline: tuple[OutlineEntry, ...] = ()


class Run(Value):
    """How the document was read."""

    options: dict[str, Any]
    prompts: dict[str, str] = Field(default_factory=dict)
    canary: Canary | None = Field(None, description="the worst of its pages; null when the engine needs none")


class Document(Value, title="DocJSON 1.1", serialize_by_alias=True, validate_by_name=True, validate_by_alias=True):
    """A read document: DocJSON 1.1."""

    schema_: str = Field(SCHEMA, alias="schema")
    id: str
    source: SourceInfo
    meta: Meta = Meta()
    run: Run
    status: Status
    pages: tuple[Page, ...] = ()
    elements: tuple[Element, ...] = ()
    sections: tuple[Section, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def audits(self) -> dict[int, PageAudit]:
        """The pages' audits by number."""
        return {page.number: page.audit for page in self.pages if page.audit}


def derive_status(pages: tuple[Page, ...], problems: tuple[Problem, ...] = ()) -> Status:
    """success = no lost page, no loss in any page's audit and no error; failure = every page lost; else partial."""
    lost = sum(page.is_lost for page in pages)
    if lost == len(pages):
        return Status.FAILURE
    if any(page.has_loss for page in pages) or any(problem.severity is Severity.ERROR for problem in problems):
        return Status.PARTIAL_SUCCESS
    return Status.SUCCESS
