"""Draw pages of which one font names other characters than it draws: in paragraphs, a column of a table, a heading."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pymupdf

A4 = (595.0, 842.0)
HONEST = "helv"
HEADING = "Report on the condition of the eastern quay"
PARAGRAPH = (
    "The harbour office keeps a register of every vessel that passes the lock.",
    "It names the master and the weight of the cargo, and each entry is signed",
    "before the pilot goes on board. Tolls are due within thirty days of arrival.",
    "Boats under ten tonnes pay half of the normal rate, except in winter.",
)
OTHERS = (
    "Members asked that the report for the next year should show separately",
    "what was spent on lights, on dredging and on the wages of the night watch.",
)
ROWS = (
    ("Grey Heron", "418.50"),
    ("Swift", "1,096.25"),
    ("Old Maid", "1,037.00"),
    ("Petrel", "2,250.75"),
    ("Kittiwake", "963.40"),
)
SHIFTS: Mapping[str, str] = MappingProxyType(
    {"letters and digits": "ld", "letters": "l", "digits": "d", "e, o, 4 and 9": "s"}
)
SWAPS: Mapping[str, str] = MappingProxyType({"e": "o", "o": "e", "4": "9", "9": "4"})
PLACES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"paragraph": PARAGRAPH, "column": tuple(number for _, number in ROWS), "heading": (HEADING,)}
)


def draw(place: str, font: str | None, shift: str = "ld") -> bytes:
    """A page whose text in this place is in a font that lies; None: all fonts are honest."""

    def choose(part: str) -> dict[str, str]:
        return {"fontname": font if font and part == place else HONEST}

    with pymupdf.open() as pdf:
        page = pdf.new_page(width=A4[0], height=A4[1])
        page.insert_text((60, 80), HEADING, fontsize=18, **choose("heading"))
        for n, line in enumerate(PARAGRAPH):
            page.insert_text((60, 120 + 15 * n), line, fontsize=11, **choose("paragraph"))
        for n, (name, number) in enumerate(ROWS):
            page.insert_text((70, 215 + 22 * n), name, fontsize=11, fontname=HONEST)
            page.insert_text((310, 215 + 22 * n), number, fontsize=11, **choose("column"))
            page.draw_rect((60, 200 + 22 * n, 300, 222 + 22 * n), width=0.5)
            page.draw_rect((300, 200 + 22 * n, 420, 222 + 22 * n), width=0.5)
        for n, line in enumerate(OTHERS):
            page.insert_text((60, 350 + 15 * n), line, fontsize=11, fontname=HONEST)
        if font:
            _shift(page, font, shift)
        return bytes(pdf.tobytes())


def _shift(page: pymupdf.Page, name: str, kinds: str) -> None:
    """Let a font name the letter or digit three places behind each one that it draws, or swap a few of them."""
    codes = {ord(one): ord(other) for one, other in SWAPS.items() if "s" in kinds}
    for first, last, kind in (("a", "z", "l"), ("A", "Z", "l"), ("0", "9", "d")):
        count = ord(last) - ord(first) + 1
        for n in range(count if kind in kinds else 0):
            codes[ord(first) + n] = ord(first) + (n + 3) % count
    (font,) = (found[0] for found in page.get_fonts() if found[4] == name)
    name_characters(page.parent, font, {code: codes.get(code, code) for code in range(33, 127)}, digits=2)


def name_characters(pdf: pymupdf.Document, font: int, named: Mapping[int, int], digits: int) -> None:
    """Let a font name these characters for its codes, which have so many hexadecimal digits."""
    rows = "\n".join(f"<{code:0{digits}x}> <{character:04x}>" for code, character in named.items())
    content = (
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /Shifted def /CMapType 2 def\n"
        f"1 begincodespacerange <{'0' * digits}> <{'f' * digits}> endcodespacerange\n"
        f"{len(named)} beginbfchar\n{rows}\nendbfchar\n"
        "endcmap CMapName currentdict /CMap defineresource pop end end"
    )
    xref = pdf.get_new_xref()
    pdf.update_object(xref, "<<>>")
    pdf.update_stream(xref, content.encode())
    pdf.xref_set_key(font, "ToUnicode", f"{xref} 0 R")
