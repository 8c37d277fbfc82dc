"""Books become pages that show all of them."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import pymupdf
import pytest

from tests.fakes import office_files
from twopass.errors import Code, SourceError
from twopass.pages import epub
from twopass.pages.office_package import MAX_OPEN_TAGS

WORDS = [f"word{number:02d}" for number in range(60)]
ROW = "".join(f"<td>{word}beside</td>" for word in WORDS[:12])
PROSE = " ".join(WORDS)
LONG_WORD = "".join(f"{number}x" for number in range(1000))


def convert(folder: Path, body: str, *chapters: str) -> str:
    """The text on the pages of a book with these chapters."""
    (folder / "book").write_bytes(office_files.make_book(body, *chapters))
    epub.convert(str(folder / "book"), str(folder / "book.pdf"))
    with pymupdf.open(folder / "book.pdf") as pdf:
        return "".join(page.get_text(clip=page.rect) for page in pdf)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (f"<table><tr>{ROW}</tr></table>", WORDS[:12]),
        (f"<pre>{' '.join(WORDS)}</pre>", WORDS),
        (f"<div>{PROSE}<table><tr>{ROW}</tr></table></div>", WORDS),
        (f"<table><tr><td><p>{PROSE * 9}</p></td><td><table><tr>{ROW}</tr></table></td></tr></table>", WORDS),
        (f"<table><tr><td>{WORDS[0]}</td><td>{LONG_WORD}</td></tr></table>", [LONG_WORD, WORDS[0]]),
        (f"<p>{LONG_WORD} {WORDS[0]}</p>", [LONG_WORD, WORDS[0]]),
    ],
    ids=["table", "code", "prose", "columns", "cell", "word"],
)
def test_what_is_wider_than_a_page_is_whole(tmp_path: Path, body: str, words: list[str]) -> None:
    """The page grows, or the line is wrapped."""
    text = re.sub(r"\s|\u200b", "", convert(tmp_path, body))

    assert [word for word in words if word not in text] == []


def test_only_what_is_wide_has_wide_pages(tmp_path: Path) -> None:
    """Prose keeps lines that one can read, beside a wide table and in other chapters; contents keep their places."""
    convert(
        tmp_path,
        f"<h1>One</h1><p>{PROSE * 50}</p>",
        f"<h1>Two</h1><p>{PROSE}</p><table><tr>{ROW}</tr></table>",
        "Three",
    )

    with pymupdf.open(tmp_path / "book.pdf") as pdf:
        widths = [round(page.rect.width) for page in pdf]
        rights = [word[2] for page in pdf for word in page.get_text("words") if word[4] in WORDS]
        toc = [(title, pdf[number - 1].get_text().split()[0]) for _, title, number in pdf.get_toc()]
    assert widths[0] == widths[-1] == 420 and widths[-2] > 700
    assert max(rights) < 400
    assert toc == [("chapter 1", "One"), ("chapter 2", "Two"), ("chapter 3", "Three")]


def test_elements_that_are_closed_at_once_have_no_depth(tmp_path: Path) -> None:
    """As line breaks and anchors of books are."""
    body = "<p>" + "<a/><br/>" * (MAX_OPEN_TAGS + 1) + WORDS[0] + "</p>"

    assert convert(tmp_path, body).strip() == WORDS[0]


def test_what_no_page_can_hold_is_refused(tmp_path: Path) -> None:
    """Rather than cut off."""
    with pytest.raises(SourceError, match="points wide") as caught:
        convert(tmp_path, f"<p style='white-space: nowrap'>{' '.join(WORDS * 9)}</p>")
    assert caught.value.code is Code.SOURCE_TOO_LARGE


@pytest.mark.parametrize(
    "body",
    [
        "<div>" * 100 + "deep" + "</div>" * 100,
        "<div>" * 100 + "deep",
        "<div>" * 400_000 + "deep",
        "</p>" * 400_000 + "<div>" * 400_000 + "deep",
        "<div></p><!--</div>--><!--><!----!>" * 400_000 + "deep",
        "<div title='</div>'>" * 400_000 + "deep",
    ],
    ids=["deep XML", "not XML", "too deep", "closed before", "closed in comments", "closed in attributes"],
)
def test_a_chapter_nested_too_deep_is_refused(tmp_path: Path, body: str) -> None:
    """MuPDF would not end with it, or leave out what lies deep."""

    with pytest.raises(SourceError, match="deep in each other") as caught:
        convert(tmp_path, body)
    assert caught.value.code is Code.SOURCE_TOO_LARGE


ARABIC = "تقوم محطة المياه بتزويد السكان بالمياه من نبعين وبئر واحدة عميقة"
THAI = "สถานีประปาส่งน้ำให้ประชาชนจากน้ำพุสองแห่ง"


@pytest.mark.parametrize("text", [ARABIC, THAI])
def test_books_in_any_script_have_their_letters(tmp_path: Path, text: str) -> None:
    """Fonts have no names for glyphs that letters have only inside words; the book has the letters."""
    found = convert(tmp_path, f"<p>{text}</p>", f"<p>{text}</p>")

    assert unicodedata.normalize("NFKC", found).split() == unicodedata.normalize("NFKC", f"{text} {text}").split()


def test_a_glyph_that_shows_different_letters_has_no_name(tmp_path: Path) -> None:
    """In a syllable of Hindi, a glyph may be a part of another vowel: it stays unknown, and is no wrong letter."""
    convert(tmp_path, "<p>परिषद झरनों</p>")

    with pymupdf.open(tmp_path / "book.pdf") as pdf:
        text = pdf[0].get_text(flags=0)
    assert "परिषद" in text and "झरना\ufffd" in text
