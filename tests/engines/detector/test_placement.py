"""Where the detector runs, how many pages it reads at once, and what it leaves to the engine beside it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twopass.engines.detector import placement
from twopass.models import MODELS, PAGE_PRESETS
from twopass.settings import Settings

GLM = Settings(engine="vllm", model="glm_ocr")
CARDS = [8.2, 15.8, 23.6, 47.5, 79.6, 143.8]


@pytest.mark.parametrize(
    ("fields", "memory_gb", "expected"),
    [
        ({}, 0.0, ("cpu", "float32")),
        ({}, 79.6, ("cuda", "bfloat16")),
        ({"preset": "cpu"}, 79.6, ("cpu", "float32")),
        ({"detector_device": "CPU"}, 79.6, ("cpu", "float32")),
        ({"detector_device": "cuda"}, 0.0, ("cuda", "bfloat16")),
    ],
)
def test_the_device_decides_the_precision(fields: dict[str, str], memory_gb: float, expected: tuple[str, str]) -> None:
    """bfloat16 on a GPU, float32 on a CPU; DETECTOR_DEVICE has the last word."""
    assert placement.choose(Settings.model_validate(fields), memory_gb)[:2] == expected


def test_larger_cards_read_more_pages_at_once() -> None:
    """A batch never has less than one page, nor more than 64."""
    batches = [placement.choose(GLM, memory).batch for memory in (*CARDS, 1000)]

    assert batches == sorted(batches)
    assert (batches[0], batches[-1]) == (1, 64)


@pytest.mark.parametrize("memory_gb", CARDS)
def test_a_shared_card_has_room_for_both(memory_gb: float) -> None:
    """What the detector needs is taken from the memory of the reader's engine, which keeps half of the card."""
    preset = MODELS["glm_ocr"].find_preset("auto", memory_gb)

    smaller = placement.leave_room(preset, GLM, memory_gb)

    taken = (preset.memory - smaller.memory) * memory_gb
    assert taken == pytest.approx(placement.choose(GLM, memory_gb).reserved_gb, abs=0.001 * memory_gb)
    assert smaller.memory >= 0.5
    assert smaller._replace(memory=preset.memory) == preset


@given(st.floats(0, 200), st.sampled_from(list(PAGE_PRESETS)))
def test_an_engine_alone_keeps_its_memory(memory_gb: float, name: str) -> None:
    """Nothing changes for a model that finds regions itself, or beside a detector on the CPU."""
    alone, beside = Settings(engine="vllm"), GLM.model_copy(update={"detector_device": "cpu"})

    assert [placement.leave_room(PAGE_PRESETS[name], one, memory_gb) for one in (alone, beside)] == [
        PAGE_PRESETS[name]
    ] * 2
