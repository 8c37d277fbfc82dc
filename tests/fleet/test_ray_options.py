"""What an actor asks Ray for."""

from __future__ import annotations

from typing import Any

import pytest

from twopass.fleet.endpoints.ray_cluster import RayOptions
from twopass.settings import Settings


@pytest.mark.parametrize(
    ("settings", "actor", "gpus", "cpus"),
    [
        ({}, {}, 0, 1),
        ({"page_workers": 3}, {}, 0, 3),
        ({"engine": "openai"}, {}, 0, 1),
        ({"engine": "vllm"}, {}, 1, 4),
        ({"engine": "vllm", "page_workers": 8}, {}, 1, 8),
        ({"engine": "vllm", "tensor_parallel_size": 2}, {}, 2, 4),
        ({"engine": "vllm", "gpus": 4}, {}, 4, 4),
        ({"engine": "vllm"}, {"num_gpus": 0.5, "num_cpus": 2}, 0.5, 2),
    ],
)
def test_an_actor_asks_for_what_its_engine_needs(
    settings: dict[str, Any], actor: dict[str, Any], gpus: float, cpus: int
) -> None:
    """A GPU for engines that need one, and a CPU for each page worker; `--actor` takes precedence."""
    options = RayOptions("local", actor=actor).actor_options(Settings(**settings))

    assert options == {"num_gpus": gpus, "num_cpus": cpus}
