"""The ten jobs, and how each must end."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pymupdf

from scripts import ROOT
from twopass.errors import Code
from twopass.formats.registry import WRITERS
from twopass.job import Format

COUNT = 10
SAMPLE, TRUTH = ROOT / "samples" / "sample.pdf", ROOT / "samples" / "sample.truth.json"
SAMPLE_PAGES = 12
SENTENCES = """The first pump of the water works was built in 1891 and rebuilt in 1934. It lifts water to the tower
above the village. In summer the spring gives less, and the borehole supplies the reservoir instead."""
FORMATS = tuple(name for name in Format if name is not Format.DOCLING)  # which needs a package that images may lack
INLINE = ("markdown", "docjson")
ARTEFACTS = frozenset({*INLINE, *(WRITERS[name].name for name in FORMATS)})


@dataclass(frozen=True)
class TrialJob:
    """A job and how it must end: with `pages` and `words`, or with the code `error`.

    One that `waits` goes to /runsync. `artefacts` are the names that the result must list, in it or with an address.
    """

    name: str
    fields: Mapping[str, Any]
    pages: int = 0
    words: frozenset[str] = frozenset()
    artefacts: frozenset[str] = frozenset()
    error: Code | None = None
    waits: bool = False
    is_cancelled: bool = False
    is_repeated: bool = False


def build(mark: str) -> tuple[TrialJob, ...]:
    """Build the jobs. The first is small and the last repeats another. No source has the bytes of an earlier run's."""
    sample = _to_data_uri(SAMPLE.read_bytes() + f"\n% {mark}\n".encode(), "application/pdf")
    small, other, third, fourth = (draw_page(f"Trial {mark}, document {number}") for number in range(1, 5))
    picture = _to_data_uri(
        pymupdf.open("pdf", draw_page(f"Trial {mark}"))[0].get_pixmap(dpi=150).tobytes(), "image/png"
    )
    sentences, inline = find_words(SENTENCES), {"inline": ["markdown"]}
    whole = {"source": sample, **inline}
    pair = [_to_data_uri(pdf, "application/pdf") for pdf in (third, fourth)]
    options = {"markdown": {"tables": "html"}, "chunks": {"max_tokens": 200}}
    formats = {"pages": "3", "formats": list(FORMATS), "inline": list(INLINE), **options}
    return (
        TrialJob("first job", {"source": _to_data_uri(small, "application/pdf"), **inline}, 1, sentences),
        TrialJob("runsync", {"source": _to_data_uri(other, "application/pdf"), **inline}, 1, sentences, waits=True),
        TrialJob("whole sample", whole, SAMPLE_PAGES, _read_truth(range(1, SAMPLE_PAGES + 1))),
        TrialJob("some pages", {**whole, "pages": "3-4", "pass2": "none", "dpi": 120}, 2, _read_truth((3, 4))),
        TrialJob("many formats", {**whole, **formats}, 1, _read_truth((3,)), ARTEFACTS),
        TrialJob("two documents", {"sources": pair, **inline}, 2, sentences),
        TrialJob("picture", {"source": picture, **inline}, 1, sentences),
        TrialJob("wrong pages", {**whole, "pages": "99"}, error=Code.PAGE_RANGE),
        # A folder of its own, so that it does not take the pages that the whole sample stores.
        TrialJob("cancelled", {**whole, "resume": False}, error=Code.JOB_LOST, is_cancelled=True),
        TrialJob("repeated sample", whole, SAMPLE_PAGES, _read_truth(range(1, SAMPLE_PAGES + 1)), is_repeated=True),
    )


def find_words(text: str) -> frozenset[str]:
    """The words that show whether a text was read: long ones, without case."""
    return frozenset(word.lower() for word in re.findall(r"[A-Za-z]{6,}", text))


def draw_page(title: str) -> bytes:
    """A PDF of one page with the title and the sentences."""
    with pymupdf.open() as document:
        page = document.new_page()
        page.insert_text((72, 90), title, fontsize=18, fontname="hebo")
        page.insert_textbox((72, 120, 500, 400), SENTENCES, fontsize=12)
        return bytes(document.tobytes())


def _read_truth(numbers: Iterable[int]) -> frozenset[str]:
    pages = json.loads(TRUTH.read_text())["pages"]
    return find_words("\n".join(pages[number - 1]["text"] for number in numbers))


def _to_data_uri(data: bytes, mime: str) -> str:
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"
