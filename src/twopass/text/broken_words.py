"""Join the words of elements that line ends break, which the words of all elements decide.

Readers keep the line end after a hyphen in `text`, `markdown` and cells; here it goes, and the hyphen with it unless it
belongs to the word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from twopass.document import Element, Kind
from twopass.text import hyphenation, table_markup
from twopass.text.hyphenation import Vocabulary

_AS_WRITTEN = frozenset({Kind.CODE, Kind.FORMULA})


def join(elements: Sequence[Element], languages: Mapping[int, str | None]) -> list[Element]:
    """The elements with their broken words joined; `languages` are those of the pages, by number."""
    if not any(map(_has_break, elements)):
        return list(elements)
    vocabulary = collect_vocabulary(elements)
    return [_join(e, vocabulary, languages.get(e.page)) if _has_break(e) else e for e in elements]


def collect_vocabulary(elements: Iterable[Element]) -> Vocabulary:
    """The words of all elements."""
    return Vocabulary.collect(text for element in elements for text in element.texts)


def _has_break(element: Element) -> bool:
    visible = (element.figure.visible_text or "") if element.figure else ""
    texts = (*element.texts, element.markdown, visible)
    return element.kind not in _AS_WRITTEN and any(map(hyphenation.has_break, texts))


def _join(element: Element, vocabulary: Vocabulary, language: str | None) -> Element:
    def join(text: str) -> str:
        return hyphenation.join_words(text, vocabulary, language)

    update: dict[str, object] = {"text": join(element.text), "markdown": join(element.markdown)}
    if element.figure and element.figure.visible_text:
        visible = join(element.figure.visible_text)
        update["figure"] = element.figure.model_copy(update={"visible_text": visible})
    if element.table:
        table = table_markup.change_texts(element.table, join)
        update |= {"table": table, "markdown": table.markdown or table.html, "text": table_markup.to_text(table)}
    return element.model_copy(update=update)
