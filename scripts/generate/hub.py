"""Generate .runpod/hub.json and .runpod/tests.json: the form and the test jobs of RunPod's Hub."""

from __future__ import annotations

import base64
import io
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

from pydantic import SecretStr

from scripts import ROOT
from twopass.models import MODELS, PAGE_PRESETS, list_weights
from twopass.pages import canary_images
from twopass.settings import Settings

HUB, TESTS = ROOT / ".runpod" / "hub.json", ROOT / ".runpod" / "tests.json"

# vLLM 0.33's image is of CUDA 13.0, which newer drivers run. The Hub takes an exact list, not a minimum.
CUDA = ["13.0", "13.1", "13.2"]
POOLS = ",".join(
    ["ADA_24", "AMPERE_24", "ADA_32_PRO", "ADA_48_PRO", "AMPERE_48", "AMPERE_80", "ADA_80_PRO", "BLACKWELL_96"]
    + ["HOPPER_141", "BLACKWELL_180", "AMPERE_16"]
)
ICON = ".runpod/icon.png"
RESERVED = ".example"  # RFC 2606
PRESET_LABELS = {
    "16": "16 GB: RTX A4000, RTX 2000 Ada",
    "24": "24 GB: RTX 4090, L4, RTX A5000",
    "32": "32 GB: RTX 5090",
    "48": "48 GB: L40S, A40, RTX A6000",
    "80": "80 GB: A100, H100",
    "141": "141 GB: H200",
}
BAKED = tuple(list_weights(Settings().model))  # what the Hub builds: the Dockerfile without arguments
CHOICES: Mapping[str, Mapping[str, str]] = {
    "preset": {value: PRESET_LABELS.get(value, value) for value in ("auto", *PAGE_PRESETS)},
    "model": {
        name: f"{name}, {'in the image' if name in BAKED else 'not in the image'}: "
        f"{model.weights.repo}, {model.weights.licence}"
        for name, model in MODELS.items()
    },
    "canary": {
        "true": "true: refuse service once twopass accept has passed, until then report",
        "enforce": "enforce: refuse service",
        "false": "false: do not read them",
    },
    "structure": {
        "auto": "auto: as the model needs it",
        "model": "model: the model finds regions itself",
        "detector": "detector, not in the image: PP-DocLayoutV3, Apache-2.0",
        "fallback": "fallback: the model, and the detector, which is not in the image, where it fails",
    },
}
# What the form says besides a setting's own description.
NOTES = {
    "model": f"the image holds {', '.join(BAKED)}; another one needs ALLOW_DOWNLOAD, or the endpoint's Model field",
}
# Settings that the Hub's form asks for, the most used first; all others keep their defaults.
BASIC = ("bucket_endpoint_url", "bucket_access_key_id", "bucket_secret_access_key", "bucket_name", "bucket_prefix")
ADVANCED = (
    *("model", "structure", "allow_download", "layer_text"),
    *("bucket_region", "preset", "gpus", "concurrency", "deadline_s", "price_per_second", "allow_volume"),
    *("max_pages", "max_source_bytes", "allow_private_sources", "metrics_port", "metrics_push_url", "log_level"),
    *("dtype", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization", "kv_cache_dtype"),
    *("quantization", "enforce_eager", "logprobs", "engine_restarts", "canary"),
)
# Values that the image or the platform needs; the form does not ask for them.
FIXED = {"RUNPOD_INIT_TIMEOUT": "800", "RUNPOD_LOG_LEVEL": "INFO"}


def render_files() -> dict[Path, str]:
    return {
        HUB: _to_json(build_hub(read_repository((ROOT / "pyproject.toml").read_text()))),
        TESTS: _to_json(build_tests()),
    }


def _to_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def read_repository(pyproject: str) -> str | None:
    """The repository's address from pyproject.toml; None while it is a name that is reserved for examples."""
    address = str(tomllib.loads(pyproject)["project"]["urls"]["Repository"])
    return None if (urlsplit(address).hostname or "").endswith(RESERVED) else address


def build_hub(repository: str | None = None) -> dict[str, Any]:
    """The form, hub.json; it has an icon if the address of the repository, on GitHub, is known."""
    names = [(name, False) for name in BASIC] + [(name, True) for name in ADVANCED]
    inputs = [_describe_input(name, advanced=advanced) for name, advanced in names]
    return {
        "title": "twopass: documents to DocJSON and markdown",
        "description": "Reads PDFs and scans from S3 with DeepSeek-OCR in two passes. No page is lost silently: each "
        "ends in one state with a reason. DocJSON, markdown, progress, resume.",
        "type": "serverless",
        "category": "image",
        **({"iconUrl": f"{repository.rstrip('/')}/raw/HEAD/{ICON}"} if repository else {}),
        "config": {
            "runsOn": "GPU",
            "containerDiskInGb": 60,
            "gpuCount": 1,
            "gpuIds": POOLS,
            "allowedCudaVersions": CUDA,
            "presets": [{"name": name, "defaults": {"PRESET": size}} for size, name in PRESET_LABELS.items()],
            "env": [*({"key": key, "value": value} for key, value in FIXED.items()), *inputs],
        },
    }


def _describe_input(name: str, *, advanced: bool) -> dict[str, Any]:
    """One field of the Hub's form; name, meaning and default are those of the setting."""
    field = Settings.model_fields[name]
    kinds = {kind for kind in get_args(field.annotation) or (field.annotation,) if kind is not type(None)}
    described: dict[str, Any] = {
        "name": name.replace("_", " ").capitalize(),
        "description": NOTES.get(name, field.description),
        "required": False,
        "advanced": advanced,
    }
    if name in CHOICES:
        default = str(field.default).lower() if isinstance(field.default, bool) else field.default
        described |= {"type": "string", "default": default}
    elif bool in kinds and field.default is None:  # a checkbox could not leave the choice to the preset
        choices = (("the preset's", ""), ("yes", "true"), ("no", "false"))
        described |= {
            "type": "string",
            "default": "",
            "options": [{"label": label, "value": value} for label, value in choices],
        }
    elif bool in kinds:
        described |= {"type": "boolean", "trueValue": "true", "falseValue": "false", "default": bool(field.default)}
    elif kinds <= {int, float}:
        described |= {"type": "number", **({} if field.default is None else {"default": field.default})}
    else:
        default = None if isinstance(field.default, SecretStr) else field.default
        described |= {"type": "string", "default": "" if default is None else str(default)}
    if name in CHOICES:
        described["options"] = [{"label": label, "value": value} for value, label in CHOICES[name].items()]
    return {"key": name.upper(), "input": described}


def build_tests() -> dict[str, Any]:
    """Two jobs that need no network and no bucket: a file in the image, and a page inside the job."""
    return {
        "tests": [
            {
                "name": "fixture_of_the_image",
                "input": {"source": "/app/samples/sample.pdf", "pages": "1-3", "inline": ["markdown"]},
                "timeout": 1_200_000,
            },
            {
                "name": "page_in_the_job",
                "input": {"source": f"data:image/png;base64,{draw_page()}", "inline": ["markdown", "docjson"]},
                "timeout": 600_000,
            },
        ],
        "config": {
            "gpuTypeId": "NVIDIA GeForce RTX 4090",
            "gpuCount": 1,
            "containerDiskInGb": 60,
            "allowedCudaVersions": CUDA,
            # samples/ takes the volume's place, so that a job may name a file of the image
            "env": [{"key": "ALLOW_VOLUME", "value": "true"}, {"key": "VOLUME", "value": "/app/samples"}],
        },
    }


def draw_page() -> str:
    """A PNG of the canary's page in four greys, as base64."""
    from PIL import Image

    pixels = canary_images.draw_page().image
    image = Image.fromarray(pixels.array()).convert("L").quantize(4)
    out = io.BytesIO()
    image.save(out, "PNG", optimize=True)
    return base64.b64encode(out.getvalue()).decode()
