"""Text in, about how many tokens a model of today makes of it out; no vocabulary, no network, the same everywhere.

Chunks must fit into models that nobody named, so one model's exact count would be no truth either, and vocabularies are
tens of megabytes. docs/log/ says how far this is from two of them.
"""

from __future__ import annotations

import math
import re

_PIECE = re.compile(
    r"(?P<word>[A-Za-z]+)|(?P<digits>[0-9]{1,3})|(?P<hangul>[\uac00-\ud7a3])|(?P<break>\s*\n\s*)|(?P<marks>[!-/:-@\[-`{-~]+)"
    r"|(?P<cjk>[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff])|(?P<other>\S)"
)
_EACH = {"digits": 1.0, "hangul": 1.3, "cjk": 1.2, "break": 0.7, "other": 1.3}
WHOLE = 6  # letters: most English words so long are one token
LONG = 12  # letters: longer ones are compounds, cut every four or so


def count(text: str) -> int:
    """An estimate, rather too high than too low for prose."""
    return math.ceil(sum(_weight(str(found.lastgroup), found.end() - found.start()) for found in _PIECE.finditer(text)))


def _weight(kind: str, length: int) -> float:
    if kind == "marks":
        return (1 + length) / 2
    if kind != "word":
        return _EACH[kind]
    if length > LONG:
        return length / 4
    return 1.0 if length <= WHOLE else 1 + (length - WHOLE) / 5
