"""Word error rate, IoU of boxes and TEDS of tables: perfect for equal answers, bounded, and right in known cases."""

from __future__ import annotations

from functools import lru_cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twopass.acceptance import scores
from twopass.document import Box, Cell, Table
from twopass.families import table_parser
from twopass.families.grounded import grounding
from twopass.families.grounded.grounding import Block
from twopass.text import table_markup

words = st.lists(st.from_regex(r"[a-z]{1,5}", fullmatch=True), max_size=8)
corners = st.tuples(*[st.integers(0, 400)] * 2, *[st.integers(500, 999)] * 2)
boxes = corners.map(lambda sides: Box.from_grid(*sides, 999))
blocks = st.builds(
    Block,
    st.sampled_from(["text", "image"]),
    st.lists(st.tuples(*[st.integers(0, 999).map(float)] * 4), max_size=2).map(tuple),
    st.text("ab c", max_size=5),
)
tables = st.builds(
    lambda rows: table_parser.parse_html(
        "<table>" + "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows) + "</table>"
    ),
    st.lists(st.lists(st.sampled_from(["", "a", "b", "ab"]), min_size=1, max_size=3), min_size=1, max_size=3),
)


def make_table(*rows: str) -> Table:
    cells = [Cell(row=r, col=c, text=text) for r, row in enumerate(rows) for c, text in enumerate(row.split())]
    return table_markup.build_table(len(rows), max(cell.col for cell in cells) + 1, cells)


def block(text: str, *sides: float, label: str = "text") -> Block:
    x0, y0, x1, y1 = sides
    return Block(label, ((x0, y0, x1, y1),), text)


@given(words)
def test_the_same_words_have_no_errors(text: list[str]) -> None:
    """Line ends, case and punctuation around words do not count."""
    assert scores.word_error_rate("\n".join(text).upper(), ", ".join(text)) == 0


@given(words, words)
def test_word_errors_are_bounded_by_the_longer_text(one: list[str], other: list[str]) -> None:
    """The rate is 0 or more, and at most the words of the longer text for each word of the reference."""
    rate = scores.word_error_rate(" ".join(one), " ".join(other))

    assert 0 <= rate <= max(len(one), len(other)) / max(len(other), 1)


@given(words, words)
def test_as_many_words_have_to_be_changed_in_both_directions(one: list[str], other: list[str]) -> None:
    """The rate is symmetric but for its denominator, the number of words of the reference."""
    there = scores.word_error_rate(" ".join(one), " ".join(other)) * max(len(other), 1)
    back = scores.word_error_rate(" ".join(other), " ".join(one)) * max(len(one), 1)

    assert there == pytest.approx(back)


@pytest.mark.parametrize(
    ("text", "rate"),
    [("a b c d", 0), ("a x c d", 0.25), ("a b d", 0.25), ("a b c d e f g h", 1), ("abcd", 1), ("ab c d", 0.5), ("", 1)],
)
def test_word_errors_are_edits_per_word_of_the_reference(text: str, rate: float) -> None:
    """A substituted, a missing and an added word cost one edit, and a lost space two."""
    assert scores.word_error_rate(text, "a b c d") == rate


@given(boxes, boxes)
def test_iou_is_symmetric_and_bounded(one: Box, other: Box) -> None:
    """It does not matter which box is the reference; the result is from 0 to 1, and 1 for equal boxes."""
    assert 0 <= scores.box_iou(one, other) <= 1
    assert scores.box_iou(one, other) == pytest.approx(scores.box_iou(other, one))
    assert scores.box_iou(one, one) == pytest.approx(1)


def test_iou_is_the_shared_area_over_the_covered_area() -> None:
    """Half of a box over the other half has a third; boxes that only touch have nothing."""
    assert scores.box_iou(Box(0, 0, 0.4, 0.4), Box(0.2, 0, 0.6, 0.4)) == pytest.approx(1 / 3)
    assert scores.box_iou(Box(0, 0, 0.2, 0.2), Box(0.2, 0, 0.4, 0.2)) == 0


@given(st.lists(blocks, max_size=6))
def test_the_same_blocks_have_an_iou_of_one(answer: list[Block]) -> None:
    """Repeated texts and boxes, and blocks without a box, do not prevent that each block finds itself."""
    assert scores.mean_box_iou(answer, answer) == pytest.approx(1)


@given(st.lists(blocks, max_size=5), st.lists(blocks, max_size=5))
def test_the_mean_iou_is_bounded(one: list[Block], other: list[Block]) -> None:
    """From 0 to 1, whatever the blocks are."""
    assert 0 <= scores.mean_box_iou(one, other) <= 1 + 1e-9


def test_blocks_are_paired_by_text_and_others_count_as_nothing() -> None:
    """Blocks may come in another order; a missing one, an added one and one of other words lower the mean."""
    one, other = block("the first", 0, 0, 500, 100), block("and second", 0, 200, 500, 300)

    assert scores.mean_box_iou([other, one], [one, other]) == pytest.approx(1)
    assert scores.mean_box_iou([one], [one, other]) == scores.mean_box_iou([one, other], [one]) == pytest.approx(0.5)
    assert scores.mean_box_iou([block("quite different", 0, 0, 500, 100)], [one]) == 0


def test_blocks_without_text_are_paired_by_label() -> None:
    """Pictures are compared with pictures, the best fitting ones with each other."""
    one, other = block("", 0, 0, 500, 100, label="image"), block("", 0, 200, 500, 300, label="image")

    assert scores.mean_box_iou([other, one], [one, other]) == pytest.approx(1)
    assert scores.mean_box_iou([block("", 0, 0, 500, 100)], [one]) == 0


def test_a_block_with_several_boxes_has_the_box_around_them() -> None:
    """The two boxes of a paragraph that continues are compared with one box around both."""
    (answered,) = grounding.parse("<|ref|>text<|/ref|><|det|>[[0, 0, 99, 99], [0, 99, 99, 199]]<|/det|>\nwords").blocks

    assert scores.mean_box_iou([answered], [block("words", 0, 0, 99, 199)]) == pytest.approx(1)


@given(tables)
def test_the_same_table_has_a_teds_of_one(table: Table) -> None:
    """No edit is needed to turn a table into itself."""
    assert scores.table_similarity(table, table) == 1


@given(tables, tables)
def test_teds_is_symmetric_and_bounded(one: Table, other: Table) -> None:
    """It does not matter which table is the reference; the result is from 0 to 1."""
    similarity = scores.table_similarity(one, other)

    assert 0 <= similarity <= 1
    assert similarity == pytest.approx(scores.table_similarity(other, one))


@pytest.mark.parametrize(
    ("rows", "edits"),
    [
        (["ab cd", "ef gh"], 0),
        (["ab cx", "ef gh"], 0.5),  # half of a cell's text
        (["ab cd"], 3),  # a row and its two cells
        (["ab", "ef"], 2),  # a column
    ],
)
def test_teds_counts_missing_rows_and_cells_and_wrong_text(rows: list[str], edits: float) -> None:
    """Edits divided by the seven nodes of the larger tree: a table, two rows, four cells."""
    assert scores.table_similarity(make_table(*rows), make_table("ab cd", "ef gh")) == pytest.approx(1 - edits / 7)


def test_teds_counts_a_cell_with_another_span() -> None:
    """A cell that spans two columns is another cell, even with the same text."""
    plain = table_parser.parse_html("<table><tr><td>a</td></tr></table>")
    spanning = table_parser.parse_html('<table><tr><td colspan="2">a</td></tr></table>')

    assert scores.table_similarity(plain, spanning) == pytest.approx(1 - 1 / 3)


@given(tables, tables)
def test_teds_is_the_tree_edit_distance(one: Table, other: Table) -> None:
    """The library gives the distance that its recursive definition gives."""
    distance, most = reference_distance(one, other)

    assert scores.table_similarity(one, other) == pytest.approx(1 - distance / most)


def reference_distance(one: Table, other: Table) -> tuple[float, int]:
    """The edit distance by its definition on ordered forests: remove or match the last root; and the larger size."""
    costs = scores._Costs()
    trees = [scores._build_tree(table) for table in (one, other)]
    Forest = tuple[scores._Node, ...]

    @lru_cache(None)
    def distance(left: Forest, right: Forest) -> float:
        if not left or not right:
            return float(sum(node.size for node in (*left, *right)))
        (*before, last), (*before_other, last_other) = left, right
        return min(
            distance((*before, *last.children), right) + 1,
            distance(left, (*before_other, *last_other.children)) + 1,
            distance(tuple(before), tuple(before_other))
            + distance(last.children, last_other.children)
            + costs.rename(last, last_other),
        )

    return distance((trees[0],), (trees[1],)), max(tree.size for tree in trees)


def test_missing_tables_count_as_nothing() -> None:
    """Tables are compared in their order, and one of two is half."""
    table = make_table("ab cd", "ef gh")

    assert scores.mean_table_similarity([table], [table, table]) == 0.5
    assert scores.mean_table_similarity([], []) == 1
