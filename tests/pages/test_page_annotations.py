"""Links and form fields are what the PDF says, wherever the page is turned and cropped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pymupdf
import pytest

from twopass.document import FieldType, FormField, Link
from twopass.pages import page_annotations
from twopass.steps import render

Draw = Callable[[pymupdf.Page], None]


@contextmanager
def open_page(draw: Draw, font: str = "helv") -> Iterator[pymupdf.Page]:
    """A page of a file that was saved and opened again."""
    with pymupdf.open() as drawn:
        draw(drawn.new_page(width=595, height=842))
        data = drawn.tobytes()
    with pymupdf.open("pdf", data) as document:
        yield document[0]


def read_links(draw: Draw) -> list[Link]:
    with open_page(draw) as page:
        return list(page_annotations.iterate_links(page))


def add_link(page: pymupdf.Page, rect: tuple[float, ...], uri: str) -> None:
    page.insert_link({"kind": pymupdf.LINK_URI, "from": pymupdf.Rect(rect), "uri": uri})


@pytest.mark.parametrize("user_unit", [1, 2])
@pytest.mark.parametrize("crop", [None, (50, 40, 500, 700)])
@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_a_link_covers_its_words_on_a_page_that_is_turned_and_cropped(
    rotation: int, crop: tuple[float, ...] | None, user_unit: int
) -> None:
    """The box of a link lies around the words that it covers, as the text layer has them on the displayed page."""

    def draw(page: pymupdf.Page) -> None:
        page.insert_text((100, 200), "See the harbour office. Then wait.")
        add_link(page, (140, 188, 209, 204), "https://a.b/c?d#e")
        if crop:
            page.set_cropbox(pymupdf.Rect(crop))
        page.set_rotation(rotation)
        page.parent.xref_set_key(page.xref, "UserUnit", str(user_unit))

    with open_page(draw) as page:
        (link,) = page_annotations.iterate_links(page)
        words = render._to_layer(page, render.get_text_page(page).extractWORDS())

    assert (link.text, link.before, link.uri) == ("harbour office", "See the", "https://a.b/c?d#e")
    assert words.inside([link.box], margin=0.005) == "harbour office."


def test_a_page_that_is_turned_after_it_was_opened_has_its_links_in_place() -> None:
    """The links of a page that is turned for reading are turned with it."""

    def draw(page: pymupdf.Page) -> None:
        page.insert_text((100, 200), "See the harbour office.")
        add_link(page, (140, 188, 209, 204), "https://a.b/")

    with open_page(draw) as page:
        page.set_rotation(90)
        (link,) = page_annotations.iterate_links(page)

    assert link.text == "harbour office" and link.box.height > link.box.width


def test_a_link_over_several_lines_is_one_for_each() -> None:
    """/QuadPoints give the lines of a link; its rectangle also covers words that are none of it."""

    def draw(page: pymupdf.Page) -> None:
        page.insert_text((100, 200), "Ask before noon at the harbour")
        page.insert_text((100, 214), "office, or write to the board.")
        add_link(page, (100, 190, 300, 220), "https://a.b/")
        quads = "[195 652 252 652 195 640 252 640 100 638 126.5 638 100 626 126.5 626]"
        page.parent.xref_set_key(page.annot_xrefs()[0][0], "QuadPoints", quads)

    assert [link.text for link in read_links(draw)] == ["the harbour", "office"]


def test_only_addresses_are_links() -> None:
    """Links inside the document and to local files are left out; one relative to the file's base is completed."""

    def draw(page: pymupdf.Page) -> None:
        add_link(page, (50, 60, 70, 80), "mailto:a@b.c")
        page.insert_link({"kind": pymupdf.LINK_GOTO, "from": pymupdf.Rect(1, 2, 3, 4), "page": 0})
        page.insert_link({"kind": pymupdf.LINK_LAUNCH, "from": pymupdf.Rect(1, 2, 3, 4), "file": "other.pdf"})
        add_link(page, (50, 60, 70, 80), "https://a.b/x")
        page.parent.xref_set_key(page.annot_xrefs()[3][0], "A/URI", "(rules.html)")
        page.parent.xref_set_key(page.parent.pdf_catalog(), "URI", "<</Base(https://a.b/)>>")

    assert [(link.uri, link.text) for link in read_links(draw)] == [
        ("mailto:a@b.c", None),
        ("https://a.b/rules.html", None),
    ]


# ---- fields ----


def read_fields(draw: Draw) -> list[FormField]:
    with open_page(draw) as page:
        return list(page_annotations.iterate_fields(page))


def add_widget(page: pymupdf.Page, kind: int, name: str, value: Any = None, **attributes: Any) -> None:
    widget = pymupdf.Widget()
    widget.field_type, widget.field_name, widget.field_value = kind, name, value
    widget.rect = attributes.pop("rect", pymupdf.Rect(100, 100, 200, 120))
    for attribute, given in attributes.items():
        setattr(widget, attribute, given)
    page.add_widget(widget)


def set_key(page: pymupdf.Page, key: str, value: str, index: int = -1) -> None:
    page.parent.xref_set_key(page.annot_xrefs()[index][0], key, value)


TEXT, CHECKBOX, RADIO = (
    pymupdf.PDF_WIDGET_TYPE_TEXT,
    pymupdf.PDF_WIDGET_TYPE_CHECKBOX,
    pymupdf.PDF_WIDGET_TYPE_RADIOBUTTON,
)


def test_a_text_field_has_its_name_value_label_and_place() -> None:
    """A text field says all that the file says of it."""

    def draw(page: pymupdf.Page) -> None:
        add_widget(page, TEXT, "name", "Hedda Brooks", field_label="Your name", field_flags=1 | 2)

    (field,) = read_fields(draw)

    assert (field.name, field.type, field.value, field.label) == ("name", FieldType.TEXT, "Hedda Brooks", "Your name")
    assert (field.read_only, field.required, field.hidden, field.checked) == (True, True, False, None)
    assert field.box is not None and field.box.x0 == pytest.approx(100 / 595, abs=1e-4)


def test_the_name_of_a_nested_field_is_complete() -> None:
    """Names of the fields above are part of the name, and values and types are inherited from them."""

    def draw(page: pymupdf.Page) -> None:
        add_widget(page, TEXT, "town", "x")
        parent = page.parent.get_new_xref()
        page.parent.update_object(parent, "<</T(address)/FT/Tx/V(Little Hask)/Ff 1>>")
        set_key(page, "T", "(town)")
        set_key(page, "Parent", f"{parent} 0 R")

    (field,) = read_fields(draw)

    assert (field.name, field.value, field.read_only) == ("address.town", "Little Hask", True)


def test_boxes_and_radio_groups_say_what_is_checked() -> None:
    """Each button of a group is a field with its own value; the group's name is that of all."""

    def draw(page: pymupdf.Page) -> None:
        for n, (kind, name) in enumerate(
            [(CHECKBOX, "member"), (CHECKBOX, "news"), (RADIO, "berth"), (RADIO, "berth")]
        ):
            add_widget(page, kind, name, False, rect=pymupdf.Rect(100, 100 + 20 * n, 114, 114 + 20 * n))
        for n, state in enumerate(("Yes", "Off", "Off", "North")):
            set_key(page, "AS", f"/{state}", n)
        for n, name in enumerate(("Yes", "Yes", "South", "North")):
            set_key(page, "AP/N", f"<</Off null/{name} {page.annot_xrefs()[0][0]} 0 R>>", n)

    assert [(f.name, f.type, f.value, f.checked) for f in read_fields(draw)] == [
        ("member", FieldType.CHECKBOX, "Yes", True),
        ("news", FieldType.CHECKBOX, "Yes", False),
        ("berth", FieldType.RADIO, "South", False),
        ("berth", FieldType.RADIO, "North", True),
    ]


def test_a_choice_has_the_text_that_is_shown() -> None:
    """Options are stored values with texts; the value is the text, and several are lines."""

    def draw(page: pymupdf.Page) -> None:
        add_widget(page, pymupdf.PDF_WIDGET_TYPE_COMBOBOX, "berth", "n", choice_values=[("n", "North"), ("s", "South")])
        add_widget(page, pymupdf.PDF_WIDGET_TYPE_LISTBOX, "boats", "a", choice_values=["a", "b", "c"])
        set_key(page, "V", "[(a)(c)]")

    one, several = read_fields(draw)

    assert (one.value, one.options, one.type) == ("North", ("North", "South"), FieldType.CHOICE)
    assert several.value == "a\nc"


def test_passwords_are_not_read() -> None:
    """The value of a password field is left out of the document."""

    def draw(page: pymupdf.Page) -> None:
        add_widget(page, TEXT, "pin", "s3cret", field_flags=1 << 13)

    (field,) = read_fields(draw)

    assert field.value is None and "s3cret" not in field.model_dump_json()


def test_hidden_fields_say_so() -> None:
    """A field that a reader does not see is data with a mark; so is one without a place."""

    def draw(page: pymupdf.Page) -> None:
        for value in ("one", "two", "three"):
            add_widget(page, TEXT, value, value)
        set_key(page, "F", "2", 0)
        set_key(page, "F", "32", 1)
        set_key(page, "Rect", "[10 10 10 10]", 2)

    assert [(field.value, field.hidden) for field in read_fields(draw)] == [
        ("one", True),
        ("two", True),
        ("three", True),
    ]


def test_signatures_say_who_signed() -> None:
    """A signed field has the signer's name, an empty one nothing; a push button has no value."""

    def draw(page: pymupdf.Page) -> None:
        for name in ("signed", "empty", "send"):
            add_widget(page, TEXT, name, "x")
        for n, type_ in enumerate(("/Sig", "/Sig", "/Btn")):
            set_key(page, "FT", type_, n)
            set_key(page, "V", "<</Type/Sig/Name(Hedda Brooks)>>" if n == 0 else "null", n)
        set_key(page, "Ff", str(1 << 16), 2)

    assert [(field.type, field.value) for field in read_fields(draw)] == [
        (FieldType.SIGNATURE, "Hedda Brooks"),
        (FieldType.SIGNATURE, None),
        (FieldType.BUTTON, None),
    ]
