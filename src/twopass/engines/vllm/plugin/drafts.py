"""A text that an answer probably contains: how a request carries it, and the tokens that it drafts.

`find_draft` is the definition of drafting: the GPU kernel (speculator.py) has to propose the same tokens. The cursor is
the only state, and the prompt is never searched. It runs in tests and in the draft replay, not in an engine.
"""

from __future__ import annotations

from array import array
from collections.abc import Container, Sequence
from typing import Any

DRAFT = "draft"  # the key in a request's extra_args; its value is bytes, because vLLM inspects every number of a list
MAX_TOKENS = 4096  # of a text; the rest is left out
TOKEN_TYPE = "i"

# Longer matches count as this long. Eight tokens tell the third coordinate of a box, `[[1, 2, 3`, from the fourth, so
# that after an unseen coordinate `,` or `]]` is drafted rightly.
MAX_MATCH = 8
MIN_MATCH = 2  # tokens that have to match in the text, where a single token occurs in too many places

# With at most so many requests in the engine, a step verifies all drafts of each: it takes hardly longer than with half
# of them (measured with 1 and 19), because the GPU reads the weights of all experts anyway. A fuller step takes longer
# with each draft.
FEW_ANSWERS = 64

_Match = tuple[int, bool, bool, int, int]  # length, in the text, not before the cursor, nearness, where it ends


def pack(tokens: Sequence[int]) -> bytes:
    return array(TOKEN_TYPE, tokens[:MAX_TOKENS]).tobytes()


def unpack(params: Any) -> array[int]:
    """The tokens that vLLM's SamplingParams carry; empty if they carry none."""
    return array(TOKEN_TYPE, (params.extra_args or {}).get(DRAFT, b""))


def has_drafts(params: Any) -> bool:
    """Whether they carry any. Every step asks this about every request, so nothing is unpacked."""
    return bool((params.extra_args or {}).get(DRAFT))


def choose_count(most: int, answers: int) -> int:
    """How many drafts of each answer a step verifies, of at most `most`."""
    return most if answers <= FEW_ANSWERS else (most + 1) // 2


def count_in_step(most: int, sequences: int) -> int:
    """The most drafts that a step verifies, of all answers of an engine with so many sequences."""
    return max(count * choose_count(most, count) for count in (min(sequences, FEW_ANSWERS), sequences))


def find_draft(
    text: Sequence[int], cursor: int, output: Sequence[int], fresh: int, count: int, numbers: Container[int]
) -> tuple[list[int], int]:
    """Up to `count` tokens that may follow `output`, and the new cursor.

    `text` is what the answer probably contains; the answer is expected to continue it with `text[cursor]`. `output` is
    the answer so far, whose last `fresh` tokens are newer than the previous call. `numbers` has the ids of tokens of
    digits only.

    The cursor moves over fresh tokens as far as they equal the text, and rests while the answer has tokens that the
    text lacks, such as grounding tags. Then what follows the longest match of the end of `output` is proposed:

    - A match in the text has at least `MIN_MATCH` tokens, one in `output` at least one.
    - In `output` any two numbers are equal: this drafts what stands between the coordinates of grounding tags.
    - Among equal lengths, the text comes before `output`. In the text, what is at or after the cursor comes first,
      then the nearest; in `output`, the newest.
    - A match in the text moves the cursor to what follows it. It has to be followed by at least one token.

    Without a match, the text is proposed from the cursor on, or from one token later if the last token of `output` is
    not the text's: it may be a different spelling of the token at the cursor.
    """
    kept = _count_equal(output[len(output) - fresh :], text[cursor:])
    cursor += kept
    matches = [*_match_text(text, cursor, output), *_match_output(output, numbers)]
    length, in_text, _, _, end = max(matches, default=(0, False, False, 0, 0))
    if in_text:
        return list(text[end : end + count]), end
    if length:
        return list(output[end : end + count]), cursor
    start = cursor + (kept < fresh)
    return list(text[start : start + count]), cursor


def _match_text(text: Sequence[int], cursor: int, output: Sequence[int]) -> list[_Match]:
    """The matches that at least one token of the text follows."""
    lengths = [(_count_matching(text, end, output, ()), end) for end in _list_ends(text, output, ())]
    return [(length, True, end >= cursor, -abs(end - cursor), end) for length, end in lengths if length >= MIN_MATCH]


def _match_output(output: Sequence[int], numbers: Container[int]) -> list[_Match]:
    lengths = [(_count_matching(output, end, output, numbers), end) for end in _list_ends(output, output, numbers)]
    return [(length, False, False, end, end) for length, end in lengths]


def _list_ends(tokens: Sequence[int], output: Sequence[int], numbers: Container[int]) -> list[int]:
    """The positions after a token that equals the last one of `output`, except the end of `tokens`."""
    if not output:
        return []
    last, is_number = output[-1], output[-1] in numbers
    ends = enumerate(tokens[:-1], 1)
    return [end for end, token in ends if token == last or (is_number and token in numbers)]


def _count_matching(tokens: Sequence[int], end: int, output: Sequence[int], numbers: Container[int]) -> int:
    """How many tokens before `end` equal the last ones of `output`, at most `MAX_MATCH`."""
    length = 0
    while length < min(MAX_MATCH, end, len(output)):
        one, other = tokens[end - 1 - length], output[-1 - length]
        if one != other and not (one in numbers and other in numbers):
            break
        length += 1
    return length


def _count_equal(one: Sequence[int], other: Sequence[int]) -> int:
    """The length of the common beginning."""
    length = min(len(one), len(other))
    return next((at for at in range(length) if one[at] != other[at]), length)
