"""Turn an answer about a whole page into blocks without loops, and the blocks into elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from twopass.document import Flag
from twopass.errors import Code
from twopass.families import text_layer_check
from twopass.families.grounded import elements, grounding, loops
from twopass.families.grounded.grounding import Block
from twopass.families.interface import ParsedPage
from twopass.pages.text_layer import TextLayer


class PageBlocks(NamedTuple):
    """The blocks of an answer, why it cannot be used (None if it can), and whether any tag of it has a box."""

    blocks: tuple[Block, ...]
    reason: Code | None
    has_boxes: bool


def parse_document(text: str, page: int, layer: TextLayer) -> ParsedPage:
    """Parse an answer that must have boxes."""
    read = read_blocks(text)
    return require_boxes(build_page(read.blocks, read.reason, page, layer), read)


def parse_text(text: str, page: int, layer: TextLayer) -> ParsedPage:
    """Parse an answer with or without boxes."""
    read = read_blocks(text)
    return build_page(read.blocks, read.reason, page, layer)


def read_blocks(text: str) -> PageBlocks:
    """Parse an answer; loops and a tag that is cut off at the end are left out."""
    answer = grounding.parse(text)
    blocks = tuple(map(_read_label, answer.blocks))
    repetition = None
    if not any(block.label or block.corners for block in blocks):
        untagged = "".join(block.content for block in blocks)
        repetition = loops.find_repetition(untagged)
        blocks = tuple(elements.split_paragraphs(untagged[:repetition]))
    blocks, has_loop = loops.remove_loops(blocks)
    if answer.cut_off and blocks and not has_loop:
        blocks = (*blocks[:-1], replace(blocks[-1], flags=(Flag.CUT_OFF,)))
    reason = Code.LOOP if has_loop or repetition is not None else Code.TRUNCATED if answer.cut_off else None
    return PageBlocks(blocks, reason, answer.has_boxes)


def _read_label(block: Block) -> Block:
    """The block with the text that the model wrote in place of a label."""
    label = block.label or ""
    is_text = label and elements.is_text(label, block.content)
    return replace(block, label=None, content=f"{label}\n{block.content}") if is_text else block


def build_page(blocks: Sequence[Block], reason: Code | None, page: int, layer: TextLayer) -> ParsedPage:
    return ParsedPage(text_layer_check.check_elements(elements.build_elements(blocks, page), layer), reason)


def require_boxes(parsed: ParsedPage, read: PageBlocks) -> ParsedPage:
    """Reject an answer that has text but no boxes."""
    if parsed.reason is None and parsed.elements and not read.has_boxes:
        return replace(parsed, reason=Code.UNGROUNDED)
    return parsed
