"""vLLM's arguments and the views of images follow from the model and the settings."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from twopass.engines.gpus import GpuInfo
from twopass.engines.vllm import startup
from twopass.engines.vllm.arguments import (
    DEFAULT_DRAFTS,
    GRAPH_STEP,
    NEEDED_FOR_DRAFTS,
    NEEDED_FOR_WINDOWS,
    SMALL_GRAPHS,
    build_arguments,
    choose_attention,
    choose_drafts,
    choose_preset,
    cuda_graph_config,
    forgo_compilation,
    reduce_load,
)
from twopass.engines.vllm.plugin import compatibility
from twopass.engines.vllm.plugin.drafts import FEW_ANSWERS
from twopass.errors import EngineError
from twopass.families.interface import FamilyOptions
from twopass.families.registry import get_family
from twopass.models import MODELS, PAGE_PRESETS
from twopass.settings import Settings

UNLIMITED = Settings(model="unlimited_ocr")


def test_nothing_is_tuned_at_each_start() -> None:
    """By default, vLLM lets FlashInfer measure its kernels at each start."""
    assert build_arguments(Settings(), Path(), PAGE_PRESETS["24"])["enable_flashinfer_autotune"] is False


@pytest.mark.parametrize("setting", ["on", "off", "auto"])
def test_the_model_is_compiled_unless_the_setting_says_otherwise(setting: str) -> None:
    """CUDA graphs stay, in the same sizes; `auto` is decided when the shared cache has been looked at."""
    usual = build_arguments(Settings(), Path(), PAGE_PRESETS["24"])["compilation_config"]
    arguments = build_arguments(Settings(torch_compile=setting), Path(), PAGE_PRESETS["24"])

    assert arguments["compilation_config"] == usual | ({"mode": 0} if setting == "off" else {})
    assert forgo_compilation(arguments)["compilation_config"] == usual | {"mode": 0}
    assert reduce_load(forgo_compilation(arguments), 1)["compilation_config"]["mode"] == 0


def test_the_number_of_tiles_is_the_same_for_family_and_engine() -> None:
    """A job may ask for as many tiles as the engine's buffers hold, with and without MAX_TILES."""
    models = ("deepseek_ocr", "deepseek_ocr2", "unlimited_ocr")
    for model, max_tiles in itertools.product(models, (None, 32)):
        spec, crops = (
            MODELS[model].vision.with_crops(max_tiles),
            get_family(model, FamilyOptions(max_tiles=max_tiles)).crops,
        )

        assert (spec.default_crops, spec.most_crops) == crops
    assert get_family("unlimited_ocr", FamilyOptions(max_tiles=4)).crops == (4, 4)
    # A document that was read with another number has another id.
    assert get_family("unlimited_ocr", FamilyOptions(max_tiles=32)).options == {"max_tiles": 32}
    assert get_family("unlimited_ocr", FamilyOptions(max_tiles=12)).options == get_family("unlimited_ocr").options == {}
    assert MODELS["unlimited_ocr"].vision.with_crops(32).max_nbytes > 2 * MODELS["unlimited_ocr"].vision.max_nbytes


def test_a_step_has_as_many_tokens_as_the_largest_image() -> None:
    """An image with more tokens would never be encoded."""
    small, large = PAGE_PRESETS["8"], PAGE_PRESETS["141"]
    settings = Settings(model="unlimited_ocr", max_tiles=32)

    steps = [build_arguments(settings, Path("m"), preset)["max_num_batched_tokens"] for preset in (small, large)]

    assert steps == [3793, 8192]


def test_a_detector_on_the_same_gpu_gets_memory() -> None:
    """vLLM would otherwise fill the card with its cache before the detector opens, and again after a restart."""
    alone, beside = Settings(engine="vllm"), Settings(engine="vllm", structure="fallback")

    shares = [choose_preset(settings, 80).memory for settings in (alone, beside)]

    assert shares[0] == PAGE_PRESETS["80"].memory
    assert shares[1] * 80 < shares[0] * 80 - 5
    chosen = beside.model_copy(update={"gpu_memory_utilization": 0.5})
    preset = choose_preset(chosen, 80)
    assert build_arguments(chosen, Path("m"), preset)["gpu_memory_utilization"] == 0.5


def test_unlimited_ocr_gets_its_own_context() -> None:
    """Twice that of the preset, because its cache does not grow with the answer; the setting still limits it."""
    contexts = [build_arguments(UNLIMITED, Path("m"), PAGE_PRESETS[name])["max_model_len"] for name in ("8", "141")]
    chosen = build_arguments(Settings(model="unlimited_ocr", max_model_len=32768), Path("m"), PAGE_PRESETS["141"])

    assert contexts == [8192, 16384]
    assert chosen["max_model_len"] == 32768
    assert build_arguments(Settings(), Path("m"), PAGE_PRESETS["141"])["max_model_len"] == 8192


def test_unlimited_ocr_gets_an_attention_that_was_run() -> None:
    """Triton's, whether or not FlashAttention 4 can be compiled; other models have vLLM's choice."""
    triton = {"attention_backend": "TRITON_ATTN"}
    assert choose_attention(MODELS["unlimited_ocr"], True) == triton
    assert choose_attention(MODELS["unlimited_ocr"], False) == triton | {"mm_encoder_attn_backend": "TORCH_SDPA"}
    assert build_arguments(UNLIMITED, Path("m"), PAGE_PRESETS["80"])["attention_backend"] == "TRITON_ATTN"
    assert "attention_backend" not in build_arguments(Settings(), Path("m"), PAGE_PRESETS["80"])


def test_unlimited_ocr_is_refused_without_a_gpu() -> None:
    """vLLM's attention for CPUs reads cache that was freed; random weights are for tests."""
    with pytest.raises(EngineError, match="unlimited_ocr needs a GPU"):
        startup._check_attention(UNLIMITED, 0)
    startup._check_attention(UNLIMITED, 24)
    startup._check_attention(Settings(model="unlimited_ocr", load_format="dummy"), 0)
    startup._check_attention(Settings(), 0)


def build_gpu(capability: tuple[int, int]) -> GpuInfo:
    return GpuInfo(count=1, memory_gb=80, capability=capability)


H100, RTX4090 = build_gpu((9, 0)), build_gpu((8, 9))


@pytest.mark.parametrize(
    ("settings", "gpus", "changed", "expected"),
    [
        ({}, H100, [], DEFAULT_DRAFTS),
        ({}, RTX4090, [], 0),
        ({"draft_tokens": 2}, RTX4090, [], 2),
        ({"draft_tokens": 0}, H100, [], 0),
        ({"draft_tokens": 4}, GpuInfo(), [], 0),
        ({"model": "glm_ocr"}, H100, [], 0),
        ({"model": "unlimited_ocr"}, H100, [], DEFAULT_DRAFTS),
        ({"model": "unlimited_ocr"}, H100, ["windows"], 0),
        *(({}, H100, [part], 0) for part in ("scheduler", "worker", "drafts", "ngram_ban")),
    ],
)
def test_drafts_are_on_where_they_were_measured(
    settings: dict[str, Any], gpus: GpuInfo, changed: list[str], expected: int
) -> None:
    """On H100 and H200; elsewhere if asked for, and never without one of the parts that they need."""
    assert choose_drafts(Settings(**settings), gpus, changed) == expected


def test_graphs_and_steps_have_room_for_drafts() -> None:
    """Each sequence has its token and half of the most drafts in a step."""
    preset, folder = PAGE_PRESETS["141"], Path("m")

    with_drafts, without = (
        build_arguments(Settings(), folder, preset, most_drafts=8),
        build_arguments(Settings(), folder, preset),
    )
    chosen = build_arguments(Settings(max_num_batched_tokens=2048), folder, preset, most_drafts=8)

    assert without["max_num_batched_tokens"] == preset.batched_tokens
    assert with_drafts["max_num_batched_tokens"] == preset.batched_tokens + 4 * preset.sequences
    assert chosen["max_num_batched_tokens"] == 5 * preset.sequences
    assert with_drafts["speculative_config"]["num_speculative_tokens"] == 8
    assert with_drafts["compilation_config"]["cudagraph_capture_sizes"][-1] == 5 * preset.sequences
    assert "speculative_config" not in without


@pytest.mark.parametrize("sequences", [1, 5, 100, 512])
def test_graphs_fit_steps_with_and_without_drafts(sequences: int) -> None:
    """A full engine is not padded, whether all answers are drafted or none; few answers have twice as many drafts."""
    with_drafts = set(cuda_graph_config(sequences, 8)["cudagraph_capture_sizes"])
    without = cuda_graph_config(sequences)["cudagraph_capture_sizes"]

    assert with_drafts == {*without, *((9 if size <= FEW_ANSWERS else 5) * size for size in without)}


def test_after_an_out_of_memory_error_fewer_images_are_encoded_at_once() -> None:
    """The encoder's batch follows from the tokens of a step without drafts; one image always fits."""
    arguments = build_arguments(Settings(), Path("m"), PAGE_PRESETS["141"], most_drafts=8)

    once = reduce_load(arguments, 1000)
    often = once
    for _ in range(8):
        often = reduce_load(often, 1000)

    assert once["max_num_batched_tokens"] == 4096 + 4 * 256
    assert (often["max_num_seqs"], often["max_num_batched_tokens"]) == (1, 1000)


@pytest.mark.parametrize("part", [None, *compatibility.INSTEAD])
def test_whole_steps_are_not_captured_where_they_would_lose_the_windows(part: str | None) -> None:
    """Nor after an out-of-memory error. Other models have no windows."""
    changed = [part] if part else []

    def find_modes(settings: Settings) -> set[str]:
        drafts = choose_drafts(settings, H100, changed)
        arguments = build_arguments(settings, Path("m"), PAGE_PRESETS["141"], most_drafts=drafts, changed=changed)
        return {one["compilation_config"]["cudagraph_mode"] for one in (arguments, reduce_load(arguments, 1))}

    others = {"FULL_DECODE_ONLY" if part in NEEDED_FOR_DRAFTS else "FULL"}
    assert find_modes(Settings()) == others
    assert find_modes(UNLIMITED) == ({"PIECEWISE"} if part in NEEDED_FOR_WINDOWS else others)


@pytest.mark.parametrize("sequences", [1, 5, 32, 100, 256, 500])
def test_cuda_graphs_cover_one_to_all_sequences(sequences: int) -> None:
    """The smallest graph is for one sequence, the largest for a full engine, and there are few in between."""
    sizes = cuda_graph_config(sequences)["cudagraph_capture_sizes"]

    assert (sizes[0], sizes[-1]) == (1, sequences)
    assert len(sizes) == len(set(sizes)) <= len(SMALL_GRAPHS) + sequences // GRAPH_STEP + 1
