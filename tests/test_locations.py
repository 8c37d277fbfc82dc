"""Where documents are and where artefacts go: schemes in any case, and paths that look like URIs."""

from __future__ import annotations

from pathlib import Path
from pkgutil import resolve_name

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from twopass import locations
from twopass.cli.options import parse_output
from twopass.errors import Code, InvalidJob, StoreError
from twopass.fleet.discovery import DocumentRef, find_documents
from twopass.job import EntryPoint, Job
from twopass.settings import Settings
from twopass.storage.outputs import create_store
from twopass.storage.s3 import S3Store

KNOWN = ", ".join(scheme.prefix for scheme in locations.SOURCES)
WRITABLE = ", ".join(scheme.prefix for scheme in locations.OUTPUTS)
PATHS = [
    *("C:\\x.pdf", "c:/x.pdf", "Report: final.pdf", "a:b", "s3:/bucket/x.pdf", "https:x.pdf", "S3", "HTTPS:", ":", ""),
    *("s3/x.pdf", "notes:/x", "https", "data.pdf", "Datasheet: x.pdf"),
]
prefixes = st.sampled_from([scheme.prefix for scheme in locations.SOURCES])


@st.composite
def spellings(draw: st.DrawFn) -> tuple[str, str]:
    """One URI as somebody may write it, and as it is written inside."""
    prefix, rest = draw(prefixes), draw(st.text())
    typed = "".join(letter.upper() if draw(st.booleans()) else letter for letter in prefix)
    return typed + rest, prefix + rest


@given(spellings())
@example(("S3://[", "s3://["))
def test_a_scheme_is_the_same_in_any_case(spelling: tuple[str, str]) -> None:
    """RFC 3986: S3:// and s3:// name the same place. What follows the scheme stays as it is."""
    typed, canonical = spelling

    assert locations.normalize(typed) == canonical == locations.normalize(canonical)
    assert locations.find_scheme(typed) is locations.find_scheme(canonical) in locations.SOURCES
    assert locations.is_uri(typed) and locations.absolute(typed) == canonical
    assert locations.stem(typed) == locations.stem(canonical)
    assert locations.normalize(locations.redact(typed)) == locations.redact(canonical)


@given(st.text())
def test_any_text_is_a_known_scheme_a_uri_or_a_path(text: str) -> None:
    """No text is refused or changed where places are told apart, but for the case of a known scheme."""
    normal = locations.normalize(text)

    assert normal == text or (locations.find_scheme(text) and normal.lower() == text.lower())
    assert locations.is_uri(text) or locations.find_scheme(text) is None


@pytest.mark.parametrize("path", PATHS)
def test_a_colon_makes_no_uri(path: str) -> None:
    """A drive of Windows, and a file whose name has a colon or begins like a scheme, are paths."""
    assert not locations.is_uri(path) and locations.find_scheme(path) is None
    assert locations.normalize(path) == path
    assert locations.absolute(path) == str(Path(path).resolve())


@given(spellings())
def test_a_job_names_its_places_in_one_way(spelling: tuple[str, str]) -> None:
    """However a caller writes a scheme, the job, its result and its document are the same."""
    typed, canonical = spelling
    fields = {"source": typed, **({"output": typed} if locations.S3.begins(typed) else {})}

    job = Job.parse({"input": fields}, Settings(), EntryPoint.SERVERLESS)

    assert job.sources == (canonical,) and job.output in (None, canonical)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"source": "FTP://host/x"}, f"sources[0]: FTP is not one of {KNOWN}"),
        ({"source": "HTTP://host/x"}, f"sources[0]: http is not one of {KNOWN}"),
        ({"source": "S3:/bucket/x"}, f"sources[0]: local paths are not allowed here; use one of {KNOWN}"),
        ({"source": "C:\\x.pdf"}, f"sources[0]: local paths are not allowed here; use one of {KNOWN}"),
        ({"source": "data:,", "output": "HTTPS://host/x"}, f"output: https is not one of {WRITABLE}"),
        ({"source": "data:,", "output": "x:/out"}, f"output: local paths are not allowed here; use one of {WRITABLE}"),
    ],
)
def test_a_refused_place_names_its_field(fields: dict[str, str], message: str) -> None:
    """A scheme that cannot be read or written is refused with the field, the scheme and those that can."""
    with pytest.raises(InvalidJob) as caught:
        Job.parse({"input": fields}, Settings(), EntryPoint.SERVERLESS)

    assert caught.value.message == message


async def test_an_output_in_a_bucket_is_found_in_any_case() -> None:
    """The store behind S3://bucket/Prefix is that of s3://bucket/Prefix; a place that none writes to is refused."""
    stores = [create_store(uri, Settings(), None) for uri in ("S3://bucket/Prefix", "s3://bucket/Prefix/")]

    assert all(isinstance(store, S3Store) for store in stores)
    assert {store.uri for store in stores} == {"s3://bucket/Prefix/"} == {f"{parse_output('S3://bucket/Prefix')}/"}
    with pytest.raises(StoreError) as caught:
        create_store("Gopher://host/x", Settings(), None)
    assert caught.value.code is Code.OUTPUT_DENIED


async def test_a_document_is_listed_once_however_it_is_written() -> None:
    """Two spellings of one address are one document, which is read and paid for once."""
    places = ["S3://b/A.pdf", "s3://b/A.pdf", "HTTPS://h/x.pdf", "https://h/x.pdf", "s3://b/a.pdf"]

    found, _ = await find_documents(places, Settings(), ())

    assert found == [DocumentRef("s3://b/A.pdf"), DocumentRef("https://h/x.pdf"), DocumentRef("s3://b/a.pdf")]


@pytest.mark.parametrize(
    ("uri", "visible"),
    [
        ("https://user:pw@host/a.pdf?X-Amz-Signature=1", "https://host/a.pdf"),
        ("HTTPS://user:pw@host/a.pdf?X-Amz-Signature=1", "HTTPS://host/a.pdf"),
        ("https://user:p/a?s#s@host/a.pdf?b", "https://host/a.pdf"),
        ("https://user:12/ab@host/", "https://host/"),
        ("https://user:pw@host.org:8443/@me/a.pdf", "https://host.org:8443/@me/a.pdf"),
        ("https://[::1]:80/@me", "https://[::1]:80/@me"),
        ("https://host/@me", "https://host/@me"),
        ("https://host?token=a/b", "https://host"),
        ("s3://bucket/key.pdf", "s3://bucket/key.pdf"),
        ("data:application/pdf;base64,AAAA", "data:application/pdf;base64,…"),
    ],
)
def test_uris_are_shown_without_secrets(uri: str, visible: str) -> None:
    """URIs are shown without their query, user info and inline bytes, which may be secret."""
    assert locations.redact(uri) == visible


@given(st.text("abc:/?#@%=& 12é"))
def test_no_part_of_a_password_is_shown(password: str) -> None:
    """Even of one with characters that an address should not have as they are."""
    assert locations.redact(f"https://user:{password}@host.org/a.pdf?b=c") == "https://host.org/a.pdf"


@pytest.mark.parametrize("scheme", [locations.S3, locations.HTTPS, locations.HTTP])
def test_every_scheme_has_its_reader(scheme: locations.Scheme) -> None:
    """The names of classes in the table of schemes are those of a reader, and of a store where outputs may be."""
    resolve_name(scheme.reader)(Settings(), None).close()

    assert bool(scheme.store) == (scheme in locations.OUTPUTS)
