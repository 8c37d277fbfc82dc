"""Open PDF and image files with PyMuPDF and Pillow, and translate the errors of both libraries into SourceErrors."""

from __future__ import annotations

import errno
import os
import re
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from twopass.document import Meta, SourceInfo
from twopass.errors import Code, SourceError
from twopass.pages import damage, file_types, optional_content

DEFAULT_IMAGE_DPI = 144.0  # of an image that states no resolution
MAX_OPEN_FILES = 2  # a page worker renders many pages of one file, and two jobs share the worker
LAYOUT_PACKAGES = {"pymupdf.layout", "pymupdf4llm"}  # loading them takes 0.8 s and 35 MB
COSTLY_FORMATS = (
    "WEBP",
    "JPEG2000",
    "AVIF",
    "HEIF",
    "JPXDecode",
)  # decoded to 16 bytes per pixel, where other formats take 4 or fewer
MAX_COSTLY_PIXELS = 150_000_000  # of an image in one of them, which takes 2.4 GB; A0 at 300 dpi has 139 million
_FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "BMP", "GIF", "JPEG2000", "AVIF", "HEIF")  # of Pillow and of pi-heif
FULL_IMAGE_SHARE = 0.7  # of the page: an image this large is a scan of the page
MIN_DPI, MAX_DPI = 30, 2400  # a stated resolution outside this range is a default or an error
ORIENTATION = 0x0112  # a field of EXIF
MAX_ROUNDING = 1.02  # ratio of the resolutions across and down: a smaller one comes from rounding
MAX_STRETCH = 3.0  # ratio of both resolutions: a fax has 204 × 98, in a larger ratio one of them is wrong

PASSWORD_HINT = "(field password, option --password)"  # where a password is given
SAVE_AGAIN = "save the file with another program"  # what to do about a damaged one

# What Pillow raises for a damaged file: its readers trust the header, and fail in many ways if the header is wrong.
PILLOW_ERRORS = (
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

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]  # checked when a page worker sends it

_DISK_FULL = os.strerror(errno.ENOSPC)  # as MuPDF quotes it
_JPX_SIZE = re.compile(rb"\xff\x4f\xff\x51....(.{16})", re.DOTALL)  # the first marker of a JPEG 2000 codestream
_QUOTED = re.compile(r"""b?(["'`]).*?(\1|'|$)""", re.DOTALL)

_Key = tuple[str, str | None, int, int]  # path, password, modification time, size
_open_pdfs: dict[_Key, Any] = {}  # least recently used first


@dataclass(frozen=True)
class PageSize:
    """Size of a page as displayed, in points, and whether it has annotations, links or form fields."""

    width_pt: Positive
    height_pt: Positive
    dpi: Positive | None = None  # of an image page; the higher one if the resolutions across and down differ
    has_annotations: bool = False


@dataclass(frozen=True)
class CheckedFile:
    """A local file that passed the checks: its type is known, and its pages are counted and within the limits.

    In `pages`, None stands for a page that cannot be opened. Of a source that was converted, it is the PDF; `info` is
    about the source, and `converter` says what made the PDF.
    """

    path: Path
    stem: str
    info: SourceInfo
    pages: tuple[PageSize | None, ...]
    meta: Meta
    password: str | None = field(default=None, repr=False)
    converter: str | None = None
    hidden: tuple[str, ...] = ()  # what the source says that is on no page of the PDF

    @property
    def is_pdf(self) -> bool:
        """Whether MuPDF opens it: what is no image is a PDF, or was converted to one."""
        return not file_types.is_image(self.info.mime)


@contextmanager
def open_pdf(path: str, password: str | None) -> Iterator[Any]:
    """Open a PyMuPDF document and close it at the end; its errors become SourceErrors.

    From here on, MuPDF's messages are about what is done with the document.
    """
    try:
        with translate_pdf_errors(path), _open(path, password) as pdf:
            damage.discard_messages()
            yield pdf
    finally:
        empty_mupdf_store()


@contextmanager
def open_revealed_page(path: str, number: int, rotation: int, password: str | None) -> Iterator[Any]:
    """Open page `number` (from 1), rotated by so many degrees, with the layers that are switched off."""
    with translate_pdf_errors(path), _open(path, password, reveal=True) as pdf:
        page = pdf[number - 1]
        page.set_rotation(rotation)
        yield page


@contextmanager
def open_shared_pdf(path: str, password: str | None) -> Iterator[Any]:
    """Open a document that this process keeps open between pages. The caller must undo any change that it makes."""
    close_deleted_files()
    with translate_pdf_errors(path):
        stat = os.stat(path)
        key = (path, password, stat.st_mtime_ns, stat.st_size)
        pdf = _open_pdfs.pop(key) if key in _open_pdfs else _open(path, password)
        _open_pdfs[key] = pdf  # appended: the most recently used is last
        _close(list(_open_pdfs)[:-MAX_OPEN_FILES])
        damage.discard_messages()
        try:
            yield pdf
        finally:
            if damage.discard_messages():
                empty_mupdf_store()  # else nothing would be reported of the next page with the same image


@contextmanager
def open_page(path: str, number: int, turn: int, password: str | None) -> Iterator[Any]:
    """Open page `number` (from 1) of the shared document.

    `turn` is a clockwise rotation in degrees, added to the file's own rotation of the page.
    """
    with open_shared_pdf(path, password) as pdf:
        page = pdf[number - 1]
        own_rotation = page.rotation
        try:
            page.set_rotation((own_rotation + turn) % 360)
            yield page
        finally:
            page.set_rotation(own_rotation)


@contextmanager
def open_bare_page(path: str, number: int, turn: int, password: str | None) -> Iterator[tuple[Any, bool]]:
    """Open page `number` (from 1) without its annotations, links and form fields; yields it and whether it had any.

    For pages whose annotations are damaged or take too long. The document is opened again, because it is changed.
    """
    with open_pdf(path, password) as pdf:
        xref = pdf.page_xref(number - 1)
        had_annotations = pdf.xref_get_key(xref, "Annots")[0] != "null"
        pdf.xref_set_key(xref, "Annots", "null")
        page = pdf[number - 1]
        page.set_rotation((page.rotation + turn) % 360)
        yield page, had_annotations


def close_deleted_files() -> bool:
    """Close documents whose file was deleted; returns whether others are open.

    Open documents hold disk space and keep their password in memory.
    """
    _close([key for key in _open_pdfs if not os.path.exists(key[0])])
    return bool(_open_pdfs)


def _close(keys: Sequence[_Key]) -> None:
    for key in keys:
        _open_pdfs.pop(key).close()
    if keys:
        empty_mupdf_store()


def import_mupdf() -> None:
    """Import PyMuPDF without its layout model, which only the cpu engine uses.

    PyMuPDF imports the packages of the model if they are installed, and does without them if that fails.
    """
    if "pymupdf" in sys.modules:
        return
    blocked = dict.fromkeys(LAYOUT_PACKAGES - sys.modules.keys())  # None in sys.modules makes an import fail
    sys.modules.update(blocked)  # type: ignore[arg-type]
    try:
        import pymupdf  # noqa: F401
    finally:
        for name in blocked:
            del sys.modules[name]


def empty_mupdf_store() -> None:
    """Empty MuPDF's store. It caches up to 256 MB of decoded images and fonts, even after the document is closed."""
    import pymupdf

    pymupdf.TOOLS.store_shrink(100)


def _open(path: str, password: str | None, reveal: bool = False) -> Any:
    pdf = _unlock(path, password)
    if not reveal:
        optional_content.apply_expressions(pdf)
    elif optional_content.has_layers(pdf):
        optional_content.reveal_all(pdf)
    return pdf


@contextmanager
def open_for_changes(path: str, password: str | None) -> Iterator[Any]:
    """Open a document that will be saved: nothing of it is changed for drawing."""
    try:
        with translate_pdf_errors(path), _unlock(path, password) as pdf:
            yield pdf
    finally:
        empty_mupdf_store()


def _unlock(path: str, password: str | None) -> Any:
    import pymupdf

    pdf = pymupdf.open(path, filetype="pdf")
    if not pdf.is_pdf:  # MuPDF trusts the content more than `filetype`
        pdf.close()
        message = "the source has parts of a PDF, but is a file of another type; convert it"
        raise SourceError(Code.SOURCE_UNSUPPORTED, message)
    if pdf.needs_pass and not pdf.authenticate(password or ""):
        reason = "the password is wrong; send the right one" if password else "the PDF is encrypted; send its password"
        raise SourceError(Code.ENCRYPTED, f"{reason} {PASSWORD_HINT}")
    return pdf


@contextmanager
def translate_pdf_errors(path: str) -> Iterator[None]:
    """Raise SourceError DAMAGED for PyMuPDF's own errors, for MuPDF's, and for a page that was lost in repair."""
    import pymupdf

    pymupdf.TOOLS.mupdf_display_errors(False)
    try:
        yield
    except (RuntimeError, ValueError, IndexError, pymupdf.mupdf.FzErrorBase) as error:
        if _DISK_FULL in str(error):
            raise describe_full_disk() from error
        if isinstance(error, pymupdf.FileDataError):  # which only says "Failed to open file"
            what = "the file is damaged or incomplete, and cannot be opened"
        else:
            what = f"MuPDF: {_clean_message(error, path).rstrip('.')}"
        raise SourceError(Code.DAMAGED, f"{what}; {SAVE_AGAIN}") from error


def describe_full_disk() -> SourceError:
    """The error of a file that the worker has no place for, which is not the file's fault."""
    message = "no space is left on the worker's disk; free some, or set TMPDIR to a folder of another disk"
    return SourceError(Code.STORE_UNAVAILABLE, message)


def _clean_message(error: Exception, path: str) -> str:
    """The error's message on one line, without the path of the file and without quotes from the document."""
    message = _QUOTED.sub("…", str(error).replace(path, "the source"))
    return " ".join(message.split())[:200] or type(error).__name__


def detect_scan(page: Any) -> tuple[bool, bool]:
    """Whether an image fills the PDF page, and whether most of its text is invisible or lies under that image."""
    visible, hidden, is_scan = 0, 0, False
    page_area = _get_unrotated_rect(page)
    for kind, box in page.get_bboxlog():
        if kind == "fill-image" and abs(page_area & box) >= FULL_IMAGE_SHARE * abs(page_area):
            is_scan, visible, hidden = True, 0, hidden + visible
        elif kind in ("fill-text", "stroke-text"):
            visible += 1
        elif kind == "ignore-text":
            hidden += 1
    return is_scan, is_scan and hidden > visible


def render_display_list(display_list: Any, across: float, down: float) -> npt.NDArray[np.uint8]:
    """Render a page's display list to height × width × 3, RGB. `across` and `down` are pixels per point."""
    import pymupdf

    zoom = pymupdf.Matrix(across, down)
    pixmap = display_list.get_pixmap(matrix=zoom, colorspace=pymupdf.csRGB, alpha=False)
    return copy_pixels(pixmap)


def copy_pixels(pixmap: Any) -> npt.NDArray[np.uint8]:
    """The pixels of a pixmap, height × width × components; a copy, because their memory is freed with the pixmap."""
    rows = np.frombuffer(pixmap.samples_mv, np.uint8).reshape(pixmap.height, pixmap.stride)
    return rows[:, : pixmap.width * pixmap.n].reshape(pixmap.height, pixmap.width, pixmap.n).copy()


def measure_image_share(display_list: Any) -> float:
    """The share of the page's area that images take; where images overlap, each one counts."""
    import pymupdf

    page_area = display_list.rect
    images = pymupdf.TextPage(display_list.get_textpage(flags=pymupdf.TEXT_PRESERVE_IMAGES)).extractIMGINFO()
    return float(sum(abs(page_area & image["bbox"]) for image in images) / abs(page_area))


def get_turn_matrix(page: Any) -> tuple[float, float, float, float, float, float]:
    """The matrix from points of the unrotated page, in which MuPDF gives text, to points of the page as displayed.

    PyMuPDF's rotation matrix ignores /UserUnit and crop boxes that are larger than the page.
    """
    width, height = page.rect.width, page.rect.height
    return {
        0: (1.0, 0.0, 0.0, 1.0, 0.0, 0.0),
        90: (0.0, 1.0, -1.0, 0.0, width, 0.0),
        180: (-1.0, 0.0, 0.0, -1.0, width, height),
        270: (0.0, -1.0, 1.0, 0.0, 0.0, height),
    }[page.rotation]


def _get_unrotated_rect(page: Any) -> Any:
    """The page's rectangle without its rotation, in the coordinates of `get_bboxlog`.

    PyMuPDF's derotation matrix ignores /UserUnit and crop boxes that are larger than the page.
    """
    import pymupdf

    width, height = page.rect.width, page.rect.height
    return pymupdf.Rect(0, 0, height, width) if page.rotation % 180 else pymupdf.Rect(0, 0, width, height)


@contextmanager
def open_image(path: str, limit: int) -> Iterator[Any]:
    """Open a Pillow image of at most `limit` pixels, checked before decoding; its errors become SourceErrors."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # our own limit is checked below, and its error names our setting
    try:
        _register_heif(path)
        with Image.open(path, formats=_FORMATS) as image:
            check_pixel_limit(image.size, limit)
            _check_costly_format(image.format, image.size)
            yield image
    except PILLOW_ERRORS as error:
        message = f"the image cannot be read: {_clean_message(error, path)}; {SAVE_AGAIN}"
        raise SourceError(Code.DAMAGED, message) from error


def _register_heif(path: str) -> None:
    """Teach Pillow HEIC, if the file may be one: few are."""
    with open(path, "rb") as file:
        if file.read(8)[4:] == b"ftyp":
            import pi_heif

            pi_heif.register_heif_opener(thumbnails=False)


def count_frames(image: Any) -> int:
    """How many pages the image has. Further frames of a phone's JPEG (MPO) are a depth map or a preview."""
    return 1 if image.format == "MPO" else int(getattr(image, "n_frames", 1))


def check_pixel_limit(size: tuple[int, int], limit: int) -> None:
    if size[0] * size[1] > limit:
        message = f"{size[0]} × {size[1]} pixels; raise MAX_IMAGE_PIXELS or scale the image down"
        raise SourceError(Code.SOURCE_TOO_LARGE, message)


def _check_costly_format(name: str | None, size: tuple[int, int]) -> None:
    if name in COSTLY_FORMATS and size[0] * size[1] > MAX_COSTLY_PIXELS:
        message = f"an image of {size[0]} × {size[1]} pixels, and in WebP, JPEG 2000, AVIF or HEIC at most"
        message += f" {MAX_COSTLY_PIXELS // 1_000_000} million are read; scale it down or use another format"
        raise SourceError(Code.SOURCE_TOO_LARGE, message)


def check_images(page: Any) -> None:
    """Raise SourceError if an image of the PDF page takes too much memory to decode.

    MuPDF decodes JPEG 2000 as a whole, in the size that the image itself states, and other formats at a reduced size.
    """
    pdf = page.parent
    for xref in {number for image in page.get_images(full=True) for number in image[:2] if number}:  # and its soft mask
        is_jpx = "JPXDecode" in pdf.xref_get_key(xref, "Filter")[1]
        if is_jpx and (header := _JPX_SIZE.search(pdf.xref_stream_raw(xref))):
            right, bottom, left, top = struct.unpack(">4I", header[1])
            _check_costly_format("JPXDecode", (right - left, bottom - top))


def get_displayed_size(image: Any) -> tuple[int, int]:
    """Width and height in pixels after the EXIF orientation is applied."""
    width, height = image.size
    # Pillow reports the size of a TIFF as displayed, and that of any other file as stored.
    return (height, width) if image.format != "TIFF" and _is_sideways(image) else (width, height)


def _is_sideways(image: Any) -> bool:
    return get_orientation(image) >= 5


def get_orientation(image: Any) -> int:
    """EXIF's orientation, from 1 to 8: which corner of the picture the first pixel is. From 5, it lies on its side."""
    orientation = int(image.getexif().get(ORIENTATION, 1))
    return orientation if 1 <= orientation <= 8 else 1


def get_dpi(image: Any) -> tuple[float, float]:
    """The image's resolution across and down, as displayed; DEFAULT_IMAGE_DPI if it states no plausible one."""
    across, down = image.info.get("dpi") or (0, 0)
    across, down = (float(down), float(across)) if _is_sideways(image) else (float(across), float(down))
    if not (MIN_DPI <= across <= MAX_DPI and MIN_DPI <= down <= MAX_DPI):  # True for NaN as well
        return DEFAULT_IMAGE_DPI, DEFAULT_IMAGE_DPI
    stretch = max(across, down) / min(across, down)
    if stretch > MAX_STRETCH:
        return DEFAULT_IMAGE_DPI, DEFAULT_IMAGE_DPI
    return float(round(across)), float(round(down if stretch > MAX_ROUNDING else across))
