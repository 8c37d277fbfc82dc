"""Extract the words of a page's text layer, with the style of their lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from twopass.engines.cpu import rtl_words
from twopass.engines.cpu.geometry import Rect, StyledWord
from twopass.pages import source_files
from twopass.text.prose import is_garbage


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
    blocks = textpage.extractDICT()["blocks"]
    raw_words = textpage.extractWORDS()
    words = tuple(_build_words(raw_words, [block for block in blocks if block["type"] == 0]))
    words = rtl_words.refine(words, raw_words, textpage)
    is_scan, hidden = source_files.detect_scan(page) if words else (True, False)
    return blocks, LayerWords(words, hidden), is_scan


def _build_words(raw_words: Sequence[Any], blocks: Sequence[Any]) -> Iterator[StyledWord]:
    """Yield MuPDF's words with the style of their lines; lines are numbered in the order of their first words."""
    numbers: dict[tuple[int, int], int] = {}
    for x0, y0, x1, y1, text, block, line, _ in raw_words:
        number = numbers.setdefault((block, line), len(numbers))
        source = blocks[block]["lines"][line]
        spans = [span for span in source["spans"] if span["text"].strip()] or source["spans"]
        yield StyledWord(
            Rect(x0, y0, x1, y1),
            text.encode("utf-8", "replace").decode(),
            number,
            size=max(spans, key=lambda span: len(span["text"]))["size"],
            bold=all(span["flags"] & 16 for span in spans),
            mono=all(span["flags"] & 8 for span in spans),
            upright=abs(source["dir"][0]) > 0.9,
            block=block,
        )
