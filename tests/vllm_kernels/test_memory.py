"""What vLLM's profile of memory leaves out is tried, and PyTorch's allocator gets a limit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from twopass.engines.vllm.plugin import memory
from twopass.engines.vllm.plugin.encoder import Encoder

GB = 1 << 30


class Model:
    """Remembers what was tried; its logits are as wide as its vocabulary."""

    def __init__(self) -> None:
        self.encoded, self.rows = 0, list[int]()

    def try_encoder(self) -> None:
        self.encoded += 1

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        self.rows.append(len(hidden))
        return torch.zeros(len(hidden), 50)


def build_runner(model: Any, drafts: int) -> Any:
    return SimpleNamespace(
        get_model=lambda: model, num_speculative_steps=drafts, max_num_reqs=6, max_num_tokens=40, dtype=torch.float32,
        device=torch.device("cpu"), model_config=SimpleNamespace(get_hidden_size=lambda: 8),
    )  # fmt: skip


@pytest.mark.parametrize(("drafts", "rows"), [(0, []), (4, [30]), (8, [40])])
def test_the_largest_batches_are_tried(drafts: int, rows: list[int]) -> None:
    """Of images, and with drafts of logits, of at most 40 tokens: vLLM's profile has one row for each request."""
    model = Model()

    memory.try_peaks(build_runner(model, drafts))

    assert (model.encoded, model.rows) == (1, rows)


def test_a_model_with_another_encoder_is_not_tried() -> None:
    """Region readers limit their images by patches."""
    memory.try_peaks(build_runner(SimpleNamespace(), 0))


def test_the_encoder_tries_as_many_views_as_it_ever_encodes_together() -> None:
    """Of each side; with 1,000 tokens a step, one page and three tiles have that many pixels."""
    shapes: list[torch.Size] = []

    def encode(pixels: torch.Tensor) -> torch.Tensor:
        shapes.append(pixels.shape)
        return pixels

    Encoder(encode, torch.float32, tokens=1000, graphs=False).try_largest((640, 1024), torch.device("cpu"))

    assert shapes == [(3, 3, 640, 640), (1, 3, 1024, 1024)]


def test_the_presets_leave_four_percent_of_the_card_free() -> None:
    """Whatever is freed in pieces of the wrong size; what PyTorch does not manage comes out of its limit."""
    assert memory.find_limit(0.9, 80 * GB, 0) == pytest.approx(0.95)
    assert memory.find_limit(0.88, 140 * GB, 7 * GB) == pytest.approx(0.88)
    assert memory.find_limit(0.98, 80 * GB, -GB) == 1.0
