"""`twopass serve` reports to nobody: what it asks the network for, and which files it leaves."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.isolation import PAGES, build_book, isolate
from tests.server.conftest import run_server


def test_the_server_asks_nobody_and_leaves_nothing(tmp_path: Path) -> None:
    """Forty pages with OCR are read without a connection or a look-up; only its own folder is written."""
    with isolate(tmp_path) as machine:
        with run_server(tmp_path / "jobs", **machine.environment) as server:
            job = server.wait(server.send(build_book()).json()["id"], timeout_s=300)
            address = server.client.base_url.netloc.decode()
            server.stop()

        assert job["result"]["documents"][0]["pages"] == {"read": PAGES}
        assert (machine.list_destinations(), machine.list_files()) == ({address}, [])
    assert {path.name for path in tmp_path.iterdir()} == {"home", "jobs", "jobs.log", "scratch"}
