"""The stages that twopass is compared with: vLLM without our plugin (`stock_…`), and Transformers."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import numpy as np

from scripts.bench.report import print_json
from scripts.bench.throughput import make_sampling, measure_decoder, measure_mix, per_second
from scripts.bench.workload import (
    A4,
    BAN_ENVIRONMENT,
    CROP_PROMPT,
    CROP_SIDE,
    CROP_TOKENS,
    DISTINCT_PAGES,
    NGRAM_BAN,
    PAGE_PROMPT,
    PAGE_TOKENS,
    STREAM_INTERVAL,
    WARM_UP_TOKENS,
    choose_load_format,
    list_processors,
    read_mix,
)

TRANSFORMERS_PAGES = 3  # each takes long


def measure_generate(options: Any) -> dict[str, Any]:
    """Measure pages a second through `LLM.generate`, as most people run vLLM."""
    from vllm import LLM

    llm = LLM(**_build_arguments(options, "stock"))
    images = _make_images(*A4)

    def measure_rate(count: int, tokens: int) -> float:
        prompts = [
            {"prompt": PAGE_PROMPT, "multi_modal_data": {"image": images[n % DISTINCT_PAGES]}} for n in range(count)
        ]
        started = time.time()
        llm.generate(prompts, make_sampling(tokens, NGRAM_BAN), use_tqdm=False)
        return per_second(count, started)

    measure_rate(16, 8)
    return {"pass1_500": {"stock_generate": measure_rate(options.pages // 2, PAGE_TOKENS)}}


def measure_async(options: Any) -> dict[str, Any]:
    """Measure vLLM at its best, with the n-gram ban, which exists for its first model runner."""
    return _measure(options, "stock_async", "stock")


def measure_v2(options: Any) -> dict[str, Any]:
    """Measure vLLM's second model runner, which is its default and has no n-gram ban of vLLM's own."""
    return _measure(options, "stock_v2", "none")


def _measure(options: Any, name: str, ban: str) -> dict[str, Any]:
    """Images are prepared by threads, answers are streamed in steps as large as ours."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    arguments = {
        **_build_arguments(options, ban),
        "renderer_num_workers": min(options.workers, options.renderers),
        "stream_interval": STREAM_INTERVAL,
    }
    core = AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))

    async def run() -> None:
        try:
            await _measure_core(core, options, name)
        finally:
            core.shutdown()  # on the loop, as twopass's engine does

    asyncio.run(run())
    return {}  # everything was printed as it was found


def measure_transformers(options: Any) -> dict[str, Any]:
    """Measure one page after the other of DeepSeek-OCR-2, which Transformers implements itself, with random weights."""
    import torch
    import transformers

    from twopass.engines.hf import models
    from twopass.engines.interface import Prompt, Sampling
    from twopass.pages.shared_pixels import Pixels

    width, height = A4
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    torch.set_default_dtype(dtype)
    with torch.device(models.choose_device()):
        model = transformers.DeepseekOcr2ForConditionalGeneration(models.build_config(options.model_dir))
    torch.set_default_dtype(torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model_dir, local_files_only=True)
    reader = models.TransformersModel(model.eval(), tokenizer, transformers.DeepseekOcr2ImageProcessorPil())

    def generate(image: Any, max_tokens: int) -> int:
        """How many tokens were generated."""
        pixels = Pixels(width, height, data=image.tobytes())
        prompt = Prompt("p", PAGE_PROMPT, pixels, mode="gundam", sampling=Sampling(max_tokens=max_tokens))
        return int(reader.answer(prompt, lambda: False).tokens_out)

    images = _make_images(width, height)
    generate(images[0], 8)
    started = time.time()
    tokens = sum(generate(images[n % DISTINCT_PAGES], PAGE_TOKENS) for n in range(TRANSFORMERS_PAGES))
    seconds = time.time() - started
    print_json(transformers_tokens=tokens, seconds=seconds)
    return {"pass1_500": {"transformers": round(tokens / PAGE_TOKENS / seconds, 3)}}


def _make_images(width: int, height: int) -> list[Any]:
    from PIL import Image

    rng = np.random.default_rng(1)
    return [Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8)) for _ in range(DISTINCT_PAGES)]


def _build_arguments(options: Any, ban: str) -> dict[str, Any]:
    os.environ["VLLM_PLUGINS"] = ""  # without ours
    os.environ |= BAN_ENVIRONMENT.get(ban, {})
    return {
        "model": str(options.model_dir), "dtype": "bfloat16", "load_format": choose_load_format(options.model_dir),
        "max_model_len": 8192,
        "max_num_seqs": options.sequences, "max_num_batched_tokens": 8192, "enable_prefix_caching": False,
        "mm_processor_cache_gb": 0, "limit_mm_per_prompt": {"image": 1}, "disable_log_stats": True,
        "logits_processors": list_processors(ban),
    }  # fmt: skip


async def _measure_core(core: Any, options: Any, name: str) -> None:
    pages, crops, request_ids = _make_images(*A4), _make_images(CROP_SIDE, CROP_SIDE), iter(map(str, range(10**6)))

    async def count_tokens(image: Any, tokens: int, text: str = PAGE_PROMPT) -> AsyncIterator[int]:
        (rendered,) = await core.renderer.render_cmpl_async([{"prompt": text, "multi_modal_data": {"image": image}}])
        so_far = 0
        async for output in core.generate(rendered, make_sampling(tokens, NGRAM_BAN), next(request_ids)):
            so_far += len(output.outputs[0].token_ids)
            yield so_far

    async def measure_rate(images: Sequence[Any], count: int, tokens: int, text: str = PAGE_PROMPT) -> float:
        async def ask(number: int) -> None:
            async for _ in count_tokens(images[number % DISTINCT_PAGES], tokens, text):
                pass

        started = time.time()
        await asyncio.gather(*(ask(number) for number in range(count)))
        return per_second(count, started)

    def ask_page(number: int, tokens: int) -> AsyncIterator[int]:
        return count_tokens(pages[number % DISTINCT_PAGES], tokens)

    await measure_rate(pages, 1, 8)  # alone: otherwise all threads load a tokenizer at once, which takes minutes
    # As many sequences and rounds, and the same warm-up, as in the stage `twopass`.
    await measure_rate(pages, options.sequences, WARM_UP_TOKENS)
    rates = [await measure_rate(pages, options.pages, PAGE_TOKENS) for _ in range(options.rounds)]
    print_json(found={"pass1_500": {name: statistics.median(rates)}})
    await measure_rate(crops, min(options.sequences, options.crops), CROP_TOKENS, CROP_PROMPT)
    rates = [await measure_rate(crops, options.crops, CROP_TOKENS, CROP_PROMPT) for _ in range(options.rounds + 1)]
    print_json(found={"crops_per_s": {name: statistics.median(rates)}})
    decoder = await measure_decoder(core, options, {name.removesuffix("_async"): NGRAM_BAN})
    print_json(found={"decoder_tokens_per_s": decoder})
    lengths = [page["tokens"] for page in read_mix(options.mix_pages)]
    print_json(found={"pass1_mix": {name: await measure_mix(ask_page, lengths, options.sequences)}})
