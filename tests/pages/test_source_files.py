"""Opening source files: how the errors of PyMuPDF and Pillow are translated."""

from __future__ import annotations

from pathlib import Path

import pytest

from twopass.errors import Code, SourceError
from twopass.pages import source_files


@pytest.mark.parametrize(
    "message", ["invalid literal for int(): 'hunter2'", 'unknown keyword "hunter2', "not a number: b`hunter2'"]
)
def test_errors_quote_nothing_from_the_file(message: str) -> None:
    """The message names what is wrong with the file and contains neither its text nor its path."""
    with pytest.raises(SourceError) as caught, source_files.translate_pdf_errors("/tmp/job/source"):
        raise ValueError(f"/tmp/job/source: {message}")

    assert caught.value.message.startswith("MuPDF: the source: ") and "hunter2" not in caught.value.message


def test_a_file_that_cannot_be_opened_is_called_damaged(tmp_path: Path) -> None:
    """MuPDF's own words ("Failed to open file … as type pdf.") say neither what is wrong nor what to do."""
    (tmp_path / "cut.pdf").write_bytes(b"%PDF-1.7\n1 0 obj\n<< /Type")

    with pytest.raises(SourceError) as caught, source_files.open_pdf(str(tmp_path / "cut.pdf"), None):
        pass

    assert caught.value.code is Code.DAMAGED
    assert caught.value.message == (
        "the file is damaged or incomplete, and cannot be opened; save the file with another program"
    )


def test_a_page_that_was_lost_in_repair_is_damaged(sample: Path) -> None:
    """MuPDF repairs a file while reading it, and may find fewer pages than it counted at first."""
    with pytest.raises(SourceError) as caught, source_files.open_shared_pdf(str(sample), None) as pdf:
        pdf[pdf.page_count]

    assert caught.value.code is Code.DAMAGED
