"""`twopass parse-answer`: the elements of a model's raw answer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.fakes import answers
from twopass.cli.app import app


def run(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(app, ["parse-answer", *arguments], input=stdin, prog_name="twopass")


def test_a_file_becomes_a_list_of_elements(tmp_path: Path) -> None:
    """Each element has its category, kind, label, boxes, text, table and flags; --page numbers the ids."""
    (tmp_path / "answer.txt").write_text(answers.PAGE)

    command = [sys.executable, "-m", "twopass.cli", "parse-answer", tmp_path / "answer.txt", "--page", "7"]
    elements = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)

    table = next(element for element in elements if element["kind"] == "table")
    assert len(elements) == 9 and elements[0]["id"] == "p0007-e000"
    assert {"category", "kind", "native_label", "boxes", "text", "table", "flags"} <= set(table)


@pytest.mark.parametrize(
    ("text", "reason"), [(answers.LOOPS["evenly spaced"], "LOOP"), ("no box", "UNGROUNDED"), ("", "")]
)
def test_stdin_is_parsed_and_the_reason_of_a_bad_answer_goes_to_stderr(text: str, reason: str) -> None:
    """The reason why an answer would not be accepted is on stderr, so that stdout is always JSON."""
    ran = run("-", stdin=text)

    assert ran.exit_code == 0 and isinstance(json.loads(ran.stdout), list)
    assert ran.stderr.startswith(reason)


@pytest.mark.parametrize(
    ("family", "reads", "text", "kind", "words"),
    [
        ("glm_ocr", "table", "<table border='1'><tr><td>Item</td><td>18.00</td></tr></table>", "table", "Item 18.00"),
        ("paddleocr_vl", "table", "<fcel>Item<fcel>18.00<nl>", "table", "Item 18.00"),
        ("glm_ocr", "text", "Rope\nand chain", "text", "Rope\nand chain"),
        ("paddleocr_vl", "formula", "\\[ a = b \\]", "formula", "a = b"),
        ("glm_ocr", "formula", "\\(a\\) and \\(b\\)", "text", "\\(a\\) and \\(b\\)"),
        ("paddleocr_vl", "chart", "Year | Tolls\n2023 | 41", "chart", "Year Tolls\n2023 41"),
        ("paddleocr_vl", "seal", "HARBOUR", "picture", "HARBOUR"),
    ],
)
def test_an_answer_about_a_region_is_its_element(family: str, reads: str, text: str, kind: str, words: str) -> None:
    """Models that read one region at a time have answers of several grammars; --reads names the one."""
    (element,) = json.loads(run("-", "--family", family, "--reads", reads, stdin=text).stdout)

    assert (element["kind"], element["text"]) == (kind, words)


@pytest.mark.parametrize(("reads", "text"), [("document", "Rope and chain"), ("free", "Rope"), ("table", "")])
def test_an_answer_about_an_unknown_region_is_an_error_that_names_what_can_be_read(reads: str, text: str) -> None:
    """No list of nothing stands for an answer that has words."""
    ran = run("-", "--family", "glm_ocr", "--reads", reads, stdin=text)

    assert (ran.exit_code, ran.stdout) == (2, "")
    assert all(name in ran.stderr for name in ("--reads", "chart", "formula", "seal", "table", "text"))
