"""Decide whether the hyphen at the end of a line belongs to its word: "carbon-free", but "harbours".

The document's own words decide first, then what both halves are. Where that is not clear, the hyphen stays. A page has
only some of the document's words: its texts keep the line end after such a hyphen until the document is assembled.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

_HYPHENS = "-\u2010\u2011"
_WORD = rf"[^\W\d_]++(?:[{_HYPHENS}][^\W\d_]++)*+"
_TOKEN = re.compile(_WORD)
_BREAK = re.compile(rf"(?<![^\W\d_])(?:[^\W\d_]++[{_HYPHENS}])*?[^\W\d_]++[-\u2010]$")
_MARKUP = r"(?:\*{1,3}|</?su[bp]>)?"  # what Markdown may have between a word and the end of its line
_LINE_END = re.compile(rf"(?<=[^\W\d_])([-\u2010])({_MARKUP})[ \t]*\n\s*({_MARKUP})(?=[^\W\d_])")
_BLANK = re.compile(r"(?<=[^\W\d_][-\u2010]) (?=[^\W\d_])")
_TAGS = re.compile(r"\*|</?su[bp]>")
_OPEN_WORD = re.compile(rf"(?<![^\W\d_])(?<![^\W\d_][{_HYPHENS}]){_WORD}[-\u2010\u00ad]\s*$")
_LONGEST_WORD = 100  # characters that are searched for the first half of a word
_LONGEST_ADDRESS = 1000  # characters that are searched for an address
_ADDRESS = re.compile(r"[@\\_]|://|\w\.\w+/|^www\.")  # in addresses and identifiers, whose hyphens are their own
# A hyphen before these replaces half of a word: "in- and output", "Bildungs- und Kulturamt".
_CONJUNCTIONS = "und u oder od bis bzw beziehungsweise respektive sowie als wie noch statt and or to et ou y o e en of"
CONJUNCTIONS = frozenset(_CONJUNCTIONS.split())
# Languages that write compounds as one word. In German, a second noun behind a hyphen begins with a capital.
_COMPOUNDING = frozenset(("nl", "da", "sv", "nb", "nn", "no", "is", "fi", "et", "hu", "it"))
# Before words that the English list has with and without a hyphen, and that have one in print: "longterm", "nonprofit".
_LISTED_MODIFIERS = (
    "built deep far fine follow full hard ill large left long non ready real right second self short well"
    " twenty thirty forty fifty sixty seventy eighty ninety"
)
_MODIFIERS = frozenset(_LISTED_MODIFIERS.split())
# In front of a word, and together no listed word: the hyphen may be one that is always written.
_LISTED_PREFIXES = (
    "anti counter demi ex extra infra inter intra macro meta mi mid mini multi neo non pan post pre pro pseudo quasi"
    " semi sub super supra trans ultra vice"
)
_PREFIXES = frozenset(_LISTED_PREFIXES.split())
# Endings that word lists have, and that no compound has behind its hyphen.
_ENDINGS = frozenset(("ly", "er", "ers", "al", "ment", "ments", "mente", "ism", "isms"))


class Joint(StrEnum):
    """What stands between the halves of a word when they are on one line."""

    NOTHING = ""
    HYPHEN = "-"
    HYPHEN_AND_SPACE = "- "


@dataclass(frozen=True)
class Vocabulary:
    """The words of a document, and the pairs of words that it joins by hyphens, case-folded and counted.

    Without any, `join` knows only the word lists.
    """

    words: Mapping[str, int] = field(default_factory=dict)
    pairs: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @classmethod
    def collect(cls, texts: Iterable[str]) -> Vocabulary:
        """The vocabulary of texts, without the words that line ends break."""
        words: Counter[str] = Counter()
        pairs: Counter[tuple[str, str]] = Counter()
        for text in texts:
            for line in text.splitlines():
                for token in _TOKEN.findall(_OPEN_WORD.sub("", line)):
                    parts = _split(token.casefold())
                    words.update(parts)
                    pairs.update(zip(parts, parts[1:], strict=False))
        return cls(words, pairs)

    def join(self, first: str, second: str, language: str | None = None) -> Joint | None:
        """How to join two texts if a word may be broken between them; None if none is."""
        first = first[-_LONGEST_ADDRESS:]
        tail, head = _BREAK.search(first, max(len(first) - _LONGEST_WORD, 0)), _TOKEN.match(second)
        if not tail or not head:
            return None
        *before, left = _split(tail.group()[:-1])
        right = _split(head.group())[0]
        token = first.rsplit(None, 1)[-1]
        if _ADDRESS.search(token) or _touches_digit(first[: tail.start()], second[head.end() :]):
            return Joint.HYPHEN
        found = self._find(before, left, right)
        return self._judge(before, left, right, language) if found is None else found

    def _find(self, before: list[str], left: str, right: str) -> Joint | None:
        """How the document writes the word elsewhere; None if it does not have it."""
        left, right = left.casefold(), right.casefold()
        whole = left + right
        joined = self.pairs.get((before[-1].casefold(), whole), 0) if before else self.words.get(whole, 0)
        hyphenated = self.pairs.get((left, right), 0)
        if not joined and not hyphenated:
            return None
        return Joint.NOTHING if joined > hyphenated else Joint.HYPHEN

    def _judge(self, before: list[str], left: str, right: str, language: str | None) -> Joint:
        """What the halves say; `before` are the parts of the word in front of earlier hyphens."""
        whole = left + right
        if right in CONJUNCTIONS and not self._has(whole, language):
            return Joint.HYPHEN_AND_SPACE
        if len(left) == 1 or right[0].isupper() or (left.isupper() and right.islower()):
            is_in_capitals = len(left) > 1 and left.isupper() and right.isupper()
            return Joint.NOTHING if is_in_capitals and self._has(whole, language) else Joint.HYPHEN
        if not before and self._is_written_with_hyphen(left, right, language):
            return Joint.HYPHEN
        if not before and (_is_compounding(language, left) or self._has(whole, language)):
            return Joint.NOTHING
        is_compound = right not in _ENDINGS and self._has(left, language) and self._has(right, language)
        return Joint.HYPHEN if is_compound else Joint.NOTHING

    def _is_written_with_hyphen(self, left: str, right: str, language: str | None) -> bool:
        """Whether the word is listed with its hyphen, or begins with a prefix, and is not listed without a hyphen.

        The list also has words without a hyphen that few people write so.
        """
        first, has_whole = left.casefold(), self._has(left + right, language)
        if not has_whole and first in _PREFIXES and self._has(right, language):
            return True
        is_unusual = first in _MODIFIERS or (first[-1] == right[0] and first[-1] in "aei")
        return (is_unusual or not has_whole) and _is_listed(f"{left}-{right}".casefold(), (language or "")[:2])

    def _has(self, word: str, language: str | None) -> bool:
        """Whether the document or its language has the word."""
        folded = word.casefold()
        return folded in self.words or _is_listed(folded, (language or "")[:2])


def _split(word: str) -> list[str]:
    return re.split(f"[{_HYPHENS}]", word)


def _touches_digit(before: str, after: str) -> bool:
    """Whether a number is attached to the word, as in part numbers."""
    return before[-1:].isdigit() or after[:1].isdigit()


def _is_compounding(language: str | None, left: str) -> bool:
    """Whether the language writes compounds as one word, if `left` and a word in small letters are its halves."""
    code = (language or "")[:2]
    return code in _COMPOUNDING or (code == "de" and left[0].isupper())


def _is_listed(word: str, language: str) -> bool:
    if not language:
        return False
    from simplemma import is_known  # imported with its lists where a line ends in a hyphen: up to 0.4 s and 16 MB
    from simplemma.strategies.dictionaries.dictionary_factory import SUPPORTED_LANGUAGES

    return language in SUPPORTED_LANGUAGES and is_known(word, language, low_memory=True)


NO_WORDS = Vocabulary()


def has_break(text: str) -> bool:
    """Whether a word of the text may be broken at the end of a line."""
    return bool(_LINE_END.search(text))


def is_one_word(left: str, right: str, language: str | None) -> bool:
    """Whether the language has the whole word, and at most one of its halves."""
    whole, *halves = (_is_listed(word.casefold(), (language or "")[:2]) for word in (left + right, left, right))
    return whole and not all(halves)


def are_two_words(left: str, right: str, language: str | None) -> bool:
    """Whether the language has both halves, and not the whole word."""
    whole, *halves = (_is_listed(word.casefold(), (language or "")[:2]) for word in (left + right, left, right))
    return all(halves) and not whole


def restore_line_ends(words: str) -> str:
    """The words of lines, with a line end instead of the blank behind each hyphen that may break a word."""
    return _BLANK.sub("\n", words)


def join_words(text: str, vocabulary: Vocabulary, language: str | None) -> str:
    """The text with its broken words on one line; its other lines stay as they are."""

    def join(found: re.Match[str]) -> str:
        first = text[max(found.start() - _LONGEST_WORD, 0) : found.start()]
        second = text[found.end() : found.end() + _LONGEST_WORD]
        joint = vocabulary.join(_TAGS.sub("", first) + "-", second, language)
        hyphen = "" if joint is Joint.NOTHING else found[1]
        blank = " " if joint is Joint.HYPHEN_AND_SPACE else ""
        # Asterisks behind a hyphen would end no emphasis before a letter.
        return f"{found[2]}{hyphen}{blank}{found[3]}"

    return _LINE_END.sub(join, text)
