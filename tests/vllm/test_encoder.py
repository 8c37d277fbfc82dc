"""The batched vision encoder returns each image's own features, and they equal vLLM's."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from scripts.bench import encoder
from tests.vllm import tiny
from twopass.acceptance.checks import CheckOutcome
from twopass.acceptance.vision_inputs import judge_embeddings, measure_agreement
from twopass.engines.vllm.plugin.encoder import Encoder, ViewTensors
from twopass.engines.vllm.tiling import TileGrid

# Sides of global view and tile; small, because this runs on a CPU.
SIDES = {
    "DeepseekOCRForCausalLM": (512, 640),
    "DeepseekOCR2ForCausalLM": (768, 768),
    "UnlimitedOCRForCausalLM": (512, 640),
}
NEWLINE = 20  # position of the first newline token: two tiles have ten tokens each in a row
# Of the projector's input.
WIDTHS = {"DeepseekOCRForCausalLM": 2048, "DeepseekOCR2ForCausalLM": 896, "UnlimitedOCRForCausalLM": 2048}


@pytest.fixture(scope="module", params=SIDES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tiny.write_checkpoint(tmp_path_factory.mktemp("encoder"), request.param)
    config = json.loads((folder / "config.json").read_text())
    config["projector_config"]["input_dim"] = WIDTHS[request.param]
    (folder / "config.json").write_text(json.dumps(config))
    with (
        encoder.load_model(folder, dtype="float32", mm_encoder_attn_backend=tiny.CPU_ENCODER_ATTENTION) as model,
        torch.inference_mode(),
    ):
        yield model


def noise(count: int, side: int) -> torch.Tensor:
    return torch.randint(0, 256, (count, side, side, 3), dtype=torch.uint8)


@pytest.fixture(scope="module")
def batch(model: Any) -> encoder.Batch:
    """One image with two tiles and one without."""
    stock = next(base.__name__ for base in type(model).__mro__ if base.__name__ in SIDES)
    global_side, tile_side = SIDES[stock]
    return {
        "pixel_values": noise(2, global_side),
        "images_crop": noise(2, tile_side),
        "images_spatial_crop": torch.tensor([(2, 1), (1, 1)]),
    }


@pytest.fixture(scope="module")
def official(model: Any, batch: encoder.Batch) -> list[torch.Tensor]:
    return encoder.encode_stock(model, batch)


def test_embeddings_equal_the_stock_models(model: Any, batch: encoder.Batch, official: list[torch.Tensor]) -> None:
    """Encoded together by us and one after the other by vLLM."""
    for mine, reference in zip(encoder.encode(model, batch), official, strict=True):
        assert mine.shape == reference.shape
        assert (mine - reference).norm() / reference.norm() < 1e-4
        assert judge_embeddings("noise", measure_agreement(mine, reference)).outcome is CheckOutcome.PASSED


@pytest.mark.parametrize("model", ["DeepseekOCRForCausalLM"], indirect=True)
def test_the_acceptance_run_catches_wrong_embeddings(
    model: Any, batch: encoder.Batch, official: list[torch.Tensor]
) -> None:
    """Tiles in another order, a missing newline token and wrong normalisation; rounding to bfloat16 passes."""
    reference = official[0]
    darker = batch | {name: batch[name] // 2 for name in ("pixel_values", "images_crop")}
    cases = {
        "tiles in another order": encoder.encode(model, batch | {"images_crop": batch["images_crop"].flip(0)})[0],
        "no newline token": torch.cat((reference[:NEWLINE], reference[NEWLINE + 1 :])),
        "wrong normalisation": encoder.encode(model, darker)[0],
        "another precision": reference.bfloat16().float(),
    }

    found = {name: measure_agreement(embeddings, reference) for name, embeddings in cases.items()}

    print({name: agreement.cosine for name, agreement in found.items()})
    failed = [name for name, one in found.items() if judge_embeddings(name, one).outcome is CheckOutcome.FAILED]
    assert failed == ["tiles in another order", "no newline token", "wrong normalisation"]


@pytest.mark.parametrize("tokens", [1, 10**4])
def test_each_image_gets_its_own_features(tokens: int) -> None:
    """Sizes mixed, with and without tiles, one view at a time and all at once; a view's feature is its mean here."""
    rng = random.Random(1)

    def make_views(level: int) -> ViewTensors:
        grid = TileGrid(rng.randint(1, 3), rng.randint(1, 2))
        side = rng.choice((8, 16))  # tiles have 16 as well
        global_view = torch.full((side, side, 3), level, dtype=torch.uint8)
        return ViewTensors(global_view, torch.full((grid.tile_count, 16, 16, 3), level, dtype=torch.uint8), grid)

    images = [make_views(level) for level in range(0, 255, 17)]
    encoder = Encoder(lambda views: views.mean((1, 2, 3))[:, None, None], torch.float32, tokens, graphs=False)

    results = encoder(images)

    for image, features in zip(images, results, strict=True):
        level = image.global_view.float().mean() / 127.5 - 1
        assert torch.allclose(features.global_view, level)
        assert features.tiles.shape[0] == image.grid.tile_count
        assert torch.allclose(features.tiles, level)
