"""What of the hf engine needs no Transformers; the rest is tests_vllm/test_hf.py."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twopass.engines.hf.engine import HfEngine
from twopass.engines.hf.ngram_ban import banned
from twopass.errors import Code, EngineError


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is here")
def test_missing_libraries_are_told_with_what_to_install(tmp_path: Path) -> None:
    """Not an ImportError in a log."""
    with pytest.raises(EngineError, match=r"engine hf needs torch: pip install 'twopass\[hf\]'") as caught:
        HfEngine("deepseek_ocr2", tmp_path, "float32")

    assert caught.value.code is Code.ENGINE_DEAD


@pytest.mark.parametrize(
    ("said", "size", "window", "allowed", "never"),
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
def test_what_would_repeat_an_ngram_is_banned(
    said: list[int], size: int, window: int, allowed: tuple[int, ...], never: set[int]
) -> None:
    """Inside the window, over what was said, and never an allowed token."""
    assert banned(said, size, window, allowed) == never


@given(st.randoms(use_true_random=False), st.integers(2, 5), st.integers(4, 30))
def test_who_obeys_the_ban_does_not_repeat_himself(rolls: random.Random, size: int, window: int) -> None:
    """Sixty tokens, each any that is not banned: no n-gram stands twice within a window."""
    said = ""
    for _ in range(60):
        free = [token for token in range(6) if token not in banned([*map(int, said)], size, window)]
        said += str(rolls.choice(free)) if free else ""

    assert not [end for end in range(size, len(said)) if said[end - size + 1 : end + 1] in said[:end][-window:]]


@given(st.text("0123", max_size=40), st.integers(2, 6), st.integers(1, 30))
def test_nothing_but_a_repetition_is_banned(said: str, size: int, window: int) -> None:
    """Whatever is banned would end what stands in the window."""
    never = banned([*map(int, said)], size, window)

    assert all(f"{said}{token}"[-size:] in said[-window:] for token in never)
