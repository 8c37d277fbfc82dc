"""The documents of trials: drawn pages say what their truth says, and files of the user are found."""

from __future__ import annotations

from pathlib import Path

import pymupdf
import pytest

from tests.fakes import recorded
from twopass.acceptance import drawn_pages
from twopass.acceptance.trials import trial_documents, trial_scores
from twopass.acceptance.trials.trial_documents import TrialDocument


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> list[TrialDocument]:
    """One set of pages: a PDF with a text layer, and scans."""
    return trial_documents.prepare(tmp_path_factory.mktemp("drawn"), sets=1)


def test_a_drawn_page_shows_its_truth(drawn: list[TrialDocument]) -> None:
    """The text layer of each page has exactly the words of its truth."""
    pdf, _ = drawn

    layers = trial_documents.read_text_layers(pdf.path)

    assert set(layers) == set(pdf.truths) == set(range(1, 9))
    wrong = {n: trial_scores.count_wrong_words(layers[n], truth.text).wrong for n, truth in pdf.truths.items()}
    assert set(wrong.values()) == {0}


def test_scans_have_no_text_layer(drawn: list[TrialDocument]) -> None:
    """A scan is one picture, of which only the truth is known."""
    _, scans = drawn

    assert len(scans.truths) == 4 and not trial_documents.read_text_layers(scans.path)


def test_drawn_text_fits_the_page_at_its_size(drawn: list[TrialDocument]) -> None:
    """Small print is drawn at 7 points and no smaller: MuPDF shrinks text that does not fit."""
    with pymupdf.open(drawn[0].path) as pdf:
        sizes = {
            span["size"]
            for block in pdf[1].get_text("dict")["blocks"]
            for line in block["lines"]
            for span in line["spans"]
        }

    assert sizes == {trial_documents.SMALL_PRINT}


def test_pages_of_two_sets_differ(drawn: list[TrialDocument], tmp_path: Path) -> None:
    """Equal pages would be read once and found in the store after that; the same set is the same on every run."""
    first, _, second, _ = trial_documents.prepare(tmp_path, sets=2)

    assert first.truths[1] != second.truths[1]
    assert first.truths == drawn[0].truths


def test_a_page_with_tables_knows_their_cells(drawn: list[TrialDocument]) -> None:
    """Cells are part of the truth, in rows, and their words are part of the text."""
    tables = drawn[0].truths[7].tables

    assert [(len(rows), len(rows[0])) for rows in tables] == [(4, 3), (5, 3)]
    assert all(cell in drawn[0].truths[7].text for rows in tables for row in rows for cell in row)


def test_files_of_the_user_are_found_with_their_text_layers(tmp_path: Path) -> None:
    """PDFs and images below the folder; pages without a usable text layer have no truth, and damaged files none."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "report.pdf").write_bytes(recorded.report())
    (tmp_path / "damaged.pdf").write_bytes(b"%PDF-1.7 nothing")
    (tmp_path / "notes.txt").write_text("no document")
    pixels = drawn_pages.render(drawn_pages.prose(["A page."]).write)
    pymupdf.Pixmap(pymupdf.csRGB, pixels.width, pixels.height, pixels.array().tobytes(), False).save(tmp_path / "a.png")

    documents = {document.path.name: document for document in trial_documents.find_files(tmp_path)}

    assert set(documents) == {"a.png", "damaged.pdf", "report.pdf"}
    assert set(documents["report.pdf"].truths) == {1, 2, 3}  # page 4 is a picture
    assert recorded.DOUBTED.split()[0] in documents["report.pdf"].truths[1].text
    assert not documents["a.png"].truths and not documents["damaged.pdf"].truths
    assert not any(document.is_drawn for document in documents.values())
