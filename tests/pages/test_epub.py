"""Books become pages that show all of them."""

from __future__ import annotations

from pathlib import Path

import pymupdf
import pytest

from tests.fakes import office_files
from twopass.errors import Code, SourceError
from twopass.pages import epub
from twopass.pages.office_package import MAX_OPEN_TAGS

WORDS = [f"word{number:02d}" for number in range(60)]
ROW = "".join(f"<td>{word}beside</td>" for word in WORDS[:12])


def convert(folder: Path, body: str) -> str:
    """The text on the pages of a book with one chapter."""
    chapter = f"<html xmlns='http://www.w3.org/1999/xhtml'><body>{body}</body></html>"
    (folder / "book").write_bytes(office_files.make_epub(more={"a.xhtml": chapter}))
    epub.convert(str(folder / "book"), str(folder / "book.pdf"))
    with pymupdf.open(folder / "book.pdf") as pdf:
        return "".join(page.get_text(clip=page.rect) for page in pdf)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (f"<table><tr>{ROW}</tr></table>", WORDS[:12]),
        (f"<pre>{' '.join(WORDS)}</pre>", WORDS),
        (f"<p>{'x' * 300}{WORDS[0]}</p>", WORDS[:1]),
    ],
    ids=["table", "code", "word"],
)
def test_what_is_wider_than_a_page_is_whole(tmp_path: Path, body: str, words: list[str]) -> None:
    """The page grows, or the line is wrapped."""
    text = convert(tmp_path, body)

    assert [word for word in words if word not in text] == []


def test_what_no_page_can_hold_is_refused(tmp_path: Path) -> None:
    """Rather than cut off."""
    with pytest.raises(SourceError, match="points wide") as caught:
        convert(tmp_path, f"<p>{'x' * 2000}</p>")
    assert caught.value.code is Code.SOURCE_TOO_LARGE


def test_a_chapter_nested_too_deep_is_refused(tmp_path: Path) -> None:
    """Before MuPDF, which would not end with it; elements that are closed at once hold none."""
    assert convert(tmp_path, "<p>" + "<a/><br/>" * (MAX_OPEN_TAGS + 1) + WORDS[0] + "</p>").strip() == WORDS[0]

    with pytest.raises(SourceError, match="deep in each other") as caught:
        convert(tmp_path, "<div>" * (MAX_OPEN_TAGS + 1))
    assert caught.value.code is Code.SOURCE_TOO_LARGE
