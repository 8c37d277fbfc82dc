"""Read the fields of a form: their values as words where they stand, and their labels and values as lines.

Text extraction gives the values of text fields and lists as their appearance shows them; those without an appearance
are added. Of a checked box it gives a letter of a symbol font or nothing, of an unchecked one nothing: both become
marks. The layout model takes many forms for tables or pictures, and puts the labels of several fields into one cell.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from twopass.document import FieldType, Rect, enclose
from twopass.engines.cpu import reading_order
from twopass.engines.cpu.content import Region, StyledWord, join_words
from twopass.engines.cpu.tables import grid_lines
from twopass.pages import page_annotations

CHECKED, UNCHECKED = "☑", "☐"
FORM_FIELD = "form field"  # in place of the font's name, for the words of this module
MAX_FIELDS = 500  # of a page
MAX_MARK_LENGTH = 1  # characters of the mark that a box's appearance shows
MAX_GAP, MAX_LABEL_GAP = 2.5, 15.0  # of the height, from a box and from a text field to its label
MIN_ROW_OVERLAP = 0.5  # of the smaller height, for a field and a word in one row
MAX_LABEL_WORDS = 8  # of a form's line, as a median: fields in lines with more are gaps in running text
VALUE_SIZE, VALUE_LEADING = 10.0, 1.2  # points; of the size: of values without an appearance
LETTER_WIDTH = 0.5  # of the type size, of such values
BORDER = 1.0  # points by which what is drawn for a field may leave its box
FLUSH = 2.0  # points between the left edges of two lines of a paragraph
HEADING_SIZE = 1.08  # times the median type size of a form
MAX_ABOVE = 2.0  # of the line's height, from a field up to a label above it
_BOXES = (FieldType.CHECKBOX, FieldType.RADIO)
_SHOWN = (FieldType.TEXT, FieldType.CHOICE, *_BOXES)
_PROSE = frozenset({"text", "list-item", reading_order.ORPHAN})

_Row = list[StyledWord]


@dataclass(frozen=True)
class PlacedField:
    """A field that the page shows; `checked` is None for those with a text."""

    box: Rect
    checked: bool | None
    value: str


def find_fields(page: Any) -> tuple[PlacedField, ...]:
    """The fields of a page that is not rotated, in points of it."""
    width, height = page.rect.width, page.rect.height
    fields = (field for field in page_annotations.iterate_fields(page) if not field.hidden and field.type in _SHOWN)
    return tuple(
        PlacedField(
            Rect(box.x0 * width, box.y0 * height, box.x1 * width, box.y1 * height), field.checked, field.value or ""
        )
        for field in islice(fields, MAX_FIELDS)
        if (box := field.box)
    )


# ---- their words ----


def add_words(fields: Sequence[PlacedField], words: Sequence[StyledWord]) -> tuple[StyledWord, ...]:
    """The words with a mark for every box, in place of the letter that it shows, and with values that are not shown."""
    if not fields:
        return tuple(words)
    boxes = [field for field in fields if field.checked is not None]
    drawn = {_find_drawn_mark(words, field.box) for field in boxes}
    kept = [word for index, word in enumerate(words) if index not in drawn]
    for field in fields:
        kept = _mark_value(field, kept) if field.checked is None else kept
    line = max((word.line for word in words), default=-1) + 1
    for field in boxes:
        mark = CHECKED if field.checked else UNCHECKED
        kept.append(StyledWord(field.box, mark, line, size=field.box.height, font=FORM_FIELD))
        line += 1
    for field in fields:
        is_missing = field.checked is None and not any(field.box.contains(word.box.centre) for word in words)
        for row in _set_value(field) if is_missing and field.value else ():
            kept += [replace(word, line=line) for word in row]
            line += 1
    return tuple(kept)


def _mark_value(field: PlacedField, words: list[StyledWord]) -> list[StyledWord]:
    """The words, with those of a field marked so; its letters are its words, however far apart they are set."""
    inside = {id(word) for word in words if field.box.contains(word.box.centre)}
    own = _join_letters([word for word in words if id(word) in inside], field.value.split())
    first = next((index for index, word in enumerate(words) if id(word) in inside), 0)
    rest = [word for word in words[first:] if id(word) not in inside]
    return [*words[:first], *(replace(word, is_value=True) for word in own), *rest]


def _join_letters(letters: Sequence[StyledWord], texts: Sequence[str]) -> list[StyledWord]:
    """The letters of a row as these words; as they are where they are not exactly those of the words."""
    row = sorted(letters, key=lambda letter: letter.box.x0)
    joined: list[StyledWord] = []
    for text in texts if len(row) > len(texts) else ():
        word = row.pop(0) if row else None
        while word and row and len(word.text) < len(text):
            word = join_words(word, row.pop(0))
        joined += [word] if word and word.text == text else []
    return joined if joined and len(joined) == len(texts) and not row else list(letters)


def _find_drawn_mark(words: Sequence[StyledWord], box: Rect) -> int | None:
    """The index of the one word in a box if it is a mark; a box with several words is drawn over its label."""
    inside = [index for index, word in enumerate(words) if box.contains(word.box.centre)]
    return inside[0] if len(inside) == 1 and len(words[inside[0]].text) <= MAX_MARK_LENGTH else None


def _set_value(field: PlacedField) -> Iterator[_Row]:
    """Yield the lines of a value that no appearance shows, as a program would set them in its box."""
    lines = [line.split() for line in field.value.splitlines() if line.strip()]
    size = min(VALUE_SIZE, field.box.height / (VALUE_LEADING * max(len(lines), 1)))
    for number, line in enumerate(lines):
        x, y = field.box.x0, field.box.y0 + VALUE_LEADING * size * number
        row = []
        for text in line:
            box = Rect(x, y, x + LETTER_WIDTH * size * len(text), y + size)
            row.append(StyledWord(box, text, 0, size=size, font=FORM_FIELD))
            x = box.x1 + LETTER_WIDTH * size
        yield row


# ---- their regions ----


def drop_borders(blocks: Sequence[Any], fields: Sequence[PlacedField]) -> list[Any]:
    """The blocks without what is drawn for the fields: their borders are no rules of a table."""
    boxes = [field.box.grow(BORDER) for field in fields]
    return [block for block in blocks if block["type"] != 3 or not _is_inside(Rect(*block["bbox"]), boxes)]


def _is_inside(drawing: Rect, boxes: Iterable[Rect]) -> bool:
    corners = (drawing.x0, drawing.y0), (drawing.x1, drawing.y1)
    return any(all(map(box.contains, corners)) for box in boxes)


def extend_regions(
    regions: Sequence[Region], words: Sequence[StyledWord], fields: Sequence[PlacedField]
) -> list[Region]:
    """Enlarge regions to include the fields beside their words: the layout model sees only their labels."""
    extended = list(regions)
    for field in fields:
        if any(region.box.contains(field.box.centre) for region in extended):
            continue
        label = _find_label(field, words, fields)
        index = next((i for i, region in enumerate(extended) if label and region.box.contains(label.box.centre)), None)
        if index is not None:
            extended[index] = replace(extended[index], box=extended[index].box.union(field.box))
    return extended


def _find_label(field: PlacedField, words: Sequence[StyledWord], fields: Sequence[PlacedField]) -> StyledWord | None:
    """The nearest word in the row of a field: behind a box, or else before it; before a field with a text."""
    is_box = field.checked is not None
    reach = (MAX_GAP if is_box else MAX_LABEL_GAP) * field.box.height
    row = [word for word in words if is_in_row(field.box, word.box) and not _is_of_field(word, fields)]
    behind = [word for word in row if 0 <= word.box.x0 - field.box.x1 + 1 <= reach]
    before = [word for word in row if 0 <= field.box.x0 - word.box.x1 + 1 <= reach]
    if is_box and behind:
        return min(behind, key=lambda word: word.box.x0)
    return max(before, key=lambda word: word.box.x1, default=None)


def is_in_row(one: Rect, other: Rect) -> bool:
    overlap = one.overlap_y(other)
    return overlap >= MIN_ROW_OVERLAP * min(one.height, other.height) > 0


def _is_of_field(word: StyledWord, fields: Iterable[PlacedField]) -> bool:
    return word.font == FORM_FIELD or _find_field(word, fields) is not None


def _find_field(word: StyledWord, fields: Iterable[PlacedField]) -> PlacedField | None:
    """The field that a word is a value of; words in a box that is drawn over its label are none."""
    is_mark = word.text in (CHECKED, UNCHECKED) and word.font == FORM_FIELD
    return next((f for f in fields if (f.checked is None) != is_mark and f.box.contains(word.box.centre)), None)


def is_form(region: Region, fields: Sequence[PlacedField]) -> bool:
    """Whether a region is a form: no table that rules enclose, and no running text with gaps to fill in."""
    own = _list_own(region, fields)
    return bool(own and region.words) and not _is_ruled(region) and not _is_running(region, own)


def _list_own(region: Region, fields: Sequence[PlacedField]) -> list[PlacedField]:
    """The fields in a region; of a wide field, the region may hold no more than the value at its left."""
    return [field for field in fields if region.box.contains(field.box.centre) or _has_value(region, field)]


def _has_value(region: Region, field: PlacedField) -> bool:
    return any(field.box.contains(word.box.centre) for word in region.words)


def join_forms(regions: Sequence[Region], fields: Sequence[PlacedField]) -> list[Region]:
    """Join the regions of a label and its value to one form, and the parts of a sentence around a value to one line.

    The layout model takes a column of labels for a region, and what stands before and behind a field for two.
    """
    joined, words = list(regions), [word for region in regions for word in region.words]
    for field in fields:
        label = _find_label(field, words, fields)
        parts = [
            region for region in joined if _has_value(region, field) or any(word is label for word in region.words)
        ]
        if len(parts) < 2 or any(map(_is_ruled, parts)):
            continue
        box, own = enclose([part.box for part in parts]), tuple(word for part in parts for word in part.words)
        whole = replace(parts[0], box=box, words=own)
        is_sentence = len(reading_order.group_rows(own)) == 1 and _is_running(whole, fields)
        if is_sentence or (is_form(whole, fields) and not any(_is_running(part, fields) for part in parts)):
            joined = [whole, *(region for region in joined if not any(region is part for part in parts))]
    return joined


def split_forms(regions: Sequence[Region], fields: Sequence[PlacedField]) -> list[Region]:
    """The regions, with forms as lines of a label and its value each, whatever they are labelled."""
    return [
        part
        for region in regions
        for part in (_split_form(region, _list_own(region, fields)) if is_form(region, fields) else [region])
    ]


def _is_ruled(region: Region) -> bool:
    if region.grid is None:
        return False
    lines = grid_lines.find_lines(region.box, region.grid, region.words)
    return lines.closed and min(lines.xs.slots, lines.ys.slots) > 1


def _is_running(region: Region, fields: Sequence[PlacedField]) -> bool:
    """Whether a text has fields in its lines, as contracts have: most lines have none, or many words beside them."""
    if region.label not in _PROSE:
        return False
    rows = reading_order.group_rows(region.words)
    filled = [row for row in rows if any(is_in_row(field.box, _enclose(row)) for field in fields)]
    begins_with_mark = any(row[0].text in (CHECKED, UNCHECKED) for row in rows)
    words = statistics.median(sum(not _is_of_field(word, fields) for word in row) for row in filled or rows)
    return not begins_with_mark and (words > MAX_LABEL_WORDS or 2 * len(filled) < len(rows))


def _enclose(row: Sequence[StyledWord]) -> Rect:
    return enclose([word.box for word in row])


def _split_form(region: Region, fields: Sequence[PlacedField]) -> Iterator[Region]:
    """Yield a region for each line of a form: a label with its value, a box with its label, or a text alone."""
    lines: list[_Row] = []
    for row in reading_order.group_rows(region.words):
        for part in _split_row(row, fields):
            if lines and _continues(lines[-1], part, fields):
                lines[-1] += part
            elif (label := _find_above(lines, part, fields)) is not None:
                lines[label] += part
            else:
                lines.append(part)
    size = statistics.median(word.size for word in region.words)
    for line in lines:
        yield Region("section-header" if _is_heading(line, size, fields) else "text", _enclose(line), tuple(line))


def _is_heading(line: Sequence[StyledWord], size: float, fields: Sequence[PlacedField]) -> bool:
    """Whether a line is the heading of a form's section: bold, larger than the labels, and without a field."""
    is_larger = min(word.size for word in line) >= HEADING_SIZE * size
    return is_larger and all(word.bold and not _is_of_field(word, fields) for word in line)


def _split_row(row: Sequence[StyledWord], fields: Sequence[PlacedField]) -> Iterator[_Row]:
    """Yield the parts of a row: a value ends one, a box with a label behind it begins one, wide gaps divide labels."""
    part: _Row = [row[0]]
    owner = _find_field(row[0], fields)
    for index, word in enumerate(row[1:], 1):
        field = _find_field(word, fields)
        if owner is not field and owner is not None:
            is_new = owner.checked is None or len(part) > 1  # a box alone has its label behind it
        elif field is not None:
            is_new = field is not owner and field.checked is not None and _has_label_behind(field, row[index + 1 :])
        else:
            is_new = word.box.x0 - part[-1].box.x1 > MAX_GAP * word.box.height
        if is_new:
            yield part
            part = []
        part.append(word)
        owner = field
    yield part


def _has_label_behind(field: PlacedField, following: Sequence[StyledWord]) -> bool:
    return bool(following) and following[0].box.x0 - field.box.x1 <= MAX_GAP * field.box.height


def _continues(line: Sequence[StyledWord], part: Sequence[StyledWord], fields: Sequence[PlacedField]) -> bool:
    """Whether a part without a field is a further line of the label behind a box, or of a paragraph."""
    below, last = _enclose(part), line[-1].box
    is_next = 0 < below.centre[1] - last.centre[1] <= MAX_ABOVE * last.height
    if not is_next or any(_is_of_field(word, fields) for word in part):
        return False
    if line[0].text in (CHECKED, UNCHECKED):
        return below.x0 >= line[0].box.x1
    row = [word for word in line if word.box.centre[1] > last.y0]
    is_flush = abs(below.x0 - _enclose(row).x0) <= FLUSH
    return is_flush and len(row) > MAX_LABEL_WORDS and not any(_is_of_field(word, fields) for word in line)


def _find_above(lines: Sequence[_Row], part: Sequence[StyledWord], fields: Sequence[PlacedField]) -> int | None:
    """The index of the label above a value that has none before it, or of the line that a value goes on from."""
    if not _is_of_field(part[0], fields) or part[0].text in (CHECKED, UNCHECKED):
        return None
    field = _find_field(part[0], fields)
    box = field.box if field else part[0].box
    begun = (n for n, line in enumerate(lines) if field and _find_field(line[-1], fields) is field)
    if (first := next(begun, None)) is not None:
        return first
    for index in reversed(range(len(lines))):
        above = _enclose(lines[index])
        if any(_is_of_field(word, fields) for word in lines[index]):
            continue
        if above.overlap_x(box) > 0 and 0 < box.y0 - above.centre[1] <= MAX_ABOVE * above.height:
            return index
    return None
