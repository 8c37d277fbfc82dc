"""`twopass submit`: documents become an endpoint's jobs, against real workers and an endpoint that misbehaves."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymupdf
import pytest
from typer.testing import CliRunner

from tests import ROOT
from tests.fakes import s3
from tests.fakes.platform import Json, Platform, QueueBackend, ScriptedBackend
from tests.fakes.queue import LoopbackQueue
from tests.fakes.terminal import run_in_terminal
from twopass.cli.app import app
from twopass.fleet.ledger import Ledger

FLEET = ROOT / "docs" / "fleet.md"
HANDLER = [sys.executable, str(ROOT / "handler.py")]
VOLATILE = ("manifest.json", "jobs/")


def pdf(pages: int, title: str = "Chapter") -> bytes:
    with pymupdf.open() as document:
        for number in range(1, pages + 1):
            page = document.new_page()
            page.insert_text((72, 90), f"{number} {title} {number}", fontsize=18, fontname="hebo")
            page.insert_textbox((72, 120, 500, 400), f"It lifts water to tower {number}.\n" * 3, fontsize=11)
        return bytes(document.tobytes())


@dataclass(frozen=True)
class Run:
    code: int
    errors: str
    output: str


@pytest.fixture(autouse=True)
def working_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command runs in the folder, with a key in the environment."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("RUNPOD_API_KEY", "secret-key")


def submit(*arguments: str, **environment: str) -> Run:
    """Run the command in this process, with frequent polls, and without counting pages unless it slices."""
    defaults = [] if "--slice-pages" in arguments else ["--slice-pages", "0"]
    runner = CliRunner(env={"COLUMNS": "200", **environment})
    result = runner.invoke(app, ["submit", *arguments, "--poll-s", "0.02", *defaults], catch_exceptions=False)
    return Run(result.exit_code, result.stderr, result.stdout)


def spawn_submit(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start the command as a process of its own."""
    env = {"PATH": os.environ["PATH"], "HOME": os.getcwd(), "RUNPOD_API_KEY": "secret-key", **environment}
    return subprocess.Popen(
        [sys.executable, "-m", "twopass.cli", "submit", *arguments], env=env, stderr=subprocess.PIPE, text=True
    )


def read_summary(folder: Path) -> Json:
    return dict(json.loads((folder / "submitted" / "submit_summary.json").read_text()))


def succeed(job: Json, **changes: Any) -> Json:
    """The answer of a worker that read the whole document."""
    document = {"id": "one-0123456789ab", "source": job["source"][:80], "status": "success", "pages": {"read": 1}}
    usage = {"pages_read_now": 1, "engine_s": 2.0}
    output = {"status": "success", "documents": [{**document, **changes}], "problems": [], "usage": usage}
    return {"status": "COMPLETED", "output": output, "executionTime": 3000}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "one.pdf").write_bytes(pdf(1))
    return tmp_path


@pytest.fixture(scope="module")
def fleet() -> Iterator[tuple[LoopbackQueue, list[Any], str, dict[str, str], Any]]:
    """Three worker processes with one page worker each, on one queue and one S3."""
    with ExitStack() as stack:
        endpoint = stack.enter_context(s3.moto_server())
        client = stack.enter_context(s3.client(endpoint, "bucket"))
        keys = s3.worker_keys(endpoint)
        env = {**keys, "PAGE_WORKERS": "1", "CONCURRENCY": "1", "PROGRESS_INTERVAL_S": "0.1", "PRICE_PER_SECOND": "0.5"}
        queue = stack.enter_context(LoopbackQueue())
        workers = [stack.enter_context(queue.worker(HANDLER, cwd=ROOT, env=env)) for _ in range(3)]
        url = stack.enter_context(Platform(QueueBackend(queue)).serve())
        queue.wait_asked(workers)  # otherwise two of them might read everything
        yield queue, workers, url, keys, client


def test_sliced_jobs_and_a_killed_worker_give_the_bytes_of_one_job(fleet: Any, tmp_path: Path) -> None:
    """A document sliced over three workers, one of them killed, has the same bytes as one unsliced job."""
    queue, workers, url, keys, client = fleet
    (tmp_path / "long.pdf").write_bytes(pdf(12))
    arguments = ["--endpoint", url, "--upload", "s3://bucket/in/", "--slice-pages", "3", "--poll-s", "0.1"]
    running = spawn_submit("long.pdf", *arguments, "--output", "s3://bucket/sliced/", "--save", **keys)
    (job, worker) = wait_for_running_job(queue, workers)
    worker.kill()
    queue.redeliver(job)  # as the platform does when a worker's heartbeats stop
    _, errors = running.communicate(timeout=300)

    assert running.returncode == 0, errors
    row = read_summary(tmp_path)["documents"][0]
    assert (row["pages"], row["jobs"]) == ({"read": 12}, 5)
    assert row["cost"] > 0
    plain = queue.wait(queue.put({"input": {"source": uploaded_source(client), "output": "s3://bucket/whole/"}}), 120)
    assert plain.output["documents"][0]["id"] == row["id"]
    sliced, whole = comparable_objects(client, "sliced/"), comparable_objects(client, "whole/")
    assert len(sliced) > 12 and sliced == whole
    assert len({take.worker for take in queue.takes if take.job_ids}) == 3
    assert (tmp_path / "submitted" / row["id"] / "document.md").read_bytes() == whole[f"{row['id']}/document.md"]


def wait_for_running_job(queue: LoopbackQueue, workers: list[Any]) -> tuple[str, Any]:
    """Wait for a job that a worker has started; returns its id and the worker."""
    until = time.monotonic() + 180
    while time.monotonic() < until:
        for take in queue.takes:
            for job in take.job_ids:
                if queue.posts(job) and queue.snapshot(job).status == "IN_PROGRESS":  # type: ignore[union-attr]
                    return job, next(worker for worker in workers if worker.id == take.worker)
        time.sleep(0.05)
    raise AssertionError("no worker started a job")


def uploaded_source(client: Any) -> str:
    """The URI of the file that the command uploaded."""
    return "s3://bucket/" + next(key for key in s3.read_objects(client) if key.startswith("in/"))


def comparable_objects(client: Any, prefix: str) -> dict[str, bytes]:
    """The objects that two runs must have in common: without manifest, job files and the cost in checkpoints."""
    objects = {}
    for page in client.get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix=prefix):
        for entry in page.get("Contents", ()):
            name = entry["Key"].removeprefix(prefix)
            if not any(part in name for part in VOLATILE):
                data = client.get_object(Bucket="bucket", Key=entry["Key"])["Body"].read()
                objects[name] = without_cost(data) if "/pages/" in name else data
    return objects


def without_cost(checkpoint: bytes) -> bytes:
    return json.dumps({name: value for name, value in json.loads(checkpoint).items() if name != "cost"}).encode()


def test_s3_prefixes_and_small_local_files_are_read(fleet: Any, tmp_path: Path) -> None:
    """S3 objects are read in place; a small file is sent inside its job, and its inline results become files."""
    _, _, url, keys, client = fleet
    client.put_object(Bucket="bucket", Key="shelf/a.pdf", Body=pdf(1, "Alpha"))
    client.put_object(Bucket="bucket", Key="shelf/notes.txt", Body=b"no document")
    (tmp_path / "b.pdf").write_bytes(pdf(1, "Beta"))

    shelf = submit(
        "s3://bucket/shelf/",
        "--endpoint",
        url,
        "--output",
        "s3://bucket/o/",
        **keys,
    )
    alone = submit("b.pdf", "--endpoint", url, "--folder", "alone")

    assert (shelf.code, alone.code) == (0, 0), shelf.errors + alone.errors
    assert [row["source"] for row in read_summary(tmp_path)["documents"]] == ["s3://bucket/shelf/a.pdf"]
    assert "Beta" in next((tmp_path / "alone").glob("*/document.md")).read_text()


@dataclass(frozen=True)
class Jobs:
    """The jobs that an endpoint got for one document: those that read, those that ended as duplicates of these."""

    reading: set[str]
    duplicates: dict[str, str]


def wait_for_jobs(queue: LoopbackQueue, count: int) -> Jobs:
    """Wait until the last `count` jobs of the queue have ended."""
    ended = {name: queue.wait(name, 120) for name in queue.job_ids[-count:]}
    bodies = {name: (job.output or {}).get("detail") or job.output for name, job in ended.items()}
    duplicates = {name: body["duplicate_of"] for name, body in bodies.items() if "duplicate_of" in body}
    return Jobs({name for name, body in bodies.items() if body.get("usage", {}).get("pages_read_now")}, duplicates)


def test_a_job_whose_answer_is_cut_off_is_read_once(fleet: Any, tmp_path: Path) -> None:
    """The request is repeated, so that there are two jobs: one reads, the other names it and ends."""
    queue, _, _, keys, client = fleet
    client.put_object(Bucket="bucket", Key="cut/a.pdf", Body=pdf(4, "Cut"))
    cuts = [False]
    platform = Platform(QueueBackend(queue), answers_run=lambda: cuts.pop() if cuts else True)

    with platform.serve() as url:
        run = submit("s3://bucket/cut/", "--endpoint", url, "--output", "s3://bucket/cut-out/", **keys)

    assert run.code == 0, run.errors
    assert read_summary(tmp_path)["documents"][0]["pages"] == {"read": 4}
    assert len(platform.bodies) == 2
    jobs = wait_for_jobs(queue, 2)
    assert len(jobs.reading) == 1 and set(jobs.duplicates.values()) == jobs.reading
    assert find_writers(client, "cut-out/") == jobs.reading


def test_a_killed_command_leaves_no_unknown_job(fleet: Any, tmp_path: Path) -> None:
    """Killed before the endpoint answered, the command finds its job when it is repeated, and follows it."""
    queue, _, _, keys, client = fleet
    client.put_object(Bucket="bucket", Key="killed/a.pdf", Body=pdf(4, "Killed"))
    queued, killed = threading.Event(), threading.Event()

    def answers_run() -> bool:
        if queued.is_set():
            return True
        queued.set()
        killed.wait(120)
        return False

    platform = Platform(QueueBackend(queue), answers_run=answers_run)
    with platform.serve() as url:
        arguments = ["s3://bucket/killed/", "--endpoint", url, "--output", "s3://bucket/killed-out/"]
        running = spawn_submit(*arguments, "--slice-pages", "0", **keys)
        assert queued.wait(120)
        running.kill()
        running.communicate()
        killed.set()
        run = submit(*arguments, **keys)

    assert run.code == 0, run.errors
    assert read_summary(tmp_path)["documents"][0]["pages"] == {"read": 4}
    assert len({body["input"]["idempotency_key"] for body in platform.bodies}) == 1
    jobs = wait_for_jobs(queue, 2)
    assert len(jobs.reading) == 1 and set(jobs.duplicates.values()) == jobs.reading
    assert find_writers(client, "killed-out/") == jobs.reading
    assert Ledger(tmp_path / "submitted" / "state.jsonl").open_jobs == {}


def find_writers(client: Any, prefix: str) -> set[str]:
    """The ids of the jobs that stored the pages below the prefix."""
    listed = client.list_objects_v2(Bucket="bucket", Prefix=prefix)["Contents"]
    pages = [entry["Key"] for entry in listed if "/pages/" in entry["Key"]]
    assert len(pages) == 4
    return {json.loads(client.get_object(Bucket="bucket", Key=page)["Body"].read())["cost"]["job"] for page in pages}


@pytest.fixture
def start_endpoint(folder: Path) -> Iterator[Callable[..., tuple[Platform, str]]]:
    """Start an endpoint that answers each job by a function of its input."""
    with ExitStack() as stack:

        def start(answer: Callable[[Json], Json | None], **fields: Any) -> tuple[Platform, str]:
            platform = Platform(ScriptedBackend(answer), **fields)
            return platform, stack.enter_context(platform.serve())

        yield start


def test_a_rate_limit_is_obeyed(folder: Path, start_endpoint: Any) -> None:
    """After a 429 no request is sent before Retry-After is over, and no job is lost."""
    platform, url = start_endpoint(succeed, refusals=[(429, "1")])

    run = submit("one.pdf", "--endpoint", url)

    times = [at for at, _, path in platform.requests if path == "/run"]
    assert run.code == 0, run.errors
    assert len(times) == 2 and times[1] - times[0] >= 1
    assert platform.bodies[0]["policy"] == {"executionTimeout": 600_000}


def test_a_busy_endpoint_is_retried_and_a_wrong_key_is_not(folder: Path, start_endpoint: Any) -> None:
    """500 and 503 are retried; 401 ends the run with exit code 3 and says what to check."""
    _, busy = start_endpoint(succeed, refusals=[(500, None), (503, "0")])
    wrong, url = start_endpoint(succeed, key="another")

    assert submit("one.pdf", "--endpoint", busy).code == 0
    refused = submit("one.pdf", "--endpoint", url, "--folder", "x")

    assert refused.code == 3
    assert "ENDPOINT_DENIED" in refused.errors and "RUNPOD_API_KEY" in refused.errors
    assert len(wrong.requests) == 1
    assert "secret-key" not in refused.errors


@pytest.mark.parametrize(
    "lost",
    [
        None,
        {"status": "TIMED_OUT"},
        {"status": "COMPLETED"},
        {"status": "FAILED", "error": "ENGINE_DEAD: gone"},
        {"status": "FAILED", "error": "SHUTDOWN: stopped", "output": {"detail": {"documents": []}}},
    ],
    ids=["forgotten", "timed out", "result lost", "engine dead", "shut down"],
)
def test_a_lost_job_is_sent_again(folder: Path, start_endpoint: Any, lost: Json | None) -> None:
    """A job that may succeed at another attempt is sent again; pages that were read are in the store."""
    answers = [lost]
    platform, url = start_endpoint(lambda job: answers.pop() if answers else succeed(job))

    run = submit("one.pdf", "--endpoint", url)

    assert run.code == 0, run.errors
    assert len(platform.bodies) == 2


@pytest.mark.parametrize(
    ("answer", "sent", "code"),
    [
        ({"status": "TIMED_OUT"}, 2, "JOB_LOST"),
        ({"status": "FAILED", "error": "ENCRYPTED: the PDF is encrypted"}, 1, "ENCRYPTED"),
        ({"status": "CANCELLED"}, 1, "JOB_LOST"),
        ({"status": "FAILED", "error": "ENGINE_DEAD: gone"}, 2, "ENGINE_DEAD"),
    ],
)
def test_a_failed_job_is_reported_with_its_code(
    folder: Path, start_endpoint: Any, answer: Json, sent: int, code: str
) -> None:
    """The exit code is 1, the summary has the error code, and no job is sent that could not help."""
    platform, url = start_endpoint(lambda job: answer)

    run = submit("one.pdf", "--endpoint", url, "--tries", "2")

    assert run.code == 1
    assert read_summary(folder)["documents"][0]["error"].startswith(code)
    assert len(platform.bodies) == sent


def test_a_job_that_makes_progress_is_not_given_up(folder: Path, start_endpoint: Any) -> None:
    """Pages left by a deadline are requested until none is left if each run stores some, whatever `--tries` says."""
    unread_counts = [3, 2, 1, 0]

    def answer(job: Json) -> Json:
        unread = unread_counts.pop(0)
        body = succeed(job, pages={"read": 4 - unread, "unread": unread} if unread else {"read": 4})
        body["output"] |= {"status": "partial_success" if unread else "success", "store": "conditional"}
        return body

    platform, url = start_endpoint(answer)
    run = submit("one.pdf", "--endpoint", url, "--tries", "1", "--price-per-hour", "3600")

    assert run.code == 0, run.errors
    assert len(platform.bodies) == 4
    assert read_summary(folder)["cost"] == 8.0  # four jobs with two engine seconds each
    assert read_summary(folder)["cost_per_1000_pages"] == 2000.0  # each job read one of four pages


def test_a_repeated_command_sends_only_what_is_missing(folder: Path, start_endpoint: Any) -> None:
    """Successful jobs are in the state file; only a new or changed document is sent."""
    platform, url = start_endpoint(succeed)
    command = ["one.pdf", "two.pdf", "--endpoint", url]
    (folder / "two.pdf").write_bytes(pdf(2))

    submit("one.pdf", "--endpoint", url)
    submit(*command)
    again = submit(*command)
    (folder / "two.pdf").write_bytes(pdf(3))
    submit(*command)

    assert again.code == 0, again.errors
    assert len(platform.bodies) == 3
    assert read_summary(folder)["total_documents"] == 2


def test_a_running_job_is_picked_up_after_ctrl_c(folder: Path, start_endpoint: Any) -> None:
    """The stopped command says how many jobs go on; the same command waits for them and sends no new one."""
    ready: list[bool] = []
    platform, url = start_endpoint(
        lambda job: succeed(job) if ready else {"status": "IN_PROGRESS", "output": {"seq": 1}}
    )
    running = spawn_submit("one.pdf", "--endpoint", url, "--slice-pages", "0", "--poll-s", "0.05")
    until = time.monotonic() + 120
    while not any(path.startswith("/status") for _, _, path in list(platform.requests)):
        assert time.monotonic() < until and running.poll() is None
        time.sleep(0.05)

    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=180)
    ready.append(True)
    again = submit("one.pdf", "--endpoint", url)

    assert running.returncode == 130
    assert "1 jobs go on" in errors
    assert again.code == 0, again.errors
    assert len(platform.bodies) == 1


def test_a_second_command_on_the_folder_is_refused(folder: Path, start_endpoint: Any) -> None:
    """It sends and cancels nothing and names the first command; the folder is free when the first one is killed."""
    ready: list[bool] = []
    platform, url = start_endpoint(lambda job: succeed(job) if ready else {"status": "IN_PROGRESS"})
    running = spawn_submit("one.pdf", "--endpoint", url, "--slice-pages", "0", "--poll-s", "0.05")
    until = time.monotonic() + 120
    while not platform.bodies:
        assert time.monotonic() < until and running.poll() is None
        time.sleep(0.05)

    refused = [submit("one.pdf", "--endpoint", url), submit("--cancel", "--endpoint", url)]
    running.kill()
    running.communicate()
    ready.append(True)
    again = submit("one.pdf", "--endpoint", url)

    for run in refused:
        assert run.code == 2
        assert "IN_USE" in run.errors and f"process {running.pid} on {socket.gethostname()}, since 20" in run.errors
    assert again.code == 0, again.errors
    assert len(platform.bodies) == 1 and not platform.backend.stopped


@pytest.mark.parametrize("fields", [{}, {"output": "s3://bucket/out/", "resume": False}])
def test_a_job_whose_pages_are_not_kept_is_given_up(folder: Path, start_endpoint: Any, fields: Json) -> None:
    """Without an output, or with resume false, each run reads the same pages: `--tries` of them are enough."""

    def answer(job: Json) -> Json:
        body = succeed(job, pages={"read": 30, "unread": 70}, status="partial_success")
        body["output"] |= {"status": "partial_success", "usage": {"pages_read_now": 30, "engine_s": 2.0}}
        return body

    platform, url = start_endpoint(answer)
    run = submit("one.pdf", "--endpoint", url, "--tries", "2", "--job", json.dumps(fields))

    (row,) = read_summary(folder)["documents"]
    assert run.code == 1
    assert (len(platform.bodies), row["runs"]) == (2, 2)
    assert row["error"].startswith("JOB_LOST: 70 pages unread; given up after 2 runs")
    assert "given up after 2 runs" in run.errors


def test_a_campaign_ends_at_its_limit_in_dollars(folder: Path, start_endpoint: Any) -> None:
    """What is left is counted and not sent, also by the repeated command, and read when the limit is raised."""
    for number in range(6):
        (folder / f"{number}.pdf").write_bytes(pdf(1, f"Part {number}"))
    platform, url = start_endpoint(succeed)
    command = [*(f"{number}.pdf" for number in range(6)), "--endpoint", url, "--in-flight", "1"]

    first = submit(*command, "--max-cost", "5", "--price-per-hour", "3600")
    summary = read_summary(folder)
    again = submit(*command, "--max-cost", "5", "--price-per-hour", "3600")
    sent = len(platform.bodies)
    raised = submit(*command, "--max-cost", "100", "--price-per-hour", "3600")

    assert (first.code, again.code, raised.code) == (1, 1, 0)
    assert (summary["success"], summary["failed"], summary["unsent"], summary["cost"]) == (2, 0, 4, 4.0)
    assert summary["limit"].startswith("COST_LIMIT: --max-cost 5: $4.0000 are spent, 0 jobs in flight")
    assert "4 documents were not sent: COST_LIMIT" in first.errors
    assert (sent, len(platform.bodies)) == (2, 6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-cost", "5"], "INVALID_SETTING: --max-cost: set --price-per-hour"),
        (["--max-cost", "5", "--price-per-hour", "0"], "INVALID_SETTING: --max-cost: set --price-per-hour"),
        (["--max-cost", "nan", "--price-per-hour", "1"], "'--max-cost': 'nan' is not a number from 0 on"),
        (["--max-cost", "5", "--price-per-hour", "inf"], "'--price-per-hour': 'inf' is not a number from 0 on"),
    ],
)
def test_a_limit_without_a_price_is_refused(
    folder: Path, start_endpoint: Any, arguments: list[str], message: str
) -> None:
    """Before anything is sent, the error says what to set."""
    platform, url = start_endpoint(succeed)

    run = submit("one.pdf", "--endpoint", url, *arguments)

    assert run.code == 2 and message in run.errors
    assert not platform.bodies


def test_cancel_ends_the_jobs_of_an_earlier_run(folder: Path, start_endpoint: Any) -> None:
    """`--cancel` ends the jobs that an earlier run left at the endpoint, so that they cost nothing more."""
    platform, url = start_endpoint(succeed)
    Ledger(folder / "submitted" / "state.jsonl").record_job("key", "job-7")
    Ledger(folder / "submitted" / "state.jsonl").record_sending("other", "other-1")

    run = submit("--cancel", "--endpoint", url)

    assert run.code == 0, run.errors
    assert platform.backend.stopped == ["job-7"]
    assert "1 jobs may be at the endpoint too" in run.errors
    assert Ledger(folder / "submitted" / "state.jsonl").open_jobs == {}


def test_the_cost_includes_failed_slices(folder: Path, start_endpoint: Any) -> None:
    """A document's cost is the sum of all its jobs; the last one reads what a lost slice left."""

    def answer(job: Json) -> Json:
        return {"status": "TIMED_OUT", "executionTime": 5000} if job.get("slice") == "1-2" else succeed(job)

    (folder / "long.pdf").write_bytes(pdf(4))
    _, url = start_endpoint(answer)
    arguments = ["--slice-pages", "2", "--upload", str(folder / "up"), "--tries", "2", "--price-per-hour", "3600"]
    run = submit("long.pdf", "--endpoint", url, *arguments)

    assert run.code == 0, run.errors
    assert read_summary(folder)["cost"] == 14.0  # two lost jobs of five seconds, two successful ones of two
    assert read_summary(folder)["documents"][0]["jobs"] == 3


def test_a_lost_job_keeps_the_pages_and_cost_of_its_attempts(folder: Path, start_endpoint: Any) -> None:
    """The first attempt's pages and cost, and the seconds of all attempts, are kept."""
    partial = succeed({"source": "x"}, pages={"read": 3, "unread": 1}, status="partial_success")
    usage = {"pages_read_now": 3, "engine_s": 2.0, "cost": 0.5}
    partial["output"] |= {"status": "partial_success", "usage": usage, "store": "conditional"}
    answers = [partial]
    _, url = start_endpoint(lambda job: answers.pop() if answers else {"status": "TIMED_OUT", "executionTime": 5000})

    run = submit("one.pdf", "--endpoint", url, "--tries", "2")

    (row,) = read_summary(folder)["documents"]
    assert run.code == 1
    assert row["error"].startswith("JOB_LOST") and row["pages"] == {"read": 3, "unread": 1}
    assert read_summary(folder)["cost"] == 0.5 and row["seconds"] == 12.0


def test_the_documented_command_for_a_list_works(folder: Path, start_endpoint: Any) -> None:
    """The command of docs/fleet.md, with another endpoint, sends every document of the list with the given fields."""
    (line,) = re.findall(r"^\.venv/bin/twopass submit (@papers\.txt .*)$", FLEET.read_text(), re.M)
    (folder / "papers.txt").write_text("# two of them\none.pdf\n\ntwo.pdf\n")
    (folder / "two.pdf").write_bytes(pdf(2))
    platform, url = start_endpoint(succeed)

    run = submit(*shlex.split(line.replace("ENDPOINT_ID", url)))

    assert run.code == 0, run.errors
    sent = [body["input"] for body in platform.bodies]
    assert len(sent) == 2
    assert all((job["mode"], job["pages"], job["output"]) == ("base", "1-20", "s3://bucket/out/") for job in sent)


def test_jobs_in_flight_are_limited(folder: Path, start_endpoint: Any) -> None:
    """The limit holds for all documents and slices together."""
    polls: dict[str, int] = {}
    in_flight = []

    def answer(job: Json) -> Json:
        name = job.get("slice", "all")
        polls[name] = polls.get(name, 0) + 1
        in_flight.append(len(platform.bodies) - sum(count > 2 for count in polls.values()))
        return succeed(job) if polls[name] > 2 else {"status": "IN_PROGRESS"}

    (folder / "long.pdf").write_bytes(pdf(12))
    platform, url = start_endpoint(answer)
    arguments = ["--slice-pages", "2", "--in-flight", "2", "--upload", str(folder / "up")]
    run = submit("long.pdf", "--endpoint", url, *arguments)

    assert run.code == 0, run.errors
    assert len(platform.bodies) == 7
    assert max(in_flight) <= 2
    assert "slice" not in platform.bodies[-1]["input"]


def test_a_dry_run_estimates_and_sends_nothing(folder: Path) -> None:
    """Pages, jobs, minutes and dollars are printed without an endpoint."""
    (folder / "long.pdf").write_bytes(pdf(250))

    figures = ["--pages-per-s", "2", "--workers", "2", "--price-per-hour", "3.6"]
    run = submit("one.pdf", "long.pdf", "--dry-run", "--slice-pages", "100", *figures)

    estimate = json.loads(run.output)
    assert run.code == 0, run.errors
    assert (estimate["documents"], estimate["pages"], estimate["jobs"]) == (2, 251, 5)
    assert (estimate["minutes"], estimate["dollars"]) == (1.0, 0.1255)
    assert not (folder / "submitted").exists()
    assert "minutes" not in run.errors and "dollars" not in run.errors  # the table of documents is all


def test_a_dry_run_on_a_terminal_prints_its_estimate_once(folder: Path) -> None:
    """For a person, with the words of the JSON that a program gets."""
    command = [sys.executable, "-m", "twopass.cli", "submit", "one.pdf", "--dry-run", "--price-per-hour", "3.6"]

    code, written = run_in_terminal(command, folder, {"PATH": os.environ["PATH"], "HOME": str(folder)})

    assert code == 0
    assert written.count("documents: 1\r\n") == written.count("dollars: ") == 1
    assert '"documents"' not in written


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.pdf", "--endpoint", "x"], "SOURCE_NOT_FOUND: none.pdf"),
        (["one.pdf", "--endpoint", "x", "--job", '{"colour": 1}'], "INVALID_JOB: colour"),
        (["one.pdf", "--endpoint", "x", "--job", '{"idempotency_key": "k"}'], "INVALID_JOB: idempotency_key: leave it"),
    ],
)
def test_a_wrong_argument_is_reported_before_anything_is_sent(folder: Path, arguments: list[str], message: str) -> None:
    """The exit code is 2, and one line says what is wrong."""
    run = submit(*arguments)

    assert run.code == 2
    assert message in run.errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["one.pdf"], "a --local URL"), ([], "at least one file"), (["a", "--job", "[]"], "JSON object")],
)
def test_an_incomplete_command_names_what_is_missing(arguments: list[str], message: str) -> None:
    """A command without documents or an endpoint ends with exit code 2 and says what to add."""
    run = submit(*arguments, *(["--endpoint", "x"] if "--job" in arguments else []))

    assert run.code == 2
    assert message in run.errors


def test_a_file_too_large_for_a_job_fails_alone(folder: Path, start_endpoint: Any) -> None:
    """The error names --upload, and the other documents are read."""
    _, url = start_endpoint(succeed)
    (folder / "big.pdf").write_bytes(pdf(1) + b"\n" * 7_000_001)

    run = submit("one.pdf", "big.pdf", "--endpoint", url)

    rows = read_summary(folder)["documents"]
    assert run.code == 1
    assert rows[0]["status"] == "success"
    assert "--upload" in rows[1]["error"]


def test_the_state_file_contains_no_password(folder: Path, start_endpoint: Any) -> None:
    """Only a hash of the job's input is written."""
    _, url = start_endpoint(succeed)

    submit("one.pdf", "--endpoint", url, "--job", '{"password": "swordfish"}')

    assert "swordfish" not in (folder / "submitted" / "state.jsonl").read_text()
