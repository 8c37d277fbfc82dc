"""A stop from the platform, in every phase of a job: soon nothing of it is left, and the job beside it is read on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos import processes
from tests.chaos.disturbed import LONG_S, Place, asked, document, until, worker
from tests.chaos.test_kills import place
from tests.fakes import s3
from tests.fakes.queue import LoopbackQueue

__all__ = ["place"]  # a fixture

SOON_S = 2.0  # what the worker promises
SLACK_S = 3.0  # for a busy machine
STILL_S = 1.5  # watched afterwards: nothing more may come

HELD = {  # phase: the request that is held, and the stop comes while it is
    "fetching": ("GET", "/in/cancelled.pdf"),
    "storing": ("PUT", "/pages/0004.json"),
    "assembling": ("PUT", "/document.json"),
}


@pytest.fixture(autouse=True)
def _sources(place: Place) -> Iterator[None]:
    place.client.put_object(Bucket="bucket", Key="in/cancelled.pdf", Body=document(12, "Stopped"))
    place.client.put_object(Bucket="bucket", Key="in/beside.pdf", Body=document(6, "Beside"))
    yield
    place.proxy.judge = lambda request: None


@pytest.mark.parametrize("phase", [*HELD, "reading"])
def test_soon_after_a_stop_nothing_is_left(place: Place, tmp_path: Path, phase: str) -> None:
    """No post, no call to the store, no temporary file, no page worker at it; the other job ends as if alone."""
    prefix, reached = f"cancel-{phase}", threading.Event()
    method, part = HELD.get(phase, ("PUT", "/pages/0002.json"))

    def judge(request: s3.Seen) -> s3.Fault | None:
        if request.method != method or part not in request.path or "beside" in request.path or reached.is_set():
            return None
        reached.set()
        return s3.Fault("", 0, held_s=0 if phase == "reading" else 1.0)

    place.proxy.judge = judge
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with LoopbackQueue() as queue, worker(queue, place, scratch, CONCURRENCY="2") as alive:
        job = queue.put(asked(prefix, "s3://bucket/in/cancelled.pdf"))
        until(reached.is_set, LONG_S)
        beside = queue.put(asked("beside", "s3://bucket/in/beside.pdf", resume=False))
        queue.wait_posts(beside, 1, 60)
        before = workers_of(alive.pid)
        told = time.monotonic()
        queue.stop(job)
        idle = until(lambda: not sources(scratch, "cancelled", place), SOON_S + SLACK_S)
        time.sleep(max(0.0, SOON_S + SLACK_S - (time.monotonic() - told)))
        posts, calls = len(queue.posts(job)), calls_of(place, prefix)
        time.sleep(STILL_S)

        assert len(queue.posts(job)) == posts and calls_of(place, prefix) == calls
        outcome = queue.wait(beside, LONG_S)
        after = workers_of(alive.pid)

    assert outcome.output["status"] == "success"
    assert outcome.output["documents"][0]["pages"] == {"read": 6}
    assert len(after) == len(before)
    if phase == "reading":
        assert set(after) != set(before)  # who was at its pages was ended, and replaced
    assert not list(scratch.rglob("source*"))
    print(f"\nstopped while {phase}: idle after {idle:.2f} s")


def workers_of(group: int) -> tuple[int, ...]:
    """The page workers of a worker, by process."""
    return tuple(pid for pid in processes.members(group) if b"page_worker" in Path(f"/proc/{pid}/cmdline").read_bytes())


def sources(scratch: Path, name: str, place: Place) -> list[Path]:
    """Files in the scratch folder as large as that source."""
    size = place.client.head_object(Bucket="bucket", Key=f"in/{name}.pdf")["ContentLength"]
    found = []
    for path in scratch.rglob("*"):
        try:
            if path.is_file() and path.stat().st_size == size:
                found.append(path)
        except FileNotFoundError:
            continue
    return found


def calls_of(place: Place, prefix: str) -> int:
    return sum(f"/{prefix}/" in seen.path or f"prefix={prefix}" in seen.path for seen in list(place.proxy.seen))
