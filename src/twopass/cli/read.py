"""The `twopass read` command."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from twopass.cli import options
from twopass.cli.exit_codes import Exit
from twopass.job import Format
from twopass.models import PRESET_NAMES
from twopass.settings import LogFormat

_GPU_PRESETS = ("auto", *(name for name in PRESET_NAMES if name != "cpu"))
SETTINGS: dict[str | None, dict[str, Any]] = {  # --preset -> settings
    None: {},  # ENGINE and PRESET of the environment
    "cpu": {"engine": "cpu"},
    **{name: {"engine": "vllm", "preset": name} for name in _GPU_PRESETS},
}
_PRESET_CHOICES = tuple(name for name in SETTINGS if name)
_TEXT_FORMATS = tuple(name for name in Format if name is not Format.ZIP)


def command(
    places: Annotated[
        list[str], typer.Argument(metavar="PLACES...", help=f"{options.PLACES_HELP}, or - for a document on stdin.")
    ],
    output: Annotated[
        str | None,
        typer.Option(
            parser=options.parse_output,
            metavar="PLACE",
            help="For artefacts: a folder or s3://bucket/prefix/; default: OUTPUT_DIR.",
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(**options.choice(_PRESET_CHOICES), help="cpu, or vllm by GB of GPU memory; default: ENGINE."),
    ] = None,
    formats: options.Formats = "docjson,markdown",
    pages: Annotated[
        str | None, typer.Option(metavar="RANGES", help='Pages to read, such as "1-5,8,11-"; default: all.')
    ] = None,
    furniture: options.Furniture = None,
    hidden_text: options.HiddenText = None,
    password: options.Password = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="A document with a loss or a failed page counts as failed.")
    ] = False,
    no_resume: Annotated[bool, typer.Option("--no-resume", help="Read everything again, into new folders.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object for each document; all else goes to stderr.")
    ] = False,
    stdout: Annotated[
        str | None,
        typer.Option(
            **options.choice(_TEXT_FORMATS),
            help="Print this format of the only document, and nothing else. Files are written only with --output.",
        ),
    ] = None,
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
    log_format: Annotated[
        str | None,
        typer.Option(
            **options.choice(tuple(LogFormat)),
            help="One object per line, text for people, or only errors and the summary; default: LOG_FORMAT.",
        ),
    ] = None,
    config: options.Config = None,
) -> None:
    """Read documents in this process, or in several that share an output.

    Writes every document's artefacts and batch_summary.json to the output. After Ctrl-C the same command continues
    where it stopped; a second Ctrl-C ends it at once.
    """
    import asyncio
    from contextlib import ExitStack

    from twopass.cli import batch, reporters
    from twopass.errors import TwopassError
    from twopass.fleet.discovery import describe_skipped
    from twopass.pages.file_types import IN_FOLDERS
    from twopass.telemetry import logs

    if as_json and stdout:
        raise typer.BadParameter("use one of them: both are printed to stdout", param_hint="--json / --stdout")
    chosen = options.choose_log(quiet, verbose, log_format)
    settings = options.log_only_errors(options.load_worker_settings(**SETTINGS[preset], **chosen))
    logs.set_up(settings)
    options.check_machine(settings)
    written = [] if stdout and not output else formats.split(",")
    asked = batch.Arguments(
        output=output or (None if stdout else str(settings.output_dir)),
        formats=tuple(dict.fromkeys(filter(None, [*written, stdout]))),  # each once
        pages=pages,
        furniture=furniture,
        hidden_text=hidden_text,
        password=password,
        resume=not no_resume,
        strict=strict,
        prints=Format(stdout) if stdout else None,
    )
    with ExitStack() as stack:
        try:  # before an engine is opened, which may take a minute
            asked.check(settings)
            stdin = stack.enter_context(batch.keep_stdin(places, settings))
            files, skipped = asyncio.run(batch.find_files(places, asked.output, settings, stdin))
            if not files:
                suffixes, searched = ", ".join(sorted(IN_FOLDERS)), ", ".join(places)
                outside = f" outside the output {asked.output}" if asked.output else ""
                typer.echo(f"nothing to read below {searched}: no {suffixes}{outside}", err=True)
                if skipped:
                    typer.echo(describe_skipped(skipped), err=True)
                raise typer.Exit(Exit.USAGE)
            if stdout and len(files) > 1:
                message = f"{len(files)} documents were found, and one can be printed; name one, or use --json"
                raise typer.BadParameter(message, param_hint="--stdout")
            asyncio.run(batch.check_files(files, asked, settings))
        except TwopassError as error:
            typer.echo(error, err=True)
            raise typer.Exit(Exit.USAGE) from None
        keeps_stdout = as_json or stdout is not None
        printed = stack.enter_context(reporters.reserve_stdout()) if keeps_stdout else None
        reporter = reporters.create_reporter(settings, keeps_stdout)
        found = batch.Batch(files, asked, reporter, stdout=printed, as_json=as_json, skipped=skipped)
        raise typer.Exit(batch.run(found, settings))
