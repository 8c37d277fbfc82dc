"""The `twopass health` command."""

from __future__ import annotations

from typing import Annotated

import typer

from twopass.cli.exit_codes import Exit

TIMEOUT_S = 10.0
METRICS_TIMEOUT_S = 2.0  # of a worker on this machine
ADDRESS = "http://localhost:9400"  # of the images' health check


def command(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="Address of the worker's METRICS_PORT.")] = ADDRESS,
) -> None:
    """Ask a worker whether it can take jobs."""
    import httpx

    try:
        response = httpx.get(f"{address.rstrip('/')}/health", timeout=TIMEOUT_S, trust_env=False)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
        message = f"{address} is not an HTTP address; write it like {ADDRESS}"
        raise typer.BadParameter(message, param_hint="ADDRESS") from None
    except httpx.HTTPError as error:
        message = f"{address}: no worker answers ({type(error).__name__}); is METRICS_PORT set?"
        typer.echo(message, err=True)
        raise typer.Exit(Exit.FAILED) from None
    typer.echo(response.text.strip())
    raise typer.Exit(Exit.SUCCESS if response.status_code == 200 else Exit.FAILED)


def read_metrics(address: str) -> str | None:
    """The metrics of the worker at this address; None if none answers."""
    import httpx

    try:
        return httpx.get(f"{address}/metrics", timeout=METRICS_TIMEOUT_S, trust_env=False).text
    except httpx.HTTPError:
        return None
