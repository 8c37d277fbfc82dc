"""The addresses of the API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import PurePath
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from pydantic_core import to_json
from starlette.concurrency import run_in_threadpool

from twopass.errors import Code, RequestError
from twopass.formats import registry
from twopass.job import Format, Job, Mode
from twopass.server import uploads
from twopass.server.access import Access
from twopass.server.answers import Health, JobAnswer, JobList, JobPageAnswer, job_path, show_job
from twopass.server.jobs import ErrorAnswer, JobStore, PageAnswer, Record, describe_missing_file
from twopass.server.queue import JobQueue

MAX_WAIT_S = 300  # RunPod's load balancer ends a request after 5.5 minutes
_EVENT_INTERVAL_S = 0.5
PING_INTERVAL_S = 15.0
_STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # the second is for nginx
_ARTEFACT_TYPES = {writer.name: writer.content_type for writer in registry.WRITERS.values()}
_OTHER_TYPES = {".png": "image/png", ".webp": "image/webp", ".json": "application/json"}  # by suffix
SHOWN = ("text/html", "image/", "application/json")  # other files are saved
# Scripts of a stored page run without an origin: they cannot reach the key or the API.
_SANDBOX = "sandbox allow-scripts allow-popups; frame-ancestors 'self'"
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": description}
    for status, description in (
        (401, "`ACCESS_DENIED`: the key is missing or wrong"),
        (404, "`NOT_FOUND`: no such job or file"),
        (408, "`REQUEST_TIMEOUT`: the body arrives too slowly"),
        (413, "`SOURCE_TOO_LARGE`: over MAX_SOURCE_BYTES"),
        (422, "`INVALID_JOB`: a field is wrong; `field` names it"),
        (429, "`QUEUE_FULL` or `TOO_MANY_CONNECTIONS`: send it again after `Retry-After` seconds"),
        (503, "`STARTING`, `SHUTDOWN`, `ENGINE_DEAD` or `STORE_UNAVAILABLE`"),
    )
}
FILE: dict[int | str, dict[str, Any]] = {200: {"content": {"application/octet-stream": {}}, "description": "the file"}}

_RESUME_BODY = {
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "properties": {"password": {"type": "string", "description": "of an encrypted source"}},
                "additionalProperties": False,
            }
        }
    }
}
ENDED: dict[int | str, dict[str, Any]] = {200: {"model": JobAnswer, "description": "the job ended within `wait_s`"}}

# What can be written of a stored document: pages need the file, which is gone, and the archive is packed of the others.
_NOT_LATER = registry.NEEDS_SOURCE | {Format.ZIP}
_LATER = {writer.name: name for name, writer in registry.WRITERS.items() if name not in _NOT_LATER}
SendFile = Callable[[str, str], Awaitable[FileResponse]]  # a job's id, and the name of a file

Event = tuple[str, Any]  # the name of a server-sent event, and its data

JobId = Annotated[str, Path(description="the job's id")]
WaitS = Annotated[float, Query(ge=0, le=MAX_WAIT_S, description="seconds to wait for the job's end")]


class _EventStream(StreamingResponse):
    """Server-sent events. FastAPI's own log a traceback for each client that goes away while an event is sent."""

    media_type = "text/event-stream"


def _new_job_body() -> dict[str, Any]:
    """The two bodies of a new job in OpenAPI: the routes read bodies themselves, to limit them while they arrive."""
    job = Job.model_json_schema(ref_template="#/components/schemas/{model}")
    fields = sorted(set(job["properties"]) - {"id", "entry_point", "queued_s", "upload"})
    described = {"type": "object", "description": f"the job's input, as docs/contract.md has it: {', '.join(fields)}"}
    webhook = "and webhook, an https address that is told of its end"
    described["description"] += f"; {webhook}"
    source = {"source": {"type": "string", "description": "s3://, https:// or data:"}}
    form = {"file": {"type": "string", "contentMediaType": "application/octet-stream"}, "job": described}
    return {
        "required": True,
        "content": {
            "multipart/form-data": {"schema": {"type": "object", "properties": form, "required": ["file"]}},
            "application/json": {"schema": {**described, "properties": source}},
        },
    }


def build_router(queue: JobQueue, store: JobStore, access: Access) -> APIRouter:
    """All routes but the page's."""
    router = APIRouter()
    _add_health(router, queue)
    send_file = _make_sender(queue, store)
    _add_shared_files(router, send_file, access)
    _add_changes(router, queue, store, access)
    protected = APIRouter(prefix="/v1/jobs", dependencies=[Depends(access.check)], responses=ERRORS)
    _add_jobs(protected, queue, store, access)
    _add_observation(protected, queue, store, access)
    _add_files(protected, store, send_file)
    router.include_router(protected)
    return router


def _add_health(router: APIRouter, queue: JobQueue) -> None:
    worker = queue.worker

    async def is_ready() -> bool:
        return not worker.engine.is_gone and await run_in_threadpool(worker.is_alive)

    @router.get("/ping", summary="Whether the worker can take jobs", responses={204: {}, 503: {}})
    async def ping() -> Response:
        """200: ready. 204: starting. 503: the engine is gone, or the worker does not respond."""
        return Response(status_code=200 if await is_ready() else 503)

    @router.get("/health", summary="Readiness, and how many jobs run and wait")
    async def health() -> Health:
        ready, settings = await is_ready(), worker.settings
        answer = Health(
            status="ready" if ready else "not ready",
            running=queue.running,
            queued=queue.queued,
            engine=settings.engine,
            gpus={status.gpus: status.is_ready for status in worker.engine.statuses if status.gpus},
            max_source_bytes=settings.max_source_bytes,
            formats=tuple(filter(registry.is_installed, Format)),
            modes=tuple(mode for mode in Mode if mode in worker.family.modes),
        )
        return JSONResponse(answer.model_dump(), 200 if ready else 503)  # type: ignore[return-value]


def _add_jobs(router: APIRouter, queue: JobQueue, store: JobStore, access: Access) -> None:
    async def wait_for(job_id: str, wait_s: float, response: Response) -> JobAnswer:
        await queue.wait(job_id, wait_s)
        record = store.get(job_id)
        response.status_code = 200 if record.state.is_final else 202
        response.headers["Location"] = job_path(job_id)
        return show_job(record, store, access)

    @router.post(
        "",
        status_code=202,
        summary="Send a job, with a file or with the address of a source",
        responses=ENDED,
        openapi_extra={"requestBody": _new_job_body()},
    )
    async def add(request: Request, response: Response, wait_s: WaitS = 0) -> JobAnswer:
        with queue.reserve(uploads.announced_bytes(request)) as arrival:
            async with uploads.read(request, queue.worker.settings, arrival) as body:
                record = await queue.add(body)
        return await wait_for(record.id, wait_s, response)

    @router.post(
        "/{job_id}/resume",
        status_code=202,
        summary="Run a job again that ended incomplete; pages that are stored are not read again",
        responses=ENDED,
        openapi_extra={"requestBody": _RESUME_BODY},
    )
    async def resume(request: Request, job_id: JobId, response: Response, wait_s: WaitS = 0) -> JobAnswer:
        """For jobs with the link `resume`: cancelled, out of time, or failed for a reason that may pass or that a
        password removes. It is used for this job and forgotten with its end.
        """
        store.get(job_id)
        password = None
        if uploads.has_body(request):
            with queue.reserve(uploads.announced_bytes(request)) as arrival:
                password = await uploads.read_password(request, arrival)
        record = await queue.resume(job_id, password)
        return await wait_for(record.id, wait_s, response)

    @router.get("", summary="All jobs without their results, the newest first")
    async def list_jobs() -> JobList:
        jobs = (show_job(record, store, access) for record in store.all())
        return JobList(jobs=tuple(job.model_copy(update={"result": None}) for job in jobs))

    @router.get("/{job_id}", summary="A job's state, progress and result")
    async def get(job_id: JobId) -> JobAnswer:
        return show_job(store.get(job_id), store, access)

    @router.delete("/{job_id}", summary="Cancel a job; a job that has ended is deleted with its documents")
    async def delete(job_id: JobId) -> JobAnswer:
        store.get(job_id)
        was_active = await queue.cancel(job_id)
        answer = show_job(store.get(job_id), store, access)
        if not was_active:
            await store.delete(job_id)
        return answer


def _add_observation(router: APIRouter, queue: JobQueue, store: JobStore, access: Access) -> None:
    @router.get("/{job_id}/pages", summary="The pages that were read so far")
    async def pages(job_id: JobId) -> list[PageAnswer]:
        store.get(job_id)
        return await run_in_threadpool(store.list_pages, job_id, set())

    @router.get(
        "/{job_id}/events",
        response_class=_EventStream,
        summary="Progress, pages and the end, as they come",
    )
    async def events(job_id: JobId) -> _EventStream:
        """Events `progress` (a job), `page` (a page that was read), and `end` (the job with its result)."""
        store.get(job_id)
        return _send_events(_follow_job(job_id, store, access))


def _add_changes(router: APIRouter, queue: JobQueue, store: JobStore, access: Access) -> None:
    @router.get(
        "/v1/events",
        response_class=_EventStream,
        dependencies=[Depends(access.check)],
        responses={401: ERRORS[401]},
        summary="Changes of all jobs, as they come",
    )
    async def changes() -> _EventStream:
        """Events `job` (a job without its result; at first all jobs, the oldest first), `listed` (their number, once
        all were sent), `page` (a page that was read of a job that runs) and `deleted` (a job's id).
        """
        return _send_events(_follow_all(queue, store, access))


def _send_events(events: AsyncIterator[Event | None]) -> _EventStream:
    """Send events as they come, and a comment where None has come for a while, so that proxies keep the connection."""

    async def encode() -> AsyncIterator[bytes]:
        clock = asyncio.get_running_loop().time
        sent = clock()
        async for event in events:
            if event:
                name, data = event
                yield format_sse_event(event=name, data_str=to_json(data).decode())
            elif clock() - sent >= PING_INTERVAL_S:
                yield KEEPALIVE_COMMENT
            else:
                continue
            sent = clock()
            await asyncio.sleep(0)  # a client that takes thousands of events at once must not hold up the others

    return _EventStream(encode(), headers=_STREAM_HEADERS)


async def _follow_job(job_id: str, store: JobStore, access: Access) -> AsyncIterator[Event | None]:
    known, shown = set[tuple[str, int]](), None
    while record := store.find(job_id):  # until it is deleted
        for page in await run_in_threadpool(store.list_pages, job_id, known):
            yield "page", page
        if not record.state.is_active:
            yield "end", show_job(record, store, access)
            return
        if (now := (record.state, record.progress)) != shown:
            shown = now
            yield "progress", show_job(record, store, access)
        yield None
        await asyncio.sleep(_EVENT_INTERVAL_S)


async def _follow_all(queue: JobQueue, store: JobStore, access: Access) -> AsyncIterator[Event | None]:
    shown, known, is_listed = dict[str, Record](), dict[str, set[tuple[str, int]]](), False
    while True:
        is_last = queue.is_stopped  # asked before the jobs are: they may end meanwhile
        for record in reversed(store.all()):
            before, shown[record.id] = shown.get(record.id), record
            if record is not before:
                yield "job", show_job(record, store, access).model_copy(update={"result": None})
            # A small job may begin and end between two looks.
            if record.state.is_active or (is_listed and record is not before):
                pages = known.setdefault(record.id, set())
                for page in await run_in_threadpool(store.list_pages, record.id, pages):
                    yield "page", JobPageAnswer(job=record.id, **page.model_dump())
        for job_id in [job_id for job_id in shown if store.find(job_id) is None]:
            del shown[job_id]
            yield "deleted", job_id
        if not is_listed:
            is_listed = True
            yield "listed", len(shown)
        if is_last:
            return
        yield None
        await asyncio.sleep(_EVENT_INTERVAL_S)


def _add_files(router: APIRouter, store: JobStore, send_file: SendFile) -> None:
    @router.get("/{job_id}/artefacts/{name:path}", response_class=FileResponse, responses=FILE, summary="A file")
    async def artefact(job_id: JobId, name: str) -> FileResponse:
        return await send_file(job_id, name)

    @router.get(
        "/{job_id}/{name}",
        response_class=FileResponse,
        responses=FILE,
        summary="An artefact of a job's only document, such as document.html; it is written if it was not asked for",
    )
    async def only_document(job_id: JobId, name: str) -> FileResponse:
        record = store.get(job_id)
        result = record.result
        if not result or name not in _ARTEFACT_TYPES:
            raise describe_missing_file(record)
        if len(result.documents) != 1:
            message = "the job has several documents; ask for artefacts/, the document's id, / and the name"
            raise RequestError(Code.NOT_FOUND, message)
        return await send_file(job_id, f"{result.documents[0].id}/{name}")


def _add_shared_files(router: APIRouter, send_file: SendFile, access: Access) -> None:
    @router.get(
        "/v1/jobs/{job_id}/shared/{token}/{name:path}",
        response_class=FileResponse,
        responses=FILE,
        summary="A file, at an address that contains its permission, for browsers",
    )
    async def shared(job_id: JobId, token: str, name: str) -> FileResponse:
        access.check_token(job_id, token)
        return await send_file(job_id, name)


def _make_sender(queue: JobQueue, store: JobStore) -> SendFile:
    """Make what sends a job's files; a format that a done job did not ask for is written at the first request."""

    async def send_file(job_id: str, name: str) -> FileResponse:
        try:
            return await run_in_threadpool(_send_file, store, job_id, name)
        except RequestError:
            document_id, _, artefact = name.rpartition("/")
            if artefact not in _LATER or not document_id:
                raise
            await queue.add_format(job_id, document_id, _LATER[artefact])
            return await run_in_threadpool(_send_file, store, job_id, name)

    return send_file


def _send_file(store: JobStore, job_id: str, name: str) -> FileResponse:
    path = store.find_file(job_id, name)
    kind = _ARTEFACT_TYPES.get(path.name) or _OTHER_TYPES.get(path.suffix, "application/octet-stream")
    filename = path.name.replace("document", PurePath(store.get(job_id).name).stem, 1)  # as the source was called
    disposition = "inline" if kind.startswith(SHOWN) else "attachment"
    headers = {
        "Content-Security-Policy": _SANDBOX,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "private, no-cache",
    }
    return FileResponse(path, headers=headers, media_type=kind, filename=filename, content_disposition_type=disposition)
