"""handler.py behind the unmodified SDK: the loopback queue, the local run and the local API, S3 over HTTP."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pymupdf
import pytest

from tests import ROOT
from tests.fakes import s3
from tests.fakes.queue import LoopbackQueue

HANDLER = [sys.executable, str(ROOT / "handler.py")]
LINES = [
    "Water works of the town",
    "The first pump was built in 1891 and rebuilt in 1934.",
    "It lifts water to the tower.",
]


def pdf(pages: int = 2, title: str = "Chapter") -> bytes:
    with pymupdf.open() as made:
        for number in range(1, pages + 1):
            page = made.new_page()
            page.insert_text((72, 90), f"{number} {title} {number}", fontsize=18, fontname="hebo")
            page.insert_textbox((72, 120, 500, 400), "\n".join(LINES), fontsize=11)
        return bytes(made.tobytes())


@pytest.fixture(scope="module")
def proxy() -> Iterator[s3.Proxy]:
    with s3.moto_server() as endpoint:
        yield s3.Proxy(endpoint)


@pytest.fixture(scope="module")
def endpoint(proxy: s3.Proxy) -> Iterator[str]:
    with proxy.running() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def bucket(endpoint: str) -> Iterator[Any]:
    with s3.client(endpoint, "bucket") as client:
        client.put_object(Bucket="bucket", Key="in/two.pdf", Body=pdf(2))
        client.put_object(Bucket="bucket", Key="in/many.pdf", Body=pdf(60))
        client.put_object(Bucket="bucket", Key="in/not.pdf", Body=b"PK\x03\x04 this is a zip")
        yield client


@pytest.fixture(scope="module")
def queue(endpoint: str, bucket: Any) -> Iterator[LoopbackQueue]:
    env = {
        "BUCKET_ENDPOINT_URL": endpoint,
        "BUCKET_ACCESS_KEY_ID": s3.KEY,
        "BUCKET_SECRET_ACCESS_KEY": s3.SECRET,
        "BUCKET_NAME": "bucket",
        "BUCKET_PREFIX": "out",
        "PROGRESS_INTERVAL_S": "0.05",
        "PAGE_WORKERS": "2",
    }
    with LoopbackQueue() as queue, queue.worker(HANDLER, cwd=ROOT, env=env):
        yield queue


def puts(proxy: s3.Proxy, under: str) -> list[str]:
    return [seen.path.partition("?")[0] for seen in proxy.seen if seen.method == "PUT" and under in seen.path]


def test_a_job_goes_in_and_its_artefacts_lie_in_the_bucket(queue: LoopbackQueue, bucket: Any, proxy: s3.Proxy) -> None:
    """The main promise: progress in order, the result last, artefacts where it says, the manifest after them."""
    job = queue.put({"input": {"source": "s3://bucket/in/two.pdf"}})
    outcome = queue.wait(job, 120)

    assert outcome.status == "COMPLETED"
    document = outcome.output["documents"][0]
    assert outcome.output["status"] == "success"
    assert document["pages"] == {"read": 2}
    objects = s3.objects(bucket)
    folder = f"out/{document['id']}/"
    assert {f"{folder}{name}" for name in ("document.json", "document.md", "manifest.json", "pages/0001.json")} <= set(
        objects
    )
    assert "rebuilt in 1934" in objects[f"{folder}document.md"].decode()
    assert json.loads(objects[f"out/jobs/{job}/progress.json"])["phase"] == "done"
    assert json.loads(objects[f"out/jobs/{job}/result.json"])["status"] == "success"
    assert puts(proxy, document["id"])[-1].endswith("/manifest.json")
    assert [now["seq"] for now in outcome.progress] == sorted({now["seq"] for now in outcome.progress})
    assert [now["percent"] for now in outcome.progress] == sorted(now["percent"] for now in outcome.progress)
    assert outcome.progress[-1]["phase"] == "done"
    assert "output" in queue.posts(job)[-1] and "status" not in queue.posts(job)[-1]


def test_the_first_result_and_the_log_tell_how_long_the_start_took(tmp_path: Path) -> None:
    """Stage by stage; results after the first do not."""
    source = "data:application/pdf;base64," + base64.b64encode(pdf(1)).decode()

    with LoopbackQueue() as queue, queue.worker(HANDLER, cwd=ROOT, env={"PAGE_WORKERS": "1"}) as worker:
        first, second = (queue.wait(queue.put({"input": {"source": source}}), 120).output for _ in range(2))
        log = worker.log

    assert set(first["started"]) == {"imports_s", "engine_s", "workers_s", "canary_s", "ready_s"}
    assert all(seconds >= 0 for seconds in first["started"].values())
    assert "started" not in second
    assert "worker ready" in log and "imports_s" in log


def test_the_same_job_again_reads_nothing(queue: LoopbackQueue, bucket: Any, proxy: s3.Proxy) -> None:
    """A finished manifest means nothing is read or written again in the document's folder."""
    first = queue.wait(queue.put({"input": {"source": "s3://bucket/in/two.pdf"}}), 120).output["documents"][0]
    before = puts(proxy, first["id"])

    again = queue.wait(queue.put({"input": {"source": "s3://bucket/in/two.pdf"}}), 120).output["documents"][0]

    assert again["artefacts"] == first["artefacts"]
    assert puts(proxy, first["id"]) == before


@pytest.mark.parametrize(
    ("fields", "begins"),
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
def test_bad_input_fails_with_a_code_and_the_worker_goes_on(
    queue: LoopbackQueue, fields: dict[str, Any], begins: str
) -> None:
    """`error` is one string that begins with the code, and the next job is taken."""
    outcome = queue.wait(queue.put({"input": fields}), 120)

    assert outcome.status == "FAILED"
    assert outcome.error is not None and outcome.error.startswith(begins)
    assert "Traceback" not in outcome.error


def test_one_bad_document_does_not_cost_the_job(queue: LoopbackQueue) -> None:
    """Of two documents one is a zip: the other is read, the job is a partial success."""
    outcome = queue.wait(queue.put({"input": {"sources": ["s3://bucket/in/not.pdf", "s3://bucket/in/two.pdf"]}}), 120)

    assert outcome.status == "COMPLETED"
    assert outcome.output["status"] == "partial_success"
    assert [document["status"] for document in outcome.output["documents"]] == ["failure", "success"]
    assert outcome.output["problems"][0]["code"] == "SOURCE_UNSUPPORTED"


def test_inline_answers_need_no_bucket(queue: LoopbackQueue) -> None:
    """What was asked for inline comes back in the answer."""
    outcome = queue.wait(
        queue.put({"input": {"source": "s3://bucket/in/two.pdf", "inline": ["markdown", "docjson"]}}), 120
    )

    inline = outcome.output["documents"][0]["inline"]
    assert inline["markdown"].startswith("<!-- page: 1 -->")
    assert inline["docjson"]["schema"] == "docjson-1.0"


def test_a_stopped_job_posts_nothing_more_and_costs_no_other(queue: LoopbackQueue) -> None:
    """A stop from the platform ends one job; one beside it finishes."""
    long = queue.put({"input": {"source": "s3://bucket/in/many.pdf"}})
    queue.wait_posts(long, 2, 60)

    queue.stop(long)
    beside = queue.wait(queue.put({"input": {"source": "s3://bucket/in/two.pdf", "pages": "1"}}), 120)
    posts = len(queue.posts(long))
    time.sleep(1)

    assert beside.status == "COMPLETED"
    assert len(queue.posts(long)) == posts
    assert all(post.get("status") == "IN_PROGRESS" for post in queue.posts(long))


def test_no_document_text_and_no_key_reaches_the_log(queue: LoopbackQueue, endpoint: str, tmp_path: Path) -> None:
    """At the shipped log level the worker's log holds neither what was read nor what opened it."""
    env = {"BUCKET_ENDPOINT_URL": endpoint, "BUCKET_ACCESS_KEY_ID": s3.KEY, "BUCKET_SECRET_ACCESS_KEY": s3.SECRET}
    with LoopbackQueue() as own, own.worker(HANDLER, cwd=ROOT, env=env) as worker:
        outcome = own.wait(own.put({"input": {"source": "s3://bucket/in/two.pdf"}}), 120)
        log = worker.log

    assert "rebuilt in 1934" in json.dumps(outcome.output)
    assert "rebuilt in 1934" not in log
    assert s3.SECRET not in log


def test_an_unreachable_store_is_told_and_inline_jobs_go_on(tmp_path: Path) -> None:
    """A worker whose endpoint is dead refuses S3 jobs with a code and still reads what comes inline."""
    env = {"BUCKET_ENDPOINT_URL": "http://127.0.0.1:9", "BUCKET_ACCESS_KEY_ID": "a", "BUCKET_SECRET_ACCESS_KEY": "b"}
    env["STORE_PATIENCE_S"] = "1"
    data = "data:application/pdf;base64," + base64.b64encode(pdf(1)).decode()
    with LoopbackQueue() as own, own.worker(HANDLER, cwd=ROOT, env=env):
        dead = own.wait(own.put({"input": {"source": "s3://bucket/in/two.pdf"}}), 120)
        alive = own.wait(own.put({"input": {"source": data}}), 120)

    assert dead.error is not None and dead.error.startswith("STORE_UNAVAILABLE")
    assert "rebuilt in 1934" in alive.output["documents"][0]["inline"]["markdown"]


def test_a_denied_output_is_told_before_anything_is_read(queue: LoopbackQueue, proxy: s3.Proxy, bucket: Any) -> None:
    """Keys without the right to write end the job with a code, and nothing half-written is left."""
    proxy.faults += [s3.Fault("PUT", 403, "AccessDenied", "/bucket/denied/")] * 40

    outcome = queue.wait(
        queue.put({"input": {"source": "s3://bucket/in/two.pdf", "output": "s3://bucket/denied/"}}), 120
    )
    proxy.faults.clear()

    assert outcome.error is not None and outcome.error.startswith("OUTPUT_DENIED")
    assert not [key for key in s3.objects(bucket) if key.startswith("denied/")]


def local_environment(tmp_path: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "COLUMNS": "200"}


def test_plain_handler_reads_test_input_json(tmp_path: Path) -> None:
    """`python handler.py` beside a test_input.json reads it, leaves artefacts and says where."""
    (tmp_path / "two.pdf").write_bytes(pdf())
    (tmp_path / "test_input.json").write_text(json.dumps({"input": {"source": "two.pdf", "output": "out"}}))

    ran = subprocess.run(
        HANDLER, cwd=tmp_path, env=local_environment(tmp_path), capture_output=True, text=True, timeout=120
    )

    assert ran.returncode == 0, ran.stderr
    assert len(list(tmp_path.glob("out/two-*/document.md"))) == 1
    assert "document.md" in ran.stderr
    assert "2/2" in ran.stderr


def test_a_failed_local_job_exits_with_one(tmp_path: Path) -> None:
    """--test_input with a missing file ends with exit code 1 and the code in the output."""
    asked = json.dumps({"input": {"source": "missing.pdf"}})

    ran = subprocess.run(
        [*HANDLER, "--test_input", asked],
        cwd=tmp_path,
        env=local_environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert ran.returncode == 1
    assert "SOURCE_NOT_FOUND" in ran.stdout + ran.stderr


def test_the_local_api_serves_the_same_contract(tmp_path: Path) -> None:
    """--rp_serve_api answers /runsync with the result, and local paths only below ALLOWED_DIR."""
    (tmp_path / "two.pdf").write_bytes(pdf())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {**local_environment(tmp_path), "ALLOWED_DIR": str(tmp_path)}
    command = [*HANDLER, "--rp_serve_api", "--rp_api_port", str(port)]
    with subprocess.Popen(
        command, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            answer = runsync(port, {"source": f"{tmp_path}/two.pdf", "inline": ["markdown"]})
            refused = runsync(port, {"source": "/etc/passwd"})
        finally:
            server.terminate()

    assert answer["status"] == "COMPLETED"
    assert "rebuilt in 1934" in answer["output"]["documents"][0]["inline"]["markdown"]
    assert refused["status"] == "FAILED"
    assert refused["error"].startswith("INVALID_JOB")


def test_an_abbreviated_flag_opens_no_door(tmp_path: Path) -> None:
    """The SDK takes --rp_serve for --rp_serve_api: a caller over the network still names no local path."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [*HANDLER, "--rp_serve", "--rp_api_port", str(port)]
    silent: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=tmp_path, env=local_environment(tmp_path), **silent) as server:
        try:
            refused = runsync(port, {"source": "/etc/passwd"})
        finally:
            server.terminate()

    assert refused["error"].startswith("INVALID_JOB: sources[0]")


def test_a_local_server_told_to_stop_answers_what_it_was_asked(tmp_path: Path) -> None:
    """SIGTERM to --rp_serve_api: the job under way is answered with what was read and what is left."""
    (tmp_path / "many.pdf").write_bytes(pdf(60))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {**local_environment(tmp_path), "ALLOWED_DIR": str(tmp_path), "SHUTDOWN_GRACE_S": "3"}
    command = [*HANDLER, "--rp_serve_api", "--rp_api_port", str(port)]
    silent: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    fields = {"source": f"{tmp_path}/many.pdf", "output": f"{tmp_path}/out"}
    with (
        subprocess.Popen(command, cwd=tmp_path, env=env, **silent) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        asked = pool.submit(runsync, port, fields)
        for _ in range(2400):
            if list(tmp_path.glob("out/many-*/pages/0002.json")):
                break
            time.sleep(0.05)
        server.terminate()
        answer = asked.result(60)

    document = answer["output"]["documents"][0]
    assert document["pages"]["read"] >= 2
    assert document["left"].endswith("-60")


def runsync(port: int, job_input: dict[str, Any]) -> dict[str, Any]:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120, trust_env=False) as client:
        for _ in range(200):
            try:
                return dict(client.post("/runsync", json={"input": job_input}).json())
            except httpx.ConnectError:
                time.sleep(0.2)
    raise AssertionError("the local API did not come up")
