"""Take the characters and rules of a page's formulas from MuPDF, and write their LaTeX."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from twopass.document import Rect, enclose
from twopass.engines.cpu.content import Region
from twopass.engines.cpu.formulas import latex, symbols
from twopass.engines.cpu.formulas.latex import Glyph
from twopass.engines.cpu.reading_order import ORPHAN

MAX_RULE_HEIGHT = 2.0  # points: fraction bars and overlines are 0.3 to 1
MARGIN = 3.0  # points around a formula's words, for its rules and tall characters
MAX_ORPHAN = 3  # characters of an orphan that may be a piece of a formula, such as a radical sign
_INVISIBLE = re.compile("[\ufe00-\ufe0f\u2061-\u2064]")  # selects a form of a letter, or is an invisible operator


_RELATION = re.compile(r"[=≈≠≡≤≥<>∝∑∫√→⇌]")
_SCRIPT = re.compile("[²³¹\u2070-\u209c]")
_WORD = re.compile(
    r"(?<![^\W\d_])(?!(?:sin|cos|tan|cot|log|exp|lim|max|min|sup|inf|det|mod|gcd|arg|deg|dim|ker)(?![^\W\d_]))[^\W\d_]{3,}"
)  # of prose, not the name of a function


def label_formulas(regions: Sequence[Region]) -> list[Region]:
    """The regions, with those labelled headings that are lines of a formula labelled so."""
    return [
        replace(r, label="formula") if r.label in ("title", "section-header") and _is_formula(r) else r for r in regions
    ]


def _is_formula(region: Region) -> bool:
    text = " ".join(word.written for word in region.words)
    has_sign = bool(_RELATION.search(text) or ("+" in text and _SCRIPT.search(text)))
    return has_sign and not _WORD.search(_SCRIPT.sub(" ", text))


def add_latex(page: Any, blocks: Sequence[Any], regions: Sequence[Region]) -> list[Region]:
    """The regions, the formulas among them with their LaTeX where it is certain; other pages cost nothing."""
    if not any(region.label == "formula" for region in regions):
        return list(regions)
    merged = _take_in_symbols(regions)
    glyphs = list(_extract_glyphs(page))
    drawings = [Rect(*block["bbox"]) for block in blocks if block["type"] == 3]
    return [
        replace(region, latex=_write(region, glyphs, drawings))
        if region.label == "formula" and region.words
        else region
        for region in merged
    ]


def _take_in_symbols(regions: Sequence[Region]) -> list[Region]:
    """Add stray signs that touch a formula, such as a tall radical, to its words: the layout model cuts them off."""
    kept = list(regions)
    for orphan in [region for region in regions if region.label == ORPHAN and _is_sign(region)]:
        near = [n for n, other in enumerate(kept) if other.label == "formula" and other.box.intersects(orphan.box)]
        if len(near) == 1:
            host = kept[near[0]]
            kept[near[0]] = replace(host, box=host.box.union(orphan.box), words=(*host.words, *orphan.words))
            kept = [region for region in kept if region is not orphan]
    return kept


def _is_sign(region: Region) -> bool:
    text = "".join(word.text for word in region.words)
    return len(text) <= MAX_ORPHAN and not any(map(str.isalnum, text))


@dataclass(frozen=True)
class _PageGlyph:
    """A glyph of a page, its character in the text layer, and the point by which it is found in a word's box."""

    glyph: Glyph
    text: str
    point: tuple[float, float]


def _extract_glyphs(page: Any) -> Iterator[_PageGlyph]:
    """Yield the page's characters with the boxes of their ink."""
    import pymupdf

    flags = pymupdf.TEXT_ACCURATE_BBOXES | pymupdf.TEXT_MEDIABOX_CLIP
    for block in page.get_text("rawdict", flags=flags)["blocks"]:
        for span in (span for line in block.get("lines", ()) for span in line["spans"]):
            family = symbols.find_font_family(span["font"])
            is_italic = bool(span["flags"] & 2) or family.startswith("CMMI")
            for char in span["chars"]:
                text, (x, y), box = char["c"], char["origin"], Rect(*char["bbox"])
                if text.isspace() or _INVISIBLE.fullmatch(text):
                    continue
                glyph = Glyph(symbols.decode(text, family), box, y, span["size"], is_italic)
                yield _PageGlyph(glyph, text, ((x + box.x1) / 2, y - 0.2 * span["size"]))


def _write(region: Region, glyphs: Sequence[_PageGlyph], drawings: Sequence[Rect]) -> str | None:
    """Write the LaTeX of a formula, if its characters are those of its words and all drawings in it are rules."""
    if not all(word.upright for word in region.words):
        return None
    boxes = [word.box for word in region.words]
    own = [glyph for glyph in glyphs if any(box.contains(glyph.point, 0.5) for box in boxes)]
    if _letters(glyph.text for glyph in own) != _letters(word.text for word in region.words):
        return None
    bounds = enclose([region.box, *boxes, *(one.glyph.box for one in own)])
    outer = bounds.grow(MARGIN)
    if any(outer.contains(box[:2]) and outer.contains(box[2:]) and not _is_bar(box) for box in drawings):
        return None  # it may be a bracket, or a stroke that crosses something out
    rules = [box for box in drawings if outer.contains(box.centre) and _is_bar(box)]
    return latex.write_latex([one.glyph for one in own], rules)


def _is_bar(box: Rect) -> bool:
    """Whether a drawing is as thin as a fraction bar."""
    return box.height <= MAX_RULE_HEIGHT < box.width


def _letters(texts: Iterator[str]) -> list[str]:
    return sorted(char for text in texts for char in unicodedata.normalize("NFKD", text) if char.isalnum())
