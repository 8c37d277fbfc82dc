"""An answer's text as it grows, against the whole of it turned into text at once."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from twopass.engines.vllm.detokenize import BROKEN, GrowingText


def letters(tokens: Sequence[int]) -> str:
    """A tokenizer with a token for every byte."""
    return bytes(tokens).decode(errors="replace")


def grown(chunks: Sequence[Sequence[int]]) -> tuple[list[str], str]:
    text = GrowingText(letters)
    return [text.add(chunk) for chunk in chunks], text.end()


def test_a_character_waits_for_all_of_its_bytes() -> None:
    bee = "벌".encode()

    assert grown([b"a", bee[:1], bee[1:2], bee[2:], b"b"]) == (["a", "a", "a", "a벌", "a벌b"], "a벌b")


def test_a_character_that_was_cut_off_is_left_out() -> None:
    assert grown([b"a\xff", b"b", "벌".encode()[:2]]) == (["", f"a{BROKEN}b", f"a{BROKEN}b"], f"a{BROKEN}b")


@given(st.text(), st.lists(st.integers(0, 200)))
def test_chunks_make_no_difference_to_text(text: str, cuts: list[int]) -> None:
    tokens = text.encode()
    edges = [0, *sorted(cut for cut in cuts if cut < len(tokens)), len(tokens)]

    steps, end = grown([tokens[a:b] for a, b in zip(edges, edges[1:], strict=False)])

    assert end == text.rstrip(BROKEN)
    assert all(text.startswith(step) for step in steps)


@given(st.lists(st.binary(max_size=4)))
def test_nothing_is_lost_of_any_bytes(chunks: list[bytes]) -> None:
    assert grown(chunks)[1] == letters(b"".join(chunks)).rstrip(BROKEN)
