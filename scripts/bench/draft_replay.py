"""Replay an answer as the engine would decode it with drafts, and count the steps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from twopass.engines.vllm.plugin.drafts import MAX_TOKENS, find_draft

KINDS = ("tag", "table", "text", "formula")

_SPECIAL = re.compile(r"(<\|/?(?:ref|det)\|>|</?td>)")  # tokens of their own in DeepSeek-OCR's vocabulary
# As its tokenizer splits text before it merges bytes.
_PIECES = re.compile(r" ?[^\W\d_]+|\d{1,3}| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+|.", re.DOTALL)
_WORD_PART = 5  # characters; fitted to the token counts of recorded answers
_WHOLE_WORD = 9  # longer words are split into parts

_SECTIONS = re.compile(
    r"(?P<tag><\|ref\|>.*?<\|/ref\|><\|det\|>.*?<\|/det\|>\n?)|(?P<table><table>.*?</table>)|(?P<formula>\\\[.*?\\\])",
    re.DOTALL,
)


def split_tokens(text: str) -> list[str]:
    """Split a text about as finely as DeepSeek-OCR's tokenizer does."""
    parts = [[part] if _SPECIAL.match(part) else _PIECES.findall(part) for part in _SPECIAL.split(text)]
    return [token for pieces in parts for piece in pieces for token in _split_word(piece)]


def _split_word(piece: str) -> list[str]:
    word = piece.lstrip(" ")
    if not word.isalpha() or len(word) <= _WHOLE_WORD:
        return [piece]
    first = len(piece) - len(word) + _WORD_PART
    return [piece[:first], *(piece[at : at + _WORD_PART] for at in range(first, len(piece), _WORD_PART))]


def split_kinds(answer: str) -> list[tuple[str, str]]:
    """The tokens of an answer, each with its kind."""
    pairs = []
    end = 0
    for match in _SECTIONS.finditer(answer):
        pairs += [("text", token) for token in split_tokens(answer[end : match.start()])]
        pairs += [(str(match.lastgroup), token) for token in split_tokens(match[0])]
        end = match.end()
    return pairs + [("text", token) for token in split_tokens(answer[end:])]


def replay(answer: Sequence[tuple[str, str]], draft: str, count: int) -> Counter[str]:
    """The decoder steps for an answer with `count` drafts a step, by the kind of each step's first token.

    The first token comes from the prompt's own step and is not counted.
    """
    ids: dict[str, int] = {}
    tokens = [ids.setdefault(token, len(ids)) for _, token in answer]
    buffer = [ids.setdefault(token, len(ids)) for token in split_tokens(draft)][:MAX_TOKENS]
    numbers = {number for token, number in ids.items() if token.isdigit()}
    steps: Counter[str] = Counter()
    done, fresh, cursor = 1, 1, 0
    while done < len(tokens):
        proposed, cursor = find_draft(buffer, cursor, tokens[:done], fresh, count, numbers)
        right = [ours == theirs for ours, theirs in zip(proposed, tokens[done:], strict=False)]
        fresh = min((*right, False).index(False) + 1, len(tokens) - done)
        steps[answer[done][0]] += 1
        done += fresh
    return steps
