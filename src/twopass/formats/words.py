"""Compare what a format shows with what its elements say: every word once, none lost and none repeated.

The bytes that were written are reduced to what a reader sees, page by page, and so are the elements. What differs in
its markup only has the same letters, so that words are looked at only where the letters differ.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

from twopass.document import Cell, Document, Element, Finding, FindingKind, Kind, Problem
from twopass.document.audit import MAX_WORDS
from twopass.formats import flow
from twopass.formats.flow import Flow
from twopass.formats.writer_input import WriterInput
from twopass.text import prose, table_markup

PageText = tuple[int, str]  # a page's number, and one of its texts
_MAX_SHOWN = 10  # words in a message
_ENTITY = re.compile(r"&(?:#([0-9]+)|(lt|gt|amp|quot));")
_NAMES = {"lt": "<", "gt": ">", "amp": "&", "quot": '"'}
# Of Markdown: what is not text, or is text that has no markup.
_MARKDOWN = re.compile(
    r"^(?P<ticks>`{3,}+)(?:mermaid)?\n(?P<fenced>[\s\S]*?)(?:\n(?P=ticks)$|\Z)"
    r"|(?P<indented>^ {4}.*$)"
    r"|(?P<escape>\\[^\w\s<])"
    r"|(?P<image>!\[(?:[^\[\]\\]|\\[\s\S])*+\]\([^()\s]*\))"
    r"|(?P<address>\]\([^()\s]*\))"
    r"|\[\^(?P<label>[^\[\]\s]+)\]"
    r"|(?P<tag><!--(?:[^<-]|-(?!->)|<(?!!--))*+-->|</?[a-z][^<>]*>)",
    flags=re.MULTILINE,
)
_FRONT_MATTER = re.compile(r"\A---\n[\s\S]*?\n---\n")
_NOTES = tuple(f"**[{note}]**" for note in flow.UNREADABLE_NOTES)
# Of document.html: our own words, and MathML whose annotation is the formula.
_OWN_HTML = re.compile(
    r'<div id="page-[0-9]+" class="page"(?:[^<]|<(?!/?div\b))*+</div>'
    r'|<p class="note"(?:[^<]|<(?!/?p\b))*+</p>|<summary(?:[^<]|<(?!/?summary\b))*+</summary>'
)
_MATHML = re.compile(
    r"<math\b(?:[^<]|<(?!annotation\b|math\b))*+<annotation[^<>]*+>([^<]*+)</annotation>(?:[^<]|<(?!/?math\b))*+</math>"
)
_ITEM_NUMBER = re.compile(r'<li\b[^<>]*? value="([0-9]+)"[^<>]*>')
_ID = re.compile(r'<[^<>]*? id="([^"]*)"[^<>]*>')
_TAG = re.compile(r"<[^<>]*>")
_MINERU_TEXTS = ("text", "table_body", "content")
_MINERU_LISTS = ("list_items", "table_caption", "table_footnote", "image_caption", "image_footnote")


class Loss(NamedTuple):
    """Words of one page that a format lacks, or has more often than the page."""

    format: str
    page: int
    lost: tuple[str, ...]
    repeated: tuple[str, ...]

    @property
    def finding(self) -> Finding:
        words = (*self.lost, *self.repeated)
        return Finding(kind=FindingKind.FORMAT_LOST, count=max(len(words), 1), words=words[:MAX_WORDS])

    @property
    def problem(self) -> Problem:
        named = (("lost", self.lost), ("repeated", self.repeated))
        parts = [f"{_count(words)} {what} in {self.format} ({_list_some(words)})" for what, words in named if words]
        kind = FindingKind.FORMAT_LOST
        return Problem.warning(self.page, kind.code, f"{' and '.join(parts)}; {kind.advice}")


def _count(words: Sequence[str]) -> str:
    return f"{len(words)} word{'s' if len(words) > 1 else ''}"


def _list_some(words: Sequence[str]) -> str:
    return " ".join(words[:_MAX_SHOWN]) + (" …" if len(words) > _MAX_SHOWN else "")


def compare(name: str, expected: Iterable[PageText], written: Iterable[PageText]) -> list[Loss]:
    """What a format with this name lost or repeats. Words may move within a page, and to a page that they continue."""
    own, other = _join_pages(expected), _join_pages(written)
    pairs = {number: (own.get(number, ""), other.get(number, "")) for number in sorted(own.keys() | other.keys())}
    pairs = {number: pair for number, pair in pairs.items() if not _has_same_letters(*pair)}
    if _has_same_letters(*("\n".join(pair[side] for pair in pairs.values()) for side in (0, 1))):
        return []
    own_words, other_words = ({number: _count_words(pair[side]) for number, pair in pairs.items()} for side in (0, 1))
    lost, repeated = _subtract(own_words, other_words), _subtract(other_words, own_words)
    losses = (Loss(name, number, lost[number], repeated[number]) for number in pairs)
    return [loss for loss in losses if loss.lost or loss.repeated]


def _join_pages(texts: Iterable[PageText]) -> dict[int, str]:
    by_page: dict[int, list[str]] = defaultdict(list)
    for page, text in texts:
        by_page[page].append(text)
    return {page: "\n".join(parts) for page, parts in by_page.items()}


def _has_same_letters(one: str, other: str) -> bool:
    """Whether the letters are the same in any order: a caption may be above its figure, and words may be divided."""
    one, other = prose.strip_to_letters(one), prose.strip_to_letters(other)
    return one == other or (len(one) == len(other) and sorted(one) == sorted(other))


def _count_words(text: str) -> Counter[str]:
    return Counter(prose.strip_to_words(prose.to_one_line(text)))


def _subtract(own: Mapping[int, Counter[str]], other: Mapping[int, Counter[str]]) -> dict[int, tuple[str, ...]]:
    """The words that all pages together have more often than all others, by the page that has them more often."""
    left = sum(own.values(), Counter[str]()) - sum(other.values(), Counter[str]())
    found: dict[int, tuple[str, ...]] = {}
    for page, words in own.items():
        more = (words - other[page]) & left
        left -= more
        found[page] = tuple(more.elements())
    return found


def describe(element: Element) -> str:
    """All texts of an element, each once: its text, or its LaTeX, cells, data and description."""
    if element.kind is Kind.TABLE:
        table = flow.get_table_text(element.table) if element.table else ""
        return f"{table}\n{flow.get_own_text(element)}"
    if element.is_figure:
        texts, figure = flow.describe_figure(element), element.figure
        data = flow.get_table_text(figure.data) if figure and figure.data else ""
        return "\n".join((texts.visible, texts.description, data))
    if element.kind is Kind.FORMULA:
        return flow.get_latex(element) or element.text
    return element.text


def _list_flow_texts(shown: Flow) -> Iterator[PageText]:
    """What Markdown, HTML and chunks show: of tables that are joined over pages, a repeated head only once."""
    joined = set(shown.next_of.values())
    for element in shown.by_id.values():
        if element.kind is Kind.TABLE and element.id in shown.next_of and element.id not in joined:
            yield from _list_joined_texts(shown.collect_chain(element))
        elif element.kind is not Kind.TABLE or element.id not in joined:
            yield element.page, describe(element) + _get_diagram(element)


def _get_diagram(element: Element) -> str:
    return f"\n{flow.describe_figure(element).mermaid}" if element.figure and element.figure.mermaid else ""


def _list_joined_texts(parts: Sequence[Element]) -> Iterator[PageText]:
    cells, counts = flow.join_tables([part.table for part in parts if part.table])
    rows = iter(table_markup.group_rows(cells))
    for part, count in zip(parts, counts, strict=True):
        yield part.page, "\n".join(_join_cells(row) for row in islice(rows, count))


def _join_cells(cells: Iterable[Cell]) -> str:
    return "\n".join(cell.text for cell in cells)


def _read_markdown(text: str, marks: Mapping[str, str]) -> str:
    """What a reader of this Markdown sees, without the labels of images; `marks` are those of footnotes by label."""

    for note in _NOTES:
        text = text.replace(note, "")

    def replace(found: re.Match[str]) -> str:
        if (code := found["fenced"] or found["indented"]) is not None:
            return code.replace("&", "&amp;")
        if found["label"] is not None:
            return marks.get(found["label"], found["label"])
        return found["escape"] or " "

    return _unescape(_MARKDOWN.sub(replace, text))


def _unescape(text: str) -> str:
    return (
        _ENTITY.sub(lambda found: chr(int(found[1])) if found[1] else _NAMES[found[2]], text) if "&" in text else text
    )


def check_markdown(inputs: WriterInput, data: bytes) -> list[Loss]:
    return compare("document.md", _list_flow_texts(inputs.flow), _split_markdown(data.decode(), inputs))


def _split_markdown(text: str, inputs: WriterInput) -> Iterator[PageText]:
    """The parts of document.md by page; what stands before an element belongs to the element's page."""
    pages, marks = {element.id: element.page for element in inputs.shown.elements}, _collect_marks(inputs.flow)
    front = _FRONT_MATTER.match(text)
    start, page = front.end() if front else 0, 1
    for element_id, span in sorted(inputs.markdown[1].items(), key=lambda item: item[1]):
        page = pages[element_id]
        yield page, _read_markdown(text[start : span.end], marks)
        start = span.end
    yield page, _read_markdown(text[start:], marks)


def _collect_marks(shown: Flow) -> dict[str, str]:
    """The marks of the footnotes by their labels."""
    return {reference.label: reference.mark for found in shown.marks.values() for reference in found}


def check_chunks(inputs: WriterInput, data: bytes) -> list[Loss]:
    """Of a split table, what a chunk repeats is named in it."""
    rows, marks = [json.loads(line) for line in data.decode().split("\n") if line], _collect_marks(inputs.flow)
    repeated = ((row["pages"][0], _read_markdown(row["repeated"], {})) for row in rows)
    written = ((row["pages"][0], _read_markdown(row["text"], marks)) for row in rows)
    return compare("chunks.jsonl", chain(_list_flow_texts(inputs.flow), repeated), written)


def check_html(inputs: WriterInput, data: bytes) -> list[Loss]:
    return compare("document.html", _list_flow_texts(inputs.flow), _split_html(data, inputs.shown))


def _split_html(data: bytes, document: Document) -> Iterator[PageText]:
    """What a browser shows of the article in document.html, by page."""
    article = data.decode().partition("<article>")[2]
    bare = _ITEM_NUMBER.sub(r"\g<0>\1 ", _MATHML.sub(r" \1 ", _OWN_HTML.sub(" ", article)))
    pages, page = {element.id: element.page for element in document.elements}, 1
    text, *parts = _ID.split(bare)
    for element_id, following in zip(parts[::2], parts[1::2], strict=True):
        yield page, _read_html(text)
        page, text = pages.get(element_id, page), following
    yield page, _read_html(text)


def _read_html(text: str) -> str:
    return _unescape(_TAG.sub(" ", text))


def check_mineru(inputs: WriterInput, data: bytes) -> list[Loss]:
    written = ((entry["page_idx"] + 1, _read_entry(entry)) for entry in json.loads(data))
    return compare("content_list.json", _list_plain_texts(inputs.shown), written)


def _read_entry(entry: Mapping[str, Any]) -> str:
    texts = (entry[name] for name in _MINERU_TEXTS if name in entry)
    listed = (text for name in _MINERU_LISTS for text in entry.get(name, ()))
    read = [_read_markdown(text, {}) for text in (*texts, *listed)]
    return "\n".join([*read, _undo_inert(entry.get("code_body", ""))])


def check_docling(inputs: WriterInput, data: bytes) -> list[Loss]:
    found = json.loads(data)
    items = [(item, item.get("marker", "") + item["text"]) for item in found["texts"]]
    items += [(item, _read_docling_table(item["data"])) for item in found["tables"]]
    items += [(item, _read_docling_meta(item.get("meta") or {})) for item in found["pictures"]]
    written = ((item["prov"][0]["page_no"], _undo_inert(text)) for item, text in items)
    return compare("docling.json", _list_plain_texts(inputs.shown), written)


def _read_docling_table(data: Mapping[str, Any]) -> str:
    return "\n".join(cell["text"] for cell in data["table_cells"])


def _read_docling_meta(meta: Mapping[str, Any]) -> str:
    description, chart = meta.get("description"), meta.get("tabular_chart")
    return "\n".join(
        [description["text"] if description else "", _read_docling_table(chart["chart_data"]) if chart else ""]
    )


def _list_plain_texts(document: Document) -> Iterator[PageText]:
    """What formats of plain text show: every element."""
    return ((element.page, _undo_inert(describe(element))) for element in document.elements)


def _undo_inert(text: str) -> str:
    """Drop the blanks that `escaping.make_inert` puts into tags: they part no words."""
    return text.replace("< ", "<")
