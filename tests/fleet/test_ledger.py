"""The state file of a campaign."""

from __future__ import annotations

import json
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


def test_outcomes_stay_in_the_file(tmp_path: Path) -> None:
    """An outcome is read from its line, in the process that wrote it and in the next one; the last one counts."""
    path = tmp_path / "new" / "state.jsonl"
    keys = [Ledger.key(number) for number in range(3)]
    ledger = Ledger(path)
    for number, key in enumerate([*keys, keys[0]]):
        ledger.record_outcome(key, {"output": {"number": number}, "error": None})

    for reader in (ledger, Ledger(path)):
        numbers = [(reader.outcome(key) or {})["output"]["number"] for key in keys]
        assert numbers == [3, 1, 2]
    assert Ledger(path).outcome(Ledger.key("unknown")) is None


def test_an_outcome_that_was_cut_off_is_none(tmp_path: Path) -> None:
    """The job is sent again, and its new outcome counts."""
    path, key = tmp_path / "state.jsonl", Ledger.key("a")
    Ledger(path).record_outcome(key, {"output": {"pages": {"read": 1}}})
    path.write_bytes(path.read_bytes()[:-4])
    ledger = Ledger(path)

    assert ledger.outcome(key) is None
    ledger.record_outcome(key, {"output": {}})
    assert Ledger(path).outcome(key) == {"output": {}}


def test_a_state_file_of_0_2_0_is_read(tmp_path: Path) -> None:
    """Keys, jobs and outcomes are found as that version wrote them."""
    path, key = tmp_path / "state.jsonl", Ledger.key("a")
    lines = [{"key": key, "job": "1-e1"}, {"key": key, "job": None}, {"key": key, "ended": {"output": {"é": 1}}}]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in [*lines, {"key": "b", "job": "2"}]))

    assert Ledger(path).outcome(key) == {"output": {"é": 1}}
    assert Ledger(path).open_jobs == {"b": "2"}
