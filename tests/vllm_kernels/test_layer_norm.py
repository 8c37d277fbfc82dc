"""The kernel of a residual addition and its normalisation gives what PyTorch's two operations give."""

from __future__ import annotations

import pytest
import torch

from twopass.engines.vllm.plugin.layer_norm import add_and_normalise


@pytest.mark.parametrize("channels", [768, 1024])
def test_the_sum_and_its_normalisation_are_pytorchs(channels: int) -> None:
    """Rows of the widths of SAM, which fills no block, and of CLIP, far from zero and with weights of their own.

    In float32: Triton's interpreter cuts bfloat16 off instead of rounding it, as a GPU does.
    """
    torch.manual_seed(1)
    norm = torch.nn.LayerNorm(channels, eps=1e-6)
    for weight in norm.parameters():
        torch.nn.init.normal_(weight)
    x, delta = (torch.randn(2, 3, channels) * 4 + 9 for _ in range(2))

    with torch.inference_mode():
        total, normed = add_and_normalise(x, delta, norm)

        assert torch.equal(total, x + delta)
        torch.testing.assert_close(normed, norm(x + delta), rtol=1e-5, atol=1e-5)


def test_without_an_addition_the_input_is_normalised() -> None:
    """As in a model's first layer."""
    norm, x = torch.nn.LayerNorm(8), torch.randn(3, 8)

    total, normed = add_and_normalise(x, None, norm)

    assert total is x
    assert torch.equal(normed, norm(x))
