"""The audit's values: findings, what their kinds say, and what a page's audit keeps of them."""

from __future__ import annotations

import pytest

from twopass.document import Checkpoint, Finding, FindingKind, Page, PageAudit, State
from twopass.errors import Code


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
