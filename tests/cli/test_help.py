"""Every command explains itself at once, without loading what it runs on, and says what is wrong with its arguments."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from twopass.cli import exit_codes
from twopass.cli.app import COMMANDS, app
from twopass.version import VERSION

HEAVY = {"torch", "vllm", "boto3", "pymupdf", "runpod"}
# Runs the command, then prints the working directory and every loaded package on the last line.
PRINT_LOADED = """
import os, sys
from twopass.cli.app import app
try:
    app(sys.argv[1:], prog_name="twopass")
except SystemExit as exit:
    code = exit.code
loaded = {name.partition(".")[0] for name in sys.modules}
print(os.getcwd(), *sorted(loaded))
sys.exit(code)
"""
ALL = [[], *([name] for name in COMMANDS)]


def get_command(name: str) -> Any:
    return typer.main.get_command(app).get_command(None, name)  # type: ignore[attr-defined]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, prog_name="twopass")


@pytest.mark.parametrize("command", ALL, ids=lambda words: " ".join(["twopass", *words]))
def test_help_needs_nothing_heavy_and_changes_nothing(command: list[str], tmp_path: Path) -> None:
    """--help exits with 0, loads no engine, GPU or S3 library, and leaves the working directory as it is."""
    ran = subprocess.run(
        [sys.executable, "-c", PRINT_LOADED, *command, "--help"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    *text, last = ran.stdout.splitlines()
    folder, *loaded = last.split()
    assert ran.returncode == 0, ran.stderr
    assert text[0].startswith(" ".join(["Usage: twopass", *command]))
    assert "typer" in loaded and not HEAVY & set(loaded)
    assert Path(folder) == tmp_path and not list(tmp_path.iterdir())


def test_the_list_of_commands_loads_none_of_them() -> None:
    """`twopass --help` imports typer and no module of the package but its own."""
    ran = subprocess.run([sys.executable, "-c", PRINT_LOADED, "--help"], capture_output=True, text=True, timeout=60)

    loaded = set(ran.stdout.splitlines()[-1].split())
    assert not {"pydantic", "rich", "numpy", "structlog"} & loaded
    assert all(name in ran.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_and_the_help_of_a_command_agree(name: str) -> None:
    """A command's line in the list is the first line of its docstring, and each of its parameters has a help text."""
    command = importlib.import_module(f"twopass.cli.{name.replace('-', '_')}").command

    assert inspect.getdoc(command).splitlines()[0] == COMMANDS[name]  # type: ignore[union-attr]
    assert all(parameter.help for parameter in get_command(name).params)


INTERNALS = re.compile(r"\b(TEXT|INTEGER|FLOAT|BOOLEAN|PATH|FILENAME|RANGE|DIRECTORY)\b|x[<>]=|<=x|\.\.\.\.|\{|<")


@pytest.mark.parametrize("command", ALL, ids=lambda words: " ".join(["twopass", *words]))
def test_help_has_no_words_of_the_framework(command: list[str]) -> None:
    """Values are called what they are, such as NUMBER or FOLDER, and not by the types of the command line's library."""
    text = re.sub(r"'\{.*?\}'", "", run(*command, "--help").stdout, flags=re.S)  # JSON that may be copied

    assert not INTERNALS.search(text)


@pytest.mark.parametrize("command", ALL, ids=lambda words: " ".join(["twopass", *words]))
def test_h_is_help(command: list[str]) -> None:
    """As with other commands of a shell."""
    assert run(*command, "-h").stdout == run(*command, "--help").stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_the_exit_codes_of_the_table(name: str) -> None:
    """Each command's codes are at the end of its help."""
    assert " ".join(run(name, "--help").stdout.split()).endswith(exit_codes.describe(name))


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("twopass re", ["read", "reparse"]),
        ("twopass read --pre", ["--preset"]),
        ("twopass read --preset rtx", ["rtx4060", "rtx4090", "rtx5090"]),
        ("twopass read --formats docjson,ma", ["docjson,markdown"]),
        ("twopass read --log-format t", ["text"]),
    ],
)
def test_a_shell_completes_commands_options_and_values(words: str, completed: list[str]) -> None:
    """What `twopass --show-completion` prints asks the command in this way."""
    variables = {"_TWOPASS_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}

    ran = CliRunner().invoke(app, [], prog_name="twopass", env=variables)

    assert ran.stdout.split() == completed


def test_the_package_runs_as_a_module() -> None:
    """`python -m twopass.cli` is the same command."""
    ran = subprocess.run([sys.executable, "-m", "twopass.cli", "--help"], capture_output=True, text=True, timeout=60)

    assert ran.returncode == 0
    assert ran.stdout.split() == run("--help").stdout.split()


def test_the_version_is_printed() -> None:
    assert run("--version").stdout == f"twopass {VERSION}\n"


WRONG = {
    "unknown": ["No such command 'unknown'", "--help"],
    "raed file.pdf": ["No such command 'raed'", "Did you mean read?"],
    "read": ["PLACES"],
    "read missing.pdf": ["SOURCE_NOT_FOUND", "missing.pdf"],
    "read . --preset 25": ["--preset", "cpu, auto, 8, 16, 24"],
    "read . --log-format xml": ["--log-format", "json, text, quiet"],
    "read . --formats docx": ["--formats", "docjson, markdown, html"],
    "read . --formats docjson,markdwn": ["--formats", "'markdwn'", "Did you mean markdown?"],
    "read . --output https://bucket/": ["--output", "name a folder or s3://"],
    "read . --output file.pdf": ["--output", "name a folder"],
    "read file.pdf --pages x": ["pages", "1-5,8,11-"],
    "submit": ["PLACES", "at least one file"],
    "submit a.pdf": ["--endpoint", "--local", "--dry-run"],
    "submit --cancel --dry-run": ["--endpoint", "--local"],
    "submit a.pdf --endpoint x --local http://localhost:8000": ["--endpoint / --local / --ray", "not several"],
    "submit a.pdf --endpoint x --ray local": ["--endpoint / --local / --ray", "not several"],
    "submit a.pdf --ray ray://head:10001 --output out": ["INVALID_SETTING: --ray", "HOST:PORT", "auto", "local"],
    "submit a.pdf --ray local": ["OUTPUT_MISSING: --output", "s3://bucket/prefix/"],
    "submit a.pdf --ray local --output out --min-workers 2": ["INVALID_SETTING: --min-workers", "--workers 1"],
    'submit a.pdf --ray local --output out --actor {"colour":1}': ["INVALID_SETTING: --actor: colour", "num_cpus"],
    'submit a.pdf --ray local --output out --actor {"scheduling_strategy":1}': [
        "--actor: scheduling_strategy",
        "SPREAD",
    ],
    "submit --cancel --ray local": ["--cancel", "nothing is left to cancel"],
    "submit a.pdf --local localhost:8000": ["--local", "http://localhost:8000"],
    "submit a.pdf --endpoint x --job {": ["--job", "JSON object"],
    "submit a.pdf --endpoint x --job []": ["--job", "JSON object"],
    "submit a.pdf --endpoint x --in-flight 5001": ["--in-flight", "'5001' is not a whole number from 1 to 5000"],
    "submit a.pdf --endpoint x --tries 1.5": ["--tries", "'1.5' is not a whole number from 1 on"],
    "submit a.pdf --endpoint x --poll-s nan": ["--poll-s", "'nan' is not a number from 0 on"],
    "serve --port http": ["--port", "'http' is not a whole number from 0 to 65535"],
    "read file.pdf -q -v": ["--quiet / --verbose / --log-format", "one of these"],
    "read file.pdf -q --log-format json": ["--quiet / --verbose / --log-format", "one of these"],
    "read file.pdf --json --stdout markdown": ["--json / --stdout", "one of them"],
    "read . --stdout docx": ["--stdout", "docjson, markdown, html"],
    "read . --stdout zip": ["--stdout", "'zip' is not one of docjson, markdown"],
    "read file.pdf --config missing.toml": ["--config", "missing.toml: no such file"],
    "read @missing.txt": ["SOURCE_NOT_FOUND: @missing.txt"],
    "submit a.pdf --endpoint x --folder file.pdf": ["--folder", "name a folder"],
    "reparse": ["FOLDER"],
    "reparse out/a --formats docx": ["--formats", "docjson, markdown, html"],
    "reparse out/a --reread": ["--reread / --output", "both"],
    "reparse out/a --output newer": ["--reread / --output", "both"],
    "reparse out/a --chunks 256": ["--chunks", "JSON object"],
    "parse-answer missing.txt": ["FILE", "missing.txt"],
    "parse-answer - --family gpt": ["--family", "deepseek_ocr, deepseek_ocr2"],
    "download-weights gpt models": ["MODEL", "deepseek_ocr, deepseek_ocr2"],
    "accept --files .": ["--files", "--tune or --rates"],
    "accept --artefacts .": ["--artefacts", "--rates"],
    "accept --rates --artefacts missing": ["--artefacts", "missing"],
    "health localhost:9400": ["ADDRESS", "http://localhost:9400"],
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_argument_is_named_with_what_to_write(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code is 2, and the message names the option and the values it takes or what to do."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.pdf").touch()

    ran = run(*line.split())

    assert ran.exit_code == 2
    assert not [words for words in WRONG[line] if words not in ran.stderr]


@pytest.mark.parametrize("line", ["read .", "submit a.pdf --dry-run", "reparse out/a", "warm-up"])
def test_a_wrong_setting_is_named_without_its_value(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment variable that does not fit is named on stderr; its value, which may be secret, is not shown."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONCURRENCY", "plenty")
    (tmp_path / "file.pdf").touch()

    ran = run(*line.split())

    assert ran.exit_code == 2
    assert ran.stderr.startswith("INVALID_SETTING: CONCURRENCY: ") and "plenty" not in ran.stderr
    assert ran.stderr.count("\n") == 1
