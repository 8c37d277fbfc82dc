"""Builds hostile files from seeds: documents of every type with flipped, removed, spliced or inflated bytes."""

from __future__ import annotations

import io
import random
import re
import zlib
from collections.abc import Callable
from functools import cache

import pymupdf
from PIL import Image, ImageDraw

from tests import ROOT

WORDS = "The meter of the pump was read on Monday and entered in the log book by both operators. "
OBJECT = re.compile(rb"\d+ 0 obj.*?endobj", re.S)
NUMBER = re.compile(rb"(?<![\w.])\d+(?![\w.])")
EXTREME = (b"0", b"-1", b"1", b"65536", b"2147483647", b"-2147483648", b"99999999999999999999", b"1e38", b"0.0000001")
NAMES = (b"/Type", b"/Kids", b"/Count", b"/Length", b"/Filter", b"/MediaBox", b"/Contents", b"/Font", b"/Width", b"/W")


def build_file(seed: int) -> tuple[str, bytes]:
    """Return the file's name, which says how it was made, and its bytes. The same seed gives the same file."""
    rng = random.Random(seed)
    kind = rng.choices(list(BASES), weights=[4 if name.startswith("pdf") else 1 for name in BASES])[0]
    mutations = [name for name in MUTATIONS if kind.startswith("pdf") or name not in PDF_MUTATIONS]
    chosen = rng.choices(mutations, k=rng.choice((1, 1, 1, 2, 4)))
    data = BASES[kind]()
    for name in chosen:
        data = MUTATIONS[name](data, rng) or data
    return f"{seed}-{kind}-{'-'.join(chosen)}", data


# ---- undamaged documents ----------------------------------------------------------------------


@cache
def load_sample_pdf() -> bytes:
    return (ROOT / "samples" / "sample.pdf").read_bytes()


@cache
def build_prose_pdf() -> bytes:
    with pymupdf.open() as pdf:
        for number in range(3):
            page = pdf.new_page()
            page.insert_textbox((72, 72, 500, 400), f"Page {number}. " + WORDS * 6)
            page.draw_rect((72, 450, 300, 500), fill=(0.9, 0.9, 0.9))
            page.insert_link({"kind": pymupdf.LINK_URI, "from": pymupdf.Rect(72, 72, 200, 90), "uri": "https://a.b/"})
        pdf.set_toc([[1, "One", 1], [2, "Two", 2]])
        return bytes(pdf.tobytes())


@cache
def build_plain_pdf() -> bytes:
    """Return a PDF without compression, so that mutations reach its drawing operators."""
    with pymupdf.open(stream=build_prose_pdf()) as pdf:
        return bytes(pdf.tobytes(expand=255, deflate=False, ascii=True))


@cache
def build_scan_pdf() -> bytes:
    with pymupdf.open() as pdf:
        pdf.new_page(width=300, height=120).insert_image((0, 0, 300, 120), stream=build_image("JPEG"))
        return bytes(pdf.tobytes())


def build_image(kind: str, **options: object) -> bytes:
    picture = Image.new("RGB", (300, 120), "white")
    ImageDraw.Draw(picture).text((20, 20), WORDS[:24], fill="black", font_size=20)
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def build_tiff() -> bytes:
    second = Image.new("1", (200, 200), 1)
    return build_image("TIFF", compression="tiff_lzw", save_all=True, append_images=(second,))


BASES: dict[str, Callable[[], bytes]] = {
    "pdf-sample": load_sample_pdf,
    "pdf-prose": build_prose_pdf,
    "pdf-plain": build_plain_pdf,
    "pdf-scan": build_scan_pdf,
    "png": lambda: build_image("PNG"),
    "jpeg": lambda: build_image("JPEG"),
    "progressive": lambda: build_image("JPEG", progressive=True),
    "webp": lambda: build_image("WEBP"),
    "tiff": build_tiff,
    "fax": lambda: build_image("TIFF", compression="jpeg"),
}

# ---- mutations ----------------------------------------------------------------------------------


def flip_bits(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 4, 16, 64, len(data) // 100 + 1))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(1, len(data))]


def remove_piece(data: bytes, rng: random.Random) -> bytes:
    """Remove a piece from the middle."""
    start = rng.randrange(len(data))
    return data[:start] + data[start + rng.randrange(1, 4000) :]


def splice(data: bytes, rng: random.Random) -> bytes:
    """Overwrite a piece with a piece of another file."""
    other = BASES[rng.choice(list(BASES))]()
    start, other_start = rng.randrange(len(data)), rng.randrange(len(other))
    length = rng.randrange(1, 4000)
    return data[:start] + other[other_start : other_start + length] + data[start + length :]


def overwrite_piece(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    length = min(rng.randrange(1, 4000), len(data) - start)
    return data[:start] + bytes([rng.choice((0, 255))]) * length + data[start + length :]


def swap_objects(data: bytes, rng: random.Random) -> bytes:
    """Exchange the bodies of two objects of a PDF, so that a reference to a font may lead to a page."""
    objects = list(OBJECT.finditer(data))
    if len(objects) < 2:
        return data
    first, second = sorted(rng.sample(objects, 2), key=lambda match: match.start())
    (a, b), (c, d) = first.span(), second.span()
    head_a, _, body_a = data[a:b].partition(b"obj")
    head_c, _, body_c = data[c:d].partition(b"obj")
    return data[:a] + head_a + b"obj" + body_c + data[b:c] + head_c + b"obj" + body_a + data[d:]


def replace_numbers(data: bytes, rng: random.Random) -> bytes:
    """Replace some numbers of a PDF by huge or negative ones or by references."""
    numbers = list(NUMBER.finditer(data))
    for match in sorted(rng.sample(numbers, min(len(numbers), rng.choice((1, 3, 10)))), key=lambda m: -m.start()):
        replacement = rng.choice((*EXTREME, b"%d 0 R" % rng.randrange(20)))
        data = data[: match.start()] + replacement + data[match.end() :]
    return data


def rename_keys(data: bytes, rng: random.Random) -> bytes:
    return data.replace(*rng.sample(NAMES, 2), rng.choice((-1, 1)))  # type: ignore[arg-type]


def redirect_references(data: bytes, rng: random.Random) -> bytes:
    """Redirect some references of a PDF, so that they may form cycles."""
    return re.sub(rb"\d+ 0 R", lambda m: m[0] if rng.random() < 0.8 else b"%d 0 R" % rng.randrange(1, 8), data)


def inflate_contents(data: bytes, rng: random.Random) -> bytes:
    """Give a PDF drawing operators that unpack to up to 20 MiB: text, paths or nested states."""
    operators = rng.choice((b"BT /helv 4 Tf 10 10 Td (hello world) Tj ET\n", b"0 0 m 9 9 l S\n", b"q\n", b"[", b"\0"))
    packed = zlib.compress(zlib.compress(operators * (rng.choice((1, 1, 4, 20)) * (1 << 20) // len(operators)), 9), 9)
    body = b"<< /Filter [/FlateDecode /FlateDecode] /Length %d >>\nstream\n%b\nendstream" % (len(packed), packed)
    return re.sub(rb"/Contents \d+ 0 R", b"/Contents 999 0 R", data) + b"\n999 0 obj\n" + body + b"\nendobj\n"


MUTATIONS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "flipped": flip_bits,
    "cut": truncate,
    "torn": remove_piece,
    "spliced": splice,
    "zeroed": overwrite_piece,
    "shuffled": swap_objects,
    "exaggerated": replace_numbers,
    "renamed": rename_keys,
    "circular": redirect_references,
    "blown_up": inflate_contents,
}
PDF_MUTATIONS = frozenset({"shuffled", "exaggerated", "renamed", "circular", "blown_up"})
