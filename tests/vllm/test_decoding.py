"""Our scheduler and worker against vLLM's own: the same prompts, the same tokens, also where room runs out.

The model's weights are those that keep each of its parts talking, so that a key or value in a wrong place shows. On a
processor vLLM does not schedule ahead; what our worker does about that is in test_worker.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from twopass.engines.vllm.plugin import NGRAM, SCHEDULER, WORKER
from twopass.engines.vllm.plugin.scheduler import _Slots

pytestmark = pytest.mark.filterwarnings("default")  # torch's and vLLM's are not ours to mend

PROMPTS, PICTURES, SEATS, LONGEST = 12, 2, 4, 150
BLOCKS = 6  # of 128 tokens: not every four answers fit to their ends, so that some are put off and read again
STOPS = list(range(5, 129_000, 60))  # one token of sixty ends an answer that minds them
BOS = "<｜begin▁of▁sentence｜>"


def asked() -> tuple[list[Any], list[Any], list[int]]:
    """Prompts, how each is sampled, and how urgent it is: pictures and none, bans, ends by length and by token."""
    from vllm import SamplingParams

    drawn = np.random.default_rng(3)
    prompts, samplings = list[Any](), list[Any]()
    for number in range(PROMPTS):
        words = BOS + " ".join(str(word) for word in drawn.integers(0, 99, 5 + 3 * number))
        picture = Image.fromarray(drawn.integers(0, 256, (300, 300, 3), dtype=np.uint8))
        shown = {"prompt": f"{BOS}<image>\nFree OCR.", "multi_modal_data": {"image": picture}}
        prompts.append(shown if number < PICTURES else {"prompt": words})
        samplings.append(
            SamplingParams(
                temperature=0, max_tokens=int(drawn.integers(LONGEST // 2, LONGEST)), ignore_eos=True,
                stop_token_ids=STOPS if number % 3 == 2 else None,
                extra_args={"ngram_size": 3, "window_size": 20} if number % 2 else None,
            )
        )  # fmt: skip
    return prompts, samplings, [number % 2 for number in range(PROMPTS)]


def said(weighty: Path, patch: pytest.MonkeyPatch, **more: Any) -> tuple[list[tuple[Any, ...]], list[str], Any]:
    """What each prompt was answered and why it ended, who was put off meanwhile, and who gave out the room."""
    patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    from vllm import LLM

    llm = LLM(
        model=str(weighty), dtype="float32", max_model_len=512, enforce_eager=True, max_num_seqs=SEATS,
        enable_prefix_caching=False, mm_processor_cache_gb=0, limit_mm_per_prompt={"image": 1},
        logits_processors=[NGRAM], skip_mm_profiling=True, gpu_memory_utilization=0.3, num_gpu_blocks_override=BLOCKS,
        scheduling_policy="priority", **more,
    )  # fmt: skip
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    preempt, preempted = scheduler._preempt_request, list[str]()

    def counted(request: Any, *when: Any) -> None:
        preempted.append(request.request_id)
        preempt(request, *when)

    scheduler._preempt_request = counted
    prompts, samplings, priorities = asked()
    outputs = llm.generate(prompts, samplings, use_tqdm=False, priority=priorities)
    slots = scheduler.kv_cache_manager.allocate_slots
    llm.llm_engine.engine_core.shutdown()
    answers = [(tuple(output.outputs[0].token_ids), output.outputs[0].finish_reason) for output in outputs]
    return answers, preempted, slots


def test_the_tokens_are_those_of_vllms_own(weighty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held back for seven tokens at a time, too."""
    ours, put_off, slots = said(weighty, monkeypatch, scheduler_cls=SCHEDULER, worker_cls=WORKER, stream_interval=7)
    theirs, _, _ = said(weighty, monkeypatch)

    assert ours == theirs
    assert isinstance(slots, _Slots)
    assert put_off
    assert {reason for _, reason in ours} == {"length", "stop"}
    assert ours[0][0][:20] != ours[1][0][:20]  # what is seen matters, and it is seen through keys and values alone
