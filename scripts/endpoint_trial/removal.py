"""End the jobs of a run and delete what they wrote, or say what is left and what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from scripts.endpoint_trial.runner import JobRunner, Trial
from twopass.acceptance.checks import Check, judge, skip
from twopass.errors import Code, TwopassError
from twopass.settings import Settings
from twopass.storage.s3 import S3Store

STAGE = "4"
DELETE_ROUNDS, DELETE_PAUSE_S = 5, 1.0  # a worker may write a last page after its job was cancelled


async def end_jobs(runner: JobRunner, url: str) -> Check:
    cancelled = await runner.end_all()
    value = f"{cancelled} were still open and were cancelled" if cancelled else "all have ended"
    command = f'curl -X POST -H "Authorization: Bearer $RUNPOD_API_KEY" {url}/cancel/ID'
    meaning = f"{Code.JOB_LOST}: may go on and cost money: {', '.join(sorted(runner.open))}; for each: {command}"
    return judge(STAGE, "jobs", not runner.open, value if not runner.open else "still open", "", meaning)


async def delete_artefacts(output: str | None, trials: Iterable[Trial], settings: Settings) -> Check:
    """Delete everything below this run's own output; without one, list what the endpoint's own bucket now has."""
    if output is None:
        return _list_left(trials, settings)
    store = S3Store(output, settings, None)
    deleted = 0
    try:
        for _ in range(DELETE_ROUNDS):
            keys = await store.keys("")
            if not keys:
                return judge(STAGE, "artefacts", True, f"{deleted} objects deleted", "", "")
            await asyncio.gather(*map(store.delete, keys))
            deleted += len(keys)
            await asyncio.sleep(DELETE_PAUSE_S)
        reason = f"{Code.STORE_UNAVAILABLE}: a worker goes on writing"
    except TwopassError as error:
        reason = str(error)
    finally:
        await store.close()
    meaning = f"{reason}; to delete them: {_format_removal(output, settings)}"
    return judge(STAGE, "artefacts", False, "not deleted", "", meaning)


def _list_left(trials: Iterable[Trial], settings: Settings) -> Check:
    """Say what is in the endpoint's own bucket, which may hold documents of others: it is listed and not deleted."""
    results = [(trial, trial.result) for trial in trials if trial.result]
    uri = next((result.result_uri for _, result in results if result.result_uri), None)
    if results and not uri:
        return judge(STAGE, "artefacts", True, "the endpoint has no bucket of its own", "", "")
    if not uri:
        return skip(STAGE, "artefacts", "no job had a result; a bucket of the endpoint's own may have folders inline-*")
    names = {str(document.id) for _, result in results for document in result.documents}
    names |= {f"jobs/{trial.id}" for trial in trials}
    places = " ".join(f"--include '{name}*'" for name in sorted(names))
    command = f"{_format_removal(uri.rpartition('jobs/')[0], settings)} --exclude '*' {places}"
    return skip(STAGE, "artefacts", f"the endpoint's own bucket has them; name an --output, or delete them: {command}")


def _format_removal(uri: str, settings: Settings) -> str:
    address = f" --endpoint-url {settings.bucket_endpoint_url}" if settings.bucket_endpoint_url else ""
    return f"aws s3 rm --recursive {uri}{address}"
