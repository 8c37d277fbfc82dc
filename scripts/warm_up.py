#!/usr/bin/env python3
"""Fills ENGINE_CACHE for this machine's GPU, driver and versions: opens the engine, looks at pictures in every mode.

    ENGINE=vllm ENGINE_CACHE=/runpod-volume/cache python scripts/warm_up.py

Run it when an image is built on a machine with the GPU, or once on the volume that workers share; several may run at
once, as every file is put in place whole. Prints seconds as JSON.
"""

from __future__ import annotations

import asyncio
import json
import time

import numpy as np

from twopass.engines.interface import Prompt, Sampling
from twopass.pages.shared_pixels import Pixels
from twopass.settings import Settings
from twopass.telemetry import logs
from twopass.worker import Worker, open_worker

WIDTH, HEIGHT = 1190, 1684  # A4 at 144 dpi: six tiles
TOKENS = 8
TOGETHER = (1, 2, 3, 4, 6, 8, 12)  # pictures: as many graphs of the encoder


def main() -> None:
    settings = Settings()
    logs.set_up(settings)
    with open_worker(settings) as opened:
        seconds = dict(opened.started)
        for mode in sorted(opened.family.modes - {"auto"}):
            before = time.monotonic()
            opened.submit(_look(opened, mode)).result()
            seconds[mode] = round(time.monotonic() - before, 1)
    print(json.dumps(seconds))


async def _look(opened: Worker, mode: str) -> None:
    """One answer after the other would do; a few at once fill what is made for several pictures."""
    noise = np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
    picture = Pixels(WIDTH, HEIGHT, held=noise.tobytes())
    sampling = Sampling(max_tokens=TOKENS, ignore_eos=True)
    question = opened.family.canary
    assert question, "a family whose engine keeps graphs has a known picture"
    prompt = Prompt("warm_up", question.prompt, picture, mode=mode, sampling=sampling)
    for count in TOGETHER:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(count, opened.engine.sequences)):
                group.create_task(opened.engine.generate(prompt))


if __name__ == "__main__":
    main()
