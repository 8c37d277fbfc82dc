"""What a model's engine can be told, and what suits which GPU.

Names are those that people know from vLLM's own worker. None means: as the preset has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from pydantic import Field
from pydantic_settings import BaseSettings


class Preset(NamedTuple):
    """What fits into a GPU's memory: 6.2 GiB of weights in bfloat16, 60 KiB of KV cache a token, activations."""

    sequences: int
    batched_tokens: int
    memory: float = 0.9  # share of the GPU's memory
    context: int = 8192
    dtype: str = "bfloat16"
    quantization: str | None = None
    eager: bool = False  # CUDA graphs take a gigabyte


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "cpu": Preset(
            8, 2048, context=4096, dtype="float32", eager=True
        ),  # float32: bfloat16 takes three times as long
        # 8-bit weights, or the weights alone would fill the card
        "8": Preset(4, 2048, 0.9, 4096, quantization="fp8", eager=True),
        "16": Preset(32, 4096),
        "24": Preset(100, 8192),
        "48": Preset(256, 8192),
        "80": Preset(256, 8192),
        "141": Preset(512, 8192, 0.88),  # more cache than 512 answers fill; above 0.9 the memory alert speaks
    }
)
CARDS: Mapping[str, str] = MappingProxyType({"rtx4060": "8", "rtx4090": "24"})  # people name their card


def preset(name: str, memory_gb: float) -> Preset:
    """By name; `auto` is the largest that a GPU of so many gigabytes holds, 0 being none. Raises KeyError."""
    if name == "auto":
        fits = [size for size in PRESETS if size != "cpu" and int(size) <= memory_gb + 1]  # 80 GB report 79.6
        name = fits[-1] if fits else "8" if memory_gb else "cpu"
    return PRESETS[CARDS.get(name, name)]


def card_gb(name: str) -> int:
    """The memory that a preset was made for; 0 for cpu and auto. Raises KeyError."""
    size = CARDS.get(name, name)
    return int(size) if preset(size, 0) and size.isdigit() else 0


class EngineSettings(BaseSettings):
    """The settings of engines that run a model."""

    model: str = Field("deepseek_ocr", description="deepseek_ocr or deepseek_ocr2, for engines that run it themselves")
    model_dir: Path | None = Field(None, description="folder of the weights; null: looked for, see the README")
    preset: str = Field("auto", description=f"{', '.join([*PRESETS, *CARDS])} (GB of GPU memory), or auto")
    dtype: str | None = Field(None, description="bfloat16, float16 or float32; null: the preset's")
    max_model_len: int | None = Field(None, ge=1024, description="context in tokens; null: the preset's")
    max_num_seqs: int | None = Field(None, ge=1, description="prompts read at once; null: the preset's")
    max_num_batched_tokens: int | None = Field(None, ge=2048, description="tokens of a step; null: the preset's")
    gpu_memory_utilization: float | None = Field(None, gt=0, le=1, description="share of memory; null: the preset's")
    kv_cache_dtype: str = Field("auto", description="auto or fp8: half the cache, other answers")
    quantization: str | None = Field(None, description="fp8: half the weights, other answers; null: the preset's")
    tensor_parallel_size: int = Field(1, ge=1, description="GPUs that share one model")
    enforce_eager: bool | None = Field(None, description="no CUDA graphs: slower, starts sooner; null: the preset's")
    block_size: int | None = Field(None, description="tokens of a KV block; null: vLLM's own")
    engine_cache: Path | None = Field(None, description="folder for compiled kernels, by GPU; null: vLLM's own")
    draw_views: bool = Field(True, description="draw PDF pages anew where tiles show them enlarged; false: resize")
    load_format: str = Field("auto", description="dummy: random weights, for measuring without a model")
    stream_interval: int = Field(128, ge=1, description="tokens between two looks whether an answer loops")
    logprobs: bool = Field(False, description="confidence from token log-probabilities, where nothing else tells it")
    engine_restarts: int = Field(6, ge=0, description="times in an hour that a dead engine is started again")
    engine_start_s: float = Field(300.0, gt=0, description="longest start of another engine in place of a dead one")
    engine_silence_s: float = Field(120.0, gt=0, description="an engine at work that says nothing for longer is ended")
    shutdown_timeout_s: int = Field(20, ge=0, description="time the engine has to finish pages when it is told to stop")
    canary: bool = Field(True, description="read a known picture at start and refuse to serve when it is misread")
    canary_timeout_s: float = Field(300.0, gt=0, description="longest wait for that, a cold engine's first answer")
