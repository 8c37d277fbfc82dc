"""How often something is tried, and how a worker is started."""

from __future__ import annotations

import os
import sys

from tests import ROOT

HANDLER = [sys.executable, str(ROOT / "handler.py")]


def turns(name: str, few: int) -> int:
    """As often as CHAOS_{name} says, or as often as fits into every run of CI."""
    return int(os.environ.get(f"CHAOS_{name}") or few)
