"""The batched vision encoder against vLLM's own, picture by picture, on the same weights in float32."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch

sys.path.append(str(Path(__file__).parents[1] / "scripts"))

import bench_encoder


@pytest.fixture(scope="module", params=["DeepseekOCRForCausalLM", "DeepseekOCR2ForCausalLM"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tiny.checkpoint(tmp_path_factory.mktemp("encoder"), request.param)
    with bench_encoder.loaded(folder, dtype="float32") as model, torch.inference_mode():
        yield model
