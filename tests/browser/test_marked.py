"""Marked, which runs in browsers and in Node.js, finds no markup of a document in document.md and the chunks."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from tests.fakes.documents import build_document, checkpoint
from tests.fakes.hostile_markup import ELEMENTS, FRAGMENTS, PAYLOADS, build, find_faults
from tests.fakes.markdown_readers import Page, read_with_marked
from twopass.format_options import Chunks, FormatOptions
from twopass.formats import chunks, markdown
from twopass.formats.writer_input import WriterInput

MARKED = Path(sys.prefix) / "marked"
SEED, TEXTS = 33, 600


def make_texts() -> list[str]:
    """The payloads, and texts of hostile fragments; the same ones in each run, because one process reads them all."""
    chosen = random.Random(SEED)
    return [*PAYLOADS, *("".join(chosen.choices(FRAGMENTS, k=chosen.randint(1, 9))) for _ in range(TEXTS))]


def test_marked_finds_only_what_the_writer_made() -> None:
    """Each kind of element with each text gives the elements of its kind, and its text is shown."""
    kinds = list(ELEMENTS)
    cases = [build(kinds[n % len(kinds)], text) for n, text in enumerate(make_texts())]
    sources = [markdown.write(case.document)[0] for case in cases]

    pages = [Page(html) for html in read_with_marked(MARKED, sources)]

    faults = [
        (source, found)
        for case, source, page in zip(cases, sources, pages, strict=True)
        if (found := list(find_faults(page, "marked", source, case.allowed)))
    ]
    assert not faults
    assert [
        (c.shown, page.text) for c, page in zip(cases, pages, strict=True) if c.shown not in (None, page.text)
    ] == []


def test_marked_finds_no_markup_in_chunks() -> None:
    """Parts of large elements are inert by themselves."""
    kinds = list(ELEMENTS)
    elements = [
        part.model_copy(update={"id": ""})
        for n, text in enumerate(make_texts())
        for part in build(kinds[n % len(kinds)], (text + " ") * (1 + n % 12)).document.elements
    ]
    options = FormatOptions(chunks=Chunks(max_tokens=64, min_tokens=0))
    lines = chunks.write(WriterInput(build_document(checkpoint(1, *elements)), options)).splitlines()
    sources = [json.loads(line)["text"] for line in lines]

    pages = [Page(html) for html in read_with_marked(MARKED, sources)]

    allowed = (*(tag for tags in ELEMENTS.values() for tag in tags), "sup", "section")
    assert not [
        (source, found)
        for source, page in zip(sources, pages, strict=True)
        if (found := list(find_faults(page, "marked", source, allowed, is_single=False)))
    ]
