"""Compare a page's text layer with its pixels, and read by OCR the words whose fonts map to wrong characters.

A few sampled lines are recognised and compared letter by letter. A font is broken if most of its characters are unnamed
(U+FFFD, private use), or if its words are implausible and the page shows other words in their place.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import chain, groupby

from twopass.document import Rect, enclose
from twopass.engines.cpu.content import StyledWord
from twopass.pages import lying_fonts, ocr
from twopass.pages.lying_fonts import Fonts, FontWord
from twopass.pages.strips import Array
from twopass.text import prose, symbol_fonts
from twopass.text.confidence import SUSPICIOUS, measure_plausibility

LINES_PER_SAMPLE, MIN_SAMPLES, MAX_SAMPLES = 12, 8, 24  # lines: 0.2-0.6 s of CPU time; newspapers differ by region
MIN_LETTERS = 10  # of a sampled line
MAX_LENGTH = 25.0  # times its height, of a sampled line: only its first words are compared
MARGIN = 0.15  # of a line's height, around it
# The recogniser reads Latin, Han and kana. It takes Cyrillic and Greek for Latin letters that look alike, and is sure.
_READABLE = re.compile(f"[a-z\u00df-\u024f{prose.HAN}{prose.KANA}]")
MIN_READABLE_LETTERS = 0.9  # of a sampled line's letters
MIN_READABLE_LINES = 0.5  # of the long lines; with fewer, the sample would not stand for the page
MIN_SCORE = 0.5  # of the recogniser, for its reading to say anything about the layer
MIN_WORDS = 20  # judged for plausibility; fewer say nothing


def is_suspicious(words: Sequence[StyledWord]) -> bool:
    """Whether the words of a visible layer look so odd that its fonts may lie."""
    plausibility, judged = measure_plausibility(" ".join(word.text for word in words))
    return judged >= MIN_WORDS and plausibility < SUSPICIOUS


def measure_agreement(words: Sequence[StyledWord], array: Array, scale: float) -> float | None:
    """The share of letters and blanks on which layer and pixels agree in the sampled lines.

    None if the pixels cannot tell: there are no long lines, or most are in a script that the recogniser cannot read, or
    it reads none. `scale` is pixels per point.
    """
    long = [line for line in _split_lines(words) if len(_normalise(line)) >= MIN_LETTERS]
    lines = [line for line in long if is_readable(_normalise(line))]
    if len(lines) < MIN_READABLE_LINES * len(long):
        return None
    count = min(max(len(lines) // LINES_PER_SAMPLE, MIN_SAMPLES), MAX_SAMPLES)
    sampled = lines[:: max(len(lines) // count, 1)][:count]
    strips = [
        (line, strip)
        for line in sampled
        if (strip := _cut_box(enclose([word.box for word in line]), array, scale)).size
    ]
    readings = ocr.recognise([strip for _, strip in strips])
    pairs = [
        (_normalise(line), _normalise_text(text))
        for (line, _), (text, score) in zip(strips, readings, strict=True)
        if score >= MIN_SCORE
    ]
    total = sum(len(ours) for ours, _ in pairs)
    if not total:
        return None
    return sum(len(ours) * SequenceMatcher(None, ours, theirs, False).ratio() for ours, theirs in pairs) / total


def _split_lines(words: Sequence[StyledWord]) -> list[list[StyledWord]]:
    """The upright lines, each no longer than the recogniser reads well."""
    lines = []
    for _, group in groupby((word for word in words if word.upright), key=lambda word: word.line):
        line: list[StyledWord] = []
        for word in group:
            if line and word.box.x1 - line[0].box.x0 > MAX_LENGTH * line[0].box.height:
                break
            line.append(word)
        lines.append(line)
    return lines


def _normalise(line: Sequence[StyledWord]) -> str:
    return _normalise_text(" ".join(word.text for word in line))


def _normalise_text(text: str) -> str:
    """Words in small letters, without punctuation and accents, of which the recogniser knows few."""
    letters = unicodedata.normalize("NFD", " ".join(prose.split_words(text)))
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def is_readable(text: str) -> bool:
    """Whether almost all letters are in a script that the recogniser knows."""
    letters = [letter for letter in text.lower() if letter.isalpha()]
    return len(_READABLE.findall("".join(letters))) >= MIN_READABLE_LETTERS * len(letters)


def _cut_box(box: Rect, array: Array, scale: float) -> Array:
    """The pixels of a line's box with a margin; `scale` is pixels per point."""
    x0, y0, x1, y1 = (max(round(value * scale), 0) for value in box.grow(MARGIN * box.height))
    return array[y0:y1, x0:x1]


# ---- hidden layers ----

DOUBTFUL_SCORE = 0.85  # of a line that OCR read; a surer one is kept whatever the layer says
LAYER_SCORE = 0.86  # of a line from the layer: seven words in ten are right
MIN_LAYER_WORDS, MIN_PLAUSIBILITY = 2, 0.8  # of a line of the layer, to be better than a doubtful one of OCR
MIN_LINE_COVER = 0.5  # of the line's length that the layer's words have


def choose_lines(scan: ocr.OcrResult, layer: Sequence[StyledWord], scale: float) -> ocr.OcrResult:
    """The lines of a scan, each doubtful one replaced by that of its hidden layer if that makes more sense.

    `scale` is pixels per point.
    """
    words = [(word, Rect(*(scale * side for side in word.box))) for word in layer if word.upright]
    lines = tuple(_choose_line(line, words) if line.score < DOUBTFUL_SCORE else line for line in scan.lines)
    return replace(scan, lines=lines)


def _choose_line(line: ocr.OcrLine, words: Sequence[tuple[StyledWord, Rect]]) -> ocr.OcrLine:
    own = [(word, box) for word, box in words if line.box.contains(box.centre)]
    if sum(box.width for _, box in own) < MIN_LINE_COVER * line.box.width:
        return line
    text = " ".join(word.text for word, _ in sorted(own, key=lambda pair: pair[1].x0))
    plausibility, judged = measure_plausibility(text)
    ours, ours_judged = measure_plausibility(line.text)
    is_better = plausibility > ours or ours_judged < judged
    if judged < MIN_LAYER_WORDS or plausibility < MIN_PLAUSIBILITY or not is_better:
        return line
    return ocr.OcrLine(line.corners, text, LAYER_SCORE)


# ---- broken fonts ----

MIN_CHARACTERS = 10  # of a font, to call it garbage: a few signs in a font of their own are no words
MIN_WORD_LENGTH = 2.0  # letters, on average: fonts of formulas have single signs
MAX_BROKEN_SHARE = 0.5  # of the page's characters: with more, the whole page is read by OCR,
MAX_SHORT_PAGE = 40  # unless it has so few pieces: their places are known better from the layer
MAX_GAP = 1.0  # of a word's height, between words that are read together: cells of a table are not
MAX_PIECES = 120  # that are read on one page; each takes 0.04 s and more

MIN_KNOWN, MAX_UNNAMED = 2, 4  # letters and digits of a word with unnamed characters, and how many of these
MAX_NAMED = 30  # different words with such characters that are read on one page; each takes 0.04 s
# Signs that the recogniser does not distinguish; each stays one character.
_ALIKE = str.maketrans(dict.fromkeys("‐‑‒–—−", "-") | dict.fromkeys("’‘´`", "'") | dict.fromkeys("“”", '"'))

_Piece = list[int]  # indices of neighbouring words of one line


def examine_fonts(words: Sequence[StyledWord], array: Array, scale: float) -> Fonts:
    """Which fonts of the words lie, and which were compared with the pixels; `scale` is pixels per point."""
    upright = [word for word in words if word.upright and not symbol_fonts.is_symbol_font(word.font)]
    found = lying_fonts.examine([_to_font_word(word, scale) for word in upright], array, compare_all=True)
    return replace(found, lying=found.lying | _find_garbage(upright))


def _to_font_word(word: StyledWord, scale: float) -> FontWord:
    box = Rect(*(value * scale for value in word.box))
    return FontWord(word.text, box, word.font, word.box.width / max(word.size, 1.0))


def _find_garbage(words: Sequence[StyledWord]) -> frozenset[str]:
    """The fonts whose characters mostly have no name."""
    texts: dict[str, list[str]] = defaultdict(list)
    for word in words:
        texts[word.font].append(word.text)
    lengths = {font: sum(map(len, own)) for font, own in texts.items()}
    return frozenset(
        font
        for font, own in texts.items()
        if lengths[font] >= max(MIN_CHARACTERS, MIN_WORD_LENGTH * len(own)) and prose.is_garbage(" ".join(own))
    )


def is_for_ocr(words: Sequence[StyledWord], fonts: Fonts) -> bool:
    """Whether so much of a page is in lying fonts that all of it is read by OCR, and not piece by piece."""
    own = sum(len(word.text) for word in words if word.font in fonts.lying)
    has_most = own > MAX_BROKEN_SHARE * sum(len(word.text) for word in words)
    return has_most and len(_split_pieces(words, fonts.lying)) > MAX_SHORT_PAGE


def repair_fonts(words: Sequence[StyledWord], fonts: Fonts, array: Array, scale: float) -> tuple[StyledWord, ...]:
    """The words, with those of lying fonts replaced by what OCR reads in their place.

    A word that OCR cannot read stays as it is. `scale` is pixels per point.
    """
    unnamed = _find_unnamed(words)
    sound = "".join(word.text for word in words if word.font not in fonts.lying)
    # The words of lying fonts are probably in the script of the others, which the recogniser must know.
    if not (fonts.lying or unnamed) or not is_readable(sound):
        return tuple(words)
    indices = [index for index in unnamed if words[index].font not in fonts.lying]
    named = list(_name_characters(words, indices, array, scale))
    pieces = _split_pieces(named, fonts.lying)[:MAX_PIECES]
    return _replace(named, pieces, _read(named, pieces, array, scale))


def _find_unnamed(words: Sequence[StyledWord]) -> list[int]:
    """Indices of words in which a few characters have no name, among enough others to recognise the word.

    Of equal words in one font, only the first.
    """
    found: dict[tuple[str, str], int] = {}
    for index, word in enumerate(words):
        known = sum(character.isalnum() for character in word.text)
        unnamed = sum(map(prose.is_senseless, word.text))
        if 0 < unnamed <= min(known, MAX_UNNAMED) and known >= MIN_KNOWN and word.upright:
            found.setdefault((word.text, word.font), index)
    return list(found.values())[:MAX_NAMED]


def _name_characters(
    words: Sequence[StyledWord], indices: Sequence[int], array: Array, scale: float
) -> Iterator[StyledWord]:
    """Yield the words; in those equal to one of the indices, unnamed characters are what OCR reads in their place."""
    readings = zip(indices, _read(words, [[index] for index in indices], array, scale), strict=True)
    named = {
        (words[index].text, words[index].font): (text, score)
        for index, (reading, score) in readings
        if score >= MIN_SCORE and (text := fill_in(words[index].text, reading)) is not None
    }
    for word in words:
        text, score = named.get((word.text, word.font), (word.text, word.score))
        is_same = text == word.text
        yield word if is_same else replace(word, text=text, runs=(), score=score, from_pixels=True)


def fill_in(text: str, reading: str) -> str | None:
    """The text with its unnamed characters from the reading; None if the reading has other characters besides.

    An unnamed character may be a ligature of up to three letters.
    """
    reading = "".join(reading.split())
    pattern = "".join(r"(\S{1,3}?)" if prose.is_senseless(c) else f"({re.escape(c)})" for c in text.translate(_ALIKE))
    found = re.fullmatch(pattern, reading.translate(_ALIKE))
    if found is None:
        return None
    parts = (reading[slice(*found.span(n))] if prose.is_senseless(c) else c for n, c in enumerate(text, 1))
    return "".join(parts)


def _split_pieces(words: Sequence[StyledWord], fonts: frozenset[str]) -> list[_Piece]:
    """Neighbouring upright words of these fonts in one line, each piece no longer than the recogniser reads well."""
    pieces: list[_Piece] = []
    indices = [index for index, word in enumerate(words) if word.font in fonts and word.upright]
    for index in indices:
        word = words[index]
        last = pieces[-1] if pieces else []
        is_next = bool(last) and last[-1] == index - 1 and words[last[-1]].line == word.line
        is_near = is_next and word.box.x0 - words[last[-1]].box.x1 <= MAX_GAP * word.box.height
        if is_near and word.box.x1 - words[last[0]].box.x0 <= MAX_LENGTH * word.box.height:
            last.append(index)
        else:
            pieces.append([index])
    return pieces


def _read(words: Sequence[StyledWord], pieces: Sequence[_Piece], array: Array, scale: float) -> list[tuple[str, float]]:
    """What the recogniser reads in place of each piece, and its score; no text where there are no pixels."""
    strips = [_cut_box(enclose([words[index].box for index in piece]), array, scale) for piece in pieces]
    readings = iter(ocr.recognise([strip for strip in strips if strip.size]))
    return [next(readings) if strip.size else ("", 0.0) for strip in strips]


def _replace(
    words: Sequence[StyledWord], pieces: Sequence[_Piece], readings: Sequence[tuple[str, float]]
) -> tuple[StyledWord, ...]:
    replaced = {
        piece[0]: list(_place([words[index] for index in piece], text.split(), score))
        for piece, (text, score) in zip(pieces, readings, strict=True)
        if score >= MIN_SCORE and text.strip()
    }
    gone = {index for piece in pieces if piece[0] in replaced for index in piece}
    parts = (replaced.get(index, []) if index in gone else [word] for index, word in enumerate(words))
    return tuple(chain.from_iterable(parts))


def _place(own: Sequence[StyledWord], texts: Sequence[str], score: float) -> Iterator[StyledWord]:
    """Put each text into the box of its word, or, if there are more or fewer, into a share of the piece's box."""
    boxes = [word.box for word in own] if len(own) == len(texts) else list(_share(own, texts))
    for box, text in zip(boxes, texts, strict=True):
        yield replace(own[0], box=box, text=text, score=score, runs=(), from_pixels=True)


def _share(own: Sequence[StyledWord], texts: Sequence[str]) -> Iterator[Rect]:
    box = enclose([word.box for word in own])
    letter = box.width / max(sum(map(len, texts)) + len(texts) - 1, 1)
    start = box.x0
    for text in texts:
        yield box._replace(x0=start, x1=min(start + letter * len(text), box.x1))
        start += letter * (len(text) + 1)
