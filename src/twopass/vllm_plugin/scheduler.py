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
        self._waited = self._waited + 1 if is_worth_waiting(seats, taken, len(self.waiting), self._waited) else 0
        if self._waited:
            self.max_num_running_reqs = taken
        try:
            return super().schedule(*args, **kwargs)
        finally:
            self.max_num_running_reqs = seats


def is_worth_waiting(seats: int, taken: int, waiting: int, waited: int) -> bool:
    """Some seats are free, fewer than a group; prompts enough wait for them, and not for long."""
    return 0 < seats - taken < GROUP <= min(waiting, taken) and waited < PATIENCE
