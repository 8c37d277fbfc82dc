"""Jobs divided among actors, which are started while jobs wait, replaced when they are lost, and ended when idle.

It knows nothing of Ray, only the Actor protocol.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog

from twopass.errors import Code, EndpointError, InvalidSetting, TwopassError
from twopass.fleet.endpoints.interface import JobState, JobStatus
from twopass.runtime import retry
from twopass.runtime.retry import RetryPolicy

log = structlog.get_logger()


class ActorLost(Exception):
    """The actor's process or node is gone; a job that it had may have stored pages."""


class ActorFailed(Exception):
    """The actor's code raised an unexpected error, and the actor lives."""


@dataclass(frozen=True)
class Reply:
    """An actor's answer to a job. `is_gone`: its engine has ended for good, so it gets no further job."""

    output: Mapping[str, Any] | None
    error: str | None
    seconds: float
    is_gone: bool = False


class Actor(Protocol):
    """A process with one engine. Every call raises ActorLost or ActorFailed."""

    async def open(self) -> TwopassError | None:
        """Wait until the actor is placed on a node, and open its engine; returns why that is impossible."""

    async def read(self, job_id: str, job_input: Mapping[str, Any]) -> Reply: ...

    async def progress(self, job_id: str) -> Mapping[str, Any] | None:
        """The progress of a job that the actor reads; None if it is not known now."""

    async def close(self) -> None:
        """End the actor: the engine first, then the process."""

    def kill(self) -> None:
        """End the process at once; harmless if it has ended."""


@dataclass(frozen=True)
class PoolSize:
    """How many actors there are: as many as jobs, within these limits. Each reads `jobs_per_actor` jobs at once.

    An actor above the minimum ends after `idle_s` without a job.
    """

    min_actors: int = 0
    max_actors: int = 1
    jobs_per_actor: int = 4
    idle_s: float = 60.0


@dataclass(eq=False)
class _Member:
    """A place in the pool. Its actor may be started several times until one opens."""

    actor: Actor | None = None
    is_open: bool = False
    jobs: set[str] = field(default_factory=set)
    timer: asyncio.TimerHandle | None = None  # ends the actor unless a job comes

    def stop_timer(self) -> None:
        if self.timer:
            self.timer.cancel()
            self.timer = None

    def kill(self) -> None:
        if self.actor:
            self.actor.kill()
            self.actor = None


class ActorPool:
    """Use it on one event loop, and call `close` at the end."""

    def __init__(
        self, start_actor: Callable[[], Actor], size: PoolSize, retry_policy: RetryPolicy = retry.ACTOR_START
    ) -> None:
        self._start_actor, self._size, self._retry_policy = start_actor, size, retry_policy
        self._members: list[_Member] = []
        self._waiting: dict[str, asyncio.Future[_Member]] = {}  # by job, in the order of their arrival
        self._members_by_job: dict[str, _Member] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._is_closed = False

    async def run(self, job_id: str, job_input: Mapping[str, Any]) -> JobStatus:
        """Read the job with the first actor that is free. Raises EndpointError if no actor can be started."""
        if self._failure:
            raise self._failure
        place = self._waiting[job_id] = asyncio.get_running_loop().create_future()
        self._assign()
        try:
            member = await place
            return await self._read(member, job_id, job_input)
        finally:
            self._waiting.pop(job_id, None)
            self._release(job_id)

    async def progress(self, job_id: str) -> JobStatus:
        """The status of a job that waits or runs."""
        member = self._members_by_job.get(job_id)
        if member is None or member.actor is None:
            return JobStatus(JobState.WAITING)
        with suppress(ActorLost, ActorFailed):  # `run` reports it
            return JobStatus(JobState.RUNNING, await member.actor.progress(job_id))
        return JobStatus(JobState.RUNNING)

    async def close(self) -> None:
        """End all actors at once, and start no more."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while self._members:
            self._retire(self._members[0])

    async def _read(self, member: _Member, job_id: str, job_input: Mapping[str, Any]) -> JobStatus:
        assert member.actor, "an open member has an actor"
        try:
            reply = await member.actor.read(job_id, job_input)
        except ActorLost as lost:
            if member in self._members:  # the first of its jobs to notice
                log.warning("actor lost", reason=str(lost)[:500], jobs=len(member.jobs))
            self._retire(member)
            return JobStatus(JobState.GONE, error=str(lost))
        except ActorFailed as failure:
            return JobStatus(JobState.ENDED, error=f"{Code.INTERNAL}: {failure}")
        if reply.is_gone:
            self._retire(member)
        return JobStatus(JobState.ENDED, reply.output, reply.error, reply.seconds)

    def _assign(self) -> None:
        """Start actors for the jobs, and give waiting jobs to the open ones."""
        if self._is_closed or self._failure:
            return
        wanted = min(max(self._job_count, self._size.min_actors), self._size.max_actors)
        while len(self._members) < wanted:
            self._members.append(_Member())
            self._start_task(self._open(self._members[-1]))
        while self._waiting and (member := self._find_free()):
            job_id = next(iter(self._waiting))
            member.stop_timer()
            member.jobs.add(job_id)
            self._members_by_job[job_id] = member
            self._waiting.pop(job_id).set_result(member)

    def _find_free(self) -> _Member | None:
        """The open member with the fewest jobs. It takes no more than its share while others are being started."""
        share = math.ceil(self._job_count / max(1, len(self._members)))
        limit = min(share, self._size.jobs_per_actor)
        free = [member for member in self._members if member.is_open and len(member.jobs) < limit]
        return min(free, key=lambda member: len(member.jobs), default=None)

    @property
    def _job_count(self) -> int:
        return len(self._waiting) + len(self._members_by_job)

    def _release(self, job_id: str) -> None:
        """The job has ended: its place is free for another."""
        if member := self._members_by_job.pop(job_id, None):
            member.jobs.discard(job_id)
            self._settle(member)
        self._assign()

    def _settle(self, member: _Member) -> None:
        """End a member without jobs: at once if it is retired, else unless a job comes soon."""
        if member.jobs:
            return
        if member not in self._members:
            member.kill()
        elif member.is_open:
            loop = asyncio.get_running_loop()
            member.timer = loop.call_later(self._size.idle_s, self._end_if_idle, member)

    def _end_if_idle(self, member: _Member) -> None:
        if not member.jobs and member in self._members and len(self._members) > self._size.min_actors:
            self._members.remove(member)
            self._start_task(_close(member))

    def _retire(self, member: _Member) -> None:
        """Give the member no further job; its process ends with its last one."""
        member.stop_timer()
        if member in self._members:
            self._members.remove(member)
        self._settle(member)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish_task)

    def _finish_task(self, task: asyncio.Task[None]) -> None:
        """Forget the task. An unexpected error ends all jobs, which would otherwise wait for ever."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._fail(error)

    async def _open(self, member: _Member) -> None:
        """Start actors for this member until one opens. The pool fails if none does and no other is open."""
        attempt = 1
        while error := await self._try_open(member):
            log.warning("actor not started", attempt=attempt, reason=str(error)[:500])
            is_last = isinstance(error, InvalidSetting) or attempt >= self._retry_policy.attempts
            if is_last and not any(other.is_open for other in self._members):
                message = f"no actor can be started; the last one failed with {error}"
                self._fail(EndpointError(Code.ENDPOINT_UNAVAILABLE, message))
                return
            await asyncio.sleep(self._retry_policy.delay(attempt))
            attempt += 1
        member.is_open = True
        self._assign()
        self._settle(member)

    async def _try_open(self, member: _Member) -> TwopassError | None:
        member.actor = self._start_actor()
        try:
            error = await member.actor.open()
        except (ActorLost, ActorFailed) as failure:
            error = EndpointError(Code.ENDPOINT_UNAVAILABLE, str(failure))
        if error:
            member.kill()
        return error

    def _fail(self, error: BaseException) -> None:
        """Fail all jobs that wait now or come later."""
        self._failure = error
        for place in self._waiting.values():
            place.set_exception(error)
        self._waiting.clear()


async def _close(member: _Member) -> None:
    log.info("idle actor ended")
    with suppress(ActorLost, ActorFailed):
        if member.actor:
            await member.actor.close()
    member.kill()
