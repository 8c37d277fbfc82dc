"""vLLM's scheduler with two changes that make a full engine faster, and a third for speculative decoding.

1. Prompts enter a full engine several at a time. A step that prefills prompts encodes their images and is too large for
   the CUDA graphs; as answers end one by one, every step would be such a step, for one image each.
2. Tokens leave the core many at a time. vLLM sends every token on its own, and the receiver collects them until the
   stream interval is full. Here the core collects them: a message for 128 tokens costs both processes as much as a
   message for one.
3. Each request has its own number of drafts: none if nothing is known about its answer.
"""

from __future__ import annotations

from typing import Any

from twopass.engines.vllm.plugin import core_exit
from twopass.engines.vllm.plugin.decode_steps import DecodeScheduler
from twopass.engines.vllm.plugin.drafts import has_drafts

# Prompts that enter together: four A4 pages fill the encoder's largest CUDA graph, and eight fill a step.
MIN_GROUP, MAX_GROUP = 4, 8
SEQUENCES_PER_PROMPT = 64  # of max_num_seqs, for each prompt of a group: one in so many may be idle for a moment
MAX_WAIT_STEPS = 24  # steps that a free sequence waits for others; a third to half a second


class GroupScheduler(DecodeScheduler):
    """vLLM's scheduler, which schedules a step before the last one has ended, with these changes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        core_exit.end_with_parent()  # every core has a scheduler
        self._waited_steps = 0

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        capacity, running = self.max_num_active_reqs, len(self.running)
        is_waiting = should_wait(capacity, running, len(self.waiting), self._waited_steps)
        self._waited_steps = self._waited_steps + 1 if is_waiting else 0
        if self._waited_steps:
            self.max_num_active_reqs = running
        try:
            return super().schedule(*args, **kwargs)
        finally:
            self.max_num_active_reqs = capacity

    def can_draft(self, request: Any) -> bool:
        return has_drafts(request.sampling_params)

    def is_silent(self, request: Any, count: int) -> bool:
        interval, total = self.scheduler_config.stream_interval, request.num_output_tokens
        stays = total > 0 and (total - 1) // interval == (total + count - 1) // interval  # see count_sent
        return stays and request.sampling_params.num_logprobs is None

    def _update_request_with_output(
        self, request: Any, new_token_ids: list[int], is_stale: bool = False
    ) -> tuple[list[int], bool]:
        """The tokens to send now: none until the interval is full; with log-probabilities, each at once."""
        before = request.num_output_tokens
        tokens, stopped = super()._update_request_with_output(request, new_token_ids, is_stale)
        if not tokens or request.sampling_params.num_logprobs is not None:
            return tokens, stopped
        sent, total = count_sent(before, self.scheduler_config.stream_interval), request.num_output_tokens
        until = total if stopped else count_sent(total, self.scheduler_config.stream_interval)
        return request.output_token_ids[sent:until], stopped


def count_sent(tokens: int, interval: int) -> int:
    """How many tokens of an unfinished answer have been sent: the first, which shows that it has begun, then intervals.

    Depends only on how many it has, whether a step yielded one of them or several.
    """
    return (tokens - 1) // interval * interval + 1 if tokens else 0


def should_wait(capacity: int, running: int, waiting: int, waited_steps: int) -> bool:
    """Whether to admit no prompt yet: fewer free sequences than a group, enough prompts waiting, and not too long."""
    return 0 < capacity - running < group_size(capacity) <= min(waiting, running) and waited_steps < MAX_WAIT_STEPS


def group_size(capacity: int) -> int:
    """How many prompts enter a full engine together: of 512 sequences on an H200, two become free at a time."""
    return min(max(capacity // SEQUENCES_PER_PROMPT, MIN_GROUP), MAX_GROUP)
