"""Our scheduler and worker against vLLM's own: the same prompts, the same tokens, also where room runs out.

On a processor vLLM does not schedule ahead; what our worker does about that is in test_worker.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from PIL import Image

from twopass.vllm_plugin import NGRAM, SCHEDULER, WORKER

PROMPTS, SEATS, LONGEST = 10, 4, 150
BLOCKS = 5  # of 128 tokens: four answers do not fit to their ends, so that some are put off and read again


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.checkpoint(tmp_path_factory.mktemp("tiny"))


def said(folder: Path, patch: pytest.MonkeyPatch, **more: Any) -> tuple[list[tuple[int, ...]], int]:
    """What each prompt was answered, and how often one of them was put off."""
    patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=str(folder), dtype="float32", load_format="dummy", max_model_len=512, enforce_eager=True,
        max_num_seqs=SEATS, enable_prefix_caching=False, mm_processor_cache_gb=0, limit_mm_per_prompt={"image": 1},
        logits_processors=[NGRAM], skip_mm_profiling=True, gpu_memory_utilization=0.3, num_gpu_blocks_override=BLOCKS,
        **more,
    )  # fmt: skip
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    preempt, preempted = scheduler._preempt_request, list[str]()

    def counted(request: Any, *when: Any) -> None:
        preempted.append(request.request_id)
        preempt(request, *when)

    scheduler._preempt_request = counted
    shapes = np.random.default_rng(3)
    asked, samplings = [], []
    for number in range(PROMPTS):
        picture = Image.fromarray(shapes.integers(0, 256, (300, 300, 3), dtype=np.uint8))
        text = f"<image>\n{'see ' * number}."
        shown = {"prompt": text, "multi_modal_data": {"image": picture}, "mm_processor_kwargs": {"mode": "tiny"}}
        asked.append(shown if number % 3 else {"prompt": text.removeprefix("<image>")})
        ban = {"ngram_size": 3, "window_size": 20} if number % 2 else None
        tokens = int(shapes.integers(1, LONGEST))
        samplings.append(SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, extra_args=ban))
    outputs = llm.generate(asked, samplings, use_tqdm=False)
    llm.llm_engine.engine_core.shutdown()
    return [tuple(output.outputs[0].token_ids) for output in outputs], len(preempted)


def test_the_tokens_are_those_of_vllms_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, put_off = said(folder, monkeypatch, scheduler_cls=SCHEDULER, worker_cls=WORKER)
    theirs, _ = said(folder, monkeypatch)

    assert ours == theirs
    assert len(set(ours)) > PROMPTS // 2
    assert put_off
