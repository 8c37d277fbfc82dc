"""No log, answer or artefact contains a job's password, keys or presigned URL, however the job fails."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pymupdf

from tests.chaos.chaos import HANDLER, ROOT
from tests.fakes import s3, tls
from tests.fakes.children import find_children
from tests.fakes.ports import reserve_port
from tests.fakes.queue import LoopbackQueue

PASSWORD, KEY, SECRET, TOKEN, SIGNATURE, USER = (
    f"hunter2-{what}" for what in ("word", "id", "key", "tok", "sig", "me")
)
TEXT = "The confidential borehole"
WORKER_KEY = "hunter2-of-the-worker"


def build_pdf(pages: int = 1) -> bytes:
    with pymupdf.open() as document:
        for _ in range(pages):
            document.new_page().insert_text((72, 90), f"{TEXT} was drilled in 1891 and again in 1934.")
        document.set_metadata({"title": "Report"})
        return bytes(document.tobytes(encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw=PASSWORD, owner_pw="owner"))


@contextmanager
def serve_site(certificate: Path) -> Iterator[str]:
    """Run a web server on https://localhost whose answer depends on the path; yields its host with credentials."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind = self.path.partition("?")[0].rpartition("/")[2]
            if kind == "reset.pdf":
                self.connection.close()
                return
            status = int(kind[:3]) if kind[:3].isdigit() else 200
            self.send_response(status)
            if kind == "redirect.pdf":
                self.send_header("Location", f"https://{USER}:{SIGNATURE}@127.0.0.1:9/x?X-Amz-Signature={SIGNATURE}")
            self.end_headers()
            self.wfile.write(
                {"broken.pdf": build_pdf()[:400], "good.pdf": build_pdf(), "zip.pdf": b"PK\3\4"}.get(kind, b"")
            )

        def log_message(self, *_: Any) -> None: ...

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None: ...

    with Server(("127.0.0.1", 0), Handler) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"{USER}:{SIGNATURE}@localhost:{server.server_port}"
        server.shutdown()


def build_jobs(host: str, endpoint: str) -> Iterator[dict[str, Any]]:
    """Yield jobs that carry secrets and end in every way that a source, a store or an input can cause."""
    keys = {"access_key_id": KEY, "secret_access_key": SECRET, "session_token": TOKEN, "endpoint_url": endpoint}
    unreachable = f"http://127.0.0.1:{reserve_port()}"
    query = f"?X-Amz-Signature={SIGNATURE}&X-Amz-Security-Token={TOKEN}"
    kinds = ("good", "broken", "zip", "404", "403", "500", "reset", "302", "redirect")
    for kind in kinds:
        yield {"source": f"https://{host}/{kind}.pdf{query}", "password": PASSWORD}
    yield {"source": f"https://{host}/good.pdf{query}", "password": PASSWORD + "-wrong"}
    yield {"source": f"https://{host.replace('localhost', '127.0.0.1')}/tls.pdf{query}", "password": PASSWORD}
    for key in ("good.pdf", "missing.pdf", "zip.pdf", "broken.pdf"):
        yield {"source": f"s3://bucket/in/{key}", "password": PASSWORD, "s3": keys, "output": "s3://bucket/out/"}
    for wrong in (unreachable, f"http://{USER}:{SIGNATURE}@127.0.0.1:9", "http://["):
        yield {"source": "s3://bucket/in/good.pdf", "password": PASSWORD, "s3": {**keys, "endpoint_url": wrong}}
    yield {"source": "s3://no-such-bucket/x.pdf", "s3": keys, "output": "s3://no-such-bucket/out/"}
    yield {"source": "s3://bucket/in/good.pdf", "s3": {**keys, "colour": SECRET}}
    yield {"source": "s3://bucket/in/good.pdf", "password": {"no": PASSWORD}, "s3": keys, "dpi": SECRET}
    yield {"source": f"https://{host}/x{query}", "s3": [KEY, SECRET]}
    yield {"source": f"gopher://{host}/x{query}", "password": PASSWORD}
    yield {"source": f"data:application/pdf;base64,{PASSWORD}!", "password": PASSWORD}
    yield {"source": f"/{SIGNATURE}/x.pdf", "password": PASSWORD, "s3": keys}


def kill_page_workers(pid: int) -> None:
    for child in find_children("twopass.runtime.page_worker", pid):
        child.kill()


def test_no_failure_reveals_a_secret(tmp_path: Path) -> None:
    """Logs, posts and artefacts contain no secret after jobs of every outcome and the kill of a page worker."""
    certificate = tls.create_certificate("localhost", tmp_path / "both.pem")
    with s3.moto_server() as endpoint, s3.client(endpoint, "bucket") as bucket, serve_site(certificate) as host:
        for name, data in (
            ("good", build_pdf()),
            ("many", build_pdf(12)),
            ("broken", build_pdf()[:400]),
            ("zip", b"PK\3\4"),
        ):
            bucket.put_object(Bucket="bucket", Key=f"in/{name}.pdf", Body=data)
        env = {
            "LOG_LEVEL": "DEBUG",  # includes everything that INFO logs
            "BUCKET_ENDPOINT_URL": endpoint,
            "BUCKET_NAME": "bucket",
            "BUCKET_ACCESS_KEY_ID": WORKER_KEY,
            "BUCKET_SECRET_ACCESS_KEY": WORKER_KEY,
            "PROGRESS_INTERVAL_S": "0.05",
            "PAGE_WORKERS": "1",
            "STORE_PATIENCE_S": "2",  # give up soon on stores that never answer
            "ALLOW_PRIVATE_SOURCES": "true",
            "SSL_CERT_FILE": str(certificate),
        }
        with LoopbackQueue() as queue, queue.worker(HANDLER, cwd=ROOT, env=env) as worker:
            many = queue.put({"input": {"source": "s3://bucket/in/many.pdf", "password": PASSWORD}})
            queue.wait_posts(many, 4, 240)
            kill_page_workers(worker.pid)
            outcomes = [queue.wait(many, 240)]
            jobs = queue.put_batch([{"input": fields} for fields in build_jobs(host, endpoint)])
            outcomes += [queue.wait(job, 240) for job in jobs]
            outputs = {"log": worker.log, "posts": json.dumps([queue.posts(job) for job in (*jobs, many)])}
        artefacts = {key: data.decode("latin-1") for key, data in s3.read_objects(bucket).items() if key[:3] != "in/"}

    codes = {outcome.error.partition(":")[0] for outcome in outcomes if outcome.error}
    assert codes == {
        *("ENCRYPTED", "SOURCE_NOT_FOUND", "SOURCE_DENIED", "SOURCE_UNSUPPORTED", "DAMAGED", "STORE_UNAVAILABLE"),
        *("OUTPUT_DENIED", "INVALID_JOB"),
    }
    assert [outcome.status for outcome in outcomes].count("COMPLETED") == 3
    assert "document failed" in outputs["log"] and "RENDER_CRASH" in outputs["log"]  # of the killed page worker
    assert len(artefacts) > 10 and TEXT not in outputs["log"]
    assert not [name for name, text in {**outputs, **artefacts}.items() if "hunter2" in text]
