"""scripts/bench starts: which starts are made, what their output says, and what fails the command."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.bench import s3_server, starts
from twopass.engines.vllm.shared_cache import Place, SharedCache, State
from twopass.families.registry import get_family
from twopass.pages.shared_pixels import Pixels
from twopass.settings import Settings

MONITOR = "(EngineCore pid=8) WARNING 11-26 16:31:46 [jit_monitor.py:140] {} JIT compilation during inference: {}. This causes a latency spike; consider extending warmup to cover this shape/config."  # fmt: skip # noqa: E501
FINDINGS = {"seconds": {"ready_s": 57.1, "first_page_s": 1.3, "imports_s": 16.5}, "slower": []}
LIMITS_S = (60.0, 60.0)  # imports take a while on a busy machine
FRESH = starts.Start(0, "fresh", "start-0", is_checked=True)


def script(*lines: str) -> list[str]:
    """A process that prints these lines, as one start does."""
    return [sys.executable, "-c", f"print({chr(10).join(lines)!r})"]


def found(**facts: Any) -> str:
    return json.dumps({"found": facts})


def run(*lines: str) -> dict[str, Any]:
    return starts.run_start(FRESH, script(*lines), {}, 30.0)


def parse(*arguments: str) -> Any:
    return starts.parse_options(["--model-dir", "model", *arguments])


def test_the_kinds_take_turns() -> None:
    """A machine that slows down slows all kinds. Each round's kinds use what its fresh start stored."""
    planned = starts.plan_starts(["warm", "shared", "fresh", "bare"], 2)

    assert [start.kind for start in planned] == ["bare", "fresh", "shared", "warm"] * 2
    assert [start.prefix for start in planned[:4]] == ["start-0", "start-1", "start-1", "start-1"]
    assert planned[6].prefix == planned[5].prefix == "start-5"
    assert [start.number for start in planned if start.is_checked] == [1]


@pytest.mark.parametrize("kind", starts.KINDS)
def test_a_kind_can_be_measured_alone(kind: str) -> None:
    """A fresh start fills what it needs, once for all rounds."""
    planned = [start.kind for start in starts.plan_starts([kind], 3)]

    assert planned == (["fresh"] if kind in ("shared", "warm", "restart") else []) + [kind] * 3


def test_all_kinds_are_measured_three_times_by_default() -> None:
    options = parse()

    assert len(starts.plan_starts(options.kinds, options.rounds)) == 3 * len(starts.KINDS) == 18


def test_a_kind_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("--kinds", "cold")

    assert "invalid choice: 'cold'" in capsys.readouterr().err


def test_a_start_is_asked_for_what_its_kind_measures() -> None:
    """The options are passed on, and only a restart kills its core and has a fork server."""
    arguments = ["--model-dir", "model", "--sequences", "64", "--kinds", "restart"]
    options = starts.parse_options(arguments)
    fresh, restart = starts.plan_starts(options.kinds, 1)

    commands = [starts.build_command(start, options, arguments) for start in (fresh, restart)]
    first, second = (starts.parse_options(command[4:]) for command in commands)

    assert (first.checked, first.killed, second.checked, second.killed) == (True, False, False, True)
    assert first.child and first.sequences == 64 and first.model_dir.is_absolute()
    variables = [starts.list_variables(start, Path("/caches"), "http://127.0.0.1:9") for start in (fresh, restart)]
    assert [one.get("ENGINE_RESTARTS") for one in variables] == ["0", None]
    assert variables[0]["ENGINE_CACHE"] == variables[1]["ENGINE_CACHE"] == "s3://bench/start-0/"


def test_a_machine_without_a_gpu_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="this machine has no GPU"):
        starts.main(["--model-dir", str(tmp_path), "--json", str(tmp_path / "starts.json")])


def test_a_start_that_compiles_nothing_while_serving_passes() -> None:
    """What is compiled before the first page is answered is part of the start, and kernels are loaded later."""
    ended = run(
        MONITOR.format("Triton kernel", "_attend_kernel"),
        found(**FINDINGS, compiled_for_first_page=["_attend_kernel"]),
        MONITOR.format("Triton kernel", "fused_moe_kernel"),
        found(compiled=[]),
    )

    assert starts.list_problems([ended]) == []
    assert ended["first_used"] == ["fused_moe_kernel"]
    assert ended["compiled_for_first_page"] == ["_attend_kernel"]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (found(compiled=["_ban_kernel"]), "_ban_kernel"),
        (MONITOR.format("CuTeDSL", "attend"), "attend"),
        (MONITOR.format("TileLang", "mhc (cache_key=1; runtime_shapes={})"), "mhc"),
        ("Triton autotuning for function _sum_kernel,", "_sum_kernel"),
    ],
)
def test_what_is_compiled_while_serving_is_named(line: str, name: str) -> None:
    """New folders of Triton's cache, other compilers, and measurements between variants."""
    ended = run(found(**FINDINGS), line)

    assert starts.list_problems([ended]) == [f"start 0, fresh: compiled after the first page: {name}"]


def test_a_start_that_fails_fails_the_command_and_no_figure() -> None:
    """Its figures are left out."""
    command = [sys.executable, "-c", f"print({found(**FINDINGS)!r}); raise SystemExit(3)"]

    failed = starts.run_start(FRESH, command, {}, 30.0)

    assert starts.list_problems([failed]) == ["start 0, fresh: ended with 3; its output is above"]
    assert starts.summarize([failed]) == {}


def test_lost_answers_fail_the_command() -> None:
    """All prompts in a killed core are answered by the next one."""
    ended = run(found(**FINDINGS), found(restart={"seconds": {"all_answers_s": 19.0}, "answers": 63}))

    assert starts.list_problems([ended]) == ["start 0, fresh: 63 of 64 answers"]


def test_starts_are_summarized_by_kind() -> None:
    """The median and the maximum of every stage; a restart has a column of its own."""

    def build(kind: str, ready_s: float, **more: Any) -> dict[str, Any]:
        return {"kind": kind, "exit_code": 0, "seconds": {"ready_s": ready_s}, **more}

    restart = {"seconds": {"all_answers_s": 19.0}, "answers": 64}
    summary = starts.summarize([
        build("warm", 31.0), build("warm", 36.6), build("warm", 30.2), build("restart", 30.0, restart=restart),
    ])  # fmt: skip

    assert summary["warm"] == {"starts": 3, "median": {"ready_s": 31.0}, "max": {"ready_s": 36.6}}
    assert summary[starts.AFTER_KILL]["median"] == {"all_answers_s": 19.0}
    columns = [list(column.cells) for column in starts.build_table(summary).columns]
    assert columns == [["ready_s", "all_answers_s"], ["31.0, 36.6", "–"], ["30.0, 30.0", "–"], ["–", "19.0, 19.0"]]


def test_new_kernels_are_named_by_their_files(tmp_path: Path) -> None:
    """Older versions of Triton also compile a launcher for each signature."""
    for name in ("A/_ban_kernel.cubin", "A/__grp___ban_kernel.json", "B/__triton_launcher.cpython-312.so"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()

    assert starts.list_kernels(tmp_path) == {"A": "_ban_kernel", "B": "__triton_launcher"}
    assert starts.list_kernels(tmp_path / "none") == {}


def test_all_that_jobs_can_ask_is_read() -> None:
    """Every mode, with and without a ban, no draft, a long one, crops up to a page, and more pages than sequences."""
    modes = sorted(get_family("deepseek_ocr").modes - {"auto"})
    asked = list(starts.list_prompts([Pixels(1190, 1684, data=bytes(1190 * 1684 * 3))], modes))
    prompts = [prompt for at_once in asked for prompt in at_once]

    assert {prompt.mode for prompt in prompts} == {"tiny", "small", "base", "large", "gundam"}
    assert {prompt.sampling.ngram for prompt in prompts} > {0, 30}
    assert {len(prompt.draft.split()) for prompt in prompts} > {0, 3000}
    assert {prompt.image.width for prompt in prompts} == {64, 200, 600, 1190}
    assert len(asked[-1]) == 600


async def test_the_loopback_bucket_keeps_compiled_code(tmp_path: Path) -> None:
    """A fresh start stores it once, whoever comes second; a shared one fetches it."""
    with s3_server.start_server() as endpoint:
        variables = starts.list_variables(FRESH, tmp_path, endpoint)
        names = ("ENGINE_CACHE", "BUCKET_ENDPOINT_URL", "BUCKET_ACCESS_KEY_ID", "BUCKET_SECRET_ACCESS_KEY")
        settings = Settings(**{name.lower(): variables[name] for name in names})  # type: ignore[arg-type]
        places = [Place("code.tar.zst", tmp_path / name / "vllm", tmp_path / name / "triton") for name in "abc"]
        first = [SharedCache(settings, place, LIMITS_S) for place in places[:2]]
        looked = [cache.wait() for cache in first]
        for cache, place in zip(first, places, strict=False):
            (place.triton / "KERNEL").mkdir(parents=True)
            (place.triton / "KERNEL" / "kernel.cubin").write_text(str(place.triton))
            await cache.share()
        fetched = SharedCache(settings, places[2], LIMITS_S).wait()

    assert (*looked, fetched) == (State.MISSING, State.MISSING, State.FETCHED)
    assert (places[2].triton / "KERNEL" / "kernel.cubin").read_text() == str(places[0].triton)
