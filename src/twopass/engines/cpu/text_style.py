"""Find the style of the spans of a line: bold, italic, one width for all letters, superscript or subscript."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from twopass.engines.cpu.geometry import Run

ITALIC, MONO, BOLD = 2, 8, 16  # bits of MuPDF's span flags
MAX_SCRIPT_SIZE = 0.85  # of the line's type size; scripts have 0.58 to 0.75
MIN_RAISE, MAX_RAISE = 0.15, 0.8  # of the line's type size, from its baseline up to that of a superscript
MIN_DROP, MAX_DROP = 0.05, 0.6  # the same down to that of a subscript
# Fonts of TeX and others whose descriptors lack the flags. Fonts of formulas have slanted letters without emphasis.
_BOLD = re.compile(r"bold|black|heavy|demi(?!lt)|-medi?$|^cmb|^cmssbx|^sfbx|^lmroman.*bold", re.IGNORECASE)
_ITALIC = re.compile(r"ital|obli|slant|^cmti|^cmsl|^cmbxti|^sfti|^sfsl", re.IGNORECASE)
_MONO = re.compile(r"courier|mono(?!type)|consol|typewriter|menlo|^cmtt|^sftt|^cmsltt|^lmtt", re.IGNORECASE)
_FORMULA = re.compile(r"math|symbol|^cmmi|^cmsy|^cmex|^msam|^msbm|^eufm|^rsfs|cmmi\d|cmsy\d", re.IGNORECASE)


def strip_subset(font: str) -> str:
    """A font's name without the prefixes of a subset, such as `ABCDEF+`."""
    return re.sub(r"^(?:[A-Z]{6}[+_])+", "", font)


def is_bold(span: Any) -> bool:
    return bool(span["flags"] & BOLD or _BOLD.search(strip_subset(span["font"])))


def is_mono(span: Any) -> bool:
    return bool(span["flags"] & MONO or _MONO.search(strip_subset(span["font"])))


def is_italic(span: Any) -> bool:
    return bool(span["flags"] & ITALIC or _ITALIC.search(strip_subset(span["font"])))


def find_styles(line: Any) -> list[str]:
    """The style of each span of a line, as the letters of `Run.style`; empty for plain text and formulas."""
    spans = line["spans"]
    main = max(spans, key=lambda span: (len(span["text"].strip()) * (span["size"] > 0), span["size"]))
    is_upright = abs(line["dir"][0]) > 0.99
    scripts = [_find_script(span, main) if is_upright else "" for span in spans]
    for index in range(1, len(spans) - 1):  # the comma of "1,2" is raised with its neighbours
        if _is_small_sign(spans[index], main) and scripts[index - 1] == scripts[index + 1]:
            scripts[index] = scripts[index - 1]
    return [_find_style(span) + script for span, script in zip(spans, scripts, strict=True)]


def _is_small_sign(span: Any, main: Any) -> bool:
    return span["size"] <= MAX_SCRIPT_SIZE * main["size"] and not any(map(str.isalnum, span["text"]))


def _find_style(span: Any) -> str:
    if _FORMULA.search(strip_subset(span["font"])):
        return ""
    return "b" * is_bold(span) + "i" * is_italic(span)


def _find_script(span: Any, main: Any) -> str:
    """`^` for a superscript and `_` for a subscript: smaller than the line's main span, and off its baseline."""
    size = main["size"]
    if span["size"] > MAX_SCRIPT_SIZE * size or not any(map(str.isalnum, span["text"])):
        return ""
    rise = (main["origin"][1] - span["origin"][1]) / size
    return "^" if MIN_RAISE <= rise <= MAX_RAISE else "_" if MIN_DROP <= -rise <= MAX_DROP else ""


def to_runs(styles: Sequence[str]) -> tuple[Run, ...]:
    """The runs of a word, from the style of each of its characters."""
    return tuple(run for run in _iterate_runs(styles) if run.style)


def _iterate_runs(styles: Sequence[str]) -> Iterator[Run]:
    start = 0
    for style, group in groupby(styles):
        end = start + len(list(group))
        yield Run(start, end, style)
        start = end
