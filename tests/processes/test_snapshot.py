"""A worker that stood still, as for a snapshot of its memory: it goes on where it was, with connections of its own."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests import ROOT
from tests.fakes import s3
from tests.fakes.queue import LoopbackQueue
from tests.processes.test_handler import build_pdf

HANDLER = [sys.executable, str(ROOT / "handler.py")]
STANDSTILL_S = 60  # longer than servers keep a connection that nobody uses


def test_a_worker_that_stood_still_for_a_minute_reads_the_next_job(tmp_path: Path) -> None:
    """All its processes stop between two jobs, and its peers close what was open; nothing is lost or repeated."""
    with s3.moto_server() as endpoint, s3.client(endpoint, "bucket") as bucket, LoopbackQueue() as queue:
        bucket.put_object(Bucket="bucket", Key="in/first.pdf", Body=build_pdf(2, "First"))
        bucket.put_object(Bucket="bucket", Key="in/second.pdf", Body=build_pdf(2, "Second"))
        proxy = s3.Proxy(endpoint)
        with proxy.serve() as url:
            env = {**s3.worker_keys(url), "BUCKET_NAME": "bucket", "PAGE_WORKERS": "2"}
            with queue.worker(HANDLER, cwd=tmp_path, env=env) as worker:
                first = queue.wait(queue.put({"input": {"source": "s3://bucket/in/first.pdf"}}), 120)
                with worker.freeze():
                    proxy.close_connections()  # a worker has none between jobs, as far as was seen
                    time.sleep(STANDSTILL_S)

                second = queue.wait(queue.put({"input": {"source": "s3://bucket/in/second.pdf"}}), 120)
                again = queue.wait(queue.put({"input": {"source": "s3://bucket/in/first.pdf"}}), 120)
                log = worker.log

    assert [job.output["status"] for job in (first, second, again)] == ["success"] * 3
    assert [job.output["usage"]["pages_read_now"] for job in (first, second, again)] == [2, 2, 0]
    assert first.output["documents"][0]["id"] == again.output["documents"][0]["id"]
    assert "Traceback" not in log
