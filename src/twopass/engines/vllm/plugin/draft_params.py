"""The text that an answer probably contains, as vLLM carries it with a request: tokens as bytes in `extra_args`.

Bytes, because vLLM inspects every number of a list.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

DRAFT = "draft"  # the key in extra_args
MAX_TOKENS = 4096  # of a text; the rest is left out
TOKEN_TYPE = "i"


def pack(tokens: Sequence[int]) -> bytes:
    return array(TOKEN_TYPE, tokens[:MAX_TOKENS]).tobytes()


def unpack(params: Any) -> array[int]:
    """The tokens that vLLM's SamplingParams carry; empty if they carry none."""
    return array(TOKEN_TYPE, (params.extra_args or {}).get(DRAFT, b""))


def has_drafts(params: Any) -> bool:
    """Whether they carry any. Every step asks this about every request, so nothing is unpacked."""
    return bool((params.extra_args or {}).get(DRAFT))
