"""The words of a page's own text layer, packed: they go from a page worker to the pipeline and back with every page.

Knows boxes and words. Knows nothing of PDF.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self, overload

import numpy as np
import numpy.typing as npt

from twopass.document import Box, Word


class TextLayer(Sequence[Word]):
    """Words in the layer's order. Pickled as text and one block of numbers: as objects they took 3 ms a page."""

    def __init__(self, texts: Sequence[str] = (), corners: bytes = b"") -> None:
        """`corners`: x0, y0, x1, y1 of each word in turn, as doubles."""
        self.texts = tuple(texts)
        self._corners: npt.NDArray[np.float64] = np.frombuffer(corners).reshape(len(self.texts), 4)

    @classmethod
    def of(cls, words: Iterable[Word]) -> Self:
        words = tuple(words)
        return cls([word.text for word in words], np.array([word.box for word in words], np.float64).tobytes())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.texts, self._corners.tobytes())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TextLayer):
            return NotImplemented
        return self.texts == other.texts and self._corners.tobytes() == other._corners.tobytes()

    def __hash__(self) -> int:
        return hash((self.texts, self._corners.tobytes()))

    def __len__(self) -> int:
        return len(self.texts)

    @overload
    def __getitem__(self, index: int) -> Word: ...

    @overload
    def __getitem__(self, index: slice) -> TextLayer: ...

    def __getitem__(self, index: int | slice) -> Word | TextLayer:
        if isinstance(index, slice):
            return TextLayer(self.texts[index], self._corners[index].tobytes())
        return Word(Box(*self._corners[index].tolist()), self.texts[index])

    def __iter__(self) -> Iterator[Word]:
        return (Word(Box(*corners), text) for corners, text in zip(self._corners.tolist(), self.texts, strict=True))

    def inside(self, boxes: Iterable[Box], margin: float = 0.0) -> str:
        """The words whose middle lies in one of the boxes, or within the margin of it."""
        x, y = (self._corners[:, 0] + self._corners[:, 2]) / 2, (self._corners[:, 1] + self._corners[:, 3]) / 2
        held = np.zeros(len(self), bool)
        for x0, y0, x1, y1 in boxes:
            held |= (x0 - margin <= x) & (x <= x1 + margin) & (y0 - margin <= y) & (y <= y1 + margin)
        return " ".join(self.texts[index] for index in held.nonzero()[0])


NO_LAYER = TextLayer()
