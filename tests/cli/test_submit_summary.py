"""submit_summary.json, and what the console shows of many documents."""

from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console

from twopass.cli.submission import SummaryWriter, load_last
from twopass.fleet import display
from twopass.fleet.campaign import DocumentOutcome
from twopass.fleet.display import MAX_LINES, MAX_SHOWN, CampaignDisplay


def end(number: int, status: str = "success") -> DocumentOutcome:
    result = {"id": f"d-{number}", "status": status, "pages": {"read": 2}, "artefacts": {"document.md": {"uri": "s3:"}}}
    error = None if status == "success" else "DAMAGED: é"
    return DocumentOutcome(f"{number}.pdf", 2, 1, 3.0, 0.25, 2, result, error=error, number=number)


async def test_rows_are_in_the_order_of_the_documents(tmp_path: Path) -> None:
    """Documents end in any order; their rows and the sums do not depend on it."""
    board = CampaignDisplay(3, Console(file=io.StringIO()))
    with SummaryWriter(tmp_path / "new", 3, board) as summary:
        for number, status in ((2, "failure"), (0, "success"), (1, "partial_success")):
            await summary.document_ended(end(number, status))
        summary.finish(2.0)

    written = json.loads(summary.path.read_text())
    rows = written.pop("documents")
    assert [row["source"] for row in rows] == ["0.pdf", "1.pdf", "2.pdf"]
    assert rows[2] == {
        "source": "2.pdf", "status": "failure", "id": "d-2", "pages": {"read": 2}, "jobs": 1, "seconds": 3.0,
        "cost": 0.25, "artefacts": {"document.md": "s3:"}, "problems": [], "error": "DAMAGED: é",
    }  # fmt: skip
    assert written == {
        "total_documents": 3, "success": 1, "partial": 1, "failed": 1, "pages_read_now": 6, "total_time": 2.0,
        "pages_per_s": 3.0, "cost": 0.75, "cost_per_1000_pages": 125.0,
        "skipped": {"count": 0, "files": []},
    }  # fmt: skip
    assert [outcome.number for outcome in summary.shown] == [0, 1, 2]
    assert load_last(tmp_path / "new")["pages_per_s"] == 3.0


async def test_of_many_documents_the_console_shows_those_that_were_not_read(tmp_path: Path) -> None:
    """A table and a line for each of a thousand documents would hide them."""
    count = MAX_LINES + 1
    console = Console(file=io.StringIO(), width=100)
    with SummaryWriter(tmp_path, count, CampaignDisplay(count, console)) as summary:
        for number in range(count):
            await summary.document_ended(end(number, "failure" if number in (7, 9) else "success"))
        summary.finish(1.0)

    display.print_summary(summary.shown, count, console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert [outcome.number for outcome in summary.shown] == [7, 9]
    assert "7.pdf" in shown and "failure" in shown and "success" not in shown
    assert f"at most {MAX_SHOWN}" in shown
    assert len(json.loads(summary.path.read_text())["documents"]) == count
