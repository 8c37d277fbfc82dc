"""The `twopass mcp` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from twopass.cli import options
from twopass.cli.exit_codes import Exit


def _parse_existing(value: str) -> Path:
    folder = options.parse_folder(value)
    if not folder.is_dir():
        raise typer.BadParameter(f"{folder}: no such folder.")
    return folder


def command(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(parser=_parse_existing, metavar="FOLDER...", help="Folders whose files may be read."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            parser=options.parse_folder,
            metavar="FOLDER",
            help="Keep what was read here for the next start; default: it is deleted at the end.",
        ),
    ] = None,
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
    config: options.Config = None,
) -> None:
    """Read documents for a language model, over the Model Context Protocol.

    A chat program or an agent starts it and speaks to it on standard input and output. The model reads files below the
    folders, and documents by address as jobs do. The log is on standard error.
    """
    from twopass.errors import TwopassError, advise_install
    from twopass.telemetry import logs

    settings = options.load_worker_settings(**options.choose_log(quiet, verbose))
    settings = options.log_only_warnings(settings)
    logs.set_up(settings)
    options.check_machine(settings)
    try:
        from twopass.mcp_server.server import serve
    except ModuleNotFoundError as error:
        typer.echo(f"twopass mcp needs {error.name}: {advise_install('mcp')}", err=True)
        raise typer.Exit(Exit.FAILED) from None

    try:
        serve(settings, folders or [], output)
    except TwopassError as error:
        options.fail(error)
