"""Check boxes, radio buttons and values of a form are words where they stand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pymupdf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engines.cpu.test_cpu_engine import read, render_page
from twopass.document import Rect, enclose
from twopass.engines.cpu import widgets
from twopass.engines.cpu.content import Grid, Region, StyledWord
from twopass.engines.cpu.page import read_page
from twopass.engines.cpu.widgets import PlacedField
from twopass.pages.rendered_page import PagePointer

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


def test_a_page_that_was_drawn_without_its_fields_is_read_without_them(tmp_path: Path) -> None:
    """What MuPDF did not return from while it drew the page is not tried again."""
    path = draw_form(tmp_path / "form.pdf")
    with pymupdf.open(path) as document:
        pixels = render_page(document[0])

    answer = json.loads(read_page(PagePointer(str(path), 1, is_bare=True), pixels, None))

    assert "I agree to the rules" in join_lines(answer) and widgets.CHECKED not in join_lines(answer)


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


def word(text: str, box: tuple[float, float, float, float], line: int = 0) -> StyledWord:
    return StyledWord(Rect(*box), text, line)


def place(box: tuple[float, float, float, float], checked: bool | None = None, value: str = "") -> PlacedField:
    return PlacedField(Rect(*box), checked, value)


def test_a_box_beside_a_region_joins_it() -> None:
    """A region grows to include the box before its first word; a box further away, or in another row, stays outside."""
    label = word("agree", (80, 70, 110, 82))
    region = Region("text", Rect(78, 68, 300, 84))
    boxes = [(60, 70, 72, 82), (10, 70, 22, 82), (60, 200, 72, 212)]

    grown = [widgets.extend_regions([region], [label], [place(box, False)])[0].box.x0 for box in boxes]

    assert grown == [60, 78, 78]


coordinates = st.floats(0, 200)


@given(
    st.lists(st.tuples(coordinates, coordinates), max_size=6), st.lists(st.tuples(coordinates, coordinates), max_size=4)
)
def test_extended_regions_hold_what_they_held(
    marks: list[tuple[float, float]], labels: list[tuple[float, float]]
) -> None:
    """Regions only grow, and none is added or lost, wherever boxes and labels stand."""
    fields = [place((x, y, x + 9, y + 9), False) for x, y in marks]
    words = [word("label", (x, y, x + 30, y + 10)) for x, y in labels]
    regions = [Region("text", Rect(x, y, x + 30, y + 10)) for x, y in labels]

    extended = widgets.extend_regions(regions, words, fields)

    assert len(extended) == len(regions)
    assert all(new.box == new.box.union(old.box) for new, old in zip(extended, regions, strict=True))


@given(
    st.lists(st.tuples(coordinates, coordinates), max_size=6), st.lists(st.tuples(coordinates, coordinates), max_size=6)
)
def test_joined_forms_hold_all_words_once(places: list[tuple[float, float]], labels: list[tuple[float, float]]) -> None:
    """No word is lost or repeated, wherever the fields, their values and their labels stand."""
    fields = [place((x, y, x + 60, y + 12)) for x, y in places]
    boxes = [*[(x, y, x + 30, y + 10) for x, y in labels], *[(x + 1, y + 1, x + 30, y + 10) for x, y in places]]
    words = [word(f"word{n}", box) for n, box in enumerate(boxes)]
    regions = [Region("text", Rect(*box), (one,)) for one, box in zip(words, boxes, strict=True)]

    joined = widgets.join_forms(regions, fields)

    assert sorted(one.text for region in joined for one in region.words) == sorted(one.text for one in words)


class Form:
    """Words and fields of a form, as they are added."""

    def __init__(self) -> None:
        self.words: list[StyledWord] = []
        self.fields: list[PlacedField] = []

    def say(self, text: str, x: float, y: float) -> None:
        for part in text.split():
            self.words.append(word(part, (x, y, x + 6 * len(part), y + 10), line=int(y)))
            x += 6 * len(part) + 4

    def fill(self, value: str, x: float, y: float, width: float = 120) -> None:
        self.fields.append(place((x - 2, y - 2, x + width, y + 12), value=value))
        self.say(value, x, y)

    def check(self, checked: bool, x: float, y: float) -> None:
        self.fields.append(place((x, y, x + 10, y + 10), checked))
        mark = widgets.CHECKED if checked else widgets.UNCHECKED
        self.words.append(StyledWord(Rect(x, y, x + 10, y + 10), mark, int(y), font=widgets.FORM_FIELD))

    def split(self, label: str = "table") -> list[str]:
        grid = Grid((), ()) if label == "table" else None
        box = Rect(0, 0, 500, 500)
        regions = widgets.split_forms([Region(label, box, tuple(self.words), grid)], self.fields)
        assert label == "text" or all(region.label == "text" and region.grid is None for region in regions)
        return [" ".join(one.text for one in region.words) for region in regions]


LABELS = ["table", "picture", "section-header", "formula", "page-footer"]


@pytest.mark.parametrize("label", LABELS)
def test_a_label_and_its_value_are_a_line_whatever_the_region_is_called(label: str) -> None:
    """Labels before their fields, one or two in a row; the number of the page is a line of its own."""
    form = Form()
    for row, (name, value) in enumerate([("Name", "Hedda Brooks"), ("Town of birth", "Little Hask"), ("Phone", "")]):
        form.say(name, 20, 20 + 20 * row)
        form.fill(value, 120, 20 + 20 * row)
    form.say("Born", 260, 20)
    form.fill("1 May", 300, 20)
    form.say("7", 250, 480)

    assert form.split(label) == ["Name Hedda Brooks", "Born 1 May", "Town of birth Little Hask", "Phone", "7"]


def test_labels_above_their_fields_go_before_the_values() -> None:
    """A value below its label, in one or several columns, follows it."""
    form = Form()
    for x, label, value in ((20, "First name", "Hedda"), (200, "Last name", "Brooks")):
        form.say(label, x, 20)
        form.fill(value, x, 36)
    form.say("Town", 20, 70)
    form.fill("Little Hask", 20, 84)

    assert form.split() == ["First name Hedda", "Last name Brooks", "Town Little Hask"]


def test_a_column_of_labels_and_one_of_values_are_lines_of_one_form() -> None:
    """Labels and values that the layout model takes for two regions are read row by row."""
    form = Form()
    for row, (label, value) in enumerate([("Mill", "Oberau"), ("Owner", "H. Mosler"), ("Leased", "no")]):
        form.say(label, 20, 20 + 20 * row)
        form.fill(value, 100, 20 + 20 * row)
    columns = {
        "text": tuple(one for one in form.words if one.box.x0 < 100),
        "picture": tuple(one for one in form.words if one.box.x0 >= 100),
    }
    regions = [Region(name, enclose([one.box for one in own]), own) for name, own in columns.items()]

    joined = widgets.split_forms(widgets.join_forms(regions, form.fields), form.fields)

    assert [" ".join(one.text for one in region.words) for region in joined] == [
        "Mill Oberau",
        "Owner H. Mosler",
        "Leased no",
    ]


def test_a_sentence_around_a_field_is_one_line_with_the_value() -> None:
    """What stands before and behind a field of a contract is one text, also where the layout model cuts it there."""
    form = Form()
    form.say("This lease is made between the guild and", 20, 20)
    form.fill("Otto Brandt", 270, 20, width=80)
    form.say("of the town of Arlen,", 360, 20)
    before, behind = ([one for one in form.words if (one.box.x0 < 265) is is_before] for is_before in (True, False))
    regions = [Region("text", enclose([one.box for one in own]), tuple(own)) for own in (before, behind)]

    (line,) = widgets.split_forms(widgets.join_forms(regions, form.fields), form.fields)

    assert " ".join(one.text for one in line.words) == (
        "This lease is made between the guild and Otto Brandt of the town of Arlen,"
    )


def test_the_value_of_a_field_that_is_wider_than_its_region_follows_the_label_above() -> None:
    """A region ends with the words that the layout model sees, also where a field goes on."""
    form = Form()
    for x, label, value in ((20, "First name", "Hedda"), (200, "Last name", "Brooks")):
        form.say(label, x, 20)
        form.fill(value, x, 36, width=150)
    region = Region("text", enclose([one.box for one in form.words]), tuple(form.words))

    lines = widgets.split_forms([region], form.fields)

    assert [" ".join(one.text for one in line.words) for line in lines] == ["First name Hedda", "Last name Brooks"]


def test_lines_of_a_value_stay_together() -> None:
    """A field of several lines is read as one line with its label."""
    form = Form()
    form.say("Remarks", 20, 20)
    form.fill("Please call before noon.", 120, 20, width=200)
    field = form.fields[-1]
    form.fields[-1] = replace(field, box=field.box._replace(y1=60))
    form.say("The dog is friendly.", 120, 36)

    assert form.split() == ["Remarks Please call before noon. The dog is friendly."]


def test_a_paragraph_of_a_form_is_one_text() -> None:
    """Lines of running text between fields stay together; short labels above each other do not."""
    form = Form()
    form.say("I know that false answers in this form can end", 20, 20)
    form.say("my supply", 20, 34)
    for row, (label, value) in enumerate((("Town", "Ulm"), ("Street", "Am Wall 3"))):
        form.say(label, 20, 60 + 20 * row)
        form.fill(value, 120, 60 + 20 * row)
    form.say("Name", 20, 110)
    form.say("Date", 20, 124)

    paragraph = "I know that false answers in this form can end my supply"
    assert form.split() == [paragraph, "Town Ulm", "Street Am Wall 3", "Name", "Date"]


def test_larger_bold_lines_of_a_form_are_headings() -> None:
    """The title of a form and those of its sections stay headings; bold labels are none."""
    form = Form()
    for text, size, y in (("Bank", 13, 20), ("IBAN", 10, 50), ("Remarks", 10, 80)):
        form.say(text, 20, y)
        form.words[-1] = replace(form.words[-1], bold=True, size=size)
    form.fill("DE02 1203", 120, 50)
    region = Region("table", Rect(0, 0, 400, 100), tuple(form.words), Grid((), ()))

    assert [part.label for part in widgets.split_forms([region], form.fields)] == ["section-header", "text", "text"]


def test_boxes_in_a_row_have_their_own_labels() -> None:
    """Several boxes in one row are lines of their own, with labels behind or before them, over several lines."""
    form = Form()
    for x, label, checked in ((20, "North quay", True), (140, "South quay", False)):
        form.check(checked, x, 20)
        form.say(label, x + 16, 20)
    form.say("Member", 20, 60)
    form.check(True, 100, 60)
    form.check(False, 20, 90)
    form.say("I have read the rules of the", 36, 90)
    form.say("harbour board", 36, 104)

    assert form.split() == [
        "☑ North quay",
        "☐ South quay",
        "Member ☑",
        "☐ I have read the rules of the harbour board",
    ]


def test_running_text_keeps_its_fields() -> None:
    """The gaps of a contract are filled in within its sentences."""
    form = Form()
    for row in range(3):
        form.say("this is a line of a long contract that goes on to the", 20, 20 + 14 * row)
    form.fill("Hedda Brooks", 360, 34, width=80)

    assert len(form.split("text")) == 1


def test_a_ruled_table_keeps_its_cells() -> None:
    """Fields in the cells of a table that rules enclose are its cells."""
    form = Form()
    for row, texts in enumerate((("Item", "Sum"), ("Rope", "12"), ("Paint", "30"))):
        for column, text in enumerate(texts):
            (form.fill if row else form.say)(text, 20 + 200 * column, 20 + 30 * row)
    xs, ys = (0, 190, 380), (10, 40, 70, 100)
    rules = [Rect(0, y, 380, y) for y in ys] + [Rect(x, 10, x, 100) for x in xs]
    table = Region("table", Rect(0, 10, 380, 100), tuple(form.words), Grid((), (), tuple(rules)))

    assert widgets.split_forms([table], form.fields) == [table]


def test_a_value_without_an_appearance_is_read(tmp_path: Path) -> None:
    """A program that fills in a form may leave the drawing to the reader: the value is in the text all the same."""
    document = pymupdf.open()
    page = document.new_page(width=595, height=400)
    page.insert_text((60, 110), "Name", fontsize=11)
    page.insert_text((60, 200), "The rules of the water works are read every year.", fontsize=11)
    add_field(page, TEXT, (120, 98, 300, 116), "Hedda Brooks")
    xref = page.annot_xrefs()[0][0]
    document.xref_set_key(xref, "AP", "null")
    document.save(tmp_path / "form.pdf")

    text = join_lines(read(tmp_path / "form.pdf"))

    assert "Name Hedda Brooks" in text and text.count("Hedda") == 1


def test_letters_in_the_boxes_of_a_field_are_its_words(tmp_path: Path) -> None:
    """A field may give each character a box of its own; the value says which of them are a word."""
    document = pymupdf.open()
    page = document.new_page(width=595, height=400)
    for row, (label, value, boxes) in enumerate((("Policy", "20457718", 10), ("Owner", "HEDDA B", 12))):
        page.insert_text((60, 110 + 60 * row), label, fontsize=11)
        box = (120, 98 + 60 * row, 360, 116 + 60 * row)
        add_field(page, TEXT, box, value, text_maxlen=boxes, field_flags=pymupdf.PDF_TX_FIELD_IS_COMB)
    page.insert_text((60, 300), "The rules of the water works are read every year.", fontsize=11)
    document.save(tmp_path / "form.pdf")

    text = join_lines(read(tmp_path / "form.pdf"))

    assert "Policy 20457718" in text and "Owner HEDDA B" in text


def test_a_row_with_a_filled_field_is_no_header(tmp_path: Path) -> None:
    """The rows of a ruled form are labels and values from the first one on."""
    document = pymupdf.open()
    page = document.new_page(width=595, height=400)
    page.insert_text((60, 60), "Registration of a vessel", fontsize=14)
    for row, (label, value) in enumerate((("1. Name", "Grey Heron"), ("2. Port", "Corvay"), ("3. Length", "8.40"))):
        page.draw_rect((60, 80 + 24 * row, 200, 104 + 24 * row))
        page.draw_rect((200, 80 + 24 * row, 400, 104 + 24 * row))
        page.insert_text((64, 96 + 24 * row), label, fontsize=10)
        add_field(page, TEXT, (202, 82 + 24 * row, 398, 102 + 24 * row), value)
    page.insert_text((60, 200), "The rules of the water works are read every year.", fontsize=11)
    document.save(tmp_path / "form.pdf")

    (table,) = [box["table"] for box in read(tmp_path / "form.pdf")["boxes"] if "table" in box]

    assert [cell["text"] for cell in table["cells"]][:2] == ["1. Name", "Grey Heron"]
    assert not any(cell["header"] for cell in table["cells"])
