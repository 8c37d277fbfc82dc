"""Read lines in scripts that RapidOCR does not know, with Tesseract in the language that reads them best."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from itertools import combinations, groupby
from pathlib import Path

import structlog

from twopass.pages import hangul, tesseract
from twopass.pages.strips import Array, trim
from twopass.pages.tesseract import Glyph, TesseractFailed

HEIGHT, OTHER_HEIGHT = 40, 56  # pixels of the strips: Tesseract reads letters of 20 to 40 pixels best
THIRD_HEIGHT = 48  # read besides where there is little text
RETRY_HEIGHTS = (40, 52, 64)  # of a strip that Tesseract overlooks in a stack, alone: it may see it then
MAX_RETRIES = 8  # strips of a page, at 0.1 to 0.3 s a try
SAMPLES = 3  # lines in which the language is chosen, the longest ones
LITTLE_TEXT = 60  # letters of the samples
MIN_SHARE = 0.7  # of a line's characters, without digits and punctuation, that belong to the script
MIN_LETTERS = 6  # of the samples: a single smudge is the same letter in every size
MIN_RUN = 4  # equal characters in a row that two sizes must have in common: fewer occur by chance
CLEAR_QUALITY = 0.95  # no other language is tried: wrong ones have up to 0.87, in a single line
SURE_QUALITY = 0.99  # Tesseract is never certain
MAX_DIGITS = 12  # of a line without letters: a longer one is a script that looks like digits, such as Georgian
LATIN = "eng"  # read besides the language of the page, if its file is there


@dataclass(frozen=True)
class Script:
    """A script: its letters, as ranges of a regular expression, and Tesseract's languages, the preferred one first.

    `min_quality` is what the samples must have. Pages in other scripts had up to 0.72 in Cyrillic and Greek, which look
    like each other and like Latin, 0.62 in Hebrew, 0.5 in Arabic, Thai and Devanagari, and 0 in Hangul. The right ones
    had 0.89 in Cyrillic and Greek, 0.8 in Arabic, 0.65 in Thai, and 0.58 in Korean with many Latin words.
    """

    letters: str
    languages: tuple[str, ...]
    min_quality: float
    takes_latin: bool = False  # whether reading English besides leaves the script's own letters as they are


_CYRILLIC = Script("\u0400-\u052f", ("rus", "ukr", "bul", "srp", "bel", "mkd", "Cyrillic"), 0.8, takes_latin=True)
_HANGUL = Script("\uac00-\ud7a3\u1100-\u11ff\u3130-\u318f", ("kor", "Hangul"), 0.45)
_SCRIPTS = (
    _CYRILLIC,
    _HANGUL,
    Script("\u0600-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufefc", ("ara", "fas", "urd", "Arabic"), 0.7, True),
    Script("\u0590-\u05ff", ("heb", "Hebrew"), 0.7, True),
    Script("\u0370-\u03ff\u1f00-\u1fff\u00b5", ("ell", "Greek"), 0.8),
    Script("\u0900-\u097f", ("hin", "mar", "nep", "Devanagari"), 0.6),
    Script("\u0e00-\u0e7f", ("tha", "Thai"), 0.6),
)
# Languages of jobs (ISO 639-1) and Tesseract's, where these are not the same.
_CODES = {"ru": "rus", "uk": "ukr", "bg": "bul", "sr": "srp", "be": "bel", "mk": "mkd", "ko": "kor", "ar": "ara"}
_CODES |= {"fa": "fas", "ur": "urd", "he": "heb", "el": "ell", "hi": "hin", "mr": "mar", "ne": "nep", "th": "tha"}
_LIKE_CYRILLIC = frozenset("ABCEHKMOPTXYabceghikmnoprstuxy")
_RTL = re.compile("[\u0590-\u08ff]")
_NUMERALS = re.compile(r"\d")
_LATIN_LETTERS = re.compile("[A-Za-z\u00c0-\u024f]")
_PUNCTUATION = re.compile(r"[\s.,:;!?()\[\]\"'«»“”‘’%№/–—-]")

Recogniser = Callable[[Sequence[Array], str, int], list[list[list[Glyph]]]]
"""Reads strips in one of Tesseract's languages, scaled to a height in pixels; see `tesseract.recognise`."""

log = structlog.get_logger()


@dataclass(frozen=True)
class PageLanguage:
    """One of Tesseract's languages, and how well it reads the page, 0..1."""

    name: str
    score: float

    @property
    def is_korean(self) -> bool:
        return self.name in _HANGUL.languages


@dataclass(frozen=True)
class Tesseract:
    """The languages that can be read, and what reads them. It is sent to page workers."""

    languages: frozenset[str]
    recognise: Recogniser


def open_tesseract(folder: Path | None) -> Tesseract | None:
    """Tesseract with the language files of this folder; None if there are none of a script that is known here."""
    languages = tesseract.list_languages(folder) if folder else frozenset()
    known = languages & {LATIN, *(name for script in _SCRIPTS for name in script.languages)}
    return Tesseract(known, partial(_recognise, folder)) if folder and known - {LATIN} else None


def _recognise(folder: Path, strips: Sequence[Array], language: str, height: int) -> list[list[list[Glyph]]]:
    return tesseract.recognise(strips, language, folder, height)


def choose_language(engine: Tesseract, strips: Sequence[Array], hint: str | None) -> PageLanguage | None:
    """The installed language that reads the longest strips best; None if none reads them well.

    `hint` is the job's language, which is tried first; the pixels decide.
    """
    longest = sorted(strips, key=lambda strip: strip.shape[1] / strip.shape[0], reverse=True)
    samples, best = [trim(strip) for strip in longest[:SAMPLES]], None
    for name in list_candidates(engine.languages, hint):
        quality = _measure_quality(engine, samples, name)
        if quality >= _find_script(name).min_quality and (best is None or quality > best.score):
            best = PageLanguage(name, min(quality, SURE_QUALITY))
        if quality >= CLEAR_QUALITY:
            break
    return best


def read(
    engine: Tesseract, strips: Sequence[Array], language: PageLanguage, words: Sequence[Sequence[Glyph]] = ()
) -> list[str | None]:
    """Read strips that show one line each, RGB; None for each line that cannot be trusted.

    `words` are the Latin words of each strip of a Korean page.
    """
    if language.is_korean:
        return _read_korean(engine, strips, language.name, words or [()] * len(strips))
    script = _find_script(language.name)
    names = f"{language.name}+{LATIN}" if script.takes_latin and LATIN in engine.languages else language.name
    trimmed = [trim(strip) for strip in strips]
    texts = _read_texts(engine, trimmed, names, HEIGHT)
    for index in [index for index, text in enumerate(texts) if not text][:MAX_RETRIES]:
        alone = (_read_texts(engine, [trimmed[index]], names, height)[0] for height in RETRY_HEIGHTS)
        texts[index] = next(filter(None, alone), "")
    foreign = [index for index, text in enumerate(texts) if text and measure_share(text, language.name) < MIN_SHARE]
    others = _read_texts(engine, [trimmed[index] for index in foreign], names, OTHER_HEIGHT)
    untrusted = {
        index
        for index, other in zip(foreign, others, strict=True)
        if measure_share(texts[index], language.name, with_latin=True) < MIN_SHARE
        or measure_likeness([(texts[index], other)]) < script.min_quality
    }
    return [None if not text or index in untrusted else text for index, text in enumerate(texts)]


def _read_korean(
    engine: Tesseract, strips: Sequence[Array], name: str, words: Sequence[Sequence[Glyph]]
) -> list[str | None]:
    """Read Korean strips without their Latin words, and put these back into the text."""
    blanked = [hangul.blank(strip, own) for strip, own in zip(strips, words, strict=True)]
    lines = _recognise_or_warn(engine, [trim(strip) for strip in blanked], name, HEIGHT)
    texts: list[str | None] = []
    for pieces, strip, own in zip(lines, strips, words, strict=True):
        glyphs = [glyph for piece in pieces for glyph in piece]
        is_trusted = glyphs and measure_share("".join(glyph.text for glyph in glyphs), name) >= MIN_SHARE
        texts.append(hangul.join(glyphs, own, trim(strip)) or None if is_trusted else None)
    return texts


def is_lookalike(text: str, language: str) -> bool:
    """Whether all letters of a Latin reading look like letters of the language's script, such as Hacoca and насоса."""
    letters = {letter for letter in text if letter.isalpha()}
    return language in _CYRILLIC.languages and bool(letters) and letters <= _LIKE_CYRILLIC


def list_candidates(languages: frozenset[str], hint: str | None) -> list[str]:
    """The languages to try, at most one for each script beside the hint, which comes first."""
    prefix = (hint or "").split("-")[0]
    wanted = _CODES.get(prefix, prefix)
    groups = [[name for name in script.languages if name in languages] for script in _SCRIPTS]
    candidates = [wanted if wanted in group else group[0] for group in groups if group]
    return sorted(candidates, key=lambda name: name != wanted and wanted not in _find_script(name).languages)


def _find_script(language: str) -> Script:
    return next(script for script in _SCRIPTS if language in script.languages)


def _measure_quality(engine: Tesseract, samples: Sequence[Array], language: str) -> float:
    """How much stays the same when the samples are read in another size: text of a wrong script changes.

    Lines that Tesseract overlooks in one size say nothing.
    """
    texts = [_read_texts(engine, samples, language, HEIGHT)]
    text = "".join(texts[0])
    share = measure_share(text, language)
    if share < MIN_SHARE or count_letters(text, language) < MIN_LETTERS:
        return 0.0
    heights = (OTHER_HEIGHT,) if len(text) >= LITTLE_TEXT else (OTHER_HEIGHT, THIRD_HEIGHT)
    texts += [_read_texts(engine, samples, language, height) for height in heights]
    likenesses = (
        measure_likeness([pair for pair in zip(one, other, strict=True) if all(pair)])
        for one, other in combinations(texts, 2)
    )
    return share * min(likenesses)


def measure_likeness(pairs: Sequence[tuple[str, str]]) -> float:
    """How much of the text has equal runs in both readings of each pair, 0..1, whatever its spaces and capitals."""
    alike = total = 0
    for pair in pairs:
        one, other = ("".join(text.casefold().split()) for text in pair)
        blocks = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
        shortest = min(MIN_RUN, len(one), len(other))
        alike += 2 * sum(block.size for block in blocks if block.size >= shortest)
        total += len(one) + len(other)
    return alike / total if total else 0.0


def count_letters(text: str, language: str) -> int:
    """The letters of the language's script in a text."""
    return len(re.findall(f"[{_find_script(language).letters}]", text))


def measure_share(text: str, language: str, with_latin: bool = False) -> float:
    """The share of the language's letters, and of Latin ones if wanted, among the letters and signs of a text.

    Usual punctuation does not count, nor do digits if they are few or at most half of the rest: a text of nothing else
    has the share 0, because RapidOCR reads digits better.
    """
    signs = _PUNCTUATION.sub("", text)
    if len(_NUMERALS.findall(signs)) <= max(MAX_DIGITS, len(signs) / 2):
        signs = _NUMERALS.sub("", signs)
    own = count_letters(signs, language)
    latin = len(_LATIN_LETTERS.findall(signs)) if with_latin else 0
    return (own + latin) / len(signs) if signs else 0.0


def _read_texts(engine: Tesseract, strips: Sequence[Array], names: str, height: int) -> list[str]:
    """The text of each strip; "" where nothing was read. `names` are languages, with + between them."""
    lines = _recognise_or_warn(engine, strips, names, height)
    script = _find_script(names.partition("+")[0])
    is_rtl = bool(_RTL.match(script.letters))
    texts = [[" ".join("".join(glyph.text for glyph in word).split()) for word in line] for line in lines]
    return [" ".join(order_rtl(words) if is_rtl else words).strip() for words in texts]


def order_rtl(words: Sequence[str]) -> list[str]:
    """The words of a right-to-left line in reading order, from left-to-right order: Latin ones keep it."""
    runs = [list(run) for _, run in groupby(words, key=lambda word: bool(_LATIN_LETTERS.search(word)))]
    return [word for run in reversed(runs) for word in (run if _LATIN_LETTERS.search(run[0]) else reversed(run))]


def _recognise_or_warn(engine: Tesseract, strips: Sequence[Array], names: str, height: int) -> list[list[list[Glyph]]]:
    """Read the strips; nothing where Tesseract fails, for example because a language file is damaged."""
    try:
        return engine.recognise(strips, names, height)
    except TesseractFailed as error:
        log.warning("tesseract failed", languages=names, error=str(error))
        return [[] for _ in strips]
