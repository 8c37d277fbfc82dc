"""Extract the words of a page's text layer: with their accents, the style of their letters, and their direction.

MuPDF gives characters with their boxes and fonts. Accents that are drawn over a letter, as TeX does ("M¨uller"), are
joined with it. Lines with right-to-left text become pieces of one direction, which bidi.py puts into reading order.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from types import MappingProxyType
from typing import Any

import numpy as np

from twopass.document import Rect, enclose
from twopass.engines.cpu import bidi, widgets
from twopass.engines.cpu.content import StyledRun, StyledWord
from twopass.engines.cpu.tables import rules
from twopass.pages import source_files
from twopass.pages.lying_fonts import full_font_names, separate_names
from twopass.pages.text_layer import TextLayer
from twopass.text import direction, quotes, symbol_fonts
from twopass.text.prose import is_garbage
from twopass.text.quotes import Quote

# ---- letters, and the words that they form ----


@dataclass(frozen=True)
class Letter:
    """One character, or the characters of a ligature; `span` is an index in its line, `size` the type size."""

    text: str
    box: Rect
    span: int
    size: float
    line: int


@dataclass(frozen=True)
class SpannedWord:
    """A word with the index of the span of each character; `is_piece` as in `StyledWord`."""

    text: str
    box: Rect
    spans: tuple[int, ...]
    is_piece: bool = False


def split_block(block: Any) -> list[Letter]:
    """The letters of a text block of MuPDF's raw dictionary; lines are numbered by their place in the block."""
    return [
        Letter(char["c"], Rect(*char["bbox"]), index, span["size"], number)
        for number, line in enumerate(block["lines"])
        for index, span in enumerate(line["spans"])
        for char in span["chars"]
    ]


def _group_by_line(letters: Iterable[Letter]) -> dict[int, list[Letter]]:
    """The letters of a block by the numbers of their lines."""
    return {number: list(line) for number, line in groupby(letters, key=lambda letter: letter.line)}


def _is_delimiter(character: str) -> bool:
    """Whether MuPDF ends a word at the character: blanks, control characters, marks of direction."""
    return character <= " " or character == "\u00a0" or "\u202a" <= character <= "\u202e"


def build_words(letters: Iterable[Letter]) -> Iterator[SpannedWord]:
    """Yield the words of one line, as MuPDF separates them."""
    for is_blank, group in groupby(letters, key=lambda letter: _is_delimiter(letter.text)):
        if not is_blank:
            yield _join(list(group))


def _join(letters: Sequence[Letter]) -> SpannedWord:
    text = "".join(letter.text for letter in letters)
    spans = tuple(letter.span for letter in letters for _ in letter.text)
    return SpannedWord(text, enclose([letter.box for letter in letters]), spans)


def compose_word(word: SpannedWord) -> SpannedWord:
    """The word in NFC; a composed character has the span of its first part."""
    text = unicodedata.normalize("NFC", word.text)
    if len(text) == len(word.text):
        return replace(word, text=text)
    spans: list[int] = []
    for end, span in enumerate(word.spans, 1):
        length = len(unicodedata.normalize("NFC", word.text[:end]))
        spans += [span] * (length - len(spans))
    return replace(word, text=text, spans=tuple(spans[: len(text)]))


# ---- accents ----

_COMBINING: Mapping[str, str] = MappingProxyType(
    {
        "`": "\u0300", "´": "\u0301", "ˆ": "\u0302", "^": "\u0302", "˜": "\u0303", "¯": "\u0304", "˘": "\u0306",
        "˙": "\u0307", "¨": "\u0308", "˚": "\u030a", "˝": "\u030b", "ˇ": "\u030c", "¸": "\u0327", "˛": "\u0328",
    }
)  # fmt: skip
_DOTLESS = MappingProxyType({"ı": "i", "ȷ": "j"})
# Of these only the drawn position says that they are accents, so they alone are no reason to look at positions.
_COMMON_SIGNS = frozenset("`^")
MIN_OVERLAP = 0.5  # of the smaller width and height, for an accent over a letter
MAX_WORD_GAP = 0.15  # of the type size: a blank that text extraction put beside an accent is narrower


def _has_accents(text: str) -> bool:
    """Whether the text has accents that may belong to another letter."""
    return any(character in _COMBINING and character not in _COMMON_SIGNS for character in text)


def compose_accents(letters: Sequence[Letter]) -> list[Letter]:
    """The letters of a block with their accents, without blanks that stood only beside an accent."""
    joined: list[Letter | None] = list(letters)
    lines = _group_by_line(letters)
    for position, accent in enumerate(letters):
        mark = _COMBINING.get(accent.text)
        if mark is None or (base := _find_base(letters, joined, position)) is None:
            continue
        letter = letters[base]
        joined[base] = replace(letter, text=_combine(letter.text, mark))
        joined[position] = None
        for blank in (position - 1, position + 1):
            if 0 <= blank < len(letters) and _is_narrow_blank(letters[blank], lines[letters[blank].line]):
                joined[blank] = None
    return [letter for letter in joined if letter is not None]


def _combine(letter: str, mark: str) -> str:
    return unicodedata.normalize("NFC", _DOTLESS.get(letter, letter) + mark)


def _find_base(letters: Sequence[Letter], joined: Sequence[Letter | None], position: int) -> int | None:
    """The index of the letter under the accent: the nearest in the text, the following first.

    Unicode has this letter with this accent.
    """
    accent = letters[position]
    centre = accent.box.centre[0]
    fitting = [
        index
        for index, letter in enumerate(letters)
        if letter.box.x0 <= centre <= letter.box.x1  # first, because it excludes almost all
        and joined[index] is letter
        and letter.text.isalpha()
        and len(_combine(letter.text, _COMBINING[accent.text])) == 1
        and _is_accent_over(accent, letter)
    ]
    return min(fitting, key=lambda index: (abs(index - position), index < position), default=None)


def _is_accent_over(accent: Letter, letter: Letter) -> bool:
    one, other = accent.box, letter.box
    across = one.overlap_x(other)
    down = one.overlap_y(other)
    width = min(one.width, other.width)
    return across >= MIN_OVERLAP * width > 0 and down >= MIN_OVERLAP * min(one.height, other.height)


def _is_narrow_blank(blank: Letter, line: Sequence[Letter]) -> bool:
    """Whether this is a blank that nothing on the page shows: its neighbours in the line touch."""
    if not blank.text.isspace():
        return False
    others = [other.box for other in line if not other.text.isspace()]
    before = [box.x1 for box in others if box.centre[0] < blank.box.centre[0]]
    after = [box.x0 for box in others if box.centre[0] >= blank.box.centre[0]]
    return bool(before and after) and min(after) - max(before) <= MAX_WORD_GAP * blank.size


# ---- right-to-left text ----

MAX_JUMP = 0.25  # of the type size, between letters of one piece
SAME_EDGE = 0.01  # points


def split_rtl_line(line: Sequence[Letter]) -> Iterator[SpannedWord]:
    """Yield the pieces of one line, whose letters are in MuPDF's order."""
    # A letter may be several characters, of which the first gives the direction.
    text = "".join(letter.text[:1] for letter in line)
    for start, stop in bidi.split_text(text, bidi.is_arabic(text)):
        for piece in _split_at_jumps(line[start:stop]):
            ordered = [replace(one, text=direction.replace_forms(one.text)) for one in _turn_ligatures(piece)]
            yield replace(_join(ordered), is_piece=True)


def _split_at_jumps(line: Sequence[Letter]) -> Iterator[list[Letter]]:
    """Split letters that do not stand next to each other: MuPDF left out the space between them."""
    piece = [line[0]]
    for one, other in pairwise(line):
        gap = max(one.box.x0, other.box.x0) - min(one.box.x1, other.box.x1)
        if gap > MAX_JUMP * one.size:
            yield piece
            piece = []
        piece.append(other)
    yield piece


def _turn_ligatures(piece: Sequence[Letter]) -> list[Letter]:
    """Put the letters of a ligature into order, which MuPDF reverses together with the line.

    All letters of a ligature but its first have no width and stand at its right edge.
    """
    turned: list[Letter] = []
    waiting: list[Letter] = []
    for letter in piece:
        if letter.box.x1 <= letter.box.x0 and direction.is_rtl_letter(letter.text):
            waiting.append(letter)
            continue
        is_base = bool(waiting) and abs(letter.box.x1 - waiting[0].box.x0) < SAME_EDGE
        turned += [letter, *reversed(waiting)] if is_base else [*waiting, letter]
        waiting = []
    return turned + waiting


# ---- style ----

ITALIC, MONO, BOLD = 2, 8, 16  # bits of MuPDF's span flags
MAX_SCRIPT_SIZE = 0.85  # of the line's type size; scripts have 0.58 to 0.75
_MIN_SCRIPT_SIZE, _LONGEST_MARK = 0.5, 8  # of a line that is mostly its mark: a larger letter may be an initial
MIN_RAISE, MAX_RAISE = 0.15, 0.8  # of the line's type size, from its baseline up to that of a superscript
MIN_DROP, MAX_DROP = 0.05, 0.6  # the same down to that of a subscript
# Fonts of TeX and others whose descriptors lack the flags. Fonts of formulas have slanted letters without emphasis.
_BOLD = re.compile(r"bold|black|heavy|demi(?!lt)|-medi?$|^cmb|^cmssbx|^sfbx|^lmroman.*bold", re.IGNORECASE)
_ITALIC = re.compile(r"ital|obli|slant|^cmti|^cmsl|^cmbxti|^sfti|^sfsl", re.IGNORECASE)
_MONO = re.compile(r"courier|mono(?!type)|consol|typewriter|menlo|^cmtt|^sftt|^cmsltt|^lmtt", re.IGNORECASE)
_FORMULA = re.compile(r"math|symbol|^cmmi|^cmsy|^cmex|^msam|^msbm|^eufm|^rsfs|cmmi\d|cmsy\d", re.IGNORECASE)


def _strip_subset(font: str) -> str:
    """A font's name without the prefixes of a subset, such as `ABCDEF+`."""
    return re.sub(r"^(?:[A-Z]{6}[+_])+", "", font)


def _is_bold(span: Any) -> bool:
    return bool(span["flags"] & BOLD or _BOLD.search(_strip_subset(span["font"])))


def _is_mono(span: Any) -> bool:
    return bool(span["flags"] & MONO or _MONO.search(_strip_subset(span["font"])))


def _is_italic(span: Any) -> bool:
    return bool(span["flags"] & ITALIC or _ITALIC.search(_strip_subset(span["font"])))


def _find_styles(line: Any) -> list[str]:
    """The style of each span of a line, as the letters of `StyledRun.style`; empty for plain text and formulas."""
    spans = line["spans"]
    main = _find_main(spans)
    is_upright = abs(line["dir"][0]) > 0.99
    scripts = [_find_script(span, main) if is_upright else "" for span in spans]
    for index in range(1, len(spans) - 1):  # the comma of "1,2" is raised with its neighbours
        if _is_small_sign(spans[index], main) and scripts[index - 1] == scripts[index + 1]:
            scripts[index] = scripts[index - 1]
    return [_find_style(span) + script for span, script in zip(spans, scripts, strict=True)]


def _find_main(spans: Sequence[Any]) -> Any:
    """The span with most letters, or the largest if those are a mark: in a cell, "15" may have the marks "2,3"."""
    longest = max(spans, key=lambda span: (len(span["text"].strip()) * (span["size"] > 0), span["size"]))
    largest = max(
        (span for span in spans if any(map(str.isalnum, span["text"]))), key=lambda span: span["size"], default=longest
    )
    is_short = len(longest["text"].strip()) <= _LONGEST_MARK and longest["size"] >= _MIN_SCRIPT_SIZE * largest["size"]
    return largest if is_short and _find_script(longest, largest) else longest


def _is_small_sign(span: Any, main: Any) -> bool:
    return span["size"] <= MAX_SCRIPT_SIZE * main["size"] and not any(map(str.isalnum, span["text"]))


def _find_style(span: Any) -> str:
    if _FORMULA.search(_strip_subset(span["font"])):
        return ""
    return "b" * _is_bold(span) + "i" * _is_italic(span)


def _find_script(span: Any, main: Any) -> str:
    """`^` for a superscript and `_` for a subscript: smaller than the line's main span, and off its baseline."""
    size = main["size"]
    if span["size"] > MAX_SCRIPT_SIZE * size or not any(map(str.isalnum, span["text"])):
        return ""
    rise = (main["origin"][1] - span["origin"][1]) / size
    return "^" if MIN_RAISE <= rise <= MAX_RAISE else "_" if MIN_DROP <= -rise <= MAX_DROP else ""


def _to_runs(styles: Sequence[str]) -> tuple[StyledRun, ...]:
    """The runs of a word, from the style of each of its characters."""
    return tuple(run for run in _iterate_runs(styles) if run.style)


def _iterate_runs(styles: Sequence[str]) -> Iterator[StyledRun]:
    start = 0
    for style, group in groupby(styles):
        end = start + len(list(group))
        yield StyledRun(start, end, style)
        start = end


# ---- the layer ----

_SAME_PLACE = 0.002  # of the page: boxes of hidden words are rounded
MIN_COSINE = 0.9  # of the angle of an upright line, at most 25 degrees

_VARIED = re.compile(r"[A-Za-z]{4,}")  # words whose width depends on their letters, unless all have one width
_COPY_OVERLAP, _MAX_COMPARED = 0.6, 100  # of the larger box; words of one text
_MIN_VARIED, _SAME_WIDTH = 6, 0.02  # such words of a font; of the widest letter
_DRAWN_SOFT_HYPHEN = re.compile(r"(?:\w|^)\u00ad\w|^\u00ad$")  # within a word, before a number, or between spaces
_Placed = Mapping[tuple[int, int], Sequence[SpannedWord]]  # words of some lines, by the numbers of block and line


@dataclass(frozen=True)
class LayerWords:
    """The words in a page's text layer; `hidden` if most are invisible or lie under a scan."""

    words: tuple[StyledWord, ...]
    hidden: bool

    @property
    def is_garbage(self) -> bool:
        return is_garbage(" ".join(word.text for word in self.words))

    @property
    def lines(self) -> int:
        return len({word.line for word in self.words})

    def without(self, hidden: TextLayer, page: Rect) -> LayerWords:
        """The words that can be seen; `hidden` are the others of a page of this size."""
        if not hidden:
            return self
        size = np.array([page.width, page.height, page.width, page.height])
        boxes, letters = hidden.corners * size, [Counter(direction.replace_forms(text)) for text in hidden.texts]

        def trim(word: StyledWord) -> StyledWord | None:
            apart = (boxes - word.box) / size
            is_inside = (apart[:, :2] <= _SAME_PLACE).all(1) & (apart[:, 2:] >= -_SAME_PLACE).all(1)
            is_around = (apart[:, :2] >= -_SAME_PLACE).all(1) & (apart[:, 2:] <= _SAME_PLACE).all(1)
            own = Counter(word.text)  # right-to-left text is split in another way, and in another order
            if (is_inside & is_around).any() or any(own <= letters[index] for index in np.flatnonzero(is_inside)):
                return None
            parts = [index for index in np.flatnonzero(is_around) if letters[index] <= own]
            return _cut_parts(word, [(hidden.texts[index], Rect(*boxes[index].tolist())) for index in parts])

        return replace(self, words=tuple(trimmed for word in self.words if (trimmed := trim(word))))

    def without_copies(self) -> LayerWords:
        """The words once where they are drawn again in nearly the same place, as a shadow or to look bold."""
        places: dict[tuple[str, float], list[Rect]] = defaultdict(list)
        kept: list[StyledWord] = []
        for word in self.words:
            others = places[word.text, round(word.size, 1)]
            if not any(_is_copy(word.box, other) for other in others[-_MAX_COMPARED:]):
                others.append(word.box)
                kept.append(word)
        return replace(self, words=tuple(kept))


def _is_copy(one: Rect, other: Rect) -> bool:
    return one.overlap(other) >= _COPY_OVERLAP * max(one.area, other.area) > 0


def _cut_parts(word: StyledWord, parts: Sequence[tuple[str, Rect]]) -> StyledWord | None:
    """The word without its hidden parts; None if nothing is left of it, or the parts are not found."""
    text, box = word.text, word.box
    for part, place in parts:
        if part not in text:
            return None
        text = text.replace(part, "", 1)
        if place.centre[0] < box.centre[0]:
            box = box._replace(x0=max(box.x0, min(place.x1, box.x1)))
        else:
            box = box._replace(x1=min(box.x1, max(place.x0, box.x0)))
    if not parts:
        return word
    return replace(word, text=text, box=box, runs=()) if text else None


def extract(page: Any) -> tuple[list[Any], LayerWords, bool]:
    """MuPDF's blocks, the words of the text layer, and whether an image fills the page."""
    import pymupdf

    flags = (
        pymupdf.TEXT_COLLECT_STYLES
        | pymupdf.TEXT_COLLECT_VECTORS
        | pymupdf.TEXT_PRESERVE_IMAGES
        | pymupdf.TEXT_MEDIABOX_CLIP
    )
    separate_names(page)
    textpage = page.get_textpage(flags=flags)
    with full_font_names():
        blocks = rules.trim_strokes(page, textpage.extractDICT()["blocks"])
    raw_words = textpage.extractWORDS()
    text_blocks = [block for block in blocks if block["type"] == 0]
    placed = _place_words(raw_words, text_blocks, textpage)
    words = _replace_soft_hyphens(_replace_controls(tuple(_build_words(raw_words, text_blocks, placed))))
    words = _replace_quotes(_mark_mono(words))
    is_scan, hidden = source_files.detect_scan(page) if words else (True, False)
    words = widgets.add_words(widgets.find_fields(page), words)
    return blocks, LayerWords(words, hidden), is_scan


def _replace_controls(words: tuple[StyledWord, ...]) -> tuple[StyledWord, ...]:
    if not symbol_fonts.has_few_controls([word.text for word in words]):
        return words
    pairs = ((word, symbol_fonts.replace_controls(word.text)) for word in words)
    return tuple(word if word.text == text else replace(word, text=text) for word, text in pairs)


def _replace_soft_hyphens(words: tuple[StyledWord, ...]) -> tuple[StyledWord, ...]:
    """The words with hyphens, if their fonts call these soft: a page shows no soft hyphen inside a line."""
    if not any(_DRAWN_SOFT_HYPHEN.search(word.text) for word in words):
        return words
    return tuple(replace(word, text=word.text.replace("\u00ad", "-")) for word in words)


def _mark_mono(words: tuple[StyledWord, ...]) -> tuple[StyledWord, ...]:
    """The words, with the lines whose fonts have one width for all letters marked so, whatever the fonts are called."""
    widths: dict[str, list[float]] = defaultdict(list)
    for word in words:
        if not word.mono and word.size > 0 and _VARIED.fullmatch(word.text) and len(set(word.text)) > 2:
            widths[word.font].append(word.box.width / (len(word.text) * word.size))
    mono = {
        font
        for font, own in widths.items()
        if len(own) >= _MIN_VARIED and max(own) - min(own) <= _SAME_WIDTH * max(own)
    }
    if not mono:
        return words
    marked = {
        line: all(word.mono or word.font in mono for word in own)
        for line, group in groupby(sorted(words, key=lambda word: word.line), key=lambda word: word.line)
        if (own := list(group))
    }
    return tuple(replace(word, mono=True) if marked[word.line] else word for word in words)


def _replace_quotes(words: tuple[StyledWord, ...]) -> tuple[StyledWord, ...]:
    """The words with quotation marks in place of doubled signs; code keeps these."""
    found = quotes.find_doubled(["" if word.mono else word.text for word in words])
    return tuple(_with_quotes(*pair) if pair[1] else pair[0] for pair in zip(words, found, strict=True))


def _with_quotes(word: StyledWord, doubled: Sequence[Quote]) -> StyledWord:
    text, runs = word.text, word.runs
    for start, mark in reversed(doubled):
        text = text[:start] + mark + text[start + 2 :]
        runs = tuple(
            run._replace(start=run.start - (run.start > start), end=run.end - (run.end > start + 1)) for run in runs
        )
    return replace(word, text=text, runs=runs)


def _place_words(raw_words: Sequence[Any], blocks: Sequence[Any], textpage: Any) -> _Placed:
    """The words of the lines in which the positions of letters matter: with accents or right-to-left text.

    On a page that is mostly right-to-left text, all its upright lines count as such.
    """
    text = "".join(word[4] for word in raw_words)
    has_accents, has_rtl = _has_accents(text), direction.has_rtl(text)
    if not (has_accents or has_rtl):
        return {}
    is_rtl = direction.is_rtl(text)
    placed: dict[tuple[int, int], list[SpannedWord]] = {}
    raw_blocks = (block for block in textpage.extractRAWDICT()["blocks"] if block["type"] == 0)
    for index, block in enumerate(map(split_block, raw_blocks)):
        composed = _group_by_line(compose_accents(block) if has_accents else block)
        for number, line in _group_by_line(block).items():
            own = composed.get(number, [])
            has_rtl_letters = is_rtl or any(direction.has_rtl(letter.text) for letter in line)
            if has_rtl_letters and _is_upright(blocks[index]["lines"][number]):
                placed[index, number] = list(split_rtl_line(own))
            elif own != line:
                placed[index, number] = list(build_words(own))
    return placed


def _build_words(raw_words: Sequence[Any], blocks: Sequence[Any], placed: _Placed) -> Iterator[StyledWord]:
    """Yield MuPDF's words with the style of their lines; lines are numbered in the order of their first words."""
    number = 0
    for key, group in groupby(raw_words, key=lambda word: (word[5], word[6])):
        line = blocks[key[0]]["lines"][key[1]]
        words = placed[key] if key in placed else _find_spans(list(group), line)
        yield from _style_words(words, line, number, key[0])
        number += bool(words)


def _find_spans(raw_words: Sequence[Any], line: Any) -> list[SpannedWord]:
    """The words of a line with the span of each of their characters."""
    spans = [i for i, span in enumerate(line["spans"]) for c in span["text"] if not _is_delimiter(c)]
    words, start = [], 0
    for x0, y0, x1, y1, text, *_ in raw_words:
        own = tuple(spans[start : start + len(text)])
        words.append(SpannedWord(text, Rect(x0, y0, x1, y1), own if len(own) == len(text) else (0,) * len(text)))
        start += len(text)
    return words


def _is_upright(line: Any) -> bool:
    """Whether a line runs from left to right: not up, down, or upside down."""
    return bool(line["dir"][0] > MIN_COSINE)


def _style_words(words: Sequence[SpannedWord], line: Any, number: int, block: int) -> Iterator[StyledWord]:
    spans = [span for span in line["spans"] if span["text"].strip()] or line["spans"]
    size = max(spans, key=lambda span: len(span["text"]))["size"]
    bold, mono = all(map(_is_bold, spans)), all(map(_is_mono, spans))
    styles = _find_styles(line)
    fonts = [span["font"] for span in line["spans"]]
    for word in words:
        text = "".join(symbol_fonts.translate(c, fonts[i]) for c, i in zip(word.text, word.spans, strict=True))
        composed = compose_word(replace(word, text=text.encode("utf-8", "replace").decode()))
        yield StyledWord(
            composed.box,
            composed.text,
            number,
            size=size,
            bold=bold,
            mono=mono,
            upright=_is_upright(line),
            runs=_to_runs([styles[i] for i in composed.spans]),
            font=fonts[Counter(composed.spans).most_common(1)[0][0]],
            block=block,
            is_piece=composed.is_piece,
        )
