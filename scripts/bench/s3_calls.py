"""Count the S3 requests of real jobs by what they are for, and price them.

Jobs are run by a worker with the cpu engine in this process. Requests do not depend on the engine, but for crops of
figures and tables, and for progress, which is written every few seconds.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from scripts import ROOT
from scripts.bench import local_s3, loopback, s3_server
from scripts.bench.workload import MIX_FILE
from twopass import pipeline
from twopass.job import EntryPoint, Job
from twopass.runtime import loop_thread
from twopass.settings import Settings
from twopass.telemetry import logs
from twopass.telemetry.progress import Tracker
from twopass.worker import Worker, open_worker

SAMPLE, SAMPLE_PAGES = ROOT / "samples" / "sample.pdf", 12

# AWS, S3 Standard, us-east-1, dollars for a request; DELETE costs nothing. R2 and RunPod have other prices.
DOLLARS: Mapping[str, float] = {"PUT": 5e-6, "LIST": 5e-6, "GET": 4e-7, "HEAD": 4e-7, "DELETE": 0.0}

# What a request is for, by its path. The first match counts.
PURPOSES: Mapping[str, str] = {
    "listing": r"/bench/?$",
    "source": r"/bench/in/",
    "checkpoint of a page": r"/pages/\d+\.json$",
    "crop": r"/images/",
    "progress": r"/jobs/[^/]+/progress\.json$",
    "result": r"/jobs/[^/]+/result\.json$",
    "claim": r"/jobs/claims/",
    "probe": r"/\.twopass-probe$",
    "manifest": r"/manifest\.json$",
    "artefacts": r"",
}
OF_PAGES = ("checkpoint of a page", "crop")

Requests = Counter[tuple[str, str]]


class RequestCounter:
    """Counts requests by operation and purpose."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.requests: Requests = Counter()

    def count(self, operation: str, path: str) -> None:
        purpose = next(name for name, pattern in PURPOSES.items() if re.search(pattern, path))
        with self._lock:
            self.requests[operation, purpose] += 1

    def take(self) -> Requests:
        with self._lock:
            taken, self.requests = self.requests, Counter()
        return taken


@contextmanager
def serve(counter: RequestCounter) -> Iterator[str]:
    """Yield the endpoint URL of a server in this process."""
    with loop_thread.open_loop() as loop:
        runner, url = loop_thread.run(loopback.start(s3_server.create_application(counter.count)), loop)
        try:
            yield url
        finally:
            loop_thread.run(runner.cleanup(), loop)


def measure() -> dict[str, Any]:
    """Run a job for one page, one for the sample, and one for a slice of it; returns requests and dollars."""
    counter = RequestCounter()
    with serve(counter) as url:
        settings = Settings(
            engine="cpu", bucket_endpoint_url=url, bucket_access_key_id=local_s3.ACCESS_KEY,
            bucket_secret_access_key=local_s3.SECRET_KEY, log_level="WARNING",
        )  # fmt: skip
        logs.set_up(settings)
        local_s3.connect(url).put_object(Bucket=local_s3.BUCKET, Key="in/sample.pdf", Body=SAMPLE.read_bytes())
        counter.take()
        with open_worker(settings) as worker:
            jobs: dict[str, dict[str, str]] = {
                "first job of a worker": {"pages": "2"},
                "one page": {"pages": "1"},
                "document": {},
                "slice": {"slice": "1-6", "dpi": 100},  # type: ignore[dict-item]
            }
            counted = {}
            for name, fields in jobs.items():
                _run_job(worker, name.replace(" ", "-"), fields)
                counted[name] = counter.take()
    return {
        "jobs": {name: _describe(requests) for name, requests in counted.items()},
        "crops_a_page_of_the_mix": round(_crops_per_page(), 3),
    }


def _run_job(worker: Worker, name: str, fields: Mapping[str, Any]) -> None:
    bucket = f"s3://{local_s3.BUCKET}"
    job_input = {"source": f"{bucket}/in/sample.pdf", "output": f"{bucket}/out/", "idempotency_key": name, **fields}
    job = Job.parse({"id": f"job-{name}", "input": job_input}, worker.settings, EntryPoint.SERVERLESS)
    result = worker.run(pipeline.run(job, worker, Tracker()))
    if result.status != "success":
        raise RuntimeError(f"{name}: {result.problems[:3]}")


def _describe(requests: Requests) -> dict[str, Any]:
    return {
        "requests": {f"{operation} {purpose}": count for (operation, purpose), count in sorted(requests.items())},
        "dollars": round(price(requests), 9),
        "dollars_besides_pages": round(price(requests, besides=OF_PAGES), 9),
    }


def price(requests: Requests, besides: tuple[str, ...] = ()) -> float:
    return sum(DOLLARS[operation] * count for (operation, purpose), count in requests.items() if purpose not in besides)


def _crops_per_page() -> float:
    """Figures and tables, whose crops are stored, on a page of the mix."""
    pages = json.loads(MIX_FILE.read_text())
    return sum(crop[0] in ("figure", "table") for page in pages for crop in page["crops"]) / len(pages)
