"""Stage (b): what the model sees of an image: grid of tiles, image tokens, pixels of the views, and embeddings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from twopass.acceptance import reference
from twopass.acceptance.checks import Check, CheckOutcome, judge
from twopass.acceptance.drawn_pages import Picture
from twopass.engines.vllm import tiling
from twopass.engines.vllm.images import IMAGE, TiledImages
from twopass.models import TileGrid, VisionSpec, find_model

STAGE = "b"
MIN_COSINE = 0.999
WRONG_INPUT = (
    "the model does not see the image as officially, so whatever it answers is worth little: Pillow, NumPy or vLLM are "
    "not the versions of the container image, or this is a defect of twopass, which should be reported"
)
_WRONG_EMBEDDINGS = (
    "our encoder computes something else than vLLM's on the same weights: a kernel does not work on this GPU or "
    "driver, or this is a defect of twopass, which should be reported"
)


@dataclass(frozen=True)
class RecordedInput:
    """How the official code cut an image of this size in gundam mode, and how many image tokens it made."""

    name: str
    width: int
    height: int
    grid: TileGrid
    tokens: int


@dataclass(frozen=True)
class Agreement:
    """How embeddings agree with the reference, over all tokens of one image.

    `cosine` compares what distinguishes the tokens: each channel's mean over the tokens is subtracted first, because
    embeddings of one image have most in common. It is None if the shapes differ, and if there are none: see `error`.
    """

    tokens: int = 0
    reference_tokens: int = 0
    cosine: float | None = None
    error: str = ""


CompareEmbeddings = Callable[[Picture], Awaitable[Agreement]]
MakeViews = Callable[[VisionSpec, tiling.Array, str, TileGrid], tiling.Views]


def check_recorded_inputs(model: str, recorded: Iterable[RecordedInput]) -> list[Check]:
    """Compare grid and image tokens with what the official code recorded for images of these sizes."""
    spec = find_model(model).vision
    checks = []
    for one in recorded:
        grid = spec.choose_grid(one.width, one.height, reference.MODE, spec.official_crops)
        value = _describe(grid, spec.count_tokens(reference.MODE, grid))
        required = _describe(one.grid, one.tokens)
        checks.append(judge(STAGE, f"{one.name}: grid", value == required, value, required, WRONG_INPUT))
    return checks


def check_views(
    model: str, tokenizer: Any, prompt: str, pictures: Iterable[Picture], make_views: MakeViews = tiling.make_views
) -> list[Check]:
    """Compare each picture's prompt ids, grid and normalised pixels with those of the official preprocessing."""
    return [_check_picture(model, tokenizer, prompt, picture, make_views) for picture in pictures]


def _check_picture(model: str, tokenizer: Any, prompt: str, picture: Picture, make_views: MakeViews) -> Check:
    image, spec = picture.image, find_model(model).vision
    official = reference.process(model, tokenizer, prompt, image)
    grid = spec.choose_grid(image.width, image.height, reference.MODE, spec.official_crops)
    tokens = spec.count_tokens(reference.MODE, grid)
    before, image_token, after = TiledImages.tokenize(tokenizer, prompt)
    views = make_views(spec, image.array(), reference.MODE, grid)
    differences = [
        name
        for name, is_equal in (
            ("grid", list(grid) == official["images_spatial_crop"][0].tolist()),
            ("prompt ids", [*before, *[image_token] * tokens, *after] == official["input_ids"][0].tolist()),
            ("global view", _is_same(views.global_view[None], official["pixel_values"])),
            ("tiles", _is_same(views.tiles, official["images_crop"])),
        )
        if not is_equal
    ]
    value = f"{' and '.join(differences)} differ" if differences else _describe(grid, tokens)
    return judge(STAGE, f"{picture.name}: views", not differences, value, "as officially", WRONG_INPUT)


def _is_same(views: tiling.Array, official: Any) -> bool:
    """Whether the views are the official ones, in the model's arithmetic."""
    import torch

    from twopass.engines.vllm.plugin.encoder import normalise

    ours = normalise(torch.from_numpy(np.array(views)), torch.bfloat16)
    return bool(torch.equal(ours, official.to(torch.bfloat16)))


async def check_embeddings(pictures: Sequence[Picture], compare: CompareEmbeddings) -> list[Check]:
    """Compare the encoder's output with that of vLLM's class on the same weights."""
    return [judge_embeddings(picture.name, await compare(picture)) for picture in pictures]


def judge_embeddings(name: str, found: Agreement) -> Check:
    is_good = found.cosine is not None and found.cosine > MIN_COSINE
    if found.error:
        return Check(
            STAGE, f"{name}: embeddings", CheckOutcome.FAILED, "none", "", f"{found.error}: {_WRONG_EMBEDDINGS}"
        )
    value = f"{found.tokens} tokens" if found.cosine is None else f"cosine {found.cosine:.5f}"
    required = f"{found.reference_tokens} tokens, cosine > {MIN_COSINE}"
    return judge(STAGE, f"{name}: embeddings", is_good, value, required, _WRONG_EMBEDDINGS)


def compare_in_worker(worker: Any, model: str, width: int, height: int, rgb: bytes) -> tuple[int, int, float | None]:
    """Encode an image as our class does and as vLLM's does; runs in vLLM's worker. Returns the fields of Agreement."""
    import torch

    from twopass.pages.shared_pixels import Pixels

    runner, image, spec = worker.model_runner, Pixels(width, height, data=rgb), find_model(model).vision
    module = runner.get_model()  # without the wrapper that replays CUDA graphs
    grid = spec.choose_grid(width, height, reference.MODE, spec.official_crops)
    views = tiling.make_views(spec, image.array(), reference.MODE, grid)
    tokenizer = _load_tokenizer(runner.model_config.tokenizer)
    official = reference.process(model, tokenizer, IMAGE, image)
    stock: Any = next(kind for kind in type(module).__mro__ if kind.__module__.startswith("vllm."))
    dtype = next(module.sam_model.parameters()).dtype
    with torch.inference_mode():
        (ours,) = module.embed_multimodal(
            pixel_values=torch.from_numpy(np.array(views.global_view))[None].to(runner.device),
            images_crop=torch.from_numpy(np.array(views.tiles)).to(runner.device),
            images_spatial_crop=torch.tensor([grid]),
        )
        whole, tiles = (official[name].to(runner.device, dtype) for name in ("pixel_values", "images_crop"))
        (theirs,) = stock._pixel_values_to_embedding(module, whole, tiles, official["images_spatial_crop"])
    found = measure_agreement(ours, theirs)
    return found.tokens, found.reference_tokens, found.cosine


_load_tokenizer = cache(reference.load_tokenizer)  # once in vLLM's worker: it takes a second


def measure_agreement(ours: Any, theirs: Any) -> Agreement:
    """Compare the embeddings of one image, both tokens x channels."""
    if ours.shape != theirs.shape:
        return Agreement(len(ours), len(theirs), None)
    one, other = ((tensor.double() - tensor.double().mean(0)).flatten() for tensor in (ours, theirs))
    norms = float(one.norm() * other.norm())
    return Agreement(len(ours), len(theirs), float(one @ other) / norms if norms else float((one == other).all()))


def _describe(grid: TileGrid, tokens: int) -> str:
    return f"{grid.columns} x {grid.rows} tiles, {tokens} tokens" if grid.tile_count else f"no tiles, {tokens} tokens"
