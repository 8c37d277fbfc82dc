"""What the benchmarks ask an engine to do: page sizes, prompts, token counts and the mix of page kinds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scripts import ROOT
from twopass.engines.vllm.plugin import DRAFT_TEXTS, NGRAM_V2, STOCK_NGRAM, STOCK_NGRAM_ENVIRONMENT, drafts

MIX_FILE = ROOT / "docs" / "bench" / "mix.json"
A4 = (1190, 1684)  # pixels at 144 dpi
PAGE_BYTES = (A4[0] + 2) * (A4[1] + 2) * 3  # of a page buffer, as steps/render.py asks for them
DISTINCT_PAGES = 4  # so many different images are used again and again
PAGE_PROMPT = "<image>\n<|grounding|>Convert the document to markdown."
PROMPT_TOKENS = 938  # of an A4 page in gundam mode
PAGE_TOKENS = 500
CROP_PROMPT = "<image>\nFree OCR."
CROP_SIDE, CROP_TOKENS = 600, 60
WARM_UP_TOKENS = 60  # of each of as many pages as there are sequences, before anything is measured
DRAFT_TOKENS = 4  # what the engine verifies by default on an H200
STREAM_INTERVAL = 128  # tokens between two outputs of a streamed answer; the default of the setting STREAM_INTERVAL
NGRAM_BAN = {"ngram_size": 30, "window_size": 90, "whitelist_token_ids": [128821, 128822]}
BANS = {"none": (), "ours": (NGRAM_V2,), "stock": (STOCK_NGRAM,)}  # logits processors
BAN_ENVIRONMENT = {"stock": STOCK_NGRAM_ENVIRONMENT}
# What stands for a page's text: as long as an answer. Which words it has does not matter where acceptance is simulated.
DRAFT_TEXT = " ".join(f"word{number}" for number in range(300))
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "VLLM_MOE_ROUTING_SIMULATION_STRATEGY": "uniform_random"}


def read_mix(count: int) -> list[dict[str, Any]]:
    """So many pages of docs/bench/mix.json, which starts over where it has fewer."""
    mix = json.loads(MIX_FILE.read_text())
    return [mix[number % len(mix)] for number in range(count)]


def is_scan(number: int, share: float) -> bool:
    """Whether page `number` is one of this share of pages that have no text to draft from, evenly spread."""
    return int((number + 1) * share) > int(number * share)


def list_processors(ban: str, has_drafts: bool = False) -> list[str]:
    """vLLM's `logits_processors`, with what keeps the texts that are drafted from."""
    return [*BANS[ban], DRAFT_TEXTS] if has_drafts else [*BANS[ban]]


def add_draft(ngram_ban: dict[str, Any]) -> dict[str, Any]:
    """A request's extra arguments: the ban and a text of PAGE_TOKENS tokens to draft from."""
    return {**ngram_ban, drafts.DRAFT: drafts.pack(range(1000, 1000 + PAGE_TOKENS))}


def choose_load_format(model_dir: Path) -> str:
    """Load weights where the folder has any; use random weights otherwise."""
    return "auto" if any(model_dir.glob("*.safetensors")) else "dummy"


def make_prompt(
    pixels: Any, tokens: int, mode: str = "gundam", text: str = PAGE_PROMPT, draft: str = DRAFT_TEXT, **more: Any
) -> Any:
    """A prompt with an answer of so many tokens, for twopass's engine."""
    from twopass.engines.interface import Prompt, Sampling

    sampling = Sampling(max_tokens=tokens, ignore_eos=True)
    return Prompt("p", text, pixels, mode=mode, sampling=sampling, draft=draft, **more)
