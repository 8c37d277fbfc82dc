"""Actors without a cluster, which do what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from twopass.errors import TwopassError
from twopass.fleet.endpoints.actor_pool import ActorLost, Reply


@dataclass
class ScriptedActor:
    """Opens if `can_open` is set, and holds each job until it is finished or the actor is lost.

    `refusal` is why it does not open; an exception is raised.
    """

    refusal: TwopassError | Exception | None = None
    can_open: asyncio.Event = field(default_factory=asyncio.Event)
    jobs: dict[str, asyncio.Future[Reply]] = field(default_factory=dict)
    is_killed: bool = False
    is_closed: bool = False

    async def open(self) -> TwopassError | None:
        await self.can_open.wait()
        if self.refusal and not isinstance(self.refusal, TwopassError):
            raise self.refusal
        return self.refusal

    async def read(self, job_id: str, job_input: Mapping[str, Any]) -> Reply:
        self.jobs[job_id] = asyncio.get_running_loop().create_future()
        try:
            return await self.jobs[job_id]
        finally:
            del self.jobs[job_id]

    async def progress(self, job_id: str) -> Mapping[str, Any] | None:
        return {"pages_done": 3}

    async def close(self) -> None:
        self.is_closed = True

    def kill(self) -> None:
        self.is_killed = True

    def finish(self, job_id: str, *, is_gone: bool = False) -> None:
        self.jobs[job_id].set_result(Reply({"status": "success"}, None, 1.0, is_gone))

    def lose(self, error: Exception | None = None) -> None:
        """End the actor's process, and so all its jobs."""
        for job in self.jobs.values():
            job.set_exception(error or ActorLost("node lost"))


@dataclass
class Cluster:
    """Starts actors; those after the `refusals` open at once unless `is_full`."""

    refusals: list[TwopassError | Exception] = field(default_factory=list)
    is_full: bool = False
    actors: list[ScriptedActor] = field(default_factory=list)

    def start(self) -> ScriptedActor:
        actor = ScriptedActor(self.refusals.pop(0) if self.refusals else None)
        if not self.is_full:
            actor.can_open.set()
        self.actors.append(actor)
        return actor

    def actor_of(self, job_id: str) -> ScriptedActor:
        """The actor that reads the job now."""
        return next(actor for actor in self.actors if job_id in actor.jobs)
