"""vLLM's scheduler with one change: prompts enter a full engine several at a time.

A step that takes prompts in encodes their pictures and leaves the recorded path of decoding; with seats
becoming free one by one, every step would be such a step, for one picture each.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler

GROUP = 4  # prompts that enter together; four A4 pages fill the largest graph of the encoder
PATIENCE = 24  # steps that a free seat waits for others; a third of a second


class GroupScheduler(AsyncScheduler):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.max_num_running_reqs: int
        self._waited = 0

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        seats, taken = self.max_num_running_reqs, len(self.running)
        if self._is_worth_waiting(seats - taken):
            self._waited += 1
            self.max_num_running_reqs = taken
        else:
            self._waited = 0
        try:
            return super().schedule(*args, **kwargs)
        finally:
            self.max_num_running_reqs = seats

    def _is_worth_waiting(self, free: int) -> bool:
        """Some seats are free, fewer than a group, and prompts enough wait for them."""
        return 0 < free < GROUP <= min(len(self.waiting), len(self.running)) and self._waited < PATIENCE
