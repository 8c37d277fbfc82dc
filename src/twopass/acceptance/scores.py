"""Scores that say how close an answer is to a recorded one: words, boxes and tables.

- word error rate: substituted, missing and added words, divided by the words of the reference (Jurafsky and Martin,
  Speech and Language Processing, section on evaluating recognisers)
- IoU: the area that two boxes share, divided by the area that they cover together (Jaccard index)
- TEDS, the tree edit distance similarity of tables (Zhong, ShafieiBavani and Jimeno Yepes, Image-based table
  recognition: data, model, and evaluation, 2020), with the same library as its published implementation
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from apted import APTED

from twopass.document import Box, Cell, Table, enclose
from twopass.families import agreement
from twopass.families.grounded.grounding import Block

MIN_SIMILARITY = 0.5  # of the texts of two blocks that are compared; blocks that differ more are different blocks


def word_error_rate(text: str, reference: str) -> float:
    """Edits per word of the reference: 0 for the same words in the same order, 1 for no common word, more for junk.

    Words are what stands between spaces, so a lost space costs two edits. Case, and punctuation around words, are
    ignored. Where the reference has no words, each word of the text counts as an error of 1.
    """
    words = agreement.count_word_edits("", reference)
    return agreement.count_word_edits(text, reference) / max(words, 1)


def box_iou(one: Box, other: Box) -> float:
    """From 0 for boxes that do not overlap to 1 for equal boxes. Symmetric. A box without area has 0."""
    shared = one.overlap(other)
    union = one.area + other.area - shared
    return min(shared / union, 1.0) if union > 0 else 0.0


def mean_box_iou(blocks: Sequence[Block], reference: Sequence[Block]) -> float:
    """The mean IoU of the blocks that have boxes, from 0 to 1; a block with several boxes has the box around them all.

    Each block is compared with at most one block of the reference. Pairs are formed by text, the most similar first,
    and among equal ones by IoU; blocks without text are paired if their labels are equal. A block without a partner
    counts as 0, on either side. 1 if neither side has boxes.
    """
    ones, others = _find_boxes(blocks), _find_boxes(reference)
    pairs = sorted(
        ((_block_similarity(block, other), box_iou(box, other_box), -n, -m))
        for n, (block, box) in enumerate(ones)
        for m, (other, other_box) in enumerate(others)
    )
    total, used_ones, used_others = 0.0, set[int](), set[int]()
    for similarity, iou, n, m in reversed(pairs):
        if similarity >= MIN_SIMILARITY and n not in used_ones and m not in used_others:
            total += iou
            used_ones.add(n)
            used_others.add(m)
    most = max(len(ones), len(others))
    return total / most if most else 1.0


def _find_boxes(blocks: Sequence[Block]) -> list[tuple[Block, Box]]:
    return [(block, enclose(block.boxes)) for block in blocks if block.boxes]


def _block_similarity(one: Block, other: Block) -> float:
    if one.content.strip() and other.content.strip():
        return agreement.similarity(one.content, other.content)
    return float(not one.content.strip() and not other.content.strip() and one.label == other.label)


@dataclass(frozen=True)
class _Node:
    """A node of a table's tree: the table, its rows, their cells; only cells have spans and text."""

    tag: str
    children: tuple[_Node, ...] = ()
    spans: tuple[int, int] = (1, 1)
    text: str = ""

    @property
    def size(self) -> int:
        """How many nodes the tree has."""
        return 1 + sum(child.size for child in self.children)


class _Costs:
    """The costs of edits that TEDS defines: 1, but for cells with equal spans the share of text that differs."""

    valuecls = float

    def delete(self, node: _Node) -> float:
        return 1.0

    def insert(self, node: _Node) -> float:
        return 1.0

    def rename(self, one: _Node, other: _Node) -> float:
        if one.tag != other.tag or one.spans != other.spans:
            return 1.0
        return 1.0 - agreement.similarity(one.text, other.text)

    def children(self, node: _Node) -> tuple[_Node, ...]:
        return node.children


def table_similarity(one: Table, other: Table) -> float:
    """TEDS of two tables: 1 − edits / nodes of the larger tree, from 0 to 1 for equal tables. Symmetric.

    Nodes are the table, its rows and its cells. Unlike the published implementation it ignores whether a cell is a
    header, case and white space: the model marks no headers.
    """
    trees = [_build_tree(table) for table in (one, other)]
    if trees[0] == trees[1]:
        return 1.0  # two different tables of 600 cells take 8 s
    distance = APTED(*trees, _Costs()).compute_edit_distance()
    return float(max(1.0 - distance / max(tree.size for tree in trees), 0.0))


def _build_tree(table: Table) -> _Node:
    cells = sorted(table.cells, key=lambda cell: (cell.row, cell.col))
    rows = (tuple(_build_cell(cell) for cell in row) for _, row in groupby(cells, key=lambda cell: cell.row))
    return _Node("table", tuple(_Node("tr", row) for row in rows))


def _build_cell(cell: Cell) -> _Node:
    return _Node("td", spans=(cell.row_span, cell.col_span), text=cell.text)


def mean_table_similarity(tables: Sequence[Table], reference: Sequence[Table]) -> float:
    """The mean TEDS of tables that are compared in their order; a missing or additional table counts as 0."""
    most = max(len(tables), len(reference))
    pairs = zip(tables, reference, strict=False)
    return sum(table_similarity(one, other) for one, other in pairs) / most if most else 1.0
