"""The server's jobs on disk: a folder for each, with its record, the file sent with it, and what was read.

SERVE_DIR/{job id}/job.json     the record
                   input.json   the job's input, while the job may be resumed
                   upload       the file, while the job may be resumed
                   output/      the documents' folders, as in every output
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from pydantic import AwareDatetime, Field, ValidationError

from twopass.document import Problem, Severity
from twopass.document import State as PageState
from twopass.errors import Code, InvalidJob, RequestError, Retry, StoreError, TwopassError
from twopass.result import Artefact, Result
from twopass.storage import error_mapping
from twopass.values import Value

log = structlog.get_logger()

RECORD, _INPUT, UPLOAD, _OUTPUT, LOCK = "job.json", "input.json", "upload", "output", "server.lock"
MAX_CRASHES = 3  # a job during which the server died as often may be the reason
_JOB_ID = re.compile(r"[0-9a-f]{16}\Z")
_FIELD = re.compile(r"[A-Za-z_][\w.\[\]]*(?=: )")


class State(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    INTERRUPTED = "interrupted"  # by the end of the server, which continues the job when it starts again
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_active(self) -> bool:
        """Whether this server still works on the job."""
        return self in (State.QUEUED, State.RUNNING)

    @property
    def is_final(self) -> bool:
        return self in (State.DONE, State.FAILED, State.CANCELLED)


class Notified(StrEnum):
    """What became of a job's webhook."""

    DELIVERED = "delivered"
    FAILED = "failed"


class ErrorAnswer(Value, extra="ignore"):
    """Why a request was refused or a job failed."""

    code: Code
    message: str
    field: str | None = Field(None, description="the field of the job that the message is about")

    @classmethod
    def of(cls, error: TwopassError) -> ErrorAnswer:
        field = _FIELD.match(error.message) if error.code is Code.INVALID_JOB else None
        return cls(code=error.code, message=error.message, field=field[0] if field else None)


class PageAnswer(Value, extra="ignore"):
    """A page that was read."""

    document: str
    number: int
    state: str


NOT_KEPT = ErrorAnswer(
    code=Code.SHUTDOWN,
    message="the server stopped before the job ended, and passwords and S3 keys are not stored; "
    "send the file as a new job",
)
_DAMAGED = ErrorAnswer(
    code=Code.DAMAGED,
    message="the record of this job on the server's disk is damaged; what was read stays until the job is deleted. "
    "Send the file as a new job",
)
# Reasons that may pass, or that a password removes: the same job, run again, reads what is missing.
_PASSING = frozenset(code for code in Code if code.retry not in (None, Retry.ELSEWHERE))
_CRASHED = ErrorAnswer(
    code=Code.SHUTDOWN,
    message=f"the server died {MAX_CRASHES} times while it read this job, which is not tried again; see its log",
)


class Record(Value, extra="ignore"):
    """What is kept of a job for as long as the job is listed."""

    id: str
    name: str
    state: State = State.QUEUED
    created: AwareDatetime  # others cannot be compared with it
    started: AwareDatetime | None = None
    finished: AwareDatetime | None = None
    progress: dict[str, Any] | None = None
    result: Result | None = None
    error: ErrorAnswer | None = None
    webhook: str | None = None  # the address that is told of the job's end
    notified: Notified | None = None  # None until it was told, or could not be
    crashes: int = 0  # how often the server died while it read the job

    def update(self, **changes: Any) -> Record:
        return self.model_copy(update=changes)

    def end(self, state: State, **changes: Any) -> Record:
        return self.update(state=state, finished=now(), **changes)

    def restart(self, crashes: int = 0) -> Record:
        """The job waits again, and nothing remains of how it ended."""
        cleared = dict.fromkeys(("started", "finished", "progress", "result", "error", "notified"))
        return self.update(state=State.QUEUED, crashes=crashes, **cleared)

    def add_artefacts(self, document_id: str, more: Mapping[str, Artefact], problems: Sequence[Problem]) -> Record:
        """The job with artefacts that were written after its end, and what they lack of the document."""
        if self.result is None:
            return self
        documents = tuple(
            one.model_copy(update={"artefacts": {**one.artefacts, **more}}) if one.id == document_id else one
            for one in self.result.documents
        )
        update = {"documents": documents, "problems": (*self.result.problems, *problems)}
        return self.update(result=self.result.model_copy(update=update))

    @property
    def is_incomplete(self) -> bool:
        """Whether the job ended before everything was read, for a reason that may pass or that a password removes."""
        return self.state is State.CANCELLED or (self.state.is_final and bool(self._error_codes & _PASSING))

    @property
    def needs_password(self) -> bool:
        """Whether the job ended because a source is encrypted, and its password was missing or wrong."""
        return self.state.is_final and Code.ENCRYPTED in self._error_codes

    @property
    def _error_codes(self) -> set[Code]:
        problems = self.result.problems if self.result else ()
        codes = {problem.code for problem in problems if problem.severity is Severity.ERROR}
        return codes | ({self.error.code} if self.error else set())


def describe_missing_file(record: Record) -> RequestError:
    """Why a job lacks a file, and what to do: after its end, waiting would be in vain."""
    if record.state.is_final:
        message = "the job has ended without this file; check its name, or send a new job with its format in formats"
    else:
        message = "the job has not ended; ask for the file when it has"
    return RequestError(Code.NOT_FOUND, message)


class _CheckpointPage(Value, extra="ignore"):
    state: PageState


class _Checkpoint(Value, extra="ignore"):
    """The one value of a checkpoint that is shown; a whole Checkpoint takes several times as long to parse."""

    page: _CheckpointPage


def now() -> datetime:
    return datetime.now(UTC)


class JobStore:
    """The records in memory, and their folders.

    It lives on the server's event loop. One thread changes the disk, in the order in which changes are handed in: a
    disk that is slow to make them durable holds up no client, and no record loses against an earlier one.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._writer = ThreadPoolExecutor(1, "jobs")
        self._secret_inputs: dict[str, Mapping[str, Any]] = {}  # by job; they are not written to the disk
        self._records = {record.id: record for record in sorted(self._load(), key=lambda record: record.created)}

    def _load(self) -> Iterator[Record]:
        for path in self._folder.glob(f"*/{RECORD}"):
            if not _JOB_ID.match(path.parent.name):
                continue
            record = _read_record(path)
            if record is None:
                log.warning("record of a job cannot be read", path=str(path))
                yield _describe_damaged(path)
                continue
            if not record.state.is_final:
                record = self._take_up(record)
                with suppress(OSError):  # a full disk: the next start finds the job as this one did
                    self._write(record)
            elif not self.can_resume(record):
                self._unlink_sent(record.id)  # the server died before it did, or the input was in its memory
            yield record

    def _take_up(self, record: Record) -> Record:
        """Let a job that was cut off wait again, or end it if it cannot be continued."""
        crashes = record.crashes + (record.state is State.RUNNING)
        if self.is_kept(record.id) and crashes < MAX_CRASHES:
            return record.restart(crashes)
        error = _CRASHED if crashes >= MAX_CRASHES else NOT_KEPT
        self._unlink_sent(record.id)
        return record.end(State.FAILED, error=error)

    @property
    def free_bytes(self) -> int:
        return shutil.disk_usage(self._folder).free

    def shares_disk_with(self, folder: Path) -> bool:
        return self._folder.stat().st_dev == folder.stat().st_dev

    def all(self) -> list[Record]:
        """Every record, the newest first."""
        return list(reversed(self._records.values()))

    def get(self, job_id: str) -> Record:
        """The job's record; raises RequestError."""
        if job_id not in self._records:
            raise RequestError(Code.NOT_FOUND, "there is no such job; it may have been deleted")
        return self._records[job_id]

    def find(self, job_id: str) -> Record | None:
        """The job's record; None if there is no such job."""
        return self._records.get(job_id)

    async def new_folder(self) -> str:
        """Create the folder of a new job and return the job's id; raises StoreError."""
        job_id = secrets.token_hex(8)
        await self._change_disk(_create_folder, self._folder / job_id)
        return job_id

    async def put(self, record: Record) -> None:
        """Keep the record on disk, and then in memory; raises StoreError."""
        await self.save(record)
        self.show(record)

    async def save(self, record: Record) -> None:
        """Keep the record on disk only; raises StoreError."""
        await self._change_disk(self._write, record)

    def show(self, record: Record) -> None:
        """Keep the record in memory only, for changes that need not survive a restart."""
        self._records[record.id] = record

    def _write(self, record: Record) -> None:
        _write_durably(self._folder / record.id / RECORD, record.model_dump_json(exclude_none=True).encode())

    async def _change_disk(self, change: Callable[..., None], *arguments: Any) -> None:
        """Wait until the change was made, after all earlier ones. A wait that is cancelled drops no change."""
        work = asyncio.get_running_loop().run_in_executor(self._writer, change, *arguments)
        with error_mapping.map_errors("SERVE_DIR", StoreError):
            await asyncio.shield(work)

    def close(self) -> None:
        """Wait for the changes that were handed in."""
        self._writer.shutdown()

    async def delete(self, job_id: str) -> None:
        """Delete the job with its documents."""
        self._records.pop(job_id, None)
        self._secret_inputs.pop(job_id, None)
        await self._change_disk(partial(shutil.rmtree, self._folder / job_id, ignore_errors=True))

    async def keep_input(self, job_id: str, job_input: Mapping[str, Any], is_secret: bool = False) -> None:
        """Keep the job's input, with which it can be resumed; raises StoreError.

        A secret one stays in memory: after a restart the job cannot be continued.
        """
        if is_secret:
            self._secret_inputs[job_id] = job_input
        else:
            await self._change_disk(_write_durably, self._input_path(job_id), json.dumps(job_input).encode())

    def load_input(self, job_id: str) -> Mapping[str, Any]:
        """The job's input; raises StoreError or InvalidJob."""
        if job_id in self._secret_inputs:
            return self._secret_inputs[job_id]
        with error_mapping.map_errors("SERVE_DIR", StoreError):
            data = self._input_path(job_id).read_bytes()
        try:
            stored: Mapping[str, Any] = json.loads(data)
        except (ValueError, RecursionError):
            raise InvalidJob(Code.INVALID_JOB, "the stored input is damaged; send the file as a new job") from None
        return stored

    def forget_password(self, job_id: str) -> None:
        """Forget the password that was sent with the job; the rest of its input is kept."""
        if secret := self._secret_inputs.get(job_id):
            self._secret_inputs[job_id] = {name: value for name, value in secret.items() if name != "password"}

    def is_kept(self, job_id: str) -> bool:
        """Whether the job can be continued after a restart."""
        return self._input_path(job_id).exists()

    def can_resume(self, record: Record) -> bool:
        """Whether the job has ended incomplete, and what was sent with it is still here."""
        return record.is_incomplete and (record.id in self._secret_inputs or self.is_kept(record.id))

    async def delete_sent(self, job_id: str) -> None:
        """Delete the input and the file that were sent with the job: it will not run again."""
        self._secret_inputs.pop(job_id, None)
        await self._change_disk(self._unlink_sent, job_id)

    def _unlink_sent(self, job_id: str) -> None:
        self.upload_path(job_id).unlink(missing_ok=True)
        self._input_path(job_id).unlink(missing_ok=True)

    def find_expired(self, retention_s: float) -> list[str]:
        """Jobs that ended longer ago than this."""
        limit = now() - timedelta(seconds=retention_s)
        return [record.id for record in self._records.values() if record.finished and record.finished < limit]

    def _input_path(self, job_id: str) -> Path:
        return self._folder / job_id / _INPUT

    def upload_path(self, job_id: str) -> Path:
        return self._folder / job_id / UPLOAD

    def output_path(self, job_id: str) -> Path:
        return self._folder / job_id / _OUTPUT

    def find_file(self, job_id: str, name: str) -> Path:
        """The file of this name in the job's output; raises RequestError, also for a name that leads out of it."""
        missing = describe_missing_file(self.get(job_id))
        folder = self.output_path(job_id).resolve()
        if "\0" in name or {"", ".", ".."} & set(name.split("/")):
            raise missing
        try:
            path = (folder / name).resolve(strict=True)  # a link may lead elsewhere
        except (OSError, RuntimeError):
            raise missing from None
        if not path.is_relative_to(folder) or not path.is_file():
            raise missing
        return path

    def list_pages(self, job_id: str, known: set[tuple[str, int]]) -> list[PageAnswer]:
        """The pages that are stored and not among the known ones, to which they are added."""
        found = []
        for path in sorted(self.output_path(job_id).glob("*/pages/*.json")):
            document = path.parent.parent.name
            if not path.stem.isdecimal() or (document, int(path.stem)) in known:
                continue
            with suppress(OSError, ValidationError):  # deleted, or damaged: the job reads such a page again
                state = _Checkpoint.model_validate_json(path.read_bytes()).page.state
                known.add((document, int(path.stem)))
                found.append(PageAnswer(document=document, number=int(path.stem), state=state))
        return found


def _read_record(path: Path) -> Record | None:
    """The stored record; None if it cannot be read or is that of another job."""
    try:
        record = Record.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
    return record if record.id == path.parent.name else None


def _describe_damaged(path: Path) -> Record:
    """A failed job in place of a record that cannot be read, so that its folder is listed, gets old and is deleted."""
    job_id, written = path.parent.name, datetime.fromtimestamp(path.lstat().st_mtime, UTC)
    return Record(id=job_id, name=job_id, state=State.FAILED, created=written, finished=written, error=_DAMAGED)


def _write_durably(path: Path, data: bytes) -> None:
    """Write the file completely or not at all, also if the power fails afterwards."""
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())  # before the file takes its name: it might be empty otherwise
    os.replace(temporary, path)
    _sync_folder(path.parent)


def _create_folder(path: Path) -> None:
    path.mkdir(mode=0o700)
    _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def open_store(folder: Path) -> Iterator[JobStore]:
    """Open the store for this process only; raises StoreError."""
    with error_mapping.map_errors(f"SERVE_DIR ({folder})", StoreError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"SERVE_DIR ({folder}): another server uses this folder; name another one"
            raise StoreError(Code.OUTPUT_DENIED, message) from None
        for path in folder.iterdir():
            if _JOB_ID.match(path.name) and not (path / RECORD).exists():
                shutil.rmtree(path, ignore_errors=True)  # an upload that did not end
        with closing(JobStore(folder)) as store:
            yield store
    finally:
        os.close(descriptor)
