"""The `twopass serve` command."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from twopass.cli import options
from twopass.cli.exit_codes import Exit


def command(
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Address to listen on; default: SERVE_HOST, this machine only."),
    ] = None,
    port: Annotated[
        int | None, typer.Option(**options.number(high=65535, metavar="PORT"), help="Port; default: PORT.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(parser=options.parse_folder, metavar="FOLDER", help="Folder of jobs; default: SERVE_DIR."),
    ] = None,
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
    config: options.Config = None,
) -> None:
    """Read documents that are sent over HTTP, with a page for the browser.

    Other machines can connect with --host 0.0.0.0 and SERVE_API_KEY. SIGTERM and Ctrl-C end the server after the pages
    in flight.
    """
    from twopass.errors import TwopassError, advise_install
    from twopass.telemetry import logs

    chosen: dict[str, Any] = {"serve_host": host, "port": port, "serve_dir": folder}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    settings = options.load_worker_settings(**chosen, **options.choose_log(quiet, verbose))
    is_for_person = sys.stderr.isatty() and not settings.writes_json_logs
    if is_for_person:
        settings = options.log_only_warnings(settings)
    logs.set_up(settings)
    options.check_machine(settings)
    try:
        from twopass.server.app import serve
    except ModuleNotFoundError as error:
        typer.echo(f"twopass serve needs {error.name}: {advise_install('serve')}", err=True)
        raise typer.Exit(Exit.FAILED) from None

    try:
        # Programs read the same in the log.
        serve(settings, partial(typer.echo, err=True) if is_for_person and not quiet else lambda line: None)
    except TwopassError as error:
        options.fail(error)
