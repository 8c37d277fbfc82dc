"""The `twopass warm-up` command."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twopass.cli import options
from twopass.cli.exit_codes import Exit

if TYPE_CHECKING:
    from twopass.worker import Worker

WIDTH, HEIGHT = 1190, 1684  # A4 at 144 dpi: six tiles
MAX_TOKENS = 8
DRAFT = "Any words, so that the kernels that find drafts are compiled."
_PICTURE_COUNTS = (1, 2, 3, 4, 6, 8, 12)  # pictures at once; the encoder has a CUDA graph for each count


def command(
    kernels_for: Annotated[
        str,
        typer.Option(
            "--kernels", metavar="LIST", help="Only compile known kernels, for chips such as 80,90; needs no GPU."
        ),
    ] = "",
    record: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Add the kernels that were used to this file, for builds without a GPU."),
    ] = None,
    config: options.Config = None,
) -> None:
    """Fill ENGINE_CACHE for this machine's kind of GPU and versions.

    Compiles known kernels on all cores, opens the engine of the environment and reads pictures in every mode. Run it
    when an image is built on a machine with the GPU, or once for the volume or bucket that workers share; several may
    run at once. Prints seconds as JSON.
    """
    from twopass.engines.vllm import kernels, startup
    from twopass.errors import TwopassError
    from twopass.telemetry import logs
    from twopass.worker import open_worker

    settings = options.load_worker_settings()
    if settings.torch_compile == "auto":
        settings = settings.model_copy(update={"torch_compile": "on"})  # so that other workers find the code
    logs.set_up(settings)
    if record:
        os.environ[kernels.RECORD_VARIABLE] = str(record.absolute())
    try:
        started = time.monotonic()
        is_compiled = startup.compile_kernels(settings, list(filter(None, kernels_for.split(","))))
        compiled_s = round(time.monotonic() - started, 1)
        if kernels_for:
            raise typer.Exit(Exit.SUCCESS if is_compiled else Exit.FAILED)
        with open_worker(settings) as worker:
            seconds = {**worker.started, "kernels": compiled_s}
            for mode in sorted(worker.family.modes - {"auto"}) or ["auto"]:
                started = time.monotonic()
                worker.submit(_read_pictures(worker, mode)).result()
                seconds[mode] = round(time.monotonic() - started, 1)
            worker.submit(worker.engine.after_ready(is_warmed_up=True)).result()
    except TwopassError as error:
        options.fail(error)
    if record:
        kernels.merge(record)
    typer.echo(json.dumps(seconds))


async def _read_pictures(worker: Worker, mode: str) -> None:
    """Read one picture of noise, then several at once, up to as many as fit: kernels depend on how many there are."""
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
    for count in (*_PICTURE_COUNTS, engine.sequences):
        async with asyncio.TaskGroup() as group:
            for _ in range(min(count, engine.sequences)):
                group.create_task(engine.generate(prompt))
