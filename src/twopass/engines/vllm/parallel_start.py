"""Start several engines at the same time, each on GPUs of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from twopass.engines.vllm import startup
from twopass.engines.vllm.engine import VllmEngine
from twopass.settings import Settings


def start_engines(
    settings: Settings, model: Path, shares: Sequence[Sequence[str]], create: Callable[..., Any] = VllmEngine
) -> list[VllmEngine]:
    """Start an engine on each share of the GPUs; raises EngineError, and then none is left running.

    All cores are started before any is waited for: they are forked, and threads do not survive a fork.
    """
    with startup.read_ahead(model), ExitStack() as stack:
        engines = []
        for gpu_ids in shares:
            engines.append(create(settings, model, gpu_ids, waits=False))
            stack.callback(engines[-1].abandon)
        with ThreadPoolExecutor(len(engines)) as threads:
            waiting = [threads.submit(engine.wait_for_core) for engine in engines]
            if any(future.exception() for future in wait(waiting, return_when=FIRST_EXCEPTION).done):
                stack.close()  # the others need not load their weights
            for future in waiting:
                future.result()
        for engine in engines:
            engine.connect()
        stack.pop_all()
    return engines
