"""steps/report.py: of several jobs with the same idempotency key and output, one reads."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import answers, s3
from tests.fakes.reader import Reader
from tests.fakes.scripted import ScriptedEngine
from tests.fakes.source_files import SENTENCE, make_pdf
from twopass.document import Status
from twopass.errors import Code, InvalidJob
from twopass.formats.words import Loss
from twopass.job import Job
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.result import DocumentResult
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings
from twopass.steps.artefacts import Written
from twopass.steps.report import Outcome
from twopass.telemetry.stopwatch import Stopwatch

KEYS = {"bucket_access_key_id": s3.KEY, "bucket_secret_access_key": s3.SECRET}


@pytest.fixture
def reader(page_pool: PagePool, buffers: PixelBufferPool) -> Reader:
    answer = answers.block("text", SENTENCE, (110, 60, 900, 95))
    return Reader(page_pool, buffers, ScriptedEngine("deepseek_ocr", lambda prompt: answer), dpi=72)


@pytest.fixture
def source(tmp_path: Path) -> str:
    """A document of one page."""
    path = tmp_path / "page.pdf"
    path.write_bytes(make_pdf(lambda page: page.insert_text((72, 72), SENTENCE)))
    return str(path)


@pytest.fixture(params=["folder", "bucket"])
def shared(request: pytest.FixtureRequest, reader: Reader, tmp_path: Path) -> tuple[Reader, str]:
    """Workers with the same output, a folder or a bucket, and its address."""
    if request.param == "folder":
        return reader, str(tmp_path / "out")
    request.getfixturevalue("bucket")
    reader.settings = Settings(bucket_endpoint_url=request.getfixturevalue("endpoint"), **KEYS)
    return reader, "s3://bucket/out/"


async def test_of_two_jobs_with_one_key_one_reads(shared: tuple[Reader, str], source: str) -> None:
    """The other ends without a document, with the code and the id of the job that reads."""
    reader, output = shared
    fields: dict[str, Any] = {"source": source, "output": output, "idempotency_key": "doc-1"}

    results = await asyncio.gather(*(reader.run(job_id=name, **fields) for name in ("a", "b")))

    names = dict(zip(("a", "b"), results, strict=True))
    (duplicate,) = (name for name, result in names.items() if result.duplicate_of)
    (original,) = set(names) - {duplicate}
    answer = names[duplicate].as_answer()
    assert answer["error"].startswith(f"DUPLICATE: job {original} ")
    assert answer["detail"]["duplicate_of"] == original and names[duplicate].documents == ()
    assert names[original].status == "success" and names[original].usage["pages_read_now"] == 1


async def test_a_job_that_is_delivered_again_continues(shared: tuple[Reader, str], source: str) -> None:
    """It has the same id; a job with another id, or a key of its own, does not share its claim."""
    reader, output = shared
    fields: dict[str, Any] = {"source": source, "output": output}

    first, again = [await reader.run(job_id="a", idempotency_key="k", **fields) for _ in range(2)]
    late = await reader.run(job_id="b", idempotency_key="k", **fields)
    new_key = await reader.run(job_id="b", idempotency_key="k2", **fields)

    assert [result.duplicate_of for result in (first, again, late, new_key)] == [None, None, "a", None]
    assert new_key.status == "success"


async def test_a_claim_whose_answer_is_lost_is_recognized(
    reader: Reader, bucket: Any, endpoint: str, source: str
) -> None:
    """S3 stored the claim and the connection broke: the repeated request finds the job's own claim, and it reads."""
    proxy = s3.Proxy(endpoint, faults=(s3.Fault("PUT", path="jobs/claims/", performed=True, dropped=True),))
    with proxy.serve() as url:
        reader.settings = Settings(bucket_endpoint_url=url, **KEYS)
        fields: dict[str, Any] = {"source": source, "output": "s3://bucket/out/"}

        result = await reader.run(idempotency_key="k", **fields)

    assert not proxy.faults
    assert result.duplicate_of is None and result.status == "success"


@pytest.mark.parametrize("claim", [b"", b"{}", b"[1]", b'{"job": 7}', b"\xff", b"[" * 100_000])
async def test_a_damaged_claim_keeps_no_job_from_reading(
    reader: Reader, tmp_path: Path, source: str, claim: bytes
) -> None:
    """A claim without a job id names no job that could read in place of this one."""
    path = tmp_path / "out" / "jobs" / "claims" / "k.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(claim)

    result = await reader.run(source=source, output=str(tmp_path / "out"), idempotency_key="k")

    assert result.status == "success"


@pytest.mark.parametrize("key", ["", "../x", "a/b", "a" * 101, "-a"])
async def test_a_key_is_a_plain_file_name(reader: Reader, source: str, key: str) -> None:
    """It becomes part of an object's name and must not lead out of its folder."""
    with pytest.raises(InvalidJob, match="idempotency_key") as error:
        await reader.run(source=source, idempotency_key=key)

    assert error.value.code is Code.INVALID_JOB


@pytest.mark.parametrize(("strict", "status"), [(False, Status.PARTIAL_SUCCESS), (True, Status.FAILURE)])
def test_words_lost_in_a_format_are_a_loss(strict: bool, status: Status) -> None:
    """The document is not a success; the problem names the words, and the sum of the audit counts them."""
    outcome = Outcome(DocumentResult(id="a-1", source="a.pdf", status=Status.SUCCESS, pages={"read": 3}))
    written = Written({}, (), (Loss("document.md", 3, ("Quay",), ()),))
    job = Job.model_validate({"sources": ["a.pdf"], "strict": strict})

    outcome = outcome.with_artefacts(written, job, Stopwatch())

    assert outcome.result.status is status
    (problem,) = outcome.problems
    assert (problem.code, problem.page, problem.document) == (Code.FORMAT_LOST, 3, "a-1")
    assert outcome.result.audit and outcome.result.audit.describe_losses() == [
        "1 word lost or repeated in a format: page 3"
    ]
