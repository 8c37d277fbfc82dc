"""Simulate how vLLM's runner changes a batch, and compare our n-gram processor with vLLM's own at every step."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import NamedTuple

import torch
from vllm.model_executor.models.deepseek_ocr import NGramPerReqLogitsProcessor
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality

from twopass.engines.vllm.plugin.ngram_v1 import NoRepeatNGram

VOCABULARY, ROWS = 6, 12  # few tokens, so that n-grams repeat
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Request:
    """One request: its tokens, in the list that vLLM passes to processors."""

    def __init__(self, rng: random.Random) -> None:
        ngram = rng.choice((None, 1, 2, 3, 4, 5))
        ban = {
            "ngram_size": ngram,
            "window_size": rng.choice((1, 5, 20, 60)),
            "whitelist_token_ids": rng.choice(([], [2], [2, 3])),
        }
        self.params = SamplingParams(temperature=rng.choice((0.0, 0.2)), extra_args=ban if ngram else None)
        self.tokens = [rng.randrange(VOCABULARY) for _ in range(rng.choice((0, 0, 0, 40)))]  # 40: a resumed one


class Batch:
    """A batch as vLLM's runner keeps it: requests in rows without gaps, token lists that are extended in place."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.requests: list[Request] = []
        config = SimpleNamespace(scheduler_config=SimpleNamespace(max_num_seqs=ROWS))
        self.ours = NoRepeatNGram(config, DEVICE, DEVICE.type == "cuda")
        self.theirs = NGramPerReqLogitsProcessor(config, DEVICE, False)

    def step(self) -> int:
        """Some requests leave or enter, some rows are swapped, most get a token. Return how many logits are banned."""
        changes = self.next_changes()
        update = self.build_update(changes)
        self.ours.update_state(update)
        self.theirs.update_state(update)
        logits = torch.rand(len(self.requests), VOCABULARY, device=DEVICE)
        ours, theirs = self.ours.apply(logits.clone()), self.theirs.apply(logits.clone())
        assert torch.equal(ours, theirs)
        for row, request in enumerate(self.requests):
            if self.rng.random() < 0.9:  # a request that is still in prefill gets none
                self._sample(request, ours[row])
        return int((ours == float("-inf")).sum())

    def _sample(self, request: Request, logits: torch.Tensor) -> None:
        free = [token for token in range(VOCABULARY) if logits[token] != float("-inf")]
        token = int(logits.argmax()) if request.params.temperature == 0 else self.rng.choice(free or [0])
        request.tokens.append(token)

    def build_update(self, changes: Changes | None) -> BatchUpdate | None:
        if changes is None:
            return None
        added = [(row, request.params, [1, 2], request.tokens) for row, request in changes.added]
        return BatchUpdate(len(self.requests), changes.removed, added, changes.moved)

    def next_changes(self) -> Changes | None:
        rng = self.rng
        free = sorted(row for row in range(len(self.requests)) if rng.random() < 0.03)
        added, moved = [], []
        while rng.random() < 0.3 and len(self.requests) - len(free) < ROWS:
            row, request = free.pop(0) if free else len(self.requests), Request(rng)
            self.requests[row : row + 1] = [request]
            added.append((row, request))
        removed = list(free)
        for row in sorted(removed, reverse=True):  # condense: the last request moves into the empty row
            last = len(self.requests) - 1
            if row != last:
                moved.append((last, row, MoveDirectionality.UNIDIRECTIONAL))
                self.requests[row] = self.requests[last]
            self.requests.pop()
        if len(self.requests) > 1 and rng.random() < 0.2:
            a, b = rng.sample(range(len(self.requests)), 2)
            moved.append((a, b, MoveDirectionality.SWAP))
            self.requests[a], self.requests[b] = self.requests[b], self.requests[a]
        return Changes(removed, added, moved) if removed or added or moved else None


class Changes(NamedTuple):
    removed: list[int]
    added: list[tuple[int, Request]]
    moved: list[tuple[int, int, MoveDirectionality]]
