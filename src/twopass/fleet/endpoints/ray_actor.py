"""What runs in a Ray actor's process: one worker with its engine, which reads the jobs that it is sent.

It knows nothing of Ray, which runs `async` methods on one event loop and many calls at once.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import structlog

from twopass import pipeline
from twopass.errors import Code, EndpointError, EngineError, TwopassError
from twopass.fleet.endpoints.actor_pool import Reply
from twopass.job import EntryPoint, Job
from twopass.settings import Settings, load_settings
from twopass.telemetry import logs
from twopass.telemetry.progress import Tracker
from twopass.version import VERSION
from twopass.worker import Worker, check_settings, open_worker

OpenWorker = Callable[[Settings], AbstractContextManager[Worker]]


class ReadingActor:
    """Owns one worker. `fixed` are settings that take precedence over this node's environment."""

    def __init__(self, fixed: Mapping[str, Any], open_worker: OpenWorker = open_worker) -> None:
        self._fixed, self._open_worker = dict(fixed), open_worker
        self._stack = ExitStack()
        self._worker: Worker | None = None
        self._trackers: dict[str, Tracker] = {}

    async def open(self, version: str) -> TwopassError | None:
        """Open the engine; returns why that is impossible. `version` is that of the command."""
        if version != VERSION:
            message = f"a node has twopass {VERSION}, the command {version}; install one version everywhere"
            return EndpointError(Code.ENDPOINT_DENIED, message)
        os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")  # Ray's threads do not survive a fork
        try:
            settings = load_settings(**self._fixed)
            logs.set_up(settings)
            check_settings(settings)
            self._worker = await asyncio.to_thread(self._stack.enter_context, self._open_worker(settings))
        except TwopassError as error:
            return error
        return None

    async def read(self, job_id: str, job_input: Mapping[str, Any]) -> Reply:
        """Read the job. Cancelling the call cancels the work."""
        assert self._worker, "the pool sends jobs to open actors only"
        structlog.contextvars.bind_contextvars(job=job_id)
        started = time.monotonic()
        output: dict[str, Any] | None = None
        tracker = self._trackers[job_id] = Tracker()
        try:
            output = await self._run(job_id, job_input, self._worker, tracker)
            error = output.get("error")
        except TwopassError as refusal:
            error = str(refusal)[:1000]
        finally:
            del self._trackers[job_id]
        return Reply(output, error, time.monotonic() - started, self._worker.engine.is_gone)

    async def _run(self, job_id: str, job_input: Mapping[str, Any], worker: Worker, tracker: Tracker) -> dict[str, Any]:
        if worker.engine.is_gone:
            raise EngineError(Code.ENGINE_DEAD, "the actor's engine is gone and the actor is being replaced")
        job = Job.parse({"id": job_id, "input": job_input}, worker.settings, EntryPoint.LOCAL)
        result = await asyncio.wrap_future(worker.submit(pipeline.run(job, worker, tracker)))
        return result.as_answer()

    async def progress(self, job_id: str) -> dict[str, Any] | None:
        tracker = self._trackers.get(job_id)
        return tracker.now.as_dict() if tracker else None

    async def close(self) -> None:
        """Close the engine, so that its GPU is free when the process ends."""
        await asyncio.to_thread(self._stack.close)
