"""The state file of a campaign."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twopass.errors import Code, InvalidSetting
from twopass.fleet.ledger import LOCK, Ledger, PageCount, Spending, lock


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


KEY = Ledger.key("a")
DAMAGED = [
    b"[" * 200_000,
    b'{"key": "' + KEY.encode() + b'", "ended": ' + b"[" * 200_000,
    b'{"key": "' + KEY.encode() + b'", "ended": [1, 2]}',
    b'{"key": "' + KEY.encode() + b'", "counted": {"sha256": "x", "pages": 1e300}}',
    b'{"key": "' + KEY.encode() + b'", "counted": {"sha256": "x", "pages": -1}}',
    b'{"key": ["a"], "job": "1"}',
    b'{"key": "a", "job": {"b": 1}}',
    b'{"key": "a", "job": null, "cost": NaN}',
    b'{"key": "a", "sending": 5}',
    b"null",
    b"\xff\xfe\x00",
]


@given(st.lists(st.sampled_from(DAMAGED) | st.binary(max_size=40), max_size=5))
def test_a_damaged_line_is_skipped(lines: list[bytes]) -> None:
    """Whatever a line is, the lines around it are read, and its job is sent again."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "state.jsonl"
        path.write_bytes(b'{"key": "b", "job": "2"}\n' + b"".join(line + b"\n" for line in lines))
        Ledger(path).record_job("c", "3")
        ledger = Ledger(path)

        assert {"b": "2", "c": "3"}.items() <= ledger.open_jobs.items()
        assert ledger.count(KEY) is None
        assert ledger.outcome(KEY) is None
        assert ledger.spending == Spending()


def test_what_jobs_cost_is_remembered(tmp_path: Path) -> None:
    """The dollars and pages of all jobs that ended are summed, over all commands with the file."""
    path = tmp_path / "state.jsonl"
    Ledger(path).forget_job("a", "DEADLINE: x", 0.5, 10)
    Ledger(path).forget_job("a", None, 0.25, 5)
    Ledger(path).forget_job("b")

    assert Ledger(path).spending == Spending(0.75, 15, 2)


def test_pages_that_were_counted_are_remembered(tmp_path: Path) -> None:
    """A count is read from its line; None is kept, too: the document cannot be opened."""
    ledger = Ledger(tmp_path / "state.jsonl")
    for key, pages in (("a", 5), ("b", None)):
        ledger.record_count(Ledger.key(key), PageCount(sha256="x", pages=pages))

    counts = [Ledger(tmp_path / "state.jsonl").count(Ledger.key(key)) for key in ("a", "b")]
    assert [count and count.pages for count in counts] == [5, None]
    assert counts[1] is not None


def test_one_command_at_a_time_uses_the_folder(tmp_path: Path) -> None:
    """The second one learns who the first one is; when the first one ends, the folder is free."""
    with lock(tmp_path / "new"), pytest.raises(InvalidSetting) as refusal, lock(tmp_path / "new"):
        pass
    with lock(tmp_path / "new"):
        pass

    assert refusal.value.code is Code.IN_USE
    assert f"process {os.getpid()} on {socket.gethostname()}, since 20" in refusal.value.message


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 200_000, b'{"host": 1}', b"\xff"])
def test_a_lock_without_a_name_is_a_lock(tmp_path: Path, content: bytes) -> None:
    """The first command may be about to write its name, or its file system may show it late."""
    with lock(tmp_path):
        (tmp_path / LOCK).write_bytes(content)
        with pytest.raises(InvalidSetting, match="IN_USE.*a host that is not known"), lock(tmp_path):
            pass
