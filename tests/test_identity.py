"""Which settings are part of documents' ids: those that change what is read, with an engine that they concern."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.engines.test_weights import write_detector
from twopass import contexts
from twopass.engines import factory
from twopass.errors import InvalidSetting
from twopass.job import EntryPoint, Job
from twopass.settings import Settings
from twopass.worker import choose_family

# Another value for each setting that is neither a switch nor a number nor takes any text.
OTHERS: Mapping[str, Any] = {
    "engine": "hf",
    "openai_family": "deepseek_ocr2",
    "model": "deepseek_ocr2",
    "preset": "80",
    "openai_base_url": "http://localhost:2/v1",
    "replay_dir": None,
    "max_model_len": 2048,
    "max_num_seqs": 3,
    "max_num_batched_tokens": 4096,
    "gpu_memory_utilization": 0.5,
    "gpus": 1,
    "enforce_eager": True,
    "block_size": 32,
    "torch_compile": "off",
    "engine_cache_key": "0123456789abcdef",
    "max_tiles": 4,
    "structure": "fallback",
    "detector_device": "cuda",
    "load_format": "dummy",
    "draft_tokens": 2,
    "furniture": "omit",
    "price_per_second": 0.001,
    "serve_api_key": "0123456789abcdef",
    "metrics_push_url": "http://localhost:3",
    "log_level": "ERROR",
    "log_format": "text",
}
JOB = Job.parse({"id": "job", "input": {"source": "a.pdf", "inline": ["markdown"]}}, Settings(), EntryPoint.LOCAL)
VLLM = {"engine": "vllm", "preset": "cpu"}
OPENAI = {"engine": "openai", "openai_model": "tiny", "openai_base_url": "http://localhost:1/v1"}
MISFITS = {"engine", "structure", "bucket_endpoint_url", "bucket_access_key_id", "bucket_secret_access_key"}
ARITHMETIC = {"preset", "dtype", "quantization", "kv_cache_dtype", "max_model_len", "load_format", "logprobs"}
CASES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "cpu": ({}, {"engine", "tessdata_dir"}),
    "hf": ({"engine": "hf"}, {"model", "dtype", "small_crops", "structure", "missed_questions"}),
    "vllm, tiles": (
        {**VLLM, "model": "unlimited_ocr"},
        {"engine", "model", *ARITHMETIC, "draw_views", "max_tiles", "structure", "missed_questions"},
    ),
    "vllm, detector": (
        {**VLLM, "structure": "detector"},
        {
            *("engine", "model", "draw_views", "small_crops", "structure", "layer_text", "detector_device"),
            *("missed_questions", *ARITHMETIC),
        },
    ),
    "openai": (
        OPENAI,
        {
            *("engine", "openai_family", "openai_model", "openai_plain", "openai_modes", "small_crops", "structure"),
            "missed_questions",
        },
    ),
}


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Any]:
    """The folders that decide what is read: one without languages, and one with a detector."""
    return {"tessdata_dir": tmp_path, "detector_dir": write_detector(tmp_path), "detector_device": "cpu"}


@pytest.fixture
def others(tmp_path: Path) -> dict[str, Any]:
    """Another value for each setting: its opposite, its successor, some text, or that of OTHERS."""
    korean = tmp_path / "korean"
    korean.mkdir()
    (korean / "kor.traineddata").touch()
    return {
        **{name: choose_other(field.default) for name, field in Settings.model_fields.items()},
        **OTHERS,
        "tessdata_dir": korean,
        "detector_dir": write_detector(korean),
    }


def choose_other(default: Any) -> Any:
    if isinstance(default, bool):
        return not default
    return default + 1 if isinstance(default, int | float) else "other"


async def describe(settings: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What a document's id depends on with these settings, besides the job; None if they do not fit together."""
    given = Settings(**settings)
    if identity := await factory.identify(given):
        with suppress(InvalidSetting):
            return contexts.describe_run(JOB, identity, choose_family(given, identity.family), given).options
    return None


@pytest.mark.parametrize("name", CASES)
async def test_only_settings_that_change_what_is_read_change_ids(
    name: str, folders: dict[str, Any], others: dict[str, Any]
) -> None:
    """Of all settings, also new ones, an id depends on those that the engine or the family of the model follows."""
    given, expected = {**folders, **CASES[name][0]}, CASES[name][1]
    before = await describe(given)
    described = {setting: await describe({**given, setting: other}) for setting, other in others.items()}

    assert before and {setting for setting, options in described.items() if options not in (before, None)} == expected
    assert {setting for setting, options in described.items() if options is None} <= MISFITS
