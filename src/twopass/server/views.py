"""How a job is shown: its result with addresses instead of paths, and links."""

from __future__ import annotations

from typing import Any

from twopass.document import Status
from twopass.pages.source_files import PASSWORD_HINT
from twopass.runtime.shutdown import SEND_AGAIN
from twopass.server.access import Access
from twopass.server.answers import ErrorAnswer, JobAnswer, State
from twopass.server.jobs import JobStore, Record


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
        links=links,
    )


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
