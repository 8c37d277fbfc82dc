"""A file of the jobs that were sent and how they ended, so that a repeated command resumes. One JSON event a line.

Jobs are named by a hash: no input, no credentials and no password is written. One command at a time uses the file.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError
from pydantic_core import from_json

from twopass.errors import Code, InvalidSetting, StoreError
from twopass.storage import error_mapping
from twopass.values import Value

LOCK = "state.lock"
MAX_PAGES = 1_000_000  # of a document; a damaged line may say anything

# How the lines begin that stay in the file.
_STORED = re.compile(rb'\{"key": "([0-9a-f]{24})", "(ended|counted)": ')


class _Line(Value, extra="ignore", allow_inf_nan=False):
    """A part of a line of the file, or of the lock. Fields of later versions are ignored."""


class PageCount(_Line):
    """The hash of a document's bytes, and its pages; None if they were not counted."""

    sha256: str
    pages: int | None = Field(ge=0, le=MAX_PAGES)


@dataclass(frozen=True)
class Spending:
    """What the jobs that ended have cost, in dollars, and how many pages they read."""

    cost: float = 0.0
    pages: int = 0
    runs: int = 0

    def add(self, cost: float, pages: int) -> Spending:
        return Spending(self.cost + cost, self.pages + pages, self.runs + 1)


class _Event(_Line):
    """What happened to a job; `job` is null when it ended, with what it cost, what it read and why it failed.

    `unkept`: the pages that it read are not stored.
    """

    key: str
    sending: str | None = None
    job: str | None = None
    cost: float | None = Field(default=None, ge=0)
    pages: int = Field(default=0, ge=0)
    unkept: bool = False


class _Holder(_Line):
    """The command that holds the lock."""

    host: str
    pid: int
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Lock the state in this folder for this command; raises InvalidSetting, which names the one that has it.

    The system frees the lock of a process that was killed. It is on a file of its own, opened for writing, because NFS
    locks neither folders nor files opened for reading.
    """
    with error_mapping.map_errors(f"--folder ({folder})", StoreError):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise _refuse(folder, error) from None
        holder = _Holder(host=socket.gethostname(), pid=os.getpid(), since=f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC")
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, holder.model_dump_json().encode(), 0)
        os.fsync(descriptor)  # for readers on other hosts
        yield
    finally:
        os.close(descriptor)


def _refuse(folder: Path, error: OSError) -> InvalidSetting:
    if not isinstance(error, BlockingIOError | PermissionError):  # as flock and NFS say that it is taken
        reason = f"its file system has no locks ({error.strerror}), so that two commands might send the same jobs"
        return InvalidSetting(Code.INVALID_SETTING, f"--folder {folder}: {reason}; name a folder on another one")
    try:
        holder = str(_Holder.model_validate_json((folder / LOCK).read_bytes()))
    except (OSError, ValidationError):  # it is about to write its name
        holder = "on a host that is not known"
    advice = "wait for its end, or name another folder"
    return InvalidSetting(Code.IN_USE, f"--folder {folder}: another twopass submit uses it ({holder}); {advice}")


class Ledger:
    """An append-only file. A line that a crash cut off is skipped.

    Outcomes and counts of pages stay in the file, and only their places are kept in memory: there may be hundreds of
    thousands.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._job_ids: dict[str, str] = {}
        self._sending: dict[str, str] = {}
        self._outcomes: dict[str, int] = {}  # where the line begins
        self._counts: dict[str, int] = {}
        self._unkept: Counter[str] = Counter()
        self.spending = Spending()
        self._separator = b""
        if path.exists():
            self._load()

    def _load(self) -> None:
        place, line = 0, b"\n"
        with self._path.open("rb") as file:
            for line in file:
                if stored := _STORED.match(line):
                    places = self._outcomes if stored[2] == b"ended" else self._counts
                    places[stored[1].decode()] = place
                else:
                    with suppress(ValidationError):
                        self._apply(_Event.model_validate_json(line))
                place += len(line)
        self._separator = b"" if line.endswith(b"\n") else b"\n"  # ends a line that was cut off

    @staticmethod
    def key(*parts: Any) -> str:
        """A hash of the parts; the same for the same endpoint, document and job input."""
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:24]

    def job_id(self, key: str) -> str | None:
        """The id of the job that is still running under this key; None without one."""
        return self._job_ids.get(key)

    def unanswered(self, key: str) -> str | None:
        """The idempotency key of a job that was sent under this key, if no answer said which id it has."""
        return self._sending.get(key)

    def outcome(self, key: str) -> dict[str, Any] | None:
        """The recorded outcome of a job that need not be sent again; None if there is none."""
        return self._read(self._outcomes.get(key), key, "ended")

    def count(self, key: str) -> PageCount | None:
        """What was counted of the document version with this key."""
        try:
            return PageCount.model_validate(self._read(self._counts.get(key), key, "counted"), strict=True)
        except ValidationError:
            return None

    def unkept_runs(self, key: str) -> int:
        """How many runs of the job read pages that are not stored; each further one pays for the same pages again."""
        return self._unkept[key]

    @property
    def open_jobs(self) -> dict[str, str]:
        """Ids, by key, of jobs that were sent and have not ended."""
        return {key: job_id for key, job_id in self._job_ids.items() if key not in self._outcomes}

    @property
    def unanswered_count(self) -> int:
        """How many jobs may be at the endpoint although no answer said which ids they have."""
        return len(self._sending)

    def record_sending(self, key: str, idempotency_key: str) -> None:
        """Record, before a job is sent, how it will be recognized if its answer is lost."""
        self._write_event({"key": key, "sending": idempotency_key})

    def record_job(self, key: str, job_id: str) -> None:
        self._write_event({"key": key, "job": job_id})

    def forget_job(
        self, key: str, error: str | None = None, cost: float | None = None, pages: int = 0, is_kept: bool = True
    ) -> None:
        """Record that the job no longer runs: why it failed, what it cost, how many pages it read, if they are kept.

        Without an outcome it is sent again.
        """
        details = {"error": error, "cost": cost, "pages": pages, "unkept": bool(pages and not is_kept)}
        self._write_event({"key": key, "job": None, **{name: value for name, value in details.items() if value}})

    def record_outcome(self, key: str, outcome: Mapping[str, Any]) -> None:
        self._outcomes[key] = self._write({"key": key, "ended": dict(outcome)})
        self._job_ids.pop(key, None)
        self._sending.pop(key, None)

    def record_count(self, key: str, count: PageCount) -> None:
        self._counts[key] = self._write({"key": key, "counted": count.model_dump()})

    def _read(self, place: int | None, key: str, name: str) -> dict[str, Any] | None:
        """What the line at this place holds; None if it was cut off, or another process has changed the file."""
        if place is None:
            return None
        with self._path.open("rb") as file:
            file.seek(place)
            line = file.readline()
        try:
            event = from_json(line)
            return dict(event[name]) if event["key"] == key else None
        except (ValueError, KeyError, TypeError):
            return None

    def _write_event(self, event: dict[str, Any]) -> None:
        self._write(event)
        self._apply(_Event.model_validate(event))

    def _write(self, event: dict[str, Any]) -> int:
        """Append a line and return its place."""
        line = f"{json.dumps(event, ensure_ascii=True)}\n".encode()
        with self._open() as file:
            file.write(self._separator + line)
            place = file.tell() - len(line)
        self._separator = b""
        return place

    def _open(self) -> FileIO:
        try:
            return FileIO(self._path, "a")
        except FileNotFoundError:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            return FileIO(self._path, "a")

    def _apply(self, event: _Event) -> None:
        if event.sending is not None:
            self._sending[event.key] = event.sending
            return
        if "job" not in event.model_fields_set:
            return
        if event.unkept:
            self._unkept[event.key] += 1
        if event.cost is not None:
            self.spending = self.spending.add(event.cost, event.pages)
        self._sending.pop(event.key, None)
        if event.job is None:
            self._job_ids.pop(event.key, None)
        else:
            self._job_ids[event.key] = event.job
