"""The program's settings in, .runpod/hub.json and .runpod/tests.json out: what RunPod's Hub asks a deployer and tries.

A test fails when they are stale.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import SecretStr

from twopass.engine_settings import PRESETS
from twopass.engines.weights import MODELS
from twopass.settings import Settings

ROOT = Path(__file__).parents[1]
HUB, TESTS = ROOT / ".runpod" / "hub.json", ROOT / ".runpod" / "tests.json"

CUDA = ["13.0"]  # an exact list: vLLM 0.26's image is of CUDA 13.0
POOLS = "ADA_24,AMPERE_24,ADA_48_PRO,AMPERE_48,AMPERE_80,ADA_80_PRO,HOPPER_141,AMPERE_16"
CARDS = {
    "16": "16 GB: RTX A4000, RTX 2000 Ada",
    "24": "24 GB: RTX 4090, L4, RTX A5000",
    "48": "48 GB: L40S, A40, RTX A6000",
    "80": "80 GB: A100, H100",
    "141": "141 GB: H200",
}
# What a deployer may want to say, the frequent first; the rest of the settings keep their defaults.
BASIC = ("bucket_endpoint_url", "bucket_access_key_id", "bucket_secret_access_key", "bucket_name", "bucket_prefix")
ADVANCED = (
    *("bucket_region", "preset", "concurrency", "deadline_s", "price_per_second", "allow_volume"),
    *("max_pages", "max_source_bytes", "allow_private_sources", "metrics_port", "log_level"),
    *("dtype", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization", "kv_cache_dtype"),
    *("quantization", "enforce_eager", "logprobs", "engine_restarts", "canary"),
)
# What the image or the platform needs to be so; not asked.
FIXED = {"RUNPOD_INIT_TIMEOUT": "800", "RUNPOD_LOG_LEVEL": "INFO"}


def main() -> None:
    HUB.write_text(text(hub()))
    TESTS.write_text(text(tests()))


def text(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def hub() -> dict[str, Any]:
    inputs = [_input(name, advanced=False) for name in BASIC] + [_input(name, advanced=True) for name in ADVANCED]
    return {
        "title": "twopass: documents to DocJSON and markdown",
        "description": "Reads PDFs and scans from S3 with DeepSeek-OCR in two passes. No page is lost silently: each "
        "ends in one state with a reason. DocJSON, markdown, progress, resume.",
        "type": "serverless",
        "category": "image",
        "config": {
            "runsOn": "GPU",
            "containerDiskInGb": 60,
            "gpuCount": 1,
            "gpuIds": POOLS,
            "allowedCudaVersions": CUDA,
            "presets": [{"name": name, "defaults": {"PRESET": size}} for size, name in CARDS.items()],
            "env": [*({"key": key, "value": value} for key, value in FIXED.items()), *inputs],
        },
    }


def _input(name: str, *, advanced: bool) -> dict[str, Any]:
    """One question of the Hub's form, with the name, meaning and default that the code has."""
    field = Settings.model_fields[name]
    kinds = {kind for kind in get_args(field.annotation) or (field.annotation,) if kind is not type(None)}
    asked: dict[str, Any] = {
        "name": name.replace("_", " ").capitalize(),
        "description": field.description,
        "required": False,
        "advanced": advanced,
    }
    if bool in kinds and field.default is None:  # a box that is not ticked would say no
        words = (("the preset's", ""), ("yes", "true"), ("no", "false"))
        asked |= {"type": "string", "default": "", "options": [{"label": one, "value": value} for one, value in words]}
    elif bool in kinds:
        asked |= {"type": "boolean", "trueValue": "true", "falseValue": "false", "default": bool(field.default)}
    elif kinds & {int, float}:
        asked |= {"type": "number", **({} if field.default is None else {"default": field.default})}
    else:
        default = None if isinstance(field.default, SecretStr) else field.default
        asked |= {"type": "string", "default": "" if default is None else str(default)}
    if name == "preset":
        asked["options"] = [{"label": CARDS.get(value, value), "value": value} for value in ("auto", *PRESETS)]
    return {"key": name.upper(), "input": asked}


def tests() -> dict[str, Any]:
    """Two jobs that need no network and no bucket: a fixture of the image, and a page inside the job."""
    return {
        "tests": [
            {
                "name": "fixture_of_the_image",
                "input": {"source": "/app/samples/sample.pdf", "pages": "1-3", "inline": ["markdown"]},
                "timeout": 1_200_000,
            },
            {
                "name": "page_in_the_job",
                "input": {"source": f"data:image/png;base64,{page()}", "inline": ["markdown", "docjson"]},
                "timeout": 600_000,
            },
        ],
        "config": {
            "gpuTypeId": "NVIDIA GeForce RTX 4090",
            "gpuCount": 1,
            "containerDiskInGb": 60,
            "allowedCudaVersions": CUDA,
            # samples/ stands in the volume's place, so that a job may name a file of the image
            "env": [{"key": "ALLOW_VOLUME", "value": "true"}, {"key": "VOLUME", "value": "/app/samples"}],
        },
    }


def page() -> str:
    """A picture of a few lines, as base64."""
    import pymupdf
    from PIL import Image

    with pymupdf.open() as pdf:
        drawn = pdf.new_page(width=300, height=120)
        drawn.insert_text((24, 44), "Water works of the town", fontsize=15, fontname="hebo")
        drawn.insert_text((24, 76), "The first pump was built in 1891.", fontsize=11)
        pixels = drawn.get_pixmap(dpi=144, colorspace="gray")
        image = Image.frombytes("L", (pixels.width, pixels.height), pixels.samples).quantize(4)
    out = io.BytesIO()
    image.save(out, "PNG", optimize=True)
    return base64.b64encode(out.getvalue()).decode()


def pinned() -> Mapping[str, str]:
    """What a default build of the image bakes."""
    weights = MODELS["deepseek_ocr"]
    return {"MODEL": "deepseek_ocr", "MODEL_REPO": weights.repo, "MODEL_REVISION": weights.revision}


if __name__ == "__main__":
    main()
