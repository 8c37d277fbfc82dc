"""Recognise strips of pixels, one line of text each, with the Tesseract inside MuPDF and installed language files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from twopass.pages.strips import Array

DEBIAN_FOLDERS = "/usr/share/tesseract-ocr"  # one folder per version, with the language files in `tessdata`
SUFFIX = ".traineddata"
STDERR = 2  # as a file descriptor: Tesseract writes to it from C
UNKNOWN_PARAMETER = b"Warning: Parameter not found"
POINTS_PER_INCH = 72  # as the resolution of the pixels, so that MuPDF's points are pixels
WIDEST = 30_000  # pixels of one image; Tesseract takes at most 32,767
BASELINE_SHARE = 0.6  # of the strips' height: from there on down to 2.6, a baseline belongs to the first strip
INK_SHARE = 0.01  # of the pixels, the darkest ones, become black: a few may be specks
MAX_STEP = 1.5  # strip's heights from one letter of a word to the next
MAX_PIXELS = 20_000_000  # of one image with strips: 250 lines of A4 pages


class TesseractFailed(Exception):
    """Tesseract cannot read, because a language file is damaged or it refuses the pixels."""


@dataclass(frozen=True)
class Glyph:
    """One character and where it begins and ends, in pixels of its strip."""

    text: str
    x0: float
    x1: float


Word = list[Glyph]


def find_folder(own: Path | None = None) -> Path | None:
    """The folder of the language files: the user's own, else the one of Debian's packages; None if there is none."""
    return own or max(Path(DEBIAN_FOLDERS).glob("*/tessdata"), default=None)


def list_languages(folder: Path) -> frozenset[str]:
    """The codes of the languages and scripts whose files are in the folder."""
    return frozenset(path.name.removesuffix(SUFFIX) for path in folder.glob(f"*{SUFFIX}"))


def recognise(strips: Sequence[Array], language: str, height: int, folder: Path) -> list[list[Word]]:
    """Read the strips (RGB), scaled to one height in pixels: for each, its words from left to right.

    The characters of a word are in the order in which they are read. A call to Tesseract loads the language, which
    takes longer than reading a line, so as many strips as possible are read in one call. `language` may name several,
    with + between them. Raises TesseractFailed.
    """
    words: list[list[Word]] = []
    scaled = [_scale(strip, height) for strip in strips]
    for batch in _split_batches(scaled, height):
        words += _recognise_stack(batch, language, folder, height)
    return [
        [[_resize(glyph, strip.shape[1] / small.shape[1]) for glyph in word] for word in own]
        for own, strip, small in zip(words, strips, scaled, strict=True)
    ]


def _split_batches(strips: Sequence[Array], height: int) -> Iterator[Sequence[Array]]:
    """Strips whose stack is neither too tall nor too large."""
    start = 0
    while start < len(strips):
        stop, widest = start, 0
        while stop < len(strips):
            widest = max(widest, strips[stop].shape[1] + 2 * height)
            rows = (2 * (stop + 1 - start) + 1) * height
            if stop > start and (rows > WIDEST or rows * widest > MAX_PIXELS):
                break
            stop += 1
        yield strips[start:stop]
        start = stop


def _recognise_stack(strips: Sequence[Array], language: str, folder: Path, height: int) -> list[list[Word]]:
    """The words of strips that have this height."""
    words: list[list[Word]] = [[] for _ in strips]
    for chars in _read_stack(_stack(strips, height), language, folder):
        baseline = chars[0][2][1]  # near the lower edge of the strip, or a third of its height lower
        number = max(int(baseline - BASELINE_SHARE * height), 0) // (2 * height)
        if number < len(strips):
            words[number].append([Glyph(chr(code), box[0] - height, box[2] - height) for code, _, _, box in chars])
    return [drop_repeated(own, height) for own in words]


def drop_repeated(words: Sequence[Word], height: float) -> list[Word]:
    """The words of a strip from left to right, from those in the order in which Tesseract read them.

    It takes some strips for two lines or more, and reads the same letters in each: the longest line counts, and of the
    others what stands where it has no words.
    """
    kept: list[Word] = []
    pieces = [piece for word in words for piece in _split_at_jumps(word, MAX_STEP * height)]
    for line in sorted(_split_lines(pieces, height), key=lambda line: -sum(map(_measure, line))):
        kept += [word for word in line if sum(_overlap(word, other) for other in kept) <= _measure(word) / 2]
    return sorted(kept, key=_find_left)


def _split_at_jumps(word: Word, most: float) -> list[Word]:
    """MuPDF joins the last word of a line and the first of the next if no blank is between them."""
    steps = [abs(after.x0 - before.x0) for before, after in pairwise(word)]
    starts = [0, *(number for number, step in enumerate(steps, 1) if step > most), len(word)]
    return [word[start:stop] for start, stop in pairwise(starts)]


def _split_lines(words: Sequence[Word], height: float) -> list[list[Word]]:
    """Split where a word is more than a strip's height back from the one before, in the direction of most words."""
    lefts = [_find_left(word) for word in words]
    steps = [after - before for before, after in pairwise(lefts)]
    direction = 1 if sum(step > 0 for step in steps) >= len(steps) / 2 else -1
    starts = [0, *(number for number, step in enumerate(steps, 1) if direction * step < -height), len(words)]
    return [list(words[start:stop]) for start, stop in pairwise(starts)]


def _find_left(word: Word) -> float:
    return min(glyph.x0 for glyph in word)


def _find_right(word: Word) -> float:
    return max(glyph.x1 for glyph in word)


def _measure(word: Word) -> float:
    return _find_right(word) - _find_left(word)


def _overlap(one: Word, other: Word) -> float:
    return max(min(_find_right(one), _find_right(other)) - max(_find_left(one), _find_left(other)), 0.0)


def _read_stack(stack: Array, language: str, folder: Path) -> list[Any]:
    """The characters of each word, as MuPDF's text trace has them. Its text page would join and reverse Arabic ones."""
    import pymupdf

    colours = np.repeat(stack[:, :, None], 3, axis=2)  # MuPDF reads nothing in a grey pixmap
    pixmap = pymupdf.Pixmap(pymupdf.csRGB, stack.shape[1], stack.shape[0], colours.tobytes(), False)
    pixmap.set_dpi(POINTS_PER_INCH, POINTS_PER_INCH)
    try:
        with _hide_unknown_parameters():
            data = pixmap.pdfocr_tobytes(language=language, tessdata=str(folder))
    except pymupdf.mupdf.FzErrorBase as error:
        raise TesseractFailed(str(error)) from error
    with pymupdf.open("pdf", data) as document:
        return [span["chars"] for span in document[0].get_texttrace() if span["chars"]]


@contextmanager
def _hide_unknown_parameters() -> Iterator[None]:
    """Keep two warnings off stderr: some language files name parameters that newer versions of Tesseract lack.

    Tesseract has no setting for it that MuPDF lets through. What else it writes meanwhile is passed on afterwards.
    """
    with tempfile.TemporaryFile() as caught:
        stderr = os.dup(STDERR)
        os.dup2(caught.fileno(), STDERR)
        try:
            yield
        finally:
            os.dup2(stderr, STDERR)
            os.close(stderr)
            caught.seek(0)
            kept = b"".join(line for line in caught if not line.startswith(UNKNOWN_PARAMETER))
            if kept:
                os.write(STDERR, kept)


def _resize(glyph: Glyph, factor: float) -> Glyph:
    return Glyph(glyph.text, glyph.x0 * factor, glyph.x1 * factor)


def _scale(strip: Array, height: int) -> Array:
    """The strip in black on white and in this height; extremely long ones are compressed."""
    from PIL import Image

    width = min(max(round(strip.shape[1] * height / strip.shape[0]), 1), WIDEST - 2 * height)
    grey = Image.fromarray(_blacken(np.asarray(Image.fromarray(strip).convert("L"))))
    return np.asarray(grey.resize((width, height), Image.Resampling.BICUBIC))


def _blacken(grey: Array) -> Array:
    """The ink in black on white, whatever colours it has: Tesseract overlooks most light letters on a dark ground."""
    background, mean = float(np.median(grey)), float(grey.mean())
    if mean > background:
        grey, background = 255 - grey, 255 - background
    ink = float(np.quantile(grey, INK_SHARE))
    stretched = (grey - ink) * (255 / max(background - ink, 1.0))
    return np.asarray(np.clip(stretched, 0, 255), np.uint8)


def _stack(strips: Sequence[Array], height: int) -> Array:
    """Put strips of this height below each other on white, with half the height as margin above and below each."""
    width = max(strip.shape[1] for strip in strips) + 2 * height
    stack = np.full((2 * height * len(strips) + height, width), 255, np.uint8)
    for number, strip in enumerate(strips):
        top = height + 2 * height * number
        stack[top : top + height, height : height + strip.shape[1]] = strip
    return stack
