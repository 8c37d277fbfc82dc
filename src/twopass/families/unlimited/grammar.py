"""What differs in Unlimited-OCR's answers from DeepSeek-OCR's, apart from the form of the tags.

- `<PAGE>` may open an answer; the prompt for several pages makes the model write it before every page.
- A `list` is a box without text around its items, before or after them.
- Every heading is a `title`, without hashes; so are entries of a table of contents and some captions.
- Captions may be `text`.
- Fixed sentences stand for content that was not read.
- Letters and digits in maths are spaced: `\\mathrm {c u r}`, `c u r`, `1. 3 4`.
- Citations such as [1, 2] are written as maths.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import islice

from twopass.document import HEADINGS, Box, Element, Kind
from twopass.families import captions
from twopass.families.grounded import elements, grounding
from twopass.families.grounded.grounding import Block
from twopass.text import maths

LIST = "list"
# What the model writes where it read no text, in lower case and without the full stop.
BOILERPLATE = frozenset({"[non-text]", "the image is too blurry to recognize any text content"})
FIGURE_KINDS = frozenset({Kind.PICTURE, Kind.CHART})
MAX_LISTS, MAX_ITEMS = 200, 100  # lists of a page, and blocks before and after one that may lie in it
MIN_ENTRIES = 5  # of a table of contents, and at least half of its page
ENTRY_EDGE = 0.02  # of the page's width: the page numbers of a table of contents end at the same place
MAX_CAPTION_LENGTH = 400  # characters
_ENTRY = re.compile(r"(?=.*[^\W\d_])\S.*?[\s.·…]\s?(\d{1,4}|[ivxlc]{1,7})", flags=re.DOTALL)
_TABLE_NAME = r"table|tab\.|tabelle|tableau|tabla|表"
_FIGURE_NAME = r"figure|fig\.|abbildung|abb\.|figura|chart|图|圖|図"
_CAPTION = re.compile(
    rf"(?:(?P<table>{_TABLE_NAME})|{_FIGURE_NAME})\s*[A-Z]?[\d.]*\d(?P<end>\s*[.:|：]|\s)", flags=re.IGNORECASE
)
_PAGE_MARK = re.compile(r"^[ \t]*<PAGE>[ \t]*\n?", flags=re.MULTILINE)
_CITATION = re.compile(r"(?:(?<!\s)\s+)?\\\(\s*(\[\d{1,4}(?:\s?[,–-]\s?\d{1,4})*\])\s*\\\)")
# Outside of \text, LaTeX shows no space between two letters. Two letters may be meant as two; commands are not letters.
_SPACED_LETTERS = re.compile(
    r"(\\(?:text\w{0,2}|mbox) ?\{[^{}]*\})|(?<![\\A-Za-z])[A-Za-z](?: [A-Za-z]){2,}(?![A-Za-z])"
)
_SPACED_NUMBER = re.compile(r"(?<!\d)\d+(?: ?\. ?\d+| \d+)+")
_MATHS_FONT = r"\\(?:mathrm|mathbf|mathit|mathsf|mathtt|operatorname)"
_SPACED_NAME = re.compile(rf"({_MATHS_FONT}) ?\{{ ?(\w(?: \w)+) ?\}}|(\\text\w{{0,2}}) ?\{{ ?(\w(?: \w){{2,}}) ?\}}")


def drop_page_marks(text: str) -> str:
    return _PAGE_MARK.sub("", text)


def clean_blocks(blocks: Iterable[Block]) -> tuple[Block, ...]:
    """Close the spaces in maths, and drop boilerplate: pictures keep their box, other blocks go with it."""
    cleaned = []
    for block in blocks:
        if not _is_boilerplate(block.content):
            cleaned.append(replace(block, content=close_spaces_in_maths(block.content)))
        elif elements.classify_label(block.label) in FIGURE_KINDS:
            cleaned.append(replace(block, content=""))
    return tuple(cleaned)


def _is_boilerplate(text: str) -> bool:
    """Whether a text has lines, and all of them are boilerplate, which may be repeated."""
    lines = [line for line in grounding.strip_special_tokens(text).lower().splitlines() if line.strip()]
    return bool(lines) and all(" ".join(line.split()).rstrip(".") in BOILERPLATE for line in lines)


def close_spaces_in_maths(text: str) -> str:
    """Close spaces that LaTeX does not show, within numbers and names in maths; citations become text."""
    if "\\" not in text:
        return text
    return maths.FORMULA.sub(lambda formula: _close_spaces(formula[0]), _CITATION.sub(r" \1", text))


def _close_spaces(formula: str) -> str:
    names_closed = _SPACED_NAME.sub(
        lambda name: f"{name[1] or name[3]}{{{(name[2] or name[4]).replace(' ', '')}}}", formula
    )
    letters_closed = _SPACED_LETTERS.sub(lambda run: run[1] or run[0].replace(" ", ""), names_closed)
    return _SPACED_NUMBER.sub(lambda number: number[0].replace(" ", ""), letters_closed)


def clean_reply(text: str) -> str:
    """Clean a reply of pass 2; boilerplate is no reply."""
    text = close_spaces_in_maths(drop_page_marks(text))
    contents = [block.content for block in grounding.parse(text).blocks if block.content.strip()]
    return "" if all(map(_is_boilerplate, contents)) else text


def split_lists(blocks: Sequence[Block]) -> tuple[tuple[Block, ...], tuple[Box, ...]]:
    """Take out the empty lists around other blocks. Returns the other blocks and the boxes of the lists."""
    empty = (n for n, block in enumerate(blocks) if block.label == LIST and not block.content.strip())
    lists = [n for n in islice(empty, MAX_LISTS) if _has_item(blocks[n], blocks[max(n - MAX_ITEMS, 0) : n + MAX_ITEMS])]
    taken = set(lists)
    others = tuple(block for n, block in enumerate(blocks) if n not in taken)
    return others, tuple(box for n in lists for box in blocks[n].boxes)


def _has_item(one: Block, near: Sequence[Block]) -> bool:
    return any(_contains(one.boxes, other.boxes) for other in near if other.label != LIST)


def _contains(outer: Sequence[Box], inner: Sequence[Box]) -> bool:
    """Whether the centre of the first inner box lies in an outer one."""
    if not inner:
        return False
    x, y = (inner[0].x0 + inner[0].x1) / 2, (inner[0].y0 + inner[0].y1) / 2
    return any(box.x0 <= x <= box.x1 and box.y0 <= y <= box.y1 for box in outer)


def set_kinds(found: Sequence[Element], lists: Sequence[Box], page: int) -> tuple[Element, ...]:
    """Give elements the kinds that the labels do not tell: list items, captions, entries of contents, headings.

    Of the titles, only the first one of the document remains; the others become section headings.
    """
    result, has_title = [], page > 1
    entries = _find_entries(found)
    page_kinds = {one.kind for one in found}
    for index, element in enumerate(found):
        if element.kind is Kind.TEXT and _contains(lists, element.boxes):
            element = element.model_copy(update={"kind": Kind.LIST_ITEM})
        elif _is_caption(index, found, page_kinds):
            element = _change_kind(element, Kind.CAPTION)
        elif element.kind in HEADINGS and index in entries:
            element = _change_kind(element, Kind.TEXT)
        elif element.kind is Kind.TITLE:
            # Numbers give a heading its level when the document is assembled.
            element = _change_kind(element, Kind.SECTION_HEADER) if has_title else element
            has_title = True
        result.append(element)
    return tuple(captions.link_captions(result))


def _find_entries(found: Sequence[Element]) -> frozenset[int]:
    """Find the entries of a table of contents: they end in page numbers that never decrease, at the same place."""
    numbered = [(index, match) for index, one in enumerate(found) if (match := _ENTRY.fullmatch(one.text.strip()))]
    right_edges = [found[index].boxes[0].x1 for index, _ in numbered if found[index].boxes]
    if len(right_edges) < max(MIN_ENTRIES, len(found) / 2) or max(right_edges) - min(right_edges) > ENTRY_EDGE:
        return frozenset()
    pages = [int(match[1]) if match[1].isdecimal() else 0 for _, match in numbered]  # a preface has Roman numbers
    return frozenset(index for index, _ in numbered) if pages == sorted(pages) else frozenset()


def _is_caption(index: int, found: Sequence[Element], page_kinds: Collection[Kind]) -> bool:
    """Whether a text or heading is a caption.

    It begins with the name and number of a table or figure. A heading does so on a page that has one; a text is next to
    one, and a full stop, colon or bar ends the number: "Table 2 shows" is no caption.
    """
    element = found[index]
    match = _CAPTION.match(element.text + "\n")
    if not match or element.kind not in (Kind.TEXT, *HEADINGS) or len(element.text) > MAX_CAPTION_LENGTH:
        return False
    if element.kind is Kind.TEXT and not match["end"].strip():
        return False
    is_heading = element.kind in HEADINGS
    near = page_kinds if is_heading else {one.kind for one in found[max(index - 1, 0) : index + 2]}
    return not FIGURE_KINDS.isdisjoint(near) if not match["table"] else Kind.TABLE in near


def _change_kind(element: Element, kind: Kind) -> Element:
    changed = element.model_copy(update={"kind": kind, "category": kind.category, "level": None, "numbering": None})
    return elements.with_content(changed, element.text)
