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


async def test_pace_and_time_left_leave_out_pages_that_were_found() -> None:
    """A resumed campaign that reads 2 pages a second says so, whatever it found, and however long that took."""
    now = [0.0]
    display = CampaignDisplay(3, Console(file=io.StringIO()), clock=lambda: now[0])
    for name in ("recorded", "half", "new"):
        display.document_started(name, 100, 1)
    now[0] = 30.0
    await display.document_ended(DocumentOutcome("recorded", 100, 1, result={"status": "success"}))
    now[0] = 60.0
    display.pages_found("half", 60)
    display.document_progressed("half", 60, "reading")
    before = display.format_note(300, 160)
    now[0] = 65.0
    display.document_progressed("half", 70, "reading")

    assert before == "0.00/s · 1/3 documents"
    assert display.format_note(300, 170) == "2.00/s · 1 min 5 s left · 1/3 documents"
    await display.document_ended(DocumentOutcome("half", 100, 1, pages_now=40, result={"status": "success"}))
    assert display.format_note(300, 200) == "8.00/s · 12 s left · 2/3 documents"


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
