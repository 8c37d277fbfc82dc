"""Progress bars of a campaign."""

from __future__ import annotations

import io

from rich.console import Console

from twopass.fleet.campaign import DocumentOutcome
from twopass.fleet.display import CampaignDisplay, format_duration


async def test_the_total_bar_shows_pace_time_left_and_cost() -> None:
    """Ten of forty pages in five seconds leave fifteen seconds."""
    now = [0.0]
    display = CampaignDisplay(2, Console(file=io.StringIO()), clock=lambda: now[0])
    display.document_started("a", 40, 1)
    now[0] = 5.0
    display.document_progressed("a", 10, "reading")

    assert display.format_note(40, 10) == "2.00/s · 15 s left · 0/2 documents"
    await display.document_ended(DocumentOutcome("a", 40, 1, cost=0.25, result={"status": "success"}))
    assert display.format_note(40, 40).endswith("1/2 documents · $0.2500")
    assert format_duration(3700) == "1 h 1 min"


async def test_the_totals_follow_every_document() -> None:
    """Pages of a document that ended count as its result says; those of a failed one stay undone."""
    now = [0.0]
    output = io.StringIO()
    with CampaignDisplay(3, Console(file=output, width=200, force_terminal=True), clock=lambda: now[0]) as display:
        for name in ("a", "b"):
            display.document_started(name, 10, 1)
        display.document_progressed("a", 4, "reading")
        await display.document_ended(DocumentOutcome("a", 12, 1, result={"status": "success"}))
        await display.document_ended(DocumentOutcome("b", None, 1, error="DAMAGED: x"))
        now[0] = 1.0
        await display.document_ended(DocumentOutcome("c", 1, 1, result={"status": "success"}))

    assert "13/23" in output.getvalue()
