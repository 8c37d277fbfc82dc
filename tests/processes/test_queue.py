"""LoopbackQueue against the unmodified SDK: the worker protocol that all other handler tests rely on."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.queue import BODY_LIMIT, LoopbackQueue, Worker

HANDLER = """
import asyncio
import os

import runpod
from runpod.http_client import AsyncClientSession
from runpod.serverless.modules import rp_http


async def handler(job):
    order = job["input"]
    async with AsyncClientSession() as session:
        for step in range(order.get("steps", 0)):
            await rp_http.send_result(session, {"status": "IN_PROGRESS", "output": {"step": step}}, job)
        for part in order.get("parts", []):
            await rp_http.stream_result(session, {"output": part}, job)
    await asyncio.sleep(float(os.environ.get("SLEEP") or order.get("sleep", 0)))
    return order.get("answer", {"id": job["id"], "pod": os.environ["RUNPOD_POD_ID"], "s3": job.get("s3Config")})


if __name__ == "__main__":
    concurrency = int(os.environ["CONCURRENCY"])
    runpod.serverless.start({"handler": handler, "concurrency_modifier": lambda current: concurrency})
"""


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> list[str | Path]:
    script = tmp_path_factory.mktemp("worker") / "handler.py"
    script.write_text(HANDLER)
    return [sys.executable, script]


@pytest.fixture(scope="module")
def queue() -> Iterator[LoopbackQueue]:
    with LoopbackQueue() as queue:
        yield queue


@pytest.fixture(scope="module")
def worker(queue: LoopbackQueue, command: list[str | Path]) -> Iterator[Worker]:
    """One process for all tests that leave it running: importing runpod costs two seconds."""
    with queue.worker(command, env={"CONCURRENCY": "2"}) as worker:
        yield worker


def test_a_queued_job_is_run_and_its_result_comes_back(queue: LoopbackQueue, worker: Worker) -> None:
    """The handler's return value is the job's output, and keys beside `input` reach the handler."""
    job_id = queue.put({"input": {}}, s3Config={"bucketName": "b"})

    outcome = queue.wait(job_id)

    assert outcome.status == "COMPLETED"
    assert outcome.output == {"id": job_id, "pod": worker.id, "s3": {"bucketName": "b"}}


def test_an_error_fails_the_job_and_may_ask_for_a_fresh_worker(queue: LoopbackQueue, worker: Worker) -> None:
    """A string under `error` makes the job FAILED, with the rest as output; `refresh_worker` sets `refresh`."""
    answer = {"error": "DAMAGED: page tree", "detail": {"page": 3}, "refresh_worker": True}

    outcome = queue.wait(queue.put({"input": {"answer": answer}}))

    assert (outcome.status, outcome.error) == ("FAILED", "DAMAGED: page tree")
    assert (outcome.output, outcome.refresh) == ({"detail": {"page": 3}}, True)


def test_progress_arrives_in_order_before_the_result(queue: LoopbackQueue, worker: Worker) -> None:
    """Progress posts that the handler awaits keep their order, and the result is the last body posted."""
    outcome = queue.wait(queue.put({"input": {"steps": 5, "answer": "done"}}))

    assert outcome.progress == [{"step": step} for step in range(5)]
    assert outcome.posts[-1] == {"output": "done"}


def test_streamed_parts_are_kept_beside_the_result(queue: LoopbackQueue, worker: Worker) -> None:
    """Posts to job-stream are collected in the outcome's stream and do not finish the job."""
    outcome = queue.wait(queue.put({"input": {"parts": ["one", "two"], "answer": "whole"}}))

    assert (outcome.stream, outcome.output) == (["one", "two"], "whole")


def test_a_stopped_job_posts_no_result_and_its_sibling_finishes(queue: LoopbackQueue, worker: Worker) -> None:
    """job-stop cancels one job; the other job of the same worker is not affected."""
    stopped, sibling = queue.put_batch([{"input": {"steps": 1, "sleep": 60}}, {"input": {"steps": 1, "sleep": 1}}])
    queue.wait_posts(stopped)
    queue.wait_posts(sibling)

    queue.stop(stopped)

    worker.wait_log(f'"requestId": "{stopped}", "message": "Job stopped."')
    assert queue.wait(sibling).status == "COMPLETED"
    assert queue.wait(stopped).posts == [{"status": "IN_PROGRESS", "output": {"step": 0}}]


def test_pings_name_the_running_job(queue: LoopbackQueue, worker: Worker) -> None:
    """The heartbeat carries the ids of the running jobs and the worker's own id."""
    job_id = queue.put({"input": {"steps": 1, "sleep": 60}})
    queue.wait_posts(job_id)

    ping = queue.wait_ping(job_id)
    queue.stop(job_id)

    assert ping.worker == worker.id


def test_a_result_answered_with_500_twice_is_posted_again(queue: LoopbackQueue, worker: Worker) -> None:
    """The SDK retries the post twice with the same body, and the queue accepts the third one."""
    queue.answer_done_with([500, 500, 200])

    outcome = queue.wait(queue.put({"input": {"answer": "kept"}}))

    assert outcome.status == "COMPLETED"
    assert outcome.posts == [{"output": "kept"}] * 3


@pytest.mark.parametrize("answer", ["x" * BODY_LIMIT, float("nan")], ids=["too large", "not JSON"])
def test_a_result_the_platform_refuses_is_lost(queue: LoopbackQueue, worker: Worker, answer: object) -> None:
    """The SDK does not retry after a 400: the client never sees the result, and only the log reports it."""
    job_id = queue.put({"input": {"answer": answer}})

    worker.wait_log(f'"requestId": "{job_id}", "message": "Failed to return job results. | 400')
    assert len(queue.posts(job_id)) <= 1
    with pytest.raises(TimeoutError, match=f"{job_id} has no result"):
        queue.wait(job_id, timeout=0.1)


def test_a_refused_take_is_repeated(queue: LoopbackQueue, worker: Worker) -> None:
    """A long poll that is open ends at once with the scripted status, and the next poll gets the job."""
    queue.answer_takes_with(500)

    outcome = queue.wait(queue.put({"input": {"answer": "taken"}}))

    assert outcome.output == "taken"
    assert 500 in [take.status for take in queue.takes]


def test_a_batch_take_gets_as_many_jobs_as_the_worker_has_slots(command: list[str | Path]) -> None:
    """Three queued jobs go to a worker with concurrency 3 in one take and run at once."""
    with LoopbackQueue() as queue:
        job_ids = queue.put_batch([{"input": {"steps": 1, "sleep": 1}}] * 3)

        with queue.worker(command, env={"CONCURRENCY": "3"}):
            outcomes = [queue.wait(job_id) for job_id in job_ids]
            first = queue.takes[0]

    assert (first.batch_size, first.job_ids) == (3, tuple(job_ids))
    assert [outcome.status for outcome in outcomes] == ["COMPLETED"] * 3


def test_a_killed_workers_job_is_done_by_a_second_worker(command: list[str | Path]) -> None:
    """`kill` ends the SDK's ping child too, so that after redelivery only the second worker reports the job."""
    with LoopbackQueue() as queue, queue.worker(command, env={"CONCURRENCY": "1", "SLEEP": "600"}) as first:
        job_id = queue.put({"input": {"steps": 1}})
        queue.wait_posts(job_id)
        first.kill()

        queue.redeliver(job_id)
        with queue.worker(command, env={"CONCURRENCY": "1", "SLEEP": "5"}) as second:
            queue.wait_posts(job_id, 2)
            earlier_pings = len(queue.pings)  # the last one of the first worker may have come after its end
            outcome = queue.wait(job_id)
            queue.wait_ping(worker=second.id)
            later_pings = queue.pings[earlier_pings:]

    assert outcome.output["pod"] == second.id
    assert {ping.worker for ping in later_pings} == {second.id}


def test_a_terminated_worker_finishes_its_job_and_exits_without_waiting_for_its_polls(
    command: list[str | Path],
) -> None:
    """After SIGTERM the running job's result is still posted, the exit code is 0, and open long polls are dropped."""
    with LoopbackQueue(hold_s=600) as queue, queue.worker(command, env={"CONCURRENCY": "2"}) as worker:
        job_id = queue.put({"input": {"steps": 1, "sleep": 1}})
        queue.wait_posts(job_id)

        worker.terminate()
        code = worker.wait(timeout=180)

        assert (code, queue.wait(job_id).status) == (0, "COMPLETED")
