"""Make PDFs that take far more time or memory than their size suggests. All are a few kilobytes to 3 MB."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Mapping, Sequence
from functools import cache

SENTENCE = "The pump house reads the river level every morning."
FIRST_ANNOTATION = 10


def build_pdf(objects: Mapping[int, bytes]) -> bytes:
    """A PDF with these objects by number; object 1 is the catalogue."""
    parts, offsets, position = [b"%PDF-1.7\n"], dict[int, int](), 9
    for number, body in objects.items():
        offsets[number] = position
        parts.append(b"%d 0 obj\n%s\nendobj\n" % (number, body))
        position += len(parts[-1])
    size = max(objects) + 1
    entries = (b"%010d 00000 n \n" % offsets[n] if n in offsets else b"0000000000 65535 f \n" for n in range(size))
    table = b"xref\n0 %d\n%s" % (size, b"".join(entries))
    trailer = b"trailer\n<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (size, position)
    return b"".join((*parts, table, trailer))


def build_page(annotations: Sequence[bytes] = (), content: bytes = b"", rotation: int = 0) -> bytes:
    """A PDF with one page that has SENTENCE, further content, and annotations."""
    stream = b"BT /F1 12 Tf 50 780 Td (%s) Tj ET\n%s" % (SENTENCE.encode(), content)
    deflated = zlib.compress(stream)
    numbers = b" ".join(b"%d 0 R" % number for number in range(FIRST_ANNOTATION, FIRST_ANNOTATION + len(annotations)))
    return build_pdf(
        {
            1: b"<</Type/Catalog/Pages 2 0 R/AcroForm<</Fields[%s]>>>>" % numbers,
            2: b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
            3: b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Rotate %d/Contents 4 0 R"
            b"/Resources<</Font<</F1 5 0 R>>>>/Annots[%s]>>" % (rotation, numbers),
            4: b"<</Length %d/Filter/FlateDecode>>stream\n%s\nendstream" % (len(deflated), deflated),
            5: b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
            **dict(enumerate(annotations, FIRST_ANNOTATION)),
        }
    )


def build_links(count: int) -> bytes:
    """A page with so many links; PyMuPDF's `get_links` takes 3 s for 2,000 and minutes for 20,000."""
    return build_page([_build_link(50 + number % 50 * 10, 50 + number // 50 % 60 * 10) for number in range(count)])


def _build_link(x: int, y: int) -> bytes:
    action = b"<</S/URI/URI(https://example.org/%d/%d)>>" % (x, y)
    return b"<</Type/Annot/Subtype/Link/Rect[%d %d %d %d]/Border[0 0 0]/A%s>>" % (x, y, x + 8, y + 8, action)


def build_squares(count: int) -> bytes:
    """A plot: one line of text, a background, and scattered squares, each of which takes the layout model 10 ms."""
    rng = random.Random(1)
    squares = (
        b"%.2f %.2f %.2f rg %.1f %.1f 4 4 re f"
        % (rng.random(), rng.random(), rng.random(), 50 + 480 * rng.random(), 50 + 650 * rng.random())
        for _ in range(count)
    )
    return build_page(content=b".9 .9 .9 rg 40 40 500 680 re f\n" + b"\n".join(squares))


def build_cyclic_widget(key: bytes) -> bytes:
    """A rotated page with a form field that is its own /Parent or its own /Kids.

    MuPDF fails at the first while it turns the page upright, and never returns at the second.
    """
    field = b"%d 0 R" % FIRST_ANNOTATION
    value = b"[%s]" % field if key == b"Kids" else field
    widget = b"<</Type/Annot/Subtype/Widget/FT/Tx/T(a)/Rect[100 100 200 120]/P 3 0 R/%s %s>>" % (key, value)
    return build_page([widget], rotation=90)


@cache
def deflate_twice(size: int) -> bytes:
    """So many bytes of spaces, deflated twice: 4 GB become 10 KB."""
    piece = b" " * (1 << 20)
    compressor = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    deflated = compressor.compress(piece) + compressor.flush(zlib.Z_FULL_FLUSH)  # equal for every piece
    checksum = 1
    for _ in range(size >> 20):
        checksum = zlib.adler32(piece, checksum)
    inner = b"\x78\xda" + deflated * (size >> 20) + compressor.flush() + checksum.to_bytes(4, "big")
    return zlib.compress(inner, 9)


def build_bomb(size: int) -> bytes:
    """A PDF whose page tree is in an object stream of `size` bytes, which only opening the file expands."""
    data = deflate_twice(size)
    stream = b"<</Type/ObjStm/N 2/First %d/Length %d/Filter[/FlateDecode/FlateDecode]>>stream\n%s\nendstream"
    body = b"%%PDF-1.7\n1 0 obj\n<</Type/Catalog/Pages 2 0 R>>\nendobj\n4 0 obj\n%s\nendobj\n" % (
        stream % (size - 100, len(data), data)
    )
    # type, offset or stream, generation or index: objects 2 and 3 are in stream 4
    rows = [(0, 0, 65535), (1, 9, 0), (2, 4, 0), (2, 4, 1), (1, body.index(b"4 0 obj"), 0), (1, len(body), 0)]
    table = b"".join(struct.pack(">BIH", *row) for row in rows)
    xref = b"5 0 obj\n<</Type/XRef/Size 6/W[1 4 2]/Root 1 0 R/Length %d>>stream\n%s\nendstream\nendobj\n"
    return body + xref % (len(table), table) + b"startxref\n%d\n%%%%EOF" % len(body)
