"""scripts/submit.py: documents in, jobs of an endpoint out, against real workers and an endpoint that misbehaves."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymupdf
import pytest
from rich.console import Console

from tests import ROOT
from tests.fakes import s3
from tests.fakes.platform import Json, Platform, Queued, Scripted
from tests.fakes.queue import LoopbackQueue
from twopass.fleet.campaign import Ended, Plan
from twopass.fleet.discovery import Item, found
from twopass.fleet.display import Board, span
from twopass.fleet.endpoints.runpod import LocalApi, Phase, seen
from twopass.fleet.estimate import estimate
from twopass.fleet.ledger import Ledger
from twopass.settings import Settings

sys.path.insert(0, str(ROOT / "scripts"))

import submit as script

FLEET = ROOT / "docs" / "fleet.md"
HANDLER = [sys.executable, str(ROOT / "handler.py")]
VOLATILE = ("manifest.json", "jobs/")


def pdf(pages: int, title: str = "Chapter") -> bytes:
    with pymupdf.open() as made:
        for number in range(1, pages + 1):
            page = made.new_page()
            page.insert_text((72, 90), f"{number} {title} {number}", fontsize=18, fontname="hebo")
            page.insert_textbox((72, 120, 500, 400), f"It lifts water to tower {number}.\n" * 3, fontsize=11)
        return bytes(made.tobytes())


@dataclass(frozen=True)
class Ran:
    code: int
    told: str


@pytest.fixture(autouse=True)
def at_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who submits stands in the folder and has a key."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("RUNPOD_API_KEY", "secret-key")


def submit(*arguments: str, **settings: Any) -> Ran:
    """The command in this process, looking often and counting no pages unless told."""
    console = Console(file=io.StringIO(), width=200)
    usual = [] if "--slice-pages" in arguments else ["--slice-pages", "0"]
    args = script._arguments([*arguments, "--poll-s", "0.02", *usual])
    return Ran(script.command(args, Settings(**settings), console), console.file.getvalue())  # type: ignore[attr-defined]


def spawned(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """The command as a process of its own."""
    env = {"PATH": os.environ["PATH"], "HOME": os.getcwd(), "RUNPOD_API_KEY": "secret-key", **environment}
    return subprocess.Popen(
        [sys.executable, str(ROOT / "scripts" / "submit.py"), *arguments], env=env, stderr=subprocess.PIPE, text=True
    )


def summary_in(folder: Path) -> Json:
    return dict(json.loads((folder / "submitted" / "submit_summary.json").read_text()))


def result(job: Json, **changes: Any) -> Json:
    """What a worker answers that read everything."""
    document = {"id": "one-0123456789ab", "source": job["source"][:80], "status": "success", "pages": {"read": 1}}
    usage = {"pages_read_now": 1, "engine_s": 2.0}
    output = {"status": "success", "documents": [{**document, **changes}], "problems": [], "usage": usage}
    return {"status": "COMPLETED", "output": output, "executionTime": 3000}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "one.pdf").write_bytes(pdf(1))
    return tmp_path


@pytest.fixture(scope="module")
def fleet() -> Iterator[tuple[LoopbackQueue, list[Any], str, dict[str, str], Any]]:
    """Three worker processes of one page worker each, on one queue and one S3."""
    with ExitStack() as stack:
        endpoint = stack.enter_context(s3.moto_server())
        client = stack.enter_context(s3.client(endpoint, "bucket"))
        keys = {
            "BUCKET_ENDPOINT_URL": endpoint,
            "BUCKET_ACCESS_KEY_ID": s3.KEY,
            "BUCKET_SECRET_ACCESS_KEY": s3.SECRET,
        }
        env = {**keys, "PAGE_WORKERS": "1", "CONCURRENCY": "1", "PROGRESS_INTERVAL_S": "0.1", "PRICE_PER_SECOND": "0.5"}
        queue = stack.enter_context(LoopbackQueue())
        workers = [stack.enter_context(queue.worker(HANDLER, cwd=ROOT, env=env)) for _ in range(3)]
        url = stack.enter_context(Platform(Queued(queue)).running())
        yield queue, workers, url, keys, client


def test_three_workers_one_of_them_killed_leave_what_one_job_leaves(fleet: Any, tmp_path: Path) -> None:
    """Sliced over three processes, with one lost in the middle, every byte is as in one unsliced job."""
    queue, workers, url, keys, client = fleet
    (tmp_path / "long.pdf").write_bytes(pdf(12))
    arguments = ["--endpoint", url, "--upload", "s3://bucket/in/", "--slice-pages", "3", "--poll-s", "0.1"]
    running = spawned("long.pdf", *arguments, "--output", "s3://bucket/sliced/", "--save", **keys)
    (job, worker) = victim(queue, workers)
    worker.kill()
    queue.redeliver(job)  # as the platform does when a worker's heartbeats stop
    _, told = running.communicate(timeout=300)

    assert running.returncode == 0, told
    row = summary_in(tmp_path)["documents"][0]
    assert (row["pages"], row["jobs"]) == ({"read": 12}, 5)
    assert row["cost"] > 0
    plain = queue.wait(queue.put({"input": {"source": the_source(client), "output": "s3://bucket/whole/"}}), 120)
    assert plain.output["documents"][0]["id"] == row["id"]
    sliced, whole = written(client, "sliced/"), written(client, "whole/")
    assert len(sliced) > 12 and sliced == whole
    assert len({take.worker for take in queue.takes if take.dealt}) == 3
    assert (tmp_path / "submitted" / row["id"] / "document.md").read_bytes() == whole[f"{row['id']}/document.md"]


async def test_a_local_apis_job_is_known_to_nobody_after_it() -> None:
    """The ledger keeps its number, and the next process may not find another document's job under it."""
    async with LocalApi("http://127.0.0.1:9", tries=1) as first:
        earlier = await first.submit({"source": "b.pdf"})
    async with LocalApi("http://127.0.0.1:9", tries=1) as second:
        later = await second.submit({"source": "a.pdf"})
        gone = await second.look(earlier)

    assert earlier != later
    assert gone.phase is Phase.GONE


def victim(queue: LoopbackQueue, workers: list[Any]) -> tuple[str, Any]:
    """A job that a worker has begun, and that worker."""
    until = time.monotonic() + 180
    while time.monotonic() < until:
        for take in queue.takes:
            for job in take.dealt:
                if queue.posts(job) and queue.look(job).status == "IN_PROGRESS":  # type: ignore[union-attr]
                    return job, next(worker for worker in workers if worker.id == take.worker)
        time.sleep(0.05)
    raise AssertionError("no worker began")


def the_source(client: Any) -> str:
    return "s3://bucket/" + next(key for key in s3.objects(client) if key.startswith("in/"))


def written(client: Any, prefix: str) -> dict[str, bytes]:
    """What is promised to be equal: every object but the manifest, the jobs' own, and the cost in checkpoints."""
    found = {}
    for page in client.get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix=prefix):
        for entry in page.get("Contents", ()):
            name = entry["Key"].removeprefix(prefix)
            if not any(part in name for part in VOLATILE):
                data = client.get_object(Bucket="bucket", Key=entry["Key"])["Body"].read()
                found[name] = without_cost(data) if "/pages/" in name else data
    return found


def without_cost(checkpoint: bytes) -> bytes:
    return json.dumps({name: value for name, value in json.loads(checkpoint).items() if name != "cost"}).encode()


def test_a_prefix_on_s3_and_small_files_without_a_bucket_are_read_too(fleet: Any, tmp_path: Path) -> None:
    """S3 objects are named as they are; a file travels in its job, and what comes back inline becomes a file."""
    _, _, url, keys, client = fleet
    client.put_object(Bucket="bucket", Key="shelf/a.pdf", Body=pdf(1, "Alpha"))
    client.put_object(Bucket="bucket", Key="shelf/notes.txt", Body=b"no document")
    (tmp_path / "b.pdf").write_bytes(pdf(1, "Beta"))

    shelf = submit(
        "s3://bucket/shelf/",
        "--endpoint",
        url,
        "--output",
        "s3://bucket/o/",
        **{name.lower(): value for name, value in keys.items()},
    )
    alone = submit("b.pdf", "--endpoint", url, "--folder", "alone")

    assert (shelf.code, alone.code) == (0, 0), shelf.told + alone.told
    assert [row["source"] for row in summary_in(tmp_path)["documents"]] == ["s3://bucket/shelf/a.pdf"]
    assert "Beta" in next((tmp_path / "alone").glob("*/document.md")).read_text()


@pytest.fixture
def scripted(folder: Path) -> Iterator[Callable[..., tuple[Platform, str]]]:
    """Starts an endpoint that answers by a function."""
    with ExitStack() as stack:

        def start(answer: Callable[[Json], Json | None], **fields: Any) -> tuple[Platform, str]:
            platform = Platform(Scripted(answer), **fields)
            return platform, stack.enter_context(platform.running())

        yield start


def test_a_rate_limit_is_obeyed(folder: Path, scripted: Any) -> None:
    """After 429 nothing is asked before Retry-After is over, and nothing is lost."""
    platform, url = scripted(result, refusals=[(429, "1")])

    ran = submit("one.pdf", "--endpoint", url)

    times = [at for at, _, path in platform.seen if path == "/run"]
    assert ran.code == 0, ran.told
    assert len(times) == 2 and times[1] - times[0] >= 1
    assert platform.bodies[0]["policy"] == {"executionTimeout": 600_000}


def test_a_busy_endpoint_is_asked_again_and_a_wrong_key_is_not(folder: Path, scripted: Any) -> None:
    """500 and 503 are passed over; 401 ends the run with exit code 3 and says what to check."""
    _, busy = scripted(result, refusals=[(500, None), (503, "0")])
    wrong, url = scripted(result, key="another")

    assert submit("one.pdf", "--endpoint", busy).code == 0
    refused = submit("one.pdf", "--endpoint", url, "--folder", "x")

    assert refused.code == 3
    assert "ENDPOINT_DENIED" in refused.told and "RUNPOD_API_KEY" in refused.told
    assert len(wrong.seen) == 1
    assert "secret-key" not in refused.told


@pytest.mark.parametrize(
    "lost",
    [
        None,
        {"status": "TIMED_OUT"},
        {"status": "COMPLETED"},
        {"status": "FAILED", "error": "ENGINE_DEAD: gone"},
        {"status": "FAILED", "error": "SHUTDOWN: told to stop", "output": {"detail": {"documents": []}}},
    ],
    ids=["forgotten", "timed out", "result lost", "engine dead", "shut down"],
)
def test_a_job_that_was_lost_is_sent_again(folder: Path, scripted: Any, lost: Json | None) -> None:
    """What another try may mend is tried again; the pages that were read lie in the store."""
    answers = [lost]
    platform, url = scripted(lambda job: answers.pop() if answers else result(job))

    ran = submit("one.pdf", "--endpoint", url)

    assert ran.code == 0, ran.told
    assert len(platform.bodies) == 2


@pytest.mark.parametrize(
    ("answer", "sent", "code"),
    [
        ({"status": "TIMED_OUT"}, 2, "JOB_LOST"),
        ({"status": "FAILED", "error": "ENCRYPTED: the PDF is encrypted"}, 1, "ENCRYPTED"),
        ({"status": "CANCELLED"}, 1, "JOB_LOST"),
        ({"status": "FAILED", "error": "ENGINE_DEAD: gone"}, 2, "ENGINE_DEAD"),
    ],
)
def test_what_does_not_end_well_is_told_with_its_code(
    folder: Path, scripted: Any, answer: Json, sent: int, code: str
) -> None:
    """Exit code 1, the code in the summary, and no more jobs than could help."""
    platform, url = scripted(lambda job: answer)

    ran = submit("one.pdf", "--endpoint", url, "--tries", "2")

    assert ran.code == 1
    assert summary_in(folder)["documents"][0]["error"].startswith(code)
    assert len(platform.bodies) == sent


def test_a_job_that_comes_further_every_time_is_not_given_up(folder: Path, scripted: Any) -> None:
    """Pages left by a deadline are asked for until there are none, however many tries that takes."""
    left = [3, 2, 1, 0]

    def answer(job: Json) -> Json:
        unread = left.pop(0)
        told = result(job, pages={"read": 4 - unread, "unread": unread} if unread else {"read": 4})
        told["output"]["status"] = "partial_success" if unread else "success"
        return told

    platform, url = scripted(answer)
    ran = submit("one.pdf", "--endpoint", url, "--tries", "1", "--price-per-hour", "3600")

    assert ran.code == 0, ran.told
    assert len(platform.bodies) == 4
    assert summary_in(folder)["cost"] == 8.0  # four jobs, two seconds of the engine each
    assert summary_in(folder)["cost_per_1000_pages"] == 2000.0  # each job read one of four pages


def test_the_same_command_again_sends_nothing_that_is_done(folder: Path, scripted: Any) -> None:
    """What ended well is in the state file; another document is sent alone, and a changed one again."""
    platform, url = scripted(result)
    command = ["one.pdf", "two.pdf", "--endpoint", url]
    (folder / "two.pdf").write_bytes(pdf(2))

    submit("one.pdf", "--endpoint", url)
    submit(*command)
    again = submit(*command)
    (folder / "two.pdf").write_bytes(pdf(3))
    submit(*command)

    assert again.code == 0, again.told
    assert len(platform.bodies) == 3
    assert summary_in(folder)["total_documents"] == 2


def test_after_ctrl_c_the_job_that_is_out_is_picked_up(folder: Path, scripted: Any) -> None:
    """Stopped, it says how many jobs go on; the same command waits for them and sends none anew."""
    ready: list[bool] = []
    platform, url = scripted(lambda job: result(job) if ready else {"status": "IN_PROGRESS", "output": {"seq": 1}})
    running = spawned("one.pdf", "--endpoint", url, "--slice-pages", "0", "--poll-s", "0.05")
    until = time.monotonic() + 120
    while not any(path.startswith("/status") for _, _, path in list(platform.seen)):
        assert time.monotonic() < until and running.poll() is None
        time.sleep(0.05)

    running.send_signal(signal.SIGINT)
    _, told = running.communicate(timeout=30)
    ready.append(True)
    again = submit("one.pdf", "--endpoint", url)

    assert running.returncode == 130
    assert "1 jobs go on" in told
    assert again.code == 0, again.told
    assert len(platform.bodies) == 1


def test_cancel_ends_what_was_left_at_the_endpoint(folder: Path, scripted: Any) -> None:
    """Nobody pays for jobs that nobody waits for."""
    platform, url = scripted(result)
    Ledger(folder / "submitted" / "state.jsonl").send("key", "job-7")

    ran = submit("--cancel", "--endpoint", url)

    assert ran.code == 0, ran.told
    assert platform.behind.stopped == ["job-7"]
    assert Ledger(folder / "submitted" / "state.jsonl").out == {}


def test_slices_that_never_ended_well_are_paid_for_too(folder: Path, scripted: Any) -> None:
    """A document's cost is that of all its jobs; the last one reads what a lost slice left."""

    def answer(job: Json) -> Json:
        return {"status": "TIMED_OUT", "executionTime": 5000} if job.get("slice") == "1-2" else result(job)

    (folder / "long.pdf").write_bytes(pdf(4))
    _, url = scripted(answer)
    arguments = ["--slice-pages", "2", "--upload", str(folder / "up"), "--tries", "2", "--price-per-hour", "3600"]
    ran = submit("long.pdf", "--endpoint", url, *arguments)

    assert ran.code == 0, ran.told
    assert summary_in(folder)["cost"] == 14.0  # twice five seconds for nothing, and two good jobs of two
    assert summary_in(folder)["documents"][0]["jobs"] == 3


def test_a_job_that_was_lost_in_the_end_keeps_what_its_tries_read_and_took(folder: Path, scripted: Any) -> None:
    """The first try reads three of four pages and tells its cost, the others tell nothing: all of that stays."""
    partial = result({"source": "x"}, pages={"read": 3, "unread": 1}, status="partial_success")
    partial["output"] |= {"status": "partial_success", "usage": {"pages_read_now": 3, "engine_s": 2.0, "cost": 0.5}}
    answers = [partial]
    _, url = scripted(lambda job: answers.pop() if answers else {"status": "TIMED_OUT", "executionTime": 5000})

    ran = submit("one.pdf", "--endpoint", url, "--tries", "2")

    (told,) = summary_in(folder)["documents"]
    assert ran.code == 1
    assert told["error"].startswith("JOB_LOST") and told["pages"] == {"read": 3, "unread": 1}
    assert summary_in(folder)["cost"] == 0.5 and told["seconds"] == 12.0


def test_the_documented_line_for_a_list_is_typed(folder: Path, scripted: Any) -> None:
    """As it stands in docs/fleet.md, but for the endpoint: every place of the list, the fields in every job."""
    (line,) = re.findall(r"^\.venv/bin/python scripts/submit\.py (@papers\.txt .*)$", FLEET.read_text(), re.M)
    (folder / "papers.txt").write_text("# two of them\none.pdf\n\ntwo.pdf\n")
    (folder / "two.pdf").write_bytes(pdf(2))
    platform, url = scripted(result)

    ran = submit(*shlex.split(line.replace("ENDPOINT_ID", url)))

    assert ran.code == 0, ran.told
    sent = [body["input"] for body in platform.bodies]
    assert len(sent) == 2
    assert all((job["mode"], job["pages"], job["output"]) == ("base", "1-20", "s3://bucket/out/") for job in sent)


def test_no_more_jobs_are_out_than_allowed(folder: Path, scripted: Any) -> None:
    """The bound holds over all documents and slices together."""
    asked: dict[str, int] = {}
    most = []

    def answer(job: Json) -> Json:
        asked[job.get("slice", "all")] = asked.get(job.get("slice", "all"), 0) + 1
        out = len(platform.bodies) - sum(count > 2 for count in asked.values())
        most.append(out)
        return result(job) if asked[job.get("slice", "all")] > 2 else {"status": "IN_PROGRESS"}

    (folder / "long.pdf").write_bytes(pdf(12))
    platform, url = scripted(answer)
    arguments = ["--slice-pages", "2", "--in-flight", "2", "--upload", str(folder / "up")]
    ran = submit("long.pdf", "--endpoint", url, *arguments)

    assert ran.code == 0, ran.told
    assert len(platform.bodies) == 7
    assert max(most) <= 2
    assert "slice" not in platform.bodies[-1]["input"]


def test_a_dry_run_counts_and_estimates_and_sends_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Pages, jobs, minutes and dollars, before there is even an endpoint."""
    (folder / "long.pdf").write_bytes(pdf(250))

    figures = ["--pages-per-s", "2", "--workers", "2", "--price-per-hour", "3.6"]
    ran = submit("one.pdf", "long.pdf", "--dry-run", "--slice-pages", "100", *figures)

    told = json.loads(capsys.readouterr().out)
    assert ran.code == 0, ran.told
    assert (told["documents"], told["pages"], told["jobs"]) == (2, 251, 5)
    assert (told["minutes"], told["dollars"]) == (1.0, 0.1255)
    assert not (folder / "submitted").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["none.pdf", "--endpoint", "x"], "SOURCE_NOT_FOUND: none.pdf"),
        (["one.pdf", "--endpoint", "x", "--job", '{"colour": 1}'], "INVALID_JOB: colour"),
    ],
)
def test_a_wrong_argument_is_told_before_anything_is_sent(folder: Path, arguments: list[str], says: str) -> None:
    """Exit code 2 and one line that says what to write."""
    ran = submit(*arguments)

    assert ran.code == 2
    assert says in ran.told


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["one.pdf"], "--endpoint or a --local URL"), ([], "at least one file"), (["a", "--job", "[]"], "JSON object")],
)
def test_an_incomplete_command_says_what_is_missing(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As every command line tool does."""
    with pytest.raises(SystemExit):
        script._arguments([*arguments, *(["--endpoint", "x"] if "--job" in arguments else [])])

    assert says in capsys.readouterr().err


def test_a_file_too_large_for_a_job_costs_only_itself(folder: Path, scripted: Any) -> None:
    """It names --upload, and the others are read."""
    _, url = scripted(result)
    (folder / "big.pdf").write_bytes(pdf(1) + b"\n" * 7_000_001)

    ran = submit("one.pdf", "big.pdf", "--endpoint", url)

    rows = summary_in(folder)["documents"]
    assert ran.code == 1
    assert rows[0]["status"] == "success"
    assert "--upload" in rows[1]["error"]


@pytest.mark.parametrize(
    ("fields", "pages", "slices"),
    [
        ({}, 100, []),
        ({}, 101, ["1-100", "101-101"]),
        ({}, None, []),
        ({"pages": "50-260"}, 300, ["50-149", "150-249", "250-260"]),
        ({"pages": "1-20,200-"}, 290, ["1-279", "280-290"]),
        ({"resume": False}, 300, []),
    ],
)
def test_slices_hold_the_pages_that_are_asked_for(fields: Json, pages: int | None, slices: list[str]) -> None:
    """Each is a range with so many of the selected pages; none where one job does it all."""
    assert Plan(fields, "x").slices(pages) == slices


def test_a_list_names_places_line_by_line(tmp_path: Path) -> None:
    """Comments and blank lines are passed over, doubles are read once, the folder of results never."""
    (tmp_path / "in").mkdir()
    for name in ("in/a.pdf", "in/b.TIF", "in/c.txt"):
        (tmp_path / name).touch()
    (tmp_path / "in" / "out").mkdir()
    (tmp_path / "in" / "out" / "crop.png").touch()
    (tmp_path / "list.txt").write_text(f"# mine\n\n{tmp_path}/in\n{tmp_path}/in/a.pdf\nhttps://h/x.pdf\n")

    items = asyncio.run(found([f"@{tmp_path}/list.txt"], Settings(), tmp_path / "in" / "out"))

    assert items == [Item(f"{tmp_path}/in/a.pdf"), Item(f"{tmp_path}/in/b.TIF"), Item("https://h/x.pdf")]


def test_a_cut_off_line_of_the_state_costs_only_itself(tmp_path: Path) -> None:
    """A crash in the middle of a write leaves half a line; the rest is read, and the next line stands alone."""
    path = tmp_path / "state.jsonl"
    Ledger(path).send("a", "1")
    path.write_text(path.read_text() + '{"key": "b", "jo')
    Ledger(path).send("c", "3")

    assert Ledger(path).out == {"a": "1", "c": "3"}


def test_the_state_tells_nothing_of_a_password(folder: Path, scripted: Any) -> None:
    """Only a hash of the job is kept."""
    _, url = scripted(result)

    submit("one.pdf", "--endpoint", url, "--job", '{"password": "swordfish"}')

    assert "swordfish" not in (folder / "submitted" / "state.jsonl").read_text()


@pytest.mark.parametrize(
    ("answer", "phase"),
    [
        ({"status": "IN_QUEUE"}, Phase.WAITING),
        ({"status": "IN_PROGRESS", "output": {"pages_done": 1}}, Phase.RUNNING),
        ({"status": "COMPLETED", "output": {"status": "success"}}, Phase.ENDED),
        ({"status": "FAILED", "error": "INTERNAL: x"}, Phase.ENDED),
        ({"status": "COMPLETED"}, Phase.GONE),
        ({"status": "TIMED_OUT"}, Phase.GONE),
    ],
)
def test_every_status_of_the_platform_is_known(answer: Json, phase: Phase) -> None:
    """COMPLETED without output is a result that the platform lost."""
    assert seen(answer).phase is phase


def test_an_estimate_without_figures_says_so_and_a_last_run_serves() -> None:
    """No pace is invented: the last run's, else the one that was measured, and on what."""
    rows = [("a", 1000, 11), ("b", None, 1)]
    measured = json.loads((ROOT / "docs" / "bench" / "h200.json").read_text())["job_mix"]["pages_per_s"]

    unknown = estimate(rows, None, 1, 3.6, {})
    assert unknown["minutes"] == round(1000 / measured / 60, 1)
    assert unknown["dollars"] == pytest.approx(1 / measured, rel=0.01)
    assert "H200" in unknown["by"] and "--pages-per-s" in unknown["by"]
    last = estimate(rows, None, 1, None, {"pages_per_s": 5, "cost_per_1000_pages": 0.4})
    assert (last["minutes"], last["dollars"], last["not counted"]) == (3.3, 0.4, 1)


def test_the_total_bar_tells_pace_time_left_and_cost() -> None:
    """Ten of forty pages in five seconds leave fifteen."""
    now = [0.0]
    board = Board(2, Console(file=io.StringIO()), clock=lambda: now[0])
    board.found("a", 40, 1)
    now[0] = 5.0
    board.moved("a", 10, "reading")

    assert board.note(40, 10) == "2.00/s · 15 s left · 0/2 documents"
    board.ended(Ended("a", 40, 1, cost=0.25, result={"status": "success"}))
    assert board.note(40, 40).endswith("1/2 documents · $0.2500")
    assert span(3700) == "1 h 1 min"
