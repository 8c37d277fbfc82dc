"""Benchmark the layout detector, PP-DocLayoutV3 at its full size with random weights, as JSON lines.

    python -m scripts.bench detector --batches 1 8 64 --compiled

Milliseconds a page to prepare the input, in the model, and to decode what it found. Random weights find 300 candidates
on a page of random pixels, which are ink everywhere: decoding a page of text takes a tenth. Without OpenCV it is left
out. `--compiled` measures the compiled model after the eager one.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from scripts.bench.harness import create_parser, print_json
from scripts.bench.workload import A4
from twopass.engines.detector import process
from twopass.engines.detector.engine import REGIONS_AT_ONCE, DetectorFirstEngine
from twopass.engines.detector.placement import Placement
from twopass.engines.detector.process import ChildDetector, DetectorOptions
from twopass.engines.interface import Engine
from twopass.pages.shared_pixels import Pixels

ROUNDS = 5


def main(arguments: Sequence[str]) -> None:
    parser = create_parser("scripts.bench detector", __doc__)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--device", choices=("cuda", "cpu"), help="the GPU if there is one, if absent")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/twopass-bench/detector"))
    options = parser.parse_args(arguments)
    import torch

    from twopass.engines.detector import model

    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    precision = "bfloat16" if device == "cuda" else "float32"
    weights = write_checkpoint(options.folder)
    for compiled in (False, True) if options.compiled else (False,):
        detector = model.load(weights, device, precision, compiled)
        for batch in options.batches:
            _measure(detector, batch, options.rounds, device=device, precision=precision, compiled=compiled)


class ModelOnlyDetector(ChildDetector):
    """Runs the model as the detector does, and answers with nothing.

    Decoding is left out, because random weights and pixels make it ten times as long as a page of text does.
    """

    async def detect(self, pages: Sequence[Pixels]) -> Sequence[str]:
        assert self._pool, "`open` comes first"
        return await self._pool.call(run_model, self._options, tuple(pages))


def run_model(options: DetectorOptions, pages: Sequence[Pixels]) -> list[str]:
    """Runs in the child."""
    process._load(options).run(pages)
    return ["{}"] * len(pages)


def write_checkpoint(folder: Path, tiny: bool = False) -> Path:
    """Write random weights in the published shape; with `tiny`, in one that a CPU runs quickly."""
    import torch
    from transformers import PPDocLayoutV3Config, PPDocLayoutV3ForObjectDetection

    if not (folder / "config.json").exists():
        torch.manual_seed(1)
        small = {"num_queries": 20, "decoder_layers": 1} if tiny else {}
        PPDocLayoutV3ForObjectDetection(PPDocLayoutV3Config(num_labels=25, **small)).save_pretrained(folder)
    return folder


def write_apart(folder: Path, tiny: bool = False) -> Path:
    """Write the weights in a process of its own: PyTorch starts threads, after which an engine that is forked hangs."""
    with ProcessPoolExecutor(1) as child_process:
        return child_process.submit(write_checkpoint, folder, tiny).result()


def put_before(reader: Engine, weights: Path, model: str, placed: Placement) -> DetectorFirstEngine:
    """The engine that whole jobs and families are measured with: the full detector, of which nothing is decoded."""
    front = ModelOnlyDetector(DetectorOptions(weights, placed.device, placed.precision))
    return DetectorFirstEngine(front, reader, model, placed.batch, "random", REGIONS_AT_ONCE)


def _measure(detector: Any, batch: int, rounds: int, device: str, **facts: Any) -> None:
    import numpy as np
    import torch

    from twopass.engines.detector import decode, model

    width, height = A4
    rng = np.random.default_rng(1)
    noise = [rng.integers(0, 256, (height, width, 3), np.uint8).tobytes() for _ in range(min(batch, 4))]
    pages = [Pixels(width, height, data=noise[number % len(noise)]) for number in range(batch)]

    def finish() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    def prepare() -> None:
        model.prepare(pages, device, next(detector._model.parameters()).dtype)
        finish()

    started = time.time()
    raw = detector.run(pages)  # compiles, and fills caches
    finish()
    first_s = time.time() - started
    prepare_ms, run_ms = _median_ms(prepare, rounds), _median_ms(lambda: detector.run(pages), rounds)
    decoding = {}
    if find_spec("cv2"):
        decode_ms = _median_ms(
            lambda: [decode.write_answer(one, page) for one, page in zip(raw, pages, strict=True)], 1
        )
        decoding["decode_ms_a_page"] = decode_ms / batch
    parameters = sum(weight.numel() for weight in detector._model.parameters())
    print_json(detector_batch=batch, device=device, **facts, parameters=parameters, first_s=first_s,
               prepare_ms_a_page=prepare_ms / batch, model_ms_a_page=(run_ms - prepare_ms) / batch,
               **decoding, batch_ms=run_ms,
               memory_mib=torch.cuda.max_memory_allocated() >> 20 if device == "cuda" else 0)  # fmt: skip


def _median_ms(work: Callable[[], Any], rounds: int) -> float:
    seconds = []
    for _ in range(rounds):
        started = time.time()
        work()
        seconds.append(time.time() - started)
    return 1000 * statistics.median(seconds)
