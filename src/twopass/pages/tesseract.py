"""Recognise strips of pixels, one line of text each, with the Tesseract inside MuPDF and installed language files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.uint8]

DEBIAN_FOLDERS = "/usr/share/tesseract-ocr"  # one folder per version, with the language files in `tessdata`
SUFFIX = ".traineddata"
POINTS_PER_INCH = 72  # as the resolution of the pixels, so that MuPDF's points are pixels
BASELINE_SHARE = 0.6  # of the strips' height: from there on down to 2.6, a baseline belongs to the first strip
TALLEST = 12_000  # pixels of one image with strips; Tesseract takes at most 32,767


@dataclass(frozen=True)
class Glyph:
    """One character and where it begins and ends, in pixels of its strip."""

    text: str
    x0: float
    x1: float


def find_folder(own: Path | None = None) -> Path | None:
    """The folder of the language files: the user's own, else the one of Debian's packages; None if there is none."""
    return own or max(Path(DEBIAN_FOLDERS).glob("*/tessdata"), default=None)


def list_languages(folder: Path) -> frozenset[str]:
    """The codes of the languages and scripts whose files are in the folder."""
    return frozenset(path.name.removesuffix(SUFFIX) for path in folder.glob(f"*{SUFFIX}"))


def recognise(strips: Sequence[Array], language: str, folder: Path, height: int) -> list[list[list[Glyph]]]:
    """Read the strips (RGB), scaled to one height in pixels: for each, its words from left to right.

    The characters of a word are in the order in which they are read. A call to Tesseract loads the language, which
    takes longer than reading a line, so as many strips as possible are read in one call.
    """
    words: list[list[list[Glyph]]] = []
    at_once = TALLEST // (2 * height)
    for start in range(0, len(strips), at_once):
        words += _recognise_stack(strips[start : start + at_once], language, folder, height)
    return words


def _recognise_stack(strips: Sequence[Array], language: str, folder: Path, height: int) -> list[list[list[Glyph]]]:
    import pymupdf

    stack = _stack([_scale(strip, height) for strip in strips], height)
    pixmap = pymupdf.Pixmap(pymupdf.csRGB, stack.shape[1], stack.shape[0], stack.tobytes(), False)
    pixmap.set_dpi(POINTS_PER_INCH, POINTS_PER_INCH)
    words: list[list[list[Glyph]]] = [[] for _ in strips]
    # A span of the trace is one of Tesseract's words. MuPDF's text page would join, split and reverse Arabic ones.
    with pymupdf.open("pdf", pixmap.pdfocr_tobytes(language=language, tessdata=str(folder))) as document:
        spans = document[0].get_texttrace()
    for chars in (span["chars"] for span in spans if span["chars"]):
        baseline = chars[0][2][1]  # near the lower edge of the strip, or a third of its height lower
        number = max(int(baseline - BASELINE_SHARE * height), 0) // (2 * height)
        if number < len(strips):
            factor = strips[number].shape[0] / height
            words[number].append(
                [Glyph(chr(code), (box[0] - height) * factor, (box[2] - height) * factor) for code, _, _, box in chars]
            )
    return [sorted(own, key=lambda word: min(glyph.x0 for glyph in word)) for own in words]


def _scale(strip: Array, height: int) -> Array:
    from PIL import Image

    width = max(round(strip.shape[1] * height / strip.shape[0]), 1)
    return np.asarray(Image.fromarray(strip).resize((width, height), Image.Resampling.BICUBIC))


def _stack(strips: Sequence[Array], height: int) -> Array:
    """Put strips of this height below each other on white, with half the height as margin above and below each."""
    width = max(strip.shape[1] for strip in strips) + 2 * height
    stack = np.full((2 * height * len(strips) + height, width, 3), 255, np.uint8)
    for number, strip in enumerate(strips):
        top = height + 2 * height * number
        stack[top : top + height, height : height + strip.shape[1]] = strip
    return stack
