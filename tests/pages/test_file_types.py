"""Types of files, by their content; by their name only where the content does not say it."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.fakes import office_files
from tests.fakes.office_files import MAKERS
from twopass.errors import Code, SourceError
from twopass.pages import file_types


@pytest.mark.parametrize("kind", sorted(set(MAKERS) - {"html"}))
def test_office_files_are_known_by_their_content(tmp_path: Path, kind: str) -> None:
    """The name does not matter."""
    (tmp_path / "file").write_bytes(MAKERS[kind]())

    assert file_types.detect(tmp_path / "file", ".pdf").suffixes == (f".{kind}",)


def test_an_archive_inside_does_not_decide_the_type(tmp_path: Path) -> None:
    """A document may hold a whole workbook, as it is, and list its other parts later."""
    parts = {"[Content_Types].xml": "<Types/>", "word/embeddings/a.xlsx": MAKERS["xlsx"](), "word/document.xml": "<a/>"}
    with zipfile.ZipFile(tmp_path / "file", "w") as package:
        for name, data in parts.items():
            package.writestr(name, data)

    assert file_types.detect(tmp_path / "file", "").suffixes == (".docx",)


def test_the_type_of_a_book_may_be_compressed(tmp_path: Path) -> None:
    """Its standard forbids that, and books have it."""
    with zipfile.ZipFile(tmp_path / "file", "w", zipfile.ZIP_DEFLATED) as package:
        package.writestr("mimetype", file_types.EPUB.mime + "\n")

    assert file_types.detect(tmp_path / "file", "") is file_types.EPUB


def test_a_web_page_is_a_document_only_by_its_name(tmp_path: Path) -> None:
    """The form of a login in place of a PDF is an error that says so."""
    (tmp_path / "file").write_bytes(MAKERS["html"]())

    assert file_types.detect(tmp_path / "file", ".HTM") is file_types.HTML
    with pytest.raises(SourceError, match="but a web page; check that its address needs no login, or call it .html"):
        file_types.detect(tmp_path / "file", ".pdf")


@pytest.mark.parametrize(("suffix", "found"), [(".docx", ".docx"), (".xlsx", ".xlsx"), ("", ".docx")])
def test_an_encrypted_file_is_what_its_name_says(suffix: str, found: str) -> None:
    """It looks like a file of Office 97."""
    kind = file_types.detect(office_files.ENCRYPTED / "encrypted.docx", suffix)

    assert kind.suffixes == (found,)


@pytest.mark.parametrize(
    "data",
    [
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600),
        office_files.pack({"a.txt": "text"}),
        office_files.pack({"xl/workbook.bin": "", "xl/a.xml": "<a/>"}),
    ],
)
def test_other_archives_are_not_supported(tmp_path: Path, data: bytes) -> None:
    """A file of Office 97, a workbook in binary parts (xlsb), and any other ZIP archive."""
    (tmp_path / "file").write_bytes(data)

    with pytest.raises(SourceError) as caught:
        file_types.detect(tmp_path / "file", ".docx")
    assert caught.value.code is Code.SOURCE_UNSUPPORTED
