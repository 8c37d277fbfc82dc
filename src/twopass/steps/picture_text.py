"""Text in pictures that nobody read: stamps, logos, labels, screenshots, of any size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import structlog

from twopass.document import Box, Checkpoint, Element, Figure, Flag, Rect, State
from twopass.errors import WorkerDied
from twopass.families import content
from twopass.job import Task
from twopass.pages import ocr
from twopass.pages.shared_pixels import Pixels
from twopass.steps import missed_text
from twopass.steps.page_context import PageContext
from twopass.text import hyphenation, prose
from twopass.text.confidence import judge_ocr

MAX_LINES = 40  # of a page: each takes RapidOCR about 20 ms
MIN_SIDE = 16  # pixels of a picture: a smaller one is a bullet or an icon
SAME_ROW = 0.5  # of a line's height, between the middles of lines in one row
_WITH_ANSWER = frozenset({State.READ, State.REPAIRED})

log = structlog.get_logger()


class PictureText(NamedTuple):
    """What RapidOCR read in a picture, from top to bottom, and its lowest score."""

    text: str
    score: float


async def read(page: PageContext, checkpoint: Checkpoint) -> Checkpoint:
    """The page with the text of its pictures: that of the PDF, else what RapidOCR reads in their pixels.

    A page worker that dies of it costs nothing else: the page was read.
    """
    if page.job.task is not Task.DOCUMENT or checkpoint.page.state not in _WITH_ANSWER:
        return checkpoint
    wordless = {element.id: element for element in checkpoint.elements if _is_wordless(element)}
    layer = {name: page.rendered.words.inside(element.boxes) for name, element in wordless.items()}
    written = {name: _write_layer(wordless[name], words) for name, words in layer.items() if words}
    places = {name: element.box for name, element in wordless.items() if name not in written and element.box}
    if places:
        others = [box for one in checkpoint.elements if one.text and not one.is_figure for box in one.boxes]
        pixels = page.rendered.pixels
        try:
            found = await page.page_pool.call(read_pixels, pixels, list(places.values()), others)
        except WorkerDied as error:
            log.warning("text in pictures not read", page=page.number, code=error.code)
            found = ()
        pairs = zip(places, found, strict=False)
        written |= {name: _write_ocr(wordless[name], text) for name, text in pairs if text}
    elements = tuple(written.get(element.id, element) for element in checkpoint.elements)
    return checkpoint.model_copy(update={"elements": elements})


def _is_wordless(element: Element) -> bool:
    figure = element.figure or Figure()
    has_words = element.text or figure.visible_text or figure.data
    return element.is_figure and not has_words and Flag.PICTURE_PAGE not in element.flags


def _write_layer(element: Element, words: str) -> Element:
    return element if prose.is_garbage(words) else _write(element, hyphenation.restore_line_ends(words))


def _write_ocr(element: Element, found: PictureText) -> Element:
    confidence, doubts = judge_ocr(found.text, found.score)
    written = _write(element, found.text).with_flags(Flag.IMAGE_TEXT, *doubts)
    return written if element.confidence else written.model_copy(update={"confidence": confidence})


def _write(element: Element, text: str) -> Element:
    figure = element.figure or Figure()
    if figure.description:  # what the model says of the picture stays its text
        return element.model_copy(update={"figure": figure.model_copy(update={"visible_text": text})})
    return content.write(element, text)


# ---- in a page worker ------------------------------------------------------------------------------


def read_pixels(pixels: Pixels, places: Sequence[Box], others: Sequence[Box]) -> tuple[PictureText | None, ...]:
    """What each place shows outside the boxes of the others; None where that is no text."""
    array, left, texts = pixels.array(), MAX_LINES, list[PictureText | None]()
    for place in places:
        x0, y0, x1, y1 = place.to_pixels(pixels.width, pixels.height)
        crop = array[y0:y1, x0:x1]
        quads = ocr.detect_quickly(crop) if left and min(x1 - x0, y1 - y0) >= MIN_SIDE else []
        own = [quad for quad in quads if not _is_in(quad, others, x0, y0, pixels)][:left]
        left -= len(own)
        read = ocr.read_lines(crop, own).lines if own else ()
        lines = [line for line in read if missed_text.is_text(line.text, line.score)]
        texts.append(_join(lines) if lines else None)
    return tuple(texts)


def _is_in(quad: ocr.Corners, boxes: Sequence[Box], left: int, top: int, pixels: Pixels) -> bool:
    x, y = Rect.around(quad).centre
    centre = (x + left) / pixels.width, (y + top) / pixels.height
    return any(box.contains(centre) for box in boxes)


def _join(lines: Sequence[ocr.OcrLine]) -> PictureText:
    """The lines in rows from top to bottom, each from left to right."""
    rows: list[list[ocr.OcrLine]] = []
    for line in sorted(lines, key=lambda line: line.box.centre[1]):
        if rows and line.box.centre[1] - rows[-1][0].box.centre[1] <= SAME_ROW * line.height:
            rows[-1].append(line)
        else:
            rows.append([line])
    texts = (" ".join(line.text for line in sorted(row, key=lambda line: line.box.x0)) for row in rows)
    return PictureText("\n".join(texts), min(line.score for line in lines))
