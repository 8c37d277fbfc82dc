"""Progress bars of a campaign."""

from __future__ import annotations

import io

from rich.console import Console

from twopass.fleet.campaign import DocumentOutcome
from twopass.fleet.display import CampaignDisplay, format_duration


def test_the_total_bar_shows_pace_time_left_and_cost() -> None:
    """Ten of forty pages in five seconds leave fifteen seconds."""
    now = [0.0]
    display = CampaignDisplay(2, Console(file=io.StringIO()), clock=lambda: now[0])
    display.document_started("a", 40, 1)
    now[0] = 5.0
    display.document_progressed("a", 10, "reading")

    assert display.format_note(40, 10) == "2.00/s · 15 s left · 0/2 documents"
    display.document_ended(DocumentOutcome("a", 40, 1, cost=0.25, result={"status": "success"}))
    assert display.format_note(40, 40).endswith("1/2 documents · $0.2500")
    assert format_duration(3700) == "1 h 1 min"
