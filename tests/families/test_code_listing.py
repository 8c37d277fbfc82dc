"""Listings are one block of code with their indentation; typewritten prose is prose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pymupdf
from hypothesis import example, given
from hypothesis import strategies as st

from tests.engines.cpu.test_cpu_engine import read, save
from twopass.document import Element, Kind
from twopass.families.layout import code_listing
from twopass.families.layout.family import LayoutFamily
from twopass.families.layout.page_layout import LayoutLine

SIZE, WIDTH, PITCH = 10.0, 6.0, 12.0  # of a Courier letter, in points
LISTING = (
    "def read(path):",
    '    """Read a file."""',
    "    with open(path) as file:",
    "        return file.read()",
    "",
    "def main():",
    "    text = read('a.txt')    # whole",
    "    print(text)",
)
LETTER = (
    "Dear Sir, the level in the borehole is measured before the pump",
    "starts and after it has run for one hour, as you asked us to do in",
    "your letter of the second of May, and the results are with this one.",
)


def region(lines: tuple[str, ...], y: float, label: str = "text", **fields: Any) -> dict[str, Any]:
    """A region of lines in a font with one width for all letters; empty lines are only space."""
    built = []
    for row, text in enumerate(lines):
        x, stripped = 60 + WIDTH * (len(text) - len(text.lstrip())), text.lstrip()
        box = (x, y + PITCH * row, x + WIDTH * len(stripped), y + PITCH * row + 10)
        if stripped:
            built.append({"box": box, "text": stripped, "size": SIZE, "mono": True, **fields})
    box = (60, y, max(line["box"][2] for line in built), built[-1]["box"][3])
    return {"label": label, "box": box, "lines": built}


def parse(*boxes: dict[str, Any], via: str = "text_layer") -> list[Element]:
    answer = {"v": 2, "width": 600, "height": 800, "via": via, "boxes": boxes}
    return list(LayoutFamily().parse(json.dumps(answer), 2).elements)


def test_regions_of_one_listing_are_one_block() -> None:
    """A listing that the layout model cut into paragraphs is one block, with blank lines and indentation kept."""
    first, second = region(LISTING[:4], 100), region(LISTING[5:], 100 + 5 * PITCH, "list-item")

    (code,) = parse(first, second)

    assert (code.kind, code.text) == (Kind.CODE, "\n".join(LISTING))
    assert code.markdown == f"```\n{code.text}\n```"


def test_a_blank_line_inside_a_region_is_kept() -> None:
    """A larger distance between two lines of one region is a blank line."""
    (code,) = parse(region(LISTING, 100))

    assert code.text == "\n".join(LISTING)


def test_line_numbers_do_not_break_a_listing() -> None:
    """Numbers in the margin stand before their lines, and the code behind them keeps its indentation."""
    numbered = tuple(f"{number:2} {line}" for number, line in enumerate(filter(None, LISTING), 8))

    (code,) = parse(region(numbered, 100))

    assert code.text.splitlines() == list(numbered)


def test_text_between_two_listings_keeps_them_apart() -> None:
    """A paragraph in another font separates two blocks of code."""
    between = {"label": "text", "box": (60, 160, 300, 170), "lines": [{"box": (60, 160, 300, 170), "text": "and then"}]}

    kinds = [e.kind for e in parse(region(LISTING[:4], 100), between, region(LISTING[5:], 180))]

    assert kinds == [Kind.CODE, Kind.TEXT, Kind.CODE]


def test_listings_side_by_side_and_larger_headings_stay_apart() -> None:
    """Only what stands below in the same column, and a heading only in the same size, is part of a listing."""
    left, right = region(LISTING[:4], 100), region(LISTING[5:], 100 + 5 * PITCH)
    moved = [
        {**line, "box": (line["box"][0] + 330, line["box"][1], line["box"][2] + 330, line["box"][3])}
        for line in right["lines"]
    ]
    beside = {**right, "box": (390, *right["box"][1:2], 530, right["box"][3]), "lines": moved}
    heading = region(("read(path)",), 100 - 2 * PITCH, "section-header", size=14.0)

    assert len(parse(left, beside)) == 2
    assert [e.text for e in parse(heading, left)] == ["read(path)", "\n".join(LISTING[:4])]


def test_typewritten_prose_is_not_code() -> None:
    """On a page from a typewriter neither paragraphs nor short lines are code, but a program on it is."""
    elements = parse(region(LETTER, 100), region(("The mayor of the village",), 200), region(LISTING[5:], 300))

    assert [e.kind for e in elements] == [Kind.TEXT, Kind.TEXT, Kind.CODE]
    assert elements[0].text == " ".join(LETTER)


def test_a_page_of_listings_is_not_typewritten() -> None:
    """Where prose is less than half of what is in such fonts, a line without signs of a program is code, too."""
    elements = parse(region(LETTER, 100), region(LISTING, 200), region(("read the file",), 350), region(LISTING, 400))

    assert [e.kind for e in elements] == [Kind.TEXT, Kind.CODE, Kind.CODE, Kind.CODE]


def test_the_font_of_an_invisible_layer_makes_no_code() -> None:
    """Programs that recognise scans write their invisible text in any font."""
    assert [e.kind for e in parse(region(LISTING[:4], 100), via="hidden_layer")] == [Kind.TEXT]


@given(st.lists(st.tuples(st.text(max_size=20), st.floats(-900, 900), st.floats(-900, 900)), min_size=1, max_size=8))
@example([("a", 0.0, 0.0), ("b", 0.0, 5e-324), ("c", 0.0, 9.0)])
@example([("a", 0.0, 0.0), ("b", 0.0, 2.2e-309), ("c", 0.0, -1.0)])
def test_no_word_of_a_listing_is_lost(rows: list[tuple[str, float, float]]) -> None:
    """Wherever the lines stand, every word is in the listing, in order."""
    lines = [LayoutLine(box=(x, y, x + 50, y + 10), text=text) for text, x, y in rows]

    assert code_listing.write(lines).split() == [word for line in lines for word in line.text.split()]


def test_a_drawn_listing_is_read_with_its_columns(tmp_path: Path) -> None:
    """A listing on a page keeps its indentation, blank lines, and the blanks before a comment."""
    document = pymupdf.open()
    page = document.new_page(width=595, height=500)
    for row in range(8):
        page.insert_text((60, 50 + 16 * row), "The pump starts at six and runs for an hour or more.", fontsize=11)
    for row, line in enumerate(LISTING):
        page.insert_text((60, 220 + PITCH * row), line, fontname="cour", fontsize=SIZE)
    for row in range(8):
        page.insert_text((60, 340 + 16 * row), "Both operators write down what they see on their rounds.", fontsize=11)

    answer = read(save(document, tmp_path / "code.pdf"))

    codes = [e for e in LayoutFamily().parse(json.dumps(answer), 1).elements if e.kind is Kind.CODE]
    assert [code.text for code in codes] == ["\n".join(LISTING)]
