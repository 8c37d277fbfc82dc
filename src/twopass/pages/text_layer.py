"""Hold the words of a page's text layer in a form that is cheap to send, group them into paragraphs, draft answers.

Every page's words are sent from a page worker to the pipeline and back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple, Self, overload

import numpy as np
import numpy.typing as npt
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from twopass.document import Box, Element, Flag, Kind, Word, enclose, make_element_id
from twopass.text import prose
from twopass.text.confidence import judge_unknown_layer

SAME_LINE = 0.5  # of the word's height: words whose centres are closer than this are on one line
SAME_PARAGRAPH = 1.2  # of the line's height: a larger gap begins a new paragraph


class _SentLayer(NamedTuple):
    texts: tuple[str, ...]
    corners: bytes


class TextLayer(Sequence[Word]):
    """Words in the order of the layer. Sent as texts and one array; sending objects took 3 ms per page."""

    def __init__(self, texts: Sequence[str] = (), corners: bytes = b"") -> None:
        """`corners` are x0, y0, x1, y1 of each word in turn, as doubles; as an attribute, one row per word."""
        self.texts = tuple(texts)
        self.corners: npt.NDArray[np.float64] = np.frombuffer(corners).reshape(len(self.texts), 4)

    @classmethod
    def of(cls, words: Iterable[Word]) -> Self:
        words = tuple(words)
        return cls([word.text for word in words], np.array([word.box for word in words], np.float64).tobytes())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.texts, self.corners.tobytes())

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(
            lambda sent: cls(*sent),
            handler.generate_schema(_SentLayer),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda layer: _SentLayer(layer.texts, layer.corners.tobytes()),
                return_schema=handler.generate_schema(_SentLayer),
            ),
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TextLayer):
            return NotImplemented
        return self.texts == other.texts and self.corners.tobytes() == other.corners.tobytes()

    def __hash__(self) -> int:
        return hash((self.texts, self.corners.tobytes()))

    def __len__(self) -> int:
        return len(self.texts)

    @overload
    def __getitem__(self, index: int) -> Word: ...

    @overload
    def __getitem__(self, index: slice) -> TextLayer: ...

    def __getitem__(self, index: int | slice) -> Word | TextLayer:
        if isinstance(index, slice):
            return TextLayer(self.texts[index], self.corners[index].tobytes())
        return Word(Box(*self.corners[index].tolist()), self.texts[index])

    def __iter__(self) -> Iterator[Word]:
        return (Word(Box(*corners), text) for corners, text in zip(self.corners.tolist(), self.texts, strict=True))

    def pick(self, chosen: npt.NDArray[np.bool_]) -> TextLayer:
        """The words for which `chosen` is true."""
        return TextLayer([self.texts[index] for index in chosen.nonzero()[0]], self.corners[chosen].tobytes())

    def inside(self, boxes: Iterable[Box], margin: float = 0.0) -> str:
        """The words whose centre lies in one of the boxes grown by `margin`, joined by spaces in the layer's order."""
        x, y = (self.corners[:, 0] + self.corners[:, 2]) / 2, (self.corners[:, 1] + self.corners[:, 3]) / 2
        is_inside = np.zeros(len(self), bool)
        for x0, y0, x1, y1 in boxes:
            is_inside |= (x0 - margin <= x) & (x <= x1 + margin) & (y0 - margin <= y) & (y <= y1 + margin)
        return " ".join(self.texts[index] for index in is_inside.nonzero()[0])


NO_LAYER = TextLayer()


def to_paragraph_elements(layer: Sequence[Word], page: int) -> tuple[Element, ...]:
    """One text element per paragraph, in the order of the text layer; none if the layer is garbage."""
    text = " ".join(word.text for word in layer)
    if prose.is_garbage(text):
        return ()
    confidence, doubts = judge_unknown_layer(text)
    element = Element(
        id="",
        page=page,
        category=Kind.TEXT.category,
        kind=Kind.TEXT,
        confidence=confidence,
        flags=(Flag.TEXT_LAYER, *doubts),
    )
    paragraphs = enumerate(split_paragraphs(layer))
    return tuple(fill(element, paragraph, make_element_id(page, index)) for index, paragraph in paragraphs)


def split_paragraphs(layer: Sequence[Word]) -> list[list[Word]]:
    paragraphs: list[list[Word]] = []
    for word in layer:
        if paragraphs and _is_same_paragraph(word.box, paragraphs[-1][-1].box):
            paragraphs[-1].append(word)
        else:
            paragraphs.append([word])
    return paragraphs


def _is_same_paragraph(box: Box, previous: Box) -> bool:
    if abs(box.centre[1] - previous.centre[1]) <= SAME_LINE * previous.height:
        return True
    return box.y0 - previous.y0 > 0 and box.y0 - previous.y1 <= SAME_PARAGRAPH * previous.height


def _write_lines(paragraph: Sequence[Word]) -> Iterator[str]:
    line = [paragraph[0]]
    for word in paragraph[1:]:
        if abs(word.box.centre[1] - line[-1].box.centre[1]) > SAME_LINE * line[-1].box.height:
            yield " ".join(one.text for one in line)
            line = []
        line.append(word)
    yield " ".join(one.text for one in line)


def fill(element: Element, paragraph: Sequence[Word], element_id: str) -> Element:
    """Put the paragraph's text and box into an element, which gets this id."""
    text = prose.unwrap("\n".join(_write_lines(paragraph)))
    box = enclose(word.box for word in paragraph)
    update = {"id": element_id, "boxes": (box,), "text": text, "markdown": text}
    return element.model_copy(update=update)


# ---- what an answer about the page probably says ----

MAX_CHARACTERS = 16_000  # about 4,000 tokens: the answer about a very full page
MAX_WORDS = MAX_CHARACTERS // 2  # each has a character and is followed by a space
# Models write the letters for which fonts have one glyph.
_LIGATURES = {0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl", 0xFB05: "st", 0xFB06: "st"}


def write_draft(layer: TextLayer, places: Sequence[tuple[int, int]]) -> str:
    """The text of the layer in the layer's order, at most MAX_CHARACTERS; empty if the layer is garbage.

    `places` are the block and the line of each word, as MuPDF counts them. Words lose the hyphen of a line's end.
    """
    texts = layer.texts[:MAX_WORDS]
    if prose.is_garbage(" ".join(texts)):
        return ""
    by_line = groupby(zip(texts, places, strict=False), key=lambda word: word[1])
    lines = [" ".join(text for text, _ in words) for _, words in by_line]
    parts = [part for line, following in pairwise(lines) for part in prose.join_lines(line, following)[:2]]
    return "".join([*parts, *lines[-1:]]).translate(_LIGATURES)[:MAX_CHARACTERS]
