"""Running text: sentences."""

from __future__ import annotations

import pytest

from twopass.text import prose


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        (
            "See Fig. 3 for Dr. Keller. It is 3.5 m long. Why?",
            ["See Fig. 3 for Dr. Keller.", "It is 3.5 m long.", "Why?"],
        ),
        ("水很清。“真的？”他问。", ["水很清。", "“真的？”", "他问。"]),
        ("물이 맑다. 정말이다.", ["물이 맑다.", "정말이다."]),
    ],
)
def test_text_is_split_at_the_ends_of_sentences(text: str, sentences: list[str]) -> None:
    """Abbreviations end no sentence, and Chinese sentences need no space between them."""
    assert prose.split_sentences(text) == sentences
