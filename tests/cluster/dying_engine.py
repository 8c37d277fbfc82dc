"""Read a report on a Ray cluster whose first engine dies: `python -m tests.cluster.dying_engine ADDRESS FOLDER`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from functools import partial
from pathlib import Path

from twopass.engines.cpu.engine import CpuEngine
from twopass.engines.interface import Completion, Engine, Prompt
from twopass.errors import Code, EngineError
from twopass.fleet.campaign import Campaign, DocumentOutcome, Plan
from twopass.fleet.discovery import DocumentPreparer, DocumentRef
from twopass.fleet.endpoints.ray_cluster import RayCluster, RayOptions
from twopass.fleet.ledger import Ledger
from twopass.settings import Settings
from twopass.worker import open_worker


class DyingEngine(CpuEngine):
    """The first one that is asked is gone for good. Each writes its process id into a file when it is asked first."""

    def __init__(self, processes: Path) -> None:
        super().__init__(1)
        self._processes = processes
        self._is_known = False

    async def generate(self, prompt: Prompt) -> Completion:
        if not self._is_known:
            self._is_known, self.is_gone = True, not self._processes.exists()
            with self._processes.open("a") as file:
                file.write(f"{os.getpid()}\n")
        if self.is_gone:
            raise EngineError(Code.ENGINE_DEAD, "the engine died")
        return await super().generate(prompt)


def create_engine(settings: Settings, processes: Path) -> Engine:
    return DyingEngine(processes)


class Listener:
    """Keeps the last outcome."""

    outcome: DocumentOutcome

    def document_started(self, name: str, pages: int | None, jobs: int) -> None: ...

    def document_progressed(self, name: str, pages_done: int, phase: str) -> None: ...

    def pages_found(self, name: str, pages: int) -> None: ...

    async def document_ended(self, outcome: DocumentOutcome) -> None:
        self.outcome = outcome


async def run(address: str, folder: Path) -> DocumentOutcome:
    settings = Settings()
    open_dying = partial(open_worker, create_engine=partial(create_engine, processes=folder / "processes"))
    async with RayCluster(RayOptions(address), settings, open_dying) as endpoint:
        preparer, ledger = DocumentPreparer(shares_files=True), Ledger(folder / "state.jsonl")
        plan = Plan({"output": str(folder / "read")}, "ray", poll_s=0.1)
        listener = Listener()
        await Campaign(endpoint, preparer, ledger, plan, listener).run([DocumentRef(str(folder / "report.pdf"))])
        return listener.outcome


if __name__ == "__main__":
    from tests.cluster import dying_engine  # the actors import the engine from this module, not from __main__

    outcome = asyncio.run(dying_engine.run(sys.argv[1], Path(sys.argv[2])))
    print(json.dumps({"status": outcome.status, "pages": outcome.result["pages"]}))
