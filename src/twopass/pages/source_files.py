"""A file on disk in, an open PDF or image out, with the foreign library's errors translated.

Knows PyMuPDF's and Pillow's documents. Knows nothing of where the file came from.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from twopass.document import Meta, SourceInfo
from twopass.errors import Code, SourceError

PDF = "application/pdf"
IMAGE_DPI = 144.0  # of an image that does not state one
OPEN_FILES = 2  # pages of one file come again and again, two jobs share a worker
FULL_IMAGE = 0.7  # of the page: a picture that large is a scan of it
LEAST_DPI, MOST_DPI = 30, 2400  # outside, the file's statement is a default or a joke
SQUARE = 1.02  # times as many dots down as across, or less: rounding
STRETCHED = 3.0  # times: a fax has 204 × 98, beyond that one of the two is wrong

# What Pillow raises over a damaged file; its readers trust what a header says and fall over what follows from it.
PILLOWS = (
    OSError,
    ValueError,
    SyntaxError,
    EOFError,
    MemoryError,
    TypeError,
    LookupError,
    ArithmeticError,
    struct.error,
)

_QUOTED = re.compile(r"""b?(["'`]).*?(\1|'|$)""", re.DOTALL)

_Key = tuple[str, str | None, int, int]  # path, password, time, size
_kept: dict[_Key, Any] = {}  # open PDFs


@dataclass(frozen=True)
class PageSize:
    """Points of the page as displayed; None when the page cannot be opened."""

    width_pt: float
    height_pt: float
    dpi: float | None = None  # of an image page, which has pixels already; of the finer side where they differ


@dataclass(frozen=True)
class CheckedFile:
    """A local file that may be read: its pages are counted and within limits."""

    path: Path
    stem: str
    info: SourceInfo
    pages: tuple[PageSize | None, ...]
    meta: Meta
    password: str | None = field(default=None, repr=False)

    @property
    def is_pdf(self) -> bool:
        return self.info.mime == PDF


@contextmanager
def opened_pdf(path: str, password: str | None) -> Iterator[Any]:
    """A PyMuPDF document of its own, closed at the end; its errors become SourceErrors."""
    try:
        with pdf_errors(path), _open(path, password) as pdf:
            yield pdf
    finally:
        empty_store()


@contextmanager
def shared_pdf(path: str, password: str | None) -> Iterator[Any]:
    """The document as this process keeps it open between pages; whoever changes it changes it back."""
    forget_gone()
    with pdf_errors(path):
        stat = os.stat(path)
        key = (path, password, stat.st_mtime_ns, stat.st_size)
        pdf = _kept.pop(key) if key in _kept else _open(path, password)
        _kept[key] = pdf  # the last is the one used last
        _close(list(_kept)[:-OPEN_FILES])
        yield pdf


@contextmanager
def upright(path: str, number: int, turn: int, password: str | None) -> Iterator[Any]:
    """Page `number` (from 1) of the shared document, turned clockwise by so much beyond the file's own rotation."""
    with shared_pdf(path, password) as pdf:
        page = pdf[number - 1]
        rotation_in = page.rotation
        try:
            page.set_rotation((rotation_in + turn) % 360)
            yield page
        finally:
            page.set_rotation(rotation_in)


def forget_gone() -> None:
    """Close what is kept of files that are no more: an open one holds its disk space, and its password stays here."""
    _close([key for key in _kept if not os.path.exists(key[0])])


def _close(keys: Sequence[_Key]) -> None:
    for key in keys:
        _kept.pop(key).close()
    if keys:
        empty_store()


def empty_store() -> None:
    """MuPDF keeps decoded pictures and fonts for the next page, up to 256 MB, also when their document is closed."""
    import pymupdf

    pymupdf.TOOLS.store_shrink(100)


def _open(path: str, password: str | None) -> Any:
    import pymupdf

    pdf = pymupdf.open(path, filetype="pdf")
    if pdf.needs_pass and not pdf.authenticate(password or ""):
        message = "the password is wrong" if password else "the PDF is encrypted; send its password"
        raise SourceError(Code.ENCRYPTED, message)
    return pdf


@contextmanager
def pdf_errors(path: str) -> Iterator[None]:
    """What PyMuPDF raises over a damaged file becomes DAMAGED: its own errors, MuPDF's, a page lost in repair."""
    import pymupdf

    pymupdf.TOOLS.mupdf_display_errors(False)
    try:
        yield
    except (RuntimeError, ValueError, IndexError, pymupdf.mupdf.FzErrorBase) as error:
        raise SourceError(Code.DAMAGED, f"MuPDF: {_line(error, path)}") from error


def _line(error: Exception, path: str) -> str:
    """The library's words on one line, without the path it was opened from and what it quotes of the document."""
    said = _QUOTED.sub("…", str(error).replace(path, "the source"))
    return " ".join(said.split())[:200] or type(error).__name__


def covered(page: Any) -> tuple[bool, bool]:
    """Whether an image fills the PDF page, and whether most of its text is invisible or lies under that image."""
    shown, hidden, full = 0, 0, False
    room = _unturned(page)
    for kind, box in page.get_bboxlog():
        if kind == "fill-image" and abs(room & box) >= FULL_IMAGE * abs(room):
            full, shown, hidden = True, 0, hidden + shown
        elif kind in ("fill-text", "stroke-text"):
            shown += 1
        elif kind == "ignore-text":
            hidden += 1
    return full, full and hidden > shown


def drawn(listed: Any, across: float, down: float) -> npt.NDArray[np.uint8]:
    """A display list's page in so many pixels a point across and down: height × width × 3, RGB."""
    import pymupdf

    zoom = pymupdf.Matrix(across, down)
    pixmap = listed.get_pixmap(matrix=zoom, colorspace=pymupdf.csRGB, alpha=False)
    rows = np.frombuffer(pixmap.samples_mv, np.uint8).reshape(pixmap.height, pixmap.stride)
    # A copy: the view lies in MuPDF's memory, which goes with the pixmap.
    return rows[:, : pixmap.width * 3].reshape(pixmap.height, pixmap.width, 3).copy()


def pictured(listed: Any) -> float:
    """Share of a display list's page that images take, those beneath others counted as well."""
    import pymupdf

    room = listed.rect
    images = pymupdf.TextPage(listed.get_textpage(flags=pymupdf.TEXT_PRESERVE_IMAGES)).extractIMGINFO()
    return float(sum(abs(room & image["bbox"]) for image in images) / abs(room))


def _unturned(page: Any) -> Any:
    """The page without its rotation, which is how the boxes of what is drawn on it are told.

    PyMuPDF's matrix for the way back knows neither /UserUnit nor a crop box that is larger than the page.
    """
    import pymupdf

    width, height = page.rect.width, page.rect.height
    return pymupdf.Rect(0, 0, height, width) if page.rotation % 180 else pymupdf.Rect(0, 0, width, height)


@contextmanager
def opened_image(path: str, limit: int) -> Iterator[Any]:
    """An open Pillow image, checked for pixels before any is decoded; its errors become SourceErrors."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # ours is checked below, and by name
    try:
        with Image.open(path, formats=("PNG", "JPEG", "WEBP", "TIFF")) as image:
            check_pixels(image.size, limit)
            yield image
    except PILLOWS as error:
        raise SourceError(Code.DAMAGED, f"the image cannot be read: {_line(error, path)}") from error


def check_pixels(size: tuple[int, int], limit: int) -> None:
    if size[0] * size[1] > limit:
        raise SourceError(Code.SOURCE_TOO_LARGE, f"{size[0]} × {size[1]} pixels; raise MAX_IMAGE_PIXELS or scale it")


def displayed_size(image: Any) -> tuple[int, int]:
    """Width and height after the EXIF orientation."""
    width, height = image.size
    # Pillow gives a TIFF's size as it is displayed, any other's as it is stored.
    return (height, width) if image.format != "TIFF" and _is_sideways(image) else (width, height)


def _is_sideways(image: Any) -> bool:
    return int(image.getexif().get(0x0112, 1)) >= 5


def stated_dpi(image: Any) -> tuple[float, float]:
    """The image's own resolution across and down, as displayed; IMAGE_DPI where it states none that can be true."""
    across, down = image.info.get("dpi") or (0, 0)
    across, down = (float(down), float(across)) if _is_sideways(image) else (float(across), float(down))
    if not (LEAST_DPI <= across <= MOST_DPI and LEAST_DPI <= down <= MOST_DPI):  # also of what is no number
        return IMAGE_DPI, IMAGE_DPI
    stretch = max(across, down) / min(across, down)
    if stretch > STRETCHED:
        return IMAGE_DPI, IMAGE_DPI
    return float(round(across)), float(round(down if stretch > SQUARE else across))
