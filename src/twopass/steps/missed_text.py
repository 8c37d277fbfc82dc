"""Text that pass 1 missed: lines of ink and words of the text layer that are in no element become elements.

Ink only nominates, and RapidOCR decides, whatever engine reads the page. An element has the text that RapidOCR read, or
that of the layer; pass 2 asks a model about some of them, as about any doubtful element.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import chain, pairwise, product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import structlog

from twopass.detection import recall
from twopass.document import (
    Box,
    Checkpoint,
    Confidence,
    Element,
    Finding,
    FindingKind,
    Flag,
    Kind,
    State,
    Word,
    enclose,
)
from twopass.errors import WorkerDied
from twopass.families import agreement, content
from twopass.job import Pass2, Task
from twopass.pages import ocr
from twopass.pages.ink import PageInk, Turn
from twopass.pages.shared_pixels import Pixels
from twopass.pages.strips import Array
from twopass.pages.text_layer import TextLayer
from twopass.steps.page_context import PageContext
from twopass.text import prose
from twopass.text.confidence import judge_ocr, judge_unknown_layer

MAX_READ = 8  # lines of a page, those of the layer first, then the widest: each takes RapidOCR about 20 ms
MAX_TEXT = 120  # the same on a page of which most of the first MAX_READ are missed text
MIN_SCORE = 0.8  # of RapidOCR: shapes are read as letters with less
MIN_LETTERS = 2  # and digits, of a line
USUAL_DENSITY = 1.45  # characters for ink as wide as it is high: of the median element of a scan
MIN_ELEMENTS = 4  # of a page, for the median of its own: fonts differ
MIN_DENSITY = 0.88  # of the median: 5 % of complete elements have less
MIN_RUN = 3  # words of the layer beside each other that the element around them lacks; fewer are spelled otherwise
MAX_LACKING = 0.8  # of the layer's words in an element
MIN_SIMILARITY = 0.9  # with a part of the text, for a line of which letters were misread
MIN_SPARE_SIMILARITY = 0.6  # with words that the layer lacks, for words inside an element: layers of old scans are bad
MIN_OWN_SIMILARITY, MIN_SURE_SCORE = 0.8, 0.9  # for a line inside an element, and of RapidOCR
MIN_LIKENESS = 0.7  # the same, with a text that has no place: old print is misread more than that
MIN_AGREEMENT = 0.5  # of the layer with RapidOCR
MIN_LACKING = 8  # characters of an element, and letters of a line inside it: fewer are misread
SHORT = 6  # letters: shorter lines are compared with whole words
NEAR = 0.02  # of the page, around a line: one or two lines
PADDING = 0.3  # of a line's height, around the pixels that are read
SAME_PLACE = 0.004  # of the page, between the edges of a word that is printed twice
SAME_LINE, WIDE_GAP = 0.5, 3.0  # of a word's height: shift and gap between words of one line
SAME_WIDTH, NARROW_GAP = 0.1, 0.6  # of a word's width: shift and gap between words of a line up the page
SAME_BLOCK, SAME_HEIGHT = 1.0, 1.6  # between lines of one block: gap in heights, and ratio of their heights
SAME_COLUMN = 0.5  # of the narrower one's width, that two elements of one column share
_NUMBER = re.compile(r"\d+")
_WITHOUT_ANSWER = frozenset({State.BLANK, State.FAILED, State.UNREAD})

log = structlog.get_logger()


class KnownText(NamedTuple):
    """Where an element is, and its text. `is_compared`: it has every word of the layer in its boxes."""

    boxes: tuple[Box, ...]
    text: str
    is_compared: bool = True


class MissedLine(NamedTuple):
    """A line of text that no element has. `score` is RapidOCR's; None for words of the text layer.

    A line in a script that RapidOCR cannot read has no text.
    """

    box: Box
    text: str
    score: float | None = None


async def add(page: PageContext, first: Checkpoint) -> Checkpoint:
    """The page after pass 1, with elements for the text that it missed; pass 2 asks about some of them."""
    asks = page.family.canary is not None and page.job.pass2 is not Pass2.NONE
    known = [describe(element, bool(element.text) and not element.needs_reading) for element in first.elements]
    return await _add(page, first, known, page.missed_questions if asks else 0)


async def add_rest(page: PageContext, second: Checkpoint) -> Checkpoint:
    """The page after pass 2, with elements for words of the layer that elements lack which were read again."""
    if page.family.canary is None:  # nothing is read again
        return second
    known = [describe(element) for element in second.elements]
    lacking = _count_lacking(_list_words(page.rendered.words), _list_answer(known))
    return await _add(page, second, known, questions=0) if lacking.total() >= MIN_RUN else second


async def _add(page: PageContext, checkpoint: Checkpoint, known: Sequence[KnownText], questions: int) -> Checkpoint:
    """A page worker that dies of it costs nothing else: the page was read."""
    if page.job.task is not Task.DOCUMENT or checkpoint.page.state in _WITHOUT_ANSWER:
        return checkpoint
    rendered = page.rendered
    dpi = rendered.page.image.dpi if rendered.page.image else 0.0
    try:
        lines = await page.page_pool.call(find, rendered.pixels, dpi, known, rendered.words)
    except WorkerDied as error:
        log.warning("page not compared with its ink", page=page.number, code=error.code)
        return checkpoint.with_findings([Finding(kind=FindingKind.INK_UNCHECKED, said=error.message)])
    return _add_elements(checkpoint, lines, questions) if lines else checkpoint


def describe(element: Element, is_read: bool = True) -> KnownText:
    """`is_read`: its text is whole, so that a layer's words can be compared with it.

    A layer spells the words of figures and formulas differently.
    """
    is_compared = is_read and not element.is_figure and element.kind is not Kind.FORMULA
    return KnownText(element.boxes, " ".join(element.texts), is_compared)


# ---- elements --------------------------------------------------------------------------------------


def _add_elements(first: Checkpoint, lines: Sequence[MissedLine], questions: int) -> Checkpoint:
    """The page with an element for each block of lines. Pass 2 asks about the longest of them.

    What has no text is found by the audit, unless pass 2 reads it.
    """
    blocks = group_lines(lines)
    pairs = zip(blocks, first.iterate_free_ids(), strict=False)
    added = [_build_element(block, element_id, first.page.number) for block, element_id in pairs]
    asked = {element.id for element in sorted(added, key=lambda element: -len(element.text))[:questions]}
    boxes = [(index, box) for index, element in enumerate(first.elements) if (box := element.box)]
    places: dict[int, list[Element]] = defaultdict(list)
    for element in added:
        wanted = (Flag.DOUBTFUL if element.text else Flag.UNREAD_REGION,) if element.id in asked else ()
        places[_find_place(element, boxes, len(first.elements))].append(element.with_flags(*wanted))
    elements = chain.from_iterable((*places[n], *first.elements[n : n + 1]) for n in range(len(first.elements) + 1))
    findings = [
        Finding(kind=FindingKind.TEXT_MISSED, count=len(block), element=element.id, box=element.box)
        for block, element in zip(blocks, added, strict=True)
        if element.text
    ]
    return first.model_copy(update={"elements": tuple(elements)}).with_findings(findings)


def group_lines(lines: Sequence[MissedLine]) -> list[list[MissedLine]]:
    """Group lines of one source that stand below each other, from top to bottom."""
    blocks: list[list[MissedLine]] = []
    reach = SAME_BLOCK * max((line.box.height for line in lines), default=0.0)
    near: list[list[MissedLine]] = []  # blocks that end so close above a line that it may go on with them
    for line in sorted(lines, key=lambda line: (line.box.y0, line.box.x0)):
        near = [block for block in near if line.box.y0 - block[-1].box.y1 <= reach]
        block = next((block for block in near if _is_below(line, block[-1])), None)
        if block is None:
            blocks.append(block := [])
            near.append(block)
        block.append(line)
    return blocks


def _is_below(line: MissedLine, above: MissedLine) -> bool:
    heights = sorted((line.box.height, above.box.height))
    return (
        (line.score is None, bool(line.text)) == (above.score is None, bool(above.text))
        and heights[1] <= SAME_HEIGHT * heights[0]
        and line.box.y0 - above.box.y0 >= 0
        and line.box.y0 - above.box.y1 <= SAME_BLOCK * heights[1]
        and line.box.overlap_x(above.box) > 0
    )


def _build_element(lines: Sequence[MissedLine], element_id: str, page: int) -> Element:
    text = prose.unwrap("\n".join(line.text for line in lines))
    confidence, doubts = _judge(text, [line.score for line in lines if line.score is not None])
    element = Element(
        id=element_id,
        page=page,
        category=Kind.TEXT.category,
        kind=Kind.TEXT,
        boxes=(enclose(line.box for line in lines),),
        confidence=confidence,
        flags=(Flag.MISSED, *doubts),
    )
    return content.write(element, text)


def _judge(text: str, scores: Sequence[float]) -> tuple[Confidence | None, tuple[Flag, ...]]:
    if not text:
        return None, ()
    return judge_ocr(text, min(scores)) if scores else judge_unknown_layer(text)


def _find_place(element: Element, boxes: Sequence[tuple[int, Box]], end: int) -> int:
    """Behind the element above it in its column; else in front of the one below it, else at the end."""
    assert element.box
    box, above, below = element.box, [], []
    for index, other in boxes:
        if box.overlap_x(other) >= SAME_COLUMN * min(box.width, other.width):
            if other.centre[1] < box.centre[1]:
                above.append((other.y1, index))
            else:
                below.append((other.y0, index))
    if above:
        return max(above)[1] + 1
    return min(below)[1] if below else end


# ---- in a page worker ------------------------------------------------------------------------------


def find(pixels: Pixels, dpi: float, known: Sequence[KnownText], words: TextLayer) -> tuple[MissedLine, ...]:
    """The lines of text that no element has: those of the layer, and those of ink. Skewed scans are set upright."""
    array = pixels.array()
    ink = PageInk.find(array, dpi)
    skew = 0.0 if words else ink.measure_skew()
    if not skew:
        return _find(array, ink, known, words)
    turn = Turn(skew, pixels.width, pixels.height)
    array = turn.level_pixels(array)
    known = [one._replace(boxes=tuple(map(turn.level, one.boxes))) for one in known]
    found = _find(array, PageInk.find(array, dpi), known, words)
    return tuple(line._replace(box=turn.restore(line.box)) for line in found)


def _find(array: Array, ink: PageInk, known: Sequence[KnownText], words: TextLayer) -> tuple[MissedLine, ...]:
    boxes = [box for one in known for box in one.boxes]
    written = _check(array, list(_find_written(_drop_overprints(words), known, ink)))
    inked = [line.box for line in ink.find_lines([*boxes, *(line.box for line in written)])]
    read = list(_read(array, inked[:MAX_READ]))
    found = _drop_known(read, known)
    if 2 * len(found) > MAX_READ:
        found += _drop_known(_read(array, inked[MAX_READ:MAX_TEXT]), known)
    if not words:
        found += _find_lost(array, ink, known)
    unread = [box for box, line in zip(inked, read, strict=False) if line is None]
    return (*written, *found, *_find_unreadable(array, unread, known))


def _drop_known(lines: Iterable[MissedLine | None], known: Sequence[KnownText]) -> list[MissedLine]:
    return [line for line in lines if line and not _is_known(line, known)]


def _is_known(line: MissedLine, known: Sequence[KnownText]) -> bool:
    """Whether the text of an element beside the line has it: boxes are not exact, and letters are misread.

    The same words far away are other words, and so are those with other numbers. An element without a box may be
    anywhere, and short lines may be its.
    """
    place, is_short = line.box.grow(NEAR), len(_to_letters(line.text)) < SHORT
    anywhere = " ".join(one.text for one in known if not one.boxes)
    if anywhere and (is_short or _has(_to_letters(anywhere), line.text, MIN_LIKENESS)):
        return True
    texts = [one.text for one in known if any(place.intersects(box) for box in one.boxes)]
    if is_short:
        words = {_to_letters(word) for text in texts for word in text.split()}
        return all(_to_letters(word) in words for word in line.text.split())
    numbers = {number for text in texts for number in _NUMBER.findall(text)}
    return numbers.issuperset(_NUMBER.findall(line.text)) and _has(_to_letters(" ".join(texts)), line.text)


def _has(letters: str, line: str, similarity: float = MIN_SIMILARITY) -> bool:
    """Whether these letters have those of a line, of which some may be misread."""
    own = _to_letters(line)
    if len(letters) < similarity * len(own):  # else the similarity would be that of a part of the line
        return False
    return own in letters or agreement.find_part(own, letters) >= similarity


def _to_letters(text: str) -> str:
    return prose.strip_to_letters(text).casefold()


def is_text(text: str, score: float) -> bool:
    """Whether what RapidOCR read is text, and no shape or texture."""
    return score >= MIN_SCORE and _has_letters(text)


def _has_letters(text: str) -> bool:
    return sum(map(str.isalnum, text)) >= MIN_LETTERS


# ---- ink inside elements


def _find_lost(array: Array, ink: PageInk, known: Sequence[KnownText]) -> list[MissedLine]:
    """Lines of elements whose text is short for their ink; of long ones some are read, and all if one is lost."""
    found, left = list[MissedLine](), MAX_READ
    for one in _list_short(ink, known):
        boxes = [line.box for box in one.boxes for line in ink.find_lines_in(box)]
        tried = boxes[:: max(-(-len(boxes) // left), 1)]
        lost = _drop_own(_read(array, tried), known)
        rest = [box for box in boxes if box not in tried] if lost else []
        found += [*lost, *_drop_own(_read(array, rest[:MAX_TEXT]), known)]
        left -= len(tried)
        if left <= 0:
            break
    return found


def _list_short(ink: PageInk, known: Sequence[KnownText]) -> list[KnownText]:
    """The elements with fewer characters than others have on as much ink, those that lack the most first."""
    compared = [one for one in known if one.is_compared and one.boxes and ocr.knows_script(one.text)]
    counts = [len("".join(one.text.split())) for one in compared]
    lengths = [ink.measure_length(one.boxes) for one in compared]
    own = [count / length for count, length in zip(counts, lengths, strict=True) if length]
    usual = float(np.median(own)) if len(own) >= MIN_ELEMENTS else USUAL_DENSITY
    lacking = [usual * length - count for count, length in zip(counts, lengths, strict=True)]
    short = [n for n, length in enumerate(lengths) if counts[n] and counts[n] < MIN_DENSITY * usual * length]
    return [compared[n] for n in sorted(short, key=lambda n: -lacking[n]) if lacking[n] >= MIN_LACKING]


def _drop_own(lines: Iterable[MissedLine | None], known: Sequence[KnownText]) -> list[MissedLine]:
    return [line for line in lines if line and _is_lost(line, known)]


def _is_lost(line: MissedLine, known: Sequence[KnownText]) -> bool:
    """Whether the elements around a line lack it; short and doubtful lines are too often misread to say so."""
    own = _to_letters(" ".join(one.text for one in known if any(line.box.intersects(box) for box in one.boxes)))
    is_sure = (line.score or 0.0) >= MIN_SURE_SCORE and len(_to_letters(line.text)) >= MIN_LACKING
    return is_sure and not _has(own, line.text, MIN_OWN_SIMILARITY)


# ---- ink


def _read(array: Array, boxes: Sequence[Box]) -> Iterator[MissedLine | None]:
    """What RapidOCR reads in each box; None where that is no text."""
    for box, (text, score) in zip(boxes, _recognise(array, boxes), strict=True):
        is_line = is_text(text, score) and not _is_scrawl(text)
        yield MissedLine(box, text.strip(), round(score, 4)) if is_line else None


def _recognise(array: Array, boxes: Sequence[Box]) -> list[tuple[str, float]]:
    places = [_pad(box, array) for box in boxes]
    return ocr.recognise([array[y0:y1, x0:x1] for x0, y0, x1, y1 in places])


def _is_scrawl(text: str) -> bool:
    """Whether it is one letter again and again, as which the strokes of signatures and ornaments are read."""
    return len({letter.casefold() for letter in text if letter.isalnum()}) == 1 and not any(map(str.isdigit, text))


def _pad(box: Box, array: Array) -> tuple[int, int, int, int]:
    """A line with the space around it, in pixels."""
    height, width = array.shape[:2]
    return box.to_pixels(width, height, max(round(PADDING * box.height * height), 2))


def _find_unreadable(array: Array, boxes: Sequence[Box], known: Sequence[KnownText]) -> Iterator[MissedLine]:
    """Yield the boxes with a line of script, on a page in a script that RapidOCR cannot read."""
    if ocr.knows_script(" ".join(one.text for one in known)):
        return
    for box in boxes:
        x0, y0, x1, y1 = map(float, _pad(box, array))
        corners = ((x0, y0), (x1, y0), (x1, y1), (x0, y1))
        if ocr.is_line_of_script(array, ocr.OcrLine(corners, "", 0.0)):
            yield MissedLine(box, "", 0.0)


# ---- words of the text layer


def _find_written(words: TextLayer, known: Sequence[KnownText], ink: PageInk) -> Iterator[MissedLine]:
    """Yield runs of words of the layer that stand on ink and that the answer lacks.

    Words are counted: where the answer has all words of the layer, however often each, nothing is looked at.
    """
    tokens, answer = _list_words(words), _list_answer(known)
    lacking = _count_lacking(tokens, answer)
    if not lacking:
        return
    spare = _list_spare(answer, Counter(chain(*tokens)))
    corners = words.corners
    is_outside = [not found for found in recall.find_covered(corners, [box for one in known for box in one.boxes])]
    apart = recall.find_covered(corners, [box for one in known if not one.is_compared for box in one.boxes])
    is_lacking = np.array([all(token in lacking for token in own) for own in tokens]) & ~np.array(apart)
    for one in known if is_lacking.any() else ():
        inside = np.flatnonzero(recall.find_covered(corners, one.boxes))
        is_lacking[inside] &= _find_unmatched([tokens[n] for n in inside], prose.split_words(one.text))
        if is_lacking[inside].sum() > MAX_LACKING * inside.size:  # another text: it was misread
            is_lacking[inside] = False
    for run, outside in _list_runs(words, is_lacking, is_outside, ink):
        line = MissedLine(enclose(word.box for word in run), " ".join(word.text for word in run))
        is_text = _has_letters(line.text) and not prose.is_garbage(line.text)
        if is_text and not _has(spare, line.text, MIN_SIMILARITY if outside else MIN_SPARE_SIMILARITY):
            yield line


def _find_unmatched(words: Sequence[Sequence[str]], own: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Which words of the layer the text of an element lacks where they stand; the same words may be in other lines."""
    lacking = _count_lacking(words, own)
    if lacking.total() < MIN_RUN:
        return np.zeros(len(words), bool)
    tokens = [token for word in words for token in word]
    is_matched = np.zeros(len(tokens) + 1, bool)
    for start, _, size in SequenceMatcher(None, tokens, own, autojunk=False).get_matching_blocks():
        is_matched[start : start + size] = True
    ends = np.cumsum([0, *map(len, words)])
    return np.array(
        [
            not is_matched[start:end].any() and lacking.keys() >= set(word)
            for word, (start, end) in zip(words, pairwise(ends), strict=True)
        ],
        bool,
    )


def _drop_overprints(words: TextLayer) -> TextLayer:
    """The words without those that are printed again where they stand, to look bold or by mistake."""
    places: dict[tuple[str, int, int], list[Box]] = {}  # by text and cell of a grid: a word may be on a page often
    kept = []
    for word in words:
        column, row = int(word.box.x0 / SAME_PLACE), int(word.box.y0 / SAME_PLACE)
        cells = product((word.text,), (column - 1, column, column + 1), (row - 1, row, row + 1))
        near = chain.from_iterable(places.get(cell, ()) for cell in cells)
        if not any(max(abs(a - b) for a, b in zip(word.box, box, strict=True)) <= SAME_PLACE for box in near):
            kept.append(word)
            places.setdefault((word.text, column, row), []).append(word.box)
    return TextLayer.of(kept)


def _list_words(layer: TextLayer) -> list[list[str]]:
    """What counts as a word in each word of the layer."""
    return [prose.split_words(text) for text in layer.texts]


def _list_answer(known: Sequence[KnownText]) -> list[str]:
    return prose.split_words(" ".join(one.text for one in known))


def _count_lacking(tokens: Sequence[Sequence[str]], answer: Sequence[str]) -> Counter[str]:
    return Counter(chain(*tokens)) - Counter(answer)


def _list_spare(answer: Sequence[str], layer: Counter[str]) -> str:
    """The words of the answer that the layer lacks: what it spells differently is among them."""
    spare, left = [], layer.copy()
    for word in answer:
        if left[word] <= 0:
            spare.append(word)
        left[word] -= 1
    return _to_letters(" ".join(spare))


def _list_runs(
    words: TextLayer, is_lacking: Iterable[bool], is_outside: Sequence[bool], ink: PageInk
) -> Iterator[tuple[list[Word], bool]]:
    """Yield lacking words beside each other, and whether they are outside of all elements; inside, only several."""
    run: list[Word] = []
    was_outside = False
    for word, lacks, outside in zip(words, is_lacking, is_outside, strict=True):
        is_missed = lacks and ink.shows(word.box)
        if run and not (is_missed and outside == was_outside and _continues(run[-1], word)):
            if was_outside or len(run) >= MIN_RUN:
                yield run, was_outside
            run = []
        run += [word] if is_missed else []
        was_outside = outside
    if run and (was_outside or len(run) >= MIN_RUN):
        yield run, was_outside


def _continues(before: Word, word: Word) -> bool:
    one, other = before.box, word.box
    height = max(one.height, other.height)
    if abs(one.centre[1] - other.centre[1]) <= SAME_LINE * height and -height <= other.x0 - one.x1 <= WIDE_GAP * height:
        return True
    width = max(one.width, other.width)  # lines up or down the page are as wide as high letters
    is_level = max(abs(one.x0 - other.x0), abs(one.x1 - other.x1)) <= SAME_WIDTH * width
    return is_level and max(one.y0, other.y0) - min(one.y1, other.y1) <= NARROW_GAP * width


def _check(array: Array, written: Sequence[MissedLine]) -> list[MissedLine]:
    """The layer's lines without those in which RapidOCR, which tries some, reads nothing or something else.

    None if those are the most: then fonts lie, or another program misread a scan. What RapidOCR cannot read is kept.
    """
    readable = [line for line in written if line.box.width >= line.box.height and ocr.knows_script(line.text)]
    tried = readable[:MAX_READ]
    found = _recognise(array, [line.box for line in tried])  # poor print is read in part, with a low score
    wrong = [line for line, (text, _) in zip(tried, found, strict=True) if not _agree(line.text, text)]
    if 2 * len(wrong) > len(tried):
        return [line for line in written if line not in readable]
    return [line for line in written if line not in wrong]


def _agree(one: str, other: str) -> bool:
    return agreement.similarity(one, other) >= MIN_AGREEMENT
