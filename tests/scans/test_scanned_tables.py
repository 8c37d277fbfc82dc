"""Tables on scans: their rules are seen in the pixels."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines.cpu.drawn_tables import STYLES, TABLES, draw_page, score_cells
from tests.engines.cpu.test_cpu_engine import read, save_scan

MIN_CELLS = 0.9


@pytest.mark.parametrize("style", ["lines", "double", "gaps", "booktabs"])
@pytest.mark.parametrize("name", ["simple", "merged"])
def test_cells_of_a_scanned_table(tmp_path: Path, name: str, style: str) -> None:
    """The rules of a scanned table are found in its pixels, so that it has the cells of the printed one."""
    document = draw_page(TABLES[name], STYLES[style])
    answer = read(save_scan(document[0], tmp_path / "scan.pdf"))

    assert answer["via"] == "ocr"
    assert score_cells(answer, TABLES[name]) >= MIN_CELLS


@pytest.mark.parametrize("style", ["lines", "none"])
def test_columns_of_a_scanned_spreadsheet(tmp_path: Path, style: str) -> None:
    """Spreadsheets leave hardly more space between two columns than between two words, with rules or without."""
    document = draw_page(TABLES["simple"], STYLES[style], padding=1.5)
    answer = read(save_scan(document[0], tmp_path / "scan.pdf"))

    assert score_cells(answer, TABLES["simple"]) >= MIN_CELLS
