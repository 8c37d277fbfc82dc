"""Incremental decoding of an answer gives the same text as decoding all of it at once."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from twopass.engines.vllm.detokenize import REPLACEMENT, IncrementalDetokenizer


def decode_bytes(tokens: Sequence[int]) -> str:
    """The decoder of a tokenizer that has a token for every byte."""
    return bytes(tokens).decode(errors="replace")


def decode_incrementally(chunks: Sequence[Sequence[int]]) -> tuple[list[str], str]:
    detokenizer = IncrementalDetokenizer(decode_bytes)
    return [detokenizer.add(chunk) for chunk in chunks], detokenizer.finish()


def test_a_character_waits_for_all_of_its_bytes() -> None:
    """The text so far never ends in an incomplete character."""
    bee = "벌".encode()

    assert decode_incrementally([b"a", bee[:1], bee[1:2], bee[2:], b"b"]) == (["a", "a", "a", "a벌", "a벌b"], "a벌b")


def test_a_character_that_was_cut_off_is_left_out() -> None:
    """The last character of an answer is dropped if its bytes are incomplete; invalid bytes inside are kept."""
    text = f"a{REPLACEMENT}b"

    assert decode_incrementally([b"a\xff", b"b", "벌".encode()[:2]]) == (["", text, text], text)


@given(st.text(), st.lists(st.integers(0, 200)))
def test_chunks_make_no_difference_to_text(text: str, cuts: list[int]) -> None:
    """However the tokens are split, the final text is the same, and each step is a prefix of it."""
    tokens = text.encode()
    edges = [0, *sorted(cut for cut in cuts if cut < len(tokens)), len(tokens)]

    steps, end = decode_incrementally([tokens[a:b] for a, b in zip(edges, edges[1:], strict=False)])

    assert end == text.rstrip(REPLACEMENT)
    assert all(text.startswith(step) for step in steps)


@given(st.lists(st.binary(max_size=4)))
def test_arbitrary_bytes_are_decoded_completely(chunks: list[bytes]) -> None:
    """Nothing is lost, even if the bytes are not valid text."""
    assert decode_incrementally(chunks)[1] == decode_bytes(b"".join(chunks)).rstrip(REPLACEMENT)
