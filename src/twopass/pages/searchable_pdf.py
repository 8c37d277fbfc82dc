"""Write a PDF with the pages of a source and an invisible layer of their text, which viewers search and copy.

Pages of a PDF stay as they are, with their links, outline and forms; images become pages, without a loss where the
format allows it. The text is in a font without outlines, which has a code for each character: built-in fonts lack most
scripts.
"""

from __future__ import annotations

import base64
import io
import re
import shutil
import unicodedata
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from twopass.document import Box, Word
from twopass.pages import image_bands, word_places
from twopass.pages.ink import PageInk, Turn
from twopass.pages.rendered_page import PagePointer
from twopass.pages.source_files import (
    FULL_IMAGE_SHARE,
    PageSize,
    check_images,
    get_orientation,
    get_turn_matrix,
    measure_image_share,
    open_for_changes,
    open_image,
    open_page,
    render_display_list,
    translate_pdf_errors,
)
from twopass.pages.text_layer import NO_LAYER, TextLayer

# Pixels of the page's longer side in which ink is looked for: on A4 they are 140 dpi, which show the gaps.
_LONG_SIDE = (1650, 2200)
_DPI = 100
_SOUND = 0.9  # of a text's words: a page that has so many of them in the text's boxes needs no others
_MARGIN = 0.004  # of the page: boxes of models are not exact
_SAME_WORD = 0.3  # of the lower height and the smaller width, that a word shares with the page's own
_SPACE_HEIGHTS = 3.0  # a wider gap lies between columns
_LEFT_TO_RIGHT = re.compile(r"[0-9A-Za-z]+(?:[.,:/+-][0-9A-Za-z]+)*")
_MAX_CODES = 0xFFFF
_JPEG_QUALITY = 92  # of images in formats that lose something themselves and that PDF does not have
_LOSSY = ("WEBP", "AVIF", "HEIF", "JPEG2000")
_ASCENT, _DESCENT, _ADVANCE = 800, -200, 500  # of the font, in thousandths: a word's box is as high as its letters
# A TrueType font of one glyph without outlines: the tables head, hhea, hmtx, maxp, loca and glyf.
_FONT = zlib.decompress(
    base64.b85decode(
        "c-muNWME)mV{l+#Vo*rWsZ3*lfDb^-n30;8lF03B0c7U@u~`OCfLV!A56E5u#3~uNB^8Wc!0KNBF-uN<aw1g!8xTJ?v7!KIE)$S_0*DnDKz0Ff)"
        "{6<><N0mAGB7j0V88(XEf~KrD*zeHV4VyQJ<JOKf$o6X1{Og9j4-pIfC=4HxK1Dd05ZfJv;"
    )
)
# From the unit square to the page, by EXIF's orientation: the factors of width (w) and height (h).
_ORIENTED = {
    1: "{w} 0 0 {h} 0 0",
    2: "-{w} 0 0 {h} {w} 0",
    3: "-{w} 0 0 -{h} {w} {h}",
    4: "{w} 0 0 -{h} 0 {h}",
    5: "0 -{h} -{w} 0 {w} {h}",
    6: "0 -{h} {w} 0 0 {h}",
    7: "0 {h} {w} 0 0 0",
    8: "0 {h} -{w} 0 {w} 0",
}


class Removal(StrEnum):
    """What is removed of a page's own text."""

    NOTHING = ""
    ALL = "all"
    INVISIBLE = "invisible"


@dataclass(frozen=True)
class PageText:
    """The texts of a page in reading order, and the words whose places are known.

    `keeps_layer` means that the texts were taken from the page's own layer, which therefore stays also under a scan.
    """

    pointer: PagePointer
    texts: tuple[word_places.Text, ...]
    known: TextLayer = NO_LAYER
    keeps_layer: bool = False


class PlacedText(NamedTuple):
    """Words to add to page `number`, in boxes of the page turned by `turn` and then set upright by `skew` degrees."""

    number: int
    turn: int
    skew: float
    removal: Removal
    words: TextLayer


# ---- in a page worker: the words of one page ------------------------------------------------------


def place(page: PageText) -> PlacedText:
    """Find the places of the words that the page does not have as text yet."""
    pointer = page.pointer
    pixels, own, removal = _read_page(pointer, page.keeps_layer)
    if removal:
        own = NO_LAYER
    ink = PageInk.find(pixels, _DPI)
    skew = 0.0 if own else ink.measure_skew()
    turn = Turn(skew, pixels.shape[1], pixels.shape[0]) if skew else None
    if turn:
        ink = PageInk.find(turn.level_pixels(pixels), _DPI)
    there = defaultdict[str, list[Box]](list)
    for word in own:
        there[_fold(word.text)].append(word.box)
    placed = (word for text in page.texts for word in _place(text, page.known, own, ink, turn))
    words = [word for word in placed if word.text.strip() and not _is_there(word.box, there[_fold(word.text)])]
    return PlacedText(pointer.number, pointer.turn, skew, removal if words else Removal.NOTHING, TextLayer.of(words))


def _place(text: word_places.Text, known: TextLayer, own: TextLayer, ink: PageInk, turn: Turn | None) -> Iterator[Word]:
    written = text.all_text
    shown = _list_inside(own, text.boxes)
    if (shown and text.is_formula) or _has_letters(written, shown):
        return
    if _has_letters(written, found := _list_inside(known, text.boxes)):
        words = _level(found, turn) if turn else found
    else:
        boxes = tuple(map(turn.level, text.boxes)) if turn else text.boxes
        words = word_places.place(text._replace(boxes=boxes), ink)
    there = Counter(_fold(word.text) for word in shown if text.is_picture)
    for word in words:
        if there[_fold(word.text)] > 0:  # wherever in the picture: places on its ink are not exact
            there[_fold(word.text)] -= 1
        else:
            yield word


def _level(words: Sequence[Word], turn: Turn) -> list[Word]:
    return [Word(turn.level(word.box), word.text) for word in words]


def _list_inside(layer: TextLayer, boxes: Sequence[Box]) -> list[Word]:
    """The words whose centre lies in one of the boxes."""
    areas = [box.grow(_MARGIN) for box in boxes]
    return [word for word in layer if any(area.contains(word.box.centre) for area in areas)]


def _fold(text: str) -> str:
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold()))


def _has_letters(text: str, words: Sequence[Word]) -> bool:
    """Whether the words have nearly all letters of the text; their hyphens and spaces may be others."""
    letters, found = Counter(_fold(text)), Counter(_fold("".join(word.text for word in words)))
    both = (letters & found).total()
    return bool(words) and both >= _SOUND * max(letters.total(), 1)


def _is_there(box: Box, others: Iterable[Box]) -> bool:
    return any(
        box.overlap_x(other) >= _SAME_WORD * min(box.width, other.width)
        and box.overlap_y(other) >= _SAME_WORD * min(box.height, other.height)
        for other in others
    )


def _read_page(pointer: PagePointer, keeps_layer: bool) -> tuple[Any, TextLayer, Removal]:
    """The page's pixels, its own words, and which of them are to be removed."""
    if not pointer.is_pdf:
        return _draw_image(pointer), NO_LAYER, Removal.NOTHING
    with open_page(pointer.file, pointer.number, pointer.turn, pointer.password) as page:
        check_images(page)
        display_list = page.get_displaylist()
        zoom = _choose_zoom(page.rect.width, page.rect.height)
        removal = Removal.NOTHING if keeps_layer else _judge_layer(page, measure_image_share(display_list))
        return render_display_list(display_list, zoom, zoom), _read_layer(page), removal


def _choose_zoom(width: float, height: float) -> float:
    long, (least, most) = max(width, height), _LONG_SIDE
    return min(max(_DPI * long / 72, least), most) / long


def _draw_image(pointer: PagePointer) -> Any:
    with open_image(pointer.file, 1 << 62) as image:  # its pixels were checked when the file was fetched
        image.seek(pointer.number - 1)
        image.load()
        width, height = image.size[::-1] if get_orientation(image) >= 5 else image.size
        scale = min(_LONG_SIDE[0] / max(width, height), 1.0)
        array = image_bands.draw(image, (max(round(width * scale), 1), max(round(height * scale), 1)))
    return np.ascontiguousarray(np.rot90(array, -pointer.turn // 90))


def _read_layer(page: Any) -> TextLayer:
    import pymupdf

    width, height, matrix = page.rect.width, page.rect.height, pymupdf.Matrix(*get_turn_matrix(page))
    words = page.get_textpage(flags=pymupdf.TEXTFLAGS_WORDS).extractWORDS()
    boxes = (pymupdf.Rect(word[:4]) * matrix for word in words)
    return TextLayer.of(
        Word(Box.of(x0, y0, x1, y1, width, height), word[4].encode("utf-8", "replace").decode())
        for (x0, y0, x1, y1), word in zip(boxes, words, strict=True)
    )


def _judge_layer(page: Any, image_share: float) -> Removal:
    """What to remove of a scan's old layer: all text if it lies under the scan, else what is invisible."""
    area = abs(page.rect)
    covered, visible, invisible = 0, 0, 0
    for kind, box in page.get_bboxlog():
        if kind == "fill-image" and abs((box[2] - box[0]) * (box[3] - box[1])) >= FULL_IMAGE_SHARE * area:
            covered, visible = covered + visible, 0
        visible += kind in ("fill-text", "stroke-text")
        invisible += kind == "ignore-text"
    if image_share < FULL_IMAGE_SHARE or covered + invisible <= visible:
        return Removal.NOTHING
    return Removal.ALL if covered and not visible else Removal.INVISIBLE


# ---- in a page worker: the file -------------------------------------------------------------------


def write(
    source: str, target: str, password: str | None, sizes: Sequence[PageSize | None] | None, pages: Sequence[PlacedText]
) -> None:
    """Write the PDF `target`. `sizes` are those of the pages of an image file, None for a PDF.

    A PDF is saved by appending to its bytes, so that signatures still hold for what they cover.
    """
    import pymupdf

    if sizes is None:
        shutil.copyfile(source, target)
        with open_for_changes(target, password) as pdf:
            _add_layer(pdf, pages)
            if pdf.can_save_incrementally():
                pdf.save(target, incremental=True, encryption=pymupdf.PDF_ENCRYPT_KEEP, no_new_id=True)
                return
            pdf.save(f"{target}.new", encryption=pymupdf.PDF_ENCRYPT_KEEP, no_new_id=True)
        shutil.move(f"{target}.new", target)
        return
    with translate_pdf_errors(target), pymupdf.open() as pdf:
        _add_images(pdf, source, sizes)
        _add_layer(pdf, pages)
        pdf.save(target, no_new_id=True)


def _add_layer(pdf: Any, pages: Sequence[PlacedText]) -> None:
    used = [page for page in pages if page.words]
    if not used:
        return
    font = _Font()
    xref = pdf.get_new_xref()
    for text in used:
        if text.removal:
            _remove_text(pdf, text.number, text.removal)
        page = pdf[text.number - 1]
        content = _write_words(text, font, _find_matrix(page, text), f"Tp{xref}")
        _add_font(page, f"Tp{xref}", xref)
        page.wrap_contents()
        added = _add_object(pdf, "<<>>", content.encode())
        contents = [*page.get_contents(), added]
        pdf.xref_set_key(page.xref, "Contents", f"[{' '.join(f'{number} 0 R' for number in contents)}]")
    font.write(pdf, xref)


def _remove_text(pdf: Any, number: int, removal: Removal) -> None:
    """Remove text that nobody sees. Redactions also remove the links below them, so that those are put aside."""
    import pymupdf

    is_all, nothing = removal is Removal.ALL, pymupdf.PDF_REDACT_LINE_ART_NONE
    what = pymupdf.PDF_REDACT_TEXT_REMOVE if is_all else pymupdf.PDF_REDACT_TEXT_REMOVE_INVISIBLE
    xref = pdf.page_xref(number - 1)
    annotations = pdf.xref_get_key(xref, "Annots")[1]
    pdf.xref_set_key(xref, "Annots", "null")
    page = pdf[number - 1]
    page.add_redact_annot(pymupdf.Rect(-1e5, -1e5, 1e5, 1e5), fill=False, cross_out=False)
    page.apply_redactions(images=pymupdf.PDF_REDACT_IMAGE_NONE, graphics=nothing, text=what)
    pdf.xref_set_key(xref, "Annots", annotations)


def _find_matrix(page: Any, text: PlacedText) -> Any:
    """From fractions of the page, as it was read, to the coordinates of its content.

    MuPDF's own transformation knows /Rotate, /UserUnit and the crop box.
    """
    import pymupdf

    width, height = page.rect.width, page.rect.height
    box, matrix = pymupdf.mupdf.FzRect(), pymupdf.mupdf.FzMatrix()
    pymupdf.mupdf.pdf_page_transform(pymupdf.mupdf.pdf_page_from_fz_page(page.this), box, matrix)
    unturn = {0: (1, 0, 0, 1, 0, 0), 90: (0, -1, 1, 0, 0, 1), 180: (-1, 0, 0, -1, 1, 1), 270: (0, 1, -1, 0, 1, 0)}
    turned = (height, width) if text.turn in (90, 270) else (width, height)
    upright = pymupdf.Matrix(1, 0, 0, 1, -0.5, -0.5) * pymupdf.Matrix(*turned) * pymupdf.Matrix(text.skew)
    skewed = upright * pymupdf.Matrix(1 / turned[0], 1 / turned[1]) * pymupdf.Matrix(1, 0, 0, 1, 0.5, 0.5)
    return skewed * pymupdf.Matrix(*unturn[text.turn]) * pymupdf.Matrix(width, height) * ~pymupdf.Matrix(matrix)


def _write_words(text: PlacedText, font: _Font, matrix: Any, name: str) -> str:
    operators = [f"q BT /{name} 1 Tf 3 Tr"]
    before: Word | None = None
    for word in text.words:
        if before and (gap := _find_gap(before, word)):
            operators.append(_show(" ", gap, font, matrix))
        operators.append(_show(_order_visually(word.text), word.box, font, matrix))
        before = word
    return "\n".join((*operators, "ET Q"))


def _find_gap(before: Word, word: Word) -> Box | None:
    """The space between two words of a line; None if they are not on one line."""
    one, other = before.box, word.box
    low = min(one.height, other.height)
    if one.overlap_y(other) < low / 2 or not 0 < other.x0 - one.x1 < _SPACE_HEIGHTS * low:
        return None
    return Box(one.x1, one.y0, other.x0, one.y1)


def _order_visually(text: str) -> str:
    """Right-to-left text from left to right, as PDF has it: viewers put it into logical order again.

    Without points and vowel signs, with which MuPDF takes a word apart, and which nobody types who searches for it.
    """
    text = unicodedata.normalize("NFC", text)  # an accent of its own would take a word apart, too
    if not word_places.is_rtl(text):
        return text
    text = "".join(letter for letter in text if unicodedata.category(letter) != "Mn")
    return _LEFT_TO_RIGHT.sub(lambda found: found[0][::-1], text)[::-1]


def _show(text: str, box: Box, font: _Font, matrix: Any) -> str:
    """The operators that show a text so that its letters fill the box."""
    a, b, c, d, e, f = matrix
    codes = font.encode(text)
    across, up = box.width / (len(codes) * _ADVANCE / 1000), -box.height
    x, y = box.x0, box.y1 - up * _DESCENT / 1000
    values = (across * a, across * b, up * c, up * d, x * a + y * c + e, x * b + y * d + f)
    numbers = " ".join(f"{value:.3f}" for value in values)
    return f"{numbers} Tm <{''.join(f'{code:04X}' for code in codes)}> Tj"


def _add_font(page: Any, name: str, xref: int) -> None:
    """Name the font in the page's resources, which pages may share or inherit."""
    import pymupdf
    from pymupdf import mupdf

    owner = mupdf.pdf_page_from_fz_page(page.this).obj()
    key = pymupdf.PDF_NAME("Resources")
    resources = mupdf.pdf_dict_get_inheritable(owner, key)
    resources = resources if resources.m_internal else mupdf.pdf_dict_put_dict(owner, key, 1)
    fonts = mupdf.pdf_dict_get(resources, pymupdf.PDF_NAME("Font"))
    fonts = fonts if fonts.m_internal else mupdf.pdf_dict_put_dict(resources, pymupdf.PDF_NAME("Font"), 1)
    mupdf.pdf_dict_puts(fonts, name, mupdf.pdf_new_indirect(mupdf.pdf_document_from_fz_document(page.parent), xref, 0))


def _add_object(pdf: Any, text: str, stream: bytes | None = None, xref: int | None = None, packed: bool = False) -> int:
    xref = xref or pdf.get_new_xref()
    pdf.update_object(xref, text)
    if stream is not None:
        pdf.update_stream(xref, stream, new=True, compress=not packed)
    if packed:
        pdf.update_object(xref, text)  # again: a new stream has no filter
    return int(xref)


@dataclass
class _Font:
    """The invisible font of one document: its codes count the characters in the order in which they appear."""

    codes: dict[str, int] = field(default_factory=dict)

    def encode(self, text: str) -> list[int]:
        """The codes of the characters; 0 stands for those beyond the first 65,534 of a document."""
        if len(self.codes) < _MAX_CODES - len(text):
            return [self.codes.setdefault(letter, len(self.codes) + 1) for letter in text]
        return [self.codes.get(letter, 0) for letter in text]

    def write(self, pdf: Any, xref: int) -> None:
        file = _add_object(pdf, f"<</Length1 {len(_FONT)}>>", _FONT)
        descriptor = _add_object(
            pdf,
            f"<</Type/FontDescriptor/FontName/Invisible/Flags 5/FontBBox[0 {_DESCENT} {_ADVANCE} {_ASCENT}]"
            f"/ItalicAngle 0/Ascent {_ASCENT}/Descent {_DESCENT}/CapHeight {_ASCENT}/StemV 80/FontFile2 {file} 0 R>>",
        )
        glyphs = _add_object(pdf, "<<>>", bytes(2 * (len(self.codes) + 1)))  # the only glyph, for each code
        system = "<</Registry(Adobe)/Ordering(Identity)/Supplement 0>>"
        descendant = _add_object(
            pdf,
            f"<</Type/Font/Subtype/CIDFontType2/BaseFont/Invisible/CIDSystemInfo{system}"
            f"/FontDescriptor {descriptor} 0 R/DW {_ADVANCE}/CIDToGIDMap {glyphs} 0 R>>",
        )
        meanings = _add_object(pdf, "<<>>", _write_meanings(self.codes).encode())
        _add_object(
            pdf,
            "<</Type/Font/Subtype/Type0/BaseFont/Invisible/Encoding/Identity-H"
            f"/DescendantFonts[{descendant} 0 R]/ToUnicode {meanings} 0 R>>",
            xref=xref,
        )


def _write_meanings(codes: dict[str, int]) -> str:
    """The CMap that says which character each code is."""
    rows = [f"<{code:04X}> <{letter.encode('utf-16-be').hex()}>" for letter, code in codes.items()]
    parts = (rows[start : start + 100] for start in range(0, len(rows), 100))  # the most that one section may have
    sections = "\n".join("\n".join((f"{len(part)} beginbfchar", *part, "endbfchar")) for part in parts)
    return (
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap\n"
        "/CIDSystemInfo <</Registry (Adobe) /Ordering (UCS) /Supplement 0>> def\n"
        "/CMapName /Adobe-Identity-UCS def /CMapType 2 def\n"
        f"1 begincodespacerange <0000> <FFFF> endcodespacerange\n{sections}\n"
        "endcmap CMapName currentdict /CMap defineresource pop end end"
    )


# ---- images ---------------------------------------------------------------------------------------


def _add_images(pdf: Any, source: str, sizes: Iterable[PageSize | None]) -> None:
    with open_image(source, 1 << 62) as image:
        for number, size in enumerate(sizes):
            assert size  # only pages of PDFs may be damaged
            page = pdf.new_page(width=size.width_pt, height=size.height_pt)
            image.seek(number)
            picture = _embed(pdf, source, image)
            matrix = _ORIENTED[get_orientation(image)].format(w=f"{size.width_pt:.3f}", h=f"{size.height_pt:.3f}")
            content = _add_object(pdf, "<<>>", f"q {matrix} cm /Page Do Q".encode())
            pdf.xref_set_key(page.xref, "Contents", f"{content} 0 R")
            pdf.xref_set_key(page.xref, "Resources", f"<</XObject<</Page {picture} 0 R>>>>")


def _embed(pdf: Any, source: str, image: Any) -> int:
    """The image as an object: a JPEG as it is, two colours as a fax, others without a loss but for lossy formats."""
    if image.format in ("JPEG", "MPO"):
        with open(source, "rb") as file:
            return _add_jpeg(pdf, image, file.read())
    is_lossy = image.format in _LOSSY or image.info.get("compression") == "jpeg"
    image.load()
    if image.mode == "1":
        return _add_fax(pdf, image)
    is_grey = image.mode in ("L", *image_bands.WIDE_GREY) and not image.has_transparency_data
    flat = image_bands.flatten(image)
    flat = flat.convert("L") if is_grey else flat
    buffer = io.BytesIO()
    if is_lossy:
        flat.save(buffer, "JPEG", quality=_JPEG_QUALITY)
        return _add_jpeg(pdf, flat, buffer.getvalue())
    return _add_png(pdf, flat)


def _describe_image(image: Any, filters: str) -> str:
    colours = {"1": "DeviceGray", "L": "DeviceGray", "CMYK": "DeviceCMYK"}.get(image.mode, "DeviceRGB")
    bits = 1 if image.mode == "1" else 8
    return (
        f"<</Type/XObject/Subtype/Image/Width {image.width}/Height {image.height}/ColorSpace/{colours}"
        f"/BitsPerComponent {bits}{filters}>>"
    )


def _add_jpeg(pdf: Any, image: Any, data: bytes) -> int:
    inverted = "/Decode[1 0 1 0 1 0 1 0]" if image.mode == "CMYK" else ""  # as Adobe writes it, and Pillow reads it
    return _add_object(pdf, _describe_image(image, f"/Filter/DCTDecode{inverted}"), data, packed=True)


def _add_fax(pdf: Any, image: Any) -> int:
    """Two colours, compressed as in a TIFF of group 4: Pillow's own PDF has it so."""
    import pymupdf

    buffer = io.BytesIO()
    image.save(buffer, "PDF")
    with pymupdf.open(stream=buffer.getvalue(), filetype="pdf") as fax:
        xref = fax[0].get_images()[0][0]
        return _add_object(pdf, fax.xref_object(xref), fax.xref_stream_raw(xref), packed=True)


def _add_png(pdf: Any, image: Any) -> int:
    """The pixels as a PNG file has them: PDF knows the same predictors."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    data, position, parts = buffer.getvalue(), 8, []
    while position < len(data):
        length, kind = int.from_bytes(data[position : position + 4]), data[position + 4 : position + 8]
        if kind == b"IDAT":
            parts.append(data[position + 8 : position + 8 + length])
        position += length + 12
    colours = 1 if image.mode == "L" else 3
    predictor = f"<</Predictor 15/Colors {colours}/BitsPerComponent 8/Columns {image.width}>>"
    filters = f"/Filter/FlateDecode/DecodeParms{predictor}"
    return _add_object(pdf, _describe_image(image, filters), b"".join(parts), packed=True)
