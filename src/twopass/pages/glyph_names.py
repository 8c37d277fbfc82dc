"""Name the glyphs of a printed book by the letters that they show.

MuPDF names the glyphs of a PDF that it prints by their font, and fonts do not name those that a letter has only inside
a word, such as the Arabic lam. The book's own pages still have the letters of each glyph.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_UNNAMED = "\ufffd"
_IN_ONE_TABLE = 100  # entries; more are not allowed
_NO_GLYPH = -1  # of a letter that belongs to the glyph before it


@dataclass
class _Glyph:
    font: str
    number: int
    letters: str  # none if the glyph before it shows them, too

    def agrees(self, other: _Glyph) -> bool:
        """Whether both can name the same letters: in a syllable of Hindi, a glyph may stand for another letter."""
        own, others = (unicodedata.normalize("NFKD", glyph.letters) for glyph in (self, other))
        return not own or not others or own.startswith(others) or others.startswith(own)


def add(book: Any, pdf: Any) -> None:
    """Add the missing names to the fonts of `pdf`, which was printed from `book`.

    A glyph is named if it shows the same letters everywhere, beside glyphs whose names are right.
    """
    found = defaultdict[tuple[str, int], set[str]](set)
    for number, page in enumerate(pdf):
        if _UNNAMED in page.get_text(flags=0):
            _compare(list(_list_glyphs(book[number])), list(_list_glyphs(page)), found)
    names = defaultdict[str, dict[int, str]](dict)
    for (font, glyph), letters in found.items():
        if len(letters) == 1 and (name := min(letters)):
            names[font][glyph] = name
    if names:
        fonts = {font[:4] for number in range(pdf.page_count) for font in pdf.get_page_fonts(number)}
        for font, own in names.items():
            xrefs = [xref for xref, _, kind, name in fonts if name == font and kind == "Type0"]
            if len(xrefs) == 1:  # of several with one name, it is not known which one has the glyph
                _extend(pdf, xrefs[0], own)


def _compare(book: list[_Glyph], printed: list[_Glyph], found: dict[tuple[str, int], set[str]]) -> None:
    """Collect what the unnamed glyphs of a page show; "" for one that cannot be named."""
    if [glyph.number for glyph in book] != [glyph.number for glyph in printed]:
        return
    right = [theirs.letters == _UNNAMED or ours.agrees(theirs) for ours, theirs in zip(book, printed, strict=True)]
    for index, (ours, theirs) in enumerate(zip(book, printed, strict=True)):
        if theirs.letters == _UNNAMED:
            is_sure = all(right[max(index - 1, 0) : index + 2])
            found[ours.font, ours.number].add(ours.letters if is_sure else "")


def _list_glyphs(page: Any) -> Iterator[_Glyph]:
    glyph: _Glyph | None = None
    for span in page.get_texttrace():
        for letter, number, *_ in span["chars"]:
            text = chr(letter) if letter > 0 else ""
            if number != _NO_GLYPH:
                if glyph:
                    yield glyph
                glyph = _Glyph(span["font"], number, text)
            elif glyph:
                glyph.letters += text
    if glyph:
        yield glyph


def _extend(pdf: Any, xref: int, names: Mapping[int, str]) -> None:
    kind, value = pdf.xref_get_key(xref, "ToUnicode")
    if kind != "xref":
        return
    table = int(value.split()[0])
    entries = [f"<{glyph:04x}> <{name.encode('utf-16-be').hex()}>" for glyph, name in sorted(names.items())]
    blocks = [entries[start : start + _IN_ONE_TABLE] for start in range(0, len(entries), _IN_ONE_TABLE)]
    text = "".join(f"{len(block)} beginbfchar\n" + "\n".join(block) + "\nendbfchar\n" for block in blocks)
    pdf.update_stream(table, pdf.xref_stream(table).replace(b"endcmap", text.encode() + b"endcmap"))
