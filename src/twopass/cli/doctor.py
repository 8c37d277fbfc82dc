"""The `twopass doctor` command."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer

from twopass.cli import options
from twopass.cli.exit_codes import Exit


def command(
    commands: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="What is to run here: read, serve or handler; default: all of them."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON, one list of objects.")] = False,
    config: options.Config = None,
) -> None:
    """Check whether a worker could start with these settings on this machine.

    Checks settings, packages, GPU, weights, bucket, port, disk, limits and language files, and prints a line for each:
    ok, warning or failed, with what to do. `twopass doctor read` leaves out what only `twopass serve` and handler.py
    need. Nothing is started or downloaded; small objects are written to the bucket and deleted. `twopass health` asks
    a worker that runs.
    """
    from twopass.cli import doctor_checks
    from twopass.cli.doctor_checks import Outcome
    from twopass.storage import error_mapping

    known = ("read", *doctor_checks.COMMANDS)
    for name in commands or ():
        options.parse_choice(known)(name)
    error_mapping.silence_loggers()
    findings = []
    for finding in doctor_checks.run(commands or known):
        findings.append(finding)
        if not as_json:
            typer.echo(f"{finding.outcome:<8} {finding.check:<19} {finding.message}")
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(finding) for finding in findings], ensure_ascii=False, indent=1))
    has_failed = any(finding.outcome is Outcome.FAILED for finding in findings)
    raise typer.Exit(Exit.FAILED if has_failed else Exit.SUCCESS)
