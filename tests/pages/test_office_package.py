"""Archives of office files and books, checked before a program opens them."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import office_files
from tests.fakes.office_files import MAKERS, PACKAGES
from twopass.errors import Code, SourceError
from twopass.pages import hidden_parts, office_package
from twopass.pages.office_package import MAX_DEPTH, MAX_OPEN_TAGS, MAX_UNPACKED_BYTES

CHUNK = 'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/aFChunk"'
MARKUP = (
    "<p>",
    "</p>",
    "<div hidden>",
    "</div>",
    "<td>",
    "<tr>",
    "<style>p{display:none}",
    "</style>",
    "<!--",
    "-->",
    "a",
)


@pytest.mark.parametrize("kind", PACKAGES)
def test_an_archive_of_every_kind_passes(tmp_path: Path, kind: str) -> None:
    """What other programs write is neither damaged nor encrypted."""
    (tmp_path / "file").write_bytes(MAKERS[kind]())

    assert not office_package.check(str(tmp_path / "file")).is_encrypted


@pytest.mark.parametrize("kind", PACKAGES)
@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda data: data[: len(data) // 2], Code.DAMAGED),
        (lambda data: data[:60] + bytes(byte ^ 255 for byte in data[60:80]) + data[80:], Code.DAMAGED),
        (lambda data: office_files.declare_size(data, 10), Code.DAMAGED),  # a bomb says that it is small
        (office_files.add_entities, Code.DAMAGED),
        (lambda data: office_files.nest(data, MAX_DEPTH + 1), Code.SOURCE_TOO_LARGE),
    ],
    ids=["cut off", "overwritten", "wrong size", "entities", "nested"],
)
def test_a_damaged_archive_is_refused(tmp_path: Path, kind: str, damage: object, code: Code) -> None:
    """LibreOffice would show what is left of it."""
    assert callable(damage)
    (tmp_path / "file").write_bytes(damage(MAKERS[kind]()))

    with pytest.raises(SourceError) as caught:
        office_package.check(str(tmp_path / "file"))
    assert caught.value.code is code


def test_xml_that_ends_too_early_is_damage(tmp_path: Path) -> None:
    """An archive whose sums are right may hold a text that was cut off."""
    data = office_files.repack(MAKERS["docx"](), {"word/document.xml": lambda text: text[: len(text) // 2]})
    (tmp_path / "file").write_bytes(data)

    with pytest.raises(SourceError, match="DAMAGED: its XML"):
        office_package.check(str(tmp_path / "file"))


def test_a_bomb_is_refused_unpacked(tmp_path: Path) -> None:
    """A file of one megabyte that would fill the disk is refused by what its directory says."""
    (tmp_path / "file").write_bytes(office_files.declare_size(MAKERS["docx"](), MAX_UNPACKED_BYTES + 1))

    with pytest.raises(SourceError, match="SOURCE_TOO_LARGE: unpacked"):
        office_package.check(str(tmp_path / "file"))


@pytest.mark.parametrize(
    ("kind", "part", "text", "found"),
    [
        ("xlsx", "xl/workbook.xml", '<b><sheet name="a" sheetId="9" state="veryHidden"/></b>', "hidden sheets"),
        ("xlsx", "xl/worksheets/sheet9.xml", '<a><row r="2" hidden="1"/></a>', "hidden rows or columns"),
        ("xlsx", "xl/worksheets/sheet9.xml", '<a><col min="2" max="3" hidden="1"/></a>', "hidden rows or columns"),
        ("xlsx", "xl/comments1.xml", '<comment ref="A1"/>', "comments"),
        ("xlsx", "xl/comments/comment1.xml", '<comment ref="A1"/>', "comments"),
        ("docx", "word/comments.xml", '<w:comment w:id="0"/>', "comments"),
        ("docx", "word/footnotes.xml", "<w:del><w:r><w:delText>no</w:delText></w:r></w:del>", "deleted text"),
        ("docx", "word/document2.xml", "<w:p><w:r><w:rPr><w:vanish/></w:rPr></w:r></w:p>", "hidden text"),
        ("docx", "word/_rels/document.xml.rels", f"<a><Relationship {CHUNK} Target='a.mht'/></a>", "inserted files"),
        ("pptx", "ppt/comments/comment1.xml", '<p:cm authorId="0"/>', "comments"),
        ("pptx", "ppt/slides/slide9.xml", '<p:sld show="0"/>', "hidden slides"),
        ("pptx", "ppt/notesSlides/notesSlide1.xml", "<a:r><a:t>Say it slowly.</a:t></a:r>", "speakers' notes"),
        ("ods", "content.xml", '<style:table-properties table:display="false"/>', "hidden sheets"),
        ("ods", "content.xml", '<a><table:table-row table:visibility="filter"/></a>', "hidden rows or columns"),
        ("odt", "content.xml", "<office:annotation><text:p>Why?</text:p></office:annotation>", "comments"),
        ("odt", "content.xml", '<style:text-properties text:display="none"/>', "hidden text"),
        ("odt", "content.xml", "<text:deletion/>", "deleted text"),
        (
            "odp",
            "content.xml",
            '<presentation:notes><draw:frame presentation:class="notes"/></presentation:notes>',
            "speakers' notes",
        ),
        ("odp", "content.xml", '<style:drawing-page-properties presentation:visibility="hidden"/>', "hidden slides"),
    ],
)
def test_what_is_on_no_page_is_named(tmp_path: Path, kind: str, part: str, text: str, found: str) -> None:
    """Sheets that are hidden, comments and notes; a file without them has none, nor has an empty page of notes."""
    shown = {
        "ppt/notesSlides/notesSlide9.xml": "<a:fld><a:t>1</a:t></a:fld>",
        "xl/worksheets/sheet8.xml": '<a><col min="9" max="16384" hidden="1"/><row hidden="0"/></a>',
        "word/_rels/document.xml.rels": f"<a><Relationship {CHUNK} Target='a.docx'/></a>",
        "word/header8.xml": '<w:p><w:pPr><w:rPr><w:vanish/></w:rPr></w:pPr><w:r><w:vanish w:val="0"/></w:r></w:p>',
    }
    (tmp_path / "plain").write_bytes(office_files.add_parts(MAKERS[kind](), shown))
    (tmp_path / "file").write_bytes(office_files.add_parts(MAKERS[kind](), {part: text}))

    assert office_package.check(str(tmp_path / "plain")).hidden == frozenset()
    assert office_package.check(str(tmp_path / "file")).hidden == {found}


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (r"{\v hidden}", "hidden text"),
        (r"{\*\annotation Why?}", "comments"),
        (r"{\deleted no}", "deleted text"),
        (r"{\v0 shown}\viewkind4", None),
    ],
)
def test_hidden_text_of_rtf_is_named(body: str, found: str | None) -> None:
    """RTF has no parts, but words for what is not shown."""
    assert hidden_parts.find_in_rtf(office_files.make_rtf(body)) == ({found} if found else set())


@pytest.mark.parametrize(
    "hidden",
    [
        "<p hidden>no</p>",
        "<div hidden='until-found'>no<div>no</div><br>no</div>",
        "<p style='Display : none'>no</p>",
        "<ul style='display:none'><li>no<li>no</ul>",
        "<table><tr style='display:none'><td>no<tr></table>",
        "<p style='visibility:hidden'>no</p>",
        "<p style='font-size: 0px'>no</p>",
        "<p style='opacity:0.0'>no</p>",
        "<style>/* .x{} */ @media print {p {color: red} .no {display: block}} .no, b#no {display:none}</style>"
        "<i class='a no'>no</i><b id=no>no</b>",
        "<template><p>no</p></template>",
        "<dialog>no</dialog>",
        "<p>a</p><div><p style='display:none'>no</div>",
    ],
)
def test_what_a_browser_hides_is_cut_from_web_pages(hidden: str) -> None:
    """LibreOffice would print it, and it would be read as if somebody saw it."""
    cut, found = hidden_parts.cut_from_html(office_files.make_html(f"{hidden}<p>Größe 2</p>"))

    assert b"no<" not in cut
    assert "<p>Größe 2</p></body></html>" in cut.decode()
    assert found == {"hidden text"}


@pytest.mark.parametrize(
    "shown",
    [
        "<p style='display:block;font-size:0.5em;opacity:0.9'>hidden</p>",
        "<div style='visibility:hidden'><p style='visibility:visible'>yes</p></div>",
        "<ul style='font-size:0'><li style='font-size:12px'>yes</ul>",
        "<style>@media print {.a {display:none}} .b .c {display:none} p.d {display:none} .e {display:none}</style>"
        "<p class='a c'>yes</p><b class=d>yes</b><p class=e style='display:inline'>yes</p>",
        "<dialog open>yes</dialog><p hidden></p><p style='display:none'> <img src=a></p>",
    ],
)
def test_what_a_browser_shows_stays_in_web_pages(shown: str) -> None:
    """Whatever else is hidden there, and if it cannot be known; what has no text hides none."""
    page = office_files.make_html(shown)

    cut, found = hidden_parts.cut_from_html(page)

    assert re.sub(rb"<[^>]*>", b"", cut).split() == re.sub(rb"<[^>]*>", b"", page).split()
    assert not found


@given(st.text("<>/='\"!- \nabpé&;{}") | st.lists(st.sampled_from(MARKUP)).map("".join))
def test_any_web_page_can_be_cut(text: str) -> None:
    """Nothing but elements is cut, and the rest stays as it was."""
    page = f"<p hidden>a</p>{text}".encode()

    cut, _ = hidden_parts.cut_from_html(page)

    assert page.endswith(cut) or len(cut) < len(page)


@pytest.mark.parametrize(("size", "code"), [("4", None), ("2147483647", Code.DAMAGED), ("9" * 5000, Code.DAMAGED)])
def test_rtf_has_all_the_binary_data_that_it_announces(size: str, code: Code | None) -> None:
    """LibreOffice takes minutes to look for two gigabytes in a short file."""
    data = office_files.make_rtf(rf"{{\pict\pngblip\bin{size} abcd}}")

    with nullcontext() if code is None else pytest.raises(SourceError, match=code):
        office_package.check_rtf(data)


def test_a_protected_book_is_encrypted(tmp_path: Path) -> None:
    """Digital rights management has no password."""
    (tmp_path / "file").write_bytes(office_files.make_epub(encrypted=True))

    with pytest.raises(SourceError, match="ENCRYPTED: it is protected"):
        office_package.check(str(tmp_path / "file"))


@pytest.mark.parametrize(
    ("book", "code"),
    [
        ({}, None),
        ({"more": {"META-INF/encryption.xml": office_files.list_encrypted("font.otf")}}, None),
        ({"more": {"META-INF/encryption.xml": office_files.list_encrypted("a.xhtml")}}, Code.ENCRYPTED),
        ({"lacks": "a.xhtml"}, Code.DAMAGED),
        ({"lacks": "book.opf"}, Code.DAMAGED),
    ],
    ids=["whole", "encrypted font", "encrypted chapter", "missing chapter", "no list of chapters"],
)
def test_books_have_all_their_chapters(tmp_path: Path, book: dict[str, Any], code: Code | None) -> None:
    """MuPDF would write an error into the text, or leave a blank page."""
    (tmp_path / "file").write_bytes(office_files.make_epub(**book))

    with nullcontext() if code is None else pytest.raises(SourceError, match=code):
        office_package.check_chapters(str(tmp_path / "file"))


def test_web_pages_may_leave_tags_open() -> None:
    """Thousands of tags that are not closed are usual; more would end LibreOffice. Line breaks hold none."""
    office_package.check_depth(b"<p>text<br>" * (MAX_OPEN_TAGS // 2))
    office_package.check_depth(b"<br><!-- a --><IMG src=a>" * (MAX_OPEN_TAGS + 1))

    with pytest.raises(SourceError, match="SOURCE_TOO_LARGE"):
        office_package.check_depth(b"<div>" * (MAX_OPEN_TAGS + 1))
