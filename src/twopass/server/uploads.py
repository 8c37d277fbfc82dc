"""Read the body of a new job: JSON, or a form with a file, whose size is limited while it arrives."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from twopass.errors import Code, InvalidJob, RequestError, SourceError
from twopass.server.connections import ClientLimits
from twopass.settings import Settings
from twopass.storage import error_mapping

MAX_JSON_BYTES = 20_000_000  # RunPod's limit for a job that carries its source
_MAX_COMMAS = 200_000  # of JSON, which takes 0.1 s in which nobody is answered; long lists of pages have 100,000
_FORM_BYTES = 1 << 20  # what a form may hold besides the file
_MAX_PASSWORD_BYTES = 10_000
MAX_NAME_LENGTH = 200
_FALLBACK_NAME = "document"
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(eq=False)  # two that begin together are still two
class Arrival:
    """A body while it arrives: how much of it has, and until when the next part must."""

    limits: ClientLimits
    started: float  # on the loop's clock
    received: int = 0
    check_room: Callable[[], None] = lambda: None  # raises TwopassError if what has arrived is too much for the disk

    def find_deadline(self, now: float) -> float:
        """The earlier end of its silence and of its pace: it holds a place in the queue."""
        paced = self.started + self.limits.body_grace_s + self.received / self.limits.body_bytes_per_s
        return min(now + self.limits.silence_s, paced)

    def add(self, size: int) -> None:
        self.received += size
        self.check_room()


@dataclass(frozen=True)
class Body:
    """A job's input, and the file that was sent with it."""

    input: Mapping[str, Any]
    file: UploadFile | None = None

    @property
    def name(self) -> str | None:
        return clean_name(self.file.filename or "") if self.file else None

    async def save(self, path: Path) -> None:
        """Write the file, where one was sent; raises SourceError if the disk is full."""
        if self.file:
            await run_in_threadpool(_copy, self.file, path)


@asynccontextmanager
async def read(request: Request, settings: Settings, arrival: Arrival) -> AsyncIterator[Body]:
    """Read the request's body; the file is temporary.

    Raises InvalidJob, RequestError if it arrives too slowly, or SourceError if it is too large or the disk is full.
    """
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media == "application/json":
        yield Body(_parse_json((await _limit(request, MAX_JSON_BYTES, arrival).body()).decode(errors="replace")))
    elif media == "multipart/form-data":
        request = _limit(request, settings.max_source_bytes + _FORM_BYTES, arrival)
        try:
            with error_mapping.map_errors("the server's disk", SourceError):  # large files are spooled to TMPDIR
                form = await request.form(max_files=1, max_fields=1, max_part_size=_FORM_BYTES)
        except HTTPException as error:
            raise InvalidJob(Code.INVALID_JOB, f"the form cannot be read: {error.detail}") from None
        try:
            yield _read_form(form, settings)
        finally:
            await form.close()
    else:
        raise InvalidJob(Code.INVALID_JOB, "send application/json, or multipart/form-data with a file")


def has_body(request: Request) -> bool:
    return announced_bytes(request) > 0 or "transfer-encoding" in request.headers


async def read_password(request: Request, arrival: Arrival) -> str:
    """Read the password with which a job is resumed; raises InvalidJob, or RequestError if it arrives too slowly."""
    changes = _parse_json((await _limit(request, _MAX_PASSWORD_BYTES, arrival).body()).decode(errors="replace"))
    for name in sorted(changes.keys() - {"password"}):
        message = f"{name[:MAX_NAME_LENGTH]}: a job is resumed as it was; only its password can be sent"
        raise InvalidJob(Code.INVALID_JOB, message)
    password = changes.get("password")
    if not isinstance(password, str):
        raise InvalidJob(Code.INVALID_JOB, "password: must be a string")
    return password


def _read_form(form: FormData, settings: Settings) -> Body:
    file, fields = form.get("file"), form.get("job", "{}")
    if not isinstance(file, UploadFile) or not isinstance(fields, str):
        message = "file: send a form with a file named file and, where needed, a field job with JSON"
        raise InvalidJob(Code.INVALID_JOB, message)
    _check_size(file.size or 0, settings.max_source_bytes)
    return Body(_parse_json(fields), file)


def clean_name(name: str) -> str:
    """A file's name for display: without folders, control characters and excess length. It never becomes a path."""
    name = PurePosixPath(_UNPRINTABLE.sub("", name).replace("\\", "/")).name.strip()
    return name[-MAX_NAME_LENGTH:] or _FALLBACK_NAME


def _parse_json(text: str) -> Mapping[str, Any]:
    if text.count(",") > _MAX_COMMAS:
        raise InvalidJob(Code.INVALID_JOB, "job: too many values; send several jobs")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidJob(Code.INVALID_JOB, "job: not JSON") from None
    if not isinstance(value, dict):
        raise InvalidJob(Code.INVALID_JOB, "job: must be a JSON object with the fields of a job's input")
    return value


def announced_bytes(request: Request) -> int:
    """The length of the body that the client announced; 0 if it announced none."""
    length = request.headers.get("content-length", "")
    return int(length) if length.isdecimal() else 0


def _limit(request: Request, limit_bytes: int, arrival: Arrival) -> Request:
    """The request with a body that raises TwopassError as soon as it is too long or too slow."""
    _check_size(announced_bytes(request), limit_bytes)
    return Request(request.scope, _count_bytes(request.receive, limit_bytes, arrival))


def _count_bytes(receive: Receive, limit_bytes: int, arrival: Arrival) -> Receive:
    clock = asyncio.get_running_loop().time

    async def receive_limited() -> Message:
        try:
            async with asyncio.timeout_at(arrival.find_deadline(clock())):
                message = await receive()
        except TimeoutError:
            reason = f"{arrival.received:,} bytes arrived in {clock() - arrival.started:.0f} s, which is too slow"
            raise RequestError(Code.REQUEST_TIMEOUT, f"{reason}; send the job again") from None
        arrival.add(len(message.get("body", b"")))
        _check_size(arrival.received, limit_bytes)
        return message

    return receive_limited


def _check_size(size: int, limit_bytes: int) -> None:
    if size > limit_bytes:
        message = f"over {limit_bytes:,} bytes; raise MAX_SOURCE_BYTES on the server or split the file"
        raise SourceError(Code.SOURCE_TOO_LARGE, message)


def _copy(file: UploadFile, path: Path) -> None:
    with error_mapping.map_errors("the server's disk", SourceError), path.open("wb") as target:
        shutil.copyfileobj(file.file, target)
        target.flush()
        os.fsync(target.fileno())  # a job that was accepted survives a power failure
