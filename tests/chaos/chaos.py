"""The command that starts a worker, and how often the chaos tests repeat."""

from __future__ import annotations

import os
import sys

from tests import ROOT

HANDLER = [sys.executable, str(ROOT / "handler.py")]


def read_count(name: str, default: int) -> int:
    """Return the number in CHAOS_{name}, or `default`, which is small enough for every run of CI."""
    return int(os.environ.get(f"CHAOS_{name}") or default)
