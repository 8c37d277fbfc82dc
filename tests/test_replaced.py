"""A worker whose engine is gone for good, behind the unmodified SDK: it asks to be replaced and eats no job."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.queue import LoopbackQueue
from test_pipeline import pdf_of

ROOT = Path(__file__).parents[1]
WORKER = """
import sys

sys.path += [{root!r}, {tests!r}]

import handler
from test_pipeline import ScriptedEngine
from twopass import engines
from twopass.errors import Code, EngineError


class Dying(ScriptedEngine):
    canary = False

    async def generate(self, prompt):
        self.is_gone = self.is_gone or prompt.id.endswith("3")
        if self.is_gone:
            raise EngineError(Code.ENGINE_DEAD, "the engine died too often")
        return await super().generate(prompt)


if __name__ == "__main__":
    engines.constructed = lambda settings: Dying()
    handler.main()
"""


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[LoopbackQueue]:
    script = tmp_path / "worker.py"
    script.write_text(WORKER.format(root=str(ROOT), tests=str(ROOT / "tests")))
    env = {"PAGE_WORKERS": "1", "WINDOW": "1"}
    with LoopbackQueue() as queue, queue.worker([sys.executable, script], cwd=ROOT, env=env):
        yield queue


def test_a_worker_without_an_engine_asks_to_be_replaced(queue: LoopbackQueue) -> None:
    """The job that saw the engine go fails with what it read beside; the next is refused at once; both ask for it."""
    source = "data:application/pdf;base64," + base64.b64encode(pdf_of(5)).decode()

    first = queue.wait(queue.put({"input": {"source": source}}), 60)
    second = queue.wait(queue.put({"input": {"source": source}}), 60)

    assert (first.status, first.refresh) == ("FAILED", True)
    assert first.error is not None and first.error.startswith("ENGINE_DEAD: the engine is gone")
    assert first.output["detail"]["documents"][0]["pages"] == {"read": 2, "unread": 3}
    assert (second.status, second.refresh) == ("FAILED", True)
    assert second.error is not None and "is being replaced; send the job again" in second.error
