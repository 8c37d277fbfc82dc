"""Build DeepSeek-OCR's vision encoder with random weights, and time ours and vLLM's on the same pixels."""

from __future__ import annotations

import copy
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

from scripts.bench.harness import print_json

PAGE_TILES = (2, 3)  # of an A4 page in gundam mode, across and down
ROUNDS = 7

Batch = dict[str, torch.Tensor]


@contextmanager
def load_model(folder: Path, **more: Any) -> Iterator[Any]:
    """Build the model as an engine's worker would, on this machine's device, with random weights of useful sizes."""
    from vllm.config import set_current_vllm_config
    from vllm.distributed import parallel_state
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader import get_model
    from vllm.platforms import current_platform

    from twopass.engines.vllm import plugin

    plugin.activate()
    config = EngineArgs(model=str(folder), load_format="dummy", max_model_len=4096, max_num_batched_tokens=8192,
                        **more).create_engine_config()  # fmt: skip
    with tempfile.NamedTemporaryFile() as file, set_current_vllm_config(config):
        backend = "nccl" if current_platform.is_cuda() else "gloo"
        parallel_state.init_distributed_environment(1, 0, f"file://{file.name}-group", 0, backend)
        parallel_state.initialize_model_parallel(1, 1)
        model = get_model(vllm_config=config)
        torch.manual_seed(1)
        for part in (model.sam_model, model.projector, getattr(model, "vision_model", None) or model.qwen2_model):
            for name, weight in part.named_parameters():
                weight.data.copy_(_draw_weight(name, weight))
        yield model
        parallel_state.destroy_model_parallel()
        parallel_state.destroy_distributed_environment()


def _draw_weight(name: str, weight: torch.Tensor) -> torch.Tensor:
    """Noise that keeps activations at about the same size from layer to layer."""
    noise = torch.randn(weight.shape)
    if "norm" in name and name.endswith("weight"):
        return 1 + 0.1 * noise
    if "pos" in name or "embed" in name or "query" in name:
        return 0.3 * noise
    return 0.1 * noise if weight.dim() < 2 else noise / math.sqrt(weight[0].numel())


def make_batch(count: int, side: int = 1024) -> Batch:
    """A batch as the engine's runner passes it to the model. Side 0: images of 640 pixels without tiles."""
    from vllm.platforms import current_platform

    tiles = PAGE_TILES[0] * PAGE_TILES[1] * count if side else 0

    def draw_noise(number: int, side: int) -> torch.Tensor:
        return torch.randint(0, 256, (number, side, side, 3), dtype=torch.uint8).to(current_platform.device_type)

    return {
        "pixel_values": draw_noise(count, side or 640),
        "images_crop": draw_noise(tiles, 640),
        "images_spatial_crop": torch.tensor([PAGE_TILES if side else (1, 1)] * count),
    }


def encode(model: Any, batch: Batch) -> list[torch.Tensor]:
    return list(model.embed_multimodal(**batch))


def encode_stock(model: Any, batch: Batch) -> list[torch.Tensor]:
    """Encode as vLLM's class does; the pixels are normalised first, which vLLM does before its model runs."""
    from twopass.engines.vllm.plugin.encoder import normalise

    dtype = next(model.sam_model.parameters()).dtype
    stock: Any = type(model).__mro__[1]
    whole, tiles = (normalise(batch[name], dtype) for name in ("pixel_values", "images_crop"))
    return list(stock._pixel_values_to_embedding(model, whole, tiles, batch["images_spatial_crop"]))


def compare_with_float32(model: Any) -> dict[str, float]:
    """How much SAM's features, ours and vLLM's in bfloat16, differ from vLLM's in float32 (relative)."""
    from twopass.engines.vllm.plugin.encoder import normalise

    differences = {}
    exact_model = copy.deepcopy(model.sam_model).float()
    for side in (1024, 640):
        pixels = normalise(torch.randint(0, 256, (2, side, side, 3), dtype=torch.uint8, device="cuda"), torch.bfloat16)
        exact = exact_model(pixels.float())
        for name, features in (("twopass", model._sam(pixels)), ("stock", model.sam_model(pixels))):
            differences[f"{name} {side}"] = float((features.float() - exact).norm() / exact.norm())
    return differences


def compare_with_stock(model: Any, batch: Batch) -> float:
    """How much our embedding of one image differs from vLLM's, relative to its norm."""
    (ours,), (stock,) = encode(model, batch), encode_stock(model, batch)
    assert ours.shape == stock.shape, (ours.shape, stock.shape)
    return float((ours - stock).float().norm() / stock.float().norm())


def measure_ms(work: Callable[[], Any]) -> float:
    """The median of several rounds, on the GPU's clock."""
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


def measure_launch_ms(work: Callable[[], Any]) -> float:
    """How long the calling thread is busy; the GPU may still be at work then."""
    times = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        started = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - started))
    return statistics.median(times)


def print_parts(model: Any, count: int) -> None:
    """Print milliseconds a page of each part, `count` pages together."""
    from twopass.engines.vllm.plugin.encoder import normalise

    dtype = next(model.sam_model.parameters()).dtype
    batch = make_batch(count)
    times: dict[str, float] = {}
    for name, views in (("whole", batch["pixel_values"]), ("tiles", batch["images_crop"])):
        pixels = normalise(views, dtype)
        sam = model._sam(pixels)
        times[f"normalise {name}"] = measure_ms(partial(normalise, views, dtype)) / count
        times[f"sam {name}"] = measure_ms(partial(model._sam, pixels)) / count
        times[f"stock sam {name}"] = measure_ms(partial(_run_in_chunks, model.sam_model, pixels, count)) / count
        if hasattr(model, "vision_model"):
            clip = model.vision_model(pixels, sam)
            times[f"clip {name}"] = measure_ms(partial(model.vision_model, pixels, sam)) / count
            both = torch.cat((clip[:, 1:], sam.flatten(2).permute(0, 2, 1)), dim=-1)
            times[f"projector {name}"] = measure_ms(partial(model.projector, both)) / count
    print_json(parts={name: round(ms, 3) for name, ms in times.items()})


def _run_in_chunks(model: Any, pixels: torch.Tensor, count: int) -> None:
    """Encode page by page, as vLLM does."""
    for chunk in pixels.chunk(count):
        model(chunk)


def print_sweep(model: Any, count: int) -> None:
    """Print milliseconds a layer and page for the attention kernel's settings, by kind of layer."""
    from twopass.engines.vllm.plugin import sam, sam_kernel

    for name, side, grid, images in (
        ("global 1024", 64, 64, count), ("global 640", 40, 40, 6 * count), ("window 1024", 14, 64, count),
        ("window 640", 14, 40, 6 * count),
    ):  # fmt: skip
        is_windowed = side == 14
        layer = model.sam_model.blocks[0 if is_windowed else 2].attn
        tokens = images * grid * grid
        qkv = torch.randn(tokens + 1, 3 * 768, device="cuda", dtype=torch.bfloat16)
        table = sam.build_position_table(layer, side)
        scores = sam.compute_position_scores(qkv, table, 12)
        times = {"distances": measure_ms(partial(sam.compute_position_scores, qkv, table, 12)) / count}
        for tuning in product((64, 128), (1, 2, 4), (4, 8), (2, 3)):
            if is_windowed == (tuning[1] == 1) or (not is_windowed and tuning[1] > 2):
                continue
            attend = partial(sam_kernel.attend, qkv, scores, images, (grid, grid), (side, side), tuning)
            try:
                times[str(tuning)] = measure_ms(attend) / count
            except Exception as error:  # these settings do not fit the chip
                times[str(tuning)] = math.inf
                print(tuning, type(error).__name__)
        best_first = sorted(times.items(), key=lambda pair: pair[1])
        print_json(sweep=name, ms={setting: round(ms, 4) for setting, ms in best_first})
