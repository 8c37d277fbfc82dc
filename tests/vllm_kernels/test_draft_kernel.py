"""The GPU's drafts equal those of `drafts.find_draft`, which defines them, request for request."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from vllm.sampling_params import SamplingParams

from twopass.engines.vllm.plugin.draft_texts import DraftTexts
from twopass.engines.vllm.plugin.drafts import DRAFT, find_draft, pack
from twopass.engines.vllm.plugin.speculator import TextSpeculator, find_numbers

VOCABULARY, SLOTS, CONTEXT = 12, 6, 600  # few tokens, so that much repeats
NUMBERS = {"1": 1, "12": 2, "1a": 3}  # the third is no number
INTEGERS = {"dtype": torch.int32}


@dataclass
class Request:
    text: list[int]
    prompt_length: int
    output: list[int] = field(default_factory=list)
    cursor: int = 0


class Runner:
    """What vLLM's second model runner keeps of requests, with our speculator."""

    def __init__(self, count: int) -> None:
        self.states: Any = SimpleNamespace(
            device=torch.device("cpu"), max_num_reqs=SLOTS, vocab_size=VOCABULARY, max_model_len=CONTEXT,
            all_token_ids=SimpleNamespace(gpu=torch.zeros((SLOTS, CONTEXT), **INTEGERS)),
            prompt_len=SimpleNamespace(gpu=torch.zeros(SLOTS, **INTEGERS)),
            total_len=SimpleNamespace(gpu=torch.zeros(SLOTS, **INTEGERS)),
        )  # fmt: skip
        self.texts = DraftTexts(None, self.states)
        self.speculator = TextSpeculator(self.states, self.texts, count, NUMBERS)
        self.count = count

    def add(self, slot: int, request: Request) -> None:
        changes_logits = self.texts.add_request(slot, SamplingParams(extra_args={DRAFT: pack(request.text)}))
        self.states.prompt_len.gpu[slot] = self.states.total_len.gpu[slot] = request.prompt_length
        assert not changes_logits

    def accept(self, slot: int, request: Request, tokens: list[int]) -> None:
        start = request.prompt_length + len(request.output)
        self.states.all_token_ids.gpu[slot, start : start + len(tokens)] = torch.tensor(tokens, **INTEGERS)
        request.output += tokens
        self.states.total_len.gpu[slot] = start + len(tokens)

    def propose(self, slots: list[int], fresh: list[int]) -> list[list[int]]:
        batch = SimpleNamespace(num_reqs=len(slots), idx_mapping=torch.tensor(slots), idx_mapping_np=np.array(slots))
        drafts = self.speculator.propose(batch, None, None, None, None, torch.tensor(fresh, **INTEGERS))
        rows: list[list[int]] = drafts.tolist()
        return rows


@pytest.mark.parametrize("seed", range(12))
def test_drafts_equal_their_definition(seed: int) -> None:
    """Of requests with and without a text, in any order, with any number of new tokens, and in slots used before."""
    rng = random.Random(seed)
    runner = Runner(rng.choice((1, 3, 4, 6)))
    runner.propose([0], [0])
    requests = [draw_request(rng) for _ in range(SLOTS)]
    for slot, request in enumerate(requests):
        runner.add(slot, request)
    for _ in range(10):
        slots = rng.sample(range(SLOTS), rng.randrange(1, SLOTS + 1))
        if rng.random() < 0.2:
            requests[slots[0]] = draw_request(rng)
            runner.add(slots[0], requests[slots[0]])
        fresh = []
        for slot in slots:
            tokens = draw_tokens(rng, requests[slot], runner.count + 1)
            runner.accept(slot, requests[slot], tokens)
            fresh.append(len(tokens))
        proposed = runner.propose(slots, fresh)
        for slot, new, drafts in zip(slots, fresh, proposed, strict=True):
            request = requests[slot]
            if not new or not any(requests[other].text for other in slots):  # its prompt is not complete; see below
                continue
            expected, request.cursor = find_draft(
                request.text, request.cursor, request.output, new, runner.count, {1, 2}
            )
            padding = [request.output[-1]] * (runner.count - len(expected))
            assert drafts == [*expected, *padding]
            assert int(runner.texts.cursors[slot]) == request.cursor


def draw_request(rng: random.Random) -> Request:
    text = [rng.randrange(VOCABULARY) for _ in range(rng.choice((0, 1, 3, 30, 300)))]
    return Request(text, rng.randrange(1, 20))


def draw_tokens(rng: random.Random, request: Request, most: int) -> list[int]:
    """Mostly the text's next tokens; at first one at most, because there was nothing to draft from."""
    count = rng.randrange(most + 1) if request.output else rng.randrange(2)
    ahead = request.text[request.cursor : request.cursor + count]
    ahead += [0] * (count - len(ahead))
    return [token if rng.random() < 0.7 else rng.randrange(VOCABULARY) for token in ahead]


def test_a_dummy_run_needs_no_requests() -> None:
    """vLLM measures its memory before there are any."""
    drafts = Runner(4).speculator.propose(SimpleNamespace(num_reqs=3), *[None] * 4, None, dummy_run=True)  # type: ignore[arg-type]

    assert drafts.tolist() == [[0] * 4] * 3


def test_nothing_is_searched_for_a_batch_without_a_text() -> None:
    """Nobody verifies its drafts. The first call searches all the same: it compiles the kernels, at vLLM's start."""
    runner = Runner(4)
    runner.add(0, Request([], 5))
    runner.add(1, Request([7, 8, 9, 10], 5))
    runner.accept(0, Request([], 5), [3, 4, 3])
    runner.accept(1, Request([], 5), [7])

    first, second = runner.propose([0], [1]), runner.propose([0], [1])
    runner.accept(0, Request([], 5, [3, 4, 3]), [4])
    third, both = runner.propose([0], [1]), runner.propose([0, 1], [1, 1])

    assert first == second == third == [[4, 3, 3, 3]]
    assert both == [[3, 4, 4, 4], [8, 9, 10, 7]]


def test_numbers_are_tokens_of_digits_only() -> None:
    """By their texts in the tokenizer's vocabulary."""
    assert find_numbers(NUMBERS, 5).tolist() == [0, 1, 1, 0, 0]
