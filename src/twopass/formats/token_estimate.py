"""Estimate how many tokens a text has for current models, without a vocabulary or network access.

Chunks must fit models that are not known here, so the exact count for one model would be an estimate too, and
vocabularies are tens of megabytes. docs/log/ compares the estimate with two vocabularies.
"""

from __future__ import annotations

import math
import re

_PIECE = re.compile(
    r"(?P<word>[A-Za-z]+)|(?P<digits>[0-9]{1,3})|(?P<hangul>[\uac00-\ud7a3])|(?P<space>\s+)|(?P<marks>[!-/:-@\[-`{-~]+)"
    r"|(?P<cjk>[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff])|(?P<other>\S)"
)
_WEIGHTS = {"digits": 1.0, "hangul": 1.3, "cjk": 1.2, "other": 1.3}
LINE_BREAK = 0.7
WHOLE_WORD = 6  # letters; most English words up to this length are one token
LONG_WORD = 12  # letters; longer words are compounds, about one token for every four letters


def count(text: str) -> int:
    """Estimate the number of tokens; for prose it is more often too high than too low."""
    return math.ceil(sum(_weight(str(found.lastgroup), found.group()) for found in _PIECE.finditer(text)))


def _weight(kind: str, piece: str) -> float:
    length = len(piece)
    if kind == "space":
        return LINE_BREAK if "\n" in piece else 0.0
    if kind == "marks":
        return (1 + length) / 2
    if kind != "word":
        return _WEIGHTS[kind]
    if length > LONG_WORD:
        return length / 4
    return 1.0 if length <= WHOLE_WORD else 1 + (length - WHOLE_WORD) / 5
