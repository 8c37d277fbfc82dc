"""The `twopass serve` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from twopass.cli import options


def command(
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; default: SERVE_HOST, this machine only.")
    ] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port; default: PORT.")] = None,
    folder: Annotated[
        Path | None,
        typer.Option(parser=options.parse_folder, metavar="FOLDER", help="Folder of jobs; default: SERVE_DIR."),
    ] = None,
) -> None:
    """Read documents that are sent over HTTP, with a page for the browser.

    Other machines can connect with --host 0.0.0.0 and SERVE_API_KEY. SIGTERM and Ctrl-C end the server after the pages
    in flight.

    Exit code: 0 stopped by a signal, 1 the engine did not start or the folder cannot be used, 2 a wrong argument or
    setting.
    """
    from twopass.errors import TwopassError, advise_install
    from twopass.telemetry import logs

    chosen: dict[str, Any] = {"serve_host": host, "port": port, "serve_dir": folder}
    settings = options.load_worker_settings(**{name: value for name, value in chosen.items() if value is not None})
    logs.set_up(settings)
    try:
        from twopass.server.serve import serve
    except ModuleNotFoundError as error:
        typer.echo(f"twopass serve needs {error.name}: {advise_install('serve')}", err=True)
        raise typer.Exit(1) from None

    try:
        serve(settings)
    except TwopassError as error:
        options.fail(error)
