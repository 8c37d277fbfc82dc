"""The `twopass submit` command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from twopass import locations
from twopass.cli import options


def command(
    places: Annotated[
        list[str] | None,
        typer.Argument(metavar="PLACES...", help=f"{options.PLACES_HELP}."),
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(metavar="ENDPOINT", help="Id or address of a RunPod endpoint; RUNPOD_API_KEY is its key."),
    ] = None,
    local: Annotated[
        str | None, typer.Option(metavar="URL", help="A worker's local API; the worker sees this machine's files.")
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="A Ray cluster: HOST:PORT of its head, auto, or local for this machine."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="For artefacts: s3://bucket/prefix/, or a folder with --local or --ray; default: the endpoint's.",
        ),
    ] = None,
    upload: Annotated[
        str | None,
        typer.Option(
            metavar="PREFIX",
            help="s3://bucket/prefix/ for files of this machine; without it, small files travel in the job, or, with "
            "--ray, all nodes see them.",
        ),
    ] = None,
    folder: Annotated[
        Path, typer.Option(parser=options.parse_folder, metavar="FOLDER", help="Folder for state and summary.")
    ] = Path("submitted"),
    save: Annotated[bool, typer.Option("--save", help="Fetch every document's artefacts into the folder.")] = False,
    job: Annotated[
        dict[str, Any] | None,
        typer.Option(parser=options.parse_json_object, metavar="JSON", help='More job fields: \'{"mode": "base"}\'.'),
    ] = None,
    slice_pages: Annotated[
        int, typer.Option(**options.number(), help="Pages of one job; 0: never slice or count.")
    ] = 100,
    in_flight: Annotated[
        int | None,
        typer.Option(
            **options.number(low=1, high=5000),
            help="Jobs at once; default: 16, with --ray CONCURRENCY for each worker.",
        ),
    ] = None,
    tries: Annotated[
        int, typer.Option(**options.number(low=1), help="Runs of a job in a row that store no new page.")
    ] = 4,
    max_runs: Annotated[
        int,
        typer.Option(**options.number(low=1), help="Runs of a document, or of each of its slices, whatever they read."),
    ] = 20,
    max_cost: Annotated[
        float | None,
        typer.Option(
            **options.number(float, metavar="DOLLARS"),
            help="Dollars of all runs with this folder; needs --price-per-hour.",
        ),
    ] = None,
    poll_s: Annotated[
        float,
        typer.Option(**options.number(float, metavar="SECONDS"), help="Seconds between two polls of a job."),
    ] = 2.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count pages, estimate minutes and dollars, send nothing.")
    ] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Cancel the jobs that an earlier run left at the endpoint.")
    ] = False,
    price_per_hour: Annotated[
        float | None, typer.Option(**options.number(float, metavar="DOLLARS"), help="Dollars an hour of one worker.")
    ] = None,
    pages_per_s: Annotated[
        float | None,
        typer.Option(
            **options.number(float),
            help="Pace of one worker, for --dry-run; default: the last summary's, else an H200's.",
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option(**options.number(low=1), help="Workers at once, for --ray and --dry-run.")
    ] = 1,
    min_workers: Annotated[
        int, typer.Option(**options.number(), help="Workers of --ray that do not end when they have no job.")
    ] = 0,
    actor: Annotated[
        dict[str, Any] | None,
        typer.Option(
            parser=options.parse_json_object,
            metavar="JSON",
            help='More options of Ray for each worker: \'{"num_cpus": 8, "accelerator_type": "H100"}\'.',
        ),
    ] = None,
    config: options.Config = None,
) -> None:
    """Read documents with the workers of an endpoint.

    Writes submit_summary.json. After Ctrl-C the same command continues where it stopped.
    """
    if not places and not cancel:
        raise typer.BadParameter("name at least one file, folder, prefix or @FILE", param_hint="PLACES")
    if len([place for place in (endpoint, local, ray) if place]) > 1:
        raise typer.BadParameter("name one of these, not several", param_hint="--endpoint / --local / --ray")
    if cancel and ray:
        message = "Ray's workers end with their command, so that nothing is left to cancel"
        raise typer.BadParameter(message, param_hint="--cancel")
    if local and not locations.is_web_address(local):
        message = f"{local} is not an HTTP address; write it like http://localhost:8000"
        raise typer.BadParameter(message, param_hint="--local")
    if not (endpoint or local or ray or (dry_run and not cancel)):
        message = "name an --endpoint, a --local URL or a --ray cluster, or estimate with --dry-run"
        raise typer.BadParameter(message, param_hint="--endpoint / --local / --ray")

    from rich.console import Console

    from twopass.cli import submission
    from twopass.fleet.endpoints.ray_cluster import RayOptions
    from twopass.fleet.submission import Submission
    from twopass.telemetry import logs

    settings = options.load_settings()
    request = Submission(
        folder=folder,
        endpoint=endpoint,
        local=local,
        ray=RayOptions(ray, min_workers, workers, actor or {}) if ray else None,
        api_key=os.environ.get("RUNPOD_API_KEY"),
        output=output,
        upload=upload,
        save=save,
        job=job or {},
        slice_pages=slice_pages,
        in_flight=in_flight or (workers * settings.concurrency if ray else Submission.in_flight),
        tries=tries,
        poll_s=poll_s,
        price_per_hour=price_per_hour,
        max_runs=max_runs,
        max_cost=max_cost,
    )
    asked = submission.Arguments(tuple(places or ()), request, dry_run, cancel, pages_per_s, workers)
    logs.set_up(settings)
    raise typer.Exit(submission.run(asked, settings, Console(stderr=True)))
