"""A file of the jobs that were sent and how they ended, so that a repeated command resumes. One JSON event a line.

Jobs are named by a hash: no input, no credentials and no password is written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Ledger:
    """An append-only file. A line that a crash cut off is skipped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._job_ids: dict[str, str] = {}
        self._sending: dict[str, str] = {}
        self._outcomes: dict[str, dict[str, Any]] = {}
        text = path.read_text() if path.exists() else ""
        self._separator = "" if text.endswith("\n") or not text else "\n"  # ends a line that was cut off
        for line in text.splitlines():
            try:
                self._apply(json.loads(line))
            except (ValueError, KeyError, TypeError):
                continue

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
        return self._outcomes.get(key)

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

    def _write(self, event: dict[str, Any]) -> None:
        self._apply(event)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(f"{self._separator}{json.dumps(event, ensure_ascii=True)}\n")
        self._separator = ""

    def _apply(self, event: dict[str, Any]) -> None:
        key = event["key"]
        if "sending" in event:
            self._sending[key] = str(event["sending"])
            return
        if "ended" in event:
            self._outcomes[key] = dict(event["ended"])
        elif event["job"] is None:
            self._job_ids.pop(key, None)
        else:
            self._job_ids[key] = str(event["job"])
        self._sending.pop(key, None)
