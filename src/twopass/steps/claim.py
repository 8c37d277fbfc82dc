"""Claim a job's idempotency key in the output: of several jobs with the same key, only one reads.

A client whose request was cut off does not know whether a job was created. It sends the same key again, and the job
that starts second ends with the id of the first.
"""

from __future__ import annotations

import json

from twopass.job import Job
from twopass.steps.document_folder import JSON, to_json
from twopass.storage.store import CreateResult, Store, Stored


async def find_owner(output: Store, job: Job) -> str | None:
    """Claim the job's key; returns the id of another job that claimed it before, None if this job may read.

    A job that the platform delivers again has the same id, so it finds its own claim. The claim is never deleted: a
    duplicate may wait in the queue for longer than the first job takes.
    """
    if job.idempotency_key is None or not output.is_persistent:
        return None
    key = f"jobs/claims/{job.idempotency_key}.json"
    if await output.create(key, to_json({"job": job.id}), JSON) is CreateResult.WRITTEN:
        return None
    owner = _parse_owner(await output.get(key))
    return None if owner == job.id else owner


def _parse_owner(stored: Stored | None) -> str | None:
    """The job id in a claim; None if it was deleted or cannot be parsed, which must not keep a job from reading."""
    try:
        claim = json.loads(stored.data) if stored else None
    except (ValueError, RecursionError):
        return None
    owner = claim.get("job") if isinstance(claim, dict) else None
    return owner if isinstance(owner, str) else None
