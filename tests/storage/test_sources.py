"""Sources from data: URIs and local paths."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from urllib.parse import quote_from_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twopass.errors import Code, SourceError
from twopass.settings import Settings
from twopass.storage import sources
from twopass.storage.sources import DownloadResult, Sources

PDF = "application/pdf"


@given(st.binary(), st.sampled_from([PDF, "image/png", "text/plain;charset=utf-8", ""]), st.booleans())
def test_any_bytes_survive_a_data_uri(data: bytes, mime: str, as_base64: bool) -> None:
    """Inline sources arrive byte for byte in both encodings."""
    body = base64.b64encode(data).decode() if as_base64 else quote_from_bytes(data)
    uri = f"data:{mime}{';base64' if as_base64 else ''},{body}"

    assert sources.decode_data(uri, len(data)) == (data, mime.partition(";")[0] or "text/plain")


@given(st.text(), st.sampled_from(["data:", "data:;base64,", "data:a/b,", "data:a/b;base64,%"]))
def test_any_text_is_data_or_a_coded_error(text: str, start: str) -> None:
    """No inline text raises anything but an error of ours."""
    try:
        data, mime = sources.decode_data(start + text, 1 << 20)
    except SourceError as error:
        assert error.code is Code.SOURCE_UNSUPPORTED
    else:
        assert isinstance(data, bytes) and mime


async def test_inline_data_has_a_limit(tmp_path: Path) -> None:
    """An inline source above the limit is refused like any other."""
    with pytest.raises(SourceError, match="SOURCE_TOO_LARGE"):
        await Sources(Settings(max_source_bytes=4)).fetch("data:,12345", tmp_path / "t")


async def test_inline_data_is_written_to_a_file(tmp_path: Path) -> None:
    """A data: URI leaves its bytes in the target file like every other scheme."""
    result = await Sources(Settings(max_source_bytes=3)).fetch("data:image/png;base64,AAEC", tmp_path / "t")

    assert (result.content_type, (tmp_path / "t").read_bytes()) == ("image/png", b"\0\1\2")


async def test_a_local_file_is_copied(tmp_path: Path) -> None:
    """A local path is copied to the target file and stays where it is."""
    (tmp_path / "in.pdf").write_bytes(b"%PDF")

    result = await Sources(Settings(max_source_bytes=4)).fetch(str(tmp_path / "in.pdf"), tmp_path / "t")

    assert result == DownloadResult(None, 4, hashlib.sha256(b"%PDF").hexdigest(), None)
    assert (tmp_path / "t").read_bytes() == (tmp_path / "in.pdf").read_bytes()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("missing.pdf", Code.SOURCE_NOT_FOUND),
        (".", Code.SOURCE_NOT_FOUND),
        ("big.pdf", Code.SOURCE_TOO_LARGE),
    ],
)
async def test_a_local_source_that_cannot_be_read_is_a_coded_error(tmp_path: Path, name: str, expected: Code) -> None:
    """A missing file, a folder and a file that is too large each have their code."""
    (tmp_path / "big.pdf").write_bytes(b"x" * 5)

    with pytest.raises(SourceError) as caught:
        await Sources(Settings(max_source_bytes=4)).fetch(str(tmp_path / name), tmp_path / "t")

    assert caught.value.code is expected and not (tmp_path / "t").exists()


async def test_an_unknown_scheme_is_refused(tmp_path: Path) -> None:
    """ftp:// is neither a local path nor a source, and the error names it."""
    with pytest.raises(SourceError, match="SOURCE_UNSUPPORTED: ftp"):
        await Sources(Settings(max_source_bytes=4)).fetch("ftp://host/x", tmp_path / "t")
