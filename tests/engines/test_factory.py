"""Which engine a setting opens, what a missing part is told as, and what suits which GPU."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from twopass.engine_settings import CARDS, PRESETS, preset
from twopass.engines import factory
from twopass.engines.gpus import Cards
from twopass.engines.vllm import startup
from twopass.errors import Code, EngineError
from twopass.settings import Settings


def test_an_unknown_engine_is_told_with_those_there_are() -> None:
    with pytest.raises(EngineError, match="ENGINE is one of cpu, vllm, openai, hf, replay") as error:
        factory.constructed(Settings(engine="magic"))
    assert error.value.code is Code.ENGINE_DEAD


def test_a_missing_folder_of_weights_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=str(tmp_path)) as error:
        factory.constructed(Settings(engine="vllm", model_dir=tmp_path))
    assert error.value.code is Code.WEIGHTS_MISSING


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vllm is installed here")
def test_a_missing_vllm_says_how_to_install_it(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="make gpu"):
        factory.constructed(Settings(engine="vllm", model_dir=tmp_path, load_format="dummy"))


@pytest.mark.parametrize(
    ("memory", "name"),
    [(0.0, "cpu"), (8.2, "8"), (15.8, "16"), (23.6, "24"), (47.5, "48"), (79.6, "80"), (143.8, "141"), (11.5, "8")],
)
def test_a_gpu_gets_the_preset_that_fits_its_memory(memory: float, name: str) -> None:
    """What a card reports is a little beside its name."""
    assert preset("auto", memory) == PRESETS[name]


def test_presets_have_the_seeds_names_too() -> None:
    assert {card: preset(card, 0) for card in CARDS} == {"rtx4060": PRESETS["8"], "rtx4090": PRESETS["24"]}


def test_caches_of_different_gpus_drivers_or_versions_lie_apart() -> None:
    """Code compiled for one of them does not run, or not well, on another."""
    named = [("NVIDIA H200", "580.1"), ("NVIDIA H200", "570.1"), ("NVIDIA L4", "580.1"), ("", "")]
    cards = [Cards(name=name, driver=driver) for name, driver in named]

    keys = {startup.key(card) for card in cards}

    assert len(keys) == len(cards)
    assert all(re.fullmatch(r"[A-Za-z0-9._+-]+", key) for key in keys)


@pytest.mark.parametrize("sequences", [1, 5, 32, 100, 256, 500])
def test_there_is_a_graph_for_a_full_engine_and_none_beyond(sequences: int) -> None:
    sizes = startup.graphs(sequences)["cudagraph_capture_sizes"]

    assert (sizes[0], sizes[-1]) == (1, sequences)
    assert len(sizes) == len(set(sizes)) <= len(startup.SMALL) + sequences // startup.STEP + 1


def test_reading_ahead_ends_with_the_start(tmp_path: Path) -> None:
    """Also where it is not through, and where there is nothing to read."""
    with startup.read_ahead(tmp_path):
        pass
    os.mkfifo(tmp_path / "model.safetensors")  # which nobody ever fills

    before = psutil.Process().children()
    with startup.read_ahead(tmp_path):
        readers = [child for child in psutil.Process().children() if child not in before]

    assert [reader for reader in readers if reader.is_running()] == []
    assert len(readers) == 1
