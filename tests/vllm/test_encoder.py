"""The batched vision encoder: every picture gets its own features, and they are vLLM's own."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests import ROOT
from tests.vllm import tiny
from twopass.engines.vllm.plugin.encoder import Encoder, Seen
from twopass.engines.vllm.tiling import Tiles

sys.path.append(str(ROOT / "scripts"))

import bench_encoder

SIDES = {"DeepseekOCRForCausalLM": (512, 640), "DeepseekOCR2ForCausalLM": (768, 768)}  # small ones: this is a CPU

WIDTHS = {"DeepseekOCRForCausalLM": 2048, "DeepseekOCR2ForCausalLM": 896}  # of what the projector gets


@pytest.fixture(scope="module", params=SIDES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tiny.checkpoint(tmp_path_factory.mktemp("encoder"), request.param)
    config = json.loads((folder / "config.json").read_text())
    config["projector_config"]["input_dim"] = WIDTHS[request.param]
    (folder / "config.json").write_text(json.dumps(config))
    with bench_encoder.loaded(folder, dtype="float32") as model, torch.inference_mode():
        yield model


def noise(count: int, side: int) -> torch.Tensor:
    return torch.randint(0, 256, (count, side, side, 3), dtype=torch.uint8)


def test_embeddings_equal_the_stock_models(model: Any) -> None:
    """One picture with tiles and one without, encoded together here and one after the other there."""
    whole, tile = SIDES[type(model).__mro__[1].__name__]
    told = {
        "pixel_values": noise(2, whole),
        "images_crop": noise(2, tile),
        "images_spatial_crop": torch.tensor([(2, 1), (1, 1)]),
    }

    ours, theirs = bench_encoder.ours(model, [told]), bench_encoder.stock(model, [told])

    for mine, reference in zip(ours, theirs, strict=True):
        assert mine.shape == reference.shape
        assert (mine - reference).norm() / reference.norm() < 1e-4


@pytest.mark.parametrize("tokens", [1, 10**4])
def test_features_go_to_the_picture_they_are_of(tokens: int) -> None:
    """Sizes mixed, with tiles and without, one view at a time and all at once; here a view's feature is its mean."""
    rng = random.Random(1)

    def seen(level: int) -> Seen:
        grid = Tiles(rng.randint(1, 3), rng.randint(1, 2))
        side = rng.choice((8, 16))  # 16 is a tile's too
        whole = torch.full((side, side, 3), level, dtype=torch.uint8)
        return Seen(whole, torch.full((grid.number, 16, 16, 3), level, dtype=torch.uint8), grid)

    pictures = [seen(level) for level in range(0, 255, 17)]
    encoder = Encoder(lambda views: views.mean((1, 2, 3))[:, None, None], torch.float32, tokens, graphs=False)

    made = encoder(pictures)

    for picture, features in zip(pictures, made, strict=True):
        level = picture.whole.float().mean() / 127.5 - 1
        assert torch.allclose(features.whole, level)
        assert features.tiles.shape[0] == picture.grid.number
        assert torch.allclose(features.tiles, level)
