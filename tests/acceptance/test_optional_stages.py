"""Stages (e) and (f) follow the others if they are asked for and nothing failed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from twopass.acceptance import records, run
from twopass.acceptance.checks import Check, CheckOutcome
from twopass.acceptance.run import NEEDS_VLLM, Plan
from twopass.document import Attempt, Checkpoint, Page, State
from twopass.settings import Settings

RECORD = records.load()[0]


@pytest.fixture
def artefacts(tmp_path: Path) -> Path:
    """A folder of artefacts with one page."""
    page = Page(number=1, width_pt=595, height_pt=842, state=State.READ, attempts=(Attempt(rung="normal"),))
    (tmp_path / "a" / "pages").mkdir(parents=True)
    (tmp_path / "a" / "pages" / "0001.json").write_text(Checkpoint(page=page).model_dump_json())
    return tmp_path


def run_with_answer(text: str, folder: Path, **asked: object) -> dict[str, list[Check]]:
    """Run with an engine that gives this answer to one record; the checks by stage."""
    (folder / "pages").mkdir()
    completion = {
        "prompt_id": RECORD.prompt_id, "text": text, "finish_reason": "stop", "tokens_in": RECORD.prompt_tokens,
        "tokens_out": RECORD.output_tokens,
    }  # fmt: skip
    (folder / "pages" / "0001.json").write_text(json.dumps({"completions": [completion]}))
    settings = Settings(engine="replay", replay_dir=folder, page_workers=1)
    checks = run.run(Plan(settings, pictures=(), records=[RECORD], **asked))  # type: ignore[arg-type]
    return {stage: [check for check in checks if check.stage == stage] for stage in "abcdef"}


def test_optional_stages_come_last(tmp_path: Path, artefacts: Path) -> None:
    """After sound answers: settings cannot be compared with this engine, and rates are those of the folder."""
    (tmp_path / "answers").mkdir()

    checks = run_with_answer(RECORD.text, tmp_path / "answers", tune=True, rates=True, artefacts=artefacts / "a")

    assert {check.outcome for check in checks["d"]} <= {CheckOutcome.PASSED, CheckOutcome.NOT_RUN}
    assert [(check.outcome, check.meaning) for check in checks["e"]] == [(CheckOutcome.NOT_RUN, NEEDS_VLLM)]
    assert checks["f"][0].value == "normal 1 of 1 (100.0%)"


def test_optional_stages_are_left_out_after_a_failed_check(tmp_path: Path, artefacts: Path) -> None:
    """Settings of a worker that misreads are not worth an hour."""
    (tmp_path / "answers").mkdir()

    checks = run_with_answer("nonsense", tmp_path / "answers", tune=True, rates=True, artefacts=artefacts / "a")

    assert any(check.outcome is CheckOutcome.FAILED for check in checks["d"])
    assert not checks["e"] and not checks["f"]


def test_optional_stages_are_not_run_unasked(tmp_path: Path) -> None:
    """Without --tune and --rates the run ends with the answers."""
    checks = run_with_answer(RECORD.text, tmp_path)

    assert checks["d"] and not checks["e"] and not checks["f"]


def test_artefacts_that_cannot_be_read_fail_the_stage(tmp_path: Path, artefacts: Path) -> None:
    """The file is named in the table. Counting in a folder needs no model, so no other stage runs."""
    (tmp_path / "answers").mkdir()
    (artefacts / "a" / "pages" / "0001.json").write_text("{}")

    checks = run_with_answer(RECORD.text, tmp_path / "answers", rates=True, artefacts=artefacts / "a")

    (check,) = checks["f"]
    assert check.outcome is CheckOutcome.FAILED and "0001.json" in check.meaning and not checks["d"]
