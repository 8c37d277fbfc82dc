"""Ban repeated n-grams within a window: set the logits of tokens that would complete a repeat to minus infinity.

`ban_repeats` is the definition. It keeps no state between steps: a token at distance d before the next one is banned if
the newest n - 1 tokens equal those d positions earlier. vLLM has two model runners with different interfaces, and each
has an adapter: ngram_v1.py on CPUs, where the definition itself runs, and ngram_v2.py on GPUs, where ngram_kernel.py
computes the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

NO_TOKEN = -1  # where a row has no token: before its first one, or a draft that is only a placeholder


@dataclass(frozen=True)
class Ban:
    """One request's n-gram size, the window in which n-grams may not repeat, and the tokens that may."""

    ngram: int
    window: int
    allowed: tuple[int, ...]

    @property
    def context(self) -> int:
        """Newest tokens that must repeat before the next one is banned."""
        return self.ngram - 1

    @property
    def reach(self) -> int:
        """The greatest distance at which a repeat is within the window; 0 bans nothing, as the reference with n = 1."""
        return max(self.window - self.ngram + 1, 0) if self.ngram > 1 else 0

    @classmethod
    def from_params(cls, params: Any) -> Ban | None:
        """None if the request asks for no ban; raises ValueError. `params` are vLLM's SamplingParams."""
        extra = params.extra_args or {}
        if extra.get("ngram_size") is None:
            return None
        ban = cls(extra["ngram_size"], extra.get("window_size", 100), tuple(extra.get("whitelist_token_ids") or ()))
        if not (isinstance(ban.ngram, int) and ban.ngram > 0 and isinstance(ban.window, int) and ban.window > 0):
            raise ValueError("ngram_size and window_size have to be whole numbers above 0")
        return ban


def ban_repeats(
    logits: torch.Tensor, newest: torch.Tensor, context: torch.Tensor, reach: torch.Tensor, allowed: torch.Tensor
) -> None:
    """Set the logits of each row's banned tokens to minus infinity, in place.

    `newest` is rows × ages: each row's tokens, the newest first, padded with NO_TOKEN to at least the largest context
    and the largest reach together. `context` and `reach` have an entry for each row, and `allowed` is rows × tokens,
    padded with NO_TOKEN.
    """
    width = int(reach.max()) if len(reach) else 0
    if not width:
        return
    banned = newest[:, :width]
    repeats = (torch.arange(width, device=newest.device) < reach[:, None]) & (banned != NO_TOKEN)
    for age in range(int(context.max())):
        token = newest[:, age, None]
        same = (token == newest[:, age + 1 : age + 1 + width]) & (token != NO_TOKEN)
        repeats &= same | (age >= context[:, None])
    repeats &= ~(banned[:, :, None] == allowed[:, None]).any(-1)
    row, distance = repeats.nonzero(as_tuple=True)
    logits[row, banned[row, distance]] = float("-inf")
