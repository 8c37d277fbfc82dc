"""The predictions for public benchmarks are found by the names under which their scorers look for them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pymupdf
import pytest

from scripts.bench import predict
from tests.fakes.documents import build_document, checkpoint, element
from twopass.document import Cell, Figure, Formula, Table


@pytest.fixture(autouse=True)
def one_page_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGE_WORKERS", "1")


RULED = (("Pump", "Flow"), ("North", "12.5"))


def draw_page(text: str) -> pymupdf.Document:
    """A page with a text and a ruled table."""
    pdf = pymupdf.open()
    page = pdf.new_page()
    page.insert_text((72, 90), text, fontsize=12)
    for row, cells in enumerate(RULED):
        for column, cell in enumerate(cells):
            box = pymupdf.Rect(72 + 120 * column, 120 + 24 * row, 192 + 120 * column, 144 + 24 * row)
            page.draw_rect(box)
            page.insert_text((box.x0 + 6, box.y1 - 8), cell, fontsize=11)
    return pdf


def find_for_olmocr(folder: Path, pdf: str) -> list[Path]:
    """As olmocr/bench/benchmark.py looks for the predictions of a file."""
    pattern = re.compile(rf"^{re.escape(os.path.splitext(pdf)[0])}_pg\d+_repeat\d+\.md$")
    return [path for path in sorted(folder.rglob("*.md")) if pattern.match(os.path.relpath(path, folder))]


def find_for_omnidocbench(folder: Path, image: str) -> Path | None:
    """As dataset/end2end_dataset.py looks for the prediction of an image."""
    return next((path for path in (folder / f"{image[:-4]}.md", folder / f"{image}.md") if path.exists()), None)


def test_olmocr_bench_finds_every_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each page has a file below the folder of its PDF; one that cannot be read is empty and counted."""
    data, output = tmp_path / "bench_data", tmp_path / "bench_data" / "twopass"
    (data / "pdfs" / "tables").mkdir(parents=True)
    with draw_page("The first page.") as pdf, draw_page("The second page.") as second:
        pdf.insert_pdf(second)
        pdf.save(data / "pdfs" / "tables" / "two [1].pdf")
    (data / "pdfs" / "broken.pdf").write_bytes(b"%PDF-1.7")

    predict.main(["olmocr-bench", str(data), "--output", str(output), "--reads", str(tmp_path / "reads")])
    summary = json.loads(capsys.readouterr().out)

    first, second = (path.read_text() for path in find_for_olmocr(output, "tables/two [1].pdf"))
    assert "The first page." in first and "The second page." in second and "<td>12.5</td>" in second
    assert [path.read_text() for path in find_for_olmocr(output, "broken.pdf")] == [""]
    assert summary["pages"] == 2 and list(summary["failed"]) == ["broken.pdf"]
    assert json.loads((output / predict.SUMMARY).read_text()) == summary


def test_every_page_that_is_scored_has_a_prediction(tmp_path: Path) -> None:
    """olmOCR-bench gives up if one is missing; its tests name the pages of a PDF that cannot be read."""
    data, output = tmp_path / "bench_data", tmp_path / "bench_data" / "twopass"
    (data / "pdfs" / "v1.0").mkdir(parents=True)
    (data / "pdfs" / "v1.0" / "broken.v2.pdf").write_bytes(b"%PDF-1.7")
    tests = [{"pdf": "v1.0/broken.v2.pdf", "page": page, "id": f"t{page}"} for page in (1, 3)]
    (data / "math.jsonl").write_text("".join(f"{json.dumps(test)}\n" for test in tests))

    predict.main(["olmocr-bench", str(data), "--output", str(output), "--reads", str(tmp_path / "reads")])

    found = find_for_olmocr(output, "v1.0/broken.v2.pdf")
    assert [path.name for path in found] == ["broken.v2_pg1_repeat1.md", "broken.v2_pg3_repeat1.md"]
    assert list(json.loads((output / predict.SUMMARY).read_text())["failed"]) == ["v1.0/broken.v2.pdf"]


def test_images_with_one_prediction_are_refused(tmp_path: Path) -> None:
    """OmniDocBench drops folders and suffixes: the second would take the place of the first."""
    for name in ("one/page.png", "two/page.jpg"):
        (tmp_path / "images" / name).parent.mkdir(parents=True)
        (tmp_path / "images" / name).write_bytes(b"")

    with pytest.raises(SystemExit, match=r"one/page\.png and two/page\.jpg.*page\.md"):
        predict.main(["omnidocbench", str(tmp_path), "--output", str(tmp_path / "out")])


def test_text_is_written_as_the_scorers_compare_it() -> None:
    """Neither decodes Markdown's escapes, and both take dollars for formulas before they look for anything else."""
    text = r"It costs $5 and $6, a*b, <b>, __init__, [2](http://x.y), `c` and \(a_1^2\)."
    cells = tuple(Cell(row=0, col=column, text=text) for column, text in enumerate(("<x> & $y", "\\(a^2\\)")))
    elements = (
        element("text", text),
        element("text", "1. One"),
        element("formula", "a = b", formula=Formula(latex=r"a = \{\frac{b}{c}\}")),
        element("table", "", table=Table(html="", rows=1, cols=2, cells=cells)),
        element("code", "x = $a + '\\*'\n&amp;"),
        element("chart", "", figure=Figure(visible_text="1934", description="It shows a pump.")),
    )

    written = predict.write_page(build_document(checkpoint(1, *elements)), 1)

    assert written.split("\n\n") == [
        text,
        "1. One",
        "\\[\na = \\{\\frac{b}{c}\\}\n\\]",
        "<table>\n<tr><td>&lt;x&gt; &amp; $y</td><td>\\(a^2\\)</td></tr>\n</table>",
        "```\nx = $a + '\\*'\n&amp;\n```",
        "1934\n",
    ]


def test_omnidocbench_finds_every_image(tmp_path: Path) -> None:
    """Names with points and suffixes of any length are found, and tables are HTML as its scorer compares them."""
    (tmp_path / "images").mkdir()
    images = ("docs.pdf_3.jpg", "page.png", "photo.jpeg")
    with draw_page("Read me.") as pdf:
        picture = pdf[0].get_pixmap(dpi=110)
        for name in images:
            picture.save(tmp_path / "images" / name, output="png" if name.endswith("png") else "jpeg")

    output = tmp_path / "predictions"
    predict.main(["omnidocbench", str(tmp_path), "--output", str(output), "--reads", str(tmp_path / "reads")])

    for name in images:
        found = find_for_omnidocbench(output, name)
        assert found and "Read me." in found.read_text() and "<table>" in found.read_text()
    assert len(list(output.glob("*.md"))) == len(images)
