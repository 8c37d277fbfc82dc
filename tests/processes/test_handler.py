"""handler.py run by the unmodified SDK: as a queue worker, as a local run and as a local API, with S3 over HTTP."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pymupdf
import pytest

from tests import ROOT
from tests.fakes import office_files, s3
from tests.fakes.children import has_ended, open_ends
from tests.fakes.ports import reserve_port
from tests.fakes.queue import LoopbackQueue, Outcome, Worker
from twopass.page_range import PageRange

HANDLER = [sys.executable, str(ROOT / "handler.py")]
LINES = [
    "Water works of the town",
    "The first pump was built in 1891 and rebuilt in 1934.",
    "It lifts water to the tower.",
]


RUN = json.dumps({"input": {"source": "a.pdf"}})


def build_pdf(pages: int = 2, title: str = "Chapter") -> bytes:
    with pymupdf.open() as document:
        for number in range(1, pages + 1):
            page = document.new_page()
            page.insert_text((72, 90), f"{number} {title} {number}", fontsize=18, fontname="hebo")
            page.insert_textbox((72, 120, 500, 400), "\n".join(LINES), fontsize=11)
        return bytes(document.tobytes())


@pytest.mark.parametrize("environment", [{}, {"RUNPOD_WEBHOOK_GET_JOB": "http://127.0.0.1:9/take/$ID?gpu=x"}], ids=str)
def test_without_the_sdk_it_says_what_to_install(environment: dict[str, str], tmp_path: Path) -> None:
    """Before an engine is opened, in one line and without a traceback; on RunPod, too, where it cannot be reported."""
    hidden = "import sys, runpy; sys.modules['runpod'] = None; runpy.run_path(sys.argv.pop(), run_name='__main__')"
    ran = subprocess.run(
        [sys.executable, "-c", hidden, HANDLER[1]],
        cwd=tmp_path, env={"PATH": os.environ["PATH"], **environment}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    (line,) = (ran.stdout + ran.stderr).splitlines()
    assert ran.returncode == 1
    assert "code=PLATFORM" in line and "handler.py needs runpod: run `python -m pip install" in line


@pytest.fixture(scope="module")
def proxy() -> Iterator[s3.Proxy]:
    with s3.moto_server() as endpoint:
        yield s3.Proxy(endpoint)


@pytest.fixture(scope="module")
def endpoint(proxy: s3.Proxy) -> Iterator[str]:
    with proxy.serve() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def bucket(endpoint: str) -> Iterator[Any]:
    with s3.client(endpoint, "bucket") as client:
        client.put_object(Bucket="bucket", Key="in/two.pdf", Body=build_pdf(2))
        client.put_object(Bucket="bucket", Key="in/many.pdf", Body=build_pdf(300))
        client.put_object(Bucket="bucket", Key="in/not.pdf", Body=b"PK\x03\x04 this is a zip")
        yield client


@pytest.fixture(scope="module")
def worker_on_queue(endpoint: str, bucket: Any) -> Iterator[tuple[Worker, LoopbackQueue]]:
    env = {
        **s3.worker_keys(endpoint),
        "BUCKET_NAME": "bucket",
        "BUCKET_PREFIX": "out",
        "PROGRESS_INTERVAL_S": "0.05",
        "PAGE_WORKERS": "2",
    }
    with LoopbackQueue() as queue, queue.worker(HANDLER, cwd=ROOT, env=env) as worker:
        yield worker, queue


@pytest.fixture
def queue(worker_on_queue: tuple[Worker, LoopbackQueue]) -> LoopbackQueue:
    return worker_on_queue[1]


@pytest.fixture
def worker(worker_on_queue: tuple[Worker, LoopbackQueue]) -> Worker:
    return worker_on_queue[0]


@dataclass(frozen=True)
class Isolated:
    """A worker with a misspelt setting whose S3 endpoint does not answer, and its first result."""

    queue: LoopbackQueue
    worker: Worker
    first: Outcome


@pytest.fixture(scope="module")
def isolated() -> Iterator[Isolated]:
    env = {"BUCKET_ENDPOINT_URL": "http://127.0.0.1:9", "BUCKET_ACCESS_KEY_ID": "a", "BUCKET_SECRET_ACCESS_KEY": "b"}
    env |= {"STORE_PATIENCE_S": "1", "PAGE_WORKERS": "1", "CONCURENCY": "2"}
    with LoopbackQueue() as queue, queue.worker(HANDLER, cwd=ROOT, env=env) as worker:
        yield Isolated(queue, worker, read_inline(queue))


def read_inline(queue: LoopbackQueue) -> Outcome:
    """The result of a job whose document is in its input."""
    source = "data:application/pdf;base64," + base64.b64encode(build_pdf(1)).decode()
    return queue.wait(queue.put({"input": {"source": source}}), 120)


def list_puts(proxy: s3.Proxy, path_part: str) -> list[str]:
    puts = [request.path for request in proxy.requests if request.method == "PUT"]
    return [path.partition("?")[0] for path in puts if path_part in path]


def test_a_job_is_read_and_its_artefacts_are_in_the_bucket(queue: LoopbackQueue, bucket: Any, proxy: s3.Proxy) -> None:
    """Progress is posted in order and the result last; the artefacts are where it says, the manifest written last."""
    job = queue.put({"input": {"source": "s3://bucket/in/two.pdf"}})
    outcome = queue.wait(job, 120)

    assert outcome.status == "COMPLETED"
    document = outcome.output["documents"][0]
    assert outcome.output["status"] == "success"
    assert document["pages"] == {"read": 2}
    objects = s3.read_objects(bucket)
    folder = f"out/{document['id']}/"
    assert {f"{folder}{name}" for name in ("document.json", "document.md", "manifest.json", "pages/0001.json")} <= set(
        objects
    )
    assert "rebuilt in 1934" in objects[f"{folder}document.md"].decode()
    assert json.loads(objects[f"out/jobs/{job}/progress.json"])["phase"] == "done"
    assert json.loads(objects[f"out/jobs/{job}/result.json"])["status"] == "success"
    assert list_puts(proxy, document["id"])[-1].endswith("/manifest.json")
    assert [update["seq"] for update in outcome.progress] == sorted({update["seq"] for update in outcome.progress})
    assert [update["percent"] for update in outcome.progress] == sorted(
        update["percent"] for update in outcome.progress
    )
    assert outcome.progress[-1]["phase"] == "done"
    assert "output" in queue.posts(job)[-1] and "status" not in queue.posts(job)[-1]


def test_the_first_result_and_the_log_say_how_long_the_start_took(isolated: Isolated) -> None:
    """A worker's first result says how long each stage of its start took, as the log does; later results do not."""
    first, second = isolated.first.output, read_inline(isolated.queue).output
    log = isolated.worker.log

    assert set(first["started"]) == {"imports_s", "engine_s", "workers_s", "canary_s", "ready_s"}
    assert all(seconds >= 0 for seconds in first["started"].values())
    assert "started" not in second
    assert "worker ready" in log and "imports_s" in log


def test_a_repeated_job_reads_nothing(queue: LoopbackQueue, bucket: Any, proxy: s3.Proxy) -> None:
    """If a document has a finished manifest, the same job reads and writes nothing more in the document's folder."""
    first = queue.wait(queue.put({"input": {"source": "s3://bucket/in/two.pdf"}}), 120).output["documents"][0]
    before = list_puts(proxy, first["id"])

    again = queue.wait(queue.put({"input": {"source": "s3://bucket/in/two.pdf"}}), 120).output["documents"][0]

    assert again["artefacts"] == first["artefacts"]
    assert list_puts(proxy, first["id"]) == before


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"source": "s3://bucket/in/none.pdf"}, "SOURCE_NOT_FOUND"),
        ({"source": "s3://bucket/in/not.pdf"}, "SOURCE_UNSUPPORTED"),
        ({"source": "s3://bucket/in/two.pdf", "pages": "7-9"}, "PAGE_RANGE"),
        ({"source": "s3://bucket/in/two.pdf", "colour": 1}, "INVALID_JOB: colour"),
        ({"source": "/etc/passwd"}, "INVALID_JOB: sources[0]"),
        ({"source": "s3://bucket/in/two.pdf", "output": "s3://no-such-bucket/x/"}, "OUTPUT_DENIED"),
        (
            {
                "source": "s3://bucket/in/two.pdf",
                "s3": {"access_key_id": "a", "secret_access_key": "b", "endpoint_url": "https://127.0.0.1:1"},
            },
            "SOURCE_DENIED",
        ),
    ],
    ids=["missing-key", "zip", "page-range", "unknown-field", "local-path", "no-bucket", "private-endpoint"],
)
def test_bad_input_fails_with_a_code_and_the_worker_continues(
    queue: LoopbackQueue, fields: dict[str, Any], code: str
) -> None:
    """Bad input gives an `error` string that begins with the code, and the worker takes the next job."""
    outcome = queue.wait(queue.put({"input": fields}), 120)

    assert outcome.status == "FAILED"
    assert outcome.error is not None and outcome.error.startswith(code)
    assert "Traceback" not in outcome.error


def test_one_bad_document_does_not_fail_the_whole_job(queue: LoopbackQueue) -> None:
    """If one of two documents is a zip file, the other is read and the job is a partial success."""
    outcome = queue.wait(queue.put({"input": {"sources": ["s3://bucket/in/not.pdf", "s3://bucket/in/two.pdf"]}}), 120)

    assert outcome.status == "COMPLETED"
    assert outcome.output["status"] == "partial_success"
    assert [document["status"] for document in outcome.output["documents"]] == ["failure", "success"]
    assert outcome.output["problems"][0]["code"] == "SOURCE_UNSUPPORTED"


def test_formats_asked_for_inline_are_in_the_result(queue: LoopbackQueue) -> None:
    """The formats that a job asks for inline come back in its result."""
    outcome = queue.wait(
        queue.put({"input": {"source": "s3://bucket/in/two.pdf", "inline": ["markdown", "docjson"]}}), 120
    )

    inline = outcome.output["documents"][0]["inline"]
    assert inline["markdown"].startswith("<!-- page: 1 -->")
    assert inline["docjson"]["schema"] == "docjson-1.1"


def test_a_stopped_job_posts_nothing_more_and_another_job_finishes(queue: LoopbackQueue) -> None:
    """When the platform stops a job, no more is posted for it, and other jobs of the same worker finish."""
    stopped = queue.put({"input": {"source": "s3://bucket/in/many.pdf"}})
    queue.wait_posts(stopped, 2)

    queue.stop(stopped)
    other = {"input": {"source": "s3://bucket/in/two.pdf", "resume": False}}
    first = queue.wait(queue.put(other), 120)
    posts = len(queue.posts(stopped))
    second = queue.wait(queue.put(other), 120)

    assert first.status == second.status == "COMPLETED"
    assert len(queue.posts(stopped)) == posts
    assert all(post.get("status") == "IN_PROGRESS" for post in queue.posts(stopped))


def test_no_document_text_and_no_key_reaches_the_log(queue: LoopbackQueue, worker: Worker) -> None:
    """At the default log level, the worker's log contains neither the text of a document nor the store's secret key."""
    fields = {"source": "s3://bucket/in/two.pdf", "output": "s3://bucket/logged/", "inline": ["markdown"]}
    outcome = queue.wait(queue.put({"input": fields}), 120)
    log = worker.log

    assert "rebuilt in 1934" in json.dumps(outcome.output)
    assert "worker ready" in log
    assert "rebuilt in 1934" not in log
    assert s3.SECRET not in log


def test_nothing_of_a_killed_worker_goes_on(tmp_path: Path) -> None:
    """After SIGKILL of the worker alone, all its processes end: the SDK's would tell the platform that it lives."""
    with LoopbackQueue() as queue, queue.worker(HANDLER, cwd=tmp_path, env={"PAGE_WORKERS": "1"}) as worker:
        queue.wait_ping(timeout=120)
        ends = open_ends(worker.pid)
        os.kill(worker.pid, signal.SIGKILL)

        left = [command for command, end in ends if not has_ended(end, 180)]

    assert any(" ".join(map(str, HANDLER)) in command for command, _ in ends) and len(ends) >= 2
    assert left == []


def test_an_unreachable_store_fails_only_the_jobs_that_need_it(isolated: Isolated) -> None:
    """A worker whose S3 endpoint does not answer fails S3 jobs with a code and still reads documents sent inline."""
    s3_job = isolated.queue.put({"input": {"source": "s3://bucket/in/two.pdf"}})
    s3_outcome = isolated.queue.wait(s3_job, 120)
    inline_outcome = read_inline(isolated.queue)

    assert s3_outcome.error is not None and s3_outcome.error.startswith("STORE_UNAVAILABLE")
    assert "rebuilt in 1934" in inline_outcome.output["documents"][0]["inline"]["markdown"]


def test_a_misspelt_setting_stops_no_worker(isolated: Isolated) -> None:
    """The worker serves; it warns in its log and in its first result, whose status stays, and in no later one."""
    later = read_inline(isolated.queue)
    warning = "CONCURENCY: unknown setting; did you mean CONCURRENCY?"

    assert isolated.first.output["status"] == later.output["status"] == "success"
    (problem,) = isolated.first.output["problems"]
    assert problem == {"code": "INVALID_SETTING", "severity": "warning", "message": warning}
    assert "problems" not in later.output or not later.output["problems"]
    assert warning in isolated.worker.log


def test_a_denied_output_fails_the_job_and_leaves_nothing_behind(
    queue: LoopbackQueue, proxy: s3.Proxy, bucket: Any
) -> None:
    """Credentials that may not write make the job fail with a code, and no partial artefacts are left."""
    proxy.faults += [s3.Fault("PUT", 403, "AccessDenied", "/bucket/denied/")] * 40

    outcome = queue.wait(
        queue.put({"input": {"source": "s3://bucket/in/two.pdf", "output": "s3://bucket/denied/"}}), 120
    )
    proxy.faults.clear()

    assert outcome.error is not None and outcome.error.startswith("OUTPUT_DENIED")
    assert not [key for key in s3.read_objects(bucket) if key.startswith("denied/")]


def make_environment(tmp_path: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "COLUMNS": "200", "PAGE_WORKERS": "1"}


def test_plain_handler_reads_test_input_json(tmp_path: Path) -> None:
    """`python handler.py` in a folder with a test_input.json runs that job, writes artefacts and says where."""
    (tmp_path / "two.pdf").write_bytes(build_pdf())
    (tmp_path / "test_input.json").write_text(json.dumps({"input": {"source": "two.pdf", "output": "out"}}))

    process = subprocess.run(
        HANDLER, cwd=tmp_path, env=make_environment(tmp_path), capture_output=True, text=True, timeout=120
    )

    assert process.returncode == 0, process.stderr
    assert len(list(tmp_path.glob("out/two-*/document.md"))) == 1
    assert "document.md" in process.stderr
    assert "2 pages; total " in process.stderr
    assert "Job result" not in process.stdout
    assert "\x1b" not in process.stdout + process.stderr


def test_a_local_run_with_json_logs_writes_objects(tmp_path: Path) -> None:
    """With LOG_FORMAT=json every line on stderr is an object, and the last one has the result without any text."""
    (tmp_path / "two.pdf").write_bytes(build_pdf())
    job = json.dumps({"input": {"source": "two.pdf", "output": "out", "inline": ["markdown"]}})
    environment = {**make_environment(tmp_path), "LOG_FORMAT": "json"}

    process = subprocess.run(
        [*HANDLER, "--test_input", job], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )

    *_, last = (json.loads(line) for line in process.stderr.splitlines())
    assert (last["message"], last["status"], last["documents"][0]["pages"]) == ("job finished", "success", {"read": 2})
    assert "rebuilt in 1934" not in process.stderr + process.stdout


def test_an_office_file_is_a_source_of_jobs(tmp_path: Path) -> None:
    """LibreOffice converts it in the worker; the artefacts are those of any document."""
    (tmp_path / "report.odt").write_bytes(office_files.make_odf("text"))
    job = json.dumps({"input": {"source": "report.odt", "output": "out"}})

    process = subprocess.run(
        [*HANDLER, "--test_input", job],
        cwd=tmp_path,
        env=make_environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert process.returncode == 0, process.stderr
    (markdown,) = tmp_path.glob("out/report-*/document.md")
    assert office_files.SENTENCE in markdown.read_text()


def test_a_failed_local_job_exits_with_code_1(tmp_path: Path) -> None:
    """--test_input with a missing source exits with code 1 and prints the error code."""
    job = json.dumps({"input": {"source": "missing.pdf"}})

    process = subprocess.run(
        [*HANDLER, "--test_input", job],
        cwd=tmp_path,
        env=make_environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert process.returncode == 1
    assert "failed with error: SOURCE_NOT_FOUND" in process.stdout  # the SDK's line
    assert "SOURCE_NOT_FOUND" in process.stderr  # ours


@pytest.fixture(scope="module")
def used_port() -> Iterator[str]:
    with socket.create_server(("", 0)) as listener:
        yield str(listener.getsockname()[1])


@pytest.mark.parametrize(
    ("arguments", "settings", "expected"),
    [
        ((), {"CONCURRENCY": "hunter2"}, "INVALID_SETTING reason='CONCURRENCY: Input should be a valid integer"),
        ((), {"ENGINE": "openai"}, "OPENAI_BASE_URL: engine openai needs the server's address"),
        ((), {"BUCKET_ACCESS_KEY_ID": "key"}, "BUCKET_SECRET_ACCESS_KEY: missing, but BUCKET_ACCESS_KEY_ID is set"),
        ((), {}, "INVALID_JOB reason='test_input.json: cannot be read in this folder"),
        (("--test_input", '{"input"'), {}, "INVALID_JOB reason=\"--test_input: not JSON (Expecting ':' delimiter"),
        (("--test_input", "[]"), {}, "--test_input: must be a JSON object"),
        (("--test_input", '{"input": {"source": "a.pdf", "pages": "x"}}'), {}, "pages: 'x' is not a page or range"),
        (("--test_input", RUN), {"METRICS_PORT": "USED"}, "METRICS_PORT: port USED cannot be opened"),
        (("--rp_serve_api", "--rp_api_port", "USED"), {}, "--rp_api_port: port USED cannot be opened (Address already"),
        (("--rp_s", "--rp_api_p", "http"), {}, "argument --rp_api_port: 'http' is not a port"),
        (("--rp_serve_api", "--rp_api_port=0"), {"ALLOWED_DIR": "/missing"}, "ALLOWED_DIR: /missing is not a folder"),
        ((), {"RUNPOD_REALTIME_PORT": "http"}, "RUNPOD_REALTIME_PORT: not a port"),
        ((), {"RUNPOD_REALTIME_PORT": "USED"}, "RUNPOD_REALTIME_PORT: port USED cannot be opened"),
    ],
)
def test_a_wrong_start_ends_in_one_line(
    arguments: tuple[str, ...], settings: dict[str, str], expected: str, used_port: str, tmp_path: Path
) -> None:
    """Before anything is opened, one line with a code names the setting or argument, and not its value."""

    def fill(text: str) -> str:
        return text.replace("USED", used_port)

    process = subprocess.run(
        [*HANDLER, *map(fill, arguments)],
        cwd=tmp_path,
        env={**make_environment(tmp_path), **{name: fill(value) for name, value in settings.items()}},
        capture_output=True,
        text=True,
        timeout=60,
    )

    output = process.stdout + process.stderr
    assert process.returncode == 1
    assert output.count("\n") == 1 and "hunter2" not in output
    assert "worker cannot serve" in output and fill(expected) in output


def test_the_local_api_serves_the_same_contract(tmp_path: Path) -> None:
    """With --rp_serve_api, /runsync answers with the result, and local paths are read only below ALLOWED_DIR."""
    (tmp_path / "two.pdf").write_bytes(build_pdf())
    port = reserve_port()
    env = {**make_environment(tmp_path), "ALLOWED_DIR": str(tmp_path)}
    command = [*HANDLER, "--rp_serve_api", "--rp_api_port", str(port)]
    with subprocess.Popen(
        command, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            answer = post_runsync(port, {"source": f"{tmp_path}/two.pdf", "inline": ["markdown"]})
            refused = post_runsync(port, {"source": "/etc/passwd"})
        finally:
            server.terminate()

    assert answer["status"] == "COMPLETED"
    assert "rebuilt in 1934" in answer["output"]["documents"][0]["inline"]["markdown"]
    assert refused["status"] == "FAILED"
    assert refused["error"].startswith("INVALID_JOB") and "ALLOWED_DIR" in refused["error"]


def test_an_abbreviated_flag_does_not_allow_local_paths(tmp_path: Path) -> None:
    """The SDK accepts --rp_serve for --rp_serve_api; a job sent over the network still cannot name a local path."""
    port = reserve_port()
    command = [*HANDLER, "--rp_serve", "--rp_api_port", str(port)]
    silent: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=tmp_path, env=make_environment(tmp_path), **silent) as server:
        try:
            refused = post_runsync(port, {"source": "/etc/passwd"})
        finally:
            server.terminate()

    assert refused["error"].startswith("INVALID_JOB: sources[0]")


def test_a_terminated_local_server_answers_its_running_job(tmp_path: Path) -> None:
    """On SIGTERM, a --rp_serve_api server answers the running job with the pages read and the pages left."""
    (tmp_path / "many.pdf").write_bytes(build_pdf(300))
    port = reserve_port()
    env = {**make_environment(tmp_path), "ALLOWED_DIR": str(tmp_path), "SHUTDOWN_GRACE_S": "3"}
    command = [*HANDLER, "--rp_serve_api", "--rp_api_port", str(port)]
    silent: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    fields = {"source": f"{tmp_path}/many.pdf", "output": f"{tmp_path}/out"}
    with (
        subprocess.Popen(command, cwd=tmp_path, env=env, **silent) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        pending_answer = pool.submit(post_runsync, port, fields)
        for _ in range(2400):
            if len(list(tmp_path.glob("out/many-*/pages/*.json"))) >= 2:  # which ones is random
                break
            time.sleep(0.05)
        server.terminate()
        answer = pending_answer.result(180)

    document = answer["output"]["documents"][0]
    assert document["pages"]["read"] >= 2
    assert len(PageRange.parse(document["left"]).select(300)) == document["pages"]["unread"]


def post_runsync(port: int, job_input: dict[str, Any]) -> dict[str, Any]:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120, trust_env=False) as client:
        for _ in range(900):
            try:
                return dict(client.post("/runsync", json={"input": job_input}).json())
            except httpx.ConnectError:
                time.sleep(0.2)
    raise AssertionError("the local API did not come up")
