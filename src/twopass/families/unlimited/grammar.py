"""What differs in Unlimited-OCR's answers from DeepSeek-OCR's, apart from the form of the tags.

- `<PAGE>` may open an answer; the prompt for several pages makes the model write it before every page.
- A `list` is a box without text around its items, before or after them.
- Every heading is a `title`, without hashes.
- Fixed sentences stand for content that was not read.
- Letters and digits in maths are spaced: `\\mathrm {c u r}`, `1. 3 4`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from twopass.document import Box, Element, Kind
from twopass.families.grounded import elements, grounding
from twopass.families.grounded.grounding import Block

LIST = "list"
# What the model writes where it read no text, in lower case and without the full stop.
BOILERPLATE = frozenset({"[non-text]", "the image is too blurry to recognize any text content"})
FIGURE_KINDS = frozenset({Kind.PICTURE, Kind.CHART})
_PAGE_MARK = re.compile(r"^[ \t]*<PAGE>[ \t]*\n?", flags=re.MULTILINE)
_MATHS = re.compile(r"\\\(.+?\\\)|\\\[.+?\\\]", flags=re.DOTALL)
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
    return " ".join(grounding.strip_special_tokens(text).lower().split()).rstrip(".") in BOILERPLATE


def close_spaces_in_maths(text: str) -> str:
    """Close spaces that LaTeX does not show, within numbers and names in maths."""
    return _MATHS.sub(lambda maths: _close_spaces(maths[0]), text) if "\\" in text else text


def _close_spaces(maths: str) -> str:
    names_closed = _SPACED_NAME.sub(
        lambda name: f"{name[1] or name[3]}{{{(name[2] or name[4]).replace(' ', '')}}}", maths
    )
    return _SPACED_NUMBER.sub(lambda number: number[0].replace(" ", ""), names_closed)


def clean_reply(text: str) -> str:
    """Clean a reply of pass 2; boilerplate is no reply."""
    text = close_spaces_in_maths(drop_page_marks(text))
    contents = [block.content for block in grounding.parse(text).blocks if block.content.strip()]
    return "" if all(map(_is_boilerplate, contents)) else text


def split_lists(blocks: Sequence[Block]) -> tuple[tuple[Block, ...], tuple[Box, ...]]:
    """Take out the empty lists around other blocks. Returns the other blocks and the boxes of the lists."""
    lists = [
        block
        for block in blocks
        if block.label == LIST
        and not block.content.strip()
        and any(_contains(block.boxes, other.boxes) for other in blocks if other is not block and other.label != LIST)
    ]
    others = tuple(block for block in blocks if not any(block is one for one in lists))
    return others, tuple(box for block in lists for box in block.boxes)


def _contains(outer: Sequence[Box], inner: Sequence[Box]) -> bool:
    """Whether the centre of the first inner box lies in an outer one."""
    if not inner:
        return False
    x, y = (inner[0].x0 + inner[0].x1) / 2, (inner[0].y0 + inner[0].y1) / 2
    return any(box.x0 <= x <= box.x1 and box.y0 <= y <= box.y1 for box in outer)


def set_kinds(found: Iterable[Element], lists: Sequence[Box], page: int) -> tuple[Element, ...]:
    """Make texts in lists list items, and all titles but the first one of the document section headings."""
    result, has_title = [], page > 1
    for element in found:
        if element.kind is Kind.TEXT and _contains(lists, element.boxes):
            element = element.model_copy(update={"kind": Kind.LIST_ITEM})
        elif element.kind is Kind.TITLE:
            element = _demote(element) if has_title else element
            has_title = True
        result.append(element)
    return tuple(result)


def _demote(title: Element) -> Element:
    """A section heading. Numbers give it a level when the document is assembled."""
    kind = Kind.SECTION_HEADER
    heading = title.model_copy(update={"kind": kind, "category": kind.category, "level": None})
    return elements.with_content(heading, title.text)
