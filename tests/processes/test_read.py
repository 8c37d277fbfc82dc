"""`twopass read`: files and folders are read in this process, summarized, and not read again by the next run."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pymupdf
import pytest

from tests import ROOT
from tests.fakes import canary_answers, damaged_pages, openai_server
from tests.fakes.terminal import run_in_pipes
from tests.fakes.waiting import wait_until
from twopass.cli import batch
from twopass.cli.batch import InputFile
from twopass.cli.read import SETTINGS
from twopass.cli.reporters import TextReporter
from twopass.engines.cpu.engine import CpuEngine
from twopass.engines.interface import Completion, Prompt
from twopass.families import registry
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool
from twopass.runtime.page_slots import PageSlots
from twopass.settings import Settings
from twopass.worker import Worker

READ = [sys.executable, "-m", "twopass.cli", "read"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inbox = tmp_path / "inbox" / "deep"
    inbox.mkdir(parents=True)
    for name in ("one.pdf", "deep/two.PDF"):
        with pymupdf.open() as pdf:
            pdf.new_page().insert_text((72, 90), f"This is {name}")
            pdf.save(tmp_path / "inbox" / name)
    (tmp_path / "inbox" / "notes.txt").write_text("not a document")
    return tmp_path


def read(folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run the command in the folder with one page worker; its inbox is read unless arguments name paths."""
    paths = [] if arguments and not arguments[0].startswith("-") else ["inbox"]
    command = [*READ, *paths, *arguments, "--output", "out"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PAGE_WORKERS": "1", **settings}
    return run_in_pipes(command, folder, environment)


def test_a_folder_is_read_and_summed_up(folder: Path) -> None:
    """Every document below the folder is read, with suffixes in any case, and nothing else."""
    ran = read(folder, PAGE_WORKERS="0")

    summary = json.loads((folder / "out" / "batch_summary.json").read_text())
    assert ran.returncode == 0, ran.stderr
    assert (summary["total_files"], summary["success"], summary["failed"]) == (2, 2, 0)
    assert all(Path(folder, path).exists() for row in summary["results"] for path in row["output"].values())


async def test_a_folder_is_read_by_a_server_of_models(folder: Path) -> None:
    """With ENGINE=openai and OPENAI_BASE_URL, _MODES and _PRIORITY a server reads the canary and every page."""
    async with openai_server.serve(openai_server.OpenAIServer(canary_answers.answer_request)) as server:
        settings = {
            "ENGINE": "openai",
            "OPENAI_BASE_URL": server.url,
            "OPENAI_MODES": "true",
            "OPENAI_PRIORITY": "true",
        }
        ran = await asyncio.to_thread(read, folder, **settings)

    summary = json.loads((folder / "out" / "batch_summary.json").read_text())
    assert ran.returncode == 0, ran.stderr
    assert (summary["success"], summary["failed"]) == (2, 0)
    assert len(server.requests) >= 5
    assert all("priority" in request and "mm_processor_kwargs" in request for request in server.requests)


async def test_what_is_finished_starts_no_engine(folder: Path) -> None:
    """A folder that was read is found by the next run: the server is not asked, the next one need not even exist."""
    async with openai_server.serve(openai_server.OpenAIServer(canary_answers.answer_request)) as server:
        settings = {"ENGINE": "openai", "OPENAI_BASE_URL": server.url}
        first = await asyncio.to_thread(read, folder, "-v", **settings)
        asked = len(server.requests)
        again = await asyncio.to_thread(read, folder, "-v", **settings)
    gone = read(folder, "-v", "--formats", "html,review", OPENAI_MODEL="tiny", **settings)

    assert (first.returncode, again.returncode, gone.returncode) == (0, 0, 0), gone.stderr
    assert asked == len(server.requests) > 2
    assert "worker ready" in first.stderr and "worker ready" not in again.stderr + gone.stderr
    assert "2 pages (2 of them stored before)" in again.stdout
    assert len(list((folder / "out").glob("*/review.html"))) == 2


def test_only_what_is_not_finished_is_read(folder: Path) -> None:
    """A new document beside finished ones is read, and all are in the summary."""
    read(folder)
    shutil.copy(folder / "inbox" / "one.pdf", folder / "inbox" / "three.pdf")
    ran = read(folder, "-v")

    assert "worker ready" in ran.stderr
    assert "3 read, 0 in part, 0 failed; 3 pages (2 of them stored before)" in ran.stdout
    assert load_summary(folder)["success"] == 3


@pytest.mark.parametrize(
    ("option", "engine", "preset"),
    [(None, "openai", "auto"), ("cpu", "cpu", "auto"), ("24", "vllm", "24"), ("rtx4090", "vllm", "rtx4090")],
)
def test_a_preset_chooses_the_engine_and_without_one_the_environment_does(
    monkeypatch: pytest.MonkeyPatch, option: str | None, engine: str, preset: str
) -> None:
    """--preset selects the engine and its preset; without it ENGINE of the environment is used."""
    monkeypatch.setenv("ENGINE", "openai")

    settings = Settings(**SETTINGS[option])

    assert (settings.engine, settings.preset) == (engine, preset)


def test_preset_cpu_reads_with_the_cpu_engine(folder: Path) -> None:
    """--preset takes precedence over ENGINE, which names a server here that does not exist."""
    ran = read(folder, "--preset", "cpu", ENGINE="openai", OPENAI_BASE_URL="http://127.0.0.1:9/v1")

    assert ran.returncode == 0, ran.stderr


def test_several_paths_are_read_in_one_batch(folder: Path) -> None:
    """Files and folders are summarized together, and a file that two paths name is read once."""
    ran = read(folder, "inbox/one.pdf", "inbox/deep", "inbox")

    assert ran.returncode == 0, ran.stderr
    assert [row["file"] for row in load_summary(folder)["results"]] == ["inbox/one.pdf", "inbox/deep/two.PDF"]
    assert "2 read, 0 in part, 0 failed" in ran.stdout


@pytest.mark.parametrize(
    ("paths", "found"),
    [(["inbox/one.pdf"], "but inbox/one.pdf has 1: no page to read"), (["inbox"], "but none of the 2 documents")],
)
def test_pages_that_no_document_has_end_the_command_before_the_engine_opens(
    folder: Path, paths: list[str], found: str
) -> None:
    """The message names the option and the number of pages; nothing is written."""
    ran = read(folder, *paths, "--pages", "9-", ENGINE="openai", OPENAI_BASE_URL="http://127.0.0.1:9/v1")

    assert ran.returncode == 2
    assert ran.stderr.startswith(f"PAGE_RANGE: --pages: pages 9- requested, {found}") and ran.stderr.count("\n") == 1
    assert not list((folder / "out").glob("*"))


def test_pages_that_one_document_has_are_read(folder: Path) -> None:
    """The documents without these pages fail alone."""
    with pymupdf.open() as pdf:
        for _ in range(3):
            pdf.new_page().insert_text((72, 90), "long")
        pdf.save(folder / "inbox" / "three.pdf")

    ran = read(folder, "--pages", "3")

    assert ran.returncode == 1, ran.stderr
    assert [row["status"] for row in load_summary(folder)["results"]].count("success") == 1
    assert "PAGE_RANGE" in ran.stderr


def test_one_bad_file_is_reported_and_the_rest_is_read(folder: Path) -> None:
    """The exit code says that a file failed and the summary says why; a second run writes no finished file again."""
    (folder / "inbox" / "bad.pdf").write_bytes(b"%PDF-1.7 rubbish")

    first = read(folder)
    manifests = {path: path.stat().st_mtime_ns for path in folder.rglob("manifest.json")}
    read(folder)

    rows = {
        Path(row["file"]).name: row
        for row in json.loads((folder / "out" / "batch_summary.json").read_text())["results"]
    }
    assert first.returncode == 1
    assert rows["bad.pdf"]["problems"][0]["code"] == "DAMAGED"
    assert rows["one.pdf"]["status"] == "success"
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("manifest.json")} == manifests


def test_each_run_keeps_its_own_summary(folder: Path) -> None:
    """The last one is also where programs look for it, and says where it is; jobs leave no folders."""
    first = read(folder, "inbox/one.pdf")
    before = load_summary(folder)
    read(folder, "inbox/deep")

    last, kept = load_summary(folder), sorted((folder / "out" / "runs").iterdir())
    assert first.returncode == 0 and len(kept) == 2
    assert json.loads((folder / "out" / before["run"]).read_text()) == before
    assert json.loads((folder / "out" / last["run"]).read_text()) == last != before
    assert {path.name for path in (folder / "out").iterdir()} == {
        "batch_summary.json",
        "runs",
        *document_folders(folder),
    }


def test_a_line_names_what_was_written_and_what_was_not_as_asked(folder: Path) -> None:
    """The folder of the document, and below the line that pages do not exist."""
    ran = read(folder, "inbox/one.pdf", "--pages", "1-99")

    (name,) = document_folders(folder)
    assert ran.returncode == 0
    assert ran.stderr.splitlines() == [
        f"success: inbox/one.pdf (1 read) -> out/{name}/",
        "  warning: PAGE_RANGE: pages 1-99 requested, but the document has 1",
    ]


def test_a_problem_is_printed_once(folder: Path) -> None:
    """It is in the document's line, and not in the log before it."""
    (folder / "inbox" / "bad.pdf").write_bytes(b"%PDF-1.7 rubbish")

    ran = read(folder, "inbox/bad.pdf")

    assert ran.stderr.count("DAMAGED") == 1 and ran.stderr.count("\n") == 1
    assert ran.stderr.rstrip().endswith("; save the file with another program)")


def test_json_is_one_object_a_document(folder: Path) -> None:
    """stdout has nothing else; the summary is on stderr."""
    (folder / "inbox" / "bad.pdf").write_bytes(b"%PDF-1.7 rubbish")

    ran = read(folder, "--json")

    rows = {row["file"]: row for row in map(json.loads, ran.stdout.splitlines())}
    assert {name: row["status"] for name, row in rows.items()} == {
        "inbox/one.pdf": "success",
        "inbox/deep/two.PDF": "success",
        "inbox/bad.pdf": "failure",
    }
    assert rows["inbox/bad.pdf"]["problems"][0]["code"] == "DAMAGED"
    assert rows["inbox/bad.pdf"]["error"].startswith("DAMAGED: ")
    assert (folder / rows["inbox/one.pdf"]["folder"] / "document.md").is_file()
    assert ran.stderr.splitlines()[-1].startswith("files: 2 read, 0 in part, 1 failed; ")


def test_documents_are_read_to_the_end_if_nobody_reads_the_objects(folder: Path) -> None:
    """`twopass read inbox --json | head -1` writes every document."""
    command = [*READ, "inbox", "--output", "out", "--json"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PAGE_WORKERS": "1"}
    with (
        (folder / "stderr").open("w") as stderr,
        subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=stderr) as running,
    ):
        assert running.stdout
        running.stdout.close()
        running.wait(timeout=120)

    assert running.returncode == 0
    assert len(document_folders(folder)) == 2 and "Traceback" not in (folder / "stderr").read_text()


def test_a_document_on_stdin_is_read_as_a_file_is(folder: Path) -> None:
    """Its text goes to stdout and nothing else does; without --output nothing is written."""
    read(folder, "inbox/one.pdf")
    expected = next((folder / "out").glob("one-*/document.md")).read_text()
    command = [*READ, "-", "--stdout", "markdown"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PAGE_WORKERS": "1"}
    before = {path for path in folder.rglob("*")}

    with (folder / "inbox" / "one.pdf").open("rb") as document:
        ran = run_in_pipes(command, folder, environment, stdin=document)

    assert (ran.returncode, ran.stdout) == (0, expected)
    assert ran.stderr.startswith("success: stdin (1 read)\n")
    assert {path for path in folder.rglob("*")} == before


@pytest.mark.parametrize("format", ["docjson", "html", "chunks"])
def test_any_text_format_can_be_printed_and_kept(folder: Path, format: str) -> None:
    """With --output the document is stored as usual, and what is printed is its artefact."""
    ran = read(folder, "inbox/one.pdf", "--stdout", format)

    (name,) = document_folders(folder)
    artefact = {"docjson": "document.json", "html": "document.html", "chunks": "chunks.jsonl"}[format]
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == (folder / "out" / name / artefact).read_text()
    assert (folder / "out" / name / "document.md").is_file()


def test_only_one_document_can_be_printed(folder: Path) -> None:
    """Of several, nobody could tell where one ends; a document that fails prints nothing."""
    several = read(folder, "--stdout", "markdown")
    (folder / "inbox" / "bad.pdf").write_bytes(b"%PDF-1.7 rubbish")
    failed = read(folder, "inbox/bad.pdf", "--stdout", "markdown")

    assert (several.returncode, several.stdout) == (2, "")
    assert "--stdout" in several.stderr and "2 documents were found" in several.stderr
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("failure: inbox/bad.pdf (DAMAGED: ")


def test_nothing_on_stdin_is_a_failed_document(folder: Path) -> None:
    """The command before in the pipe has failed."""
    ran = read(folder, "-")

    assert ran.returncode == 1
    assert ran.stderr.startswith("failure: stdin (DAMAGED: the source is empty")


def test_settings_are_read_from_a_file(folder: Path) -> None:
    """twopass.toml in the working directory, or the file that --config names in its place."""
    (folder / "twopass.toml").write_text('[storage]\noutput_dir = "first"\n')
    (folder / "other.toml").write_text('[storage]\noutput_dir = "second"\n')
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PAGE_WORKERS": "1"}
    for more in ([], ["--config", "other.toml"]):
        command = [*READ, "inbox/one.pdf", *more]
        subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=120, check=True)

    assert [len(list((folder / name).glob("one-*"))) for name in ("first", "second")] == [1, 1]
    assert not (folder / "output").exists()


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vllm is installed here")
def test_an_engine_that_this_machine_cannot_run_ends_the_command_before_anything_is_written(folder: Path) -> None:
    """The message names the GPU and the package, and no weights."""
    ran = read(folder, "--preset", "24")

    assert ran.returncode == 1
    assert ran.stderr.startswith("PLATFORM: engine vllm needs ") and "weights" not in ran.stderr
    assert ran.stderr.count("\n") == 1 and not (folder / "out").exists()


@pytest.fixture(scope="module")
def without_docling(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PYTHONPATH with everything that is installed here but docling-core."""
    folder = tmp_path_factory.mktemp("packages")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if path.name != "docling_core":
            (folder / path.name).symlink_to(path)
    return os.pathsep.join([str(folder), str(ROOT / "src")])


@pytest.mark.parametrize(
    "command",
    [
        ["-m", "twopass.cli", "read", "inbox", "--output", "out", "--formats", "docling"],
        ["-m", "twopass.cli", "read", "inbox/one.pdf", "--stdout", "docling"],
        [str(ROOT / "handler.py"), "--test_input", '{"input": {"source": "inbox/one.pdf", "formats": ["docling"]}}'],
    ],
    ids=["read --formats", "read --stdout", "handler.py"],
)
def test_a_format_whose_package_is_missing_is_refused_before_anything_is_read(
    folder: Path, without_docling: str, command: list[str]
) -> None:
    """It is a wrong argument: no engine starts and nothing is written."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": without_docling}

    ran = subprocess.run(
        [sys.executable, "-S", *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )

    assert ran.returncode == (2 if "read" in command else 1), ran.stderr
    assert "INVALID_JOB" in ran.stderr and "docling needs" in ran.stderr
    assert {path.name for path in folder.iterdir()} == {"inbox"}


def test_an_empty_folder_is_reported(tmp_path: Path) -> None:
    """Where there is nothing to read, the exit code is 2 and a message says so."""
    (tmp_path / "inbox").mkdir()

    ran = read(tmp_path)

    assert ran.returncode == 2
    assert "nothing to read" in ran.stderr


def test_what_is_not_read_is_listed_and_counted(folder: Path) -> None:
    """A file of another type in a folder is named with the reason, on the console and in the summary."""
    ran = read(folder)

    assert "not read: 1 file: inbox/notes.txt (.txt is no type that is read" in ran.stdout
    skipped = load_summary(folder)["skipped"]
    assert (skipped["count"], skipped["files"][0]["file"]) == (1, "inbox/notes.txt")


def test_what_was_lost_is_in_a_line_above_the_counts(folder: Path) -> None:
    """Of one document with its page, of several with the number of files; the summary has it for each document.

    Pages that failed are counted apart from parts of pages that were read, and the last line still names the summary.
    """
    torn, undrawn = folder / "inbox" / "torn.pdf", folder / "undrawn.pdf"
    one = (folder / "inbox" / "one.pdf").read_bytes()
    torn.write_bytes(damaged_pages.damage(one, 0, "image missing"))
    undrawn.write_bytes(damaged_pages.damage(one, 0, "content stream missing"))

    alone, together = read(folder, "inbox/torn.pdf"), read(folder, "inbox", "undrawn.pdf")

    above, last = alone.stdout.splitlines()
    assert above == "parts lost: 1 part of the file not drawn: page 1"
    assert last.startswith("files: 0 read, 1 in part, 0 failed; 1 page") and last.endswith("; out/batch_summary.json")
    *_, above, last = together.stdout.splitlines()
    assert above == "1 page failed in 1 of 4 files; parts lost in 2 of 4 files: 2 parts of the file not drawn"
    assert last.startswith("files: 2 read, 1 in part, 1 failed; ") and last.endswith("; out/batch_summary.json")
    rows = {row["file"]: row.get("lost") for row in load_summary(folder)["results"]}
    assert rows["inbox/torn.pdf"] == ["1 part of the file not drawn: page 1"] and not rows["inbox/one.pdf"]


def load_summary(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "out" / "batch_summary.json").read_text()))


def document_folders(folder: Path) -> set[str]:
    """Names of the documents' folders in the output folder."""
    return {path.parent.name for path in (folder / "out").glob("*/manifest.json")}


def test_files_in_the_output_folder_are_not_read(tmp_path: Path) -> None:
    """Crops that an earlier run wrote are not taken for documents, even if the output folder is inside the input."""
    output = tmp_path / "output"
    (output / "report-0123456789ab" / "images").mkdir(parents=True)
    for place in ("scan.png", "output/report-0123456789ab/images/p0001-e001.png"):
        (tmp_path / place).touch()

    found, _ = asyncio.run(batch.find_files([str(tmp_path)], str(output), Settings()))

    assert found == [InputFile(f"{tmp_path}/scan.png", str(tmp_path))]


def test_files_with_similar_names_have_different_job_ids(tmp_path: Path) -> None:
    """Files with equal stems, or with names that are equal once cleaned, do not share a job's folder."""
    names = ("a/report.pdf", "b/report.pdf", "a-report.pdf", "a report.pdf", "report.pdf", "report.png")

    ids = {InputFile(f"{tmp_path}/{name}", str(tmp_path)).job_id for name in names}

    assert len(ids) == len(names)
    assert InputFile(f"{tmp_path}/{names[0]}", str(tmp_path)).job_id in ids


def test_no_resume_reads_again_on_every_run(folder: Path) -> None:
    """Each run with --no-resume writes new folders and changes no finished one."""
    seen = []
    for arguments in ((), ("--no-resume",), ("--no-resume",)):
        read(folder, *arguments)
        seen.append(document_folders(folder))

    assert [len(names) for names in seen] == [2, 4, 6]
    assert seen[0] < seen[1] < seen[2]


def test_a_name_that_is_not_utf8_affects_only_its_own_file(folder: Path) -> None:
    """The summary lists such a file, and the others are read."""
    os.rename(folder / "inbox" / "one.pdf", os.fsencode(folder / "inbox") + b"/one\xff.pdf")

    read(folder)

    summary = load_summary(folder)
    assert summary["total_files"] == 2
    assert summary["success"] in (1, 2)


def test_ctrl_c_leaves_a_summary_and_the_same_command_continues(folder: Path) -> None:
    """After Ctrl-C the exit code is 130, a message counts the stored pages, and unfinished files are unread."""
    with pymupdf.open() as pdf:
        for number in range(300):
            pdf.new_page().insert_text((72, 90), f"Page {number}")
        pdf.save(folder / "inbox" / "zlong.pdf")
    (folder / "inbox" / "bad.pdf").write_bytes(b"%PDF-1.7 rubbish")  # it has ended, though it has no pages
    command = [*READ, "inbox", "--output", "out"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PAGE_WORKERS": "1"}
    with (
        (folder / "stderr").open("w") as stderr,
        subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True
        ) as running,
    ):
        try:
            read_stderr = (folder / "stderr").read_text
            wait_until(
                lambda: (
                    read_stderr().count("success: inbox/") == 2
                    and "failure: inbox/bad.pdf" in read_stderr()
                    and any((folder / "out").glob("zlong-*/pages/*"))
                ),
                timeout_s=180,
            )
            running.send_signal(signal.SIGINT)
            printed, _ = running.communicate(timeout=180)
        finally:
            running.kill()  # otherwise a failed assertion would wait for it

    errors, summary = read_stderr(), load_summary(folder)
    stored = len(list((folder / "out").glob("*/pages/*.json")))
    assert (running.returncode, summary["success"], summary["unread"]) == (130, 2, 1), errors
    assert f"stopped: {stored} of 302 pages are stored; run the same command again to continue\n" in errors
    (row,) = (row for row in summary["results"] if row["status"] == "unread")
    assert row["pages"] == {"read": stored - 2, "unread": 302 - stored}
    assert (summary["pages"], summary["pages_read_now"]) == (stored, stored)
    assert f"2 read, 0 in part, 1 failed, 1 unread; {stored} pages; " in printed
    assert "Traceback" not in errors


def test_a_folder_that_cannot_be_written_is_reported_before_the_engine_starts(folder: Path) -> None:
    """An output folder in which no file can be created is a wrong argument, and not a traceback at the end."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "NO_COLOR": "1", "COLUMNS": "200"}
    command = [*READ, "inbox", "--output", "/proc"]

    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)

    assert ran.returncode == 2
    assert ran.stderr.startswith("OUTPUT_DENIED: /proc")
    assert "Traceback" not in ran.stderr


def test_a_file_without_page_counts_is_listed_with_its_problem(folder: Path) -> None:
    """The line of a file that ended with an error says why; its pages may be stored, so it is not `nothing read`."""
    (folder / "inbox" / "page.pdf").write_bytes(b"<html>Log in</html>")

    ran = read(folder, "inbox/page.pdf")

    assert "failure: inbox/page.pdf (SOURCE_UNSUPPORTED: " in ran.stderr
    assert "nothing read" not in ran.stderr


class BrokenEngine(CpuEngine):
    """Raises an unexpected error for every file whose first page says `stumble`."""

    async def generate(self, prompt: Prompt) -> Completion:
        assert prompt.page
        with pymupdf.open(prompt.page.file) as pdf:
            if "stumble" in pdf[0].get_text():
                raise LookupError("unexpected")
        return await super().generate(prompt)


async def test_an_unexpected_error_of_one_file_leaves_the_others_their_results(
    folder: Path, page_pool: PagePool, buffers: PixelBufferPool
) -> None:
    """An unexpected error of one file is raised after all other files were read."""
    with pymupdf.open() as pdf:
        pdf.new_page().insert_text((72, 90), "stumble")
        pdf.save(folder / "inbox" / "a.pdf")
    engine = BrokenEngine(2)
    await engine.open(page_pool)
    loop = asyncio.get_running_loop()
    worker = Worker(Settings(), engine, registry.get_family("layout"), page_pool, buffers, PageSlots(4), loop)
    output = str(folder / "out")
    options = batch.Arguments(output, formats=("markdown",))
    files, _ = await batch.find_files([str(folder / "inbox")], output, Settings())
    started = batch.Batch(files, options, TextReporter())

    with pytest.raises(LookupError):
        await batch.read_files(started, worker)

    assert {Path(file.name).name for file in started.outcomes} == {"one.pdf", "two.PDF"}


class LeavingEngine(CpuEngine):
    """Is gone for good once it has answered for the first file."""

    async def generate(self, prompt: Prompt) -> Completion:
        completion = await super().generate(prompt)
        self.is_gone = True
        return completion


async def test_files_after_the_end_of_an_engine_stay_unread(
    folder: Path, page_pool: PagePool, buffers: PixelBufferPool
) -> None:
    """A process whose engine is gone fails no further file, so that another process or the next run reads it."""
    engine = LeavingEngine(2)
    await engine.open(page_pool)
    settings, loop = Settings(concurrency=1), asyncio.get_running_loop()
    worker = Worker(settings, engine, registry.get_family("layout"), page_pool, buffers, PageSlots(4), loop)
    output = str(folder / "out")
    files, _ = await batch.find_files([str(folder / "inbox")], output, settings)
    started = batch.Batch(files, batch.Arguments(output), TextReporter(), arrange=sorted_by_name)

    await batch.read_files(started, worker)

    assert [Path(file.name).name for file in started.outcomes] == ["two.PDF"]


class WaitingEngine(CpuEngine):
    """Reads files whose first page says `slow` only after `released` is set."""

    def __init__(self, sequences: int) -> None:
        super().__init__(sequences)
        self.released = asyncio.Event()

    async def generate(self, prompt: Prompt) -> Completion:
        assert prompt.page
        with pymupdf.open(prompt.page.file) as pdf:
            is_slow = "slow" in pdf[0].get_text()
        if is_slow:
            await self.released.wait()
        return await super().generate(prompt)


def sorted_by_name(files: Sequence[InputFile]) -> list[InputFile]:
    return sorted(files, key=lambda file: file.name)


class RecordingReporter(TextReporter):
    """Remembers the names of finished documents."""

    def __init__(self) -> None:
        super().__init__()
        self.finished: list[str] = []

    def report_document(self, row: Mapping[str, Any]) -> None:
        super().report_document(row)
        self.finished.append(Path(row["file"]).name)


async def test_finished_files_do_not_wait_for_a_slow_one(
    folder: Path, page_pool: PagePool, buffers: PixelBufferPool
) -> None:
    """While one file is slow, the files after it are started, finished, stored and reported one after another."""
    for name in ("a-slow", "three", "zero"):
        with pymupdf.open() as pdf:
            pdf.new_page().insert_text((72, 90), f"This is {name}")
            pdf.save(folder / "inbox" / f"{name}.pdf")
    engine = WaitingEngine(2)
    await engine.open(page_pool)
    settings, loop = Settings(concurrency=2), asyncio.get_running_loop()
    worker = Worker(settings, engine, registry.get_family("layout"), page_pool, buffers, PageSlots(4), loop)
    output, reporter = str(folder / "out"), RecordingReporter()
    files, _ = await batch.find_files([str(folder / "inbox")], output, settings)
    started = batch.Batch(files, batch.Arguments(output), reporter, arrange=sorted_by_name)

    reading = asyncio.create_task(batch.read_files(started, worker))
    async with asyncio.timeout(60):
        while len(reporter.finished) < 4:
            await asyncio.sleep(0.01)
    finished, stored = set(reporter.finished), document_folders(folder)
    engine.released.set()
    await reading

    assert finished == {"one.pdf", "two.PDF", "three.pdf", "zero.pdf"}
    assert {name.partition("-")[0] for name in stored} == {"one", "two", "three", "zero"}
    assert reporter.finished[-1] == "a-slow.pdf"
