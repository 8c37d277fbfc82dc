"""`twopass parse-answer`: the elements of a model's raw answer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes import answers

PARSE = [sys.executable, "-m", "twopass.cli", "parse-answer"]


def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PARSE, *arguments], input=stdin, capture_output=True, text=True, check=True, timeout=60)


def test_a_file_becomes_a_list_of_elements(tmp_path: Path) -> None:
    """Each element has its category, kind, label, boxes, text, table and flags; --page numbers the ids."""
    (tmp_path / "answer.txt").write_text(answers.PAGE)

    elements = json.loads(run(str(tmp_path / "answer.txt"), "--page", "7").stdout)

    table = next(element for element in elements if element["kind"] == "table")
    assert len(elements) == 9 and elements[0]["id"] == "p0007-e000"
    assert {"category", "kind", "native_label", "boxes", "text", "table", "flags"} <= set(table)


@pytest.mark.parametrize(
    ("text", "reason"), [(answers.LOOPS["evenly spaced"], "LOOP"), ("no box", "UNGROUNDED"), ("", "")]
)
def test_stdin_is_parsed_and_the_reason_of_a_bad_answer_goes_to_stderr(text: str, reason: str) -> None:
    """The reason why an answer would not be accepted is on stderr, so that stdout is always JSON."""
    ran = run("-", stdin=text)

    assert isinstance(json.loads(ran.stdout), list)
    assert ran.stderr.startswith(reason)
