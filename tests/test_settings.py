"""How environment variables and twopass.toml become settings, which values are refused, and what is a misspelt name."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests import ROOT
from twopass.engines import preflight
from twopass.errors import InvalidSetting
from twopass.settings import (
    CONFIG_FILE,
    FOREIGN,
    FOREIGN_PREFIXES,
    GROUPS,
    MIN_LENGTH,
    Settings,
    find_misspelt,
    find_similar,
    load_settings,
)

NAMES = [name.upper() for name in Settings.model_fields]
OWN_NAMES = [name for name in NAMES if not name.startswith(FOREIGN_PREFIXES)]
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_"


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

    assert len(keys) == 5
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


def read_foreign_variables() -> list[str]:
    lines = (ROOT / "tests" / "foreign_variables.txt").read_text().splitlines()
    return [name for line in lines if not line.startswith("#") for name in line.split()]


def test_variables_of_other_programs_are_not_refused() -> None:
    """No variable of RunPod, vLLM, worker-vllm, CUDA, AWS, Python, Hugging Face or Linux is taken for a misspelling."""
    foreign = read_foreign_variables()

    assert len(foreign) > 1000 and {"MODEL_NAME", "MAX_CONCURRENCY", "HF_HOME", "WINDOWID", "LOGLEVEL"} <= set(foreign)
    assert not [name for name in foreign if find_misspelt({name: "1"})]


def test_a_foreign_prefix_is_never_a_misspelling() -> None:
    """RunPod and OpenTelemetry have variables of their own that are close to the settings which begin like them."""
    for name in ("RUNPOD_POD_IDS", "RUNPOD_ENDPOINT_IP", "OTEL_EXPORTER_OTLP_ENDPOINT_", "VLLM_ENGINE"):
        assert find_misspelt({name: "1"}) is None


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ENGNE", "ENGINE"),
        ("engnie", "ENGINE"),
        ("BUCKET_NAM", "BUCKET_NAME"),
        ("CONCURENCY", "CONCURRENCY"),
        ("MODLE", "MODEL"),
        ("DEADLINE_S_", "DEADLINE_S"),
        ("GPU_MEMORY_UTILISATON", "GPU_MEMORY_UTILIZATION"),
        ("OPENAI_BASEURL", "OPENAI_BASE_URL"),
    ],
)
def test_a_misspelt_setting_is_found(name: str, meant: str) -> None:
    """The message names the variable and what was meant."""
    assert find_misspelt({name: "1"}) == f"{name}: unknown setting; did you mean {meant}?"


@given(st.data())
def test_one_wrong_letter_is_found_in_every_setting(data: st.DataObject) -> None:
    """A letter that is missing, wrong, doubled or swapped is found wherever it is."""
    name = data.draw(st.sampled_from(OWN_NAMES))
    place = data.draw(st.integers(0, len(name) - 2))
    head, letter, after, tail = name[:place], name[place], name[place + 1], name[place + 2 :]
    misspelt = data.draw(
        st.sampled_from(
            [
                head + after + tail,
                head + letter + letter + after + tail,
                head + after + letter + tail,
                head + data.draw(st.sampled_from(LETTERS)) + after + tail,
            ]
        )
    )

    is_judged = len(misspelt) >= MIN_LENGTH and not misspelt.startswith(FOREIGN_PREFIXES)
    is_known = misspelt in NAMES or misspelt in FOREIGN
    assert bool(find_misspelt({misspelt: "1"})) is (is_judged and not is_known)


@given(st.dictionaries(st.text(), st.text()))
def test_any_environment_is_judged(variables: dict[str, str]) -> None:
    """Whatever the variables are called, the answer is a message of one line or none."""
    message = find_misspelt(variables)

    assert message is None or message.count("did you mean") <= len(variables)


def test_settings_themselves_and_empty_variables_are_not_misspelt() -> None:
    """All settings may be set together, and a field that a form leaves blank counts as not set."""
    assert find_misspelt(dict.fromkeys(NAMES, "1")) is None
    assert find_misspelt({"ENGNE": ""}) is None


def test_wrong_settings_are_named_in_one_line_without_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """All wrong variables are named at once, with what each may be; a value may be secret."""
    for name in ("ENGINE", "PRESET", "METRICS_PORT"):
        monkeypatch.setenv(name, "hunter2")

    with pytest.raises(InvalidSetting) as caught:
        load_settings()

    message = str(caught.value)
    assert "\n" not in message and "hunter2" not in message
    assert "ENGINE: Input should be 'cpu', 'vllm', 'openai', 'hf' or 'replay'" in message
    assert "PRESET: unknown preset; choose auto, cpu, 8, 16" in message and "METRICS_PORT: " in message


def test_fixed_settings_take_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command's option says is used in place of the variable."""
    monkeypatch.setenv("ENGINE", "VLLM")

    assert load_settings().engine == "vllm"
    assert load_settings(engine="cpu").engine == "cpu"


@pytest.mark.parametrize(
    ("name", "meant"), [("markdwn", "markdown"), ("docjason", "docjson"), ("html", None), ("zp", None)]
)
def test_a_similar_name_is_offered_only_where_one_is_close(name: str, meant: str | None) -> None:
    """A word of another meaning is not answered with a guess."""
    assert find_similar(name, ["docjson", "markdown", "zip"]) == meant


# ---- twopass.toml -------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, which is empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_variable_comes_before_the_file_and_an_option_before_both(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What none of them sets has its default."""
    (folder / CONFIG_FILE).write_text("[worker]\nconcurrency = 2\nworker_calls = 20\nwindow = 200\n")
    monkeypatch.setenv("WORKER_CALLS", "30")
    monkeypatch.setenv("WINDOW", "300")

    settings = load_settings(window=400)

    assert (settings.concurrency, settings.worker_calls, settings.window) == (2, 30, 400)
    assert settings.page_workers == Settings.model_fields["page_workers"].default


def test_the_file_holds_what_a_variable_would_hold(folder: Path) -> None:
    """Numbers and booleans may be written as such or as text, names in any case, and empty text counts as not set."""
    (folder / CONFIG_FILE).write_text(
        'DEADLINE_S = "60"\n[model]\npreset = 24\ncanary = false\n'
        '[engine]\nengine = "OpenAI"\n[storage]\nbucket_name = ""\n'
    )

    settings = load_settings()

    assert (settings.deadline_s, settings.preset, settings.canary) == (60.0, "24", False)
    assert (settings.engine, settings.default_output) == ("openai", None)


def test_every_setting_has_one_group_and_can_be_in_the_file(folder: Path) -> None:
    """The groups together are the settings."""
    grouped = [name for group in GROUPS.values() for name in group.model_fields]
    defaults = {name: field.default for name, field in Settings.model_fields.items()}
    lines = [
        f"[{title}]\n" + "".join(f'{name} = "{defaults[name]}"\n' for name in group.model_fields if defaults[name])
        for title, group in GROUPS.items()
    ]
    (folder / CONFIG_FILE).write_text("".join(lines))

    assert sorted(grouped) == sorted(Settings.model_fields)
    assert load_settings() == Settings.model_construct()


def test_another_file_takes_the_place_of_the_one_in_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TWOPASS_CONFIG names it; empty, it counts as not set."""
    (folder / CONFIG_FILE).write_text("[worker]\nconcurrency = 2\nwindow = 8\n")
    (folder / "other.toml").write_text("[worker]\nconcurrency = 3\n")

    monkeypatch.setenv("TWOPASS_CONFIG", "other.toml")
    other = load_settings()
    monkeypatch.setenv("TWOPASS_CONFIG", "")

    assert (other.concurrency, other.window) == (3, 0)
    assert load_settings().concurrency == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[engine]\nengne = "cpu"\n', "[engine] engne: unknown setting; did you mean engine?"),
        ("prot = 1\n", "prot: unknown setting; did you mean port?"),
        ("[serve]\ncolour = 1\n", "[serve] colour: unknown setting"),
        ("[serve]\nconcurrency = 2\n", "[serve] concurrency: belongs into [worker]"),
        ("[sevre]\nport = 1\n", "[sevre]: unknown group; did you mean [serve]?"),
        ("[colours]\nred = 1\n", "[colours]: unknown group; known are [engine], [model], [worker], "),
        ("[worker]\nconcurrency = [1]\n", "[worker] concurrency: must be a text, a number, true or false"),
        ("[worker]\nconcurrency = 0\n", "concurrency: Input should be greater than or equal to 1"),
        ("[worker\n", "cannot be read (Expected ']'"),
        ("engine = \"\xff\"\n", "cannot be read ("),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_with_its_name_and_what_was_meant(folder: Path, text: str, message: str) -> None:
    """The message names the file and the setting, and says no value."""
    (folder / CONFIG_FILE).write_bytes(text.encode("latin-1"))

    with pytest.raises(InvalidSetting) as caught:
        load_settings()

    assert caught.value.message.startswith(f"{CONFIG_FILE}: {message}") and "\n" not in str(caught.value)


def test_a_file_that_is_named_must_exist(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt path is no silent default."""
    monkeypatch.setenv("TWOPASS_CONFIG", "missing.toml")

    with pytest.raises(
        InvalidSetting, match="missing.toml: cannot be read .no such file.; correct it, or TWOPASS_CONFIG"
    ):
        load_settings()


def test_the_name_of_the_file_is_not_misspelt_itself() -> None:
    """TWOPASS_CONFG would otherwise have no effect."""
    assert find_misspelt({"TWOPASS_CONFG": "a.toml"}) == (
        "TWOPASS_CONFG: unknown setting; did you mean TWOPASS_CONFIG?"
    )
    assert find_misspelt({"TWOPASS_CONFIG": "a.toml"}) is None
