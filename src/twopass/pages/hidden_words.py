"""Find the words of a PDF page that nobody can see on it, and why. Runs in page workers, on pixels that are there.

Pixels decide: a word is hidden if it leaves no visible contrast where it stands. How it is drawn (its mode and opacity,
and what covers it) only says which words are looked at again, and explains those that are hidden. A scan's invisible
words stand on the ink of its image and count as seen. Words whose font draws nothing are not hidden but damaged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from twopass.document import Box, Rect
from twopass.pages import lying_fonts, own_ink
from twopass.pages.lying_fonts import FontWord
from twopass.pages.shared_pixels import Pixels
from twopass.pages.source_files import copy_pixels
from twopass.pages.text_layer import NO_LAYER, TextLayer

Array = npt.NDArray[np.uint8]
Sums = npt.NDArray[np.int32]  # an integral image: the marked pixels above and to the left of each pixel
Marks = npt.NDArray[np.bool_]  # one per word
Boxes = npt.NDArray[np.float64]  # one row per word: x0, y0, x1, y1 in pixels

CONTRAST = 18  # of 255, in red, green or blue, between neighbouring pixels: 7 pt in a grey of 0.93 has 18
MAX_SPECKS = 1  # pixels with contrast in the box of a word that cannot be seen
MAX_CHANGE = 0.01  # of a box's pixels that text changes on a picture, by rounding: light thin letters change 0.1
TOP, BOTTOM = 0.15, 0.12  # of a box's height that may hold strokes of the lines above and below
BANDS = (0.44, 0.55, 0.66, 0.77)  # of the height: between two of them, every letter and digit has strokes
ABOVE, BELOW = (-0.35, -0.1), (1.1, 1.35)  # of the height: bands in which a picture goes on, and text on paper does not
ROW_PX, ROW_WORDS, MAX_ROWS = 6, 4, 12  # invisible words that are read: in one row, and rows of a page
MIN_AGREEMENT = 0.5  # of what is read in place of invisible words with them
BINS = 6  # columns of a box in which strokes are looked for
MIN_SPREAD = 0.6  # of them with strokes in each band, in a word that stands on its letters: others are looked at again
MIN_SIDE = 4.0  # pixels of the part that is looked at: scanners write words without height
MIN_SIZE = 3.0  # pixels of type size: smaller letters may be too faint for CONTRAST on a page drawn that small
MIN_OPACITY = 0.1
MIN_LIKENESS = 0.75  # of the pixels to a word's own shape: words that are seen have 0.95 and more, others up to 0.55
MAX_COMPARED = 1000  # words of a page; each takes 0.15 ms
SURE_LIKENESS = 0.9  # beside a word without its shape: letters of words written over it may be the same by chance
CORE = (0.25, 0.8)  # of a box's height, from its top: the part in which even lines that are close do not meet
MAX_CROWD = 0.25  # of this part that lies in boxes of other words, before the word's own shape is looked for
COARSE = 3  # pixels that are one when boxes are counted
LARGE = 3.0  # times the median height: boxes of watermarks, which lie behind all words of a page
LIGHT = 0xC0  # in red, green and blue: a colour of letters that may be that of the paper
FLAT, SQUEEZED = 0.7, 0.25  # of the smallest size: height of a word, and width of its letters on average
OVER_WORDS = 0.4  # of an invisible word's box that lies on another word: it has no ink of its own
MIN_NOISE = 3  # letters of a word on a scan: OCR reads shorter ones in specks
SCAN_SHARE = 0.8  # of the page's area in images: words drawn below them are those of a scan
# Points, and shares of the page's shorter side: what is smaller in both is no text to read. A label has real 2 pt.
TINY = ((1.0, 0.01), (2.0, 0.0025))

_FILLED_OR_STROKED, _CLIP = 16 | 32, 64  # bits of MuPDF's flags of characters
_TEXT = ("fill_text", "stroke_text")  # functions of MuPDF's devices
_ALL_BUT_TEXT = (
    "fill_path", "stroke_path", "fill_shade", "fill_image", "fill_image_mask", "clip_path", "clip_stroke_path",
    "clip_text", "clip_stroke_text", "clip_image_mask", "pop_clip", "begin_mask", "end_mask", "begin_group",
    "end_group", "begin_tile", "end_tile",
)  # fmt: skip
_COVERS = frozenset({"fill-path", "fill-shade", "fill-image", "fill-imgmask"})  # entries of PyMuPDF's log of boxes


class Reason(StrEnum):
    """Why a word cannot be seen; the value completes "this text is"."""

    INVISIBLE = "written in an invisible mode"
    TRANSPARENT = "transparent"
    TINY = "too small to be read"
    COLOUR = "in the colour of its background"
    COVERED = "covered by something else"
    CLIPPED = "outside the part that is drawn"
    LAYER_OFF = "in a layer that is switched off"


@dataclass(frozen=True)
class Unseen:
    """What the layer of a page has and the page does not show.

    `hidden` are words that cannot be seen, each with its reason; MuPDF leaves out the last `lacking`. `undrawn` are
    words whose font draws nothing, and which the layer has all the same. `lying` are words whose font names other
    characters than it draws. `redactions` are boxes that are marked to be blacked out, and are not.
    """

    hidden: TextLayer = NO_LAYER
    reasons: tuple[Reason, ...] = ()
    undrawn: TextLayer = NO_LAYER
    lying: TextLayer = NO_LAYER
    redactions: tuple[Box, ...] = ()
    lacking: int = 0

    @property
    def hidden_in_layer(self) -> TextLayer:
        return self.hidden[: len(self.hidden) - self.lacking]

    def add_lacking(self, words: TextLayer, reason: Reason) -> Unseen:
        """Add hidden words that MuPDF's extraction lacks."""
        if not words:
            return self
        both, reasons = TextLayer.of([*self.hidden, *words]), (*self.reasons, *[reason] * len(words))
        return replace(self, hidden=both, reasons=reasons, lacking=self.lacking + len(words))


class Style(NamedTuple):
    """How a word is written: type size in points, colour as 0xRRGGBB, opacity of 255, MuPDF's flags, and its font."""

    size: float
    colour: int
    opacity: int
    flags: int
    font: str = ""

    @property
    def look(self) -> tuple[int, int, int, bool]:
        """What decides whether a letter can be seen, besides where it stands."""
        return self.colour, self.opacity, self.flags & (_FILLED_OR_STROKED | _CLIP), self.size < TINY[-1][0]

    @property
    def rgb(self) -> tuple[int, int, int]:
        return self.colour >> 16 & 255, self.colour >> 8 & 255, self.colour & 255

    @property
    def is_drawn(self) -> bool:
        return bool(self.flags & (_FILLED_OR_STROKED | _CLIP)) and self.opacity >= 255 * MIN_OPACITY


@dataclass(frozen=True)
class Drawing:
    """A page as it was drawn: its pixels, what it was drawn from at `zoom` pixels per point, and its share of images.

    `is_turned`: the pixels were turned after they were drawn, so that drawing again does not fit them.
    """

    array: Array
    display_list: Any
    zoom: float
    image_share: float
    is_turned: bool = False

    @property
    def smallest_size(self) -> float:
        """The type size in points below which text on a page of this size is too small to be read."""
        side = min(self.array.shape[:2]) / self.zoom
        return float(max(min(points, share * side) for points, share in TINY))

    @property
    def is_scan(self) -> bool:
        """Whether it is not drawn a second time."""
        return self.is_turned or self.image_share >= SCAN_SHARE


class Piece(NamedTuple):
    """A word, or a part of one, whose letters all look alike: its box in points, and the number of its word."""

    x0: float
    y0: float
    x1: float
    y1: float
    text: str
    block: int
    line: int
    style: Style
    word: int


def split_words(blocks: Sequence[Any], words: Sequence[Any]) -> list[Piece]:
    """Split words where the look of their letters changes, because a part of a word may be hidden.

    `blocks` are those of MuPDF's dictionary, `words` are MuPDF's, with the numbers of their block and line.
    """
    pieces: list[Piece] = []
    key, letters = (-1, -1), iter(tuple[_Letter, ...]())
    for number, (x0, y0, x1, y1, text, block, line, *_) in enumerate(words):
        if (block, line) != key:
            key, letters = (block, line), _iterate_letters(blocks[block]["lines"][line])
        own = [letter for _, letter in zip(text, letters, strict=False)]  # in this order: zip takes from the first
        if len({letter.style.look for letter in own}) > 1:
            pieces += _split_word(Piece(x0, y0, x1, y1, text, block, line, own[0].style, number), own)
        else:
            style = own[0].style if own else pieces[-1].style
            pieces.append(Piece(x0, y0, x1, y1, text, block, line, style, number))
    return pieces


def _split_word(word: Piece, letters: Sequence[_Letter]) -> Iterator[Piece]:
    """Yield the parts of a word whose letters look alike; the spans of letters end where their look changes."""
    for _, group in groupby(zip(letters, word.text, strict=False), key=lambda pair: pair[0].style.look):
        own = list(group)
        x0, y0, x1, y1 = zip(*(letter.box for letter, _ in own), strict=True)
        box = max(word.x0, min(x0)), max(word.y0, min(y0)), min(word.x1, max(x1)), min(word.y1, max(y1))
        yield Piece(*box, "".join(character for _, character in own), *word[5:7], own[0][0].style, word.word)


def join_seen(pieces: Sequence[Piece], is_seen: Marks) -> list[Piece]:
    """The words that are seen, whole if all of their pieces are."""
    joined: list[Piece] = []
    for _, group in groupby(zip(pieces, is_seen.tolist(), strict=True), key=lambda pair: pair[0].word):
        own = list(group)
        if len(own) == 1 or not all(seen for _, seen in own):
            joined += [piece for piece, seen in own if seen]
            continue
        x0, y0, x1, y1, texts, *_ = zip(*(piece for piece, _ in own), strict=True)
        whole = {"x0": min(x0), "y0": min(y0), "x1": max(x1), "y1": max(y1), "text": "".join(texts)}
        joined.append(own[0][0]._replace(**whole))
    return joined


class _Letter(NamedTuple):
    style: Style
    box: tuple[float, float, float, float]  # of its span


def _iterate_letters(line: Any) -> Iterator[_Letter]:
    """Yield the letters of a line that are part of a word."""
    for span in line["spans"]:
        style = Style(span["size"], span["color"], span["alpha"], span["char_flags"], span["font"])
        letter = _Letter(style, span["bbox"])
        yield from (letter for c in span["text"] if not (c <= " " or c == "\u00a0" or "\u202a" <= c <= "\u202e"))


def look(page: Any, drawing: Drawing, layer: TextLayer, styles: Sequence[Style]) -> tuple[Marks, Unseen]:
    """Which words of the page's layer can be seen, and the others; `styles` has one for each word.

    Without styles all of them count as seen.
    """
    if not styles:
        return np.ones(len(layer), bool), Unseen()
    hidden, undrawn = _Eyes(drawing, layer, styles).judge()
    if not (hidden.any() or undrawn.any()):
        return ~hidden, Unseen()
    reasons = tuple(_explain(page, drawing, layer, styles, np.flatnonzero(hidden).tolist()))
    return ~hidden, Unseen(layer.pick(hidden), reasons, layer.pick(undrawn))


def find_blank(pixels: Pixels, boxes: Sequence[Box]) -> tuple[int, ...]:
    """In a page worker: the indices of the boxes in which a page shows nothing."""
    array = pixels.array()
    found = []
    for index, box in enumerate(boxes):
        x0, y0, x1, y1 = box.to_pixels(pixels.width, pixels.height)
        part = array[y0:y1, x0:x1]
        # Nearly every box shows something, and a sixteenth of its pixels says so in little time.
        if all(_is_blank(some) for some in (part[::4, ::4], part)):
            found.append(index)
    return tuple(found)


def _is_blank(part: Array) -> bool:
    return not part.size or int((part.max((0, 1)).astype(int) - part.min((0, 1))).max()) <= CONTRAST


class _Eyes:
    """Looks at the words of one page."""

    def __init__(self, drawing: Drawing, layer: TextLayer, styles: Sequence[Style]) -> None:
        self._drawing = drawing
        height, width = drawing.array.shape[:2]
        self._boxes = _enlarge(layer.corners * (width, height, width, height))
        self._areas = np.prod(self._boxes[:, 2:] - self._boxes[:, :2], axis=1)
        least = MIN_NOISE if drawing.is_scan else 1
        self._has_letters = np.array([sum(map(str.isalnum, text)) >= least for text in layer.texts])
        self._is_drawn = np.array([style.is_drawn for style in styles])
        self._is_clip = np.array([bool(style.flags & _CLIP) for style in styles])
        sizes = np.array([style.size for style in styles])
        self._is_tiny = self._is_drawn & (sizes < drawing.smallest_size)
        self._is_tiny |= self._is_drawn & self._find_narrow(layer, drawing.smallest_size * drawing.zoom)
        self._is_large = sizes * drawing.zoom >= MIN_SIZE
        self._is_light = np.array([min(style.rgb) >= LIGHT for style in styles])
        self._texts = layer.texts

    def _find_narrow(self, layer: TextLayer, limit: float) -> Marks:
        """Words that are squeezed or flat, whatever the size of their letters."""
        height, width = self._drawing.array.shape[:2]
        sides = (layer.corners[:, 2:] - layer.corners[:, :2]) * (width, height)
        lengths = np.array([len(text) for text in layer.texts])
        is_squeezed = sides.max(1) < SQUEEZED * limit * lengths
        return np.asarray(is_squeezed | ((lengths >= MIN_NOISE) & (sides.min(1) < FLAT * limit)))

    def judge(self) -> tuple[Marks, Marks]:
        """Which words are hidden, and which are not drawn by their font."""
        edges = _find_edges(self._drawing.array)
        is_bare = self._count(edges) <= MAX_SPECKS
        hidden = (is_bare & (self._is_large | ~self._is_drawn)) | self._is_tiny
        hidden |= ~hidden & self._look_again(edges, hidden)
        hidden |= self._lack_shape(~hidden & self._is_drawn & self._has_letters & self._is_large)
        undrawn = self._find_undrawn(hidden & ~self._is_tiny & self._is_drawn)
        hidden &= self._has_letters & ~undrawn
        return hidden & ~self._is_tiny_everywhere(hidden), undrawn & self._has_letters

    def _is_tiny_everywhere(self, hidden: Marks) -> Marks:
        """Of a page that has nothing but tiny words, which is one drawn at a small scale."""
        is_all = bool((self._is_tiny | hidden | ~self._has_letters).all())
        return self._is_tiny if is_all else np.zeros_like(hidden)

    def _count(self, sums: Sums) -> npt.NDArray[np.int64]:
        x0, y0, x1, y1 = self._boxes.T
        height = y1 - y0
        return _sum_boxes(sums, x0, x1, y0 + TOP * height, y1 - BOTTOM * height)

    def _are_on_texture(self, invisible: Marks, edges: Sums) -> Marks:
        """Of invisible words, those on pixels that do not read like them, and that go on above and below."""
        doubtful = invisible & (self._measure_spread(edges, ABOVE) > MIN_SPREAD)
        doubtful &= self._measure_spread(edges, BELOW) > MIN_SPREAD
        indices = np.flatnonzero(doubtful).tolist()
        rows = [list(group) for _, group in groupby(indices, key=lambda index: round(self._boxes[index, 3] / ROW_PX))]
        words = [[self._to_font_word(index) for index in row][:ROW_WORDS] for row in rows[:MAX_ROWS]]
        found = np.zeros_like(invisible)
        for row, agreement in zip(rows, lying_fonts.measure_agreement(words, self._drawing.array), strict=False):
            found[row] = agreement < MIN_AGREEMENT
        return found

    def _to_font_word(self, index: int) -> FontWord:
        return FontWord(self._texts[index], Rect(*self._boxes[index].tolist()), "", 0.0)

    def _measure_spread(self, sums: Sums, bands: Sequence[float]) -> npt.NDArray[np.float64]:
        """The share of each box's columns that have a marked pixel, in the band in which the fewest have: a rule has
        pixels in one band only.
        """
        x0, y0, x1, y1 = self._boxes.T
        sides = [x0 + n / BINS * (x1 - x0) for n in range(BINS + 1)]
        edges = [y0 + share * (y1 - y0) for share in bands]
        shares = [
            np.mean([_sum_boxes(sums, *across, *down) > 0 for across in pairwise(sides)], axis=0)
            for down in pairwise(edges)
        ]
        return np.asarray(np.min(shares, axis=0))

    def _look_again(self, edges: Sums, hidden: Marks) -> Marks:
        """Words on ink that is not theirs.

        The doubtful ones are drawn words whose pixels do not look like theirs, and those on images or invisible.
        """
        spread = self._measure_spread(edges, BANDS)
        seen = self._is_drawn & ~hidden
        on_other_ink = self._lie_on(seen, ~self._is_drawn) | (~self._is_drawn & (spread < MIN_SPREAD))
        doubtful = seen & self._has_letters & ~self._is_clip & (spread < MIN_SPREAD)
        if self._drawing.is_scan:
            return on_other_ink
        on_other_ink |= self._are_on_texture(~self._is_drawn & ~hidden & ~on_other_ink & self._has_letters, edges)
        if self._drawing.image_share:
            doubtful |= seen & ~self._is_clip
        if not doubtful.any():
            return on_other_ink
        changes = self._count(_find_changes(self._drawing))
        return np.asarray(on_other_ink | (doubtful & (changes <= np.maximum(MAX_SPECKS, MAX_CHANGE * self._areas))))

    def _lack_shape(self, seen: Marks) -> Marks:
        """Of these words, those without their own shape where they lie on others, or may have the paper's colour."""
        lacking = np.zeros_like(seen)
        heights = self._boxes[:, 3] - self._boxes[:, 1]
        usual = seen & ~self._is_clip & (heights <= LARGE * np.median(heights))
        doubtful = np.flatnonzero(usual & (self._is_light | (self._measure_crowd(usual) > MAX_CROWD)))[:MAX_COMPARED]
        if self._drawing.is_scan or not len(doubtful):
            return lacking
        drawing, texts = self._drawing, [self._texts[index] for index in doubtful]
        found = own_ink.measure(drawing.display_list, drawing.zoom, drawing.array, texts, list(self._boxes[doubtful]))
        is_unlike = np.array(found) < MIN_LIKENESS
        is_beside = np.append(is_unlike[1:], False) | np.append(False, is_unlike[:-1])
        lacking[doubtful] = is_unlike | (is_beside & (np.array(found) < SURE_LIKENESS))
        for index in np.flatnonzero(lacking).tolist():
            lacking[index] = not self._has_copy(index, seen & ~lacking)
        return lacking

    def _has_copy(self, index: int, seen: Marks) -> bool:
        """Whether the same word is seen in nearly the same place: this one is its shadow, or makes it bold."""
        x0, y0, x1, y1 = self._boxes[index]
        meets = (
            (self._boxes[:, 0] < x1) & (self._boxes[:, 2] > x0) & (self._boxes[:, 1] < y1) & (self._boxes[:, 3] > y0)
        )
        return any(self._texts[other] == self._texts[index] for other in np.flatnonzero(meets & seen))

    def _measure_crowd(self, usual: Marks) -> npt.NDArray[np.float64]:
        """The share of each box's core that lies in the cores of the other boxes that are counted."""
        x0, y0, x1, y1 = self._boxes.T
        height = y1 - y0
        cores = np.array((x0, y0 + CORE[0] * height, x1, y0 + CORE[1] * height)) / COARSE
        sides = np.ceil(np.array(self._drawing.array.shape[:2]) / COARSE).astype(int)
        left, top, right, bottom = cores[:, usual].round().clip(0, sides[[1, 0, 1, 0], None]).astype(int)
        counts = np.zeros(sides + 1, np.int32)
        for y, x, sign in ((top, left, 1), (bottom, right, 1), (top, right, -1), (bottom, left, -1)):
            np.add.at(counts, (y, x), sign)
        counts = counts.cumsum(0).cumsum(1)  # of the boxes in which each place lies
        crowded = np.pad((counts[:-1, :-1] > 1).astype(np.int32), ((1, 0), (1, 0))).cumsum(0).cumsum(1)
        areas = np.maximum((cores[2] - cores[0]) * (cores[3] - cores[1]), 1.0)
        return np.asarray(_sum_boxes(crowded, cores[0], cores[2], cores[1], cores[3]) / areas)

    def _lie_on(self, others: Marks, words: Marks) -> Marks:
        """Which of these words lie for the most part on the others, which hardly overlap each other."""
        x0, y0, x1, y1 = self._boxes[words].T[:, :, None]
        a0, b0, a1, b1 = self._boxes[others].T[:, None, :]
        across = (np.minimum(x1, a1) - np.maximum(x0, a0)).clip(0)
        down = (np.minimum(y1, b1) - np.maximum(y0, b0)).clip(0)
        found = np.zeros_like(words)
        found[words] = (across * down).sum(1) > OVER_WORDS * self._areas[words]
        return found

    def _find_undrawn(self, bare: Marks) -> Marks:
        """Of the words without ink, those that draw nothing even alone on the page, on white and on black."""
        if self._drawing.is_turned or not bare.any():
            return np.zeros_like(bare)
        drawn = (_find_edges(_draw(self._drawing, _ALL_BUT_TEXT, paper)) for paper in (0, 255))
        return bare & (sum(map(self._count, drawn)) == 0)


# ---- pixels ----


def _enlarge(boxes: Boxes) -> Boxes:
    """The boxes, each at least MIN_SIDE high and wide."""
    centres, sides = (boxes[:, :2] + boxes[:, 2:]) / 2, np.maximum(boxes[:, 2:] - boxes[:, :2], MIN_SIDE)
    return np.concatenate((centres - sides / 2, centres + sides / 2), 1)


def _find_edges(array: Array) -> Sums:
    """Where neighbouring pixels differ."""
    import cv2

    gradient = cv2.morphologyEx(array, cv2.MORPH_GRADIENT, np.ones((3, 3), np.uint8))
    return _sum_above(np.asarray(gradient, np.uint8), CONTRAST)


def _find_changes(drawing: Drawing) -> Sums:
    """Where the page looks different with its text."""
    import cv2

    return _sum_above(np.asarray(cv2.absdiff(drawing.array, _draw(drawing, _TEXT, 255)), np.uint8), CONTRAST)


def _sum_above(array: Array, limit: int) -> Sums:
    import cv2

    low = np.asarray(cv2.inRange(array, (0, 0, 0), (limit, limit, limit)), np.uint8)
    return np.asarray(cv2.integral(1 - (low & 1)), np.int32)


def _sum_boxes(sums: Sums, x0: Any, x1: Any, y0: Any, y1: Any) -> npt.NDArray[np.int64]:
    height, width = sums.shape[0] - 1, sums.shape[1] - 1
    left, right = np.floor(x0).clip(0, width).astype(int), np.ceil(x1).clip(0, width).astype(int)
    top, bottom = np.floor(y0).clip(0, height).astype(int), np.ceil(y1).clip(0, height).astype(int)
    return np.asarray(sums[bottom, right] - sums[top, right] - sums[bottom, left] + sums[top, left], np.int64)


def _draw(drawing: Drawing, without: Sequence[str], paper: int) -> Array:
    """The page on paper of this brightness, drawn without what these functions of MuPDF's device draw."""
    import pymupdf

    mupdf, height, width = pymupdf.mupdf, *drawing.array.shape[:2]
    rgb = mupdf.FzColorspace(mupdf.FzColorspace.Fixed_RGB)
    pixels = mupdf.fz_new_pixmap_with_bbox(rgb, mupdf.FzIrect(0, 0, width, height), mupdf.FzSeparations(), 0)
    mupdf.fz_clear_pixmap_with_value(pixels, paper)
    zoom = mupdf.FzMatrix(drawing.zoom, 0, 0, drawing.zoom, 0, 0)
    device = mupdf.fz_new_draw_device(zoom, pixels)
    for name in without:
        setattr(device.m_internal, name, None)  # MuPDF skips functions that a device lacks
    everywhere = mupdf.FzRect(mupdf.FzRect.Fixed_INFINITE)
    mupdf.fz_run_display_list(drawing.display_list.this, device, mupdf.FzMatrix(), everywhere, mupdf.FzCookie())
    mupdf.fz_close_device(device)
    return copy_pixels(pymupdf.Pixmap("raw", pixels))


# ---- reasons ----


def _explain(
    page: Any, drawing: Drawing, layer: TextLayer, styles: Sequence[Style], hidden: Sequence[int]
) -> Iterator[Reason]:
    """Yield why each of the hidden words cannot be seen."""
    height, width = drawing.array.shape[:2]
    log = page.get_bboxlog()
    for index in hidden:
        style, box = styles[index], layer.corners[index]
        if style.flags & _CLIP or not style.flags & _FILLED_OR_STROKED:
            yield Reason.INVISIBLE
        elif not style.is_drawn:
            yield Reason.TRANSPARENT
        elif style.size < drawing.smallest_size:
            yield Reason.TINY
        elif _is_covered(log, page, box):
            yield Reason.COVERED
        else:
            x0, y0, x1, y1 = (box * (width, height, width, height)).astype(int).tolist()
            part = drawing.array[y0 : y1 + 1, x0 : x1 + 1].reshape(-1, 3)
            is_same = part.size > 0 and np.abs(np.median(part, axis=0) - style.rgb).max() <= 2 * CONTRAST
            yield Reason.COLOUR if is_same else Reason.CLIPPED


def _is_covered(log: Sequence[Any], page: Any, box: npt.NDArray[np.float64]) -> bool:
    """Whether something that was drawn after the word lies over most of it."""
    import pymupdf

    width, height = page.rect.width, page.rect.height
    own = pymupdf.Rect(*(box * (width, height, width, height))) * page.derotation_matrix
    texts = (n for n, (kind, part) in enumerate(log) if "text" in kind and pymupdf.Rect(part).intersects(own))
    first = next(texts, -1)  # not the last, which may have been written on the cover
    return any(
        abs(pymupdf.Rect(part) & own) >= OVER_WORDS * abs(own) for kind, part in log[first + 1 :] if kind in _COVERS
    )
