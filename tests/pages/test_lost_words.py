"""Words of office files that are on no page, told from those that only look different there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pymupdf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import office_files
from tests.fakes.office_files import MAKERS, SENTENCE
from twopass.pages import lost_words, office_package

CONTENTS = (  # a line of a table of contents: a link, and in it the number of a page
    "<fldChar w:fldCharType='begin'/><instrText> HYPER</instrText><instrText>LINK a</instrText>"
    "<fldChar w:fldCharType='separate'/><t>chapter</t><fldChar w:fldCharType='begin'/><instrText>PAGEREF b</instrText>"
    "<fldChar w:fldCharType='separate'/><t>12</t><fldChar w:fldCharType='end'/><fldChar w:fldCharType='end'/>"
)


def make_pdf(path: Path, *pages: str) -> str:
    with pymupdf.open() as pdf:
        for text in pages:
            pdf.new_page().insert_text((50, 50), text)
        pdf.save(path)
    return str(path)


@pytest.mark.parametrize(
    ("part", "body", "words"),
    [
        ("word/document.xml", "<p><r><t>He</t></r><r><t>llo</t><tab/><t>5</t></r></p>", "hello 5"),
        ("word/footnotes.xml", "<p><t>a</t></p><p><t>note</t></p>", "a note"),
        ("word/header1.xml", "<p><t>header</t></p>", ""),
        ("word/document.xml", "<Choice><p><t>a</t></p></Choice><Fallback><p><t>a</t></p></Fallback>", "a"),
        ("word/document.xml", "<p><m:oMath><m:r><m:t>x</m:t></m:r></m:oMath></p>", ""),
        ("word/document.xml", "<p><moveFrom><r><t>moved</t></r></moveFrom><delText>no</delText></p>", ""),
        ("word/document.xml", "<p><fldSimple w:instr=' PAGE '><t>7</t></fldSimple><t>of</t></p>", "of"),
        ("word/document.xml", f"<p>{CONTENTS}<br/><t>text</t></p>", "chapter text"),
        ("ppt/slides/slide1.xml", "<p><r><t>text</t></r><fld><t>3</t></fld></p>", "text"),
        ("ppt/slides/slide1.xml", "<p:sld show='0'><p><t>hidden</t></p></p:sld>", ""),
        ("xl/sharedStrings.xml", "<si><t>a_x000D_b</t><rPh><t>kana</t></rPh></si><si><t>c</t></si>", "a b c"),
        ("xl/worksheets/sheet1.xml", "<c><v>17</v></c><c t='inlineStr'><is><t>text</t></is></c>", "text"),
        ("content.xml", "<text:p>a<text:span>b</text:span><text:s/>c<text:date>1</text:date></text:p>", "ab c"),
        ("content.xml", "<table-cell office:value-type='float'><p>1.5</p></table-cell>", ""),
        ("content.xml", "<office:annotation><text:p>no</text:p></office:annotation><text:h>yes</text:h>", "yes"),
        ("content.xml", "<presentation:notes><text:p>no</text:p></presentation:notes>", ""),
    ],
)
def test_words_that_pages_show_are_counted(tmp_path: Path, part: str, body: str, words: str) -> None:
    """Not what programs compute again, show only elsewhere, or name as hidden already."""
    (tmp_path / "file").write_bytes(office_files.pack({part: f"<part>{body}</part>"}))

    assert dict(office_package.check(str(tmp_path / "file")).words) == Counter(words.split())


def test_words_of_chapters_are_counted() -> None:
    """Without scripts, styles and what is drawn; styles inside a word divide none."""
    page = (
        "<html><head><title>no</title><style>p{}</style></head><body><p>H<b>el</b>lo&nbsp;<br/>you</p><td>x<td>y"
        "<script>no</script><math><mi>no</mi></math></svg> end</body></html>"
    )

    assert lost_words.count_in_html(page.encode()) == Counter(["hello", "you", "x", "y", "end"])
    assert lost_words.count_in_html("Größe".encode("latin-1")) == Counter()


@pytest.mark.parametrize(
    ("text", "pages", "name"),
    [
        ("one two", ["One", "two"], None),
        ("hyphenation", ["hyphen-\nation"], None),
        ("soft\u00adware \u200bﬁne H\u2082O", ["software fine H2O"], None),
        ("1934 and 1934", ["1934 and"], "words (1934)"),
        ("alpha beta gamma", ["beta"], "words (alpha, gamma)"),
        ("a b c d e f g", ["none"], "words (a, b, c, d, f and 1 more)"),
        ("x" * 99, [""], f"words ({'x' * 30})"),
        ("日本 日本", [""], "words (日, 本)"),
        ("श्री السلام", [""], None),
        (" ".join(f"w{number}" for number in range(600)), [""], "words (w0, w1, w2, w3, w4 and over 495 more)"),
    ],
)
def test_words_on_no_page_are_named(tmp_path: Path, text: str, pages: list[str], name: str | None) -> None:
    """The first of them, each as often as it is in the file; how lines and styles divide them does not matter."""
    words = Counter[str]()
    lost_words.count(text, words)

    assert lost_words.name(words, make_pdf(tmp_path / "file.pdf", *pages)) == ((name,) if name else ())


@pytest.mark.parametrize("kind", sorted(MAKERS.keys() - {"rtf"}))
def test_the_sentence_is_counted_in_every_kind(tmp_path: Path, kind: str) -> None:
    """A kind whose text is not found would never have a lost word."""
    data = MAKERS[kind]()
    (tmp_path / "file").write_bytes(data)
    expected = Counter[str]()
    lost_words.count(SENTENCE, expected)

    if kind in ("html", "epub"):
        words = (
            lost_words.count_in_html(data) if kind == "html" else office_package.check_chapters(str(tmp_path / "file"))
        )
    else:
        words = Counter(office_package.check(str(tmp_path / "file")).words)

    assert expected <= words


@given(st.text())
def test_any_text_has_words_that_are_found_in_it(text: str) -> None:
    """Splitting fails for no text, and words are split no further."""
    words, again = Counter[str](), Counter[str]()
    lost_words.count(text, words)
    lost_words.count(" ".join(words.elements()), again)

    assert again == words
