"""vLLM's scheduler with three changes: prompts enter a full engine several at a time, tokens leave it many at a time,
and a prompt that is being answered costs little at each step.

A step that takes prompts in encodes their pictures and leaves the recorded path of decoding; with seats
becoming free one by one, every step would be such a step, for one picture each.

vLLM sends every token on its own and collects them where they arrive. Nobody there looks before the stream
interval is full, so the core keeps them until then: a message for 128 tokens costs both processes what a message
for one does.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler

# Prompts that enter together: four A4 pages fill the encoder's largest graph, and eight a step.
LEAST_GROUP, MOST_GROUP = 4, 8
SEATS = 64  # for each prompt of a group: one of so many may stand empty for a moment
PATIENCE = 24  # steps that a free seat waits for others; a third of a second


class GroupScheduler(AsyncScheduler):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.max_num_running_reqs: int
        self._waited = 0
        assert not self.num_spec_tokens, "drafting gives several tokens a step, and is not reckoned with here"
        if slots := _Slots.of(self.kv_cache_manager):
            self.kv_cache_manager.allocate_slots = slots

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        seats, taken = self.max_num_running_reqs, len(self.running)
        self._waited = self._waited + 1 if is_worth_waiting(seats, taken, len(self.waiting), self._waited) else 0
        if self._waited:
            self.max_num_running_reqs = taken
        try:
            return super().schedule(*args, **kwargs)
        finally:
            self.max_num_running_reqs = seats

    def _try_schedule_encoder_inputs(self, request: Any, computed: int, new: int, budget: int, **more: Any) -> Any:
        """Pictures lie in prompts: behind these there is nothing to encode."""
        if computed >= request.num_prompt_tokens:
            return [], new, budget, []
        return super()._try_schedule_encoder_inputs(request, computed, new, budget, **more)

    def _update_request_with_output(self, request: Any, new_token_ids: list[int]) -> tuple[list[int], bool]:
        """The tokens to tell of now: none between two looks. Those with log-probabilities go one by one."""
        told, stopped = super()._update_request_with_output(request, new_token_ids)
        if not told or request.sampling_params.num_logprobs is not None:
            return told, stopped
        tokens = request.num_output_tokens
        count = untold(tokens, self.scheduler_config.stream_interval, stopped)
        return request.output_token_ids[tokens - count :] if count else [], stopped


class _Slots:
    """In place of `KVCacheManager.allocate_slots`: fifteen tokens of sixteen lie in blocks that are there already."""

    def __init__(self, manager: Any, blocks: dict[str, list[Any]], size: int) -> None:
        self._allocate, self._none = manager.allocate_slots, manager.empty_kv_cache_blocks
        self._blocks, self._size = blocks, size

    @classmethod
    def of(cls, manager: Any) -> _Slots | None:
        """None where blocks are more than room: shared by prompts, of several kinds, or let go in a window."""
        from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager

        kinds = manager.coordinator.single_type_managers
        if manager.enable_caching or [type(kind) for kind in kinds] != [FullAttentionManager]:
            return None
        return cls(manager, kinds[0].req_to_blocks, kinds[0].block_size)

    def __call__(self, request: Any, num_new_tokens: int, **more: Any) -> Any:
        room = len(self._blocks.get(request.request_id, ())) * self._size - request.num_computed_tokens
        return self._none if 0 < num_new_tokens <= room else self._allocate(request, num_new_tokens, **more)


def untold(tokens: int, interval: int, ended: bool) -> int:
    """How many of an answer's tokens to tell of now: its first, which says that it is under way, then an interval's.

    At its end the rest. Counts on one token a step.
    """
    last = (tokens - 2) // interval * interval + 1 if tokens > 1 else 0
    return tokens - last if ended or (tokens - 1) % interval == 0 else 0


def is_worth_waiting(seats: int, taken: int, waiting: int, waited: int) -> bool:
    """Some seats are free, fewer than a group; prompts enough wait for them, and not for long."""
    return 0 < seats - taken < group(seats) <= min(waiting, taken) and waited < PATIENCE


def group(seats: int) -> int:
    """How many prompts enter a full engine together: of 512 in an H200, seats become free two at a time."""
    return min(max(seats // SEATS, LEAST_GROUP), MOST_GROUP)
