"""How a job is shown: its result with addresses instead of paths, and links."""

from __future__ import annotations

from typing import Any

from twopass.document import Status
from twopass.server.access import Access
from twopass.server.answers import JobAnswer
from twopass.server.jobs import JobStore, Record


def show_job(record: Record, store: JobStore, access: Access) -> JobAnswer:
    path = job_path(record.id)
    links = {
        "self": path,
        "events": f"{path}/events",
        "pages": f"{path}/pages",
        "artefacts": f"{path}/artefacts/",
        "files": f"{path}/shared/{access.sign(record.id)}/",
    }
    return JobAnswer(
        **record.model_dump(exclude={"result", "error"}),
        error=record.error,
        result=_show_result(record, store),
        links=links,
    )


def job_path(job_id: str) -> str:
    return f"/v1/jobs/{job_id}"


def _show_result(record: Record, store: JobStore) -> dict[str, Any] | None:
    if record.result is None:
        return None
    answer = record.result.as_answer()
    result: dict[str, Any] = answer["detail"] if record.result.status is Status.FAILURE else answer
    folder, served = f"{store.output_path(record.id)}/", f"{job_path(record.id)}/artefacts/"
    for document in result["documents"]:
        for artefact in document.get("artefacts", {}).values():
            artefact["uri"] = artefact["uri"].replace(folder, served, 1)
    if uri := result.get("result_uri"):
        result["result_uri"] = uri.replace(folder, served, 1)
    return result
