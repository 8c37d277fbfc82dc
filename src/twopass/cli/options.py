"""Parse and check option values and the settings; a wrong one ends the command with exit code 2 and a message."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NoReturn

import typer

from twopass.errors import Code, InvalidSetting, TwopassError
from twopass.job import Format
from twopass.runtime import environment
from twopass.settings import Settings

USAGE_ERROR = 2  # exit code of a wrong argument or setting
FORMATS_HELP = f"Comma-separated: {', '.join(Format)}."


def parse_choice(choices: Collection[str]) -> Callable[[str], str]:
    """Make a parser that accepts only these values."""

    def parse(value: str) -> str:
        if value not in choices:
            raise typer.BadParameter(f"{value!r} is not one of {', '.join(choices)}.")
        return value

    return parse


def choice(choices: Collection[str]) -> dict[str, Any]:
    """Arguments of typer.Option for an option that accepts only these values."""
    return {"parser": parse_choice(choices), "metavar": f"[{'|'.join(choices)}]"}


def parse_formats(value: str) -> str:
    """Check a comma-separated list of formats; empty stands for none."""
    names = [name.strip() for name in value.split(",")] if value else []
    unknown = [name for name in names if name not in set(Format)]
    if unknown:
        meant = environment.find_similar(unknown[0].lower(), list(Format))
        question = f" Did you mean {meant}?" if meant else ""
        raise typer.BadParameter(f"{unknown[0]!r} is not one of {', '.join(Format)}.{question}")
    return ",".join(names)


def parse_folder(value: str | Path) -> Path:
    """Check that a folder of this machine is named, which need not exist yet."""
    if "://" in str(value):
        raise typer.BadParameter(f"{value} is a URI; name a folder of this machine.")
    folder = Path(value)
    if folder.exists() and not folder.is_dir():
        raise typer.BadParameter(f"{folder} is a file; name a folder.")
    return folder


def parse_output(value: str) -> str:
    """Check that the place is s3://bucket/prefix or a folder of this machine."""
    if "://" in value and not value.startswith("s3://"):
        raise typer.BadParameter(f"{value} cannot be written to; name a folder or s3://bucket/prefix.")
    return value if "://" in value else str(parse_folder(value))


def parse_json_object(value: str) -> dict[str, Any]:
    try:
        parsed = json.loads(value)
    except ValueError as error:
        raise typer.BadParameter(f"not JSON ({error}); write a JSON object in single quotes.") from None
    if not isinstance(parsed, dict):
        raise typer.BadParameter("must be a JSON object in single quotes, such as '{\"name\": 1}'.")
    return parsed


def load_settings(**fixed: Any) -> Settings:
    """Read the settings from the environment; `fixed` ones take precedence over it. No variable may be misspelt."""
    try:
        if misspelt := environment.find_misspelt():
            raise InvalidSetting(Code.INVALID_SETTING, misspelt)
        return environment.load_settings(**fixed)
    except InvalidSetting as error:
        fail(error)


def load_worker_settings(**fixed: Any) -> Settings:
    """Read the settings of a command that opens a worker, and check that they fit together."""
    from twopass import worker

    settings = load_settings(**fixed)
    try:
        worker.check_settings(settings)
    except InvalidSetting as error:
        fail(error)
    return settings


def fail(error: TwopassError) -> NoReturn:
    """Print the error and end the command: with exit code 2 for a wrong setting, else 1."""
    typer.echo(error, err=True)
    raise typer.Exit(USAGE_ERROR if isinstance(error, InvalidSetting) else 1) from None
