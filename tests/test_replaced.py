"""A worker whose engine cannot be restarted, under the unmodified SDK, asks to be replaced and takes no more jobs."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.fakes.queue import LoopbackQueue, Worker
from tests.test_pipeline import make_chapter_pdf

WORKER = """
import sys

sys.path.insert(0, {root!r})

import handler
from tests.test_pipeline import ScriptedEngine
from twopass.engines import factory
from twopass.errors import Code, EngineError


class Dying(ScriptedEngine):
    needs_canary = False

    async def generate(self, prompt):
        self.is_gone = self.is_gone or prompt.id.endswith("3")
        if self.is_gone:
            raise EngineError(Code.ENGINE_DEAD, "the engine died too often")
        return await super().generate(prompt)


if __name__ == "__main__":
    factory.create_engine = lambda settings: Dying()
    handler.main()
"""


@pytest.fixture
def queue() -> Iterator[LoopbackQueue]:
    with LoopbackQueue(hold_s=2) as queue:
        yield queue


@pytest.fixture
def worker(queue: LoopbackQueue, tmp_path: Path) -> Iterator[Worker]:
    script = tmp_path / "worker.py"
    script.write_text(WORKER.format(root=str(ROOT)))
    env = {"PAGE_WORKERS": "1", "WINDOW": "1"}
    with queue.worker([sys.executable, script], cwd=ROOT, env=env) as worker:
        yield worker


def test_a_worker_without_an_engine_asks_to_be_replaced(queue: LoopbackQueue, worker: Worker) -> None:
    """The running job fails but reports the pages it has read; the worker exits and leaves other jobs in the queue."""
    source = "data:application/pdf;base64," + base64.b64encode(make_chapter_pdf(5)).decode()

    first = queue.wait(queue.put({"input": {"source": source}}))
    code = worker.wait(180)
    queue.put({"input": {"source": source}})

    assert (first.status, first.refresh, code) == ("FAILED", True, 0)
    assert first.error is not None and first.error.startswith("ENGINE_DEAD: the engine is gone")
    assert "to continue" not in first.error  # without an output, the job begins anew
    assert first.output["detail"]["documents"][0]["pages"] == {"read": 2, "unread": 3}
    assert sum(len(take.job_ids) for take in queue.takes) == 1
