"""The audit's values: findings, what their kinds say, and what a page's audit keeps of them."""

from __future__ import annotations

import pytest

from tests.fakes import documents
from twopass.document import Checkpoint, Finding, FindingKind, Flag, Page, PageAudit, Problem, State, Status
from twopass.errors import Code
from twopass.pages.text_layer import NO_LAYER
from twopass.result import AuditSum, DocumentResult, Result
from twopass.steps import audit


def test_each_kind_of_loss_has_a_code_of_its_own() -> None:
    """Whoever reads a problem's code knows what is lost."""
    losses = [kind for kind in FindingKind if kind.is_loss]

    assert len({kind.code for kind in losses}) == len(losses)


@pytest.mark.parametrize(("count", "words"), [(1, "1 region not read"), (2, "2 regions not read")])
def test_a_kind_says_how_many_were_found(count: int, words: str) -> None:
    """A count of findings reads as a phrase, in the singular, too."""
    assert FindingKind.REGION_UNREAD.describe(count) == words


def test_a_kind_of_a_later_version_counts_as_a_loss() -> None:
    """Documents of later versions are read, and nothing unknown passes as complete."""
    kind = PageAudit.model_validate_json('{"findings": [{"kind": "eaten_by_moths"}]}').findings[0].kind

    assert kind == "eaten_by_moths"
    assert kind.is_loss


def test_a_checkpoint_keeps_each_finding_once() -> None:
    """A step that records what another has recorded does not count it twice."""
    finding = Finding(kind=FindingKind.IMAGE_LOST, said="premature end of file in jpeg")
    page = Checkpoint(page=Page(number=1, width_pt=1, height_pt=1, state=State.READ))

    audited = page.with_findings([finding]).with_findings([finding])

    assert audited.page.audit == PageAudit(findings=(finding,))
    assert audited.page.has_loss


def test_a_page_without_an_audit_has_no_known_loss() -> None:
    """Checkpoints of earlier versions have no audit."""
    assert not Page(number=1, width_pt=1, height_pt=1, state=State.READ).has_loss
    assert FindingKind.REGION_UNREAD.code is Code.REGIONS_UNREAD


def page(number: int, *findings: Finding) -> Page:
    return Page(number=number, width_pt=1, height_pt=1, state=State.READ, audit=PageAudit(findings=findings))


def test_a_document_lists_its_losses_with_their_pages() -> None:
    """One phrase for each kind of loss; what is no loss is counted and not listed."""
    unread, altered = Finding(kind=FindingKind.REGION_UNREAD), Finding(kind=FindingKind.CONTENT_ALTERED)

    total = AuditSum.of([page(1, altered), page(3, unread), page(7, unread), page(8)])

    assert total and total.describe_losses() == ["2 regions not read: pages 3 and 7"]
    assert (total.pages, total.findings["content_altered"].pages) == (4, "1")


def test_a_job_adds_up_its_documents() -> None:
    """Page numbers of several documents mean nothing together, so that only counts remain."""
    sums = [AuditSum.of([page(3, Finding(kind=FindingKind.IMAGE_LOST))]) for _ in range(2)]

    total = AuditSum.merge([one for one in sums if one])

    assert total and total.describe_losses() == ["2 parts with damaged images"]
    assert AuditSum.merge([]) is None


def test_an_answer_of_a_strict_job_names_the_loss() -> None:
    """Its error is the problem of the loss, not that nothing was read."""
    lost = Problem.warning(3, Code.REGIONS_UNREAD, "1 region not read")
    document = DocumentResult(source="a.pdf", status=Status.FAILURE)
    result = Result(status=Status.FAILURE, documents=(document,), problems=(lost,))

    assert result.as_answer()["error"] == "REGIONS_UNREAD: page 3: 1 region not read"


@pytest.mark.parametrize(
    ("flags", "codes", "kinds"),
    [
        ((Flag.UNREAD_REGION,), (Code.REGIONS_UNREAD,), ["region_unread"]),
        ((Flag.LOOP, Flag.DOUBTFUL), (Code.LOOP,), ["answer_looped"]),
        ((Flag.LACKS_LINES,), (Code.UNREADABLE_SCRIPT,), ["lines_left_out"]),
        ((), (Code.ORDER_CORRECTED, Code.NO_TEXT), []),
    ],
)
def test_a_page_of_an_earlier_version_gets_an_audit(
    flags: tuple[Flag, ...], codes: tuple[Code, ...], kinds: list[str]
) -> None:
    """Its flags and problems say what was lost; each loss is counted once."""
    element = documents.element("text", "The price of salt.").with_flags(*flags)
    stored = documents.checkpoint(1, element).with_problems(Problem.warning(1, code, "…") for code in codes)

    restored = audit.restore(stored)

    assert restored.page.audit
    assert [finding.kind for finding in restored.page.audit.findings] == kinds
    assert (restored.page.audit.words_seen, restored.page.audit.words_read) == (None, 4)
    assert audit.restore(restored) is restored


def test_characters_without_a_meaning_are_found_on_every_page() -> None:
    """Signs are dropped with a count, which is no loss; what the element's flags say is found as well."""
    element = documents.element("text", "\ue001 The price of \x93salt\x94 in the old harbour.").with_flags(Flag.LOOP)

    audited = audit.complete_unrendered(documents.checkpoint(1, element), NO_LAYER)

    assert audited.elements[0].text == "The price of “salt” in the old harbour."
    assert {finding.kind for finding in audited.page.audit.findings} == {  # type: ignore[union-attr]
        FindingKind.SIGNS_DROPPED, FindingKind.ANSWER_LOOPED,
    }  # fmt: skip
    assert Code.UNKNOWN_CHARACTERS in {problem.code for problem in audited.problems}


def test_a_reason_for_the_text_layer_is_no_loss() -> None:
    """The PDF's own text is shown, so that the answer that could not be used is not missed."""
    stored = documents.checkpoint(1, documents.element("text", "Salt."), state=State.TEXT_LAYER)
    stored = stored.model_copy(update={"page": stored.page.model_copy(update={"reason": Code.LOOP})})

    restored = audit.restore(stored.with_problems([Problem.warning(1, Code.LOOP, "the answer repeats itself")]))

    assert not restored.page.has_loss
