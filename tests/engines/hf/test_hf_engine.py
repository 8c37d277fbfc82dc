"""The parts of the hf engine that do not need Transformers; tests/vllm/test_hf.py tests the rest."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twopass.engines.hf.engine import HfEngine
from twopass.engines.hf.ngram_ban import find_banned_tokens
from twopass.errors import Code, EngineError


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed here")
def test_missing_libraries_are_an_error(tmp_path: Path) -> None:
    """Without torch the engine raises EngineError, which says what to install."""
    with pytest.raises(EngineError, match=r"engine hf needs torch: python -m pip install '\.\[hf\]'") as caught:
        HfEngine("deepseek_ocr2", tmp_path, "float32")

    assert caught.value.code is Code.PLATFORM


@pytest.mark.parametrize(
    ("tokens", "size", "window", "allowed", "banned"),
    [
        ([1, 2, 3, 1, 2], 3, 90, (), {3}),
        ([1, 2, 3, 1, 2, 4, 1, 2], 3, 90, (), {3, 4}),
        ([1, 2, 3, 1, 2], 3, 4, (), set()),  # the first n-gram has left the window
        ([1, 2, 3, 1, 2], 3, 90, (3,), set()),
        ([1, 2], 3, 90, (), set()),
        ([5, 5, 5], 2, 90, (), {5}),
        ([5, 5, 5], 1, 90, (), set()),
        ([], 3, 90, (), set()),
    ],
)
def test_tokens_that_would_repeat_an_ngram_are_banned(
    tokens: list[int], size: int, window: int, allowed: tuple[int, ...], banned: set[int]
) -> None:
    """The ban covers n-grams inside the window and leaves out the allowed tokens."""
    assert find_banned_tokens(tokens, size, window, allowed) == banned


@given(st.randoms(use_true_random=False), st.integers(2, 5), st.integers(4, 30))
def test_the_ban_prevents_every_repetition(rolls: random.Random, size: int, window: int) -> None:
    """In sixty random tokens that avoid the banned ones, no n-gram occurs twice within a window."""
    text = ""
    for _ in range(60):
        free = [token for token in range(6) if token not in find_banned_tokens([*map(int, text)], size, window)]
        text += str(rolls.choice(free)) if free else ""

    assert not [end for end in range(size, len(text)) if text[end - size + 1 : end + 1] in text[:end][-window:]]


@given(st.text("0123", max_size=40), st.integers(2, 6), st.integers(1, 30))
def test_only_repetitions_are_banned(text: str, size: int, window: int) -> None:
    """Every banned token would complete an n-gram that already occurs in the window."""
    banned = find_banned_tokens([*map(int, text)], size, window)

    assert all(f"{text}{token}"[-size:] in text[-window:] for token in banned)
