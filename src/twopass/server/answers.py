"""What the server answers: jobs, with addresses instead of paths, and errors with their HTTP status."""

from __future__ import annotations

from datetime import datetime
from types import MappingProxyType
from typing import Any

from fastapi.responses import JSONResponse
from pydantic import Field

from twopass.document import Status
from twopass.errors import Code, TwopassError
from twopass.job import Format, Mode
from twopass.pages.source_files import PASSWORD_HINT
from twopass.runtime.shutdown import SEND_AGAIN
from twopass.server.access import Access
from twopass.server.jobs import ErrorAnswer, JobStore, Notified, PageAnswer, Record, State
from twopass.values import Value

_STATUS = MappingProxyType(
    {
        Code.ACCESS_DENIED: 401,
        Code.NOT_FOUND: 404,
        Code.REQUEST_TIMEOUT: 408,
        Code.SOURCE_TOO_LARGE: 413,
        Code.QUEUE_FULL: 429,
        Code.TOO_MANY_CONNECTIONS: 429,
        Code.INTERNAL: 500,
        **dict.fromkeys((Code.STARTING, Code.SHUTDOWN, Code.ENGINE_DEAD, Code.STORE_UNAVAILABLE), 503),
    }
)
BAD_REQUEST = 422  # all other codes: the job is wrong
RETRY_AFTER_S = 10  # with 429 and 503


class JobAnswer(Value, extra="ignore"):
    """One job."""

    id: str
    name: str = Field(description="the file's name, or the first source without its query")
    state: State
    created: datetime
    started: datetime | None = None
    finished: datetime | None = None
    progress: dict[str, Any] | None = Field(None, description="as RunPod's progress: phase, pages, percent, eta_s")
    result: dict[str, Any] | None = Field(None, description="as RunPod's result; addresses of artefacts are paths here")
    lost: tuple[str, ...] = Field((), description="what the audit found to be lost, in words")
    error: ErrorAnswer | None = None
    notified: Notified | None = Field(
        None, description="whether the job's webhook was delivered or failed; null without one, and while it is tried"
    )
    links: dict[str, str] = Field(
        description="`files` needs no key: it contains a secret for this job that is valid until the server restarts. "
        "`resume` is there while the job can be run again to read what is missing"
    )


class JobList(Value, extra="ignore"):
    jobs: tuple[JobAnswer, ...]


class JobPageAnswer(PageAnswer):
    """A page that was read, and the id of its job."""

    job: str


class Health(Value, extra="ignore"):
    """`gpus` says for each GPU whether its engine runs; it is empty for engines without one.

    `formats` and `modes` are those that a job may ask of this server.
    """

    status: str
    running: int
    queued: int
    engine: str
    gpus: dict[str, bool]
    max_source_bytes: int
    formats: tuple[Format, ...]
    modes: tuple[Mode, ...]


def error_response(error: TwopassError, status: int | None = None) -> JSONResponse:
    """The answer to a refused request: code, message and field."""
    status = status or _STATUS.get(error.code, BAD_REQUEST)
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status in (429, 503) else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(ErrorAnswer.of(error).model_dump(mode="json"), status, headers)


def show_job(record: Record, store: JobStore, access: Access) -> JobAnswer:
    path = job_path(record.id)
    links = {
        "self": path,
        "events": f"{path}/events",
        "pages": f"{path}/pages",
        "artefacts": f"{path}/artefacts/",
        "files": f"{path}/shared/{access.sign(record.id)}/",
        **({"resume": f"{path}/resume"} if store.can_resume(record) else {}),
    }
    return JobAnswer(
        **record.model_dump(exclude={"result", "error"}),
        error=_show_error(record, store),
        result=_show_result(record, store),
        lost=record.result.audit.describe_losses() if record.result and record.result.audit else (),
        links=links,
    )


def announce_job(record: Record, store: JobStore, access: Access) -> dict[str, Any]:
    """The job as its webhook tells it: without its result, and without the link that needs no key."""
    job = show_job(record, store, access).model_dump(mode="json", exclude={"result", "notified"})
    del job["links"]["files"]
    return job


def job_path(job_id: str) -> str:
    return f"/v1/jobs/{job_id}"


def _show_error(record: Record, store: JobStore) -> ErrorAnswer | None:
    if record.error is None:
        return None
    message = _adapt_message(record.error.message, record, store)
    advice = _advise(record, store)
    if store.can_resume(record) and not record.needs_password and advice not in message:
        message = f"{message}; {advice} to continue"
    return record.error.model_copy(update={"message": message})


def _adapt_message(message: str, record: Record, store: JobStore) -> str:
    """A worker's message as it is right here: a file that is posted again is another job, and paths are not shown."""
    message = message.replace(str(store.output_path(record.id)), "SERVE_DIR")
    if store.can_resume(record):
        message = message.replace(PASSWORD_HINT, f"(on the page, or with POST {job_path(record.id)}/resume)")
    return message.replace(SEND_AGAIN, _advise(record, store))


def _advise(record: Record, store: JobStore) -> str:
    if store.can_resume(record):
        return f"use Send again, or POST {job_path(record.id)}/resume,"
    return "wait for the server's next start" if record.state is State.INTERRUPTED else "send the file as a new job"


def _show_result(record: Record, store: JobStore) -> dict[str, Any] | None:
    if record.result is None:
        return None
    answer = record.result.as_answer()
    result: dict[str, Any] = answer["detail"] if record.result.status is Status.FAILURE else answer
    folder, served = f"{store.output_path(record.id)}/", f"{job_path(record.id)}/artefacts/"
    for document in result["documents"]:
        for artefact in document.get("artefacts", {}).values():
            artefact["uri"] = artefact["uri"].replace(folder, served, 1)
    for problem in result["problems"]:
        problem["message"] = _adapt_message(problem["message"], record, store)
    if uri := result.get("result_uri"):
        result["result_uri"] = uri.replace(folder, served, 1)
    return result
