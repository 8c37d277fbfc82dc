"""scripts/bench/corpus: tables scored against right cells."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.bench import corpus
from scripts.bench.corpus import ReaderRun, Reading, adapters
from twopass.document import Cell, Table

TRUTH = """<document><table id="1"><region id="1" page="1">
<cell id="1" start-row="0" start-col="0"><content>Port</content></cell>
<cell id="2" start-row="0" start-col="1" end-col="2"><content>Ships</content></cell>
<cell id="3" start-row="1" start-col="0"><content>Fernsey</content></cell>
<cell id="4" start-row="1" start-col="2"><content>1,204</content></cell>
</region></table></document>"""


@pytest.fixture
def truth(tmp_path: Path) -> list[Table]:
    path = tmp_path / "ports-str.xml"
    path.write_text(TRUTH, encoding="utf-8")
    return corpus.load_truth(path)


def test_relations_skip_cells_without_text(truth: list[Table]) -> None:
    """Neighbours are the next texts to the right and below, across spans and empty cells; signs do not count."""
    assert set(corpus.find_relations(truth[0])) == {
        ("port", "ships", "right"),
        ("port", "fernsey", "below"),
        ("ships", "1204", "below"),
        ("fernsey", "1204", "right"),
    }


def test_a_right_table_is_exact(truth: list[Table]) -> None:
    """Whatever else the markdown has; a table with a lost span has neither all relations nor full similarity."""
    spans = (
        "<table><tr><th>Port</th><th colspan='2'>Ships</th></tr><tr><td>Fernsey</td><td></td><td>1204</td></tr></table>"
    )
    flat = "| Port | Ships |  |\n|---|---|---|\n| Fernsey |  | 1,204 |\n"
    right, wrong = (corpus.score(f"# Ports\n\n{markdown}\n", truth) for markdown in (spans, flat))

    assert (right.exact, right.tables, right.precision, right.recall) == (1, 1, 1.0, 1.0)
    assert (wrong.exact, wrong.recall) == (0, 0.75)
    assert wrong.teds[0] < right.teds[0]


def test_cells_outside_the_table_count_as_nothing() -> None:
    """A table without text has no relations."""
    empty = Table(rows=2, cols=2, cells=(Cell(row=0, col=0), Cell(row=1, col=1)), html="")

    assert not corpus.find_relations(empty)


def test_a_page_that_takes_too_long_is_counted(truth: list[Table]) -> None:
    """A reader that works on a page without an end is interrupted, and the page has no answer."""
    with pytest.raises(adapters.OutOfTime), adapters.limit_cpu_time(0.01):
        while True:
            pass
    run = ReaderRun("slow", {"a.pdf": Reading((adapters.NO_ANSWER, "text"), 1.0)})

    assert corpus.summarise([run], {"a.pdf": truth})[-1] == ["pages without an answer", "1"]
