"""A seed in, a hostile file out: documents of every type, with bytes flipped, cut, spliced and blown up."""

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


def file(seed: int) -> tuple[str, bytes]:
    """The file's name, which tells how it was made, and its bytes; the same for the same seed."""
    chance = random.Random(seed)
    kind = chance.choices(list(BASES), weights=[4 if name.startswith("pdf") else 1 for name in BASES])[0]
    mutations = [name for name in MUTATIONS if kind.startswith("pdf") or name not in OF_PDF]
    done = chance.choices(mutations, k=chance.choice((1, 1, 1, 2, 4)))
    data = BASES[kind]()
    for name in done:
        data = MUTATIONS[name](data, chance) or data
    return f"{seed}-{kind}-{'-'.join(done)}", data


# ---- what they are made of ----------------------------------------------------------------------


@cache
def _sample() -> bytes:
    return (ROOT / "samples" / "sample.pdf").read_bytes()


@cache
def _prose() -> bytes:
    with pymupdf.open() as pdf:
        for number in range(3):
            page = pdf.new_page()
            page.insert_textbox((72, 72, 500, 400), f"Page {number}. " + WORDS * 6)
            page.draw_rect((72, 450, 300, 500), fill=(0.9, 0.9, 0.9))
            page.insert_link({"kind": pymupdf.LINK_URI, "from": pymupdf.Rect(72, 72, 200, 90), "uri": "https://a.b/"})
        pdf.set_toc([[1, "One", 1], [2, "Two", 2]])
        return bytes(pdf.tobytes())


@cache
def _plain() -> bytes:
    """Nothing compressed, so that mutations reach the drawing orders."""
    with pymupdf.open(stream=_prose()) as pdf:
        return bytes(pdf.tobytes(expand=255, deflate=False, ascii=True))


@cache
def _scan() -> bytes:
    with pymupdf.open() as pdf:
        pdf.new_page(width=300, height=120).insert_image((0, 0, 300, 120), stream=image("JPEG"))
        return bytes(pdf.tobytes())


def image(kind: str, **options: object) -> bytes:
    picture = Image.new("RGB", (300, 120), "white")
    ImageDraw.Draw(picture).text((20, 20), WORDS[:24], fill="black", font_size=20)
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def _tiff() -> bytes:
    second = Image.new("1", (200, 200), 1)
    return image("TIFF", compression="tiff_lzw", save_all=True, append_images=(second,))


BASES: dict[str, Callable[[], bytes]] = {
    "pdf-sample": _sample,
    "pdf-prose": _prose,
    "pdf-plain": _plain,
    "pdf-scan": _scan,
    "png": lambda: image("PNG"),
    "jpeg": lambda: image("JPEG"),
    "progressive": lambda: image("JPEG", progressive=True),
    "webp": lambda: image("WEBP"),
    "tiff": _tiff,
    "fax": lambda: image("TIFF", compression="jpeg"),
}

# ---- what is done to them -----------------------------------------------------------------------


def _flipped(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 4, 16, 64, len(data) // 100 + 1))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(1, len(data))]


def _torn(data: bytes, chance: random.Random) -> bytes:
    """A piece out of the middle."""
    start = chance.randrange(len(data))
    return data[:start] + data[start + chance.randrange(1, 4000) :]


def _spliced(data: bytes, chance: random.Random) -> bytes:
    """A piece of another file in place of one of this."""
    other = BASES[chance.choice(list(BASES))]()
    start, there = chance.randrange(len(data)), chance.randrange(len(other))
    length = chance.randrange(1, 4000)
    return data[:start] + other[there : there + length] + data[start + length :]


def _zeroed(data: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(data))
    length = min(chance.randrange(1, 4000), len(data) - start)
    return data[:start] + bytes([chance.choice((0, 255))]) * length + data[start + length :]


def _shuffled(data: bytes, chance: random.Random) -> bytes:
    """A PDF's objects, the bodies of two exchanged, so that pages are fonts and fonts are pages."""
    found = list(OBJECT.finditer(data))
    if len(found) < 2:
        return data
    first, second = sorted(chance.sample(found, 2), key=lambda one: one.start())
    (a, b), (c, d) = first.span(), second.span()
    head_a, _, body_a = data[a:b].partition(b"obj")
    head_c, _, body_c = data[c:d].partition(b"obj")
    return data[:a] + head_a + b"obj" + body_c + data[b:c] + head_c + b"obj" + body_a + data[d:]


def _exaggerated(data: bytes, chance: random.Random) -> bytes:
    """Some of a PDF's numbers: huge, negative, or references to something else."""
    found = list(NUMBER.finditer(data))
    for one in sorted(chance.sample(found, min(len(found), chance.choice((1, 3, 10)))), key=lambda m: -m.start()):
        other = chance.choice((*EXTREME, b"%d 0 R" % chance.randrange(20)))
        data = data[: one.start()] + other + data[one.end() :]
    return data


def _renamed(data: bytes, chance: random.Random) -> bytes:
    return data.replace(*chance.sample(NAMES, 2), chance.choice((-1, 1)))  # type: ignore[arg-type]


def _circular(data: bytes, chance: random.Random) -> bytes:
    """References that lead back to where they came from."""
    return re.sub(rb"\d+ 0 R", lambda m: m[0] if chance.random() < 0.8 else b"%d 0 R" % chance.randrange(1, 8), data)


def _blown_up(data: bytes, chance: random.Random) -> bytes:
    """Drawing orders of a PDF that unpack to twenty megabytes: text, paths or nested states."""
    order = chance.choice((b"BT /helv 4 Tf 10 10 Td (hello world) Tj ET\n", b"0 0 m 9 9 l S\n", b"q\n", b"[", b"\0"))
    packed = zlib.compress(zlib.compress(order * (chance.choice((1, 1, 4, 20)) * (1 << 20) // len(order)), 9), 9)
    body = b"<< /Filter [/FlateDecode /FlateDecode] /Length %d >>\nstream\n%b\nendstream" % (len(packed), packed)
    return re.sub(rb"/Contents \d+ 0 R", b"/Contents 999 0 R", data) + b"\n999 0 obj\n" + body + b"\nendobj\n"


MUTATIONS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "flipped": _flipped,
    "cut": _cut,
    "torn": _torn,
    "spliced": _spliced,
    "zeroed": _zeroed,
    "shuffled": _shuffled,
    "exaggerated": _exaggerated,
    "renamed": _renamed,
    "circular": _circular,
    "blown_up": _blown_up,
}
OF_PDF = frozenset({"shuffled", "exaggerated", "renamed", "circular", "blown_up"})
