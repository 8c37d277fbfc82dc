"""How environment variables become settings, and which values are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from twopass.engines import preflight
from twopass.errors import InvalidSetting
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


# Every setting that may hold an address, and an address that may be anything.
ADDRESSES = [
    name for name, field in Settings.model_fields.items() if field.annotation in (str, str | None, Path, Path | None)
]
SECRETS = [
    "http://user:hunter2@host:8000/v1",
    "https://host/path?X-Amz-Signature=hunter2",
    "https://host/#hunter2",
    "https://user:a/hunter2@host",
    "https://user:a#hunter2@host/x",
    "https://host/?key=a@hunter2",
    "https://hunter2@host",
    "user:hunter2@host:8000",
    "s3://user:hunter2@bucket/prefix",
    "http://[::1?hunter2",
    "postgres+driver://user:hunter2@host",
]


@pytest.mark.parametrize("address", SECRETS)
def test_shown_settings_hold_no_secrets_of_addresses(address: str) -> None:
    """Whichever setting has a password or a signature in its address: repr, str and format do not show it."""
    settings = Settings.model_construct(**dict.fromkeys(ADDRESSES, address))

    assert len(ADDRESSES) > 10
    assert not any("hunter2" in text for text in (repr(settings), str(settings), f"{settings}", repr([settings])))
    assert settings.openai_base_url == address


def test_shown_settings_hold_no_keys() -> None:
    """Neither a key nor its name is shown."""
    keys = {name: "hunter2-hunter2-hunter2" for name in Settings.model_fields if "_key" in name}

    assert len(keys) == 4
    assert "hunter2" not in repr(Settings(**keys))


def test_shown_settings_are_useful() -> None:
    """Addresses without secrets are shown as they are, and those with them keep host and path."""
    settings = Settings(openai_base_url="http://u:p@host:8000/v1?a=b", bucket_endpoint_url="https://s3.host/x")

    assert "openai_base_url='http://…@host:8000/v1?…'" in repr(settings)
    assert "bucket_endpoint_url='https://s3.host/x'" in repr(settings)


def test_a_wrong_setting_is_not_quoted() -> None:
    """An error of a setting, which ends in a traceback where a program creates Settings, does not show its value."""
    with pytest.raises(ValidationError) as caught:
        Settings(metrics_push_url="ftp://user:hunter2@host", serve_api_key="hunter2", log_level="hunter2")

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("address", ["user:hunter2@host:8000", "ftp://user:hunter2@host/v1"])
def test_the_doctor_shows_no_password_of_a_wrong_address(address: str) -> None:
    """The message of a refused address names the setting, and not the password in it."""
    with pytest.raises(InvalidSetting, match="OPENAI_BASE_URL") as caught:
        preflight.check_settings(Settings(engine="openai", openai_base_url=address))

    assert "hunter2" not in str(caught.value)
