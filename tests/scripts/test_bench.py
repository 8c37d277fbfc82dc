"""scripts/bench.py: what its stages measured becomes one JSON and one table."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

sys.path.append(str(ROOT / "scripts"))

import bench
from bench_engine import INTERVAL
from twopass.settings import Settings


def test_answers_are_looked_at_as_often_as_in_a_worker() -> None:
    assert Settings.model_fields["stream_interval"].default == INTERVAL


def test_the_mix_begins_again_where_more_pages_are_asked_for() -> None:
    lengths = bench._mix(argparse.Namespace(mix_pages=1536))

    assert len(lengths) == 1536
    assert lengths[640] == lengths[0]


def test_what_is_new_stands_beside_what_is_there() -> None:
    """A stage that runs alone takes no row of another away, however deep, and puts its own in place of older ones."""
    found = {"job_mix": {"pages_per_s": 9.0, "pages_per_s_by": {"1_jobs": 9.0, "8_in_flight": 2.0}}, "encoder_ms": 10}
    bench.merge(found, {"job_mix": {"pages_per_s_by": {"1_jobs": 11.0}}, "ready_s": {"warm": 16.6}})

    assert found == {
        "job_mix": {"pages_per_s": 9.0, "pages_per_s_by": {"1_jobs": 11.0, "8_in_flight": 2.0}},
        "encoder_ms": 10,
        "ready_s": {"warm": 16.6},
    }


def test_the_table_says_by_how_much_a_goal_is_missed() -> None:
    """Upwards, downwards and as a ratio; what was not measured has a dash, what has no row its name."""
    table = bench.table({
        "pass1_500": {"twopass": 20.0, "stock_async": 16.0, "stock_generate": 7.0},
        "ready_s": {"warm": 25.0, "cold": 80.0},
        "crops_per_s": {"twopass": 300.0},
        "stages": {"warm": {"seconds": 30}},
    })  # fmt: skip
    rows = {line[:44].strip(): " ".join(line[44:].split()) for line in table.splitlines() if line}

    assert rows["pass 1, A4, 500 tokens, pages/s"] == "16.0 20.0 1.2 ≥ 27, missed by 25.9%; ≥ 2 times, missed by 37.5%"
    assert rows["process start to ready, warm, s"] == "– 25.0 – ≤ 20, missed by 25.0%"
    assert rows["crops of 600², 60 tokens, a second"] == "– 300.0 – ≥ 300"
    assert rows["encoder, ms a page"] == "– – – ≤ 12"
    assert rows["pass1_500.stock_generate"] == "7.0"
    assert rows["ready_s.cold"] == "80.0"
    assert not [name for name in rows if name.startswith("stages")]


def test_every_row_of_the_table_is_in_the_last_full_run() -> None:
    """Under the names that the JSON has."""
    found = dict(bench._figures(json.loads((ROOT / "docs" / "bench" / "h200.json").read_text())))

    assert not [name for row in bench.ROWS for name in (row.ours, row.stock) if name and name not in found]


@pytest.mark.parametrize("stage", ["twopass", "warm"])
def test_a_stage_that_fails_takes_nothing_away(stage: str, tmp_path: Path) -> None:
    """Here it finds no vLLM. How it was asked is written all the same, and a cold start begins with empty caches."""
    told = tmp_path / "bench.json"
    told.write_text(json.dumps({"pass1_500": {"twopass": 30.0}}))
    (tmp_path / "bench.caches").mkdir()

    command = [sys.executable, str(ROOT / "scripts" / "bench.py"), "--model-dir", str(tmp_path), "--json", str(told)]
    ended = subprocess.run([*command, "--only", stage], capture_output=True, text=True)
    found = json.loads(told.read_text())

    assert ended.returncode == 0
    assert f"{stage}: ended with 1" in ended.stderr
    assert found["pass1_500"] == {"twopass": 30.0}
    assert found["stages"][stage]["asked"]["sequences"] == 512
    assert (tmp_path / "bench.caches").exists() == (stage != "twopass")
