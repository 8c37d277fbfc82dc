"""Extract keywords from a text with YAKE, which uses statistics of that text and no model.

YAKE drops words of fewer than three letters, and with them most Chinese, Japanese and Korean words. Texts in these
languages are segmented here, and YAKE gets a code of Latin letters for each word.

YAKE and rjieba are the extra `keywords`. Without them there are no keywords, and the document's run options say so.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from twopass.text import prose

if TYPE_CHECKING:
    from yake import KeywordExtractor

_MAX_PHRASE = 3  # words
_MIN_KEYWORDS = 5  # with fewer, keywords that are contained in better ones are added
_MAX_CANDIDATES = 60  # before similar ones are dropped
_MAX_TEXT = 2000  # characters of one element that are read, which bounds the time for long tables and lists
_BREAK = ","  # replaces every word that cannot be part of a keyword
_LABEL = re.compile(r"^\s*(?:table|figure|fig\.|tab\.|abb\.|표|그림|表|图|図)\s*[\d.]+\s*[:.：]?", flags=re.IGNORECASE)
_CHINESE = (
    "成为 进行 可以 这些 那些 我们 他们 它们 以及 因此 如果 使用 通过 其中 没有 已经 由于 对于 "
    "关于 具有 一个 这个 这种 所有 不同 可能 需要 例如 同时 根据 本文 各种 等等 为了 但是 而且 "
    "并且 虽然 还是 就是 以上 以下 之间 及其 其他 此外 目前 不是"
)
_CHINESE_STOP = frozenset(_CHINESE.split())
_CHINESE_NUMBER = re.compile("[零一二三四五六七八九十百千万亿点两第]+|.*百分之")
_PARTICLES = re.compile(
    r"(?<=[\uac00-\ud7af]{2})(?:으로부터|에서는|에게서|이라는|으로는|에서|에게|으로|까지|부터|처럼|보다|이나"
    r"|이며|라는|에는|들은|들이|들을|들의|은|는|이|가|을|를|의|에|로|와|과|도|만)$"
)
_KOREAN_STOP = re.compile(
    r"^(?:에서|에게|으로|까지|부터|처럼|보다|에는|하나|개|및|등|것|그|이|저|수|때|또는|또한|그리고|그러나"
    r"|하지만|따라서|위해|위한|대한|대해|통해|통한|따라|따른|있다|있는|있으며|없다|없는|하는|하고|한다|했다"
    r"|하여|되는|되고|되어|된다|되었다|이다|우리|모든|각|더|가장|매우|같은|다른|경우"
    r"|.+(?:하였다|했다|한다|하고|하며|하여|된다|되었다|되며|되고|습니다|합니다|니다|있다|없다|였다|이다|하는"
    r"|되는|하기|된|할|한|[졌었았렸겼켰됐왔갔]다)|높다|낮다|많다|적다|크다|작다|좋다)$"
)
_TOKEN = re.compile(
    rf"\d[\d.,]*[{prose.HANGUL}]*|[{prose.HAN}]+|[\u30a0-\u30ff]+|[{prose.HANGUL}]+|[A-Za-z\u00c0-\u024f][\w.+-]*[A-Za-z0-9]|\S",
    flags=re.ASCII,
)
_SEGMENTED = frozenset({"zh", "ja", "ko"})


@cache
def is_available() -> bool:
    """Whether the packages that keywords need are installed."""
    return all(find_spec(package) for package in ("yake", "rjieba"))


def extract(text: str, language: str | None, limit: int) -> tuple[str, ...]:
    """Extract at most `limit` keywords, the best first; fewer if the text has fewer content words."""
    if not is_available():
        return ()
    text = _LABEL.sub("", prose.strip_markup(text))[:_MAX_TEXT]
    detected = (prose.detect_language(text, language) or "en")[:2]
    if not prose.split_words(text) or limit < 1:
        return ()
    ranked = _rank_coded(text, detected) if detected in _SEGMENTED else _rank_spaced(text, detected)
    return prose.select_distinct(ranked, limit, min(limit, _MIN_KEYWORDS))


def _rank_spaced(text: str, language: str) -> list[str]:
    """Keywords of a language with spaces between words, spelled as in the text's first use."""
    text = " ".join(re.sub(r"[^\w\s.,;:!?()'’%/&+-]", " ", text).split())
    keywords = [keyword.strip(".,;:!? ") for keyword, _ in _rank(_load_extractor(language), text)]
    return [_restore_case(keyword, text) for keyword in keywords if re.search(r"[^\W\d_]{2}", keyword)]


def _restore_case(keyword: str, text: str) -> str:
    match = re.search(rf"(?<!\w){re.escape(keyword)}(?!\w)", text, flags=re.IGNORECASE)
    return match.group() if match else keyword


def _rank_coded(text: str, language: str) -> list[str]:
    """Keywords of Chinese, Japanese and Korean text: segment it into words and give YAKE a letter code for each."""
    codes: dict[str, str] = {}
    lines = []
    for sentence in prose.split_sentences(text):
        coded = [_encode(token, language, codes) for token in _tokenize(sentence)]
        lines.append(" ".join(coded).capitalize() + ".")
    token_of = {code: token for token, code in codes.items()}
    separator = " " if language == "ko" else ""
    ranked = _rank(_load_extractor("noLang"), " ".join(lines))
    return [_join([token_of[code] for code in keyword.split() if code in token_of], separator) for keyword, _ in ranked]


def _join(tokens: list[str], separator: str) -> str:
    """Join tokens with the separator, or with a space beside an ASCII token if the separator is empty."""
    joined = ""
    for token in tokens:
        gap = separator or (" " if joined and (joined[-1].isascii() or token[0].isascii()) else "")
        joined = joined + gap + token if joined else token
    return joined


def _tokenize(sentence: str) -> list[str]:
    """Split a sentence into words. A Korean particle is removed and ends a phrase, except 의, which means "of"."""
    tokens: list[str] = []
    for token in _TOKEN.findall(sentence):
        if re.match(f"[{prose.HAN}]", token):
            tokens += _load_chinese_segmenter()(token)
            continue
        stem = _PARTICLES.sub("", token)
        tokens += [stem] if stem == token or token.endswith("의") else [stem, _BREAK]
    return tokens


def _encode(token: str, language: str, codes: dict[str, str]) -> str:
    """The token's letter code, added to `codes` if new; _BREAK for a stop word."""
    is_stop = (
        (token in _CHINESE_STOP or _CHINESE_NUMBER.match(token)) if language == "zh" else _KOREAN_STOP.match(token)
    )
    if is_stop or len(token) < 2 or not token[0].isalpha():
        return _BREAK
    if token not in codes:
        number, letters = len(codes), ""
        for _ in range(4):
            number, digit = divmod(number, 20)
            letters += "bcdfghjklmnpqrstvwxz"[digit]
        codes[token] = "to" + letters
    return codes[token]


def _rank(extractor: KeywordExtractor, text: str) -> list[tuple[str, float]]:
    scored = [(str(keyword), round(float(score), 9)) for keyword, score in extractor.extract_keywords(text)]
    return sorted(scored, key=lambda pair: pair[1])[:_MAX_CANDIDATES]


@cache
def _load_extractor(language: str) -> KeywordExtractor:
    from yake import KeywordExtractor  # takes 0.3 s, so only when keywords are needed

    return KeywordExtractor(lan=language, n=_MAX_PHRASE, dedup_lim=1.0, top=4 * _MAX_CANDIDATES)


@cache
def _load_chinese_segmenter() -> Callable[[str], list[str]]:
    import rjieba  # takes 0.1 s and 33 MB, so only for Chinese

    return rjieba.cut
