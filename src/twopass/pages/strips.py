"""Measure the ink of strips of pixels that show one line of text each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
Contrast = npt.NDArray[np.float64]

TRIM_SHARE = 0.3  # of a strip's height at the top and at the bottom, where a neighbouring line may show
DARKEST = 0.98  # quantile of the contrast: lines have more dark pixels than 2 %
LETTER_SPAN = 0.3  # of a strip's height, from its highest to its lowest ink: rules, dashes and leaders have less
LETTER_REACH = 0.7  # of a strip's height: Chinese characters are the widest, half of one is 0.5


@dataclass(frozen=True)
class Letter:
    """One character that was read in a strip, where its middle is in pixels from the left, and its score 0..1."""

    text: str
    x: float
    score: float


def trim(strip: Array) -> Array:
    """Cut away the rows at the top and bottom that show parts of neighbouring lines: beyond the row with least ink."""
    height = strip.shape[0]
    edge = int(TRIM_SHARE * height)
    if edge < 2:
        return strip
    grey = strip.mean(axis=2)
    ink = np.abs(grey - np.median(grey)).sum(axis=1)
    top = edge - 1 - int(np.argmin(ink[:edge][::-1]))
    bottom = height - edge + int(np.argmin(ink[height - edge :]))
    return strip[top : bottom + 1]


def find_inked_columns(strip: Array) -> Flags:
    """Whether each column has ink."""
    return np.asarray(_find_ink(strip).any(axis=0))


def measure_coverage(strip: Array, letters: Sequence[float]) -> float:
    """The share of a strip's inked columns that are near a letter which was read; 1 without ink.

    `letters` are where they were read, in pixels from the left. Columns with a rule or a dot only do not count.
    """
    height = strip.shape[0]
    ink, rows = _find_ink(strip), np.arange(height)[:, None]
    span = np.where(ink, rows, -1).max(axis=0) - np.where(ink, rows, height).min(axis=0)
    columns = np.flatnonzero(span >= LETTER_SPAN * height)
    if not columns.size or not letters:
        return float(not columns.size)
    distances = np.abs(columns[:, None] - np.asarray(letters)[None, :]).min(axis=1)
    return float((distances <= LETTER_REACH * height).mean())


def measure_contrast(strip: Array) -> tuple[Contrast, float]:
    """How far each pixel is from the background in grey levels, and how far the darkest ones are."""
    grey = strip.mean(axis=2)
    contrast = np.abs(grey - np.median(grey))
    return contrast, float(np.quantile(contrast, DARKEST))


def _find_ink(strip: Array) -> Flags:
    """The pixels that differ from the background by half of what the most different ones do."""
    contrast, darkest = measure_contrast(strip)
    return np.asarray(contrast > max(darkest / 2, 1.0))
