"""Ban repeated n-grams within a window, for a whole batch at once: set the logits of repeats to minus infinity.

vLLM's own processor builds every n-gram of every request in Python at every step. Here each request has a row of two
tensors on the model's device: its newest tokens, and for each distance d its run, the number of newest tokens that
equal those d positions earlier. A new token extends the run at d if it equals the token d positions earlier, and ends
it otherwise. When a run has n - 1 tokens, the token that followed them then is banned now.

When vLLM schedules ahead, the token just sampled is on the device and its entry in the request's token list is a
placeholder; reading the list would make the whole step wait for a copy, which costs a fifth of the throughput. A
greedy request's token is known here without reading: it is the argmax of the logits that this processor returned. So
the placeholder is overwritten with a mark, vLLM finds nothing to fill in, and does not wait. Requests with a
temperature do cause the wait. Penalties read those lists too, and are refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

from twopass.engines.vllm.plugin import compatibility

NO_TOKEN = -1  # in vLLM's token lists, a placeholder that vLLM has still to fill in
LAST_ARGMAX = -2  # the argmax of the last step's logits; in vLLM's token lists, an entry that it must not fill in
NEW_REQUEST = -3  # a request whose row still holds an earlier request's tokens
GREEDY_TEMPERATURE = 1e-5  # vLLM's own bound
UNREACHABLE = 1 << 30  # longer than any run


@dataclass(frozen=True)
class Ban:
    """One request's n-gram size, the window in which n-grams may not repeat, and the tokens that may."""

    ngram: int
    window: int
    allowed: tuple[int, ...]

    @property
    def max_distance(self) -> int:
        """The greatest distance at which a repeat is still within the window."""
        return max(self.window - self.ngram + 1, 0)

    @property
    def min_run(self) -> int:
        """Tokens that must repeat before the next one is banned; the reference never bans with n = 1."""
        return self.ngram - 1 if self.ngram > 1 else UNREACHABLE

    @classmethod
    def from_params(cls, params: SamplingParams) -> Ban | None:
        """None if the request asks for no ban; raises ValueError."""
        extra = params.extra_args or {}
        if extra.get("ngram_size") is None:
            return None
        ban = cls(extra["ngram_size"], extra.get("window_size", 100), tuple(extra.get("whitelist_token_ids") or ()))
        if not (isinstance(ban.ngram, int) and ban.ngram > 0 and isinstance(ban.window, int) and ban.window > 0):
            raise ValueError("ngram_size and window_size have to be whole numbers above 0")
        return ban


@dataclass(eq=False)
class _Request:
    """`output` is vLLM's own list, which vLLM extends; `processed` is how many of its tokens the row includes."""

    ban: Ban
    output: list[int]
    greedy: bool
    row: int = NO_TOKEN
    processed: int = NEW_REQUEST


class NoRepeatNGram(LogitsProcessor):
    """Bans exactly the tokens that `vllm.model_executor.models.deepseek_ocr.NGramPerReqLogitsProcessor` bans."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        compatibility.require_tested()  # with another placeholder for tokens, the ban would be off without an error
        rows = vllm_config.scheduler_config.max_num_seqs
        self._device, self._pin = device, is_pin_memory
        self._requests: dict[int, _Request] = {}
        self._unbanned_greedy: dict[int, list[int]] = {}  # outputs of greedy requests without a ban: marked as well
        self._greedy_outputs: list[list[int]] = []  # of all greedy requests
        self._newest = torch.full((rows, 0), NO_TOKEN, device=device)  # [row, age]: age 0 is the newest token
        self._runs = torch.zeros((rows, 0), dtype=torch.int32, device=device)  # [row, distance - 1]
        self._argmax = torch.full((rows,), NO_TOKEN, device=device)  # [row]: of the last step's logits
        self._batch: _Batch | None = None

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        Ban.from_params(sampling_params)
        p = sampling_params
        if p.repetition_penalty != 1.0 or p.presence_penalty or p.frequency_penalty:
            raise ValueError("penalties cannot be combined with the n-gram ban")

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        process_dict_updates(self._unbanned_greedy, batch_update, _get_unbanned_output)
        if process_dict_updates(self._requests, batch_update, _create_request):
            self._batch = None
            self._assign_rows()
        if batch_update:
            banned = (request.output for request in self._requests.values() if request.greedy)
            self._greedy_outputs = [*self._unbanned_greedy.values(), *banned]
        for output in self._greedy_outputs:
            if output and output[-1] == NO_TOKEN:
                output[-1] = LAST_ARGMAX

    def _assign_rows(self) -> None:
        """Give a row to each request that has none; the row still holds an earlier request's tokens."""
        rows = {request.row for request in self._requests.values()}
        free = [row for row in range(self._newest.shape[0]) if row not in rows]
        for request in self._requests.values():
            if request.row == NO_TOKEN:
                request.row = free.pop()

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if not self._requests:
            return logits
        batch = self._batch = self._batch or self._build_batch()
        new_tokens = self._collect_new_tokens(batch)
        step = _load_kernel() if self._device.type == "cuda" else step_with_torch
        step(
            batch.rows, batch.indices, new_tokens, self._argmax, self._newest, self._runs,
            batch.min_run, batch.max_distance, batch.allowed, logits, NO_TOKEN, LAST_ARGMAX, NEW_REQUEST,
        )  # fmt: skip
        if batch.greedy:
            self._argmax[batch.rows] = logits.argmax(-1)[batch.indices]
        return logits

    def _build_batch(self) -> _Batch:
        """Describe the batch until a request enters or leaves; widens the tensors to the widest window."""
        widest = max(request.ban.max_distance for request in self._requests.values())
        if (more := widest - self._newest.shape[1]) > 0:
            self._newest = torch.nn.functional.pad(self._newest, (0, more), value=NO_TOKEN)
            self._runs = torch.nn.functional.pad(self._runs, (0, more))
        return _Batch.of(self._requests, self._device, self._pin)

    def _collect_new_tokens(self, batch: _Batch) -> torch.Tensor:
        """Each request's token since the last step, NO_TOKEN if none; rebuilds rows that cannot be extended by one."""
        new = [self._next_token(request) for request in batch.requests]
        if new.count(LAST_ARGMAX) == len(new):
            return batch.all_last_argmax
        return torch.tensor(new, pin_memory=self._pin).to(self._device, non_blocking=True)

    def _next_token(self, request: _Request) -> int:
        length, processed = len(request.output), request.processed
        if length == processed:
            return NO_TOKEN
        if length == 0:
            request.processed = 0
            return NEW_REQUEST
        if length == processed + 1 and request.output[-1] != NO_TOKEN:
            request.processed = length
            return request.output[-1]
        self._rebuild_row(request)
        return NO_TOKEN

    def _rebuild_row(self, request: _Request) -> None:
        """Compute a row from the whole list, after vLLM preempted and resumed a request."""
        request.processed = len(request.output)
        width = self._newest.shape[1]
        newest, runs = replay_tokens(request.output[-(width + request.ban.ngram) :], width)
        self._newest[request.row] = torch.tensor(newest, device=self._device)
        self._runs[request.row] = torch.tensor(runs, dtype=torch.int32, device=self._device)


@dataclass(frozen=True)
class _Batch:
    """What stays the same while the batch has the same requests; tensors on the device, one entry for each request."""

    requests: tuple[_Request, ...]
    greedy: bool  # whether any request is
    rows: torch.Tensor
    indices: torch.Tensor  # rows of the logits
    min_run: torch.Tensor
    max_distance: torch.Tensor
    allowed: torch.Tensor  # [request, tokens], padded with NEW_REQUEST, which is no token
    all_last_argmax: torch.Tensor

    @classmethod
    def of(cls, requests: dict[int, _Request], device: torch.device, pin: bool) -> _Batch:
        """Built with a single copy, because requests enter or leave at every other step of a full engine."""
        bans = [request.ban for request in requests.values()]
        most = max([1, *(len(ban.allowed) for ban in bans)])
        columns = [
            [request.row for request in requests.values()],
            list(requests),
            [ban.min_run for ban in bans],
            [ban.max_distance for ban in bans],
            [LAST_ARGMAX] * len(bans),
            *([ban.allowed[n] if n < len(ban.allowed) else NEW_REQUEST for ban in bans] for n in range(most)),
        ]
        on_device = torch.tensor(columns, pin_memory=pin).to(device, non_blocking=True)
        rows, indices, min_run, max_distance, last_argmax, *allowed = on_device
        greedy = any(request.greedy for request in requests.values())
        return cls(
            tuple(requests.values()), greedy, rows, indices, min_run, max_distance, torch.stack(allowed, 1), last_argmax
        )


def step_with_torch(
    rows: torch.Tensor, indices: torch.Tensor, new_tokens: torch.Tensor, argmax: torch.Tensor, newest: torch.Tensor,
    runs: torch.Tensor, min_run: torch.Tensor, max_distance: torch.Tensor, allowed: torch.Tensor, logits: torch.Tensor,
    no_token: int, last_argmax: int, new_request: int,
) -> None:  # fmt: skip
    """Update `newest` and `runs` in place with the new tokens, and set the logits of banned ones to minus infinity."""
    token = torch.where(new_tokens == last_argmax, argmax[rows], new_tokens)[:, None]
    old = torch.where(token == new_request, no_token, newest[rows])
    run = torch.where(token == new_request, 0, runs[rows])
    token = torch.where(token == new_request, no_token, token)
    run = torch.where(token == no_token, run, torch.where(old == token, run + 1, 0))
    old = torch.where(token == no_token, old, torch.cat((token, old[:, :-1]), 1))
    newest[rows], runs[rows] = old, run
    within = torch.arange(old.shape[1], device=old.device) < max_distance[:, None]
    banned = (run >= min_run[:, None]) & within & ~(old[:, :, None] == allowed[:, None]).any(-1)
    request, distance = banned.nonzero(as_tuple=True)
    logits[indices[request], old[request, distance]] = float("-inf")


def _create_request(params: SamplingParams, prompt: list[int] | None, output: list[int]) -> _Request | None:
    ban = Ban.from_params(params)
    return _Request(ban, output, _is_greedy(params)) if ban else None


def _get_unbanned_output(params: SamplingParams, prompt: list[int] | None, output: list[int]) -> list[int] | None:
    return output if Ban.from_params(params) is None and _is_greedy(params) else None


def _load_kernel() -> Any:
    from twopass.engines.vllm.plugin import ngram_kernel  # here, because Triton is needed only on a GPU

    return ngram_kernel.step


def _is_greedy(params: SamplingParams) -> bool:
    """Whether the next token is the argmax of the logits."""
    return bool(params.temperature < GREEDY_TEMPERATURE)


def replay_tokens(tokens: Iterable[int], width: int) -> tuple[list[int], list[int]]:
    """A row's state after these tokens, computed one at a time: (newest, runs), each `width` long."""
    newest, runs = [NO_TOKEN] * width, [0] * width
    for token in tokens:
        runs = [run + 1 if old == token else 0 for run, old in zip(runs, newest, strict=True)]
        newest = [token, *newest][:width]
    return newest, runs
