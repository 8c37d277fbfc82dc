"""Workers killed, told to stop or cut off from their store: the document is the undisturbed one, byte for byte."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.chaos import turns
from tests.chaos.disturbed import LONG_S, PAGES, Place, asked, document, numbers_of, taken, until, whole, worker
from tests.fakes import s3
from tests.fakes.queue import FINAL, LoopbackQueue, Worker

KILLS = turns("KILLS", 5)
PACE_S = 0.2  # about what a page takes here
GRACE_S, SLACK_S = 5, 15  # a busy machine's
SEED = 20261121


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with s3.moto_server() as target:
        proxy = s3.Proxy(target)
        with proxy.running() as url, s3.client(target, "bucket") as client:
            client.put_object(Bucket="bucket", Key="in/long.pdf", Body=document())
            env = {
                "BUCKET_ENDPOINT_URL": url,
                "BUCKET_ACCESS_KEY_ID": s3.KEY,
                "BUCKET_SECRET_ACCESS_KEY": s3.SECRET,
                "BUCKET_NAME": "bucket",
                "BUCKET_PREFIX": "out",
                "PROGRESS_INTERVAL_S": "0.2",
                "PAGE_WORKERS": "2",
            }
            yield Place(proxy, client, env)


@pytest.fixture(scope="module")
def undisturbed(place: Place, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What an undisturbed worker writes, by name."""
    outcome = whole(place, "whole", tmp_path_factory.mktemp("whole"))
    assert outcome.output["status"] == "success"
    written = place.written("whole")
    assert sum("/pages/" in name for name in written) == PAGES and sum("/images/" in name for name in written) == 12
    return written


def same(place: Place, prefix: str, undisturbed: dict[str, bytes]) -> None:
    """Nothing lost, nothing there twice, and not one byte different."""
    written = place.written(prefix)
    assert sorted(written) == sorted(undisturbed)
    assert [name for name in written if written[name] != undisturbed[name]] == []
    assert numbers_of(next(data for name, data in written.items() if name.endswith("document.json"))) == [
        *range(1, PAGES + 1)
    ]


@dataclass(frozen=True)
class Moment:
    """So many more pages stored, and then so many seconds."""

    pages: int
    wait_s: float


def moments(rolls: random.Random, count: int) -> list[Moment]:
    """Before a first page, between pages, within one; together they see about the whole document read."""
    most = PAGES // count  # and as much again comes while they wait
    return [Moment(rolls.randint(0, most), rolls.uniform(0, PACE_S)) for _ in range(count)]


def has_answer(queue: LoopbackQueue, job: str) -> bool:
    seen = queue.look(job)
    return seen is not None and seen.status in FINAL


def come(moment: Moment, place: Place, prefix: str, queue: LoopbackQueue, job: str) -> None:
    """Wait for the moment, or until the job has its answer and nothing more will be stored."""
    goal = place.stored(prefix) + moment.pages
    until(lambda: place.stored(prefix) >= goal or has_answer(queue, job))
    time.sleep(moment.wait_s)


def test_killed_at_any_moment(place: Place, undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    """SIGKILL to the whole group, the job delivered again each time: no page that was stored is read again."""
    stored: list[int] = []
    with LoopbackQueue() as queue:
        job = queue.put(asked("kills"))
        for moment in moments(random.Random(SEED), KILLS):
            with worker(queue, place, tmp_path) as alive:
                until(lambda alive=alive: taken(queue, alive, job))
                come(moment, place, "kills", queue, job)
                alive.kill()
            stored.append(place.stored("kills"))
            queue.redeliver(job)
        began = time.monotonic()
        with worker(queue, place, tmp_path):
            first = until(lambda: place.stored("kills") > stored[-1] or stored[-1] == PAGES)
            outcome = queue.wait(job, LONG_S)
        took = time.monotonic() - began

    assert outcome.output["status"] == "success"
    assert sum(0 < count < PAGES for count in stored) > KILLS / 2  # they came in the middle of things
    same(place, "kills", undisturbed)
    read = place.times_read("kills")
    assert set(read) == {*range(1, PAGES + 1)} and set(read.values()) == {1}
    print(
        f"\n{KILLS} kills, {stored} pages stored after each; none lost, none twice, none read again that was stored; "
        f"the last worker stored its first page {first:.1f} s after its start and was done after {took:.1f} s"
    )


def test_told_to_stop_at_any_moment(place: Place, undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    """SIGTERM: each worker answers within its grace, says what is left, and the next one goes on from there."""
    waits: list[float] = []
    stored: list[int] = []
    with LoopbackQueue() as queue:
        job = queue.put(asked("stops"))
        posts = 0
        for moment in moments(random.Random(SEED + 1), KILLS):
            with worker(queue, place, tmp_path, SHUTDOWN_GRACE_S=str(GRACE_S)) as alive:
                posts = len(queue.wait_posts(job, posts + 1, 120))
                come(moment, place, "stops", queue, job)
                told = time.monotonic()
                alive.terminate()
                answer = queue.wait(job, 60)
                waits.append(time.monotonic() - told)
            check_what_is_left(answer.output, place)
            stored.append(place.stored("stops"))
            posts = len(queue.posts(job))
            queue.redeliver(job)
        with worker(queue, place, tmp_path):
            outcome = queue.wait(job, LONG_S)

    assert outcome.output["status"] == "success"
    same(place, "stops", undisturbed)
    assert set(place.times_read("stops").values()) == {1}
    assert max(waits) < GRACE_S + SLACK_S
    print(
        f"\n{KILLS} SIGTERMs, {stored} pages stored after each: answered after {max(waits):.1f} s at most, "
        f"{sorted(waits)[len(waits) // 2]:.1f} s mostly"
    )


def check_what_is_left(answer: dict[str, Any], place: Place) -> None:
    """Pages that are called read lie there, and the rest are named."""
    told = answer.get("detail", answer)
    document = told["documents"][0]
    if document["status"] == "success":
        return
    assert {problem["code"] for problem in told["problems"]} == {"SHUTDOWN"}
    if "pages" in document and document["pages"]:
        assert document["pages"].get("read", 0) <= place.stored("stops")
        assert document["left"]


def test_a_store_that_fails_one_call_in_five(place: Place, undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    """500, SlowDown, conflicts, refusals that are none, lost answers and dropped connections: the same document."""
    rolls, lock, seen = random.Random(SEED + 2), threading.Lock(), [0, 0]
    faults = [
        s3.Fault("", 500),
        s3.Fault("", 500, landed=True),
        s3.Fault("", 503, "SlowDown"),
        s3.Fault("", 503, "SlowDown", landed=True),
        s3.Fault("", 500, dropped=True),
        s3.Fault("", 500, dropped=True, landed=True),
    ]
    conditional = [s3.Fault("", 409, "ConditionalRequestConflict"), s3.Fault("", 412, "PreconditionFailed")]

    def judge(request: s3.Seen) -> s3.Fault | None:
        with lock:
            seen[0] += 1
            if not {"/faults/", "prefix=faults", "/in/"} & set(parts(request)) or rolls.random() > 0.2:
                return None
            seen[1] += 1
            has_condition = any(name.lower() == "if-none-match" for name in request.headers)
            is_page = "/pages/" in request.path
            return rolls.choice(faults + (conditional if has_condition and is_page else []))

    place.proxy.judge = judge
    try:
        outcome = whole(place, "faults", tmp_path)
    finally:
        place.proxy.judge = lambda request: None

    assert outcome.status == "COMPLETED", outcome.error
    assert seen[1] > 0.1 * seen[0]
    assert outcome.output["status"] == "success"
    same(place, "faults", undisturbed)
    print(
        f"\n{seen[1]} faults in {seen[0]} calls to the store: nothing lost; {outcome.output['timings']['duration_s']} s"
    )


def parts(request: s3.Seen) -> list[str]:
    """Which of the job's places the request is about."""
    return [part for part in ("/faults/", "prefix=faults", "/in/") if part in request.path]


def test_two_workers_on_one_document(place: Place, undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    """Two jobs with the same input at once: both succeed, and they share the pages."""
    with (
        LoopbackQueue() as queue,
        worker(queue, place, tmp_path, CONCURRENCY="1"),
        worker(queue, place, tmp_path, CONCURRENCY="1"),
    ):
        until(lambda: len({ping.worker for ping in queue.pings}) == 2)  # both are up
        jobs = queue.put_batch([asked("two"), asked("two")])
        outcomes = [queue.wait(job, LONG_S) for job in jobs]

    assert [outcome.output["status"] for outcome in outcomes] == ["success", "success"]
    same(place, "two", undisturbed)
    read = [outcome.output["documents"][0]["usage"]["pages_read_now"] for outcome in outcomes]
    print(f"\ntwo workers read {read[0]} and {read[1]} of {PAGES} pages")
    assert sum(read) < 1.5 * PAGES and min(read) > 0


@pytest.mark.parametrize("part", ["/images/", "/manifest.json"], ids=["before-an-image", "before-the-manifest"])
def test_killed_between_two_writes(place: Place, undisturbed: dict[str, bytes], tmp_path: Path, part: str) -> None:
    """A checkpoint whose images are missing, and a document whose manifest is: the next worker makes them good."""
    prefix, victims, killed = f"between{len(part)}", list[Worker](), threading.Event()

    def judge(request: s3.Seen) -> s3.Fault | None:
        if request.method != "PUT" or f"/{prefix}/" not in request.path or part not in request.path or killed.is_set():
            return None
        killed.set()
        victims[0].kill()
        return s3.Fault("", dropped=True)

    place.proxy.judge = judge
    with LoopbackQueue() as queue:
        job = queue.put(asked(prefix))
        with worker(queue, place, tmp_path) as alive:
            victims.append(alive)
            until(killed.is_set, LONG_S)
        assert not any(name.endswith("manifest.json") for name in place.names(prefix))
        queue.redeliver(job)
        with worker(queue, place, tmp_path):
            outcome = queue.wait(job, LONG_S)
    place.proxy.judge = lambda request: None

    assert outcome.output["status"] == "success"
    same(place, prefix, undisturbed)
    assert set(place.times_read(prefix).values()) == {1}


def test_a_deadline_and_the_same_job_again(place: Place, undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    """The first job ends as a clean partial that says what is left; the second reads that and nothing else."""
    held = threading.Event()

    def judge(request: s3.Seen) -> s3.Fault | None:
        """From page 10 on nothing comes through until the deadline."""
        if request.method == "PUT" and "/late/" in request.path and "/pages/0010" in request.path and not held.is_set():
            held.set()
        return s3.Fault("", 503, "SlowDown") if held.is_set() and "/pages/" in request.path else None

    place.proxy.judge = judge
    with LoopbackQueue() as queue, worker(queue, place, tmp_path):
        first = queue.wait(queue.put(asked("late", deadline_s=30)), LONG_S).output
        place.proxy.judge = lambda request: None
        stored = place.stored("late")
        second = queue.wait(queue.put(asked("late")), LONG_S).output

    read = first["documents"][0]["pages"]["read"]
    assert held.is_set() and first["status"] == "partial_success"
    assert {problem["code"] for problem in first["problems"]} == {"DEADLINE"}
    assert not first["documents"][0].get("artefacts") and first["documents"][0]["left"].endswith(f"-{PAGES}")
    assert first["documents"][0]["pages"] == {"read": read, "unread": PAGES - read}
    assert 0 < read <= stored < PAGES  # a put that was under way may have landed
    assert second["status"] == "success"
    assert second["documents"][0]["usage"]["pages_read_now"] == PAGES - stored
    same(place, "late", undisturbed)


def test_thawed_after_its_deadline(place: Place, undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    """A worker that stood still, as a restored snapshot: the deadline held meanwhile, its connections are gone, and
    over new ones it reads on."""
    stands_s = 20
    with LoopbackQueue() as queue, worker(queue, place, tmp_path) as alive:
        job = queue.put(asked("thawed", deadline_s=stands_s))
        until(lambda: place.stored("thawed") > 2)
        with alive.frozen():
            time.sleep(stands_s)
            cut = place.proxy.cut()
        thawed = time.monotonic()
        first = queue.wait(job, 60).output
        answered_s = time.monotonic() - thawed
        stored = place.stored("thawed")
        second = queue.wait(queue.put(asked("thawed")), LONG_S).output

    assert cut > 0
    assert first["status"] == "partial_success" and {problem["code"] for problem in first["problems"]} == {"DEADLINE"}
    assert first["documents"][0]["left"].endswith(f"-{PAGES}")
    assert answered_s < SLACK_S
    assert second["status"] == "success"
    assert second["documents"][0]["usage"]["pages_read_now"] == PAGES - stored
    same(place, "thawed", undisturbed)
    assert set(place.times_read("thawed").values()) == {1}
    print(f"\n{cut} connections cut; the answer came {answered_s:.1f} s after the thaw, {PAGES - stored} pages later")


def test_a_queue_that_answers_anything(place: Place, undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    """Bad answers to takes cost time; a result answered 500 comes again, and one that is refused for good is lost:
    the job delivered again is then answered from its manifest."""
    with LoopbackQueue() as queue:
        queue.answer_takes_with([500, 204, 400, 429])
        with worker(queue, place, tmp_path):
            job = queue.put(asked("whole"))  # finished long ago: only its result is at stake
            first = queue.wait(job, 120).output
            polls = [take.status for take in queue.takes]
            posts = [refused_result(queue, job, status) for status in (500, 400, 413)]

    assert first["status"] == "success" and {500, 204, 400, 429} <= set(polls)
    assert posts == ["came again", "lost", "lost"]
    assert set(place.times_read("whole").values()) == {1}


def refused_result(queue: LoopbackQueue, job: str, status: int) -> str:
    """The job again; its posts are answered with the status until its result was, and then as usual."""
    queue.redeliver(job)
    before = len([post for post in queue.posts(job) if is_result(post)])
    queue.answer_done_with([status] * 20)
    until(lambda: len([post for post in queue.posts(job) if is_result(post)]) > before)
    queue.answer_done_with([])
    try:
        queue.wait(job, 12)
    except TimeoutError:
        queue.redeliver(job)
        assert queue.wait(job, 60).output["status"] == "success"
        return "lost"
    return "came again"


def is_result(post: dict[str, Any]) -> bool:
    return post.get("status") != "IN_PROGRESS"
