"""The contract with callers: what a job may contain, and how large an answer may be."""

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
from twopass.format_options import Chunks
from twopass.job import (
    EntryPoint,
    FailedPages,
    Format,
    Inline,
    Job,
    SamplingOptions,
    Upload,
    document_id,
)
from twopass.page_range import PageRange
from twopass.result import RESULT_BYTES, Artefact, DocumentResult, Result
from twopass.settings import Settings

SETTINGS = Settings(bucket_name="papers")
S3 = "s3://in/a.pdf"


def parse_job(entry_point: EntryPoint = EntryPoint.SERVERLESS, settings: Settings = SETTINGS, **fields: Any) -> Job:
    return Job.parse({"id": "job-1", "input": {"source": S3, **fields}}, settings, entry_point)


def expect_refusal(
    entry_point: EntryPoint = EntryPoint.SERVERLESS, settings: Settings = SETTINGS, **fields: Any
) -> str:
    """The message with which the job is refused."""
    with pytest.raises(InvalidJob) as caught:
        parse_job(entry_point, settings, **fields)
    return str(caught.value)


def test_a_job_with_only_a_source_has_the_documented_defaults() -> None:
    """The smallest job reads everything and writes DocJSON and markdown into the default bucket."""
    job = parse_job()

    assert job.sources == (S3,)
    assert job.output == "s3://papers/twopass/"
    assert job.formats == (Format.DOCJSON, Format.MARKDOWN)
    assert job.inline == ()


MANY = {f"key{number}": number for number in range(10_000)}
HUGE: dict[str, dict[str, Any]] = {
    "unknown-fields": MANY,
    "nested": {"markdown": {"heading": MANY}},
    "lists": {"formats": [["docjson"] * 100] * 100},
    "formats": {"formats": ["docjson"] * 10_000},
    "sources": {"sources": [S3] * 10_000},
    "keys": {"s3": MANY},
}


@pytest.mark.parametrize("entry_point", EntryPoint)
@pytest.mark.parametrize("fields", HUGE.values(), ids=HUGE)
def test_a_job_with_too_many_values_is_refused_before_it_is_validated(
    fields: dict[str, Any], entry_point: EntryPoint
) -> None:
    """Validation would take seconds on the loop of all jobs. Wherever the values are, their number is the error."""
    assert expect_refusal(entry_point, **fields) == "INVALID_JOB: input: more than 5,000 values; send several jobs"


def test_platform_credentials_with_too_many_values_are_refused() -> None:
    """What the platform delivers beside the input is counted, too."""
    with pytest.raises(InvalidJob, match="more than 5,000 values"):
        Job.parse({"input": {"source": S3}, "s3Config": MANY}, SETTINGS, EntryPoint.SERVERLESS)


def test_the_largest_job_is_not_too_large() -> None:
    """A thousand sources with every option are a job."""
    fields = {"sources": [S3] * 1000, "formats": list(Format), "sampling": {"temperature": 0.5}, "output": "s3://a/b/"}

    assert len(Job.parse({"input": fields}, SETTINGS, EntryPoint.SERVERLESS).sources) == 1000


def test_a_delivery_of_too_many_values_without_an_input_is_refused() -> None:
    """What was meant is not looked for among hundreds of thousands of names."""
    with pytest.raises(InvalidJob, match="more than 5,000 values"):
        Job.parse(MANY, SETTINGS, EntryPoint.SERVERLESS)


def test_values_that_nest_without_an_end_are_refused() -> None:
    """Depth is no problem of the count."""
    nested: dict[str, Any] = {}
    for _ in range(10_000):
        nested = {"markdown": nested}

    assert "values" in expect_refusal(**nested)


def test_a_long_name_of_a_field_is_cut_in_the_message() -> None:
    """A message that goes back to the caller is not as long as the job."""
    assert len(expect_refusal(**{"x" * 1_000_000: 1})) < 200


def test_without_an_output_the_answer_carries_markdown() -> None:
    """Without an output, the answer contains the markdown, so that a caller without a bucket gets the text."""
    assert parse_job(settings=Settings()).inline == (Inline.MARKDOWN,)


@pytest.mark.parametrize(
    ("fields", "beginning"),
    [
        ({"sauce": 1}, "sauce: unknown field"),
        ({"sources": [S3]}, "source: set source or sources"),
        ({"pages": "0-3"}, "pages"),
        ({"pages": "3-1"}, "pages"),
        ({"slice": "x"}, "slice"),
        ({"mode": "huge"}, "mode"),
        ({"dpi": "many"}, "dpi"),
        ({"max_crops": 33}, "max_crops"),
        ({"max_crops": 1}, "max_crops"),
        ({"figure_descriptions": "some"}, "figure_descriptions"),
        ({"task": "translate"}, "task"),
        ({"task": "custom"}, "prompt: required"),
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
def test_an_error_names_its_field(fields: dict[str, Any], beginning: str) -> None:
    """The message of an invalid job begins with the field that has to change."""
    assert expect_refusal(**fields).startswith(f"INVALID_JOB: {beginning}")


@pytest.mark.parametrize(
    "source", ["/etc/passwd", "file:///etc/passwd", "http://a/b.pdf", "../x.pdf", "/runpod-volume/a.pdf"]
)
def test_serverless_jobs_may_not_name_local_paths(source: str) -> None:
    """On the serverless platform, no path of the input reaches the file system."""
    assert "sources[0]" in expect_refusal(source=source)


@pytest.mark.parametrize("output", [False, True])
def test_a_serverless_path_is_refused_without_touching_the_file_system(
    output: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A serverless caller must not learn whether a path exists or is a link."""

    def fail(path: object, *_: object, **__: object) -> None:
        raise AssertionError(f"file system asked about {path}")

    messages = []
    for path in ("/etc/passwd", "../x.pdf", "/proc/self/environ", "/runpod-volume/a.pdf"):
        fields = {"source": S3, "output": path} if output else {"source": path}
        with monkeypatch.context() as patch:
            for name in ("lstat", "stat", "readlink", "open", "scandir", "getcwd"):
                patch.setattr(os, name, fail)
            messages.append(expect_refusal(**fields))

    assert all(message.startswith("INVALID_JOB: " + ("output" if output else "sources[0]")) for message in messages)


@pytest.mark.parametrize("entry_point", list(EntryPoint))
@pytest.mark.parametrize("value", ["\ud800", "a\udfffb"])
@pytest.mark.parametrize("field", ["source", "password", "output", "prompt", "pages", "s3"])
def test_a_lone_surrogate_is_refused(field: str, value: str, entry_point: EntryPoint) -> None:
    """A lone surrogate, which JSON can contain but UTF-8 cannot, is refused in every text field."""
    keys = {"access_key_id": value, "secret_access_key": "b"}
    fields = {"source": "s3://b/k", field: keys if field == "s3" else value}

    with pytest.raises(InvalidJob):
        Job.parse({"input": fields}, Settings(), entry_point)


def test_a_symlink_loop_is_refused(tmp_path: Path) -> None:
    """A path through a loop of links is refused like any path outside ALLOWED_DIR, and is not an internal error."""
    (tmp_path / "a").symlink_to(tmp_path / "a")

    with pytest.raises(InvalidJob, match="local paths are not allowed"):
        Job.parse({"input": {"source": f"{tmp_path}/a/b"}}, Settings(allowed_dir=tmp_path), EntryPoint.API)


@given(st.lists(st.tuples(st.integers(1, 30), st.none() | st.integers(0, 30)), min_size=1, max_size=8))
def test_overlapping_ranges_select_each_page_once(ranges: list[tuple[int, int | None]]) -> None:
    """Each page is selected once and in order, however many ranges contain it."""
    parts = [(start, None if more is None else start + more) for start, more in ranges]
    text = ",".join(f"{start}-{'' if end is None else end}" for start, end in parts)

    chosen = PageRange.parse(text).select(20)

    assert chosen == tuple(n for n in range(1, 21) if any(s <= n <= (e or 20) for s, e in parts))


def test_a_million_ranges_are_refused_or_cheap() -> None:
    """A page list that is too long is refused; a long one takes no more time than its pages."""
    assert "at most 100000 characters" in expect_refusal(source="s3://b/k", pages="1-," * 1_000_000 + "1")
    assert len(PageRange.parse("1-," * 30_000 + "1").select(5_000)) == 5_000


def test_volume_paths_need_a_setting(tmp_path: Path) -> None:
    """With ALLOW_VOLUME, jobs may name paths on the volume, and `..` does not lead out of it."""
    settings = Settings(allow_volume=True, volume=tmp_path)

    assert parse_job(settings=settings, source=f"{tmp_path}/a.pdf").sources == (f"{tmp_path}/a.pdf",)
    assert "local paths" in expect_refusal(settings=settings, source=f"{tmp_path}/../a.pdf")


def test_the_local_api_reads_only_below_its_folder(tmp_path: Path) -> None:
    """With --rp_serve_api, a path must be below ALLOWED_DIR."""
    settings = Settings(allowed_dir=tmp_path)

    assert parse_job(EntryPoint.API, settings, source=f"{tmp_path}/a.pdf").sources
    assert "local paths" in expect_refusal(EntryPoint.API, settings, source="/etc/passwd")
    assert "local paths" in expect_refusal(EntryPoint.API, Settings(), source="/etc/passwd")


def test_secrets_are_not_shown() -> None:
    """Keys and passwords appear in no representation of a job and in no error."""
    job = parse_job(password="pw-secret", s3={"accessId": "AKIA-secret", "accessSecret": "sk-secret"})

    assert "secret'" not in repr(job).replace("SecretStr", "")
    assert "pw-secret" not in job.model_dump_json() + repr(job)
    assert "sk-secret" not in expect_refusal(s3={"accessId": "a", "accessSecret": "sk-secret", "colour": 1})


def test_runpods_s3config_is_accepted_beside_the_input() -> None:
    """`s3Config`, where RunPod's API puts credentials, works like the field `s3`."""
    config = {"accessId": "a", "accessSecret": "b", "bucketName": "c", "endpointUrl": "https://d"}

    job = Job.parse({"id": "1", "input": {"source": S3}, "s3Config": config}, Settings(), EntryPoint.SERVERLESS)

    assert job.output == "s3://c/twopass/"
    assert job.s3 and job.s3.endpoint_url == "https://d"


def test_a_job_with_its_own_keys_writes_to_its_own_bucket() -> None:
    """A job with its own keys never writes to the worker's default bucket."""
    keys = {"access_key_id": "a", "secret_access_key": "b"}

    assert parse_job(s3={**keys, "bucket": "mine"}).output == "s3://mine/twopass/"
    assert parse_job(s3=keys).output is None


def test_more_documents_than_an_answer_holds_need_an_output() -> None:
    """More than 20 documents need an output: an answer holds 20, and the others' text would be lost silently."""
    with pytest.raises(InvalidJob, match="OUTPUT_MISSING: sources"):
        Job.parse({"input": {"sources": [S3] * 21}}, Settings(), EntryPoint.SERVERLESS)


def test_a_local_job_without_resume_has_a_new_id() -> None:
    """Local job ids repeat, so a job with `resume: false` gets a random id; other jobs keep theirs."""
    job = {"id": "local_test", "input": {"source": "a.pdf", "resume": False}}

    ids = {Job.parse(job, SETTINGS, EntryPoint.LOCAL).id for _ in range(3)}

    assert len(ids) == 3
    assert parse_job(EntryPoint.LOCAL).id == "job-1"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from([*Job.model_fields, "source", "zzz"])


@given(st.dictionaries(FIELDS, JSON | st.sampled_from([S3, "1-3", "auto"]), max_size=6) | JSON)
@example({"source": {"source": "x"}})
@example({"sources": "s3://a/b"})
def test_any_json_is_a_job_or_a_coded_error(data: Any) -> None:
    """Any JSON is parsed to a Job or refused with InvalidJob, never another exception."""
    try:
        job = Job.parse({"id": "x", "input": data}, SETTINGS, EntryPoint.SERVERLESS)
    except InvalidJob as error:
        assert str(error).startswith(tuple(Code))
    else:
        assert job.sources


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 20) | st.none()), min_size=1, max_size=5), st.integers(1, 60)
)
def test_a_page_range_selects_the_pages_of_its_parts(parts: list[tuple[int, int | None]], count: int) -> None:
    """A page range selects each page of each part once, in order, and none beyond the end of the document."""
    text = ",".join(f"{start}-" if more is None else f"{start}-{start + more}" for start, more in parts)

    chosen = PageRange.parse(text).select(count)

    wanted = {n for n in range(1, count + 1) for s, m in parts if n >= s and (m is None or n <= s + m)}
    assert chosen == tuple(sorted(wanted))


def test_the_same_source_and_options_have_the_same_id() -> None:
    """The document id depends on the source and on the options that affect what is read, and on nothing else."""
    plain, other = parse_job(), parse_job(mode="tiny")
    elsewhere = parse_job(output="s3://b/", formats=["markdown"], deadline_s=5, slice="1-2")

    assert plain.reading_options == elsewhere.reading_options
    assert plain.reading_options != other.reading_options
    assert plain.reading_options != parse_job(figure_descriptions="none").reading_options
    assert document_id("a b/c", "00", {}) == document_id("a b/c", "00", {})
    assert document_id("보고서 2024", "00", {}).startswith("보고서-2024-")
    assert len(document_id("x" * 100, "00", {})) == 40 + 1 + 12


def make_artefact() -> Artefact:
    return Artefact(uri="s3://b/" + "k" * 900, bytes=1, sha256="0" * 64, content_type="text/plain")


def test_every_answer_stays_below_the_size_limit() -> None:
    """The answer about a thousand documents with long names and messages is still small enough for RunPod."""
    document = DocumentResult(
        source="s3://" + "x" * 900, status=Status.SUCCESS, artefacts={"a": make_artefact(), "b": make_artefact()}
    )
    problems = tuple(Problem(code=Code.LOOP, message=f"{number} " + "m" * 5000) for number in range(1000))

    answer = Result(status=Status.SUCCESS, documents=(document,) * 1000, problems=problems).as_answer()

    assert len(json.dumps(answer, ensure_ascii=False).encode()) <= RESULT_BYTES
    assert answer["omitted"]["documents"] >= 980
    assert answer["omitted"]["problems"] >= 950


def test_the_longest_names_fit_into_an_answer() -> None:
    """The size limit holds for the longest names that a job may have, in any script."""
    long = DocumentResult(source="한" * 2048, status=Status.SUCCESS)
    problems = tuple(Problem(code=Code.LOOP, document="한" * 60, message=f"{n} " + "한" * 5000) for n in range(50))

    answer = Result(status=Status.SUCCESS, documents=(long,) * 20, problems=problems).as_answer()

    assert len(json.dumps(answer, ensure_ascii=False).encode()) <= RESULT_BYTES


def test_a_failed_job_answers_with_an_error_that_begins_with_its_code() -> None:
    """`error` is a string, as RunPod requires, with the first error and not a warning; `detail` holds the result."""
    warning = Problem(code=Code.PIXEL_LIMIT, severity=Severity.WARNING, message="scaled")
    problem = Problem(code=Code.SOURCE_NOT_FOUND, message="no such key")

    answer = Result(status=Status.FAILURE, problems=(warning, problem)).as_answer()

    assert answer["error"] == "SOURCE_NOT_FOUND: no such key"
    assert answer["detail"]["status"] == "failure"


def make_warning(page: int | None, message: str, document: str = "a") -> Problem:
    return Problem(code=Code.LOOP, severity=Severity.WARNING, document=document, page=page, message=message)


def test_the_answer_lists_errors_before_warnings() -> None:
    """Sixty warnings do not hide the one error that follows them, and both keep their order."""
    warnings = tuple(make_warning(page, f"page {page}: row {page} is missing") for page in range(1, 61))
    errors = (
        Problem(code=Code.EMPTY, page=7, message="page 7: no"),
        Problem(code=Code.DAMAGED, message="never opened"),
    )
    result = Result(status=Status.PARTIAL_SUCCESS, problems=(*warnings, *errors))

    answer = result.as_answer()

    assert [problem["code"] for problem in answer["problems"]] == ["EMPTY", "DAMAGED", *["LOOP"] * 48]
    assert [problem["page"] for problem in answer["problems"][2:]] == list(range(1, 49))
    assert answer["omitted"] == {"problems": 12}


@pytest.mark.parametrize(
    ("problems", "messages"),
    [
        ([(1, "page 1: cut"), (2, "page 2: cut"), (5, "page 5: cut")], [(None, "pages 1-2,5: cut")]),
        ([(5, "cut"), (1, "cut")], [(None, "pages 1,5: cut")]),
        ([(1, "page 1: cut"), (1, "page 1: cut")], [(1, "page 1: cut (2 times)")]),
        ([(None, "restarted"), (None, "restarted"), (None, "restarted")], [(None, "restarted (3 times)")]),
        ([(1, "cut"), (None, "cut")], [(1, "cut"), (None, "cut")]),
        ([(1, "page 1: cut"), (2, "page 2: looped")], [(1, "page 1: cut"), (2, "page 2: looped")]),
    ],
)
def test_equal_problems_are_one_in_the_answer(
    problems: list[tuple[int | None, str]], messages: list[tuple[int | None, str]]
) -> None:
    """Problems that differ only in the page are one problem with the pages or their number in the message."""
    result = Result(status=Status.SUCCESS, problems=tuple(make_warning(*problem) for problem in problems))

    answer = result.as_answer()

    assert [(problem.get("page"), problem["message"]) for problem in answer["problems"]] == messages
    assert len(result.problems) == len(problems)


def test_a_long_list_of_pages_leaves_room_for_the_message() -> None:
    """The pages of a merged problem are abbreviated before its message is cut."""
    problems = tuple(make_warning(page, f"page {page}: cut") for page in range(1, 2000, 2))

    (problem,) = Result(status=Status.SUCCESS, problems=problems).as_answer()["problems"]

    assert problem["message"].startswith("pages 1,3,5,7,")
    assert problem["message"].endswith(",… (1000 pages): cut")


def test_problems_of_two_documents_stay_separate() -> None:
    """A caller can see each document's problems, also where two documents have the same one."""
    problems = (make_warning(1, "page 1: cut", "a"), make_warning(1, "page 1: cut", "b"))

    answer = Result(status=Status.SUCCESS, problems=problems).as_answer()

    assert [problem["document"] for problem in answer["problems"]] == ["a", "b"]


@given(
    st.lists(st.builds(make_warning, st.none() | st.integers(1, 30), st.sampled_from(["page 1: x", "x", "y", "page "])))
)
def test_merging_loses_no_page_and_is_repeatable(problems: list[Problem]) -> None:
    """Every page that has a problem is named, and merging merged problems changes nothing."""
    merged = Result(status=Status.SUCCESS, problems=tuple(problems)).merged_problems

    named: set[int] = set()
    for problem in merged:
        ranges = problem.message.removeprefix("pages ").partition(":")[0]
        named |= {problem.page} if problem.page else set()
        if problem.page is None and problem.message.startswith("pages "):
            named |= set(PageRange.parse(ranges).select(30))
    assert named == {problem.page for problem in problems if problem.page}
    assert Result(status=Status.SUCCESS, problems=merged).merged_problems == merged


@pytest.mark.parametrize(
    ("delivered", "message"),
    [
        ({"input": {"sourc": S3}}, "sourc: unknown field; did you mean source? (and 1 more)"),
        ({"input": {"source": S3, "pgaes": "1"}}, "pgaes: unknown field; did you mean pages?"),
        ({"input": {"source": S3, "markdown": {"imgs": "data"}}}, "markdown.imgs: unknown field; did you mean images?"),
        (
            {"input": {"source": S3, "chunks": {"max_tok": 9}}},
            "chunks.max_tok: unknown field; did you mean max_tokens?",
        ),
        (
            {"input": {"source": S3, "s3": {"acessId": "a"}}},
            "s3.acessId: unknown field; did you mean accessId? (and 2 more)",
        ),
        ({"input": {"source": S3, "colour": 1}}, "colour: unknown field"),
        ({"input": {}}, "sources: missing; name a document with source, or several with sources"),
        ({"inptu": {"source": S3}}, "inptu: unknown field; did you mean input?"),
        ({"sourc": S3}, 'sourc: unknown field; did you mean {"input": {"source": …}}?'),
        ({"input": S3}, 'input: must be an object; write {"input": {"source": "…"}}'),
        ({"id": "1"}, 'input: missing; write {"input": {"source": "…"}}'),
    ],
)
def test_a_misspelt_field_is_named_with_what_was_meant(delivered: dict[str, Any], message: str) -> None:
    """Also if the field that it should be is required and therefore missing, and within an object of the job."""
    with pytest.raises(InvalidJob) as caught:
        Job.parse(delivered, Settings(), EntryPoint.SERVERLESS)

    assert caught.value.message == message


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"deadline_s": True}, "deadline_s"),
        ({"dpi": True}, "dpi"),
        ({"max_crops": False}, "max_crops"),
        *(({"sampling": {name: True}}, f"sampling.{name}") for name in SamplingOptions.model_fields),
        *(({"failed_pages": {name: True}}, f"failed_pages.{name}") for name in FailedPages.model_fields),
        *(({"chunks": {name: True}, "formats": ["chunks"]}, f"chunks.{name}") for name in Chunks.model_fields),
    ],
)
def test_a_boolean_is_no_number(fields: dict[str, Any], named: str) -> None:
    """true and false are refused where a number is asked for; pydantic would take them for 1 and 0."""
    assert expect_refusal(**fields) == f"INVALID_JOB: {named}: must be a number, not true or false"


NUMBERS = (int, int | None, float, float | None)


def test_every_number_of_a_job_refuses_booleans() -> None:
    """A number that is added to the job needs the same check; those of its parts are checked for all their fields."""
    numbers = {name for name, field in Job.model_fields.items() if field.annotation in NUMBERS}

    assert numbers - {"queued_s"} == {"dpi", "max_crops", "deadline_s"}


UPLOAD = Upload("Annual report.pdf", Path("/anywhere/upload"))


CACHE = "s3://papers/engine-cache/"


@pytest.mark.parametrize(
    ("cache", "fields"),
    [
        *((CACHE, {"output": f"s3://papers/{key}"}) for key in ("engine-cache", "engine-cache/", "engine-cache/a/b")),
        *(
            (CACHE, {"output": f"S3://papers/{key}"})
            for key in ("/engine-cache", "a/../engine-cache/b", "./engine-cache")
        ),
        ("s3://papers/twopass", {}),  # the default output
        ("s3://papers/twopass/cache/..", {"output": "s3://papers//twopass/x"}),
        ("/runpod-volume/caches", {"output": "/runpod-volume/caches/a"}),
        ("/runpod-volume/caches", {"output": "/runpod-volume/a/../caches"}),
    ],
)
def test_a_job_cannot_write_where_compiled_code_is(cache: str, fields: dict[str, str]) -> None:
    """Workers execute what is there; the refusal names the field and the setting, however the place is written."""
    settings = Settings(bucket_name="papers", engine_cache=cache, allow_volume=True)

    with pytest.raises(InvalidJob, match="output: it is below ENGINE_CACHE") as refusal:
        parse_job(settings=settings, **fields)

    assert refusal.value.code is Code.OUTPUT_DENIED


@pytest.mark.parametrize(
    ("cache", "output"),
    [
        *(
            (CACHE, f"s3://{place}")
            for place in ("papers/engine-cache2", "papers/x/engine-cache", "other/engine-cache")
        ),
        ("/runpod-volume/caches", "s3://papers/runpod-volume/caches"),
        ("/runpod-volume/caches", "/runpod-volume/results"),
    ],
)
def test_a_job_may_write_beside_it(cache: str, output: str) -> None:
    """A bucket may hold both, under prefixes of their own."""
    settings = Settings(engine_cache=cache, allow_volume=True)

    assert parse_job(settings=settings, output=output).output == output


def test_a_jobs_own_credentials_do_not_open_it() -> None:
    """The store may be the same under another address."""
    own = {"accessId": "a", "accessSecret": "b", "bucketName": "papers", "endpointUrl": "https://s3.host"}
    job = {"id": "1", "input": {"source": S3, "output": f"{CACHE}a"}, "s3Config": own}

    with pytest.raises(InvalidJob, match="ENGINE_CACHE"):
        Job.parse(job, Settings(engine_cache=CACHE), EntryPoint.SERVERLESS)


def parse_upload(**fields: Any) -> Job:
    settings = Settings(bucket_name="papers", output_dir=Path("/jobs/1"))
    return Job.parse({"id": "job-1", "input": fields, "upload": UPLOAD}, settings, EntryPoint.SERVER)


def test_a_file_that_is_sent_with_a_job_is_its_source() -> None:
    """The source has the file's name and not its path, and artefacts go into the server's folder."""
    job = parse_upload(pages="1-2")

    assert job.sources == ("upload:///Annual%20report.pdf",) and job.upload == UPLOAD
    assert job.output == "/jobs/1" and job.inline == ()
    assert "/anywhere" not in job.model_dump_json()


@pytest.mark.parametrize("field", ["source", "sources"])
def test_a_job_has_either_a_file_or_a_source(field: str) -> None:
    """A job that names a source and sends a file is refused, naming the field."""
    with pytest.raises(InvalidJob, match=f"{field}: leave it out"):
        parse_upload(**{field: S3})


@pytest.mark.parametrize("source", ["/etc/passwd", "a.pdf", UPLOAD.uri])
def test_a_job_of_the_server_names_no_file(source: str) -> None:
    """Without a file that was sent, sources are addresses as on RunPod."""
    assert expect_refusal(EntryPoint.SERVER, source=source).startswith("INVALID_JOB: sources[0]: ")


def test_a_job_of_the_server_keeps_an_output_of_its_own() -> None:
    """An output on S3 is used; a folder of the server is refused."""
    assert parse_job(EntryPoint.SERVER, output="s3://b/out/").output == "s3://b/out/"
    assert expect_refusal(EntryPoint.SERVER, output="/tmp").startswith("INVALID_JOB: output: ")
