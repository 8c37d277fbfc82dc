"""No n-gram twice within a window, for a whole batch at once: logits in, the same with repeats at minus infinity out.

vLLM's own processor builds every n-gram of every request in Python at every step. Here each request has a
row of two tensors on the model's device: its newest tokens, and for each distance d how many newest tokens
equal those d before them. A new token x lengthens the run at d where it equals the token d before it and
ends it elsewhere; where a run has n - 1 tokens, the token that followed then is banned now.

Where vLLM schedules ahead, a token that was just sampled lies on the device and its place in the request's
list is empty; asking for the list makes the whole step wait for a copy, a fifth of all tokens a second. A
greedy request's token is known here without asking: it is the largest of the logits that this processor
hands on. So its empty place is marked, vLLM finds nothing to fill in, and nobody waits. Whoever samples
with a temperature pays for the wait. Penalties read those lists too, and are refused.
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
NEW = -3  # a request whose row still holds somebody else's tokens
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
        self._free: dict[int, list[int]] = {}  # outputs of greedy requests without a ban: nobody waits for these
        self._greedy: list[list[int]] = []  # outputs of all greedy requests
        self._newest = torch.full((rows, 0), NONE, device=device)  # [row, age]: age 0 is the newest token
        self._runs = torch.zeros((rows, 0), dtype=torch.int32, device=device)  # [row, distance - 1]
        self._own = torch.full((rows,), NONE, device=device)  # [row]: the largest logit of the last step
        self._batch: _Batch | None = None

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        Ban.of(sampling_params)
        p = sampling_params
        if p.repetition_penalty != 1.0 or p.presence_penalty or p.frequency_penalty:
            raise ValueError("penalties cannot be had beside the n-gram ban")

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        process_dict_updates(self._free, batch_update, _entered_free)
        if process_dict_updates(self._requests, batch_update, _entered):
            self._batch = None
            self._seat()
        if batch_update:
            self._greedy = [*self._free.values(), *(r.output for r in self._requests.values() if r.greedy)]
        for output in self._greedy:
            if output and output[-1] == NONE:
                output[-1] = OWN

    def _seat(self) -> None:
        """A row for everybody who has none; it still holds somebody else's tokens."""
        rows = {request.row for request in self._requests.values()}
        free = [row for row in range(self._newest.shape[0]) if row not in rows]
        for request in self._requests.values():
            if request.row == NONE:
                request.row = free.pop()

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if not self._requests:
            return logits
        batch = self._batch = self._batch or self._described()
        told = self._grown(batch)
        step = _kernel() if self._device.type == "cuda" else stepped
        step(
            batch.rows, batch.indices, told, self._own, self._newest, self._runs,
            batch.need, batch.reach, batch.allowed, logits, NONE, OWN, NEW,
        )  # fmt: skip
        if batch.greedy:
            self._own[batch.rows] = logits.argmax(-1)[batch.indices]
        return logits

    def _described(self) -> _Batch:
        """The batch as it stands until somebody enters or leaves, tensors wide enough for its widest window."""
        widest = max(request.ban.reach for request in self._requests.values())
        if (more := widest - self._newest.shape[1]) > 0:
            self._newest = torch.nn.functional.pad(self._newest, (0, more), value=NONE)
            self._runs = torch.nn.functional.pad(self._runs, (0, more))
        return _Batch.of(self._requests, self._device, self._pin)

    def _grown(self, batch: _Batch) -> torch.Tensor:
        """Each request's token since the last step, NONE where there is none; rows that cannot follow are rebuilt."""
        new = [self._next(request) for request in batch.requests]
        if new.count(OWN) == len(new):
            return batch.all_own
        return torch.tensor(new, pin_memory=self._pin).to(self._device, non_blocking=True)

    def _next(self, request: _Request) -> int:
        length, seen = len(request.output), request.seen
        if length == seen:
            return NONE
        if length == 0:
            request.seen = 0
            return NEW
        if length == seen + 1 and request.output[-1] != NONE:
            request.seen = length
            return request.output[-1]
        self._rebuild(request)
        return NONE

    def _rebuild(self, request: _Request) -> None:
        """A row from its whole list, after vLLM took a request out and in again."""
        request.seen = len(request.output)
        width = self._newest.shape[1]
        newest, runs = followed(request.output[-(width + request.ban.ngram) :], width)
        self._newest[request.row] = torch.tensor(newest, device=self._device)
        self._runs[request.row] = torch.tensor(runs, dtype=torch.int32, device=self._device)


@dataclass(frozen=True)
class _Batch:
    """What does not change while the same requests are in the batch; tensors on the device, one entry a request."""

    requests: tuple[_Request, ...]
    greedy: bool  # whether anybody is
    rows: torch.Tensor
    indices: torch.Tensor  # rows of the logits
    need: torch.Tensor
    reach: torch.Tensor
    allowed: torch.Tensor  # [request, tokens], filled up with NEW, which is no token
    all_own: torch.Tensor

    @classmethod
    def of(cls, requests: dict[int, _Request], device: torch.device, pin: bool) -> _Batch:
        """In one copy: it is made whenever somebody enters or leaves, at every other step of a full engine."""
        bans = [request.ban for request in requests.values()]
        most = max([1, *(len(ban.allowed) for ban in bans)])
        facts = [
            [request.row for request in requests.values()],
            list(requests),
            [ban.need for ban in bans],
            [ban.reach for ban in bans],
            [OWN] * len(bans),
            *([ban.allowed[n] if n < len(ban.allowed) else NEW for ban in bans] for n in range(most)),
        ]
        rows, indices, need, reach, own, *allowed = torch.tensor(facts, pin_memory=pin).to(device, non_blocking=True)
        greedy = any(request.greedy for request in requests.values())
        return cls(tuple(requests.values()), greedy, rows, indices, need, reach, torch.stack(allowed, 1), own)


def stepped(
    rows: torch.Tensor, indices: torch.Tensor, told: torch.Tensor, own: torch.Tensor, newest: torch.Tensor,
    runs: torch.Tensor, need: torch.Tensor, reach: torch.Tensor, allowed: torch.Tensor, logits: torch.Tensor,
    none: int, ours: int, new: int,
) -> None:  # fmt: skip
    """In place: the newest token into its row, runs longer or ended, logits of what they ban to minus infinity."""
    token = torch.where(told == ours, own[rows], told)[:, None]
    old = torch.where(token == new, none, newest[rows])
    run = torch.where(token == new, 0, runs[rows])
    token = torch.where(token == new, none, token)
    run = torch.where(token == none, run, torch.where(old == token, run + 1, 0))
    old = torch.where(token == none, old, torch.cat((token, old[:, :-1]), 1))
    newest[rows], runs[rows] = old, run
    within = torch.arange(old.shape[1], device=old.device) < reach[:, None]
    banned = (run >= need[:, None]) & within & ~(old[:, :, None] == allowed[:, None]).any(-1)
    request, distance = banned.nonzero(as_tuple=True)
    logits[indices[request], old[request, distance]] = float("-inf")


def _entered(params: SamplingParams, prompt: list[int] | None, output: list[int]) -> _Request | None:
    ban = Ban.of(params)
    return _Request(ban, output, _is_greedy(params)) if ban else None


def _entered_free(params: SamplingParams, prompt: list[int] | None, output: list[int]) -> list[int] | None:
    return output if Ban.of(params) is None and _is_greedy(params) else None


def _kernel() -> Any:
    from twopass.engines.vllm.plugin import ngram_kernel  # needs a GPU's compiler

    return ngram_kernel.step


def _is_greedy(params: SamplingParams) -> bool:
    """Whether the largest logit is the next token."""
    return bool(params.temperature < GREEDY)


def followed(tokens: Iterable[int], width: int) -> tuple[list[int], list[int]]:
    """The newest tokens and the runs after these, one token at a time: (newest, runs), each `width` long."""
    newest, runs = [NONE] * width, [0] * width
    for token in tokens:
        runs = [run + 1 if old == token else 0 for run, old in zip(runs, newest, strict=True)]
        newest = [token, *newest][:width]
    return newest, runs
