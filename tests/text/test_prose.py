"""Running text: sentences."""

from __future__ import annotations

import pytest

from tests.fakes.texts import ENGLISH, KOREAN
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


@pytest.mark.parametrize(
    ("text", "expected", "language"),
    [
        (KOREAN, "en", "ko"),
        (ENGLISH, "ko", "en"),
        (ENGLISH, "en-GB", "en-GB"),
        ("Das Wasser der Quelle ist nicht mit dem der anderen zu vergleichen.", "en", "de"),
        ("The Gesellschaft", "de", "de"),
        ("Summaries in other languages", "ko", None),
        ("水位", "ja", "ja"),
        ("12.5", "ko", "ko"),
        ("", None, None),
    ],
)
def test_the_language_of_a_part_is_changed_only_if_it_is_certain(
    text: str, expected: str, language: str | None
) -> None:
    """Other letters, or several function words of another language, show that a part is not in the expected one."""
    assert prose.detect_part_language(text, expected) == language
