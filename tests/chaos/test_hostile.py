"""Hostile files through one worker: none kills it, none exceeds its limits, each has a coded outcome."""

from __future__ import annotations

import base64
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import mutations
from tests.chaos.chaos import HANDLER, ROOT, turns
from tests.chaos.processes import Peaks
from tests.fakes.queue import LoopbackQueue, Outcome
from twopass.errors import Code

FOUND = ROOT.parent / "shared" / "corpus" / "bad"  # beside the repository, where somebody has it
FILES = turns("FILES", 100)
TIMEOUT_S = 60  # of one call; on a machine at work for others loading the layout model takes a third of it
MEMORY = 1536 << 20
OVER = 256 << 20  # between two looks at a page worker's memory
MAIN_MEMORY = 700 << 20  # of the process that takes the jobs
SLOWEST_S = 600.0
AT_ONCE = 8  # jobs in the queue
LIMITS = {
    "WORKER_TIMEOUT_S": str(TIMEOUT_S),
    "WORKER_MEMORY_BYTES": str(MEMORY),
    "MAX_PAGE_PIXELS": "4000000",
    "MAX_IMAGE_PIXELS": "20000000",
}


def files() -> Iterator[tuple[str, bytes]]:
    # A run of CI does without them; all of the chaos is not all without them.
    assert FOUND.is_dir() or "CHAOS_FILES" not in os.environ, f"no files in {FOUND}"
    for path in sorted(FOUND.iterdir()) if FOUND.is_dir() else ():
        yield path.name, path.read_bytes()
    yield from map(mutations.file, range(FILES))


def job(data: bytes) -> dict[str, Any]:
    source = "data:application/octet-stream;base64," + base64.b64encode(data).decode()
    return {"input": {"source": source, "pages": "1-2", "inline": ["markdown"]}}


def code_of(outcome: Outcome) -> str:
    """What a caller is told, in one word: the error's code, or the worst that happened to a page."""
    if outcome.error:
        return outcome.error.partition(":")[0]
    problems = [problem["code"] for problem in outcome.output["problems"] if problem["severity"] == "error"]
    return problems[0] if problems else str(outcome.output["status"])


def test_a_worker_survives_every_hostile_file(worker_env: dict[str, str], tmp_path: Path) -> None:
    """The same process answers every job with a code or with pages, within its memory and time."""
    outcomes: Counter[str] = Counter()
    bad: list[str] = []
    slowest = (0.0, "")
    began = time.monotonic()
    with (
        LoopbackQueue() as queue,
        queue.worker(HANDLER, cwd=ROOT, env={**worker_env, **LIMITS, "TMPDIR": str(tmp_path)}) as worker,
        Peaks(worker.pid).watching() as peaks,
    ):
        waiting: list[tuple[str, str, float]] = []

        def settle() -> None:
            nonlocal slowest
            name, job_id, put = waiting.pop(0)
            outcome = queue.wait(job_id, SLOWEST_S)
            slowest = max(slowest, (time.monotonic() - put, name))
            code = code_of(outcome)
            outcomes[code] += 1
            if outcomes.total() % 100 == 0:
                print(f"\n{outcomes.total()} files, {time.monotonic() - began:.0f} s: {dict(outcomes)}", end="")
            if code == Code.INTERNAL or code not in {*Code, "success", "partial_success"}:
                bad.append(f"{name}: {outcome.error}")

        for name, data in files():
            waiting.append((name, queue.put(job(data)), time.monotonic()))
            if len(waiting) == AT_ONCE:
                settle()
        while waiting:
            settle()
        after = queue.wait(queue.put(job(mutations.BASES["pdf-prose"]())))
        alive = worker.pid in peaks.bytes and "Traceback" not in worker.log
        log = worker.log

    seconds = time.monotonic() - began
    main = peaks.bytes.pop(worker.pid)
    others = max(peaks.bytes.values())
    print(
        f"\n{outcomes.total()} files in {seconds:.0f} s, slowest {slowest[0]:.1f} s ({slowest[1]}); outcomes "
        f"{dict(outcomes.most_common())}; {len(peaks.bytes)} other processes, the largest with {others >> 20} MiB, "
        f"the worker's own {main >> 20} MiB"
    )
    assert not bad
    assert after.output["documents"][0]["pages"] == {"read": 2}
    assert alive, log[-3000:]
    assert others < MEMORY + OVER and main < MAIN_MEMORY
    assert not list(tmp_path.glob("twopass-*"))


@pytest.mark.parametrize("seed", range(3))
def test_a_seed_makes_the_same_file_again(seed: int) -> None:
    """What broke the worker once can be made again."""
    mutations._plain.cache_clear()

    assert mutations.file(seed) == mutations.file(seed)
