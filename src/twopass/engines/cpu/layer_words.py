"""Extract the words of a page's text layer, with the style of their lines."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from twopass.engines.cpu import accents, glyphs, rtl_words, text_style, widgets
from twopass.engines.cpu.accents import AccentedWord
from twopass.engines.cpu.geometry import Rect, StyledWord
from twopass.pages import source_files
from twopass.text.prose import is_garbage

Accented = Mapping[tuple[int, int], Sequence[AccentedWord]]


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
    accented: Accented = {}
    if any(accents.has_accents(word[4]) for word in raw_words):
        accented = accents.compose([block for block in textpage.extractRAWDICT()["blocks"] if block["type"] == 0])
    words = tuple(_build_words(raw_words, [block for block in blocks if block["type"] == 0], accented))
    words = rtl_words.refine(words, raw_words, textpage)
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


def _build_words(raw_words: Sequence[Any], blocks: Sequence[Any], accented: Accented) -> Iterator[StyledWord]:
    """Yield MuPDF's words with the style of their lines; lines are numbered in the order of their first words."""
    number = 0
    for key, group in groupby(raw_words, key=lambda word: (word[5], word[6])):
        line = blocks[key[0]]["lines"][key[1]]
        words = accented[key] if key in accented else _find_spans(list(group), line)
        yield from _style_words(words, line, number, key[0])
        number += bool(words)


def _find_spans(raw_words: Sequence[Any], line: Any) -> list[AccentedWord]:
    """The words of a line with the span of each of their characters."""
    spans = [i for i, span in enumerate(line["spans"]) for c in span["text"] if not accents.is_delimiter(c)]
    words, start = [], 0
    for x0, y0, x1, y1, text, *_ in raw_words:
        own = tuple(spans[start : start + len(text)])
        words.append(AccentedWord(Rect(x0, y0, x1, y1), text, own if len(own) == len(text) else (0,) * len(text)))
        start += len(text)
    return words


def _style_words(words: Sequence[AccentedWord], line: Any, number: int, block: int) -> Iterator[StyledWord]:
    spans = [span for span in line["spans"] if span["text"].strip()] or line["spans"]
    size = max(spans, key=lambda span: len(span["text"]))["size"]
    bold, mono = all(map(text_style.is_bold, spans)), all(map(text_style.is_mono, spans))
    upright = abs(line["dir"][0]) > 0.9
    styles = text_style.find_styles(line)
    fonts = [span["font"] for span in line["spans"]]
    for word in words:
        text = "".join(glyphs.translate(c, fonts[i]) for c, i in zip(word.text, word.spans, strict=True))
        yield StyledWord(
            word.box,
            unicodedata.normalize("NFC", text.encode("utf-8", "replace").decode()),
            number,
            size=size,
            bold=bold,
            mono=mono,
            upright=upright,
            runs=text_style.to_runs([styles[i] for i in word.spans]),
            font=fonts[Counter(word.spans).most_common(1)[0][0]],
            block=block,
        )
