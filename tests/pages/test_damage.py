"""What MuPDF cannot draw of a page, from its messages and from the page's objects."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymupdf
import pytest

from tests.fakes import damaged_pages
from tests.fakes.source_files import insert_text, make_pdf
from twopass.document import FindingKind
from twopass.pages import damage, source_files
from twopass.pages.damage import MESSAGES, Effect, Fault, Row

BOX = pymupdf.Rect(72, 600, 90, 618)


@pytest.fixture
def find(tmp_path: Path) -> Callable[..., tuple[Fault, ...]]:
    """Draws a page of a PDF as `render` does, and returns its faults."""

    def find(data: bytes, number: int = 1) -> tuple[Fault, ...]:
        path = tmp_path / "file.pdf"
        path.write_bytes(data)
        with source_files.open_page(str(path), number, 0, None) as page:
            page.get_textpage(flags=pymupdf.TEXTFLAGS_WORDS)
            source_files.render_display_list(page.get_displaylist(), 0.5, 0.5)
            return damage.find_faults(page)

    return find


Find = Callable[..., tuple[Fault, ...]]


@pytest.mark.parametrize("row", MESSAGES, ids=lambda row: row.pattern)
def test_the_example_of_a_row_is_a_message_of_this_row(row: Row) -> None:
    """Each row of the table has an example, which no earlier row takes."""
    assert damage.classify(row.example) == (None if row.effect is Effect.NONE else row)


def test_an_unknown_message_is_not_ignored() -> None:
    """A message that no row knows is reported, but is not taken for a loss."""
    row = damage.classify("a message of a later version")

    assert row and row.effect is Effect.CHANGED


@pytest.mark.parametrize("way", damaged_pages.WAYS)
def test_each_way_of_damaging_a_page_is_reported(find: Find, way: str) -> None:
    """A stream, image, form, font or appearance that is cut, overwritten or missing is a loss."""
    assert any(fault.is_loss for fault in find(damaged_pages.damage(make_pdf(insert_text), 0, way)))


def test_a_cut_stream_is_named_with_what_was_read_of_it(find: Find) -> None:
    """People learn what cannot be decoded, and how much of it came before."""
    lines = b"\n".join(b"BT /helv 9 Tf 40 %d Td (entry %d) Tj ET" % (800 - n, n * n) for n in range(200))

    (fault,) = find(make_stream(lines, lambda data: data[: len(data) // 2]))

    assert fault == Fault("the content stream cannot be decoded after 4 kB")


@pytest.mark.parametrize(("size", "place"), [(40, " after 40 bytes"), (0, "")])
def test_a_short_stream_is_named_with_what_was_read_of_it(find: Find, size: int, place: str) -> None:
    """Programs write a stream of a few bytes for each line; of one that has no beginning nothing was read."""

    def overwrite(data: bytes) -> bytes:
        deflater = zlib.compressobj()
        start = deflater.compress(b"0" * size) + deflater.flush(zlib.Z_FULL_FLUSH) if size else b""
        return start + b"\xff" * 60

    assert find(make_stream(b"0", overwrite)) == (Fault(f"the content stream cannot be decoded{place}"),)


def test_a_stream_that_lacks_only_its_checksum_is_whole(find: Find) -> None:
    """Nothing is missing, although MuPDF says that the data end too early."""
    assert not find(make_stream(b"0 0 100 100 re f", lambda data: data[:-4]))


def make_stream(content: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """A PDF with a page whose content is deflated and changed."""

    def draw(page: Any) -> None:
        page.insert_font(fontname="helv")
        page.parent.xref_set_key(page.xref, "Contents", f"{(xref := page.parent.get_new_xref())} 0 R")
        page.parent.update_object(xref, "<<>>")
        page.parent.update_stream(xref, change(zlib.compress(content)), new=True, compress=False)
        page.parent.xref_set_key(xref, "Filter", "/FlateDecode")

    return make_pdf(draw)


def test_an_image_on_two_pages_is_reported_of_both(find: Find) -> None:
    """MuPDF keeps the damaged image and says nothing when it draws it again, but the second page is damaged, too."""
    with pymupdf.open("pdf", damaged_pages.damage(make_pdf(insert_text), 0, "JPEG cut")) as pdf:
        pdf.fullcopy_page(0)
        data = pdf.tobytes()

    assert find(data, 1) == find(data, 2) == (Fault("an image is damaged or incomplete (JPEG)", is_image=True),)


def test_a_sound_page_has_no_faults(find: Find) -> None:
    """Text, pictures, forms, annotations and form fields are drawn without a fault."""

    def draw(page: Any) -> None:
        insert_text(page)
        page.insert_image((72, 400, 172, 500), stream=make_picture())
        page.add_highlight_annot((72, 72, 200, 90))
        widget = pymupdf.Widget()
        widget.field_name, widget.field_type, widget.rect = "box", pymupdf.PDF_WIDGET_TYPE_CHECKBOX, BOX
        page.add_widget(widget)
        with pymupdf.open("pdf", make_pdf(insert_text)) as other:
            page.show_pdf_page(pymupdf.Rect(300, 500, 500, 700), other)

    assert not find(make_pdf(draw))


def make_picture() -> bytes:
    return bytes(pymupdf.Pixmap(pymupdf.csRGB, (0, 0, 20, 20), False).tobytes("jpeg"))


@pytest.mark.parametrize(
    "fault, kind",
    [
        (Fault("a font is missing"), FindingKind.CONTENT_LOST),
        (Fault("an image is cut", is_image=True), FindingKind.IMAGE_LOST),
        (Fault("a graphics state is missing", is_loss=False), FindingKind.CONTENT_ALTERED),
    ],
)
def test_a_fault_is_a_finding_of_the_audit(fault: Fault, kind: FindingKind) -> None:
    """Images have their own kind, and what may be complete is no loss."""
    assert fault.kind is kind
