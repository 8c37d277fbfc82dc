"""vLLM's scheduler with three changes that make a full engine faster.

1. Prompts enter a full engine several at a time. A step that prefills prompts encodes their images and cannot use the
   decoder's CUDA graphs; as answers end one by one, every step would be such a step, for one image each.
2. Tokens leave the core many at a time. vLLM sends every token on its own, and the receiver collects them until the
   stream interval is full. Here the core collects them: a message for 128 tokens costs both processes as much as a
   message for one.
3. A prompt that is being answered costs little at each step: no search for images, and rarely a block allocation.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler

# Prompts that enter together: four A4 pages fill the encoder's largest CUDA graph, and eight fill a step.
MIN_GROUP, MAX_GROUP = 4, 8
SEQUENCES_PER_PROMPT = 64  # of max_num_seqs, for each prompt of a group: one in so many may be idle for a moment
MAX_WAIT_STEPS = 24  # steps that a free sequence waits for others; a third of a second


class GroupScheduler(AsyncScheduler):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.max_num_running_reqs: int
        self._waited_steps = 0
        assert not self.num_spec_tokens, "speculative decoding yields several tokens a step, which is not supported"
        if allocator := SlotAllocator.for_manager(self.kv_cache_manager):
            self.kv_cache_manager.allocate_slots = allocator

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        capacity, running = self.max_num_running_reqs, len(self.running)
        is_waiting = should_wait(capacity, running, len(self.waiting), self._waited_steps)
        self._waited_steps = self._waited_steps + 1 if is_waiting else 0
        if self._waited_steps:
            self.max_num_running_reqs = running
        try:
            return super().schedule(*args, **kwargs)
        finally:
            self.max_num_running_reqs = capacity

    def _try_schedule_encoder_inputs(self, request: Any, computed: int, new: int, budget: int, **more: Any) -> Any:
        """Skip the search for images after the prompt: they are all inside it."""
        if computed >= request.num_prompt_tokens:
            return [], new, budget, []
        return super()._try_schedule_encoder_inputs(request, computed, new, budget, **more)

    def _update_request_with_output(self, request: Any, new_token_ids: list[int]) -> tuple[list[int], bool]:
        """Return the tokens to send now: none until the interval is full. With log-probabilities, send each at once."""
        tokens, stopped = super()._update_request_with_output(request, new_token_ids)
        if not tokens or request.sampling_params.num_logprobs is not None:
            return tokens, stopped
        total = request.num_output_tokens
        count = count_tokens_to_send(total, self.scheduler_config.stream_interval, stopped)
        return request.output_token_ids[total - count :] if count else [], stopped


class SlotAllocator:
    """Replaces `KVCacheManager.allocate_slots`: of sixteen tokens, fifteen fit into blocks allocated already."""

    def __init__(self, manager: Any, blocks: dict[str, list[Any]], block_size: int) -> None:
        self._allocate, self._nothing_new = manager.allocate_slots, manager.empty_kv_cache_blocks
        self._blocks, self._block_size = blocks, block_size

    @classmethod
    def for_manager(cls, manager: Any) -> SlotAllocator | None:
        """None if the manager does more than allocate: shared prefixes, several kinds of cache, sliding windows."""
        from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager

        managers = manager.coordinator.single_type_managers
        if manager.enable_caching or [type(single) for single in managers] != [FullAttentionManager]:
            return None
        return cls(manager, managers[0].req_to_blocks, managers[0].block_size)

    def __call__(self, request: Any, num_new_tokens: int, **more: Any) -> Any:
        free = len(self._blocks.get(request.request_id, ())) * self._block_size - request.num_computed_tokens
        return self._nothing_new if 0 < num_new_tokens <= free else self._allocate(request, num_new_tokens, **more)


def count_tokens_to_send(tokens: int, interval: int, is_finished: bool) -> int:
    """How many of an answer's tokens to send now: the first, which shows that it has begun, then an interval's.

    At its end the rest. Assumes one token a step.
    """
    sent = (tokens - 2) // interval * interval + 1 if tokens > 1 else 0
    return tokens - sent if is_finished or (tokens - 1) % interval == 0 else 0


def should_wait(capacity: int, running: int, waiting: int, waited_steps: int) -> bool:
    """Whether to admit no prompt yet: fewer free sequences than a group, enough prompts waiting, and not too long."""
    return 0 < capacity - running < group_size(capacity) <= min(waiting, running) and waited_steps < MAX_WAIT_STEPS


def group_size(capacity: int) -> int:
    """How many prompts enter a full engine together: of 512 sequences on an H200, two become free at a time."""
    return min(max(capacity // SEQUENCES_PER_PROMPT, MIN_GROUP), MAX_GROUP)
