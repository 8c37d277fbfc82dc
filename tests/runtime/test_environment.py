"""Settings from the environment: errors name the variable, and a misspelt one is told from those of other programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import ROOT
from twopass.errors import InvalidSetting
from twopass.runtime import environment
from twopass.runtime.environment import FOREIGN_PREFIXES
from twopass.settings import CONFIG_FILE, GROUPS, Settings

NAMES = [name.upper() for name in Settings.model_fields]
OWN_NAMES = [name for name in NAMES if not name.startswith(FOREIGN_PREFIXES)]
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_"


def read_foreign_variables() -> list[str]:
    lines = (ROOT / "tests" / "runtime" / "foreign_variables.txt").read_text().splitlines()
    return [name for line in lines if not line.startswith("#") for name in line.split()]


def test_variables_of_other_programs_are_not_refused() -> None:
    """No variable of RunPod, vLLM, worker-vllm, CUDA, AWS, Python, Hugging Face or Linux is taken for a misspelling."""
    foreign = read_foreign_variables()

    assert len(foreign) > 1000 and {"MODEL_NAME", "MAX_CONCURRENCY", "HF_HOME", "WINDOWID", "LOGLEVEL"} <= set(foreign)
    assert not [name for name in foreign if environment.find_misspelt({name: "1"})]


def test_a_foreign_prefix_is_never_a_misspelling() -> None:
    """RunPod and OpenTelemetry have variables of their own that are close to the settings which begin like them."""
    for name in ("RUNPOD_POD_IDS", "RUNPOD_ENDPOINT_IP", "OTEL_EXPORTER_OTLP_ENDPOINT_", "VLLM_ENGINE"):
        assert environment.find_misspelt({name: "1"}) is None


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
    assert environment.find_misspelt({name: "1"}) == f"{name}: unknown setting; did you mean {meant}?"


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

    is_judged = len(misspelt) >= environment.MIN_LENGTH and not misspelt.startswith(FOREIGN_PREFIXES)
    is_known = misspelt in NAMES or misspelt in environment.FOREIGN
    assert bool(environment.find_misspelt({misspelt: "1"})) is (is_judged and not is_known)


@given(st.dictionaries(st.text(), st.text()))
def test_any_environment_is_judged(variables: dict[str, str]) -> None:
    """Whatever the variables are called, the answer is a message of one line or none."""
    message = environment.find_misspelt(variables)

    assert message is None or message.count("did you mean") <= len(variables)


def test_settings_themselves_and_empty_variables_are_not_misspelt() -> None:
    """All settings may be set together, and a field that a form leaves blank counts as not set."""
    assert environment.find_misspelt(dict.fromkeys(NAMES, "1")) is None
    assert environment.find_misspelt({"ENGNE": ""}) is None


def test_wrong_settings_are_named_in_one_line_without_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """All wrong variables are named at once, with what each may be; a value may be secret."""
    for name in ("ENGINE", "PRESET", "METRICS_PORT"):
        monkeypatch.setenv(name, "hunter2")

    with pytest.raises(InvalidSetting) as caught:
        environment.load_settings()

    message = str(caught.value)
    assert "\n" not in message and "hunter2" not in message
    assert "ENGINE: Input should be 'cpu', 'vllm', 'openai', 'hf' or 'replay'" in message
    assert "PRESET: unknown preset; choose auto, cpu, 8, 16" in message and "METRICS_PORT: " in message


def test_fixed_settings_take_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command's option says is used in place of the variable."""
    monkeypatch.setenv("ENGINE", "VLLM")

    assert environment.load_settings().engine == "vllm"
    assert environment.load_settings(engine="cpu").engine == "cpu"


@pytest.mark.parametrize(
    ("name", "meant"), [("markdwn", "markdown"), ("docjason", "docjson"), ("html", None), ("zp", None)]
)
def test_a_similar_name_is_offered_only_where_one_is_close(name: str, meant: str | None) -> None:
    """A word of another meaning is not answered with a guess."""
    assert environment.find_similar(name, ["docjson", "markdown", "zip"]) == meant


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

    settings = environment.load_settings(window=400)

    assert (settings.concurrency, settings.worker_calls, settings.window) == (2, 30, 400)
    assert settings.page_workers == Settings.model_fields["page_workers"].default


def test_the_file_holds_what_a_variable_would_hold(folder: Path) -> None:
    """Numbers and booleans may be written as such or as text, names in any case, and empty text counts as not set."""
    (folder / CONFIG_FILE).write_text(
        'DEADLINE_S = "60"\n[model]\npreset = 24\ncanary = false\n'
        '[engine]\nengine = "OpenAI"\n[storage]\nbucket_name = ""\n'
    )

    settings = environment.load_settings()

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
    assert environment.load_settings() == Settings.model_construct()


def test_another_file_takes_the_place_of_the_one_in_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TWOPASS_CONFIG names it; empty, it counts as not set."""
    (folder / CONFIG_FILE).write_text("[worker]\nconcurrency = 2\nwindow = 8\n")
    (folder / "other.toml").write_text("[worker]\nconcurrency = 3\n")

    monkeypatch.setenv("TWOPASS_CONFIG", "other.toml")
    other = environment.load_settings()
    monkeypatch.setenv("TWOPASS_CONFIG", "")

    assert (other.concurrency, other.window) == (3, 0)
    assert environment.load_settings().concurrency == 2


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
        environment.load_settings()

    assert caught.value.message.startswith(f"{CONFIG_FILE}: {message}") and "\n" not in str(caught.value)


def test_a_file_that_is_named_must_exist(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt path is no silent default."""
    monkeypatch.setenv("TWOPASS_CONFIG", "missing.toml")

    with pytest.raises(
        InvalidSetting, match="missing.toml: cannot be read .no such file.; correct it, or TWOPASS_CONFIG"
    ):
        environment.load_settings()


def test_the_name_of_the_file_is_not_misspelt_itself() -> None:
    """TWOPASS_CONFG would otherwise have no effect."""
    assert environment.find_misspelt({"TWOPASS_CONFG": "a.toml"}) == (
        "TWOPASS_CONFG: unknown setting; did you mean TWOPASS_CONFIG?"
    )
    assert environment.find_misspelt({"TWOPASS_CONFIG": "a.toml"}) is None
