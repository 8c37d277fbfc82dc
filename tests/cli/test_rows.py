"""What a person reads of a finished document: its first line, and a line for each problem."""

from __future__ import annotations

from typing import Any

from twopass.cli.reporters import MAX_PROBLEMS, format_row

SCRIPT = "UNREADABLE_SCRIPT: page 1: a scan in a script that the cpu engine cannot read; install tesseract-ocr-kor"


def make_row(
    status: str, pages: dict[str, int], *problems: dict[str, Any], folder: str | None = None
) -> dict[str, Any]:
    return {"file": "in/x.png", "status": status, "pages": pages, "folder": folder, "problems": list(problems)}


def make_problem(text: str, **fields: Any) -> dict[str, Any]:
    code, _, message = text.partition(": ")
    return {"code": code, "message": message, **fields}


def test_a_document_with_failed_pages_says_why_and_what_to_do() -> None:
    """The code and the advice are below the counts of pages, after the folder that was written."""
    row = make_row("failure", {"failed": 1}, make_problem(SCRIPT, page=1), folder="out/x-1")

    assert format_row(row) == ["failure: in/x.png (1 failed) -> out/x-1/", f"  {SCRIPT}"]


def test_a_document_that_was_not_opened_has_its_reason_in_its_line() -> None:
    """There are no pages to count and no folder."""
    row = make_row("failure", {}, make_problem("DAMAGED: the source is empty; copy it again"))

    assert format_row(row) == ["failure: in/x.png (DAMAGED: the source is empty; copy it again)"]


def test_a_success_says_what_was_different_from_what_was_asked() -> None:
    """Counts begin with the pages that were read, and a warning is called one."""
    warning = make_problem("PAGE_RANGE: pages 1-99 requested, but the document has 12", severity="warning")

    row = make_row("success", {"blank": 1, "read": 11}, warning, folder="s3://bucket/out/x-1")

    assert format_row(row) == [
        "success: in/x.png (11 read, 1 blank) -> s3://bucket/out/x-1/",
        "  warning: PAGE_RANGE: pages 1-99 requested, but the document has 12",
    ]


def test_equal_problems_of_many_pages_are_one_line() -> None:
    """As in the answer to a job; errors come before warnings."""
    loops = [make_problem(f"LOOP: page {page}: the answer repeats itself", page=page) for page in (2, 3, 7)]
    warning = make_problem("PIXEL_LIMIT: page 1: too large", severity="warning", page=1)

    lines = format_row(make_row("partial_success", {"read": 4, "failed": 3}, warning, *loops))

    assert lines[1:] == ["  LOOP: pages 2-3,7: the answer repeats itself", "  warning: PIXEL_LIMIT: page 1: too large"]


def test_more_problems_than_fit_are_counted() -> None:
    """A document with many different problems does not push the others off the screen."""
    problems = [make_problem(f"DAMAGED: part {number}") for number in range(MAX_PROBLEMS + 3)]

    lines = format_row(make_row("failure", {"failed": 9}, *problems))

    assert len(lines) == 1 + MAX_PROBLEMS + 1
    assert lines[-1] == "  and 3 more problems in the summary"
