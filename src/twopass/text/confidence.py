"""Turn what is known about a text into its confidence: how many of its words are likely to be right, and how we know.

The tables were fitted to measured word accuracy; docs/log/2026-11-confidence.md has the measurements.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from twopass.document import Confidence, ConfidenceMethod
from twopass.text.plausibility import measure_plausibility

UNCERTAIN = "uncertain"  # flag
UNREADABLE = "unreadable"  # flag
UNCERTAIN_BELOW = 0.85  # score: more than one word in seven is probably wrong
UNREADABLE_BELOW = 0.4  # score of a layer's words, apart from their structure
LONG_TEXT = 3000  # characters of one element: a page's text in one piece, whose columns are probably mixed
VISIBLE_LAYER = 0.98  # not compared with the pixels; 0.995 of the words were right
HIDDEN_LAYER = 0.6  # the same; OCR by other programs, of any quality
UNKNOWN_LAYER = 0.85  # it may be visible or hidden; between the two above, not measured
LOST_STRUCTURE, MIXED_ORDER = 0.3, 0.5  # limits of the score

IMPLAUSIBLE, MIN_WORDS = 0.5, 20  # share of plausible words below which a layer is noise, and words needed to say so

# (evidence, score), interpolated in between.
_BY_AGREEMENT = (
    (0.3, 0.1),
    (0.6, 0.4),
    (0.73, 0.5),
    (0.82, 0.72),
    (0.9, 0.85),
    (0.95, 0.93),
    (0.98, 0.96),
    (1.0, 0.99),
)
_BY_RECOGNISER = (
    (0.55, 0.1),
    (0.75, 0.3),
    (0.83, 0.5),
    (0.88, 0.65),
    (0.92, 0.77),
    (0.95, 0.8),
    (0.967, 0.88),
    (0.975, 0.92),
    (0.985, 0.97),
    (0.993, 0.985),
    (1.0, 0.99),
)


@dataclass(frozen=True)
class Evidence:
    """What is known about an element's text.

    `agreement` is that of layer and pixels, `recogniser` the mean score of OCR; None where there is none.
    """

    length: int
    agreement: float | None = None
    recogniser: float | None = None
    is_hidden: bool = False
    is_flat_formula: bool = False


def judge(evidence: Evidence) -> tuple[Confidence, tuple[str, ...]]:
    """The confidence, and the flags of a low one."""
    score, method = _judge_words(evidence)
    # OCR that is unsure leaves out what it cannot read; a layer may be noise.
    flags = (UNREADABLE,) if score < UNREADABLE_BELOW and evidence.recogniser is None else ()
    if evidence.is_flat_formula and score > LOST_STRUCTURE:
        score, method = LOST_STRUCTURE, ConfidenceMethod.LOST_STRUCTURE
    elif evidence.length > LONG_TEXT and score > MIXED_ORDER:
        score, method = MIXED_ORDER, ConfidenceMethod.MIXED_ORDER
    flags = (*flags, UNCERTAIN) if score < UNCERTAIN_BELOW else flags
    return Confidence(score=round(score, 4), method=method), flags


def judge_unknown_layer(text: str) -> tuple[Confidence, tuple[str, ...]]:
    """The same for a page's text layer that was used because nothing else could be read, and never compared."""
    plausibility, words = measure_plausibility(text)
    is_noise = words >= MIN_WORDS and plausibility < IMPLAUSIBLE
    score = round(UNKNOWN_LAYER * plausibility, 4) if is_noise else UNKNOWN_LAYER
    confidence = Confidence(score=score, method=ConfidenceMethod.UNKNOWN_LAYER)
    return confidence, (UNREADABLE, UNCERTAIN) if is_noise else ()


def _judge_words(evidence: Evidence) -> tuple[float, ConfidenceMethod]:
    if evidence.recogniser is not None:
        return interpolate(_BY_RECOGNISER, evidence.recogniser), ConfidenceMethod.OCR
    if evidence.agreement is not None:
        return interpolate(_BY_AGREEMENT, evidence.agreement), ConfidenceMethod.CHECKED_LAYER
    if evidence.is_hidden:
        return HIDDEN_LAYER, ConfidenceMethod.HIDDEN_LAYER
    return VISIBLE_LAYER, ConfidenceMethod.TEXT_LAYER


def interpolate(table: tuple[tuple[float, float], ...], value: float) -> float:
    """The score at `value`, on straight lines between the table's points; the first and last score beyond them."""
    values, scores = zip(*table, strict=True)
    return float(np.interp(value, values, scores))
