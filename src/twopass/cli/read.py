"""The `twopass read` command."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from twopass.cli import options
from twopass.settings import GPU_NAMES, PRESETS, LogFormat

GPU_PRESETS = ("auto", *(name for name in (*PRESETS, *GPU_NAMES) if name != "cpu"))
SETTINGS: dict[str | None, dict[str, Any]] = {  # --preset -> settings
    None: {},  # ENGINE and PRESET of the environment
    "cpu": {"engine": "cpu"},
    **{name: {"engine": "vllm", "preset": name} for name in GPU_PRESETS},
}
PRESET_CHOICES = tuple(name for name in SETTINGS if name)


def command(
    places: Annotated[
        list[str],
        typer.Argument(help="Files, folders, s3://bucket/prefix/, URIs of documents, @FILE with one of these a line."),
    ],
    output: Annotated[
        str,
        typer.Option(
            parser=options.parse_output, metavar="PLACE", help="For artefacts: a folder or s3://bucket/prefix/."
        ),
    ] = "output",
    preset: Annotated[
        str | None,
        typer.Option(**options.choice(PRESET_CHOICES), help="cpu, or vllm by GB of GPU memory; default: ENGINE."),
    ] = None,
    formats: Annotated[
        str, typer.Option(parser=options.parse_formats, metavar="LIST", help=options.FORMATS_HELP)
    ] = "docjson,markdown",
    pages: Annotated[str | None, typer.Option(help='Pages to read, such as "1-5,8,11-"; default: all.')] = None,
    password: Annotated[str | None, typer.Option(help="Password of encrypted PDFs.")] = None,
    no_resume: Annotated[bool, typer.Option("--no-resume", help="Read everything again, into new folders.")] = False,
    log_format: Annotated[
        str | None,
        typer.Option(
            **options.choice(tuple(LogFormat)),
            help="One object per line, text for people, or only errors and the summary; default: LOG_FORMAT.",
        ),
    ] = None,
) -> None:
    """Read documents in this process, or in several that share an output.

    Writes every document's artefacts and batch_summary.json to the output. After Ctrl-C the same command continues
    where it stopped; a second Ctrl-C ends it at once.

    Exit code: 0 every document was read, 1 at least one failed or has unread pages, or the engine did not start,
    2 nothing to read or a wrong argument, 130 stopped.
    """
    import asyncio

    from twopass.cli import batch, batch_files
    from twopass.cli.display import reporters
    from twopass.errors import TwopassError
    from twopass.fleet.discovery import SUFFIXES
    from twopass.telemetry import logs

    fixed = {"log_format": log_format} if log_format else {}
    settings = options.load_worker_settings(**SETTINGS[preset], **fixed)
    logs.set_up(settings)
    batch_options = batch.Options(output, tuple(filter(None, formats.split(","))), pages, password, not no_resume)
    try:  # before an engine is opened, which may take a minute
        files = asyncio.run(batch_files.find(places, output, settings))
        if not files:
            suffixes = ", ".join(sorted(SUFFIXES))
            searched = ", ".join(places)
            typer.echo(f"nothing to read below {searched}: no {suffixes} outside the output {output}", err=True)
            raise typer.Exit(options.USAGE_ERROR)
        batch_options.check(settings)
        batch.check_output(output, settings)
        batch_files.check_pages(files, pages, password, settings)
    except TwopassError as error:
        typer.echo(error, err=True)
        raise typer.Exit(options.USAGE_ERROR) from None
    raise typer.Exit(batch.run(files, batch_options, settings, reporters.create_reporter(settings)))
