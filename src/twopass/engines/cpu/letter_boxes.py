"""Join the letters that a form sets in a row of drawn boxes, one in each: numbers and names, letter by letter."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import pairwise

from twopass.document import Rect
from twopass.engines.cpu.content import StyledWord, join_words

MIN_LETTERS = 4  # in a row: fewer may be marks in the columns of a table
MAX_PITCH = 2.2  # of the type size, from letter to letter
SAME_PITCH = 0.25  # of the usual distance, by which one may differ
MAX_HEIGHT = 3.0  # of the type size, of the side of a box: a longer rule is one of a table
SAME_ROW = 0.3  # of the type size, between the middles of two letters
MIN_GRID_ROWS, MIN_REPEATS = 3, 4  # rows of marks in the same columns; how often each mark comes in them
TOUCH = 1.0  # points between the sides of two boxes, one below the other, in a table


def join(words: Sequence[StyledWord], rules: Sequence[Rect]) -> tuple[StyledWord, ...]:
    """The words, with letters in neighbouring boxes as one word; an empty box is the space between two."""
    sides = [rule for rule in rules if rule.width < rule.height]
    rows = list(_find_rows(words)) if sides else []
    joined: dict[int, StyledWord | None] = {}
    for letters in _leave_grids(rows):
        for parts in _split_row(letters, sides):
            if not _is_scale(parts):
                joined |= dict.fromkeys(map(id, parts)) | {id(parts[0]): reduce(join_words, parts)}
    found = (joined.get(id(word), word) for word in words)
    return tuple(word for word in found if word is not None) if joined else tuple(words)


def _leave_grids(rows: Sequence[list[StyledWord]]) -> Iterator[list[StyledWord]]:
    """Yield the rows that are not of a table of marks: several with the same few letters in the same columns."""
    marks = [row for row in rows if not _is_scale(row)]
    for row in rows:
        own = [other for other in marks if _has_same_columns(row, other)]
        texts = [letter.text for other in own for letter in other]
        if len(own) < MIN_GRID_ROWS or len(texts) < MIN_REPEATS * len(set(texts)):
            yield row


def _has_same_columns(row: Sequence[StyledWord], other: Sequence[StyledWord]) -> bool:
    pairs = zip(row, other, strict=False)
    return len(row) == len(other) and all(one.box.overlap_x(letter.box) > 0 for one, letter in pairs)


def _is_scale(letters: Sequence[StyledWord]) -> bool:
    """Whether each letter is the one after its neighbour, as in boxes to choose from: 1 2 3 4 5."""
    codes = [ord(letter.text) for letter in letters]
    return len(codes) >= MIN_LETTERS and all(other == one + 1 for one, other in pairwise(codes))


def _find_rows(words: Sequence[StyledWord]) -> Iterator[list[StyledWord]]:
    """Yield the single letters of each row that has enough of them, from left to right."""
    row: list[StyledWord] = []
    letters = [word for word in words if len(word.text) == 1 and word.upright and word.size > 0]
    for letter in (*sorted(letters, key=lambda word: word.box.centre[1]), None):
        if row and (letter is None or letter.box.centre[1] - row[0].box.centre[1] > SAME_ROW * row[0].size):
            if len(row) >= MIN_LETTERS:
                yield sorted(row, key=lambda word: word.box.x0)
            row = []
        row += [letter] if letter else []


def _split_row(row: Sequence[StyledWord], sides: Sequence[Rect]) -> Iterator[list[StyledWord]]:
    """Yield the words of a row whose letters are in boxes at equal distances."""
    steps = [other.box.centre[0] - one.box.centre[0] for one, other in pairwise(row)]
    usual = statistics.median_low(steps)
    part = [row[0]]
    for letter, step in zip((*row[1:], None), (*steps, 0.0), strict=True):
        is_next = letter and abs(step - usual) <= SAME_PITCH * usual <= SAME_PITCH * MAX_PITCH * letter.size
        if letter and is_next and _is_side_between(part[-1], letter, sides):
            part.append(letter)
            continue
        if len(part) > 1:
            yield part
        part = [letter] if letter else []


def _is_side_between(one: StyledWord, other: StyledWord, sides: Sequence[Rect]) -> bool:
    """Whether the sides of boxes of this row, and of no others, stand between two letters."""
    (left, y), (right, _) = one.box.centre, other.box.centre
    between = [side for side in sides if left < side.centre[0] < right]
    own = [side for side in between if side.y0 < y < side.y1]
    tallest = max((side.height for side in own), default=0.0)
    touching = (other for side in own for other in between if other.y1 <= y or other.y0 >= y if _do_touch(side, other))
    return 0 < tallest <= MAX_HEIGHT * one.size and not any(touching)


def _do_touch(side: Rect, other: Rect) -> bool:
    return min(abs(side.y0 - other.y1), abs(side.y1 - other.y0)) <= TOUCH and abs(side.x0 - other.x0) <= TOUCH
