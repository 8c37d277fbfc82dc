"""Workers that are killed, terminated or cut off from their store write the same artefacts, byte for byte."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.chaos import read_count
from tests.chaos.disturbed import (
    LONG_S,
    PAGES,
    ProxiedStore,
    build_document,
    build_job,
    has_taken,
    list_page_numbers,
    read_document,
    start_worker,
)
from tests.fakes import s3
from tests.fakes.queue import FINAL, LoopbackQueue, Worker
from tests.fakes.waiting import wait_until
from twopass.page_range import PageRange

KILLS = read_count("KILLS", 5)
PACE_S = 0.2  # about the time of one page
GRACE_S, SLACK_S = 5, 15  # the slack is for a busy machine
SEED = 20261121


@pytest.fixture(scope="module")
def store() -> Iterator[ProxiedStore]:
    with s3.moto_server() as target:
        proxy = s3.Proxy(target)
        with proxy.serve() as url, s3.client(target, "bucket") as client:
            client.put_object(Bucket="bucket", Key="in/long.pdf", Body=build_document())
            env = {
                **s3.worker_keys(url),
                "BUCKET_NAME": "bucket",
                "BUCKET_PREFIX": "out",
                "PROGRESS_INTERVAL_S": "0.2",
                "PAGE_WORKERS": "2",
            }
            yield ProxiedStore(proxy, client, env)


@pytest.fixture(scope="module")
def undisturbed(store: ProxiedStore, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The artefacts of an undisturbed worker, by name."""
    outcome = read_document(store, "whole", tmp_path_factory.mktemp("whole"))
    assert outcome.output["status"] == "success"
    artefacts = store.read_artefacts("whole")
    assert sum("/pages/" in name for name in artefacts) == PAGES and sum("/images/" in name for name in artefacts) == 12
    return artefacts


def assert_same_artefacts(store: ProxiedStore, prefix: str, undisturbed: dict[str, bytes]) -> None:
    """Assert that the artefacts are those of an undisturbed worker, and that every page is there once."""
    artefacts = store.read_artefacts(prefix)
    assert sorted(artefacts) == sorted(undisturbed)
    assert [name for name in artefacts if artefacts[name] != undisturbed[name]] == []
    assert list_page_numbers(next(data for name, data in artefacts.items() if name.endswith("document.json"))) == [
        *range(1, PAGES + 1)
    ]


@dataclass(frozen=True)
class Moment:
    """A moment in a job: after `pages` more checkpoints and then `wait_s` seconds."""

    pages: int
    wait_s: float


def choose_moments(rng: random.Random, count: int) -> list[Moment]:
    """Return random moments: before the first page, between pages, within one; together they span the document."""
    most = PAGES // count  # about as many more are read during the waits
    return [Moment(rng.randint(0, most), rng.uniform(0, PACE_S)) for _ in range(count)]


def has_answer(queue: LoopbackQueue, job: str) -> bool:
    outcome = queue.snapshot(job)
    return outcome is not None and outcome.status in FINAL


def wait_for_moment(moment: Moment, store: ProxiedStore, prefix: str, queue: LoopbackQueue, job: str) -> None:
    """Wait for the moment, or until the job has its answer and stores no more pages."""
    goal = store.count_checkpoints(prefix) + moment.pages
    wait_until(lambda: store.count_checkpoints(prefix) >= goal or has_answer(queue, job))
    time.sleep(moment.wait_s)


def test_a_job_survives_kills_at_any_moment(store: ProxiedStore, undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    """After each SIGKILL and redelivery the job continues, and no page with a checkpoint is read again."""
    stored: list[int] = []
    with LoopbackQueue() as queue:
        job = queue.put(build_job("kills"))
        for moment in choose_moments(random.Random(SEED), KILLS):
            with start_worker(queue, store, tmp_path) as process:
                wait_until(lambda process=process: has_taken(queue, process, job))
                wait_for_moment(moment, store, "kills", queue, job)
                process.kill()
            stored.append(store.count_checkpoints("kills"))
            queue.redeliver(job)
        began = time.monotonic()
        with start_worker(queue, store, tmp_path):
            first_page_s = wait_until(lambda: store.count_checkpoints("kills") > stored[-1] or stored[-1] == PAGES)
            outcome = queue.wait(job, LONG_S)
        total_s = time.monotonic() - began

    assert outcome.output["status"] == "success"
    assert sum(0 < count < PAGES for count in stored) > KILLS / 2  # most kills came while pages were read
    assert_same_artefacts(store, "kills", undisturbed)
    reads = store.count_reads("kills")
    assert set(reads) == {*range(1, PAGES + 1)} and set(reads.values()) == {1}
    print(
        f"\n{KILLS} kills, {stored} pages stored after each; none lost, none twice, no stored page read again; "
        f"the last worker stored its first page {first_page_s:.1f} s after its start and was done after {total_s:.1f} s"
    )


def test_a_job_survives_terminations_at_any_moment(
    store: ProxiedStore, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    """After SIGTERM a worker answers within its grace period with the pages left, and the next worker reads those."""
    answer_times: list[float] = []
    stored: list[int] = []
    with LoopbackQueue() as queue:
        job = queue.put(build_job("stops"))
        posts = 0
        for moment in choose_moments(random.Random(SEED + 1), KILLS):
            with start_worker(queue, store, tmp_path, SHUTDOWN_GRACE_S=str(GRACE_S)) as process:
                posts = len(queue.wait_posts(job, posts + 1, 120))
                wait_for_moment(moment, store, "stops", queue, job)
                terminated_at = time.monotonic()
                process.terminate()
                answer = queue.wait(job, 60)
                answer_times.append(time.monotonic() - terminated_at)
            assert_remaining_pages_are_named(answer.output, store)
            stored.append(store.count_checkpoints("stops"))
            posts = len(queue.posts(job))
            queue.redeliver(job)
        with start_worker(queue, store, tmp_path):
            outcome = queue.wait(job, LONG_S)

    assert outcome.output["status"] == "success"
    assert_same_artefacts(store, "stops", undisturbed)
    assert set(store.count_reads("stops").values()) == {1}
    assert max(answer_times) < GRACE_S + SLACK_S
    print(
        f"\n{KILLS} SIGTERMs, {stored} pages stored after each: answered after {max(answer_times):.1f} s at most, "
        f"{sorted(answer_times)[len(answer_times) // 2]:.1f} s mostly"
    )


def assert_remaining_pages_are_named(answer: dict[str, Any], store: ProxiedStore) -> None:
    """Assert that pages reported as read have checkpoints, and that the remaining pages are named."""
    result = answer.get("detail", answer)
    document_result = result["documents"][0]
    if document_result["status"] == "success":
        return
    assert {problem["code"] for problem in result["problems"]} == {"SHUTDOWN"}
    if "pages" in document_result and document_result["pages"]:
        assert document_result["pages"].get("read", 0) <= store.count_checkpoints("stops")
        assert document_result["left"]


def test_a_store_that_fails_one_call_in_five_loses_nothing(
    store: ProxiedStore, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    """Errors, SlowDown, conflicts, lost answers and dropped connections do not change the document."""
    rng, lock, counts = random.Random(SEED + 2), threading.Lock(), [0, 0]
    faults = [
        s3.Fault("", 500),
        s3.Fault("", 500, performed=True),
        s3.Fault("", 503, "SlowDown"),
        s3.Fault("", 503, "SlowDown", performed=True),
        s3.Fault("", 500, dropped=True),
        s3.Fault("", 500, dropped=True, performed=True),
    ]
    conditional = [s3.Fault("", 409, "ConditionalRequestConflict"), s3.Fault("", 412, "PreconditionFailed")]

    def choose_fault(request: s3.Request) -> s3.Fault | None:
        with lock:
            counts[0] += 1
            if not {"/faults/", "prefix=faults", "/in/"} & set(find_job_parts(request)) or rng.random() > 0.2:
                return None
            counts[1] += 1
            has_condition = any(name.lower() == "if-none-match" for name in request.headers)
            is_page = "/pages/" in request.path
            return rng.choice(faults + (conditional if has_condition and is_page else []))

    store.proxy.choose_fault = choose_fault
    try:
        outcome = read_document(store, "faults", tmp_path)
    finally:
        store.proxy.choose_fault = lambda request: None

    assert outcome.status == "COMPLETED", outcome.error
    assert counts[1] > 0.1 * counts[0]
    assert outcome.output["status"] == "success"
    assert_same_artefacts(store, "faults", undisturbed)
    print(
        f"\n{counts[1]} faults in {counts[0]} calls to the store: nothing lost; "
        f"{outcome.output['timings']['duration_s']} s"
    )


def find_job_parts(request: s3.Request) -> list[str]:
    """Return the parts of the request's path that belong to the job."""
    return [part for part in ("/faults/", "prefix=faults", "/in/") if part in request.path]


def test_two_workers_share_one_document(store: ProxiedStore, undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    """Two workers that get the same job at the same time both succeed and share the pages."""
    with (
        LoopbackQueue() as queue,
        start_worker(queue, store, tmp_path, CONCURRENCY="1"),
        start_worker(queue, store, tmp_path, CONCURRENCY="1"),
    ):
        wait_until(lambda: len({ping.worker for ping in queue.pings}) == 2)  # both are up
        jobs = queue.put_batch([build_job("two"), build_job("two")])
        outcomes = [queue.wait(job, LONG_S) for job in jobs]

    assert [outcome.output["status"] for outcome in outcomes] == ["success", "success"]
    assert_same_artefacts(store, "two", undisturbed)
    pages_read = [outcome.output["documents"][0]["usage"]["pages_read_now"] for outcome in outcomes]
    print(f"\ntwo workers read {pages_read[0]} and {pages_read[1]} of {PAGES} pages")
    assert sum(pages_read) < 1.5 * PAGES and min(pages_read) > 0


@pytest.mark.parametrize("part", ["/images/", "/manifest.json"], ids=["before-an-image", "before-the-manifest"])
def test_a_job_survives_a_kill_between_two_writes(
    store: ProxiedStore, undisturbed: dict[str, bytes], tmp_path: Path, part: str
) -> None:
    """If a worker dies before it writes an image or the manifest, the next worker completes the artefacts."""
    prefix, victims, killed = f"between{len(part)}", list[Worker](), threading.Event()

    def choose_fault(request: s3.Request) -> s3.Fault | None:
        if request.method != "PUT" or f"/{prefix}/" not in request.path or part not in request.path or killed.is_set():
            return None
        killed.set()
        victims[0].kill()
        return s3.Fault("", dropped=True)

    store.proxy.choose_fault = choose_fault
    with LoopbackQueue() as queue:
        job = queue.put(build_job(prefix))
        with start_worker(queue, store, tmp_path) as process:
            victims.append(process)
            wait_until(killed.is_set, LONG_S)
        assert not any(name.endswith("manifest.json") for name in store.list_names(prefix))
        queue.redeliver(job)
        with start_worker(queue, store, tmp_path):
            outcome = queue.wait(job, LONG_S)
    store.proxy.choose_fault = lambda request: None

    assert outcome.output["status"] == "success"
    assert_same_artefacts(store, prefix, undisturbed)
    assert set(store.count_reads(prefix).values()) == {1}


def test_a_job_repeated_after_its_deadline_reads_only_the_remaining_pages(
    store: ProxiedStore, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    """A job that reaches its deadline is a partial success that names the pages left; the next job reads only those."""
    stored_pages: set[str] = set()

    def choose_fault(request: s3.Request) -> s3.Fault | None:
        """Refuse all checkpoints after the ninth, until the deadline; the worker begins at any page."""
        if "/late/" not in request.path or "/pages/" not in request.path:
            return None
        if request.method == "PUT" and len(stored_pages) < 9:
            stored_pages.add(request.path)
        return s3.Fault("", 503, "SlowDown") if len(stored_pages) == 9 and request.path not in stored_pages else None

    store.proxy.choose_fault = choose_fault
    with LoopbackQueue() as queue, start_worker(queue, store, tmp_path):
        first = queue.wait(queue.put(build_job("late", deadline_s=30)), LONG_S).output
        store.proxy.choose_fault = lambda request: None
        stored = store.count_checkpoints("late")
        second = queue.wait(queue.put(build_job("late")), LONG_S).output

    read = first["documents"][0]["pages"]["read"]
    assert first["status"] == "partial_success"
    assert {problem["code"] for problem in first["problems"]} == {"DEADLINE"}
    assert not first["documents"][0].get("artefacts") and first["documents"][0]["left"]
    assert first["documents"][0]["pages"] == {"read": read, "unread": PAGES - read}
    assert 0 < read <= stored < PAGES  # a put in flight may have been performed
    assert second["status"] == "success"
    assert second["documents"][0]["usage"]["pages_read_now"] == PAGES - stored
    assert_same_artefacts(store, "late", undisturbed)


def test_a_worker_frozen_past_a_deadline_reads_on(
    store: ProxiedStore, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    """A worker frozen past a deadline, as in a restored snapshot, ends that job and reads on over new connections."""
    frozen_s = 20
    with LoopbackQueue() as queue, start_worker(queue, store, tmp_path) as process:
        job = queue.put(build_job("thawed", deadline_s=frozen_s))
        wait_until(lambda: store.count_checkpoints("thawed") > 2)
        with process.freeze():
            time.sleep(frozen_s)
            connections_cut = store.proxy.close_connections()
        thawed_at = time.monotonic()
        first = queue.wait(job, 60).output
        answered_s = time.monotonic() - thawed_at
        stored = store.count_checkpoints("thawed")
        second = queue.wait(queue.put(build_job("thawed")), LONG_S).output

    assert connections_cut > 0
    assert first["status"] == "partial_success" and {problem["code"] for problem in first["problems"]} == {"DEADLINE"}
    left = PageRange.parse(first["documents"][0]["left"]).select(PAGES)
    assert len(left) == first["documents"][0]["pages"]["unread"]
    assert len(left) >= PAGES - stored > 0  # a put in flight may have been performed
    assert answered_s < SLACK_S
    assert second["status"] == "success"
    assert second["documents"][0]["usage"]["pages_read_now"] == PAGES - stored
    assert_same_artefacts(store, "thawed", undisturbed)
    assert set(store.count_reads("thawed").values()) == {1}
    print(
        f"\n{connections_cut} connections cut; the answer came {answered_s:.1f} s after the thaw; "
        f"the next job read {PAGES - stored} pages"
    )


def test_refused_takes_and_results_are_repeated_or_redelivered(
    store: ProxiedStore, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    """Takes are repeated after errors. A result answered with 500 is posted again; one refused with 400 or 413 is lost,
    and the redelivered job is answered from its manifest.
    """
    with LoopbackQueue() as queue:
        queue.answer_takes_with([500, 204, 400, 429])
        with start_worker(queue, store, tmp_path):
            job = queue.put(build_job("whole"))  # its artefacts are finished; only the result is tested
            first = queue.wait(job, 120).output
            polls = [take.status for take in queue.takes]
            posts = [refuse_result(queue, job, status) for status in (500, 400, 413)]

    assert first["status"] == "success" and {500, 204, 400, 429} <= set(polls)
    assert posts == ["came again", "lost", "lost"]
    assert set(store.count_reads("whole").values()) == {1}


def refuse_result(queue: LoopbackQueue, job: str, status: int) -> str:
    """Redeliver the job and refuse its posts up to its result with the status; return what became of the result."""
    queue.redeliver(job)
    before = len([post for post in queue.posts(job) if is_result(post)])
    queue.answer_done_with([status] * 20)
    wait_until(lambda: len([post for post in queue.posts(job) if is_result(post)]) > before)
    queue.answer_done_with([])
    try:
        queue.wait(job, 60 if status == 500 else 12)  # only that one is posted again
    except TimeoutError:
        queue.redeliver(job)
        assert queue.wait(job, 60).output["status"] == "success"
        return "lost"
    return "came again"


def is_result(post: dict[str, Any]) -> bool:
    return post.get("status") != "IN_PROGRESS"
