"""The options that commands share, and checks of values and settings: a wrong one ends the command with a message."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from twopass import locations
from twopass import settings as worker_settings
from twopass.cli.exit_codes import Exit
from twopass.errors import Code, InvalidJob, InvalidSetting, TwopassError
from twopass.format_options import Furniture as FurnitureChoice
from twopass.format_options import HiddenText as HiddenTextChoice
from twopass.job import Format
from twopass.settings import CONFIG_FILE, CONFIG_VARIABLE, LogFormat, Settings, find_misspelt, find_similar

PLACES_HELP = "Files, folders, s3://bucket/prefix/, URIs of documents, @FILE with one of these a line"


def parse_choice(choices: Collection[str]) -> Callable[[str], str]:
    """Make a parser that accepts only these values."""

    def parse(value: str) -> str:
        if value not in choices:
            raise typer.BadParameter(f"{value!r} is not one of {', '.join(choices)}.")
        return value

    return parse


def choice(choices: Collection[str]) -> dict[str, Any]:
    """Arguments of typer.Option for an option that accepts only these values."""
    metavar = f"[{'|'.join(choices)}]"
    return {"parser": parse_choice(choices), "metavar": metavar, "autocompletion": complete(choices)}


def complete(choices: Collection[str], separator: str = "") -> Callable[[str], list[str]]:
    """Make a function that completes a value, or with a separator the last one of a list."""

    def suggest(incomplete: str) -> list[str]:
        head, mark, last = incomplete.rpartition(separator) if separator else ("", "", incomplete)
        return [f"{head}{mark}{value}" for value in choices if value.startswith(last)]

    return suggest


def number(
    kind: Callable[[str], float] = int, *, low: float = 0, high: float | None = None, metavar: str = "NUMBER"
) -> dict[str, Any]:
    """Arguments of typer.Option for a number from `low` to `high`."""
    limits = f"from {low} on" if high is None else f"from {low} to {high}"

    def parse(value: str) -> float:
        try:
            parsed = kind(value)
        except ValueError:
            parsed = None
        if parsed is None or not math.isfinite(parsed) or not low <= parsed <= (parsed if high is None else high):
            raise typer.BadParameter(f"{value!r} is not a{' whole' if kind is int else ''} number {limits}.")
        return parsed

    return {"parser": parse, "metavar": metavar}


def _use_config(value: Path | None) -> Path | None:
    """Name the file in the environment, where the settings are looked for, also by child processes."""
    if value is not None:
        if not value.is_file():
            raise typer.BadParameter(f"{value}: no such file.")
        os.environ[CONFIG_VARIABLE] = str(value)
    return value


# The options of all commands that read settings. The first one has no other use than its callback.
Config = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", callback=_use_config, help=f"Settings; default: {CONFIG_FILE}, if it exists."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors and the summary.")]
Verbose = Annotated[
    int,
    typer.Option("--verbose", "-v", count=True, metavar="", show_default=False, help="Log more; -vv logs everything."),
]
Furniture = Annotated[
    str | None,
    typer.Option(
        "--furniture",
        **choice(tuple(FurnitureChoice)),
        help="Headers, footers and page numbers in Markdown, HTML and chunks: leave out what three pages repeat, keep "
        "all, or omit all that is labelled; default: FURNITURE, or auto.",
    ),
]
HiddenText = Annotated[
    str | None,
    typer.Option(
        "--hidden-text",
        **choice(tuple(HiddenTextChoice)),
        help="Text that nobody can see on the page, in all formats but DocJSON and the review page: leave it out, mark "
        "it, or keep it like other text; default: as an existing document has it, else omit.",
    ),
]
Password = Annotated[str | None, typer.Option("--password", metavar="PASSWORD", help="Password of encrypted PDFs.")]


def _parse_formats(value: str) -> str:
    """Check a comma-separated list of formats; empty stands for none."""
    names = [name.strip() for name in value.split(",")] if value else []
    unknown = [name for name in names if name not in set(Format)]
    if unknown:
        meant = find_similar(unknown[0].lower(), list(Format))
        question = f" Did you mean {meant}?" if meant else ""
        raise typer.BadParameter(f"{unknown[0]!r} is not one of {', '.join(Format)}.{question}")
    return ",".join(names)


Formats = Annotated[
    str,
    typer.Option(
        "--formats",
        parser=_parse_formats,
        metavar="LIST",
        autocompletion=complete(tuple(Format), ","),
        help=f"Comma-separated: {', '.join(Format)}.",
    ),
]


def parse_folder(value: str | Path) -> Path:
    """Check that a folder of this machine is named, which need not exist yet."""
    if locations.is_uri(str(value)):
        raise typer.BadParameter(f"{value} is a URI; name a folder of this machine.")
    folder = Path(value)
    if folder.exists() and not folder.is_dir():
        raise typer.BadParameter(f"{folder} is a file; name a folder.")
    return folder


def parse_output(value: str) -> str:
    """Check that the place is s3://bucket/prefix or a folder of this machine."""
    if locations.is_uri(value) and locations.find_scheme(value) not in locations.OUTPUTS:
        raise typer.BadParameter(f"{value} cannot be written to; name a folder or s3://bucket/prefix.")
    return locations.normalize(value) if locations.is_uri(value) else str(parse_folder(value))


def parse_json_object(value: str) -> dict[str, Any]:
    try:
        parsed = json.loads(value)
    except ValueError as error:
        raise typer.BadParameter(f"not JSON ({error}); write a JSON object in single quotes.") from None
    if not isinstance(parsed, dict):
        raise typer.BadParameter("must be a JSON object in single quotes, such as '{\"name\": 1}'.")
    return parsed


def load_settings(**fixed: Any) -> Settings:
    """Read environment and twopass.toml; `fixed` settings take precedence over both. No name may be misspelt."""
    try:
        if misspelt := find_misspelt():
            raise InvalidSetting(Code.INVALID_SETTING, misspelt)
        return worker_settings.load_settings(**fixed)
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


def choose_log(quiet: bool, verbose: int, log_format: str | None = None) -> dict[str, Any]:
    """The settings that -q, -v and --log-format stand for."""
    if quiet and (verbose or log_format):
        raise typer.BadParameter("use one of these", param_hint="--quiet / --verbose / --log-format")
    fixed: dict[str, Any] = {"log_format": LogFormat.QUIET if quiet else log_format} if quiet or log_format else {}
    return {**fixed, "log_level": "INFO" if verbose == 1 else "DEBUG"} if verbose else fixed


def log_only_errors(settings: Settings) -> Settings:
    """The settings of a run whose console is for a person: what the log warns of is in the documents' lines, too."""
    return _limit_log(settings, "ERROR")


def log_only_warnings(settings: Settings) -> Settings:
    """The settings of a server whose terminal is for a person."""
    return _limit_log(settings, "WARNING")


def _limit_log(settings: Settings, level: str) -> Settings:
    """Log from this level on, unless another was chosen."""
    is_chosen = settings.writes_json_logs or "log_level" in settings.model_fields_set
    return settings if is_chosen else settings.model_copy(update={"log_level": level})


def check_machine(settings: Settings) -> None:
    """End the command if this machine cannot run the engine, before anything is looked for or written."""
    from twopass.engines import preflight

    try:
        preflight.check_platform(sys.platform)
        preflight.check_engine(settings)
    except TwopassError as error:
        fail(error)


def fail(error: TwopassError) -> NoReturn:
    """Print the error and end the command, as one that was called wrongly or one that failed."""
    typer.echo(error, err=True)
    raise typer.Exit(Exit.USAGE if isinstance(error, InvalidSetting | InvalidJob) else Exit.FAILED) from None
