"""Find the rules of tables in the pixels of a scan, and split words that OCR read across them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from twopass.engines.cpu.geometry import Rect, StyledWord
from twopass.engines.cpu.tables.rules import MAX_RULE_WIDTH
from twopass.pages.strips import Array

MIN_LENGTH = 12.0  # points: shorter strokes may be letters
DRIFT = 1.0  # points across a rule within MIN_LENGTH, for paper that is not quite straight
NEIGHBOURHOOD = 12.0  # points around a pixel, whose mean brightness it is compared with
CONTRAST = 18  # grey levels that a rule is darker than its surroundings
MAX_STROKE = 1.6  # of a word's height: a longer stroke in the word's box is a rule
MAX_OVERHANG = 0.4  # of a word's height, by which its box may reach over a rule beside it: half a letter
MAX_SHIFT = 3  # letters between where a rule seems to split a word and a change from digits to letters


def find_rules(array: Array, scale: float, skew: float) -> list[Rect]:
    """Return the rules in points; `scale` is points per pixel, `skew` the scan's rotation in degrees clockwise.

    The rules are straightened like the words of the scan.
    """
    import cv2  # only scans need it

    grey = cv2.cvtColor(array, cv2.COLOR_RGB2GRAY)
    height, width = grey.shape
    if skew:
        turn = cv2.getRotationMatrix2D((width / 2, height / 2), skew, 1.0)
        grey = cv2.warpAffine(grey, turn, (width, height), borderValue=255)
    block = int(NEIGHBOURHOOD / scale) | 1
    ink = cv2.adaptiveThreshold(grey, 255, cv2.ADAPTIVE_THRESH_MEAN_C, cv2.THRESH_BINARY_INV, max(block, 3), CONTRAST)
    return [*_find_lines(ink, scale, horizontal=True), *_find_lines(ink, scale, horizontal=False)]


def drop_letters(rules: Sequence[Rect], words: Sequence[StyledWord]) -> list[Rect]:
    """Drop strokes of letters, which are long where a letter touches a border.

    A stroke within a word that continues a rule outside all words is a rule: double borders end at each cell.
    """
    within = [any(_is_letter(rule, word.box) for word in words) for rule in rules]
    sure = {_to_line(rule) for rule, is_within in zip(rules, within, strict=True) if not is_within}
    return [rule for rule, is_within in zip(rules, within, strict=True) if not is_within or _to_line(rule) in sure]


def _to_line(rule: Rect) -> tuple[bool, int]:
    """Return the direction of a rule and its position across it, in points."""
    is_upright = rule.height > rule.x1 - rule.x0
    return is_upright, round(rule.x0 if is_upright else rule.y0)


def _is_letter(rule: Rect, word: Rect) -> bool:
    length = max(rule.x1 - rule.x0, rule.height)
    return length <= MAX_STROKE * word.height and word.contains(rule.centre)


def split_words(words: Sequence[StyledWord], rules: Sequence[Rect]) -> list[StyledWord]:
    """End words at the vertical rules beside them, and split those that OCR read across a rule."""
    upright = sorted(rule for rule in rules if rule.height > rule.x1 - rule.x0)
    return [part for word in words for part in _split_word(word, upright)]


def _split_word(word: StyledWord, rules: Sequence[Rect]) -> Iterator[StyledWord]:
    box = word.box
    crossing = [r.x0 for r in rules if box.x0 < r.x0 < box.x1 and r.y0 < box.centre[1] < r.y1]
    if not (word.upright and crossing):
        yield word
        return
    reach = min(MAX_OVERHANG * box.height, (box.x1 - box.x0) / 3)
    left = max((x for x in crossing if x - box.x0 <= reach), default=box.x0)
    right = min((x for x in crossing if box.x1 - x <= reach), default=box.x1)
    trimmed = replace(word, box=box._replace(x0=left, x1=right))
    inside = [x for x in crossing if left < x < right]
    at = _find_split(trimmed, inside[0]) if inside else None
    if at is None:
        yield trimmed
        return
    yield replace(trimmed, text=word.text[:at], box=trimmed.box._replace(x1=inside[0]))
    yield replace(trimmed, text=word.text[at:], box=trimmed.box._replace(x0=inside[0]))


def _find_split(word: StyledWord, x: float) -> int | None:
    """Return where a rule splits the text: at a change from digits to letters, because widths are guessed."""
    text = word.text
    places = [i for i in range(1, len(text)) if text[i - 1].isdigit() and text[i].isalpha()]
    position = (x - word.box.x0) / (word.box.x1 - word.box.x0) * len(text)
    at = min(places, key=lambda i: abs(i - position), default=None)
    return at if at is not None and abs(at - position) <= MAX_SHIFT else None


def _find_lines(ink: Any, scale: float, horizontal: bool) -> Iterator[Rect]:
    """Yield long straight strokes that are no thicker than a rule."""
    import cv2

    def make_kernel(length: float, thickness: int = 1) -> Array:
        pixels = max(round(length / scale), 1)
        return np.ones((thickness, pixels) if horizontal else (pixels, thickness), np.uint8)

    thick = cv2.dilate(ink, make_kernel(scale, max(round(DRIFT / scale), 1)))
    lines = cv2.morphologyEx(thick, cv2.MORPH_OPEN, make_kernel(MIN_LENGTH))
    count, _, stats, _ = cv2.connectedComponentsWithStats(lines)
    for x, y, width, height, _ in stats[1:count].tolist():
        box = Rect(x * scale, y * scale, (x + width) * scale, (y + height) * scale)
        if min(width, height) * scale <= MAX_RULE_WIDTH + DRIFT:
            yield _thin(box, horizontal)


def _thin(box: Rect, horizontal: bool) -> Rect:
    """Return the middle of a rule, whose thickness dilation has changed."""
    x, y = box.centre
    return Rect(box.x0, y, box.x1, y) if horizontal else Rect(x, box.y0, x, box.y1)
