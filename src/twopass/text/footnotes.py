"""Find the mark that a footnote begins with, and the place in a text that refers to it.

A reference is a raised mark, or a number that is directly attached to a word. Names that end in a number, such as DB2
or CO2, are no references. What is uncertain is none: the note then stays a paragraph of its own.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from twopass.text import prose, superscripts

_NOTE_MARK = re.compile(
    r"\s*(?:\[\^?(\d{1,3})\]:?|<sup>\s*(\w{1,3}|[*†‡§]+)\s*</sup>|\\\(\s*\^\s*\{?\s*(\w{1,3}|[*†‡§]+)\s*\}?\s*\\\)"
    r"|([⁰¹²³⁴-⁹]{1,3})|(\d{1,3})(?:[.)]?\s+|(?=[^\W\d_]))|([*†‡§]{1,3}))\s*(?=\S)"
)
_BASE = re.compile(r"(?:(?<!\w)10|(?<![^\W\d_])[^\W\d_]++)\Z")
_WORD_BEFORE = re.compile(r"([^\W\d_]+)(\W?)$")
_ATTACHED = re.compile(r"(?<![^\W\d_])([^\W\d_]++)([.,;:)\]\"”]{0,2})((?:\d{1,3},)*\d{1,3})(?!\w)")
_WORD, _NUMBERED_WORD = re.compile(r"\w+"), re.compile(r"(?<!\w)\w++(?:,\d{1,3})+(?!\w)")
_LONGEST_WORD = 60  # characters that are searched for the word before a number
_LETTER = re.compile(r"[^\W\d_]")
_NUMBERED_WORDS = (
    "table tables tab figure figures fig figs section sections sec sect chapter chapters chap ch appendix annex "
    "equation eq eqs step steps phase part level type class group grade version vol no nos page pages p pp art article "
    "line item note footnote ref refs tabelle abb abschnitt kapitel abbildung"
)
_NUMBERED = frozenset(_NUMBERED_WORDS.split())  # words that a number follows, with or without a space
_UNITS = frozenset({"mm", "cm", "dm", "km", "ft", "in", "yd", "mi", "log", "sec", "ms", "kg", "mol"})  # squared, cubed


def parse_note(text: str) -> tuple[str, str] | None:
    """The mark and the text of a footnote; None if it begins with no mark."""
    match = _NOTE_MARK.match(text)
    if not match:
        return None
    mark = next(group for group in match.groups() if group)
    return unicodedata.normalize("NFKC", mark), text[match.end() :].strip()


def is_note(text: str) -> bool:
    """Whether the text is a mark followed by words."""
    note = parse_note(text)
    return note is not None and bool(_LETTER.search(note[1]))


def find_reference(text: str, mark: str, others: Sequence[str] = ()) -> tuple[int, int] | None:
    """The span [start, end) in which a text refers to the footnote with this mark; None if it does not.

    `others` are the other texts of the page: a word with its number that occurs again is a name, not a reference.
    """
    escaped = re.escape(mark)
    forms = [rf"\[\^{escaped}\]", rf"<sup>\s*{escaped}\s*</sup>", rf"\\\(\s*\^\s*\{{?\s*{escaped}\s*\}}?\s*\\\)"]
    if mark.isdigit():
        forms.append(f"(?<![⁰¹²³⁴-⁹]){superscripts.to_unicode(mark, '^')}(?![⁰¹²³⁴-⁹])")
    elif mark in "*†‡§":
        forms.append(rf"(?<=\S){escaped}(?!{escaped})")
    for form in forms:
        for match in re.finditer(form, text):
            if not _is_exponent(text, match, mark):
                return match.span()
    return next(_find_attached(text, mark, others), None) if mark.isdigit() else None


def _is_exponent(text: str, found: re.Match[str], mark: str) -> bool:
    """Whether a raised number belongs to what stands before it: as in 10⁶, x² and km²."""
    base = _BASE.search(text, max(found.start() - _LONGEST_WORD, 0), found.start())
    if not base or not mark.isdigit() or found.group().startswith("["):
        return False
    return base[0] == "10" or (mark in ("2", "3") and (len(base[0]) == 1 or base[0].casefold() in _UNITS))


def may_refer(text: str, mark: str, others: Sequence[str]) -> bool:
    """Whether a text may refer to the footnote with this number, also where `find_reference` is not certain."""
    counts = _count_words((text, *others))
    for word, punctuation, numbers in _ATTACHED.findall(text):
        if mark in numbers.split(",") and (punctuation or counts[word + numbers] == 1):
            return True
    return find_reference(text, mark, others) is not None


def _find_attached(text: str, mark: str, others: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield where the number follows a word, or the punctuation after a word, without a space."""
    counts = _count_words((text, *others))
    for form in (rf"(?<=[^\W\d_]{{2}}){mark}(?!\w)", rf"(?<=[^\W\d_][.,;:]){mark}(?![\w.,]\d|\w)"):
        for match in re.finditer(form, text):
            word = _WORD_BEFORE.search(text, max(match.start() - _LONGEST_WORD, 0), match.start())
            if word and not _is_name(word.group(1), word.group(2), mark, counts):
                yield match.span()


def _is_name(word: str, punctuation: str, mark: str, counts: Mapping[str, int]) -> bool:
    """Whether the number belongs to the word: as in `DB2`, `Fig.2` and `km2`."""
    folded = word.casefold()
    if punctuation:
        return punctuation == "." and (folded in _NUMBERED or prose.is_abbreviation(folded))
    if folded in _NUMBERED or (mark in ("2", "3") and folded in _UNITS):
        return True
    if counts[word + mark] > 1:
        return True
    return word[-1].isupper() and counts[word] == 0  # an acronym that is used without the number is a word


def _count_words(texts: Sequence[str]) -> Counter[str]:
    """Count the words of the texts, and those with several numbers behind them, as in `people1,2`."""
    return Counter(word for text in texts for form in (_WORD, _NUMBERED_WORD) for word in form.findall(text))
