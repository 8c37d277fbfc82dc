"""What `twopass read` shows on a terminal, in a pipe, to programs, and in quiet."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pymupdf
import pytest
from rich.console import Console
from rich.progress import Progress as RichProgress

from tests.fakes.terminal import run_in_pipes, run_in_terminal
from twopass.cli.reporters import Bars, BarState, limit_rate
from twopass.pages.file_types import NAMES

READ = [sys.executable, "-m", "twopass.cli", "read", "inbox", "--output", "out"]
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")  # any but the line feed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose inbox has two documents and a file that is none."""
    (tmp_path / "inbox").mkdir()
    for name, pages in (("one", 1), ("two", 2)):
        with pymupdf.open() as pdf:
            for _ in range(pages):
                pdf.new_page().insert_text((72, 90), f"This is {name}")
            pdf.save(tmp_path / "inbox" / f"{name}.pdf")
    (tmp_path / "inbox" / "bad.pdf").write_bytes(b"<html>Log in</html>")
    return tmp_path


def environment(folder: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "PAGE_WORKERS": "1"}


def read(folder: Path, *options: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run the command with its output in pipes."""
    return run_in_pipes([*READ, *options], folder, {**environment(folder), **settings})


def test_a_terminal_shows_one_bar_for_a_folder(folder: Path) -> None:
    """The bar counts files and pages of the folder; a document's name is only in its line."""
    code, written = run_in_terminal(READ, folder, environment(folder))

    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)
    bars = {line.strip() for line in re.split(r"[\r\n]+", text) if "files," in line}
    assert code == 1 and "\x1b[" in written
    assert bars and all(re.match(r"inbox .* [0-2]/3 files, [0-3] pages(, writing \d/\d)? ", bar) for bar in bars)
    assert [text.count(f"inbox/{name}.pdf") for name in ("one", "two")] == [1, 1]
    assert "2 read, 0 in part, 1 failed; 3 pages; total " in text
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")  # the cursor is visible again


def test_a_narrow_terminal_without_colours_shows_every_word(folder: Path) -> None:
    """Lines are wrapped by the terminal and not cut, NO_COLOR is respected, and the first line has no figures."""
    variables = {**environment(folder), "NO_COLOR": "1"}

    code, written = run_in_terminal(READ, folder, variables, columns=40)

    assert code == 1
    assert not re.search(r"\x1b\[(3[0-7]|38;[\d;]+)m", written)
    assert written.startswith("3 documents; engine cpu starts\r\n")
    assert f"SOURCE_UNSUPPORTED: by its content, the source is not a {NAMES} file" in written
    assert re.search(r"success: inbox/two.pdf \(2 read\) -> out/two-[0-9a-f]{12}/", written)


def test_a_bar_is_moved_and_ends_with_its_work() -> None:
    """There is one bar for each name, and none for what is done, also if it was done at once."""
    progress = RichProgress(console=Console(file=io.StringIO()))
    bars = Bars(progress)

    for name, share in (("a", None), ("a", 0.5), ("b", 0.1), ("c", 1.0), ("b", 1.0)):
        bars.show(name, share, "")

    assert [(task.description, task.completed) for task in progress.tasks] == [("a", 0.5)]


def test_a_pipe_gets_no_control_characters(folder: Path) -> None:
    """Without a terminal there is a line for each document and one summary, also where FORCE_COLOR asks for colours."""
    ran = read(folder, FORCE_COLOR="1", LOG_LEVEL="ERROR")

    assert not CONTROL.search(ran.stdout + ran.stderr)
    assert "worker ready" not in ran.stderr
    assert {line.partition(" (")[0] for line in ran.stderr.splitlines()} == {
        "success: inbox/one.pdf",
        "success: inbox/two.pdf",
        "failure: inbox/bad.pdf",
    }
    assert re.fullmatch(
        r"files: 2 read, 0 in part, 1 failed; 3 pages; total [\d.]+ s, of which start [\d.]+ s; "
        r"[\d.e-]+ pages per second after the start; mean per page, with waiting: rendering [\d.]+ s, "
        r"reading [\d.]+ s; out/batch_summary.json\n",
        ran.stdout,
    )


def test_json_is_one_object_per_line(folder: Path) -> None:
    """Every line of both streams is an object; stdout has the summary without its rows."""
    ran = read(folder, "--log-format", "json", LOG_FORMAT="text")

    events = [json.loads(line) for line in ran.stderr.splitlines()]
    finished = {event["file"]: event["status"] for event in events if event["message"] == "document finished"}
    assert finished == {"inbox/one.pdf": "success", "inbox/two.pdf": "success", "inbox/bad.pdf": "failure"}
    (summary,) = map(json.loads, ran.stdout.splitlines())
    assert (summary["success"], summary["failed"], summary["pages_read_now"]) == (2, 1, 3)


def test_more_is_logged_if_it_is_asked_for(folder: Path) -> None:
    """-v logs what goes on, -vv also what is only of use to find a mistake."""
    ran = read(folder, "-v")

    assert "worker ready" in ran.stderr and "success: inbox/one.pdf" in ran.stderr


@pytest.mark.parametrize("options", [("--log-format", "quiet"), ("-q",)])
def test_quiet_shows_errors_and_the_summary(folder: Path, options: tuple[str, ...]) -> None:
    """Documents that were read are not mentioned one by one."""
    ran = read(folder, *options)

    (line,) = ran.stderr.splitlines()
    assert line.startswith("failure: inbox/bad.pdf (SOURCE_UNSUPPORTED: ")
    assert ran.stdout.startswith("files: 2 read, 0 in part, 1 failed; ")


PRINT_AROUND = """
import os, sys
from twopass.cli.reporters import reserve_stdout
with reserve_stdout() as stdout:
    print("a library", flush=True)
    os.system("echo a child")
    stdout.write(b"the result\\n")
print("after")
"""


def test_nothing_but_the_result_reaches_a_reserved_stdout() -> None:
    """Libraries and child processes that print meanwhile are on stderr, and what is printed later is not."""
    ran = subprocess.run([sys.executable, "-c", PRINT_AROUND], capture_output=True, text=True, timeout=60)

    assert (ran.stdout, ran.stderr) == ("the result\nafter\n", "a library\na child\n")


def test_progress_lines_are_ten_seconds_apart() -> None:
    """Where no bars are drawn, states in between are left out, and the first one comes after ten seconds."""
    now, shown = 0.0, list[str]()
    show = limit_rate(lambda bar: shown.append(bar.note), clock=lambda: now)

    for second in range(35):
        now = float(second)
        show(BarState("inbox", 0.5, str(second), {}))

    assert shown == ["10", "20", "30"]


WAIT_TWICE = """
import time
from twopass.cli.batch import end_at_second_interrupt
def wait():
    for _ in range(600):  # a signal just before a sleep does not shorten it
        time.sleep(0.1)

try:
    with end_at_second_interrupt():
        print("reading", flush=True)
        wait()
except KeyboardInterrupt:
    print("closing", flush=True)
    wait()
"""


def test_a_second_ctrl_c_ends_the_process_at_once() -> None:
    """The first Ctrl-C closes what is open; the second does not wait for that, with the same exit code."""
    with subprocess.Popen([sys.executable, "-c", WAIT_TWICE], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        for expected in ("reading\n", "closing\n"):
            assert running.stdout.readline() == expected
            running.send_signal(signal.SIGINT)

        assert running.wait(timeout=30) == 130
