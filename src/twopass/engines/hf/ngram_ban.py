"""Find the tokens that DeepSeek-OCR's n-gram ban excludes next.

The rule is that of the official code and of vLLM's NGramPerReqLogitsProcessor.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence


def find_banned_tokens(tokens: Sequence[int], size: int, window: int, allowed: Collection[int] = ()) -> set[int]:
    """The tokens that would repeat an n-gram of `size` tokens within the last `window` tokens.

    `allowed` tokens are never banned, because the cells of a table repeat. A size of 1 bans nothing, as in vLLM, where
    the empty prefix of such an n-gram matches nothing.
    """
    if size < 2 or len(tokens) < size:
        return set()
    prefix = tuple(tokens[-(size - 1) :])
    starts = range(max(0, len(tokens) - window), len(tokens) - size + 1)
    return {tokens[at + size - 1] for at in starts if tuple(tokens[at : at + size - 1]) == prefix} - set(allowed)
