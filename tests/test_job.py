"""The contract: what a job may say, and what an answer may weigh."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from twopass.document import Problem, Severity, Status
from twopass.errors import Code, InvalidJob
from twopass.job import (
    RESULT_BYTES,
    Artefact,
    DocumentResult,
    Door,
    Format,
    Inline,
    Job,
    PageRange,
    Result,
    document_id,
    shown,
)
from twopass.settings import Settings

SETTINGS = Settings(bucket_name="papers")
S3 = "s3://in/a.pdf"


def parsed(door: Door = Door.SERVERLESS, settings: Settings = SETTINGS, **fields: Any) -> Job:
    return Job.parse({"id": "job-1", "input": {"source": S3, **fields}}, settings, door)


def refusal(door: Door = Door.SERVERLESS, settings: Settings = SETTINGS, **fields: Any) -> str:
    with pytest.raises(InvalidJob) as caught:
        parsed(door, settings, **fields)
    return str(caught.value)


def test_a_job_with_only_a_source_has_the_documented_defaults() -> None:
    """The smallest job reads everything and writes DocJSON and markdown into the default bucket."""
    job = parsed()

    assert job.sources == (S3,)
    assert job.output == "s3://papers/twopass/"
    assert job.formats == (Format.DOCJSON, Format.MARKDOWN)
    assert job.inline == ()


def test_without_an_output_the_answer_carries_markdown() -> None:
    """A caller without a bucket still gets something to read."""
    assert parsed(settings=Settings()).inline == (Inline.MARKDOWN,)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"sauce": 1}, "sauce: unknown field"),
        ({"sources": [S3]}, "source: give source or sources"),
        ({"pages": "0-3"}, "pages"),
        ({"pages": "3-1"}, "pages"),
        ({"slice": "x"}, "slice"),
        ({"mode": "huge"}, "mode"),
        ({"dpi": "many"}, "dpi"),
        ({"max_crops": 10}, "max_crops"),
        ({"max_crops": 1}, "max_crops"),
        ({"task": "translate"}, "task"),
        ({"task": "custom"}, "prompt: needed"),
        ({"task": "custom", "prompt": "no image"}, "prompt: must contain <image>"),
        ({"task": "custom", "prompt": "<image> and <image>"}, "prompt: must contain <image>"),
        ({"prompt": "<image>"}, "prompt: not used"),
        ({"output": "ftp://x/"}, "output"),
        ({"output": "/etc"}, "output: local paths"),
        ({"s3": {"access_key_id": "a"}}, "s3.secret_access_key"),
        ({"sampling": {"beams": 3}}, "sampling.beams: unknown field"),
        ({"id": "mine"}, "id: unknown field"),
        ({"source": "a\0b"}, "sources[0]"),
        ({"source": 7}, "source: must be"),
        ({"formats": ["docx"]}, "formats"),
        ({"slice": "1-2", "resume": False}, "slice"),
        ({"source": "s3://" + "k" * 3000}, "sources[0]"),
        ({"s3": {"access_key_id": "", "secret_access_key": ""}}, "s3.access_key_id"),
    ],
)
def test_an_error_names_its_field(fields: dict[str, Any], named: str) -> None:
    """Whoever sent the job learns which field to change."""
    assert refusal(**fields).startswith(f"INVALID_JOB: {named}")


@pytest.mark.parametrize(
    "source", ["/etc/passwd", "file:///etc/passwd", "http://a/b.pdf", "../x.pdf", "/runpod-volume/a.pdf"]
)
def test_serverless_jobs_name_no_local_path(source: str) -> None:
    """No path from input reaches the file system on the platform."""
    assert "sources[0]" in refusal(source=source)


@pytest.mark.parametrize("output", [False, True])
def test_a_serverless_path_is_refused_unseen(output: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even whether it is there, or leads elsewhere, is asked of this machine's file system."""

    def looked(path: object, *_: object, **__: object) -> None:
        raise AssertionError(f"looked at {path}")

    told = []
    for path in ("/etc/passwd", "../x.pdf", "/proc/self/environ", "/runpod-volume/a.pdf"):
        fields = {"source": S3, "output": path} if output else {"source": path}
        with monkeypatch.context() as blind:
            for name in ("lstat", "stat", "readlink", "open", "scandir", "getcwd"):
                blind.setattr(os, name, looked)
            told.append(refusal(**fields))

    assert all(line.startswith("INVALID_JOB: " + ("output" if output else "sources[0]")) for line in told)


@pytest.mark.parametrize("door", list(Door))
@pytest.mark.parametrize("value", ["\ud800", "a\udfffb"])
@pytest.mark.parametrize("field", ["source", "password", "output", "prompt", "pages", "s3"])
def test_half_a_character_is_refused_at_the_door(field: str, value: str, door: Door) -> None:
    """JSON can carry what no file name, URI, key or UTF-8 can."""
    keys = {"access_key_id": value, "secret_access_key": "b"}
    fields = {"source": "s3://b/k", field: keys if field == "s3" else value}

    with pytest.raises(InvalidJob):
        Job.parse({"input": fields}, Settings(), door)


def test_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    """They are no path below the folder that is open, and no bug of the worker."""
    (tmp_path / "a").symlink_to(tmp_path / "a")

    with pytest.raises(InvalidJob, match="local paths are not allowed"):
        Job.parse({"input": {"source": f"{tmp_path}/a/b"}}, Settings(allowed_dir=tmp_path), Door.API)


@given(st.lists(st.tuples(st.integers(1, 30), st.none() | st.integers(0, 30)), min_size=1, max_size=8))
def test_ranges_over_each_other_select_each_page_once(ranges: list[tuple[int, int | None]]) -> None:
    """In order, and as many as there are, however often they are named."""
    parts = [(start, None if more is None else start + more) for start, more in ranges]
    text = ",".join(f"{start}-{'' if end is None else end}" for start, end in parts)

    chosen = PageRange.parse(text).select(20)

    assert chosen == tuple(n for n in range(1, 21) if any(s <= n <= (e or 20) for s, e in parts))


def test_a_million_ranges_are_refused_or_cheap() -> None:
    """A job's page list costs no more than its pages."""
    assert "at most 100000 characters" in refusal(source="s3://b/k", pages="1-," * 1_000_000 + "1")
    assert len(PageRange.parse("1-," * 30_000 + "1").select(5_000)) == 5_000


def test_the_volume_opens_with_its_setting(tmp_path: Path) -> None:
    """ALLOW_VOLUME lets jobs read below the volume, and `..` does not lead out of it."""
    settings = Settings(allow_volume=True, volume=tmp_path)

    assert parsed(settings=settings, source=f"{tmp_path}/a.pdf").sources == (f"{tmp_path}/a.pdf",)
    assert "local paths" in refusal(settings=settings, source=f"{tmp_path}/../a.pdf")


def test_the_local_api_reads_only_below_its_folder(tmp_path: Path) -> None:
    """Under --rp_serve_api a path must lie below ALLOWED_DIR."""
    settings = Settings(allowed_dir=tmp_path)

    assert parsed(Door.API, settings, source=f"{tmp_path}/a.pdf").sources
    assert "local paths" in refusal(Door.API, settings, source="/etc/passwd")
    assert "local paths" in refusal(Door.API, Settings(), source="/etc/passwd")


def test_secrets_do_not_show() -> None:
    """Keys and passwords appear in no representation of a job and in no refusal."""
    job = parsed(password="pw-secret", s3={"accessId": "AKIA-secret", "accessSecret": "sk-secret"})

    assert "secret'" not in repr(job).replace("SecretStr", "")
    assert "pw-secret" not in job.model_dump_json() + repr(job)
    assert "sk-secret" not in refusal(s3={"accessId": "a", "accessSecret": "sk-secret", "colour": 1})


def test_runpods_s3config_is_read_beside_the_input() -> None:
    """Credentials where RunPod's API puts them work like `s3`."""
    config = {"accessId": "a", "accessSecret": "b", "bucketName": "c", "endpointUrl": "https://d"}

    job = Job.parse({"id": "1", "input": {"source": S3}, "s3Config": config}, Settings(), Door.SERVERLESS)

    assert job.output == "s3://c/twopass/"
    assert job.s3 and job.s3.endpoint_url == "https://d"


def test_a_jobs_keys_write_into_the_jobs_bucket() -> None:
    """With keys of its own a job never writes into the worker's default bucket."""
    keys = {"access_key_id": "a", "secret_access_key": "b"}

    assert parsed(s3={**keys, "bucket": "mine"}).output == "s3://mine/twopass/"
    assert parsed(s3=keys).output is None


def test_more_documents_than_an_answer_holds_need_an_output() -> None:
    """Inline text of a twenty-first document would be cut off silently: refused instead."""
    with pytest.raises(InvalidJob, match="OUTPUT_MISSING: sources"):
        Job.parse({"input": {"sources": [S3] * 21}}, Settings(), Door.SERVERLESS)


def test_reading_anew_on_a_laptop_goes_somewhere_new() -> None:
    """Local job ids repeat; without resume each run has an id of its own, and with it the same."""
    anew = {"id": "local_test", "input": {"source": "a.pdf", "resume": False}}

    ids = {Job.parse(anew, SETTINGS, Door.LOCAL).id for _ in range(3)}

    assert len(ids) == 3
    assert parsed(Door.LOCAL).id == "job-1"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from([*Job.model_fields, "source", "zzz"])


@given(st.dictionaries(FIELDS, JSON | st.sampled_from([S3, "1-3", "auto"]), max_size=6) | JSON)
@example({"source": {"source": "x"}})
@example({"sources": "s3://a/b"})
def test_any_json_is_a_job_or_a_named_error(data: Any) -> None:
    """Whatever arrives is a Job or an InvalidJob, never another exception."""
    try:
        job = Job.parse({"id": "x", "input": data}, SETTINGS, Door.SERVERLESS)
    except InvalidJob as error:
        assert str(error).startswith(tuple(Code))
    else:
        assert job.sources


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 20) | st.none()), min_size=1, max_size=5), st.integers(1, 60)
)
def test_a_page_range_selects_what_it_says(parts: list[tuple[int, int | None]], count: int) -> None:
    """Every page of every part, once, in order, none beyond the document."""
    text = ",".join(f"{start}-" if more is None else f"{start}-{start + more}" for start, more in parts)

    chosen = PageRange.parse(text).select(count)

    wanted = {n for n in range(1, count + 1) for s, m in parts if n >= s and (m is None or n <= s + m)}
    assert chosen == tuple(sorted(wanted))


def test_the_same_source_and_options_have_the_same_id() -> None:
    """The id changes with what is read and with nothing else."""
    plain, other = parsed(), parsed(mode="tiny")
    elsewhere = parsed(output="s3://b/", formats=["markdown"], deadline_s=5, slice="1-2")

    assert plain.reading_options == elsewhere.reading_options
    assert plain.reading_options != other.reading_options
    assert document_id("a b/c", "00", {}) == document_id("a b/c", "00", {})
    assert document_id("보고서 2024", "00", {}).startswith("보고서-2024-")
    assert len(document_id("x" * 100, "00", {})) == 40 + 1 + 12


@pytest.mark.parametrize(
    ("uri", "visible"),
    [
        ("https://user:pw@host/a.pdf?X-Amz-Signature=1", "https://host/a.pdf"),
        ("s3://bucket/key.pdf", "s3://bucket/key.pdf"),
        ("data:application/pdf;base64,AAAA", "data:application/pdf;base64,…"),
    ],
)
def test_uris_are_shown_without_secrets(uri: str, visible: str) -> None:
    """Queries, user info and inline bytes never leave the worker."""
    assert shown(uri) == visible


def artefact() -> Artefact:
    return Artefact(uri="s3://b/" + "k" * 900, bytes=1, sha256="0" * 64, content_type="text/plain")


def test_an_answer_stays_below_its_limit_whatever_the_job() -> None:
    """A thousand documents with long names and long problems still make an answer that RunPod keeps."""
    document = DocumentResult(
        source="s3://" + "x" * 900, status=Status.SUCCESS, artefacts={"a": artefact(), "b": artefact()}
    )
    problem = Problem(code=Code.LOOP, message="m" * 5000)

    answer = Result(status=Status.SUCCESS, documents=(document,) * 1000, problems=(problem,) * 1000).as_answer()

    assert len(json.dumps(answer, ensure_ascii=False).encode()) <= RESULT_BYTES
    assert answer["omitted"]["documents"] >= 980
    assert answer["omitted"]["problems"] >= 950


def test_one_document_with_the_longest_names_fits() -> None:
    """The limit holds for names as long as a job may have them, whatever their script."""
    long = DocumentResult(source="한" * 2048, status=Status.SUCCESS)
    problem = Problem(code=Code.LOOP, document="한" * 60, message="한" * 5000)

    answer = Result(status=Status.SUCCESS, documents=(long,) * 20, problems=(problem,) * 50).as_answer()

    assert len(json.dumps(answer, ensure_ascii=False).encode()) <= RESULT_BYTES


def test_a_failed_job_answers_with_an_error_that_begins_with_its_code() -> None:
    """RunPod wants a string; the detail lies beside it. A warning before the error does not take its place."""
    warning = Problem(code=Code.PIXEL_LIMIT, severity=Severity.WARNING, message="scaled")
    problem = Problem(code=Code.SOURCE_NOT_FOUND, message="no such key")

    answer = Result(status=Status.FAILURE, problems=(warning, problem)).as_answer()

    assert answer["error"] == "SOURCE_NOT_FOUND: no such key"
    assert answer["detail"]["status"] == "failure"
