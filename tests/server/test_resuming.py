"""Jobs that ended before everything was read: what is kept of them, and how they go on."""

from __future__ import annotations

import asyncio
import base64
import errno
import io
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pymupdf
import pytest
from fastapi import UploadFile

from tests.server.conftest import Server, build_pdf, run_server
from twopass.document import Problem, Severity, Status
from twopass.errors import Code, InvalidJob, RequestError, StoreError
from twopass.formats import registry
from twopass.job import Format
from twopass.result import Result
from twopass.server.jobs import ErrorAnswer, JobStore, Record, State, now, open_store
from twopass.server.queue import JobQueue
from twopass.server.uploads import Body
from twopass.settings import Settings
from twopass.steps.document_folder import DocumentFolder
from twopass.worker import Worker, open_worker

PAGES = 20
ID = "0" * 16
PASSWORD = "a password of this test"


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """A worker of this process that does not wait for a full disk."""
    with open_worker(Settings(page_workers=1, store_patience_s=0)) as worker:
        yield worker


def make_body(pages: int = 6) -> Body:
    return Body({}, UploadFile(io.BytesIO(build_pdf(pages)), filename="report.pdf"))


async def test_a_full_disk_costs_no_page(worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job fails and keeps its file; resumed when there is room, it reads only the pages that were not stored."""
    stored, link = list[Path](), os.link

    def fill(source: Path, target: Path) -> None:
        if "pages" in Path(target).parts:
            if len(stored) >= 2:
                raise OSError(errno.ENOSPC, "full")
            stored.append(Path(target))
        link(source, target)

    with open_store(tmp_path) as store:
        queue = JobQueue(worker, store)
        monkeypatch.setattr(os, "link", fill)
        job_id = (await queue.add(make_body())).id
        await queue.wait(job_id, 60)
        failed = store.get(job_id)
        monkeypatch.setattr(os, "link", link)
        assert (await queue.resume(job_id)).state is State.QUEUED
        await queue.wait(job_id, 60)

        assert failed.state is State.FAILED and failed.error and failed.error.code is Code.STORE_UNAVAILABLE
        done = store.get(job_id)
        assert done.state is State.DONE and done.result and done.error is None
        assert done.result.usage["pages_read_now"] == 6 - len(stored) == 4
        assert not store.upload_path(job_id).exists() and not store.is_kept(job_id)


async def test_a_job_that_ended_for_good_keeps_nothing(worker: Worker, tmp_path: Path) -> None:
    """A complete document and a file that is none cannot be resumed, and their files are deleted."""
    with open_store(tmp_path) as store:
        queue = JobQueue(worker, store)
        wrong = Body({}, UploadFile(io.BytesIO(b"no document"), filename="wrong.pdf"))
        for body, state in ((make_body(1), State.DONE), (wrong, State.FAILED)):
            job_id = (await queue.add(body)).id
            await queue.wait(job_id, 60)

            assert store.get(job_id).state is state
            assert not store.can_resume(store.get(job_id)) and not store.upload_path(job_id).exists()
            with pytest.raises(RequestError, match="NOT_FOUND.*send the file as a new job"):
                await queue.resume(job_id)


async def test_a_job_with_a_password_is_resumed_from_memory(worker: Worker, tmp_path: Path) -> None:
    """Its input is on no disk; while the server runs, it can be resumed all the same."""
    with open_store(tmp_path) as store:
        queue, body = JobQueue(worker, store), make_body()
        job_id = (await queue.add(Body({"password": "a password of this test"}, body.file))).id
        assert await queue.cancel(job_id)
        resumed = await queue.resume(job_id)
        await queue.wait(job_id, 60)

        assert resumed.state is State.QUEUED and store.get(job_id).state is State.DONE
        assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"a password" in path.read_bytes()]


async def test_resume_false_changes_nothing_here(worker: Worker, tmp_path: Path) -> None:
    """It is about pages of other jobs, and a job's folder has only its own, which it finds again when it is resumed."""
    with open_store(tmp_path) as store:
        queue, pdf, ids = JobQueue(worker, store), build_pdf(1), list[str | None]()
        for resumes in (True, False):
            file = UploadFile(io.BytesIO(pdf), filename="report.pdf")
            job_id = (await queue.add(Body({"resume": resumes}, file))).id
            await queue.wait(job_id, 60)
            result = store.get(job_id).result
            assert result
            ids.append(result.documents[0].id)

    assert ids[0] == ids[1]


async def test_a_full_queue_does_not_resume(worker: Worker, tmp_path: Path) -> None:
    """A resumed job takes a place like a new one, and is unchanged if there is none."""
    with open_store(tmp_path) as store:
        one_place = worker.settings.model_copy(update={"concurrency": 1, "serve_queue": 0})
        queue = JobQueue(Worker(**{**vars(worker), "settings": one_place}), store)
        first = (await queue.add(make_body(1))).id
        await queue.cancel(first)
        second = (await queue.add(make_body(1))).id
        with pytest.raises(RequestError, match="QUEUE_FULL"):
            await queue.resume(first)
        await queue.wait(second, 60)

        assert store.get(first).state is State.CANCELLED and store.can_resume(store.get(first))


def encrypt(data: bytes) -> bytes:
    with pymupdf.open(stream=data) as pdf:
        return bytes(pdf.tobytes(encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw=PASSWORD, owner_pw="owner"))


@pytest.mark.parametrize("first", [{}, {"password": "a wrong one"}])
async def test_an_encrypted_file_is_read_when_its_password_comes(
    worker: Worker, tmp_path: Path, first: dict[str, str]
) -> None:
    """The file is kept for the question, a wrong answer is forgotten, and no password is on the disk at any time."""
    with open_store(tmp_path) as store:
        queue, seen = JobQueue(worker, store), list[tuple[State, str]]()
        file = UploadFile(io.BytesIO(encrypt(build_pdf(2))), filename="locked.pdf")
        job_id = (await queue.add(Body(first, file))).id
        await queue.wait(job_id, 60)
        for password in (None, "also wrong", PASSWORD):
            record = store.get(job_id)
            assert record.error and record.error.code is Code.ENCRYPTED and store.can_resume(record)
            assert "password" not in store.load_input(job_id)
            seen.append((record.state, record.error.message.partition(";")[0]))
            await queue.resume(job_id, password)
            written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
            assert password is None or not [data for data in written if password.encode() in data]
            await queue.wait(job_id, 60)

        missing, wrong = "the PDF is encrypted", "the password is wrong"
        assert seen == [(State.FAILED, message) for message in (wrong if first else missing, missing, wrong)]
        assert store.get(job_id).state is State.DONE and not store.upload_path(job_id).exists()
        assert not [path for path in tmp_path.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()]


async def test_formats_written_on_request_stay_with_a_job_that_is_resumed(worker: Worker, tmp_path: Path) -> None:
    """The document's manifest lists them, so that the job, run again for another document, does, too."""

    def to_uri(data: bytes) -> str:
        return f"data:application/pdf;base64,{base64.b64encode(data).decode()}"

    with open_store(tmp_path) as store:
        queue = JobQueue(worker, store)
        sources = [to_uri(build_pdf(1)), to_uri(encrypt(build_pdf(1, "Locked")))]
        job_id = (await queue.add(Body({"sources": sources}))).id
        await queue.wait(job_id, 60)
        result = store.get(job_id).result
        assert result and result.documents[0].id
        await queue.add_format(job_id, result.documents[0].id, Format.HTML)
        await queue.resume(job_id, PASSWORD)
        await queue.wait(job_id, 60)

        again = store.get(job_id).result
        assert again and [document.status for document in again.documents] == [Status.SUCCESS, Status.SUCCESS]
        names = {"document.json", "document.md"}
        assert [set(document.artefacts) for document in again.documents] == [names | {"document.html"}, names]


async def test_nothing_stays_of_a_job_that_is_deleted_while_a_format_is_written(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its folder nor its record; the request is refused."""
    with open_store(tmp_path) as store:
        queue, write = JobQueue(worker, store), DocumentFolder.write
        job_id = (await queue.add(make_body(1))).id
        await queue.wait(job_id, 60)
        result = store.get(job_id).result
        assert result

        async def delete_and_write(folder: DocumentFolder, name: str, data: bytes, content_type: str) -> None:
            await store.delete(job_id)
            await write(folder, name, data, content_type)

        monkeypatch.setattr(DocumentFolder, "write", delete_and_write)
        with pytest.raises((RequestError, StoreError)):
            await queue.add_format(job_id, str(result.documents[0].id), Format.HTML)

        assert store.find(job_id) is None and not (tmp_path / job_id).exists()


async def test_a_format_that_several_ask_for_is_written_once(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All requests are answered with it."""
    with open_store(tmp_path) as store:
        queue, write, written = JobQueue(worker, store), DocumentFolder.write, list[str]()
        job_id = (await queue.add(make_body(1))).id
        await queue.wait(job_id, 60)
        result = store.get(job_id).result
        assert result

        async def note(folder: DocumentFolder, name: str, data: bytes, content_type: str) -> None:
            written.append(name)
            await write(folder, name, data, content_type)

        monkeypatch.setattr(DocumentFolder, "write", note)
        document_id = str(result.documents[0].id)
        await asyncio.gather(*(queue.add_format(job_id, document_id, Format.HTML) for _ in range(4)))

        assert written == ["document.html"] and store.find_file(job_id, f"{document_id}/document.html")


def test_a_password_is_sent_to_a_job_that_asks_for_it(server: Server) -> None:
    """The answer names the address; what is no password is refused with its field, and never shown or logged."""
    job_id = server.send(encrypt(build_pdf(1))).json()["id"]
    failed = server.wait(job_id)
    link = failed["links"]["resume"]
    wrong = ({"password": 1891}, {"password": None}, {"pages": "1"}, {"password": "x", "deadline_s": 1})
    refused = [server.client.post(link, json=body) for body in wrong]
    surrogate = server.client.post(link, content=b'{"password": "\\ud800"}')
    large = server.client.post(link, json={"password": "p" * 100_000})
    done = server.client.post(link, json={"password": PASSWORD}, params={"wait_s": 60})

    assert failed["error"]["code"] == "ENCRYPTED" and f"POST {link}" in failed["error"]["message"]
    assert [answer.json()["field"] for answer in (*refused, surrogate)] == [
        *("password", "password", "pages", "deadline_s", "password")
    ]
    assert {answer.status_code for answer in (*refused, surrogate)} == {422} and large.status_code == 413
    assert done.json()["state"] == "done" and PASSWORD not in done.text + server.log.read_text()
    assert "1891" not in refused[0].text


async def test_a_password_is_forgotten_with_the_server(worker: Worker, tmp_path: Path) -> None:
    """A job that was stopped while it was read with a password asks for it again after the next start."""
    with open_store(tmp_path) as store:
        queue = JobQueue(worker, store)
        file = UploadFile(io.BytesIO(encrypt(build_pdf(6))), filename="locked.pdf")
        job_id = (await queue.add(Body({}, file))).id
        await queue.wait(job_id, 60)
        await queue.resume(job_id, PASSWORD)
        await queue.cancel(job_id)
    with open_store(tmp_path) as store:
        queue = JobQueue(worker, store)
        await queue.resume(job_id)
        await queue.wait(job_id, 60)
        asking = store.get(job_id)
        await queue.resume(job_id, PASSWORD)
        await queue.wait(job_id, 60)

        assert asking.needs_password and store.get(job_id).state is State.DONE


async def test_pages_are_read_in_their_order(worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job's own folder is read by this server alone, so it begins with the first page, not at a random one."""
    stored, link, pages = list[str](), os.link, 12

    def note(source: Path, target: Path) -> None:
        stored.append(Path(target).stem)
        link(source, target)

    monkeypatch.setattr(os, "link", note)
    with open_store(tmp_path) as store:
        queue = JobQueue(replace(worker, pick_start=lambda count: count - 1), store)
        job_id = (await queue.add(make_body(pages))).id
        await queue.wait(job_id, 60)

    assert stored.index(f"{pages:04}") > stored.index("0001")


async def test_what_this_server_cannot_do_is_refused_before_it_is_kept(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A format without its package and a task that the engine does not know are answered at once and leave nothing."""
    monkeypatch.setitem(registry._EXTRAS, Format.DOCLING, ("docling", "a_module_that_is_not_installed"))
    with open_store(tmp_path) as store:
        queue = JobQueue(worker, store)
        for field, job in (("formats", {"formats": ["docling"]}), ("task", {"task": "free"})):
            with pytest.raises(InvalidJob, match=f"INVALID_JOB: {field}: "):
                await queue.add(Body(job, make_body().file))

        assert not store.all() and [path.name for path in tmp_path.iterdir()] == ["server.lock"]


def resume(server: Server, job_id: str) -> dict[str, object]:
    path = server.read(job_id)["links"]["resume"]
    answer = server.client.post(path)
    assert answer.status_code == 202
    return server.wait(job_id)


def test_a_cancelled_job_is_resumed_after_a_restart(tmp_path: Path) -> None:
    """What was sent is kept when the user cancels, also over a restart; the stored pages are not read again."""
    with run_server(tmp_path / "jobs") as server:
        job_id = server.send(build_pdf(PAGES)).json()["id"]
        server.wait(job_id, ("running",), pages=1)
        cancelled = server.client.delete(f"/v1/jobs/{job_id}").json()
        stored = len(server.client.get(f"/v1/jobs/{job_id}/pages").json())
    with run_server(tmp_path / "jobs") as server:
        done = resume(server, job_id)

    assert cancelled["state"] == "cancelled" and 0 < stored < PAGES
    assert done["state"] == "done" and done["result"]["usage"]["pages_read_now"] == PAGES - stored
    assert "resume" not in done["links"]


@pytest.mark.parametrize("resumes", [True, False])
def test_a_job_whose_deadline_passed_says_how_it_goes_on(server: Server, resumes: bool) -> None:
    """The messages name the address that continues this job: a file that is posted again is another job.

    `resume: false` is about what other jobs have read, which no job finds here.
    """
    job = server.wait(server.send(job=json.dumps({"deadline_s": 0.001, "resume": resumes})).json()["id"])

    messages = [job["error"]["message"], *(problem["message"] for problem in job["result"]["problems"])]
    assert job["error"]["code"] == "DEADLINE" and len(messages) > 1
    assert all(f"use Send again, or POST {job['links']['resume']}, to continue" in text for text in messages)
    assert server.client.post(job["links"]["resume"], params={"wait_s": 60}).status_code == 200


PASSING = (
    *(Code.STORE_UNAVAILABLE, Code.DEADLINE, Code.ENGINE_DEAD, Code.RENDER_CRASH, Code.INTERNAL),
    Code.ENCRYPTED,  # which a password removes
)


@pytest.mark.parametrize("severity", Severity)
@pytest.mark.parametrize("code", [*PASSING, Code.DAMAGED, Code.INVALID_JOB, Code.LOOP])
def test_only_reasons_that_may_pass_keep_what_was_sent(code: Code, severity: Severity) -> None:
    """A job whose document is at fault would end in the same way; a warning means that nothing is missing."""
    problem = Problem(code=code, severity=severity, message="…")
    result = Result(status=Status.PARTIAL_SUCCESS, problems=(problem,))
    record = Record(id=ID, name="a.pdf", created=now()).end(State.DONE, result=result)

    assert record.is_incomplete == (code in PASSING and severity is Severity.ERROR)


async def add_record(folder: Path, record: Record) -> JobStore:
    """A store with one job, which was sent with a file."""
    store = JobStore(folder)
    (folder / record.id).mkdir()
    store.upload_path(record.id).write_bytes(b"%PDF")
    await store.keep_input(record.id, {})
    await store.put(record)
    return store


async def test_what_was_sent_with_a_complete_job_is_deleted_at_the_next_start(tmp_path: Path) -> None:
    """The record is stored first, so that a server that dies in between does not take the job for lost."""
    await add_record(tmp_path, Record(id=ID, name="a.pdf", created=now()).end(State.DONE))

    store = JobStore(tmp_path)

    assert store.get(ID).state is State.DONE
    assert not store.upload_path(ID).exists() and not store.is_kept(ID)


async def test_kept_files_get_old_with_their_job(tmp_path: Path) -> None:
    """After SERVE_RETENTION_S an incomplete job is deleted with its file, like every other."""
    error = ErrorAnswer(code=Code.STORE_UNAVAILABLE, message="full")
    await add_record(tmp_path, Record(id=ID, name="a.pdf", created=now()).end(State.FAILED, error=error))
    store = JobStore(tmp_path)
    assert store.can_resume(store.get(ID))

    for job_id in store.find_expired(0):
        await store.delete(job_id)

    assert not (tmp_path / ID).exists()


async def test_a_store_on_a_full_disk_can_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that were cut off wait again, although their records cannot be written."""
    await add_record(tmp_path, Record(id=ID, name="a.pdf", created=now(), state=State.RUNNING))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "replace", full)
    store = JobStore(tmp_path)

    assert store.get(ID).state is State.QUEUED
    with pytest.raises(StoreError, match="STORE_UNAVAILABLE"):
        await store.put(store.get(ID))


async def test_a_record_survives_a_power_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its data is on the disk before it takes the old record's place, and its name afterwards."""
    calls, fsync, replace = list[str](), os.fsync, os.replace

    def note_sync(descriptor: int) -> None:
        calls.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    def note_replace(source: Path, target: Path) -> None:
        calls.append("replace")
        replace(source, target)

    store = await add_record(tmp_path, Record(id=ID, name="a.pdf", created=now()))
    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_replace)
    await store.put(store.get(ID).end(State.DONE))

    assert calls == ["job.tmp", "replace", ID]


async def test_a_damaged_input_is_refused(tmp_path: Path) -> None:
    """The job cannot be continued, and the server starts all the same."""
    store = await add_record(tmp_path, Record(id=ID, name="a.pdf", created=now()))
    (tmp_path / ID / "input.json").write_text("[" * 100_000)

    with pytest.raises(InvalidJob, match="send the file as a new job"):
        store.load_input(ID)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[" * 100_000,
        '{"id": "another", "name": "a", "created": "2026-01-01T00:00:00Z"}',
        f'{{"id": "{ID}", "name": "a", "created": "2026-01-01T00:00:00"}}',
    ],
)
async def test_a_job_whose_record_is_damaged_can_be_seen_and_deleted(tmp_path: Path, content: str) -> None:
    """It is listed as failed, gets old like other jobs, and its record is left as it is."""
    folder = tmp_path / ID
    folder.mkdir()
    (folder / "job.json").write_text(content)
    await add_record(tmp_path, Record(id="1" * 16, name="b.pdf", created=now()))
    store = JobStore(tmp_path)
    record = store.get(ID)

    assert record.state is State.FAILED and record.error and record.error.code is Code.DAMAGED
    assert (folder / "job.json").read_text() == content
    assert store.find_expired(-60) == [ID]
    await store.delete(ID)
    assert not folder.exists()
