"""A batch that changes as vLLM's runner changes it, with two n-gram processors side by side."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import NamedTuple

import torch
from vllm.model_executor.models.deepseek_ocr import NGramPerReqLogitsProcessor
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality

from twopass.engines.vllm.plugin.ngram_ban import NoRepeatNGram

VOCABULARY, ROWS = 6, 12  # few tokens: they repeat
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Request:
    """One request: the tokens it has, and the list vLLM shows to processors, where the newest may be missing."""

    def __init__(self, rng: random.Random) -> None:
        ngram = rng.choice((None, 1, 2, 3, 4, 5))
        ban = {
            "ngram_size": ngram,
            "window_size": rng.choice((1, 5, 20, 60)),
            "whitelist_token_ids": rng.choice(([], [2], [2, 3])),
        }
        self.params = SamplingParams(temperature=rng.choice((0.0, 0.2)), extra_args=ban if ngram else None)
        self.tokens = [rng.randrange(VOCABULARY) for _ in range(rng.choice((0, 0, 0, 40)))]  # 40: one that comes again
        self.shown = list(self.tokens)


class Batch:
    """A batch as vLLM's runner keeps it: requests in rows without gaps, lists that grow by themselves."""

    def __init__(self, rng: random.Random, ahead: bool) -> None:
        self.rng, self.ahead = rng, ahead
        self.requests: list[Request] = []
        config = SimpleNamespace(scheduler_config=SimpleNamespace(max_num_seqs=ROWS))
        self.ours = NoRepeatNGram(config, DEVICE, DEVICE.type == "cuda")
        self.theirs = NGramPerReqLogitsProcessor(config, DEVICE, False)
        self.waited = 0

    def step(self) -> int:
        """Some leave, some enter, some rows change places, most get a token. Returns how many logits are banned."""
        changes = self._changed()
        self.ours.update_state(self._update(changes, shown=True))
        self.theirs.update_state(self._update(changes, shown=False))
        self._fill_in()
        logits = torch.rand(len(self.requests), VOCABULARY, device=DEVICE)
        ours, theirs = self.ours.apply(logits.clone()), self.theirs.apply(logits.clone())
        assert torch.equal(ours, theirs)
        for row, request in enumerate(self.requests):
            if self.rng.random() < 0.9:  # a prompt that is still being read gets none
                self._sample(request, ours[row])
        return int((ours == float("-inf")).sum())

    def _sample(self, request: Request, logits: torch.Tensor) -> None:
        free = [token for token in range(VOCABULARY) if logits[token] != float("-inf")]
        token = int(logits.argmax()) if request.params.temperature == 0 else self.rng.choice(free or [0])
        request.tokens.append(token)
        request.shown.append(-1 if self.ahead else token)

    def _fill_in(self) -> None:
        """As vLLM does before processors run: whoever's newest token is missing gets it, after a wait."""
        for request in self.requests:
            if request.shown and request.shown[-1] == -1:
                request.shown[-1] = request.tokens[-1]
                self.waited += 1

    def _update(self, changes: Changes | None, shown: bool) -> BatchUpdate | None:
        if changes is None:
            return None
        added = [(row, r.params, [1, 2], r.shown if shown else r.tokens) for row, r in changes.added]
        return BatchUpdate(len(self.requests), changes.removed, added, changes.moved)

    def _changed(self) -> Changes | None:
        rng = self.rng
        free = sorted(row for row in range(len(self.requests)) if rng.random() < 0.03)
        added, moved = [], []
        while rng.random() < 0.3 and len(self.requests) - len(free) < ROWS:
            row, request = free.pop(0) if free else len(self.requests), Request(rng)
            self.requests[row : row + 1] = [request]
            added.append((row, request))
        removed = list(free)
        for row in sorted(removed, reverse=True):  # condensed: the last one takes a row that is empty
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
