"""Write chunks.jsonl: pieces of document.md for a vector index, each with its place in the document and a summary.

A chunk ends at the end of a section or when it is full. Each part of a split table repeats the table's head and the
cells that span into it, which `repeated` names. A caption stays with its table or figure. Chunks are cut from a plain
version of document.md, without page marks, marks of direction and embedded pictures; their spans refer to document.md
itself.
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
from twopass.formats import markdown, splitting
from twopass.formats.writer_input import WriterInput
from twopass.text import links, prose, sections

_UNICODE_LINE_BREAKS = re.compile("[\x85\u2028\u2029]")  # some readers end a line here; JSON does not escape them
_TABLE_END = "\n</table>"  # the tag that closes a joined table belongs to no element
_PART_SUMMARY_SENTENCES = 3  # sentences in the summary of a part


@dataclass(frozen=True)
class _Unit:
    """What is kept in one chunk: a table or paragraph with its continuations, or a part of one that is too large."""

    elements: tuple[Element, ...]
    text: str
    start: int  # `start` and `end` count characters of the plain markdown
    end: int
    spans: tuple[Span, ...]  # of the elements, in document.md
    section: Section | None
    part: int | None = None  # from 1; None if the unit was not split
    split_id: str | None = None  # of a part: id of the first element of the unit that was split
    repeated: str = ""  # of a part: what its text has from earlier parts

    @cached_property
    def size(self) -> int:
        return splitting.count_tokens(self.text)

    @property
    def path(self) -> tuple[str, ...]:
        return self.section.path if self.section else ()

    @property
    def first_id(self) -> str:
        return self.split_id or self.elements[0].id

    def is_related_to(self, other: _Unit) -> bool:
        """Whether one of the two is the caption or note of the other."""
        own_ids, other_ids = {e.id for e in self.elements}, {e.id for e in other.elements}
        return any(e.parent_id in other_ids for e in self.elements) or any(
            e.parent_id in own_ids for e in other.elements
        )


@dataclass(frozen=True)
class _Chunk:
    """Consecutive units and their text. A part of a split unit is always a chunk of its own."""

    units: tuple[_Unit, ...]
    text: str

    @cached_property
    def size(self) -> int:
        return splitting.count_tokens(self.text)

    @property
    def first(self) -> _Unit:
        return self.units[0]

    @property
    def is_part(self) -> bool:
        return self.first.part is not None

    @property
    def path(self) -> tuple[str, ...]:
        """The headings above every unit of the chunk; units before the first heading are ignored."""
        paths = [unit.path for unit in self.units if unit.path]
        return tuple(same[0] for same in takewhile(lambda titles: len(set(titles)) == 1, zip(*paths, strict=False)))

    def join(self, other: _Chunk, text: str) -> _Chunk:
        """One chunk with the units of both; `text` is the plain markdown."""
        return _Chunk((*self.units, *other.units), text[self.first.start : other.units[-1].end])

    @property
    def elements(self) -> list[Element]:
        return [element for unit in self.units for element in unit.elements]


def write(inputs: WriterInput) -> bytes:
    """One JSON object per line, in document order."""
    document, limits = inputs.shown, inputs.options.chunks
    text, spans = _write_plain_markdown(inputs)
    chunks = _pack(_build_units(inputs, text, spans), text, limits)
    chunks = _merge_small(chunks, text, limits)
    pages = {page.number: page for page in document.pages}
    captions = _collect_captions(document)
    rows = (_make_row(n, chunk, document, pages, captions) for n, chunk in enumerate(chunks))
    return "".join(f"{_to_json_line(row)}\n" for row in rows).encode(errors="replace")


def _to_json_line(row: Mapping[str, Any]) -> str:
    """JSON without characters that some readers take for a line break."""
    line = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
    return _UNICODE_LINE_BREAKS.sub(lambda found: f"\\u{ord(found.group()):04x}", line)


def _write_plain_markdown(inputs: WriterInput) -> tuple[str, dict[str, Span]]:
    """The text that chunks are cut from, and the elements' spans in it."""
    plain = {"front_matter": False, "page_marks": False, "images": Images.FOLDER}
    options = inputs.options.markdown.model_copy(update=plain)
    return markdown.write(inputs.shown, options, mark_direction=False, shown=inputs.flow)


def _build_units(inputs: WriterInput, text: str, spans: Mapping[str, Span]) -> list[_Unit]:
    """The units in the order of the markdown; a unit that is too large for a chunk is split."""
    _, document_spans = inputs.markdown
    section_of = dict(_list_section_elements(inputs.shown.sections))
    groups: list[list[Element]] = []
    for element in sorted((e for e in inputs.shown.elements if e.id in spans), key=lambda e: spans[e.id]):
        previous = groups[-1][-1] if groups else None
        gap = text[spans[previous.id].end : spans[element.id].start] if previous else ""
        if previous and element.continues == previous.id and "\n\n" not in gap:
            groups[-1].append(element)
        else:
            groups.append([element])
    units = []
    for group in groups:
        start, end = spans[group[0].id].start, spans[group[-1].id].end
        end += len(_TABLE_END) if text.startswith(_TABLE_END, end) else 0
        own_spans = tuple(document_spans[e.id] for e in group)
        units.append(_Unit(tuple(group), text[start:end], start, end, own_spans, section_of.get(group[0].id)))
    limit = inputs.options.chunks.max_tokens
    return [part for unit in units for part in (_split_unit(unit, limit, spans) if unit.size > limit else [unit])]


def _list_section_elements(tree: Sequence[Section]) -> Iterator[tuple[str, Section]]:
    """Yield each element id of the section tree with its section."""
    for section in tree:
        yield from ((element_id, section) for element_id in section.element_ids)
        yield from _list_section_elements(section.children)


def _split_unit(unit: _Unit, limit: int, spans: Mapping[str, Span]) -> list[_Unit]:
    """Split a unit between rows, lines or sentences, each part with the elements it overlaps."""
    parts = []
    for number, part in enumerate(splitting.split(unit.text, limit), start=1):
        start, end = unit.start + part.start, unit.start + part.end
        inside = [
            (element, span, spans[element.id])
            for element, span in zip(unit.elements, unit.spans, strict=True)
            if spans[element.id].start < end and spans[element.id].end > start
        ]
        parts.append(
            replace(
                unit,
                elements=tuple(element for element, _, _ in inside) or unit.elements[-1:],
                text=part.text,
                start=start,
                end=end,
                spans=tuple(_clip_span(span, plain, start, end) for _, span, plain in inside) or unit.spans[-1:],
                part=number,
                split_id=unit.elements[0].id,
                repeated=part.repeated,
            )
        )
    return parts


def _clip_span(span: Span, plain: Span, start: int, end: int) -> Span:
    """Clip an element's span in document.md to [start, end) of the plain markdown.

    The span is not clipped if the element's text differs between the two, as that of a picture does.
    """
    if span.end - span.start != plain.end - plain.start:
        return span
    shift = span.start - plain.start
    return Span(max(start, plain.start) + shift, min(end, plain.end) + shift)


def _pack(units: Sequence[_Unit], text: str, limits: Chunks) -> list[_Chunk]:
    """Combine units of one section while they fit; a caption goes into the chunk of its table or figure."""
    packed: list[_Chunk] = []
    for n, unit in enumerate(units):
        chunk, last = _Chunk((unit,), unit.text), packed[-1] if packed else None
        related = units[n + 1] if n + 1 < len(units) and units[n + 1].is_related_to(unit) else None
        fits = last and _fits(last, chunk, text, limits) and last.first.section == unit.section
        if fits and last and related and unit.size + related.size <= limits.max_tokens:
            fits = splitting.count_tokens(text[last.first.start : related.end]) <= limits.max_tokens
        if fits and last:
            packed[-1] = last.join(chunk, text)
        else:
            packed.append(chunk)
    return packed


def _merge_small(chunks: Sequence[_Chunk], text: str, limits: Chunks) -> list[_Chunk]:
    """Join small chunks to the previous one if both have the same top heading, or the previous one has none."""
    merged: list[_Chunk] = []
    for chunk in chunks:
        last = merged[-1] if merged else None
        is_related = last is not None and (not last.path or last.path[:1] == chunk.path[:1])
        is_small = last is not None and min(last.size, chunk.size) < limits.min_tokens
        if last and is_related and is_small and _fits(last, chunk, text, limits):
            merged[-1] = last.join(chunk, text)
        else:
            merged.append(chunk)
    return merged


def _fits(last: _Chunk, chunk: _Chunk, text: str, limits: Chunks) -> bool:
    # Each size is rounded up, so the size of the joined text can be one less than their sum.
    if last.is_part or chunk.is_part or last.size + chunk.size > limits.max_tokens + 1:
        return False
    return last.join(chunk, text).size <= limits.max_tokens


def _make_row(
    number: int, chunk: _Chunk, document: Document, pages: Mapping[int, Page], captions: Mapping[str, str]
) -> dict[str, Any]:
    elements, part = chunk.elements, chunk.first.part or 1
    keywords, summary = sections.summarize(elements)
    if chunk.is_part and all(element.kind is Kind.TEXT for element in elements):
        summary = prose.summarize(prose.to_one_line(chunk.text), keywords, _PART_SUMMARY_SENTENCES)
    spans = [span for unit in chunk.units for span in unit.spans]
    numbers = sorted({element.page for element in elements})
    section_ids = dict.fromkeys(unit.section.id for unit in chunk.units if unit.section)
    return {
        "id": f"{document.id}/{chunk.first.first_id}" + (f".{part}" if part > 1 else ""),
        "document": document.id,
        "source": document.source.uri,
        "title": document.meta.title,
        "number": number,
        "text": chunk.text,
        "repeated": chunk.first.repeated,
        "tokens": chunk.size,
        "section_ids": list(section_ids),
        "section_path": list(chunk.path),
        "pages": numbers,
        "boxes": [{"page": e.page, "box": list(box)} for e in elements for box in e.boxes],
        "md_span": [min(span.start for span in spans), max(span.end for span in spans)],
        "element_ids": [element.id for element in elements],
        "kinds": list(dict.fromkeys(str(element.kind) for element in elements)),
        "keywords": list(keywords),
        "summary": summary,
        "figures": [{"element": e.id, "image": e.image, "caption": captions.get(e.id)} for e in elements if e.image],
        "links": list(dict.fromkeys(uri for n in numbers for uri in _find_links(pages.get(n), elements))),
        "language": next((page.language for n in numbers if (page := pages.get(n)) and page.language), None),
    }


def _collect_captions(document: Document) -> dict[str, str]:
    """Map the id of each captioned element to its caption."""
    captions: dict[str, list[str]] = defaultdict(list)
    for element in document.elements:
        if element.kind is Kind.CAPTION and element.parent_id and element.content_layer is Layer.BODY:
            captions[element.parent_id].append(prose.to_one_line(element.text))
    return {name: " ".join(texts) for name, texts in captions.items()}


def _find_links(page: Page | None, elements: Sequence[Element]) -> list[str]:
    """The addresses of the page's PDF links that may be clicked and of which more than half lies on an element."""
    if page is None:
        return []
    boxes = [box for element in elements if element.page == page.number for box in element.boxes]
    live = (link for link in page.links if links.is_live(link.uri))
    return [link.uri for link in live if any(link.box.overlap(box) > link.box.area / 2 for box in boxes)]
