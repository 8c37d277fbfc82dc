"""Documents in a bucket that keeps every version of an object, and what two runs over them must have in common."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pymupdf

from tests.fakes import s3

# Manifests, job files and summaries have times and addresses; a process that is killed at its start leaves the probe.
VOLATILE = ("manifest.json", "jobs/", "runs/", "batch_summary.json", ".twopass-probe")


def build_pdf(name: str, pages: int) -> bytes:
    with pymupdf.open() as document:
        for number in range(1, pages + 1):
            page = document.new_page()
            page.insert_text((72, 90), f"{name} {number}", fontsize=18, fontname="hebo")
            page.insert_textbox((72, 120, 500, 400), f"It lifts water to tower {number}.\n" * 3, fontsize=11)
        return bytes(document.tobytes())


def fill(client: Any, pages: Sequence[int]) -> None:
    """Put documents with so many pages below in/, and keep all versions of objects from now on."""
    client.put_bucket_versioning(Bucket="bucket", VersioningConfiguration={"Status": "Enabled"})
    for number, count in enumerate(pages):
        client.put_object(Bucket="bucket", Key=f"in/report-{number:02}.pdf", Body=build_pdf(f"Report {number}", count))


def list_stored_pages(client: Any, prefix: str) -> list[str]:
    """The keys of checkpoints below the prefix, once for each of their versions."""
    pages = client.get_paginator("list_object_versions").paginate(Bucket="bucket", Prefix=prefix)
    keys = (version["Key"] for page in pages for version in page.get("Versions", ()))
    return [key for key in keys if "/pages/" in key]


def read_results(client: Any, prefix: str) -> dict[str, bytes]:
    """What two runs must have in common, by key: without manifests, job files and the cost in checkpoints."""
    return {
        key.removeprefix(prefix): _without_cost(data) if "/pages/" in key else data
        for key, data in s3.read_objects(client).items()
        if key.startswith(prefix) and not any(part in key for part in VOLATILE)
    }


def _without_cost(checkpoint: bytes) -> bytes:
    return json.dumps({name: value for name, value in json.loads(checkpoint).items() if name != "cost"}).encode()
