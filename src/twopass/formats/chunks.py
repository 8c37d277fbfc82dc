"""A Draft in, chunks.jsonl out: pieces of document.md for a vector index, with where they stand and what they say.

A piece ends where a section ends or where it is full; tables keep their head, captions their table. Knows markdown's
spans and the section tree. Knows nothing of vectors.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import Any

from twopass.document import Document, Element, Kind, Layer, Page, Section, Span
from twopass.format_options import Chunks, Images
from twopass.formats import markdown, splitting, token_estimate
from twopass.formats.draft import Draft
from twopass.text import prose, sections

_BREAKS = re.compile("[\x85\u2028\u2029]")  # line ends to some readers, and to JSON plain characters
SENTENCES = 3  # of the summary of a part


@dataclass(frozen=True)
class Unit:
    """Elements that no chunk may part: what runs on, and a table or paragraph alone. `spans` lie in document.md."""

    elements: tuple[Element, ...]
    text: str
    start: int  # in the text that chunks are cut from, as is `end`
    end: int
    spans: tuple[Span, ...]
    section: Section | None
    part: int | None = None  # from 1; None of what is whole
    whole: str | None = None  # of a part: the first element of what was cut

    @cached_property
    def size(self) -> int:
        return token_estimate.count(self.text)

    @property
    def path(self) -> tuple[str, ...]:
        return self.section.path if self.section else ()

    @property
    def first_id(self) -> str:
        return self.whole or self.elements[0].id

    def belongs_to(self, other: Unit) -> bool:
        """Whether it is the caption or note of the other, or the other way round."""
        ours, theirs = {e.id for e in self.elements}, {e.id for e in other.elements}
        return any(e.parent_id in theirs for e in self.elements) or any(e.parent_id in ours for e in other.elements)


@dataclass(frozen=True)
class Chunk:
    """Units side by side, and their text: a part of something larger stands alone."""

    units: tuple[Unit, ...]
    text: str

    @cached_property
    def size(self) -> int:
        return token_estimate.count(self.text)

    @property
    def first(self) -> Unit:
        return self.units[0]

    @property
    def is_part(self) -> bool:
        return self.first.part is not None

    @property
    def path(self) -> tuple[str, ...]:
        """The headings that all of it stands below, but for what comes before any heading."""
        paths = [unit.path for unit in self.units if unit.path]
        return tuple(same[0] for same in takewhile(lambda titles: len(set(titles)) == 1, zip(*paths, strict=False)))

    def joined(self, other: Chunk, text: str) -> Chunk:
        return Chunk((*self.units, *other.units), text[self.first.start : other.units[-1].end])

    @property
    def elements(self) -> list[Element]:
        return [element for unit in self.units for element in unit.elements]


def write(draft: Draft) -> bytes:
    """One JSON object a line, in the order of the document."""
    document, limits = draft.document, draft.writing.chunks
    plain = _plain(draft)
    found = _merged(_packed(_units(draft, *plain), plain[0], limits), plain[0], limits)
    pages = {page.number: page for page in document.pages}
    captions = _captions(document)
    rows = (_row(n, chunk, document, pages, captions) for n, chunk in enumerate(found))
    return "".join(f"{_line(row)}\n" for row in rows).encode(errors="replace")


def _line(row: Mapping[str, Any]) -> str:
    """JSON on what every reader takes for one line."""
    told = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
    return _BREAKS.sub(lambda found: f"\\u{ord(found.group()):04x}", told)


def _plain(draft: Draft) -> tuple[str, dict[str, Span]]:
    """The markdown that chunks are cut from: no marks, no furniture, no pictures in it."""
    bare = {"front_matter": False, "page_marks": False, "furniture": False, "images": Images.FOLDER}
    return markdown.write(draft.document, draft.writing.markdown.model_copy(update=bare))


def _units(draft: Draft, text: str, spans: Mapping[str, Span]) -> list[Unit]:
    """What is put into chunks, in the order of the markdown; what is too large for one is cut."""
    _, real = draft.markdown
    sections_of = dict(_owners(draft.document.sections))
    placed = sorted((e for e in draft.document.elements if e.id in spans), key=lambda e: spans[e.id])
    groups: list[list[Element]] = []
    for element in placed:
        before = groups[-1][-1] if groups else None
        gap = text[spans[before.id].end : spans[element.id].start] if before else ""
        if before and element.continues == before.id and "\n\n" not in gap:
            groups[-1].append(element)
        else:
            groups.append([element])
    units = []
    for group in groups:
        start, end = spans[group[0].id].start, spans[group[-1].id].end
        end = max(end, splitting.closed(text, end))
        owner = sections_of.get(group[0].id)
        units.append(Unit(tuple(group), text[start:end], start, end, tuple(real[e.id] for e in group), owner))
    limit = draft.writing.chunks.max_tokens
    return [part for unit in units for part in (_parts(unit, limit, spans) if unit.size > limit else [unit])]


def _owners(tree: Sequence[Section]) -> Iterator[tuple[str, Section]]:
    for section in tree:
        yield from ((name, section) for name in section.element_ids)
        yield from _owners(section.children)


def _parts(unit: Unit, limit: int, spans: Mapping[str, Span]) -> list[Unit]:
    """A unit that is too large, cut between rows, lines or sentences; every part of a table begins with its head."""
    parts = []
    for number, (start, end, text) in enumerate(splitting.cut(unit.text, limit), start=1):
        inside = [
            (element, span, spans[element.id])
            for element, span in zip(unit.elements, unit.spans, strict=True)
            if spans[element.id].start < unit.start + end and spans[element.id].end > unit.start + start
        ]
        elements = tuple(element for element, _, _ in inside) or unit.elements[-1:]
        own = (
            tuple(_within(span, plain, unit.start + start, unit.start + end) for _, span, plain in inside)
            or unit.spans[-1:]
        )
        parts.append(
            replace(
                unit,
                elements=elements,
                text=text,
                start=unit.start + start,
                end=unit.start + end,
                spans=own,
                part=number,
                whole=unit.elements[0].id,
            )
        )
    return parts


def _within(real: Span, plain: Span, start: int, end: int) -> Span:
    """The part of an element's span that lies between both; the whole where the two texts differ, as with pictures."""
    if real.end - real.start != plain.end - plain.start:
        return real
    shift = real.start - plain.start
    return Span(max(start, plain.start) + shift, min(end, plain.end) + shift)


def _packed(units: Sequence[Unit], text: str, limits: Chunks) -> list[Chunk]:
    """Units of one section put together while they fit; a caption waits for what it belongs to."""
    packed: list[Chunk] = []
    for n, unit in enumerate(units):
        chunk, last = Chunk((unit,), unit.text), packed[-1] if packed else None
        after = units[n + 1] if n + 1 < len(units) and units[n + 1].belongs_to(unit) else None
        fits = last and _fits(last, chunk, text, limits) and last.first.section == unit.section
        if fits and last and after and unit.size + after.size <= limits.max_tokens:
            fits = token_estimate.count(text[last.first.start : after.end]) <= limits.max_tokens
        if fits and last:
            packed[-1] = last.joined(chunk, text)
        else:
            packed.append(chunk)
    return packed


def _merged(chunks: Sequence[Chunk], text: str, limits: Chunks) -> list[Chunk]:
    """Small chunks joined to the one before, where both stand below one heading or the first below none."""
    merged: list[Chunk] = []
    for chunk in chunks:
        last = merged[-1] if merged else None
        is_near = last is not None and (not last.path or last.path[:1] == chunk.path[:1])
        is_small = last is not None and min(last.size, chunk.size) < limits.min_tokens
        if last and is_near and is_small and _fits(last, chunk, text, limits):
            merged[-1] = last.joined(chunk, text)
        else:
            merged.append(chunk)
    return merged


def _fits(last: Chunk, chunk: Chunk, text: str, limits: Chunks) -> bool:
    if last.is_part or chunk.is_part or last.size + chunk.size > limits.max_tokens + 1:
        return False
    return last.joined(chunk, text).size <= limits.max_tokens


def _row(
    number: int, chunk: Chunk, document: Document, pages: Mapping[int, Page], captions: Mapping[str, str]
) -> dict[str, Any]:
    elements, part = chunk.elements, chunk.first.part or 1
    found, summary = sections.gist(elements)
    if chunk.is_part and all(element.kind is Kind.TEXT for element in elements):
        summary = prose.summary(prose.flow(chunk.text), found, SENTENCES)
    spans = [span for unit in chunk.units for span in unit.spans]
    numbers = sorted({element.page for element in elements})
    owners = dict.fromkeys(unit.section.id for unit in chunk.units if unit.section)
    return {
        "id": f"{document.id}/{chunk.first.first_id}" + (f".{part}" if part > 1 else ""),
        "document": document.id,
        "source": document.source.uri,
        "title": document.meta.title,
        "number": number,
        "text": chunk.text,
        "tokens": chunk.size,
        "section_ids": list(owners),
        "section_path": list(chunk.path),
        "pages": numbers,
        "boxes": [{"page": e.page, "box": list(box)} for e in elements for box in e.boxes],
        "md_span": [min(span.start for span in spans), max(span.end for span in spans)],
        "element_ids": [element.id for element in elements],
        "kinds": list(dict.fromkeys(str(element.kind) for element in elements)),
        "keywords": list(found),
        "summary": summary,
        "figures": [{"element": e.id, "image": e.image, "caption": captions.get(e.id)} for e in elements if e.image],
        "links": list(dict.fromkeys(uri for n in numbers for uri in _links(pages.get(n), elements))),
        "language": next((page.language for n in numbers if (page := pages.get(n)) and page.language), None),
    }


def _captions(document: Document) -> dict[str, str]:
    told: dict[str, list[str]] = defaultdict(list)
    for element in document.elements:
        if element.kind is Kind.CAPTION and element.parent_id and element.content_layer is Layer.BODY:
            told[element.parent_id].append(prose.flow(element.text))
    return {name: " ".join(texts) for name, texts in told.items()}


def _links(page: Page | None, elements: Sequence[Element]) -> list[str]:
    """Where the PDF's links of a page lead whose boxes lie on the chunk's elements."""
    if page is None:
        return []
    boxes = [box for element in elements if element.page == page.number for box in element.boxes]
    return [link.uri for link in page.links if any(link.box.overlap(box) > link.box.area / 2 for box in boxes)]
