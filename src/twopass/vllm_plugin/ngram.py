"""No n-gram twice within a window, for a whole batch at once: logits in, the same with repeats at minus infinity out.

vLLM's own processor builds every n-gram of every request in Python at every step. Here each request has a
row of two tensors on the model's device: its newest tokens, and for each distance d how many newest tokens
equal those d before them. A new token x lengthens the run at d where it equals the token d before it and
ends it elsewhere; where a run has n - 1 tokens, the token that followed then is banned now.

Where vLLM schedules ahead, a token that was just sampled lies on the device and its place in the request's
list is empty; asking for the list makes the whole step wait for a copy, a fifth of all tokens a second. A
greedy request's token is known here without asking: it is the largest of the logits that this processor
hands on. So its empty place is marked, vLLM finds nothing to fill in, and nobody waits. Whoever samples
with a temperature or under penalties pays for the wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

NONE = -1  # no token; in vLLM's lists, a place that is not filled in yet
OWN = -2  # the token that was largest here in the last step; in vLLM's lists, a place that needs no filling in
NEW = -3  # tokens seen of a request whose row holds somebody else's
GREEDY = 1e-5  # vLLM's own bound
NEVER = 1 << 30  # a run this long does not come about


@dataclass(frozen=True)
class Ban:
    """One request's n-gram, the window it may not repeat in, and the tokens that may."""

    ngram: int
    window: int
    allowed: tuple[int, ...]

    @property
    def reach(self) -> int:
        """The greatest distance at which a repeat still lies in the window."""
        return max(self.window - self.ngram + 1, 0)

    @property
    def need(self) -> int:
        """Tokens that must repeat before the next one is banned; the reference never bans with n = 1."""
        return self.ngram - 1 if self.ngram > 1 else NEVER

    @classmethod
    def of(cls, params: SamplingParams) -> Ban | None:
        """None where the request asks for none; raises ValueError."""
        asked = params.extra_args or {}
        if asked.get("ngram_size") is None:
            return None
        ban = cls(asked["ngram_size"], asked.get("window_size", 100), tuple(asked.get("whitelist_token_ids") or ()))
        if not (isinstance(ban.ngram, int) and ban.ngram > 0 and isinstance(ban.window, int) and ban.window > 0):
            raise ValueError("ngram_size and window_size have to be whole numbers above 0")
        return ban


@dataclass(eq=False)
class _Request:
    """`output` is vLLM's own list and grows by itself; `seen` says how much of it the row knows."""

    ban: Ban
    output: list[int]
    greedy: bool
    row: int = NONE
    seen: int = NEW


class NoRepeatNGram(LogitsProcessor):
    """Token for token what `vllm.model_executor.models.deepseek_ocr.NGramPerReqLogitsProcessor` does."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        rows = vllm_config.scheduler_config.max_num_seqs
        self._device, self._pin = device, is_pin_memory
        self._requests: dict[int, _Request] = {}
        self._newest = torch.full((rows, 0), NONE, device=device)  # [row, age]: age 0 is the newest token
        self._runs = torch.zeros((rows, 0), dtype=torch.int32, device=device)  # [row, distance - 1]
        self._own = torch.full((rows,), NONE, device=device)  # [row]: the largest logit of the last step
        self._batch: _Batch | None = None

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        Ban.of(sampling_params)

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if process_dict_updates(self._requests, batch_update, self._entered):
            self._batch = None
            self._seat()
        for request in self._requests.values():
            if request.greedy and request.output and request.output[-1] == NONE:
                request.output[-1] = OWN

    def _seat(self) -> None:
        """A row for everybody who has none; it still holds somebody else's tokens."""
        rows = {request.row for request in self._requests.values()}
        free = [row for row in range(self._newest.shape[0]) if row not in rows]
        for request in self._requests.values():
            if request.row == NONE:
                request.row = free.pop()

    def _entered(self, params: SamplingParams, prompt: list[int] | None, output: list[int]) -> _Request | None:
        ban = Ban.of(params)
        return _Request(ban, output, _is_greedy(params)) if ban else None

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if not self._requests:
            return logits
        batch = self._batch = self._batch or self._described()
        new = self._grown(batch)
        newest, runs = self._newest[batch.rows], self._runs[batch.rows]
        tokens, fresh = new[:, None], new[:, None] != NONE
        runs = torch.where(fresh, torch.where(newest == tokens, runs + 1, 0), runs)
        newest = torch.where(fresh, torch.cat((tokens, newest[:, :-1]), 1), newest)
        self._newest[batch.rows], self._runs[batch.rows] = newest, runs
        banned = (runs >= batch.need) & batch.within & ~(newest[:, :, None] == batch.allowed[:, None, :]).any(-1)
        # Adding nought or minus infinity wherever: `nonzero` would have to wait for the device.
        places = batch.indices * logits.shape[1] + newest.clamp(min=0)
        ends = torch.where(banned, float("-inf"), 0.0).to(logits.dtype)
        logits.view(-1).scatter_add_(0, places.flatten(), ends.flatten())
        self._own[batch.rows] = logits.argmax(-1)[batch.indices[:, 0]]
        return logits

    def _described(self) -> _Batch:
        """The batch as it stands until somebody enters or leaves, tensors wide enough for its widest window."""
        widest = max(request.ban.reach for request in self._requests.values())
        if (more := widest - self._newest.shape[1]) > 0:
            self._newest = torch.nn.functional.pad(self._newest, (0, more), value=NONE)
            self._runs = torch.nn.functional.pad(self._runs, (0, more))
        return _Batch.of(self._requests, self._newest.shape[1], self._device)

    def _grown(self, batch: _Batch) -> torch.Tensor:
        """Each request's token since the last step, NONE where there is none; rows that cannot follow are rebuilt."""
        own = self._own[batch.rows]
        new = [self._next(request) for request in batch.requests]
        if new.count(OWN) == len(new):
            return own
        told = torch.tensor(new, pin_memory=self._pin).to(self._device, non_blocking=True)
        return torch.where(told == OWN, own, told)

    def _next(self, request: _Request) -> int:
        length, seen = len(request.output), request.seen
        if length == seen:
            return NONE
        if length == seen + 1 and request.output[-1] != NONE:
            request.seen = length
            return request.output[-1]
        self._rebuild(request)
        return NONE

    def _rebuild(self, request: _Request) -> None:
        """A row from its whole list: at the start, and after vLLM took a request out and in again."""
        request.seen = len(request.output)
        if not request.output:
            self._newest[request.row].fill_(NONE)
            self._runs[request.row].fill_(0)
            return
        width = self._newest.shape[1]
        newest, runs = followed(request.output[-(width + request.ban.ngram) :], width)
        self._newest[request.row] = torch.tensor(newest, device=self._device)
        self._runs[request.row] = torch.tensor(runs, dtype=torch.int32, device=self._device)


@dataclass(frozen=True)
class _Batch:
    """What does not change while the same requests are in the batch; tensors on the device."""

    requests: tuple[_Request, ...]
    rows: torch.Tensor  # [request]
    indices: torch.Tensor  # [request, 1]: rows of the logits
    need: torch.Tensor  # [request, 1]
    within: torch.Tensor  # [request, distance - 1]
    allowed: torch.Tensor  # [request, tokens], filled up with -2

    @classmethod
    def of(cls, requests: dict[int, _Request], width: int, device: torch.device) -> _Batch:
        bans = [request.ban for request in requests.values()]
        most = max([1, *(len(ban.allowed) for ban in bans)])
        filled = [[*ban.allowed, *[NONE - 1] * (most - len(ban.allowed))] for ban in bans]
        reach = torch.tensor([[ban.reach] for ban in bans], device=device)
        return cls(
            tuple(requests.values()),
            torch.tensor([request.row for request in requests.values()], device=device),
            torch.tensor([[index] for index in requests], device=device),
            torch.tensor([[ban.need] for ban in bans], device=device),
            torch.arange(1, width + 1, device=device)[None] <= reach,
            torch.tensor(filled, device=device),
        )


def _is_greedy(params: SamplingParams) -> bool:
    """Whether the largest logit is the next token, whatever comes after this processor."""
    plain = params.repetition_penalty == 1.0 and not params.presence_penalty and not params.frequency_penalty
    return params.temperature < GREEDY and plain


def followed(tokens: Iterable[int], width: int) -> tuple[list[int], list[int]]:
    """The newest tokens and the runs after these, one token at a time: (newest, runs), each `width` long."""
    newest, runs = [NONE] * width, [0] * width
    for token in tokens:
        runs = [run + 1 if old == token else 0 for run, old in zip(runs, newest, strict=True)]
        newest = [token, *newest][:width]
    return newest, runs
