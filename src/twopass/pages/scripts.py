"""Read lines in scripts that RapidOCR does not know, with Tesseract in the language that reads them best."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

import numpy as np

from twopass.pages import tesseract
from twopass.pages.tesseract import Array, Glyph

HEIGHT, OTHER_HEIGHT = 40, 56  # pixels of the strips: Tesseract reads letters of 20 to 40 pixels best
RETRY_HEIGHTS = (40, 52, 64)  # of a strip that Tesseract overlooks in a stack, alone: it may see it then
MAX_RETRIES = 8  # strips of a page, at 0.1 to 0.3 s a try
SAMPLES = 3  # lines in which the language is chosen, the longest ones
MIN_SHARE = 0.7  # of a line's characters, without digits and punctuation, that belong to the script
MIN_QUALITY = 0.85  # of the samples: wrong languages have up to 0.82 (Arabic on English), the right one 1.0
MAX_DIGITS = 12  # of a line without letters: a longer one is a script that looks like digits, such as Georgian
CLEAR_QUALITY = 0.9  # no other language is tried
SURE_QUALITY = 0.99  # Tesseract is never certain
GAP_SHARE = 0.4  # of the distance of Hangul letters: gaps in words have 0.0 to 0.35, spaces 0.45 and more
LATIN_GAP_SHARE = 0.7  # between digits or Latin letters, which fonts for Hangul set wide
TRIM_SHARE = 0.3  # of a strip's height at the top and at the bottom, where a neighbouring line may show

# The letters of each script, and Tesseract's languages that read it, the preferred one first.
_SCRIPTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "\u0400-\u052f": ("rus", "ukr", "bul", "srp", "bel", "mkd", "Cyrillic"),
        "\uac00-\ud7a3\u1100-\u11ff\u3130-\u318f": ("kor", "Hangul"),
        "\u0600-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufefc": ("ara", "fas", "urd", "Arabic"),
        "\u0590-\u05ff": ("heb", "Hebrew"),
        "\u0370-\u03ff\u1f00-\u1fff\u00b5": ("ell", "Greek"),
        "\u0900-\u097f": ("hin", "mar", "nep", "Devanagari"),
        "\u0e00-\u0e7f": ("tha", "Thai"),
    }
)
# Languages of jobs (ISO 639-1) and Tesseract's, where these are not the same.
_CODES = {"ru": "rus", "uk": "ukr", "bg": "bul", "sr": "srp", "be": "bel", "mk": "mkd", "ko": "kor", "ar": "ara"}
_CODES |= {"fa": "fas", "ur": "urd", "he": "heb", "el": "ell", "hi": "hin", "mr": "mar", "ne": "nep", "th": "tha"}
_HANGUL = ("kor", "Hangul")
_CYRILLIC = _SCRIPTS["\u0400-\u052f"]
_LIKE_CYRILLIC = frozenset("ABCEHKMOPTXYabceghikmnoprstuxy")
_RTL = re.compile("[\u0590-\u08ff]")

Recogniser = Callable[[Sequence[Array], str, int], list[list[list[Glyph]]]]
"""Reads strips in one of Tesseract's languages, scaled to a height in pixels; see `tesseract.recognise`."""


@dataclass(frozen=True)
class Reading:
    """What Tesseract read: its language, a score 0..1, and the text of every line; None where it cannot be trusted."""

    language: str
    score: float
    texts: tuple[str | None, ...]


@dataclass(frozen=True)
class Tesseract:
    """The languages that can be read, and what reads them."""

    languages: frozenset[str]
    recognise: Recogniser


def open_tesseract(folder: Path | None) -> Tesseract | None:
    """Tesseract with the language files of this folder; None if there are none of a script that is known here."""
    languages = tesseract.list_languages(folder) if folder else frozenset()
    known = languages & {name for names in _SCRIPTS.values() for name in names}
    return Tesseract(known, partial(_recognise, folder)) if folder and known else None


def _recognise(folder: Path, strips: Sequence[Array], language: str, height: int) -> list[list[list[Glyph]]]:
    return tesseract.recognise(strips, language, folder, height)


def read(engine: Tesseract, strips: Sequence[Array], hint: str | None) -> Reading | None:
    """Read strips that show one line each, RGB. None if no language that is installed reads them.

    `hint` is the job's language, which is tried first; the pixels decide.
    """
    trimmed = [trim(strip) for strip in strips]
    samples = sorted(trimmed, key=lambda strip: strip.shape[1] / strip.shape[0], reverse=True)[:SAMPLES]
    found = _choose_language(engine, samples, hint)
    return _read_all(engine, trimmed, *found) if found else None


def read_in(engine: Tesseract, strips: Sequence[Array], found: Reading) -> Reading:
    """Read strips in the language of another reading of the page."""
    return _read_all(engine, [trim(strip) for strip in strips], found.language, found.score)


def _read_all(engine: Tesseract, trimmed: Sequence[Array], language: str, quality: float) -> Reading:
    texts = _read_texts(engine, trimmed, language, HEIGHT)
    for index in [index for index, text in enumerate(texts) if not text][:MAX_RETRIES]:
        alone = (_read_texts(engine, [trimmed[index]], language, height)[0] for height in RETRY_HEIGHTS)
        texts[index] = next(filter(None, alone), "")
    checked = tuple(text if text and measure_share(text, language) >= MIN_SHARE else None for text in texts)
    return Reading(language, min(quality, SURE_QUALITY), checked)


def is_lookalike(text: str, language: str) -> bool:
    """Whether all letters of a Latin reading look like letters of the language's script, such as Hacoca and насоса."""
    letters = {letter for letter in text if letter.isalpha()}
    return language in _CYRILLIC and bool(letters) and letters <= _LIKE_CYRILLIC


def list_candidates(languages: frozenset[str], hint: str | None) -> list[str]:
    """The languages to try, at most one for each script beside the hint, which comes first."""
    prefix = (hint or "").split("-")[0]
    wanted = _CODES.get(prefix, prefix)
    groups = [[name for name in names if name in languages] for names in _SCRIPTS.values()]
    candidates = [wanted if wanted in group else group[0] for group in groups if group]
    return sorted(candidates, key=lambda name: name != wanted and wanted not in _find_group(name))


def _find_group(language: str) -> tuple[str, ...]:
    return next((names for names in _SCRIPTS.values() if language in names), ())


def _find_letters(language: str) -> str:
    """The letters of a language's script, as ranges of a regular expression."""
    return next((letters for letters, names in _SCRIPTS.items() if language in names), "")


def _choose_language(engine: Tesseract, samples: Sequence[Array], hint: str | None) -> tuple[str, float] | None:
    """The language that reads the samples best, and how well: None if none does it well."""
    best: tuple[str, float] | None = None
    for language in list_candidates(engine.languages, hint):
        quality = _measure_quality(engine, samples, language)
        if quality >= MIN_QUALITY and (best is None or quality > best[1]):
            best = language, quality
        if quality >= CLEAR_QUALITY:
            break
    return best


def _measure_quality(engine: Tesseract, samples: Sequence[Array], language: str) -> float:
    """How much stays the same when the samples are read in another size: text of a wrong script changes.

    Lines that Tesseract overlooks in one size say nothing.
    """
    texts = _read_texts(engine, samples, language, HEIGHT)
    share = measure_share("".join(texts), language)
    if share < MIN_SHARE:
        return 0.0
    others = _read_texts(engine, samples, language, OTHER_HEIGHT)
    pairs = [(one, other) for one, other in zip(texts, others, strict=True) if one and other]
    return share * statistics.mean(_compare(*pair) for pair in pairs) if pairs else 0.0


def _compare(one: str, other: str) -> float:
    """How alike two readings of a line are, 0..1, whatever their spaces and capitals."""
    one, other = ("".join(text.casefold().split()) for text in (one, other))
    return SequenceMatcher(None, one, other, autojunk=False).ratio()


def measure_share(text: str, language: str) -> float:
    """The share of the language's letters among the letters and signs of a text.

    Usual punctuation does not count, nor do digits if they are few or at most half of the rest: a text of nothing else
    has the share 1.
    """
    letters = _find_letters(language)
    signs = re.sub(r"[\s.,:;!?()\[\]\"'«»“”‘’%№/–—-]", "", text)
    if len(re.findall(r"\d", signs)) <= max(MAX_DIGITS, len(signs) / 2):
        signs = re.sub(r"\d", "", signs)
    return len(re.findall(f"[{letters}]", signs)) / len(signs) if signs and letters else float(bool(text.strip()))


def _read_texts(engine: Tesseract, strips: Sequence[Array], language: str, height: int) -> list[str]:
    lines = engine.recognise(strips, language, height)
    if language in _HANGUL:
        pairs = zip(lines, strips, strict=True)
        return [space_hangul([glyph for piece in line for glyph in piece], strip) for line, strip in pairs]
    is_rtl = bool(_RTL.match(_find_letters(language)))
    return [_join_pieces(line[::-1] if is_rtl else line) for line in lines]


def _join_pieces(pieces: Sequence[Sequence[Glyph]]) -> str:
    return " ".join(" ".join("".join(glyph.text for glyph in piece).split()) for piece in pieces).strip()


def space_hangul(glyphs: Sequence[Glyph], strip: Array) -> str:
    """The text of a Korean line: Tesseract takes each letter for a word, so the spaces are where the gaps are wide."""
    letters = [glyph for glyph in glyphs if glyph.text.strip()]
    if len(letters) < 2:
        return "".join(letter.text for letter in letters)
    centres = [(letter.x0 + letter.x1) / 2 for letter in letters]
    distance = float(np.quantile(np.diff(centres), 0.4))
    inked = find_inked_columns(strip)
    text = letters[0].text
    for (one, other), (start, end) in zip(pairwise(letters), pairwise(centres), strict=True):
        is_narrow = one.text.isascii() and other.text.isascii() and (one.text + other.text).isalnum()
        required = (LATIN_GAP_SHARE if is_narrow else GAP_SHARE) * distance
        text += (" " if _measure_gap(inked[max(int(start), 0) : max(int(end), 0)]) >= required else "") + other.text
    return text


def find_inked_columns(strip: Array) -> list[bool]:
    grey = strip.mean(axis=2)
    threshold = (np.median(grey) + np.quantile(grey, 0.02)) / 2
    return [bool(value) for value in (grey < threshold).any(axis=0)]


def _measure_gap(inked: Sequence[bool]) -> int:
    """The longest run of columns without ink."""
    longest = run = 0
    for value in inked:
        run = 0 if value else run + 1
        longest = max(longest, run)
    return longest


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
