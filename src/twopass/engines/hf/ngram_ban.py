"""Tokens said in, tokens that may not come next out: DeepSeek-OCR's ban on repeating itself.

The rule of the official code and of vLLM's NGramPerReqLogitsProcessor. Knows numbers and no model.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence


def banned(said: Sequence[int], size: int, window: int, allowed: Collection[int] = ()) -> set[int]:
    """Whatever would end an n-gram of this size that already stands in the last `window` tokens.

    `allowed` tokens are never banned: a table is the same cell over and over. A size of 1 bans nothing, as in
    vLLM, where the empty beginning of such an n-gram equals none.
    """
    if size < 2 or len(said) < size:
        return set()
    begun = tuple(said[-(size - 1) :])
    starts = range(max(0, len(said) - window), len(said) - size + 1)
    return {said[at + size - 1] for at in starts if tuple(said[at : at + size - 1]) == begun} - set(allowed)
