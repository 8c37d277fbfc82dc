"""No process reports to anybody: what `twopass read` and handler.py ask the network for, and which files they leave.

They run in a network of the test's own, with empty folders for home and scratch: see tests/fakes/isolation.py.
"""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pymupdf
import pytest

from tests import ROOT
from tests.fakes.isolation import PAGES, SENTENCE, build_book, isolate
from tests.fakes.queue import LoopbackQueue
from twopass.job import Format

READ = [sys.executable, "-m", "twopass.cli", "read", "book.pdf", "--output", "out", "--formats", ",".join(Format)]
HANDLER = [sys.executable, str(ROOT / "handler.py")]


@pytest.fixture(scope="module")
def book() -> bytes:
    return build_book()


def test_attempts_are_seen(tmp_path: Path) -> None:
    """Connections and look-ups of a process in the isolation are recorded, though none succeeds."""
    with isolate(tmp_path) as machine:
        for call in ("create_connection(('192.0.2.1', 443))", "getaddrinfo('collector.example', 443)"):
            ran = subprocess.run([sys.executable, "-c", f"import socket; socket.{call}"], stderr=subprocess.DEVNULL)
            assert ran.returncode

        assert {"192.0.2.1:443", "collector.example?"} <= machine.list_destinations()


def test_a_read_asks_nobody_and_leaves_nothing(tmp_path: Path, book: bytes) -> None:
    """Forty pages with OCR become every format without a connection or a look-up; only the output is written."""
    (tmp_path / "book.pdf").write_bytes(book)
    with isolate(tmp_path) as machine:
        ran = subprocess.run(READ, cwd=tmp_path, env=machine.environment, capture_output=True, text=True)

        assert ran.returncode == 0, ran.stderr
        assert (machine.list_destinations(), machine.list_files()) == (set(), [])
    assert {path.name for path in tmp_path.iterdir()} == {"book.pdf", "home", "out", "scratch"}
    [markdown] = tmp_path.glob("out/*/document.md")
    assert markdown.read_text().count(SENTENCE) == PAGES


def test_a_program_that_reads_reports_nothing(tmp_path: Path) -> None:
    """What it imports after its first read, in its own process, is switched off, too."""
    program = "import twopass; twopass.read('book.pdf', pages='1'); import onnxruntime"
    with pymupdf.open() as book:
        book.new_page().insert_text((72, 90), SENTENCE)
        book.save(tmp_path / "book.pdf")
    with isolate(tmp_path) as machine:
        ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=machine.environment)

        assert ran.returncode == 0
        assert (machine.list_destinations(), machine.list_files()) == (set(), [])


def test_a_queue_worker_asks_its_queue_only(tmp_path: Path, book: bytes) -> None:
    """handler.py under the SDK reads forty pages with OCR, connects to nothing but the queue, and leaves no file."""
    source = "data:application/pdf;base64," + base64.b64encode(book).decode()
    with isolate(tmp_path) as machine, LoopbackQueue() as queue:
        with queue.worker(HANDLER, cwd=tmp_path, env=machine.environment) as worker:
            outcome = queue.wait(queue.put({"input": {"source": source}}), 300)
            worker.terminate()
            worker.wait(60)

        assert outcome.output["documents"][0]["pages"] == {"read": PAGES}
        assert (machine.list_destinations(), machine.list_files()) == ({urlsplit(queue.url).netloc}, [])
    assert {path.name for path in tmp_path.iterdir()} == {"home", "scratch"}
