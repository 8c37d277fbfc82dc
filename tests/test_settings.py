"""How environment variables become settings, and which values are refused."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from twopass.settings import Settings


def test_an_empty_variable_is_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """A field left blank in RunPod's form means its default, also for numbers and for fields whose default is None."""
    for name in ("BUCKET_NAME", "BUCKET_ENDPOINT_URL", "PRICE_PER_SECOND", "CONCURRENCY", "ALLOWED_DIR", "LOG_LEVEL"):
        monkeypatch.setenv(name, "")

    settings = Settings()

    assert settings == Settings.model_construct()
    assert settings.default_output is None


@pytest.mark.parametrize("level", ["debug", "Warning", "ERROR"])
def test_a_log_level_is_read_in_any_case(monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    """LOG_LEVEL accepts upper, lower and mixed case."""
    monkeypatch.setenv("LOG_LEVEL", level)

    assert Settings().log_level == level.upper()


def test_an_unknown_log_level_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt LOG_LEVEL is an error that names the field, so that it cannot silence the log."""
    monkeypatch.setenv("LOG_LEVEL", "verbose")

    with pytest.raises(ValidationError, match="log_level"):
        Settings()


def test_settings_are_read_from_variables_in_capitals(monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting is read from the variable of the same name in capitals, as the README's table names it."""
    monkeypatch.setenv("BUCKET_NAME", "papers")

    assert Settings().default_output == "s3://papers/twopass/"


@pytest.mark.parametrize(("name", "value"), [("STRUCTURE", "Detector"), ("DETECTOR_DEVICE", "CUDA")])
def test_choices_are_read_in_any_case(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """STRUCTURE and DETECTOR_DEVICE accept upper, lower and mixed case, as LOG_LEVEL does."""
    monkeypatch.setenv(name, value)

    assert getattr(Settings(), name.lower()) == value.lower()


@pytest.mark.parametrize("name", ["structure", "detector_device"])
def test_an_unknown_choice_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A misspelt value is an error that names the field, and no silent default."""
    monkeypatch.setenv(name.upper(), "both")

    with pytest.raises(ValidationError, match=name):
        Settings()


def test_a_document_is_read_as_before_by_default() -> None:
    """No detector, and no text that the model did not read, unless they are asked for."""
    settings = Settings()

    assert (settings.structure, settings.layer_text, settings.detector_dir) == ("auto", False, None)
