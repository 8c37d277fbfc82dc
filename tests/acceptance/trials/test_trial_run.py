"""A trial runs in a process of its own, with the settings of its choice."""

from __future__ import annotations

from pathlib import Path

import pytest

from twopass.acceptance import drawn_pages
from twopass.acceptance.trials import trial_documents, trial_run, trial_scores
from twopass.acceptance.trials.trial_documents import TrialDocument, Truth
from twopass.acceptance.trials.trial_run import Choice
from twopass.errors import Code, EngineError
from twopass.settings import Settings

ONE_WORKER = {"PAGE_WORKERS": "1"}


def draw(folder: Path) -> TrialDocument:
    page = drawn_pages.prose(["The keeper counted nineteen ships before dark, and wrote their names in a ledger."])
    drawn_pages.save([page], folder / "page.pdf")
    return TrialDocument(folder / "page.pdf", {1: Truth(page.text)}, is_drawn=True)


def test_a_trial_reads_files_in_a_new_process(tmp_path: Path) -> None:
    """Its pages, their words and both durations come back; the source in the pages is the file's name in the job."""
    document = draw(tmp_path)

    trial = trial_run.read(
        Choice("one", ONE_WORKER, {"ngram": 20}), [document.path], Settings(engine="cpu"), tmp_path / "trial"
    )

    assert set(trial.pages) == {(str(document.path), 1)}
    assert trial.start_s > 0 and trial.read_s > 0 and trial.pages_per_s > 0
    assert trial_scores.score([document], trial)[trial_scores.WORDS].wrong == 0


def test_a_choice_that_does_not_start_says_why(tmp_path: Path) -> None:
    """The end of the process's log is in the message."""
    document = draw(tmp_path)

    with pytest.raises(EngineError, match="INVALID_SETTING: ENGINE: ") as raised:
        trial_run.read(Choice("x", {"ENGINE": "nothing"}), [document.path], Settings(engine="cpu"), tmp_path / "trial")
    assert raised.value.code is Code.ENGINE_DEAD


def test_options_of_the_command_line_reach_the_trial_and_the_choice_wins() -> None:
    """The engine and the folder of weights are passed on, and a choice changes any of the user's settings."""
    settings = Settings(engine="vllm", model_dir=Path("/weights"))

    environment = trial_run.build_environment(Choice("x", {"DRAW_VIEWS": "true", "ENGINE": "hf"}), settings)

    assert (environment["MODEL_DIR"], environment["DRAW_VIEWS"], environment["ENGINE"]) == ("/weights", "true", "hf")


def test_a_choice_prints_what_a_user_writes() -> None:
    """Settings are lines of an environment file; sampling is a field of jobs."""
    choice = Choice("both", {"DRAW_VIEWS": "true"}, {"ngram": 20, "window": 50})

    assert choice.lines == ["DRAW_VIEWS=true", '"sampling": {"ngram": 20, "window": 50} in the input of jobs']


def test_text_layers_of_missing_files_are_empty() -> None:
    """A source that is gone since it was read has no text layer."""
    assert trial_documents.read_text_layers(Path("gone.pdf")) == {}
