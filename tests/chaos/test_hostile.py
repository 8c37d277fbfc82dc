"""One worker reads many hostile files: none kills it or exceeds its limits, and each ends with pages or a code.

Files that take very long are put first, each with an ordinary file behind it: how long that one takes shows how long
one page holds up the others.
"""

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
from tests.chaos.chaos import HANDLER, ROOT, read_count
from tests.chaos.processes import PeakMemory
from tests.fakes import hostile
from tests.fakes.queue import LoopbackQueue, Outcome
from twopass.errors import Code

CORPUS = ROOT.parent / "shared" / "corpus" / "bad"  # beside the repository, if present
FILES = read_count("FILES", 100)
TIMEOUT_S = 30  # processor seconds per page
RESERVE_S = 10  # more of them, for the text layer of a page that cannot be rendered
TOLERANCE_S = 5  # limits are checked four times a second, and seconds are rounded
PAGES = 2  # of each file
MEMORY = 1536 << 20
MEMORY_SLACK = 256 << 20  # bytes that a page worker may exceed its limit by before the worker notices
MAIN_MEMORY = 700 << 20  # bytes, of the process that takes the jobs
SLOWEST_S = 600.0
AT_ONCE = 8  # jobs in the queue
LIMITS = {
    "WORKER_TIMEOUT_S": str(TIMEOUT_S),
    "WORKER_MEMORY_BYTES": str(MEMORY),
    "MAX_PAGE_PIXELS": "4000000",
    "MAX_IMAGE_PIXELS": "20000000",
}


BESIDE = "beside-"  # the name of an ordinary file that is put right behind a slow one


def iterate_files() -> Iterator[tuple[str, bytes]]:
    for name, data in (
        ("plot", hostile.build_squares(47_000)),
        ("small-plot", hostile.build_squares(340)),
        ("links", hostile.build_links(20_000)),
        ("bomb", hostile.build_bomb(1 << 30)),
        ("form", hostile.build_cyclic_widget(b"Kids")),
    ):
        yield name, data
        yield BESIDE + name, mutations.BASES["pdf-prose"]()
    # CI runs without these files; `make chaos`, which sets CHAOS_FILES, needs them.
    assert CORPUS.is_dir() or "CHAOS_FILES" not in os.environ, f"no files in {CORPUS}"
    for path in sorted(CORPUS.iterdir()) if CORPUS.is_dir() else ():
        yield path.name, path.read_bytes()
    yield from map(mutations.build_file, range(FILES))


def build_job(data: bytes) -> dict[str, Any]:
    source = "data:application/octet-stream;base64," + base64.b64encode(data).decode()
    return {"input": {"source": source, "pages": f"1-{PAGES}", "inline": ["markdown"]}}


def get_code(outcome: Outcome) -> str:
    """Return the error's code, else the code of the first problem that is an error, else the job's status."""
    if outcome.error:
        return outcome.error.partition(":")[0]
    problems = [problem["code"] for problem in outcome.output["problems"] if problem["severity"] == "error"]
    return problems[0] if problems else str(outcome.output["status"])


def measure_cpu_time(outcome: Outcome) -> float:
    """Return the processor seconds of page workers per page, from opening the document to its artefacts."""
    documents = (outcome.output or {}).get("documents", ())
    stages = [document.get("timings", {}).get("stages", {}) for document in documents]
    pages = sum(sum(document.get("pages", {}).values()) for document in documents)
    return float(sum(stage["cpu_s"] for one in stages for stage in one.values())) / max(pages, 1)


def test_a_worker_survives_every_hostile_file(worker_env: dict[str, str], tmp_path: Path) -> None:
    """One worker process answers every hostile file with a code or with pages, within its memory limits."""
    outcomes: Counter[str] = Counter()
    unexpected: list[str] = []
    slowest = longest_hold = most_cpu_time = (0.0, "")
    began = time.monotonic()
    with (
        LoopbackQueue() as queue,
        queue.worker(HANDLER, cwd=ROOT, env={**worker_env, **LIMITS, "TMPDIR": str(tmp_path)}) as worker,
        PeakMemory(worker.pid).watch() as peaks,
    ):
        waiting: list[tuple[str, str, float]] = []

        def collect_oldest() -> None:
            nonlocal slowest, longest_hold, most_cpu_time
            name, job_id, put = waiting.pop(0)
            outcome = queue.wait(job_id, SLOWEST_S)
            slowest = max(slowest, (time.monotonic() - put, name))
            most_cpu_time = max(most_cpu_time, (measure_cpu_time(outcome), name))
            if name.startswith(BESIDE):
                longest_hold = max(longest_hold, (float(outcome.output["timings"]["duration_s"]), name))
            code = get_code(outcome)
            outcomes[code] += 1
            if outcomes.total() % 100 == 0:
                print(f"\n{outcomes.total()} files, {time.monotonic() - began:.0f} s: {dict(outcomes)}", end="")
            if code == Code.INTERNAL or code not in {*Code, "success", "partial_success"}:
                unexpected.append(f"{name}: {outcome.error}")

        for name, data in iterate_files():
            waiting.append((name, queue.put(build_job(data)), time.monotonic()))
            if len(waiting) == AT_ONCE:
                collect_oldest()
        while waiting:
            collect_oldest()
        after = queue.wait(queue.put(build_job(mutations.BASES["pdf-prose"]())))
        alive = worker.pid in peaks.bytes and "Traceback" not in worker.log
        log = worker.log

    seconds = time.monotonic() - began
    main = peaks.bytes.pop(worker.pid)
    others = max(peaks.bytes.values())
    print(
        f"\n{outcomes.total()} files in {seconds:.0f} s, slowest {slowest[0]:.1f} s ({slowest[1]}); outcomes "
        f"{dict(outcomes.most_common())}; an ordinary file beside a slow one took {longest_hold[0]:.1f} s at most "
        f"({longest_hold[1]}); most processor time of a page {most_cpu_time[0]:.1f} s ({most_cpu_time[1]}); "
        f"{len(peaks.bytes)} other processes, the largest with {others >> 20} MiB, the worker's own {main >> 20} MiB"
    )
    assert not unexpected
    assert most_cpu_time[0] < TIMEOUT_S + RESERVE_S + TOLERANCE_S
    assert after.output["documents"][0]["pages"] == {"read": 2}
    assert alive, log[-3000:]
    assert others < MEMORY + MEMORY_SLACK and main < MAIN_MEMORY
    assert not list(tmp_path.glob("twopass-*"))


@pytest.mark.parametrize("seed", range(3))
def test_a_seed_builds_the_same_file_again(seed: int) -> None:
    """The same seed builds the same file, so that a failure can be reproduced."""
    mutations.build_plain_pdf.cache_clear()

    assert mutations.build_file(seed) == mutations.build_file(seed)
