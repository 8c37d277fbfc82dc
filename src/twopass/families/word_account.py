"""Account for the words of an answer: each must be in an element, and no element may have it once more.

It knows the grammars only as signs to leave out, and parses none of them: what a parser loses is not lost here, too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from twopass.document import Element, Figure
from twopass.text import prose

_HTML = re.compile(
    r"<!doctype\b[^<>]*>|<\?xml\b[^<>]*>|<style\b[^<>]*>(?:[^<]|<(?!/?style\b))*+</style\s*>"
    r"|<!--(?:[^<-]|-(?!->)|<(?!!--))*+-->"
    r"|</?(?:html|head|body|meta|link|title|table|caption|colgroup|col|thead|tbody|tfoot|tr|td|th|br|hr|p|a|b|i|s|u|em"
    r"|strong|d[dtl]|h[1-6]|del|ins|pre|code|mark|small|span|center|div|font|section|article|main|figure|figcaption|ul|ol|li"
    r"|sub|sup|smiles|[felux]cel|ched|rhed|srow|nl)\b[^<>]*>"
    r"|<(?:/?t[a-z]{0,4}|t(?:able|[rdh])\s[^<>]*|[a-z]{1,4})\s*\Z",  # cut off with the answer
    flags=re.DOTALL | re.IGNORECASE,
)
_IMAGE = re.compile(
    r"<img\b(?:(?!\balt\s*=)[^<>])*+(?:alt\s*=\s*(?:\"([^\"]*+)\"|'([^']*+)'|([^\s\"'<>]++))?[^<>]*+)?>",
    flags=re.IGNORECASE,
)
_LINK = re.compile(r"!\[([^\[\]\n]*)\]\([^()\s]*\)")
_FENCE = re.compile(r"```[\w+#.-]*")
_COMMAND = re.compile(r"\\[A-Za-z]+\*?")


class WordAccount(NamedTuple):
    """The words of an answer that no element has, and those that the elements have more often, in their order."""

    lost: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()


def list_words(text: str) -> list[str]:
    """The words of a text without tags, fences of code and LaTeX's commands."""
    if "<" in text:
        text = _IMAGE.sub(lambda image: f" {image[1] or image[2] or image[3] or ''} ", text)
        text = _HTML.sub(" ", text)
    if "](" in text:
        text = _LINK.sub(r" \1 ", text)
    if "```" in text:
        text = _FENCE.sub("", text)
    if "&" in text:
        text = prose.unescape(prose.unescape(text))
    if "\\" in text:
        text = _COMMAND.sub(" ", text)
    return prose.split_words(text)


def compare(expected: Sequence[str], elements: Iterable[Element], labels: Iterable[str] = ()) -> WordAccount:
    """Compare the words of an answer with those of its elements, in any order.

    Words that were joined, as at the end of a line, or parted count as kept. `labels` are those that count as words.
    """
    texts = [*(text for element in elements for text in list_texts(element)), *labels]
    found = [word for text in texts for word in list_words(text)]
    missing, extra = _subtract(expected, found), _subtract(found, expected)
    if missing:  # what looks like a tag may have been escaped: then it is a word of the page
        missing = _subtract(
            missing, [word for text in texts for tag in _HTML.findall(text) for word in list_words(tag[1:])]
        )
    return WordAccount(tuple(_find_absent(missing, extra)), tuple(_find_absent(extra, missing)))


def drop_known(words: Sequence[str], elements: Iterable[Element]) -> tuple[str, ...]:
    """The words that none of these elements has."""
    if not words:
        return ()
    known = {word for element in elements for text in list_texts(element) for word in list_words(text)}
    return tuple(word for word in words if word not in known)


def list_texts(element: Element) -> Iterator[str]:
    """Yield the texts in which an element shows its words, each word once, also those of a figure."""
    figure = None if element.table else element.figure
    own = [cell.text for cell in figure.data.cells] if figure and figure.data else element.texts
    yield from own  # cells may be equal
    if figure:
        known = set(map(str.strip, own))
        yield from (text for text in dict.fromkeys(map(str.strip, _list_figure_texts(figure))) if text not in known)


def _list_figure_texts(figure: Figure) -> Iterator[str]:
    """What describes a figure beside its data, where several fields may have one text."""
    yield from (figure.description or "", figure.visible_text or "", figure.smiles or "")
    yield from (component.label for component in figure.components)
    yield from (connection.label or "" for connection in figure.connections)


def _subtract(words: Sequence[str], others: Sequence[str]) -> list[str]:
    """The words without the others, each as often as it is left, in their order."""
    left = Counter(words) - Counter(others)
    kept = []
    for word in words if left else ():
        if left[word] > 0:
            left[word] -= 1
            kept.append(word)
    return kept


def _find_absent(words: Sequence[str], others: Sequence[str]) -> Iterator[str]:
    """Yield the words whose letters are not in the others, taken together; letters are used once."""
    rest = "".join(others)
    for word in words:
        at = rest.find(word) if rest else -1
        if at < 0:
            yield word
        else:
            rest = f"{rest[:at]}\0{rest[at + len(word) :]}"
