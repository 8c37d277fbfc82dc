"""A file of the jobs that were sent and how they ended, so that a repeated command resumes. One JSON event a line.

Jobs are named by a hash: no input, no credentials and no password is written.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from io import FileIO
from pathlib import Path
from typing import Any

# How the lines begin that stay in the file.
_STORED = re.compile(rb'\{"key": "([0-9a-f]{24})", "(ended|counted)": ')


@dataclass(frozen=True)
class PageCount:
    """The hash of a document's bytes, and its pages; None if they were not counted."""

    sha256: str
    pages: int | None


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
                    self._try_apply(line, place)
                place += len(line)
        self._separator = b"" if line.endswith(b"\n") else b"\n"  # ends a line that was cut off

    @staticmethod
    def key(*parts: Any) -> str:
        """Return a hash of the parts; the same for the same endpoint, document and job input."""
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

    def has_outcome(self, key: str) -> bool:
        """Whether an outcome is recorded; does not read it."""
        return key in self._outcomes

    def count(self, key: str) -> PageCount | None:
        """What was counted of the document version with this key."""
        counted = self._read(self._counts.get(key), key, "counted") or {}
        sha256, pages = counted.get("sha256"), counted.get("pages")
        return PageCount(sha256, pages) if isinstance(sha256, str) and isinstance(pages, int | None) else None

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
        self._write({"key": key, "sending": idempotency_key})

    def record_job(self, key: str, job_id: str) -> None:
        self._write({"key": key, "job": job_id})

    def forget_job(self, key: str, error: str | None = None) -> None:
        """Record that the job no longer runs, and why it failed. Without an outcome it will be sent again."""
        self._write({"key": key, "job": None, **({"error": error} if error else {})})

    def record_outcome(self, key: str, outcome: Mapping[str, Any]) -> None:
        self._write({"key": key, "ended": dict(outcome)})

    def record_count(self, key: str, count: PageCount) -> None:
        self._write({"key": key, "counted": asdict(count)})

    def _read(self, place: int | None, key: str, name: str) -> dict[str, Any] | None:
        """What the line at this place holds; None if it was cut off, or another process has changed the file."""
        if place is None:
            return None
        with self._path.open("rb") as file:
            file.seek(place)
            line = file.readline()
        try:
            event = json.loads(line)
            return dict(event[name]) if event["key"] == key else None
        except (ValueError, KeyError, TypeError):
            return None

    def _write(self, event: dict[str, Any]) -> None:
        line = f"{json.dumps(event, ensure_ascii=True)}\n".encode()
        with self._open() as file:
            file.write(self._separator + line)
            place = file.tell() - len(line)
        self._separator = b""
        self._apply(event, place)

    def _open(self) -> FileIO:
        try:
            return FileIO(self._path, "a")
        except FileNotFoundError:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            return FileIO(self._path, "a")

    def _try_apply(self, line: bytes, place: int) -> None:
        with suppress(ValueError, KeyError, TypeError):
            self._apply(json.loads(line), place)

    def _apply(self, event: dict[str, Any], place: int) -> None:
        """Take over an event whose line begins at this place of the file."""
        key = event["key"]
        if "sending" in event:
            self._sending[key] = str(event["sending"])
            return
        if "counted" in event:
            self._counts[key] = place
            return
        if "ended" in event:
            self._outcomes[key] = place
        elif event["job"] is None:
            self._job_ids.pop(key, None)
        else:
            self._job_ids[key] = str(event["job"])
        self._sending.pop(key, None)
