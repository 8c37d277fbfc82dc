"""The `twopass warm-up` command."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

import typer

from twopass.cli import options

if TYPE_CHECKING:
    from twopass.worker import Worker

WIDTH, HEIGHT = 1190, 1684  # A4 at 144 dpi: six tiles
MAX_TOKENS = 8
DRAFT = "Any words, so that the kernels that find drafts are compiled."
_PICTURE_COUNTS = (1, 2, 3, 4, 6, 8, 12)  # pictures at once; the encoder has a CUDA graph for each count


def command(config: options.Config = None) -> None:
    """Fill ENGINE_CACHE for this machine's kind of GPU and versions.

    Opens the engine of the environment and reads pictures in every mode. Run it when an image is built on a machine
    with the GPU, or once on the volume that workers share; several may run at once. Prints seconds as JSON.
    """
    from twopass.errors import TwopassError
    from twopass.telemetry import logs
    from twopass.worker import open_worker

    settings = options.load_worker_settings()
    logs.set_up(settings)
    try:
        with open_worker(settings) as worker:
            seconds = dict(worker.started)
            for mode in sorted(worker.family.modes - {"auto"}) or ["auto"]:
                started = time.monotonic()
                worker.submit(_read_pictures(worker, mode)).result()
                seconds[mode] = round(time.monotonic() - started, 1)
    except TwopassError as error:
        options.fail(error)
    typer.echo(json.dumps(seconds))


async def _read_pictures(worker: Worker, mode: str) -> None:
    """Read one picture of noise, then several at once: compiled code depends on how many are encoded together."""
    import numpy as np

    from twopass.engines.interface import Prompt, Sampling
    from twopass.pages.shared_pixels import Pixels

    noise = np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
    pixels = Pixels(WIDTH, HEIGHT, data=noise.tobytes())
    canary = worker.family.canary
    assert canary, "a family that has modes has a canary"
    sampling = Sampling(max_tokens=MAX_TOKENS, ignore_eos=True)
    prompt = Prompt("warm_up", canary.prompt, pixels, mode=mode, sampling=sampling, draft=DRAFT)
    engine, *_ = worker.engine.members or (worker.engine,)  # one is enough: the others have GPUs of the same kind
    for count in _PICTURE_COUNTS:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(count, engine.sequences)):
                group.create_task(engine.generate(prompt))
