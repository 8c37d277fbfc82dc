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


def test_a_job_is_unanswered_until_its_id_is_known(tmp_path: Path) -> None:
    """What was sent without an answer survives the process; the job's id, or its end, replaces it."""
    path = tmp_path / "state.jsonl"
    for key in ("a", "b", "c"):
        Ledger(path).record_sending(key, f"{key}-1")
    Ledger(path).record_job("b", "2")
    Ledger(path).forget_job("c")

    ledger = Ledger(path)
    assert [ledger.unanswered(key) for key in ("a", "b", "c")] == ["a-1", None, None]
    assert ledger.unanswered_count == 1
    assert ledger.open_jobs == {"b": "2"}
