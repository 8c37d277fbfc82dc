"""A page's elements and the words of its text layer in, the same elements out: how sure they are, and which to doubt.

The layer is a witness and no source: nothing is taken from it here. It is heard only where it says about as much
as the reader did; a stamp on a scan knows nothing of the page. Without a layer the text itself may give itself away.
Knows words and boxes. Knows nothing of models or prompts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from twopass.document import Confidence, Element, Kind
from twopass.families import agreement
from twopass.pages.text_layer import NO_LAYER, TextLayer
from twopass.text import prose

DOUBTFUL = "doubtful"  # pass 2 reads what carries this flag again
MARGIN = 0.008  # of the page: a grid cell is 0.001, and letters hang out of their boxes
LEAST_WORDS = 3  # fewer prove nothing
MOSTLY = 0.5  # of an element's words unknown to the layer
SPEAKS = 0.3  # words of the layer for each that was read, for it to be a witness of the page
SILENT = frozenset({Kind.FORMULA, Kind.PICTURE, Kind.CHART})  # a layer spells maths otherwise, and pictures have none
_MIXED = re.compile(
    r"(?=\w*[A-Za-z])(?=\w*[\u0370-\u03ff\u0400-\u04ff])(?:[A-Za-z]\w{0,30}[\u0370-\u052f]\w*|[\u0370-\u052f]\w{0,30}[A-Za-z]\w*)"
)
_MATHS = re.compile(r"\\\(.*?\\\)|\$[^$]*\$", flags=re.DOTALL)


def heard(elements: Sequence[Element], layer: TextLayer) -> tuple[Element, ...]:
    """The elements with what the layer and they themselves say about their text."""
    if not _speaks(elements, layer):
        layer = NO_LAYER
    return tuple(_doubted(_compared(element, layer) if layer else element) for element in elements)


def _speaks(elements: Sequence[Element], layer: TextLayer) -> bool:
    told = " ".join(layer.texts)
    read = sum(len(prose.words(element.text)) for element in elements)
    return bool(layer) and not prose.is_garbage(told) and len(prose.words(told)) >= SPEAKS * read


def _compared(element: Element, layer: TextLayer) -> Element:
    if not element.boxes or element.kind in SILENT:
        return element
    text = _MATHS.sub(" ", element.text)
    share = agreement.known(text, layer.inside(element.boxes, MARGIN))
    if share is None:
        return element
    unknown = share < MOSTLY and len(prose.words(text)) >= LEAST_WORDS
    confidence = Confidence(score=share, method="text_layer")
    return _flagged(element, ["not_in_text_layer"] if unknown else []).model_copy(update={"confidence": confidence})


def _doubted(element: Element) -> Element:
    return _flagged(element, list(signs(element)))


def _flagged(element: Element, doubts: Sequence[str]) -> Element:
    """With the doubts, and the one flag that asks for pass 2."""
    if not doubts:
        return element
    return element.model_copy(update={"flags": tuple(dict.fromkeys((*element.flags, *doubts, DOUBTFUL)))})


def signs(element: Element) -> Iterator[str]:
    """What in an element's own text makes it doubtful."""
    yield from giveaways(element.text)
    yield from (flag for flag in ("degenerate_box", "unread_box", "cut_off", "loop") if flag in element.flags)
    if not element.text and element.kind not in SILENT and element.kind is not Kind.TABLE:
        yield "no_text"


def giveaways(text: str) -> Iterator[str]:
    """Signs of a bad reading that need no witness."""
    if "\ufffd" in text:
        yield "replacement_characters"
    if _MIXED.search(_MATHS.sub(" ", text)):
        yield "mixed_scripts"
