"""Tests. What several of them share lives in `tests.fakes`."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
