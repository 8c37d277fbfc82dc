"""Read what a page's annotations say exactly: links with the words that they cover, and form fields.

Both are read from the file's own objects. PyMuPDF's list of links takes minutes for 20,000, and has the places of the
page as it was opened, not as it is turned now.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from twopass.document import Box, FieldType, FormField, Link, Rect
from twopass.pages import source_files

_MAX_LINKS_WITH_TEXT = 2000  # of a page: the words of each are looked for among all of the page's
_BEFORE = 60  # characters in front of a link: enough to tell equal words apart
_MAX_ANCESTORS = 32  # of a field
MAX_FIELDS = 5000  # of a page; each takes 0.05 ms
_MAX_OPTIONS = 1000  # of a field
_HIDDEN, _NO_VIEW = 1 << 1, 1 << 5  # bits of an annotation's /F
_READ_ONLY, _REQUIRED, _PASSWORD, _RADIO, _PUSH_BUTTON = 1 << 0, 1 << 1, 1 << 13, 1 << 15, 1 << 16  # of a field's /Ff
_LOCAL = re.compile(r"file:", flags=re.IGNORECASE)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_OFF = "Off"  # the state of a box that is not checked


# ---- links ----


def iterate_links(page: Any) -> Iterator[Link]:
    """Yield each link to another document or site with its words; one over several lines once for each line."""
    text: _PageText | None = None
    place = _Placement(page)
    for count, annotation in enumerate(_iterate_annotations(page, "Link")):
        if not (uri := _read_uri(page, annotation)):
            continue
        text = text or _PageText.read(page)
        for rect in map(place, _read_quads(annotation) or [_read_rect(annotation)]):
            covered, before = text.find(rect) if count < _MAX_LINKS_WITH_TEXT else (None, "")
            yield Link(box=place.to_box(rect), uri=_replace_surrogates(uri), text=covered, before=before)


def _read_uri(page: Any, annotation: Any) -> str | None:
    """The address of a link; None for links inside the document and to local files."""
    uri = _read_text(_get(annotation, "A", "URI"))
    if uri and not _SCHEME.match(uri):
        uri = _read_text(_get(_get_trailer(page), "Root", "URI", "Base")) + uri
    return uri if _SCHEME.match(uri) and not _LOCAL.match(uri) else None


def _read_quads(annotation: Any) -> list[Rect]:
    """The boxes of a link's lines, as /QuadPoints give them; empty if it has none, or they leave its rectangle."""
    numbers = _read_numbers(_get(annotation, "QuadPoints"))
    corners = list(zip(numbers[::2], numbers[1::2], strict=False))
    quads = [Rect.around(corners[n : n + 4]) for n in range(0, len(corners) - 3, 4)]
    outer = _read_rect(annotation).grow(1.0)
    return quads if all(outer.contains(quad.centre) and quad.area > 0 for quad in quads) else []


@dataclass(frozen=True)
class _PageText:
    """The characters of a page's text in their order, with the centres of their boxes on the displayed page."""

    characters: str
    centres: npt.NDArray[np.float64]

    @classmethod
    def read(cls, page: Any) -> _PageText:
        import pymupdf

        characters, boxes = [], []
        blocks = page.get_textpage(flags=pymupdf.TEXTFLAGS_WORDS).extractRAWDICT()["blocks"]
        for line in (line for block in blocks for line in block.get("lines", ())):
            for character in (character for span in line["spans"] for character in span["chars"]):
                characters.append(character["c"][:1] or " ")
                boxes.append(character["bbox"])
            characters.append("\n")
            boxes.append((np.nan,) * 4)
        corners = np.array(boxes, np.float64).reshape(-1, 2, 2)
        a, b, c, d, e, f = source_files.get_turn_matrix(page)
        return cls("".join(characters), corners.mean(axis=1) @ ((a, b), (c, d)) + (e, f))

    def find(self, rect: Rect) -> tuple[str | None, str]:
        """The words in a rectangle, and the text in front of the first; None if it has none."""
        x, y = self.centres[:, 0], self.centres[:, 1]
        found = ((rect.x0 <= x) & (x <= rect.x1) & (rect.y0 <= y) & (y <= rect.y1)).nonzero()[0].tolist()
        if not found:
            return None, ""
        follows = [False, *(second == first + 1 for first, second in zip(found, found[1:], strict=False))]
        pairs = zip((self.characters[i] for i in found), follows, strict=True)
        covered = "".join(character if joined else f" {character}" for character, joined in pairs)
        return _to_line(covered) or None, _to_line(self.characters[max(found[0] - _BEFORE, 0) : found[0]])


def _to_line(text: str) -> str:
    return _replace_surrogates(" ".join(text.split()))


# ---- form fields ----


def iterate_fields(page: Any) -> Iterator[FormField]:
    """Yield what each field of a form has on this page: its place, its value, and how it is shown."""
    place = _Placement(page)
    for widget in islice(_iterate_annotations(page, "Widget"), MAX_FIELDS):
        flags = _read_int(_inherit(widget, "Ff"))
        if (type_ := _find_type(widget, flags)) is None:
            continue
        is_box = type_ in (FieldType.CHECKBOX, FieldType.RADIO)
        export, checked = _read_state(widget) if is_box else (None, None)
        value = export if is_box else _read_value(widget, type_, is_secret=bool(flags & _PASSWORD))
        box = place.to_box(place(_read_rect(widget)))
        yield FormField(
            name=_read_name(widget),
            type=type_,
            value=value,
            checked=checked,
            label=_to_line(_read_text(_inherit(widget, "TU"))) or None,
            options=_list_options(widget) if type_ is FieldType.CHOICE else (),
            box=box if box.area > 0 else None,
            read_only=bool(flags & _READ_ONLY),
            required=bool(flags & _REQUIRED),
            hidden=bool(_read_int(_get(widget, "F")) & (_HIDDEN | _NO_VIEW)) or box.area <= 0,
        )


def _find_type(widget: Any, flags: int) -> FieldType | None:
    name = _read_name_object(_inherit(widget, "FT"))
    if name == "Btn":
        return FieldType.BUTTON if flags & _PUSH_BUTTON else FieldType.RADIO if flags & _RADIO else FieldType.CHECKBOX
    return {"Tx": FieldType.TEXT, "Ch": FieldType.CHOICE, "Sig": FieldType.SIGNATURE}.get(name)


def _read_name(widget: Any) -> str:
    """The full name of a field: those of its ancestors and its own, with dots between them."""
    names, node = [], widget
    for _ in range(_MAX_ANCESTORS):
        if not node.m_internal:
            break
        names.append(_read_text(_get(node, "T")))
        node = _get(node, "Parent")
    return _replace_surrogates(".".join(filter(None, reversed(names))))


def _read_state(widget: Any) -> tuple[str | None, bool]:
    """What a box or button stands for, and whether it is checked; without a state of its own, what its field says."""
    import pymupdf

    mupdf = pymupdf.mupdf
    states = _get(widget, "AP", "N")
    names = [mupdf.pdf_to_name(mupdf.pdf_dict_get_key(states, n)) for n in range(min(_count(states), _MAX_OPTIONS))]
    on = next((name for name in names if name != _OFF), None)
    state = _read_name_object(_get(widget, "AS"))
    if not state:
        value = _inherit(widget, "V")
        said = _read_name_object(value) or _read_text(value)
        state = said if on is None or said == on else _OFF
    options = _list_options(widget)
    export = options[int(on)] if on and on.isdecimal() and int(on) < len(options) else on
    return export, state not in ("", _OFF)


def _read_value(widget: Any, type_: FieldType, is_secret: bool) -> str | None:
    value = _inherit(widget, "V")
    if type_ is FieldType.SIGNATURE:
        return _read_text(_get(value, "Name")) if _count(value) else None
    if type_ is FieldType.BUTTON or is_secret:
        return None
    if type_ is not FieldType.CHOICE:
        return _replace_surrogates(_read_text(value)) or None
    shown = dict(_read_options(widget))
    chosen = [_read_text(item) for item in _iterate_array(value)] or [_read_text(value)]
    return _replace_surrogates("\n".join(shown.get(one, one) for one in chosen if one)) or None


def _list_options(widget: Any) -> tuple[str, ...]:
    return tuple(_replace_surrogates(shown) for _, shown in _read_options(widget))


def _read_options(widget: Any) -> list[tuple[str, str]]:
    """The options of a field: the value that is stored, and the text that is shown."""
    options = []
    for option in islice(_iterate_array(_inherit(widget, "Opt")), _MAX_OPTIONS):
        pair = [_read_text(part) for part in _iterate_array(option)] or [_read_text(option)]
        options.append((pair[0], pair[-1]))
    return options


# ---- objects of the file ----


class _Placement:
    """Converts rectangles of the file to points of the page as it is displayed now."""

    def __init__(self, page: Any) -> None:
        import pymupdf

        mupdf = pymupdf.mupdf
        self._matrix, box = mupdf.FzMatrix(), mupdf.FzRect(mupdf.FzRect.Fixed_UNIT)
        mupdf.pdf_page_transform(mupdf.pdf_page_from_fz_page(page.this), box, self._matrix)
        self._width, self._height = page.rect.width, page.rect.height

    def __call__(self, rect: Rect) -> Rect:
        m = self._matrix
        corners = ((x, y) for x in (rect.x0, rect.x1) for y in (rect.y0, rect.y1))
        return Rect.around((m.a * x + m.c * y + m.e, m.b * x + m.d * y + m.f) for x, y in corners)

    def to_box(self, rect: Rect) -> Box:
        return Box.of(*rect, self._width, self._height)


def _iterate_annotations(page: Any, subtype: str) -> Iterator[Any]:
    import pymupdf

    annotations = _get(pymupdf.mupdf.pdf_page_from_fz_page(page.this).obj(), "Annots")
    return (one for one in _iterate_array(annotations) if _read_name_object(_get(one, "Subtype")) == subtype)


def _get_trailer(page: Any) -> Any:
    import pymupdf

    return pymupdf.mupdf.pdf_trailer(pymupdf.mupdf.pdf_page_from_fz_page(page.this).doc())


def _get(node: Any, *keys: str) -> Any:
    import pymupdf

    for key in keys:
        node = pymupdf.mupdf.pdf_dict_gets(node, key)
    return node


def _inherit(node: Any, key: str) -> Any:
    """What a field or the nearest of its ancestors has under this key."""
    import pymupdf

    return pymupdf.mupdf.pdf_dict_gets_inheritable(node, key)


def _count(node: Any) -> int:
    import pymupdf

    return int(pymupdf.mupdf.pdf_dict_len(node))


def _iterate_array(node: Any) -> Iterator[Any]:
    import pymupdf

    mupdf = pymupdf.mupdf
    return (mupdf.pdf_array_get(node, index) for index in range(mupdf.pdf_array_len(node)))


def _read_numbers(node: Any) -> list[float]:
    import pymupdf

    return [pymupdf.mupdf.pdf_to_real(number) for number in _iterate_array(node)]


def _read_rect(node: Any) -> Rect:
    numbers = _read_numbers(_get(node, "Rect"))[:4]
    return Rect.around(zip(numbers[::2], numbers[1::2], strict=True)) if len(numbers) == 4 else Rect(0, 0, 0, 0)


def _read_int(node: Any) -> int:
    import pymupdf

    return int(pymupdf.mupdf.pdf_to_int(node))


def _read_name_object(node: Any) -> str:
    import pymupdf

    return str(pymupdf.mupdf.pdf_to_name(node))


def _read_text(node: Any) -> str:
    """A string, or the text of a stream; empty for any other object."""
    import pymupdf

    mupdf = pymupdf.mupdf
    if mupdf.pdf_is_stream(node):
        return str(mupdf.pdf_load_stream_or_string_as_utf8(node))
    return str(mupdf.pdf_to_text_string(node)) if mupdf.pdf_is_string(node) else ""


def _replace_surrogates(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
