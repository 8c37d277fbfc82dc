"""Run readers in processes of their own, and measure the processor time that each document takes."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

from scripts import ROOT
from scripts.bench.corpus import adapters

ADAPTERS = Path(__file__).with_name("adapters.py")
OWN = ("twopass", "pymupdf4llm", "pymupdf4llm-body", "pymupdf4llm-no-ocr")  # run in this virtual environment
LIMIT_S = 300.0  # elapsed seconds for a document; a reader that takes longer is ended and started again


class ReaderMissing(Exception):
    """A reader that does not start; the message says why."""


@dataclass(frozen=True)
class Reading:
    """One reader's markdown of one document; `cpu_s` is processor time of all its processes, in seconds."""

    pages: Sequence[str]  # of the document, or one text where the reader does not tell its pages apart
    cpu_s: float
    error: str | None = None

    def get_page(self, number: int, count: int) -> str:
        """The markdown of a page and the one before it, where a paragraph that it continues may stand."""
        if len(self.pages) != count:
            return "\n\n".join(self.pages)
        return "\n\n".join(self.pages[max(number - 2, 0) : number])


@dataclass(frozen=True)
class Reader:
    """A name of `adapters.READERS` and the Python of the virtual environment that has it."""

    name: str
    python: str = sys.executable
    limit_s: float = LIMIT_S

    @classmethod
    def parse(cls, text: str) -> Reader:
        """Parse NAME or NAME=PYTHON; raises ValueError for an unknown name."""
        name, _, python = text.partition("=")
        if name not in adapters.READERS:
            raise ValueError(f"{name}: choose from {', '.join(adapters.READERS)}")
        return cls(name, python or sys.executable)

    def read(self, files: Sequence[Path]) -> Iterator[Reading]:
        """Yield one reading a file; a process reads its first file twice, because models are loaded with the first."""
        remaining = list(files)
        while remaining:
            with self._start() as process:
                first = self._ask(process, remaining[0])
                if process.poll() is not None:
                    yield first
                    remaining.pop(0)
                while remaining and process.poll() is None:
                    yield self._ask(process, remaining.pop(0))

    @contextmanager
    def _start(self) -> Iterator[subprocess.Popen[str]]:
        command = [self.python, "-P", str(ADAPTERS), self.name]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
        log = ROOT / "build" / f"{self.name}.log"
        log.parent.mkdir(exist_ok=True)
        with log.open("w") as errors:
            try:
                process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
                )
            except OSError as error:
                raise ReaderMissing(f"{self.name} is left out: {error}") from None
            with process:
                if not _get(process.stdout).readline():
                    raise ReaderMissing(f"{self.name} is left out, it does not start: {_read_last_line(log)}")
                yield process

    def _ask(self, process: subprocess.Popen[str], file: Path) -> Reading:
        line = ""
        try:
            before = read_cpu_seconds(process.pid)
            print(file, file=_get(process.stdin), flush=True)
            if select.select([_get(process.stdout)], [], [], self.limit_s)[0]:
                line = _get(process.stdout).readline()
            seconds = read_cpu_seconds(process.pid) - before
        except (BrokenPipeError, psutil.NoSuchProcess):
            line = ""
        if not line:
            process.kill()
            process.wait()
            return Reading((), 0.0, f"the reader ended, or did not answer for {self.limit_s:g} s")
        answer: dict[str, Any] = json.loads(line)
        return Reading(tuple(answer.get("pages", ())), seconds, answer.get("error"))


def read_cpu_seconds(pid: int) -> float:
    """The processor time of a process and all it has started, those that have ended included."""
    total = 0.0
    process = psutil.Process(pid)
    for each in (process, *process.children(recursive=True)):
        try:
            times = each.cpu_times()
        except psutil.Error:
            continue  # it has just ended
        total += times.user + times.system + times.children_user + times.children_system
    return total


def _get(stream: IO[str] | None) -> IO[str]:
    assert stream  # it was opened as a pipe
    return stream


def _read_last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "no message")[:300]
