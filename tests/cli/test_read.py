"""scripts/process.py: a folder in, artefacts and a summary out, again without reading again."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pymupdf
import pytest

from tests import ROOT
from tests.fakes import openai_server
from twopass.cli import terminal
from twopass.engines.cpu.engine import CpuEngine
from twopass.engines.interface import Completion, Prompt
from twopass.errors import TwopassError
from twopass.families import registry
from twopass.job import Result
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool
from twopass.runtime.page_slots import PageSlots
from twopass.settings import Settings
from twopass.steps import canary
from twopass.worker import Worker

sys.path.insert(0, str(ROOT / "scripts"))

import process as script


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


def process(folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "process.py"), "inbox", "--output", "out", *arguments]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **settings}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def test_a_folder_is_read_and_summed_up(folder: Path) -> None:
    """Every document below the folder, whatever its suffix's case, and nothing else."""
    ran = process(folder)

    summary = json.loads((folder / "out" / "batch_summary.json").read_text())
    assert ran.returncode == 0, ran.stderr
    assert (summary["total_files"], summary["success"], summary["failed"]) == (2, 2, 0)
    assert all(Path(folder, path).exists() for row in summary["results"] for path in row["output"].values())


async def test_a_folder_is_read_by_a_server_of_models(folder: Path) -> None:
    """ENGINE=openai with OPENAI_BASE_URL, OPENAI_MODES and OPENAI_PRIORITY: the canary first, then every page."""
    said = f"<|ref|>text<|/ref|><|det|>[[100, 100, 900, 200]]<|/det|>\n{' '.join(canary.LINES)}"
    async with openai_server.running(openai_server.OpenAIServer(answer=said)) as server:
        told = {"ENGINE": "openai", "OPENAI_BASE_URL": server.url, "OPENAI_MODES": "true", "OPENAI_PRIORITY": "true"}
        ran = await asyncio.to_thread(process, folder, **told)

    summary = json.loads((folder / "out" / "batch_summary.json").read_text())
    assert ran.returncode == 0, ran.stderr
    assert (summary["success"], summary["failed"]) == (2, 0)
    assert len(server.requests) >= 3
    assert all("priority" in asked and "mm_processor_kwargs" in asked for asked in server.requests)


@pytest.mark.parametrize(
    ("arguments", "engine", "preset"),
    [
        ([], "openai", "auto"),
        (["--preset", "cpu"], "cpu", "auto"),
        (["--preset", "24"], "vllm", "24"),
        (["--preset", "rtx4090"], "vllm", "rtx4090"),
    ],
)
def test_a_preset_chooses_the_engine_and_without_one_the_environment_does(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], engine: str, preset: str
) -> None:
    """Nobody who sets ENGINE gets another."""
    monkeypatch.setenv("ENGINE", "openai")
    args = script._arguments(["inbox", *arguments])
    chosen = Settings(**script.PRESETS[args.preset])

    assert (chosen.engine, chosen.preset) == (engine, preset)


def test_one_bad_file_is_told_and_the_rest_is_read(folder: Path) -> None:
    """The exit code says that something failed, the summary says what; a second run reads only that."""
    (folder / "inbox" / "bad.pdf").write_bytes(b"%PDF-1.7 rubbish")

    first = process(folder)
    manifests = {path: path.stat().st_mtime_ns for path in folder.rglob("manifest.json")}
    process(folder)

    rows = {
        Path(row["file"]).name: row
        for row in json.loads((folder / "out" / "batch_summary.json").read_text())["results"]
    }
    assert first.returncode == 1
    assert rows["bad.pdf"]["problems"][0]["code"] == "DAMAGED"
    assert rows["one.pdf"]["status"] == "success"
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("manifest.json")} == manifests


def test_an_empty_folder_is_said_so(tmp_path: Path) -> None:
    """Nothing to read is neither a success nor a crash."""
    (tmp_path / "inbox").mkdir()

    ran = process(tmp_path)

    assert ran.returncode == 2
    assert "nothing to read" in ran.stderr


def summary_in(folder: Path) -> dict[str, object]:
    return dict(json.loads((folder / "out" / "batch_summary.json").read_text()))


def folders(folder: Path) -> set[str]:
    """Names of the documents' folders."""
    return {path.parent.name for path in (folder / "out").glob("*/manifest.json")}


def test_what_lies_below_the_output_folder_is_not_read(tmp_path: Path) -> None:
    """Crops of an earlier run are no documents, wherever the output lies."""
    output = tmp_path / "output"
    (output / "report-0123456789ab" / "images").mkdir(parents=True)
    for place in ("scan.png", "output/report-0123456789ab/images/p0001-e001.png"):
        (tmp_path / place).touch()

    found = script.documents_below(tmp_path, output)

    assert found == [tmp_path / "scan.png"]


def test_files_of_one_name_have_jobs_of_their_own(tmp_path: Path) -> None:
    """Neither equal stems nor names that read alike once cleaned share a job's folder."""
    names = ("a/report.pdf", "b/report.pdf", "a-report.pdf", "a report.pdf", "report.pdf", "report.png")

    ids = {script.job_id(tmp_path / name, tmp_path) for name in names}

    assert len(ids) == len(names)
    assert script.job_id(tmp_path / names[0], tmp_path) in ids


def test_no_resume_reads_again_on_every_run(folder: Path) -> None:
    """Each such run leaves folders of its own and touches no finished one."""
    seen = []
    for arguments in ((), ("--no-resume",), ("--no-resume",)):
        process(folder, *arguments)
        seen.append(folders(folder))

    assert [len(names) for names in seen] == [2, 4, 6]
    assert seen[0] < seen[1] < seen[2]


def test_a_name_that_is_no_utf8_costs_only_its_own_file(folder: Path) -> None:
    """The summary tells of it, and the others are read."""
    os.rename(folder / "inbox" / "one.pdf", os.fsencode(folder / "inbox") + b"/one\xff.pdf")

    process(folder)

    summary = summary_in(folder)
    assert summary["total_files"] == 2
    assert summary["success"] in (1, 2)


def test_ctrl_c_leaves_a_summary_and_the_same_command_goes_on(folder: Path) -> None:
    """What had no result yet is unread, and is read by the next run."""
    with pymupdf.open() as pdf:
        for number in range(600):
            pdf.new_page().insert_text((72, 90), f"Page {number}")
        pdf.save(folder / "inbox" / "zlong.pdf")
    command = [sys.executable, str(ROOT / "scripts" / "process.py"), "inbox", "--output", "out"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    with (
        (folder / "said").open("w") as stderr,
        subprocess.Popen(command, cwd=folder, env=environment, stderr=stderr) as running,
    ):
        said = (folder / "said").read_text
        wait_for(lambda: said().count("success: inbox/") == 2 and any((folder / "out").glob("zlong-*/pages/*")))
        running.send_signal(signal.SIGINT)
        running.wait(timeout=60)

    errors, summary = said(), summary_in(folder)
    assert (running.returncode, summary["success"], summary["unread"]) == (130, 2, 1), errors
    assert "Traceback" not in errors


def wait_for(condition) -> None:  # type: ignore[no-untyped-def]
    ends = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.02)


class Stumbling(CpuEngine):
    """Breaks in a way nobody foresaw over every file whose first page says so."""

    async def generate(self, prompt: Prompt) -> Completion:
        assert prompt.page
        with pymupdf.open(prompt.page.file) as pdf:
            if "stumble" in pdf[0].get_text():
                raise LookupError("unforeseen")
        return await super().generate(prompt)


async def test_an_unforeseen_error_of_one_file_leaves_the_others_their_results(
    folder: Path, page_pool: PagePool, buffers: PixelBufferPool
) -> None:
    """It is raised when all are through, for whoever has to mend it."""
    with pymupdf.open() as pdf:
        pdf.new_page().insert_text((72, 90), "stumble")
        pdf.save(folder / "inbox" / "a.pdf")
    engine = Stumbling(2)
    await engine.open(page_pool)
    loop = asyncio.get_running_loop()
    worker = Worker(Settings(), engine, registry.named("layout"), page_pool, buffers, PageSlots(4), loop)
    inbox, output = folder / "inbox", folder / "out"
    args = argparse.Namespace(path=inbox, output=output, formats="markdown", pages=None, password=None, no_resume=False)
    ended: dict[Path, Result | TwopassError] = {}

    with terminal.several() as shown, pytest.raises(LookupError):
        await script.read_all(script.documents_below(inbox, output), args, worker, shown, ended)

    assert {file.name for file in ended} == {"one.pdf", "two.PDF"}
