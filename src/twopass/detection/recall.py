"""The recall guard: content that the detector did not see becomes regions of its own.

Words of the text layer outside all regions are grouped into paragraphs; on scans, ink is (see ink.py). Detectors lose
more content than readers do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from twopass.detection.labels import Label
from twopass.detection.region import Region, make_region
from twopass.detection.suppression import Floats, overlap_areas, stack_boxes
from twopass.document import Box, Word, enclose
from twopass.pages.text_layer import TextLayer

_MARGIN = 0.004  # of the page, around a region: its box may cut letters at the edge
_COVERED_SHARE = 0.5  # of a word's area in regions, for words whose centre is in none
_WIDE_GAP = 3.0  # of the word's height: a wider one on a line separates columns
_LINE_GAP = 1.2  # of the word's height: a larger one ends the paragraph
_SAME_LINE = 0.5  # of the word's height between centres
_TRUSTED_SHARE = 0.5  # of the text regions that words fill, on a page whose layer says what the page shows
_FILLED_SHARE = 0.1  # of a region's area under words: lines of print fill half of it or more, a stamp a hundredth
_TEXT_LABELS = frozenset({Label.TEXT, Label.ABSTRACT, Label.CONTENT, Label.DOC_TITLE, Label.PARAGRAPH_TITLE})


def add_missed(regions: Sequence[Region], layer: TextLayer, ink: Sequence[Box]) -> tuple[Region, ...]:
    """The regions, and those of missed words; of missed ink where the layer does not hold the page's text."""
    missed = [] if not layer else find_missed_paragraphs(layer, [region.box for region in regions])
    if not is_layer_complete(regions, layer):
        missed += [box for box in ink if not _is_covered(box, [*(region.box for region in regions), *missed])]
    return (*regions, *(make_region(Label.TEXT, box) for box in missed))


def is_layer_complete(regions: Sequence[Region], layer: TextLayer) -> bool:
    """Whether the layer's words fill most regions of text, so that it is no stamp on a scan."""
    texts = [region.box for region in regions if region.label in _TEXT_LABELS]
    return bool(texts) and sum(find_filled(texts, layer)) >= _TRUSTED_SHARE * len(texts)


def find_filled(boxes: Sequence[Box], layer: TextLayer) -> list[bool]:
    """Which of the boxes are filled with words."""
    if not layer or not boxes:
        return [False] * len(boxes)
    outer = stack_boxes(boxes)
    shared = overlap_areas(outer, stack_boxes([word.box for word in layer])).sum(axis=1)
    areas = (outer[:, 2] - outer[:, 0]) * (outer[:, 3] - outer[:, 1])
    return [bool(is_filled) for is_filled in shared >= _FILLED_SHARE * np.maximum(areas, np.finfo(float).tiny)]


def find_missed_paragraphs(layer: TextLayer, boxes: Sequence[Box]) -> list[Box]:
    """The boxes of paragraphs of words that lie outside all boxes; signs without a letter or digit do not count."""
    words = list(layer)
    covered = find_covered([word.box for word in words], boxes)
    missed = [word for word, is_covered in zip(words, covered, strict=True) if not is_covered]
    paragraphs = _split_paragraphs(missed)
    return [
        enclose(word.box for word in paragraph)
        for paragraph in paragraphs
        if any(letter.isalnum() for word in paragraph for letter in word.text)
    ]


def find_covered(words: Sequence[Box] | Floats, boxes: Sequence[Box]) -> list[bool]:
    """Which words have their centre, or most of their area, in one of the boxes."""
    if not len(words) or not boxes:
        return [False] * len(words)
    small, large = stack_boxes(words), stack_boxes(boxes)
    x, y = (small[:, 0] + small[:, 2]) / 2, (small[:, 1] + small[:, 3]) / 2
    x0, y0, x1, y1 = large.T + np.array([[-_MARGIN], [-_MARGIN], [_MARGIN], [_MARGIN]])
    holds = (x0 <= x[:, None]) & (x[:, None] <= x1) & (y0 <= y[:, None]) & (y[:, None] <= y1)
    areas = (small[:, 2] - small[:, 0]) * (small[:, 3] - small[:, 1])
    shares = overlap_areas(small, large) > _COVERED_SHARE * areas[:, None]
    return [bool(found) for found in (holds | shares).any(axis=1)]


def _is_covered(box: Box, boxes: Sequence[Box]) -> bool:
    return find_covered([box], boxes)[0]


def _split_paragraphs(words: Sequence[Word]) -> Iterator[list[Word]]:
    """Group words in the layer's order: each continues the line or begins the next line of the paragraph."""
    paragraph: list[Word] = []
    for word in words:
        if paragraph and not _continues(paragraph, word):
            yield paragraph
            paragraph = []
        paragraph.append(word)
    if paragraph:
        yield paragraph


def _continues(paragraph: Sequence[Word], word: Word) -> bool:
    box, previous = word.box, paragraph[-1].box
    height = max(previous.height, box.height)
    if abs(box.centre[1] - previous.centre[1]) <= _SAME_LINE * height:
        return -height <= box.x0 - previous.x1 <= _WIDE_GAP * height
    whole = enclose(other.box for other in paragraph)
    is_below = box.centre[1] - previous.centre[1] > 0 and box.y0 - previous.y1 <= _LINE_GAP * height
    return is_below and box.x0 < whole.x1 and whole.x0 < box.x1
