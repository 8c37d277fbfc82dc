"""What the benchmarks ask an engine to do: page sizes, prompts, token counts and the mix of page kinds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scripts import ROOT

MIX_FILE = ROOT / "docs" / "bench" / "mix.json"
A4 = (1190, 1684)  # pixels at 144 dpi
DISTINCT_PAGES = 4  # so many different images are used again and again
PAGE_PROMPT = "<image>\n<|grounding|>Convert the document to markdown."
PROMPT_TOKENS = 938  # of an A4 page in gundam mode
PAGE_TOKENS = 500
CROP_PROMPT = "<image>\nFree OCR."
CROP_SIDE, CROP_TOKENS = 600, 60
STREAM_INTERVAL = 128  # tokens between two outputs of a streamed answer; the default of the setting STREAM_INTERVAL
NGRAM_BAN = {"ngram_size": 30, "window_size": 90, "whitelist_token_ids": [128821, 128822]}
LOGITS_PROCESSORS = {
    "none": [],
    "ours": ["twopass.engines.vllm.plugin.ngram_ban:NoRepeatNGram"],
    "stock": ["vllm.model_executor.models.deepseek_ocr:NGramPerReqLogitsProcessor"],
}
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "VLLM_MOE_ROUTING_SIMULATION_STRATEGY": "uniform_random"}


def read_mix(count: int) -> list[dict[str, Any]]:
    """Return so many pages of docs/bench/mix.json, which starts over where it has fewer."""
    mix = json.loads(MIX_FILE.read_text())
    return [mix[number % len(mix)] for number in range(count)]


def choose_load_format(model_dir: Path) -> str:
    """Load weights where the folder has any; use random weights otherwise."""
    return "auto" if any(model_dir.glob("*.safetensors")) else "dummy"
