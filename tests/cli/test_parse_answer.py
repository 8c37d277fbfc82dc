"""scripts/parse_answer.py, as a person starts it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.fakes import answers

SCRIPT = ROOT / "scripts" / "parse_answer.py"


def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=True, timeout=60)


def test_a_file_becomes_a_list_of_elements(tmp_path: Path) -> None:
    """With category, kind, label, boxes, text, table and flags of each."""
    (tmp_path / "answer.txt").write_text(answers.PAGE)

    told = json.loads(run(str(tmp_path / "answer.txt"), "--page", "7").stdout)

    table = next(element for element in told if element["kind"] == "table")
    assert len(told) == 9 and told[0]["id"] == "p0007-e000"
    assert {"category", "kind", "native_label", "boxes", "text", "table", "flags"} <= set(table)


@pytest.mark.parametrize(("text", "reason"), [(answers.LOOPS["marching"], "LOOP"), ("no box", "UNGROUNDED"), ("", "")])
def test_stdin_is_read_and_a_bad_answer_says_why(text: str, reason: str) -> None:
    """On stderr, so that the list stays JSON."""
    done = run("-", stdin=text)

    assert isinstance(json.loads(done.stdout), list)
    assert done.stderr.startswith(reason)
