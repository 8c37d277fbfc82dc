"""A command in a pseudo-terminal or with pipes."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

ROWS, COLUMNS = 30, 120
_PROGRESS = re.compile(r"^.*: \d+/\d+ files, \d+ pages(, writing \d/\d)?\n", flags=re.MULTILINE)


def run_in_terminal(
    command: Sequence[str], cwd: Path, env: Mapping[str, str], columns: int = COLUMNS
) -> tuple[int, str]:
    """Run the command with stdout and stderr on a terminal; returns the exit code and what was written to it."""
    ours, theirs = pty.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
        with subprocess.Popen(
            command, cwd=cwd, env={"TERM": "xterm-256color", **env}, stdin=theirs, stdout=theirs, stderr=theirs
        ) as running:
            os.close(theirs)
            written = b"".join(iter(lambda: _read(ours), b""))
        return running.returncode, written.decode(errors="replace")
    finally:
        os.close(ours)


def run_in_pipes(command: Sequence[str], cwd: Path, env: Mapping[str, str], **more: Any) -> CompletedProcess[str]:
    """Run the command; lines of progress, which a busy machine gets after ten seconds, are left out of its stderr."""
    ran = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300, **more)
    ran.stderr = _PROGRESS.sub("", ran.stderr)
    return ran


def _read(terminal: int) -> bytes:
    """Read what was written; empty after the command has ended, which Linux reports as an error."""
    try:
        return os.read(terminal, 1 << 16)
    except OSError:
        return b""
