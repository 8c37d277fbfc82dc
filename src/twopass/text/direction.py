"""Tell right-to-left from left-to-right text, and replace the presentation forms of Arabic letters."""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

_RTL_CLASSES = frozenset({"R", "AL"})  # Unicode's bidirectional classes of Hebrew and of Arabic letters
_RTL_WEIGHT = 2  # Hebrew and Arabic write few vowels, and Latin names among them are long
# Forms of letters in a word and ligatures of Arabic, the letters of Hebrew with points, and f-ligatures of Latin.
_FORMS = re.compile("[\ufb00-\ufb06\ufb1d-\ufb28\ufb2a-\ufb4f\ufb50-\ufdf9\ufe70-\ufefc]")


def is_rtl_letter(letter: str) -> bool:
    return unicodedata.bidirectional(letter) in _RTL_CLASSES


def has_rtl(text: str) -> bool:
    """Whether the text has any letter that is written from right to left."""
    return not text.isascii() and any(map(is_rtl_letter, text))


def is_rtl(text: str) -> bool:
    """Whether the text is mostly written from right to left, by its letters."""
    if text.isascii():
        return False
    classes = [unicodedata.bidirectional(letter) for letter in text]
    return _RTL_WEIGHT * sum(name in _RTL_CLASSES for name in classes) > classes.count("L")


def find_direction(text: str) -> Literal["ltr", "rtl"] | None:
    """The direction of most of the text; None if it has no letters."""
    if is_rtl(text):
        return "rtl"
    return "ltr" if any(unicodedata.bidirectional(letter) == "L" for letter in text) else None


def replace_forms(text: str) -> str:
    """Replace letters that a PDF gives in the form they have in a word by the letters themselves.

    Only letters are replaced: not the signs for whole phrases (U+FDFA and U+FDFB), and no other compatibility
    characters, such as superscripts, which mean something else than their NFKC form.
    """
    return text if text.isascii() else _FORMS.sub(_replace_form, text)


def _replace_form(found: re.Match[str]) -> str:
    # The isolated form of an Arabic vowel sign is a space and the sign in NFKC; the space would split the word.
    return unicodedata.normalize("NFKC", found[0]).replace(" ", "")
