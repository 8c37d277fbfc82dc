"""scripts/bench: commands, the suite's stages, and the table of what they measured."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from scripts.bench import __main__, harness, jobs, mix, suite
from tests import ROOT
from twopass.engines.vllm.arguments import DEFAULT_DRAFTS
from twopass.engines.vllm.plugin import DRAFT_TEXTS, NGRAM_V2
from twopass.settings import Settings


@pytest.mark.parametrize("command", __main__.COMMANDS)
def test_every_command_prints_its_help_without_torch_or_vllm(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The tests' environment has neither, nor a GPU."""
    with pytest.raises(SystemExit) as ended:
        __main__.main([command, "--help"])

    assert ended.value.code == 0
    assert "usage: python -m scripts.bench" in capsys.readouterr().out


def test_the_suite_runs_when_no_command_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    """Its options follow `python -m scripts.bench` directly; --model-dir is required."""
    with pytest.raises(SystemExit):
        __main__.main(["--only", "warm"])

    assert "--model-dir" in capsys.readouterr().err


def test_answers_are_streamed_in_the_benchmark_as_in_a_worker() -> None:
    """The benchmark's STREAM_INTERVAL is the default of the setting."""
    assert Settings.model_fields["stream_interval"].default == harness.STREAM_INTERVAL


def test_the_mix_starts_over_where_more_pages_are_asked_for() -> None:
    """Page 641 is the first page again."""
    lengths = [page["tokens"] for page in harness.read_mix(1536)]

    assert len(lengths) == 1536
    assert lengths[640] == lengths[0]


def test_the_mix_file_is_what_its_generator_writes() -> None:
    """The generator is seeded, so its numbers can be compared with those of older runs."""
    assert harness.MIX_FILE.read_text() == mix.generate()


def test_new_results_are_merged_into_existing_ones() -> None:
    """A stage that runs alone removes no other stage's figures, at any depth, and replaces its own older ones."""
    results = {"job_mix": {"pages_per_s": 9.0, "pages_per_s_by": {"1_jobs": 9.0, "8_in_flight": 2.0}}, "encoder_ms": 10}
    suite.merge(results, {"job_mix": {"pages_per_s_by": {"1_jobs": 11.0}}, "ready_s": {"warm": 16.6}})

    assert results == {
        "job_mix": {"pages_per_s": 9.0, "pages_per_s_by": {"1_jobs": 11.0, "8_in_flight": 2.0}},
        "encoder_ms": 10,
        "ready_s": {"warm": 16.6},
    }


MACHINE = {"gpu": "H200, 580.1, 143771 MiB", "cores": 16, "versions": {"vllm": "0.33.0"}, "python_s": 1.5, "boot": "a"}


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({}, None),
        ({"python_s": 2.5}, None),
        ({"versions": {"vllm": "0.26.0"}}, "versions: {'vllm': '0.33.0'}, now {'vllm': '0.26.0'}"),
        ({"python_s": 1.6, "boot": "b"}, None),
        ({"python_s": 2.5, "boot": "b"}, "python_s: 1.5, now 2.5"),
        ({"python_s": 2.5, "boot": ""}, "python_s: 1.5, now 2.5"),
        ({"gpu": "H100, 580.1, 81559 MiB", "boot": "b"}, "gpu: H200, 580.1, 143771 MiB, now H100, 580.1, 81559 MiB"),
    ],
)
def test_only_runs_of_like_machines_are_merged(change: dict[str, Any], difference: str | None) -> None:
    """The same machine, or one with the same card and driver and as fast a Python, which the core follows."""
    assert harness.find_difference(MACHINE, MACHINE | change) == difference
    assert harness.find_difference(None, MACHINE | change) is None


def test_scans_are_spread_evenly() -> None:
    """The engine has as large a share of them at any time."""
    assert [harness.is_scan(number, 0.25) for number in range(8)] == [False, False, False, True] * 2
    assert not any(harness.is_scan(number, 0.0) for number in range(100))
    assert all(harness.is_scan(number, 1.0) for number in range(100))


def test_starts_are_summarized_by_median_and_maximum() -> None:
    """Each was a process of its own; one that failed has no figures."""

    def build(ready: float, weights: float) -> dict[str, Any]:
        return {"ready_s": {"warm": ready}, "start_s": {"warm": {"weights_s": weights}}}

    found = suite.summarize_starts([build(15.0, 1.0), {}, build(14.0, 3.0), build(19.0, 2.0)])

    assert found == {
        "ready_s": {"warm": 15.0, "warm_max": 19.0, "warm_starts": 3},
        "start_s": {"warm": {"weights_s": 2.0}},
    }
    assert suite.summarize_starts([{}]) == {}


def test_the_table_says_by_how_much_a_goal_is_missed() -> None:
    """Lower bounds, upper bounds and ratios. A dash means not measured; figures without a row are listed by name."""
    text = suite.render_table({
        "pass1_500": {"twopass": 20.0, "stock_async": 16.0, "stock_generate": 7.0},
        "ready_s": {"warm": 25.0, "cold": 80.0},
        "crops_per_s": {"twopass": 450.0},
        "stages": {
            "warm": {"seconds": 30, "asked": {"drafts": 0, "acceptance": None}},
            "twopass": {"asked": {"drafts": 8, "acceptance": 3.0}},
        },
    })  # fmt: skip
    assert text.splitlines()[0] == "twopass: at most 8 drafts; simulated: a step with four yields 3 tokens"
    rows = {line[:44].strip(): " ".join(line[44:].split()) for line in text.splitlines() if line}

    assert rows["pass 1, A4, 500 tokens, pages/s"] == "16.0 20.0 1.2 ≥ 55, missed by 63.6%; ≥ 2 times, missed by 37.5%"
    assert rows["process start to ready, warm, s"] == "– 25.0 – ≤ 15, missed by 66.7%"
    assert rows["crops of 600², 60 tokens, a second"] == "– 450.0 – ≥ 450"
    assert rows["encoder, ms a page"] == "– – – ≤ 7"
    assert rows["pass1_500.stock_generate"] == "7.0"
    assert rows["ready_s.cold"] == "80.0"
    assert not [name for name in rows if name.startswith("stages")]


def test_drafts_are_measured_with_simulated_acceptance_only(capsys: pytest.CaptureFixture[str]) -> None:
    """Random weights accept almost none, so that an engine without --acceptance has none."""

    def parse(*arguments: str) -> Any:
        return harness.parse_with_drafts(harness.create_parser("scripts.bench", None), arguments)

    simulated = parse("--acceptance", "2.5")

    assert parse().drafts == 0 and suite.build_overrides(parse()) == {}
    assert (simulated.drafts, simulated.acceptance) == (harness.DRAFT_TOKENS, 2.5)
    config = suite.build_overrides(simulated)["speculative_config"]
    rates = config["synthetic_acceptance_rates"]
    assert config["num_speculative_tokens"] == len(rates) == harness.DRAFT_TOKENS
    assert sum(rates[:4]) == pytest.approx(1.5, abs=0.001)
    assert rates == sorted(rates, reverse=True)
    wrong = {("3", "--drafts", "0"): "needs --drafts", ("4.5",): "from 1 to 4.0", ("0.9",): "from 1 to 4.0"}
    for values, problem in wrong.items():
        with pytest.raises(SystemExit):
            parse("--acceptance", *values)
        assert f"--acceptance: {problem}" in capsys.readouterr().err


def test_the_mix_has_pages_that_begin_while_the_engine_is_full(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Just after it has filled, vLLM alone spends its steps on prompts."""
    with pytest.raises(SystemExit):
        suite.parse_options(["--model-dir", str(tmp_path), "--sequences", "512", "--mix-pages", "1023"])

    assert "--mix-pages: must be twice --sequences" in capsys.readouterr().err


@pytest.mark.parametrize("simulated", [(), ("--acceptance", "3.0")])
def test_whole_jobs_get_the_drafts_of_the_suite(simulated: Sequence[str], tmp_path: Path) -> None:
    """The command `jobs` accepts what the suite passes on."""
    ours = suite.parse_options(["--model-dir", str(tmp_path), *simulated])

    command = suite.build_command("job", ours, [])
    passed = jobs.parse_options(command[command.index("jobs") + 1 :])

    assert (passed.drafts, passed.acceptance) == (ours.drafts, ours.acceptance)
    assert passed.sequences == ours.sequences and passed.model_dir == tmp_path


def test_drafts_are_refused_for_a_model_that_has_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """vLLM would be asked for drafts that the engine does not set up."""
    with pytest.raises(SystemExit):
        jobs.parse_options(["--model-dir", str(tmp_path), "--model", "glm_ocr", "--acceptance", "3"])

    assert "glm_ocr is decoded without drafts" in capsys.readouterr().err


def test_the_texts_of_drafts_have_a_logits_processor() -> None:
    """vLLM notifies it of every request; the plugin does not start an engine with drafts without it."""
    assert harness.list_processors("ours", has_drafts=True) == [NGRAM_V2, DRAFT_TEXTS]
    assert harness.list_processors("ours") == [NGRAM_V2]


def test_as_many_tokens_are_drafted_in_the_benchmark_as_in_a_worker() -> None:
    """The benchmark's DRAFT_TOKENS is the engine's default where it drafts."""
    assert harness.DRAFT_TOKENS == DEFAULT_DRAFTS


def test_every_row_of_the_table_is_in_the_last_full_run() -> None:
    """docs/bench/h200.json has a figure under each name that the rows refer to."""
    figures = dict(suite.flatten_figures(json.loads((ROOT / "docs" / "bench" / "h200.json").read_text())))

    assert not [name for row in suite.ROWS for name in (row.ours, row.stock) if name and name not in figures]


def test_the_readme_has_the_figures_of_the_last_full_run() -> None:
    """Pages a second of pass 1, of unmodified vLLM and of whole jobs, rounded."""
    found = json.loads((ROOT / "docs" / "bench" / "h200.json").read_text())
    figures = (found["pass1_500"]["twopass"], found["pass1_500"]["stock_async"], found["job_mix"]["pages_per_s"])
    [fast] = re.findall(r"- \*\*Fast\.\*\* (.*?)\n(?:-|\n)", (ROOT / "README.md").read_text(), re.S)

    assert [int(figure) for figure in re.findall(r"reads? (\d+)", fast)] == [round(figure) for figure in figures]


@pytest.mark.parametrize("stage", ["twopass", "warm"])
def test_a_stage_that_fails_removes_no_results(stage: str, tmp_path: Path) -> None:
    """It fails here because vLLM is missing. Its options are recorded all the same; a cold start empties the caches."""
    results = tmp_path / "bench.json"
    results.write_text(json.dumps({"pass1_500": {"twopass": 30.0}}))
    (tmp_path / "bench.caches").mkdir()

    command = [sys.executable, "-m", "scripts.bench", "--model-dir", str(tmp_path), "--json", str(results)]
    ended = subprocess.run([*command, "--only", stage, "--starts", "1"], capture_output=True, text=True, cwd=ROOT)
    found = json.loads(results.read_text())

    assert ended.returncode == 0
    assert f"{stage}: ended with 1" in ended.stderr
    assert found["pass1_500"] == {"twopass": 30.0}
    assert found["stages"][stage]["asked"]["sequences"] == 512
    assert (tmp_path / "bench.caches").exists() == (stage != "twopass")
