"""Text in; its language, sentences, summary, joined lines and plain words out.

Knows scripts, punctuation and hyphens of the languages we read. Knows nothing of pages, elements or Markdown.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
KANA = "\u3040-\u30ff"
HANGUL = "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af"
# The language a script stands for when nobody says better, and the others that share it.
_SCRIPTS = {
    "zh": (HAN, {"ja"}),
    "ja": (KANA, set[str]()),
    "ko": (HANGUL, set[str]()),
    "ru": ("\u0400-\u04ff", {"uk", "be", "bg", "sr", "mk", "kk"}),
    "el": ("\u0370-\u03ff\u1f00-\u1fff", set[str]()),
    "ar": ("\u0600-\u06ff", {"fa", "ur"}),
    "he": ("\u0590-\u05ff", {"yi"}),
    "hi": ("\u0900-\u097f", {"mr", "ne"}),
    "th": ("\u0e00-\u0e7f", set[str]()),
}
_COUNT = {language: re.compile(f"[{letters}]") for language, (letters, _) in _SCRIPTS.items()}
_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f]")
CJK_WEIGHT = 3  # a Han or Hangul character says about as much as three Latin letters
KANA_SHARE = 0.1  # Japanese prose is never less; Chinese pages quote a few kana
_FUNCTION_WORDS = {
    "en": "the of and to in is that for with are this was by from which be",
    "de": "der die das und den von zu mit sich auf für ist im dem nicht ein eine wird",
    "fr": "le la les des et du est dans pour que une sur par qui au aux sont",
    "es": "el la los las del y en que por con una para se es lo como al",
    "it": "il di che la della per un una sono con non del dei nel alla gli è",
    "pt": "o a os as de do da que em um uma para com não por dos no na",
    "nl": "de het een van en in op te dat zijn voor met niet aan door wordt",
}
FUNCTION_WORDS = {language: frozenset(known.split()) for language, known in _FUNCTION_WORDS.items()}
_FUNCTION = frozenset().union(*FUNCTION_WORDS.values())
_ABBREVIATED = (
    "al approx art bzw ca cf ch chap col co corp dept dr e.g ed eds eq eqs et etc fig figs ff i.e inc jr ltd mr mrs ms "
    "no nos nr p par pp prof ref refs resp rev sec sect sr st tab tel u.s vgl viz vol vols vs z.b abb str"
)
_ABBREVIATIONS = frozenset(_ABBREVIATED.split())
_END = re.compile(r"[.!?…]+[\"'”’»)\]]*(?=\s+[\"'“‘«(\[]?[^\W_a-zß-ÿ])|[。！？]+[”’」』）]*|\n{2,}")
_LAST_WORD = re.compile(r"[^\W_](?:[\w.]*\w)?$")
_CLOSED = re.compile(r"[.!?…:。！？：][\"'”’»)\]」』）]*(?:\[\^?\d+\]|[¹²³⁰⁴-⁹])*$")
_HYPHEN_END = re.compile(r"[^\W\d_][-\u2010\u00ad]$")
_CJ_EDGE = re.compile(f"[{HAN}{KANA}\u3000-\u303f\uff00-\uff0f\uff1a-\uff20]")
_CJK = re.compile(f"[{HAN}{KANA}{HANGUL}]")
_WORD = re.compile(rf"[{HAN}{KANA}]|[^\W_{HAN}{KANA}]+")
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_MARK = re.compile(
    r"\s*(?:\[\^?(\d{1,3})\]:?|<sup>\s*(\w{1,3}|[*†‡§]+)\s*</sup>|\\\(\s*\^\s*\{?\s*(\w{1,3}|[*†‡§]+)\s*\}?\s*\\\)"
    r"|([⁰¹²³⁴-⁹]{1,3})|(\d{1,3})(?:[.)]?\s+|(?=[^\W\d_]))|([*†‡§]{1,3}))\s*(?=\S)"
)
SENTENCE = 400  # characters; what is longer is cut in a summary
GARBAGE = 0.3  # of the characters without a meaning: the text layer's fonts lie
VOWELS = frozenset("aeiouy")
LEAST_VOWELS = 0.2  # of the letters: honest pages have 0.34 and more, one whose fonts lie 0.13
LETTERS = 100  # of different words, which 200 letters of running text have; fewer say nothing about vowels
ACRONYM = 3  # letters: GND, VDD and SCK may stand on a page without any vowel


def language(text: str, hint: str | None = None) -> str | None:
    """The language most of the text is written in; None without letters. A hint decides between those of a script."""
    counts = {name: len(pattern.findall(text)) for name, pattern in _COUNT.items()}
    han, kana = counts["zh"], counts["ja"]
    if kana >= KANA_SHARE * (han + kana):
        counts["zh"], counts["ja"] = 0, han + kana
    weights = {name: n * (CJK_WEIGHT if name in ("zh", "ja", "ko") else 1) for name, n in counts.items()}
    best = max(weights, key=weights.__getitem__)
    if weights[best] < (latin := len(_LATIN.findall(text))):
        return _latin(text, hint)
    if weights[best] == latin == 0:
        return None
    return hint if hint and hint[:2] in {best, *_SCRIPTS[best][1]} else best


def _latin(text: str, hint: str | None) -> str:
    if hint and hint[:2] not in _SCRIPTS:
        return hint
    found = re.findall(r"[^\W\d_]+", text.lower())
    votes = {name: sum(word in known for word in found) for name, known in FUNCTION_WORDS.items()}
    best = max(votes, key=votes.__getitem__)  # the first of equals: English
    return best if votes[best] > votes["en"] else "en"


def words(text: str) -> list[str]:
    """Its words as readers count them: runs of letters and digits, each Han or kana character alone, folded."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def is_garbage(text: str) -> bool:
    """Whether a text layer's fonts lie: characters that mean nothing to anybody, or hardly a vowel in its words."""
    letters = re.sub(r"[ \t\r\n]", "", text)
    return sum(map(_is_senseless, letters)) > GARBAGE * len(letters) or _lacks_vowels(text)


def _is_senseless(letter: str) -> bool:
    return letter == "\ufffd" or unicodedata.category(letter) in ("Cc", "Co")


def _lacks_vowels(text: str) -> bool:
    """Whether letters stand for others. Each word counts once, part numbers and acronyms not at all."""
    own = {word for word in words(text) if word.isalpha() and not (word.isascii() and len(word) <= ACRONYM)}
    letters = [letter for letter in unicodedata.normalize("NFD", "".join(own)) if letter.isalpha()]
    consonants = sum("a" <= letter <= "z" and letter not in VOWELS for letter in letters)
    return len(letters) >= LETTERS and consonants > (1 - LEAST_VOWELS) * len(letters)


def plain(text: str) -> str:
    """Prose only: without tags, maths and addresses, which are no sentences."""
    text = re.sub(r"\\\(.*?\\\)|\\\[.*?\\\]|https?://\S+|<!--.*?-->", " ", text, flags=re.DOTALL)
    return re.sub(r"</?[a-zA-Z][^<>]*>", " ", text)


def flow(text: str) -> str:
    """One line of text: line ends closed as `join` closes them, blanks single."""
    whole = ""
    for line in text.splitlines():
        if line := " ".join(line.split()):
            whole = "".join(join(whole, line)) if whole else line
    return whole


def join(first: str, second: str) -> tuple[str, str, str]:
    """Both parts of a text that runs on, and what goes between: nothing after a broken word or within Chinese."""
    if not first or not second:
        return first, "", second
    if _is_broken(first) and second[0].islower():
        return first[:-1], "", second
    hyphen = first[-1] in "-\u2010" and not first[-2:-1].isspace()
    glued = hyphen or (_CJ_EDGE.match(first[-1]) and _CJ_EDGE.match(second[0]))
    return first, "" if glued else " ", second


def runs_on(first: str, second: str) -> bool:
    """Whether a paragraph that ends like `first` can go on in one that starts like `second`."""
    first, second = first.rstrip(), second.lstrip()
    if not first or not second or _CLOSED.search(first):
        return False
    if _CJK.match(first[-1]) or first[-1] in "，、":
        return bool(_CJK.match(second[0])) or second[0].islower()
    return starts_within(second) or (is_open(first) and not _is_broken(first))


def is_open(text: str) -> bool:
    """Whether more must come: it ends in a broken word, a comma, or a word that ends no sentence."""
    text = text.rstrip()
    last = "".join(text.rsplit(None, 1)[-1:]).rpartition("(")[2].lower()
    return _is_broken(text) or text[-1:] in (",", "，", "、") or last in _FUNCTION


def _is_broken(text: str) -> bool:
    """Whether it ends in a word's first half; of a long paragraph only the end is looked at."""
    return bool(_HYPHEN_END.search(text[-3:]))


def starts_within(text: str) -> bool:
    """Whether it begins inside a sentence. A letter glued to a capital is a note's mark."""
    return bool(re.match(r"\s*(?:[^\W\d_])", text)) and text.lstrip()[0].islower() and not text.lstrip()[1:2].isupper()


def breaks_word(first: str, second: str) -> bool:
    """Whether a word is cut by a hyphen between both."""
    return _is_broken(first.rstrip()) and starts_within(second)


def reference(text: str, mark: str) -> tuple[int, int] | None:
    """Where a text refers to the footnote with this mark: [start, end), or None."""
    shown = re.escape(mark)
    forms = [rf"\[\^{shown}\]", rf"<sup>\s*{shown}\s*</sup>", rf"\\\(\s*\^\s*\{{?\s*{shown}\s*\}}?\s*\\\)"]
    if mark.isdigit():
        forms += [f"(?<![⁰¹²³⁴-⁹]){mark.translate(_SUPERSCRIPTS)}(?![⁰¹²³⁴-⁹])", rf"(?<=[^\W\d_]{{2}}){shown}(?!\w)"]
        forms += [rf"(?<=[^\W\d_][.,;:]){shown}(?![\w.,]\d|\w)"]
    elif mark in "*†‡§":
        forms.append(rf"(?<=\S){shown}(?!{shown})")
    for form in forms:
        if found := re.search(form, text):
            return found.span()
    return None


def footnote(text: str) -> tuple[str, str] | None:
    """A footnote's mark and the rest of its text; None when it begins with no mark."""
    found = _MARK.match(text)
    if not found:
        return None
    mark = next(group for group in found.groups() if group)
    return unicodedata.normalize("NFKC", mark), text[found.end() :].strip()


def sentences(text: str) -> list[str]:
    """The text's sentences, on one line each."""
    text = re.sub(r"(?<!\n)\n(?!\n)", " ", text)
    parts, start = [], 0
    for found in _END.finditer(text):
        if not _is_abbreviation(text[start : found.start()], found.group()):
            parts.append(text[start : found.end()])
            start = found.end()
    parts.append(text[start:])
    return [" ".join(part.split()) for part in parts if _WORD.search(part)]


def _is_abbreviation(before: str, end: str) -> bool:
    last = _LAST_WORD.search(before)
    if end != "." or not last:
        return False
    word = last.group()
    return word.lower() in _ABBREVIATIONS or (len(word) == 1 and word.isupper())


def distinct(phrases: Iterable[str], limit: int, least: int = 0) -> tuple[str, ...]:
    """The first ones that are no part of one before or the other way round; those too where fewer than `least` are."""
    chosen: list[tuple[str, set[str]]] = []
    spare: list[tuple[str, set[str]]] = []
    for phrase in phrases:
        parts = set(words(phrase))
        if parts and all(parts != other for _, other in chosen + spare):
            inside = any(parts <= other or other <= parts for _, other in chosen)
            (spare if inside else chosen).append((phrase, parts))
    chosen += spare[: max(0, least - len(chosen))]
    return tuple(phrase for phrase, _ in chosen[:limit])


def summary(text: str, keywords: Sequence[str], limit: int) -> str | None:
    """Up to `limit` of the text's own sentences, those that say most of the keywords, in their order."""
    told = sentences(text)
    weights = [(_weight(sentence, keywords) + (1.0 if n == 0 else 0.0), -n) for n, sentence in enumerate(told)]
    best = sorted(sorted(range(len(told)), key=weights.__getitem__, reverse=True)[:limit])
    return close_up(_shortened(told[n]) for n in best) or None


def _weight(sentence: str, keywords: Sequence[str]) -> float:
    folded = sentence.casefold()
    hits = sum(1 / (rank + 2) for rank, keyword in enumerate(keywords) if keyword.casefold() in folded)
    size = len(words(sentence))
    return hits * 4 * min(size / 8, 1.0) * min(30 / size, 1.0)  # very short ones say little, very long ones anything


def _shortened(sentence: str) -> str:
    if len(sentence) <= SENTENCE:
        return sentence
    return sentence[:SENTENCE].rsplit(" ", 1)[0].rstrip(",;: ") + "…"


def close_up(parts: Iterable[str]) -> str:
    """Sentences side by side, with a blank only where their script has one."""
    whole = ""
    for part in parts:
        whole = whole + ("" if not whole or _CJ_EDGE.match(whole[-1]) else " ") + part
    return whole
