"""Many small jobs through one worker: it holds no more at the end than after the first few."""

from __future__ import annotations

import base64
import time
from pathlib import Path
from typing import Any

import pymupdf

from tests.chaos import mutations, processes
from tests.chaos.chaos import HANDLER, ROOT, turns
from tests.chaos.processes import Held
from tests.fakes.queue import LoopbackQueue

JOBS = turns("JOBS", 100)
ROUND = 25  # jobs; what the worker holds is looked at after each
WARM = 100 if JOBS > 100 else 50  # jobs until every library keeps what it keeps
GROWTH = 1.05
PAUSE_S = 2.0  # until connections that were closed are gone


def job(number: int) -> dict[str, Any]:
    """A page of text mostly, different every time; scans, pictures, damaged files and bad input among them."""
    kind = {3: damaged, 5: picture, 9: scan}.get(number % 10, page)
    source = "data:application/octet-stream;base64," + base64.b64encode(kind(number)).decode()
    return {"input": {"source": source, **({"colour": 1} if number % ROUND == 7 else {})}}


def page(number: int, pages: int = 1) -> bytes:
    with pymupdf.open() as pdf:
        for _ in range(pages):
            pdf.new_page(width=300, height=200).insert_text((20, 40), f"Reading number {number} of the pump house.")
        return bytes(pdf.tobytes())


def damaged(number: int) -> bytes:
    return page(number)[: 200 + number % 100]


def picture(number: int) -> bytes:
    return mutations.image("PNG") + b"%d" % number


def scan(number: int) -> bytes:
    with pymupdf.open() as pdf:
        pdf.new_page(width=300, height=200).insert_image((0, 0, 300, 200), stream=mutations.image("JPEG"))
        return bytes(pdf.tobytes()) + b"%% %d" % number


def stop_one(queue: LoopbackQueue, number: int) -> None:
    """A job of many pages, cancelled while it is read."""
    source = "data:application/pdf;base64," + base64.b64encode(page(-number, 100)).decode()
    job_id = queue.put({"input": {"source": source}})
    queue.wait_posts(job_id, 2, 300)
    queue.stop(job_id)
    assert queue.wait(job_id).status == "CANCELLED"


def test_a_worker_holds_no_more_after_many_jobs(worker_env: dict[str, str], tmp_path: Path) -> None:
    """Memory within 5 % of what it was, and not one file, thread, process or socket more."""
    seen: list[Held] = []
    statuses: set[str] = set()
    began = time.monotonic()
    env = {**worker_env, "TMPDIR": str(tmp_path), "WORKER_TIMEOUT_S": "600"}  # the machine may be at work for others
    with LoopbackQueue() as queue, queue.worker(HANDLER, cwd=ROOT, env=env) as worker:
        for start in range(0, JOBS, ROUND):
            if start < WARM:  # later it would hide what page workers hold: those at work are ended and replaced
                stop_one(queue, start)
            jobs = queue.put_batch([job(number) for number in range(start, start + ROUND)])
            statuses |= {queue.wait(one, 1500).status for one in jobs}
            time.sleep(PAUSE_S)
            seen.append(processes.held(worker.pid))
            print(f"\n{start + ROUND} jobs, {time.monotonic() - began:.0f} s: {seen[-1]}", end="")

    early, warm, later = seen[: WARM // ROUND], seen[WARM // ROUND - 1], seen[WARM // ROUND :]
    most = max(one.memory for one in later) / warm.memory
    print(f"\n{warm.memory >> 20} MiB after {WARM} jobs, at most {most:.1%} of it later")
    assert statuses == {"COMPLETED", "FAILED"}
    assert most < GROWTH
    for number, kept in enumerate(zip(*(one.countable for one in early), strict=True)):
        assert later[-1].countable[number] <= max(kept)
    assert not list(tmp_path.glob("twopass-*"))
