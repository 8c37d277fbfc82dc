"""Our scheduler and worker give the same tokens as vLLM's own, even when the KV cache is full.

Every part of the random model affects its output, so that a key or value in a wrong place would change tokens. On a
CPU vLLM runs its first model runner and does not schedule ahead. What runs on GPUs only is listed in docs/engines.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from twopass.engines.vllm.plugin import NGRAM_V1, SCHEDULER, WORKER

pytestmark = pytest.mark.filterwarnings("default")  # torch and vLLM emit warnings that we cannot fix

PROMPTS, IMAGES, MAX_RUNNING, LONGEST = 12, 2, 4, 110
BLOCKS = 5  # of 128 tokens: not every four answers fit to their ends, so that some are preempted and recomputed
STOPS = list(range(5, 129_000, 60))  # one in sixty tokens ends an answer with these stop tokens
BOS = "<｜begin▁of▁sentence｜>"


def build_requests() -> tuple[list[Any], list[Any], list[int]]:
    """Prompts, sampling parameters and priorities: with and without images, bans, ends by length and by stop token."""
    from vllm import SamplingParams

    rng = np.random.default_rng(3)
    prompts, params = list[Any](), list[Any]()
    for number in range(PROMPTS):
        words = BOS + " ".join(str(word) for word in rng.integers(0, 99, 5 + 3 * number))
        image = Image.fromarray(rng.integers(0, 256, (300, 300, 3), dtype=np.uint8))
        with_image = {"prompt": f"{BOS}<image>\nFree OCR.", "multi_modal_data": {"image": image}}
        prompts.append(with_image if number < IMAGES else {"prompt": words})
        params.append(
            SamplingParams(
                temperature=0, max_tokens=int(rng.integers(LONGEST // 2, LONGEST)), ignore_eos=True,
                stop_token_ids=STOPS if number % 3 == 2 else None,
                extra_args={"ngram_size": 3, "window_size": 20} if number % 2 else None,
            )
        )  # fmt: skip
    return prompts, params, [number % 2 for number in range(PROMPTS)]


def run_vllm(
    random_model: Path, patch: pytest.MonkeyPatch, **more: Any
) -> tuple[list[tuple[Any, ...]], list[str], Any]:
    """Each prompt's tokens and finish reason, the ids of preempted requests, and the scheduler."""
    patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    from vllm import LLM
    from vllm.distributed import cleanup_dist_env_and_memory

    llm = LLM(
        model=str(random_model), dtype="float32", max_model_len=512, enforce_eager=True, max_num_seqs=MAX_RUNNING,
        enable_prefix_caching=False, mm_processor_cache_gb=0, limit_mm_per_prompt={"image": 1},
        logits_processors=[NGRAM_V1], skip_mm_profiling=True, gpu_memory_utilization=0.3,
        num_gpu_blocks_override=BLOCKS, scheduling_policy="priority", **more,
    )  # fmt: skip
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    preempt, preempted = scheduler._preempt_request, list[str]()

    def record(request: Any, *when: Any, **how: Any) -> None:
        preempted.append(request.request_id)
        preempt(request, *when, **how)

    scheduler._preempt_request = record
    prompts, params, priorities = build_requests()
    outputs = llm.generate(prompts, params, use_tqdm=False, priority=priorities)
    llm.llm_engine.engine_core.shutdown()
    cleanup_dist_env_and_memory()  # other tests initialise it themselves
    answers = [(tuple(output.outputs[0].token_ids), output.outputs[0].finish_reason) for output in outputs]
    return answers, preempted, scheduler


def test_tokens_equal_those_of_stock_vllm(random_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With tokens that leave the core seven at a time, preemptions, and both kinds of end."""
    ours, preempted, scheduler = run_vllm(
        random_model, monkeypatch, scheduler_cls=SCHEDULER, worker_cls=WORKER, stream_interval=7
    )
    theirs, _, _ = run_vllm(random_model, monkeypatch)

    assert ours == theirs
    assert scheduler._is_plain  # its own passes run, where requests only decode
    assert preempted
    assert {reason for _, reason in ours} == {"length", "stop"}
    assert ours[0][0][:20] != ours[1][0][:20]  # the images affect the tokens, and only through keys and values
