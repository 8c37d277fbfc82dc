"""The state file of a campaign."""

from __future__ import annotations

from pathlib import Path

from twopass.fleet.ledger import Ledger


def test_why_a_job_was_sent_again_is_recorded(tmp_path: Path) -> None:
    """The state file says why a job did not end; the job is no longer open."""
    path = tmp_path / "state.jsonl"
    ledger = Ledger(path)
    ledger.record_job("a", "1")

    ledger.forget_job("a", "actor 12 on 10.0.0.5 lost")

    assert "actor 12 on 10.0.0.5 lost" in path.read_text()
    assert Ledger(path).open_jobs == {}


def test_a_truncated_line_is_skipped(tmp_path: Path) -> None:
    """A crash during a write leaves half a line; the other lines are read, and the next one is written on its own."""
    path = tmp_path / "state.jsonl"
    Ledger(path).record_job("a", "1")
    path.write_text(path.read_text() + '{"key": "b", "jo')
    Ledger(path).record_job("c", "3")

    assert Ledger(path).open_jobs == {"a": "1", "c": "3"}
