"""One trial: documents read with one choice of settings, by a fresh worker in a process of its own.

`python -m twopass.acceptance.trials.trial_run IN OUT` is that process. It reads its settings from the environment, as
every worker does.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from twopass import pipeline
from twopass.acceptance import child_process
from twopass.document import Checkpoint
from twopass.errors import Code, StoreError, TwopassError
from twopass.job import EntryPoint, Job
from twopass.settings import Settings, load_settings
from twopass.telemetry import logs
from twopass.telemetry.progress import Tracker
from twopass.worker import open_worker

DEADLINE_S = 604_800.0  # the longest that a job may ask for: a trial has no deadline

PageKey = tuple[str, int]  # the file as the job named it, and the page's number
EMPTY: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Choice:
    """Settings by environment variable, and sampling options of the job, that differ from those of the user."""

    name: str
    settings: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    sampling: Mapping[str, int] = field(default_factory=lambda: EMPTY)

    @property
    def lines(self) -> list[str]:
        """What a user writes to make this choice: environment variables, and a field of the job's input."""
        sampling = [f'"sampling": {json.dumps(dict(self.sampling))} in the input of jobs'] if self.sampling else []
        return [*(f"{name}={value}" for name, value in self.settings.items()), *sampling]


@dataclass(frozen=True)
class Trial:
    """What a run took, in seconds until the worker was ready and then until all was read, and the pages it stored."""

    start_s: float
    read_s: float
    pages: Mapping[PageKey, Checkpoint]

    @property
    def pages_per_s(self) -> float:
        return len(self.pages) / self.read_s if self.read_s else 0.0


def read(choice: Choice, sources: Sequence[Path], settings: Settings, folder: Path) -> Trial:
    """Read the files in a new process, into a new folder; raises EngineError if that process fails."""
    folder.mkdir(parents=True)
    job = {
        "sources": list(map(str, sources)),
        "output": str(folder / "output"),
        "deadline_s": DEADLINE_S,
        "sampling": dict(choice.sampling),
    }
    seconds = child_process.run(__name__, job, folder, build_environment(choice, settings), "the worker")
    return Trial(seconds["start_s"], seconds["read_s"], load_pages(folder / "output"))


def build_environment(choice: Choice, settings: Settings) -> dict[str, str]:
    """This process's environment with what the command line has set, and with the choice."""
    fixed = {"ENGINE": settings.engine, **({"MODEL_DIR": str(settings.model_dir)} if settings.model_dir else {})}
    return {**os.environ, **fixed, **choice.settings}


def load_pages(folder: Path) -> dict[PageKey, Checkpoint]:
    """Load all checkpoints below a folder of artefacts; raises StoreError for one that cannot be read."""
    pages = {}
    for path in sorted(folder.rglob("pages/*.json")):
        try:
            page = Checkpoint.model_validate_json(path.read_bytes())
        except ValidationError:
            message = f"{path}: not a checkpoint of this version; read the document again, or name another folder"
            raise StoreError(Code.OUTPUT_MISSING, message) from None
        source = page.read_from.uri if page.read_from else str(path.parent.parent)
        pages[source, page.page.number] = page
    return pages


def main(source: Path, target: Path) -> None:
    """Read the documents of the job and write the seconds that it took."""
    try:
        settings = load_settings()
        logs.set_up(settings)
        target.write_text(json.dumps(_read(json.loads(source.read_text()), settings)))
    except TwopassError as error:
        sys.exit(str(error))


def _read(job_input: Mapping[str, Any], settings: Settings) -> dict[str, float]:
    job = Job.parse({"id": "trial", "input": job_input}, settings, EntryPoint.LOCAL)
    with open_worker(settings) as worker:
        before = time.monotonic()
        worker.submit(pipeline.run(job, worker, Tracker())).result()
        return {"start_s": worker.started["ready_s"], "read_s": time.monotonic() - before}


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
