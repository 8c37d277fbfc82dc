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
    ("text", "expected", "other"),
    [
        (KOREAN, "en", "ko"),
        (ENGLISH, "ko", "en"),
        (ENGLISH, "en", None),
        (ENGLISH, "en-GB", None),
        (
            "Das Wasser der Quelle ist nicht mit dem der anderen zu vergleichen, und für den Ort ist das gut.",
            "en",
            "de",
        ),
        ("The Gesellschaft für Wasser", "de", None),
        ("水位", "ja", None),
        ("12.5", "ko", None),
    ],
)
def test_another_language_is_named_only_if_it_is_certain(text: str, expected: str, other: str | None) -> None:
    """Other letters, or several function words of another language, show that a text is not in the expected one."""
    assert prose.detect_other_language(text, expected) == other
