"""Try a deployed endpoint of RunPod once: its health, ten jobs, figures, cost, and that nothing is left behind.

python -m scripts.try_endpoint ENDPOINT_ID --output s3://bucket/prefix/ --price-per-hour 1.1

The sources travel inside the jobs, and each has a mark of this run: no earlier run can have read them, and what this
run wrote can be deleted.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from scripts.endpoint_trial import figures, jobs, judging, removal
from scripts.endpoint_trial.endpoint import TrialEndpoint
from scripts.endpoint_trial.jobs import TrialJob
from scripts.endpoint_trial.runner import JobRunner, Trial, describe_counts
from twopass import locations
from twopass.acceptance import checks
from twopass.acceptance.checks import Check, judge, skip
from twopass.cli import options
from twopass.cli.app import PLAIN
from twopass.cli.exit_codes import Exit
from twopass.errors import Code, EndpointError
from twopass.fleet.submission import GRACE_S
from twopass.settings import Settings

HEALTH = "1"  # the first stage; the others belong to their modules
TITLES = {HEALTH: "health", judging.STAGE: "jobs", figures.STAGE: "figures", removal.STAGE: "nothing left behind"}


@dataclass(frozen=True)
class Plan:
    """The command's arguments; `--help` describes each. `output` belongs to this run alone."""

    endpoint: str
    key: str = field(repr=False)
    output: str | None
    dollars_per_s: float | None
    wait_s: float
    poll_s: float


async def try_endpoint(plan: Plan, settings: Settings, found: list[Check]) -> Sequence[Trial]:
    """Run all stages and append their checks to `found`, those of the last stage also when this is cancelled."""
    ttl_s = 2 * plan.wait_s + GRACE_S  # it ends also a job whose id was lost with a connection
    async with TrialEndpoint(plan.endpoint, plan.key, plan.wait_s + GRACE_S, ttl_s) as endpoint:
        found.append(await check_health(endpoint))
        if checks.has_failed(found):
            return ()
        runner = JobRunner(endpoint, plan.output, plan.wait_s, plan.poll_s)
        try:
            found.extend(await run_jobs(runner, jobs.build(secrets.token_hex(4))))
            found.extend(figures.describe(runner.trials, plan.dollars_per_s))
        finally:
            found.append(await removal.end_jobs(runner, endpoint.url))
            found.append(await removal.delete_artefacts(plan.output, runner.trials, settings))
    return runner.trials


async def check_health(endpoint: TrialEndpoint) -> Check:
    name = "workers and jobs"
    try:
        health = await endpoint.check_health()
    except EndpointError as error:
        return judge(HEALTH, name, False, "no answer to use", "", str(error))
    value = f"{describe_counts(health.workers) or 'no workers yet'}; {health.jobs.get('inQueue', 0)} jobs wait"
    advice = "if throttled, allow more GPU types or regions; if unhealthy, see a worker's log"
    meaning = f"{Code.ENDPOINT_UNAVAILABLE}: no worker can start; {advice}"
    return judge(HEALTH, name, not health.is_blocked, value, "", meaning)


async def run_jobs(runner: JobRunner, jobs: Sequence[TrialJob]) -> list[Check]:
    """The first job alone, because it waits for a worker; the last one after those that it repeats."""
    first, *others, again = jobs
    found = judging.judge_trial(await runner.run(first))
    if checks.has_failed(found):
        return [*found, skip(judging.STAGE, "other jobs", "not sent, because the first one failed")]
    trials = await asyncio.gather(*map(runner.run, others))
    found += [check for trial in trials for check in judging.judge_trial(trial)]
    original = next(trial for trial in trials if trial.job.fields == again.fields)
    repeated = await runner.run(again)
    return [*found, *judging.judge_trial(repeated), judging.judge_repetition(original, repeated)]


def to_report(plan: Plan, found: Sequence[Check], trials: Sequence[Trial]) -> dict[str, Any]:
    """What --json writes."""
    return {
        "endpoint": plan.endpoint,
        "passed": not checks.has_failed(found),
        "checks": [asdict(check) for check in found],
        "figures": figures.measure(trials, plan.dollars_per_s),
        "jobs": [_to_row(trial) for trial in trials],
    }


def _to_row(trial: Trial) -> dict[str, Any]:
    return {
        "name": trial.job.name,
        "id": trial.id,
        "error": trial.status.error,
        "pages": trial.pages,
        "delay_s": trial.status.queued_s,
        "execution_s": trial.status.seconds,
    }


def command(
    endpoint: Annotated[str, typer.Argument(help="Id or address of a RunPod endpoint; RUNPOD_API_KEY is its key.")],
    output: Annotated[
        str | None, typer.Option(help="s3://bucket/prefix/ for artefacts, deleted at the end; default: BUCKET_NAME's.")
    ] = None,
    price_per_hour: Annotated[float | None, typer.Option(min=0, help="Dollars an hour of one worker.")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write checks, figures and jobs to this file.")
    ] = None,
    wait_s: Annotated[float, typer.Option(min=0, help="Seconds to wait for one job, with the worker's start.")] = 900,
    poll_s: Annotated[float, typer.Option(min=0, help="Seconds between two polls of a job.")] = 1.0,
) -> None:
    """Try a deployed endpoint with ten small jobs, which cost a few cents.

    Exit code: 0 every check passed, 1 one failed, 2 a wrong argument or setting, 130 stopped.
    """
    settings = options.load_settings()
    key = os.environ.get("RUNPOD_API_KEY")
    if not key:
        message = f"{Code.ENDPOINT_DENIED}: RUNPOD_API_KEY is not set; create a key in RunPod's console and set it"
        raise typer.BadParameter(message, param_hint="RUNPOD_API_KEY")
    output = output or settings.default_output
    if output and not locations.S3.begins(output):
        message = f"{Code.INVALID_JOB}: {output} is not s3://bucket/prefix/, from which artefacts can be deleted"
        raise typer.BadParameter(message, param_hint="--output")
    if json_file and not json_file.absolute().parent.is_dir():
        raise typer.BadParameter(f"{json_file} is in a folder that does not exist", param_hint="--json")
    place = f"{output.rstrip('/')}/try-{secrets.token_hex(4)}/" if output else None
    dollars_per_s = settings.price_per_second if price_per_hour is None else price_per_hour / 3600
    plan = Plan(endpoint, key, place, dollars_per_s, wait_s, poll_s)
    found: list[Check] = []
    try:
        trials = asyncio.run(try_endpoint(plan, settings, found))
    except KeyboardInterrupt:
        typer.echo(checks.format_table(found, TITLES))
        typer.echo("stopped", err=True)
        raise typer.Exit(Exit.STOPPED) from None
    typer.echo(f"{checks.format_table(found, TITLES)}\n{checks.count_outcomes(found)}")
    if json_file:
        json_file.write_text(json.dumps(to_report(plan, found, trials), ensure_ascii=False, indent=1) + "\n")
    raise typer.Exit(Exit.FAILED if checks.has_failed(found) else Exit.SUCCESS)


app = typer.Typer(**PLAIN)
app.command()(command)

if __name__ == "__main__":
    app(prog_name="python -m scripts.try_endpoint")
