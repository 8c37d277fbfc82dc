"""What a worker needs before it serves, with scripted cards; and how RunPod is told that it does not."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests import ROOT
from tests.fakes.queue import LoopbackQueue
from twopass.engines import preflight
from twopass.engines.gpus import Cards
from twopass.errors import Code, EngineError
from twopass.settings import Settings

H200 = Cards(1, 150.0, 149.0, (13, 0))
CUDA = (13, 0)


def refused(check: Any, settings: Settings, *given: Any) -> str:
    with pytest.raises(EngineError) as caught:
        check(settings, *given)
    return str(caught.value)


def test_too_little_disk_is_told() -> None:
    """Sources have to lie somewhere while they are read."""
    told = refused(preflight.disk, Settings(min_free_disk_bytes=1 << 60))

    assert told.startswith(Code.STORE_UNAVAILABLE) and "larger container disk" in told
    preflight.disk(Settings(min_free_disk_bytes=1))


@pytest.mark.parametrize(
    ("cards", "says"),
    [
        (Cards(), "1 GPUs are asked for and 0 seen"),
        (Cards(1, 150.0, 149.0, (12, 8)), "the driver speaks CUDA 12.8, PyTorch here needs 13.0"),
    ],
)
def test_a_driver_that_will_not_do_is_told(cards: Cards, says: str) -> None:
    """Before vLLM fails over it with words of its own."""
    told = refused(preflight.driver, Settings(), cards, lambda: CUDA)

    assert told.startswith(Code.ENGINE_DEAD) and says in told


def test_a_model_over_two_gpus_needs_two() -> None:
    told = refused(preflight.driver, Settings(tensor_parallel_size=2), H200, lambda: CUDA)

    assert "2 GPUs are asked for and 1 seen" in told


@pytest.mark.parametrize(
    ("preset", "cards", "built_for"),
    [
        ("auto", H200, CUDA),
        ("auto", Cards(1, 25.8, 25.0, (13, 1)), CUDA),
        ("rtx4090", Cards(1, 25.8, 25.0, (13, 1)), CUDA),
        ("auto", Cards(), (0, 0)),  # a PyTorch without CUDA reads on the processor
        ("cpu", Cards(), CUDA),
    ],
)
def test_what_will_do_is_let_by(preset: str, cards: Cards, built_for: tuple[int, int]) -> None:
    preflight.driver(Settings(preset=preset), cards, lambda: built_for)
    preflight.memory(Settings(preset=preset), cards)


@pytest.mark.parametrize(
    ("fields", "cards", "says"),
    [
        ({"preset": "80"}, Cards(1, 25.8, 25.0, CUDA), "preset 80 is for another card than one of 26 GB"),
        ({}, Cards(1, 150.0, 40.0, CUDA), "132 GB of GPU memory are wanted and 40 are free"),
        ({"gpu_memory_utilization": 0.5}, Cards(1, 100.0, 40.0, CUDA), "50 GB of GPU memory are wanted"),
    ],
)
def test_too_little_memory_is_told(fields: dict[str, Any], cards: Cards, says: str) -> None:
    """A card too small for its preset, and one that somebody else fills."""
    told = refused(preflight.memory, Settings(**fields), cards)

    assert told.startswith(Code.ENGINE_MEMORY) and says in told


@pytest.mark.parametrize(
    ("env", "code"),
    [
        ({"MIN_FREE_DISK_BYTES": str(1 << 60)}, Code.STORE_UNAVAILABLE),
        ({"ENGINE": "hf", "MODEL_DIR": "/nowhere"}, Code.WEIGHTS_MISSING),
    ],
)
def test_runpod_is_told_why_a_worker_does_not_serve(env: dict[str, str], code: Code) -> None:
    """The SDK's own report: unhealthy, with our code and what to do; the process ends, and no job is taken."""
    with LoopbackQueue() as queue:
        job = queue.put({"input": {"source": "s3://bucket/a.pdf"}})
        with queue.worker([sys.executable, ROOT / "handler.py"], cwd=ROOT, env=env) as worker:
            code_of_exit = worker.wait(60)
        (told,) = [ping.query for ping in queue.pings if ping.query.get("status") == "unhealthy"]

        assert code_of_exit == 1
        assert told["check"] == "engine" and code in told["reason"]
        assert not any(job in take.dealt for take in queue.takes)
        assert "Traceback" not in worker.log
