"""The n-gram ban of Model Runner V2 equals vLLM's own ban, row for row, also on rows after drafts."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from vllm.model_executor.models.deepseek_ocr import NoRepeatNGramLogitsProcessor
from vllm.sampling_params import SamplingParams

from twopass.engines.vllm.plugin.ngram_v2 import MAX_ALLOWED, NoRepeatNGram

VOCABULARY, SLOTS, CONTEXT = 6, 5, 300  # few tokens, so that n-grams repeat
PLACEHOLDER = -1  # a draft that was not proposed
BANNED = float("-inf")


class Request(NamedTuple):
    """What one slot holds: prompt and output, this step's drafts, and the ban."""

    prompt: list[int]
    output: list[int]
    drafts: list[int]
    ngram: int | None
    window: int
    allowed: list[int]

    @classmethod
    def draw(cls, rng: random.Random) -> Request:
        def tokens(count: int, least: int = 0) -> list[int]:
            return [rng.randrange(least, VOCABULARY) for _ in range(count)]

        drafts = tokens(rng.randrange(5), least=rng.choice((0, PLACEHOLDER)))
        return cls(
            tokens(rng.randrange(1, 9)), tokens(rng.choice((0, 1, 3, 40, 200))), drafts,
            rng.choice((None, 1, 2, 3, 4, 5)), rng.choice((1, 5, 20, 60, 90)), rng.choice(([], [2], [2, 3])),
        )  # fmt: skip

    @property
    def params(self) -> SamplingParams:
        ban = {"ngram_size": self.ngram, "window_size": self.window, "whitelist_token_ids": self.allowed}
        return SamplingParams(temperature=0, extra_args=ban if self.ngram else None)

    def ban_with_stock(self, logits: torch.Tensor, tokens: list[int]) -> torch.Tensor:
        if self.ngram is None:
            return logits
        return NoRepeatNGramLogitsProcessor(self.ngram, self.window, set(self.allowed))(tokens, logits)


class Runner:
    """What vLLM's second model runner shows a logits processor: tokens by slot, and the rows of a step."""

    def __init__(self) -> None:
        integers = {"dtype": torch.int32}
        self.states: Any = SimpleNamespace(
            device=torch.device("cpu"), max_num_reqs=SLOTS, vocab_size=VOCABULARY,
            all_token_ids=SimpleNamespace(gpu=torch.zeros((SLOTS, CONTEXT), **integers)),
            prompt_len=SimpleNamespace(gpu=torch.zeros(SLOTS, **integers)),
            total_len=SimpleNamespace(gpu=torch.zeros(SLOTS, **integers)),
        )  # fmt: skip
        self.processor = NoRepeatNGram(None, self.states)

    def add(self, slot: int, request: Request) -> bool:
        tokens = request.prompt + request.output
        self.states.all_token_ids.gpu[slot, : len(tokens)] = torch.tensor(tokens)
        self.states.prompt_len.gpu[slot], self.states.total_len.gpu[slot] = len(request.prompt), len(tokens)
        return self.processor.add_request(slot, request.params)

    def apply(self, logits: torch.Tensor, batch: list[tuple[int, Request]]) -> torch.Tensor:
        rows = [(slot, at, request) for slot, request in batch for at in range(len(request.drafts) + 1)]
        inputs = [[(request.prompt + request.output)[-1], *request.drafts][at] for _, at, request in rows]
        slots = [slot for slot, _ in batch]
        step = SimpleNamespace(
            expanded_idx_mapping=torch.tensor([slot for slot, *_ in rows]),
            expanded_local_pos=torch.tensor([at for _, at, _ in rows], dtype=torch.int32),
            input_ids=torch.tensor(inputs, dtype=torch.int32), idx_mapping_np=np.array(slots),
        )  # fmt: skip
        self.processor.apply_staged_writes()
        return self.processor.apply(logits, step)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(25))
def test_bans_what_vllms_own_processor_bans(seed: int) -> None:
    """In random batches, with slots that an earlier request had, and drafts that a row treats as accepted."""
    rng, runner, banned = random.Random(seed), Runner(), 0
    for _ in range(20):
        batch = [(slot, Request.draw(rng)) for slot in rng.sample(range(SLOTS), rng.randrange(1, SLOTS + 1))]
        for slot, request in batch:
            assert runner.add(slot, request) == (request.ngram is not None)
        histories = [
            (request, request.output + request.drafts[:at])
            for _, request in batch
            for at in range(len(request.drafts) + 1)
            if PLACEHOLDER not in request.drafts[:at]
        ]
        rows = [PLACEHOLDER not in request.drafts[:at] for _, request in batch for at in range(len(request.drafts) + 1)]
        logits = torch.rand(len(rows), VOCABULARY)
        expected = [
            request.ban_with_stock(row.clone(), tokens)
            for (request, tokens), row in zip(histories, logits[rows], strict=True)
        ]

        ours = runner.apply(logits.clone(), batch)[rows]

        assert torch.equal(ours, torch.stack(expected))
        banned += int((ours == BANNED).sum())
    assert banned


def test_a_placeholder_never_repeats() -> None:
    """vLLM pads a request's first step with drafts of -1: they equal neither a token nor one another."""
    runner = Runner()
    request = Request([1], [], [PLACEHOLDER] * 4, 2, 20, [])
    runner.add(0, request)

    assert not (runner.apply(torch.rand(5, VOCABULARY), [(0, request)]) == BANNED).any()


def test_leaves_a_batch_without_bans_alone() -> None:
    """A slot forgets the ban of the request that it had before."""
    runner, free = Runner(), Request([1], [2, 3] * 20, [2, 3], None, 20, [])
    runner.add(0, free._replace(ngram=2))
    runner.add(0, free)
    logits = torch.rand(3, VOCABULARY)

    assert torch.equal(runner.apply(logits.clone(), [(0, free)]), logits)


@pytest.mark.parametrize(
    "wrong",
    [
        {"ngram_size": 0}, {"ngram_size": "30"}, {"ngram_size": 3, "window_size": -1},
        {"ngram_size": 3, "whitelist_token_ids": list(range(MAX_ALLOWED + 1))},
    ],
)  # fmt: skip
def test_refuses_invalid_parameters(wrong: dict[str, object]) -> None:
    """vLLM then refuses the request."""
    with pytest.raises(ValueError, match="ngram_size|whitelist_token_ids"):
        NoRepeatNGram.validate_params(SamplingParams(extra_args=wrong))
