"""Hostile answers take time in proportion to their length, in every family; operations are counted, not seconds.

The regular expressions are checked in tests/chaos, with a matcher that counts its steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from tests.fakes.operations import count_operations
from twopass.document import Cell
from twopass.families import lenient_json, registry, table_parser, unlimited
from twopass.families.grounded.grounding import Block
from twopass.families.interface import PageFeatures, PageRequest
from twopass.families.regions import cleanup, otsl
from twopass.formats import escaping
from twopass.text import footnotes, prose, table_markup

UNITS = (
    *(
        "a",
        "1",
        "中",
        " ",
        "\n",
        "-",
        ".",
        "|",
        "$",
        "<",
        "[",
        "\\(",
        "\\[",
        "a ",
        "a\n",
        "- a\n",
        "# a\n",
        "a. ",
        "A. ",
    ),
    *("<tr>", "<td>", "<tr><td>", "<table>", "<table><tr><td>a</td></tr></table>\n", "| a |\n", "|-|\n", "<fcel>a<nl>"),
    *(
        "<|ref|>",
        "<|det|>[[",
        "<|ref|>text<|/ref|><|det|>[[1,2,3,4]]<|/det|>a\n",
        "text[[1,2,3,4]]a\n",
        "list [1,2,3,4]\n",
    ),
    *("<|ref|>table_title<|/ref|><|det|>[[1,2,3,4]]<|/det|>a\n<|ref|>table<|/ref|><|det|>[[1,2,3,4]]<|/det|>\n",),
    *('{"a":', "```json\n{", "[items]\n", "&#1;", "<!--", "a1, "),
)
FAMILIES = ("deepseek_ocr", "unlimited_ocr", "glm_ocr", "paddleocr_vl", "deepseek_ocr_json")
REPEATS, MOST_GROWTH = 25, 2.5  # for twice the input; a quadratic part shows as more


def assert_linear(call: Callable[[str], object], unit: str, repeats: int = REPEATS) -> None:
    one, two = (count_operations(lambda times=times: call(unit * times)) for times in (repeats, 2 * repeats))
    assert two <= MOST_GROWTH * one + 200, f"{unit!r}: {one}, {two}"


@pytest.mark.parametrize("name", FAMILIES)
def test_an_answer_is_parsed_in_linear_time(name: str) -> None:
    """Twice the repetitions of any fragment of the grammars take about twice the operations, on every rung."""
    family = registry.get_family(name)
    rungs = {rung.grammar: rung for rung in family.ladder(PageFeatures(1000, 1000), PageRequest())}

    for unit in UNITS:
        for rung in rungs.values():
            assert_linear(lambda text, rung=rung: family.parse(text, 1, rung), unit)


PARSERS: Mapping[str, Callable[[str], object]] = {
    "tables": table_parser.split_tables,
    "html": table_parser.parse_html,
    "rows in a table": lambda text: table_parser.split_tables(f"<table>{text}</table>"),
    "otsl": otsl.parse,
    "json": lenient_json.parse_object,
    "notes": lambda text: footnotes.may_refer(text, "1", ()),
    "sentences": prose.split_sentences,
    "markup": prose.strip_markup,
    "cells": lambda text: escaping.escape_html_cell(Cell(row=0, col=0, text=text)),
}


@pytest.mark.parametrize("name", PARSERS)
def test_a_part_of_an_answer_is_parsed_in_linear_time(name: str) -> None:
    """The parsers of tables, objects, notes and sentences are linear by themselves."""
    for unit in UNITS:
        assert_linear(PARSERS[name], unit)


def test_the_cells_of_a_table_are_visited_once() -> None:
    """Writing a table as HTML visits each cell a fixed number of times, however many rows it has."""

    def write(text: str) -> str:
        return table_markup.to_html([Cell(row=n, col=0, text="a") for n in range(len(text))])

    assert_linear(write, "a", 300)


def test_lines_of_a_region_are_counted_once() -> None:
    """Looking for the line that is repeated does not count each different line by itself."""
    assert_linear(lambda text: cleanup.clean_text("\n".join(f"line {n}" for n in range(len(text))), 50), "a", 300)


def test_a_ragged_table_has_no_grid_of_empty_places() -> None:
    """A table with one long row and many short ones is not written as GFM, whose size would be their product."""
    table = table_parser.parse_gfm("\n".join(["a|" * 1000, "-|", *("a|" for _ in range(1000))]))

    assert table.markdown is None and len(table.html) < 100_000


def test_lists_look_near_them_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding the items of empty lists does not compare all lists with all blocks."""
    monkeypatch.setattr(unlimited, "MAX_ITEMS", 10)
    apart = Block("list", ((0, 0, 9, 9),), ""), Block("text", ((50, 50, 60, 60),), "a")
    assert_linear(lambda text: unlimited.split_lists(apart * len(text)), "a")


def test_numbers_of_characters_can_have_any_length() -> None:
    """A number of thousands of digits, which Python refuses to convert, is no character and no error."""
    assert table_parser.clean_cell_text("a&#" + "1" * 5000 + ";b") == "a\ufffdb"
