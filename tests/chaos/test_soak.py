"""A worker that has read many small jobs uses no more memory, files or processes than after the first ones."""

from __future__ import annotations

import base64
import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pymupdf

from tests.chaos import mutations, processes
from tests.chaos.chaos import HANDLER, ROOT, read_count
from tests.chaos.processes import GroupUsage
from tests.fakes.queue import LoopbackQueue

JOBS = read_count("JOBS", 100)
ROUND = 25  # jobs; the worker is measured after each round
WARM = 100 if JOBS > 100 else 50  # jobs until the caches of all libraries are filled
MAX_GROWTH = 1.05
PAUSE_S = 2.0  # until closed connections have disappeared
# asyncio starts the threads of its default executor one by one, whenever all are busy, up to this many.
EXECUTOR_THREADS = min(32, (os.cpu_count() or 1) + 4)
# The SDK keeps every connection of its session, and opens another when all are busy: at the most four jobs that each
# report progress and a result at one time, the request for jobs, the one for stop signals, and the ping process's own.
SDK_CONNECTIONS = 4 * 2 + 3


def build_job(number: int) -> dict[str, Any]:
    """Build a job: mostly a page of text, different each time; some scans, pictures, damaged files and bad input."""
    build = {3: build_damaged_page, 5: build_picture, 9: build_scan}.get(number % 10, build_page)
    source = "data:application/octet-stream;base64," + base64.b64encode(build(number)).decode()
    return {"input": {"source": source, **({"colour": 1} if number % ROUND == 7 else {})}}


def build_page(number: int, pages: int = 1) -> bytes:
    with pymupdf.open() as pdf:
        for _ in range(pages):
            pdf.new_page(width=300, height=200).insert_text((20, 40), f"Reading number {number} of the pump house.")
        return bytes(pdf.tobytes())


def build_damaged_page(number: int) -> bytes:
    return build_page(number)[: 200 + number % 100]


def build_picture(number: int) -> bytes:
    return mutations.build_image("PNG") + b"%d" % number


def build_scan(number: int) -> bytes:
    with pymupdf.open() as pdf:
        pdf.new_page(width=300, height=200).insert_image((0, 0, 300, 200), stream=mutations.build_image("JPEG"))
        return bytes(pdf.tobytes()) + b"%% %d" % number


def stop_one(queue: LoopbackQueue, number: int) -> None:
    """Cancel a job with many pages while it is read."""
    source = "data:application/pdf;base64," + base64.b64encode(build_page(-number, 100)).decode()
    job_id = queue.put({"input": {"source": source}})
    queue.wait_posts(job_id, 2, 300)
    queue.stop(job_id)
    assert queue.wait(job_id).status == "CANCELLED"


def test_a_worker_uses_no_more_resources_after_many_jobs(worker_env: dict[str, str], tmp_path: Path) -> None:
    """After many jobs, memory is within 5 % of the warm worker's, and no file, thread, process or socket is left.

    Connections to the platform stay below what the SDK uses at one time; one per job would be far more.
    """
    measurements: list[GroupUsage] = []
    statuses: set[str] = set()
    began = time.monotonic()
    env = {**worker_env, "TMPDIR": str(tmp_path), "WORKER_TIMEOUT_S": "600"}  # the machine may be busy
    with LoopbackQueue() as queue, queue.worker(HANDLER, cwd=ROOT, env=env) as worker:
        for start in range(0, JOBS, ROUND):
            if start < WARM:  # a stop replaces page workers; later it would hide a leak in them
                stop_one(queue, start)
            jobs = queue.put_batch([build_job(number) for number in range(start, start + ROUND)])
            statuses |= {queue.wait(one, 1500).status for one in jobs}
            time.sleep(PAUSE_S)
            measurements.append(processes.measure_group(worker.pid, urlsplit(queue.url).port))
            print(f"\n{start + ROUND} jobs, {time.monotonic() - began:.0f} s: {measurements[-1]}", end="")

    early, warm, later = measurements[: WARM // ROUND], measurements[WARM // ROUND - 1], measurements[WARM // ROUND :]
    highest_ratio = max(one.memory for one in later) / warm.memory
    print(f"\n{warm.memory >> 20} MiB after {WARM} jobs, at most {highest_ratio:.1%} of it later")
    assert statuses == {"COMPLETED", "FAILED"}
    assert highest_ratio < MAX_GROWTH
    assert later[-1].processes <= max(one.processes for one in early)
    assert later[-1].threads < max(one.threads for one in early) + EXECUTOR_THREADS
    assert later[-1].files <= max(one.files for one in early)
    assert later[-1].sockets <= max(one.sockets for one in early)
    assert later[-1].connections <= SDK_CONNECTIONS
    assert not list(tmp_path.glob("twopass-*"))
