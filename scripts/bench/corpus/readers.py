"""Run readers in processes of their own, and measure the processor time that each document takes."""

from __future__ import annotations

import json
import os
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


class ReaderMissing(Exception):
    """A reader that does not start; the message says why."""


@dataclass(frozen=True)
class Reading:
    """One reader's markdown of one document; `cpu_s` is processor time of all its processes, in seconds."""

    pages: Sequence[str]  # of the document, or one text where the reader does not tell its pages apart
    cpu_s: float
    error: str | None = None

    def get_page(self, number: int, count: int) -> str:
        """Return the markdown of a page and the one before it, where a paragraph that it continues may stand."""
        if len(self.pages) != count:
            return "\n\n".join(self.pages)
        return "\n\n".join(self.pages[max(number - 2, 0) : number])


@dataclass(frozen=True)
class Reader:
    """A name of `adapters.READERS` and the Python of the virtual environment that has it."""

    name: str
    python: str = sys.executable

    @classmethod
    def parse(cls, text: str) -> Reader:
        """Parse NAME or NAME=PYTHON; raises ValueError for an unknown name."""
        name, _, python = text.partition("=")
        if name not in adapters.READERS:
            raise ValueError(f"{name}: choose from {', '.join(adapters.READERS)}")
        return cls(name, python or sys.executable)

    def read(self, files: Sequence[Path]) -> Iterator[Reading]:
        """Yield one reading a file; the first file is read twice, because the first reading also loads models."""
        if not files:
            return
        with self._start() as process:
            self._ask(process, files[0])
            for file in files:
                yield self._ask(process, file)

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
        before = read_cpu_seconds(process.pid)
        print(file, file=_get(process.stdin), flush=True)
        line = _get(process.stdout).readline()
        if not line:
            return Reading((), 0.0, "the reader's process has ended")
        answer: dict[str, Any] = json.loads(line)
        seconds = read_cpu_seconds(process.pid) - before
        return Reading(tuple(answer.get("pages", ())), seconds, answer.get("error"))


def read_cpu_seconds(pid: int) -> float:
    """Return the processor time of a process and all it has started, those that have ended included."""
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
