"""Columns on scans: each is read for itself."""

from __future__ import annotations

from dataclasses import replace

from rapidfuzz.distance import LCSseq

from scripts.bench import scans
from twopass.engines.cpu.page import read_page
from twopass.families.layout.family import LayoutFamily
from twopass.pages.rendered_page import PagePointer
from twopass.pages.shared_pixels import Pixels

GERMAN = next(language for language in scans.LANGUAGES if language.code == "de")


def test_ragged_columns_of_a_scan_are_not_read_across() -> None:
    """Five columns that the layout model takes for a table are read one after the other."""
    scan = scans.draw_ragged_columns(replace(GERMAN, setting=scans.Setting.draw(1)))
    height, width = scan.pixels.shape[:2]
    answer = read_page(PagePointer("", 1, is_pdf=False), Pixels(width, height, data=scan.pixels.tobytes()), "de")

    read = [word for element in LayoutFamily().parse(answer, 1).elements for word in (element.text or "").split()]
    assert LCSseq.normalized_similarity(read, " ".join(scan.truth).split()) > 0.9
