"""Read lines in scripts that RapidOCR does not know, with Tesseract in the language that reads them best."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from itertools import combinations, groupby, pairwise
from pathlib import Path
from statistics import mean

import numpy as np
import structlog

from twopass.pages import tesseract
from twopass.pages.strips import Array, Letter, Mask, find_inked_columns, trim
from twopass.pages.tesseract import Glyph, TesseractFailed

# ---- spaces and Latin words of Korean lines ----

GAP_SHARE = 0.4  # of the distance of Hangul letters: gaps in words have 0.0 to 0.35, spaces 0.45 and more
MIXED_GAP_SHARE = 0.3  # between a Latin word and Hangul
LATIN_GAP_SHARE = 0.7  # between digits or Latin letters, which fonts for Hangul set wide
WORD_GAP = 0.2  # of a strip's height: words are further apart, most letters of a word nearer
MIN_LATIN_LETTERS = 2  # of a Latin word: RapidOCR sees single ones in Hangul
SURE_LATIN = 0.9  # mean, of the letters of a Latin word that is kept
DOUBTFUL_SCORE = 0.5  # of a line with Latin words that RapidOCR cannot read: Tesseract reads something else there
MAX_STEP = 2.5  # of the median distance of a word's letters, between two of them


@dataclass(frozen=True)
class LatinWords:
    """The Latin words of a strip, and a low score if it has some that cannot be read."""

    words: tuple[Glyph, ...] = ()
    score: float = 1.0


NO_LATIN = LatinWords()


def find_latin_words(
    strip: Array, letters: Sequence[Letter], recognise: Callable[[Array], Sequence[Letter]]
) -> LatinWords:
    """The Latin words of a Korean line, in which RapidOCR read these letters.

    Pieces of ink with Latin letters are read again one by one, because RapidOCR is surer of them alone.
    """
    latin = [letter.x for letter in letters if letter.text.isascii() and letter.text.isalpha()]
    words, score = [], 1.0
    for x0, x1 in _split_words(strip):
        run = _find_run(recognise(_pad(strip, x0, x1))) if any(x0 <= x < x1 for x in latin) else []
        if not _is_word(run):
            continue
        start, end = _find_ends(strip, x0, x1, run)
        if not _is_sure(run):  # without the Hangul letters around it
            run = _find_run(recognise(_pad(strip, start, end)))
        if _is_sure(run):
            words.append(Glyph("".join(letter.text for letter in run), start, end))
        else:
            score = DOUBTFUL_SCORE
    return LatinWords(tuple(words), score)


def _is_word(run: Sequence[Letter]) -> bool:
    return sum(letter.text.isalpha() for letter in run) >= MIN_LATIN_LETTERS


def _is_sure(run: Sequence[Letter]) -> bool:
    return _is_word(run) and mean(letter.score for letter in run) >= SURE_LATIN


def _pad(strip: Array, x0: int, x1: int) -> Array:
    """The part of a strip with half its height of background on both sides, which RapidOCR needs."""
    background = np.median(strip, axis=(0, 1)).astype(np.uint8)
    margin = np.broadcast_to(background, (strip.shape[0], strip.shape[0] // 2, 3))
    return np.hstack([margin, strip[:, x0:x1], margin])


def _find_run(letters: Sequence[Letter]) -> list[Letter]:
    """The first ASCII letters and digits, as long as none is far from the one before."""
    ascii_letters = [letter for letter in letters if letter.text.isascii() and letter.text.isalnum()]
    steps = [other.x - one.x for one, other in pairwise(ascii_letters)]
    limit = MAX_STEP * float(np.median(steps)) if steps else 0.0
    end = next((n for n, step in enumerate(steps, 1) if step > limit), len(ascii_letters))
    return ascii_letters[:end]


def _find_ends(strip: Array, x0: int, x1: int, run: Sequence[Letter]) -> tuple[int, int]:
    """The columns where a word begins and ends: where its piece of ink does, or at the gap to a Hangul letter."""
    left = x0 - strip.shape[0] // 2  # where the padded piece begins
    half = (run[-1].x - run[0].x) / (len(run) - 1) / 2
    gaps = [x0, *(x0 + np.flatnonzero(~find_inked_columns(strip)[x0:x1])), x1]
    start, end = (min(gaps, key=lambda gap: abs(gap - x)) for x in (left + run[0].x - half, left + run[-1].x + half))
    return (int(start), int(end)) if start < end else (x0, x1)


def _split_words(strip: Array) -> list[tuple[int, int]]:
    """First column and end of each piece of ink with wide gaps around it: a word or a part of one."""
    columns = np.flatnonzero(find_inked_columns(strip))
    if not columns.size:
        return []
    breaks = np.flatnonzero(np.diff(columns) > WORD_GAP * strip.shape[0])
    starts, ends = [columns[0], *columns[breaks + 1]], [*columns[breaks], columns[-1]]
    return [(int(start), int(end) + 1) for start, end in zip(starts, ends, strict=True)]


def _blank(strip: Array, words: Sequence[Glyph]) -> Array:
    """The strip without the ink of these words."""
    blanked = strip.copy()
    for word in words:
        blanked[:, int(word.x0) : int(np.ceil(word.x1))] = np.median(strip, axis=(0, 1)).astype(np.uint8)
    return blanked


def join_korean(glyphs: Sequence[Glyph], words: Sequence[Glyph], strip: Array) -> str:
    """The text of a Korean line from its letters, in their order, and its Latin words. Wide gaps are spaces."""
    letters = [glyph for glyph in glyphs if glyph.text.strip()]
    pieces = _insert(letters, words)
    if len(letters) < 2:
        return " ".join(piece.text for piece in pieces)
    distance = float(np.quantile(np.diff([_find_centre(letter) for letter in letters]), 0.4))
    inked = find_inked_columns(strip)
    text = pieces[0].text
    for one, other in pairwise(pieces):
        gap = _measure_gap(inked[max(int(_find_end(one)), 0) : max(int(_find_start(other)), 0)])
        text += (" " if gap >= _find_space(one, other) * distance else "") + other.text
    return text


def _insert(letters: Sequence[Glyph], words: Sequence[Glyph]) -> list[Glyph]:
    pieces = list(letters)
    for word in sorted(words, key=lambda word: word.x0):
        pieces.insert(sum(_find_centre(piece) < _find_centre(word) for piece in pieces), word)
    return pieces


def _find_space(one: Glyph, other: Glyph) -> float:
    """How wide a gap must be to be a space, in distances of Hangul letters."""
    if len(one.text) > 1 and len(other.text) > 1:
        return 0.0  # Latin words
    if len(one.text) > 1 or len(other.text) > 1:
        return MIXED_GAP_SHARE
    is_narrow = one.text.isascii() and other.text.isascii() and (one.text + other.text).isalnum()
    return LATIN_GAP_SHARE if is_narrow else GAP_SHARE


def _find_centre(piece: Glyph) -> float:
    return (piece.x0 + piece.x1) / 2


def _find_start(piece: Glyph) -> float:
    """A column in its ink, from which on a gap before it is measured: the boxes of single letters are not exact."""
    return piece.x0 + 1 if len(piece.text) > 1 else _find_centre(piece)


def _find_end(piece: Glyph) -> float:
    return piece.x1 - 1 if len(piece.text) > 1 else _find_centre(piece)


def _measure_gap(inked: Mask) -> int:
    """The longest run of columns without ink."""
    longest = run = 0
    for value in inked:
        run = 0 if value else run + 1
        longest = max(longest, run)
    return longest


# ---- all scripts ----

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
SIGN_HEIGHTS = (40, 48, 32, 56, 36, 44, 60)  # in which a sign is read until
SIGN_READINGS = 4  # of them agree: Tesseract sees nothing in some, and wrong languages agreed in three at most
MIN_SIGN_LETTERS, MIN_SIGN_SYLLABLES = 4, 2  # of a sign: each of Hangul says more
SIGN_SCORE = 0.9  # of what is read so
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
    spaced: bool = True  # whether blanks separate its words: where none do, Tesseract puts some between letters


_CYRILLIC = Script("\u0400-\u052f", ("rus", "ukr", "bul", "srp", "bel", "mkd", "Cyrillic"), 0.8, takes_latin=True)
_HANGUL = Script("\uac00-\ud7a3\u1100-\u11ff\u3130-\u318f", ("kor", "Hangul"), 0.45)
_SCRIPTS = (
    _CYRILLIC,
    _HANGUL,
    Script("\u0600-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufefc", ("ara", "fas", "urd", "Arabic"), 0.7, True),
    Script("\u0590-\u05ff", ("heb", "Hebrew"), 0.7, True),
    Script("\u0370-\u03ff\u1f00-\u1fff\u00b5", ("ell", "Greek"), 0.8),
    Script("\u0900-\u097f", ("hin", "mar", "nep", "Devanagari"), 0.6),
    Script("\u0e00-\u0e7f", ("tha", "Thai"), 0.6, spaced=False),
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
    return Tesseract(known, partial(tesseract.recognise, folder=folder)) if folder and known - {LATIN} else None


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
    texts = _read_texts(engine, strips, names, HEIGHT)  # not trimmed: that may cut off signs above and below letters
    for index in [index for index, text in enumerate(texts) if not text][:MAX_RETRIES]:
        alone = (_read_texts(engine, [trim(strips[index])], names, height)[0] for height in RETRY_HEIGHTS)
        texts[index] = next(filter(None, alone), "")
    foreign = [index for index, text in enumerate(texts) if text and _measure_share(text, language.name) < MIN_SHARE]
    others = _read_texts(engine, [strips[index] for index in foreign], names, OTHER_HEIGHT)
    untrusted = {
        index
        for index, other in zip(foreign, others, strict=True)
        if _measure_share(texts[index], language.name, with_latin=True) < MIN_SHARE
        or _measure_likeness([(texts[index], other)]) < script.min_quality
    }
    return [None if not text or index in untrusted else text for index, text in enumerate(texts)]


def read_sign(engine: Tesseract, strips: Sequence[Array], hint: str | None) -> list[tuple[str, PageLanguage] | None]:
    """Read lines with too few letters to choose a language by: those that a single one reads alike in all sizes."""
    trimmed, found = [trim(strip) for strip in strips], [list[PageLanguage]() for _ in strips]
    for name in list_candidates(engine.languages, hint):
        for own in _find_stable(engine, trimmed, name):
            found[own].append(PageLanguage(name, SIGN_SCORE))
    lines: list[tuple[str, PageLanguage] | None] = []
    for strip, languages in zip(strips, found, strict=True):
        text = read(engine, [strip], languages[0])[0] if len(languages) == 1 else None
        lines.append((text, languages[0]) if text else None)
    return lines


def read_latin(engine: Tesseract, strips: Sequence[Array]) -> list[str]:
    """What Tesseract reads as English, without blanks; "" for each without its file."""
    if not strips or LATIN not in engine.languages:
        return [""] * len(strips)
    lines = _recognise_or_warn(engine, [trim(strip) for strip in strips], LATIN, HEIGHT)
    return ["".join(glyph.text for word in line for glyph in word) for line in lines]


def _find_stable(engine: Tesseract, strips: Sequence[Array], name: str) -> list[int]:
    """The numbers of the strips in which a language reads the same letters of its script, in whatever size it sees."""
    seen: dict[int, list[str]] = {number: [] for number in range(len(strips))}
    for height in SIGN_HEIGHTS:
        tried = [number for number, texts in seen.items() if len(texts) < SIGN_READINGS and len(set(texts)) <= 1]
        found = _read_texts(engine, [strips[number] for number in tried], name, height) if tried else []
        for number, text in zip(tried, found, strict=True):
            seen[number] += ["".join(text.casefold().split())] if text else []
    least = MIN_SIGN_SYLLABLES if name in _HANGUL.languages else MIN_SIGN_LETTERS
    agreed = {n: texts[0] for n, texts in seen.items() if len(texts) == SIGN_READINGS and len(set(texts)) == 1}
    return [n for n, text in agreed.items() if count_letters(text, name) >= least and _measure_share(text, name) == 1]


def _read_korean(
    engine: Tesseract, strips: Sequence[Array], name: str, words: Sequence[Sequence[Glyph]]
) -> list[str | None]:
    """Read Korean strips without their Latin words, and put these back into the text."""
    blanked = [_blank(strip, own) for strip, own in zip(strips, words, strict=True)]
    # One by one: in a stack, Tesseract takes the blanks in place of Latin words for gaps between columns.
    lines = [line for strip in blanked for line in _recognise_or_warn(engine, [trim(strip)], name, HEIGHT)]
    texts: list[str | None] = []
    for pieces, strip, own in zip(lines, strips, words, strict=True):
        glyphs = [glyph for piece in pieces for glyph in piece]
        is_trusted = glyphs and _measure_share("".join(glyph.text for glyph in glyphs), name) >= MIN_SHARE
        texts.append(join_korean(glyphs, own, trim(strip)) or None if is_trusted else None)
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
    share = _measure_share(text, language)
    if share < MIN_SHARE or count_letters(text, language) < MIN_LETTERS:
        return 0.0
    heights = (OTHER_HEIGHT,) if len(text) >= LITTLE_TEXT else (OTHER_HEIGHT, THIRD_HEIGHT)
    texts += [_read_texts(engine, samples, language, height) for height in heights]
    likenesses = (
        _measure_likeness([pair for pair in zip(one, other, strict=True) if all(pair)])
        for one, other in combinations(texts, 2)
    )
    return share * min(likenesses)


def _measure_likeness(pairs: Sequence[tuple[str, str]]) -> float:
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


def _measure_share(text: str, language: str, with_latin: bool = False) -> float:
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
    if not script.spaced:
        lines = [_join_near(line, WORD_GAP * strip.shape[0]) for line, strip in zip(lines, strips, strict=True)]
    texts = [[" ".join("".join(glyph.text for glyph in word).split()) for word in line] for line in lines]
    return [" ".join(order_rtl(words) if is_rtl else words).strip() for words in texts]


def _join_near(words: Sequence[list[Glyph]], gap: float) -> list[list[Glyph]]:
    """The words of a line, with those joined that are less than a gap apart."""
    joined: list[list[Glyph]] = []
    for word in words:
        if joined and word[0].x0 - max(glyph.x1 for glyph in joined[-1]) < gap:
            joined[-1] = [*joined[-1], *word]
        else:
            joined.append(word)
    return joined


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
