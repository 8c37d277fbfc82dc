"""Names that callers choose: of files they send, and of files they ask for."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twopass import locations
from twopass.errors import Code, RequestError
from twopass.job import Upload
from twopass.server.access import is_local
from twopass.server.jobs import MAX_CRASHES, JobStore, Record, State, now, open_store
from twopass.server.uploads import MAX_NAME_LENGTH, clean_name


@given(st.text())
def test_a_files_name_is_cleaned_of_everything_but_a_name(name: str) -> None:
    """Whatever a caller sends, the name has no folder, no control character, a limited length, and is never empty."""
    cleaned = clean_name(name)

    assert 0 < len(cleaned) <= MAX_NAME_LENGTH
    assert not set(cleaned) & set("/\\\0\n\x7f") and clean_name(cleaned) == cleaned


@given(st.text(min_size=1).map(clean_name))
def test_a_files_name_survives_as_the_documents_stem(name: str) -> None:
    """The source's address quotes the name, from which the document's id takes the part before the suffix."""
    uri = Upload(name, Path("anywhere")).uri

    assert uri.isascii() and uri.startswith("upload:///") and "/" not in uri.removeprefix("upload:///")
    assert locations.stem(uri) == (Path(name).stem or "document")


@given(name=st.text(alphabet="./\\ab\0~%", max_size=20))
def test_no_name_finds_a_file_outside(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    """A file is found only inside the job's output."""
    folder = tmp_path_factory.mktemp("store")
    store = add_job(JobStore(folder), folder)
    try:
        path = store.find_file("0" * 16, name)
    except RequestError:
        return

    assert path.is_relative_to(folder / ("0" * 16) / "output")


def add_job(store: JobStore, folder: Path) -> JobStore:
    (folder / ("0" * 16) / "output" / "a").mkdir(parents=True)
    (folder / ("0" * 16) / "output" / "a" / "b").write_text("inside")
    (folder / "a").write_text("outside")
    store.show(Record(id="0" * 16, name="a.pdf", created=now()))
    return store


@pytest.mark.parametrize(
    ("state", "advice"),
    [(State.RUNNING, "ask for the file when it has"), (State.DONE, "send a new job with its format")],
)
def test_a_file_is_waited_for_only_while_the_job_runs(tmp_path: Path, state: State, advice: str) -> None:
    """A format that an ended job did not ask for never comes, so that nobody is told to wait for it."""
    store = add_job(JobStore(tmp_path), tmp_path)
    store.show(store.get("0" * 16).update(state=state))

    with pytest.raises(RequestError, match=advice) as caught:
        store.find_file("0" * 16, "a/document.pdf")

    assert caught.value.code is Code.NOT_FOUND


def test_an_upload_that_did_not_end_is_deleted_at_the_next_start(tmp_path: Path) -> None:
    """A folder without a record belongs to no job; other files in the folder are left alone."""
    (tmp_path / ("1" * 16)).mkdir()
    (tmp_path / "notes").mkdir()

    with open_store(tmp_path) as store:
        assert store.all() == []
    assert not (tmp_path / ("1" * 16)).exists() and (tmp_path / "notes").exists()


@pytest.mark.parametrize(
    ("content", "state"), [('{"cost": {"state": "x"}, "page": {"state": "repaired"}}', "repaired"), ("{", None)]
)
def test_the_state_of_a_page_is_that_of_its_checkpoint(tmp_path: Path, content: str, state: str | None) -> None:
    """Other values of that name do not count, and a damaged checkpoint, which is read again, is left out."""
    store = add_job(JobStore(tmp_path), tmp_path)
    pages = tmp_path / ("0" * 16) / "output" / "report" / "pages"
    pages.mkdir(parents=True)
    (pages / "0007.json").write_text(content)

    found = [(page.number, page.state) for page in store.list_pages("0" * 16, set())]

    assert found == ([(7, state)] if state else [])


async def test_a_job_that_kills_the_server_is_not_tried_forever(tmp_path: Path) -> None:
    """A job that ran whenever the server died is ended at the third start; a job that waited is not blamed."""
    store = add_job(JobStore(tmp_path), tmp_path)
    (tmp_path / ("1" * 16)).mkdir()
    await store.put(store.get("0" * 16))
    await store.put(Record(id="1" * 16, name="b.pdf", created=now()))
    for name in "01":
        await store.keep_input(name * 16, {})
    for _ in range(MAX_CRASHES):
        store = JobStore(tmp_path)
        states = [store.get(name * 16).state for name in "01"]
        if states[0] is State.QUEUED:
            await store.put(store.get("0" * 16).update(state=State.RUNNING))
    store = JobStore(tmp_path)

    assert [store.get(name * 16).state for name in "01"] == [State.FAILED, State.QUEUED]
    assert not store.is_kept("0" * 16) and store.is_kept("1" * 16)


def test_only_loopback_is_local() -> None:
    """0.0.0.0 listens everywhere and is not local, and neither is a name that only resolves to loopback."""
    assert all(map(is_local, ("127.0.0.1", "127.1.2.3", "::1", "localhost")))
    assert not any(map(is_local, ("0.0.0.0", "::", "192.0.2.1", "localhost.example", "")))
