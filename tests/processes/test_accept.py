"""`twopass accept` as users type it, with recorded answers in place of a model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from twopass.acceptance import records


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the shipped records, to replay and to spoil."""
    return Path(shutil.copytree(records.SHIPPED, tmp_path / "answers"))


def accept(folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run the command with the folder's answers; they are compared with the shipped ones."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PAGE_WORKERS": "1"}
    environment |= {"ENGINE": "replay", "REPLAY_DIR": str(folder)} | settings
    command = [sys.executable, "-m", "twopass.cli", "accept", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def test_recorded_answers_pass(folder: Path, tmp_path: Path) -> None:
    """The table says which stages could not be run, and the JSON file has every check."""
    ran = accept(folder, "--json", str(tmp_path / "checks.json"))

    assert ran.returncode == 0, ran.stderr
    assert "    not run  tokens compared with those of stock vLLM\n             needs ENGINE=vllm\n" in ran.stdout
    assert "(d) answers compared with recorded ones\n" in ran.stdout
    assert ran.stdout.splitlines()[-1].startswith("passed, after ")
    written = json.loads((tmp_path / "checks.json").read_text())
    assert {check["stage"] for check in written["checks"]} == set("abcd")
    assert {check["outcome"] for check in written["checks"]} == {"passed", "not run"}


def test_a_wrong_answer_fails_with_what_it_means(folder: Path) -> None:
    """Lost spaces are the fault of tokenizers that Transformers 5 loads with the wrong class."""
    answer = folder / "commons_test_ocr_document.free_ocr.txt"
    answer.write_text(answer.read_text().replace(" ", ""))

    ran = accept(folder)

    assert ran.returncode == 1
    assert "the letters agree, but not the spaces: check how tokens are decoded" in ran.stdout
    assert ran.stdout.splitlines()[-1].startswith("failed")


def test_without_vllm_the_run_ends_with_advice(folder: Path, tmp_path: Path) -> None:
    """Without ENGINE, the command tests vLLM, which is not installed here. The JSON file is written nevertheless."""
    ran = accept(folder, "--model-dir", str(folder), "--json", str(tmp_path / "checks.json"), ENGINE="")

    assert ran.returncode == 1
    assert "vllm, which is not installed: make gpu" in ran.stderr
    assert json.loads((tmp_path / "checks.json").read_text())["checks"] == []


def test_the_engine_of_a_settings_file_is_tested(folder: Path) -> None:
    """twopass.toml chooses it as the environment would."""
    (folder / "twopass.toml").write_text('[engine]\nengine = "replay"\n')

    ran = accept(folder, ENGINE="")

    assert ran.returncode == 0, ran.stderr


def test_a_run_without_any_comparison_does_not_pass(folder: Path) -> None:
    """No record is of this model."""
    ran = accept(folder, MODEL="deepseek_ocr2")

    assert ran.returncode == 1
    assert ran.stdout.splitlines()[-1].startswith("failed: nothing was compared, after ")


def test_a_json_file_without_a_folder_is_refused_before_the_run(folder: Path, tmp_path: Path) -> None:
    """A run of ten minutes must not end without its result."""
    ran = accept(folder, "--json", str(tmp_path / "none" / "checks.json"))

    assert ran.returncode == 2
    assert "does not exist; create it" in " ".join(ran.stderr.split())


def test_a_folder_without_records_is_reported(tmp_path: Path, folder: Path) -> None:
    """The message names the file and says how such a folder is made."""
    (tmp_path / "empty").mkdir()

    ran = accept(folder, "--records", str(tmp_path / "empty"))

    assert ran.returncode == 1
    assert "records.json is missing" in ran.stderr
    assert "--record" in ran.stderr


def test_record_asks_about_the_runs_own_pictures(tmp_path: Path, folder: Path) -> None:
    """An engine without answers to them ends the run; several are asked at once, so any of them may be named."""
    ran = accept(folder, "--record", str(tmp_path / "kept"))

    assert ran.returncode == 1
    assert "no completion is recorded for prompt record/" in ran.stderr
    assert not (tmp_path / "kept" / "records.json").exists()


def test_a_model_that_reads_regions_has_no_records(tmp_path: Path, folder: Path) -> None:
    """Recorded answers are about whole pages; the option is refused before an engine starts."""
    ran = accept(folder, "--record", str(tmp_path / "kept"), MODEL="glm_ocr")

    assert ran.returncode == 2
    assert "glm_ocr reads single regions" in " ".join(ran.stderr.replace("│", " ").split())
