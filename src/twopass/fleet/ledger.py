"""What was sent and how it ended, in; the same after a restart, out: one line of JSON for each event.

Knows keys of jobs. Knows nothing of what is in them: no input, no key and no password is written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Ledger:
    """An append-only file. A line that was cut off by a crash is passed over."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sent: dict[str, str] = {}
        self._ended: dict[str, dict[str, Any]] = {}
        text = path.read_text() if path.exists() else ""
        self._gap = "" if text.endswith("\n") or not text else "\n"  # after a line that was cut off
        for line in text.splitlines():
            try:
                self._note(json.loads(line))
            except (ValueError, KeyError, TypeError):
                continue

    @staticmethod
    def key(*parts: Any) -> str:
        """The same for the same endpoint, bytes and input; tells nothing of them."""
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:24]

    def sent(self, key: str) -> str | None:
        """The id of the job that is still out under this key."""
        return self._sent.get(key)

    def ended(self, key: str) -> dict[str, Any] | None:
        """How the job ended that needs not be sent again."""
        return self._ended.get(key)

    @property
    def out(self) -> dict[str, str]:
        """Keys and ids of jobs that were sent and have not ended."""
        return {key: job_id for key, job_id in self._sent.items() if key not in self._ended}

    def send(self, key: str, job_id: str) -> None:
        self._write({"key": key, "job": job_id})

    def forget(self, key: str) -> None:
        """The job is no longer out, and has to be sent again."""
        self._write({"key": key, "job": None})

    def end(self, key: str, told: Mapping[str, Any]) -> None:
        self._write({"key": key, "ended": dict(told)})

    def _write(self, event: dict[str, Any]) -> None:
        self._note(event)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(f"{self._gap}{json.dumps(event, ensure_ascii=True)}\n")
        self._gap = ""

    def _note(self, event: dict[str, Any]) -> None:
        key = event["key"]
        if "ended" in event:
            self._ended[key] = dict(event["ended"])
        elif event["job"] is None:
            self._sent.pop(key, None)
        else:
            self._sent[key] = str(event["job"])
