"""The `twopass accept` command."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twopass.cli import options
from twopass.cli.exit_codes import Exit

if TYPE_CHECKING:
    from twopass.acceptance.checks import Check


def command(
    model_dir: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, metavar="FOLDER", help="Folder of the weights; default: MODEL_DIR."),
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, metavar="FOLDER", help="Recorded answers; default: those shipped."),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(parser=options.parse_folder, metavar="FOLDER", help="Keep the answers to this run's pictures."),
    ] = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="Then compare settings on drawn documents; prints which to set.")
    ] = False,
    rates: Annotated[
        bool, typer.Option("--rates", help="Then count loops, second readings, and text that could be predicted.")
    ] = False,
    files: Annotated[
        Path | None,
        typer.Option(
            exists=True, file_okay=False, metavar="FOLDER", help="PDFs and images that --tune and --rates read, too."
        ),
    ] = None,
    artefacts: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, metavar="FOLDER", help="With --rates: count in these artefacts."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", dir_okay=False, metavar="FILE", help="Also write the checks as JSON.")
    ] = None,
    config: options.Config = None,
) -> None:
    """Check that this machine reads with these weights as the official model does.

    Compares files, tokenizer, image input, embeddings, greedy answers and recorded answers, stops at the first stage
    that fails, and prints a table. Takes an estimated ten minutes on a GPU of 24 GB. docs/acceptance.md explains each
    check.

    If nothing failed, --tune and --rates read more documents: each setting that is compared takes one start of the
    worker and one reading of all documents. The time is announced before.
    """
    from twopass.errors import TwopassError
    from twopass.telemetry import logs

    if json_file and not json_file.parent.is_dir():
        raise typer.BadParameter(f"the folder {json_file.parent} does not exist; create it", param_hint="--json")
    if (files and not (tune or rates)) or (artefacts and not rates):
        option, needed = ("--artefacts", "--rates") if artefacts and not rates else ("--files", "--tune or --rates")
        raise typer.BadParameter(f"has no effect without {needed}; add it.", param_hint=option)
    overrides: dict[str, Any] = {"model_dir": model_dir} if model_dir else {}
    if "engine" not in options.load_settings().model_fields_set:
        overrides["engine"] = "vllm"
    settings = options.load_worker_settings(**overrides)
    logs.set_up(settings)
    from twopass.acceptance import checks
    from twopass.acceptance.records import SHIPPED, load
    from twopass.acceptance.run import Plan, run

    started, done = time.monotonic(), list[Any]()

    def report(stage: Sequence[Check]) -> None:
        done.extend(stage)
        typer.echo(checks.format_table(stage))

    try:
        plan = Plan(
            settings, report, records=load(records or SHIPPED), recording=record, tune=tune, rates=rates, files=files,
            artefacts=artefacts, announce=typer.echo,
        )  # fmt: skip
        if record and plan.reads_regions:
            message = f"{plan.family} reads single regions, and only answers about pages are recorded; leave it out."
            raise typer.BadParameter(message, param_hint="--record")
        run(plan)
    except TwopassError as error:
        options.fail(error)
    finally:
        seconds = round(time.monotonic() - started)
        if json_file:
            written = {"seconds": seconds, "checks": [dataclasses.asdict(check) for check in done]}
            json_file.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n")
    has_passed = checks.has_passed(done)
    nothing = "" if has_passed or checks.has_failed(done) else ": nothing was compared"
    outcome = f"{'passed' if has_passed else 'failed'}{nothing}"
    typer.echo(f"{outcome}, after {seconds} s, {checks.count_outcomes(done)}")
    raise typer.Exit(Exit.SUCCESS if has_passed else Exit.FAILED)
