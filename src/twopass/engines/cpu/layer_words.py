"""Extract the words of a page's text layer, with the style of their lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from twopass.engines.cpu import accents, letters, rtl_words, symbol_fonts, text_style, widgets
from twopass.engines.cpu.geometry import Rect, StyledWord
from twopass.engines.cpu.letters import SpannedWord
from twopass.pages import source_files
from twopass.text import direction
from twopass.text.prose import is_garbage

MIN_COSINE = 0.9  # of the angle of an upright line, at most 25 degrees

Placed = Mapping[tuple[int, int], Sequence[SpannedWord]]  # words of some lines, by the numbers of block and line


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


def extract(page: Any) -> tuple[list[Any], LayerWords, bool]:
    """Return MuPDF's blocks, the words of the text layer, and whether an image fills the page."""
    import pymupdf

    flags = (
        pymupdf.TEXT_COLLECT_STYLES
        | pymupdf.TEXT_COLLECT_VECTORS
        | pymupdf.TEXT_PRESERVE_IMAGES
        | pymupdf.TEXT_MEDIABOX_CLIP
    )
    textpage = page.get_textpage(flags=flags)
    with _full_font_names():
        blocks = textpage.extractDICT()["blocks"]
    raw_words = textpage.extractWORDS()
    text_blocks = [block for block in blocks if block["type"] == 0]
    placed = _place_words(raw_words, text_blocks, textpage)
    words = tuple(_build_words(raw_words, text_blocks, placed))
    is_scan, hidden = source_files.detect_scan(page) if words else (True, False)
    words = widgets.add_marks(page, words)
    return blocks, LayerWords(words, hidden), is_scan


@contextmanager
def _full_font_names() -> Iterator[None]:
    """Keep the prefixes of subset fonts: two subsets of one font may map to characters differently."""
    import pymupdf

    pymupdf.TOOLS.set_subset_fontnames(True)
    try:
        yield
    finally:
        pymupdf.TOOLS.set_subset_fontnames(False)


def _place_words(raw_words: Sequence[Any], blocks: Sequence[Any], textpage: Any) -> Placed:
    """Return the words of the lines in which the positions of letters matter: with accents or right-to-left text.

    On a page that is mostly right-to-left text, all its upright lines count as such.
    """
    text = "".join(word[4] for word in raw_words)
    has_accents, has_rtl = accents.has_accents(text), direction.has_rtl(text)
    if not (has_accents or has_rtl):
        return {}
    is_rtl = direction.is_rtl(text)
    placed: dict[tuple[int, int], list[SpannedWord]] = {}
    raw_blocks = (block for block in textpage.extractRAWDICT()["blocks"] if block["type"] == 0)
    for index, block in enumerate(map(letters.split_block, raw_blocks)):
        composed = letters.group_by_line(accents.compose(block) if has_accents else block)
        for number, line in letters.group_by_line(block).items():
            own = composed.get(number, [])
            has_rtl_letters = is_rtl or any(direction.has_rtl(letter.text) for letter in line)
            if has_rtl_letters and _is_upright(blocks[index]["lines"][number]):
                placed[index, number] = list(rtl_words.split_line(own))
            elif own != line:
                placed[index, number] = list(letters.build_words(own))
    return placed


def _build_words(raw_words: Sequence[Any], blocks: Sequence[Any], placed: Placed) -> Iterator[StyledWord]:
    """Yield MuPDF's words with the style of their lines; lines are numbered in the order of their first words."""
    number = 0
    for key, group in groupby(raw_words, key=lambda word: (word[5], word[6])):
        line = blocks[key[0]]["lines"][key[1]]
        words = placed[key] if key in placed else _find_spans(list(group), line)
        yield from _style_words(words, line, number, key[0])
        number += bool(words)


def _find_spans(raw_words: Sequence[Any], line: Any) -> list[SpannedWord]:
    """Return the words of a line with the span of each of their characters."""
    spans = [i for i, span in enumerate(line["spans"]) for c in span["text"] if not letters.is_delimiter(c)]
    words, start = [], 0
    for x0, y0, x1, y1, text, *_ in raw_words:
        own = tuple(spans[start : start + len(text)])
        words.append(SpannedWord(text, Rect(x0, y0, x1, y1), own if len(own) == len(text) else (0,) * len(text)))
        start += len(text)
    return words


def _is_upright(line: Any) -> bool:
    """Return whether a line runs from left to right: not up, down, or upside down."""
    return bool(line["dir"][0] > MIN_COSINE)


def _style_words(words: Sequence[SpannedWord], line: Any, number: int, block: int) -> Iterator[StyledWord]:
    spans = [span for span in line["spans"] if span["text"].strip()] or line["spans"]
    size = max(spans, key=lambda span: len(span["text"]))["size"]
    bold, mono = all(map(text_style.is_bold, spans)), all(map(text_style.is_mono, spans))
    styles = text_style.find_styles(line)
    fonts = [span["font"] for span in line["spans"]]
    for word in words:
        text = "".join(symbol_fonts.translate(c, fonts[i]) for c, i in zip(word.text, word.spans, strict=True))
        composed = letters.compose(replace(word, text=text.encode("utf-8", "replace").decode()))
        yield StyledWord(
            composed.box,
            composed.text,
            number,
            size=size,
            bold=bold,
            mono=mono,
            upright=_is_upright(line),
            runs=text_style.to_runs([styles[i] for i in composed.spans]),
            font=fonts[Counter(composed.spans).most_common(1)[0][0]],
            block=block,
            is_piece=composed.is_piece,
        )
