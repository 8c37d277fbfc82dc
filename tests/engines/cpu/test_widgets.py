"""Check boxes, radio buttons and values of a form are words where they stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pymupdf
from hypothesis import given
from hypothesis import strategies as st

from tests.engines.cpu.test_cpu_engine import read
from twopass.document import Rect
from twopass.engines.cpu import widgets
from twopass.engines.cpu.content import Region, StyledWord

CHECK_BOX, RADIO = pymupdf.PDF_WIDGET_TYPE_CHECKBOX, pymupdf.PDF_WIDGET_TYPE_RADIOBUTTON
TEXT, COMBO = pymupdf.PDF_WIDGET_TYPE_TEXT, pymupdf.PDF_WIDGET_TYPE_COMBOBOX


def add_field(page: Any, kind: int, box: tuple[float, float, float, float], value: Any, **fields: Any) -> None:
    widget = pymupdf.Widget()
    widget.field_type, widget.rect, widget.field_value = kind, pymupdf.Rect(box), value
    widget.field_name = f"field{box[1]}"
    widget.text_fontsize = 10 if kind in (TEXT, COMBO) else 0
    for name, setting in fields.items():
        setattr(widget, name, setting)
    page.add_widget(widget)


def draw_form(path: Path) -> Path:
    document = pymupdf.open()
    page = document.new_page(width=595, height=400)
    page.insert_text((60, 40), "Application for a connection to the water works", fontsize=14)
    for row, (label, value) in enumerate([("I agree to the rules", True), ("I want a paper bill", False)]):
        page.insert_text((80, 80 + 24 * row), label, fontsize=11)
        add_field(page, CHECK_BOX, (60, 70 + 24 * row, 72, 82 + 24 * row), value)
    page.insert_text((80, 140), "I am the owner of the house", fontsize=11)
    add_field(page, RADIO, (60, 130, 72, 142), True)
    page.insert_text((60, 180), "Name of the owner:", fontsize=11)
    add_field(page, TEXT, (170, 168, 400, 184), "Alice Miller")
    page.insert_text((60, 210), "Village:", fontsize=11)
    add_field(page, COMBO, (170, 198, 400, 214), "Upper", choice_values=["Upper", "Lower"])
    add_field(page, CHECK_BOX, (60, 300, 72, 312), True, field_display=1)
    document.save(path)
    return path


def join_lines(answer: Any) -> str:
    """The text of all lines and cells: the layout model may see a form as a table."""
    lines = [line["text"] for box in answer["boxes"] for line in box.get("lines", ())]
    return "\n".join(
        lines + [cell["text"] for box in answer["boxes"] for cell in box.get("table", {"cells": ()})["cells"]]
    )


def test_boxes_and_buttons_show_their_state_before_their_labels(tmp_path: Path) -> None:
    """A checked box is written as ☑ and an unchecked one as ☐, in the line of its label; a hidden one not at all."""
    text = join_lines(read(draw_form(tmp_path / "form.pdf")))

    assert "☑ I agree to the rules" in text
    assert "☐ I want a paper bill" in text
    assert "☑ I am the owner of the house" in text
    assert text.count("☑") == 2 and text.count("☐") == 1 and "✓" not in text


def test_values_of_fields_are_words_once(tmp_path: Path) -> None:
    """The value of a text field or list stands once on the page, behind its label."""
    text = join_lines(read(draw_form(tmp_path / "form.pdf")))

    assert text.count("Alice Miller") == text.count("Upper") == 1
    assert "Lower" not in text
    assert text.index("Name of the owner:") < text.index("Alice Miller") < text.index("Village:") < text.index("Upper")


def test_a_box_over_its_label_keeps_the_label(tmp_path: Path) -> None:
    """Short words under a box that is as large as its label are no marks."""
    document = pymupdf.open()
    page = document.new_page(width=595, height=400)
    page.insert_text((80, 100), "I am a owner of A house", fontsize=11)
    page.insert_text((60, 200), "The rules of the water works are read every year.", fontsize=11)
    add_field(page, CHECK_BOX, (60, 86, 300, 106), False)
    document.save(tmp_path / "form.pdf")

    text = join_lines(read(tmp_path / "form.pdf"))

    assert "I am a owner of A house" in text and "☐" in text


def word(text: str, box: tuple[float, float, float, float], font: str = "") -> StyledWord:
    return StyledWord(Rect(*box), text, 0, font=font)


def test_a_box_beside_a_region_joins_it() -> None:
    """A region grows to include the box before its first word; a box further away, or in another row, stays outside."""
    label = word("agree", (80, 70, 110, 82))
    region = Region("text", Rect(78, 68, 300, 84))
    boxes = [(60, 70, 72, 82), (10, 70, 22, 82), (60, 200, 72, 212)]

    grown = [
        widgets.extend_regions([region], [label, word(widgets.UNCHECKED, box, widgets.FORM_FIELD)])[0].box.x0
        for box in boxes
    ]

    assert grown == [60, 78, 78]


coordinates = st.floats(0, 200)


@given(
    st.lists(st.tuples(coordinates, coordinates), max_size=6), st.lists(st.tuples(coordinates, coordinates), max_size=4)
)
def test_extended_regions_hold_what_they_held(
    marks: list[tuple[float, float]], labels: list[tuple[float, float]]
) -> None:
    """Regions only grow, and none is added or lost, wherever boxes and labels stand."""
    words = [word(widgets.UNCHECKED, (x, y, x + 9, y + 9), widgets.FORM_FIELD) for x, y in marks]
    words += [word("label", (x, y, x + 30, y + 10)) for x, y in labels]
    regions = [Region("text", Rect(x, y, x + 30, y + 10)) for x, y in labels]

    extended = widgets.extend_regions(regions, words)

    assert [region.box.union(larger.box) for region, larger in zip(regions, extended, strict=True)] == [
        larger.box for larger in extended
    ]
