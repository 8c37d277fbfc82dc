"""One start of the engine in this process: its stages and first page, then all that jobs can ask, or a restart."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from scripts.bench.engine_setup import build_settings, open_engine, raise_descriptor_limit, read_process_start
from scripts.bench.report import print_json
from scripts.bench.workload import CROP_PROMPT, CROP_TOKENS, STREAM_INTERVAL, make_prompt

PAGES, PAGE_TOKENS = 600, 150
CROPS_AT_ONCE = (1, 3, 17, 200)
CROP_SIZES = ((64, 64), (600, 600), (1190, 300), (200, 1684), (1190, 1684))
NGRAM_WINDOWS = ((30, 90), (20, 50), (35, 128), (3, 10), (0, 90))  # usual, of other rungs, shortest, without a ban
DRAFT_WORDS = (0, 1, 3000)
KILLED_PROMPTS, KILLED_TOKENS, KILLED_AFTER_S = 64, 2000, 3.0
IMPORTS_S, STILL_S = 60.0, 1.5  # of the fork server, which has imported all when its processor time stands still


def measure(options: Any) -> None:
    """Start the engine, and print what was found. `checked`: it reads all that jobs can ask; `killed`: it restarts."""
    from twopass.engines.vllm.engine import start_engines
    from twopass.telemetry import logs

    began = time.monotonic() - (time.time() - read_process_start())
    raise_descriptor_limit()
    settings = build_settings(options, STREAM_INTERVAL)
    logs.set_up(settings)
    ends = [("twopass_s", time.monotonic())]
    (engine,) = start_engines(settings, options.model_dir)
    ends.append(("engine_s", time.monotonic()))
    asyncio.run(_run(engine, options, began, ends))


async def _run(engine: Any, options: Any, began: float, ends: list[tuple[str, float]]) -> None:
    from twopass.telemetry.stopwatch import measure_stages

    kernels = Path(os.environ["TRITON_CACHE_DIR"])
    async with open_engine(engine, options.workers) as pages:
        ready = time.monotonic()
        at_ready = list_kernels(kernels)
        await engine.generate(make_prompt(pages[0], 1))
        first_page_s = time.monotonic() - ready
        at_first_page = list_kernels(kernels)
        stages = measure_stages(began, [*engine.stage_ends.items(), *ends, ("open_s", ready)])
        print_json(found={
            "seconds": _round({"ready_s": ready - began, "first_page_s": first_page_s, **stages}),
            "slower": list(engine.fallbacks),
            "compiled_for_first_page": _name_new(at_ready, at_first_page),
        })  # fmt: skip
        await engine.after_ready()
        if options.checked:
            for prompts in list_prompts(pages, _list_modes(engine.family)):
                await asyncio.gather(*(engine.generate(prompt) for prompt in prompts))
        if options.killed:
            print_json(found={"restart": await _kill_core(engine, pages)})
        print_json(found={"compiled": _name_new(at_first_page, list_kernels(kernels))})


def list_kernels(folder: Path) -> dict[str, str]:
    """What Triton's cache has, by its folders: the names of kernels, and of launchers where this Triton makes any."""
    return {entry.name: _name_kernel(entry) for entry in folder.iterdir()} if folder.is_dir() else {}


def _name_kernel(folder: Path) -> str:
    """A kernel's files have its name; those of its group begin with __grp__."""
    names = sorted(file.name.partition(".")[0] for file in folder.iterdir() if not file.name.startswith("__grp__"))
    return names[0] if names else folder.name


def _name_new(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    return sorted(name for folder, name in after.items() if folder not in before)


def _round(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in seconds.items()}


def _list_modes(family: str) -> Sequence[str]:
    from twopass.families.registry import get_family

    return sorted(get_family(family).modes - {"auto"})


def list_prompts(pages: Sequence[Any], modes: Sequence[str]) -> Iterator[Sequence[Any]]:
    """All that jobs can ask, each time the prompts that are sent at once."""
    prompt = make_prompt(pages[0], CROP_TOKENS)
    for mode in modes:
        yield [replace(prompt, mode=mode)]
    for ngram, window in NGRAM_WINDOWS:
        yield [replace(prompt, sampling=replace(prompt.sampling, ngram=ngram, window=window))]
    yield [replace(prompt, sampling=replace(prompt.sampling, temperature=0.7))]
    for count in DRAFT_WORDS:
        yield [replace(prompt, draft=" ".join(f"word{number}" for number in range(count)))]
    crops = [
        make_prompt(pages[0].crop(0, 0, *size), CROP_TOKENS, mode, CROP_PROMPT) for mode in modes for size in CROP_SIZES
    ]
    for count in CROPS_AT_ONCE:
        yield [crops[number % len(crops)] for number in range(count)]
    yield [make_prompt(pages[number % len(pages)], PAGE_TOKENS) for number in range(PAGES)]


async def _kill_core(engine: Any, pages: Sequence[Any]) -> dict[str, Any]:
    """Kill the core under load; the seconds count from then on."""
    from twopass.telemetry.stopwatch import measure_stages

    has_server = await _wait_for_fork_server()
    prompts = [make_prompt(pages[number % len(pages)], KILLED_TOKENS) for number in range(KILLED_PROMPTS)]
    answers = [asyncio.create_task(engine.generate(prompt)) for prompt in prompts]
    await asyncio.sleep(KILLED_AFTER_S)
    killed = time.monotonic()
    for process in engine.core.client.engine_core.resources.engine_manager.processes:
        process.kill()
    await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
    first_s = time.monotonic() - killed
    complete = [answer.finish_reason == "length" for answer in await asyncio.gather(*answers)]
    all_s = time.monotonic() - killed
    stages = measure_stages(killed, (await engine.core.open()).items())
    seconds = {"first_answer_s": first_s, "all_answers_s": all_s, **stages}
    return {"seconds": _round(seconds), "answers": sum(complete), "fork_server": has_server}


async def _wait_for_fork_server() -> bool:
    """Wait until it has imported what a core needs; False if there is none, or it takes longer than IMPORTS_S."""
    import psutil

    until, used = time.monotonic() + IMPORTS_S, -1.0
    while time.monotonic() < until:
        await asyncio.sleep(STILL_S)
        children = psutil.Process().children()
        server = next((child for child in children if "multiprocessing.forkserver" in " ".join(child.cmdline())), None)
        before, used = used, sum(server.cpu_times()[:2]) if server else -1.0
        if server and used == before:
            return True
    return False
