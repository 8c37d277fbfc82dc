"""`submit`: documents are sent to an endpoint from a program."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.platform import Json, Platform, ScriptedBackend
from twopass import submit
from twopass.errors import EndpointError, InvalidJob, SourceError


def answer(job: Json) -> Json:
    """Read every job; DocJSON is not asked for, the markdown is inline."""
    document = {"id": "one-0123456789ab", "source": "one.pdf", "status": "success", "pages": {"read": 1}}
    output = {"status": "success", "documents": [{**document, "inline": {"markdown": "# One"}}], "problems": []}
    return {"status": "COMPLETED", "output": output, "executionTime": 3000}


@pytest.fixture
def backend() -> ScriptedBackend:
    return ScriptedBackend(answer)


@pytest.fixture
def url(backend: ScriptedBackend) -> Iterator[str]:
    with Platform(backend).serve() as url:
        yield url


def test_a_file_is_sent_and_its_outcome_returned(sample: Path, url: str, backend: ScriptedBackend) -> None:
    """The job has the options, the result is the worker's, and nothing is kept."""
    (outcome,) = submit(sample, endpoint=url, api_key="secret-key", output="s3://bucket/out/", pages="1-2")

    assert (outcome.status, outcome.error) == ("success", None)
    assert outcome.result["inline"] == {"markdown": "# One"}
    (job,) = backend.inputs
    assert job["source"].startswith("data:application/pdf;base64,")
    assert (job["output"], job["pages"]) == ("s3://bucket/out/", "1-2")


async def test_a_folder_keeps_artefacts_and_finished_jobs(
    sample: Path, url: str, backend: ScriptedBackend, tmp_path: Path
) -> None:
    """The second call sends nothing; `submit` also works inside a running event loop."""
    for _ in range(2):
        (outcome,) = submit([sample], endpoint=url, api_key="secret-key", folder=tmp_path)

    assert outcome.status == "success" and len(backend.inputs) == 1
    assert (tmp_path / "one-0123456789ab" / "document.md").read_text() == "# One"


@pytest.mark.parametrize(
    ("source", "options", "kind"),
    [("missing.pdf", {}, SourceError), ("missing.pdf", {"dpi": 0}, InvalidJob)],
)
def test_what_cannot_be_sent_raises(url: str, source: str, options: Any, kind: type[Exception]) -> None:
    """A missing file and a wrong option are exceptions, before anything is sent."""
    with pytest.raises(kind):
        submit(source, endpoint=url, api_key="secret-key", **options)


def test_an_endpoint_that_refuses_raises(sample: Path, url: str) -> None:
    """A wrong key is an EndpointError."""
    with pytest.raises(EndpointError, match="ENDPOINT_DENIED"):
        submit(sample, endpoint=url, api_key="wrong")
