"""The result of a job: what callers get back, and what `result.json` holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from pydantic import Field

from twopass.document import Canary, Finding, FindingKind, Page, PageAudit, Problem, Severity, Status
from twopass.errors import Code
from twopass.page_range import format_page_ranges
from twopass.values import Value

INLINE_BYTES = 1_000_000  # inline artefacts in one answer; RunPod loses results that are much larger
RESULT_BYTES = 64_000  # the answer without its inline artefacts
RESULT_DOCUMENTS = 20  # in one answer; result.json has all of them
_RESULT_PROBLEMS = 50
_PAGE_LIST_LENGTH = 100  # characters of the page numbers in a merged problem


class Artefact(Value):
    """One object that was written to the output."""

    uri: str
    bytes: int
    sha256: str
    content_type: str


class FindingSum(Value):
    """What was found of one kind, in one document or in all."""

    count: int
    pages: str | None = Field(None, description="3,7-9; null in the sum of several documents")


class AuditSum(Value):
    """The audits of a document's pages, or of a job's documents, added up."""

    pages: int = Field(0, description="pages with an audit")
    words_seen: int = Field(0, description="words of the PDF's own text")
    words_read: int = Field(0, description="words of all elements")
    words_left_out: int = Field(0, description="those of repeated headers and footers and of page numbers")
    regions: int = Field(0, description="regions of a layout detector that were to be read")
    read_again: int = Field(0, description="elements that pass 2 read again from crops")
    findings: dict[str, FindingSum] = Field(default_factory=dict, description="by kind")

    @classmethod
    def of(cls, pages: Iterable[Page]) -> AuditSum | None:
        """The sum of one document; None if no page has an audit."""
        audits = {page.number: page.audit for page in pages if page.audit}
        findings = ((number, finding) for number, audit in audits.items() for finding in audit.findings)
        return cls._add(list(audits.values()), _sum_findings(findings), len(audits)) if audits else None

    def add(self, findings: Iterable[tuple[int, Finding]]) -> AuditSum:
        """The sum with findings of a kind that it does not have yet, each with its page."""
        return self.model_copy(update={"findings": {**self.findings, **_sum_findings(findings)}})

    @classmethod
    def merge(cls, sums: Sequence[AuditSum]) -> AuditSum | None:
        """The sum of several documents; None if none has one."""
        counts = defaultdict[str, int](int)
        for one in sums:
            for kind, finding in one.findings.items():
                counts[kind] += finding.count
        if len(sums) <= 1:
            return sums[0] if sums else None
        findings = {kind: FindingSum(count=count) for kind, count in counts.items()}
        return cls._add(sums, findings, sum(one.pages for one in sums))

    @classmethod
    def _add(cls, parts: Sequence[PageAudit | AuditSum], findings: dict[str, FindingSum], pages: int) -> AuditSum:
        names = ("words_seen", "words_read", "words_left_out", "regions", "read_again")
        totals = {name: sum(getattr(part, name) or 0 for part in parts) for name in names}
        return cls(pages=pages, findings=dict(sorted(findings.items())), **totals)

    @property
    def losses(self) -> dict[FindingKind, FindingSum]:
        """The findings that are losses."""
        kinds = {FindingKind(kind): found for kind, found in self.findings.items()}
        return {kind: found for kind, found in kinds.items() if kind.is_loss}

    @property
    def has_loss(self) -> bool:
        return bool(self.losses)

    def describe_losses(self) -> list[str]:
        """Each kind of loss in a few words: "2 regions not read: pages 3 and 7"."""
        return [kind.describe(found.count) + _list_pages(found.pages) for kind, found in self.losses.items()]


def _sum_findings(findings: Iterable[tuple[int, Finding]]) -> dict[str, FindingSum]:
    counts, places = defaultdict[str, int](int), defaultdict[str, set[int]](set)
    for page, finding in findings:
        counts[finding.kind] += finding.count
        places[finding.kind].add(page)
    return {
        str(kind): FindingSum(count=count, pages=format_page_ranges(places[kind])) for kind, count in counts.items()
    }


def _list_pages(ranges: str | None) -> str:
    if ranges is None:
        return ""
    before, _, last = _shorten_ranges(ranges).rpartition(",")
    listed = f"{before.replace(',', ', ')} and {last}" if before else last
    return f": page{'s' if before or '-' in last else ''} {listed}"


def _shorten_ranges(ranges: str) -> str:
    return f"{ranges[:_PAGE_LIST_LENGTH].rpartition(',')[0]},…" if len(ranges) > _PAGE_LIST_LENGTH else ranges


class DocumentResult(Value):
    """The result of one document; fields are null if the document was never opened."""

    id: str | None = None
    source: str
    status: Status
    pages: dict[str, int] = Field(default_factory=dict, description="page counts per state")
    failed: str | None = Field(None, description="pages that failed: 3,7-9")
    left: str | None = Field(
        None, description="unread pages; with an output, the same job, sent again, reads only them"
    )
    artefacts: dict[str, Artefact] = Field(default_factory=dict)
    inline: dict[str, Any] = Field(default_factory=dict)
    audit: AuditSum | None = Field(None, description="sums of the pages' audits; null in results of older versions")
    canary: Canary | None = Field(None, description="as in the document: passed, off, misread, or null if not needed")
    timings: dict[str, Any] = Field(default_factory=dict)
    usage: dict[str, Any] = Field(default_factory=dict)


class Result(Value):
    """The result of a job. `as_answer` shortens it for the caller; `result.json` holds all of it."""

    status: Status
    documents: tuple[DocumentResult, ...] = ()
    problems: tuple[Problem, ...] = ()
    audit: AuditSum | None = None
    timings: dict[str, Any] = Field(default_factory=dict)
    usage: dict[str, Any] = Field(default_factory=dict)
    result_uri: str | None = Field(None, description="the complete result, if this one was shortened")
    omitted: dict[str, int] = Field(
        default_factory=dict, description="number of documents and problems left out of this answer"
    )
    store: Literal["conditional", "head_then_put"] | None = None
    started: dict[str, float] | None = Field(
        None,
        description="in a worker's first result: seconds of each stage of its start, and `engines` if it has several",
    )
    duplicate_of: str | None = Field(
        None, description="id of the job that reads in place of this one, which has the same idempotency_key"
    )

    def as_answer(self) -> dict[str, Any]:
        """JSON of at most RESULT_BYTES plus the inline artefacts; a failed job has `error`."""
        merged = self.model_copy(update={"problems": self.merged_problems})
        shrunk = merged._truncate(RESULT_DOCUMENTS, _RESULT_PROBLEMS)
        keep = len(shrunk.documents), len(shrunk.problems)
        while shrunk._size_bytes() > RESULT_BYTES and max(keep) > 1:
            keep = max(1, keep[0] // 2), max(1, keep[1] // 2)
            shrunk = merged._truncate(*keep)
        answer = shrunk.model_dump(mode="json", exclude_none=True)
        if self.status is not Status.FAILURE:
            return answer
        first = next((p for p in self.problems if p.severity is Severity.ERROR), None) or self._find_loss()
        message = f"{first.code}: {first.message}" if first else f"{Code.INTERNAL}: no page was read"
        return {"error": message[:1000], "detail": answer}

    def _find_loss(self) -> Problem | None:
        """The first problem of a loss, which is a failure with `strict`."""
        losses = {kind.code for kind in FindingKind if kind.is_loss}
        return next((problem for problem in self.problems if problem.code in losses), None)

    @property
    def merged_problems(self) -> tuple[Problem, ...]:
        """Errors before warnings; problems of one document that differ only in the page are merged into one."""
        return merge_problems(self.problems)

    def _truncate(self, documents: int, problems: int) -> Result:
        omitted = {
            "documents": max(len(self.documents) - documents, 0),
            "problems": max(len(self.problems) - problems, 0),
        }
        return self.model_copy(
            update={
                "documents": self.documents[:documents],
                "problems": tuple(_shorten(problem) for problem in self.problems[:problems]),
                "omitted": {name: count for name, count in omitted.items() if count},
            }
        )

    def _size_bytes(self) -> int:
        """Size without the inline artefacts, which have their own limit."""
        return len(self.model_dump_json(exclude_none=True, exclude={"documents": {"__all__": {"inline"}}}).encode())


def merge_problems(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """Errors before warnings; problems of one document that differ only in the page are merged into one."""
    groups: dict[tuple[Any, ...], list[Problem]] = {}
    for problem in problems:
        key = (problem.severity, problem.code, problem.document, problem.page is None, _drop_page(problem))
        groups.setdefault(key, []).append(problem)
    merged = [_merge(group) for group in groups.values()]
    return tuple(sorted(merged, key=lambda problem: problem.severity is not Severity.ERROR))


def _drop_page(problem: Problem) -> str:
    return problem.message.removeprefix(f"page {problem.page}: ")


def _merge(equal: Sequence[Problem]) -> Problem:
    """One problem for all that are equal, with their pages and their number in the message."""
    first = equal[0]
    if len(equal) == 1:
        return first
    pages = sorted({problem.page for problem in equal if problem.page is not None})
    ranges = format_page_ranges(pages)
    if ranges and len(ranges) > _PAGE_LIST_LENGTH:
        ranges = f"{_shorten_ranges(ranges)} ({len(pages)} pages)"
    prefix = f"page{'s' if len(pages) > 1 else ''} {ranges}: " if ranges else ""
    repeated = f" ({len(equal)} times)" if len(equal) > max(len(pages), 1) else ""
    page = pages[0] if len(pages) == 1 else None
    return first.model_copy(update={"page": page, "message": f"{prefix}{_drop_page(first)}{repeated}"})


def _shorten(problem: Problem) -> Problem:
    return problem.model_copy(update={"message": problem.message[:500]})
