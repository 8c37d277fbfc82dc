"""Check what a model read against the page's text layer, and flag the elements that pass 2 should read again.

No text is taken from the layer. It is ignored where it has far fewer words than the model read, such as the stamp on a
scan, or where its fonts map to wrong characters. Some defects show in the text itself and need no layer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from twopass.document import Confidence, ConfidenceMethod, Element, Flag, Kind
from twopass.families import agreement
from twopass.pages.text_layer import NO_LAYER, TextLayer
from twopass.text import maths, prose

_MARGIN = 0.008  # of the page, around a box: a grid cell is 0.001 of the page, and letters reach beyond their boxes
_MIN_WORDS = 3  # of an element, to call its text wrong
_MIN_COVERAGE = 0.5  # share of an element's words that the layer must have
_MIN_LAYER_RATIO = 0.3  # words of the layer per word that the model read, for a layer that covers the page
# A text layer spells maths differently, and pass 1 reads no text in pictures.
_NOT_COMPARED = frozenset({Kind.FORMULA, Kind.PICTURE, Kind.CHART})
_MIXED_SCRIPTS = re.compile(r"[A-Za-z]\w{0,30}[\u0370-\u04ff]|[\u0370-\u04ff]\w{0,30}[A-Za-z]")
_MATHS = re.compile(rf"{maths.INLINE}|\$[^$]*\$")


def check_elements(elements: Sequence[Element], layer: TextLayer) -> tuple[Element, ...]:
    """The elements with confidence from the text layer and with a flag for each doubt."""
    if not _is_usable(elements, layer):
        layer = NO_LAYER
    return tuple(_flag_doubts(_compare_with_layer(element, layer) if layer else element) for element in elements)


def _is_usable(elements: Sequence[Element], layer: TextLayer) -> bool:
    """Whether the layer covers the page and its characters mean what they show."""
    layer_text = " ".join(layer.texts)
    if not layer or prose.is_garbage(layer_text):
        return False
    word_count = sum(len(prose.split_words(element.text)) for element in elements)
    return len(prose.split_words(layer_text)) >= _MIN_LAYER_RATIO * word_count


def check_region(element: Element, words: str | None) -> Element:
    """A region that was read for the first time with its doubts; `words` are those of the layer inside it.

    A region whose layer has far fewer words than were read is not compared with them.
    """
    read = len(prose.split_words(element.text))
    if words and not prose.is_garbage(words) and len(prose.split_words(words)) >= _MIN_LAYER_RATIO * read:
        element = _compare_with_words(element, words)
    return _add_doubts(element, list(find_text_defects(element.text)))


def _compare_with_layer(element: Element, layer: TextLayer) -> Element:
    return _compare_with_words(element, layer.inside(element.boxes, _MARGIN)) if element.boxes else element


def _compare_with_words(element: Element, words: str) -> Element:
    if element.kind in _NOT_COMPARED:
        return element
    text = _MATHS.sub(" ", element.text)
    share = agreement.word_coverage(text, words)
    if share is None:
        return element
    is_unknown = share < _MIN_COVERAGE and len(prose.split_words(text)) >= _MIN_WORDS
    confidence = Confidence(score=share, method=ConfidenceMethod.FOUND_IN_LAYER)
    element = element.model_copy(update={"confidence": confidence})
    return _add_doubts(element, [Flag.NOT_IN_TEXT_LAYER] if is_unknown else [])


def _flag_doubts(element: Element) -> Element:
    return _add_doubts(element, list(_find_doubts(element)))


def _add_doubts(element: Element, doubts: Sequence[Flag]) -> Element:
    """Flag the doubts, if any, and request pass 2."""
    return element.with_flags(*doubts, Flag.DOUBTFUL) if doubts else element


def _find_doubts(element: Element) -> Iterator[Flag]:
    """Yield a flag for each sign of a bad reading in the element itself."""
    yield from find_text_defects(element.text)
    yield from (flag for flag in element.flags if flag.is_doubt)
    if not element.text and element.kind not in _NOT_COMPARED and element.kind is not Kind.TABLE:
        yield Flag.NO_TEXT


def find_text_defects(text: str) -> Iterator[Flag]:
    """Yield a flag for each kind of character that a sound text does not have."""
    if "\ufffd" in text:
        yield Flag.REPLACEMENT_CHARACTERS
    if _MIXED_SCRIPTS.search(_MATHS.sub(" ", text)):
        yield Flag.MIXED_SCRIPTS
