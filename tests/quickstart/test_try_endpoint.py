"""scripts/try_endpoint.py: real workers on the loopback queue pass; each fault of an endpoint fails a named check."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymupdf
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from scripts import try_endpoint
from scripts.endpoint_trial import figures, jobs
from scripts.endpoint_trial.jobs import TrialJob
from scripts.endpoint_trial.runner import Trial
from tests import ROOT
from tests.fakes import s3
from tests.fakes.platform import Json, Platform, QueueBackend
from tests.fakes.queue import LoopbackQueue
from twopass.fleet.endpoints.interface import JobState, JobStatus

HANDLER = [sys.executable, str(ROOT / "handler.py")]
KEY = {"RUNPOD_API_KEY": "secret-key"}
TRUTH = json.loads(jobs.TRUTH.read_text())["pages"]


@dataclass(frozen=True)
class Run:
    code: int
    table: str
    errors: str

    def line(self, name: str) -> str:
        """The line of the check with this name, and the one below it, which may explain it."""
        (found,) = re.finditer(rf"^ +.*  {re.escape(name)}(  .*)?\n?.*$", self.table, re.M)
        return found[0]


def run_trial(*arguments: str, **environment: str) -> Run:
    """Run the script in this process, with frequent polls."""
    runner = CliRunner(env={**KEY, **environment})
    result = runner.invoke(try_endpoint.app, [*arguments, "--poll-s", "0.02"], catch_exceptions=False)
    return Run(result.exit_code, result.stdout, result.stderr)


def read_pages(source: str) -> list[str]:
    """The text of each page; what a picture shows is known."""
    data = base64.b64decode(source.partition(",")[2])
    if source.startswith("data:image/"):
        return [jobs.SENTENCES]
    with pymupdf.open("pdf", data) as document:
        return [page["text"] for page in TRUTH] if len(document) > 1 else [document[0].get_text()]


def read_job(job: Json) -> Json:
    """The answer of a worker without a bucket that reads everything, from the truth and the text layer."""
    documents = []
    for number, source in enumerate(job.get("sources") or [job["source"]]):
        pages = read_pages(source)
        first, _, last = job.get("pages", f"1-{len(pages)}").partition("-")
        chosen = pages[int(first) - 1 : int(last or first)]
        if not chosen:
            return {"status": "FAILED", "error": "PAGE_RANGE: pages: the document has 12 pages"}
        markdown = "\n".join(chosen)
        inline = {name: markdown if name == "markdown" else {} for name in job["inline"]}
        row = {"id": f"inline-{number:012x}", "source": "data:…", "status": "success", "inline": inline}
        documents.append({**row, "pages": {"read": len(chosen)}})
    output = {"status": "success", "documents": documents, "usage": {"pages_read_now": len(documents)}}
    return {"status": "COMPLETED", "output": output, "delayTime": 500, "executionTime": 2000}


def change(answer: Json, **documents_fields: Any) -> Json:
    """The answer with these fields in its first document."""
    first, *others = answer["output"]["documents"]
    return {**answer, "output": {**answer["output"], "documents": [{**first, **documents_fields}, *others]}}


@dataclass
class JobBackend:
    """An endpoint that answers jobs by a function of their input; with `resume: false` they run until cancelled."""

    answer: Callable[[Json], Json] = read_job
    cancels: bool = True
    inputs: dict[str, Json] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)

    def put(self, payload: Json) -> str:
        job_id = f"job-{len(self.inputs) + 1}"
        self.inputs[job_id] = payload["input"]
        return job_id

    def status(self, job_id: str) -> Json | None:
        job = self.inputs[job_id]
        if job_id in self.stopped and self.cancels:
            return {"status": "CANCELLED"}
        if job.get("resume") is False:
            return {"status": "IN_PROGRESS", "output": {"seq": 1}}
        return self.answer(job)

    def stop(self, job_id: str) -> None:
        self.stopped.append(job_id)


@pytest.fixture
def start_endpoint() -> Iterator[Callable[..., tuple[Platform, str]]]:
    """Start a scripted endpoint; yields it and its address."""
    with ExitStack() as stack:

        def start(backend: JobBackend | None = None, **fields: Any) -> tuple[Platform, str]:
            platform = Platform(backend or JobBackend(), **fields)
            return platform, stack.enter_context(platform.serve())

        yield start


@pytest.fixture(scope="module")
def deployed() -> Iterator[tuple[str, dict[str, str], Any]]:
    """A real worker on the loopback queue with a bucket: its address, the keys of the bucket, a client."""
    with ExitStack() as stack:
        endpoint = stack.enter_context(s3.moto_server())
        client = stack.enter_context(s3.client(endpoint, "bucket"))
        keys = s3.worker_keys(endpoint)
        queue = stack.enter_context(LoopbackQueue())
        env = {**keys, "PAGE_WORKERS": "1", "PROGRESS_INTERVAL_S": "0.05"}
        stack.enter_context(queue.worker(HANDLER, cwd=ROOT, env=env))
        yield stack.enter_context(Platform(QueueBackend(queue)).serve()), keys, client


def test_a_real_worker_passes_every_check_and_nothing_is_left(deployed: Any, tmp_path: Path) -> None:
    """Ten jobs with the shipped sample pass, the repeated one from checkpoints, and the bucket is as it was before."""
    url, keys, client = deployed
    client.put_object(Bucket="bucket", Key="try/kept", Body=b"of another run")
    report = tmp_path / "report.json"
    arguments = ["--output", "s3://bucket/try/", "--price-per-hour", "3.6", "--json", str(report)]

    run = run_trial(url, *arguments, **keys)

    assert run.code == 0, run.table + run.errors
    assert "failed" not in run.table and "not run" not in run.table
    assert s3.read_objects(client) == {"try/kept": b"of another run"}
    written = json.loads(report.read_text())
    assert written["passed"] and len(written["jobs"]) == jobs.COUNT
    assert written["figures"]["dollars"] == pytest.approx(0.01)  # ten jobs of one second, as the fake reports


def test_an_endpoint_without_bucket_passes(start_endpoint: Any) -> None:
    """What cannot be checked without checkpoints is `not run` with the reason, and the exit code is 0."""
    platform, url = start_endpoint()

    run = run_trial(url)

    assert run.code == 0, run.table + run.errors
    assert "name an --output" in run.line("repeated sample: pages read again")
    assert "the endpoint has no bucket" in run.line("artefacts")
    assert "--price-per-hour" in run.line("cost, dollars")
    assert [path for _, _, path in platform.requests if path.startswith("/runsync")] == ["/runsync?wait=10000"]
    assert all("output" not in body["input"] for body in platform.bodies)


def test_sources_differ_from_those_of_every_earlier_run() -> None:
    """Otherwise stored pages of an earlier run would answer, and deleting would remove documents of others."""
    first, second = ({json.dumps(dict(job.fields)) for job in jobs.build(mark)} for mark in ("one", "two"))

    assert len(first) == jobs.COUNT - 1  # one is repeated
    assert not first & second


@pytest.mark.parametrize(
    ("fields", "code", "advice"),
    [
        ({"key": "another"}, "ENDPOINT_DENIED", "RUNPOD_API_KEY"),
        ({"workers": None}, "ENDPOINT_DENIED", "check its id"),
        ({"workers": {"idle": 0, "throttled": 2}}, "ENDPOINT_UNAVAILABLE", "GPU types"),
        ({"workers": {"unhealthy": 1}}, "ENDPOINT_UNAVAILABLE", "worker's log"),
    ],
    ids=["wrong key", "wrong id", "throttled", "unhealthy"],
)
def test_an_endpoint_that_cannot_work_is_sent_no_job(start_endpoint: Any, fields: Json, code: str, advice: str) -> None:
    """The check of health fails with the code and says what to do, and the key is not printed."""
    platform, url = start_endpoint(**fields)

    run = run_trial(url)

    assert run.code == 1
    line = run.line("workers and jobs")
    assert "failed" in line and code in line and advice in line
    assert not platform.bodies
    assert "secret-key" not in run.table + run.errors


def test_a_first_job_that_no_worker_takes_ends_the_run(start_endpoint: Any) -> None:
    """After --wait-s the job is cancelled, no other job is sent, and the message counts the workers."""
    backend = JobBackend(lambda job: {"status": "IN_QUEUE"})
    platform, url = start_endpoint(backend, workers={"idle": 0})

    run = run_trial(url, "--wait-s", "0.1")

    assert run.code == 1
    assert "JOB_LOST" in run.line("first job: status") and "no workers" in run.line("first job: status")
    assert "first one failed" in run.line("other jobs")
    assert "1 were still open and were cancelled" in run.line("jobs")
    assert backend.stopped == ["job-1"] and len(platform.bodies) == 1


def fail_two_documents(job: Json) -> Json:
    return {"status": "FAILED", "error": "ENGINE_DEAD: gone"} if "sources" in job else read_job(job)


def drop_words(job: Json) -> Json:
    answer = read_job(job)
    return change(answer, inline={"markdown": "Water"}) if job.get("dpi") == 120 else answer


def drop_a_page(job: Json) -> Json:
    answer = read_job(job)
    return change(answer, pages={"read": 1, "failed": 1}) if job.get("dpi") == 120 else answer


def drop_a_format(job: Json) -> Json:
    answer = read_job(job)
    markdown = answer.get("output", {}).get("documents", [{}])[0].get("inline", {}).get("markdown")
    return change(answer, inline={"markdown": markdown}) if "formats" in job else answer


def accept_every_page(job: Json) -> Json:
    return read_job({**job, "pages": "1"} if job.get("pages") == "99" else job)


def confuse_errors(job: Json) -> Json:
    return {"status": "FAILED", "error": "INTERNAL: bug"} if job.get("pages") == "99" else read_job(job)


def add_a_field(job: Json) -> Json:
    answer = read_job(job)
    return (
        change(answer, colour="red") if job["source" if "source" in job else "sources"][:10] == "data:image" else answer
    )


@pytest.mark.parametrize(
    ("answer", "name", "expected"),
    [
        (fail_two_documents, "two documents: status", "ENGINE_DEAD: gone"),
        (drop_words, "some pages: words", "CANARY"),
        (drop_a_page, "some pages: pages", "INTERNAL"),
        (drop_a_format, "many formats: artefacts", "docjson"),
        (accept_every_page, "wrong pages: error", "must end with this error"),
        (confuse_errors, "wrong pages: error", "INTERNAL: bug"),
        (add_a_field, "picture: status", "contract"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_each_fault_of_a_worker_fails_a_named_check(start_endpoint: Any, answer: Any, name: str, expected: str) -> None:
    """Exactly one check fails, and its explanation names the code or what is missing, and the job."""
    _, url = start_endpoint(JobBackend(answer))

    run = run_trial(url)

    assert run.code == 1
    line = run.line(name)
    assert line.lstrip().startswith("failed") and expected in line and re.search(r"of job job-\d+", line)
    assert run.table.count("    failed   ") == 1


def test_a_cancelled_job_that_goes_on_is_reported(start_endpoint: Any) -> None:
    """The check of the job fails, and so does the one that nothing is left, with the command that cancels it."""
    _, url = start_endpoint(JobBackend(cancels=False))

    run = run_trial(url, "--wait-s", "0.5")

    assert run.code == 1
    assert "failed" in run.line("cancelled: error")
    assert "failed" in run.line("jobs") and f"{url}/cancel/ID" in run.line("jobs")


def test_a_job_that_is_read_again_is_reported(start_endpoint: Any) -> None:
    """With an output the repeated job must read no page."""

    def answer(job: Json) -> Json:
        body = read_job(job)
        return {**body, "output": {**body.get("output", {}), "result_uri": "s3://own/out/jobs/job-1/result.json"}}

    _, url = start_endpoint(JobBackend(answer))

    run = run_trial(url)

    assert "STORE_UNAVAILABLE" in run.line("repeated sample: pages read again")
    assert "aws s3 rm --recursive s3://own/out/ --exclude '*' --include 'inline-" in run.line("artefacts")
    assert "--include 'jobs/job-1*'" in run.line("artefacts")


def test_what_cannot_be_deleted_is_listed_with_the_command(start_endpoint: Any, deployed: Any) -> None:
    """Wrong credentials fail the check of what is left; the message has the store's answer and a command."""
    _, keys, _ = deployed
    _, url = start_endpoint()

    with s3.Proxy(keys["BUCKET_ENDPOINT_URL"], faults=(s3.Fault("GET", 403, "AccessDenied"),)).serve() as closed:
        run = run_trial(url, "--output", "s3://bucket/try", **{**keys, "BUCKET_ENDPOINT_URL": closed})

    line = run.line("artefacts")
    assert run.code == 1
    assert "OUTPUT_DENIED" in line and "aws s3 rm --recursive s3://bucket/try/try-" in line


def test_ctrl_c_leaves_no_job_running(start_endpoint: Any) -> None:
    """All jobs that were sent are cancelled, the exit code is 130, and the table says so."""
    backend = JobBackend(lambda job: read_job(job) if len(backend.inputs) == 1 else {"status": "IN_PROGRESS"})
    _, url = start_endpoint(backend)
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", ""), **KEY}
    command = [sys.executable, "-m", "scripts.try_endpoint", url, "--poll-s", "0.05"]
    running = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    while len(backend.inputs) < jobs.COUNT - 1:
        assert time.monotonic() < until and running.poll() is None
        time.sleep(0.02)

    running.send_signal(signal.SIGINT)
    table, _ = running.communicate(timeout=60)

    assert running.returncode == 130
    assert set(backend.stopped) >= set(backend.inputs) - {"job-1"}
    assert "were still open and were cancelled" in table


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (["x"], {"RUNPOD_API_KEY": ""}, "ENDPOINT_DENIED: RUNPOD_API_KEY is not set"),
        (["x", "--output", "folder"], {}, "INVALID_JOB: folder is not s3://"),
        (["x", "--json", "none/report.json"], {}, "folder that does not exist"),
    ],
)
def test_a_wrong_argument_is_reported_before_anything_is_sent(
    arguments: list[str], environment: dict[str, str], message: str
) -> None:
    """The exit code is 2, and the message says what to change."""
    run = run_trial(*arguments, **environment)

    assert run.code == 2
    assert message in " ".join(run.errors.split())


TRIALS = st.lists(
    st.builds(
        Trial,
        job=st.just(TrialJob("any", {})),
        id=st.just("job-1"),
        status=st.builds(
            JobStatus,
            state=st.just(JobState.ENDED),
            output=st.none(),
            error=st.none() | st.just("INTERNAL: bug"),
            seconds=st.none() | st.floats(0, 1e6),
            queued_s=st.none() | st.floats(0, 1e6),
        ),
    ),
    max_size=12,
)


@given(TRIALS, st.none() | st.floats(0, 1))
def test_figures_can_be_made_of_any_times(trials: list[Trial], price: float | None) -> None:
    """Times may be missing or zero; p50 is never above p95, and the cost is the seconds times the price."""
    found = figures.measure(trials, price)

    assert len(figures.describe(trials, price)) == len(figures.LABELS)
    assert found.get("execution_p50_s", 0) <= found.get("execution_p95_s", 0)
    if "dollars" in found and price is not None:
        assert found["dollars"] == pytest.approx(found["execution_s"] * price, rel=1e-3, abs=1e-3)
