"""What MuPDF cannot draw of a page: its messages in words for people, and missing objects that it does not mention.

MuPDF draws the rest of a damaged page without an error. It reports a damaged image only while it decodes it, and not
again while the image is in its store: the messages are those of the page's first rendering, and `source_files` empties
the store after each use of a document that left messages.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from twopass.document import FindingKind

MAX_FAULTS = 8  # of one page; a damaged stream may yield thousands of messages
_MAX_MESSAGES = 500  # different ones, that are looked at
_MAX_OBJECTS = 5_000  # that are looked at to find a damaged stream
_MAX_FORMS = 500  # of a page, whose content is searched
_MAX_CONTENT = 20 << 20  # bytes of content that are searched on one page
_MAX_DECODED = 256 << 20  # bytes of streams that are decoded on one page
_PIECE = 256  # bytes that are decoded at once: what a piece with an error holds is not counted
_SHORT = 4096  # bytes of a stream that are decoded one by one
_HIDDEN = 1 << 1 | 1 << 5  # flags of an annotation: Hidden, NoView
_UNDRAWN = frozenset({"Link", "Popup"})  # annotations that have no appearance
_FORMATS_WITH_COLOURS = frozenset({"JPXDecode", "DCTDecode"})  # images in them need no colour space


@dataclass(frozen=True)
class Fault:
    """Something of a page that is not drawn as it should be, for people."""

    what: Annotated[str, Field(max_length=200)]
    is_loss: bool = True
    is_image: bool = False

    @property
    def kind(self) -> FindingKind:
        if not self.is_loss:
            return FindingKind.CONTENT_ALTERED
        return FindingKind.IMAGE_LOST if self.is_image else FindingKind.CONTENT_LOST


class Effect(Enum):
    """What a message of MuPDF means for the page."""

    LOST = "lost"  # content is missing or wrong
    IMAGE = "image"  # an image is missing or wrong
    STREAM = "stream"  # a stream is damaged: a loss, which is described by the streams that have no end
    CHECK = "check"  # a stream may be cut: a loss only if a stream has no end
    PART = "part"  # a consequence of other damage; a loss if no other message explains it
    DOUBTFUL = "doubtful"  # the page may be complete; it explains consequences, which are then no loss
    CHANGED = "changed"  # the page may be complete; it explains no consequences
    NONE = "none"  # the page is complete


class Row(NamedTuple):
    """Messages with one meaning. `example` is one that MuPDF wrote."""

    pattern: str
    effect: Effect
    what: str
    example: str


_IMAGE = "an image"
_CONTENT = "parts of the page's content cannot be interpreted"
_PICTURE = "an image is damaged or incomplete"
_OBJECT = "an image or form that the page draws is missing or damaged"
_COLOUR = "a colour space is missing or damaged, and what it colours is not drawn or has other colours"
_PATTERN = "a pattern or shading is missing or damaged"
_FONT = "a font is missing or damaged, and its letters may be wrong or missing"
_STATE = "a graphics state is missing"
_STREAM = "data of the page cannot be decoded to the end"

# The first row that matches decides. A message that matches no row may be about a loss or not.
MESSAGES = (
    # About the file as a whole, or about what is not drawn
    Row(r"^\.\.\. repeated", Effect.NONE, "", "... repeated 3 times..."),
    Row(r"repair", Effect.NONE, "", "trying to repair broken xref"),
    Row(r"cannot find object in xref", Effect.NONE, "", "format error: cannot find object in xref (4 0 R)"),
    Row(r"cannot load object .* into cache", Effect.NONE, "", "cannot load object (4 0 R) into cache"),
    Row(r"(?i)link destination|outline|bookmark", Effect.NONE, "", "bad link destination"),
    Row(r"is no \w+ dict", Effect.NONE, "", "'Im0' is no image dict (7 0 R)"),  # PyMuPDF, also of images not drawn
    Row(r"line feed missing", Effect.NONE, "", "line feed missing after stream begin marker (13 0 R)"),
    # Drawn in spite of it
    Row(r"gstate underflow", Effect.NONE, "", "gstate underflow in content stream"),
    Row(r"with no current point", Effect.NONE, "", "closepath with no current point"),
    Row(r"ignoring broken ICC|lcms|cmsOpenProfile", Effect.NONE, "", "ignoring broken ICC profile"),
    Row(r"(?i)icc.*(not gray|numcomps|components)", Effect.NONE, "", "ICC profile is not Gray"),
    Row(r"openjpeg warning", Effect.NONE, "", "openjpeg warning: Unknown marker"),
    Row(r"jbig2dec (warning|info)", Effect.NONE, "", "jbig2dec warning: failed to decode (segment 0)"),
    Row(r"non-embedded font|(?i:find any cmaps|workaround)", Effect.NONE, "", "freetype could not find any cmaps"),
    Row(r"ActualText", Effect.DOUBTFUL, "a text that replaces letters has no place", "ActualText with no position."),
    # Images
    Row(r"image (width|height) is zero", Effect.DOUBTFUL, "an image has no size", "syntax error: image width is zero"),
    Row(r"(?i)openjpeg error|JPX", Effect.IMAGE, f"{_PICTURE} (JPEG 2000)", "syntax error: Failed to read JPX header"),
    Row(r"(?i)in jpeg|jpeg error|not a jpeg", Effect.IMAGE, f"{_PICTURE} (JPEG)", "premature end of file in jpeg"),
    Row(r"(?i)jbig2", Effect.IMAGE, f"{_PICTURE} (JBIG2)", "library error: cannot decode jbig2 image"),
    Row(r"faxd", Effect.IMAGE, f"{_PICTURE} (CCITT)", "format error: overflow in 1d faxd"),
    Row(r"padding truncated image", Effect.PART, _PICTURE, "padding truncated image"),
    # Streams
    Row(r"content stream is not a stream", Effect.LOST, "a content stream is missing or damaged",
        "content stream is not a stream (977 0 R)"),
    Row(r"cannot load content stream part", Effect.LOST, "a part of the page's content is missing or damaged",
        "cannot load content stream part 2/2"),
    Row(r"image only stream", Effect.LOST, "the content stream has the filter of an image",
        "Can't open image only stream for non-image purposes"),
    Row(r"unknown filter", Effect.LOST, "a stream has an unknown filter", "unknown filter name (FooDecode)"),
    Row(r"unknown png predictor", Effect.LOST, "a stream has wrong parameters",
        "unknown png predictor 57, treating as none"),
    Row(r"in (lzw|run length|a?hxd|ahxd|a85d)", Effect.LOST, _STREAM, "format error: bad data in ahxd: 'x'"),
    Row(r"premature end of data in flate", Effect.CHECK, _STREAM, "premature end of data in flate filter"),
    Row(r"incorrect data check", Effect.CHANGED, "the checksum of a stream is wrong",
        "ignoring zlib error: incorrect data check"),
    Row(r"ignoring zlib error", Effect.STREAM, _STREAM, "ignoring zlib error: incorrect header check"),
    Row(r"zlib error", Effect.STREAM, _STREAM, "library error: zlib error: invalid block type"),
    Row(r"treating as end of file", Effect.PART, _STREAM, "read error; treating as end of file"),
    # Objects
    Row(r"XObject", Effect.LOST, _OBJECT, "syntax error: no XObject subtype specified"),
    Row(r"non-page object", Effect.LOST, _OBJECT, "non-page object in page tree"),
    Row(r"(?i)shading|pattern", Effect.LOST, _PATTERN, "syntax error: cannot find Pattern resource 'P0'"),
    Row(r"(?i)colou?r ?space|sample function", Effect.LOST, _COLOUR,
        "syntax error: could not parse color space (977 0 R)"),
    Row(r"ExtGState", Effect.DOUBTFUL, _STATE, "syntax error: cannot find ExtGState resource 'GS0'"),
    Row(r"unknown font format", Effect.DOUBTFUL, _FONT, "unknown font format, guessing type1 or truetype."),
    Row(r"cid font type|loading embedded font|FT_New_Memory_Face|(?i:cannot load font)", Effect.LOST, _FONT,
        "ignored error when loading embedded font; attempting to load system font"),
    # What follows from others
    Row(r"object is not a stream", Effect.PART, "an object that the page needs is missing or damaged",
        "format error: object is not a stream"),
    Row(r"syntax error|Ignoring error during interpretation", Effect.PART, _CONTENT,
        "encountered syntax errors; page may not be correct"),
)  # fmt: skip
_LOSSES = (Effect.LOST, Effect.IMAGE)
_TEXT_FILTERS: Mapping[str, Callable[[bytes], bytes]] = MappingProxyType(
    {
        "ASCII85Decode": lambda data: base64.a85decode(data.partition(b"~")[0]),
        "ASCIIHexDecode": lambda data: bytes.fromhex(data.partition(b">")[0].decode("ascii")),
    }
)
_UNKNOWN = Row("", Effect.CHANGED, "MuPDF reports a fault that may not be visible", "")

_FONT_USE = re.compile(rb"/([^\s/\[\]()<>{}%]+)\s+[-+.\d]+\s+Tf\b")
_XOBJECT_USE = re.compile(rb"/([^\s/\[\]()<>{}%]+)\s+Do\b")
_STATE_USE = re.compile(rb"/([^\s/\[\]()<>{}%]+)\s+gs\b")
_ESCAPE = re.compile(r"#([0-9A-Fa-f]{2})")
_REFERENCE = re.compile(r"\b(\d+) \d+ R\b")
# Keys that lead to other pages and to what a click does, not to what the page draws.
_AWAY = re.compile(r"/(?:Parent|P|Popup|IRT|Dest|A|AA|Metadata|B)(?: |(?=\[))(?:\d+ \d+ R|\[[^]]*])")


def discard_messages() -> bool:
    """Drop MuPDF's messages, which it keeps until then; returns whether any of them was about damage."""
    return bool(_classify_all(reset=True))


def find_faults(page: Any) -> tuple[Fault, ...]:
    """What MuPDF reported since its messages were discarded, and which objects of the page are missing.

    The page must have been drawn.
    """
    faults = (*_explain(page, _classify_all(reset=False)), *_Search(page).find_missing())
    return tuple(dict.fromkeys(faults))[:MAX_FAULTS]


def _classify_all(reset: bool) -> list[Row]:
    import pymupdf

    messages = dict.fromkeys(pymupdf.TOOLS.mupdf_warnings(reset).split("\n"))
    rows = map(classify, islice(messages, _MAX_MESSAGES))
    return list(dict.fromkeys(row for row in rows if row))


def classify(message: str) -> Row | None:
    """The row of a message; None for one without any effect."""
    if not message.strip():
        return None
    row = next((row for row in MESSAGES if re.search(row.pattern, message)), _UNKNOWN)
    return None if row.effect is Effect.NONE else row


def _explain(page: Any, rows: Sequence[Row]) -> Iterator[Fault]:
    """The faults behind MuPDF's messages, without the consequences of others."""
    effects = {row.effect for row in rows}
    found = list(islice(_find_damaged_streams(page), MAX_FAULTS)) if effects & {Effect.STREAM, Effect.CHECK} else []
    found += [Fault(row.what, is_image=row.effect is Effect.IMAGE) for row in rows if row.effect in _LOSSES]
    if Effect.STREAM in effects and not found:
        found.append(Fault(_STREAM))
    found += [Fault(row.what, is_loss=False) for row in rows if row.effect is Effect.DOUBTFUL]
    if not found:
        found += [Fault(row.what, is_image=row.what == _PICTURE) for row in rows if row.effect is Effect.PART]
    yield from found
    yield from (Fault(row.what, is_loss=False) for row in rows if row.effect is Effect.CHANGED)


# ---- damaged streams ----


def _find_damaged_streams(page: Any) -> Iterator[Fault]:
    """The page's deflated streams that cannot be decoded to their end, each with what it draws."""
    pdf, left = page.parent, _MAX_DECODED
    for xref, role in _iterate_streams(page):
        if left <= 0:
            break
        filters = pdf.xref_get_key(xref, "Filter")[1].strip("[] ").replace("/", " ").split()
        if "FlateDecode" not in filters:
            continue
        data = _decode_text(pdf.xref_stream_raw(xref), filters[: filters.index("FlateDecode")])
        if data is None:
            yield Fault(_STREAM, is_loss=False)  # behind another filter: its end is not looked for
            continue
        size, is_whole = _inflate(data)
        left -= size
        if not is_whole:
            place = f" after {_write_size(size)}" if size else ""
            yield Fault(f"{role} cannot be decoded{place}", is_image=role == _IMAGE)


def _decode_text(data: bytes, filters: Sequence[str]) -> bytes | None:
    """The bytes that a stream's text stands for, if these filters made one of them; None if they cannot be undone."""
    try:
        for name in filters:
            data = _TEXT_FILTERS[name](data)
    except (KeyError, ValueError):
        return None
    return data


def _iterate_streams(page: Any) -> Iterator[tuple[int, str]]:
    """Streams that the page refers to, also through other objects, and what each is."""
    pdf, contents = page.parent, set(page.get_contents())
    keys = ("Contents", "Resources", "Annots")
    found = [int(n) for key in keys for n in _REFERENCE.findall(_get_inherited(pdf, page.xref, key))]
    seen = set(found)
    while found and len(seen) < _MAX_OBJECTS:
        xref = found.pop()
        if not 0 < xref < pdf.xref_length():
            continue
        text = _AWAY.sub("", pdf.xref_object(xref, compressed=True))
        if pdf.xref_is_stream(xref):
            yield xref, "the content stream" if xref in contents else _name_stream(text)
        new = {int(number) for number in _REFERENCE.findall(text)} - seen
        seen |= new
        found += new


def _get_inherited(pdf: Any, xref: int, key: str) -> str:
    """The value of a page's key, which may stand in one of the nodes above it."""
    for _ in range(20):
        kind, value = pdf.xref_get_key(xref, key)
        if kind != "null":
            return str(value)
        kind, parent = pdf.xref_get_key(xref, "Parent")
        if kind != "xref":
            break
        xref = int(parent.split()[0])
    return ""


def _name_stream(text: str) -> str:
    if "/Subtype/Image" in text:
        return _IMAGE
    return "a form object" if "/BBox" in text else "a font or another part"


def _inflate(data: bytes) -> tuple[int, bool]:
    """How many bytes a deflated stream has up to its end or its first error, and whether it has its end.

    The checksum behind the end is left out: programs that cut it lose nothing.
    """
    if len(data) < 2 or data[0] & 15 != 8 or (data[0] << 8 | data[1]) % 31:
        return 0, False
    inflater, size, rest = zlib.decompressobj(-zlib.MAX_WBITS), 0, memoryview(data)[2:]
    length = _PIECE if len(data) > _SHORT else 1
    try:
        while (rest or inflater.unconsumed_tail) and not inflater.eof and size < _MAX_DECODED:
            piece = inflater.unconsumed_tail or rest[:length]
            rest = rest if inflater.unconsumed_tail else rest[length:]
            size += len(inflater.decompress(piece, 1 << 16))
    except zlib.error:
        return size, False
    return size, inflater.eof or size >= _MAX_DECODED


def _write_size(size: int) -> str:
    return f"{size / 1000:.0f} kB" if size >= 1000 else f"{size} bytes"


# ---- missing objects that MuPDF does not mention ----


class _Search:
    """Looks for objects that a page uses by name and that do not exist, where MuPDF draws on without a word."""

    def __init__(self, page: Any) -> None:
        import pymupdf

        self._mupdf = pymupdf.mupdf
        self._page = page
        self._pdf = page._pdf_page().doc()
        self._content = 0  # bytes searched
        self._forms: set[int] = set()  # searched, so that the search ends

    def find_missing(self) -> Iterator[Fault]:
        node = self._page._pdf_page().obj()
        resources = self._mupdf.pdf_dict_gets_inheritable(node, "Resources")
        content = b"\n".join(map(self._read, self._page.get_contents()))
        yield from self._search_content(content, (resources,))
        annotations = self._get(node, "Annots")
        for n in range(min(self._mupdf.pdf_array_len(annotations), _MAX_OBJECTS)):
            yield from self._search_annotation(self._mupdf.pdf_array_get(annotations, n))

    def _read(self, xref: int) -> bytes:
        """The content of a stream; empty if it cannot be opened, which MuPDF has reported, or is too long."""
        limit = _MAX_CONTENT - self._content
        try:
            stream = self._mupdf.pdf_open_stream_number(self._pdf, xref)
            part = self._mupdf.fz_open_null_filter(stream, limit, 0)  # not the whole, which may be a bomb
            content = bytes(self._mupdf.fz_buffer_extract_copy(self._mupdf.fz_read_all(part, 1 << 14)))
        except (RuntimeError, ValueError, self._mupdf.FzErrorBase):
            return b""
        self._content += len(content)
        return content

    def _search_content(self, content: bytes, resources: tuple[Any, ...]) -> Iterator[Fault]:
        """Search what a content stream uses. `resources` are its own and, before them, those around it."""
        for name in _find_names(_FONT_USE, content):
            font = self._look_up(resources, "Font", name)
            if font is None or self._lacks_glyphs(font):
                yield Fault(_FONT)
        for name in _find_names(_STATE_USE, content):
            if self._look_up(resources, "ExtGState", name) is None:
                yield Fault(_STATE, is_loss=False)
        for name in _find_names(_XOBJECT_USE, content):
            xobject = self._look_up(resources, "XObject", name)
            if xobject is None:
                continue  # MuPDF reports it
            if self._get_name(xobject, "Subtype") == "Image":
                yield from self._search_image(xobject)
            else:
                yield from self._search_form(xobject, resources)

    def _search_image(self, image: Any) -> Iterator[Fault]:
        if any(self._is_dangling(self._get(image, key)) for key in ("SMask", "Mask")):
            yield Fault("the mask of an image is missing", is_image=True)
        is_mask = self._mupdf.pdf_to_bool(self._get(image, "ImageMask"))
        if not (is_mask or self._get(image, "ColorSpace").m_internal or self._states_colours(image)):
            yield Fault(_COLOUR, is_image=True)

    def _search_form(self, form: Any, resources: tuple[Any, ...]) -> Iterator[Fault]:
        xref = self._mupdf.pdf_to_num(form)
        if not xref or xref in self._forms or len(self._forms) >= _MAX_FORMS:
            return
        self._forms.add(xref)
        if not self._mupdf.pdf_is_array(self._get(form, "BBox")):
            yield Fault(_OBJECT)
        yield from self._search_content(self._read(xref), (*resources, self._get(form, "Resources")))

    def _search_annotation(self, annotation: Any) -> Iterator[Fault]:
        """Search the appearance of an annotation that is shown."""
        is_hidden = self._mupdf.pdf_to_int(self._get(annotation, "F")) & _HIDDEN
        if is_hidden or self._get_name(annotation, "Subtype") in _UNDRAWN:
            return
        appearance = self._get(self._get(annotation, "AP"), "N")
        if self._is_choice(appearance):
            appearance = self._get(appearance, self._get_name(annotation, "AS") or "Off")
        if self._is_dangling(appearance) or (appearance.m_internal and not self._mupdf.pdf_is_stream(appearance)):
            yield Fault("the appearance of an annotation or form field is missing or damaged")
        elif appearance.m_internal:
            root = self._get(self._mupdf.pdf_trailer(self._pdf), "Root")
            yield from self._search_form(appearance, (self._get(self._get(root, "AcroForm"), "DR"),))

    def _is_choice(self, appearance: Any) -> bool:
        """Whether this is one appearance for each state of a check box, not an appearance that lost its stream."""
        is_dictionary = self._mupdf.pdf_is_dict(appearance) and not self._mupdf.pdf_is_stream(appearance)
        return is_dictionary and not self._get(appearance, "BBox").m_internal

    def _look_up(self, resources: Sequence[Any], kind: str, name: str) -> Any:
        """The dictionary with this name, or None; MuPDF looks into the resources around the content, too."""
        values = (self._get(self._get(own, kind), name) for own in reversed(resources))
        return next((value for value in values if self._mupdf.pdf_is_dict(value)), None)

    def _lacks_glyphs(self, font: Any) -> bool:
        """Whether a font whose letters are drawings lacks one of them."""
        drawings = self._get(font, "CharProcs")
        count = self._mupdf.pdf_dict_len(drawings)
        return any(self._is_dangling(self._mupdf.pdf_dict_get_val(drawings, n)) for n in range(count))

    def _states_colours(self, image: Any) -> bool:
        """Whether the format of an image states its colours."""
        found = self._get(image, "Filter")
        if self._mupdf.pdf_is_array(found):
            found = self._mupdf.pdf_array_get(found, self._mupdf.pdf_array_len(found) - 1)
        return self._mupdf.pdf_to_name(found) in _FORMATS_WITH_COLOURS

    def _get(self, dictionary: Any, key: str) -> Any:
        return self._mupdf.pdf_dict_gets(dictionary, key)

    def _get_name(self, dictionary: Any, key: str) -> str:
        return str(self._mupdf.pdf_to_name(self._get(dictionary, key)))

    def _is_dangling(self, value: Any) -> bool:
        """Whether a value refers to an object that does not exist."""
        return bool(self._mupdf.pdf_is_indirect(value) and self._mupdf.pdf_is_null(value))


def _find_names(use: re.Pattern[bytes], content: bytes) -> list[str]:
    names = dict.fromkeys(use.findall(content))
    return [_ESCAPE.sub(lambda code: chr(int(code[1], 16)), name.decode("latin-1")) for name in names]
