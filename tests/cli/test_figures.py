"""The figures of a run: counts, pace and seconds per page."""

from __future__ import annotations

from twopass.cli.reporters import Figures
from twopass.document import Status
from twopass.result import DocumentResult


def make_document(pages: dict[str, int], read_now: int, **wall_s: float) -> DocumentResult:
    stages = {name: {"wall_s": seconds, "cpu_s": 0.0} for name, seconds in wall_s.items()}
    return DocumentResult(
        source="a.pdf",
        status=Status.SUCCESS,
        pages=pages,
        timings={"stages": stages},
        usage={"pages_read_now": read_now},
    )


def test_seconds_are_given_per_page_and_pace_without_the_start() -> None:
    """Ten pages in five seconds after a start of ten; both passes are reading, and unread pages do not count."""
    documents = [
        make_document({"read": 6, "unread": 3}, 6, render=2.0, pass1=10.0, pass2=5.0),
        make_document({"read": 3, "failed": 1}, 4, render=1.0, pass1=5.0),
    ]

    assert Figures.measure(documents, 10.0, 15.0).describe() == (
        "10 pages; total 15.0 s, of which start 10.0 s; 2 pages per second after the start; "
        "mean per page, with waiting: rendering 0.3 s, reading 2.0 s"
    )


def test_a_run_that_read_nothing_has_no_pace() -> None:
    """Documents that were finished before have pages, and no seconds per page."""
    figures = Figures.measure([make_document({"read": 12}, 0)], 1.0, 2.0)

    assert figures.describe() == "12 pages (12 of them stored before); total 2.0 s, of which start 1.0 s"
    assert figures.as_dict()["pages_per_s"] is None
    assert figures.as_dict()["reading_s_per_page"] is None


def test_a_document_that_was_never_opened_counts_no_pages() -> None:
    """Its result has no pages, timings or usage."""
    document = DocumentResult(source="a.pdf", status=Status.FAILURE)

    assert Figures.measure([document], 1.0, 2.0) == Figures(0, 0, 1.0, 2.0)
