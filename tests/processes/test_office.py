"""Office files with the real LibreOffice: what they say survives, and nothing that they ask for is done."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import office_files
from tests.fakes.office_files import FORMULAS, MAKERS, SENTENCE, TABLE, UNSEEN
from tests.fakes.source_files import SourceReader
from twopass import contexts
from twopass.errors import Code, SourceError, TwopassError, WorkerDied
from twopass.job import EntryPoint, Job
from twopass.pages import epub, file_types
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime import office
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings
from twopass.steps import render

SECRET = "do-not-read-me"
FIELDS = ("INCLUDEPICTURE", "INCLUDETEXT")
PROFILE = Path(office.__file__).with_name("office_profile")


@pytest.fixture
def reader(tmp_path: Path, page_pool: PagePool, buffers: PixelBufferPool) -> SourceReader:
    return SourceReader(tmp_path, page_pool, buffers, Settings())


async def read_words(reader: SourceReader, data: bytes, kind: str, **fields: Any) -> list[str]:
    """The words of all pages of the PDF that the file becomes."""
    words: list[str] = []
    async with reader.open(data, f"file.{kind}", **fields) as file:
        for number in range(1, file.info.page_count + 1):
            async with render.page(file, number, 72, 2_000_000, reader.page_pool, reader.buffers) as page:
                words += page.words.texts
    return words


def test_text_and_tables_survive_word_by_word_and_cell_by_cell(tmp_path: Path) -> None:
    """A document, slides and a workbook are read as PDFs are; their name and type stay, and nothing is read twice."""
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    for kind in ("docx", "pptx", "xlsx"):
        (inbox / f"pumps.{kind}").write_bytes(MAKERS[kind]())
    command = [sys.executable, "-m", "twopass.cli", "read", "inbox", "--output", "out", "--json"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PAGE_WORKERS": "1"}

    first, second = (
        subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        for _ in range(2)
    )

    assert (first.returncode, second.returncode) == (0, 0), first.stdout + first.stderr
    found = {}
    for path in (tmp_path / "out").glob("*/document.json"):
        document = json.loads(path.read_text())
        kind = document["source"]["uri"].rpartition(".")[2]
        tables = [element["table"] for element in document["elements"] if element["table"]]
        found[kind] = [[cell["text"] for cell in table["cells"]] for table in tables]
        assert SENTENCE in re.sub(r"\s+", " ", path.with_name("document.md").read_text()), kind
        assert document["source"]["mime"].startswith("application/vnd.openxmlformats"), kind
        assert document["run"]["options"]["converter"].startswith("LibreOffice "), kind
    expected = [text for row in TABLE for text in row]
    assert {kind: any(expected == texts for texts in tables) for kind, tables in found.items()} == dict.fromkeys(
        ("docx", "pptx", "xlsx"), True
    ), found
    assert "4 pages (4 of them stored before)" in second.stderr, second.stderr


@pytest.mark.parametrize("kind", sorted(MAKERS))
async def test_every_kind_becomes_pages(reader: SourceReader, kind: str) -> None:
    """Every word of the text and every cell of the sheet is on the pages, whatever the file's print area and widths."""
    words = [unicodedata.normalize("NFKC", word) for word in await read_words(reader, MAKERS[kind](), kind)]

    assert set(SENTENCE.split()) <= set(words)
    if kind == "xlsx":
        assert {word for row in TABLE for text in row for word in text.split()} <= set(words)
    if kind == "html":
        assert "Größe" in words


async def test_cells_longer_than_a_column_can_be_wide_are_whole(reader: SourceReader) -> None:
    """LibreOffice would cut them at the next cell, and lines at the height that their row has in the file."""
    words = [f"w{number:04d}" for number in range(400)]

    found = await read_words(reader, office_files.make_long_cells(words), "xlsx")

    assert [word for word in found if word != "beside"] == [*words, *words[:5]]


async def test_a_hidden_sheet_is_a_warning(reader: SourceReader) -> None:
    """It is on no page, and the document says that it is missing."""
    async with reader.open(office_files.make_hidden_sheet(), "file.xlsx") as file:
        job = Job.parse({"input": {"source": "file.xlsx"}}, reader.settings, EntryPoint.LOCAL)
        _, problems = contexts.select_pages(job, file)

    assert [problem.code for problem in problems] == [Code.HIDDEN_PARTS]
    assert problems[0].message.startswith("hidden sheets of the file")


async def test_hidden_text_of_a_web_page_is_a_warning(reader: SourceReader) -> None:
    """LibreOffice would print it among what one sees."""
    page = office_files.make_html("<p style='display:none'>secret</p><p>Last.</p>")

    async with reader.open(page, "file.html") as file:
        hidden = file.hidden
    words = await read_words(reader, page, "html")

    assert hidden == ("hidden text",)
    assert "secret" not in words and words[-1] == "Last."


@pytest.mark.parametrize("kind", sorted(UNSEEN))
async def test_words_on_no_page_are_named(reader: SourceReader, kind: str) -> None:
    """Whatever hides them, such as the edge of a slide; rows that are too low for their text grow."""
    data = UNSEEN[kind]()

    async with reader.open(data, f"file.{kind}") as file:
        hidden = file.hidden

    assert hidden == ("words (unseen)" if kind == "docx" else "words (unseen, cut)",)
    assert ("cut" in await read_words(reader, data, kind)) == (kind == "docx")


@pytest.mark.parametrize("kind", sorted(FORMULAS))
async def test_mathematics_is_on_the_page(reader: SourceReader, kind: str) -> None:
    """LibreOffice leaves out formulas without its package for them."""
    words = await read_words(reader, FORMULAS[kind](), kind)

    assert words[-2:] == ["4711", "815"]


async def test_formulas_keep_the_values_that_were_stored(reader: SourceReader) -> None:
    """What a formula asks elsewhere is not asked again; a formula that has no value is computed."""
    assert await read_words(reader, office_files.make_formulas(), "xlsx") == ["4711", "41", "43"]


@pytest.mark.parametrize("kind", ["docx", "html", "odt", "rtf"])
@pytest.mark.parametrize("place", ["http", "file"])
async def test_nothing_that_a_file_links_to_is_loaded(
    reader: SourceReader, tmp_path: Path, kind: str, place: str
) -> None:
    """A linked image is asked of no server, and a file of this machine is not shown."""
    (tmp_path / "secret.txt").write_text(SECRET)
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}/a.png"
        address = address if place == "http" else (tmp_path / "secret.txt").as_uri()
        section = f'<text:section text:name="s"><text:section-source xlink:href="{address}"/></text:section>'
        frame = f'<draw:frame svg:width="3cm" svg:height="3cm"><draw:image xlink:href="{address}"/></draw:frame>'
        data = {
            "docx": office_files.link_image(MAKERS["docx"](), address),
            "html": office_files.make_html(f'<img src="{address}"><iframe src="{address}"></iframe>'),
            "odt": office_files.make_odf("text", f"<text:p>{SENTENCE}{frame}</text:p>{section}"),
            "rtf": office_files.make_rtf("".join(rf'{{\field{{\*\fldinst {name} "{address}" }}}}' for name in FIELDS)),
        }[kind]

        words = await read_words(reader, data, kind)

        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert set(SENTENCE.split()) <= set(words)
    assert SECRET not in words


@pytest.mark.parametrize(("kind", "load_filter"), [("odt", "writer8"), ("ods", "calc8")])
@pytest.mark.parametrize("allowed", [True, False])
def test_macros_run_only_where_they_are_allowed(tmp_path: Path, allowed: bool, kind: str, load_filter: str) -> None:
    """The profile keeps a document's macro from running even in a window that is shown, whose events reach macros."""
    shutil.copytree(PROFILE, tmp_path / "profile" / "user")
    settings = tmp_path / "profile/user/registrymodifications.xcu"
    macro = tmp_path / "profile/user/basic/Standard/Convert.xba"
    changes = {'Named("Hidden", True), ': ""} | ({'ExecutionMode", 0': 'ExecutionMode", 4'} if allowed else {})
    for old, new in changes.items():
        assert old in macro.read_text()
        macro.write_text(macro.read_text().replace(old, new))
    if allowed:
        settings.write_text(re.sub(r'(MacroSecurityLevel".*?<value>)3', r"\g<1>0", settings.read_text()))
    program = Path(shutil.which("soffice") or "").resolve().with_name("soffice.bin")
    (tmp_path / f"file.{kind}").write_bytes(office_files.make_macro(kind))
    paths = {
        "SOURCE": (tmp_path / f"file.{kind}").as_uri(),
        "TARGET": (tmp_path / "file.pdf").as_uri(),
        "WITNESS": str(tmp_path / "witness"),
    }
    command = [program, f"-env:UserInstallation={(tmp_path / 'profile').as_uri()}", "--headless", "--norestore"]
    environment = {**os.environ, **paths, "LOAD_FILTER": load_filter, "SAL_USE_VCLPLUGIN": "svp", "HOME": str(tmp_path)}

    for _ in range(2):  # the first start sets up the profile
        subprocess.run(
            [*command, "--nologo", "macro:///Standard.Convert.Run"], env=environment, timeout=300, check=False
        )

    assert (tmp_path / "file.pdf").exists()
    assert (tmp_path / "witness").exists() == allowed


async def test_half_an_rtf_file_is_damaged(reader: SourceReader) -> None:
    """It has no archive that says so; LibreOffice does not show what is left of it."""
    data = MAKERS["rtf"]()

    with pytest.raises(SourceError) as caught:
        await read_words(reader, data[: len(data) // 2], "rtf")
    assert caught.value.code is Code.DAMAGED


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A disk of so many bytes; only root can mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={request.param}", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize(
    ("kind", "small_disk"), [("epub", 8 << 10), ("html", 60 << 10), ("docx", 7 << 20)], indirect=["small_disk"]
)
async def test_a_full_disk_is_not_the_files_fault(page_pool: PagePool, kind: str, small_disk: Path) -> None:
    """LibreOffice crashes without space for its profile, and leaves out pictures that it has no space for."""
    source, target = small_disk / "source", small_disk / "file.pdf"
    source.write_bytes(MAKERS[kind]() if kind != "docx" else office_files.make_pictures(4, 700))
    limits = office.ConversionLimits(60, 4 << 30, 1 << 30)
    file_type = file_types.detect(source, f".{kind}")

    with pytest.raises(SourceError, match=r"STORE_UNAVAILABLE: no space is left.*TMPDIR"):
        if kind == "epub":
            await page_pool.call(epub.convert, str(source), str(target))
        else:
            await page_pool.call(office.convert, str(source), str(target), file_type, None, limits)


@pytest.mark.parametrize("kind", ["docx", "pptx", "xlsx", "odt", "odp", "ods"])
async def test_an_encrypted_file_opens_with_its_password(reader: SourceReader, kind: str) -> None:
    """Without a password and with a wrong one, the error says what to do."""
    data = (office_files.ENCRYPTED / f"encrypted.{kind}").read_bytes()

    for fields, advice in (({}, "send its password"), ({"password": "no"}, "wrong")):
        with pytest.raises(SourceError, match=advice) as caught:
            await read_words(reader, data, kind, **fields)
        assert caught.value.code is Code.ENCRYPTED
    assert "1891" in " ".join(await read_words(reader, data, kind, password="open"))


@pytest.mark.parametrize(
    ("limits", "rows", "code"),
    [
        ({"worker_memory_bytes": 32 << 20}, 10, Code.RENDER_MEMORY),
        ({"worker_timeout_s": 1.0}, 8000, Code.RENDER_TIMEOUT),
        ({"max_source_bytes": 4_000}, 10, Code.SOURCE_TOO_LARGE),
    ],
)
async def test_a_conversion_has_limits(reader: SourceReader, limits: dict[str, float], rows: int, code: Code) -> None:
    """LibreOffice is ended when it takes more memory, processor time or disk than the settings allow."""
    row = "<table:table-row>" + "<table:table-cell><text:p>x</text:p></table:table-cell>" * 20 + "</table:table-row>"
    data = office_files.make_odf("text", f"<table:table>{row * rows}</table:table>")
    limited = replace(reader, settings=reader.settings.model_copy(update=limits))

    with pytest.raises((SourceError, WorkerDied)) as caught:
        await read_words(limited, data, "odt")

    assert caught.value.code is code
    assert isinstance(caught.value, TwopassError)
