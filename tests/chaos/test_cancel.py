"""When the platform stops a job, in any phase, all work for it ends soon and another job of the worker continues."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pymupdf
import pytest

from tests.chaos.disturbed import LONG_S, ProxiedStore, build_document, build_job, start_worker
from tests.chaos.test_kills import store
from tests.fakes import s3
from tests.fakes.children import find_children
from tests.fakes.queue import LoopbackQueue
from tests.fakes.waiting import wait_until

__all__ = ["store"]  # a fixture

STOP_LIMIT_S = 2.0  # what the worker promises
SLACK_S = 3.0  # for a busy machine
QUIET_S = 1.5  # after that, time in which nothing more may happen

DELAYED = {  # phase -> the request that is delayed; the stop comes meanwhile
    "fetching": ("GET", "/in/cancelled.pdf"),
    "storing": ("PUT", "/pages/0004.json"),
    "assembling": ("PUT", "/document.json"),
}


@pytest.fixture(autouse=True)
def upload_sources(store: ProxiedStore) -> Iterator[None]:
    store.client.put_object(Bucket="bucket", Key="in/cancelled.pdf", Body=build_document(12, "Stopped"))
    store.client.put_object(Bucket="bucket", Key="in/dense.pdf", Body=build_dense_document())
    store.client.put_object(Bucket="bucket", Key="in/beside.pdf", Body=build_document(6, "Beside"))
    yield
    store.proxy.choose_fault = lambda request: None


@pytest.mark.parametrize("phase", [*DELAYED, "reading"])
def test_a_stopped_job_leaves_nothing_behind(store: ProxiedStore, tmp_path: Path, phase: str) -> None:
    """A stopped job soon has no posts, store calls, temporary files or page workers, and the other job succeeds."""
    prefix, reached, may_fetch = f"cancel-{phase}", threading.Event(), threading.Event()
    name = "dense" if phase == "reading" else "cancelled"
    method, part = DELAYED.get(phase, ("PUT", "/pages/0002.json"))

    def choose_fault(request: s3.Request) -> s3.Fault | None:
        if "/in/beside.pdf" in request.path:
            may_fetch.wait(LONG_S)
        if request.method != method or part not in request.path or "beside" in request.path or reached.is_set():
            return None
        reached.set()
        return s3.Fault("", 0, delay_s=0 if phase == "reading" else 1.0)

    store.proxy.choose_fault = choose_fault
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with LoopbackQueue() as queue, start_worker(queue, store, scratch, CONCURRENCY="2") as process:
        job = queue.put(build_job(prefix, f"s3://bucket/in/{name}.pdf"))
        wait_until(reached.is_set, LONG_S)
        workers_before = list_page_workers(process.pid)
        other_job = queue.put(build_job("beside", "s3://bucket/in/beside.pdf", resume=False))
        if phase == "reading":
            # They never finish what they read, however fast the machine is. One that read nothing gets a page now,
            # and none of the other job, whose document is not there yet.
            for pid in workers_before:
                os.kill(pid, signal.SIGSTOP)
            time.sleep(QUIET_S)
        else:
            may_fetch.set()
            queue.wait_posts(other_job, 1, LONG_S)
        stopped_at = time.monotonic()
        queue.stop(job)
        idle_s = wait_until(lambda: not find_source_files(scratch, name, store), STOP_LIMIT_S + SLACK_S)
        time.sleep(max(0.0, STOP_LIMIT_S + SLACK_S - (time.monotonic() - stopped_at)))
        posts, calls = len(queue.posts(job)), count_calls(store, prefix)
        time.sleep(QUIET_S)

        assert len(queue.posts(job)) == posts and count_calls(store, prefix) == calls
        for pid in set(workers_before) & set(list_page_workers(process.pid)):
            os.kill(pid, signal.SIGCONT)
        may_fetch.set()
        outcome = queue.wait(other_job, LONG_S)
        workers_after = list_page_workers(process.pid)

    assert outcome.output["status"] == "success"
    assert outcome.output["documents"][0]["pages"] == {"read": 6}
    assert len(workers_after) == len(workers_before)
    if phase == "reading":
        assert set(workers_before) - set(workers_after), "page workers that read its pages were killed and replaced"
    assert not list(scratch.rglob("source*"))
    print(f"\nstopped while {phase}: idle after {idle_s:.2f} s")


def build_dense_document() -> bytes:
    """Build a PDF whose pages take a second each, so that page workers are still reading them when the stop comes."""
    with pymupdf.open() as pdf:
        page = pdf.new_page()
        for row in range(50):
            page.insert_text((36, 72 + 13 * row), "close lines of small words " * 14, fontsize=3)
        for _ in range(39):
            pdf.copy_page(0)
        return bytes(pdf.tobytes())


def list_page_workers(worker: int) -> tuple[int, ...]:
    """Return the process ids of a worker's page workers."""
    return tuple(child.pid for child in find_children("page_worker", worker))


def find_source_files(scratch: Path, name: str, store: ProxiedStore) -> list[Path]:
    """Return the files in the scratch folder that have the size of that source."""
    size = store.client.head_object(Bucket="bucket", Key=f"in/{name}.pdf")["ContentLength"]
    found = []
    for path in scratch.rglob("*"):
        try:
            if path.is_file() and path.stat().st_size == size:
                found.append(path)
        except FileNotFoundError:
            continue
    return found


def count_calls(store: ProxiedStore, prefix: str) -> int:
    return sum(
        f"/{prefix}/" in request.path or f"prefix={prefix}" in request.path for request in list(store.proxy.requests)
    )
