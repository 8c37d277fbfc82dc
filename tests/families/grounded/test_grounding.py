"""The grammar of grounded answers: every known form of a tag, and arbitrary text."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import answers
from twopass.document import Box
from twopass.families.grounded import grounding
from twopass.families.grounded.grounding import GRID

TAG = "<|ref|>text<|/ref|><|det|>{}<|/det|>\nwords"

# the coordinates in a tag -> the boxes they mean
COORDINATES = {
    "one": ("[[1, 2, 300, 400]]", [(1, 2, 300, 400)]),
    "several": ("[[1, 2, 3, 4], [5, 6, 7, 8]]", [(1, 2, 3, 4), (5, 6, 7, 8)]),
    "flat": ("[1,2,3,4]", [(1, 2, 3, 4)]),
    "flat, several": ("[1,2,3,4,5,6,7,8]", [(1, 2, 3, 4), (5, 6, 7, 8)]),
    "no brackets": ("1, 2, 3, 4", [(1, 2, 3, 4)]),
    "full-width": ("【【1，2，3、400】】", [(1, 2, 3, 400)]),
    "full-width digits": ("［［１，２，３，４］］", [(1, 2, 3, 4)]),
    "round brackets": ("(1, 2, 3, 4)", [(1, 2, 3, 4)]),
    "special tokens": ("[[1, <|ref|>2, <|x|>3, 4]]", [(1, 2, 3, 4)]),
    "end of sentence within": ("[[1, 2,<｜end▁of▁sentence｜> 3, 4]]", [(1, 2, 3, 4)]),
    "polygons": ("[[[1,2],[30,2],[30,40],[1,40]], [[5,6],[7,8]]]", [(1, 2, 30, 40), (5, 6, 7, 8)]),
    "decimals": ("[[1.5, 2, 3.5, 4]]", [(1.5, 2, 3.5, 4)]),
    "line ends": ("[[1, 2,\n 3, 4]\n]", [(1, 2, 3, 4)]),
    "one too many": ("[[1, 2, 3, 4, 5]]", [(1, 2, 3, 4)]),
    "too few": ("[[1, 2, 3]]", []),
    "none": ("", []),
}


@pytest.mark.parametrize(("coordinates", "boxes"), COORDINATES.values(), ids=COORDINATES)
def test_boxes_are_read_in_every_notation(coordinates: str, boxes: list[tuple[float, ...]]) -> None:
    """Coordinates are read number by number, and the words after the tag stay its content."""
    (block,) = grounding.parse(TAG.format(coordinates)).blocks

    assert (list(block.corners), block.content.strip(), block.label) == (boxes, "words", "text")
    assert block.unread_box == (coordinates in ("[[1, 2, 3, 4, 5]]", "[[1, 2, 3]]"))


def test_the_grid_is_inclusive_and_cut_at_the_pages_edge() -> None:
    """999 is the right edge of the page, and larger numbers are cut to it."""
    (block,) = grounding.parse(TAG.format("[[0, 0, 999, 999], [900, -5, 1200, 500]]")).blocks

    assert block.boxes == (Box(0, 0, 1, 1), Box(round(900 / 999, 5), 0, 1, round(500 / 999, 5)))


def test_boxes_without_an_area_are_dropped_and_reported() -> None:
    """Corners in the wrong order and lines give no box, and the block is degenerate."""
    (block,) = grounding.parse(TAG.format("[[71, 844, 20, 860], [1, 5, 9, 5], [1, 2, 3, 4]]")).blocks

    assert len(block.boxes) == 1
    assert block.is_degenerate


# an answer -> the labels and contents of its blocks
SHAPES = {
    "blank between ref and det": ("<|ref|>text<|/ref|> \n <|det|>[[1,2,3,4]]<|/det|>a", [("text", "a")]),
    "text before the first tag": ("Hello\n" + TAG.format("[[1,2,3,4]]"), [(None, "Hello"), ("text", "words")]),
    "no det": ("<|ref|>text<|/ref|>\na", [("text", "a")]),
    "no ref": ("<|det|>[[1,2,3,4]]<|/det|>\na", [(None, "a")]),
    "a det that is not closed": ("<|ref|>text<|/ref|><|det|>[[1,2,3,4]]\na b", [("text", "a b")]),
    "a det of words": ("<|ref|>text<|/ref|><|det|>here<|/det|>\na", [("text", "here\na")]),
    "the grounding token": ("<|grounding|>" + TAG.format("[[1,2,3,4]]"), [("text", "words")]),
    "the end token": (TAG.format("[[1,2,3,4]]") + "<｜end▁of▁sentence｜>", [("text", "words")]),
    "specials skipped": (
        "text[[1, 2, 3, 4]]\na\n\nsub_title[[5, 6, 7, 8]]\n# b",
        [("text", "a"), ("sub_title", "# b")],
    ),
    "brackets in prose": (
        "As shown [[1, 2, 3, 4]] and\nalso[[1, 2]]",
        [(None, "As shown [[1, 2, 3, 4]] and\nalso[[1, 2]]")],
    ),
    "pipes of F#": (TAG.format("[[1,2,3,4]]") + " f <| x |> g ψ|> y", [("text", "words f <| x |> g ψ|> y")]),
    "every kind of token": (
        TAG.format("[[1,2,3,4]]") + "<|im_end|><｜place▁holder▁no▁0｜><|/x|><｜▁pad▁｜>",
        [("text", "words")],
    ),
    "twice the same": (TAG.format("[[1,2,3,4]]") * 2, [("text", "words")] * 2),
    "a broken tag before a whole one": (
        "<|ref|>text<|/ref|><|det|>[[1,2,3\n\n" + TAG.format("[[1,2,3,4]]"),
        [("text", "[[1,2,3"), ("text", "words")],
    ),
}


@pytest.mark.parametrize(("text", "pairs"), SHAPES.values(), ids=SHAPES)
def test_a_tag_is_found_in_every_shape(text: str, pairs: list[tuple[str | None, str]]) -> None:
    """Every form of a tag gives a block, and everything else stays text."""
    answer = grounding.parse(text)

    assert [(block.label, block.content.strip()) for block in answer.blocks] == pairs
    assert not answer.cut_off


@pytest.mark.parametrize(
    "tail", ["<|ref|>te", "<|ref|>text<|/ref|>", "<|ref|>text<|/ref|><|det|>[[520", "<|ref|>text<|/re", "<|", "<|ref"]
)
def test_a_tag_that_is_cut_off_is_reported_and_dropped(tail: str) -> None:
    """An answer may end within a tag; no part of that tag becomes text."""
    answer = grounding.parse(TAG.format("[[1,2,3,4]]") + "\n" + tail)

    assert answer.cut_off
    assert [block.content.strip() for block in answer.blocks] == ["words"]


def test_a_bare_tag_that_is_cut_off_is_reported() -> None:
    """The same holds for an answer from which a server removed the special tokens."""
    answer = grounding.parse("text[[1, 2, 3, 4]]\na\ntext[[520, 3")

    assert answer.cut_off
    assert [block.content.strip() for block in answer.blocks] == ["a"]


def test_a_label_may_be_the_text_itself() -> None:
    """`OCR this image.` writes lines of text where other answers have a label."""
    answer = grounding.parse("Pay 5 < 6 €[[1, 2, 3, 4]]\n", any_label=True)

    assert [block.label for block in answer.blocks] == ["Pay 5 < 6 €"]


fields = st.integers(0, GRID - 1)
corners = st.tuples(fields, fields, fields, fields).map(
    lambda c: (min(c[0], c[2]), min(c[1], c[3]), max(c[0], c[2]) + 1, max(c[1], c[3]) + 1)
)
labels = st.sampled_from(["text", "title", "sub_title", "table", "image", "equation", "unheard_of"])
contents = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="<|｜")).map(str.strip)


def format_block(label: str, corners: tuple[tuple[int, int, int, int], ...], content: str) -> str:
    """Write a block as the model does."""
    return f"<|ref|>{label}<|/ref|><|det|>{[list(box) for box in corners]}<|/det|>\n{content}  \n\n"


@given(st.lists(st.tuples(labels, st.lists(corners, min_size=1, max_size=3).map(tuple), contents), max_size=8))
def test_what_was_written_is_read_again(written: list[tuple[str, tuple[tuple[int, int, int, int], ...], str]]) -> None:
    """Labels, boxes and contents survive the round trip, in order."""
    text = "".join(format_block(*block) for block in written)

    blocks = grounding.parse(text).blocks

    assert [(block.label, block.corners, block.content.strip()) for block in blocks] == written
    assert all(block.boxes == tuple(Box.from_grid(*c, GRID) for c in block.corners) for block in blocks)


@given(st.lists(st.sampled_from(answers.PIECES) | st.text(max_size=5), max_size=30).map("".join))
def test_any_text_is_some_blocks(text: str) -> None:
    """Any text parses: boxes lie on the page, offsets rise, and no tag is left in the contents."""
    answer = grounding.parse(text)

    assert all(0 <= box.x0 <= box.x1 <= 1 for block in answer.blocks for box in block.boxes)
    assert all(a.start <= b.start for a, b in pairwise(answer.blocks))
    assert not any(re.search(r"<\|/?(?:ref|det)\|>", block.content) for block in answer.blocks)


def test_enormous_numbers_and_long_answers_take_no_time() -> None:
    """Numbers of ten thousand digits and a hundred thousand unclosed tags are parsed without delay."""
    assert grounding.parse(TAG.format("[[" + "9" * 10_000 + ", 1, 2, 3]]")).blocks
    assert grounding.parse("<|ref|>" * 100_000 + "<|det|>[[" * 10_000)
