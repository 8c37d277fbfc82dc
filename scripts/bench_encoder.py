#!/usr/bin/env python3
"""The vision encoder alone, vLLM's own way and ours, on the same random weights, as JSON lines.

    python scripts/bench_encoder.py --model-dir DIR [--sweep]

Tells how far ours is from vLLM's (relative), milliseconds a page at several numbers of pages, and by part. No
engine runs: only the model is built. `--sweep` times the attention kernel's settings.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

PAGE = (2, 3)  # tiles of an A4 page in gundam mode, across and down
ROUNDS = 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model-dir", type=Path, required=True)
    parser.add_argument("--pages", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--sweep", action="store_true")
    options = parser.parse_args()
    with loaded(options.model_dir) as model, torch.inference_mode():
        tell(alike={mode: round(alike(model, pages(1, base)[0]), 5) for mode, base in (("gundam", 1024), ("small", 0))})
        tell(far_from_exact={name: round(value, 5) for name, value in far_from_exact(model).items()})
        for count in options.pages:
            told = pages(count)
            tell(pages=count, twopass_ms=ms(partial(ours, model, told)) / count,
                 launched_ms=launched_ms(partial(ours, model, told)) / count,
                 stock_ms=ms(partial(stock, model, told)) / count)  # fmt: skip
        parts(model, max(options.pages))
        if options.sweep:
            sweep(model, max(options.pages))


def tell(**facts: Any) -> None:
    print(json.dumps({k: round(v, 3) if isinstance(v, float) else v for k, v in facts.items()}), flush=True)


@contextmanager
def loaded(folder: Path, **more: Any) -> Iterator[Any]:
    """The model as an engine's worker would build it, on this machine's device; weights that keep it talking."""
    from vllm.config import set_current_vllm_config
    from vllm.distributed import parallel_state
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader import get_model
    from vllm.platforms import current_platform

    from twopass.engines.vllm import plugin

    plugin.register()
    config = EngineArgs(model=str(folder), load_format="dummy", max_model_len=4096, max_num_batched_tokens=8192,
                        **more).create_engine_config()  # fmt: skip
    with tempfile.NamedTemporaryFile() as place, set_current_vllm_config(config):
        backend = "nccl" if current_platform.is_cuda() else "gloo"
        parallel_state.init_distributed_environment(1, 0, f"file://{place.name}-group", 0, backend)
        parallel_state.initialize_model_parallel(1, 1)
        model = get_model(vllm_config=config)
        torch.manual_seed(1)
        for part in (model.sam_model, model.projector, getattr(model, "vision_model", None) or model.qwen2_model):
            for name, weight in part.named_parameters():
                weight.data.copy_(_drawn(name, weight))
        yield model
        parallel_state.destroy_model_parallel()
        parallel_state.destroy_distributed_environment()


def _drawn(name: str, weight: torch.Tensor) -> torch.Tensor:
    noise = torch.randn(weight.shape)
    if "norm" in name and name.endswith("weight"):
        return 1 + 0.1 * noise
    if "pos" in name or "embed" in name or "query" in name:
        return 0.3 * noise
    return 0.1 * noise if weight.dim() < 2 else noise / math.sqrt(weight[0].numel())


def pages(count: int, base: int = 1024) -> list[dict[str, Any]]:
    """As the engine's runner hands them over: a whole batch. Base 0: pictures of 640 without tiles."""
    from vllm.platforms import current_platform

    tiles = PAGE[0] * PAGE[1] * count if base else 0

    def noise(number: int, side: int) -> torch.Tensor:
        return torch.randint(0, 256, (number, side, side, 3), dtype=torch.uint8).to(current_platform.device_type)

    grid = PAGE if base else (1, 1)
    return [
        {
            "pixel_values": noise(count, base or 640),
            "images_crop": noise(tiles, 640),
            "images_spatial_crop": torch.tensor([grid] * count),
        }
    ]


def ours(model: Any, told: list[dict[str, Any]]) -> list[torch.Tensor]:
    return [made for one in told for made in model.embed_multimodal(**one)]


def stock(model: Any, told: list[dict[str, Any]]) -> list[torch.Tensor]:
    """What vLLM's class does with pictures that are normalised already."""
    from twopass.engines.vllm.plugin.encoder import normalised

    kind = next(model.sam_model.parameters()).dtype
    parent: Any = type(model).__mro__[1]
    return [
        made
        for one in told
        for made in parent._pixel_values_to_embedding(
            model, normalised(one["pixel_values"], kind), normalised(one["images_crop"], kind),
            one["images_spatial_crop"],
        )
    ]  # fmt: skip


def far_from_exact(model: Any) -> dict[str, float]:
    """SAM's features against vLLM's own in float32: how far ours are, and how far vLLM's own in bfloat16."""
    from twopass.engines.vllm.plugin.encoder import normalised

    far = {}
    exact = copy.deepcopy(model.sam_model).float()
    for side in (1024, 640):
        pixels = normalised(torch.randint(0, 256, (2, side, side, 3), dtype=torch.uint8, device="cuda"), torch.bfloat16)
        right = exact(pixels.float())
        for name, made in (("twopass", model._sam(pixels)), ("stock", model.sam_model(pixels))):
            far[f"{name} {side}"] = float((made.float() - right).norm() / right.norm())
    return far


def alike(model: Any, told: dict[str, Any]) -> float:
    """How far ours is from stock, relative to its size."""
    (mine,), (theirs,) = ours(model, [told]), stock(model, [told])
    assert mine.shape == theirs.shape, (mine.shape, theirs.shape)
    return float((mine - theirs).float().norm() / theirs.float().norm())


def ms(work: Callable[[], Any]) -> float:
    """Median of several rounds, on the GPU's clock."""
    for _ in range(2):
        work()
    times: list[float] = []
    for _ in range(ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def launched_ms(work: Callable[[], Any]) -> float:
    """What the calling thread needs until it may go on."""
    times = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        before = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - before))
    return statistics.median(times)


def parts(model: Any, count: int) -> None:
    """Milliseconds a page of each part, `count` pages together."""
    from twopass.engines.vllm.plugin.encoder import normalised

    kind = next(model.sam_model.parameters()).dtype
    (told,) = pages(count)
    times: dict[str, float] = {}
    for name, views in (("whole", told["pixel_values"]), ("tiles", told["images_crop"])):
        pixels = normalised(views, kind)
        sam = model._sam(pixels)
        times[f"normalise {name}"] = ms(partial(normalised, views, kind)) / count
        times[f"sam {name}"] = ms(partial(model._sam, pixels)) / count
        times[f"stock sam {name}"] = ms(partial(_one_by_one, model.sam_model, pixels, count)) / count
        if hasattr(model, "vision_model"):
            clip = model.vision_model(pixels, sam)
            times[f"clip {name}"] = ms(partial(model.vision_model, pixels, sam)) / count
            both = torch.cat((clip[:, 1:], sam.flatten(2).permute(0, 2, 1)), dim=-1)
            times[f"projector {name}"] = ms(partial(model.projector, both)) / count
    tell(parts={name: round(value, 3) for name, value in times.items()})


def _one_by_one(model: Any, pixels: torch.Tensor, count: int) -> None:
    for one in pixels.chunk(count):
        model(one)


def sweep(model: Any, count: int) -> None:
    """The attention kernel's settings, by kind of layer: milliseconds a layer and page."""
    from twopass.engines.vllm.plugin import sam, sam_kernel

    for name, side, grid, pictures in (
        ("global 1024", 64, 64, count), ("global 640", 40, 40, 6 * count), ("window 1024", 14, 64, count),
        ("window 640", 14, 40, 6 * count),
    ):  # fmt: skip
        layer = model.sam_model.blocks[0 if side == 14 else 2].attn
        tokens = pictures * grid * grid
        qkv = torch.randn(tokens + 1, 3 * 768, device="cuda", dtype=torch.bfloat16)
        table = sam.table(layer, side)
        rel = sam.distances(qkv, table, 12)
        found = {"distances": ms(partial(sam.distances, qkv, table, 12)) / count}
        for tuning in product((64, 128), (1, 2, 4), (4, 8), (2, 3)):
            if (side == 14) == (tuning[1] == 1) or (side != 14 and tuning[1] > 2):
                continue
            try:
                found[str(tuning)] = (
                    ms(partial(sam_kernel.attended, qkv, rel, pictures, (grid, grid), (side, side), tuning)) / count
                )
            except Exception as error:  # a setting that does not fit the chip
                found[str(tuning)] = math.inf
                print(tuning, type(error).__name__)
        best = sorted(found.items(), key=lambda pair: pair[1])
        tell(sweep=name, ms={key: round(value, 4) for key, value in best})


if __name__ == "__main__":
    main()
