"""Documents that are there when a process starts are rendered while the engine opens, and read when it is open."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pymupdf
import pytest

from tests import ROOT
from tests.fakes.children import has_ended, open_ends
from tests.fakes.queue import LoopbackQueue
from tests.fakes.waiting import wait_until

MAX_WAIT_S = 180
# The command line or handler.py with an engine that opens once the file `release` exists, or fails with what that says.
# Lines on stderr say what has happened.
PROGRAM = """
import runpy, sys
from contextlib import contextmanager
from pathlib import Path
from tests.fakes.scripted import OpeningEngine
from twopass.engines import factory
from twopass.errors import Code, EngineError
from twopass.telemetry.stopwatch import Stopwatch

release, what = Path(sys.argv[1]), sys.argv[2]
stage = Stopwatch.stage

@contextmanager
def tell(self, name):
    with stage(self, name):
        yield
    print(f"{name} has ended", file=sys.stderr, flush=True)

class Engine(OpeningEngine):
    def __init__(self, settings):
        super().__init__(release.exists)

    async def open(self, page_pool):
        print("the engine is opening", file=sys.stderr, flush=True)
        await super().open(page_pool)
        if release.read_text():
            raise EngineError(Code.ENGINE_DEAD, release.read_text())

    async def close(self):
        await super().close()
        print("the engine is closed", file=sys.stderr, flush=True)

Stopwatch.stage, factory.create_engine = tell, Engine
sys.argv = sys.argv[2:]
runpy.run_path(what, run_name="__main__") if what.endswith(".py") else runpy.run_module(what, run_name="__main__")
"""
HANDLER = str(ROOT / "handler.py")
FAILURE = "the GPU has no memory"


class Program:
    """A running command whose engine has not been opened yet."""

    def __init__(self, folder: Path, process: subprocess.Popen[str]) -> None:
        self._folder, self._process = folder, process

    @property
    def errors(self) -> str:
        return (self._folder / "stderr").read_text()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_rendered(self) -> None:
        wait_until(lambda: "the engine is opening" in self.errors and "render has ended" in self.errors, MAX_WAIT_S)

    def release(self, failure: str = "") -> None:
        (self._folder / "new").write_text(failure)
        (self._folder / "new").rename(self._folder / "release")

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def end(self) -> tuple[int, str]:
        """Wait for the end; returns the exit code and what was printed."""
        printed, _ = self._process.communicate(timeout=MAX_WAIT_S)
        return self._process.returncode, printed


@contextmanager
def start(folder: Path, *arguments: str) -> Iterator[Program]:
    command = [sys.executable, "-c", PROGRAM, str(folder / "release"), *arguments]
    with (
        (folder / "stderr").open("w") as stderr,
        subprocess.Popen(
            command, cwd=folder, env=make_environment(folder), stdout=subprocess.PIPE, stderr=stderr, text=True
        ) as process,
    ):
        try:
            yield Program(folder, process)
        finally:
            process.kill()


def make_environment(folder: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(ROOT), "PAGE_WORKERS": "1"}


READ = ("twopass.cli", "read", "a.pdf", "--output", "out")
JOB = json.dumps({"input": {"source": "a.pdf", "output": "out"}})
both = pytest.mark.parametrize("arguments", [READ, (HANDLER, "--test_input", JOB)], ids=["read", "handler"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with pymupdf.open() as pdf:
        pdf.new_page().insert_text((72, 90), "The pump was built in 1891.")
        pdf.save(tmp_path / "a.pdf")
    return tmp_path


@both
def test_a_page_is_rendered_before_the_engine_is_open_and_read_after(arguments: tuple[str, ...], folder: Path) -> None:
    """Nothing is stored before, and the figures tell the start from the reading."""
    with start(folder, *arguments) as program:
        program.wait_until_rendered()
        stored, stages = list((folder / "out").rglob("*.md")), program.errors
        program.release()
        code, printed = program.end()

    assert code == 0, program.errors
    assert stored == [] and "pass1" not in stages
    (markdown,) = (folder / "out").rglob("document.md")
    assert "built in 1891" in markdown.read_text()
    assert "pages per second after the start" in printed + program.errors


@both
def test_an_engine_that_does_not_open_is_reported_as_before_any_page(arguments: tuple[str, ...], folder: Path) -> None:
    """One line has the reason, the exit code is 1, and no page counts as unread or failed."""
    with start(folder, *arguments) as program:
        program.wait_until_rendered()
        program.release(FAILURE)
        code, printed = program.end()

    lines = [line for line in (printed + program.errors).splitlines() if "has ended" not in line]
    assert code == 1
    assert sum(FAILURE in line for line in lines) == 1
    assert "Traceback" not in program.errors and "the engine is closed" in lines
    assert not list((folder / "out").rglob("document.*")) and not list((folder / "out").rglob("pages/*"))
    if "read" in arguments:
        summary = json.loads((folder / "out" / "batch_summary.json").read_text())
        assert summary["results"] == [{"file": "a.pdf", "status": "unread"}]
        assert (summary["unread"], summary["failed"], summary["pages"], summary["pages_read_now"]) == (1, 0, 0, 0)
        assert f"ENGINE_DEAD: {FAILURE}" in lines
    else:
        assert any("worker cannot serve" in line and "code=ENGINE_DEAD" in line for line in lines)
        assert "Job " not in printed  # of the SDK


def test_ctrl_c_while_the_engine_opens_leaves_nothing(folder: Path) -> None:
    """The exit code is 130, the summary has the file as unread, and no process goes on."""
    with start(folder, *READ) as program:
        program.wait_until_rendered()
        ends = open_ends(program.pid)
        program.interrupt()
        code, _ = program.end()

        left = [command for command, end in ends if not has_ended(end, MAX_WAIT_S)]

    assert code == 130, program.errors
    assert "the engine is closed" in program.errors and "Traceback" not in program.errors
    assert "run the same command again to continue" in program.errors
    assert json.loads((folder / "out" / "batch_summary.json").read_text())["unread"] == 1
    assert left == []


def test_ctrl_c_in_a_local_run_of_the_handler_leaves_nothing(folder: Path) -> None:
    """The job ends with the process, and so does the start of its engine."""
    with start(folder, HANDLER, "--test_input", JOB) as program:
        program.wait_until_rendered()
        ends = open_ends(program.pid)
        program.interrupt()
        program.end()

        left = [command for command, end in ends if not has_ended(end, MAX_WAIT_S)]

    assert "the engine is closed" in program.errors
    assert not list((folder / "out").rglob("pages/*"))
    assert left == []


def test_what_needs_no_engine_does_not_wait_for_it(folder: Path) -> None:
    """A file that is no document is reported, and the start of the engine ends with the command."""
    (folder / "a.pdf").write_bytes(b"<html>Log in</html>")

    with start(folder, *READ) as program:
        code, printed = program.end()

    assert code == 1
    assert "SOURCE_UNSUPPORTED" in program.errors and "the engine is closed" in program.errors
    assert "1 failed" in printed and "of which start 0.0 s" in printed


def test_a_worker_takes_no_job_from_the_queue_before_its_engine_is_open(folder: Path) -> None:
    """Another one that is ready gets it. This one asks for jobs when it is ready itself."""
    source = "data:application/pdf;base64," + base64.b64encode((folder / "a.pdf").read_bytes()).decode()
    command, environment = [sys.executable, "-c", PROGRAM, str(folder / "release"), HANDLER], make_environment(folder)
    with LoopbackQueue() as queue, queue.worker(command, cwd=folder, env=environment) as opening:
        opening.wait_log("the engine is opening")
        with queue.worker([sys.executable, HANDLER], cwd=folder, env=environment) as ready:
            first = queue.wait(queue.put({"input": {"source": source}}), MAX_WAIT_S)
            takers = {take.worker for take in queue.takes}
        (folder / "release").touch()
        second = queue.wait(queue.put({"input": {"source": source}}), MAX_WAIT_S)

    assert takers == {ready.id}
    assert [first.status, second.status] == ["COMPLETED", "COMPLETED"]
    assert second.output["started"]["ready_s"] > 0
