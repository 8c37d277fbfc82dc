"""Measure how much an engine generates a second: the decoder alone, and pages of many lengths while it is full."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import numpy as np

from scripts.bench.report import print_json
from scripts.bench.workload import PAGE_TOKENS, PROMPT_TOKENS

MAX_DECODER_SEQUENCES = 256


def make_sampling(tokens: int, ngram_ban: Any) -> Any:
    """Sampling parameters of vLLM for an answer of exactly so many tokens, streamed as differences."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=0, max_tokens=tokens, ignore_eos=True, skip_special_tokens=False, extra_args=ngram_ban,
        output_kind=RequestOutputKind.DELTA,
    )  # fmt: skip


def per_second(count: int, started: float) -> float:
    """Rate since a moment on the clock of time.time()."""
    return round(count / (time.time() - started), 2)


async def generate_tokens(core: Any, request_id: str, sampling: Any, rng: np.random.Generator) -> None:
    """Run one request of random tokens, without an image, on vLLM's own engine."""
    prompt = {"type": "token", "prompt_token_ids": rng.integers(5, 100_000, PROMPT_TOKENS).tolist()}
    async for _ in core.generate(prompt, sampling, request_id):
        pass


async def measure_decoder(core: Any, options: Any, bans: dict[str, Any]) -> dict[str, float]:
    """The best tokens a second without images for each n-gram ban; the bans take turns in every round."""
    rng, sequences = np.random.default_rng(1), min(options.sequences, MAX_DECODER_SEQUENCES)
    speeds: dict[str, list[float]] = {name: [] for name in bans}
    for number in range(options.rounds):
        for name, ban in bans.items():
            started = time.time()
            await asyncio.gather(*(
                generate_tokens(core, f"{name}-{number}-{n}", make_sampling(PAGE_TOKENS, ban), rng)
                for n in range(sequences)
            ))  # fmt: skip
            speeds[name].append(round(sequences * PAGE_TOKENS / (time.time() - started)))
    print_json(decoder=speeds)
    return {name: max(rates) for name, rates in speeds.items()}


async def measure_mix(ask: Callable[[int, int], AsyncIterator[int]], lengths: Sequence[int], sequences: int) -> float:
    """Pages a second while every sequence is in use: tokens generated then, divided by the mean page's.

    `ask` takes a page's number and length and yields how many tokens it has so far. The measurement lasts from when
    the first `sequences` pages have begun until the last page has; then the pages still running are cancelled. A
    service never has that long tail of a few pages.
    """
    begun, generated, marks = 0, 0, list[tuple[float, int]]()
    last_begun = asyncio.Event()

    async def read_page(number: int, tokens: int) -> None:
        nonlocal begun, generated
        before = 0
        async for so_far in ask(number, tokens):
            begun += before == 0
            generated += so_far - before
            before = so_far
            if begun in (sequences, len(lengths)) and len(marks) < 1 + (begun == len(lengths)):
                marks.append((time.time(), generated))
                if begun == len(lengths):
                    last_begun.set()

    pages = [asyncio.create_task(read_page(number, tokens)) for number, tokens in enumerate(lengths)]
    waiting = asyncio.create_task(last_begun.wait())
    all_pages = asyncio.gather(*pages)  # done before `waiting` only if a page fails
    await asyncio.wait((waiting, all_pages), return_when=asyncio.FIRST_COMPLETED)
    if not last_begun.is_set():
        await all_pages
    all_pages.cancel()
    await asyncio.wait(pages)
    (since, first), (until, last) = marks
    print_json(mix_tokens_per_s=(last - first) / (until - since), seconds=until - since)
    return round((last - first) / (until - since) / statistics.mean(lengths), 2)
