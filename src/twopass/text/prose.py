"""Work on running text: detect its language, split it into sentences and words, join broken lines, summarize it.

Covers the scripts, punctuation and hyphenation of the supported languages. Works on plain strings, not on elements.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from html.entities import html5

from twopass.text import maths
from twopass.text.hyphenation import NO_WORDS, Joint, Vocabulary

HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
KANA = "\u3040-\u30ff"
HANGUL = "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af"
# The language that a script implies without a hint, the script's letters, and the other languages that use it.
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
_LETTER_PATTERNS = {language: re.compile(f"[{letters}]") for language, (letters, _) in _SCRIPTS.items()}
_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f]")
_MIN_FUNCTION_WORDS = 5  # of a language: fewer may be names and quotations in it
_CJK_WEIGHT = 3  # a Han or Hangul character carries about as much information as three Latin letters
_MIN_KANA_SHARE = 0.1  # of Han and kana: Japanese prose always has more; Chinese pages have only some quoted kana
_FUNCTION_WORDS = {
    "en": "the of and to in is that for with are this was by from which be",
    "de": "der die das und den von zu mit sich auf für ist im dem nicht ein eine wird",
    "fr": "le la les des et du est dans pour que une sur par qui au aux sont",
    "es": "el la los las del y en que por con una para se es lo como al",
    "it": "il di che la della per un una sono con non del dei nel alla gli è",
    "pt": "o a os as de do da que em um uma para com não por dos no na",
    "nl": "de het een van en in op te dat zijn voor met niet aan door wordt",
}
FUNCTION_WORDS = {language: frozenset(words.split()) for language, words in _FUNCTION_WORDS.items()}
_ALL_FUNCTION_WORDS = frozenset().union(*FUNCTION_WORDS.values())
_ABBREVIATION_LIST = (
    "al approx art bzw ca cf ch chap col co corp dept dr e.g ed eds eq eqs et etc fig figs ff i.e inc jr ltd mr mrs ms "
    "no nos nr p par pp prof ref refs resp rev sec sect sr st tab tel u.s vgl viz vol vols vs z.b abb str"
)
_ABBREVIATIONS = frozenset(_ABBREVIATION_LIST.split())
_SENTENCE_END = re.compile(
    r"(?<![.!?…])[.!?…]++[\"'”’»)\]]*+(?=\s+[\"'“‘«(\[]?[^\W_a-zß-ÿ])|[。！？]+[”’」』）]*|\n{2,}"
)
_ENTITY = re.compile(r"&(?:#(?:[0-9]{1,7}|[xX][0-9a-fA-F]{1,7});?|([A-Za-z][A-Za-z0-9]{1,31};))")
_TOO_LARGE = re.compile(r"&#(?:[0-9]{8,}|[xX][0-9a-fA-F]{8,});?")  # Python converts no number of thousands of digits
_NO_PROSE = re.compile(rf"{maths.FORMULA.pattern}|https?://\S+|<!--(?:[^<-]|-(?!->)|<(?!!--))*+-->")
_LONGEST_WORD = 40  # characters that are searched for an abbreviation: more are a repetition
_LAST_WORD = re.compile(r"[^\W_](?:[\w.]*\w)?$")
_SENTENCE_CLOSED = re.compile(r"[.!?。！？][\"'”’)\]]?$")
_FINISHED = re.compile(r"[.!?…:。！？：][\"'”’»)\]」』）]*(?:\[\^?\d+\]|[¹²³⁰⁴-⁹])*$")
_HYPHEN_END = re.compile(r"[^\W\d_][-\u2010\u00ad]$")
_SOFT_HYPHEN = "\u00ad"
_NOT_SIGN_END = re.compile(r"[^\W\d_]¬$")  # what some programs for OCR write for a hyphen at a line's end
_CJ_EDGE = re.compile(f"[{HAN}{KANA}\u3000-\u303f\uff00-\uff0f\uff1a-\uff20]")
_CJK = re.compile(f"[{HAN}{KANA}{HANGUL}]")
_WORD = re.compile(rf"[{HAN}{KANA}]|[^\W_{HAN}{KANA}]+")
_LETTERS = re.compile(r"[^\W_]+")
# What Markdown and HTML write in another way than a text has it: commands of LaTeX, scripts, breaks, entities and the
# addresses of links.
_REWRITTEN = re.compile(
    r"\\(?:(?:begin|end|label)\s*[\\\u200b]?\{[^{}]*\}|[A-Za-z]+)"
    r"|(?:<|&(?:amp;)*+lt;)\s?(?:/?su[bp]|br ?/?)(?:>|&(?:amp;)*+gt;)"
    r"|[&#](?:(?:amp;)*+#?\w++;|(?:amp;)+)"
    r"|\]\s?\([^()\s:/]*[:/][^()\s]*\)"
)
MAX_SENTENCE = 400  # characters: a longer sentence is cut in a summary
_MAX_SENSELESS_SHARE = 0.3  # of meaningless characters: with more, the fonts map glyphs to wrong characters
_VOWELS = frozenset("aeiouy")
_MIN_VOWEL_SHARE = 0.2  # of the letters: correct pages have 0.34 and more, one with wrongly mapped fonts had 0.13
_MIN_LETTERS = 100  # of distinct words, as in 200 letters of running text: fewer say nothing about vowels
_MAX_ACRONYM = 3  # letters: a page may hold GND, VDD and SCK without any vowel


def detect_language(text: str, hint: str | None = None) -> str | None:
    """The language of most of the text; None without letters. `hint` decides between languages of one script."""
    counts = {name: len(pattern.findall(text)) for name, pattern in _LETTER_PATTERNS.items()}
    han, kana = counts["zh"], counts["ja"]
    if kana >= _MIN_KANA_SHARE * (han + kana):
        counts["zh"], counts["ja"] = 0, han + kana
    weights = {name: n * (_CJK_WEIGHT if name in ("zh", "ja", "ko") else 1) for name, n in counts.items()}
    best = max(weights, key=weights.__getitem__)
    if weights[best] < (latin := len(_LATIN.findall(text))):
        return _detect_latin_language(text, hint)
    if weights[best] == latin == 0:
        return None
    return hint if hint and hint[:2] in {best, *_SCRIPTS[best][1]} else best


def _detect_latin_language(text: str, hint: str | None) -> str:
    if hint and hint[:2] not in _SCRIPTS:
        return hint
    votes = {name: _count_function_words(text, name) for name in FUNCTION_WORDS}
    best = max(votes, key=votes.__getitem__)  # on a tie the first: English
    return best if votes[best] > votes["en"] else "en"


def detect_part_language(text: str, expected: str | None) -> str | None:
    """The language of a part of a text in the expected language; None if it is in other letters and not certain."""
    has_own_letters = expected is not None and expected[:2] in _SCRIPTS
    language = detect_language(text, expected if has_own_letters else None)
    if language is None or (expected and language[:2] == expected[:2]):
        return expected
    if language in _SCRIPTS or _count_function_words(text, language) >= _MIN_FUNCTION_WORDS:
        return language
    return None if has_own_letters else expected


def _count_function_words(text: str, language: str) -> int:
    return sum(word in FUNCTION_WORDS[language] for word in re.findall(r"[^\W\d_]+", text.lower()))


def split_words(text: str) -> list[str]:
    """Split a text into words, NFKC-normalized and case-folded. Each Han or kana character is a word."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def strip_to_letters(text: str) -> str:
    """The letters and digits of a text without accents, by which texts are compared that differ in their markup.

    Words that are hyphenated, or divided by styles, have the same letters as others. Commands of LaTeX are ignored.
    """
    plain = text if text.isascii() else unicodedata.normalize("NFKD", text)
    return "".join(_LETTERS.findall(_REWRITTEN.sub(" ", plain)))


def strip_to_words(text: str) -> list[str]:
    """The words whose letters `strip_to_letters` gives, with their accents."""
    return _LETTERS.findall(unicodedata.normalize("NFKC", _REWRITTEN.sub(" ", text)))


def is_garbage(text: str) -> bool:
    """Whether fonts map the text layer's glyphs wrongly: to meaningless characters, or to words with hardly a vowel."""
    characters = re.sub(r"[ \t\r\n]", "", text)
    return sum(map(is_senseless, characters)) > _MAX_SENSELESS_SHARE * len(characters) or _lacks_vowels(text)


def is_senseless(character: str) -> bool:
    """Whether the character means nothing: unnamed, a control character, or for private use."""
    return character == "\ufffd" or unicodedata.category(character) in ("Cc", "Co")


def _lacks_vowels(text: str) -> bool:
    """Whether so few letters are vowels that fonts must map them wrongly. Ignores repetitions, numbers and acronyms."""
    distinct = {
        word for word in split_words(text) if word.isalpha() and not (word.isascii() and len(word) <= _MAX_ACRONYM)
    }
    letters = [letter for letter in unicodedata.normalize("NFD", "".join(distinct)) if letter.isalpha()]
    consonants = sum("a" <= letter <= "z" and letter not in _VOWELS for letter in letters)
    return len(letters) >= _MIN_LETTERS and consonants > (1 - _MIN_VOWEL_SHARE) * len(letters)


def unescape(text: str) -> str:
    """Replace HTML's names and numbers of characters; numbers that no character has become U+FFFD.

    A name ends with a semicolon: `?a=1&copy=2` and `&notit;` are text.
    """
    text = _TOO_LARGE.sub("\ufffd", text)
    return _ENTITY.sub(
        lambda found: html.unescape(found[0]) if found[1] is None or found[1] in html5 else found[0], text
    )


def strip_markup(text: str) -> str:
    """Remove tags, formulas and URLs, which are not prose."""
    text = _NO_PROSE.sub(" ", text)
    return re.sub(r"</?[a-zA-Z][^<>]*>", " ", text)


def to_one_line(text: str) -> str:
    """Join all lines as `join_lines` does, with single spaces."""
    return _join_all(text, join_lines)


def unwrap(text: str) -> str:
    """The same, but a word that may be broken keeps its line end: the document's words decide on its hyphen."""
    return _join_all(text, _join_certain)


def _join_all(text: str, join: Callable[[str, str], tuple[str, str, str]]) -> str:
    joined = ""
    for line in text.splitlines():
        if line := " ".join(line.split()):
            joined = "".join(join(joined, line)) if joined else line
    return joined


def join_lines(
    first: str, second: str, vocabulary: Vocabulary = NO_WORDS, language: str | None = None
) -> tuple[str, str, str]:
    """Both parts of a continuous text, and the separator between them.

    The first part loses the hyphen of a broken word. The separator is empty after a hyphen and within Chinese.
    """
    joint = vocabulary.join(first, second, language)
    if joint is None:
        return _join_certain(first, second)
    return first[:-1] if joint is Joint.NOTHING else first, joint[1:], second


def _join_certain(first: str, second: str) -> tuple[str, str, str]:
    """The same for texts between which no word is broken; otherwise, the separator is a line end."""
    if not first or not second:
        return first, "", second
    if first[-1] == _SOFT_HYPHEN or (_NOT_SIGN_END.search(first) and second[0].islower()):
        return first[:-1], "", second
    if NO_WORDS.join(first, second) is not None:
        return first, "\n", second
    hyphen = first[-1] in "-\u2010\u2011" and not first[-2:-1].isspace()
    no_space = hyphen or (_CJ_EDGE.match(first[-1]) and _CJ_EDGE.match(second[0]))
    return first, "" if no_space else " ", second


def is_continuation(first: str, second: str) -> bool:
    """Whether `second` can continue the paragraph `first`."""
    first, second = first.rstrip(), second.lstrip()
    if not first or not second or _FINISHED.search(first):
        return False
    if _CJK.match(first[-1]) or first[-1] in "，、":
        return bool(_CJK.match(second[0])) or second[0].islower()
    return starts_mid_sentence(second) or (is_unfinished(first) and not _ends_in_broken_word(first))


def is_unfinished(text: str) -> bool:
    """Whether the text cannot end here: it ends in a broken word, a comma, or a word that ends no sentence."""
    text = text.rstrip()
    last_word = "".join(text.rsplit(None, 1)[-1:]).rpartition("(")[2].lower()
    return _ends_in_broken_word(text) or text[-1:] in (",", "，", "、") or last_word in _ALL_FUNCTION_WORDS


def ends_sentence(text: str) -> bool:
    """Whether the text ends like a sentence: with a full stop, or another mark that is no ellipsis or colon."""
    return bool(_SENTENCE_CLOSED.search(text))


def _ends_in_broken_word(text: str) -> bool:
    """Whether the text ends in a word's first half and a hyphen."""
    return bool(_HYPHEN_END.search(text[-3:]))


def starts_mid_sentence(text: str) -> bool:
    """Whether the text begins inside a sentence. A lowercase letter before a capital is a footnote mark."""
    return bool(re.match(r"\s*(?:[^\W\d_])", text)) and text.lstrip()[0].islower() and not text.lstrip()[1:2].isupper()


def is_word_split(first: str, second: str) -> bool:
    """Whether a hyphen splits a word between both texts."""
    return _ends_in_broken_word(first.rstrip()) and starts_mid_sentence(second)


def split_sentences(text: str) -> list[str]:
    """Split a text into sentences, each on one line."""
    text = re.sub(r"(?<!\n)\n(?!\n)", " ", text)
    parts, start = [], 0
    for match in _SENTENCE_END.finditer(text):
        before = text[max(start, match.start() - _LONGEST_WORD) : match.start()]
        if not _is_abbreviation(before, match.group()):
            parts.append(text[start : match.end()])
            start = match.end()
    parts.append(text[start:])
    return [" ".join(part.split()) for part in parts if _WORD.search(part)]


def _is_abbreviation(before: str, end: str) -> bool:
    last = _LAST_WORD.search(before)
    if end != "." or not last:
        return False
    word = last.group()
    return is_abbreviation(word) or (len(word) == 1 and word.isupper())


def is_abbreviation(word: str) -> bool:
    """Whether a word that a full stop follows is a known abbreviation, such as `Fig`."""
    return word.lower() in _ABBREVIATIONS


def select_distinct(phrases: Iterable[str], limit: int, minimum: int = 0) -> tuple[str, ...]:
    """The first `limit` phrases whose words neither contain nor are contained in those of an earlier phrase.

    If fewer than `minimum` remain, contained phrases are added; a phrase with the same words as another one never is.
    """
    chosen: list[tuple[str, set[str]]] = []
    contained: list[tuple[str, set[str]]] = []
    for phrase in phrases:
        words = set(split_words(phrase))
        if words and all(words != other for _, other in chosen + contained):
            overlaps = any(words <= other or other <= words for _, other in chosen)
            (contained if overlaps else chosen).append((phrase, words))
    chosen += contained[: max(0, minimum - len(chosen))]
    return tuple(phrase for phrase, _ in chosen[:limit])


def summarize(text: str, keywords: Sequence[str], limit: int) -> str | None:
    """Up to `limit` of the text's own sentences with the most keywords, in their order; None without sentences."""
    sentences = split_sentences(text)
    weights = [(_weigh(sentence, keywords) + (1.0 if n == 0 else 0.0), -n) for n, sentence in enumerate(sentences)]
    best = sorted(sorted(range(len(sentences)), key=weights.__getitem__, reverse=True)[:limit])
    return join_sentences(_shorten(sentences[n]) for n in best) or None


def _weigh(sentence: str, keywords: Sequence[str]) -> float:
    folded = sentence.casefold()
    score = sum(1 / (rank + 2) for rank, keyword in enumerate(keywords) if keyword.casefold() in folded)
    size = len(split_words(sentence))
    # A very short sentence says little, and a very long one contains any keyword.
    return score * 4 * min(size / 8, 1.0) * min(30 / size, 1.0)


def _shorten(sentence: str) -> str:
    if len(sentence) <= MAX_SENTENCE:
        return sentence
    return sentence[:MAX_SENTENCE].rsplit(" ", 1)[0].rstrip(",;: ") + "…"


def join_sentences(sentences: Iterable[str]) -> str:
    """Join sentences, with a space unless the sentence before ends in Chinese or Japanese."""
    joined = ""
    for sentence in sentences:
        joined = joined + ("" if not joined or _CJ_EDGE.match(joined[-1]) else " ") + sentence
    return joined
