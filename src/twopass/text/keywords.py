"""Text and language in, the phrases that tell most about it out.

Knows YAKE (statistics of one text, no model), Chinese words and Korean particles. Knows nothing of elements.
YAKE cannot see CJK words (it drops what is shorter than three letters), so their words go in as letter codes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from twopass.text import prose

if TYPE_CHECKING:
    from yake import KeywordExtractor

PHRASE = 3  # words at most
LEAST = 5  # below it, parts of better keywords come in
CANDIDATES = 60  # asked for before near-equal ones go
READ = 2000  # characters of one element that are looked at: bounds the time for tables and lists
_BREAK = ","  # stands for every word that is part of no keyword
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


def extract(text: str, language: str | None, limit: int) -> tuple[str, ...]:
    """At most `limit` keywords, the best first; fewer when the text has fewer words with content."""
    text = _LABEL.sub("", prose.plain(text))[:READ]
    spoken = (prose.language(text, language) or "en")[:2]
    if not prose.words(text) or limit < 1:
        return ()
    ranked = _coded(text, spoken) if spoken in _SEGMENTED else _spelled(text, spoken)
    return prose.distinct(ranked, limit, min(limit, LEAST))


def _spelled(text: str, language: str) -> list[str]:
    """Keywords of a language that puts blanks between words, spelled as the text first spells them."""
    text = " ".join(re.sub(r"[^\w\s.,;:!?()'’%/&+-]", " ", text).split())
    found = [keyword.strip(".,;:!? ") for keyword, _ in _ranked(_extractor(language), text)]
    return [_as_written(keyword, text) for keyword in found if re.search(r"[^\W\d_]{2}", keyword)]


def _as_written(keyword: str, text: str) -> str:
    found = re.search(rf"(?<!\w){re.escape(keyword)}(?!\w)", text, flags=re.IGNORECASE)
    return found.group() if found else keyword


def _coded(text: str, language: str) -> list[str]:
    """Keywords of Chinese, Japanese and Korean: words are told apart here, YAKE sees a letter code for each."""
    codes: dict[str, str] = {}
    lines = []
    for sentence in prose.sentences(text):
        line = [_code(token, language, codes) for token in _tokens(sentence)]
        lines.append(" ".join(line).capitalize() + ".")
    spelling = {code: token for token, code in codes.items()}
    blank = " " if language == "ko" else ""
    ranked = _ranked(_extractor("noLang"), " ".join(lines))
    return [_joined([spelling[code] for code in keyword.split() if code in spelling], blank) for keyword, _ in ranked]


def _joined(tokens: list[str], blank: str) -> str:
    whole = ""
    for token in tokens:
        edge = blank or (" " if whole and (whole[-1].isascii() or token[0].isascii()) else "")
        whole = whole + edge + token if whole else token
    return whole


def _tokens(sentence: str) -> list[str]:
    """Its words; a Korean particle is cut off and ends a phrase, but for the one that means "of"."""
    tokens: list[str] = []
    for token in _TOKEN.findall(sentence):
        if re.match(f"[{prose.HAN}]", token):
            tokens += _segment()(token)
            continue
        bare = _PARTICLES.sub("", token)
        tokens += [bare] if bare == token or token.endswith("의") else [bare, _BREAK]
    return tokens


def _code(token: str, language: str, codes: dict[str, str]) -> str:
    stop = (token in _CHINESE_STOP or _CHINESE_NUMBER.match(token)) if language == "zh" else _KOREAN_STOP.match(token)
    if stop or len(token) < 2 or not token[0].isalpha():
        return _BREAK
    if token not in codes:
        number, letters = len(codes), ""
        for _ in range(4):
            number, digit = divmod(number, 20)
            letters += "bcdfghjklmnpqrstvwxz"[digit]
        codes[token] = "to" + letters
    return codes[token]


def _ranked(extractor: KeywordExtractor, text: str) -> list[tuple[str, float]]:
    found = [(str(keyword), round(float(score), 9)) for keyword, score in extractor.extract_keywords(text)]
    return sorted(found, key=lambda pair: pair[1])[:CANDIDATES]


@cache
def _extractor(language: str) -> KeywordExtractor:
    from yake import KeywordExtractor  # 0.3 s: only where keywords are made

    return KeywordExtractor(lan=language, n=PHRASE, dedup_lim=1.0, top=4 * CANDIDATES)


@cache
def _segment() -> Callable[[str], list[str]]:
    import rjieba  # 0.1 s and 33 MB: only where there is Chinese

    return rjieba.cut
