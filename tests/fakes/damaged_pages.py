"""Damage PDF pages in ways that occur in files: streams, images, fonts and other objects that are cut or missing."""

from __future__ import annotations

import base64
import io
import zlib
from collections.abc import Callable, Mapping
from types import MappingProxyType

import pymupdf
from PIL import Image
from PIL.TiffImagePlugin import ROWSPERSTRIP, STRIPBYTECOUNTS, STRIPOFFSETS, TiffImageFile

MISSING = 999_999  # the number of an object that no file has
PLACE = (0.1, 0.6, 0.6, 0.85)  # of what is added to a page, as shares of its width and height
PICTURE = (240, 160)  # pixels, of the picture that is added
GARBAGE = b"\xff" * 40

Damage = Callable[[pymupdf.Page], None]


def damage(data: bytes, number: int, way: str) -> bytes:
    """The PDF with page `number` (from 0) as its only page, damaged in one of the WAYS."""
    with pymupdf.open("pdf", data) as pdf:
        pdf.select([number])
        if pdf.is_encrypted or pdf.needs_pass:
            raise ValueError("an encrypted file")
        WAYS[way](pdf[0])
        return bytes(pdf.tobytes(encryption=pymupdf.PDF_ENCRYPT_NONE))


# ---- the content stream ----


def _overwrite_start(page: pymupdf.Page) -> None:
    data = _deflate_content(page)
    _set_content(page, GARBAGE + data[len(GARBAGE) :])


def _overwrite_middle(page: pymupdf.Page) -> None:
    data = _deflate_content(page)
    middle = len(data) // 2
    _set_content(page, data[:middle] + GARBAGE + data[middle + len(GARBAGE) :])


def _cut_content(page: pymupdf.Page) -> None:
    data = _deflate_content(page)
    _set_content(page, data[: len(data) // 2])


def _cut_text_content(page: pymupdf.Page) -> None:
    """Flate in ASCII85, as old programs write it."""
    data = _deflate_content(page)
    _set_content(page, base64.a85encode(data[: len(data) // 2]) + b"~>", "[/ASCII85Decode /FlateDecode]")


def _misname_filter(page: pymupdf.Page) -> None:
    _set_content(page, _deflate_content(page), "/LZWDecode")


def _remove_content(page: pymupdf.Page) -> None:
    page.parent.xref_set_key(page.xref, "Contents", f"{MISSING} 0 R")


def _turn_content_into_dictionary(page: pymupdf.Page) -> None:
    page.parent.xref_set_key(page.xref, "Contents", f"{_add_object(page, '<</Kind/Nothing>>')} 0 R")


def _deflate_content(page: pymupdf.Page) -> bytes:
    return zlib.compress(page.read_contents())


def _set_content(page: pymupdf.Page, data: bytes, filter_name: str = "/FlateDecode") -> None:
    xref = _add_object(page, "<<>>")
    _set_stream(page, xref, data, filter_name)
    page.parent.xref_set_key(page.xref, "Contents", f"{xref} 0 R")


# ---- images ----


def _cut_jpeg(page: pymupdf.Page) -> None:
    _cut_picture(page, "JPEG", "/DCTDecode")


def _cut_jpeg_2000(page: pymupdf.Page) -> None:
    _cut_picture(page, "JPEG2000", "/JPXDecode")


def _cut_deflated_image(page: pymupdf.Page) -> None:
    data = zlib.compress(_draw_picture().tobytes())
    _set_stream(page, _add_picture(page), data[: len(data) // 2], "/FlateDecode")


def _cut_picture(page: pymupdf.Page, kind: str, filter_name: str) -> None:
    data = save_picture(kind)
    _set_stream(page, _add_picture(page), data[: len(data) // 2], filter_name)


def _cut_fax(page: pymupdf.Page) -> None:
    """An image in CCITT's format for faxes, group 4."""
    buffer = io.BytesIO()
    _draw_picture().convert("1").save(buffer, "TIFF", compression="group4", tiffinfo={ROWSPERSTRIP: PICTURE[1]})
    buffer.seek(0)
    with TiffImageFile(buffer) as tiff:
        (start,), (length,) = tiff.tag_v2[STRIPOFFSETS], tiff.tag_v2[STRIPBYTECOUNTS]
    _set_black_and_white(page, buffer.getvalue()[start : start + length // 2], "/CCITTFaxDecode")


def _overwrite_jbig2(page: pymupdf.Page) -> None:
    _set_black_and_white(page, GARBAGE * 5, "/JBIG2Decode")


def _set_black_and_white(page: pymupdf.Page, data: bytes, filter_name: str) -> None:
    xref = _add_picture(page)
    _set_stream(page, xref, data, filter_name)
    keys = {"ColorSpace": "/DeviceGray", "BitsPerComponent": "1", "DecodeParms": f"<</K -1/Columns {PICTURE[0]}>>"}
    for key, value in keys.items():
        page.parent.xref_set_key(xref, key, value)


def _remove_image(page: pymupdf.Page) -> None:
    page.parent.update_object(_add_picture(page), "null")


def _remove_colour_space(page: pymupdf.Page) -> None:
    page.parent.xref_set_key(_add_picture(page), "ColorSpace", f"[/ICCBased {MISSING} 0 R]")


def _damage_inline_image(page: pymupdf.Page) -> None:
    image = b"q 300 0 0 200 60 140 cm BI /W 20 /H 20 /CS /RGB /BPC 8 /F /Fl ID %s\nEI Q" % (GARBAGE * 5)
    _set_content(page, zlib.compress(page.read_contents() + b"\n" + image))


def _draw_picture() -> Image.Image:
    return Image.effect_noise(PICTURE, 80).convert("RGB")


def save_picture(kind: str) -> bytes:
    buffer = io.BytesIO()
    _draw_picture().save(buffer, kind)
    return buffer.getvalue()


def _add_picture(page: pymupdf.Page) -> int:
    return int(page.insert_image(_find_place(page), stream=save_picture("JPEG")))


# ---- other objects ----


def _remove_form(page: pymupdf.Page) -> None:
    page.parent.update_object(_add_forms(page)[0], "null")


def _remove_nested_form(page: pymupdf.Page) -> None:
    page.parent.update_object(_add_forms(page)[1], "null")


def _cut_form(page: pymupdf.Page) -> None:
    form = _add_forms(page)[1]
    data = zlib.compress(page.parent.xref_stream(form))
    _set_stream(page, form, data[: len(data) // 2], "/FlateDecode")


def _add_forms(page: pymupdf.Page) -> tuple[int, int]:
    """Add a form that draws another form, and return both."""
    known = {item[0] for item in page.parent.get_page_xobjects(page.number)}
    with pymupdf.open() as other:
        other.new_page(width=300, height=200).insert_text((20, 40), "A form with a line of text")
        inner = int(page.show_pdf_page(_find_place(page), other))
    (outer,) = {item[0] for item in page.parent.get_page_xobjects(page.number)} - known - {inner}
    return outer, inner


def _remove_font(page: pymupdf.Page) -> None:
    xref = page.insert_font(fontname="removed", fontbuffer=pymupdf.Font("tiro").buffer)
    page.insert_text((60, 480), "words in a font that is missing", fontname="removed")
    page.parent.update_object(xref, "null")


def _remove_appearance(page: pymupdf.Page) -> None:
    annotation = page.add_freetext_annot(_find_place(page), "a note")
    kind, value = page.parent.xref_get_key(annotation.xref, "AP/N")
    if kind != "xref":
        raise ValueError(f"the annotation has no appearance, but {kind}")
    page.parent.update_object(int(value.split()[0]), "null")


def _find_place(page: pymupdf.Page) -> pymupdf.Rect:
    box, (x0, y0, x1, y1) = page.rect, PLACE
    return pymupdf.Rect(x0 * box.width, y0 * box.height, x1 * box.width, y1 * box.height)


def _add_object(page: pymupdf.Page, text: str) -> int:
    xref = int(page.parent.get_new_xref())
    page.parent.update_object(xref, text)
    return xref


def _set_stream(page: pymupdf.Page, xref: int, data: bytes, filter_name: str) -> None:
    """Store the data as they are."""
    page.parent.update_stream(xref, data, new=True, compress=False)
    page.parent.xref_set_key(xref, "Filter", filter_name)
    page.parent.xref_set_key(xref, "DecodeParms", "null")


WAYS: Mapping[str, Damage] = MappingProxyType(
    {
        "content stream, start overwritten": _overwrite_start,
        "content stream, middle overwritten": _overwrite_middle,
        "content stream, second half missing": _cut_content,
        "content stream in ASCII85, second half missing": _cut_text_content,
        "content stream with a wrong filter": _misname_filter,
        "content stream missing": _remove_content,
        "content stream that is no stream": _turn_content_into_dictionary,
        "JPEG cut": _cut_jpeg,
        "JPEG 2000 cut": _cut_jpeg_2000,
        "deflated image cut": _cut_deflated_image,
        "CCITT cut": _cut_fax,
        "JBIG2 overwritten": _overwrite_jbig2,
        "image missing": _remove_image,
        "colour space missing": _remove_colour_space,
        "inline image overwritten": _damage_inline_image,
        "form missing": _remove_form,
        "form cut": _cut_form,
        "form in a form missing": _remove_nested_form,
        "font missing": _remove_font,
        "appearance of an annotation missing": _remove_appearance,
    }
)
