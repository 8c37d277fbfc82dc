"""Benchmark the vision encoder alone, vLLM's and ours, on the same random weights, as JSON lines.

    python -m scripts.bench encoder --model-dir DIR [--sweep]

Reports how much our output differs from vLLM's (relative), milliseconds a page for several numbers of pages, and
milliseconds by part. Only the model is built; no engine runs. `--sweep` times the attention kernel's settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from scripts.bench.harness import create_parser, print_json

STAGE_PAGES = 4


def main(arguments: Sequence[str]) -> None:
    parser = create_parser("scripts.bench encoder", __doc__)
    parser.add_argument("--model-dir", type=Path, required=True)
    parser.add_argument("--pages", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--sweep", action="store_true")
    options = parser.parse_args(arguments)
    import torch

    from scripts.bench import vision_encoder as vision

    with vision.load_model(options.model_dir) as model, torch.inference_mode():
        batches = {"gundam": vision.make_batch(1), "small": vision.make_batch(1, 0)}
        differences = {mode: vision.compare_with_stock(model, batch) for mode, batch in batches.items()}
        print_json(alike={mode: round(difference, 5) for mode, difference in differences.items()})
        errors = vision.compare_with_float32(model)
        print_json(far_from_exact={name: round(error, 5) for name, error in errors.items()})
        for count in options.pages:
            batch = vision.make_batch(count)
            ours, stock = (partial(encode, model, batch) for encode in (vision.encode, vision.encode_stock))
            print_json(pages=count, twopass_ms=vision.measure_ms(ours) / count,
                       launched_ms=vision.measure_launch_ms(ours) / count,
                       stock_ms=vision.measure_ms(stock) / count)  # fmt: skip
        vision.print_parts(model, max(options.pages))
        if options.sweep:
            vision.print_sweep(model, max(options.pages))


def measure_stage(options: Any) -> dict[str, Any]:
    """The suite's stage `encoder`: milliseconds a page, four pages together."""
    import torch

    from scripts.bench import vision_encoder as vision

    with vision.load_model(options.model_dir) as model, torch.inference_mode():
        print_json(far=vision.compare_with_float32(model))
        batch = vision.make_batch(STAGE_PAGES)
        ours, stock = (partial(encode, model, batch) for encode in (vision.encode, vision.encode_stock))
        return {"encoder_ms": {
            "twopass": round(vision.measure_ms(ours) / STAGE_PAGES, 2),
            "stock": round(vision.measure_ms(stock) / STAGE_PAGES, 2),
        }}  # fmt: skip
