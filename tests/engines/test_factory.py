"""Which engine the settings create, errors for missing parts, and the preset of each GPU."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from twopass.engines import factory
from twopass.errors import Code, EngineError
from twopass.settings import GPU_NAMES, PRESETS, Settings, find_preset


def test_an_unknown_engine_is_an_error() -> None:
    """The error lists the engines that exist."""
    with pytest.raises(EngineError, match="ENGINE is one of cpu, vllm, openai, hf, replay") as error:
        factory.create_engine(Settings(engine="magic"))
    assert error.value.code is Code.ENGINE_DEAD


def test_missing_weights_are_an_error(tmp_path: Path) -> None:
    """The error names the folder that was searched."""
    with pytest.raises(EngineError, match=str(tmp_path)) as error:
        factory.create_engine(Settings(engine="vllm", model_dir=tmp_path))
    assert error.value.code is Code.WEIGHTS_MISSING


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vllm is installed here")
def test_a_missing_vllm_is_an_error(tmp_path: Path) -> None:
    """The error says how to install vLLM."""
    with pytest.raises(EngineError, match="make gpu"):
        factory.create_engine(Settings(engine="vllm", model_dir=tmp_path, load_format="dummy"))


@pytest.mark.parametrize(
    ("memory", "name"),
    [(0.0, "cpu"), (8.2, "8"), (15.8, "16"), (23.6, "24"), (47.5, "48"), (79.6, "80"), (143.8, "141"), (11.5, "8")],
)
def test_a_gpu_gets_the_preset_that_fits_its_memory(memory: float, name: str) -> None:
    """A GPU reports slightly more or less memory than its name says, and still gets its preset."""
    assert find_preset("auto", memory) == PRESETS[name]


def test_a_preset_can_be_named_by_gpu_model() -> None:
    """rtx4060 and rtx4090 are aliases of the presets by memory."""
    assert {card: find_preset(card, 0) for card in GPU_NAMES} == {"rtx4060": PRESETS["8"], "rtx4090": PRESETS["24"]}
