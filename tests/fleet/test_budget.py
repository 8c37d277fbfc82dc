"""Estimates of a run before it starts."""

from __future__ import annotations

import json

import pytest

from tests import ROOT
from twopass.fleet.budget import estimate


def test_an_estimate_says_what_it_is_based_on() -> None:
    """Without a given pace, that of the last run is used, else the measured one, with the GPU it was measured on."""
    rows = [("a", 1000, 11), ("b", None, 1)]
    measured = json.loads((ROOT / "docs" / "bench" / "h200.json").read_text())["job_mix"]["pages_per_s"]

    unknown = estimate(rows, None, 1, 3.6, {})
    assert unknown["minutes"] == round(1000 / measured / 60, 1)
    assert unknown["dollars"] == pytest.approx(1 / measured, rel=0.01)
    assert "H200" in unknown["by"] and "--pages-per-s" in unknown["by"]
    last = estimate(rows, None, 1, None, {"pages_per_s": 5, "cost_per_1000_pages": 0.4})
    assert (last["minutes"], last["dollars"], last["not counted"]) == (3.3, 0.4, 1)
