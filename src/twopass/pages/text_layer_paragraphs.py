"""The words of a PDF's own text layer in, paragraphs as elements out: the ladder's last rung."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from twopass.document import Box, Confidence, Element, Kind, Word, element_id
from twopass.text import prose

SAME_LINE = 0.5  # of the word's height: centres nearer than this stand on one line
SAME_PARAGRAPH = 1.2  # of the line's height: a larger gap begins a new paragraph


def elements(layer: Sequence[Word], page: int) -> tuple[Element, ...]:
    """One text element a paragraph, in the layer's own order; none where the layer is garbage."""
    if prose.is_garbage(" ".join(word.text for word in layer)):
        return ()
    return tuple(_element(paragraph, page, index) for index, paragraph in enumerate(_paragraphs(layer)))


def _paragraphs(layer: Sequence[Word]) -> list[list[Word]]:
    paragraphs: list[list[Word]] = []
    for word in layer:
        if paragraphs and _belongs(word.box, paragraphs[-1][-1].box):
            paragraphs[-1].append(word)
        else:
            paragraphs.append([word])
    return paragraphs


def _belongs(box: Box, last: Box) -> bool:
    if abs(box.centre[1] - last.centre[1]) <= SAME_LINE * last.height:
        return True
    return box.y0 - last.y0 > 0 and box.y0 - last.y1 <= SAME_PARAGRAPH * last.height


def _element(paragraph: Sequence[Word], page: int, index: int) -> Element:
    text = " ".join(word.text for word in paragraph)
    return Element(
        id=element_id(page, index),
        page=page,
        category=Kind.TEXT.category,
        kind=Kind.TEXT,
        boxes=(reduce(Box.union, (word.box for word in paragraph)),),
        text=text,
        markdown=text,
        confidence=Confidence(score=1.0, method="text_layer"),
        flags=("text_layer",),
    )
